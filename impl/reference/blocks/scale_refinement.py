"""A scale found by moving one code of a block at a time: ggml's ``make_q3_quants``."""

import numpy as np
from numpy.typing import NDArray

from impl.reference.blocks.arithmetic import ZERO, clamped, compiled, largest_magnitudes, nearest
from impl.reference.blocks.lanes import LANES, extremes, into_lanes
from impl.reference.blocks.scale_search import VANISHING

ROUNDS = 5


def refine_scale(x: NDArray[np.float32], zero: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """As ``fit_scale`` with weights x², but moving one code at a time while that helps, five rounds at most."""
    codes = np.empty(x.shape, np.uint8)
    sum_xl, sum_ll = np.empty(len(x), np.float32), np.empty(len(x), np.float32)
    unsettled = np.flatnonzero(_move_levels(x, np.int32(zero), True, codes, sum_xl, sum_ll))
    for _ in range(ROUNDS - 1):
        part = codes[unsettled], sum_xl[unsettled], sum_ll[unsettled]
        changed = _move_levels(x[unsettled], np.int32(zero), False, *part)
        codes[unsettled], sum_xl[unsettled], sum_ll[unsettled] = part
        unsettled = unsettled[changed]
    scale = np.divide(sum_xl, sum_ll, out=np.zeros_like(sum_xl), where=sum_ll > 0)
    vanishing = largest_magnitudes(x) < VANISHING
    scale[vanishing], codes[vanishing] = 0, 0
    return scale, codes


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
