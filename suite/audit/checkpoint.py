"""The checkpoint a file claims to come from: its configuration, and where each of its tensors lies.

Reads headers alone. Source of the layout: the safetensors format: the length of a JSON header as a
little-endian 64-bit number, the header, then the data that its ``data_offsets`` count into.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

from impl.errors import InputError
from suite.kit.names import HUGGING_FACE_PARTS, HUGGING_FACE_TOP

ARCHITECTURES = ("llama", "mistral")
"""The ``model_type`` of those that GGUF calls ``llama``."""
ROPE_TYPES = ("default", "linear", "llama3")
DTYPE_BYTES: Mapping[str, int] = {"F32": 4, "F16": 2, "BF16": 2}
ROUNDING: Mapping[str, float] = {"F32": 0.0, "F16": 2.0**-12, "BF16": 2.0**-9}
"""Half a unit in the last place of each, as a share of the value: what a file made before the checkpoint was rounded
may differ by. F32 is taken for exact."""
COUNTS = ("num_hidden_layers", "num_attention_heads", "hidden_size", "intermediate_size", "vocab_size")
DEFAULT_FREQ_BASE = 10000.0
RECOMPUTED = "rotary_emb.inv_freq"
EMBEDDING, HEAD = "token_embd.weight", "output.weight"
Q, K = "attn_q", "attn_k"


@dataclass(frozen=True)
class Stored:
    """A tensor of a safetensors file; ``offset`` counts from the start of the file."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def rounding(self) -> float:
        """See ``ROUNDING``."""
        return ROUNDING[self.dtype]


@dataclass(frozen=True)
class Checkpoint:
    """A Hugging Face Llama folder, one file or several shards; tensors by llama.cpp's names."""

    folder: Path
    config: Mapping[str, Any]
    stored: Mapping[str, Stored]

    @property
    def heads(self) -> Mapping[str, int]:
        """How many heads the rows of q and k are ordered by."""
        queries = self.config["num_attention_heads"]
        return {Q: queries, K: self.config.get("num_key_value_heads") or queries}

    @property
    def head_size(self) -> int:
        """Values per head."""
        return self.config.get("head_dim") or self.config["hidden_size"] // self.heads[Q]

    @property
    def rope(self) -> Mapping[str, Any]:
        """Settings of the rotation, which transformers 5 nests and transformers 4 kept at the top."""
        nested = self.config.get("rope_scaling") or self.config.get("rope_parameters") or {}
        theta = self.config.get("rope_theta") or DEFAULT_FREQ_BASE
        return {"rope_theta": theta, "rope_type": nested.get("type", "default"), **nested}

    @cached_property
    def is_tied(self) -> bool:
        """Whether the head is the embedding: the configuration says so, and no head of its own is shipped."""
        if not self.config.get("tie_word_embeddings"):
            return False
        return HEAD not in self.stored or _same_bytes(self.stored[HEAD], self.stored[EMBEDDING])

    @property
    def expected_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor that a GGUF of this checkpoint has."""
        shapes = {name: each.shape for name, each in self.stored.items() if not (name == HEAD and self.is_tied)}
        if self.rope["rope_type"] == "llama3":
            shapes["rope_freqs.weight"] = (self.head_size // 2,)
        return shapes


def open_checkpoint(folder: Path) -> Checkpoint:
    """Open a folder with ``config.json`` and safetensors.

    Raises ``InputError`` for what is missing, damaged, no Llama, or of another shape than the configuration says.
    """
    config = _config(folder / "config.json")
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise InputError(f"{folder}: no safetensors there")
    names = _gguf_names(config["num_hidden_layers"])
    found = {}
    for path in files:
        for name, tensor in _header(path):
            if name in names:
                found[names[name]] = tensor
            elif RECOMPUTED not in name:
                raise InputError(f"{path}: tensor {name} is unexpected in the model of config.json")
    checkpoint = Checkpoint(folder, config, {name: found[name] for name in names.values() if name in found})
    if checkpoint.rope["rope_type"] not in ROPE_TYPES:
        raise InputError(f"{folder / 'config.json'}: rope_type is not one of {', '.join(ROPE_TYPES)}")
    _require_whole(checkpoint)
    return checkpoint


def _config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}") from error
    if not isinstance(config, dict) or config.get("model_type") not in ARCHITECTURES:
        raise InputError(f"{path}: model_type is not one of {', '.join(ARCHITECTURES)}")
    for key in (*COUNTS, "rms_norm_eps"):
        kinds = int if key in COUNTS else (int, float)
        if not isinstance(config.get(key), kinds) or config[key] <= 0:
            raise InputError(f"{path}: {key} is {config.get(key)!r}, expected a positive number")
    return config


def _gguf_names(layers: int) -> dict[str, str]:
    """llama.cpp's name for every name that a Llama checkpoint may have, in the order of the model."""
    modules = {hugging_face: name for name, hugging_face in HUGGING_FACE_TOP.items()}
    for layer in range(layers):
        modules |= {f"model.layers.{layer}.{old}": f"blk.{layer}.{new}" for new, old in HUGGING_FACE_PARTS.items()}
    return {f"{old}.{suffix}": f"{new}.{suffix}" for old, new in modules.items() for suffix in ("weight", "bias")}


