"""Importance matrices: how strongly a model's activations use each column of its matrices.

A column's importance is the mean square of the activations that multiply it, over the tokens of a data set.
Quantizing gives an error in an important column more weight. The definition is that of llama.cpp's ``imatrix``
tool (mid-2026).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from impl.errors import InputError

UNWEIGHTED = ("token_embd.weight", "output.weight")
"""Tensors that are quantized without regard to importance, whatever a file says."""


@dataclass(frozen=True)
class ColumnSquares:
    """What was measured of one matrix. Raises ``InputError`` unless its importance is finite and not negative."""

    sums: NDArray[np.float32]
    """Float32[cols]: of the squared activations."""
    count: float
    """How many activations were added up in each column."""

    def __post_init__(self) -> None:
        if not 0 < self.count < np.inf:
            raise InputError(f"count is {self.count:g}, expected a positive number")
        unusable = np.flatnonzero(~(np.isfinite(self.importance) & (self.importance >= 0)))
        if unusable.size:
            column = unusable[0]
            raise InputError(
                f"importance of column {column} is {self.importance[column]:g}, expected a finite number from 0 on"
            )

    @property
    def importance(self) -> NDArray[np.float32]:
        """Float32[cols], divided in float32 as llama.cpp's quantizer does."""
        with np.errstate(over="ignore"):
            return self.sums / np.float32(self.count)


@dataclass(frozen=True)
class ImportanceMatrix:
    """The importance of every column of the matrices that were measured."""

    columns: Mapping[str, ColumnSquares]
    """By the matrix's GGUF name."""
    datasets: tuple[str, ...]
    """The names of what it was measured on."""
    chunks: int
    """Stretches of tokens, each from an empty context; 0 where it is not known."""
    chunk_size: int
    """Activations counted in a full chunk: its tokens, or 1 where counts are chunks."""

    def of(self, tensor: str, columns: int) -> NDArray[np.float32] | None:
        """Float32[columns]; None for a tensor that was not measured, and for the embedding and the output matrix.

        Raises ``InputError`` where another number of columns was measured.
        """
        if tensor in UNWEIGHTED or tensor not in self.columns:
            return None
        importance = self.columns[tensor].importance
        if importance.shape != (columns,):
            raise InputError(f"tensor {tensor} has {len(importance)} importances, expected {columns}")
        return importance
