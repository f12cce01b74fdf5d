"""The formats without blocks: F32, F16 and BF16, one value at a time."""

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from impl.reference.blocks.arithmetic import compiled, float16_bits
from impl.reference.blocks.block_format import INFINITIES, BlockFormat


class FloatFormat(BlockFormat):
    """A floating-point number per weight; importance has no say."""

    values = 1
    shows_non_finite = True

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """Widen."""
        return blocks["number"].astype(np.float32)[:, None]

    def all_finite(self, blocks: NDArray[np.void]) -> bool:
        """As ``BlockFormat.all_finite``, in one pass: a number for each weight is many."""
        infinity = INFINITIES[self.layout["number"]]
        return _largest_magnitude(blocks.view(infinity.dtype)) < infinity


class F32(FloatFormat):
    """IEEE 754 single precision."""

    name = "f32"
    layout = np.dtype([("number", "<f4")])

    def quantize(self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None) -> NDArray[np.void]:
        """As it is."""
        return rows.reshape(-1).view(self.layout)


class F16(FloatFormat):
    """IEEE 754 half precision, rounded half to even."""

    name = "f16"
    layout = np.dtype([("number", "<f2")])

    def quantize(self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None) -> NDArray[np.void]:
        """Round."""
        return _round_to_float16(rows.reshape(-1)).view(self.layout)


class BF16(FloatFormat):
    """The upper half of a float32, rounded half to even."""

    name = "bf16"
    layout = np.dtype([("number", ml_dtypes.bfloat16)])

    def quantize(self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None) -> NDArray[np.void]:
        """Round."""
        return _round_to_bfloat16(rows.reshape(-1).view(np.uint32)).view(self.layout)


@compiled
def _round_to_float16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    numbers = np.empty(values.size, np.uint16)
    for i in range(values.size):
        numbers[i] = float16_bits(values[i])
    return numbers


@compiled
def _round_to_bfloat16(bits: NDArray[np.uint32]) -> NDArray[np.uint16]:
    numbers = np.empty(bits.size, np.uint16)
    for i in range(bits.size):
        odd = np.uint32(bits[i] >> np.uint32(16)) & np.uint32(1)
        numbers[i] = np.uint16(np.uint32(bits[i] + np.uint32(0x7FFF) + odd) >> np.uint32(16))
    return numbers


@compiled
def _largest_magnitude(bits: NDArray[np.unsignedinteger]) -> np.unsignedinteger:
    """The largest of a float format's numbers without their sign, as bits, which order as magnitudes do."""
    unsigned = bits.dtype.type
    # Shifted up: one operation, and no mask that depends on the width.
    largest = unsigned(0)
    for i in range(bits.size):
        largest = max(largest, unsigned(bits[i] << unsigned(1)))
    return unsigned(largest >> unsigned(1))
