"""Blocks side by side: ``LANES`` of them transposed, so that one instruction works on the same weight of several.

Every lane keeps its own block's order of operations, which the compiler must not touch within a block.
"""

import numpy as np
from numpy.typing import NDArray

from impl.reference.blocks.arithmetic import ZERO, clamped, compiled, nearest

LANES = 64
"""So many that a search over blocks of 32 works within 32 KiB, the smallest first cache of today's CPUs."""


@compiled
def into_lanes(blocks: NDArray[np.float32], start: int, lanes: NDArray[np.float32]) -> int:
    """Transpose up to ``LANES`` blocks from ``start`` on into float32[size, LANES], and say how many; the rest is 0."""
    filled = min(LANES, blocks.shape[0] - start)
    if filled < LANES:
        lanes[:] = ZERO
    for lane in range(filled):
        for i in range(blocks.shape[1]):
            lanes[i, lane] = blocks[start + lane, i]
    return filled


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
def choose(
    better: NDArray[np.float32],
    tried: NDArray[np.float32],
    best: NDArray[np.float32],
    kept: NDArray[np.float32],
) -> None:
    """Into ``kept``, in each lane: ``tried`` where ``better`` is above 0, else ``best``.

    Written beside ``best``, not over it: a store into some lanes only would be slow.
    """
    for lane in range(better.shape[0]):
        new, old = tried[lane], best[lane]
        kept[lane] = new if better[lane] > ZERO else old


@compiled
def codes_of(
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
