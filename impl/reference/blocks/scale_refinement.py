"""A scale found by moving one code of a block at a time: ggml's ``make_q3_quants``."""

import numpy as np
from numpy.typing import NDArray

from impl.reference.blocks.arithmetic import ZERO, clamped, compiled, nearest
from impl.reference.blocks.lanes import LANES, extremes
from impl.reference.blocks.scale_search import VANISHING

ROUNDS = 5


def refine_scale(x: NDArray[np.float32], zero: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """As ``fit_scale`` with weights x², but moving one code at a time while that helps, five rounds at most."""
    scale, codes = np.empty(len(x), np.float32), np.empty(x.shape, np.uint8)
    _refine_scale(x, np.int32(zero), scale, codes)
    return scale, codes


@compiled
def _refine_scale(x: NDArray[np.float32], zero: np.int32, scale: NDArray[np.float32], codes: NDArray[np.uint8]) -> None:
    sums = np.empty((x.shape[0], 2), np.float32)
    # A fifth of the blocks of normal values change in the first round, a twentieth in the second.
    changing = np.arange(x.shape[0])
    for turn in range(ROUNDS):
        changing = changing[: _move_codes(x, changing, zero, turn == 0, sums, scale, codes)]


@compiled
def _move_codes(
    x: NDArray[np.float32],
    changing: NDArray[np.intp],
    zero: np.int32,
    first: bool,
    sums: NDArray[np.float32],
    scale: NDArray[np.float32],
    codes: NDArray[np.uint8],
) -> int:
    """One round over the blocks ``changing``, which then begins with those that changed; returns how many did.

    ``first`` starts from the codes that an extreme gives. ``sums`` are float32[blocks, 2], those of weighted x *
    level and of weighted squares of levels.
    """
    size, kept = x.shape[1], 0
    v, levels = np.empty((size, LANES), np.float32), np.empty((size, LANES), np.float32)
    sum_xl, sum_ll = np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    moves, extreme = np.empty(LANES, np.float32), np.ones(LANES, np.float32)
    for start in range(0, changing.size, LANES):
        blocks = changing[start : start + LANES]
        _into_lanes(x, blocks, v)
        if first:
            extreme = extremes(v)
            _levels_and_sums(v, np.float32(-zero) / extreme, zero, levels, sum_xl, sum_ll)
        else:
            _resume(sums, codes, blocks, zero, levels, sum_xl, sum_ll)
        moves[:] = ZERO
        for i in range(size):
            _move_level(v[i], zero, levels[i], sum_xl, sum_ll, moves)
        for lane in range(blocks.size):
            block = blocks[lane]
            vanishing = abs(extreme[lane]) < VANISHING
            sums[block, 0], sums[block, 1] = sum_xl[lane], sum_ll[lane]
            scale[block] = sum_xl[lane] / sum_ll[lane] if sum_ll[lane] > ZERO and not vanishing else ZERO
            for i in range(size):
                codes[block, i] = np.uint8(np.int32(levels[i, lane]) + zero)
            if vanishing:
                codes[block] = np.uint8(0)
            # Without a branch, which would be mispredicted as often as not.
            changing[kept] = block
            kept += np.intp((moves[lane] > ZERO) & (not vanishing))
    return kept


@compiled
def _into_lanes(x: NDArray[np.float32], blocks: NDArray[np.intp], lanes: NDArray[np.float32]) -> None:
    """Transpose the ``blocks`` of float32[n, size] into float32[size, LANES]; lanes beyond them are 0."""
    if blocks.size < LANES:
        lanes[:] = ZERO
    for lane in range(blocks.size):
        for i in range(x.shape[1]):
            lanes[i, lane] = x[blocks[lane], i]


@compiled
def _resume(
    sums: NDArray[np.float32],
    codes: NDArray[np.uint8],
    blocks: NDArray[np.intp],
    zero: np.int32,
    levels: NDArray[np.float32],
    sum_xl: NDArray[np.float32],
    sum_ll: NDArray[np.float32],
) -> None:
    """Levels and sums of ``blocks`` as the round before left them."""
    for lane in range(blocks.size):
        sum_xl[lane], sum_ll[lane] = sums[blocks[lane]]
        for i in range(levels.shape[0]):
            levels[i, lane] = np.float32(np.int32(codes[blocks[lane], i]) - zero)


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
        levels[lane] = chosen
        sum_xl[lane] = new_xl if better else xl
        sum_ll[lane] = new_ll if better else ll
        moves[lane] += abs(chosen - old)
