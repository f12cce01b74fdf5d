"""The comparison of GGUF files, on files of a few rows."""

from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter

from impl.errors import InputError
from suite.kit.tensors import compare_files, open_gguf, type_counts

Q8_0, F32 = GGMLQuantizationType.Q8_0, GGMLQuantizationType.F32
ROW = 34
"""Bytes of a row of one Q8_0 block: 32 values."""


def _write(path: Path, tensors: dict[str, np.ndarray]) -> Path:
    """Uint8 arrays are written as rows of Q8_0 blocks."""
    writer = GGUFWriter(path, "llama")
    for name, data in tensors.items():
        writer.add_tensor(name, data, raw_dtype=Q8_0 if data.dtype == np.uint8 else F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors() -> dict[str, np.ndarray]:
    blocks = {
        f"blk.{layer}.{part}.weight": np.full((rows, ROW), layer, dtype=np.uint8)
        for layer in (0, 1)
        for part, rows in (("attn_k", 2), ("attn_q", 4))
    }
    return {**blocks, "output_norm.weight": np.ones(5, dtype=np.float32)}


@pytest.fixture
def a(tmp_path: Path) -> Path:
    return _write(tmp_path / "a.gguf", _tensors())


def test_equal_files_are_identical_whatever_their_order(a: Path, tmp_path: Path) -> None:
    comparison = compare_files(a, _write(tmp_path / "b.gguf", dict(reversed(_tensors().items()))))
    comparison.require_identical()
    assert comparison.compared == len(comparison.identical) == 5
    assert comparison.compared_bytes == 2 * 6 * ROW + 20
    assert str(comparison) == "5 tensors in a, 5 in b; 5 byte-identical"


def test_differing_bytes_are_summed_by_kind_and_type(a: Path, tmp_path: Path) -> None:
    changed = _tensors()
    changed["blk.0.attn_q.weight"][0, :3] += 1
    changed["blk.1.attn_q.weight"][3, -1] += 1
    changed["blk.1.attn_k.weight"][1, 5] += 1
    comparison = compare_files(a, _write(tmp_path / "b.gguf", changed))
    assert set(comparison.identical) == {"blk.0.attn_k.weight", "output_norm.weight"}
    assert comparison.differing_bytes == 5
    assert str(comparison).splitlines() == [
        "5 tensors in a, 5 in b; 2 byte-identical",
        "  differ: blk.attn_k.weight Q8_0       1 tensors, 1 of 68 bytes",
        "  differ: blk.attn_q.weight Q8_0       2 tensors, 4 of 272 bytes",
    ]
    with pytest.raises(AssertionError, match="2 byte-identical"):
        comparison.require_identical()


def test_last_byte_beyond_one_comparison_block_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suite.kit.tensors.BLOCKWISE", 7)
    changed = _tensors()
    changed["output_norm.weight"][-1] = 2
    paths = (_write(tmp_path / "a.gguf", _tensors()), _write(tmp_path / "b.gguf", changed))
    comparison = compare_files(*paths)
    assert [tensor.name for tensor in comparison.differing] == ["output_norm.weight"]
    # 1.0 is 00 00 80 3F and 2.0 is 00 00 00 40.
    assert comparison.differing_bytes == 2


def test_other_type_is_listed_and_not_compared(a: Path, tmp_path: Path) -> None:
    changed = _tensors() | {f"blk.{layer}.attn_k.weight": np.zeros((2, 32), dtype=np.float32) for layer in (0, 1)}
    comparison = compare_files(a, _write(tmp_path / "b.gguf", changed))
    assert [tensor.name for tensor in comparison.different_type] == ["blk.0.attn_k.weight", "blk.1.attn_k.weight"]
    assert comparison.compared == 3
    assert not comparison.all_identical
    assert str(comparison).splitlines()[0] == "blk.attn_k.weight: Q8_0 [2, 32] vs F32 [2, 32], 2 tensors"


def test_other_shape_is_listed_and_not_compared(a: Path, tmp_path: Path) -> None:
    """Two rows of two blocks hold as many bytes as four rows of one."""
    changed = _tensors()
    changed["blk.0.attn_q.weight"] = changed["blk.0.attn_q.weight"].reshape(2, 2 * ROW)
    comparison = compare_files(a, _write(tmp_path / "b.gguf", changed))
    assert [tensor.name for tensor in comparison.different_shape] == ["blk.0.attn_q.weight"]
    assert not comparison.differing
    assert not comparison.all_identical
    assert str(comparison).splitlines()[0] == "blk.attn_q.weight: Q8_0 [4, 32] vs Q8_0 [2, 64]"


def test_missing_tensor_is_never_a_pass(a: Path, tmp_path: Path) -> None:
    fewer = _tensors()
    del fewer["output_norm.weight"]
    b = _write(tmp_path / "b.gguf", fewer)
    assert compare_files(a, b).only_in_a == compare_files(b, a).only_in_b == ("output_norm.weight",)
    assert not compare_files(a, b).all_identical
    assert not compare_files(b, a).all_identical
    assert str(compare_files(a, b)).splitlines()[0] == "output_norm.weight: only in a"


def test_nothing_compared_is_never_a_pass(tmp_path: Path) -> None:
    empty = _write(tmp_path / "empty.gguf", {})
    with pytest.raises(AssertionError, match="0 tensors in a, 0 in b; none could be compared"):
        compare_files(empty, empty).require_identical()


def test_types_are_counted(a: Path) -> None:
    assert type_counts(a) == {"Q8_0": 4, "F32": 1}


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a GGUF file at all" * 4])
def test_what_is_no_gguf_file_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"broken\.gguf: not a readable GGUF file"):
        open_gguf(path)


def test_truncated_data_and_absent_files_are_refused(a: Path, tmp_path: Path) -> None:
    a.write_bytes(a.read_bytes()[:-64])
    for path in (a, tmp_path / "absent.gguf"):
        with pytest.raises(InputError, match="not a readable GGUF file"):
            open_gguf(path)


def test_duplicate_tensor_name_is_refused(a: Path) -> None:
    a.write_bytes(a.read_bytes().replace(b"blk.1.attn_q", b"blk.0.attn_q"))
    with pytest.raises(InputError, match=r"blk\.0\.attn_q\.weight"):
        open_gguf(a)
