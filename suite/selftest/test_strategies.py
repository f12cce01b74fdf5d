"""Generated blocks reach what they are meant to reach, come again the same, and shrink to what matters."""

import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from impl.errors import InputError
from suite.kit.block_cases import GENERATED
from suite.kit.strategies import LARGEST, Case, cases, generated, shrunk
from suite.test_fuzzing import difference

SMALLEST_NORMAL = np.finfo(np.float32).smallest_normal
quickly = settings(max_examples=40, derandomize=True, database=None, deadline=None)


@pytest.fixture(scope="module")
def blocks() -> list[NDArray[np.float32]]:
    return [case.weight[0] for case in generated(32, False, 3 * GENERATED)]


def steps_of(block: NDArray[np.float32], codes: int) -> NDArray[np.float64]:
    """The weights in steps of the extreme over ``codes``."""
    step = np.abs(block).max() / codes
    return block / step if step else block * 0.0


REACHED: dict[str, Callable[[NDArray[np.float32]], bool]] = {
    "a tie of Q8_0, to an even code and an odd one": lambda block: (
        {0.5, 1.5} <= set((np.abs(steps_of(block, 127)) % 2).tolist())
    ),
    "a tie of Q4_0": lambda block: bool((np.abs(steps_of(block, 8)) % 1 == 0.5).any()),
    "zeros of both signs": lambda block: {False, True} == set(np.signbit(block[block == 0]).tolist()),
    "subnormal weights": lambda block: bool((np.abs(block) > 0).any() and np.abs(block).max() < SMALLEST_NORMAL),
    "a scale that float16 loses": lambda block: 0 < np.abs(block).max() / 127 < 2.0**-25,
    "weights near the largest": lambda block: np.abs(block).max() > LARGEST / 2,
    "a constant block": lambda block: bool(block[0]) and bool((block == block[0]).all()),
    "the extreme first": lambda block: bool((np.abs(block[0]) > np.abs(block[1:])).all()),
    "the extreme last": lambda block: bool((np.abs(block[-1]) > np.abs(block[:-1])).all()),
    "ordinary weights": lambda block: len(np.unique(block)) > 24,
}


@pytest.mark.parametrize("trait", REACHED)
def test_generated_blocks_reach(trait: str, blocks: list[NDArray[np.float32]]) -> None:
    assert any(REACHED[trait](block) for block in blocks)


@pytest.mark.parametrize("with_importance", [False, True])
@pytest.mark.parametrize("values", [32, 256])
def test_a_case_is_one_finite_block(values: int, with_importance: bool) -> None:
    @quickly
    @given(cases(values, with_importance))
    def check(case: Case) -> None:
        assert (case.weight.dtype, case.weight.shape) == (np.float32, (1, values))
        assert (np.abs(case.weight) <= LARGEST).all()
        assert (case.importance is not None) == with_importance
        if with_importance:
            assert (case.importance.dtype, case.importance.shape) == (np.float32, case.weight.shape[1:])
            assert np.isfinite(case.importance).all() and (case.importance >= 0).all()

    check()


@quickly
@given(cases(32, True))
def test_what_is_printed_makes_the_same_case(case: Case) -> None:
    pasted: dict[str, NDArray[np.float32]] = {}
    exec(str(case), {"np": np}, pasted)
    assert pasted["weight"].tobytes() == case.weight.tobytes()
    assert pasted["importance"].tobytes() == case.importance.tobytes()


def test_the_same_cases_come_at_every_call() -> None:
    cases_of_a_call = list(map(str, generated(64, True, 20)))
    generated.cache_clear()
    assert list(map(str, generated(64, True, 20))) == cases_of_a_call


def has_a_half(case: Case) -> bool:
    return bool((case.weight % 1 == 0.5).any())


def test_a_case_shrinks_to_what_makes_it_one() -> None:
    first = next(case for case in generated(32, False, GENERATED) if has_a_half(case))
    simplest = shrunk(first, has_a_half, GENERATED)
    assert np.count_nonzero(simplest.weight) <= 3
    assert has_a_half(simplest)


def test_a_case_that_is_not_met_again_stands_as_it_is() -> None:
    case = one_weight(1)
    assert shrunk(case, lambda other: other is case, 5) is case


# What is a difference


class Fixed:
    """Answers every block alike."""

    name = "fixed"

    def __init__(self, answer: bytes | Exception) -> None:
        self.answer = answer

    def quantize(self, weight: NDArray, type: str, importance: NDArray | None = None) -> NDArray[np.uint8]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return np.frombuffer(self.answer, np.uint8)[None]


def one_weight(weight: float) -> Case:
    return Case(np.array([[weight, *31 * [0.0]]], np.float32), None)


def test_ggmls_own_bytes_are_no_difference() -> None:
    case = one_weight(127)
    assert difference(Fixed(bytes.fromhex("003c7f") + bytes(31)), "q8_0", case) == ""


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (bytes.fromhex("003c7f") + bytes(30) + b"\1", "1 of a block's 34 bytes differ from ggml's, the first at 33"),
        (InputError("no"), "a block is refused that ggml quantizes: no"),
    ],
)
def test_a_difference_is_described(answer: bytes | Exception, message: str) -> None:
    found = difference(Fixed(answer), "q8_0", one_weight(127))
    assert re.match(message, found), found


def test_a_block_of_which_ggml_keeps_nothing_may_be_refused() -> None:
    assert difference(Fixed(InputError("too small")), "q8_0", one_weight(1e-40)) is None
    assert difference(Fixed(InputError("zero")), "q8_0", one_weight(0))


def test_a_block_that_overflows_or_that_ggml_refuses_decides_nothing() -> None:
    assert difference(Fixed(bytes(34)), "q8_0", one_weight(1e7)) is None
    assert difference(Fixed(bytes(74)), "iq2_xs", Case(np.ones((1, 256), np.float32), None)) is None
