"""The suite's own statement of row order, names and file size, against closed forms and the gguf package."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from suite.kit import layout
from suite.kit.names import gguf_name, hugging_face_name
from suite.kit.rows import gguf_row_order, in_gguf_order, in_hugging_face_order


def test_k_rows_of_two_heads_of_eight() -> None:
    assert gguf_row_order(16, 2).tolist() == [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]


@pytest.mark.parametrize("wrong", [8, 4])
def test_another_number_of_heads_is_another_order(wrong: int) -> None:
    assert gguf_row_order(32, wrong).tolist() != gguf_row_order(32, 2).tolist()


def test_there_and_back_is_the_identity_for_weights_biases_and_blocks() -> None:
    for rows in (
        np.arange(32.0),
        np.arange(64.0).reshape(32, 2),
        np.arange(96, dtype=np.uint8).reshape(32, 3),
    ):
        assert np.array_equal(in_hugging_face_order(in_gguf_order(rows, 2), 2), rows)
        assert not np.array_equal(in_gguf_order(rows, 2), rows)


@pytest.mark.parametrize("name", ["token_embd.weight", "output.weight", "blk.7.ffn_down.weight", "blk.0.attn_q.bias"])
def test_names_go_there_and_back(name: str) -> None:
    assert gguf_name(hugging_face_name(name), layers=8) == name


@pytest.mark.parametrize(
    ("shape", "recipe", "type"),
    [
        ((576,), "q4_k", "f32"),
        ((4, 512), "q4_k", "q4_k"),
        ((256, 576), "q4_k", "q5_0"),
        ((4, 96), "q6_k", "q8_0"),
        ((4, 48), "q4_0", "f16"),
    ],
)
def test_rows_decide_the_type(shape: tuple[int, ...], recipe: str, type: str) -> None:
    assert layout.type_of(shape, recipe) == type


@pytest.mark.parametrize("key_length", range(8))
def test_file_size_is_what_the_gguf_package_writes(tmp_path: Path, key_length: int) -> None:
    shapes = {"a.weight": (3,), "b.weight": (5, 7)}
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_uint32("k" * (key_length + 1), 1)
    for name, shape in shapes.items():
        writer.add_tensor(name, np.zeros(shape, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    values = {"general.architecture": 8 + len("llama"), "k" * (key_length + 1): 4}
    expected = layout.file_size(values, shapes, dict.fromkeys(shapes, "f32"))
    assert (tmp_path / "a.gguf").stat().st_size == expected
