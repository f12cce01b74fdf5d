"""A window of the reference run: fewer steps measured, and nothing measured on them passes for all of them."""

import argparse
from pathlib import Path

import pytest

from impl.catalogue import resolve
from impl.protocol import Device
from suite.claims import CLAIMS
from suite.kit.artifacts import ArtifactStore
from suite.kit.checkpoints import find_checkpoint
from suite.kit.devices import keyed_by_device
from suite.kit.results import Measure
from suite.kit.runs import Runs
from suite.kit.selection import count
from suite.kit.session import RECORDINGS


def figures(claim: str, window: int | None, *labels: str) -> dict[str, float | None]:
    """By label as recorded, the article's figure beside it."""
    measure = Measure(CLAIMS[claim], True, [], window)
    for label in labels:
        measure(label, 1)
    return {figure["label"]: figure["article"] for _, figure in measure.properties}


def test_figures_over_a_window_say_so_and_stand_beside_none_of_the_articles() -> None:
    worst, first = "dequantized: worst", "dequantized: step 0"
    assert figures("logits.f32", None, worst, first) == {worst: 1e-4, first: 6.58e-5}
    assert figures("logits.f32", 11, worst, first) == {f"{worst}, first 11 steps": None, first: 6.58e-5}


def test_figures_over_no_steps_are_the_same_in_a_window() -> None:
    assert figures("conversion.names", 11, "tensors") == {"tensors": 272}


def test_the_articles_count_over_all_steps_is_not_asked_of_a_window() -> None:
    whole, window = (Measure(CLAIMS["generation.f32"], True, [], steps) for steps in (None, 11))
    window.exactly("tokens as the reference", 11)
    with pytest.raises(AssertionError, match="270"):
        whole.exactly("tokens as the reference", 11)


@pytest.fixture
def tiny(pytestconfig: pytest.Config) -> Runs:
    checkpoint = find_checkpoint("tiny", pytestconfig.getoption("--cache"))
    return Runs(checkpoint, ArtifactStore(Path()), (RECORDINGS,))


@pytest.mark.parametrize(("steps", "measured", "window"), [(None, 270, None), (11, 11, 11), (270, 270, None)])
def test_a_window_is_the_first_steps(tiny: Runs, steps: int | None, measured: int, window: int | None) -> None:
    runs = Runs(tiny.checkpoint, tiny.store, tiny.recordings, steps)
    assert runs.recording.continuation == tiny.recording.continuation[:measured]
    assert runs.recording.prompt == tiny.recording.prompt
    assert runs.window == window


def test_a_snapshot_of_a_window_has_a_name_of_its_own(tiny: Runs) -> None:
    window = Runs(tiny.checkpoint, tiny.store, tiny.recordings, 11)
    names = [runs.snapshot_name(resolve("reference"), "mlx-cpu", "q8_0") for runs in (tiny, window)]
    assert names == ["tiny-reference-mlx-cpu-q8_0", "tiny-reference-mlx-cpu-q8_0-first-11"]


@pytest.mark.parametrize(
    ("backend", "device", "key"),
    [
        ("cpu", None, "cpu"),
        ("mlx", Device("cpu", "AMD"), "mlx-cpu"),
        ("mlx", Device("metal", "Apple M9"), "mlx-metal"),
        ("mlx-metal", Device("metal", "Apple M9"), "mlx-metal"),
    ],
)
def test_snapshots_are_keyed_by_the_device_that_computed(backend: str, device: Device | None, key: str) -> None:
    assert keyed_by_device(backend, device) == key


@pytest.mark.parametrize("text", ["0", "-1", "", "eleven"])
def test_a_window_of_no_steps_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="no positive number"):
        count(text)
