"""A position's logits must not depend on what comes after it."""

import numpy as np
import pytest

from impl.protocol import Engine
from suite.claims import claim
from suite.kit.results import Measure
from suite.kit.runs import Runs


@claim("causality.float32")
def test_float32_logits_do_not_depend_on_later_tokens(
    runs: Runs, engine: Engine, backend: str, measured: Measure
) -> None:
    """On an f32 file the last prompt position's logits are the same bits alone and in the whole sequence."""
    difference = _prefix_dependence(runs, engine, backend, "f32")
    measured(_label(runs), difference)
    assert difference == 0


@claim("causality.blocks")
@pytest.mark.parametrize("recipe", ["q8_0", "q4_0", "q4_1", "q4_k_m"])
def test_block_quantized_logits_do_not_depend_on_later_tokens(
    runs: Runs, engine: Engine, backend: str, recipe: str, measured: Measure
) -> None:
    """On a quantized file they are too: an activation's scale comes from its own row's block."""
    difference = _prefix_dependence(runs, engine, backend, recipe)
    measured(_label(runs), difference)
    assert difference == 0


def _prefix_dependence(runs: Runs, engine: Engine, backend: str, recipe: str) -> float:
    file = runs.engine_file(engine, recipe)
    alone = runs.logits_of_prompt_alone(engine, backend, file)
    whole = runs.logits(engine, backend, file)[0]
    return float(np.abs(alone - whole).max())


def _label(runs: Runs) -> str:
    return f"position {len(runs.recording.prompt) - 1}, max|diff|"
