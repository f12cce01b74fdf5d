"""A snapshot matches just inside its bound and not just outside, and says where it does not."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from impl.catalogue import resolve
from suite.kit.bounds import NOISE_FACTOR
from suite.kit.snapshots import FOLDER, METADATA, TOP, RecordedLogits, defects, differences, from_bytes, summarize
from suite.test_logits import BY_ERROR

NOISE = 2.0**-14
ROWS = np.arange(3 * 16, dtype=np.float32).reshape(3, 16)[:, ::-1].copy()


def recorded(arithmetic: str = "dequantized", worst: float = 0.5) -> RecordedLogits:
    metadata = {"checkpoint": "c", "arithmetic": arithmetic, "recipe": "q8_0", "noise_floor": repr(NOISE)}
    return summarize(ROWS, np.array([0.0, worst, 0.0]), metadata)


def moved(step: int, token: int, distance: float) -> RecordedLogits:
    rows = ROWS.copy()
    rows[step, token] += np.float32(distance)
    return replace(summarize(rows, np.zeros(3), {}), step_maxima=recorded().step_maxima, metadata=recorded().metadata)


def test_a_snapshot_is_read_back_as_it_was_written() -> None:
    again = from_bytes(recorded().to_bytes())
    assert again.metadata == recorded().metadata
    assert not list(differences(recorded(), again))


@pytest.mark.parametrize("values", [1, 4, 1000])
def test_the_top_tokens_are_those_of_a_whole_sort_ties_included(values: int) -> None:
    rows = np.random.default_rng(values).integers(0, values, (20, 300)).astype(np.float32)
    top = summarize(rows, np.zeros(20), {})
    expected = np.argsort(-rows, axis=1, kind="stable")[:, :TOP]
    assert np.array_equal(top.top_tokens, expected)
    assert np.array_equal(top.top_values, np.take_along_axis(rows, expected, axis=1))


@pytest.mark.parametrize(("step", "token"), [(0, 0), (0, 15), (2, 3)])
def test_just_inside_matches_and_just_outside_does_not(step: int, token: int) -> None:
    bound = NOISE_FACTOR * NOISE
    assert not list(differences(recorded(), moved(step, token, bound)))
    assert list(differences(recorded(), moved(step, token, bound * 1.1)))


def test_the_message_names_step_token_and_the_bound_that_would_pass() -> None:
    (first, *_) = differences(recorded(), moved(0, 15, 0.25))
    assert "step 0, token 15" in first
    assert "2.500e-01" in first


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_number_that_is_not_finite_never_matches(value: float) -> None:
    assert list(differences(recorded(), moved(0, 4, value)))
    assert list(differences(recorded("quantized-activations", worst=1e9), moved(0, 4, value)))


def test_quantized_activations_may_move_by_their_own_error_and_no_further() -> None:
    snapshot = recorded("quantized-activations", worst=0.5)
    near, far = (replace(moved(0, 15, distance), metadata=snapshot.metadata) for distance in (0.49, 0.51))
    assert not list(differences(snapshot, near))
    assert list(differences(snapshot, far))


def test_another_distance_from_the_reference_does_not_match() -> None:
    further = replace(recorded(), step_maxima=recorded().step_maxima + np.float32(0.01))
    assert any("distance from the reference" in line for line in differences(recorded(), further))


def test_another_token_matches_only_where_two_are_nearly_equal() -> None:
    swapped = recorded().top_tokens.copy()
    swapped[1, [0, 1]] = swapped[1, [1, 0]]
    assert any(
        "step 1: picks token" in line for line in differences(recorded(), replace(recorded(), top_tokens=swapped))
    )
    close = recorded().top_values.copy()
    close[1, 1] = close[1, 0]
    tie = replace(recorded(), top_values=close)
    assert not list(differences(tie, replace(tie, top_tokens=swapped)))


@pytest.mark.parametrize("key", ["checkpoint", "arithmetic", "recipe"])
def test_another_origin_never_matches(key: str) -> None:
    other = replace(recorded(), metadata={**recorded().metadata, key: "other"})
    assert list(differences(recorded(), other))


def test_another_shape_never_matches() -> None:
    shorter = replace(recorded(), step_maxima=recorded().step_maxima[:2])
    assert any("shape" in line for line in differences(recorded(), shorter))


@pytest.mark.parametrize("checkpoint", ["smollm2", "tiny"])
def test_every_recipe_and_arithmetic_of_the_reference_is_recorded(checkpoint: str) -> None:
    reference = resolve("reference")
    for backend in (*reference.default_backends, "mlx-cpu"):
        # MLX is slow on a CPU, where trained weights are measured in the window of the metal environment.
        window = "-first-11" if (checkpoint, backend) == ("smollm2", "mlx-cpu") else ""
        for recipe in BY_ERROR:
            path = FOLDER / f"{checkpoint}-reference-{backend}-{recipe}{window}.safetensors"
            metadata = from_bytes(path.read_bytes()).metadata
            assert (metadata["arithmetic"], metadata["recipe"]) == (reference.backends[backend], recipe)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.safetensors")), ids=lambda path: path.stem)
def test_every_snapshot_is_whole_whatever_device_it_was_recorded_on(path: Path) -> None:
    snapshot = from_bytes(path.read_bytes())
    assert not list(defects(snapshot))
    recorded_on = snapshot.metadata.get("device", "cpu").partition(",")[0]
    named = re.search("-mlx-(cpu|metal|cuda)-", path.name)
    assert not named or named.group(1) == recorded_on


WHOLE = replace(recorded(), metadata=dict.fromkeys(METADATA, "1"))
DAMAGE = {
    "metadata lacks recipe": {"metadata": {key: "1" for key in METADATA if key != "recipe"}},
    "top_tokens is int64": {"top_tokens": WHOLE.top_tokens.astype(np.int64)},
    rf"top_values is float32\[3, {TOP - 1}\]": {"top_values": WHOLE.top_values[:, 1:]},
    "step_maxima is float32": {"step_maxima": WHOLE.step_maxima[:, None]},
    "step0 has a number that is not finite": {"step0": np.full_like(WHOLE.step0, np.nan)},
    "other values for its top tokens": {"step0": WHOLE.step0 + 1},
    "not in descending order": {"top_values": WHOLE.top_values[:, ::-1]},
}
"""Changes to a whole snapshot, by what is found."""


@pytest.mark.parametrize("defect", DAMAGE)
def test_a_snapshot_that_is_not_whole_is_found(defect: str) -> None:
    assert not list(defects(WHOLE))
    assert any(re.search(defect, line) for line in defects(replace(WHOLE, **DAMAGE[defect])))
