"""What a GGUF file's header says, as far as it could be read, and what is wrong with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from suite.audit.ggml_types import GgmlType
from suite.audit.rules import Finding


@dataclass(frozen=True)
class Value:
    """A key's value: its type's name; the scalar or text itself; of an array the number of items alone."""

    type: str
    content: int | float | bool | str | None = None
    items: int | None = None


@dataclass(frozen=True)
class Tensor:
    """What a header says of a tensor; ``shape`` has rows first, ``offset`` counts from the start of the file."""

    name: str
    shape: tuple[int, ...]
    type: GgmlType
    offset: int
    is_whole: bool = True
    """Whether its bytes all lie within the file."""

    @property
    def size(self) -> int:
        """Bytes of its data."""
        return prod(self.shape) // self.type.values * self.type.bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.shape[-1] // self.type.values * self.type.bytes


@dataclass
class Container:
    """A header as far as it could be read, and what is wrong with it."""

    path: Path
    size: int
    tensor_count: int = 0
    """As the header states it, believed or not."""
    keys: dict[str, Value] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    has_all_keys: bool = False
    has_all_tensors: bool = False
    findings: list[Finding] = field(default_factory=list)

    def report(self, rule: str, message: str, subject: str = "", offset: int | None = None, size: int = 1) -> None:
        """Add a finding."""
        self.findings.append(Finding(rule, message, (subject,) if subject else (), offset, size))


def type_counts(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """How many tensors there are of each type, most first."""
    labels = [tensor.type.label for tensor in tensors.values()]
    return {label: labels.count(label) for label in sorted(set(labels), key=lambda each: (-labels.count(each), each))}
