"""The order of the q and k rows, forward and back.

Within each head, transformers' Llama rotates row i together with row i + size / 2 (``rotate_half``),
GGUF's llama architecture row 2i together with row 2i + 1. So the two halves of every head are
interleaved on the way to GGUF. Only whole rows move, which leaves every quantized block as it is: the
same functions serve float32 weights, quantized rows and biases.
"""

import numpy as np
from numpy.typing import NDArray

from impl.errors import InputError


def to_gguf(rows: NDArray, heads: int) -> NDArray:
    """Put rows in GGUF's order: [rows, ...] of any dtype, where rows = heads x head size.

    ``heads`` is the number of attention heads for q and of key-value heads for k. Raises
    ``InputError`` when the rows are not ``heads`` heads of an even size.
    """
    return _with_swapped(rows, _require_pairs(rows, heads), (heads, 2, -1))


def to_hugging_face(rows: NDArray, heads: int) -> NDArray:
    """Undo ``to_gguf``."""
    return _with_swapped(rows, _require_pairs(rows, heads), (heads, -1, 2))


def _require_pairs(rows: NDArray, heads: int) -> int:
    count = rows.shape[0]
    if count % (2 * heads):
        raise InputError(f"{count} rows, expected a multiple of 2 x {heads} heads")
    return count


def _with_swapped(rows: NDArray, count: int, split: tuple[int, int, int]) -> NDArray:
    order = np.arange(count).reshape(split).swapaxes(1, 2).ravel()
    return rows[order]
