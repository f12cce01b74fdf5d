"""``config.json`` to GGUF keys.

``general.architecture`` is not among them: the GGUF writer puts it first in every file.
"""

from dataclasses import dataclass
from typing import Any

from gguf import GGUFValueType as ValueType
from gguf import LlamaFileType
from gguf.utility import size_label

from impl.errors import InputError
from impl.reference.config import Config
from impl.reference.importance import ImportanceMatrix
from impl.reference.rope import LinearScaling

ARCHITECTURE = "llama"
QUANTIZATION_VERSION = 2
"""The version of the block formats; the GGUF specification wants it wherever a tensor is quantized."""


@dataclass(frozen=True)
class Entry:
    """One key of a GGUF file; ``element`` is the value type of an array's elements."""

    key: str
    value: Any
    type: ValueType
    element: ValueType | None = None


@dataclass(frozen=True)
class Key:
    """A key whose value is a field of ``Config``."""

    name: str
    type: ValueType
    field: str
    minimal: bool = True
    """Whether candle's quantized_llama reads it (0.11)."""


KEYS = (
    Key("llama.block_count", ValueType.UINT32, "layers"),
    Key("llama.context_length", ValueType.UINT32, "context", minimal=False),
    Key("llama.embedding_length", ValueType.UINT32, "hidden"),
    Key("llama.feed_forward_length", ValueType.UINT32, "feed_forward", minimal=False),
    Key("llama.attention.head_count", ValueType.UINT32, "heads"),
    Key("llama.attention.head_count_kv", ValueType.UINT32, "key_value_heads"),
    Key("llama.rope.freq_base", ValueType.FLOAT32, "rope_theta"),
    Key("llama.attention.layer_norm_rms_epsilon", ValueType.FLOAT32, "norm_epsilon"),
    Key("llama.vocab_size", ValueType.UINT32, "vocabulary", minimal=False),
    Key("llama.rope.dimension_count", ValueType.UINT32, "head_size"),
)


def minimal_entries(config: Config) -> list[Entry]:
    """The keys that candle's quantized_llama reads.

    Raises ``InputError`` for linear rotary scaling, which only a key outside them can express.
    """
    if isinstance(config.rope_scaling, LinearScaling):
        raise InputError("rope_type 'linear' needs llama.rope.scaling keys, expected metadata 'full'")
    return [_entry(key, config) for key in KEYS if key.minimal]


def full_entries(config: Config, name: str, parameters: int, file_type: LlamaFileType, quantized: bool) -> list[Entry]:
    """The keys that llama.cpp and transformers need, but for the tokenizer's.

    ``name`` is the model's for people, ``parameters`` its number of weights, ``quantized`` whether any
    tensor is in a block format.
    """
    version = Entry("general.quantization_version", QUANTIZATION_VERSION, ValueType.UINT32)
    return [
        Entry("general.type", "model", ValueType.STRING),
        Entry("general.name", name, ValueType.STRING),
        Entry("general.size_label", size_label(parameters, parameters, 0, 0), ValueType.STRING),
        Entry("general.file_type", int(file_type), ValueType.UINT32),
        *([version] if quantized else []),
        *[_entry(key, config) for key in KEYS],
        *_head_size_entries(config),
        *_scaling_entries(config),
    ]


def importance_entries(matrix: ImportanceMatrix, file: str) -> list[Entry]:
    """Where a file's importance matrix came from, as llama.cpp's quantizer says it (mid-2026).

    ``file`` is the name alone, without the folder: the same input gives the same bytes wherever it lies. Only the
    first data set is named, and no number of chunks where it is not known.
    """
    return [
        Entry("quantize.imatrix.file", file, ValueType.STRING),
        *[Entry("quantize.imatrix.dataset", name, ValueType.STRING) for name in matrix.datasets[:1]],
        Entry("quantize.imatrix.entries_count", len(matrix.columns), ValueType.UINT32),
        *([Entry("quantize.imatrix.chunks_count", matrix.chunks, ValueType.UINT32)] if matrix.chunks else []),
    ]


def _entry(key: Key, config: Config) -> Entry:
    return Entry(key.name, getattr(config, key.field), key.type)


def _head_size_entries(config: Config) -> list[Entry]:
    # Readers derive the head size as hidden / heads unless told otherwise.
    if config.query_rows == config.hidden:
        return []
    names = ("llama.attention.key_length", "llama.attention.value_length")
    return [Entry(name, config.head_size, ValueType.UINT32) for name in names]


def _scaling_entries(config: Config) -> list[Entry]:
    if not isinstance(config.rope_scaling, LinearScaling):
        return []
    return [
        Entry("llama.rope.scaling.type", "linear", ValueType.STRING),
        Entry("llama.rope.scaling.factor", config.rope_scaling.factor, ValueType.FLOAT32),
    ]
