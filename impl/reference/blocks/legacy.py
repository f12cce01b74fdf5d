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
MINIMUM_AT = 2
"""The byte of a block that its minimum begins at, behind its scale."""
TOGETHER = 128
"""How many blocks go through all steps before the next do, so that a first cache holds them."""
CODE_LIMIT = np.float32(127)


class NibbleFormat(BlockFormat):
    """Codes j and j + 16 share byte j of ``codes``; the fifth bit of code j, where codes have one, is bit j of 32."""

    values = SIZE
    shows_non_finite = True

    @property
    def places(self) -> tuple[int, int]:
        """The bytes that fifth bits and codes begin at; fifth bits at 0, where the scale is, are none."""
        fields = self.layout.fields
        return fields["fifth_bits"][1] if "fifth_bits" in fields else 0, fields["codes"][1]

    def codes(self, blocks: NDArray[np.void]) -> NDArray[np.uint8]:
        """uint8[blocks, 32]."""
        low = unpack_nibbles(blocks["codes"])
        if "fifth_bits" not in self.layout.fields:
            return low
        return low | np.unpackbits(blocks["fifth_bits"], axis=1, bitorder="little") << np.uint8(4)


class SymmetricFormat(NibbleFormat):
    """weight = scale * (code - ``zero``); the largest magnitude takes code 0, whatever its sign."""

    zero: int
    activation = "q8_0"

    def quantize(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None, blocks: NDArray[np.void]
    ) -> None:
        """By importance, the scale is searched."""
        x, into = rows.reshape(-1, SIZE), bytes_of(blocks)
        if importance is None:
            _divide_by_extremes(x, np.int32(self.zero), into, self.places)
            return
        scale, codes = fit_scale(x, weights_from_rows(rows, importance).reshape(-1, SIZE), self.zero)
        write_float16(scale, into, 0)
        _pack(codes, into, self.places)

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """Scale times code - ``zero``."""
        levels = self.codes(blocks).astype(np.int8) - np.int8(self.zero)
        return levels * blocks["scale"].astype(np.float32)[:, None]


class OffsetFormat(NibbleFormat):
    """weight = scale * code + minimum, with codes up to ``last``."""

    last: int
    activation = "q8_1"

    def quantize(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None, blocks: NDArray[np.void]
    ) -> None:
        """By importance, scale and minimum are searched."""
        x, into = rows.reshape(-1, SIZE), bytes_of(blocks)
        if importance is None:
            _divide_by_ranges(x, np.int32(self.last), into, self.places)
            return
        weights = weights_from_rows(rows, importance).reshape(-1, SIZE)
        scale, depth, codes = fit_scale_and_minimum(x, weights, self.last, -0.9, 0.05, 36)
        write_float16(scale, into, 0)
        write_float16(-depth, into, MINIMUM_AT)
        _pack(codes, into, self.places)

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """Scale times code plus minimum."""
        scale, minimum = (blocks[field].astype(np.float32)[:, None] for field in ("scale", "minimum"))
        return self.codes(blocks) * scale + minimum


class Q4_0(SymmetricFormat):
    """4 bits, -8 to 7."""

    name = "q4_0"
    layout = np.dtype([("scale", "<f2"), ("codes", "u1", 16)])
    zero = 8


class Q4_1(OffsetFormat):
    """4 bits above a minimum."""

    name = "q4_1"
    layout = np.dtype([("scale", "<f2"), ("minimum", "<f2"), ("codes", "u1", 16)])
    last = 15


class Q5_0(SymmetricFormat):
    """5 bits, -16 to 15."""

    name = "q5_0"
    layout = np.dtype([("scale", "<f2"), ("fifth_bits", "u1", 4), ("codes", "u1", 16)])
    zero = 16


class Q5_1(OffsetFormat):
    """5 bits above a minimum."""

    name = "q5_1"
    layout = np.dtype([("scale", "<f2"), ("minimum", "<f2"), ("fifth_bits", "u1", 4), ("codes", "u1", 16)])
    last = 31


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


@compiled
def _divide_by_extremes(
    x: NDArray[np.float32], zero: np.int32, blocks: NDArray[np.uint8], places: tuple[int, int]
) -> None:
    """Scale = first value of the largest magnitude over -``zero``; code = x / scale + zero."""
    origin, room = np.zeros(TOGETHER, np.float32), np.empty((TOGETHER, SIZE), np.uint8)
    for first in range(0, x.shape[0], TOGETHER):
        some, into = x[first : first + TOGETHER], blocks[first : first + TOGETHER]
        scale, codes = extremes_of_blocks(some) / np.float32(-zero), room[: some.shape[0]]
        _divide(some, origin, scale, np.float32(zero), np.int32(2 * zero - 1), codes)
        write_float16(scale, into, 0)
        _pack(codes, into, places)


@compiled
def _divide_by_ranges(
    x: NDArray[np.float32], last: np.int32, blocks: NDArray[np.uint8], places: tuple[int, int]
) -> None:
    """Scale = largest less smallest, over ``last``; minimum = smallest; code = (x - smallest) / scale."""
    room = np.empty((TOGETHER, SIZE), np.uint8)
    for first in range(0, x.shape[0], TOGETHER):
        some, into = x[first : first + TOGETHER], blocks[first : first + TOGETHER]
        smallest, largest = ranges_of_blocks(some)
        scale, codes = (largest - smallest) / np.float32(last), room[: some.shape[0]]
        _divide(some, smallest, scale, ZERO, last, codes)
        write_float16(scale, into, 0)
        write_float16(smallest, into, MINIMUM_AT)
        _pack(codes, into, places)


@compiled
def _pack(codes: NDArray[np.uint8], blocks: NDArray[np.uint8], places: tuple[int, int]) -> None:
    fifth_bits_at, codes_at = places
    if fifth_bits_at > 0:
        pack_fifth_bits(codes, blocks, fifth_bits_at)
    pack_nibbles(codes, blocks, codes_at)


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
