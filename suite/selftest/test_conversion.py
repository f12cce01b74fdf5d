"""The reference's conversion, step by step, against closed forms and on small checkpoints."""

import json
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader
from numpy.typing import NDArray

from impl.errors import InputError
from impl.reference.blocks import PIECE, quantize
from impl.reference.checkpoint import PIECE as CHECKED_TOGETHER
from impl.reference.checkpoint import Checkpoint
from impl.reference.convert import Steps, convert
from impl.reference.names import gguf_name, hugging_face_name
from impl.reference.permute import to_gguf, to_hugging_face
from impl.reference.recipe import RECIPES, types_for, with_fallback
from suite.selftest.small_checkpoint import CONFIG, TOKENIZER, tensors, write_checkpoint

THREADS = 2
PIECES = THREADS * 8 * PIECE
"""Bytes for what threads work on at the moment, which do not grow with the tensor."""
SMOLLM2_LAYERS = 30
SMOLLM2_GROUPING = 3


def smollm2_shapes() -> dict[str, tuple[int, ...]]:
    layer: Mapping[str, tuple[int, ...]] = {
        "attn_norm": (576,),
        "ffn_norm": (576,),
        "attn_q": (576, 576),
        "attn_k": (192, 576),
        "attn_v": (192, 576),
        "attn_output": (576, 576),
        "ffn_gate": (1536, 576),
        "ffn_up": (1536, 576),
        "ffn_down": (576, 1536),
    }
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (49152, 576), "output_norm.weight": (576,)}
    for i in range(SMOLLM2_LAYERS):
        shapes |= {f"blk.{i}.{name}.weight": shape for name, shape in layer.items()}
    return shapes


def smollm2_types(recipe: str) -> dict[str, str]:
    return types_for(RECIPES[recipe], smollm2_shapes(), SMOLLM2_LAYERS, SMOLLM2_GROUPING)


def read_tensors(file: Path) -> dict[str, NDArray]:
    return {tensor.name: np.array(tensor.data) for tensor in GGUFReader(file).tensors}


def read_types(file: Path) -> dict[str, str]:
    return {tensor.name: tensor.tensor_type.name for tensor in GGUFReader(file).tensors}


def read_keys(file: Path) -> dict[str, object]:
    fields = GGUFReader(file).fields
    return {name: field.contents() for name, field in fields.items() if not name.startswith("GGUF.")}


def converted(folder: Path, recipe: str = "f32", metadata: str = "minimal") -> Path:
    output = folder.with_suffix(f".{recipe}.{metadata}.gguf")
    convert(folder, output, recipe, metadata)
    return output


# Row order


def test_eight_heads_over_two_key_value_heads_interleave_the_halves_of_two_heads() -> None:
    """16 rows of k are two heads of 8: n_head (8) or n_head // n_head_kv (4) would give another order."""
    expected = [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]
    assert to_gguf(np.arange(16), heads=2).tolist() == expected


