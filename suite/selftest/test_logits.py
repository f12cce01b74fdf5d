"""The comparison of logits against values known in closed form."""

import math
from pathlib import Path

import numpy as np
import pytest

from impl.errors import InputError
from suite.kit.logits import LogitsComparison, compare_logits


def _logits(*rows: list[float]) -> np.ndarray:
    return np.array(rows, dtype=np.float32)


def _plus(value: float) -> LogitsComparison:
    """Three steps of which the middle one's token 2 is off by ``value``."""
    reference = _logits([4, 1, 0, -8], [0, 4, 0, 0], [0, 0, 0, 4])
    measured = reference.copy()
    measured[1, 2] += np.float32(value)
    return compare_logits(reference, measured)


def test_figures_of_differences_that_are_exact_in_float32() -> None:
    reference = _logits([4, 1, 0, -8], [0, 4, 0, 0], [0, 0, 0, 4])
    measured = _logits([4.5, 1, 0, -8], [0, 4, 0, 6], [0, 0, -0.25, 4])
    comparison = compare_logits(reference, measured)
    assert comparison.step_maxima.tolist() == [0.5, 6, 0.25]
    assert (comparison.steps, comparison.step0, comparison.median, comparison.worst) == (3, 0.5, 0.5, 6)
    assert (comparison.worst_step, comparison.worst_token) == (1, 3)
    assert (comparison.equal_argmax, comparison.first_divergence) == (2, 1)
    assert comparison.reference_maximum == 8


@pytest.mark.parametrize("value", [0.5, math.nan])
def test_a_comparison_is_read_back_as_it_was_written(value: float, tmp_path: Path) -> None:
    comparison, path = _plus(value), tmp_path / "comparison.npz"
    comparison.save(path)
    again = LogitsComparison.load(path)
    for name, field in vars(comparison).items():
        assert np.array_equal(getattr(again, name), field)
        assert np.asarray(getattr(again, name)).dtype == np.asarray(field).dtype


def test_difference_is_taken_in_float64() -> None:
    """Float32 would round 2^24 - (-1) down to 2^24."""
    assert compare_logits(_logits([2**24, 0]), _logits([-1, 0])).worst == 2**24 + 1


def test_kl_divergence_of_known_distributions() -> None:
    """p = (1/2, 1/2) against q = (1/4, 3/4): ln(2/√3) nats. The other step is equal, so the mean is half."""
    reference, measured = _logits([0, 0], [3, 1]), _logits([0, math.log(3)], [3, 1])
    comparison = compare_logits(reference, measured)
    assert comparison.max_kl == pytest.approx(math.log(2 / math.sqrt(3)), rel=1e-6)
    assert comparison.mean_kl == pytest.approx(comparison.max_kl / 2, rel=1e-12)


def test_kl_divergence_is_the_references_against_the_measured() -> None:
    """It is not symmetric: from (1/4, 3/4) to (1/2, 1/2) it is ln 2 - entropy, 0.1308 and not 0.1438."""
    comparison = compare_logits(_logits([0, math.log(3)]), _logits([0, 0]))
    assert comparison.max_kl == pytest.approx(0.75 * math.log(3) - math.log(2), rel=1e-6)


def test_kl_divergence_ignores_a_shift_and_survives_large_logits() -> None:
    """(1/2, 1/2) against the softmax of (0, 1), 1000 and 3000 up: ln(1 + e) - 1/2 - ln 2."""
    comparison = compare_logits(_logits([1000, 1000], [1, 0]), _logits([3000, 3001], [501, 500]))
    assert comparison.kl_divergence.tolist() == pytest.approx([math.log1p(math.e) - 0.5 - math.log(2), 0], rel=1e-9)


@pytest.mark.parametrize(("value", "bound"), [(0.5, 0.5), (-0.5, 0.5), (0.0, 0.0)])
def test_just_inside_the_bound_passes(value: float, bound: float) -> None:
    _plus(value).require_within(bound)


