"""A checkpoint becomes a GGUF: names, values, row order, types, keys and size."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from impl.protocol import Converter, Quantizer
from suite.audit.audit import audit_file
from suite.claims import claim
from suite.kit import layout, surgery
from suite.kit.independent import transformers_tensors
from suite.kit.mismatches import first_difference, mismatches
from suite.kit.names import layer_of
from suite.kit.results import Measure
from suite.kit.runs import Runs
from suite.kit.selection import require_member
from suite.kit.source import Source
from suite.kit.tensors import open_gguf

RECIPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q6_k")
FULL_KEYS = {
    "general.file_type",
    "general.quantization_version",
    "llama.context_length",
    "llama.feed_forward_length",
    "llama.vocab_size",
    "tokenizer.ggml.model",
    "tokenizer.ggml.pre",
    "tokenizer.ggml.tokens",
    "tokenizer.ggml.token_type",
    "tokenizer.ggml.merges",
    "tokenizer.ggml.bos_token_id",
    "tokenizer.ggml.eos_token_id",
    "tokenizer.chat_template",
}
"""What llama.cpp and transformers need beyond the minimal keys, as in the published file."""


@claim("checkpoint.size")
def test_checkpoint_size(runs: Runs, measured: Measure) -> None:
    """The safetensors of the checkpoint are as large as the published ones."""
    size = sum(file.stat().st_size for file in runs.checkpoint.folder.glob("*.safetensors"))
    measured.exactly("model.safetensors, bytes", size)


@claim("conversion.names")
def test_tensors_are_named_as_llama_cpp_names_them(runs: Runs, converter: Converter, measured: Measure) -> None:
    """Every tensor has llama.cpp's name and its own shape; a tied head is not written a second time."""
    reader = open_gguf(runs.file(converter, "f32"))
    # GGUF states the shortest-stride dimension first.
    found = {tensor.name: tuple(int(size) for size in reversed(tensor.shape)) for tensor in reader.tensors}
    measured.exactly("tensors", len(reader.tensors))
    differing = mismatches(found, runs.source.gguf_shapes())
    assert not differing, differing


@claim("conversion.order")
def test_layers_are_written_in_ascending_order(runs: Runs, converter: Converter) -> None:
    """Tensors come layer by layer, in ascending order: llama.cpp's mixes give more bits by a tensor's place in the
    file, so that a Q4_K_M made from a file in another order has other types."""
    layers = [layer_of(tensor.name) for tensor in open_gguf(runs.file(converter, "f32")).tensors]
    inside = [layer for layer in layers if layer >= 0]
    assert inside, "no tensor belongs to a layer"
    parted = first_difference(inside, sorted(inside))
    assert not parted, f"layers out of order, tensor {parted}"


@claim("conversion.values")
def test_transformers_reads_the_f32_file_back_exactly(runs: Runs, converter: Converter, measured: Measure) -> None:
    """From the f32 file, transformers' own GGUF loader gives back every source tensor bit for bit."""
    read = transformers_tensors(runs.file(converter, "f32"))
    names = runs.source.hugging_face_names.values()
    different = [name for name in names if not np.array_equal(read[name], runs.source.tensor(name))]
    measured("tensors compared", len(names))
    measured("tensors that differ", len(different))
    assert names and not different, f"differ after transformers' loader: {', '.join(different[:4])} …"


@claim("conversion.permutation")
def test_rows_of_q_and_k_are_reordered_by_their_own_heads(runs: Runs, converter: Converter, measured: Measure) -> None:
    """Row 2i of each head of q and k is the checkpoint's row i, row 2i + 1 its row i + d/2; no other row moves.

    q is ordered by n_head, k by n_head_kv.
    """
    heads = runs.source.heads
    measured.exactly("heads of q", heads["attn_q"])
    measured.exactly("heads of k", heads["attn_k"])
    written = {tensor.name: tensor.data for tensor in open_gguf(runs.file(converter, "f32")).tensors}
    misplaced = [name for name, tensor in runs.source.gguf_tensors() if not np.array_equal(written.get(name), tensor)]
    assert written and not misplaced, f"rows out of place in {len(misplaced)} tensors, first {misplaced[:4]}"


