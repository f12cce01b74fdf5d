"""The reference run on the generated checkpoint."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from impl.errors import InputError
from suite.kit import reference_run, tiny
from suite.kit.reference_run import Recording

STEPS = 12


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints") / "tiny"
    tiny.build(folder)
    return folder


@pytest.fixture(scope="module")
def recording(checkpoint: Path) -> Recording:
    return reference_run.record(checkpoint, STEPS)


@pytest.fixture(scope="module")
def logits(checkpoint: Path, recording: Recording) -> np.ndarray:
    return reference_run.teacher_force(checkpoint, recording)


def test_prompt_is_the_articles_in_the_models_own_chat_template(checkpoint: Path, recording: Recording) -> None:
    text = AutoTokenizer.from_pretrained(checkpoint).decode(recording.prompt)
    assert text == "<|im_start|>user\nPlease explain what a CPU is.<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("absent", ["tokenizer_config.json", "chat_template"])
def test_checkpoint_without_a_chat_template_gets_the_plain_prompt(
    checkpoint: Path, tmp_path: Path, absent: str
) -> None:
    shutil.copytree(checkpoint, tmp_path / "plain")
    config = tmp_path / "plain" / "tokenizer_config.json"
    if absent == "chat_template":
        config.write_text(config.read_text().replace("chat_template", "ignored"))
    else:
        config.unlink()
    prompt = reference_run.record(tmp_path / "plain", 1).prompt
    assert len(prompt) == 37
    assert prompt[:4] == (1, 8, 15, 22)


def test_generation_and_teacher_forcing_agree(recording: Recording, logits: np.ndarray) -> None:
    assert logits.shape == (STEPS, len(tiny.SPECIAL) + 256 + len(tiny.MERGES))
    assert logits.dtype == np.float32
    assert logits.argmax(axis=1).tolist() == list(recording.continuation)
    reference_run.verify(recording, logits)


def test_no_stop_token_ends_the_recording(checkpoint: Path, recording: Recording, tmp_path: Path) -> None:
    """The same weights with their own first choice for end-of-text token still give every step."""
    shutil.copytree(checkpoint, tmp_path / "stops")
    config = tmp_path / "stops" / "config.json"
    first = recording.continuation[0]
    config.write_text(config.read_text().replace('"eos_token_id": 2', f'"eos_token_id": {first}'))
    assert reference_run.record(tmp_path / "stops", STEPS).continuation == recording.continuation


def test_first_step_is_the_last_prompt_position(checkpoint: Path, recording: Recording, logits: np.ndarray) -> None:
    model = reference_run.load_model(checkpoint)
    with torch.inference_mode():
        alone = model(torch.tensor([recording.prompt])).logits[0, -1].numpy()
    assert np.array_equal(alone, logits[0])


def test_changed_recording_is_found(recording: Recording, logits: np.ndarray) -> None:
    wrong = list(recording.continuation)
    wrong[7] = (wrong[7] + 1) % logits.shape[1]
    with pytest.raises(InputError, match=rf"step 7: the model picks token {recording.continuation[7]}.*{wrong[7]}"):
        reference_run.verify(replace(recording, continuation=tuple(wrong)), logits)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_not_finite_never_verify(recording: Recording, logits: np.ndarray, value: float) -> None:
    """NaN's argmax is its own place, which may be the recorded token's."""
    broken = logits.copy()
    broken[3, recording.continuation[3]] = value
    with pytest.raises(InputError, match="step 3: a logit is not a finite number"):
        reference_run.verify(recording, broken)


def test_missing_step_never_verifies(recording: Recording, logits: np.ndarray) -> None:
    with pytest.raises(InputError, match=f"found {STEPS - 1} steps, expected the recorded {STEPS}"):
        reference_run.verify(recording, logits[:-1])


def test_noise_floor_is_the_distance_to_float64(checkpoint: Path, recording: Recording, logits: np.ndarray) -> None:
    floor = reference_run.noise_floor(checkpoint, recording, logits)
    assert floor.shape == (STEPS,)
    assert floor.dtype == np.float64
    assert 0 < floor.max() < 1e-4
    shifted = logits.copy()
    shifted[5] += np.float32(0.25)
    assert reference_run.noise_floor(checkpoint, recording, shifted).argmax() == 5


def test_recording_of_another_checkpoint_is_refused(checkpoint: Path, recording: Recording) -> None:
    with pytest.raises(InputError, match="expected the recording's abc"):
        reference_run.teacher_force(checkpoint, replace(recording, checkpoint="abc"))


def test_recording_survives_its_file_one_field_a_line(recording: Recording, tmp_path: Path) -> None:
    path = reference_run.recording_path(tmp_path / "runs", "tiny", recording.checkpoint)
    assert path.name == f"tiny-{recording.checkpoint[:12]}.json"
    reference_run.save(recording, path)
    assert reference_run.load(path) == recording
    assert len(path.read_text().splitlines()) == 6


@pytest.mark.parametrize("content", ["", "[]", '{"checkpoint": "abc"}'])
def test_what_is_no_recording_is_refused_by_name(content: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"bad\.json: not a recorded reference run"):
        reference_run.load(path)


def test_digest_depends_on_configuration_and_every_shard(checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(checkpoint, folder)
    digest = reference_run.checkpoint_digest(folder)
    assert digest == reference_run.checkpoint_digest(checkpoint)
    (folder / "tokenizer.json").unlink()
    assert digest == reference_run.checkpoint_digest(folder)
    for path in [folder / "config.json", *folder.glob("*.safetensors")]:
        before = path.read_bytes()
        path.write_bytes(before + b" ")
        assert digest != reference_run.checkpoint_digest(folder)
        path.write_bytes(before)
