"""The plot of series over the steps: where everything stands; the template draws it as inline SVG.

Lengths are in the SVG's own coordinates; a page shows them at about one pixel each, a phone at three quarters of one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from suite.kit.results import Series
from suite.report.figures import number

WIDTH, HEIGHT = 460, 230
LEFT, RIGHT, TOP, BOTTOM = 40, 352, 10, 204
"""The edges of the area that lines are drawn in; their names stand to the right of it."""
LINE_HEIGHT = 13
COLOURS = 6
MOST_TICKS = 6


@dataclass(frozen=True)
class Tick:
    """A mark of an axis: where it stands on it, and its text."""

    at: float
    text: str


@dataclass(frozen=True)
class Line:
    """One series over the steps."""

    label: str
    title: str
    colour: int
    runs: tuple[str, ...]
    """``points`` of polylines, more than one where a step has no place on a logarithmic axis."""
    end: float
    """Height of its last stretch."""
    label_at: float
    """Height of its name, which gives way to other names."""


@dataclass(frozen=True)
class StepPlot:
    """Series over the steps of the reference run, on a logarithmic axis."""

    lines: tuple[Line, ...]
    steps: tuple[Tick, ...]
    heights: tuple[Tick, ...]
    notes: tuple[str, ...]


def step_plot(series: Sequence[Series]) -> StepPlot:
    """The plot of series with one value for each step."""
    drawn = [value for each in series for value in each.values if _has_place(value)]
    low, high = _decades(drawn)
    last = max(len(each.values) for each in series) - 1

    def height(value: float) -> float:
        return BOTTOM - (math.log10(value) - low) / (high - low) * (BOTTOM - TOP)

    def across(step: int) -> float:
        return LEFT + step / max(last, 1) * (RIGHT - LEFT)

    ends = [height(_end(each.values)) for each in series]
    lines = [
        Line(
            label=each.label,
            title=f"{each.label}: {_extent(each.values)}",
            colour=position % COLOURS,
            runs=tuple(
                " ".join(f"{across(step):.1f},{height(value):.1f}" for step, value in run)
                for run in _unbroken(each.values)
            ),
            end=end,
            label_at=label_at,
        )
        for position, (each, end, label_at) in enumerate(zip(series, ends, _apart(ends), strict=True))
    ]
    every = math.ceil((high - low) / MOST_TICKS)
    return StepPlot(
        lines=tuple(lines),
        steps=tuple(Tick(across(step), str(step)) for step in sorted({0, last // 2, last})),
        heights=tuple(Tick(height(10.0**power), _power(power)) for power in range(low, high + 1, every)),
        notes=tuple(note for each in series for note in _notes(each)),
    )


def _has_place(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten that enclose all values; some where there are none."""
    if not values:
        return -1, 1
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _unbroken(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """Step and value, in stretches that all have a place on the axis."""
    stretches: list[list[tuple[int, float]]] = [[]]
    for step, value in enumerate(values):
        if _has_place(value):
            stretches[-1].append((step, value))
        elif stretches[-1]:
            stretches.append([])
    return [stretch for stretch in stretches if stretch]


def _end(values: Sequence[float | None]) -> float:
    """The median of a line's last tenth, beside which its name stands; 1 where it has none."""
    drawn = [value for value in values if _has_place(value)]
    tail = sorted(drawn[-max(1, len(drawn) // 10) :])
    return tail[len(tail) // 2] if tail else 1.0


def _extent(values: Sequence[float | None]) -> str:
    drawn = [value for value in values if _has_place(value)]
    return f"from {number(min(drawn))} to {number(max(drawn))}" if drawn else "nothing to draw"


def _apart(heights: Sequence[float]) -> list[float]:
    """Heights of names, at least a line apart, in the order of the lines and no higher than they must."""
    order = sorted(range(len(heights)), key=heights.__getitem__)
    placed = [heights[position] for position in order]
    for above, below in pairwise(range(len(placed))):
        placed[below] = max(placed[below], placed[above] + LINE_HEIGHT)
    overflow = max(0.0, placed[-1] - BOTTOM)
    result = [0.0] * len(heights)
    for position, height in zip(order, placed, strict=True):
        result[position] = height - overflow
    return result


def _power(power: int) -> str:
    return f"{10**power:,}" if 0 <= power < 5 else "0.1" if power == -1 else f"1e{power}"


def _notes(series: Series) -> list[str]:
    zero = sum(value == 0 for value in series.values)
    not_finite = sum(value is not None and not math.isfinite(value) for value in series.values)
    told = ((zero, "0, which a logarithmic axis has no place for"), (not_finite, "not a finite number"))
    return [f"{series.label}: {count} of {len(series.values)} steps are {what}" for count, what in told if count]