@claim("conversion.one-dimensional")
@pytest.mark.parametrize("recipe", ["f16", "q8_0", "q4_k"])
def test_one_dimensional_tensors_stay_f32(runs: Runs, converter: Converter, recipe: str, measured: Measure) -> None:
    """Norms are written as F32 under every recipe, their values untouched."""
    reader = open_gguf(runs.file(converter, recipe))
    norms = {name: tensor for name, tensor in runs.source.gguf_tensors() if tensor.ndim == 1}
    written = {tensor.name: tensor for tensor in reader.tensors if tensor.name in norms}
    measured.exactly("1-D tensors", len(norms))
    wrong = mismatches({name: each.tensor_type.name for name, each in written.items()}, dict.fromkeys(norms, "F32"))
    assert not wrong, wrong
    changed = [name for name, values in norms.items() if not np.array_equal(written[name].data, values)]
    assert not changed, f"{len(changed)} of {len(norms)} norms have other values, first {changed[0]}"


@claim("conversion.tensors")
@pytest.mark.parametrize("recipe", ["q8_0", "q4_0", "q4_k", "q4_k_m"])
def test_every_tensor_is_right_for_the_type_that_it_has(
    runs: Runs, converter: Converter, recipe: str, measured: Measure
) -> None:
    """Whatever types a recipe mixes, every tensor stands for the checkpoint's weights as nearly as its own type can."""
    audit = audit_file(runs.file(converter, recipe), runs.checkpoint.folder)
    measured("tensors compared", len(audit.comparisons))
    measured("tensors that ggml quantizes to the same bytes", sum(each.is_identical for each in audit.comparisons))
    faults = [found.message for found in audit.findings if found.rule.startswith("values.") and found.breaks]
    expected = len(runs.source.gguf_shapes())
    assert len(audit.comparisons) == expected, f"{len(audit.comparisons)} of {expected} tensors could be compared"
    assert not faults, "\n".join(faults)


@claim("conversion.types")
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_named_after_a_type_gives_every_matrix_that_type(
    runs: Runs, converter: Converter, recipe: str
) -> None:
    """Every matrix has the recipe's type or, where its row is not a multiple of the block, one of no fewer bits."""
    found, shapes = _types(runs.file(converter, recipe)), runs.source.gguf_shapes()
    (block, _), least = layout.block_size(recipe), layout.bits_per_weight(recipe)
    wrong = {
        name: found.get(name, "absent")
        for name, shape in shapes.items()
        if len(shape) == 2 and not _is_right_type(found.get(name, ""), recipe, shape[-1] % block == 0, least)
    }
    assert not wrong, f"{recipe}: {len(wrong)} of {len(shapes)} tensors, first {next(iter(wrong.items()))}"


def _is_right_type(found: str, recipe: str, divides: bool, least: float) -> bool:
    if divides or not found:
        return found == recipe.upper()
    return layout.bits_per_weight(found.lower()) >= least


@claim("conversion.fallback")
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_matrix_that_blocks_do_not_divide_has_the_type_that_llama_cpp_takes(
    runs: Runs, converter: Converter, recipe: str, measured: Measure
) -> None:
    """A matrix whose row is not a multiple of the block has the type that llama.cpp falls back to."""
    found = _types(runs.file(converter, recipe))
    counts = {type: list(found.values()).count(type) for type in sorted(set(found.values()))}
    for type, count in counts.items():
        record = measured.exactly if recipe == "q4_k" else measured
        record(f"{recipe}: {type}", count)
    shapes = runs.source.gguf_shapes()
    differing = mismatches(found, {name: layout.type_of(shape, recipe).upper() for name, shape in shapes.items()})
    assert not differing, f"{recipe}: {differing}"


@claim("conversion.mix")
def test_q4_k_m_mixes_the_types_that_llama_cpp_mixes(runs: Runs, converter: Converter, measured: Measure) -> None:
    """Under ``q4_k_m`` every tensor has the type that llama.cpp's quantizer gives it."""
    own = _types(runs.file(converter, "q4_k_m"))
    independent = _types(runs.independent_file("Q4_K_M"))
    for type in sorted(set(own.values())):
        measured(type, list(own.values()).count(type))
    differing = mismatches(own, independent)
    assert not differing, differing


@claim("conversion.indivisible-row")
def test_an_indivisible_row_is_an_error_naming_shape_and_block(quantizer: Quantizer) -> None:
    """Asking for Q4_K on rows of 576 values is an error that names the shape and 256."""
    require_member(quantizer, "types", "q4_k")
    with pytest.raises(Exception, match=r"576.*256|256.*576"):
        quantizer.quantize(np.ones((3, 576), dtype=np.float32), "q4_k")


