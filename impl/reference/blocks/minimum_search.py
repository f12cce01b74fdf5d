"""The search for the scale and minimum of a block: ggml's ``make_qkx2_quants`` and ``make_qkx3_quants``.

The same candidates and the same sums in the same order as there, so that the same pair wins.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from impl.reference.blocks.arithmetic import ONE, ZERO, clamped, compiled, nearest
from impl.reference.blocks.lanes import LANES, choose, codes_of, into_lanes

OwnWeights = Literal["magnitude", "root mean square + magnitude"]
"""How much a weight counts in a search without importance; the root is taken over its block."""

SCALE, INVERSE, ORIGIN, LOW, ERROR = 0, 1, 2, 3, 4
"""Rows of an attempt, float32[5, lanes]: code = (x - origin) * inverse, x = scale * code + low."""


def fit_scale_and_minimum(
    x: NDArray[np.float32],
    weights: NDArray[np.float32] | OwnWeights,
    last: int,
    first_step: float,
    step: float,
    steps: int,
    absolute: bool = False,
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.uint8]]:
    """The scale and depth that make the weighted error of x - (scale * code - depth) small, codes to ``last``.

    Tried are the ranges of x over ``last + first_step + i * step`` for i from 0 to ``steps``, each followed
    by the least-squares scale and minimum for the codes it gives. The error counted is squared, or
    ``absolute``. ``x`` and ``weights`` are float32[blocks, size]; instead of the latter, a name says how much
    each x counts by itself. Returns scale and depth (the minimum, never above 0, negated), float32[blocks]
    each, and codes uint8[blocks, size].
    """
    scale, depth = np.empty(len(x), np.float32), np.empty(len(x), np.float32)
    codes = np.empty(x.shape, np.uint8)
    candidates = np.float32(first_step) + np.float32(step) * np.arange(steps + 1, dtype=np.float32)
    given = np.empty((0, 0), np.float32) if isinstance(weights, str) else weights
    with_root = weights == "root mean square + magnitude" if isinstance(weights, str) else False
    divisors = candidates + np.float32(last)
    _fit_scale_and_minimum(x, given, with_root, np.int32(last), divisors, absolute, scale, depth, codes)
    return scale, depth, codes


@compiled
def _fit_scale_and_minimum(
    x: NDArray[np.float32],
    weights: NDArray[np.float32],
    with_root: bool,
    last: np.int32,
    divisors: NDArray[np.float32],
    absolute: bool,
    scale: NDArray[np.float32],
    depth: NDArray[np.float32],
    codes: NDArray[np.uint8],
) -> None:
    size = x.shape[1]
    v = np.empty((size, LANES), np.float32)
    w = np.empty((size, LANES), np.float32)
    tried_codes = np.empty((size, LANES), np.float32)
    sum_w = np.empty(LANES, np.float32)
    sum_x = np.empty(LANES, np.float32)
    sum_l = np.empty(LANES, np.float32)
    sum_ll = np.empty(LANES, np.float32)
    sum_xl = np.empty(LANES, np.float32)
    determinant = np.empty(LANES, np.float32)
    better = np.empty(LANES, np.float32)
    tried = np.zeros((5, LANES), np.float32)
    best = np.zeros((5, LANES), np.float32)
    kept = np.zeros((5, LANES), np.float32)
    for start in range(0, x.shape[0], LANES):
        filled = into_lanes(x, start, v)
        if weights.size:
            into_lanes(weights, start, w)
        else:
            _weigh_by_magnitude(v, with_root, w)
        best[LOW], high = _span(v, w, sum_w, sum_x)
        for attempt in range(-1, divisors.shape[0]):
            divisor = np.float32(last) if attempt < 0 else divisors[attempt]
            for lane in range(LANES):
                tried[ORIGIN, lane] = best[LOW, lane]
                tried[INVERSE, lane] = divisor / (high[lane] - best[LOW, lane])
            _codes_and_sums(v, w, tried[ORIGIN], tried[INVERSE], last, tried_codes, sum_l, sum_ll, sum_xl)
            if attempt < 0:
                for lane in range(LANES):
                    tried[SCALE, lane] = ONE / tried[INVERSE, lane]
                    tried[LOW, lane] = best[LOW, lane]
            else:
                _solve(sum_w, sum_x, sum_l, sum_ll, sum_xl, tried[SCALE], tried[LOW], determinant)
            if absolute:
                _absolute_errors(v, w, tried_codes, tried[SCALE], tried[LOW], tried[ERROR])
            else:
                _squared_errors(v, w, tried_codes, tried[SCALE], tried[LOW], tried[ERROR])
            for lane in range(LANES):
                smaller = (determinant[lane] > ZERO) & (tried[ERROR, lane] < best[ERROR, lane])
                better[lane] = ONE if smaller or attempt < 0 else ZERO
            for row in range(len(best)):
                choose(better, tried[row], best[row], kept[row])
            # The next attempt divides the range above the minimum kept here.
            best, kept = kept, best
        for lane in range(filled):
            scale[start + lane] = best[SCALE, lane]
            depth[start + lane] = -best[LOW, lane]
        codes_of(x, start, best[INVERSE], best[ORIGIN], np.int32(0), last, codes)


@compiled
def _weigh_by_magnitude(v: NDArray[np.float32], with_root: bool, w: NDArray[np.float32]) -> None:
    """w = |v|, above the root of the mean square of the lane's block where that is asked for."""
    root = np.zeros(v.shape[1], np.float32)
    if with_root:
        for i in range(v.shape[0]):
            for lane in range(v.shape[1]):
                root[lane] += v[i, lane] * v[i, lane]
        for lane in range(v.shape[1]):
            root[lane] = np.sqrt(root[lane] / np.float32(v.shape[0]))
    for i in range(v.shape[0]):
        for lane in range(v.shape[1]):
            w[i, lane] = root[lane] + abs(v[i, lane])


