"""Rows of weights, of the checkpoint in the order of GGUF and of the file under audit, through memory maps.

Only the rows asked for are read, and their pages given back at once, so that a file of any size is compared in
the memory of a few rows.
"""

from dataclasses import dataclass
from math import pi, prod
from pathlib import Path

import ml_dtypes  # noqa: F401  (gives numpy the dtype bfloat16)
import numpy as np
from numpy.typing import NDArray

from impl.errors import InputError
from suite.audit.checkpoint import EMBEDDING, HEAD, Checkpoint, Stored
from suite.audit.container import Tensor
from suite.kit.rows import gguf_row_order

Rows = NDArray[np.intp] | slice
NUMPY = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
ROPE_FREQS = "rope_freqs.weight"
FLOAT32_ARITHMETIC = 2.0**-20
"""What a converter that computes the frequencies' divisors in float32 may be off by, as a share of the value."""


@dataclass(frozen=True)
class Source:
    """A checkpoint's weights by llama.cpp's names, as rows: a vector is one row."""

    checkpoint: Checkpoint

    def order(self, name: str) -> NDArray[np.intp] | None:
        """For each GGUF row of a q or k, the checkpoint's row that stands there; None for any other tensor."""
        part = name.split(".")[-2]
        if part not in self.checkpoint.heads or not name.startswith("blk."):
            return None
        return gguf_row_order(self.checkpoint.stored[name].shape[0], self.checkpoint.heads[part])

    def rounding(self, name: str) -> float:
        """What the checkpoint's own rounding may have moved a weight by, as a share of it."""
        return FLOAT32_ARITHMETIC if name == ROPE_FREQS else self._stored(name).rounding

    def rows(self, name: str, rows: Rows = slice(None)) -> NDArray[np.float32]:
        """Float32[rows, columns] as a GGUF has them; ``InputError`` for NaN and Inf."""
        if name == ROPE_FREQS:
            return _frequency_divisors(self.checkpoint)[None]
        order = self.order(name)
        if order is None or len(self._stored(name).shape) == 1:
            weights = self.in_own_order(name, rows)
            # A bias of q or k is one row, whose values are what is reordered.
            return weights if order is None else weights[:, order]
        return self.in_own_order(name, order[rows])

    def in_own_order(self, name: str, rows: Rows = slice(None)) -> NDArray[np.float32]:
        """Float32[rows, columns] in the checkpoint's order."""
        stored = self._stored(name)
        columns = stored.shape[-1]
        mapped = np.memmap(
            stored.path, NUMPY[stored.dtype], "r", stored.offset, (prod(stored.shape) // columns, columns)
        )
        weights = _as_float32(mapped[rows], stored.dtype)
        if not np.isfinite(weights).all():
            raise InputError(f"{stored.path}: tensor for {name}: holds NaN or Inf, expected finite weights")
        return weights

    def _stored(self, name: str) -> Stored:
        return self.checkpoint.stored[EMBEDDING if name == HEAD and self.checkpoint.is_tied else name]


def blocks_of(file: Path, tensor: Tensor, rows: Rows = slice(None)) -> NDArray[np.uint8]:
    """Uint8[rows, bytes per row] of a tensor in the file; a vector is one row."""
    count = tensor.size // tensor.row_bytes
    return np.asarray(np.memmap(file, np.uint8, "r", tensor.offset, (count, tensor.row_bytes))[rows])


def _as_float32(stored: NDArray, dtype: str) -> NDArray[np.float32]:
    if dtype == "BF16":
        # The upper half of a float32; twice as fast as numpy's own conversion.
        widened = stored.astype(np.uint32)
        widened <<= 16
        return widened.view(np.float32)
    return stored.astype(np.float32)


def _frequency_divisors(checkpoint: Checkpoint) -> NDArray[np.float32]:
    """Float32[head size / 2]: what Llama 3's scaling divides each frequency by (transformers' ``llama3``)."""
    rope, size = checkpoint.rope, checkpoint.head_size
    factor, low, high = (float(rope[key]) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    wavelengths = 2 * pi * float(rope["rope_theta"]) ** (np.arange(0, size, 2) / size)
    turns = float(rope["original_max_position_embeddings"]) / wavelengths
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)
