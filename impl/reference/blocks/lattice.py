"""The formats whose codes are points of a lattice, IQ1, IQ2 and IQ3: read here, not written.

A code picks eight (IQ3: four) values at a time from a table that its maker searched for; the tables come
with the gguf package. Signs are kept apart from the points, except in IQ1, which shifts its points instead.
"""

import gguf
import numpy as np
from numpy.typing import NDArray

from impl.errors import InputError
from impl.reference.blocks.block_format import BlockFormat
from impl.reference.blocks.packing import unpack_nibbles

SIZE = 256
SHIFT = np.float32(0.125)
SEVEN_BITS = np.arange(128, dtype=np.uint8)
EVEN_SIGNS = SEVEN_BITS | (np.bitwise_count(SEVEN_BITS) & np.uint8(1)) << np.uint8(7)
"""Eight signs for each seven that are written: the number of minus signs is even."""


class LatticeFormat(BlockFormat):
    """A format that is only dequantized."""

    values = SIZE
    activation = "q8_k"

    def quantize(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None, blocks: NDArray[np.void]
    ) -> None:
        """Refuse."""
        raise InputError(f"type {self.name!r}: read, but not written, by this implementation")

    def points(self, codes: NDArray[np.integer]) -> NDArray[np.float32]:
        """The values float32[..., 8 or 4] that codes [...] stand for."""
        table = getattr(gguf.quants, self.name.upper())
        table.init_grid()
        return table.grid[0, 0][codes]


class IQ2_XXS(LatticeFormat):
    """For each 32: four codes of 8 bits, four times seven signs, and a scale of 4 bits."""

    name = "iq2_xxs"
    layout = np.dtype([("unit", "<f2"), ("codes_and_signs_scale", "<u4", (8, 2))])

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """Unit / 4 * (scale + 1/2) * point * sign."""
        codes, signs_scale = np.moveaxis(blocks["codes_and_signs_scale"], 2, 0)
        signs, scale = _seven_signs_and_scale(signs_scale)
        step = _unit(blocks) * (np.float32(0.5) + scale) * np.float32(0.25)
        points = self.points(codes[:, :, None] >> np.arange(0, 32, 8, np.uint32) & np.uint32(255))
        return (step[:, :, None, None] * points * signs).reshape(-1, SIZE)


class IQ2_XS(LatticeFormat):
    """Codes of 9 bits below seven signs; a scale of 4 bits for each 16."""

    name = "iq2_xs"
    layout = np.dtype([("unit", "<f2"), ("codes_signs", "<u2", 32), ("scales", "u1", 8)])

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """Unit / 4 * (scale + 1/2) * point * sign."""
        both = blocks["codes_signs"]
        points = self.points(both & np.uint16(511))
        signs = _signs(EVEN_SIGNS[both >> np.uint16(9)])
        return (_step_of_16(blocks) * (points * signs).reshape(-1, 16, 16)).reshape(-1, SIZE)


class IQ2_S(LatticeFormat):
    """Codes of 10 bits, eight signs each; a scale of 4 bits for each 16."""

    name = "iq2_s"
    layout = np.dtype(
        [("unit", "<f2"), ("codes", "u1", 32), ("signs", "u1", 32), ("upper_bits", "u1", 8), ("scales", "u1", 8)]
    )

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """Unit / 4 * (scale + 1/2) * point * sign."""
        upper = blocks["upper_bits"][:, :, None] >> np.arange(0, 8, 2, np.uint8) & np.uint8(3)
        points = self.points(blocks["codes"] | upper.reshape(-1, 32).astype(np.uint16) << np.uint16(8))
        return (_step_of_16(blocks) * (points * _signs(blocks["signs"])).reshape(-1, 16, 16)).reshape(-1, SIZE)


class IQ3_XXS(LatticeFormat):
    """Codes of 8 bits; for each 32, four times seven signs and a scale of 4 bits."""

    name = "iq3_xxs"
    layout = np.dtype([("unit", "<f2"), ("codes", "u1", (8, 8)), ("signs_scale", "<u4", 8)])

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """Unit / 2 * (scale + 1/2) * point * sign."""
        signs, scale = _seven_signs_and_scale(blocks["signs_scale"])
        step = _unit(blocks) * (np.float32(0.5) + scale) * np.float32(0.5)
        points = self.points(blocks["codes"]).reshape(-1, 8, 4, 8)
        return (step[:, :, None, None] * points * signs).reshape(-1, SIZE)


