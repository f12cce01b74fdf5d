"""Two ways to write the same rotation: permuted rows and adjacent pairs, or rows as they are and halves."""

from pathlib import Path

import numpy as np

from impl.protocol import Engine
from suite.claims import claim
from suite.kit import surgery
from suite.kit.bounds import float32_bound
from suite.kit.logits import compare_logits
from suite.kit.results import Measure, NotOffered
from suite.kit.runs import Runs


@claim("rope.neox")
def test_neox_equals_permuted_up_to_the_order_of_summation(
    runs: Runs, engine: Engine, backend: str, measured: Measure
) -> None:
    """A q8_0 file with its rows put back and its architecture named qwen2 gives the permuted file's logits.

    With float32 activations they differ by no more than float32 summation order does. With quantized
    activations that difference moves activations across rounding boundaries, and at the median step they
    differ by no more than the permuted file differs from the reference.
    """
    file = runs.engine_file(engine, "q8_0")
    neox = runs.logits(engine, backend, _neox(runs, engine, backend, file))
    comparison = compare_logits(runs.logits(engine, backend, file), neox)
    arithmetic = engine.backends[backend]
    measured.each(arithmetic, comparison.figures)
    if arithmetic == "dequantized":
        assert comparison.equal_argmax == comparison.steps
        comparison.require_within(float32_bound(float(runs.noise_floor.max())))
    else:
        own_error = runs.against_reference(engine, backend, file).median
        measured(f"{arithmetic}, permuted file against the reference: median", own_error)
        assert comparison.median <= own_error < np.inf


@claim("rope.neox-bit-for-bit")
def test_f32_neox_equals_transformers_bit_for_bit(runs: Runs, engine: Engine, backend: str) -> None:
    """An f32 file with the checkpoint's own row order does the reference's arithmetic: not one bit differs."""
    neox = _neox(runs, engine, backend, runs.engine_file(engine, "f32"))
    measured_logits = runs.logits(engine, backend, neox)
    compare_logits(np.asarray(runs.reference_logits), measured_logits).require_bit_identical()


def _neox(runs: Runs, engine: Engine, backend: str, file: Path) -> Path:
    """The file with its rows put back and its architecture named qwen2.

    Its keys still begin with ``llama.``, as candle reads them for every architecture. An engine may well refuse such
    a file, and then has no answer.
    """
    neox = runs.edited(file, "neox", surgery.neox)
    try:
        engine.load(neox, backend)
    except Exception as refusal:
        raise NotOffered(f"{engine.name} reads no qwen2 file with llama's keys: {refusal}") from refusal
    return neox
