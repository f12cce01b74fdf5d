"""Errors of blocks are what they are by hand, and no quantizer is better than the best of its format."""

from dataclasses import replace

import numpy as np
import pytest

from suite.kit.best_block import LEVELS, best_error
from suite.kit.block_cases import BlockCase, hard_cases
from suite.kit.block_errors import block_errors, ratio_over, run_errors
from suite.kit.block_values import Arithmetic, largest_differences
from suite.kit.bounds import BlockBounds
from suite.kit.oracle import quantized_by_ggml, read_by_ggml

NORMAL = next(case for case in hard_cases() if case.name == "normal")


def test_a_run_error_is_a_root_of_weighed_squares() -> None:
    weight, read = np.zeros((1, 64), np.float32), np.zeros((1, 64), np.float32)
    read[0, 0], read[0, 40] = 3, np.nan
    assert run_errors(weight, read).tolist() == [[3.0, np.inf]]
    importance = np.full(64, 4, np.float32)
    assert run_errors(weight, read, importance).tolist() == [[6.0, np.inf]]


def test_ggmls_own_blocks_are_at_the_unit() -> None:
    errors = block_errors(NORMAL, "q4_k", quantized_by_ggml(NORMAL, "q4_k"))
    assert errors.excess.max() == errors.ratio == 1
    assert not errors.faults(BlockBounds())


def test_a_run_that_is_lost_is_named_by_its_place() -> None:
    lost = NORMAL.weight.copy()
    lost[2, 64:96] = 0
    blocks = quantized_by_ggml(replace(NORMAL, weight=lost), "q4_0")
    (fault,) = block_errors(NORMAL, "q4_0", blocks).faults(BlockBounds())
    assert fault.startswith("normal: row 2, columns 64 to 95 (block 2, byte 36): the error is 11.")


def test_every_matrix_counts_alike_in_a_ratio() -> None:
    large = BlockCase("large", NORMAL.weight * 1000)
    right = block_errors(NORMAL, "q4_0", quantized_by_ggml(NORMAL, "q4_0"))
    wrong = block_errors(large, "q4_0", quantized_by_ggml(replace(large, weight=large.weight * 0), "q4_0"))
    assert ratio_over([right, wrong]) == pytest.approx(np.sqrt((right.share**2 + 1) / (2 * right.share**2)), rel=1e-2)


@pytest.mark.parametrize("type", LEVELS)
def test_no_quantizer_is_better_than_the_best_of_its_format(type: str) -> None:
    block = NORMAL.weight[:1, :32]
    ggmls = np.linalg.norm(read_by_ggml(quantized_by_ggml(BlockCase("block", block), type), type) - block)
    assert 0.5 * ggmls < best_error(block[0], type) <= ggmls * (1 + 1e-6)


def test_the_best_of_what_a_format_holds_exactly_is_no_error() -> None:
    block = np.arange(32, dtype=np.float32) % 16 * np.float32(0.25) - 2
    assert best_error(block, "q4_0") == best_error(block, "q4_1") == 0


@pytest.mark.parametrize(("difference", "arithmetic"), [(0, "float32"), (1e-3, "float16"), (1 / 127, "no")])
def test_the_arithmetic_is_told_by_the_largest_difference(difference: float, arithmetic: str) -> None:
    expected = np.ones((1, 32), np.float32)
    found = expected.copy()
    found[0, 5] += np.float32(difference)
    differences = largest_differences(found, expected, 32)
    assert Arithmetic.of(differences.of_run) == arithmetic
    assert differences.compared == 32
