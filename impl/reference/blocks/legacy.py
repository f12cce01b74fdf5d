"""Blocks of 32 under one float16 scale: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, and Q8_1 for activations."""

import numpy as np
from numpy.typing import NDArray

from impl.reference.blocks.arithmetic import (
    ZERO,
    as_float16,
    compiled,
    extremes_of_blocks,
    half_away,
    magnitude_bits,
    ranges_of_blocks,
    reciprocal,
    write_float16,
)
from impl.reference.blocks.block_format import BlockFormat, bytes_of
from impl.reference.blocks.minimum_search import fit_scale_and_minimum
from impl.reference.blocks.packing import pack_fifth_bits, pack_nibbles, unpack_nibbles
from impl.reference.blocks.scale_search import fit_scale
from impl.reference.blocks.weighting import weights_from_rows

SIZE = 32
HALF = np.float32(0.5)
TOGETHER = 128
"""How many blocks are read twice before the next are, so that a first cache holds them."""
CODE_LIMIT = np.float32(127)


class SymmetricFormat(BlockFormat):
    """weight = scale * (code - ``zero``); the largest magnitude takes code 0, whatever its sign."""

    values = SIZE
    shows_non_finite = True
    zero: int
    activation = "q8_0"

    def fit(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None
    ) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        """Scale float32[blocks] and codes uint8[blocks, 32]."""
        x = rows.reshape(-1, SIZE)
        if importance is not None:
            return fit_scale(x, weights_from_rows(rows, importance).reshape(-1, SIZE), self.zero)
        scale, codes = np.empty(len(x), np.float32), np.empty(x.shape, np.uint8)
        _fit_extremes(x, np.int32(self.zero), scale, codes)
        return scale, codes


class OffsetFormat(BlockFormat):
    """weight = scale * code + minimum, with codes up to ``last``."""

    values = SIZE
    shows_non_finite = True
    last: int
    activation = "q8_1"

    def fit(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.uint8]]:
        """Scale and minimum, float32[blocks] each, and codes uint8[blocks, 32]."""
        x = rows.reshape(-1, SIZE)
        if importance is not None:
            weights = weights_from_rows(rows, importance).reshape(-1, SIZE)
            scale, depth, codes = fit_scale_and_minimum(x, weights, self.last, -0.9, 0.05, 36)
            return scale, -depth, codes
        scale, minimum, codes = np.empty(len(x), np.float32), np.empty(len(x), np.float32), np.empty(x.shape, np.uint8)
        _fit_ranges(x, np.int32(self.last), scale, minimum, codes)
        return scale, minimum, codes


class Q4_0(SymmetricFormat):
    """4 bits, -8 to 7."""

    name = "q4_0"
    layout = np.dtype([("scale", "<f2"), ("codes", "u1", 16)])
    zero = 8

    def quantize(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None, blocks: NDArray[np.void]
    ) -> None:
        """Codes j and j + 16 share byte j."""
        scale, codes = self.fit(rows, importance)
        write_float16(scale, bytes_of(blocks), 0)
        pack_nibbles(codes, bytes_of(blocks), 2)

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """Scale times code - 8."""
        codes = unpack_nibbles(blocks["codes"]).astype(np.int8) - np.int8(self.zero)
        return codes * blocks["scale"].astype(np.float32)[:, None]


class Q4_1(OffsetFormat):
    """4 bits above a minimum."""

    name = "q4_1"
    layout = np.dtype([("scale", "<f2"), ("minimum", "<f2"), ("codes", "u1", 16)])
    last = 15

    def quantize(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None, blocks: NDArray[np.void]
    ) -> None:
        """Codes j and j + 16 share byte j."""
        scale, minimum, codes = self.fit(rows, importance)
        write_float16(scale, bytes_of(blocks), 0)
        write_float16(minimum, bytes_of(blocks), 2)
        pack_nibbles(codes, bytes_of(blocks), 4)

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """Scale times code plus minimum."""
        scale, minimum = (blocks[field].astype(np.float32)[:, None] for field in ("scale", "minimum"))
        return unpack_nibbles(blocks["codes"]) * scale + minimum


class Q5_0(SymmetricFormat):
    """5 bits, -16 to 15."""

    name = "q5_0"
    layout = np.dtype([("scale", "<f2"), ("fifth_bits", "u1", 4), ("codes", "u1", 16)])
    zero = 16

    def quantize(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None, blocks: NDArray[np.void]
    ) -> None:
        """Four bits as in Q4_0; the fifth of code j is bit j of 32."""
        scale, codes = self.fit(rows, importance)
        write_float16(scale, bytes_of(blocks), 0)
        pack_fifth_bits(codes, bytes_of(blocks), 2)
        pack_nibbles(codes, bytes_of(blocks), 6)

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """Scale times code - 16."""
        codes = _unpack_five_bits(blocks).astype(np.int8) - np.int8(self.zero)
        return codes * blocks["scale"].astype(np.float32)[:, None]


