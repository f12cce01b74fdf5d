"""Importance matrices of the reference: collected, written, read in both forms, and quantized by."""

import struct
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter
from numpy.typing import NDArray

from impl.__main__ import main
from impl.errors import InputError
from impl.reference import Reference
from impl.reference.blocks import FORMATS, dequantize, quantize
from impl.reference.collect import collect
from impl.reference.convert import convert
from impl.reference.importance import ColumnSquares, ImportanceMatrix
from impl.reference.importance_file import read_importance, write_importance
from impl.reference.recipe import find_recipe, types_for
from suite.kit import importance as measured_by_hooks
from suite.kit.reference_run import Recording
from suite.selftest.small_checkpoint import CONFIG, write_checkpoint

LAYERS = CONFIG["num_hidden_layers"]
TOKENS = (1, 17, 4, 39, 0, 22, 8, 8, 31)
PARTS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
MATRICES = [f"blk.{layer}.{part}.weight" for layer in range(LAYERS) for part in PARTS]
DOWN = "blk.1.ffn_down.weight"
GATE = "blk.0.ffn_gate.weight"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("importance") / "small")


@pytest.fixture(scope="module")
def f32(checkpoint: Path) -> Path:
    path = checkpoint.parent / "f32.gguf"
    convert(checkpoint, path, "f32")
    return path


@pytest.fixture(scope="module")
def matrix(f32: Path) -> ImportanceMatrix:
    return collect(Reference().load(f32, "cpu-dequantized"), TOKENS, "nine tokens")


def importances(matrix: ImportanceMatrix) -> dict[str, NDArray[np.float32]]:
    return {name: squares.importance for name, squares in matrix.columns.items()}


def read_tensors(file: Path) -> dict[str, NDArray]:
    return {tensor.name: np.array(tensor.data) for tensor in GGUFReader(file).tensors}


def read_keys(file: Path) -> dict[str, tuple[list[str], Any]]:
    fields = GGUFReader(file).fields.values()
    return {field.name: ([type.name for type in field.types], field.contents()) for field in fields}


# Collecting


def test_collected_are_the_mean_squares_that_hooks_on_transformers_see(
    checkpoint: Path, matrix: ImportanceMatrix
) -> None:
    expected = measured_by_hooks.column_importances(checkpoint, Recording("", TOKENS, (), {}))
    assert set(matrix.columns) == set(expected) == set(MATRICES)
    for name, importance in importances(matrix).items():
        np.testing.assert_allclose(importance, expected[name], rtol=1e-4, err_msg=name)


def test_collected_in_chunks_each_from_an_empty_context(f32: Path) -> None:
    model = Reference().load(f32, "cpu-dequantized")
    parts = [collect(model, TOKENS[:4], ""), collect(model, TOKENS[4:8], ""), collect(model, TOKENS[8:], "")]
    whole = collect(model, TOKENS, "nine tokens", chunk_size=4)
    assert (whole.chunks, whole.chunk_size, whole.datasets) == (3, 4, ("nine tokens",))
    for name, squares in whole.columns.items():
        assert squares.count == len(TOKENS)
        np.testing.assert_allclose(squares.sums, sum(part.columns[name].sums for part in parts), rtol=1e-5)


def test_positions_that_fill_up_a_pass_are_not_measured(f32: Path, matrix: ImportanceMatrix) -> None:
    model = replace(Reference().load(f32, "cpu-dequantized"), chunk=32)
    for name, squares in collect(model, TOKENS, "").columns.items():
        assert np.array_equal(squares.sums, matrix.columns[name].sums)


def test_activations_that_are_not_finite_are_refused_by_tensor(tmp_path: Path) -> None:
    huge = np.full((256, 64), 1e30, np.float32)
    folder = write_checkpoint(tmp_path / "huge", edits={"model.layers.1.mlp.up_proj.weight": huge})
    convert(folder, tmp_path / "huge.gguf", "f32")
    with pytest.raises(InputError, match=rf"tensor {DOWN}: importance of column \d+ is inf, expected a finite"):
        collect(Reference().load(tmp_path / "huge.gguf", "cpu-dequantized"), TOKENS, "")


