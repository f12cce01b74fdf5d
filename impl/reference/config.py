"""``config.json`` of a Llama checkpoint as typed fields, with transformers' defaults filled in."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from impl.errors import InputError
from impl.reference.rope import LinearScaling, Llama3Scaling

DEFAULT_ROPE_THETA = 10000.0
"""transformers' default; candle and llama.cpp assume the same where the GGUF key is missing."""


@dataclass(frozen=True)
class Config:
    """The shape of a Llama model. Sizes are counts of values, ``context`` is in tokens."""

    layers: int
    hidden: int
    feed_forward: int
    heads: int
    key_value_heads: int
    head_size: int
    vocabulary: int
    context: int
    norm_epsilon: float
    rope_theta: float
    rope_scaling: LinearScaling | Llama3Scaling | None
    tied: bool
    attention_bias: bool
    mlp_bias: bool

    @property
    def query_rows(self) -> int:
        """Rows of ``q_proj`` and columns of ``o_proj``."""
        return self.heads * self.head_size

    @property
    def key_value_rows(self) -> int:
        """Rows of ``k_proj`` and of ``v_proj``."""
        return self.key_value_heads * self.head_size


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; raises ``InputError`` when it is missing or holds no JSON object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: holds a {type(content).__name__}, expected a JSON object")
    return content


def read_config(path: Path) -> Config:
    """Read ``config.json``.

    Raises ``InputError`` naming the key for one that is missing, of the wrong kind or of a value that a
    GGUF llama file cannot express.
    """
    section = _Section(path, read_json(path))
    _require_llama(section)
    hidden, heads = section.count("hidden_size"), section.count("num_attention_heads")
    key_value_heads = section.count("num_key_value_heads", default=heads)
    if heads % key_value_heads:
        raise InputError(f"{path}: {heads} heads over {key_value_heads} key-value heads, expected a multiple")
    head_size = section.count("head_dim", default=hidden // heads)
    if head_size % 2:
        raise InputError(f"{path}: head size is {head_size}, expected an even number")
    context = section.count("max_position_embeddings")
    rope = _rope_section(section, context)
    return Config(
        layers=section.count("num_hidden_layers"),
        hidden=hidden,
        feed_forward=section.count("intermediate_size"),
        heads=heads,
        key_value_heads=key_value_heads,
        head_size=head_size,
        vocabulary=section.count("vocab_size"),
        context=context,
        norm_epsilon=section.number("rms_norm_eps"),
        rope_theta=rope.number("rope_theta"),
        rope_scaling=_rope_scaling(rope),
        tied=section.flag("tie_word_embeddings"),
        attention_bias=section.flag("attention_bias"),
        mlp_bias=section.flag("mlp_bias"),
    )


@dataclass(frozen=True)
class _Section:
    """One object of a JSON file; a key that is null counts as absent, as transformers has it."""

    path: Path
    values: dict[str, Any]

    def count(self, key: str, default: int | None = None) -> int:
        return int(self._value(key, (int,), "a positive integer", default))

    def number(self, key: str) -> float:
        return float(self._value(key, (int, float), "a positive number"))

    def flag(self, key: str) -> bool:
        value = self.values.get(key)
        if value not in (None, True, False):
            raise InputError(f"{self.path}: {key} is {value!r}, expected true or false")
        return bool(value)

    def require(self, key: str, expected: object) -> None:
        """For what a GGUF llama file has no key for: another value would be lost without a word."""
        found = self.values.get(key)
        if found is not None and found != expected:
            raise InputError(f"{self.path}: {key} is {found!r}, expected {expected!r}")

    def _value(self, key: str, types: tuple[type, ...], expected: str, default: int | None = None) -> int | float:
        value = self.values.get(key)
        if value is None:
            value = default
        if value is None:
            raise InputError(f"{self.path}: {key} is missing, expected {expected}")
        if isinstance(value, bool) or not isinstance(value, types) or not 0 < value < math.inf:
            raise InputError(f"{self.path}: {key} is {value!r}, expected {expected}")
        return value


def _require_llama(section: _Section) -> None:
    section.require("model_type", "llama")
    section.require("architectures", ["LlamaForCausalLM"])
    section.require("hidden_act", "silu")


def _rope_section(section: _Section, context: int) -> _Section:
    """The rotary settings in one place: transformers 5 nests what transformers 4 kept at the top."""
    top = section.values
    nested = top.get("rope_scaling") or top.get("rope_parameters") or {}
    if not isinstance(nested, dict):
        raise InputError(f"{section.path}: rope_parameters is {nested!r}, expected an object")
    defaults = {
        "rope_theta": top.get("rope_theta") or DEFAULT_ROPE_THETA,
        "rope_type": nested.get("type", "default"),
        "original_max_position_embeddings": context,
        "partial_rotary_factor": top.get("partial_rotary_factor", 1.0),
    }
    rope = _Section(section.path, defaults | nested)
    rope.require("partial_rotary_factor", 1.0)
    return rope


def _rope_scaling(rope: _Section) -> LinearScaling | Llama3Scaling | None:
    kind = rope.values["rope_type"]
    if kind == "default":
        return None
    if kind == "linear":
        return LinearScaling(rope.number("factor"))
    if kind == "llama3":
        low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
        if low >= high:
            raise InputError(f"{rope.path}: low_freq_factor is {low}, expected below high_freq_factor {high}")
        return Llama3Scaling(rope.number("factor"), low, high, rope.count("original_max_position_embeddings"))
    raise InputError(f"{rope.path}: rope_type is {kind!r}, expected 'default', 'linear' or 'llama3'")
