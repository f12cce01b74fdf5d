"""What a run found, one row for each claim and case, taken from pytest's own reports.

Everything travels as plain data in a report's ``user_properties``, so that it reaches the controller
from every xdist worker and stands in JUnit XML as well.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum

import pytest

from suite.claims import Claim

CLAIM = "claim"
FIGURE = "figure"
OUTCOME = "outcome"


class Outcome(StrEnum):
    """The outcomes, none of which counts as another."""

    PASS = "pass"
    FAIL = "fail"
    DEVIATION = "deviation"
    NOT_OFFERED = "not offered"
    HARDWARE_ABSENT = "hardware absent"
    UNDECIDED = "undecided"
    ERROR = "error"

    @property
    def breaks_the_run(self) -> bool:
        """Whether a run with this outcome in it exits non-zero."""
        return self in (Outcome.FAIL, Outcome.ERROR)


class NotOffered(pytest.skip.Exception):
    """The implementation does not have the capability, type, recipe or backend that a claim needs."""


class HardwareAbsent(pytest.skip.Exception):
    """This machine lacks the device that a claim needs."""


class Undecided(pytest.skip.Exception):
    """What a claim compares with cannot answer on this checkpoint, or is not recorded."""


SKIPPED: Mapping[type[pytest.skip.Exception], Outcome] = {
    HardwareAbsent: Outcome.HARDWARE_ABSENT,
    NotOffered: Outcome.NOT_OFFERED,
    Undecided: Outcome.UNDECIDED,
}


@dataclass(frozen=True)
class Figure:
    """One measured figure; ``article`` is what the article measured, None where it measured nothing."""

    label: str
    measured: float
    article: float | None = None


@dataclass(frozen=True)
class Measure:
    """Records the figures of one test, each beside the article's where there is one.

    ``comparable`` says whether the checkpoint has the shapes of the article's model; on any other its
    figures mean nothing and are left out.
    """

    claim: Claim
    comparable: bool
    properties: list[tuple[str, object]]

    def __call__(self, label: str, value: float) -> None:
        """Record what was measured."""
        article = self.claim.figures.get(label) if self.comparable else None
        self.properties.append((FIGURE, asdict(Figure(label, value, article))))

    def each(self, prefix: str, figures: Mapping[str, float]) -> None:
        """Record several figures, each label after ``prefix``."""
        for label, value in figures.items():
            self(f"{prefix}: {label}", value)

    def exactly(self, label: str, value: float) -> None:
        """Record a figure that must be the article's own, to the last digit."""
        self(label, value)
        if self.comparable:
            expected = self.claim.figures[label]
            assert value == expected, f"{label}: {value:,} where {expected:,} is right"


@dataclass(frozen=True)
class Result:
    """One claim's outcome in one case.

    ``implementation`` is empty for a claim about no implementation (torch's own arithmetic, say), and
    ``case`` for a claim with one case only. ``detail`` is the first line of what went wrong.
    """

    claim: str
    implementation: str
    case: str
    outcome: Outcome
    figures: tuple[Figure, ...]
    detail: str
    node: str

    def as_json(self) -> dict[str, object]:
        """Plain data for ``report.json``."""
        return asdict(self)


def describe(item: pytest.Item, claim: Claim) -> None:
    """Attach to a test, before it runs, which claim, implementation and case it decides."""
    parameters: Mapping[str, object] = item.callspec.params if hasattr(item, "callspec") else {}
    implementation = str(getattr(parameters.get("implementation"), "name", ""))
    case = item.callspec.id if parameters else ""
    case = case.removeprefix(implementation).strip("-") if implementation else case
    item.user_properties.append((CLAIM, {"id": claim.id, "implementation": implementation, "case": case}))


def decide(call: pytest.CallInfo, report: pytest.TestReport) -> None:
    """Attach to a phase's report the outcome that it decides, if any."""
    outcome = _outcome(call, report)
    if outcome is not None:
        report.user_properties.append((OUTCOME, str(outcome)))


def _outcome(call: pytest.CallInfo, report: pytest.TestReport) -> Outcome | None:
    """The outcome that one phase of a test decides; None while it is undecided.

    An ``AssertionError`` is the claim found wanting. Any other exception is an error of the
    implementation (or of this suite), which leaves the claim undecided.
    """
    if hasattr(report, "wasxfail"):
        return Outcome.DEVIATION if report.skipped else Outcome.FAIL
    if report.failed:
        # A strict expected failure that passes has no exception; the stale deviation is the failure.
        failed_claim = call.excinfo is None or call.excinfo.errisinstance((AssertionError, pytest.fail.Exception))
        return Outcome.FAIL if failed_claim and report.when == "call" else Outcome.ERROR
    if report.skipped:
        raised = type(call.excinfo.value) if call.excinfo is not None else None
        # A skip of any other kind says nothing of the claim.
        return SKIPPED.get(raised, Outcome.UNDECIDED)
    return Outcome.PASS if report.when == "call" else None


def result_of(report: pytest.TestReport) -> Result | None:
    """The row that a finished phase stands for; None for a test without a claim or a phase without verdict."""
    properties = list(report.user_properties)
    described = next((value for name, value in properties if name == CLAIM), None)
    outcome = next((value for name, value in properties if name == OUTCOME), None)
    if described is None or outcome is None or (report.when != "call" and report.passed):
        return None
    figures = tuple(Figure(**value) for name, value in properties if name == FIGURE)
    return Result(
        claim=described["id"],
        implementation=described["implementation"],
        case=described["case"],
        outcome=Outcome(outcome),
        figures=figures,
        detail=_detail(report),
        node=report.nodeid,
    )


def _detail(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return str(report.wasxfail)
    if report.skipped and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).split(": ", maxsplit=1)[-1]
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr or "")
    return next(iter(text.splitlines()), "")
