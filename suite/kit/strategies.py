"""Blocks for differential fuzzing, as hypothesis strategies that shrink to the one block that shows a difference.

A block is a unit times multiples of it. Between them they reach what fixed inputs are too few for: ties,
zeros of both signs, subnormal, tiny and huge steps, constant blocks, the extreme at either end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import groupby

import numpy as np
from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample
from hypothesis.extra.numpy import arrays
from hypothesis.strategies import SearchStrategy
from numpy.typing import NDArray

LEAST_VALUES = 32
"""Types without blocks are asked for as many values as the smallest block holds."""

LARGEST = 65504.0
"""The largest finite float16. Powers of weights much larger overflow, on which ggml's lattice searches end
the process."""

SUBNORMAL = 2.0**-140
"""A step of which every multiple is subnormal."""


@dataclass(frozen=True)
class Grid:
    """Multiples from ``low`` to ``high`` that make a format's step exactly the unit, so that all others tie.

    ``parts`` is into how many a step is divided: 2 where steps are equal, 4 where the smallest is a half.
    """

    low: int
    high: int
    parts: int = 2


GRIDS = (Grid(-127, 127), Grid(-8, 7), Grid(-16, 15), Grid(-32, 31), Grid(-4, 3), Grid(-1, 1), Grid(-6, 6, 4))
"""Of 8, 4, 5, 6, 3 bits, of ternary and of E2M1 codes."""


@dataclass(frozen=True)
class Case:
    """One block to quantize: float32[1, values], and float32[values] or None."""

    weight: NDArray[np.float32]
    importance: NDArray[np.float32] | None

    def __str__(self) -> str:
        """Python that makes the block again, bit for bit."""
        importance = "None" if self.importance is None else _pasted(self.importance)
        return f"weight = {_pasted(self.weight)}\nimportance = {importance}"


@cache
def generated(values: int, with_importance: bool, examples: int) -> tuple[Case, ...]:
    """``examples`` of ``cases``: the same for one version of hypothesis and of this project, whose constants it uses.

    Types whose blocks are of one size share them, since making a block takes longer than quantizing it.
    """
    met: list[Case] = []
    _find(cases(values, with_importance), met.append, examples)
    return tuple(met)


def shrunk(case: Case, differs: Callable[[Case], bool], examples: int) -> Case:
    """The simplest that is found in place of a generated ``case`` on which ``differs``."""
    values, with_importance = case.weight.size, case.importance is not None
    return _find(cases(values, with_importance), differs, examples) or case


def _find(strategy: SearchStrategy[Case], condition: Callable[[Case], object], examples: int) -> Case | None:
    chosen = settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    try:
        return find(strategy, condition, settings=chosen)
    except NoSuchExample:
        return None


def cases(values: int, with_importance: bool) -> SearchStrategy[Case]:
    """One block of ``values`` weights, or ``LEAST_VALUES`` of them where blocks are smaller."""
    values = max(values, LEAST_VALUES)
    return st.builds(Case, weights(values), importances(values) if with_importance else st.none())


def weights(values: int) -> SearchStrategy[NDArray[np.float32]]:
    """Float32[1, values], every one finite and at most ``LARGEST``."""
    # Powers of two leave ties exact; other units round every product.
    powers = st.integers(-149, 15).map(lambda exponent: 2.0**exponent)
    units = st.sampled_from((1.0, SUBNORMAL, 2.0**-24)) | powers | st.floats(2.0**-24, 2.0**8, width=32)
    return st.builds(_scaled, on_a_grid(values), units) | st.builds(_scaled, off_the_grids(values), units)


def on_a_grid(values: int) -> SearchStrategy[NDArray[np.float32]]:
    """Steps and half steps of one of the ``GRIDS``, both extremes of the grid among them."""
    steps = st.binary(min_size=values, max_size=values).map(lambda drawn: np.frombuffer(drawn, np.int8))
    places = st.sampled_from((0, values - 1)) | st.integers(0, values - 1)
    return st.builds(_on_a_grid, steps, st.sampled_from(GRIDS), places, places)


def off_the_grids(values: int) -> SearchStrategy[NDArray[np.float32]]:
    """Zeros and signs alone, the neighbours of ties, ordinary values, and any magnitudes side by side."""
    ties = st.integers(-127, 127).map(lambda step: np.float32(step + 0.5))
    neighbours = st.builds(np.nextafter, ties, st.sampled_from((np.float32(np.inf), np.float32(-np.inf))))
    ordinary = st.binary(min_size=2 * values, max_size=2 * values).map(lambda drawn: np.frombuffer(drawn, "<i2"))
    return st.one_of(
        _mostly_constant(values, st.sampled_from((0.0, -0.0, 1.0, -1.0))),
        _mostly_constant(values, neighbours),
        _mostly_constant(values, st.floats(-LARGEST, LARGEST, width=32)),
        ordinary.map(lambda steps: steps / np.float32(0x7FFF)),
    )


def importances(values: int) -> SearchStrategy[NDArray[np.float32]]:
    """Float32[values]: zeros, and what means of squared activations come to."""
    return _mostly_constant(values, st.floats(0, 2.0**20, width=32))


def _mostly_constant(values: int, elements: SearchStrategy[float]) -> SearchStrategy[NDArray[np.float32]]:
    """A few places of their own value among one that fills the rest."""
    return arrays(np.float32, values, elements=elements, fill=elements)


def _on_a_grid(steps: NDArray[np.int8], grid: Grid, low_at: int, high_at: int) -> NDArray[np.float32]:
    weight = np.fmod(steps / np.float32(grid.parts), np.float32(grid.high))
    weight[low_at], weight[high_at] = grid.low, grid.high
    return weight


def _scaled(multiples: NDArray[np.float32], unit: float) -> NDArray[np.float32]:
    return np.clip(multiples.astype(np.float64) * unit, -LARGEST, LARGEST).astype(np.float32)[None]


def _pasted(array: NDArray[np.float32]) -> str:
    # repr of a Python float is the shortest text that reads back as the same value, and tells -0.0 from 0.0.
    runs = [(value, len(list(alike))) for value, alike in groupby(map(repr, array.ravel().tolist()))]
    values = ", ".join(value if count == 1 else f"*{count} * [{value}]" for value, count in runs)
    opening, closing = "[" * array.ndim, "]" * array.ndim
    return f"np.array({opening}{values}{closing}, dtype=np.float32)"
