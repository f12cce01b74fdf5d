"""Quantizers and dequantizers that misbehave with some shape, in what they are given, or when called again."""

import numpy as np
from numpy.typing import NDArray

from impl.faulty.quantizers import FaultyQuantizer
from impl.reference import Reference
from impl.reference.blocks import dequantize, quantize


def _without_odd_row(weight: NDArray[np.float32], type: str) -> NDArray[np.uint8]:
    blocks = quantize(weight, type)
    if len(blocks) % 2:
        blocks[-1] = 0
    return blocks


class OddLastRow(FaultyQuantizer):
    """Leaves the last of an odd number of rows out."""

    name = "odd-last-row"
    faulty = staticmethod(_without_odd_row)


def _first_rows(weight: NDArray[np.float32], type: str) -> NDArray[np.uint8]:
    blocks = quantize(weight, type)
    blocks[4096:] = 0
    return blocks


class RowsBeyond4096(FaultyQuantizer):
    """Leaves the rows from the 4,097th on out."""

    name = "rows-beyond-4096"
    faulty = staticmethod(_first_rows)


def _first_columns(weight: NDArray[np.float32], type: str) -> NDArray[np.uint8]:
    weight = weight.copy()
    weight[:, 4096:] = 0
    return quantize(weight, type)


class ColumnsBeyond4096(FaultyQuantizer):
    """Takes the columns from the 4,097th on for zeros."""

    name = "columns-beyond-4096"
    faulty = staticmethod(_first_columns)


def _scaled_in_place(weight: NDArray[np.float32], type: str) -> NDArray[np.uint8]:
    blocks = quantize(weight, type)
    weight *= 2
    return blocks


class ChangedInPlace(FaultyQuantizer):
    """Uses the weights as its scratch space."""

    name = "changed-in-place"
    faulty = staticmethod(_scaled_in_place)


class SharedBlocks(Reference):
    """Returns blocks in a buffer that the next call overwrites."""

    name = "shared-blocks"

    def __init__(self) -> None:
        super().__init__()
        self._buffer = np.empty(0, np.uint8)

    def quantize(
        self, weight: NDArray[np.float32], type: str, importance: NDArray[np.float32] | None = None
    ) -> NDArray[np.uint8]:
        """Quantize into the buffer."""
        blocks = super().quantize(weight, type, importance)
        if self._buffer.size < blocks.size:
            self._buffer = np.empty(blocks.size, np.uint8)
        shared = self._buffer[: blocks.size].reshape(blocks.shape)
        shared[:] = blocks
        return shared


class BlocksBeyond512(Reference):
    """Reads the rows from the 513th on as zeros."""

    name = "blocks-beyond-512"

    def dequantize(self, blocks: NDArray[np.uint8], type: str) -> NDArray[np.float32]:
        """Dequantize the first 512 rows."""
        weight = dequantize(blocks, type)
        weight[512:] = 0
        return weight


class SharedWeights(Reference):
    """Adds up in a buffer that every thread shares while it reads blocks."""

    name = "shared-weights"

    def __init__(self) -> None:
        super().__init__()
        self._buffer = np.empty(0, np.float32)

    def dequantize(self, blocks: NDArray[np.uint8], type: str) -> NDArray[np.float32]:
        """Dequantize by way of the buffer."""
        weight = dequantize(blocks, type)
        if self._buffer.shape != weight.shape:
            self._buffer = np.empty(weight.shape, np.float32)
        self._buffer[:] = weight
        return self._buffer
