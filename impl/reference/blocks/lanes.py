"""Blocks side by side: 64 blocks transposed, so that one instruction works on the same weight of several.

Every lane keeps its own block's order of operations, which the compiler must not touch within a block.
"""

import numpy as np
from numpy.typing import NDArray

from impl.reference.blocks.arithmetic import ZERO, compiled

LANES = 64


@compiled
def into_lanes(blocks: NDArray[np.float32], start: int, lanes: NDArray[np.float32]) -> int:
    """Transpose up to 64 blocks from ``start`` on into float32[size, 64], and say how many; the rest is 0."""
    filled = min(LANES, blocks.shape[0] - start)
    if filled < LANES:
        lanes[:] = ZERO
    for lane in range(filled):
        for i in range(blocks.shape[1]):
            lanes[i, lane] = blocks[start + lane, i]
    return filled
