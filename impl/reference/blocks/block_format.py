"""What every block format has: a name, a size, a layout, and the two directions."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import reduce
from types import MappingProxyType
from typing import ClassVar

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

INFINITIES: Mapping[np.dtype, np.unsignedinteger] = MappingProxyType(
    {
        np.dtype(np.float16): np.uint16(0x7C00),
        np.dtype(ml_dtypes.bfloat16): np.uint16(0x7F80),
        np.dtype(np.float32): np.uint32(0x7F800000),
        np.dtype(ml_dtypes.float8_e8m0fnu): np.uint8(0xFF),
    }
)
"""Of each floating-point type of a field, the bits that are all set in its infinity and NaN, and in no other number."""


def bytes_of(blocks: NDArray[np.void]) -> NDArray[np.uint8]:
    """The same memory as uint8[blocks, bytes of a block]."""
    return blocks.view(np.uint8).reshape(len(blocks), blocks.itemsize)


class BlockFormat(ABC):
    """``values`` consecutive weights of a row in one record of ``layout``."""

    name: ClassVar[str]
    """As GGML names it, in lower case."""
    values: ClassVar[int]
    """How many weights a block holds; a row must be a multiple of it."""
    layout: ClassVar[np.dtype]
    """The fields of a block in the order of their bytes, little-endian."""
    shows_non_finite: ClassVar[bool] = False
    """Whether NaN or Inf among a block's weights always leaves a field of it that is not finite."""
    activation: ClassVar[str | None] = None
    """The format activations are quantized to beside such weights on a CPU (ggml's ``vec_dot_type``).

    ``None``: the activations stay float32.
    """

    @property
    def bytes(self) -> int:
        """How many bytes a block takes."""
        return self.layout.itemsize

    @abstractmethod
    def quantize(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None, blocks: NDArray[np.void]
    ) -> None:
        """Write float32[rows, cols], contiguous and finite, into ``blocks``, ``layout``[rows * cols / values].

        ``importance`` is float32[cols] or None; a format whose quantization does not search ignores it.
        """

    def quantize_finite(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None, blocks: NDArray[np.void]
    ) -> bool:
        """``quantize``, and say whether all floating-point fields of all blocks are finite."""
        self.quantize(rows, importance, blocks)
        return bool(self.finite(blocks).all())

    @abstractmethod
    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """``layout``[blocks] to float32[blocks, values]."""

    def finite(self, blocks: NDArray[np.void]) -> NDArray[np.bool_]:
        """For each block, whether all of its floating-point fields are finite."""
        # Several times as fast as numpy's own test, which widens float16 first.
        infinities = {name: INFINITIES.get(self.layout[name].base) for name in self.layout.names}
        finite = [blocks[name].view(bits.dtype) & bits != bits for name, bits in infinities.items() if bits is not None]
        whole = [field if field.ndim == 1 else field.all(axis=1) for field in finite]
        return reduce(np.logical_and, whole) if whole else np.ones(len(blocks), np.bool_)
