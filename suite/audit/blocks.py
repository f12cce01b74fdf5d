"""Single blocks that are not what they should be: damaged, not finite, or stray; and the byte at fault."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from suite.audit.envelope import ROW_FACTOR
from suite.audit.rules import Finding
from suite.audit.values import LARGEST_SCALE, Comparison, Oracle, requantized
from suite.audit.weights import Source, blocks_of

STRAY = 10_000
"""Where no more than one block in so many differs, the file was made by the algorithm that we quantize with, and a
block that differs was not. ik_llama.cpp's own differs in 3 to 25 of them, and in none of Q8_0."""
LISTED = 3
"""So many blocks of a tensor are described; of the others only the number is given."""


@dataclass(frozen=True)
class Blocks:
    """Blocks of one tensor that share a fault; ``verdict`` is what is said of them."""

    rule: str
    verdict: str
    comparison: Comparison
    indices: NDArray[np.intp]


def explain_blocks(file: Path, comparisons: Sequence[Comparison], source: Source, oracle: Oracle) -> Iterator[Finding]:
    """One finding for each tensor that has such blocks."""
    for blocks in (each for each in _faulty(comparisons) if len(each.indices)):
        tensor, shown = blocks.comparison.tensor, blocks.indices[:LISTED]
        described = [_described(file, blocks.comparison, int(index), source, oracle) for index in shown]
        more = f"; and {len(blocks.indices) - LISTED} more" if len(blocks.indices) > LISTED else ""
        count = f"{len(blocks.indices)} of {blocks.comparison.blocks:,} blocks {blocks.verdict}"
        message = f"{tensor.name}: {count}: {'; '.join(text for text, _, _ in described)}{more}"
        _, offset, size = described[0]
        yield Finding(blocks.rule, message, (tensor.name,), offset, size)


def _faulty(comparisons: Sequence[Comparison]) -> Iterator[Blocks]:
    for each in comparisons:
        what = "with a NaN or infinite scale" if each.tensor.type.values > 1 else "with NaN or Inf"
        yield Blocks("values.finite", what, each, each.non_finite)
        if not len(each.wrong_rows):
            # Else the tensor is another, and where it stands out from that one says nothing.
            yield Blocks("values.damaged", "far from the checkpoint", each, each.damaged)
    compared = sum(each.requantized for each in comparisons)
    differing = sum(len(each.differing) for each in comparisons)
    if differing <= compared // STRAY:
        verdict = f"not as requantizing gives them, as all others of {compared:,} are"
        for each in comparisons:
            known = np.concatenate([each.non_finite, each.damaged])
            stray = np.setdiff1d(each.differing, known) if not len(each.wrong_rows) else known[:0]
            yield Blocks("values.stray", verdict, each, stray)


def _described(file: Path, comparison: Comparison, block: int, source: Source, oracle: Oracle) -> tuple[str, int, int]:
    """Where a block is and which byte of it is at fault; and the bytes of the file that this is about."""
    row, number = comparison.location(block)
    where, offset = f"row {row}, block {number}", comparison.offset(block)
    fault = _byte_at_fault(file, comparison, block, source, oracle)
    if fault is None:
        return f"{where} (bytes {offset:,} to {offset + comparison.block_bytes - 1:,})", offset, comparison.block_bytes
    place, found, right = fault
    at = offset + place
    return f"{where}: byte {at:,} of the file is {found:#04x}, {right:#04x} would be right", at, 1


def _byte_at_fault(
    file: Path, comparison: Comparison, block: int, source: Source, oracle: Oracle
) -> tuple[int, int, int] | None:
    """The one byte of a block whose change makes it right: its place, what it is and what it should be.

    Where the rest of the tensor is as we quantize it, so should this block be; otherwise every value of every byte is
    tried for the one that comes nearest to the checkpoint. None where no single byte does.
    """
    tensor, size = comparison.tensor, comparison.block_bytes
    row, number = comparison.location(block)
    place = slice(number * size, (number + 1) * size)
    found = blocks_of(file, tensor, slice(row, row + 1))[0, place]
    weights = source.rows(tensor.name, slice(row, row + 1))
    own = requantized(weights, tensor.type.name, oracle)[0, place]
    different = np.flatnonzero(own != found)
    if len(comparison.differing) <= comparison.blocks // STRAY + LISTED and len(different) == 1:
        at = int(different[0])
        return at, int(found[at]), int(own[at])
    values = weights.shape[1] // (tensor.row_bytes // size)
    wanted = weights[0, number * values : (number + 1) * values]
    return _nearest_change(found, wanted, _allowed(comparison, wanted, own, oracle), tensor.type.name, oracle)


def _nearest_change(
    found: NDArray[np.uint8], wanted: NDArray[np.float32], allowed: float, type: str, oracle: Oracle
) -> tuple[int, int, int] | None:
    best, change = allowed, None
    for place in range(len(found)):
        variants = np.repeat(found[None], 256, axis=0)
        variants[:, place] = np.arange(256)
        with np.errstate(invalid="ignore", over="ignore"):
            errors = np.nan_to_num(oracle.dequantize(variants, type) - wanted, nan=LARGEST_SCALE)
            distances = np.sqrt(np.square(errors, dtype=np.float64).sum(axis=1))
        nearest = int(np.argmin(distances))
        if distances[nearest] <= best:
            best, change = distances[nearest], (place, int(found[place]), nearest)
    return change


def _allowed(comparison: Comparison, wanted: NDArray[np.float32], own: NDArray[np.uint8], oracle: Oracle) -> float:
    """What a block's error, as a vector's length, may be."""
    ours = np.linalg.norm(oracle.dequantize(own[None], comparison.tensor.type.name)[0] - wanted)
    return ROW_FACTOR * max(float(ours), comparison.own_error * float(np.linalg.norm(wanted)))
