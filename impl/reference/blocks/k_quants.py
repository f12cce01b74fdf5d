"""Super-blocks of 256 weights: Q2_K to Q6_K, and Q8_K for activations.

A super-block is cut into blocks of 16 or 32, each with a small integer scale (and, for the offset
formats, a depth below zero) in units that the super-block keeps as floats.
"""

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from impl.reference.blocks.arithmetic import ONE, ZERO, as_float16, clamped, compiled, extremes_of_blocks, nearest
from impl.reference.blocks.block_format import BlockFormat
from impl.reference.blocks.minimum_search import OwnWeights, fit_scale_and_minimum
from impl.reference.blocks.packing import (
    pack_bits,
    pack_crumbs,
    pack_nibbles,
    unpack_bits,
    unpack_crumbs,
    unpack_nibbles,
)
from impl.reference.blocks.scale_refinement import refine_scale
from impl.reference.blocks.scale_search import VANISHING, fit_scale
from impl.reference.blocks.unit_search import fit_unit
from impl.reference.blocks.weighting import ordered_sums, weights_from_groups

SIZE = 256


class OffsetSuperBlock(BlockFormat):
    """weight = unit * scale * code - depth_unit * depth, per block of ``block``."""

    values = SIZE
    activation = "q8_k"
    block: int
    last: int
    """The largest code."""
    last_scale: int
    """The largest scale and depth of a block."""
    candidates: tuple[float, float, int]
    """First step, step and number of the ranges tried without importance; see ``fit_scale_and_minimum``."""
    candidates_by_importance: tuple[float, float, int] = (-0.9, 0.05, 36)
    mean_factor: int = 2
    """How many times the mean square of the super-block goes into weights by importance."""
    own_weights: OwnWeights = "root mean square + magnitude"
    absolute: bool = False
    """Whether, without importance, absolute errors are counted instead of squares."""

    def quantize(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None, blocks: NDArray[np.void]
    ) -> None:
        """Search each block, write scales and depths as integers, then round anew to what those decode to."""
        x = rows.reshape(-1, self.block)
        per_super_block = SIZE // self.block
        if importance is None:
            scale, depth, codes = fit_scale_and_minimum(x, self.own_weights, self.last, *self.candidates, self.absolute)
            unit, scales = _in_units_of_largest(scale.reshape(-1, per_super_block), self.last_scale)
            depth_unit, depths = _in_units_of_largest(depth.reshape(-1, per_super_block), self.last_scale)
        else:
            weights = weights_from_groups(
                rows.reshape(-1, SIZE), importance.reshape(-1, SIZE), self.mean_factor
            ).reshape(x.shape)
            scale, depth, codes = fit_scale_and_minimum(x, weights, self.last, *self.candidates_by_importance)
            sums = ordered_sums(weights).reshape(-1, per_super_block)
            unit, scales = fit_unit(scale.reshape(sums.shape), sums, self.last_scale)
            depth_unit, depths = fit_unit(depth.reshape(sums.shape), sums, self.last_scale)
        blocks["unit"], blocks["depth_unit"] = as_float16(unit), as_float16(depth_unit)
        blocks["scales_depths"] = self.pack_scales(scales, depths)
        step, offset = self.steps_and_offsets(blocks)
        _round_anew(x, step.reshape(-1), offset.reshape(-1), np.int32(0), np.int32(self.last), codes)
        self.pack_codes(codes.reshape(-1, SIZE), blocks)

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """unit * scale * code - depth_unit * depth."""
        step, offset = self.steps_and_offsets(blocks)
        codes = self.unpack_codes(blocks).reshape(len(blocks), -1, self.block)
        return (step[:, :, None] * codes - offset[:, :, None]).reshape(-1, SIZE)

    def steps_and_offsets(self, blocks: NDArray[np.void]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """unit * scale and depth_unit * depth, float32[n, 256 / block] each."""
        scales, depths = (
            codes.astype(np.float32) for codes in self.unpack_scales(np.ascontiguousarray(blocks["scales_depths"]))
        )
        unit, depth_unit = (blocks[field].astype(np.float32)[:, None] for field in ("unit", "depth_unit"))
        return unit * scales, depth_unit * depths

    def pack_scales(self, scales: NDArray[np.uint8], depths: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The field ``scales_depths`` of each super-block from uint8[n, 8], each in 6 bits."""
        return _pack_six_bits(scales, depths)

    def unpack_scales(self, packed: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Scales and depths, uint8[n, 256 / block] each."""
        return _unpack_six_bits(packed)

    @abstractmethod
    def pack_codes(self, codes: NDArray[np.uint8], blocks: NDArray[np.void]) -> None:
        """Write uint8[n, 256] into the code fields of each super-block."""

    @abstractmethod
    def unpack_codes(self, blocks: NDArray[np.void]) -> NDArray[np.uint8]:
        """uint8[n, 256] from the code fields of each super-block."""


class Q2_K(OffsetSuperBlock):
    """2 bits in blocks of 16, scales and depths of 4 bits."""

    name = "q2_k"
    layout = np.dtype([("scales_depths", "u1", 16), ("codes", "u1", 64), ("unit", "<f2"), ("depth_unit", "<f2")])
    block, last, last_scale = 16, 3, 15
    candidates = (-0.5, 0.1, 15)
    mean_factor = 1
    own_weights = "magnitude"
    absolute = True

    def pack_scales(self, scales: NDArray[np.uint8], depths: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """A depth above its scale in one byte."""
        return scales | (depths << np.uint8(4))

    def unpack_scales(self, packed: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Take the two apart."""
        return packed & np.uint8(15), packed >> np.uint8(4)

    def pack_codes(self, codes: NDArray[np.uint8], blocks: NDArray[np.void]) -> None:
        """Four codes, 32 apart, in one byte."""
        blocks["codes"] = pack_crumbs(codes, 0)

    def unpack_codes(self, blocks: NDArray[np.void]) -> NDArray[np.uint8]:
        """Take the four apart."""
        return unpack_crumbs(blocks["codes"])


class Q4_K(OffsetSuperBlock):
    """4 bits in blocks of 32, scales and depths of 6 bits."""

    name = "q4_k"
    layout = np.dtype([("unit", "<f2"), ("depth_unit", "<f2"), ("scales_depths", "u1", 12), ("codes", "u1", 128)])
    block, last, last_scale = 32, 15, 63
    candidates = (-1.0, 0.1, 20)

    def pack_codes(self, codes: NDArray[np.uint8], blocks: NDArray[np.void]) -> None:
        """Two codes, 32 apart, in one byte."""
        blocks["codes"] = _pack_halves(codes, 32)

    def unpack_codes(self, blocks: NDArray[np.void]) -> NDArray[np.uint8]:
        """Take the two apart."""
        return _unpack_halves(blocks["codes"])


class Q5_K(OffsetSuperBlock):
    """5 bits in blocks of 32, scales and depths of 6 bits."""

    name = "q5_k"
    layout = np.dtype(
        [
            ("unit", "<f2"),
            ("depth_unit", "<f2"),
            ("scales_depths", "u1", 12),
            ("fifth_bits", "u1", 32),
            ("codes", "u1", 128),
        ]
    )
    block, last, last_scale = 32, 31, 63
    candidates = (-0.5, 0.1, 15)

    def pack_scales(self, scales: NDArray[np.uint8], depths: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """As Q4_K, but ggml holds a negative scale, which has wrapped to above 63, at 63 here alone."""
        return _pack_six_bits(np.minimum(scales, 63), np.minimum(depths, 63))

    def pack_codes(self, codes: NDArray[np.uint8], blocks: NDArray[np.void]) -> None:
        """Four bits as in Q4_K; the fifth of code 32 k + j is bit k of byte j."""
        blocks["fifth_bits"] = pack_bits(codes, 4)
        blocks["codes"] = _pack_halves(codes, 32)

    def unpack_codes(self, blocks: NDArray[np.void]) -> NDArray[np.uint8]:
        """Put the fifth bit back above the four."""
        return _unpack_halves(blocks["codes"]) | (unpack_bits(blocks["fifth_bits"]) << np.uint8(4))


class Q3_K(BlockFormat):
    """3 bits in blocks of 16, scales of 6 bits: weight = unit * (scale - 32) * (code - 4)."""

    name = "q3_k"
    values = SIZE
    layout = np.dtype([("third_bits", "u1", 32), ("codes", "u1", 64), ("scales", "u1", 12), ("unit", "<f2")])
    activation = "q8_k"

    def quantize(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None, blocks: NDArray[np.void]
    ) -> None:
        """Search each block, write the scales as integers, then round anew to what those decode to."""
        x = rows.reshape(-1, 16)
        if importance is None:
            scale, codes = refine_scale(x, 4)
            unit, scales = _in_units_of_extreme(scale.reshape(-1, 16), 32)
        else:
            weights = weights_from_groups(rows.reshape(-1, SIZE), importance.reshape(-1, SIZE), 2).reshape(x.shape)
            scale, codes = fit_scale(x, weights, 4)
            unit, scales = fit_scale(scale.reshape(-1, 16), ordered_sums(weights).reshape(-1, 16), 32)
        unit = as_float16(unit)
        step = unit[:, None] * (scales.astype(np.int8) - np.int8(32))
        _round_anew(x, step.reshape(-1), np.zeros(len(x), np.float32), np.int32(4), np.int32(7), codes)
        codes = codes.reshape(-1, SIZE)
        blocks["unit"] = unit
        blocks["scales"] = _pack_q3_scales(scales)
        blocks["third_bits"] = pack_bits(codes, 2)
        blocks["codes"] = pack_crumbs(codes, 0)

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """unit * (scale - 32) * (code - 4)."""
        codes = unpack_crumbs(blocks["codes"]) | (unpack_bits(blocks["third_bits"]) << np.uint8(2))
        scales = _unpack_q3_scales(blocks["scales"]).astype(np.int8) - np.int8(32)
        step = blocks["unit"].astype(np.float32)[:, None] * scales
        x = step[:, :, None] * (codes.astype(np.int8) - np.int8(4)).reshape(-1, 16, 16)
        return x.reshape(-1, SIZE)


class Q6_K(BlockFormat):
    """6 bits in blocks of 16, scales of 8 bits: weight = unit * scale * (code - 32)."""

    name = "q6_k"
    values = SIZE
    layout = np.dtype([("codes", "u1", 128), ("upper_bits", "u1", 64), ("scales", "i1", 16), ("unit", "<f2")])
    activation = "q8_k"

    def quantize(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None, blocks: NDArray[np.void]
    ) -> None:
        """Search each block, write the scales as integers, then round anew to what those decode to."""
        x = rows.reshape(-1, 16)
        weights = x * x if importance is None else np.tile(importance, len(rows)).reshape(x.shape)
        scale, codes = fit_scale(x, weights, 32)
        scale = scale.reshape(-1, 16)
        unit, scales = _in_units_of_extreme(scale, 128)
        scales = scales.view(np.int8) ^ np.int8(-128)
        unit = as_float16(unit)
        step = unit[:, None] * scales
        _round_anew(x, step.reshape(-1), np.zeros(len(x), np.float32), np.int32(32), np.int32(63), codes)
        codes = codes.reshape(-1, SIZE)
        blocks["unit"] = unit
        blocks["scales"] = scales
        blocks["codes"] = _pack_halves(codes, 64)
        blocks["upper_bits"] = pack_crumbs(codes, 4)
        blocks[np.abs(scale).max(axis=1) < VANISHING] = 0

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """unit * scale * (code - 32)."""
        low = blocks["codes"].reshape(-1, 2, 1, 2, 32)
        low = np.concatenate([low & np.uint8(15), low >> np.uint8(4)], axis=2).reshape(-1, SIZE)
        codes = (low | (unpack_crumbs(blocks["upper_bits"]) << np.uint8(4))).astype(np.int8) - np.int8(32)
        step = blocks["unit"].astype(np.float32)[:, None] * blocks["scales"]
        return (step[:, :, None] * codes.reshape(-1, 16, 16)).reshape(-1, SIZE)


class Q8_K(BlockFormat):
    """8 bits under one float32 scale, with the sum of every 16 codes."""

    name = "q8_k"
    values = SIZE
    shows_non_finite = True
    layout = np.dtype([("scale", "<f4"), ("codes", "i1", SIZE), ("sums", "<i2", 16)])
    activation = "q8_k"

    def quantize(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None, blocks: NDArray[np.void]
    ) -> None:
        """The largest magnitude takes code -127, whatever its sign; importance has no say."""
        x = rows.reshape(-1, SIZE)
        scale, codes = np.empty(len(x), np.float32), np.empty(x.shape, np.int8)
        _extreme_to_minus_127(x, scale, codes)
        blocks["scale"], blocks["codes"] = scale, codes
        blocks["sums"] = _sums_of_16(codes.reshape(-1, 16)).reshape(-1, 16)

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """Scale times code."""
        return blocks["scale"][:, None] * blocks["codes"]


def _pack_halves(codes: NDArray[np.uint8], apart: int) -> NDArray[np.uint8]:
    """uint8[n, 256] to uint8[n, 128]: two codes, ``apart`` from each other, in one byte."""
    packed = np.empty((codes.size // (2 * apart), apart), np.uint8)
    pack_nibbles(codes.reshape(-1, 2 * apart), packed, 0)
    return packed.reshape(-1, SIZE // 2)


def _unpack_halves(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return unpack_nibbles(packed.reshape(-1, 4, 32)).reshape(-1, SIZE)


@compiled
def _pack_six_bits(scales: NDArray[np.uint8], depths: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Four bytes of scales, four of depths, four of both: the last four lend the first eight two bits each."""
    packed = np.empty((scales.shape[0], 12), np.uint8)
    for block in range(scales.shape[0]):
        for j in range(4):
            later_scale, later_depth = scales[block, j + 4], depths[block, j + 4]
            packed[block, j] = scales[block, j] | np.uint8(np.uint8(later_scale >> 4) << 6)
            packed[block, j + 4] = depths[block, j] | np.uint8(np.uint8(later_depth >> 4) << 6)
            packed[block, j + 8] = np.uint8(later_scale & 15) | np.uint8(later_depth << 4)
    return packed


@compiled
def _unpack_six_bits(packed: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    scales, depths = np.empty((packed.shape[0], 8), np.uint8), np.empty((packed.shape[0], 8), np.uint8)
    for block in range(packed.shape[0]):
        for j in range(4):
            scale, depth, later = packed[block, j], packed[block, j + 4], packed[block, j + 8]
            scales[block, j], depths[block, j] = np.uint8(scale & 63), np.uint8(depth & 63)
            scales[block, j + 4] = np.uint8(later & 15) | np.uint8(np.uint8(scale >> 6) << 4)
            depths[block, j + 4] = np.uint8(later >> 4) | np.uint8(np.uint8(depth >> 6) << 4)
    return scales, depths


@compiled
def _pack_q3_scales(scales: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Eight bytes of the lower four bits, j beside j + 8; four bytes of the upper two, four apart."""
    packed = np.zeros((scales.shape[0], 12), np.uint8)
    for block in range(scales.shape[0]):
        for j in range(8):
            packed[block, j] = np.uint8(scales[block, j] & 15) | np.uint8(scales[block, j + 8] << 4)
        for j in range(16):
            packed[block, 8 + j % 4] |= np.uint8(np.uint8(scales[block, j] >> 4) << (2 * (j // 4)))
    return packed


def _unpack_q3_scales(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    upper = ((packed[:, None, 8:] >> shifts) & np.uint8(3)).reshape(-1, 16)
    return unpack_nibbles(packed[:, :8]) | (upper << np.uint8(4))


def _in_units_of_largest(values: NDArray[np.float32], last: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    unit, codes = np.empty(len(values), np.float32), np.empty(values.shape, np.uint8)
    _divide_by_largest(values, np.int32(last), unit, codes)
    return unit, codes


def _in_units_of_extreme(values: NDArray[np.float32], zero: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    unit, codes = np.empty(len(values), np.float32), np.empty(values.shape, np.uint8)
    _divide_by_extreme(values, np.int32(zero), unit, codes)
    return unit, codes


@compiled
def _divide_by_largest(
    values: NDArray[np.float32], last: np.int32, unit: NDArray[np.float32], codes: NDArray[np.uint8]
) -> None:
    """Unit = largest over ``last``; code = value / unit. Without anything above 0, all are 0."""
    for block in range(values.shape[0]):
        largest = ZERO
        for i in range(values.shape[1]):
            largest = max(largest, values[block, i])
        unit[block] = largest / np.float32(last)
        inverse = np.float32(last) / largest if largest > ZERO else ZERO
        for i in range(values.shape[1]):
            codes[block, i] = min(np.uint8(nearest(inverse * values[block, i])), np.uint8(last))


@compiled
def _divide_by_extreme(
    values: NDArray[np.float32], zero: np.int32, unit: NDArray[np.float32], codes: NDArray[np.uint8]
) -> None:
    """Unit = first value of the largest magnitude over -zero; code = value / unit + zero.

    Where all values are 0, so are unit and codes.
    """
    for block in range(values.shape[0]):
        extreme = ZERO
        for i in range(values.shape[1]):
            extreme = values[block, i] if abs(values[block, i]) > abs(extreme) else extreme
        inverse = np.float32(-zero) / extreme
        unit[block] = ONE / inverse if extreme != ZERO else ZERO
        for i in range(values.shape[1]):
            code = clamped(nearest(inverse * values[block, i]), -zero, zero - 1) + zero
            codes[block, i] = np.uint8(code if extreme != ZERO else 0)


@compiled
def _round_anew(
    x: NDArray[np.float32],
    step: NDArray[np.float32],
    offset: NDArray[np.float32],
    zero: np.int32,
    last: np.int32,
    codes: NDArray[np.uint8],
) -> None:
    """code = (x + offset) / step + zero for each block whose step is not 0; the others keep their codes."""
    for block in range(x.shape[0]):
        width, shift, values, rounded = step[block], offset[block], x[block], codes[block]
        if width != ZERO:
            for i in range(values.size):
                level = nearest((values[i] + shift) / width)
                rounded[i] = np.uint8(clamped(level, -zero, last - zero) + zero)


@compiled
def _extreme_to_minus_127(x: NDArray[np.float32], scale: NDArray[np.float32], codes: NDArray[np.int8]) -> None:
    extremes = extremes_of_blocks(x)
    for block in range(x.shape[0]):
        extreme = extremes[block]
        inverse = np.float32(-127) / extreme if extreme != ZERO else ZERO
        scale[block] = ONE / inverse if extreme != ZERO else ZERO
        for i in range(x.shape[1]):
            codes[block, i] = np.int8(min(nearest(inverse * x[block, i]), np.int32(127)))


@compiled
def _sums_of_16(codes: NDArray[np.int8]) -> NDArray[np.int16]:
    sums = np.empty(codes.shape[0], np.int16)
    for run in range(codes.shape[0]):
        total, values = np.int32(0), codes[run]
        for i in range(values.size):
            total += np.int32(values[i])
        sums[run] = np.int16(total)
    return sums
