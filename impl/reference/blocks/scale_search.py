"""The search for the scale that a block of weights is best divided by: ggml's ``make_qx_quants``.

The same candidates and the same sums in the same order as there, so that the same scale wins.
"""

import numpy as np
from numpy.typing import NDArray

from impl.reference.blocks.arithmetic import ZERO, clamped, compiled, nearest
from impl.reference.blocks.lanes import LANES, codes_of, extremes, into_lanes

VANISHING = np.float32(1e-15)
"""A block whose largest magnitude is below this counts as all zeros."""
TENTH = np.float32(0.1)
GAIN, SCALE, INVERSE = 0, 1, 2
"""Rows of what is kept of the best attempt so far, float32[3, lanes]."""


def fit_scale(
    x: NDArray[np.float32], weights: NDArray[np.float32], zero: int
) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """The scale that makes weighted squares of x - scale * (code - zero) small, codes below 2 * zero.

    ``x`` and ``weights`` are float32[blocks, size]. Returns float32[blocks] and codes uint8[blocks, size].
    A block whose largest magnitude is below 1e-15 has scale 0 and codes 0.
    """
    scale, codes = np.empty(len(x), np.float32), np.empty(x.shape, np.uint8)
    _fit_scale(x, weights, np.int32(zero), scale, codes)
    return scale, codes


@compiled
def _fit_scale(
    x: NDArray[np.float32],
    weights: NDArray[np.float32],
    zero: np.int32,
    scale: NDArray[np.float32],
    codes: NDArray[np.uint8],
) -> None:
    size = x.shape[1]
    v = np.empty((size, LANES), np.float32)
    w = np.empty((size, LANES), np.float32)
    sum_xl = np.empty(LANES, np.float32)
    sum_ll = np.empty(LANES, np.float32)
    inverse = np.empty(LANES, np.float32)
    best = np.zeros((3, LANES), np.float32)
    kept = np.zeros((3, LANES), np.float32)
    no_origin = np.zeros(LANES, np.float32)
    for start in range(0, x.shape[0], LANES):
        filled = into_lanes(x, start, v)
        into_lanes(weights, start, w)
        extreme = extremes(v)
        for attempt in range(19):
            # The plain division comes first; then the divisor moves from -0.9 to 0.9 around it.
            moved = attempt - 10 if attempt < 10 else attempt - 9
            divisor = np.float32(zero) + TENTH * np.float32(moved if attempt else 0)
            for lane in range(LANES):
                inverse[lane] = -divisor / extreme[lane]
            _sum_levels(v, w, inverse, zero, sum_xl, sum_ll)
            keep_better_scale(attempt == 0, sum_xl, sum_ll, inverse, best, kept)
            best, kept = kept, best
        codes_of(x, start, best[INVERSE], no_origin, zero, np.int32(2 * zero - 1), codes)
        for lane in range(filled):
            vanishing = abs(extreme[lane]) < VANISHING
            scale[start + lane] = ZERO if vanishing else best[SCALE, lane]
            if vanishing:
                codes[start + lane] = np.uint8(0)


@compiled
def _sum_levels(
    v: NDArray[np.float32],
    w: NDArray[np.float32],
    inverse: NDArray[np.float32],
    zero: np.int32,
    sum_xl: NDArray[np.float32],
    sum_ll: NDArray[np.float32],
) -> None:
    """Each lane's weighted sums of its levels times x, and of the squares of its levels."""
    sum_xl[:] = ZERO
    sum_ll[:] = ZERO
    for i in range(v.shape[0]):
        for lane in range(v.shape[1]):
            x, weight = v[i, lane], w[i, lane]
            level = np.float32(clamped(nearest(inverse[lane] * x), -zero, zero - 1))
            sum_xl[lane] += weight * x * level
            sum_ll[lane] += weight * level * level


@compiled
def keep_better_scale(
    first: bool,
    sum_xl: NDArray[np.float32],
    sum_ll: NDArray[np.float32],
    inverse: NDArray[np.float32],
    best: NDArray[np.float32],
    kept: NDArray[np.float32],
) -> None:
    """Into ``kept``, in each lane: the least-squares scale of these sums if it gains, else ``best``."""
    for lane in range(sum_xl.shape[0]):
        xl, ll = sum_xl[lane], sum_ll[lane]
        scale = xl / ll if ll != ZERO else ZERO
        better = first | ((ll > ZERO) & (xl * xl > best[GAIN, lane] * ll))
        kept[GAIN, lane] = scale * xl if better else best[GAIN, lane]
        kept[SCALE, lane] = scale if better else best[SCALE, lane]
        kept[INVERSE, lane] = inverse[lane] if better else best[INVERSE, lane]
