"""Reads the header of a GGUF file, strictly and without trusting a single count in it.

Source: the GGUF specification, versions 2 and 3, and what llama.cpp's gguf.cpp (mid-2026) refuses. No count is
believed before it is held against the bytes that are left of the file, so a hostile one costs neither time nor
memory. Of arrays only the number of items is kept. Needs nothing but the standard library.
"""

import mmap
import re
from dataclasses import replace
from math import prod
from pathlib import Path

from impl.errors import InputError
from suite.audit.container import Container, Tensor, Value
from suite.audit.cursor import ARRAY, STRING, UINT32, VALUE_TYPES, Broken, Cursor
from suite.audit.ggml_types import TYPES
from suite.audit.rules import Finding

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
SMALLEST_KEY = 8 + 4 + 1
"""Bytes of a key with an empty name and a value of one byte; no more keys fit than these go into the file."""
SMALLEST_TENSOR = 8 + 4 + 4 + 8
"""Bytes that describe a tensor with an empty name and no dimensions."""
LONGEST_NAME = 63
MOST_DIMENSIONS = 4
SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


def scan(path: Path) -> Container:
    """Read a header; what is wrong with it stands in ``findings``.

    Raises ``InputError`` for what is no GGUF file at all, and for one part of a split file.
    """
    _require_whole_model(path)
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise InputError(f"{path}: not a GGUF file: it does not begin with {MAGIC.decode()}")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _scan(Container(path, len(data)), Cursor(data, position=len(MAGIC)))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def _require_whole_model(path: Path) -> None:
    found = SPLIT.search(path.name)
    if found is None or int(found[2]) < 2:
        return
    stem, count = path.name[: found.start()], found[2]
    names = (f"{stem}-{part:05}-of-{count}.gguf" for part in range(1, int(count) + 1))
    missing = next((name for name in names if not (path.parent / name).is_file()), None)
    state = f"{missing} is missing beside it" if missing else "all parts are there: merge them first"
    raise InputError(f"{path}: one part of a split file, expected a whole model; {state}")


def _scan(container: Container, cursor: Cursor) -> Container:
    try:
        key_count = _prologue(container, cursor)
        for index in range(key_count):
            _key(container, cursor, f"key {index + 1} of {key_count}")
        container.has_all_keys = True
        alignment = _alignment(container)
        described = [
            _tensor(cursor, f"tensor {index + 1} of {container.tensor_count}")
            for index in range(container.tensor_count)
        ]
        _lay_out(container, described, alignment, data=_padded(cursor.position, alignment))
        container.has_all_tensors = True
    except Broken as broken:
        container.findings.append(broken.finding)
    return container


def _prologue(container: Container, cursor: Cursor) -> int:
    (version,) = cursor.take("I", "the version")
    if version not in VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
        found = "big-endian" if swapped else f"version {version}"
        raise Broken("container.version", f"found {found}, expected a little-endian file of version 2 or 3", 4, 4)
    container.tensor_count, key_count = cursor.take("QQ", "the counts")
    cursor.require_room(container.tensor_count, SMALLEST_TENSOR, "tensors", offset=8)
    cursor.require_room(key_count, SMALLEST_KEY, "keys", offset=16)
    return key_count


def _key(container: Container, cursor: Cursor, where: str) -> None:
    start = cursor.position
    name = cursor.take_text(f"the name of {where}")
    where = f"{where} ({name})"
    (number,) = cursor.take("I", f"the value type of {where}")
    value = _value(cursor, number, where, start)
    if not name:
        container.report("container.key", f"{where}: the name is empty", offset=start)
    elif name in container.keys:
        container.report("container.key", f"{name}: found twice, expected once", name, start)
    else:
        container.keys[name] = value


