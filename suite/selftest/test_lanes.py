"""What kernels compute on blocks side by side is what they would compute on each block alone."""

import math
import operator
from collections.abc import Callable

import numpy as np
import pytest
from numba import njit
from numba.core.errors import TypingError
from numpy.typing import NDArray

from impl.reference.blocks.arithmetic import ONE, ZERO, nearest
from impl.reference.blocks.lanes import (
    ARITHMETIC,
    COMPARISONS,
    LANES,
    extremes,
    held,
    lanes,
    load,
    nearest_integer,
    store,
    where,
)
from impl.reference.blocks.transposition import choose, into_lanes, out_of_lanes, room_for_lanes

FLOAT32 = np.finfo(np.float32)
ORDINARY = (0.0, -0.0, 1, -1, 0.5, 1.5, -2.5, 1 / 3, 2.4999998, 1e9, -1e9)
EXTREME = (FLOAT32.smallest_subnormal, FLOAT32.tiny, FLOAT32.max, -FLOAT32.max, math.inf, -math.inf, math.nan)
ROUNDING_LIMITS = (4194303, -4194303, 4194304.5, 16777216)
EDGES = np.array((*ORDINARY, *EXTREME, *ROUNDING_LIMITS), np.float32)
PAIRS = np.array([(a, b) for a in EDGES for b in EDGES], np.float32)
FIRST, SECOND = np.resize(PAIRS, (math.ceil(len(PAIRS) / LANES) * LANES, 2)).T.copy()
kernel = njit(error_model="numpy")


def _on_lanes(operation: Callable) -> NDArray[np.float32]:
    """The ``operation`` on every pair of edge values, ``LANES`` of them at a time."""

    @kernel
    def apply(first: NDArray[np.float32], second: NDArray[np.float32], results: NDArray[np.float32]) -> None:
        for i in range(first.size // LANES):
            store(operation(load(first, i), load(second, i)), results, i)

    results = np.empty_like(FIRST)
    apply(FIRST, SECOND, results)
    return results


def _assert_same_numbers(found: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    """Bit for bit, but for the payload of a NaN."""
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    finite = ~np.isnan(expected)
    assert np.array_equal(found[finite].view(np.uint32), expected[finite].view(np.uint32))


@pytest.mark.parametrize("operation", ARITHMETIC, ids=lambda operation: operation.__name__)
def test_arithmetic_is_ieee_754s_in_each_lane(operation: Callable) -> None:
    with np.errstate(all="ignore"):
        _assert_same_numbers(_on_lanes(operation), operation(FIRST.copy(), SECOND))


@pytest.mark.parametrize("operation", COMPARISONS, ids=lambda operation: operation.__name__)
def test_comparisons_are_pythons_in_each_lane(operation: Callable) -> None:
    found = _on_lanes(kernel(lambda a, b: where(operation(a, b), lanes(ONE), lanes(ZERO))))
    assert np.array_equal(found, operation(FIRST, SECOND).astype(np.float32))


def test_both_of_two_masks() -> None:
    found = _on_lanes(kernel(lambda a, b: where((a > b) & (b > ZERO), lanes(ONE), lanes(ZERO))))
    assert np.array_equal(found, ((FIRST > SECOND) & (SECOND > 0)).astype(np.float32))


@pytest.mark.parametrize(
    ("of_lanes", "of_arrays"),
    [
        pytest.param(lambda a, b: -a, np.negative, id="negative"),
        pytest.param(lambda a, b: abs(a), np.abs, id="magnitude"),
        pytest.param(lambda a, b: math.sqrt(a), np.sqrt, id="square root"),
        pytest.param(lambda a, b: ONE / a, lambda a: ONE / a, id="a number on the left"),
        pytest.param(lambda a, b: a - ONE, lambda a: a - ONE, id="a number on the right"),
        pytest.param(lambda a, b: nearest_integer(a), np.vectorize(nearest, otypes=[np.float32]), id="nearest integer"),
    ],
)
def test_operations_on_one_value(of_lanes: Callable, of_arrays: Callable) -> None:
    with np.errstate(all="ignore"):
        _assert_same_numbers(_on_lanes(kernel(of_lanes)), of_arrays(FIRST))


def test_held_keeps_within_both_limits_and_takes_the_lower_for_a_nan() -> None:
    found = _on_lanes(kernel(lambda a, b: held(a, np.float32(-2), np.float32(3))))
    expected = np.where(np.isnan(FIRST), np.float32(-2), np.clip(FIRST, -2, 3))
    assert np.array_equal(found, expected)


def test_the_first_of_the_largest_magnitudes_is_the_extreme() -> None:
    v = np.random.default_rng(0).integers(-3, 4, (5, LANES)).astype(np.float32)
    found = np.empty(LANES, np.float32)
    kernel(lambda v, found: store(extremes(v), found, 0))(v, found)
    assert found.tolist() == [max(column.tolist(), key=abs) for column in v.T]


@pytest.mark.parametrize("size", [LANES, 2 * LANES])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_blocks_go_into_lanes_and_out_again(size: int, dtype: type) -> None:
    blocks = np.random.default_rng(1).integers(0, 256, (40, size)).astype(dtype)
    chosen = np.random.default_rng(2).permutation(40)[:LANES]
    v, codes = np.empty((size, LANES), np.float32), np.zeros((40, size), np.uint8)
    into_lanes(blocks, chosen, v)
    assert np.array_equal(v, blocks[chosen].T)
    out_of_lanes(v, chosen, codes)
    others = np.setdiff1d(np.arange(40), chosen)
    assert np.array_equal(codes[chosen], blocks[chosen])
    assert not codes[others].any()


def test_lanes_without_a_block_take_the_last_once_more() -> None:
    chosen = np.empty(LANES, np.intp)
    choose(np.arange(3, 8), 3, chosen)
    assert chosen.tolist() == [6] + [7] * (LANES - 1)
    assert [room_for_lanes(blocks).size for blocks in (0, 1, LANES, LANES + 1)] == [0, LANES, LANES, 2 * LANES]


def test_a_number_that_is_not_float32_is_not_taken() -> None:
    with pytest.raises(TypingError, match=r"No match"):
        _on_lanes(kernel(lambda a, b: operator.add(a, 0.5)))