@pytest.mark.parametrize(("heads", "size"), [(1, 2), (2, 8), (3, 64), (8, 16), (9, 64)])
@pytest.mark.parametrize("columns", [(), (5,)])
def test_rows_i_and_i_plus_half_become_2i_and_2i_plus_1(heads: int, size: int, columns: tuple[int, ...]) -> None:
    rows = np.random.default_rng(0).standard_normal((heads * size, *columns))
    moved = to_gguf(rows, heads)
    for head in range(heads):
        for i in range(size // 2):
            start = head * size
            assert np.array_equal(moved[start + 2 * i], rows[start + i])
            assert np.array_equal(moved[start + 2 * i + 1], rows[start + size // 2 + i])
    assert np.array_equal(to_hugging_face(moved, heads), rows)


@pytest.mark.parametrize("reorder", [to_gguf, to_hugging_face])
def test_rows_that_are_not_whole_pairs_of_every_head_are_refused(reorder: Callable) -> None:
    with pytest.raises(InputError, match=r"18 rows.*2 x 4 heads"):
        reorder(np.zeros((18, 3)), 4)


def test_q_moves_by_heads_and_k_by_key_value_heads_with_their_biases(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint")
    source, written = tensors(CONFIG), read_tensors(converted(folder))
    for layer in range(2):
        for parameter in ("weight", "bias"):
            for module, name, heads in (
                ("q_proj", "attn_q", 8),
                ("k_proj", "attn_k", 2),
                ("v_proj", "attn_v", 0),
            ):
                rows = source[f"model.layers.{layer}.self_attn.{module}.{parameter}"].astype(np.float32)
                if heads:
                    halves = rows.reshape(heads, 2, 8, -1)
                    rows = np.stack([halves[:, 0], halves[:, 1]], axis=2).reshape(rows.shape)
                assert np.array_equal(written[f"blk.{layer}.{name}.{parameter}"], rows)


# Names


def test_every_name_goes_to_gguf_and_back() -> None:
    names = {gguf_name(name): name for name in tensors(CONFIG)}
    assert len(names) == len(tensors(CONFIG))
    assert all(hugging_face_name(name) == original for name, original in names.items())
    assert names["output.weight"] == "lm_head.weight"
    assert names["blk.1.attn_output.bias"] == "model.layers.1.self_attn.o_proj.bias"


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.mlp.experts.weight",
        "model.layers.x.mlp.up_proj.weight",
        "model.norm.scale",
        "norm.weight",
    ],
)
def test_a_name_that_no_llama_has_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=name):
        gguf_name(name)


# Values and files


def test_every_value_survives_from_mixed_dtypes_and_shards(tmp_path: Path) -> None:
    source = {gguf_name(name): tensor.astype(np.float32) for name, tensor in tensors(CONFIG).items()}
    whole = converted(write_checkpoint(tmp_path / "whole"))
    sharded = converted(write_checkpoint(tmp_path / "sharded", shards=3))
    assert whole.read_bytes() == sharded.read_bytes()
    written = read_tensors(whole)
    assert written.keys() == source.keys()
    unmoved = [name for name in source if ".attn_q." not in name and ".attn_k." not in name]
    assert unmoved and all(np.array_equal(written[name], source[name]) for name in unmoved)


def test_converting_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint")
    first = converted(folder, "q8_0", "full").read_bytes()
    assert converted(folder, "q8_0", "full").read_bytes() == first


def test_stored_rotary_frequencies_are_left_out(tmp_path: Path) -> None:
    stored = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(8, np.float32)}
    folder = write_checkpoint(tmp_path / "checkpoint", edits=stored)
    assert len(read_tensors(converted(folder))) == len(tensors(CONFIG))


def test_a_tied_checkpoint_with_an_equal_head_has_one_copy(tmp_path: Path) -> None:
    embedding = tensors(CONFIG)["model.embed_tokens.weight"]
    tied = {"tie_word_embeddings": True}
    without = write_checkpoint(tmp_path / "without", tied, edits={"model.embed_tokens.weight": embedding})
    both = {"model.embed_tokens.weight": embedding, "lm_head.weight": embedding.astype(np.float32)}
    with_head = write_checkpoint(tmp_path / "with", tied, edits=both)
    assert "output.weight" not in read_tensors(converted(without))
    assert "output.weight" not in read_tensors(converted(with_head))


def test_a_tied_checkpoint_with_another_head_keeps_it(tmp_path: Path) -> None:
    """As transformers does, which then does not tie them."""
    head = np.ones((40, 64), np.float32)
    folder = write_checkpoint(tmp_path / "checkpoint", {"tie_word_embeddings": True}, edits={"lm_head.weight": head})
    assert np.array_equal(read_tensors(converted(folder))["output.weight"], head)


def test_memory_holds_one_tensor_at_a_time(tmp_path: Path) -> None:
    layers, largest = 24, 256 * 64 * 4
    folder = write_checkpoint(tmp_path / "checkpoint", {"num_hidden_layers": layers})
    converted(folder)
    tracemalloc.start()
    output = converted(folder)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.4 * output.stat().st_size
    assert output.stat().st_size > 60 * largest


@pytest.mark.parametrize("recipe", ["q8_0", "q4_k_m"])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_a_tensor_takes_no_more_memory_than_its_float32_and_its_output(
    tmp_path: Path, dtype: type[np.generic], recipe: str
) -> None:
    rows, columns = 32768, 256
    config = {"vocab_size": rows, "hidden_size": columns, "tie_word_embeddings": True}
    embedding = np.random.default_rng(0).standard_normal((rows, columns), dtype=np.float32)
    edits = {"model.embed_tokens.weight": embedding.astype(dtype)}
    folder = write_checkpoint(tmp_path / "checkpoint", config, edits=edits)
    steps = Steps(quantize=partial(quantize, threads=THREADS))
    convert(folder, tmp_path / "warm.gguf", recipe, "minimal", steps)
    tracemalloc.start()
    convert(folder, tmp_path / "model.gguf", recipe, "minimal", steps)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    output = read_tensors(tmp_path / "model.gguf")["token_embd.weight"].nbytes
    assert peak < embedding.nbytes + output + PIECES