def _value(cursor: Cursor, number: int, where: str, start: int) -> Value:
    if number == STRING:
        return Value("STRING", cursor.take_text(where))
    if number == ARRAY:
        item, count = cursor.take("IQ", where)
        if item == ARRAY or (item not in VALUE_TYPES and item != STRING):
            raise Broken("container.key", f"{where}: found an array of type {item}, expected a flat one", start)
        cursor.skip_items(item, count, where)
        return Value("ARRAY", items=count)
    if number not in VALUE_TYPES:
        raise Broken("container.key", f"{where}: found value type {number}, expected 0 to 12", start)
    type = VALUE_TYPES[number]
    return Value(type.name, cursor.take(type.format, where)[0])


def _alignment(container: Container) -> int:
    value = container.keys.get("general.alignment", Value(VALUE_TYPES[UINT32].name, DEFAULT_ALIGNMENT))
    stated = value.content
    is_power = isinstance(stated, int) and stated > 0 and stated & (stated - 1) == 0
    if value.type != VALUE_TYPES[UINT32].name or not is_power or stated % 8:
        message = f"general.alignment is {stated} ({value.type}), expected a UINT32, a power of two from 8 on"
        raise Broken("container.alignment", message, subject="general.alignment")
    return stated


def _tensor(cursor: Cursor, where: str) -> Tensor:
    start = cursor.position
    name = cursor.take_text(f"the name of {where}")
    shown = name[:LONGEST_NAME]

    def broken(found: str) -> Broken:
        return Broken("container.tensor", f"{where} ({shown}): {found}", start, subject=shown)

    if not 0 < len(name.encode()) <= LONGEST_NAME:
        raise broken(f"found a name of {len(name.encode())} bytes, expected 1 to {LONGEST_NAME}")
    (dimensions,) = cursor.take("I", f"the dimensions of {where} ({name})")
    if not 1 <= dimensions <= MOST_DIMENSIONS:
        raise broken(f"found {dimensions} dimensions, expected 1 to {MOST_DIMENSIONS}")
    shape = cursor.take("Q" * dimensions, f"the shape of {where} ({name})")[::-1]
    number, offset = cursor.take("IQ", f"type and offset of {where} ({name})")
    if number not in TYPES:
        raise broken(f"found type {number}, which GGUF does not have")
    if max(shape) >= 1 << 63 or prod(shape) * TYPES[number].bytes >= 1 << 63:
        raise broken(f"found shape {list(shape)}, which no file can hold")
    if shape[-1] % TYPES[number].values:
        type = TYPES[number]
        raise broken(f"found rows of {shape[-1]} in {type.label}, expected a multiple of {type.values}")
    return Tensor(name, shape, TYPES[number], offset)


def _lay_out(container: Container, described: list[Tensor], alignment: int, data: int) -> None:
    """Hold each offset against the end of the tensor before, and everything against the end of the file."""
    expected = end = data
    cut_off = []
    for tensor in described:
        start = data + tensor.offset
        placed = replace(tensor, offset=start, is_whole=start + tensor.size <= container.size)
        if start != expected:
            fault = _offset_fault(placed, expected, tensor.offset % alignment == 0)
            message = f"{tensor.name}: found offset {tensor.offset}, expected {expected - data}: {fault}"
            container.report("container.offset", message, tensor.name, start if placed.is_whole else None)
        elif not placed.is_whole:
            cut_off.append(tensor.name)
        if container.tensors.setdefault(tensor.name, placed) is not placed:
            container.report("container.duplicate", f"{tensor.name}: found twice, expected once", tensor.name, start)
        end = expected + placed.size
        expected = _padded(end, alignment)
    if cut_off:
        count = f"{len(cut_off)} of {len(described)} tensors are cut off, the first is {cut_off[0]}"
        message = f"the file ends at byte {container.size:,} of {end:,}: {count}"
        container.findings.append(Finding("container.truncated", message, cut_off, container.size))
    elif container.size > expected:
        rest = container.size - expected
        container.report("container.trailing", f"{rest:,} bytes follow the last tensor", offset=expected, size=rest)


def _offset_fault(tensor: Tensor, expected: int, is_aligned: bool) -> str:
    if not tensor.is_whole:
        return "past the end of the file"
    if not is_aligned:
        return "no multiple of the alignment"
    return "it overlaps the tensor before" if tensor.offset < expected else "it leaves a gap after the tensor before"


def _padded(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment
