"""How a quantizer or dequantizer behaves: on matrices of any shape, to what it is given, and when called again."""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from impl import conduct
from impl.isolated import Isolated
from impl.protocol import Dequantizer, Implementation, Quantizer
from suite.audit.values import SLOW
from suite.claims import claim
from suite.kit import layout
from suite.kit.answers import dequantized
from suite.kit.block_cases import BlockCase
from suite.kit.block_inputs import SEED
from suite.kit.block_values import random_blocks
from suite.kit.oracle import quantized_by
from suite.kit.selection import require_member
from suite.kit.strategies import LEAST_VALUES

ROWS = (1, 2, 3, 513, 4097)
"""Of matrices one block wide: one, an odd number, and one more than what programs divide work by."""
QUICK_ROWS = 513
"""The most for types whose search is slow."""
COLUMNS = 4096
"""Blocks beyond so many columns must be as those before."""
PATTERN = 7
"""Rows after which a tall matrix repeats itself: prime, so that no division of the work repeats alike."""


@claim("conduct.tall")
def test_every_row_of_a_tall_matrix_is_quantized(quantizer: Quantizer, block_type: str) -> None:
    """Of matrices of 1, 2, 3, 513 and 4,097 rows every row gives the blocks that it gives among a few."""
    require_member(quantizer, "types", block_type)
    few = _weight(block_type)
    expected = _quantized(quantizer, few, block_type)
    for rows in (rows for rows in ROWS if rows <= QUICK_ROWS or block_type not in SLOW):
        found = _quantized(quantizer, np.resize(few, (rows, few.shape[1])), block_type)
        _require_equal_rows(found, np.resize(expected, found.shape), f"{block_type}, {rows} rows")


@claim("conduct.wide")
def test_every_column_of_a_wide_matrix_is_quantized(quantizer: Quantizer, block_type: str) -> None:
    """Of a row of 4,096 columns and some blocks more every block is what it is alone."""
    require_member(quantizer, "types", block_type)
    few = _weight(block_type)
    blocks = COLUMNS // few.shape[1] + 3
    found = _quantized(quantizer, np.resize(few, (1, blocks * few.shape[1])), block_type).reshape(blocks, -1)
    expected = np.resize(_quantized(quantizer, few, block_type), found.shape)
    _require_equal_rows(found, expected, f"{block_type}, a row of {blocks * few.shape[1]} columns, in blocks as rows")


@claim("conduct.blocks")
def test_every_block_of_tall_and_wide_blocks_is_read(dequantizer: Dequantizer, block_type: str) -> None:
    """Of 513 rows, and of a row of more than 4,096 columns, every block reads as it does among a few."""
    require_member(dequantizer, "readable_types", block_type)
    few = random_blocks(block_type)[:PATTERN]
    expected = dequantized(dequantizer, few, block_type)
    tall = dequantized(dequantizer, np.resize(few, (QUICK_ROWS, few.shape[1])), block_type)
    _require_equal_rows(tall, np.resize(expected, tall.shape), f"{block_type}, {QUICK_ROWS} rows")
    times = COLUMNS // expected.shape[1] + 3
    wide = dequantized(dequantizer, np.resize(few, (1, times * few.shape[1])), block_type).reshape(times, -1)
    _require_equal_rows(wide, np.resize(expected, wide.shape), f"{block_type}, a row of {wide.size} columns, in parts")


@claim("conduct.quantizer")
def test_quantizing_leaves_its_input_and_its_results_alone(quantizer: Quantizer, block_type: str) -> None:
    """Quantizing changes neither weights nor importance; what it returned stays as it is; the same weights give the
    same blocks again, and where two threads call at once."""
    require_member(quantizer, "types", block_type)
    _require_no_fault(quantizer, conduct.of_quantizer, _weight(block_type), block_type)


@claim("conduct.dequantizer")
def test_dequantizing_leaves_its_input_and_its_results_alone(dequantizer: Dequantizer, block_type: str) -> None:
    """Dequantizing does not change the blocks; what it returned stays as it is; the same blocks give the same weights
    again, and where two threads call at once."""
    require_member(dequantizer, "readable_types", block_type)
    _require_no_fault(dequantizer, conduct.of_dequantizer, random_blocks(block_type)[:4], block_type)


def _weight(block_type: str) -> NDArray[np.float32]:
    columns = max(LEAST_VALUES, layout.block_size(block_type)[0])
    return np.random.default_rng(SEED).standard_normal((PATTERN, columns), dtype=np.float32)


def _quantized(quantizer: Quantizer, weight: NDArray[np.float32], block_type: str) -> NDArray[np.uint8]:
    return quantized_by(quantizer, BlockCase("shape", weight), block_type)


def _require_equal_rows(found: NDArray, expected: NDArray, what: str) -> None:
    # As bits: a NaN is itself.
    differing = np.flatnonzero((found.view(np.uint8) != expected.view(np.uint8)).any(axis=1))
    assert not differing.size, f"{what}: {differing.size} of {len(found)} rows differ, the first is row {differing[0]}"


def _require_no_fault(implementation: Implementation, observe: Callable[..., list[str]], *arguments: object) -> None:
    within = implementation.within if isinstance(implementation, Isolated) else partial(_here, implementation)
    faults = within(observe, *arguments)
    assert not faults, "; ".join(faults)


def _here(implementation: Implementation, observe: Callable[..., list[str]], *arguments: object) -> list[str]:
    return observe(implementation, *arguments)
