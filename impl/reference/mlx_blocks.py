"""Blocks of Q4_0, Q4_1 and Q8_0 as the arrays that MLX multiplies by, number for number.

MLX's affine quantization (``mlx.core.quantize``, 0.32) is weight = scale × code + bias over groups of
consecutive weights, codes packed into uint32 from the lowest bits up. A group of 32 with a bias of its own
says exactly what these three types say. No other type does: their blocks have codes of another width, scales
of scales, or values that are not evenly spaced.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from impl.reference.blocks import FORMATS
from impl.reference.blocks.packing import unpack_nibbles

GROUP_SIZE = 32


@dataclass(frozen=True, eq=False)
class AffineGroups:
    """A matrix [rows, columns] in groups of 32 columns."""

    codes: NDArray[np.uint32]
    """uint32[rows, columns × bits / 32]"""
    scales: NDArray[np.float32]
    """float32[rows, columns / 32]; in float32 no bias is rounded."""
    biases: NDArray[np.float32]
    """float32[rows, columns / 32]"""
    bits: int


def _from_q4_0(blocks: NDArray[np.void]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    return _pack_pairs(unpack_nibbles(blocks["codes"])), _float32(blocks["scale"]) * np.float32(-8)


def _from_q4_1(blocks: NDArray[np.void]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    return _pack_pairs(unpack_nibbles(blocks["codes"])), _float32(blocks["minimum"])


def _from_q8_0(blocks: NDArray[np.void]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    # A signed code plus 128 is its byte with the sign bit turned over.
    return blocks["codes"].view(np.uint8) ^ np.uint8(0x80), _float32(blocks["scale"]) * np.float32(-128)


@dataclass(frozen=True)
class Repacking:
    """How blocks of one type become affine groups."""

    bits: int
    repack: Callable[[NDArray[np.void]], tuple[NDArray[np.uint8], NDArray[np.float32]]]
    """Blocks to the bytes of their codes, uint8[blocks, 4 × bits], and their biases, float32[blocks]."""


REPACKINGS: Mapping[str, Repacking] = {
    "q4_0": Repacking(4, _from_q4_0),
    "q4_1": Repacking(4, _from_q4_1),
    "q8_0": Repacking(8, _from_q8_0),
}
"""By type: what MLX keeps quantized."""


def affine_groups(blocks: NDArray[np.uint8], type: str) -> AffineGroups:
    """A matrix from its rows of blocks, uint8[rows, bytes per row], of a type in ``REPACKINGS``."""
    records = np.ascontiguousarray(blocks).view(FORMATS[type].layout)
    rows, repacking = len(blocks), REPACKINGS[type]
    codes, biases = repacking.repack(records.reshape(-1))
    return AffineGroups(
        codes=codes.reshape(rows, -1).view("<u4"),
        scales=_float32(records["scale"]).reshape(rows, -1),
        biases=biases.reshape(rows, -1),
        bits=repacking.bits,
    )


def _pack_pairs(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return codes[:, 0::2] | codes[:, 1::2] << np.uint8(4)


def _float32(field: NDArray[np.float16]) -> NDArray[np.float32]:
    return field.astype(np.float32)
