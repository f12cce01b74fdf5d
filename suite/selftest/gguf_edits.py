"""One-thing edits of a whole GGUF file's bytes, for faults that no writer makes: header fields and raw data."""

import struct
from collections.abc import Callable
from pathlib import Path

from suite.audit.container import Tensor
from suite.audit.scan import scan

Edit = Callable[[bytearray, dict[str, Tensor]], None]
"""Changes a file's bytes; the second argument is where its tensors lie."""

VERSION, TENSOR_COUNT, KEY_COUNT = 4, 8, 16
"""Where a file's header has them."""


def edited(source: Path, output: Path, edit: Edit) -> Path:
    """``output``, which is ``source`` after ``edit``."""
    data = bytearray(source.read_bytes())
    edit(data, scan(source).tensors)
    output.write_bytes(data)
    return output


def set_number(position: int, format: str, value: int) -> Edit:
    """Overwrite a number of the header."""

    def edit(data: bytearray, tensors: dict[str, Tensor]) -> None:
        struct.pack_into(f"<{format}", data, position, value)

    return edit


def replaced(old: bytes, new: bytes) -> Edit:
    """Overwrite the first ``old`` by as many bytes."""
    assert len(old) == len(new)

    def edit(data: bytearray, tensors: dict[str, Tensor]) -> None:
        place = data.index(old)
        data[place : place + len(old)] = new

    return edit


def in_key(name: str, skip: int, format: str, *values: int) -> Edit:
    """Overwrite numbers ``skip`` bytes behind a key's name: at 0 its value type, at 4 its value."""

    def edit(data: bytearray, tensors: dict[str, Tensor]) -> None:
        place = data.index(_text(name)) + len(_text(name))
        struct.pack_into(f"<{format}", data, place + skip, *values)

    return edit


def in_info(name: str, skip: int, format: str, *values: int) -> Edit:
    """Overwrite numbers behind the name of a matrix's info: at 0 the count of dimensions, at 4 and 12 the dimensions
    (columns first), at 20 the type, at 24 the offset."""
    return in_key(name, skip, format, *values)


def flipped(name: str, offset: int, bits: int) -> Edit:
    """Flip bits of one byte of a tensor's data."""

    def edit(data: bytearray, tensors: dict[str, Tensor]) -> None:
        data[tensors[name].offset + offset] ^= bits

    return edit


def overwritten(name: str, offset: int, new: bytes) -> Edit:
    """Overwrite bytes of a tensor's data."""

    def edit(data: bytearray, tensors: dict[str, Tensor]) -> None:
        place = tensors[name].offset + offset
        data[place : place + len(new)] = new

    return edit


def holding(name: str, other: str, *, swap: bool = False) -> Edit:
    """Give a tensor the data of another of its size; where ``swap``, that one its data in turn."""

    def edit(data: bytearray, tensors: dict[str, Tensor]) -> None:
        a, b = tensors[name], tensors[other]
        place_a, place_b = slice(a.offset, a.offset + a.size), slice(b.offset, b.offset + b.size)
        old = data[place_a]
        data[place_a] = data[place_b]
        if swap:
            data[place_b] = old

    return edit


def cut(keep: Callable[[int], int]) -> Edit:
    """Keep the first ``keep(size)`` bytes."""

    def edit(data: bytearray, tensors: dict[str, Tensor]) -> None:
        del data[keep(len(data)) :]

    return edit


def _text(content: str) -> bytes:
    return struct.pack("<Q", len(content)) + content.encode()
