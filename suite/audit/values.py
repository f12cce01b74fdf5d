"""How near each tensor of a file is to the checkpoint: byte for byte, within its type's envelope, or beyond.

Each tensor is quantized again with an independent quantizer, ggml's. Where that gives the file's bytes there is
nothing more to ask; where it does not, ``suite.audit.envelope`` says what the file's error may be. What the
checkpoint's own rounding to bfloat16 or float16 may have moved a weight by is no error of a quantized type.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from impl.protocol import Dequantizer, Quantizer
from suite.audit.container import Tensor
from suite.audit.envelope import Errors, damaged_blocks, joined, share, wrong_rows
from suite.audit.weights import ROPE_FREQS, Rows, Source, blocks_of

CHUNK = 1 << 21
"""Weights compared at once, so that memory does not grow with the tensor."""
NEEDS_IMPORTANCE = ("iq1_s", "iq2_xxs", "iq2_xs")
SLOW = ("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_nl", "iq4_xs")
"""Types that ggml quantizes at a few megabytes a second: only ``SAMPLE`` rows are, to know the type's error here."""
SAMPLE = 32
LARGEST_SCALE = 65504.0
"""Beyond it a float16 scale is infinite, in the file and in what we quantize alike."""


class Oracle(Quantizer, Dequantizer, Protocol):
    """What quantizes again, and reads blocks."""


def requantized(weights: NDArray[np.float32], type: str, oracle: Oracle) -> NDArray[np.uint8]:
    """Float32[rows, columns] as uint8[rows, bytes per row] of a type; all columns weigh the same."""
    if type == "f32":
        return np.ascontiguousarray(weights).view(np.uint8)
    return oracle.quantize(weights, type, np.ones(weights.shape[1], np.float32) if type in NEEDS_IMPORTANCE else None)


