"""A scale found by moving one code of a block at a time: ggml's ``make_q3_quants``."""

import numpy as np
from numpy.typing import NDArray

from impl.reference.blocks.arithmetic import ONE, ZERO, compiled
from impl.reference.blocks.lanes import LANES, extremes, held, lanes, load, nearest_integer, store, where
from impl.reference.blocks.scale_search import VANISHING, level_of
from impl.reference.blocks.transposition import choose, into_lanes, out_of_lanes

ROUNDS = 5
GROUPS = 4
"""So many times ``LANES`` blocks take turns that the division for one need not wait for that for another."""


def refine_scale(x: NDArray[np.float32], zero: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """As ``fit_scale`` with weights x², but moving one code at a time while that helps, five rounds at most."""
    scale, codes = np.empty(len(x), np.float32), np.empty(x.shape, np.uint8)
    _refine_scale(x, np.float32(zero), scale, codes)
    return scale, codes


@compiled
def _refine_scale(
    x: NDArray[np.float32], zero: np.float32, scale: NDArray[np.float32], codes: NDArray[np.uint8]
) -> None:
    sums = np.empty((2, x.shape[0]), np.float32)
    # A fifth of the blocks of normal values change in the first round, a twentieth in the second.
    changing = np.arange(x.shape[0])
    for turn in range(ROUNDS):
        changing = changing[: _move_codes(x, changing, zero, turn == 0, sums, codes)]
    for block in range(x.shape[0]):
        scale[block] = sums[0, block] / sums[1, block] if sums[1, block] > ZERO else ZERO


@compiled
def _move_codes(
    x: NDArray[np.float32],
    changing: NDArray[np.intp],
    zero: np.float32,
    first: bool,
    sums: NDArray[np.float32],
    codes: NDArray[np.uint8],
) -> int:
    """One round over the blocks ``changing``, which then begins with those that changed; returns how many did.

    ``first`` starts from the codes that an extreme gives. ``sums`` are float32[2, blocks], those of weighted x *
    level and of weighted squares of levels.
    """
    size, kept = x.shape[1], 0
    v, levels = np.empty((GROUPS, size, LANES), np.float32), np.empty((GROUPS, size, LANES), np.float32)
    sum_xl, sum_ll = np.empty((GROUPS, LANES), np.float32), np.empty((GROUPS, LANES), np.float32)
    chosen, moved = np.empty((GROUPS, LANES), np.intp), np.empty((GROUPS, LANES), np.float32)
    for start in range(0, changing.size, chosen.size):
        for group in range(GROUPS):
            choose(changing, start + group * LANES, chosen[group])
            into_lanes(x, chosen[group], v[group])
            if first:
                _start(v[group], zero, levels[group], sum_xl[group], sum_ll[group])
            else:
                _resume(sums, codes, chosen[group], zero, levels[group], sum_xl[group], sum_ll[group])
        _move_levels(v, zero, levels, sum_xl, sum_ll, moved)
        for group in range(GROUPS):
            _keep(sum_xl[group], sum_ll[group], levels[group], zero, chosen[group], sums, codes)
        for lane in range(min(chosen.size, changing.size - start)):
            # Without a branch, which would be mispredicted as often as not.
            changing[kept] = chosen.flat[lane]
            kept += np.intp(moved.flat[lane] > ZERO)
    return kept


@compiled
def _start(
    v: NDArray[np.float32],
    zero: np.float32,
    levels: NDArray[np.float32],
    sum_xl: NDArray[np.float32],
    sum_ll: NDArray[np.float32],
) -> None:
    """Levels from the extreme, and their sums, weighted by x²; a vanishing block becomes zeros with codes 0."""
    extreme = extremes(v)
    vanishing, inverse = abs(extreme) < VANISHING, -zero / extreme
    xl = ll = lanes(ZERO)
    for i in range(v.shape[0]):
        x = where(vanishing, ZERO, load(v, i))
        level = where(vanishing, -zero, level_of(x, inverse, zero))
        store(x, v, i)
        store(level, levels, i)
        xl += x * x * x * level
        ll += x * x * level * level
    store(xl, sum_xl, 0)
    store(ll, sum_ll, 0)


@compiled
def _resume(
    sums: NDArray[np.float32],
    codes: NDArray[np.uint8],
    chosen: NDArray[np.intp],
    zero: np.float32,
    levels: NDArray[np.float32],
    sum_xl: NDArray[np.float32],
    sum_ll: NDArray[np.float32],
) -> None:
    """Levels and sums of the ``chosen`` blocks as the round before kept them."""
    into_lanes(codes, chosen, levels)
    for i in range(levels.shape[0]):
        store(load(levels, i) - zero, levels, i)
    for lane in range(LANES):
        sum_xl[lane], sum_ll[lane] = sums[0, chosen[lane]], sums[1, chosen[lane]]


@compiled
def _keep(
    sum_xl: NDArray[np.float32],
    sum_ll: NDArray[np.float32],
    levels: NDArray[np.float32],
    zero: np.float32,
    chosen: NDArray[np.intp],
    sums: NDArray[np.float32],
    codes: NDArray[np.uint8],
) -> None:
    for i in range(levels.shape[0]):
        store(load(levels, i) + zero, levels, i)
    out_of_lanes(levels, chosen, codes)
    for lane in range(LANES):
        sums[0, chosen[lane]], sums[1, chosen[lane]] = sum_xl[lane], sum_ll[lane]


@compiled
def _move_levels(
    v: NDArray[np.float32],
    zero: np.float32,
    levels: NDArray[np.float32],
    sum_xl: NDArray[np.float32],
    sum_ll: NDArray[np.float32],
    moved: NDArray[np.float32],
) -> None:
    """Give each weight in turn the level that suits all others best, if the whole gains by it.

    ``v`` and ``levels`` are float32[groups, size, LANES], the others float32[groups, LANES]; ``moved`` becomes
    1 for a block in which a level moved, else 0.
    """
    size = v.shape[1]
    moved[:] = ZERO
    for i in range(size):
        for group in range(GROUPS):
            value, old = load(v, group * size + i), load(levels, group * size + i)
            xl, ll = load(sum_xl, group), load(sum_ll, group)
            weight = value * value
            other_xl = xl - weight * value * old
            other_ll = ll - weight * old * old
            new = held(nearest_integer(value * other_ll / other_xl), -zero, zero - ONE)
            new_xl = other_xl + weight * value * new
            new_ll = other_ll + weight * new * new
            gains = new_xl * new_xl * ll > xl * xl * new_ll
            better = (other_xl > ZERO) & (new != old) & (new_ll > ZERO) & gains
            store(where(better, new, old), levels, group * size + i)
            store(where(better, new_xl, xl), sum_xl, group)
            store(where(better, new_ll, ll), sum_ll, group)
            store(where(better, ONE, load(moved, group)), moved, group)
