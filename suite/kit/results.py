"""What a run finds: for each claim and case an outcome, figures, and series of figures to draw.

Figures and series travel as plain data in a test's ``user_properties``, so that they reach the controller
from every xdist worker and stand in JUnit XML as well.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

import pytest

from suite.claims import Claim

FIGURE = "figure"
SERIES = "series"

OVER_STEPS = (
    "logits.",
    "generation.",
    "metadata.",
    "rope.",
    "causality.",
    "device.metal",
    "device.equals-cpu",
    "torch-int8.error",
)
"""How the claims begin that are measured over the steps of the reference run."""
FIRST_STEP = "step 0"
"""How the label of a figure ends that is the same over any number of steps."""


class Outcome(StrEnum):
    """The outcomes, none of which counts as another."""

    PASS = "pass"
    FAIL = "fail"
    DEVIATION = "deviation"
    NOT_OFFERED = "not offered"
    HARDWARE_ABSENT = "hardware absent"
    UNDECIDED = "undecided"
    NOT_MET = "not met"
    """The claim does not hold, and answers a question that was not required of this run."""
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


@dataclass(frozen=True)
class Figure:
    """One measured figure; ``article`` is what the article measured, None where it measured nothing."""

    label: str
    measured: float
    article: float | None = None


@dataclass(frozen=True)
class Series:
    """Figures that are drawn, to four digits: one for each step or, with ``names``, one for each tensor.

    A value is None where nothing was compared.
    """

    label: str
    values: tuple[float | None, ...]
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measure:
    """Records the figures of one test, each beside the article's where there is one.

    ``comparable`` says whether the checkpoint has the shapes of the article's model; on any other its
    figures mean nothing and are left out. ``window`` is the number of the reference run's steps that are measured
    where these are not all: a figure over them says so, and stands beside none of the article's.
    """

    claim: Claim
    comparable: bool
    properties: list[tuple[str, object]]
    window: int | None = None

    def __call__(self, label: str, value: float) -> None:
        """Record what was measured."""
        if self._within_a_window and not label.endswith(FIRST_STEP):
            label = f"{label}, first {self.window} steps"
        article = self.claim.figures.get(label) if self.comparable else None
        self.properties.append((FIGURE, asdict(Figure(label, value, article))))

    def each(self, prefix: str, figures: Mapping[str, float]) -> None:
        """Record several figures, each label after ``prefix``."""
        for label, value in figures.items():
            self(f"{prefix}: {label}", value)

    def series(self, label: str, values: Iterable[float | None], names: Sequence[str] = ()) -> None:
        """Record what a plot of the report shows; see ``Series``."""
        drawn = tuple(None if value is None else float(f"{value:.4g}") for value in values)
        self.properties.append((SERIES, asdict(Series(label, drawn, tuple(names)))))

    def exactly(self, label: str, value: float) -> None:
        """Record a figure that must be the article's own, to the last digit."""
        self(label, value)
        if self.comparable and not self._within_a_window:
            expected = self.claim.figures[label]
            assert value == expected, f"{label}: {value:,} where {expected:,} is right"

    @property
    def _within_a_window(self) -> bool:
        return self.window is not None and self.claim.id.startswith(OVER_STEPS)


@dataclass(frozen=True)
class Result:
    """One claim's outcome in one case.

    ``implementation`` is empty for a claim about no implementation (torch's own arithmetic, say), and
    ``case`` for a claim with one case only. ``detail`` is the message of what went wrong, or the reason why
    nothing was decided.
    """

    claim: str
    implementation: str
    case: str
    outcome: Outcome
    figures: tuple[Figure, ...]
    detail: str
    node: str
    series: tuple[Series, ...] = ()

    @property
    def summary(self) -> str:
        """The first line of ``detail``."""
        return next(iter(self.detail.splitlines()), "")


def reproduction(node: str, options: Sequence[str]) -> str:
    """The shell command that runs one test again; ``options`` are this project's own, as the run was given them."""
    return shlex.join(["pytest", node, *options])