@dataclass(frozen=True)
class Comparison:
    """One tensor against the checkpoint. Blocks are counted row by row from 0."""

    tensor: Tensor
    blocks: int
    block_bytes: int
    requantized: int
    """Blocks quantized again and held against the file's byte for byte."""
    differing: NDArray[np.intp]
    """Those of them whose bytes are not the file's."""
    non_finite: NDArray[np.intp]
    damaged: NDArray[np.intp]
    """Single blocks far from the checkpoint."""
    wrong_rows: NDArray[np.intp]
    own_error: float
    """Root-mean-square error of our own quantization, as a share of the weights'; 0 where every byte is ours."""
    file_error: float

    @property
    def is_identical(self) -> bool:
        """Whether every block's bytes are those that quantizing again gives."""
        return self.requantized == self.blocks and not len(self.differing)

    @property
    def is_within(self) -> bool:
        """Whether nothing stands out, whatever the bytes."""
        return not (len(self.non_finite) or len(self.damaged) or len(self.wrong_rows))

    def location(self, block: int) -> tuple[int, int]:
        """Row of a block, and its number within the row."""
        return divmod(int(block), self.tensor.row_bytes // self.block_bytes)

    def offset(self, block: int) -> int:
        """Where in the file a block begins."""
        return self.tensor.offset + int(block) * self.block_bytes


def compare_tensor(file: Path, tensor: Tensor, source: Source, oracle: Oracle) -> Comparison:
    """Compare one tensor of a file, of the checkpoint's shape, with the checkpoint."""
    measure = _Measure(file, tensor, source, oracle)
    if tensor.type.name in SLOW:
        own = measure.errors(measure.sampled_rows, requantize=True)
        return _judged(measure, joined([measure.errors(rows, requantize=False) for rows in measure.chunks]), own)
    differing = [errors for rows in measure.chunks if (errors := measure.differing_errors(rows)) is not None]
    if differing:
        errors = joined(differing)
        return _judged(measure, errors, errors)
    nothing = np.empty(0, np.intp)
    sizes = (measure.blocks, measure.block_bytes, measure.requantized)
    return Comparison(tensor, *sizes, nothing, nothing, nothing, nothing, own_error=0.0, file_error=0.0)


@dataclass(frozen=True)
class _Measure:
    """Reads, quantizes again and dequantizes rows of one tensor."""

    file: Path
    tensor: Tensor
    source: Source
    oracle: Oracle

    @property
    def values(self) -> int:
        """Of a block; a float type, which has none, is looked at in runs of up to 32."""
        return self.tensor.type.values if self.tensor.type.values > 1 else gcd(self.tensor.shape[-1], 32)

    @property
    def block_bytes(self) -> int:
        return self.values // self.tensor.type.values * self.tensor.type.bytes

    @property
    def blocks(self) -> int:
        return self.tensor.size // self.block_bytes

    @property
    def blocks_per_row(self) -> int:
        return self.tensor.row_bytes // self.block_bytes

    @property
    def requantized(self) -> int:
        return 0 if self.tensor.type.name in SLOW else self.blocks

    @property
    def rows(self) -> int:
        return self.tensor.size // self.tensor.row_bytes

    @property
    def chunks(self) -> Iterator[slice]:
        step = max(1, CHUNK // self.tensor.shape[-1])
        return (slice(start, min(start + step, self.rows)) for start in range(0, self.rows, step))

    @property
    def sampled_rows(self) -> NDArray[np.intp]:
        return np.unique(np.linspace(0, self.rows - 1, SAMPLE).astype(np.intp))

    def differing_errors(self, rows: slice) -> Errors | None:
        """The errors of rows; None where their bytes are what quantizing again gives, and finite."""
        weights, blocks = self._read(rows)
        own = self._requantized(weights)
        if np.array_equal(own, blocks) and np.abs(weights).max(initial=0) <= LARGEST_SCALE:
            return None
        return self._errors(rows, weights, blocks, own)

    def errors(self, rows: Rows, *, requantize: bool) -> Errors:
        """The errors of rows; where they are not quantized again, our own count as 0."""
        weights, blocks = self._read(rows)
        return self._errors(rows, weights, blocks, self._requantized(weights) if requantize else None)

    def _read(self, rows: Rows) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        return self.source.rows(self.tensor.name, rows), blocks_of(self.file, self.tensor, rows)

    def _requantized(self, weights: NDArray[np.float32]) -> NDArray[np.uint8]:
        return requantized(weights, self.tensor.type.name, self.oracle)

    def _errors(
        self, rows: Rows, weights: NDArray[np.float32], blocks: NDArray[np.uint8], own: NDArray[np.uint8] | None
    ) -> Errors:
        type = self.tensor.type
        magnitude = np.abs(weights).reshape(-1, self.values)
        # A float type keeps the checkpoint's rounding, or rounds once more in a way that our own shows.
        is_exact = type.values == 1 and self.tensor.name != ROPE_FREQS
        rounding = 0.0 if is_exact else self.source.rounding(self.tensor.name)
        with np.errstate(invalid="ignore", over="ignore"):
            file_error = np.abs(weights - self.oracle.dequantize(blocks, type.name)).reshape(-1, self.values)
            finite = np.isfinite(file_error).all(axis=1)
            file_error = np.nan_to_num(np.maximum(file_error - np.float32(rounding) * magnitude, 0), posinf=0)
        own_error = np.zeros_like(magnitude)
        differs = np.zeros(len(magnitude), np.bool_)
        if own is not None:
            own_error = np.abs(weights - self.oracle.dequantize(own, type.name)).reshape(-1, self.values)
            own_error = np.nan_to_num(own_error, posinf=0)
            differs = (own.reshape(-1, self.block_bytes) != blocks.reshape(-1, self.block_bytes)).any(axis=1)
        return Errors(
            self._indices(rows),
            differs,
            finite,
            *_largest_and_square(magnitude),
            *_largest_and_square(file_error),
            *_largest_and_square(own_error),
        )

    def _indices(self, rows: Rows) -> NDArray[np.intp]:
        per_row = np.arange(self.blocks_per_row)
        return (np.arange(self.rows)[rows][:, None] * len(per_row) + per_row).reshape(-1)


def _largest_and_square(errors: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    return errors.max(axis=1), np.einsum("ij,ij->i", errors, errors, dtype=np.float64)


def _judged(measure: "_Measure", errors: Errors, own: Errors) -> Comparison:
    own_share = share(own.own_square, own.weight_square)
    damaged = damaged_blocks(errors, own, measure.blocks)
    sound = errors.finite & ~damaged
    return Comparison(
        measure.tensor,
        measure.blocks,
        measure.block_bytes,
        measure.requantized,
        differing=errors.index[errors.differs],
        non_finite=errors.index[~errors.finite],
        damaged=errors.index[damaged],
        wrong_rows=wrong_rows(errors, sound, own_share, measure.blocks_per_row),
        own_error=own_share,
        file_error=share(errors.file_square[sound], errors.weight_square[sound]),
    )