@pytest.mark.parametrize(("tokens", "message"), [((), "no tokens"), ((1, 40), "token 40: expected 0 to 39")])
def test_tokens_that_cannot_be_measured_on_are_refused(f32: Path, tokens: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        collect(Reference().load(f32, "cpu-dequantized"), tokens, "")


# Files


def test_gguf_form_is_llama_cpps_and_reads_back_exactly(matrix: ImportanceMatrix, tmp_path: Path) -> None:
    path = tmp_path / "importance.gguf"
    write_importance(matrix, path)
    keys = {name: key for name, key in read_keys(path).items() if not name.startswith("GGUF.")}
    assert keys == {
        "general.type": (["STRING"], "imatrix"),
        "imatrix.datasets": (["ARRAY", "STRING"], ["nine tokens"]),
        "imatrix.chunk_count": (["UINT32"], 1),
        "imatrix.chunk_size": (["UINT32"], 512),
    }
    tensors = read_tensors(path)
    assert list(tensors) == [f"{name}.{end}" for name in sorted(MATRICES) for end in ("in_sum2", "counts")]
    assert {tensor.dtype for tensor in tensors.values()} == {np.dtype(np.float32)}
    assert tensors[f"{DOWN}.in_sum2"].shape == (256,)
    assert tensors[f"{DOWN}.counts"].tolist() == [len(TOKENS)]
    back = read_importance(path)
    assert (back.datasets, back.chunks, back.chunk_size) == (("nine tokens",), 1, 512)
    assert set(back.columns) == set(MATRICES)
    for name, squares in back.columns.items():
        assert np.array_equal(squares.sums, matrix.columns[name].sums)
        assert squares.count == matrix.columns[name].count


def write_tensors(path: Path, tensors: Mapping[str, NDArray], **keys: object) -> Path:
    """An importance matrix in GGUF form, of whatever tensors; a key that is None is left out."""
    stated = {"general.type": "imatrix", "imatrix.datasets": ["d"], "imatrix.chunk_count": 2, "imatrix.chunk_size": 4}
    stated |= {name.replace("__", "."): value for name, value in keys.items()}
    with closing(GGUFWriter(path, "llama")) as writer:
        adders = {str: writer.add_string, list: writer.add_array, int: writer.add_uint32}
        for name, value in stated.items():
            if value is not None:
                adders[type(value)](name, value)
        for name, tensor in tensors.items():
            writer.add_tensor(name, tensor)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    return path


def floats(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def test_sums_are_divided_by_counts_and_other_tensors_passed_over(tmp_path: Path) -> None:
    path = write_tensors(
        tmp_path / "importance.gguf",
        {"a.in_sum2": floats(3, 0, 1), "a.counts": floats(3), "a.in_sum": floats(-9, 0, 9), "other": floats(np.nan)},
        imatrix__datasets=["first", "second"],
    )
    matrix = read_importance(path)
    assert list(matrix.columns) == ["a"]
    assert np.array_equal(matrix.columns["a"].importance, floats(1, 0, np.float32(1) / np.float32(3)))
    assert (matrix.datasets, matrix.chunks, matrix.chunk_size) == (("first", "second"), 2, 4)


SOUND = {"a.in_sum2": floats(1, 2, 3), "a.counts": floats(2)}
NOT_FINITE = "expected a finite number from 0 on"


@pytest.mark.parametrize(
    ("edits", "keys", "message"),
    [
        ({"a.in_sum2": floats(1, np.nan)}, {}, f"tensor a: importance of column 1 is nan, {NOT_FINITE}"),
        ({"a.in_sum2": floats(np.inf, 1)}, {}, f"tensor a: importance of column 0 is inf, {NOT_FINITE}"),
        ({"a.in_sum2": floats(1, 2, -4)}, {}, f"tensor a: importance of column 2 is -2, {NOT_FINITE}"),
        ({"a.in_sum2": floats(3e38), "a.counts": floats(0.5)}, {}, f"tensor a: .* is inf, {NOT_FINITE}"),
        ({"a.counts": floats(0)}, {}, "tensor a: count is 0, expected a positive number"),
        ({"a.counts": floats(-1)}, {}, "tensor a: count is -1, expected a positive number"),
        ({"a.counts": floats(np.nan)}, {}, "tensor a: count is nan, expected a positive number"),
        ({"a.counts": floats(np.inf)}, {}, "tensor a: count is inf, expected a positive number"),
        ({"a.counts": floats(1, 1)}, {}, r"tensor a\.counts has 2 values, expected 1"),
        ({"a.in_sum2": np.ones(3, np.float16)}, {}, r"tensor a\.in_sum2 is F16, expected F32"),
        ({"a.counts": None}, {}, r"cannot find tensor a\.counts"),
        ({"a.in_sum2": None}, {}, r"cannot find tensor a\.in_sum2"),
        ({}, {"general__type": "model"}, "general.type is 'model', expected 'imatrix'"),
        ({}, {"general__type": None}, "cannot find general.type"),
        ({}, {"imatrix__datasets": None}, "cannot find imatrix.datasets"),
        ({}, {"imatrix__datasets": [1, 2]}, r"imatrix.datasets is \[1, 2\], expected an array of STRING"),
        ({}, {"imatrix__chunk_count": None}, "cannot find imatrix.chunk_count"),
        ({}, {"imatrix__chunk_size": "512"}, "imatrix.chunk_size is of type STRING, expected UINT32"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_gguf_form_that_cannot_be_meant_is_refused_in_one_line(
    tmp_path: Path, edits: dict[str, NDArray | None], keys: dict[str, object], message: str
) -> None:
    tensors = {name: tensor for name, tensor in {**SOUND, **edits}.items() if tensor is not None}
    path = write_tensors(tmp_path / "bad.gguf", tensors, **keys)
    with pytest.raises(InputError, match=rf"^\S*bad\.gguf: {message}") as caught:
        read_importance(path)
    assert "\n" not in str(caught.value)


def text(content: bytes) -> bytes:
    return struct.pack("<i", len(content)) + content


def of_matrix(name: bytes, chunks: int, *sums: float) -> bytes:
    return text(name) + struct.pack("<ii", chunks, len(sums)) + floats(*sums).tobytes()


TWO = struct.pack("<i", 2) + of_matrix(b"a", 4, 1, 2, 3) + of_matrix(b"b", 5, 10)
TRAILER = struct.pack("<i", 7) + text(b"words")


def test_binary_form_that_the_suite_writes_is_read(matrix: ImportanceMatrix, tmp_path: Path) -> None:
    path = tmp_path / "importance.dat"
    measured_by_hooks.write_imatrix(importances(matrix), path, dataset="nine tokens")
    back = read_importance(path)
    assert back.datasets == ("nine tokens",)
    for name, importance in importances(back).items():
        assert np.array_equal(importance, matrix.columns[name].importance)
    assert set(back.columns) == set(MATRICES)


@pytest.mark.parametrize(("trailer", "datasets", "chunks"), [(TRAILER, ("words",), 7), (b"", (), 0)])
def test_binary_form_is_divided_by_its_chunks(
    tmp_path: Path, trailer: bytes, datasets: tuple[str, ...], chunks: int
) -> None:
    path = tmp_path / "importance.dat"
    path.write_bytes(TWO + trailer)
    matrix = read_importance(path)
    assert {name: values.tolist() for name, values in importances(matrix).items()} == {"a": [0.25, 0.5, 0.75], "b": [2]}
    assert (matrix.datasets, matrix.chunks, matrix.chunk_size) == (datasets, chunks, 1)


def test_binary_form_cut_short_anywhere_is_refused(tmp_path: Path) -> None:
    path, whole = tmp_path / "cut.dat", TWO + TRAILER
    for size in {*range(len(whole))} - {len(TWO)}:
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match=rf"cut\.dat: not an importance matrix: {size} bytes, expected at least"):
            read_importance(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (TWO + TRAILER + b"\0", "goes on after its 2 matrices"),
        (struct.pack("<i", 0), "0 matrices, expected at least 1"),
        (struct.pack("<i", 1) + of_matrix(b"a", 1), "0 columns of a, expected at least 1"),
        (struct.pack("<i", 1) + of_matrix(b"a", -1, 1), "-1 chunks of a, expected at least 0"),
        (struct.pack("<i", 1) + of_matrix(b"a", 0, 1), "tensor a: count is 0, expected a positive number"),
        (struct.pack("<i", 1) + of_matrix(b"a", 1, 1, np.nan), "tensor a: importance of column 1 is nan"),
        (struct.pack("<i", 1) + of_matrix(b"a", 1, -1), "tensor a: importance of column 0 is -1"),
        (struct.pack("<i", 1) + of_matrix(b"\xff", 1, 1), "is not UTF-8 text"),
        (struct.pack("<iii", 1, 2**31 - 1, 0), "expected at least"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_binary_form_that_cannot_be_meant_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.dat"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"bad\.dat: .*{message}"):
        read_importance(path)


def test_absent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.dat: not a readable importance matrix: No such file"):
        read_importance(tmp_path / "absent.dat")


# Quantizing by it


def write_columns(path: Path, columns: Mapping[str, NDArray[np.float32]]) -> Path:
    squares = {name: ColumnSquares(values, 1) for name, values in columns.items()}
    write_importance(ImportanceMatrix(squares, ("nine tokens",), 3, 4), path)
    return path


@pytest.mark.parametrize("recipe", ["q4_0", "q5_k_m", "iq4_xs_mix"])
def test_each_matrix_is_quantized_by_its_own_columns(
    checkpoint: Path, f32: Path, matrix: ImportanceMatrix, tmp_path: Path, recipe: str
) -> None:
    """Also where a file has columns for the embedding and the output matrix, which it is not used for."""
    columns = importances(matrix)
    unused = {name: np.arange(64, dtype=np.float32) for name in ("token_embd.weight", "output.weight")}
    path = write_columns(tmp_path / "importance.gguf", columns | unused)
    convert(checkpoint, tmp_path / "weighted.gguf", recipe, importance=path)
    weights, weighted = read_tensors(f32), GGUFReader(tmp_path / "weighted.gguf").tensors
    quantized = {tensor.name for tensor in weighted if tensor.tensor_type.name != "F32"}
    assert quantized == {*MATRICES, *unused}
    for tensor in weighted:
        if tensor.name in quantized:
            type = tensor.tensor_type.name.lower()
            expected = quantize(weights[tensor.name], type, columns.get(tensor.name))
            assert np.array_equal(tensor.data, expected), tensor.name


def test_a_tensor_that_the_file_lacks_is_quantized_without(
    checkpoint: Path, f32: Path, matrix: ImportanceMatrix, tmp_path: Path
) -> None:
    path = write_columns(tmp_path / "importance.gguf", {DOWN: importances(matrix)[DOWN], "blk.9.x.weight": floats(1)})
    convert(checkpoint, tmp_path / "plain.gguf", "q4_0")
    convert(checkpoint, tmp_path / "weighted.gguf", "q4_0", importance=path)
    plain, weighted = read_tensors(tmp_path / "plain.gguf"), read_tensors(tmp_path / "weighted.gguf")
    assert [name for name in plain if not np.array_equal(plain[name], weighted[name])] == [DOWN]


@pytest.mark.parametrize("type", FORMATS)
@pytest.mark.parametrize("zeros", [slice(None), slice(0, 32), slice(0, 256)], ids=["all", "block", "super-block"])
def test_columns_that_nothing_uses_give_finite_blocks(type: str, zeros: slice) -> None:
    random = np.random.default_rng(0)
    weight, importance = random.standard_normal((3, 512), np.float32), random.random(512, np.float32)
    importance[zeros] = 0
    assert np.isfinite(dequantize(quantize(weight, type, importance), type)).all()


def test_the_file_says_what_it_was_quantized_by(checkpoint: Path, matrix: ImportanceMatrix, tmp_path: Path) -> None:
    path = write_columns(tmp_path / "importance.gguf", importances(matrix))
    convert(checkpoint, tmp_path / "full.gguf", "q4_0", importance=path)
    keys = {name: key for name, key in read_keys(tmp_path / "full.gguf").items() if name.startswith("quantize.")}
    assert keys == {
        "quantize.imatrix.file": (["STRING"], "importance.gguf"),
        "quantize.imatrix.dataset": (["STRING"], "nine tokens"),
        "quantize.imatrix.entries_count": (["UINT32"], len(MATRICES)),
        "quantize.imatrix.chunks_count": (["UINT32"], 3),
    }
    convert(checkpoint, tmp_path / "minimal.gguf", "q4_0", "minimal", importance=path)
    assert not [name for name in read_keys(tmp_path / "minimal.gguf") if name.startswith("quantize.")]


def test_what_the_oldest_files_do_not_say_is_not_said(checkpoint: Path, tmp_path: Path) -> None:
    path = tmp_path / "old.dat"
    path.write_bytes(struct.pack("<i", 1) + of_matrix(DOWN.encode(), 1, *range(256)))
    convert(checkpoint, tmp_path / "out.gguf", "q4_0", importance=path)
    keys = {name for name in read_keys(tmp_path / "out.gguf") if name.startswith("quantize.")}
    assert keys == {"quantize.imatrix.file", "quantize.imatrix.entries_count"}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({GATE: np.ones(65, np.float32)}, rf"tensor {GATE} has 65 importances, expected 64"),
        ({"model.layers.0.x": floats(1)}, r"no importance for any tensor .* it has is model\.layers\.0\.x"),
    ],
    ids=["length", "names"],
)
def test_importance_of_another_model_is_refused(
    checkpoint: Path, tmp_path: Path, columns: dict[str, NDArray[np.float32]], message: str
) -> None:
    path = write_columns(tmp_path / "other.gguf", columns)
    with pytest.raises(InputError, match=rf"^\S*other\.gguf: {message}"):
        convert(checkpoint, tmp_path / "out.gguf", "q4_0", importance=path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("recipe", "plain", "weighted"),
    [
        ("q4_0_mix", ["q4_0", "q4_0", "q4_0"], ["q4_1", "q4_1", "q4_0"]),
        ("q5_0_mix", ["q5_0", "q5_0", "q5_0"], ["q5_1", "q5_1", "q5_0"]),
        ("iq4_nl_mix", ["q5_k", "q5_k", "iq4_nl"], ["iq4_nl", "iq4_nl", "iq4_nl"]),
        ("iq4_xs_mix", ["q5_k", "q5_k", "iq4_xs"], ["iq4_xs", "iq4_xs", "iq4_xs"]),
        ("q4_k_m", ["q6_k", "q6_k", "q4_k"], ["q6_k", "q6_k", "q4_k"]),
        ("q4_0", ["q4_0", "q4_0", "q4_0"], ["q4_0", "q4_0", "q4_0"]),
    ],
)
def test_mixes_give_the_first_ffn_downs_other_types(recipe: str, plain: list[str], weighted: list[str]) -> None:
    """As llama-quant.cpp does in the first eighth of the layers, here the first two of 16."""
    shapes = {f"blk.{layer}.ffn_down.weight": (256, 256) for layer in range(3)}
    for with_importance, expected in ((False, plain), (True, weighted)):
        types = types_for(find_recipe(recipe, with_importance), shapes, layers=16, grouping=1)
        assert list(types.values()) == expected


def test_conversion_uses_the_mixes_types(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "eight-layers", {"num_hidden_layers": 8})
    path = write_columns(tmp_path / "importance.gguf", {DOWN: np.ones(256, np.float32)})
    for importance, expected in ((None, "Q4_0"), (path, "Q4_1")):
        convert(folder, tmp_path / "out.gguf", "q4_0_mix", importance=importance)
        types = {tensor.name: tensor.tensor_type.name for tensor in GGUFReader(tmp_path / "out.gguf").tensors}
        assert types["blk.0.ffn_down.weight"] == expected


# The command line


def test_commands_measure_and_quantize(
    checkpoint: Path, f32: Path, matrix: ImportanceMatrix, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    ids = tmp_path / "ids.txt"
    ids.write_text("\n".join(map(str, TOKENS)))
    given, from_file, out = tmp_path / "given.gguf", tmp_path / "from-file.gguf", tmp_path / "out.gguf"
    assert main(["importance", str(f32), "--tokens", ",".join(map(str, TOKENS)), "--output", str(given)]) == 0
    assert main(["importance", str(f32), "--tokens-file", str(ids), "--output", str(from_file)]) == 0
    assert "14 tensors over 9 tokens in 1 chunks" in capsys.readouterr().out
    for path in (given, from_file):
        for name, importance in importances(read_importance(path)).items():
            assert np.array_equal(importance, matrix.columns[name].importance)
    assert read_importance(from_file).datasets == ("ids.txt",)
    assert main(["convert", str(checkpoint), str(out), "--recipe", "q4_0", "--importance", str(from_file)]) == 0
    assert read_keys(out)["quantize.imatrix.dataset"] == (["STRING"], "ids.txt")


class TakesNone(Reference):
    """A converter with the contract's least parameters."""

    def convert(self, checkpoint: Path, output: Path, recipe: str, metadata: str = "full") -> None:
        super().convert(checkpoint, output, recipe, metadata)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda at: ["importance", at("f32.gguf"), "--tokens-file", at("words.txt")], "words.txt: no token ids"),
        (lambda at: ["importance", at("f32.gguf"), "--tokens-file", at("absent")], "absent: no token ids"),
        (lambda at: ["importance", at("f32.gguf"), "--tokens", "40"], "token 40"),
        (lambda at: ["importance", at("words.txt"), "--tokens", "1"], "words.txt: not a readable GGUF file"),
        (lambda at: ["convert", at("small"), "--importance", at("words.txt")], "words.txt: not an importance matrix"),
        (lambda at: ["convert", at("small"), "--importance", at("f32.gguf")], "general.type is 'model'"),
        (
            lambda at: ["convert", at("small"), "--importance", at("f32.gguf"), "--impl", f"{__name__}:TakesNone"],
            "TakesNone': takes no importance matrix",
        ),
    ],
)
def test_mistakes_are_answered_in_one_line_and_leave_nothing(
    checkpoint: Path,
    f32: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    arguments: Callable[[Callable[[str], str]], list[str]],
    message: str,
) -> None:
    (checkpoint.parent / "words.txt").write_text("1 2 drei")
    command, first, *options = arguments(lambda name: str(f32.parent / name))
    output = str(tmp_path / "out.gguf")
    options += ["--output", output] if command == "importance" else []
    positional = [first, output] if command == "convert" else [first]
    assert main([command, *positional, *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
