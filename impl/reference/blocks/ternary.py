"""-1, 0 or 1 times a scale, in super-blocks of 256: TQ1_0 and TQ2_0, made for BitNet and TriLMs."""

import numpy as np
from numpy.typing import NDArray

from impl.reference.blocks.arithmetic import compiled, half_away, magnitude_bits, reciprocal, write_float16
from impl.reference.blocks.block_format import BlockFormat, bytes_of
from impl.reference.blocks.packing import pack_crumbs, unpack_crumbs

SIZE = 256
POWERS_OF_3 = np.array([1, 3, 9, 27, 81], dtype=np.uint8)[:, None]
TRIT_RUNS = (
    (slice(0, 160), slice(0, 32), 5),
    (slice(160, 240), slice(32, 48), 5),
    (slice(240, 256), slice(48, 52), 4),
)
"""TQ1_0's codes, the bytes that hold them, and how many there are to a byte."""


class TernaryFormat(BlockFormat):
    """weight = scale * (code - 1), with codes 0, 1 and 2."""

    values = SIZE
    activation = "q8_k"

    def fit(self, rows: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        """The largest magnitude, float32[n], and codes, half away from zero, uint8[n, 256]."""
        x = rows.reshape(-1, SIZE)
        scale, codes = np.empty(len(x), np.float32), np.empty(x.shape, np.uint8)
        _round_to_one(x, scale, codes)
        return scale, codes


class TQ1_0(TernaryFormat):
    """Five codes a byte, read as one fraction of 256 in base 3; the last four bytes hold four each."""

    name = "tq1_0"
    layout = np.dtype([("trits", "u1", 52), ("scale", "<f2")])

    def quantize(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None, blocks: NDArray[np.void]
    ) -> None:
        """Importance has no say."""
        scale, codes = self.fit(rows)
        write_float16(scale, bytes_of(blocks), 52)
        for weights, bytes, _ in TRIT_RUNS:
            _pack_trits(codes[:, weights], bytes_of(blocks)[:, bytes])

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """Scale times code - 1."""
        codes = np.empty((len(blocks), SIZE), np.int8)
        for weights, bytes, per_byte in TRIT_RUNS:
            codes[:, weights] = _unpack_trits(blocks["trits"][:, bytes], per_byte)
        return (codes - np.int8(1)) * blocks["scale"].astype(np.float32)[:, None]


class TQ2_0(TernaryFormat):
    """Two bits a code; four, 32 apart, in one byte."""

    name = "tq2_0"
    layout = np.dtype([("codes", "u1", 64), ("scale", "<f2")])

    def quantize(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None, blocks: NDArray[np.void]
    ) -> None:
        """Importance has no say."""
        scale, codes = self.fit(rows)
        write_float16(scale, bytes_of(blocks), 64)
        blocks["codes"] = pack_crumbs(codes, 0)

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """Scale times code - 1."""
        codes = unpack_crumbs(blocks["codes"]).astype(np.int8) - np.int8(1)
        return codes * blocks["scale"].astype(np.float32)[:, None]


@compiled
def _pack_trits(codes: NDArray[np.uint8], packed: NDArray[np.uint8]) -> None:
    """uint8[n, up to 5 m] to uint8[n, m]: the fraction 0.t0t1t2t3t4 in base 3, of 256, rounded up."""
    apart = packed.shape[1]
    numbers = np.empty(apart, np.uint16)
    for block in range(codes.shape[0]):
        numbers[:] = 0
        for place in range(5):
            trits = codes[block, place * apart : (place + 1) * apart]
            for j in range(apart):
                numbers[j] = np.uint16(numbers[j] * np.uint16(3))
            for j in range(trits.size):
                numbers[j] += trits[j]
        for j in range(apart):
            packed[block, j] = np.uint8(np.uint16(numbers[j] * np.uint16(256) + np.uint16(242)) // np.uint16(243))


def _unpack_trits(packed: NDArray[np.uint8], per_byte: int) -> NDArray[np.uint8]:
    """uint8[n, m] to uint8[n, per_byte * m]: shift each trit to the front and read it there."""
    fractions = packed[:, None] * POWERS_OF_3[:per_byte]
    return (fractions.astype(np.uint16) * np.uint16(3) >> np.uint16(8)).astype(np.uint8).reshape(len(packed), -1)


@compiled
def _round_to_one(x: NDArray[np.float32], scale: NDArray[np.float32], codes: NDArray[np.uint8]) -> None:
    """Scale = largest magnitude; code = x / scale + 1."""
    for block in range(x.shape[0]):
        largest = np.int32(0)
        for i in range(x.shape[1]):
            largest = max(largest, magnitude_bits(x[block, i]))
        scale[block] = np.int32(largest).view(np.float32)
        inverse = reciprocal(scale[block])
        for i in range(x.shape[1]):
            codes[block, i] = np.uint8(half_away(x[block, i] * inverse) + 1)