class IQ3_S(LatticeFormat):
    """Codes of 9 bits, four signs each; a scale of 4 bits for each 32."""

    name = "iq3_s"
    layout = np.dtype(
        [("unit", "<f2"), ("codes", "u1", 64), ("ninth_bits", "u1", 8), ("signs", "u1", 32), ("scales", "u1", 4)]
    )

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """Unit * (2 scale + 1) * point * sign."""
        ninth = np.unpackbits(blocks["ninth_bits"], axis=1, bitorder="little")
        points = self.points(blocks["codes"] | ninth.astype(np.uint16) << np.uint16(8)).reshape(-1, 8, 32)
        scale = unpack_nibbles(blocks["scales"][:, :, None]).reshape(-1, 8)
        step = _unit(blocks) * (np.uint8(2) * scale + np.uint8(1))
        return (step[:, :, None] * points * _signs(blocks["signs"]).reshape(-1, 8, 32)).reshape(-1, SIZE)


class IQ1_S(LatticeFormat):
    """Codes of 11 bits; for each 32, a scale of 3 bits and the direction its points are shifted in."""

    name = "iq1_s"
    layout = np.dtype([("unit", "<f2"), ("codes", "u1", (8, 4)), ("upper_bits_scale_shift", "<u2", 8)])

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """Unit * (2 scale + 1) * (point ± 1/8)."""
        rest = blocks["upper_bits_scale_shift"]
        upper = rest[:, :, None] >> np.arange(0, 12, 3, np.uint16) & np.uint16(7)
        points = self.points(blocks["codes"] | upper << np.uint16(8))
        step = _unit(blocks) * (np.uint16(2) * (rest >> np.uint16(12) & np.uint16(7)) + np.uint16(1))
        shift = np.where(rest & np.uint16(0x8000), -SHIFT, SHIFT)
        return (step[:, :, None, None] * (points + shift[:, :, None, None])).reshape(-1, SIZE)


class IQ1_M(LatticeFormat):
    """Codes of 11 bits, each with its own shift; a scale of 3 bits for each 16, and the unit between them."""

    name = "iq1_m"
    layout = np.dtype([("codes", "u1", 32), ("upper_bits_shift", "u1", (16, 1)), ("scales_unit", "<u2", 4)])

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """Unit * (2 scale + 1) * (point ± 1/8)."""
        rest = unpack_nibbles(blocks["upper_bits_shift"]).reshape(-1, 32)
        points = self.points(blocks["codes"] | (rest & np.uint8(7)).astype(np.uint16) << np.uint16(8))
        shift = np.where(rest & np.uint8(8), -SHIFT, SHIFT)
        scales = blocks["scales_unit"][:, :, None] >> np.arange(0, 12, 3, np.uint16) & np.uint16(7)
        step = self.unit(blocks)[:, None] * (np.uint16(2) * scales.reshape(-1, 16) + np.uint16(1))
        return (step[:, :, None] * (points + shift[:, :, None]).reshape(-1, 16, 16)).reshape(-1, SIZE)

    def unit(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """The float16 whose four nibbles are the highest of the four scale words."""
        nibbles = blocks["scales_unit"] >> np.uint16(12) << np.arange(0, 16, 4, np.uint16)
        return np.bitwise_or.reduce(nibbles, axis=1).view(np.float16).astype(np.float32)

    def finite(self, blocks: NDArray[np.void]) -> NDArray[np.bool_]:
        """Whether the unit is finite."""
        return np.isfinite(self.unit(blocks))


def _unit(blocks: NDArray[np.void]) -> NDArray[np.float32]:
    return blocks["unit"].astype(np.float32)[:, None]


def _signs(bits: NDArray[np.uint8]) -> NDArray[np.float32]:
    """uint8[...] to float32[..., 8]: -1 for each bit that is set, the lowest first."""
    return np.where(np.unpackbits(bits[..., None], axis=-1, bitorder="little"), np.float32(-1), np.float32(1))


def _seven_signs_and_scale(words: NDArray[np.uint32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """uint32[n, 8] to signs float32[n, 8, 4, 8] and the scale above them, float32[n, 8]."""
    sevens = words[:, :, None] >> np.arange(0, 28, 7, np.uint32) & np.uint32(127)
    return _signs(EVEN_SIGNS[sevens]), (words >> np.uint32(28)).astype(np.float32)


def _step_of_16(blocks: NDArray[np.void]) -> NDArray[np.float32]:
    """Unit / 4 * (scale + 1/2), float32[n, 16, 1]."""
    scales = unpack_nibbles(blocks["scales"][:, :, None]).reshape(-1, 16)
    return (_unit(blocks) * (np.float32(0.5) + scales.astype(np.float32)) * np.float32(0.25))[:, :, None]
