"""libgguf's three quantizers and dequantizers: native, in NumPy and in torch."""

from collections.abc import Mapping, Sequence
from importlib.metadata import version

import libgguf
import numpy as np
from libgguf import GGMLQuantizationType, libgguf_numpy
from numpy.typing import NDArray

from impl.adapters.unchecked import unchecked
from impl.errors import InputError

# fmt: off
TYPES = (
    "f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k",
    "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_nl", "iq4_xs",
    "tq1_0", "tq2_0", "mxfp4", "nvfp4", "q1_0",
)
# fmt: on
"""What all three quantize to (0.2)."""

STORED = ("f32", "f16", "bf16")
LEGACY = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0")
TERNARY = ("tq1_0", "tq2_0")
QUICK = (*STORED, *LEGACY, *TERNARY, "mxfp4")
"""What both ports quantize 4,096 weights to in less than 1 s; Q4_K takes torch 15 s, NumPy 1.4 s, the IQ types more."""
SEARCHED = ("q3_k", "q6_k", "iq4_nl", "iq4_xs")
"""What NumPy quantizes in less than 1 s besides."""
NOT_REFUSED = tuple(type for type in TYPES if type not in (*STORED, "q1_0"))
OVERFLOWING: Mapping[str, Sequence[str]] = {
    "8.4e6": ("f16", *LEGACY, *TERNARY, "q2_k", "q3_k", "iq1_s", "iq1_m", "iq4_nl", "q1_0"),
    "1e30": (
        *("f16", *LEGACY, *TERNARY, "q2_k", "q4_k", "q5_k", "q6_k", "q1_0"),
        *("iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_nl"),
    ),
}


class Libgguf:
    """The native library, a build of ggml's reference functions, which takes an importance."""

    name = "libgguf"
    version = version("libgguf")
    deviations: Mapping[str, str] = unchecked(
        name, NOT_REFUSED, {**OVERFLOWING, "1e30": (*OVERFLOWING["1e30"], "iq1_m")}
    )
    types: Sequence[str] = TYPES
    readable_types: Sequence[str] = tuple(type for type in TYPES if type not in STORED)

    def quantize(
        self, weight: NDArray[np.float32], type: str, importance: NDArray[np.float32] | None = None
    ) -> NDArray[np.uint8]:
        """Float32[rows, cols] to uint8[rows, bytes per row] with ``libgguf.quantize_rows``.

        Raises libgguf's ``ValueError`` for a row that is not a multiple of the block, ``InputError`` for an
        unknown type.
        """
        return libgguf.quantize_rows(weight, _number(type), importance).view(np.uint8)

    def dequantize(self, blocks: NDArray[np.uint8], type: str) -> NDArray[np.float32]:
        """uint8[rows, bytes per row] to float32[rows, cols] with ``libgguf.dequantize_rows``."""
        return libgguf.dequantize_rows(blocks, _number(type))


class LibggufNumpy:
    """The port to NumPy, ``libgguf.libgguf_numpy``; it knows no importance."""

    name = "libgguf-numpy"
    version = version("libgguf")
    deviations: Mapping[str, str] = unchecked(
        name, (*SEARCHED, "mxfp4"), {**OVERFLOWING, "1e30": set(OVERFLOWING["1e30"]) - {"q6_k"}}
    )
    types: Sequence[str] = (*QUICK, *SEARCHED)
    readable_types: Sequence[str] = TYPES

    def quantize(self, weight: NDArray[np.float32], type: str) -> NDArray[np.uint8]:
        """Float32[rows, cols] to uint8[rows, bytes per row]; libgguf's ``QuantError`` for an indivisible row."""
        weight = np.ascontiguousarray(weight, dtype=np.float32)
        return libgguf_numpy.quantize(weight, _number(type)).view(np.uint8)

    def dequantize(self, blocks: NDArray[np.uint8], type: str) -> NDArray[np.float32]:
        """uint8[rows, bytes per row] to float32[rows, cols]."""
        return libgguf_numpy.dequantize(np.ascontiguousarray(blocks, dtype=np.uint8), _number(type))


class LibggufTorch:
    """The port to torch, ``libgguf.libgguf_torch``, on the CPU; it knows no importance."""

    name = "libgguf-torch"
    version = version("libgguf")
    deviations: Mapping[str, str] = unchecked(name, ("mxfp4",), OVERFLOWING)
    types: Sequence[str] = QUICK
    readable_types: Sequence[str] = tuple(type for type in TYPES if type not in ("f32", "f16"))

    def quantize(self, weight: NDArray[np.float32], type: str) -> NDArray[np.uint8]:
        """Float32[rows, cols] to uint8[rows, bytes per row]; libgguf's ``ValueError`` for an indivisible row."""
        # Imported here, as the other two need no torch.
        import torch
        from libgguf import libgguf_torch

        weight = np.array(weight, dtype=np.float32, order="C")
        return libgguf_torch.quantize(torch.from_numpy(weight), _number(type)).numpy().view(np.uint8)

    def dequantize(self, blocks: NDArray[np.uint8], type: str) -> NDArray[np.float32]:
        """uint8[rows, bytes per row] to float32[rows, cols]."""
        import torch
        from libgguf import libgguf_torch

        number, rows = _number(type), np.array(blocks, dtype=np.uint8, order="C")
        shape = libgguf.quant_shape_from_byte_shape(rows.shape, number)
        return libgguf_torch.dequantize(torch.from_numpy(rows), number, shape).float().numpy()


def _number(type: str) -> GGMLQuantizationType:
    if type not in TYPES:
        raise InputError(f"type {type!r}: libgguf knows {', '.join(TYPES)}")
    return GGMLQuantizationType[type.upper()]
