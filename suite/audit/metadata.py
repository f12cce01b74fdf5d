"""The keys of a file against ``config.json``, those that are absent too where readers then assume something else.

What readers do is read from candle 0.11 (quantized_llama) and llama.cpp (mid-2026). Both take keys of the exact
value type alone: candle passes over a freq_base of another type and takes 10000, llama.cpp refuses the file.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from suite.audit.checkpoint import DEFAULT_FREQ_BASE, EMBEDDING, Checkpoint, K, Q
from suite.audit.container import Container, Value
from suite.audit.rules import Finding

Content = str | int | float
COUNT_TYPE, REAL_TYPE, TEXT_TYPE = "UINT32", "FLOAT32", "STRING"
PREFIX = "llama"
DEFAULT_CONTEXT = 2048
"""transformers' own, where ``config.json`` says nothing."""


@dataclass(frozen=True)
class Expected:
    """A key and what it should say; where it is absent, one of three things follows.

    ``assumed`` is what readers then take, which is as good where it is the same; ``refused_by`` is who refuses such a
    file; a key with neither may be absent.
    """

    key: str
    type: str
    content: Content
    config: str
    """What ``config.json`` calls it."""
    assumed: Content | None = None
    refused_by: str = ""


EVERY_READER = "every reader"
FULL_READERS = "llama.cpp and transformers"
QUANTIZATION_VERSION = "general.quantization_version"
"""The specification wants it wherever a tensor is quantized; no reader here refuses a file without it."""
VOCABULARY_KEYS = ("tokenizer.ggml.model", "tokenizer.ggml.tokens")


def check_metadata(container: Container, checkpoint: Checkpoint) -> Iterator[Finding]:
    """What the keys of a file get wrong."""
    lacking = [key for key in VOCABULARY_KEYS if key not in container.keys]
    for expected in expected_keys(checkpoint):
        value = container.keys.get(expected.key)
        if value is not None:
            yield from _stated(expected, value)
        elif expected.refused_by == FULL_READERS:
            lacking.append(expected.key)
        else:
            yield from _absent(expected)
    is_quantized = any(tensor.type.values > 1 for tensor in container.tensors.values())
    if is_quantized and QUANTIZATION_VERSION not in container.keys:
        lacking.append(QUANTIZATION_VERSION)
    if lacking:
        yield Finding("metadata.minimal", f"absent: {', '.join(sorted(lacking))}, for {FULL_READERS}", lacking)
    yield from _vocabulary(container, checkpoint)


def expected_keys(checkpoint: Checkpoint) -> tuple[Expected, ...]:
    """What a file of this checkpoint says."""
    config, heads, rope = checkpoint.config, checkpoint.heads, checkpoint.rope
    derived = config["hidden_size"] // heads[Q]
    context = config.get("max_position_embeddings", DEFAULT_CONTEXT)

    def count(key: str, content: int, name: str, **absent: Content) -> Expected:
        return Expected(f"{PREFIX}.{key}", COUNT_TYPE, content, name, **absent)

    linear = rope["rope_type"] == "linear"
    return (
        Expected("general.architecture", TEXT_TYPE, PREFIX, "model_type", refused_by=EVERY_READER),
        count("block_count", config["num_hidden_layers"], "num_hidden_layers", refused_by=EVERY_READER),
        count("embedding_length", config["hidden_size"], "hidden_size", refused_by=EVERY_READER),
        count("attention.head_count", heads[Q], "num_attention_heads", refused_by=EVERY_READER),
        count("attention.head_count_kv", heads[K], "num_key_value_heads", refused_by="candle"),
        count("rope.dimension_count", checkpoint.head_size, "head_dim", refused_by="candle"),
        Expected(
            f"{PREFIX}.attention.layer_norm_rms_epsilon",
            REAL_TYPE,
            config["rms_norm_eps"],
            "rms_norm_eps",
            refused_by=EVERY_READER,
        ),
        Expected(f"{PREFIX}.rope.freq_base", REAL_TYPE, rope["rope_theta"], "rope_theta", assumed=DEFAULT_FREQ_BASE),
        Expected(f"{PREFIX}.rope.scaling.type", TEXT_TYPE, "linear" if linear else "none", "rope_type", assumed="none"),
        Expected(f"{PREFIX}.rope.scaling.factor", REAL_TYPE, rope["factor"] if linear else 1.0, "factor", assumed=1.0),
        count("attention.key_length", checkpoint.head_size, "head_dim", assumed=derived),
        count("attention.value_length", checkpoint.head_size, "head_dim", assumed=derived),
        count("context_length", context, "max_position_embeddings", refused_by=FULL_READERS),
        count("feed_forward_length", config["intermediate_size"], "intermediate_size", refused_by=FULL_READERS),
        count("vocab_size", config["vocab_size"], "vocab_size"),
    )


def _stated(expected: Expected, value: Value) -> Iterator[Finding]:
    if value.type != expected.type:
        consequence = f": candle takes {expected.assumed:g}, llama.cpp refuses the file" if expected.assumed else ""
        message = f"{expected.key} is a {value.type}, expected a {expected.type}{consequence}"
        yield Finding("metadata.type", message, (expected.key,))
    elif value.content != _as_written(expected):
        message = (
            f"{expected.key} is {_text(value.content)}, config.json says {_text(expected.content)} ({expected.config})"
        )
        yield Finding("metadata.value", message, (expected.key,))


def _absent(expected: Expected) -> Iterator[Finding]:
    if expected.refused_by:
        message = f"{expected.key} is absent: {expected.refused_by} refuses the file"
    elif expected.assumed in (None, expected.content):
        return
    else:
        says = f"config.json says {_text(expected.content)} ({expected.config})"
        message = f"{expected.key} is absent: readers use {_text(expected.assumed)}, {says}"
    yield Finding("metadata.missing", message, (expected.key,))


def _vocabulary(container: Container, checkpoint: Checkpoint) -> Iterator[Finding]:
    rows = checkpoint.stored[EMBEDDING].shape[0]
    for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.scores"):
        items = container.keys[key].items if key in container.keys else rows
        if items != rows:
            yield Finding("metadata.vocabulary", f"{key} has {items} items, the embedding {rows} rows", (key,))


def _as_written(expected: Expected) -> Content:
    if expected.type != REAL_TYPE:
        return expected.content
    # As the file's FLOAT32 has it.
    return struct.unpack("<f", struct.pack("<f", expected.content))[0]


def _text(content: Content | None) -> str:
    if isinstance(content, float):
        return f"{content:.0f}" if content.is_integer() else f"{content:g}"
    return str(content)
