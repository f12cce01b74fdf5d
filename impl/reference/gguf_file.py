"""A GGUF file opened for reading: its keys, and its tensors as rows of blocks."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFValueType, ReaderField, ReaderTensor
from numpy.typing import NDArray

from impl.errors import InputError

Scalar = str | int | float | bool
"""A key's value; no key that is read here holds an array."""


@dataclass(frozen=True)
class GgufFile:
    """Keys and tensors of a file whose data stays in a memory map."""

    path: Path
    keys: Mapping[str, ReaderField]
    tensors: Mapping[str, ReaderTensor]

    def value(self, key: str, type: GGUFValueType) -> Scalar | None:
        """The key's value; None where it is absent or of another type than ``type``."""
        stated = key in self.keys and self.keys[key].types[0] == type
        return self.require(key, type) if stated else None

    def require(self, key: str, type: GGUFValueType) -> Scalar:
        """The key's value; ``InputError`` naming the key where it is absent, of another type, or no text."""
        if key not in self.keys:
            raise InputError(f"{self.path}: cannot find {key} in metadata, expected a {type.name}")
        if self.keys[key].types[0] != type:
            raise InputError(f"{self.path}: {key} is of type {self.keys[key].types[0].name}, expected {type.name}")
        try:
            return self.keys[key].contents()
        except UnicodeDecodeError as error:
            raise InputError(f"{self.path}: {key} is not UTF-8 text: {error.reason}") from error

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape, rows first; ``InputError`` where it is absent."""
        if name not in self.tensors:
            raise InputError(f"{self.path}: cannot find tensor {name}")
        # GGUF states the dimension with the shortest stride first.
        return tuple(int(size) for size in reversed(self.tensors[name].shape))

    def blocks(self, name: str, shape: tuple[int, ...]) -> tuple[NDArray[np.uint8], str]:
        """A tensor's data, uint8[rows, bytes per row], and its type by GGML's name in lower case.

        A 1-D tensor is one row. ``InputError`` where the tensor is absent, empty or not of this shape.
        """
        found = self.shape(name)
        if found != shape or 0 in shape:
            raise InputError(f"{self.path}: tensor {name} has shape {list(found)}, expected {list(shape)}")
        tensor = self.tensors[name]
        rows = shape[0] if len(shape) > 1 else 1
        return tensor.data.reshape(rows, -1).view(np.uint8), tensor.tensor_type.name.lower()


def open_gguf(path: Path) -> GgufFile:
    """Map a GGUF file into memory; ``InputError`` for one that is absent, damaged, cut short or big-endian."""
    try:
        # Copy-on-write, so that torch takes the arrays without a warning; nothing ever writes to them.
        with np.errstate(over="raise"):
            reader = _StrictReader(path, "c")
    except (OSError, ValueError, KeyError, IndexError, ArithmeticError, RecursionError) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise InputError(f"{path}: not a readable GGUF file: {reason}") from error
    if reader.byte_order != "I":
        raise InputError(f"{path}: byte order is not this machine's, expected a little-endian file")
    return GgufFile(path, reader.fields, {tensor.name: tensor for tensor in reader.tensors})


class _StrictReader(GGUFReader):
    """gguf's reader, which everywhere takes what is left where a file ends early, made to refuse instead."""

    def _get(self, offset: int, dtype: np.dtype, count: int = 1, override_order: str | None = None) -> NDArray:
        end = int(offset) + int(count) * np.dtype(dtype).itemsize
        if end > len(self.data):
            raise ValueError(f"it has {len(self.data)} bytes, expected at least {end}")
        return super()._get(offset, dtype, count, override_order)
