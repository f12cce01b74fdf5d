"""How much each weight of a block counts in a search, by an importance for each column."""

import numpy as np
from numpy.typing import NDArray

from impl.reference.blocks.arithmetic import ZERO, compiled


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
