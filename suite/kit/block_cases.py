"""The matrices that claims about quantizers are made on: chosen to be hard, from the checkpoint, and generated."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from suite.kit import layout
from suite.kit.block_inputs import FINITE, IMPORTANCES, Importance
from suite.kit.names import layer_of
from suite.kit.source import Source
from suite.kit.strategies import LEAST_VALUES, generated

GENERATED = 120
"""Blocks of each size; every fault of ours shows within a dozen."""


@dataclass(frozen=True)
class BlockCase:
    """Float32[rows, columns] to quantize, with the importance float32[columns] or without one.

    ``ordinary``: distributed as trained weights are and all columns alike, so that all searches end near each other.
    """

    name: str
    weight: NDArray[np.float32]
    importance: NDArray[np.float32] | None = None
    ordinary: bool = False


def hard_cases(importances: Sequence[Importance | None] = (None,)) -> Iterator[BlockCase]:
    """Every finite input, with each of the importances."""
    for chosen in FINITE:
        for importance in importances:
            name = chosen.name if importance is None else f"{chosen.name}, importance {importance.name}"
            columns = None if importance is None else importance.columns()
            yield BlockCase(name, chosen.weight(), columns, chosen.ordinary and columns is None)


def real_cases(source: Source, block_type: str, rows: int) -> Iterator[BlockCase]:
    """The first rows of every matrix of the first and last layer, and of the embedding, that the block divides."""
    block, _ = layout.block_size(block_type)
    for name, shape in source.gguf_shapes().items():
        if len(shape) == 2 and shape[-1] % block == 0 and layer_of(name) in (-1, 0, source.layers - 1):
            yield BlockCase(name, source.gguf_tensor(name)[:rows], ordinary=True)


def generated_case(block_type: str) -> BlockCase:
    """Generated blocks, one a row."""
    values = max(layout.block_size(block_type)[0], LEAST_VALUES)
    return BlockCase("generated", np.concatenate([case.weight for case in generated(values, False, GENERATED)]))


WEIGHED = tuple(each for each in IMPORTANCES if each.name in ("squares", "mostly zero"))
"""The importances that errors are weighed by: what means of squared activations look like, and a few columns alone."""