class Q5_1(OffsetFormat):
    """5 bits above a minimum."""

    name = "q5_1"
    layout = np.dtype([("scale", "<f2"), ("minimum", "<f2"), ("fifth_bits", "u1", 4), ("codes", "u1", 16)])
    last = 31

    def quantize(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None, blocks: NDArray[np.void]
    ) -> None:
        """Four bits as in Q4_1; the fifth of code j is bit j of 32."""
        scale, minimum, codes = self.fit(rows, importance)
        write_float16(scale, bytes_of(blocks), 0)
        write_float16(minimum, bytes_of(blocks), 2)
        pack_fifth_bits(codes, bytes_of(blocks), 4)
        pack_nibbles(codes, bytes_of(blocks), 8)

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """Scale times code plus minimum."""
        scale, minimum = (blocks[field].astype(np.float32)[:, None] for field in ("scale", "minimum"))
        return _unpack_five_bits(blocks) * scale + minimum


class Q8_0(BlockFormat):
    """8 bits, -127 to 127, half away from zero."""

    name = "q8_0"
    values = SIZE
    shows_non_finite = True
    layout = np.dtype([("scale", "<f2"), ("codes", "i1", SIZE)])
    activation = "q8_0"

    def quantize(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None, blocks: NDArray[np.void]
    ) -> None:
        """The scale is the largest magnitude over 127; importance has no say."""
        x = rows.reshape(-1, SIZE)
        scale = np.empty(len(x), np.float32)
        _round_to_127(x, scale, bytes_of(blocks), 2)
        write_float16(scale, bytes_of(blocks), 0)

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """Scale times code."""
        return blocks["codes"] * blocks["scale"].astype(np.float32)[:, None]


class Q8_1(BlockFormat):
    """Q8_0 with the scale times the sum of its codes, which an offset format's minimum is multiplied by."""

    name = "q8_1"
    values = SIZE
    shows_non_finite = True
    layout = np.dtype([("scale", "<f2"), ("scaled_sum", "<f2"), ("codes", "i1", SIZE)])
    activation = "q8_1"

    def quantize(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None, blocks: NDArray[np.void]
    ) -> None:
        """As Q8_0; the sum is taken with the scale before it was rounded to float16."""
        x = rows.reshape(-1, SIZE)
        scale = np.empty(len(x), np.float32)
        _round_to_127(x, scale, bytes_of(blocks), 4)
        blocks["scale"] = as_float16(scale)
        blocks["scaled_sum"] = as_float16(blocks["codes"].sum(axis=1, dtype=np.int32).astype(np.float32) * scale)

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """Scale times code."""
        return blocks["codes"] * blocks["scale"].astype(np.float32)[:, None]


def _unpack_five_bits(blocks: NDArray[np.void]) -> NDArray[np.uint8]:
    fifth_bits = np.unpackbits(blocks["fifth_bits"], axis=1, bitorder="little")
    return unpack_nibbles(blocks["codes"]) | (fifth_bits << np.uint8(4))


@compiled
def _fit_extremes(x: NDArray[np.float32], zero: np.int32, scale: NDArray[np.float32], codes: NDArray[np.uint8]) -> None:
    """Scale = first value of the largest magnitude over -``zero``; code = x / scale + zero."""
    origin = np.zeros(TOGETHER, np.float32)
    for first in range(0, x.shape[0], TOGETHER):
        some, scales = x[first : first + TOGETHER], scale[first : first + TOGETHER]
        scales[:] = extremes_of_blocks(some) / np.float32(-zero)
        _divide(some, origin, scales, np.float32(zero), np.int32(2 * zero - 1), codes[first : first + TOGETHER])


@compiled
def _fit_ranges(
    x: NDArray[np.float32],
    last: np.int32,
    scale: NDArray[np.float32],
    minimum: NDArray[np.float32],
    codes: NDArray[np.uint8],
) -> None:
    """Scale = largest less smallest, over ``last``; code = (x - smallest) / scale."""
    for first in range(0, x.shape[0], TOGETHER):
        some, scales = x[first : first + TOGETHER], scale[first : first + TOGETHER]
        smallest, largest = ranges_of_blocks(some)
        scales[:] = (largest - smallest) / np.float32(last)
        minimum[first : first + TOGETHER] = smallest
        _divide(some, smallest, scales, ZERO, last, codes[first : first + TOGETHER])


@compiled
def _divide(
    x: NDArray[np.float32],
    origin: NDArray[np.float32],
    scale: NDArray[np.float32],
    zero: np.float32,
    last: np.int32,
    codes: NDArray[np.uint8],
) -> None:
    """Codes uint8[blocks, 32]: (x - origin) / scale + zero, half up, at most ``last``."""
    for block in range(x.shape[0]):
        start, inverse, shift = origin[block], reciprocal(scale[block]), zero + HALF
        if not (abs(inverse) < np.inf and abs(scale[block]) < np.inf):
            # No integer holds the quotient; ggml's conversion of it ends in code 0.
            inverse = shift = ZERO
        values, rounded = x[block], codes[block]
        for i in range(values.size):
            rounded[i] = np.uint8(min(np.int32((values[i] - start) * inverse + shift), last))


@compiled
def _round_to_127(x: NDArray[np.float32], scale: NDArray[np.float32], blocks: NDArray[np.uint8], at: int) -> None:
    """Scale = largest magnitude over 127; codes, int8, from byte ``at`` of each block on."""
    for b in range(x.shape[0]):
        largest = np.int32(0)
        for j in range(x.shape[1]):
            largest = max(largest, magnitude_bits(x[b, j]))
        scale[b] = np.int32(largest).view(np.float32) / CODE_LIMIT
        inverse = reciprocal(scale[b])
        for j in range(x.shape[1]):
            blocks[b, at + j] = np.uint8(half_away(x[b, j] * inverse))
