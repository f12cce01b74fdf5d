"""The weights that byte claims are made on are what their names say."""

import subprocess
import sys

import numpy as np
import pytest

from suite.kit.block_inputs import COLUMNS, FINITE, IMPORTANCES, NON_FINITE, ROWS, TOO_LARGE, BlockInput

EVERY_INPUT = (*FINITE, *TOO_LARGE, *NON_FINITE)
FLOAT16_LIMIT = 65504


def _named(name: str) -> BlockInput:
    return next(block_input for block_input in EVERY_INPUT if block_input.name == name)


def test_every_name_is_its_own_and_says_what_it_catches() -> None:
    for table in (EVERY_INPUT, IMPORTANCES):
        assert len({entry.name for entry in table}) == len(table)
        assert all(entry.catches for entry in table)


@pytest.mark.parametrize("block_input", EVERY_INPUT, ids=lambda block_input: block_input.name)
def test_an_input_is_the_same_at_every_call(block_input: BlockInput) -> None:
    weight = block_input.weight()
    assert weight.dtype == np.float32
    assert weight.shape == (ROWS, COLUMNS)
    assert weight.tobytes() == block_input.weight().tobytes()


def test_finite_inputs_fit_a_float16_scale_and_the_others_do_not() -> None:
    for block_input in FINITE:
        assert np.abs(block_input.weight()).max() < FLOAT16_LIMIT, block_input.name
    for block_input in TOO_LARGE:
        assert np.isfinite(block_input.weight()).all(), block_input.name
        assert np.abs(block_input.weight()).max() / 127 > FLOAT16_LIMIT, block_input.name
    for block_input in NON_FINITE:
        assert np.count_nonzero(~np.isfinite(block_input.weight())) == 1, block_input.name


def test_no_two_finite_inputs_are_alike() -> None:
    assert len({block_input.weight().tobytes() for block_input in FINITE}) == len(FINITE)


def test_ties_are_exactly_half_way_between_two_steps() -> None:
    blocks = _named("ties").weight().reshape(-1, 16) * 64
    steps = np.abs(blocks[:, 1:])
    assert np.array_equal(steps % 1, np.full_like(steps, 0.5))
    assert (steps < np.abs(blocks[:, :1])).all()


def test_signed_zeros_are_of_both_signs() -> None:
    weight = _named("signed zeros").weight()
    assert not weight.any()
    assert {False, True} == set(np.signbit(weight).ravel().tolist())


def test_both_extremes_stand_in_every_block_of_16() -> None:
    blocks = _named("both extremes").weight().reshape(-1, 16)
    assert np.array_equal(blocks.max(axis=1), -blocks.min(axis=1))


def test_vanishing_weights_reach_into_the_subnormals() -> None:
    magnitudes = np.abs(_named("vanishing").weight())
    assert 0 < magnitudes[magnitudes > 0].min() < np.finfo(np.float32).smallest_normal
    assert magnitudes.max() < 1e-15


@pytest.mark.parametrize("importance", IMPORTANCES, ids=lambda importance: importance.name)
def test_an_importance_weighs_every_column(importance: object) -> None:
    columns = importance.columns()
    assert columns.dtype == np.float32
    assert columns.shape == (COLUMNS,)
    assert np.isfinite(columns).all()
    assert (columns >= 0).all()


def test_the_inputs_know_nothing_of_the_reference() -> None:
    program = "import sys, suite.kit.block_inputs; print([name for name in sys.modules if 'reference' in name])"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
