"""What an engine does when keys are missing."""

from functools import partial
from pathlib import Path

import pytest

from impl.protocol import Engine
from suite.claims import claim
from suite.kit import surgery
from suite.kit.logits import compare_logits
from suite.kit.results import Measure
from suite.kit.runs import Runs
from suite.kit.source import DEFAULT_FREQ_BASE

REQUIRED = (
    "llama.attention.head_count",
    "llama.attention.head_count_kv",
    "llama.block_count",
    "llama.embedding_length",
    "llama.rope.dimension_count",
    "llama.attention.layer_norm_rms_epsilon",
)
FREQ_BASE = "llama.rope.freq_base"


@claim("metadata.no-keys")
def test_a_file_without_keys_is_refused_by_name(runs: Runs, engine: Engine, backend: str) -> None:
    """A file without any key is an error that names ``llama.attention.head_count``."""
    bare = runs.edited(runs.file(engine, "q8_0"), "no-keys", surgery.drop_all_keys)
    _require_refusal(engine, backend, bare, "llama.attention.head_count")


@claim("metadata.required-key")
@pytest.mark.parametrize("key", REQUIRED)
def test_a_missing_required_key_is_refused_by_name(runs: Runs, engine: Engine, backend: str, key: str) -> None:
    """A file without one required key is an error that names it."""
    file = runs.engine_file(engine, "q8_0")
    _require_refusal(engine, backend, runs.edited(file, f"no-{key}", partial(surgery.drop_key, key=key)), key)


@claim("metadata.freq_base")
def test_a_missing_freq_base_is_10000_without_a_word(
    runs: Runs, engine: Engine, backend: str, measured: Measure
) -> None:
    """Without ``llama.rope.freq_base`` there is no error and the base is 10000: the logits are bit-identical
    to those of a file that says 10000, and other than the correct file's where the model has another base."""
    file = runs.engine_file(engine, "q8_0")
    without = runs.edited(file, "no-freq_base", partial(surgery.drop_key, key=FREQ_BASE))
    says_so = runs.edited(file, "freq_base-10000", partial(surgery.set_key, key=FREQ_BASE, content=DEFAULT_FREQ_BASE))
    correct, absent, explicit = (runs.logits(engine, backend, each) for each in (file, without, says_so))
    compare_logits(explicit, absent).require_bit_identical()
    difference = compare_logits(correct, absent).worst
    measured("worst step against the correct file", difference)
    theta = runs.source.rope_theta
    assert (difference > 0) == (theta != DEFAULT_FREQ_BASE), (
        f"without the key logits differ by {difference:.3g}, where the model's base is {theta} and the default "
        f"{DEFAULT_FREQ_BASE}"
    )


def _require_refusal(engine: Engine, backend: str, file: Path, key: str) -> None:
    with pytest.raises(Exception) as refusal:
        engine.load(file, backend)
    # The file is named after what was taken out of it.
    message = str(refusal.value).replace(file.name, "FILE")
    assert key in message, f"the error does not name {key}: {message}"
