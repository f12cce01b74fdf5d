"""Logits against the reference run: how far each file is from it, and that a fault shows."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion

from impl.protocol import Engine
from suite.claims import claim
from suite.kit import surgery
from suite.kit.bounds import float32_bound
from suite.kit.logits import LogitsComparison, compare_logits
from suite.kit.results import Measure
from suite.kit.runs import Runs
from suite.kit.source import DEFAULT_FREQ_BASE

BY_ERROR = ("f32", "q8_0", "q4_k_m", "q4_k", "q4_0")
"""Recipes from the smallest error to the largest."""

FAULTS = {
    "no freq_base": partial(surgery.drop_key, key="llama.rope.freq_base"),
    "noperm": surgery.without_permutation,
}


@claim("logits.f32")
def test_f32_file_is_as_near_as_float32_can_be(runs: Runs, engine: Engine, backend: str, measured: Measure) -> None:
    """An f32 file differs from the reference by no more than the article's 1.05e-4, nor than three times the
    reference's own distance from float64, and picks the same token at every step."""
    comparison = runs.against_reference(engine, backend, runs.engine_file(engine, "f32"))
    floor = float(runs.noise_floor.max())
    measured("noise floor: the reference against float64, worst", floor)
    measured.series("noise floor", runs.noise_floor)
    measured.series("f32", comparison.step_maxima)
    _measure(measured, engine.backends[backend], comparison)
    assert comparison.equal_argmax == comparison.steps, (
        f"another token at {comparison.steps - comparison.equal_argmax} of {comparison.steps} steps, the first at "
        f"{comparison.first_divergence}"
    )
    comparison.require_within(float32_bound(floor))


@claim("logits.ordering")
def test_errors_are_ordered_by_recipe(runs: Runs, engine: Engine, backend: str, measured: Measure) -> None:
    """By the median of the step maxima, f32 < q8_0 < q4_k_m < q4_k < q4_0."""
    medians = []
    for recipe in BY_ERROR:
        comparison = runs.against_reference(engine, backend, runs.engine_file(engine, recipe))
        _measure(measured, f"{engine.backends[backend]}, {recipe}", comparison)
        measured.series(recipe, comparison.step_maxima)
        medians.append(comparison.median)
    assert all(np.isfinite(medians)), f"medians {dict(zip(BY_ERROR, medians, strict=True))} are not all finite"
    assert medians == sorted(set(medians)), f"medians {dict(zip(BY_ERROR, medians, strict=True))} are out of order"


@claim("logits.mix-and-importance")
def test_mix_and_importance_each_take_off_some_error(
    runs: Runs, engine: Engine, backend: str, measured: Measure
) -> None:
    """Two gains lie between a q4_k file and a Q4_K_M made with an importance matrix: by the mean KL divergence, q4_k_m
    is nearer to the reference than q4_k, and q4_k_m by importance nearer still."""
    files = {
        "q4_k": runs.engine_file(engine, "q4_k"),
        "q4_k_m": runs.engine_file(engine, "q4_k_m"),
        "q4_k_m by importance": runs.engine_file(engine, "q4_k_m", by_importance=True),
    }
    comparisons = {name: runs.against_reference(engine, backend, file) for name, file in files.items()}
    for name, comparison in comparisons.items():
        _measure(measured, f"{engine.backends[backend]}, {name}", comparison)
        measured.series(name, comparison.step_maxima)
    plain, mixed, weighed = (comparison.mean_kl for comparison in comparisons.values())
    assert plain > mixed > weighed, f"mean KL divergences {plain:.4g}, {mixed:.4g}, {weighed:.4g} are out of order"
    measured("the mix's share of the gain in mean KL divergence", (plain - mixed) / (plain - weighed))
    measured("the importance matrix's share of it", (mixed - weighed) / (plain - weighed))


@claim("logits.faults-stand-out")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_stands_out_of_its_types_error(
    runs: Runs, engine: Engine, backend: str, fault: str, measured: Measure
) -> None:
    """A q8_0 file without freq_base, or with q and k unpermuted, is at its median step further from the
    reference than the correct file at its worst; where the model's own base is the default, a file without
    freq_base gives the correct file's logits."""
    file = runs.engine_file(engine, "q8_0")
    correct = runs.against_reference(engine, backend, file)
    faulty = runs.against_reference(engine, backend, runs.edited(file, fault.replace(" ", "-"), FAULTS[fault]))
    measured("correct file: worst", correct.worst)
    measured.series("correct file", correct.step_maxima)
    _measure(measured, f"{engine.backends[backend]}, {fault}", faulty)
    measured.series(fault, faulty.step_maxima)
    harmless = fault == "no freq_base" and runs.source.rope_theta == DEFAULT_FREQ_BASE
    assert np.isfinite(correct.worst)
    assert faulty.median > correct.worst or (harmless and faulty.worst == correct.worst), (
        f"median with {fault} {faulty.median:.4g}, expected more than the correct file's worst {correct.worst:.4g}"
    )


@claim("logits.own-equals-independent")
def test_own_and_independent_q8_0_give_the_same_logits(runs: Runs, engine: Engine, backend: str) -> None:
    """The converted q8_0 file and llama.cpp's give bit-identical logits."""
    own = runs.logits(engine, backend, runs.engine_file(engine, "q8_0"))
    independent = runs.logits(engine, backend, runs.independent_file("Q8_0"))
    compare_logits(own, independent).require_bit_identical()


@claim("logits.repeatable")
def test_the_same_prompt_twice_gives_the_same_logits(runs: Runs, engine: Engine, backend: str) -> None:
    """A loaded model keeps nothing from one sequence to the next: the same tokens give the same bits again."""
    model = engine.load(runs.engine_file(engine, "q8_0"), backend)
    prompt = list(runs.recording.prompt)
    first = np.array(model.logits(prompt))
    model.logits(prompt[:5])
    if hasattr(model, "generate"):
        model.generate(prompt[:5], 2)
    compare_logits(first, model.logits(prompt)).require_bit_identical()


@claim("logits.snapshot")
@pytest.mark.parametrize("recipe", BY_ERROR)
def test_logits_match_the_snapshot(
    runs: Runs, engine: Engine, backend: str, recipe: str, logits_snapshot: Callable[[str], SnapshotAssertion]
) -> None:
    """Logits are what was recorded of this implementation, backend and recipe on this checkpoint."""
    recorded = logits_snapshot(runs.snapshot_name(engine, backend, recipe))
    assert runs.summary(engine, backend, recipe) == recorded


def _measure(measured: Measure, prefix: str, comparison: LogitsComparison) -> None:
    measured.each(prefix, comparison.figures)
    measured(f"{prefix}: mean KL divergence, nats", comparison.mean_kl)
