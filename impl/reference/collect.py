"""Collecting an importance matrix: the forward pass over tokens, and what each matrix multiplies on the way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from impl.errors import InputError
from impl.reference.importance import ColumnSquares, ImportanceMatrix
from impl.reference.llama import Llama
from impl.reference.operations import Array, Matrix, Operations
from impl.reference.weights import Projection, Weights

CHUNK_SIZE = 512
"""Tokens in a context, as llama.cpp's ``imatrix`` has by default."""


@dataclass(frozen=True)
class Collecting:
    """A backend's operations, with ``linear`` also adding up the squares of what it multiplies."""

    operations: Operations
    names: Mapping[int, str]
    """The GGUF name of each matrix that is measured, by its identity."""
    sums: dict[str, NDArray[np.float64]]
    """By name, float64[columns]; what ``linear`` adds to."""

    def linear(self, x: Array, weight: Matrix, bias: Array | None = None) -> Array:
        """As the backend's."""
        if name := self.names.get(id(weight)):
            squares = np.square(self.operations.to_numpy(x), dtype=np.float64).sum(axis=0)
            self.sums[name] = self.sums.get(name, 0) + squares
        return self.operations.linear(x, weight, bias)

    def __getattr__(self, operation: str) -> Any:  # noqa: ANN401
        return getattr(self.operations, operation)


def collect(model: Llama, tokens: Sequence[int], dataset: str, chunk_size: int = CHUNK_SIZE) -> ImportanceMatrix:
    """The importance of every column of the layers' matrices, over ``tokens`` of the data set called ``dataset``.

    Tokens are taken ``chunk_size`` at a time, each chunk from an empty context, the last as long as it comes. The
    embedding and the output matrix are not measured. Raises ``InputError`` for no tokens, for one outside of the
    vocabulary, and for activations that are not finite, naming the tensor.
    """
    collecting = Collecting(model.operations, _names(model.weights), {})
    # All positions at once: in passes of a fixed size, positions that only fill up the last one would count too.
    measured = replace(model, operations=collecting, chunk=None)
    chunks = [tokens[start : start + chunk_size] for start in range(0, len(tokens), chunk_size)] or [[]]
    for chunk in chunks:
        measured.logits(chunk)
    columns = {name: _squares(name, sums, len(tokens)) for name, sums in collecting.sums.items()}
    return ImportanceMatrix(columns, (dataset,), len(chunks), chunk_size)


def _names(weights: Weights) -> dict[int, str]:
    return {
        id(getattr(layer, field.name).weight): f"blk.{index}.{field.name}.weight"
        for index, layer in enumerate(weights.layers)
        for field in fields(layer)
        if isinstance(getattr(layer, field.name), Projection)
    }


def _squares(name: str, sums: NDArray[np.float64], count: int) -> ColumnSquares:
    with np.errstate(over="ignore"):
        sums = sums.astype(np.float32)
    try:
        return ColumnSquares(sums, count)
    except InputError as error:
        raise InputError(f"tensor {name}: {error}") from error
