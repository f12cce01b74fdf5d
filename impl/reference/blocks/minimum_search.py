"""The search for the scale and minimum of a block: ggml's ``make_qkx2_quants`` and ``make_qkx3_quants``.

The same candidates and the same sums in the same order as there, so that the same pair wins.
"""

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from impl.reference.blocks.arithmetic import ONE, ZERO, compiled
from impl.reference.blocks.lanes import LANES, Lanes, held, lanes, load, nearest_integer, store, where
from impl.reference.blocks.transposition import choose, into_lanes, out_of_lanes, room_for_lanes

OwnWeights = Literal["magnitude", "root mean square + magnitude"]
"""How much a weight counts in a search without importance; the root is taken over its block."""


class Attempt(NamedTuple):
    """code = (x - origin) * inverse; x = scale * code + low, but for an error."""

    inverse: Lanes
    origin: Lanes
    scale: Lanes
    low: Lanes
    error: Lanes


class Sums(NamedTuple):
    """Weighted sums of codes, of their squares, and of their products with x."""

    c: Lanes
    cc: Lanes
    xc: Lanes


class Totals(NamedTuple):
    """Sums of weights and of weighted x, and the range of x: the lowest, at most 0, and the highest."""

    w: Lanes
    x: Lanes
    low: Lanes
    high: Lanes


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
    scale, depth = room_for_lanes(len(x)), room_for_lanes(len(x))
    codes = np.empty(x.shape, np.uint8)
    candidates = np.float32(first_step) + np.float32(step) * np.arange(steps + 1, dtype=np.float32)
    given = np.empty((0, 0), np.float32) if isinstance(weights, str) else weights
    with_root = weights == "root mean square + magnitude" if isinstance(weights, str) else False
    divisors = candidates + np.float32(last)
    _fit_scale_and_minimum(x, given, with_root, np.float32(last), divisors, absolute, scale, depth, codes)
    return scale[: len(x)], depth[: len(x)], codes


@compiled
def _fit_scale_and_minimum(
    x: NDArray[np.float32],
    weights: NDArray[np.float32],
    with_root: bool,
    last: np.float32,
    divisors: NDArray[np.float32],
    absolute: bool,
    scale: NDArray[np.float32],
    depth: NDArray[np.float32],
    codes: NDArray[np.uint8],
) -> None:
    size = x.shape[1]
    v = np.empty((size, LANES), np.float32)
    w = np.empty((size, LANES), np.float32)
    tried = np.empty((size, LANES), np.float32)
    blocks, chosen = np.arange(x.shape[0]), np.empty(LANES, np.intp)
    for start in range(0, blocks.size, LANES):
        choose(blocks, start, chosen)
        into_lanes(x, chosen, v)
        if weights.size:
            into_lanes(weights, chosen, w)
        else:
            _weigh_by_magnitude(v, with_root, w)
        best = _search(v, w, last, divisors, absolute, tried)
        for i in range(size):
            store(_code(load(v, i), best.origin, best.inverse, last), tried, i)
        out_of_lanes(tried, chosen, codes)
        store(best.scale, scale, start // LANES)
        store(-best.low, depth, start // LANES)


@compiled
def _search(
    v: NDArray[np.float32],
    w: NDArray[np.float32],
    last: np.float32,
    divisors: NDArray[np.float32],
    absolute: bool,
    codes: NDArray[np.float32],
) -> Attempt:
    """The best attempt; ``codes`` is room for one."""
    totals = _totals(v, w)
    inverse = last / (totals.high - totals.low)
    _codes_and_sums(v, w, totals.low, inverse, last, codes)
    scale = ONE / inverse
    best = Attempt(inverse, totals.low, scale, totals.low, _error(v, w, codes, scale, totals.low, absolute))
    for i in range(divisors.size):
        # Each attempt divides the range above the best minimum so far.
        inverse = divisors[i] / (totals.high - best.low)
        sums = _codes_and_sums(v, w, best.low, inverse, last, codes)
        determinant, scale, low = _solve(totals, sums)
        error = _error(v, w, codes, scale, low, absolute)
        better = (determinant > ZERO) & (error < best.error)
        best = Attempt(
            where(better, inverse, best.inverse),
            where(better, best.low, best.origin),
            where(better, scale, best.scale),
            where(better, low, best.low),
            where(better, error, best.error),
        )
    return best


@compiled
def _weigh_by_magnitude(v: NDArray[np.float32], with_root: bool, w: NDArray[np.float32]) -> None:
    """w = |v|, above the root of the mean square of the block where that is asked for."""
    squares = lanes(ZERO)
    if with_root:
        for i in range(v.shape[0]):
            squares += load(v, i) * load(v, i)
    root = math.sqrt(squares / np.float32(v.shape[0]))
    for i in range(v.shape[0]):
        store(root + abs(load(v, i)), w, i)


@compiled
def _totals(v: NDArray[np.float32], w: NDArray[np.float32]) -> Totals:
    low = high = load(v, 0)
    sum_w = load(w, 0)
    sum_x = sum_w * low
    for i in range(1, v.shape[0]):
        x, weight = load(v, i), load(w, i)
        low, high = where(x < low, x, low), where(x > high, x, high)
        sum_w += weight
        sum_x += weight * x
    return Totals(sum_w, sum_x, where(low > ZERO, ZERO, low), high)


@compiled
def _code(x: Lanes, origin: Lanes, inverse: Lanes, last: np.float32) -> Lanes:
    return held(nearest_integer(inverse * (x - origin)), ZERO, last)


@compiled
def _codes_and_sums(
    v: NDArray[np.float32],
    w: NDArray[np.float32],
    origin: Lanes,
    inverse: Lanes,
    last: np.float32,
    codes: NDArray[np.float32],
) -> Sums:
    sum_c = sum_cc = sum_xc = lanes(ZERO)
    for i in range(v.shape[0]):
        x, weight = load(v, i), load(w, i)
        code = _code(x, origin, inverse, last)
        store(code, codes, i)
        sum_c += weight * code
        sum_cc += weight * code * code
        sum_xc += weight * code * x
    return Sums(sum_c, sum_cc, sum_xc)


@compiled
def _solve(totals: Totals, sums: Sums) -> tuple[Lanes, Lanes, Lanes]:
    """The determinant, and the least-squares scale and minimum, the latter held at 0."""
    determinant = totals.w * sums.cc - sums.c * sums.c
    scale = (totals.w * sums.xc - totals.x * sums.c) / determinant
    low = (sums.cc * totals.x - sums.c * sums.xc) / determinant
    above = low > ZERO
    return determinant, where(above, sums.xc / sums.cc, scale), where(above, ZERO, low)


@compiled
def _error(
    v: NDArray[np.float32],
    w: NDArray[np.float32],
    codes: NDArray[np.float32],
    scale: Lanes,
    low: Lanes,
    absolute: bool,
) -> Lanes:
    """The weighted sum of squares of scale * code + low - x, or of its magnitudes."""
    error = lanes(ZERO)
    for i in range(v.shape[0]):
        miss = scale * load(codes, i) + low - load(v, i)
        error += load(w, i) * (abs(miss) if absolute else miss * miss)
    return error
