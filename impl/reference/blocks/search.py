"""Searches for the scale, or scale and minimum, that a block of weights is best divided by.

These are the least-squares searches of ggml's quantizers (``make_qx_quants``, ``make_qkx3_quants``,
``make_q3_quants`` and ``make_qp_quants`` of ggml-quants.c): the same candidates and the same sums in the
same order, so that the same one wins.
"""

import numpy as np
from numpy.typing import NDArray

from impl.reference.blocks.arithmetic import ONE, ZERO, clamped, compiled, largest_magnitudes, nearest
from impl.reference.blocks.lanes import LANES, into_lanes

VANISHING = np.float32(1e-15)
TENTH = np.float32(0.1)
GAIN, SCALE, INVERSE, ORIGIN, LOW, ERROR = 0, 1, 2, 3, 4, 5
"""Rows of what is kept of the best attempt so far, float32[6, lanes]."""


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


def refine_scale(x: NDArray[np.float32], zero: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """As ``fit_scale`` with weights x², but moving one code at a time while that helps, five rounds at most."""
    codes = np.empty(x.shape, np.uint8)
    sum_xl, sum_ll = np.empty(len(x), np.float32), np.empty(len(x), np.float32)
    unsettled = np.flatnonzero(_move_levels(x, np.int32(zero), True, codes, sum_xl, sum_ll))
    for _ in range(4):
        part = codes[unsettled], sum_xl[unsettled], sum_ll[unsettled]
        changed = _move_levels(x[unsettled], np.int32(zero), False, *part)
        codes[unsettled], sum_xl[unsettled], sum_ll[unsettled] = part
        unsettled = unsettled[changed]
    scale = np.divide(sum_xl, sum_ll, out=np.zeros_like(sum_xl), where=sum_ll > 0)
    vanishing = largest_magnitudes(x) < VANISHING
    scale[vanishing], codes[vanishing] = 0, 0
    return scale, codes


def fit_scale_and_minimum(
    x: NDArray[np.float32],
    weights: NDArray[np.float32],
    last: int,
    first_step: float,
    step: float,
    steps: int,
    absolute: bool = False,
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.uint8]]:
    """The scale and depth that make the weighted error of x - (scale * code - depth) small, codes to ``last``.

    Tried are the ranges of x over ``last + first_step + i * step`` for i from 0 to ``steps``, each followed
    by the least-squares scale and minimum for the codes it gives. The error counted is squared, or
    ``absolute``. ``x`` and ``weights`` are float32[blocks, size]. Returns scale and depth (the minimum,
    never above 0, negated), float32[blocks] each, and codes uint8[blocks, size].
    """
    scale, depth = np.empty(len(x), np.float32), np.empty(len(x), np.float32)
    codes = np.empty(x.shape, np.uint8)
    candidates = np.float32(first_step) + np.float32(step) * np.arange(steps + 1, dtype=np.float32)
    _fit_scale_and_minimum(x, weights, np.int32(last), candidates + np.float32(last), absolute, scale, depth, codes)
    return scale, depth, codes


def fit_unit(
    values: NDArray[np.float32], weights: NDArray[np.float32], last: int
) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """The unit that makes weighted squares of value - unit * code small, for values not below 0.

    ``values`` and ``weights`` are float32[blocks, size]. Returns float32[blocks] and uint8[blocks, size].
    """
    unit, codes = np.empty(len(values), np.float32), np.empty(values.shape, np.uint8)
    _fit_unit(values, weights, np.int32(last), unit, codes)
    return unit, codes


def weights_from_rows(rows: NDArray[np.float32], importance: NDArray[np.float32]) -> NDArray[np.float32]:
    """importance * sqrt(mean square of the row + x²), as the blocks of 32 weigh their weights."""
    return weights_from_groups(rows, importance[None], 1)


def weights_from_groups(
    groups: NDArray[np.float32], importance: NDArray[np.float32], factor: int
) -> NDArray[np.float32]:
    """importance * sqrt(factor * mean square of the group + x²) for float32[groups, size].

    ``importance`` is float32[groups per row, size].
    """
    weights = np.empty_like(groups)
    _weights_from_groups(groups, importance, np.float32(factor), weights)
    return weights


