"""The search for the scale that a block of weights is best divided by: ggml's ``make_qx_quants``.

The same candidates and the same sums in the same order as there, so that the same scale wins.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from impl.reference.blocks.arithmetic import ONE, ZERO, compiled
from impl.reference.blocks.lanes import LANES, Lanes, extremes, held, lanes, load, nearest_integer, store, where
from impl.reference.blocks.transposition import choose, into_lanes, out_of_lanes, room_for_lanes

VANISHING = np.float32(1e-15)
"""A block whose largest magnitude is below this counts as all zeros."""
TENTH = np.float32(0.1)
MOVES = 9
"""How many tenths the divisor is moved down and up."""


class Fit(NamedTuple):
    """The least-squares scale for the levels that x * ``inverse`` gives; ``gain`` is what it takes off the error."""

    gain: Lanes
    scale: Lanes
    inverse: Lanes


def fit_scale(
    x: NDArray[np.float32], weights: NDArray[np.float32], zero: int
) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """The scale that makes weighted squares of x - scale * (code - zero) small, codes below 2 * zero.

    ``x`` and ``weights`` are float32[blocks, size]. Returns float32[blocks] and codes uint8[blocks, size].
    A block whose largest magnitude is below 1e-15 has scale 0 and codes 0.
    """
    scale, codes = room_for_lanes(len(x)), np.empty(x.shape, np.uint8)
    _fit_scale(x, weights, np.float32(zero), scale, codes)
    return scale[: len(x)], codes


@compiled
def _fit_scale(
    x: NDArray[np.float32],
    weights: NDArray[np.float32],
    zero: np.float32,
    scale: NDArray[np.float32],
    codes: NDArray[np.uint8],
) -> None:
    size = x.shape[1]
    v = np.empty((size, LANES), np.float32)
    w = np.empty((size, LANES), np.float32)
    blocks, chosen = np.arange(x.shape[0]), np.empty(LANES, np.intp)
    for start in range(0, blocks.size, LANES):
        choose(blocks, start, chosen)
        into_lanes(x, chosen, v)
        into_lanes(weights, chosen, w)
        extreme = extremes(v)
        vanishing = abs(extreme) < VANISHING
        best = _search(v, w, extreme, zero)
        for i in range(size):
            code = level_of(load(v, i), best.inverse, zero) + zero
            store(where(vanishing, ZERO, code), v, i)
        out_of_lanes(v, chosen, codes)
        store(where(vanishing, ZERO, best.scale), scale, start // LANES)


@compiled
def _search(v: NDArray[np.float32], w: NDArray[np.float32], extreme: Lanes, zero: np.float32) -> Fit:
    inverse = -zero / extreme
    sum_xl, sum_ll = _sum_levels(v, w, inverse, zero)
    best = fit_of(sum_xl, sum_ll, inverse)
    for moved in range(-MOVES, MOVES + 1):
        if moved:
            inverse = -(zero + TENTH * np.float32(moved)) / extreme
            sum_xl, sum_ll = _sum_levels(v, w, inverse, zero)
            best = better_fit(sum_xl, sum_ll, inverse, best)
    return best


@compiled
def level_of(x: Lanes, inverse: Lanes, zero: np.float32) -> Lanes:
    """x * inverse as a whole number from -zero to zero - 1."""
    return held(nearest_integer(inverse * x), -zero, zero - ONE)


@compiled
def _sum_levels(
    v: NDArray[np.float32], w: NDArray[np.float32], inverse: Lanes, zero: np.float32
) -> tuple[Lanes, Lanes]:
    """The weighted sums of levels times x, and of squares of levels."""
    sum_xl = sum_ll = lanes(ZERO)
    for i in range(v.shape[0]):
        x, weight = load(v, i), load(w, i)
        level = level_of(x, inverse, zero)
        sum_xl += weight * x * level
        sum_ll += weight * level * level
    return sum_xl, sum_ll


@compiled
def fit_of(sum_xl: Lanes, sum_ll: Lanes, inverse: Lanes) -> Fit:
    """The fit for the weighted sums of levels times x and of squares of levels; scale 0 without any level."""
    scale = where(sum_ll == ZERO, ZERO, sum_xl / sum_ll)
    return Fit(scale * sum_xl, scale, inverse)


@compiled
def better_fit(sum_xl: Lanes, sum_ll: Lanes, inverse: Lanes, best: Fit) -> Fit:
    """The fit for these sums where it gains more than ``best``, else that."""
    tried = fit_of(sum_xl, sum_ll, inverse)
    better = (sum_ll > ZERO) & (sum_xl * sum_xl > best.gain * sum_ll)
    return Fit(
        where(better, tried.gain, best.gain),
        where(better, tried.scale, best.scale),
        where(better, tried.inverse, best.inverse),
    )
