"""What is legitimate is clean: every type, other quantizers, importance matrices. What lies beyond is not."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from impl.catalogue import resolve
from impl.errors import InputError
from suite.audit.audit import Audit, audit_file
from suite.audit.checkpoint import open_checkpoint
from suite.audit.ggml_types import TYPES
from suite.audit.values import SLOW
from suite.audit.weights import Source
from suite.kit.source import Source as KitSource
from suite.selftest.small_checkpoint import write_checkpoint

GGML = resolve("ggml")
WEIGHT_TYPES = [
    type.name for type in TYPES.values() if type.holds_weights and type.label in gguf.GGMLQuantizationType.__members__
]
"""Those that the gguf package writes."""
BLOCK_TYPES = [name for name in WEIGHT_TYPES if name not in ("f32", "f16", "bf16")]
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
SIZES = {"num_attention_heads": 16, "num_key_value_heads": 4, "hidden_size": 256, "vocab_size": 64}
"""Every row a multiple of 256, so that it takes any type."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("audit") / "checkpoint", {**SIZES, "rope_scaling": LLAMA3})


def _importance(columns: int, spread: float) -> NDArray[np.float32] | None:
    if not spread:
        return np.ones(columns, np.float32)
    return np.exp(np.random.default_rng(0).standard_normal(columns) * spread).astype(np.float32)


def _write(checkpoint: Path, output: Path, type: str, spread: float = 0.0) -> Path:
    """The checkpoint in one type, by ggml's quantizer, with columns weighed by importances of a log-normal spread."""
    opened = open_checkpoint(checkpoint)
    source, writer = Source(opened), gguf.GGUFWriter(output, "llama")
    heads, size = opened.heads, opened.head_size
    writer.add_block_count(opened.config["num_hidden_layers"])
    writer.add_embedding_length(opened.config["hidden_size"])
    writer.add_head_count(heads["attn_q"])
    writer.add_head_count_kv(heads["attn_k"])
    writer.add_rope_dimension_count(size)
    writer.add_layer_norm_rms_eps(opened.config["rms_norm_eps"])
    writer.add_rope_freq_base(opened.config["rope_theta"])
    for name, shape in opened.expected_shapes.items():
        weights = source.rows(name)
        if len(shape) == 1:
            writer.add_tensor(name, weights[0])
            continue
        importance = _importance(shape[1], spread) if type not in ("f32", "f16", "bf16") else None
        blocks = weights.view(np.uint8) if type == "f32" else GGML.quantize(weights, type, importance)
        writer.add_tensor(name, blocks, raw_dtype=gguf.GGMLQuantizationType[type.upper()])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return output


def _require_clean(audit: Audit) -> None:
    assert audit.is_clean, [finding.message for finding in audit.findings]
    assert len(audit.comparisons) == len(audit.checkpoint.expected_shapes) > 0


@pytest.mark.parametrize("type", WEIGHT_TYPES)
def test_every_type_is_clean(type: str, checkpoint: Path, tmp_path: Path) -> None:
    _require_clean(audit_file(_write(checkpoint, tmp_path / "file.gguf", type), checkpoint))


