"""ggml's C library, wherever a wheel keeps it: its quantizers and dequantizers, one thread, through ctypes."""

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from impl.errors import InputError

LIBRARY_NAMES = ("libggml-base.so", "libggml-base.dylib", "ggml-base.dll")

TYPE_NUMBERS: Mapping[str, int] = {
    "f32": 0,
    "f16": 1,
    "bf16": 30,
    "q4_0": 2,
    "q4_1": 3,
    "q5_0": 6,
    "q5_1": 7,
    "q8_0": 8,
    "q2_k": 10,
    "q3_k": 11,
    "q4_k": 12,
    "q5_k": 13,
    "q6_k": 14,
    "iq1_s": 19,
    "iq1_m": 29,
    "iq2_xxs": 16,
    "iq2_xs": 17,
    "iq2_s": 22,
    "iq3_xxs": 18,
    "iq3_s": 21,
    "iq4_nl": 20,
    "iq4_xs": 23,
    "tq1_0": 34,
    "tq2_0": 35,
    "mxfp4": 39,
    "nvfp4": 40,
    "q1_0": 41,
    "q2_0": 42,
}
"""Every type ``ggml_quantize_chunk`` takes, with its number in ``enum ggml_type`` (ggml.h)."""

ACTIVATION_TYPES: Mapping[str, tuple[int, str]] = {
    "q8_1": (9, "quantize_row_q8_1_ref"),
    "q8_k": (15, "quantize_row_q8_K_ref"),
}
"""The types ggml quantizes only activations to: the number, and the exported function that does it."""

ABORTS_ON_NON_FINITE = ("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s")
"""Their searches end the whole process on a NaN; the other types carry it into the block."""

LARGEST_SQUARED = float(np.sqrt(np.finfo(np.float32).max))


class TypeTraits(ctypes.Structure):
    """``struct ggml_type_traits`` of ggml.h, as of libggml-python 0.20."""

    _fields_ = (
        ("type_name", ctypes.c_char_p),
        ("block_size", ctypes.c_int64),
        ("block_size_interleave", ctypes.c_int64),
        ("type_size", ctypes.c_size_t),
        ("is_quantized", ctypes.c_bool),
        ("to_float", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)),
        ("from_float_ref", ctypes.c_void_p),
    )


@cache
def open_library(package: str) -> ctypes.CDLL:
    """The ``ggml-base`` in an installed package, which need not import.

    Raises ``InputError`` where it has none, ``OSError`` where it does not load.
    """
    spec = find_spec(package)
    folders = [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]
    paths = [path for folder in folders for path in sorted(folder.rglob("*ggml-base*")) if path.name in LIBRARY_NAMES]
    if not paths:
        raise InputError(f"package {package}: no ggml-base in it, expected one of {', '.join(LIBRARY_NAMES)}")
    library = ctypes.CDLL(str(paths[0]))
    library.ggml_get_type_traits.argtypes = [ctypes.c_int]
    library.ggml_get_type_traits.restype = ctypes.POINTER(TypeTraits)
    library.ggml_quantize_requires_imatrix.argtypes = [ctypes.c_int]
    library.ggml_quantize_requires_imatrix.restype = ctypes.c_bool
    library.ggml_quantize_chunk.argtypes = [
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.c_int64,
        ctypes.c_int64,
        ctypes.c_void_p,
    ]
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    return library


class GgmlBlocks:
    """The quantizers and dequantizers of one library."""

    types: Sequence[str] = tuple(TYPE_NUMBERS)

    def __init__(self, package: str) -> None:
        self._library = open_library(package)

    def quantize(
        self, weight: NDArray[np.float32], type: str, importance: NDArray[np.float32] | None = None
    ) -> NDArray[np.uint8]:
        """Float32[rows, cols] to uint8[rows, bytes per row] with ``ggml_quantize_chunk``.

        The activation types ``q8_1`` and ``q8_k`` are taken too, with ggml's reference functions. Raises
        ``InputError`` where ggml would end the process: a row that is not a multiple of the block, an
        importance of another length or none where the type needs one, NaN or Inf in an IQ1, IQ2 or IQ3 type.
        """
        traits = self._traits(type)
        weight = np.ascontiguousarray(weight, dtype=np.float32)
        rows, columns = weight.shape
        if columns % traits.block_size:
            raise InputError(f"{type} of shape {list(weight.shape)}: a row must be a multiple of {traits.block_size}")
        self._refuse_what_aborts(weight, type, importance)
        blocks = np.zeros((rows, columns // traits.block_size * traits.type_size), dtype=np.uint8)
        if not blocks.size:
            return blocks
        if type in ACTIVATION_TYPES:
            function = getattr(self._library, ACTIVATION_TYPES[type][1])
            function(_pointer(weight), _pointer(blocks), ctypes.c_int64(weight.size))
            return blocks
        if importance is not None:
            importance = np.ascontiguousarray(importance, dtype=np.float32)
        self._library.ggml_quantize_chunk(
            TYPE_NUMBERS[type], _pointer(weight), _pointer(blocks), 0, rows, columns, _pointer(importance)
        )
        return blocks

    def dequantize(self, blocks: NDArray[np.uint8], type: str) -> NDArray[np.float32]:
        """uint8[rows, bytes per row] to float32[rows, cols] with the type's ``to_float``."""
        traits = self._traits(type)
        blocks = np.ascontiguousarray(blocks, dtype=np.uint8)
        rows, row_bytes = blocks.shape
        if row_bytes % traits.type_size:
            raise InputError(f"{type} of {row_bytes} bytes per row: a block has {traits.type_size} bytes")
        if type == "f32":
            return blocks.view(np.float32)
        if not traits.to_float:
            raise InputError(f"type {type}: ggml has no dequantizer for it")
        values = np.zeros((rows, row_bytes // traits.type_size * traits.block_size), dtype=np.float32)
        if values.size:
            traits.to_float(_pointer(blocks), _pointer(values), values.size)
        return values

    def _traits(self, type: str) -> TypeTraits:
        number = TYPE_NUMBERS.get(type, ACTIVATION_TYPES.get(type, (None,))[0])
        if number is None:
            raise InputError(f"type {type!r}: ggml quantizes {', '.join(TYPE_NUMBERS)}")
        return self._library.ggml_get_type_traits(number).contents

    def _refuse_what_aborts(
        self, weight: NDArray[np.float32], type: str, importance: NDArray[np.float32] | None
    ) -> None:
        if importance is None:
            if type in TYPE_NUMBERS and self._library.ggml_quantize_requires_imatrix(TYPE_NUMBERS[type]):
                raise InputError(f"type {type}: ggml needs an importance of {weight.shape[1]} columns for it")
        elif importance.shape != weight.shape[1:]:
            raise InputError(f"importance of shape {list(importance.shape)}: expected {list(weight.shape[1:])}")
        # Their searches weigh by squares.
        if type in ABORTS_ON_NON_FINITE and not (np.abs(weight) < LARGEST_SQUARED).all():
            raise InputError(
                f"type {type}: the weight holds NaN, Inf or a square beyond float32, on which ggml ends the process"
            )


def _pointer(array: NDArray | None) -> ctypes.c_void_p | None:
    return None if array is None else array.ctypes.data_as(ctypes.c_void_p)
