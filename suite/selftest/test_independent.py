"""Other people's programs are found, run, and their errors handed on."""

import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from impl.errors import InputError
from suite.kit import importance, independent, reference_run, surgery, tiny
from suite.kit.own_file import write_own_file
from suite.kit.source import Source
from suite.kit.tensors import compare_files, open_gguf, type_counts


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints") / "tiny"
    tiny.build(folder)
    return folder


@pytest.fixture(scope="module")
def source_f32(checkpoint: Path) -> Path:
    path = checkpoint.parent / "f32.gguf"
    write_own_file(Source(checkpoint), path)
    return path


@pytest.fixture(scope="module")
def imatrix(checkpoint: Path) -> Path:
    importances = importance.column_importances(checkpoint, reference_run.record(checkpoint, 8))
    path = checkpoint.parent / "importance.dat"
    importance.write_imatrix(importances, path, dataset="eight tokens")
    return path


def _source_tensors(checkpoint: Path) -> dict[str, np.ndarray]:
    shards = [load_file(path) for path in checkpoint.glob("*.safetensors")]
    return {name: tensor.astype(np.float32) for shard in shards for name, tensor in shard.items()}


def test_llama_quantize_writes_the_type_asked_for(source_f32: Path, tmp_path: Path) -> None:
    independent.llama_quantize(source_f32, tmp_path / "q8_0.gguf", "Q8_0")
    assert type_counts(tmp_path / "q8_0.gguf") == {"Q8_0": 16, "F32": 5}
    independent.llama_quantize(source_f32, tmp_path / "pure.gguf", "Q4_0", pure=True)
    assert type_counts(tmp_path / "pure.gguf") == {"Q4_0": 16, "F32": 5}


def test_importance_matrix_is_used(source_f32: Path, imatrix: Path, tmp_path: Path) -> None:
    """It decides other bytes in every matrix of the layers, and the file says where it came from."""
    plain, weighted = tmp_path / "plain.gguf", tmp_path / "weighted.gguf"
    independent.llama_quantize(source_f32, plain, "Q4_0", pure=True)
    independent.llama_quantize(source_f32, weighted, "Q4_0", pure=True, imatrix=imatrix)
    differing = {tensor.name for tensor in compare_files(plain, weighted).differing}
    assert differing == {
        tensor.name for tensor in open_gguf(plain).tensors if re.search(r"(attn|ffn)_(?!norm)", tensor.name)
    }
    keys = open_gguf(weighted).fields
    assert keys["quantize.imatrix.dataset"].contents() == "eight tokens"
    assert keys["quantize.imatrix.entries_count"].contents() == 7 * tiny.LAYERS
    assert keys["quantize.imatrix.chunks_count"].contents() == 1


def test_column_importances_are_the_mean_squares_of_what_a_matrix_multiplies(checkpoint: Path) -> None:
    """q, k and v multiply the same: the first norm of the embedded tokens, computed here by hand."""
    recording = reference_run.record(checkpoint, 3)
    importances = importance.column_importances(checkpoint, recording)
    assert len(importances) == 7 * tiny.LAYERS
    tensors = _source_tensors(checkpoint)
    embedded = tensors["model.embed_tokens.weight"].astype(np.float64)[recording.tokens]
    normed = embedded / np.sqrt((embedded**2).mean(axis=1, keepdims=True) + 3e-6)
    expected = ((normed * tensors["model.layers.0.input_layernorm.weight"]) ** 2).mean(axis=0)
    for part in ("attn_q", "attn_k", "attn_v"):
        np.testing.assert_allclose(importances[f"blk.0.{part}.weight"], expected, rtol=1e-5)
    assert importances["blk.1.ffn_down.weight"].shape == (tiny.FEED_FORWARD,)
    assert importances["blk.1.ffn_down.weight"].dtype == np.float32


@pytest.mark.parametrize("type", ["Q0_NONE", "Q4_0"])
def test_failure_hands_on_the_programs_words_and_leaves_nothing(tmp_path: Path, type: str) -> None:
    with pytest.raises(InputError, match=r"llama-quantize: exit code 1: .*(Q0_NONE|absent\.gguf)"):
        independent.llama_quantize(tmp_path / "absent.gguf", tmp_path / "out.gguf", type)
    assert list(tmp_path.iterdir()) == []


def test_program_that_hangs_is_ended(source_f32: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(independent, "TIME_LIMIT", 0.001)
    with pytest.raises(InputError, match=r"still running after 0\.001 s"):
        independent.llama_quantize(source_f32, tmp_path / "out.gguf", "Q8_0")


def test_absent_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(independent, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="ik-llama-cpp-python"):
        independent.llama_quantize_program()


def test_transformers_gives_every_tensor_back(checkpoint: Path, source_f32: Path) -> None:
    tensors = independent.transformers_tensors(source_f32)
    sources = _source_tensors(checkpoint)
    assert set(tensors) == set(sources)
    assert all(np.array_equal(tensors[name], sources[name]) for name in sources)


def test_transformers_shows_rows_that_were_never_permuted(source_f32: Path, checkpoint: Path, tmp_path: Path) -> None:
    surgery.without_permutation(source_f32, tmp_path / "noperm.gguf")
    tensors = independent.transformers_tensors(tmp_path / "noperm.gguf")
    sources = _source_tensors(checkpoint)
    wrong = {name for name in sources if not np.array_equal(tensors[name], sources[name])}
    assert wrong == {f"model.layers.{i}.self_attn.{p}_proj.weight" for i in range(tiny.LAYERS) for p in "qk"}


def test_transformers_missing_tensor_is_an_error(source_f32: Path, tmp_path: Path) -> None:
    surgery.drop_tensor(source_f32, tmp_path / "less.gguf", "blk.1.ffn_up.weight")
    with pytest.raises(InputError, match=r"no tensor for model\.layers\.1\.mlp\.up_proj\.weight"):
        independent.transformers_tensors(tmp_path / "less.gguf")


def test_transformers_error_names_the_file(source_f32: Path, tmp_path: Path) -> None:
    surgery.drop_all_keys(source_f32, tmp_path / "bare.gguf")
    with pytest.raises(InputError, match=r"bare\.gguf: transformers cannot load it"):
        independent.transformers_tensors(tmp_path / "bare.gguf")