def test_the_very_last_weight_of_a_large_tensor_is_looked_at(tmp_path: Path) -> None:
    """F32 is written as it is read, so that no quantizing finds what reading has missed."""
    embedding = np.zeros((CHECKED_TOGETHER // 64 + 3, 64), np.float32)
    embedding[-1, -1] = np.nan
    config, edits = {"vocab_size": len(embedding)}, {"model.embed_tokens.weight": embedding}
    folder = write_checkpoint(tmp_path / "checkpoint", config, edits=edits)
    with pytest.raises(InputError, match=rf"embed_tokens.weight: nan at \[{len(embedding) - 1}, 63\]"):
        converted(folder, "f32")


def test_converting_does_not_import_torch() -> None:
    program = "import sys, impl.reference, impl.__main__; print('torch' in sys.modules)"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "False"


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_conversion_leaves_the_folder_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interruption: type[BaseException]
) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint")
    output = tmp_path / "output" / "model.gguf"
    output.parent.mkdir()
    output.write_text("from before")
    read = Checkpoint.tensor

    def interrupted(checkpoint: Checkpoint, name: str) -> NDArray[np.float32]:
        if name == "model.norm.weight":
            raise interruption
        return read(checkpoint, name)

    monkeypatch.setattr(Checkpoint, "tensor", interrupted)
    with pytest.raises(interruption):
        convert(folder, output, "f32", "minimal")
    assert [path.name for path in output.parent.iterdir()] == ["model.gguf"]
    assert output.read_text() == "from before"


# Recipes


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ("f32", {"f32": 272}),
        ("q8_0", {"f32": 61, "q8_0": 211}),
        ("q4_k", {"f32": 61, "q4_k": 30, "q5_0": 181}),
        ("q4_0", {"f32": 61, "q4_0": 211}),
        ("q6_k", {"f32": 61, "q6_k": 30, "q8_0": 181}),
        ("q4_0_mix", {"f32": 61, "q4_0": 210, "q8_0": 1}),
        ("q4_k_m", {"f32": 61, "q4_k": 16, "q6_k": 14, "q5_0": 166, "q8_0": 15}),
        ("q3_k_m", {"f32": 61, "q4_0": 120, "q4_k": 29, "q5_k": 1, "q5_0": 58, "q5_1": 2, "q8_0": 1}),
        ("q2_k_mix", {"f32": 61, "q4_0": 180, "q3_k": 30, "q8_0": 1}),
    ],
)
def test_types_on_the_shapes_of_smollm2(recipe: str, expected: Mapping[str, int]) -> None:
    assert Counter(smollm2_types(recipe).values()) == expected


@pytest.mark.parametrize(
    ("layers", "more"),
    [
        (30, [0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 26, 27, 28, 29]),
        (32, [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]),
    ],
)
def test_q4_k_m_gives_more_bits_to_the_first_eighth_the_last_and_every_third_between(
    layers: int, more: list[int]
) -> None:
    shapes = {f"blk.{i}.{name}.weight": (512, 512) for i in range(layers) for name in ("attn_v", "ffn_down")}
    types = types_for(RECIPES["q4_k_m"], shapes, layers, 1)
    for name in ("attn_v", "ffn_down"):
        found = [types[f"blk.{i}.{name}.weight"] for i in range(layers)]
        assert found == ["q6_k" if i in more else "q4_k" for i in range(layers)]


def test_the_head_gets_more_bits_and_an_untied_embedding_does_not() -> None:
    shapes = {"token_embd.weight": (1000, 512), "output.weight": (1000, 512)}
    types = types_for(RECIPES["q4_k_m"], shapes, 1, 1)
    assert types == {"token_embd.weight": "q4_k", "output.weight": "q6_k"}


@pytest.mark.parametrize(("layers", "grouping", "expected"), [(32, 1, "q3_k"), (32, 4, "q4_k"), (80, 8, "q5_k")])
def test_grouped_values_get_more_bits_in_q2_k(layers: int, grouping: int, expected: str) -> None:
    shapes = {"blk.3.attn_v.weight": (256, 512)}
    assert types_for(RECIPES["q2_k_mix"], shapes, layers, grouping) == {"blk.3.attn_v.weight": expected}


