"""What a GGUF's keys say of the model, by the rules of candle's quantized_llama (0.11).

Keys always carry the prefix ``llama.``, whatever the architecture; the architecture only chooses how
dimensions are paired for the rotation. Two keys that candle does not read are heeded, as llama.cpp does:
the head size, and linear scaling of positions.
"""

from dataclasses import dataclass
from typing import Literal

from gguf import GGUFValueType

from impl.errors import InputError
from impl.reference.gguf_file import GgufFile

Pairing = Literal["adjacent", "halves"]
"""Which dimensions of a head rotate together: 2i with 2i + 1, or i with i + d/2 (GPT-NeoX)."""

# fmt: off
HALVES = frozenset({
    "qwen", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "falcon", "grok", "dbrx", "phi2", "phi3", "phimoe",
    "stablelm", "starcoder2", "bert", "nomic-bert", "jina-bert-v2", "olmo2", "olmoe", "codeshell", "plamo",
})
# fmt: on
"""The architectures that rotate halves; every other rotates adjacent pairs."""

DEFAULT_FREQ_BASE = 10000.0


@dataclass(frozen=True)
class Hyperparameters:
    """The sizes and constants of a Llama."""

    heads: int
    key_value_heads: int
    layers: int
    hidden: int
    head_size: int
    rotated: int
    """Dimensions of a head that are rotated, from the first on."""
    pairing: Pairing
    freq_base: float
    position_scale: float
    """What positions are divided by before they rotate."""
    norm_epsilon: float


def read_hyperparameters(file: GgufFile) -> Hyperparameters:
    """Read the keys; ``InputError`` names the first one that is missing, of another type, or does not fit.

    A missing ``llama.rope.freq_base``, or one that is no FLOAT32, is 10000 without a word.
    """
    heads = _require_count(file, "llama.attention.head_count")
    key_value_heads = _require_count(file, "llama.attention.head_count_kv")
    layers = _require_count(file, "llama.block_count")
    hidden = _require_count(file, "llama.embedding_length")
    rotated = _require_count(file, "llama.rope.dimension_count")
    norm_epsilon = file.require("llama.attention.layer_norm_rms_epsilon", GGUFValueType.FLOAT32)
    freq_base = file.value("llama.rope.freq_base", GGUFValueType.FLOAT32)
    architecture = file.value("general.architecture", GGUFValueType.STRING)
    has_head_size = "llama.attention.key_length" in file.keys
    head_size = _require_count(file, "llama.attention.key_length") if has_head_size else hidden // heads
    if heads % key_value_heads:
        raise InputError(
            f"{file.path}: llama.attention.head_count_kv is {key_value_heads}, expected a divisor of {heads}"
        )
    if rotated % 2 or rotated > head_size:
        raise InputError(
            f"{file.path}: llama.rope.dimension_count is {rotated}, expected an even number up to {head_size}"
        )
    return Hyperparameters(
        heads=heads,
        key_value_heads=key_value_heads,
        layers=layers,
        hidden=hidden,
        head_size=head_size,
        rotated=rotated,
        pairing="halves" if architecture in HALVES else "adjacent",
        freq_base=DEFAULT_FREQ_BASE if freq_base is None else float(freq_base),
        position_scale=_position_scale(file),
        norm_epsilon=float(norm_epsilon),
    )


def _require_count(file: GgufFile, key: str) -> int:
    value = int(file.require(key, GGUFValueType.UINT32))
    if value == 0:
        raise InputError(f"{file.path}: {key} is 0, expected a positive number")
    return value


def _position_scale(file: GgufFile) -> float:
    kind = file.value("llama.rope.scaling.type", GGUFValueType.STRING) or "none"
    if kind == "none":
        return 1.0
    if kind != "linear":
        raise InputError(f"{file.path}: llama.rope.scaling.type is {kind!r}, expected 'linear' or 'none'")
    return float(file.require("llama.rope.scaling.factor", GGUFValueType.FLOAT32))