@claim("conversion.minimal-keys")
def test_minimal_metadata_has_the_eight_keys(runs: Runs, converter: Converter, measured: Measure) -> None:
    """Minimal metadata has the eight keys that candle's quantized_llama reads, with the values of config.json."""
    keys = _keys(runs.file(converter, "q8_0"))
    measured("keys", len(keys))
    for key, expected in _minimal_values(runs.source).items():
        assert keys.get(key) == expected, f"{key} is {keys.get(key, 'absent')} where config.json says {expected}"


@claim("conversion.full-keys")
def test_full_metadata_has_what_other_readers_need(runs: Runs, converter: Converter, measured: Measure) -> None:
    """Full metadata adds the keys that llama.cpp and transformers need, the tokenizer with one token per row."""
    keys = _keys(runs.file(converter, "q8_0", "full"))
    measured("keys", len(keys))
    missing = sorted((FULL_KEYS | _minimal_values(runs.source).keys()) - keys.keys())
    assert not missing, f"missing: {', '.join(missing)}"
    rows = runs.source.config["vocab_size"]
    sizes = {"tokenizer.ggml.tokens": len(keys["tokenizer.ggml.tokens"]), "llama.vocab_size": keys["llama.vocab_size"]}
    wrong = mismatches(sizes, dict.fromkeys(sizes, rows))
    assert not wrong, wrong


@claim("conversion.file-size")
@pytest.mark.parametrize("recipe", ["f32", "q8_0", "q4_k", "q4_0"])
def test_file_size_follows_from_the_layout(runs: Runs, converter: Converter, recipe: str, measured: Measure) -> None:
    """A file with minimal metadata, eight keys and no more, is exactly as large as its layout says, and so it is
    without freq_base."""
    file = runs.file(converter, recipe)
    measured.exactly(f"{recipe}, bytes", file.stat().st_size)
    shapes = runs.source.gguf_shapes()
    types = {name: layout.type_of(shape, recipe) for name, shape in shapes.items()}
    value_sizes = dict.fromkeys(_minimal_values(runs.source), 4) | {"general.architecture": 8 + len("llama")}
    _require_size(file, layout.file_size(value_sizes, shapes, types))
    if recipe == "q8_0":
        without = runs.edited(file, "no-freq_base", _drop_freq_base)
        measured.exactly("q8_0 without freq_base, bytes", without.stat().st_size)
        del value_sizes["llama.rope.freq_base"]
        _require_size(without, layout.file_size(value_sizes, shapes, types))


@claim("conversion.deterministic")
@pytest.mark.parametrize("recipe", ["q8_0", "q4_k_m"])
def test_the_same_checkpoint_gives_the_same_file(runs: Runs, converter: Converter, recipe: str) -> None:
    """Converting twice gives the same bytes."""
    first = runs.file(converter, recipe)
    second = runs.store.build(
        f"{converter.name}-{recipe}-again",
        {},
        lambda output: converter.convert(runs.checkpoint.folder, output, recipe, "minimal"),
        ".gguf",
    )
    digests = {hashlib.file_digest(file.open("rb"), "sha256").hexdigest() for file in (first, second)}
    assert len(digests) == 1, f"{recipe}: two conversions have the digests {', '.join(sorted(digests))}"


def _require_size(file: Path, expected: int) -> None:
    found = file.stat().st_size
    assert found == expected, f"{file.name}: found {found:,} bytes, expected {expected:,}"


def _minimal_values(source: Source) -> dict[str, object]:
    """The keys that candle's quantized_llama reads, with what the checkpoint's configuration says."""
    return {
        "general.architecture": "llama",
        "llama.attention.head_count": source.heads["attn_q"],
        "llama.attention.head_count_kv": source.heads["attn_k"],
        "llama.attention.layer_norm_rms_epsilon": np.float32(source.config["rms_norm_eps"]),
        "llama.block_count": source.layers,
        "llama.embedding_length": source.config["hidden_size"],
        "llama.rope.dimension_count": source.head_size,
        "llama.rope.freq_base": np.float32(source.rope_theta),
    }


def _drop_freq_base(source: Path, output: Path) -> None:
    surgery.drop_key(source, output, "llama.rope.freq_base")


def _types(file: Path) -> dict[str, str]:
    return {tensor.name: tensor.tensor_type.name for tensor in open_gguf(file).tensors}


def _keys(file: Path) -> dict[str, object]:
    fields = open_gguf(file).fields
    return {name: field.contents() for name, field in fields.items() if not name.startswith("GGUF.")}