@pytest.mark.parametrize(
    ("type", "columns", "expected"),
    [
        ("q4_k", 1536, "q4_k"),
        ("q4_k", 4544, "q5_0"),
        ("q4_k", 14464, "q5_0"),
        ("q6_k", 288, "q8_0"),
        ("q3_k", 288, "q4_0"),
        ("q5_k", 288, "q5_1"),
        ("iq4_xs", 288, "iq4_nl"),
        ("q4_k", 100, "f16"),
        ("q8_0", 100, "f16"),
    ],
)
def test_the_fallback_follows_from_the_row_not_from_the_tensor(type: str, columns: int, expected: str) -> None:
    assert with_fallback(type, columns) == expected


def test_every_recipe_writes_types_that_a_file_may_hold() -> None:
    types = {recipe.base for recipe in RECIPES.values()}
    types |= {rule.type for recipe in RECIPES.values() for rule in recipe.rules}
    assert {type.upper() for type in types} <= set(GGMLQuantizationType.__members__)
    assert {"f32", "f16", "bf16", "q4_k", "q8_0"} <= types
    assert not types & {"q8_1", "q8_k"}, "formats of activations"


def test_one_dimensional_tensors_are_never_quantized(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint")
    for recipe in ("q8_0", "f16", "bf16"):
        types = read_types(converted(folder, recipe))
        flat = [name for name in types if "norm" in name or name.endswith(".bias")]
        assert flat and {types[name] for name in flat} == {"F32"}
        assert "F32" not in {types[name] for name in types if name not in flat}


# Metadata


def test_minimal_metadata_is_eight_keys_with_the_values_of_the_config(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint", tokenizer=None)
    assert read_keys(converted(folder)) == {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "llama.embedding_length": 64,
        "llama.attention.head_count": 8,
        "llama.attention.head_count_kv": 2,
        "llama.rope.freq_base": 31000.0,
        "llama.attention.layer_norm_rms_epsilon": pytest.approx(3e-6),
        "llama.rope.dimension_count": 16,
    }


def test_full_metadata_says_what_other_readers_need(tmp_path: Path) -> None:
    keys = read_keys(converted(write_checkpoint(tmp_path / "checkpoint"), "q8_0", "full"))
    expected = {
        "general.type": "model",
        "general.name": "checkpoint",
        "general.file_type": 7,
        "general.quantization_version": 2,
        "llama.context_length": 512,
        "llama.feed_forward_length": 256,
        "llama.vocab_size": 40,
        "llama.attention.key_length": 16,
        "llama.attention.value_length": 16,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": [
            "<end>",
            "<start>",
            "a",
            "b",
            "ab",
            "<tool>",
            *(f"[PAD{i}]" for i in range(6, 40)),
        ],
        "tokenizer.ggml.token_type": [3, 3, 1, 1, 1, 4, *[5] * 34],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.chat_template": "{{ messages }}",
    }
    assert {key: keys.get(key) for key in expected} == expected


def test_value_types_are_those_that_readers_insist_on(tmp_path: Path) -> None:
    fields = GGUFReader(converted(write_checkpoint(tmp_path / "checkpoint"), "q8_0", "full")).fields
    found = {name: [type.name for type in field.types] for name, field in fields.items()}
    assert found["llama.attention.head_count"] == ["UINT32"]
    assert found["llama.rope.freq_base"] == ["FLOAT32"]
    assert found["llama.attention.layer_norm_rms_epsilon"] == ["FLOAT32"]
    assert found["general.quantization_version"] == ["UINT32"]
    assert found["tokenizer.ggml.tokens"] == ["ARRAY", "STRING"]
    assert found["tokenizer.ggml.token_type"] == ["ARRAY", "INT32"]
    assert found["tokenizer.ggml.add_bos_token"] == ["BOOL"]


def test_an_unquantized_file_has_no_quantization_version(tmp_path: Path) -> None:
    keys = read_keys(converted(write_checkpoint(tmp_path / "checkpoint"), "f16", "full"))
    assert "general.quantization_version" not in keys
    assert keys["general.file_type"] == 1


@pytest.mark.parametrize(
    ("config", "key", "value"),
    [
        (
            {"num_key_value_heads": None, "head_dim": 8, "num_attention_heads": 2},
            "llama.attention.head_count_kv",
            2,
        ),
        ({"head_dim": None}, "llama.rope.dimension_count", 8),
        ({"rope_theta": None}, "llama.rope.freq_base", 10000.0),
        ({"rope_theta": None, "rope_parameters": {"rope_theta": 1e6}}, "llama.rope.freq_base", 1e6),
        ({"rope_theta": 5e5, "rope_scaling": None}, "llama.rope.freq_base", 5e5),
    ],
)
def test_what_a_config_leaves_out_or_nests_is_found(tmp_path: Path, config: dict, key: str, value: float) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint", config)
    assert read_keys(converted(folder))[key] == value


def test_llama3_scaling_becomes_a_tensor_of_half_the_head_size(tmp_path: Path) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 128,
    }
    config = {"head_dim": 32, "num_attention_heads": 4, "rope_scaling": scaling, "rope_theta": 10000.0}
    written = read_tensors(converted(write_checkpoint(tmp_path / "checkpoint", config)))["rope_freqs.weight"]
    wavelengths = 2 * np.pi * 10000.0 ** (np.arange(16) / 16)
    ramp = (128 / wavelengths - 1.0) / 3.0
    expected = np.where(wavelengths < 32, 1.0, np.where(wavelengths > 128, 8.0, 1 / ((1 - ramp) / 8 + ramp)))
    assert written.dtype == np.float32 and len({1.0, 8.0} & set(written.tolist())) == 2
    assert np.any((written > 1) & (written < 8))
    np.testing.assert_allclose(written, expected, rtol=1e-6)


