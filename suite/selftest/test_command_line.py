"""``python -m impl``: its results, and a user's mistake answered in one line with nothing left behind."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from impl.__main__ import main
from impl.catalogue import BUILT_IN, resolve
from impl.errors import InputError
from suite.selftest.small_checkpoint import TOKENIZER, write_checkpoint

DOWN = "model.layers.1.mlp.down_proj.weight"
SINGLE = "model.safetensors"
SECOND_SHARD = "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"


def poisoned(value: float) -> dict:
    weight = np.zeros((64, 256), ml_dtypes.bfloat16)
    weight[3, 5] = value
    return {DOWN: weight}


def edit_json(path: Path, edit: Callable[[dict], object]) -> None:
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def with_config(**changes: object) -> Callable[[Path], None]:
    """A checkpoint whose config.json says otherwise; None drops the key."""

    def write(folder: Path) -> None:
        write_checkpoint(folder)
        kept = {key: value for key, value in changes.items() if value is not None}
        edit_json(folder / "config.json", lambda config: config.update(changes))
        edit_json(folder / "config.json", lambda config: [config.pop(key) for key in changes.keys() - kept])

    return write


def with_edits(edits: dict) -> Callable[[Path], None]:
    return lambda folder: write_checkpoint(folder, edits=edits)


def with_tokenizer(**changes: object) -> Callable[[Path], None]:
    return lambda folder: write_checkpoint(folder, tokenizer={**TOKENIZER, **changes})


def with_model(**changes: object) -> Callable[[Path], None]:
    return with_tokenizer(model={**TOKENIZER["model"], **changes})


def without(file: str, shards: int = 1) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        write_checkpoint(folder, shards=shards)
        (folder / file).unlink()

    return write


def with_text(file: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (write_checkpoint(folder) / file).write_text(text)


def truncated(folder: Path) -> None:
    path = write_checkpoint(folder) / SINGLE
    path.write_bytes(path.read_bytes()[:-1])


def index_names_what_no_shard_holds(folder: Path) -> None:
    write_checkpoint(folder, shards=2)
    edit_json(folder / INDEX, lambda index: index["weight_map"].update({"model.ghost.weight": SECOND_SHARD}))


def index_omits_a_tensor(folder: Path) -> None:
    write_checkpoint(folder, shards=2)
    edit_json(folder / INDEX, lambda index: index["weight_map"].pop(DOWN))


YARN = {"rope_type": "yarn", "factor": 4.0}
LOWERCASE = {"type": "Lowercase"}
WHITESPACE = {"type": "Whitespace"}

BAD_CHECKPOINTS: dict[str, tuple[Callable[[Path], object], Sequence[str]]] = {
    "no folder": (lambda folder: None, ["checkpoint", "no such folder"]),
    "no config": (without("config.json"), ["config.json"]),
    "config not JSON": (with_text("config.json", "{"), ["config.json", "not JSON"]),
    "config a list": (with_text("config.json", "[]"), ["config.json", "JSON object"]),
    "no head count": (with_config(num_attention_heads=None), ["config.json", "num_attention_heads"]),
    "no eps": (with_config(rms_norm_eps=None), ["rms_norm_eps", "missing"]),
    "text for a number": (with_config(hidden_size="64"), ["hidden_size", "'64'"]),
    "negative number": (with_config(rope_theta=-1.0), ["rope_theta", "-1.0"]),
    "text for a flag": (with_config(tie_word_embeddings="yes"), ["tie_word_embeddings", "'yes'"]),
    "another model type": (with_config(model_type="qwen2"), ["model_type", "'qwen2'", "'llama'"]),
    "another architecture": (with_config(architectures=["GPT2LMHeadModel"]), ["GPT2LMHeadModel"]),
    "another activation": (with_config(hidden_act="gelu"), ["hidden_act", "'gelu'"]),
    "uneven grouping": (with_config(num_key_value_heads=3), ["8 heads", "3 key-value heads"]),
    "unknown scaling": (with_config(rope_scaling=YARN), ["rope_type", "'yarn'"]),
    "scaling without factor": (with_config(rope_scaling={"type": "linear"}), ["factor", "missing"]),
    "no weights": (without(SINGLE), [SINGLE, INDEX]),
    "truncated": (truncated, [SINGLE, "not a whole safetensors file"]),
    "not safetensors": (with_text(SINGLE, "weights"), [SINGLE]),
    "missing shard": (without(SECOND_SHARD, shards=2), [SECOND_SHARD, "missing"]),
    "index not JSON": (lambda folder: _broken_index(folder, "{"), [INDEX, "not JSON"]),
    "index without map": (lambda folder: _broken_index(folder, "{}"), [INDEX, "weight_map"]),
    "index too long": (index_names_what_no_shard_holds, ["model.ghost.weight", SECOND_SHARD]),
    "index too short": (index_omits_a_tensor, [DOWN, INDEX]),
    "missing tensor": (with_edits({DOWN: None}), [DOWN, "missing"]),
    "wrong shape": (with_edits({DOWN: np.zeros((64, 255), np.float32)}), [DOWN, "[64, 255]", "[64, 256]"]),
    "transposed": (with_edits({DOWN: np.zeros((256, 64), np.float32)}), [DOWN, "[256, 64]", "[64, 256]"]),
    "integers": (with_edits({DOWN: np.zeros((64, 256), np.int32)}), [DOWN, "I32"]),
    "unexpected tensor": (with_edits({"model.extra.weight": np.zeros(3, np.float32)}), ["model.extra.weight"]),
    "bias not in the config": (with_config(attention_bias=False), ["_proj.bias", "unexpected"]),
    "NaN": (with_edits(poisoned(np.nan)), [DOWN, "nan", "[3, 5]"]),
    "Inf": (with_edits(poisoned(-np.inf)), [DOWN, "-inf", "[3, 5]"]),
    "vocabulary below the rows": (with_config(vocab_size=36), ["embed_tokens", "[40, 64]", "[36, 64]"]),
    "no tokenizer": (without("tokenizer.json"), ["tokenizer.json"]),
    "tokenizer not JSON": (with_text("tokenizer.json", "?"), ["tokenizer.json", "not JSON"]),
    "tokenizer config not JSON": (with_text("tokenizer_config.json", "?"), ["tokenizer_config.json"]),
    "another tokenizer model": (with_model(type="Unigram"), ["tokenizer.json", "'Unigram'"]),
    "merge of no token": (with_model(merges=["a z"]), ["tokenizer.json", "not a whole tokenizer"]),
    "tokenizer without tokens": (with_text("tokenizer.json", '{"model": {"type": "BPE"}}'), ["tokenizer.json"]),
    "SentencePiece": (with_model(byte_fallback=True), ["tokenizer.json", "SentencePiece"]),
    "normalizer": (with_tokenizer(normalizer=LOWERCASE), ["tokenizer.json", "'Lowercase'"]),
    "unknown pre-tokenizer": (with_tokenizer(pre_tokenizer=WHITESPACE), ["pre_tokenizer", "Whitespace"]),
    "vocabulary above the rows": (with_model(vocab={"a": 40}, merges=[]), ["'a'", "40", "vocab_size"]),
}


def _broken_index(folder: Path, text: str) -> None:
    (write_checkpoint(folder, shards=2) / INDEX).write_text(text)


def run(capsys: pytest.CaptureFixture, *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def require_one_line(error: str, names: Sequence[str]) -> None:
    assert error.startswith("error: ") and error.count("\n") == 1 and error.endswith("\n"), error
    for name in names:
        assert name in error


@pytest.fixture
def output(tmp_path: Path) -> Path:
    folder = tmp_path / "output"
    folder.mkdir()
    return folder / "model.gguf"


@pytest.mark.parametrize("case", BAD_CHECKPOINTS)
def test_a_bad_checkpoint_is_one_line_and_no_file(
    case: str, tmp_path: Path, output: Path, capsys: pytest.CaptureFixture
) -> None:
    write, names = BAD_CHECKPOINTS[case]
    write(tmp_path / "checkpoint")
    code, out, error = run(capsys, "convert", tmp_path / "checkpoint", output)
    assert (code, out) == (2, "")
    require_one_line(error, names)
    assert not list(output.parent.iterdir())


def test_a_weight_too_large_for_the_type_is_one_line_naming_the_tensor(
    tmp_path: Path, output: Path, capsys: pytest.CaptureFixture
) -> None:
    write = with_edits(poisoned(1e6))
    write(tmp_path / "checkpoint")
    code, _, error = run(capsys, "convert", tmp_path / "checkpoint", output, "--recipe", "f16")
    assert code == 2
    require_one_line(error, ["blk.1.ffn_down.weight", "row 3", "f16"])
    assert not list(output.parent.iterdir())


def test_an_unknown_recipe_is_one_line_with_the_known_ones(
    tmp_path: Path, output: Path, capsys: pytest.CaptureFixture
) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint")
    code, _, error = run(capsys, "convert", folder, output, "--recipe", "q9_9")
    assert code == 2
    require_one_line(error, ["'q9_9'", "q8_0", "q4_k_m"])
    assert not list(output.parent.iterdir())


@pytest.mark.parametrize(
    ("place", "names"),
    [("missing/model.gguf", ["missing"]), ("a-file/model.gguf", ["a-file"]), ("output", ["is a folder"])],
)
def test_an_unwritable_output_is_one_line(
    place: str, names: Sequence[str], tmp_path: Path, output: Path, capsys: pytest.CaptureFixture
) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint")
    (tmp_path / "a-file").touch()
    code, _, error = run(capsys, "convert", folder, tmp_path / place, "--metadata", "minimal")
    assert code == 2
    require_one_line(error, names)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-file", "checkpoint", "output"]


def test_a_conversion_prints_its_size_and_time(tmp_path: Path, output: Path, capsys: pytest.CaptureFixture) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint")
    code, out, error = run(capsys, "convert", folder, output, "--recipe", "q8_0", "--metadata", "minimal")
    assert (code, error) == (0, "")
    assert re.fullmatch(rf"{re.escape(str(output))}: {output.stat().st_size} bytes, \d+\.\d s\n", out)
    assert [path.name for path in output.parent.iterdir()] == ["model.gguf"]


def test_minimal_metadata_needs_no_tokenizer(tmp_path: Path, output: Path, capsys: pytest.CaptureFixture) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint", tokenizer=None)
    assert run(capsys, "convert", folder, output, "--metadata", "minimal")[0] == 0


def test_the_list_names_every_built_in(capsys: pytest.CaptureFixture) -> None:
    code, out, _ = run(capsys, "list")
    assert code == 0
    names = [line.split()[0].rstrip(":") for line in out.splitlines() if not line.startswith(" ")]
    assert names == list(BUILT_IN)
    assert "quantizer, dequantizer, converter" in out and "q4_k_m" in out


def test_it_runs_as_a_module(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "impl", "convert", str(tmp_path / "none"), str(tmp_path / "model.gguf")]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stdout) == (2, "")
    require_one_line(finished.stderr, ["none"])


# Implementations by name


class Bare:
    """An implementation that offers nothing."""

    name = "bare"
    version = "1"


class FixedLogits(Bare):
    """An engine whose logits are the tokens themselves, one row each."""

    backends = {"cpu": "dequantized"}  # noqa: RUF012

    def load(self, path: Path, backend: str) -> "FixedLogits":
        return self

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        return np.outer(tokens, [1.0, 3.0, 2.0]).astype(np.float32)


class Failing:
    """An implementation that cannot be made."""

    def __init__(self) -> None:
        raise RuntimeError("no device\nhere")


INSTANCE = Bare()
HERE = __name__


def test_a_class_is_called_and_an_instance_taken_as_it_is() -> None:
    assert isinstance(resolve(f"{HERE}:Bare"), Bare)
    assert resolve(f"{HERE}:INSTANCE") is INSTANCE
    assert resolve("reference").name == "reference"


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ("nonesuch", ["'nonesuch'", "reference", "ggml"]),
        ("no_such_module:Class", ["no_such_module", "does not import"]),
        (f"{HERE}:Absent", ["'Absent'", "no attribute"]),
        ("pathlib:Path", ["has no version"]),
        ("json:dumps", ["no name"]),
        (f"{HERE}:Failing", ["RuntimeError", "no device here"]),
    ],
)
def test_an_implementation_that_is_none_is_one_line(spec: str, names: Sequence[str]) -> None:
    with pytest.raises(InputError) as refusal:
        resolve(spec)
    require_one_line(f"error: {refusal.value}\n", names)


def test_a_module_that_lacks_an_import_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needs_more.py").write_text("import not_installed_anywhere")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=r"needs_more does not import.*not_installed_anywhere"):
        resolve("needs_more:Class")


def test_an_implementation_without_the_capability_is_one_line(
    tmp_path: Path, output: Path, capsys: pytest.CaptureFixture
) -> None:
    code, _, error = run(capsys, "convert", tmp_path, output, "--impl", f"{HERE}:Bare")
    assert code == 2
    require_one_line(error, ["is no converter"])


def test_logits_shows_the_most_likely_and_writes_them_all(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    saved = tmp_path / "logits.npy"
    engine = ("--impl", f"{HERE}:FixedLogits")
    code, out, _ = run(capsys, "logits", "x", "--tokens", "1,2", "--top", 2, "--output", saved, *engine)
    assert (code, out) == (0, "1\t6.000000\n2\t4.000000\n")
    assert np.array_equal(np.load(saved), np.array([[1, 3, 2], [2, 6, 4]], np.float32))


def test_an_unknown_backend_is_one_line(capsys: pytest.CaptureFixture) -> None:
    engine = ("--impl", f"{HERE}:FixedLogits")
    code, _, error = run(capsys, "logits", "x", "--tokens", "1", "--backend", "metal", *engine)
    assert code == 2
    require_one_line(error, ["'metal'", "cpu"])


def test_logits_to_an_unwritable_place_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    saved = tmp_path / "missing" / "logits.npy"
    engine = ("--impl", f"{HERE}:FixedLogits")
    code, _, error = run(capsys, "logits", "x", "--tokens", "1", "--output", saved, *engine)
    assert code == 2
    require_one_line(error, ["missing"])
