"""A position's logits must not depend on what comes after it."""

import numpy as np
import pytest

from impl.protocol import Engine
from suite.claims import claim
from suite.kit.results import Measure
from suite.kit.runs import Runs

LATER = 16
"""Tokens after the position that is looked at."""
BLOCKS = ("q8_0", "q4_0", "q4_1", "q4_k_m")


@claim("causality.float32")
def test_float32_logits_do_not_depend_on_later_tokens(
    runs: Runs, engine: Engine, backend: str, measured: Measure
) -> None:
    """On an f32 file the last prompt position's logits are the same bits whatever tokens follow.

    As many follow each time, so that every sum is made in the same order.
    """
    _require_independence(runs, engine, backend, "f32", measured)


@claim("causality.blocks")
@pytest.mark.parametrize("recipe", BLOCKS)
def test_block_quantized_logits_do_not_depend_on_later_tokens(
    runs: Runs, engine: Engine, backend: str, recipe: str, measured: Measure
) -> None:
    """On a quantized file they are too: an activation's scale comes from its own row's block."""
    _require_independence(runs, engine, backend, recipe, measured)


@claim("causality.alone")
@pytest.mark.parametrize("recipe", ("f32", *BLOCKS))
def test_logits_are_the_same_bits_alone_and_in_the_whole_sequence(
    runs: Runs, engine: Engine, backend: str, recipe: str, measured: Measure
) -> None:
    """The last prompt position's logits are the same bits in the prompt alone and in the whole sequence: no sum's order
    depends on the number of rows."""
    file = runs.engine_file(engine, recipe)
    alone = runs.logits_of_prompt_alone(engine, backend, file)
    whole = runs.logits(engine, backend, file)[0]
    _require_no_difference(alone, whole, runs, measured)


def _require_independence(runs: Runs, engine: Engine, backend: str, recipe: str, measured: Measure) -> None:
    prompt, later = list(runs.recording.prompt), list(runs.recording.continuation[:LATER])
    other = [(token + 1) % runs.source.config["vocab_size"] for token in later]
    model = engine.load(runs.engine_file(engine, recipe), backend)
    first, second = (np.array(model.logits([*prompt, *following])[len(prompt) - 1]) for following in (later, other))
    _require_no_difference(first, second, runs, measured)


def _require_no_difference(first: np.ndarray, second: np.ndarray, runs: Runs, measured: Measure) -> None:
    difference = float(np.abs(first - second).max())
    label = f"position {len(runs.recording.prompt) - 1}, max|diff|"
    measured(label, difference)
    assert difference == 0, f"{label} is {difference:.3g}, expected 0"
