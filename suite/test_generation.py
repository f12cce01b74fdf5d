"""Greedy generation against the reference run."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from impl.protocol import Engine
from suite.claims import claim
from suite.kit.bounds import summation_bound
from suite.kit.mismatches import first_difference
from suite.kit.results import Measure
from suite.kit.runs import Runs
from suite.kit.selection import require_generation

QUANTIZED = ("q8_0", "q4_k_m", "q4_k", "q4_0")


@claim("generation.f32")
def test_f32_file_generates_the_reference_continuation(
    runs: Runs, engine: Engine, backend: str, measured: Measure
) -> None:
    """Freely generating from an f32 file gives the reference's continuation, token for token."""
    expected = list(runs.recording.continuation)
    model = require_generation(engine.load(runs.engine_file(engine, "f32"), backend), engine)
    generated = model.generate(runs.recording.prompt, len(expected))
    measured.exactly("tokens as the reference", _common_prefix(generated, expected))
    parted = first_difference(generated, expected)
    assert not parted, f"another token {parted}"


@claim("generation.divergence")
@pytest.mark.parametrize("recipe", QUANTIZED)
def test_generation_leaves_the_reference_where_teacher_forcing_does(
    runs: Runs, engine: Engine, backend: str, recipe: str, measured: Measure
) -> None:
    """Free generation leaves the reference exactly where teacher forcing first picks another token, but for two tokens
    no further apart than another order of summation can put them."""
    file = runs.engine_file(engine, recipe)
    comparison = runs.against_reference(engine, backend, file)
    forced = comparison.first_divergence
    steps = len(runs.recording.continuation) if forced is None else forced + 1
    model = require_generation(engine.load(file, backend), engine)
    generated = model.generate(runs.recording.prompt, steps)
    left = _common_prefix(generated, runs.recording.continuation)
    measured(f"{engine.backends[backend]}, {recipe}: first divergence", left)
    assert len(generated) == steps, f"found {len(generated)} tokens, expected {steps}"
    if left != (steps if forced is None else forced):
        parted = left if forced is None else min(left, forced)
        row = runs.logits(engine, backend, file)[parted]
        _require_nearly_even(row[None], generated[parted : parted + 1], _bound(runs, engine, backend, file))


@claim("generation.cache")
@pytest.mark.parametrize("recipe", ["f32", "q8_0"])
def test_the_cache_changes_no_token(runs: Runs, engine: Engine, backend: str, recipe: str) -> None:
    """Decoding token by token with a cache picks what one pass over the whole sequence picks, but for two tokens no
    further apart than another order of summation can put them."""
    file = runs.engine_file(engine, recipe)
    model = require_generation(engine.load(file, backend), engine)
    prompt = list(runs.recording.prompt)
    generated = model.generate(prompt, 12)
    whole = model.logits([*prompt, *generated])[len(prompt) - 1 : -1]
    assert len(generated) == 12, f"found {len(generated)} tokens, expected 12"
    _require_nearly_even(whole, generated, _bound(runs, engine, backend, file))


def _bound(runs: Runs, engine: Engine, backend: str, file: Path) -> float:
    worst = runs.against_reference(engine, backend, file).worst
    # Two logits, each of which another order of summation may move.
    return 2 * summation_bound(engine.backends[backend], float(runs.noise_floor.max()), worst)


def _require_nearly_even(logits: NDArray[np.float32], picked: list[int], bound: float) -> None:
    """Each row's picked token must be its likeliest, or behind it by no more than ``bound``."""
    behind = logits.max(axis=1) - logits[np.arange(len(picked)), picked]
    assert behind.max() <= bound, (
        f"token {picked[behind.argmax()]} was picked, {behind.max():.3g} behind the likeliest; at most {bound:.3g} is "
        "another order of summation"
    )


def _common_prefix(generated: list[int], expected: tuple[int, ...] | list[int]) -> int:
    pairs = zip(generated, expected, strict=False)
    return next((step for step, (own, other) in enumerate(pairs) if own != other), min(len(generated), len(expected)))