def test_linear_scaling_becomes_keys_that_minimal_metadata_lacks(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint", {"rope_scaling": {"type": "linear", "factor": 4.0}})
    keys = read_keys(converted(folder, metadata="full"))
    assert (keys["llama.rope.scaling.type"], keys["llama.rope.scaling.factor"]) == ("linear", 4.0)
    with pytest.raises(InputError, match="linear"):
        converted(folder)


# Tokenizer


def test_merges_may_be_strings(tmp_path: Path) -> None:
    tokenizer = {**TOKENIZER, "model": {**TOKENIZER["model"], "merges": ["a b"]}}
    keys = read_keys(converted(write_checkpoint(tmp_path / "checkpoint", tokenizer=tokenizer), metadata="full"))
    assert keys["tokenizer.ggml.merges"] == ["a b"]


def test_a_tokenizer_of_bytes_alone_has_no_merges(tmp_path: Path) -> None:
    tokenizer = {**TOKENIZER, "model": {**TOKENIZER["model"], "merges": []}}
    keys = read_keys(converted(write_checkpoint(tmp_path / "checkpoint", tokenizer=tokenizer), metadata="full"))
    assert "tokenizer.ggml.merges" not in keys


def test_a_chat_template_may_be_a_file_of_its_own(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint")
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<start>"}))
    (folder / "chat_template.jinja").write_text("{{ own }}")
    assert read_keys(converted(folder, metadata="full"))["tokenizer.chat_template"] == "{{ own }}"


def test_a_template_that_starts_with_the_first_token_adds_it(tmp_path: Path) -> None:
    single = [{"SpecialToken": {"id": "<start>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    special = {"<start>": {"id": "<start>", "ids": [1], "tokens": ["<start>"]}}
    template = {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": special}
    tokenizer = {**TOKENIZER, "post_processor": template}
    folder = write_checkpoint(tmp_path / "checkpoint", tokenizer=tokenizer)
    assert read_keys(converted(folder, metadata="full"))["tokenizer.ggml.add_bos_token"] is True


GPT2_SPLIT = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
LLAMA3_SPLIT = {
    "type": "Sequence",
    "pretokenizers": [
        {
            "type": "Split",
            "behavior": "Isolated",
            "invert": False,
            "pattern": {
                "Regex": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
                " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
            },
        },
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
    ],
}


@pytest.mark.parametrize(
    ("pre_tokenizer", "ignore_merges", "expected"),
    [(GPT2_SPLIT, False, "gpt-2"), (LLAMA3_SPLIT, True, "llama-bpe"), (LLAMA3_SPLIT, False, "smaug-bpe")],
)
def test_the_pre_tokenizer_is_recognised(
    tmp_path: Path, pre_tokenizer: dict, ignore_merges: bool, expected: str
) -> None:
    model = {**TOKENIZER["model"], "ignore_merges": ignore_merges}
    tokenizer = {**TOKENIZER, "pre_tokenizer": pre_tokenizer, "model": model}
    keys = read_keys(converted(write_checkpoint(tmp_path / "checkpoint", tokenizer=tokenizer), metadata="full"))
    assert keys["tokenizer.ggml.pre"] == expected
    assert keys["tokenizer.ggml.add_space_prefix"] is pre_tokenizer.get("add_prefix_space", False)
