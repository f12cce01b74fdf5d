"""gguf-py's quantizers and dequantizers, in numpy: the package ``gguf`` of the llama.cpp project."""

from collections.abc import Mapping, Sequence
from importlib.metadata import version

import numpy as np
from gguf import GGMLQuantizationType, quants
from numpy.typing import NDArray

from impl.adapters.unchecked import unchecked
from impl.errors import InputError

TYPES = ("f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "tq1_0", "tq2_0", "mxfp4")
"""What ``gguf.quants.quantize`` takes (0.19); of the other types it only reads."""

READ_ONLY = (
    *("q2_k", "q3_k", "q4_k", "q5_k", "q6_k"),
    *("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_nl", "iq4_xs"),
)

SIGN_OF_ZERO = "a block of zeros keeps the sign of its first or least zero in the scale or the minimum"
OVERFLOWING = ("f16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "tq1_0", "tq2_0")
DEVIATIONS: Mapping[str, str] = {
    **{
        f"bytes.quantize[{type}]": f"{SIGN_OF_ZERO}: {share} of the bytes of blocks of signed zeros"
        for type, share in {"q4_0": "2.7 %", "q4_1": "2.6 %", "q5_0": "2.2 %", "q5_1": "2.2 %"}.items()
    },
    **{f"bytes.fuzz[{type}-plain]": SIGN_OF_ZERO for type in ("q4_1", "q5_1")},
    **unchecked("gguf-py", ("mxfp4",), {"8.4e6": OVERFLOWING, "1e30": OVERFLOWING}),
}


class GgufPy:
    """What ``gguf.quants`` quantizes and dequantizes; it knows no importance."""

    name = "gguf-py"
    version = version("gguf")
    deviations: Mapping[str, str] = DEVIATIONS
    types: Sequence[str] = TYPES
    readable_types: Sequence[str] = (*TYPES, *READ_ONLY)

    def quantize(self, weight: NDArray[np.float32], type: str) -> NDArray[np.uint8]:
        """Float32[rows, cols] to uint8[rows, bytes per row] with ``gguf.quants.quantize``.

        Raises gguf-py's ``QuantError`` for a row that is not a multiple of the block, ``InputError`` for a type
        that it does not quantize to.
        """
        return quants.quantize(np.ascontiguousarray(weight, dtype=np.float32), _number(type)).view(np.uint8)

    def dequantize(self, blocks: NDArray[np.uint8], type: str) -> NDArray[np.float32]:
        """uint8[rows, bytes per row] to float32[rows, cols] with ``gguf.quants.dequantize``."""
        blocks = np.ascontiguousarray(blocks, dtype=np.uint8)
        stored = {"f32": np.float32, "f16": np.float16}.get(type, np.uint8)
        return quants.dequantize(blocks.view(stored), _number(type))


def _number(type: str) -> GGMLQuantizationType:
    if type not in GgufPy.readable_types:
        raise InputError(f"type {type!r}: gguf-py knows {', '.join(GgufPy.readable_types)}")
    return GGMLQuantizationType[type.upper()]
