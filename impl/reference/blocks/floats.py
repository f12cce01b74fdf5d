"""The formats without blocks: F32, F16 and BF16, one value at a time."""

from collections.abc import Callable
from typing import ClassVar

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from impl.reference.blocks.arithmetic import compiled, float16_bits
from impl.reference.blocks.block_format import INFINITIES, BlockFormat


@compiled
def _copy(values: NDArray[np.float32], numbers: NDArray[np.uint32]) -> np.uint32:
    largest = np.uint32(0)
    for i in range(values.size):
        number = np.float32(values[i]).view(np.uint32)
        numbers[i] = number
        largest = max(largest, np.uint32(number << np.uint32(1)))
    return np.uint32(largest >> np.uint32(1))


@compiled
def _round_to_float16(values: NDArray[np.float32], numbers: NDArray[np.uint16]) -> np.uint16:
    largest = np.uint16(0)
    for i in range(values.size):
        number = float16_bits(values[i])
        numbers[i] = number
        largest = max(largest, np.uint16(number << np.uint16(1)))
    return np.uint16(largest >> np.uint16(1))


@compiled
def _round_to_bfloat16(values: NDArray[np.float32], numbers: NDArray[np.uint16]) -> np.uint16:
    largest = np.uint16(0)
    for i in range(values.size):
        bits = np.float32(values[i]).view(np.uint32)
        odd = np.uint32(bits >> np.uint32(16)) & np.uint32(1)
        number = np.uint16(np.uint32(bits + np.uint32(0x7FFF) + odd) >> np.uint32(16))
        numbers[i] = number
        largest = max(largest, np.uint16(number << np.uint16(1)))
    return np.uint16(largest >> np.uint16(1))


class FloatFormat(BlockFormat):
    """A floating-point number per weight; importance has no say."""

    values = 1
    shows_non_finite = True
    write: ClassVar[Callable[[NDArray[np.float32], NDArray[np.unsignedinteger]], np.unsignedinteger]]
    """Writes float32 values as the bits of the format's, and returns the largest of these without their sign.

    So taken, bits order as magnitudes do, and those of infinity and NaN come last.
    """

    def quantize(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None, blocks: NDArray[np.void]
    ) -> None:
        """Round half to even, where the format is narrower."""
        self.quantize_finite(rows, importance, blocks)

    def quantize_finite(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None, blocks: NDArray[np.void]
    ) -> bool:
        """In one pass: a number for each weight is many."""
        infinity = INFINITIES[self.layout["number"]]
        return bool(self.write(rows.reshape(-1), blocks.view(infinity.dtype)) < infinity)

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """Widen."""
        return blocks["number"].astype(np.float32)[:, None]


class F32(FloatFormat):
    """IEEE 754 single precision."""

    name = "f32"
    layout = np.dtype([("number", "<f4")])
    write = staticmethod(_copy)


class F16(FloatFormat):
    """IEEE 754 half precision."""

    name = "f16"
    layout = np.dtype([("number", "<f2")])
    write = staticmethod(_round_to_float16)


class BF16(FloatFormat):
    """The upper half of a float32."""

    name = "bf16"
    layout = np.dtype([("number", ml_dtypes.bfloat16)])
    write = staticmethod(_round_to_bfloat16)