@compiled
def ordered_sums(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """The sum of each row of float32[n, size], added from first to last."""
    sums = np.empty(values.shape[0], np.float32)
    for row in range(values.shape[0]):
        total = ZERO
        for i in range(values.shape[1]):
            total += values[row, i]
        sums[row] = total
    return sums


@compiled
def _weights_from_groups(
    groups: NDArray[np.float32],
    importance: NDArray[np.float32],
    factor: np.float32,
    weights: NDArray[np.float32],
) -> None:
    size = groups.shape[1]
    for group in range(groups.shape[0]):
        total = ZERO
        for i in range(size):
            total += groups[group, i] * groups[group, i]
        mean = factor * total / np.float32(size)
        part = group % importance.shape[0]
        for i in range(size):
            x = groups[group, i]
            weights[group, i] = importance[part, i] * np.sqrt(mean + x * x)


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
        _codes_of(x, start, best[INVERSE], no_origin, zero, np.int32(2 * zero - 1), codes)
        for lane in range(filled):
            vanishing = abs(extreme[lane]) < VANISHING
            scale[start + lane] = ZERO if vanishing else best[SCALE, lane]
            if vanishing:
                codes[start + lane] = np.uint8(0)


@compiled
def extremes(v: NDArray[np.float32]) -> NDArray[np.float32]:
    """The first value of the largest magnitude in each lane of float32[size, lanes]; 0 where all are zeros."""
    extreme = np.zeros(v.shape[1], np.float32)
    larger = np.zeros(v.shape[1], np.float32)
    for i in range(v.shape[0]):
        for lane in range(v.shape[1]):
            x, largest = v[i, lane], extreme[lane]
            larger[lane] = x if abs(x) > abs(largest) else largest
        extreme, larger = larger, extreme
    return extreme


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


@compiled
def _choose(
    better: NDArray[np.float32],
    tried: NDArray[np.float32],
    best: NDArray[np.float32],
    kept: NDArray[np.float32],
) -> None:
    """Into ``kept``, in each lane: ``tried`` where ``better`` is above 0, else ``best``."""
    for lane in range(better.shape[0]):
        new, old = tried[lane], best[lane]
        kept[lane] = new if better[lane] > ZERO else old


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
def _move_levels(
    x: NDArray[np.float32],
    zero: np.int32,
    start_over: bool,
    codes: NDArray[np.uint8],
    sum_xl: NDArray[np.float32],
    sum_ll: NDArray[np.float32],
) -> NDArray[np.bool_]:
    """One round over all weights of each block; which blocks changed."""
    size = x.shape[1]
    changed = np.empty(x.shape[0], np.bool_)
    v = np.empty((size, LANES), np.float32)
    levels = np.empty((size, LANES), np.float32)
    moved = np.empty(LANES, np.float32)
    moves = np.empty(LANES, np.float32)
    moved_codes = np.empty((size, LANES), np.uint8)
    xl, next_xl = np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    ll, next_ll = np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    for start in range(0, x.shape[0], LANES):
        filled = into_lanes(x, start, v)
        if start_over:
            _levels_and_sums(v, extremes(v), zero, levels, xl, ll)
        else:
            for lane in range(filled):
                xl[lane], ll[lane] = sum_xl[start + lane], sum_ll[start + lane]
                for i in range(size):
                    levels[i, lane] = np.float32(np.int32(codes[start + lane, i]) - zero)
        moves[:] = ZERO
        for i in range(size):
            _move_level(v[i], zero, levels[i], xl, ll, moved, next_xl, next_ll)
            xl, next_xl = next_xl, xl
            ll, next_ll = next_ll, ll
            for lane in range(LANES):
                moves[lane] += abs(moved[lane] - levels[i, lane])
                moved_codes[i, lane] = np.uint8(np.int32(moved[lane]) + zero)
        for lane in range(filled):
            sum_xl[start + lane], sum_ll[start + lane] = xl[lane], ll[lane]
            changed[start + lane] = moves[lane] > ZERO
            for i in range(size):
                codes[start + lane, i] = moved_codes[i, lane]
    return changed


@compiled
def _levels_and_sums(
    v: NDArray[np.float32],
    extreme: NDArray[np.float32],
    zero: np.int32,
    levels: NDArray[np.float32],
    sum_xl: NDArray[np.float32],
    sum_ll: NDArray[np.float32],
) -> None:
    """Levels that put the extreme at -zero, and their sums, weighted by x²."""
    sum_xl[:] = ZERO
    sum_ll[:] = ZERO
    for i in range(v.shape[0]):
        for lane in range(v.shape[1]):
            x = v[i, lane]
            level = np.float32(clamped(nearest(np.float32(-zero) / extreme[lane] * x), -zero, zero - 1))
            levels[i, lane] = level
            sum_xl[lane] += x * x * x * level
            sum_ll[lane] += x * x * level * level


@compiled
def _move_level(
    x: NDArray[np.float32],
    zero: np.int32,
    levels: NDArray[np.float32],
    sum_xl: NDArray[np.float32],
    sum_ll: NDArray[np.float32],
    moved: NDArray[np.float32],
    moved_xl: NDArray[np.float32],
    moved_ll: NDArray[np.float32],
) -> None:
    """In each lane, give one weight the level that suits all others best, if the whole gains by it."""
    for lane in range(x.shape[0]):
        value, old, xl, ll = x[lane], levels[lane], sum_xl[lane], sum_ll[lane]
        weight = value * value
        other_xl = xl - weight * value * old
        other_ll = ll - weight * old * old
        new = np.float32(clamped(nearest(value * other_ll / other_xl), -zero, zero - 1))
        new_xl = other_xl + weight * value * new
        new_ll = other_ll + weight * new * new
        gains = new_xl * new_xl * ll > xl * xl * new_ll
        better = (other_xl > ZERO) & (new != old) & (new_ll > ZERO) & gains
        moved[lane] = new if better else old
        moved_xl[lane] = new_xl if better else xl
        moved_ll[lane] = new_ll if better else ll


@compiled
def _fit_scale_and_minimum(
    x: NDArray[np.float32],
    weights: NDArray[np.float32],
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
    tried = np.zeros((6, LANES), np.float32)
    best = np.zeros((6, LANES), np.float32)
    kept = np.zeros((6, LANES), np.float32)
    for start in range(0, x.shape[0], LANES):
        filled = into_lanes(x, start, v)
        into_lanes(weights, start, w)
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
                _choose(better, tried[row], best[row], kept[row])
            # The next attempt divides the range above the minimum kept here.
            best, kept = kept, best
        for lane in range(filled):
            scale[start + lane] = best[SCALE, lane]
            depth[start + lane] = -best[LOW, lane]
        _codes_of(x, start, best[INVERSE], best[ORIGIN], np.int32(0), last, codes)


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


@compiled
def _codes_of(
    x: NDArray[np.float32],
    start: int,
    inverse: NDArray[np.float32],
    origin: NDArray[np.float32],
    zero: np.int32,
    last: np.int32,
    codes: NDArray[np.uint8],
) -> None:
    """Write (x - origin) * inverse + zero, held within 0 and ``last``, for the blocks from ``start`` on."""
    for lane in range(min(LANES, x.shape[0] - start)):
        block = start + lane
        for i in range(x.shape[1]):
            level = nearest(inverse[lane] * (x[block, i] - origin[lane]))
            codes[block, i] = np.uint8(clamped(level, -zero, last - zero) + zero)


@compiled
def _fit_unit(
    values: NDArray[np.float32],
    weights: NDArray[np.float32],
    last: np.int32,
    unit: NDArray[np.float32],
    codes: NDArray[np.uint8],
) -> None:
    for block in range(values.shape[0]):
        unit[block] = _unit_of(values[block], weights[block], last, codes[block])


@compiled
def _unit_of(
    x: NDArray[np.float32], weights: NDArray[np.float32], last: np.int32, codes: NDArray[np.uint8]
) -> np.float32:
    size = x.shape[0]
    largest = ZERO
    for i in range(size):
        largest = max(largest, x[i])
    codes[:] = np.uint8(0)
    if largest < VANISHING:
        return ZERO
    inverse, best_error = ZERO, ZERO
    for attempt in range(9):
        # The plain division comes first; then the divisor moves from -0.4 to 0.4 around it.
        moved = attempt - 5 if attempt < 5 else attempt - 4
        tried = (TENTH * np.float32(moved if attempt else 0) + np.float32(last)) / largest
        error = ZERO
        for i in range(size):
            level = nearest(tried * x[i])
            level = np.int32(np.uint8(level)) if attempt == 0 else min(level, last)
            miss = x[i] - ONE / tried * np.float32(level)
            error += weights[i] * miss * miss
        if attempt == 0 or error < best_error:
            best_error = error
            inverse = tried
    sum_xl = sum_ll = ZERO
    for i in range(size):
        level = min(nearest(inverse * x[i]), last)
        codes[i] = np.uint8(level)
        sum_xl += weights[i] * x[i] * np.float32(level)
        sum_ll += weights[i] * np.float32(level) * np.float32(level)
    for _ in range(5):
        changed = False
        for i in range(size):
            w, level = weights[i], np.float32(codes[i])
            other_xl = sum_xl - w * x[i] * level
            other_ll = sum_ll - w * level * level
            if other_xl > ZERO and other_ll > ZERO:
                moved_level = min(nearest(x[i] * other_ll / other_xl), last)
                if moved_level != np.int32(codes[i]):
                    level = np.float32(moved_level)
                    other_xl += w * x[i] * level
                    other_ll += w * level * level
                    if other_xl * other_xl * sum_ll > sum_xl * sum_xl * other_ll:
                        codes[i] = np.uint8(moved_level)
                        sum_xl, sum_ll, changed = other_xl, other_ll, True
        if not changed:
            break
    return sum_xl / sum_ll if sum_ll > ZERO else ZERO
