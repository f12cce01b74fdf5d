"""A scale found by moving one code of a block at a time: ggml's ``make_q3_quants``."""

import numpy as np
from numpy.typing import NDArray

from impl.reference.blocks.arithmetic import ZERO, clamped, compiled, nearest
from impl.reference.blocks.lanes import LANES, extremes, into_lanes
from impl.reference.blocks.scale_search import VANISHING

ROUNDS = 5


def refine_scale(x: NDArray[np.float32], zero: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """As ``fit_scale`` with weights x², but moving one code at a time while that helps, five rounds at most."""
    sums, codes = np.empty((len(x), 2), np.float32), np.empty(x.shape, np.uint8)
    changing = np.flatnonzero(_move_codes(x, np.int32(zero), True, sums, codes))
    # A fifth of the blocks of normal values change in the first round, a twentieth in the second.
    for _ in range(ROUNDS - 1):
        sums_then, codes_then = sums[changing], codes[changing]
        still = _move_codes(x[changing], np.int32(zero), False, sums_then, codes_then)
        sums[changing], codes[changing] = sums_then, codes_then
        changing = changing[still]
    scale = np.zeros(len(x), np.float32)
    return np.divide(sums[:, 0], sums[:, 1], out=scale, where=sums[:, 1] > 0), codes


@compiled
def _move_codes(
    x: NDArray[np.float32], zero: np.int32, first: bool, sums: NDArray[np.float32], codes: NDArray[np.uint8]
) -> NDArray[np.bool_]:
    """One round over each block: whether it changed a code. ``first`` starts from the codes that an extreme gives.

    ``sums`` are float32[n, 2], those of weighted x * level and of weighted squares of levels.
    """
    blocks, size = x.shape
    changing = np.empty(blocks, np.bool_)
    v = np.empty((size, LANES), np.float32)
    levels, moved = np.empty((size, LANES), np.float32), np.empty((size, LANES), np.float32)
    sum_xl, sum_ll = np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    moved_xl, moved_ll = np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    moves = np.empty(LANES, np.float32)
    extreme = np.ones(LANES, np.float32)
    for start in range(0, blocks, LANES):
        filled = into_lanes(x, start, v)
        if first:
            extreme = extremes(v)
            _levels_and_sums(v, np.float32(-zero) / extreme, zero, levels, sum_xl, sum_ll)
        else:
            _resume(sums, codes, start, filled, zero, levels, sum_xl, sum_ll)
        moves[:] = ZERO
        for i in range(size):
            _move_level(v[i], zero, levels[i], sum_xl, sum_ll, moved[i], moved_xl, moved_ll, moves)
            sum_xl, moved_xl = moved_xl, sum_xl
            sum_ll, moved_ll = moved_ll, sum_ll
        for lane in range(filled):
            vanishing = abs(extreme[lane]) < VANISHING
            changing[start + lane] = moves[lane] > ZERO and not vanishing
            sums[start + lane, 0] = sum_xl[lane]
            sums[start + lane, 1] = ZERO if vanishing else sum_ll[lane]
            for i in range(size):
                codes[start + lane, i] = np.uint8(0) if vanishing else np.uint8(np.int32(moved[i, lane]) + zero)
    return changing


@compiled
def _resume(
    sums: NDArray[np.float32],
    codes: NDArray[np.uint8],
    start: int,
    filled: int,
    zero: np.int32,
    levels: NDArray[np.float32],
    sum_xl: NDArray[np.float32],
    sum_ll: NDArray[np.float32],
) -> None:
    """Levels and sums of the blocks from ``start`` on, as the round before left them."""
    for lane in range(filled):
        sum_xl[lane], sum_ll[lane] = sums[start + lane, 0], sums[start + lane, 1]
        for i in range(levels.shape[0]):
            levels[i, lane] = np.float32(np.int32(codes[start + lane, i]) - zero)


@compiled
def _levels_and_sums(
    v: NDArray[np.float32],
    inverse: NDArray[np.float32],
    zero: np.int32,
    levels: NDArray[np.float32],
    sum_xl: NDArray[np.float32],
    sum_ll: NDArray[np.float32],
) -> None:
    """Levels x * inverse, and their sums, weighted by x²."""
    sum_xl[:] = ZERO
    sum_ll[:] = ZERO
    for i in range(v.shape[0]):
        for lane in range(v.shape[1]):
            x = v[i, lane]
            level = np.float32(clamped(nearest(inverse[lane] * x), -zero, zero - 1))
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
