"""A scale found by moving one code of a block at a time: ggml's ``make_q3_quants``."""

import numpy as np
from numpy.typing import NDArray

from impl.reference.blocks.arithmetic import ZERO, clamped, compiled, nearest
from impl.reference.blocks.lanes import LANES, extremes, into_lanes
from impl.reference.blocks.scale_search import VANISHING

MORE_ROUNDS = (2, 5)
"""Five rounds at most. Few blocks change after the first, so few are left for whom it is done over with more."""


def refine_scale(x: NDArray[np.float32], zero: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """As ``fit_scale`` with weights x², but moving one code at a time while that helps, five rounds at most."""
    scale, codes, changing = _refine_scale(x, np.int32(zero), 1)
    unsettled = np.flatnonzero(changing)
    for rounds in MORE_ROUNDS:
        scale[unsettled], codes[unsettled], changing = _refine_scale(x[unsettled], np.int32(zero), rounds)
        unsettled = unsettled[changing]
    return scale, codes


@compiled
def _refine_scale(
    x: NDArray[np.float32], zero: np.int32, rounds: int
) -> tuple[NDArray[np.float32], NDArray[np.uint8], NDArray[np.bool_]]:
    """Scale, codes, and whether the last round still changed a code, of each block."""
    blocks, size = x.shape
    scale, codes = np.empty(blocks, np.float32), np.empty((blocks, size), np.uint8)
    changing = np.empty(blocks, np.bool_)
    v = np.empty((size, LANES), np.float32)
    levels, moved = np.empty((size, LANES), np.float32), np.empty((size, LANES), np.float32)
    sums, moved_sums = np.empty((2, LANES), np.float32), np.empty((2, LANES), np.float32)
    moves = np.empty(LANES, np.float32)
    for start in range(0, blocks, LANES):
        filled = into_lanes(x, start, v)
        extreme = extremes(v)
        _levels_and_sums(v, extreme, zero, levels, sums[0], sums[1])
        for _ in range(rounds):
            moves[:] = ZERO
            for i in range(size):
                _move_level(v[i], zero, levels[i], sums[0], sums[1], moved[i], moved_sums[0], moved_sums[1], moves)
                sums, moved_sums = moved_sums, sums
            levels, moved = moved, levels
        for lane in range(filled):
            vanishing = abs(extreme[lane]) < VANISHING
            changing[start + lane] = moves[lane] > ZERO and not vanishing
            scale[start + lane] = ZERO if vanishing or not sums[1, lane] > ZERO else sums[0, lane] / sums[1, lane]
            for i in range(size):
                codes[start + lane, i] = np.uint8(np.int32(levels[i, lane]) + zero)
            if vanishing:
                codes[start + lane] = np.uint8(0)
    return scale, codes, changing


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
    moves: NDArray[np.float32],
) -> None:
    """In each lane, give one weight the level that suits all others best, if the whole gains by it.

    ``moves`` adds up how far levels moved.
    """
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
        chosen = new if better else old
        moved[lane] = chosen
        moved_xl[lane] = new_xl if better else xl
        moved_ll[lane] = new_ll if better else ll
        moves[lane] += abs(chosen - old)
