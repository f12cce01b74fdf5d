"""How the tensors of two GGUF files differ, byte by byte; the article's ``qcmp``."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGUFReader, ReaderTensor

from impl.errors import InputError

BLOCKWISE = 1 << 24
"""Bytes compared at once, so that the largest tensor needs no second copy in memory."""


@dataclass(frozen=True)
class BytesDifference:
    """Differing bytes of one tensor, or summed over the differing tensors of one kind and type."""

    name: str
    type: str
    tensors: int
    differing_bytes: int
    total_bytes: int
    """Of the differing tensors alone."""

    def __str__(self) -> str:
        label = f"{self.name} {self.type}"
        return f"{label:<28} {self.tensors} tensors, {self.differing_bytes} of {self.total_bytes} bytes"


@dataclass(frozen=True)
class Mismatch:
    """A tensor in both files whose bytes cannot be compared: another type or another shape."""

    name: str
    in_a: str
    in_b: str
    """Type and shape, rows first, e.g. ``Q5_0 [49152, 576]``."""


@dataclass(frozen=True)
class FileComparison:
    """Every tensor of two files stands in exactly one of these lists."""

    tensors_in_a: int
    tensors_in_b: int
    identical: tuple[str, ...]
    differing: tuple[BytesDifference, ...]
    """One entry per tensor of equal type and shape and different bytes."""
    different_type: tuple[Mismatch, ...]
    different_shape: tuple[Mismatch, ...]
    only_in_a: tuple[str, ...]
    only_in_b: tuple[str, ...]
    compared_bytes: int
    """Bytes of the identical and the differing tensors."""

    @property
    def compared(self) -> int:
        """Number of tensors whose bytes were compared."""
        return len(self.identical) + len(self.differing)

    @property
    def differing_bytes(self) -> int:
        """Differing bytes over all tensors compared."""
        return sum(tensor.differing_bytes for tensor in self.differing)

    @property
    def all_identical(self) -> bool:
        """Whether both files hold the same tensors, at least one, byte for byte."""
        return len(self.identical) == self.tensors_in_a == self.tensors_in_b > 0

    @property
    def kinds(self) -> tuple[BytesDifference, ...]:
        """The differing tensors summed by kind (``blk.attn_q.weight``) and type, in the order of names."""
        keys = sorted({(tensor_kind(tensor.name), tensor.type) for tensor in self.differing})
        return tuple(_sum_of_kind(kind, type, self.differing) for kind, type in keys)

    def require_identical(self) -> None:
        """Raise ``AssertionError`` with the whole comparison unless ``all_identical``."""
        if not self.all_identical:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        lines = _mismatch_lines((*self.different_type, *self.different_shape))
        lines += [f"{name}: only in a" for name in self.only_in_a]
        lines += [f"{name}: only in b" for name in self.only_in_b]
        lines.append(
            f"{self.tensors_in_a} tensors in a, {self.tensors_in_b} in b; "
            + (f"{len(self.identical)} byte-identical" if self.compared else "none could be compared")
        )
        lines += [f"  differ: {kind}" for kind in self.kinds]
        return "\n".join(lines)


def open_gguf(path: Path) -> GGUFReader:
    """Map a GGUF file into memory; ``InputError`` where the gguf package cannot read it.

    Duplicate keys, duplicate tensor names and data beyond the end of the file are among what it refuses.
    """
    try:
        return GGUFReader(path)
    except (OSError, ValueError, KeyError, IndexError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: not a readable GGUF file: {reason}") from error


def type_counts(path: Path) -> Counter[str]:
    """How many tensors a GGUF file has of each type, e.g. ``{"F32": 61, "Q5_0": 181, "Q4_K": 30}``."""
    return Counter(tensor.tensor_type.name for tensor in open_gguf(path).tensors)


def tensor_kind(name: str) -> str:
    """A tensor's name without its layer: ``blk.attn_q.weight`` of ``blk.7.attn_q.weight``."""
    return re.sub(r"^blk\.\d+\.", "blk.", name)


def compare_files(a: Path, b: Path) -> FileComparison:
    """Compare the tensors of two GGUF files by name; ``InputError`` where one cannot be read."""
    tensors_a = {tensor.name: tensor for tensor in open_gguf(a).tensors}
    tensors_b = {tensor.name: tensor for tensor in open_gguf(b).tensors}
    pairs = [(tensor, tensors_b[name]) for name, tensor in tensors_a.items() if name in tensors_b]
    same_type = [pair for pair in pairs if pair[0].tensor_type == pair[1].tensor_type]
    comparable = [pair for pair in same_type if pair[0].shape.tolist() == pair[1].shape.tolist()]
    differences = [_bytes_difference(*pair) for pair in comparable]
    return FileComparison(
        tensors_in_a=len(tensors_a),
        tensors_in_b=len(tensors_b),
        identical=tuple(tensor.name for tensor in differences if not tensor.differing_bytes),
        differing=tuple(tensor for tensor in differences if tensor.differing_bytes),
        different_type=tuple(_mismatch(*pair) for pair in pairs if pair[0].tensor_type != pair[1].tensor_type),
        different_shape=tuple(
            _mismatch(*pair) for pair in same_type if pair[0].shape.tolist() != pair[1].shape.tolist()
        ),
        only_in_a=tuple(name for name in tensors_a if name not in tensors_b),
        only_in_b=tuple(name for name in tensors_b if name not in tensors_a),
        compared_bytes=sum(tensor.total_bytes for tensor in differences),
    )


def _bytes_difference(a: ReaderTensor, b: ReaderTensor) -> BytesDifference:
    bytes_a, bytes_b = (tensor.data.reshape(-1).view(np.uint8) for tensor in (a, b))
    blocks = (slice(start, start + BLOCKWISE) for start in range(0, len(bytes_a), BLOCKWISE))
    differing = sum(int(np.count_nonzero(bytes_a[block] != bytes_b[block])) for block in blocks)
    return BytesDifference(a.name, a.tensor_type.name, 1, differing, len(bytes_a))


def _sum_of_kind(kind: str, type: str, tensors: tuple[BytesDifference, ...]) -> BytesDifference:
    same = [tensor for tensor in tensors if tensor.type == type and tensor_kind(tensor.name) == kind]
    return BytesDifference(
        name=kind,
        type=type,
        tensors=len(same),
        differing_bytes=sum(tensor.differing_bytes for tensor in same),
        total_bytes=sum(tensor.total_bytes for tensor in same),
    )


def _mismatch_lines(mismatches: tuple[Mismatch, ...]) -> list[str]:
    alike = Counter((tensor_kind(tensor.name), tensor.in_a, tensor.in_b) for tensor in mismatches)
    return [
        f"{kind}: {in_a} vs {in_b}" + (f", {count} tensors" if count > 1 else "")
        for (kind, in_a, in_b), count in alike.items()
    ]


def _mismatch(a: ReaderTensor, b: ReaderTensor) -> Mismatch:
    return Mismatch(a.name, _type_and_shape(a), _type_and_shape(b))


def _type_and_shape(tensor: ReaderTensor) -> str:
    return f"{tensor.tensor_type.name} {tensor.shape.tolist()[::-1]}"