def _header(path: Path) -> Iterator[tuple[str, Stored]]:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > size - 8:
            raise InputError(f"{path}: not a whole safetensors file: it has {size} bytes, its header {length}")
        try:
            header = json.loads(file.read(length))
            described = {
                name: Stored(path, each["dtype"], tuple(each["shape"]), 8 + length + each["data_offsets"][0])
                for name, each in header.items()
                if name != "__metadata__"
            }
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise InputError(f"{path}: not a safetensors file: its header is {error!r}") from error
    for name, tensor in described.items():
        if tensor.dtype not in DTYPE_BYTES:
            raise InputError(f"{path}: tensor {name} is {tensor.dtype}, expected one of {', '.join(DTYPE_BYTES)}")
        if tensor.offset + prod(tensor.shape) * DTYPE_BYTES[tensor.dtype] > size:
            raise InputError(f"{path}: tensor {name} lies beyond the end of the file")
        yield name, tensor


def _require_whole(checkpoint: Checkpoint) -> None:
    folder, config, heads = checkpoint.folder, checkpoint.config, checkpoint.heads
    hidden, wide = config["hidden_size"], config["intermediate_size"]
    q, kv = (heads[part] * checkpoint.head_size for part in (Q, K))
    shapes = {
        EMBEDDING: (config["vocab_size"], hidden),
        "output_norm.weight": (hidden,),
        HEAD: (config["vocab_size"], hidden),
    }
    layer_shapes = {
        "attn_norm": (hidden,),
        "ffn_norm": (hidden,),
        Q: (q, hidden),
        K: (kv, hidden),
        "attn_v": (kv, hidden),
        "attn_output": (hidden, q),
        "ffn_gate": (wide, hidden),
        "ffn_up": (wide, hidden),
        "ffn_down": (hidden, wide),
    }
    for layer in range(config["num_hidden_layers"]):
        shapes |= {f"blk.{layer}.{part}.weight": shape for part, shape in layer_shapes.items()}
    for name, shape in shapes.items():
        if name not in checkpoint.stored and not (name == HEAD and config.get("tie_word_embeddings")):
            raise InputError(f"{folder}: no tensor for {name}, which config.json asks for")
        if name in checkpoint.stored and checkpoint.stored[name].shape != shape:
            found = list(checkpoint.stored[name].shape)
            raise InputError(f"{folder}: tensor for {name} has shape {found}, expected {list(shape)} by config.json")


def _same_bytes(a: Stored, b: Stored) -> bool:
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    size = prod(a.shape) * DTYPE_BYTES[a.dtype]
    with a.path.open("rb") as file_a, b.path.open("rb") as file_b:
        file_a.seek(a.offset)
        file_b.seek(b.offset)
        chunk = 1 << 20
        return all(
            file_a.read(min(chunk, size - done)) == file_b.read(min(chunk, size - done))
            for done in range(0, size, chunk)
        )
