"""4-bit floating-point codes (E2M1) under an 8-bit floating-point scale: MXFP4 and NVFP4."""

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from impl.reference.blocks.arithmetic import compiled, largest_magnitudes
from impl.reference.blocks.block_format import BlockFormat, bytes_of
from impl.reference.blocks.packing import pack_nibbles, unpack_nibbles

VALUES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], dtype=np.float32)
"""Twice what each E2M1 code stands for; the scales below are half their own values."""


class MXFP4(BlockFormat):
    """OCP Microscaling: blocks of 32 under a power of two."""

    name = "mxfp4"
    values = 32
    layout = np.dtype([("scale", ml_dtypes.float8_e8m0fnu), ("codes", "u1", 16)])
    activation = "q8_0"

    def quantize(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None, blocks: NDArray[np.void]
    ) -> None:
        """The scale puts the largest magnitude's exponent at E2M1's largest, 2; importance has no say."""
        x = rows.reshape(-1, 32)
        largest = largest_magnitudes(x)
        exponent = np.floor(np.log2(largest.astype(np.float64)).astype(np.float32))
        biased = np.where(largest > 0, exponent, -125).astype(np.int32) + 125
        blocks["scale"] = biased.astype(np.uint8).view(ml_dtypes.float8_e8m0fnu)
        pack_nibbles(_nearest_codes(x, _half_e8m0(blocks["scale"])), bytes_of(blocks), 1)

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """Scale times value."""
        return VALUES[unpack_nibbles(blocks["codes"])] * _half_e8m0(blocks["scale"])[:, None]


class NVFP4(BlockFormat):
    """NVIDIA's: 64 weights, each 16 under an unsigned E4M3 scale."""

    name = "nvfp4"
    values = 64
    layout = np.dtype([("scales", "u1", 4), ("codes", "u1", (4, 8))])
    activation = "q8_0"

    def quantize(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None, blocks: NDArray[np.void]
    ) -> None:
        """The scale puts the largest magnitude at E2M1's largest, 6; importance has no say."""
        x = rows.reshape(-1, 16)
        scales = _e4m3_code(largest_magnitudes(x) / np.float32(6))
        blocks["scales"] = scales.reshape(-1, 4)
        codes = _nearest_codes(x, _half_e4m3(scales)).reshape(-1, 4, 16)
        blocks["codes"] = codes[:, :, :8] | (codes[:, :, 8:] << np.uint8(4))

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """Scale times value."""
        x = VALUES[unpack_nibbles(blocks["codes"])] * _half_e4m3(blocks["scales"])[:, :, None]
        return x.reshape(-1, 64)


def _half_e8m0(scales: NDArray) -> NDArray[np.float32]:
    """Half of 2 ** (code - 127), subnormal where need be."""
    codes = np.ascontiguousarray(scales).view(np.uint8).astype(np.uint32)
    return np.where(codes < 2, np.uint32(1 << 21) << codes, (codes - np.uint32(1)) << np.uint32(23)).view(np.float32)


def _half_e4m3(codes: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Half of what an E4M3 code stands for, its sign bit ignored and its NaN, 0x7F, read as 0."""
    exponent, mantissa = (codes >> np.uint8(3) & np.uint8(15)).astype(np.int32), codes & np.uint8(7)
    subnormal = mantissa.astype(np.float32) * np.float32(2**-10)
    normal = np.ldexp(np.float32(1) + mantissa.astype(np.float32) / np.float32(8), exponent - 8)
    return np.where(codes == 0x7F, np.float32(0), np.where(exponent == 0, subnormal, normal))


def _e4m3_code(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The E4M3 code of values not below 0, half up; that of 448 from 248 on, as ggml has it."""
    bits = values.view(np.int32)
    subnormal = np.minimum(values, 1) * np.float32(512) + np.float32(0.5)
    normal = (bits + (1 << 19) >> 20) - (120 << 3)
    normal = np.where(normal < 15 << 3, normal, 0x7E)
    return np.where(values < 2**-6, np.minimum(subnormal.astype(np.int32), 7), normal).astype(np.uint8)


def _nearest_codes(x: NDArray[np.float32], scale: NDArray[np.float32]) -> NDArray[np.uint8]:
    codes = np.empty(x.shape, np.uint8)
    _search_codes(x, scale, codes)
    return codes


@compiled
def _search_codes(x: NDArray[np.float32], scale: NDArray[np.float32], codes: NDArray[np.uint8]) -> None:
    """The first code whose value times scale is nearest to x."""
    for block in range(x.shape[0]):
        for j in range(x.shape[1]):
            code = np.uint8(0)
            best = abs(VALUES[0] * scale[block] - x[block, j])
            for candidate in range(1, 16):
                error = abs(VALUES[candidate] * scale[block] - x[block, j])
                code = np.uint8(candidate) if error < best else code
                best = error if error < best else best
            codes[block, j] = code
