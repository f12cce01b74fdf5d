"""The least error that a block of a legacy type can have at all, by trying every scale that it can store.

Given scale and minimum, the nearest level to each weight is the best code; so the least over all scales is the best of
the format, whatever a program searches.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Levels:
    """The codes from ``low`` to ``high`` of a type whose values are scale x code, plus a minimum where it has one."""

    low: int
    high: int
    has_minimum: bool = False


LEVELS: Mapping[str, Levels] = {
    "q4_0": Levels(-8, 7),
    "q4_1": Levels(0, 15, has_minimum=True),
    "q5_0": Levels(-16, 15),
    "q5_1": Levels(0, 31, has_minimum=True),
    "q8_0": Levels(-128, 127),
}
"""By type; their scales and minima are float16s, their blocks 32 weights."""

NARROWEST, WIDEST = 0.5, 1.2
"""With a minimum, the scales tried, as shares of the one that spans all weights: narrower ones clip half of them."""
STEPS_AROUND = 2
"""And the minima tried: within so many steps of the least weight."""


def best_error(block: NDArray[np.float32], type: str) -> float:
    """The root of the least sum of squared differences for one block float32[32] of a type of ``LEVELS``."""
    levels, exact = LEVELS[type], block.astype(np.float64)
    if not levels.has_minimum:
        scales = _float16s(-np.inf, np.inf)
        return float(np.sqrt(_squares(exact, scales[:, None], np.zeros((1, 1)), levels).min()))
    spanning = np.ptp(exact) / levels.high
    scales = _float16s(NARROWEST * spanning, WIDEST * spanning)
    return float(np.sqrt(min(_least_over_minima(exact, scale, levels) for scale in scales)))


def _least_over_minima(exact: NDArray[np.float64], scale: float, levels: Levels) -> float:
    least, width = exact.min(), STEPS_AROUND * scale
    minima = _float16s(least - width, least + width)
    return float(_squares(exact, np.full((1, 1), scale), minima[:, None], levels).min())


def _squares(
    exact: NDArray[np.float64], scales: NDArray[np.float64], minima: NDArray[np.float64], levels: Levels
) -> NDArray[np.float64]:
    """The sum of squares for each pair of scale and minimum: float64[pairs]."""
    codes = np.clip(np.rint((exact - minima) / scales), levels.low, levels.high)
    return ((scales * codes + minima - exact) ** 2).sum(axis=1)


def _float16s(low: float, high: float) -> NDArray[np.float64]:
    """Every finite float16 from ``low`` to ``high``, but 0."""
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(np.float16).astype(np.float64)
    return every[np.isfinite(every) & (every != 0) & (every >= low) & (every <= high)]
