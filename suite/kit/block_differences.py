"""Where the bytes of two quantizations of one matrix part, and whether their values do."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from suite.kit import layout
from suite.kit.oracle import read_by_ggml
from suite.kit.selection import ORACLE


@dataclass(frozen=True)
class BlocksDifference:
    """How a program's blocks of a case differ from ggml's; ``first`` is the place of the first byte that does."""

    case: str
    blocks_bytes: int
    bytes: int
    values: int
    """Values that differ; a zero of another sign is the same value."""
    first: str

    @classmethod
    def of(cls, case: str, type: str, found: NDArray[np.uint8], expected: NDArray[np.uint8]) -> "BlocksDifference":
        """Of two uint8[rows, bytes per row] of one type."""
        differing = found != expected
        if not differing.any():
            return cls(case, found.size, 0, 0, "")
        a, b = (read_by_ggml(blocks, type) for blocks in (found, expected))
        values = int(np.count_nonzero((a != b) & ~(np.isnan(a) & np.isnan(b))))
        return cls(case, found.size, int(np.count_nonzero(differing)), values, _first(type, found, expected))

    def __str__(self) -> str:
        values = f"{self.values} values" if self.values else "no value, but the sign of zeros"
        return f"{self.case}: {self.bytes} of {self.blocks_bytes} bytes and {values} differ; {self.first}"


def _first(type: str, found: NDArray[np.uint8], expected: NDArray[np.uint8]) -> str:
    row, byte = np.unravel_index(np.argmax(found != expected), found.shape)
    _, size = layout.block_size(type)
    return (
        f"row {row}, block {byte // size}, byte {byte % size}: found 0x{found[row, byte]:02x} where {ORACLE} has "
        f"0x{expected[row, byte]:02x}"
    )