@pytest.mark.parametrize("spread", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(
    "type", ["q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_xs", "iq2_xxs"]
)
def test_a_quantizer_that_weighs_columns_is_clean(type: str, spread: float, checkpoint: Path, tmp_path: Path) -> None:
    audit = audit_file(_write(checkpoint, tmp_path / "file.gguf", type, spread), checkpoint)
    _require_clean(audit)
    assert any(each.is_within and not each.is_identical for each in audit.comparisons)


@pytest.mark.parametrize("type", [name for name in BLOCK_TYPES if name not in SLOW or name == "iq2_xxs"])
def test_another_tensors_weights_are_beyond_the_envelope_of_every_type(
    type: str, checkpoint: Path, tmp_path: Path
) -> None:
    """A matrix of the same distribution, which no statistic of its own tells apart."""
    file = _write(checkpoint, tmp_path / "file.gguf", type, spread=1.0)
    a, b = (
        audit_file(file, checkpoint, quick=True).container.tensors[f"blk.{layer}.ffn_up.weight"] for layer in (0, 1)
    )
    data = bytearray(file.read_bytes())
    data[a.offset : a.offset + a.size] = data[b.offset : b.offset + b.size]
    file.write_bytes(data)
    broken = [finding for finding in audit_file(file, checkpoint).findings if finding.breaks]
    assert [finding.rule for finding in broken] == ["values.misplaced"]
    assert "blk.0.ffn_up.weight: holds the checkpoint's blk.1.ffn_up.weight" in broken[0].message


@pytest.mark.parametrize("type", ["q8_0", "q4_0", "q4_k", "q6_k"])
def test_one_wrong_row_is_beyond_the_envelope(type: str, checkpoint: Path, tmp_path: Path) -> None:
    file = _write(checkpoint, tmp_path / "file.gguf", type, spread=1.0)
    tensor = audit_file(file, checkpoint, quick=True).container.tensors["blk.0.ffn_up.weight"]
    data, size = bytearray(file.read_bytes()), tensor.row_bytes
    data[tensor.offset : tensor.offset + size] = data[tensor.offset + size : tensor.offset + 2 * size]
    file.write_bytes(data)
    broken = [finding for finding in audit_file(file, checkpoint).findings if finding.breaks]
    assert broken and {each.rule for each in broken} <= {"values.envelope", "values.damaged"}
    assert all(each.subjects == ("blk.0.ffn_up.weight",) and "row 0" in each.message for each in broken)


def test_a_row_of_scales_a_quarter_too_large_is_beyond_the_envelope(checkpoint: Path, tmp_path: Path) -> None:
    file = _write(checkpoint, tmp_path / "file.gguf", "q8_0")
    tensor = audit_file(file, checkpoint, quick=True).container.tensors["blk.0.ffn_up.weight"]
    data = bytearray(file.read_bytes())
    place = slice(tensor.offset, tensor.offset + tensor.row_bytes)
    blocks = np.frombuffer(bytes(data[place]), np.uint8).reshape(-1, 34).copy()
    blocks[:, :2] = (blocks[:, :2].copy().view(np.float16) * np.float16(1.25)).view(np.uint8)
    data[place] = blocks.tobytes()
    file.write_bytes(data)
    (broken,) = [finding for finding in audit_file(file, checkpoint).findings if finding.breaks]
    assert broken.rule == "values.envelope" and "1 of 256 rows" in broken.message and "row 0" in broken.message


def test_a_scale_beyond_float16_is_found_where_requantizing_gives_it_too(tmp_path: Path) -> None:
    weights = np.ones((SIZES["hidden_size"], SIZES["hidden_size"]), np.float32)
    weights[1, 40] = 1e7
    folder = write_checkpoint(tmp_path / "large", SIZES, edits={"model.layers.1.mlp.up_proj.weight": weights})
    file = _write(folder, tmp_path / "file.gguf", "q8_0")
    (broken,) = [finding for finding in audit_file(file, folder).findings if finding.breaks]
    assert broken.rule == "values.finite"
    assert broken.message.startswith(
        "blk.1.ffn_up.weight: 1 of 2,048 blocks with a NaN or infinite scale: row 1, block 1"
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda weights: weights * np.float32(1.5), "it is the checkpoint's times 1.5"),
        (lambda weights: weights + np.float32(1), "it is the checkpoint's plus 1"),
    ],
)
def test_arithmetic_on_a_norm_is_recognized(change: object, words: str, checkpoint: Path, tmp_path: Path) -> None:
    file = _write(checkpoint, tmp_path / "file.gguf", "q8_0")
    tensor = audit_file(file, checkpoint, quick=True).container.tensors["blk.0.ffn_norm.weight"]
    data, place = bytearray(file.read_bytes()), slice(tensor.offset, tensor.offset + tensor.size)
    data[place] = change(np.frombuffer(bytes(data[place]), np.float32)).tobytes()
    file.write_bytes(data)
    (broken,) = [finding for finding in audit_file(file, checkpoint).findings if finding.breaks]
    assert broken.rule == "values.envelope" and words in broken.message


def test_weights_are_those_that_the_suite_reads_by_other_means(tiny_checkpoint: Path) -> None:
    source, other = Source(open_checkpoint(tiny_checkpoint)), KitSource(tiny_checkpoint)
    tensors = dict(other.gguf_tensors())
    assert tensors.keys() == source.checkpoint.expected_shapes.keys()
    for name, tensor in tensors.items():
        assert np.array_equal(source.rows(name), np.atleast_2d(tensor)), name
        assert np.array_equal(source.rows(name, slice(0, 1)), np.atleast_2d(tensor)[:1]), name


def test_weights_that_are_not_finite_make_the_checkpoint_unusable(tmp_path: Path) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    folder = write_checkpoint(tmp_path / "good", SIZES)
    file = _write(folder, tmp_path / "file.gguf", "q8_0")
    weights = np.zeros((SIZES["hidden_size"], SIZES["hidden_size"]), np.float32)
    weights[3, 4] = np.nan
    bad = write_checkpoint(tmp_path / "bad", SIZES, edits={name: weights})
    with pytest.raises(InputError, match=r"blk\.1\.ffn_up\.weight: holds NaN or Inf"):
        audit_file(file, bad)
