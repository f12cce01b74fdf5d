"""One or two bits a weight, in the order of the weights: Q1_0 in blocks of 128, Q2_0 in blocks of 64."""

import numpy as np
from numpy.typing import NDArray

from impl.reference.blocks.arithmetic import (
    ZERO,
    clamped,
    compiled,
    half_away,
    magnitude_bits,
    reciprocal,
    write_float16,
)
from impl.reference.blocks.block_format import BlockFormat, bytes_of
from impl.reference.blocks.weighting import ordered_sums

SHIFTS = np.array([0, 2, 4, 6], dtype=np.uint8)


class Q1_0(BlockFormat):
    """weight = scale, or -scale."""

    name = "q1_0"
    values = 128
    layout = np.dtype([("scale", "<f2"), ("signs", "u1", 16)])
    activation = "q8_0"

    def quantize(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None, blocks: NDArray[np.void]
    ) -> None:
        """The scale is the mean magnitude; a zero of either sign counts as positive. Importance has no say."""
        x = rows.reshape(-1, 128)
        write_float16(ordered_sums(np.abs(x)) / np.float32(128), bytes_of(blocks), 0)
        _pack_signs(x, bytes_of(blocks), 2)

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """Plus or minus the scale."""
        positive = np.unpackbits(blocks["signs"], axis=1, bitorder="little").view(np.bool_)
        scale = blocks["scale"].astype(np.float32)[:, None]
        return np.where(positive, scale, -scale)


class Q2_0(BlockFormat):
    """weight = scale * (code - 1), four codes a byte."""

    name = "q2_0"
    values = 64
    layout = np.dtype([("scale", "<f2"), ("codes", "u1", 16)])
    activation = "q8_0"

    def quantize(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None, blocks: NDArray[np.void]
    ) -> None:
        """The scale is the largest magnitude, codes half away from zero; importance has no say."""
        x = rows.reshape(-1, 64)
        scale, codes = np.empty(len(x), np.float32), np.empty(x.shape, np.uint8)
        _round_to_one(x, scale, codes)
        write_float16(scale, bytes_of(blocks), 0)
        _pack_fours(codes, bytes_of(blocks), 2)

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """Scale times code - 1."""
        codes = (blocks["codes"][:, :, None] >> SHIFTS & np.uint8(3)).reshape(-1, 64)
        return (codes.astype(np.int8) - np.int8(1)) * blocks["scale"].astype(np.float32)[:, None]


@compiled
def _pack_signs(x: NDArray[np.float32], blocks: NDArray[np.uint8], at: int) -> None:
    """Write whether each of float32[blocks, size] is 0 or above, the first in the lowest bit of byte ``at``."""
    for block in range(x.shape[0]):
        for byte in range(x.shape[1] // 8):
            bits = np.uint8(0)
            for i in range(8):
                bits |= np.uint8(np.uint8(x[block, 8 * byte + i] >= ZERO) << np.uint8(i))
            blocks[block, at + byte] = bits


@compiled
def _pack_fours(codes: NDArray[np.uint8], blocks: NDArray[np.uint8], at: int) -> None:
    """Write uint8[blocks, size] below 4 from byte ``at`` on: four neighbours in a byte, the first lowest."""
    fours = codes.view(np.uint32)
    for block in range(fours.shape[0]):
        for i in range(fours.shape[1]):
            four = fours[block, i]
            pairs = four | four >> np.uint32(6)
            blocks[block, at + i] = np.uint8(pairs | pairs >> np.uint32(12))


@compiled
def _round_to_one(x: NDArray[np.float32], scale: NDArray[np.float32], codes: NDArray[np.uint8]) -> None:
    """Scale = largest magnitude; code = x / scale + 1, and 0 where 1 / scale is infinite."""
    for block in range(x.shape[0]):
        largest = np.int32(0)
        for i in range(x.shape[1]):
            largest = max(largest, magnitude_bits(x[block, i]))
        scale[block] = np.int32(largest).view(np.float32)
        inverse = reciprocal(scale[block])
        for i in range(x.shape[1]):
            code = clamped(half_away(x[block, i] * inverse) + 1, 0, 3)
            codes[block, i] = np.uint8(code if inverse < np.float32(np.inf) else 0)