@compiled
def _span(
    v: NDArray[np.float32], w: NDArray[np.float32], sum_w: NDArray[np.float32], sum_x: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Each lane's lowest value, at most 0, and its highest; its sums of weights and of weighted values."""
    low, lower = v[0].copy(), np.empty(v.shape[1], np.float32)
    high, higher = v[0].copy(), np.empty(v.shape[1], np.float32)
    for lane in range(v.shape[1]):
        sum_w[lane] = w[0, lane]
        sum_x[lane] = w[0, lane] * v[0, lane]
    for i in range(1, v.shape[0]):
        for lane in range(v.shape[1]):
            x, lowest, highest = v[i, lane], low[lane], high[lane]
            lower[lane] = x if x < lowest else lowest
            higher[lane] = x if x > highest else highest
        low, lower = lower, low
        high, higher = higher, high
        for lane in range(v.shape[1]):
            sum_w[lane] += w[i, lane]
            sum_x[lane] += w[i, lane] * v[i, lane]
    for lane in range(v.shape[1]):
        lowest = low[lane]
        lower[lane] = ZERO if lowest > ZERO else lowest
    return lower, high


@compiled
def _codes_and_sums(
    v: NDArray[np.float32],
    w: NDArray[np.float32],
    low: NDArray[np.float32],
    inverse: NDArray[np.float32],
    last: np.int32,
    codes: NDArray[np.float32],
    sum_l: NDArray[np.float32],
    sum_ll: NDArray[np.float32],
    sum_xl: NDArray[np.float32],
) -> None:
    """Each lane's codes, and its weighted sums of them, of their squares and of their products with x."""
    sum_l[:] = ZERO
    sum_ll[:] = ZERO
    sum_xl[:] = ZERO
    for i in range(v.shape[0]):
        for lane in range(v.shape[1]):
            x, weight = v[i, lane], w[i, lane]
            code = np.float32(clamped(nearest(inverse[lane] * (x - low[lane])), 0, last))
            codes[i, lane] = code
            sum_l[lane] += weight * code
            sum_ll[lane] += weight * code * code
            sum_xl[lane] += weight * code * x


@compiled
def _solve(
    sum_w: NDArray[np.float32],
    sum_x: NDArray[np.float32],
    sum_l: NDArray[np.float32],
    sum_ll: NDArray[np.float32],
    sum_xl: NDArray[np.float32],
    scale: NDArray[np.float32],
    low: NDArray[np.float32],
    determinant: NDArray[np.float32],
) -> None:
    """The least-squares scale and minimum of each lane, the minimum held at 0."""
    for lane in range(sum_w.shape[0]):
        d = sum_w[lane] * sum_ll[lane] - sum_l[lane] * sum_l[lane]
        free_scale = (sum_w[lane] * sum_xl[lane] - sum_x[lane] * sum_l[lane]) / d
        free_low = (sum_ll[lane] * sum_x[lane] - sum_l[lane] * sum_xl[lane]) / d
        determinant[lane] = d
        scale[lane] = sum_xl[lane] / sum_ll[lane] if free_low > ZERO else free_scale
        low[lane] = ZERO if free_low > ZERO else free_low


@compiled
def _squared_errors(
    v: NDArray[np.float32],
    w: NDArray[np.float32],
    codes: NDArray[np.float32],
    scale: NDArray[np.float32],
    low: NDArray[np.float32],
    error: NDArray[np.float32],
) -> None:
    error[:] = ZERO
    for i in range(v.shape[0]):
        for lane in range(v.shape[1]):
            miss = scale[lane] * codes[i, lane] + low[lane] - v[i, lane]
            error[lane] += w[i, lane] * (miss * miss)


@compiled
def _absolute_errors(
    v: NDArray[np.float32],
    w: NDArray[np.float32],
    codes: NDArray[np.float32],
    scale: NDArray[np.float32],
    low: NDArray[np.float32],
    error: NDArray[np.float32],
) -> None:
    error[:] = ZERO
    for i in range(v.shape[0]):
        for lane in range(v.shape[1]):
            miss = scale[lane] * codes[i, lane] + low[lane] - v[i, lane]
            error[lane] += w[i, lane] * abs(miss)
