"""Named checkpoints: built once, the same bytes everywhere, refused in one line where there is none."""

import hashlib
from pathlib import Path

import pytest

from impl.errors import InputError
from suite.kit import smollm2, tiny
from suite.kit.checkpoints import find_checkpoint
from suite.kit.source import Source


def digest(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_tiny_is_the_same_bytes_every_time(tmp_path: Path) -> None:
    for name in ("first", "second"):
        tiny.build(tmp_path / name)
    assert digest(tmp_path / "first") == digest(tmp_path / "second")


def test_tiny_has_every_trap(tiny_checkpoint: Path) -> None:
    source = Source(tiny_checkpoint)
    heads, groups = source.heads["attn_q"], source.heads["attn_k"]
    assert len({heads, groups, heads // groups}) == 3
    assert heads * source.head_size != source.config["hidden_size"]
    matrices = {name: shape for name, shape in source.shapes.items() if len(shape) == 2}
    assert all(rows != columns for rows, columns in matrices.values())
    assert {columns % 256 == 0 for _, columns in matrices.values()} == {True, False}
    assert "lm_head.weight" in matrices
    assert source.rope_theta != 10000.0
    assert len(list(tiny_checkpoint.glob("*.safetensors"))) == 2


def test_a_built_checkpoint_is_not_built_again(tmp_path: Path) -> None:
    first = find_checkpoint("tiny", tmp_path)
    (first.folder / "mark").touch()
    assert (find_checkpoint("tiny", tmp_path).folder / "mark").exists()


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config\.json"):
        find_checkpoint(str(tmp_path), tmp_path)


def test_a_wheel_with_other_bytes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.gguf").write_bytes(b"other")
    with pytest.raises(InputError, match=f"expected {smollm2.GGUF_SHA256}"):
        smollm2._require_digest(tmp_path / "other.gguf", smollm2.GGUF_SHA256)
