"""Surgery changes the one thing it is asked to and nothing else."""

import filecmp
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter

from impl.errors import InputError
from suite.kit import surgery
from suite.kit.surgery import read_contents
from suite.kit.tensors import compare_files, open_gguf

HEADS, KV_HEADS, HEAD_SIZE = 8, 2, 4
BLOCK_BYTES = {"Q8_0": 34, "Q4_K": 144}
FREQ_BASE = "llama.rope.freq_base"


def _numbered_rows(rows: int, bytes_per_row: int) -> np.ndarray:
    return np.repeat(np.arange(rows, dtype=np.uint8)[:, None], bytes_per_row, axis=1)


def _write(path: Path, alignment: int | None = None) -> Path:
    """A llama file with q and k as blocks, biases as float32, and one value of every sort of type."""
    writer = GGUFWriter(path, "llama")
    if alignment:
        writer.add_custom_alignment(alignment)
    writer.add_uint32("llama.attention.head_count", HEADS)
    writer.add_uint32("llama.attention.head_count_kv", KV_HEADS)
    writer.add_float32(FREQ_BASE, 31000.1)
    writer.add_key_value("x.bytes", [1, 2, 255], GGUFValueType.ARRAY, GGUFValueType.UINT8)
    writer.add_key_value("x.floats", [0.1, float("-inf")], GGUFValueType.ARRAY, GGUFValueType.FLOAT32)
    writer.add_key_value("x.booleans", [True, False], GGUFValueType.ARRAY, GGUFValueType.BOOL)
    writer.add_array("x.texts", ["", "Ġé"])
    writer.add_int64("x.int64", -(2**62))
    writer.add_uint8("x.uint8", 7)
    writer.add_bool("x.bool", False)
    writer.add_float64("x.float64", 0.1)
    writer.add_key_value("x.empty", "", GGUFValueType.STRING)
    for part, heads, type in (("attn_q", HEADS, "Q8_0"), ("attn_k", KV_HEADS, "Q4_K"), ("attn_v", KV_HEADS, "Q8_0")):
        rows = heads * HEAD_SIZE
        blocks = _numbered_rows(rows, BLOCK_BYTES[type])
        writer.add_tensor(f"blk.0.{part}.weight", blocks, raw_dtype=GGMLQuantizationType[type])
        writer.add_tensor(f"blk.0.{part}.bias", np.arange(rows, dtype=np.float32))
    writer.add_tensor("output_norm.weight", np.ones(3, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(params=[None, 64], ids=["default alignment", "alignment 64"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return _write(tmp_path / "source.gguf", request.param)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "output.gguf"


def _rows(path: Path) -> dict[str, list[int]]:
    """The number that stands in each row; every value of a row must agree."""
    rows = {tensor.name: tensor.data.reshape(len(tensor.data), -1) for tensor in open_gguf(path).tensors}
    assert all((data == data[:, :1]).all() for data in rows.values())
    return {name: data[:, 0].astype(int).tolist() for name, data in rows.items()}


def test_setting_a_key_to_its_own_value_changes_no_byte(source: Path, output: Path) -> None:
    surgery.set_key(source, output, "llama.attention.head_count", HEADS)
    assert filecmp.cmp(source, output, shallow=False)


def test_without_permutation_puts_q_and_k_back_by_their_own_heads(source: Path, output: Path) -> None:
    """GGUF row 2i of a head is Hugging Face row i, GGUF row 2i + 1 is row i + d/2: of 4 rows, 0 2 1 3."""
    surgery.without_permutation(source, output)
    before, after = _rows(source), _rows(output)
    for part, heads in (("attn_q", HEADS), ("attn_k", KV_HEADS)):
        expected = [HEAD_SIZE * head + row for head in range(heads) for row in (0, 2, 1, 3)]
        assert after[f"blk.0.{part}.weight"] == after[f"blk.0.{part}.bias"] == expected
    for name in ("blk.0.attn_v.weight", "blk.0.attn_v.bias", "output_norm.weight"):
        assert after[name] == before[name]
    assert read_contents(output).keys == read_contents(source).keys


def test_neox_is_without_permutation_under_another_architecture(source: Path, output: Path, tmp_path: Path) -> None:
    surgery.neox(source, output)
    surgery.without_permutation(source, tmp_path / "noperm.gguf")
    compare_files(output, tmp_path / "noperm.gguf").require_identical()
    keys, before = dict(read_contents(output).keys), dict(read_contents(source).keys)
    assert keys.pop("general.architecture").content == "qwen2"
    del before["general.architecture"]
    assert keys == before


@pytest.mark.parametrize("key", [FREQ_BASE, "general.architecture", "x.bytes"])
def test_drop_key_drops_that_key_alone(source: Path, output: Path, key: str) -> None:
    surgery.drop_key(source, output, key)
    expected = {name: value for name, value in read_contents(source).keys.items() if name != key}
    assert list(read_contents(output).keys.items()) == list(expected.items())
    compare_files(source, output).require_identical()


def test_drop_all_keys_leaves_the_tensors(source: Path, output: Path) -> None:
    surgery.drop_all_keys(source, output)
    assert read_contents(output).keys == {}
    compare_files(source, output).require_identical()


def test_set_key_keeps_the_values_type(source: Path, output: Path) -> None:
    surgery.set_key(source, output, "x.bytes", [9])
    value = read_contents(output).value("x.bytes")
    assert value == surgery.Value([9], GGUFValueType.ARRAY, GGUFValueType.UINT8)


def test_drop_tensor_drops_that_tensor_alone(source: Path, output: Path) -> None:
    surgery.drop_tensor(source, output, "blk.0.attn_k.weight")
    comparison = compare_files(source, output)
    assert comparison.only_in_a == ("blk.0.attn_k.weight",)
    assert len(comparison.identical) == comparison.tensors_in_b == 6


def test_set_bytes_changes_those_bytes_alone(source: Path, output: Path) -> None:
    surgery.set_bytes(source, output, "blk.0.attn_k.weight", 2, b"\xff\xfe")
    before, after = source.read_bytes(), output.read_bytes()
    assert [index for index in range(len(before)) if before[index] != after[index]] == [
        offset := int(read_contents(source).tensor("blk.0.attn_k.weight").data_offset) + 2,
        offset + 1,
    ]


Operation = Callable[[Path, Path], None]


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (partial(surgery.drop_key, key="llama.none"), r"llama\.none: no such key"),
        (partial(surgery.set_key, key="llama.none", content=1), r"llama\.none: no such key"),
        (partial(surgery.drop_tensor, name="blk.9.none"), r"blk\.9\.none: no such tensor"),
        (partial(surgery.set_bytes, name="blk.0.attn_v.bias", offset=31, replacement=b"ab"), "within the tensor's 32"),
        (partial(surgery.set_bytes, name="blk.0.attn_v.bias", offset=-1, replacement=b"ab"), "within the tensor's 32"),
    ],
)
def test_what_is_not_there_is_refused_and_nothing_written(
    source: Path, output: Path, operation: Operation, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        operation(source, output)
    assert list(output.parent.iterdir()) == [source]


def test_head_counts_are_needed_to_put_rows_back(source: Path, output: Path, tmp_path: Path) -> None:
    surgery.drop_key(source, tmp_path / "no-heads.gguf", "llama.attention.head_count_kv")
    with pytest.raises(InputError, match=r"no-heads\.gguf: llama\.attention\.head_count_kv: no such key"):
        surgery.without_permutation(tmp_path / "no-heads.gguf", output)


def test_value_that_will_not_pack_leaves_nothing(source: Path, output: Path) -> None:
    with pytest.raises(Exception, match="required argument is not an integer"):
        surgery.set_key(source, output, "llama.attention.head_count", "eight")
    assert list(output.parent.iterdir()) == [source]


def test_duplicate_key_is_refused(source: Path, output: Path) -> None:
    source.write_bytes(source.read_bytes().replace(b"x.uint8", b"x.int64"))
    with pytest.raises(InputError, match=r"x\.int64"):
        surgery.drop_all_keys(source, output)