def test_just_outside_the_bound_fails_and_says_where_and_what_would_pass() -> None:
    comparison = _plus(0.5)
    with pytest.raises(AssertionError) as failure:
        comparison.require_within(math.nextafter(0.5, 0))
    for part in ("step 1, token 2", "max|diff| 0.5", "bound 0.49999999999999994", "would pass is 0.5"):
        assert part in str(failure.value)


def test_bound_named_in_the_message_passes() -> None:
    comparison = _plus(1e-4)
    with pytest.raises(AssertionError) as failure:
        comparison.require_within(1e-5)
    comparison.require_within(float(str(failure.value).rsplit(" ", 1)[1]))


@pytest.mark.parametrize("bound", [math.inf, math.nan])
def test_bound_that_cannot_fail_is_refused(bound: float) -> None:
    with pytest.raises(InputError, match="expected a finite number"):
        _plus(0).require_within(bound)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("side", ["reference", "measured", "both"])
def test_not_finite_passes_nothing(value: float, side: str) -> None:
    reference, measured = (np.zeros((3, 4), dtype=np.float32) for _ in range(2))
    for name, logits in {"reference": reference, "measured": measured}.items():
        if side in (name, "both"):
            logits[1, 2] = value
    comparison = compare_logits(reference, measured)
    assert comparison.step_maxima.tolist() == [0, math.inf, 0]
    assert (comparison.worst_step, comparison.worst_token) == (1, 2)
    assert (comparison.equal_argmax, comparison.first_divergence) == (2, 1)
    assert comparison.mean_kl == comparison.max_kl == math.inf
    with pytest.raises(AssertionError, match="step 1, token 2: not a finite number; no bound would pass"):
        comparison.require_within(1e300)
    with pytest.raises(AssertionError, match="at 1 of 3 steps, first at step 1"):
        comparison.require_bit_identical()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_reference_maximum_is_never_nan(value: float) -> None:
    logits = _logits([value, 1])
    assert compare_logits(logits, logits).reference_maximum == math.inf


def test_equal_logits_are_bit_identical_and_never_diverge() -> None:
    comparison = _plus(0)
    comparison.require_bit_identical()
    assert comparison.bit_identical
    assert comparison.first_divergence is None


@pytest.mark.parametrize("other", [math.nextafter(1, 2) + 1e-7, 1 + 2**-23])
def test_one_unit_in_the_last_place_is_not_bit_identical(other: float) -> None:
    assert not compare_logits(_logits([1, 0]), _logits([other, 0])).bit_identical


def test_zero_and_minus_zero_differ_in_their_bits_alone() -> None:
    comparison = compare_logits(_logits([0.0, 1]), _logits([-0.0, 1]))
    assert comparison.worst == 0
    with pytest.raises(AssertionError, match="at 1 of 1 steps"):
        comparison.require_bit_identical()


def test_zero_vectors_are_equal() -> None:
    zeros = np.zeros((2, 3), dtype=np.float32)
    comparison = compare_logits(zeros, zeros)
    comparison.require_within(0)
    assert (comparison.reference_maximum, comparison.max_kl, comparison.equal_argmax) == (0, 0, 2)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
def test_nothing_to_compare_is_an_error(shape: tuple[int, int]) -> None:
    empty = np.zeros(shape, dtype=np.float32)
    with pytest.raises(InputError, match="nothing to compare"):
        compare_logits(empty, empty)


def test_other_shape_is_an_error_and_never_broadcast() -> None:
    with pytest.raises(InputError, match=r"found shape \[1, 3\], expected the reference's \[2, 3\]"):
        compare_logits(np.zeros((2, 3), dtype=np.float32), np.zeros((1, 3), dtype=np.float32))


@pytest.mark.parametrize("wrong", [np.zeros((2, 3)), np.zeros(3, dtype=np.float32)])
def test_other_dtype_or_rank_is_an_error(wrong: np.ndarray) -> None:
    with pytest.raises(InputError, match=r"expected float32\[steps, vocabulary\]"):
        compare_logits(wrong, wrong)
