"""What every block format has: a name, a size, a layout, and the two directions."""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray


class BlockFormat(ABC):
    """``values`` consecutive weights of a row in one record of ``layout``."""

    name: ClassVar[str]
    """As GGML names it, in lower case."""
    values: ClassVar[int]
    """How many weights a block holds; a row must be a multiple of it."""
    layout: ClassVar[np.dtype]
    """The fields of a block in the order of their bytes, little-endian."""
    activation: ClassVar[str | None] = None
    """The format activations are quantized to beside such weights on a CPU (ggml's ``vec_dot_type``).

    ``None``: the activations stay float32.
    """

    @property
    def bytes(self) -> int:
        """How many bytes a block takes."""
        return self.layout.itemsize

    @abstractmethod
    def quantize(self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None) -> NDArray[np.void]:
        """Float32[rows, cols], contiguous and finite, to ``layout``[rows * cols / values].

        ``importance`` is float32[cols] or None; a format whose quantization does not search ignores it.
        """

    @abstractmethod
    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """``layout``[blocks] to float32[blocks, values]."""

    def finite(self, blocks: NDArray[np.void]) -> NDArray[np.bool_]:
        """For each block, whether all of its floating-point fields are finite."""
        finite = np.ones(len(blocks), np.bool_)
        for name in self.layout.names:
            if not np.issubdtype(self.layout[name].base, np.integer):
                field = np.isfinite(blocks[name])
                finite &= field if field.ndim == 1 else field.all(axis=1)
        return finite
