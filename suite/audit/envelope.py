"""What the file's error on a tensor may be: held against the error of our own quantization of the same weights.

A file may have been quantized by another program, or with columns weighed by an importance matrix; then its bytes are
not ours and its error is another. Still:

- no row's root-mean-square error is above ``ROW_FACTOR`` times our own, nor above what a row of zeros would have;
- no block's largest error, in units of our own, is above ``BLOCK_FACTOR`` times what all but a thousandth of the
  blocks of its tensor stay under.

Our own error of a row or block counts for at least the tensor's typical share of the weights there, so that one
that chance quantized exactly asks for no more than the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

ROW_FACTOR = 3.0
BLOCK_FACTOR = 3.0
"""Measured over every type of ggml's, on trained, normal and heavy-tailed weights, with columns weighed by importances
of a log-normal spread of 2: rows stayed under 2.4 times our own error, blocks under 2.3 times the bulk of theirs. With
a spread of 1 it was 1.3 and 1.7. Another tensor's row is 16 times as far in Q4_0, and 4 times in Q2_K."""
BULK = 1000
"""One block in so many, and three in any tensor, may stand out without raising what the others are held against."""
FEW = 3


@dataclass(frozen=True)
class Errors:
    """One entry per block: the weights there, and how far the file and our own quantization are from them."""

    index: NDArray[np.intp]
    """Of the block in its tensor, row by row."""
    differs: NDArray[np.bool_]
    """Whether the file's bytes are not ours."""
    finite: NDArray[np.bool_]
    largest_weight: NDArray[np.float32]
    weight_square: NDArray[np.float64]
    file_largest: NDArray[np.float32]
    file_square: NDArray[np.float64]
    own_largest: NDArray[np.float32]
    own_square: NDArray[np.float64]


def joined(chunks: Sequence[Errors]) -> Errors:
    """The errors of several runs of blocks as one."""
    return Errors(*(np.concatenate([getattr(each, field.name) for each in chunks]) for field in fields(Errors)))


def share(error_square: NDArray[np.float64], weight_square: NDArray[np.float64]) -> float:
    """Root-mean-square error as a share of the weights'; 0 where these are all 0."""
    total = weight_square.sum()
    return float(np.sqrt(error_square.sum() / total)) if total else 0.0


def damaged_blocks(errors: Errors, own: Errors, blocks: int) -> NDArray[np.bool_]:
    """Which blocks stand out of the ``blocks`` of their tensor; none where so many do that it is another tensor.

    ``own`` are the errors that say what our quantization's typically is; where all of the tensor was quantized again,
    these same.
    """
    nonzero = own.largest_weight > 0
    typical = np.median(own.own_largest[nonzero] / own.largest_weight[nonzero]) if nonzero.any() else 0.0
    unit = np.maximum(errors.own_largest, np.float32(typical) * errors.largest_weight)
    ratio = np.zeros_like(unit)
    off = errors.file_largest > 0
    with np.errstate(divide="ignore"):
        ratio[off] = errors.file_largest[off] / unit[off]
    spared = max(FEW, blocks // BULK)
    bulk = np.partition(ratio, -spared - 1)[-spared - 1] if len(ratio) > spared else 0.0
    damaged = errors.finite & (ratio > BLOCK_FACTOR * max(1.0, bulk))
    return damaged if np.count_nonzero(damaged) * 2 <= blocks else np.zeros_like(damaged)


def wrong_rows(errors: Errors, sound: NDArray[np.bool_], own_share: float, blocks_per_row: int) -> NDArray[np.intp]:
    """The rows beyond the envelope, by their ``sound`` blocks: those that are neither damaged nor NaN.

    ``own_share`` is our own error as a share of the tensor's weights.
    """
    rows = errors.index[sound] // blocks_per_row
    file, ours, weight = (
        np.sqrt(np.bincount(rows, square[sound]))
        for square in (errors.file_square, errors.own_square, errors.weight_square)
    )
    allowed = np.minimum(ROW_FACTOR * np.maximum(ours, own_share * weight), weight)
    return np.flatnonzero(file > np.maximum(allowed, ours))
