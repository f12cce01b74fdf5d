"""Reads the primitive values of a GGUF header one behind the other, and stops at the first that cannot be there."""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from suite.audit.rules import Finding


class Broken(Exception):
    """The header cannot be read beyond this; carries the finding that says why."""

    def __init__(self, rule: str, message: str, offset: int | None = None, size: int = 1, subject: str = "") -> None:
        super().__init__(message)
        self.finding = Finding(rule, message, (subject,) if subject else (), offset, size)


@dataclass(frozen=True)
class ValueType:
    """A value type of fixed size, by the name in the specification and ``struct``'s format."""

    name: str
    format: str

    @property
    def size(self) -> int:
        """Bytes of one value."""
        return struct.calcsize(self.format)


VALUE_TYPES: Mapping[int, ValueType] = {
    0: ValueType("UINT8", "B"),
    1: ValueType("INT8", "b"),
    2: ValueType("UINT16", "H"),
    3: ValueType("INT16", "h"),
    4: ValueType("UINT32", "I"),
    5: ValueType("INT32", "i"),
    6: ValueType("FLOAT32", "f"),
    7: ValueType("BOOL", "?"),
    10: ValueType("UINT64", "Q"),
    11: ValueType("INT64", "q"),
    12: ValueType("FLOAT64", "d"),
}
UINT32, STRING, ARRAY = 4, 8, 9
LENGTH = struct.Struct("<Q")


@dataclass
class Cursor:
    """A place in a mapped file; every method moves it on or raises ``Broken``."""

    data: mmap.mmap
    position: int

    def take(self, format: str, what: str) -> tuple:
        """Little-endian values, packed without gaps."""
        packed = struct.Struct(f"<{format}")
        self._require(packed.size, what)
        values = packed.unpack_from(self.data, self.position)
        self.position += packed.size
        return values

    def take_text(self, what: str) -> str:
        """A text after its length; what is no UTF-8 is kept readable as escapes."""
        start = self.position
        (length,) = self.take("Q", what)
        self.require_room(length, 1, f"bytes of {what}", offset=start)
        self.position += length
        return self.data[self.position - length : self.position].decode("utf-8", "backslashreplace")

    def skip_items(self, type: int, count: int, what: str) -> None:
        """The items of an array."""
        start = self.position - 8
        if type != STRING:
            self.require_room(count, VALUE_TYPES[type].size, f"items of {what}", start)
            self.position += count * VALUE_TYPES[type].size
            return
        self.require_room(count, LENGTH.size, f"items of {what}", start)
        position, end, unpack = self.position, len(self.data) - LENGTH.size, LENGTH.unpack_from
        for _ in range(count):
            if position > end:
                break
            position += LENGTH.size + unpack(self.data, position)[0]
        else:
            if position <= len(self.data):
                self.position = position
                return
        raise Broken("container.truncated", f"the file ends inside the items of {what}", self.position)

    def require_room(self, count: int, size: int, what: str, offset: int) -> None:
        """``count`` things of at least ``size`` bytes are still to come."""
        left = len(self.data) - self.position
        if count * size > left:
            message = f"found {count} {what}, where {left} bytes are left of the file"
            raise Broken("container.count", message, offset, LENGTH.size)

    def _require(self, size: int, what: str) -> None:
        if self.position + size > len(self.data):
            raise Broken("container.truncated", f"the file ends inside {what}", self.position)
