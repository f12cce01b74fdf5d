"""From pytest's reports to outcomes: what a test decides, told phase by phase.

Claim and outcome travel as plain data in a report's ``user_properties``, as figures do.
"""

from collections.abc import Callable, Mapping, Sequence, Set

import pytest

from suite.claims import CLAIMS, Claim, Question
from suite.kit.results import (
    FIGURE,
    SERIES,
    Figure,
    HardwareAbsent,
    NotOffered,
    Outcome,
    Result,
    Series,
    Undecided,
    reproduction,
)

CLAIM = "claim"
OUTCOME = "outcome"
NOTE = "to reproduce: "

SKIPPED: Mapping[type[pytest.skip.Exception], Outcome] = {
    HardwareAbsent: Outcome.HARDWARE_ABSENT,
    NotOffered: Outcome.NOT_OFFERED,
    Undecided: Outcome.UNDECIDED,
}


def describe(item: pytest.Item, claim: Claim) -> None:
    """Attach to a test, before it runs, which claim, implementation and case it decides."""
    implementation = _implementation(item)
    case = item.callspec.id if hasattr(item, "callspec") else ""
    case = case.removeprefix(implementation).strip("-") if implementation else case
    item.user_properties.append((CLAIM, {"id": claim.id, "implementation": implementation, "case": case}))


def _implementation(item: pytest.Item) -> str:
    """The name of the implementation that a test is about; empty for one about none."""
    parameters: Mapping[str, object] = item.callspec.params if hasattr(item, "callspec") else {}
    return str(getattr(parameters.get("implementation"), "name", ""))


def explain(item: pytest.Item, call: pytest.CallInfo, options_for: Callable[[str], Sequence[str]]) -> None:
    """Note on what a claim's test raised how to see it again, wherever it will be shown.

    ``options_for`` gives the options of a run of one implementation alone.
    """
    raised = call.excinfo.value if call.excinfo is not None else None
    if raised is not None and not isinstance(raised, pytest.skip.Exception) and item.get_closest_marker("claim"):
        raised.add_note(f"{NOTE}{reproduction(item.nodeid, options_for(_implementation(item)))}")


def decide(call: pytest.CallInfo, report: pytest.TestReport, required: Set[Question]) -> None:
    """Attach to a phase's report the outcome that it decides, if any.

    A claim that does not hold and answers none of the ``required`` questions is *not met*, for pytest an expected
    failure: it ends no run and decides no exit code. An error always does.
    """
    outcome = _outcome(call, report)
    if outcome is Outcome.FAIL and is_about_a_claim(report) and _question(report) not in required:
        outcome = Outcome.NOT_MET
        report.outcome, report.wasxfail = "skipped", next(iter(_crash(report).splitlines()), "")
    if outcome is not None:
        report.user_properties.append((OUTCOME, str(outcome)))


def _question(report: pytest.TestReport) -> Question:
    return next(CLAIMS[value["id"]].question for name, value in report.user_properties if name == CLAIM)


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


def is_about_a_claim(report: pytest.TestReport) -> bool:
    """Whether the test that a phase belongs to decides a claim."""
    return any(name == CLAIM for name, _ in report.user_properties)


def result_of(report: pytest.TestReport) -> Result | None:
    """The row that a finished phase stands for; None for a test without a claim or a phase without verdict."""
    properties = list(report.user_properties)
    described = next((value for name, value in properties if name == CLAIM), None)
    outcome = next((value for name, value in properties if name == OUTCOME), None)
    if described is None or outcome is None or (report.when != "call" and report.passed):
        return None
    figures = tuple(Figure(**value) for name, value in properties if name == FIGURE)
    series = tuple(Series(**value) for name, value in properties if name == SERIES)
    return Result(
        claim=described["id"],
        implementation=described["implementation"],
        case=described["case"],
        outcome=Outcome(outcome),
        figures=figures,
        detail=_detail(report, Outcome(outcome)),
        node=report.nodeid,
        series=series,
    )


def _detail(report: pytest.TestReport, outcome: Outcome) -> str:
    if hasattr(report, "wasxfail") and outcome is not Outcome.NOT_MET:
        return str(report.wasxfail)
    if report.skipped and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).split(": ", maxsplit=1)[-1]
    return _crash(report)


def _crash(report: pytest.TestReport) -> str:
    """What was raised, without the note on how to see it again."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr or "")
    return "\n".join(line for line in text.splitlines() if not line.startswith(NOTE))
