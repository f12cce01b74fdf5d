"""The recorded vectors are what the library still makes, what others make of them too, and of the form stated."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from jsonschema import Draft202012Validator

from impl.adapters.ggml import Ggml
from suite.__main__ import main
from suite.kit import vectors
from suite.kit.block_inputs import FINITE, IMPORTANCES
from suite.kit.vectors import FOLDER, TypeVectors, Vector

TYPES = Ggml.types
QUANTIZED_BY_GGUF = ("f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "tq1_0", "tq2_0", "mxfp4")
READ_BY_GGUF = tuple(type for type in TYPES if type not in ("q1_0", "q2_0"))
VALIDATOR = Draft202012Validator(json.loads((FOLDER / "schema.json").read_text("utf-8")))

of_every_type = pytest.mark.parametrize("type", TYPES)


def content(type: str) -> dict:
    return json.loads((FOLDER / f"{type}.json").read_text("utf-8"))


def both_directions(recorded: TypeVectors) -> tuple[Vector, ...]:
    return recorded.quantize + recorded.dequantize


def read_by_gguf(vector: Vector, type: str) -> np.ndarray:
    return gguf.dequantize(vector.blocks[None], gguf.GGMLQuantizationType[type.upper()])[0]


def test_there_is_a_file_for_every_type_and_no_other() -> None:
    assert {path.name for path in FOLDER.glob("*.json")} == {*(f"{type}.json" for type in TYPES), "schema.json"}


def test_the_schema_is_a_schema() -> None:
    VALIDATOR.check_schema(VALIDATOR.schema)


@of_every_type
def test_a_file_has_the_form_that_the_schema_states(type: str) -> None:
    VALIDATOR.validate(content(type))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.pop("generator"),
        lambda file: file.update(date="today"),
        lambda file: file["quantize"][0].pop("id"),
        lambda file: file["quantize"][0].update(weight="0123456"),
        lambda file: file["dequantize"][0].update(blocks="0G"),
    ],
)
def test_the_schema_refuses_another_form(spoil: object) -> None:
    file = content("q8_0")
    spoil(file)
    assert not VALIDATOR.is_valid(file)


@of_every_type
def test_made_again_a_file_is_the_same_to_the_byte(type: str) -> None:
    text = vectors.as_text(vectors.generate(type))
    here, recorded = json.loads(text)["generator"], content(type)["generator"]
    if here != recorded:
        pytest.skip(f"recorded with {recorded}, not {here}")
    assert text.encode() == (FOLDER / f"{type}.json").read_bytes()


def test_the_command_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(Ggml, "types", ("q4_0", "q8_0"))
    assert main(["vectors", "--into", str(tmp_path / "new")]) == 0
    written = [tmp_path / "new" / "q4_0.json", tmp_path / "new" / "q8_0.json"]
    assert capsys.readouterr().out.split() == list(map(str, written))
    assert [path.read_bytes() for path in written] == [(FOLDER / path.name).read_bytes() for path in written]


@of_every_type
def test_what_is_loaded_is_what_was_written(type: str) -> None:
    recorded = content(type)
    recorded.pop("generator")
    again = json.loads(vectors.as_text(vectors.load(type)))
    again.pop("generator")
    assert again == recorded


def test_every_id_is_its_own_and_says_type_and_direction() -> None:
    ids = []
    for type in TYPES:
        recorded = vectors.load(type)
        for direction in ("quantize", "dequantize"):
            own = [vector.id for vector in getattr(recorded, direction)]
            assert all(identity.startswith(f"{type}/{direction}/") for identity in own)
            ids += own
    assert len(set(ids)) == len(ids)


@of_every_type
def test_flags_say_what_the_inputs_catch(type: str) -> None:
    """Recomputed from the id: the input's row, the importance, and the meaning of each flag."""
    inputs = {each.name.replace(" ", "-").replace("--", "-"): each for each in FINITE}
    importances = {f"importance-{each.name.replace(' ', '-')}": each for each in IMPORTANCES}
    recorded, meanings = vectors.load(type), content(type)["flags"]
    for vector in recorded.quantize:
        _, _, name, row, *weighed = vector.id.split("/")
        assert vector.flags == (name, *weighed)
        assert vector.weight.tobytes() == inputs[name].weight()[int(row), : vector.weight.size].tobytes()
        assert meanings[name] == inputs[name].catches
        assert (vector.importance is None) == (not weighed)
        for importance in weighed:
            assert vector.importance.tobytes() == importances[importance].columns()[: vector.weight.size].tobytes()
            assert meanings[importance] == importances[importance].catches
    assert set(meanings) == {flag for vector in both_directions(recorded) for flag in vector.flags}


@of_every_type
def test_rows_are_whole_blocks_of_finite_weights(type: str) -> None:
    file, recorded = content(type), vectors.load(type)
    for vector in both_directions(recorded):
        blocks, rest = divmod(vector.weight.size, file["block_values"])
        assert (rest, vector.blocks.size) == (0, blocks * file["block_bytes"])
        assert np.isfinite(vector.weight).all()


@pytest.mark.parametrize("type", QUANTIZED_BY_GGUF)
def test_gguf_py_makes_the_same_blocks(type: str) -> None:
    plain = [vector for vector in vectors.load(type).quantize if vector.importance is None]
    number = gguf.GGMLQuantizationType[type.upper()]
    differing = [
        vector.id
        for vector in plain
        if gguf.quantize(vector.weight[None], number).view(np.uint8).tobytes() != vector.blocks.tobytes()
    ]
    assert plain
    assert not differing


@pytest.mark.parametrize("type", READ_BY_GGUF)
def test_gguf_py_reads_the_same_weights(type: str) -> None:
    recorded = vectors.load(type).dequantize
    assert recorded
    assert not [each.id for each in recorded if read_by_gguf(each, type).tobytes() != each.weight.tobytes()]


@pytest.mark.parametrize("type", READ_BY_GGUF)
def test_blocks_stand_for_the_weights_beside_them(type: str) -> None:
    """By a reader that is not the library's: even ternary codes keep the direction of a row."""
    ordinary = [vector for vector in vectors.load(type).quantize if vector.flags in (("normal",), ("cosine",))]
    weighed = [vector for vector in vectors.load(type).quantize if "importance-ones" in vector.flags]
    for vector in ordinary or weighed:
        read = read_by_gguf(vector, type)
        assert read @ vector.weight > 0.5 * np.linalg.norm(read) * np.linalg.norm(vector.weight), vector.id
    assert ordinary or weighed
