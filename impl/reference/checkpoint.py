"""A Hugging Face Llama checkpoint folder: its config and its tensors, read one at a time."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  registers bfloat16 with numpy, which safetensors asks for by name
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from impl.errors import InputError
from impl.reference.config import Config, read_config, read_json
from impl.reference.names import RECOMPUTED

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
EXPONENTS: Mapping[str, np.unsignedinteger] = {
    "F32": np.uint32(0x7F800000),
    "F16": np.uint16(0x7C00),
    "BF16": np.uint16(0x7F80),
}
"""The types that are read, and the bits that are all set in each one's NaN and infinities, and in no other value."""
PIECE = 1 << 18
"""How many values are looked at together, so that a tensor needs no copy of its own size."""

MODEL_SHAPES: Mapping[str, tuple[str, ...]] = {
    "model.embed_tokens": ("vocabulary", "hidden"),
    "model.norm": ("hidden",),
    "lm_head": ("vocabulary", "hidden"),
}
"""Modules that stand once in a model: the shape of each weight in fields of ``Config``."""

LAYER_SHAPES: Mapping[str, tuple[str, ...]] = {
    "input_layernorm": ("hidden",),
    "self_attn.q_proj": ("query_rows", "hidden"),
    "self_attn.k_proj": ("key_value_rows", "hidden"),
    "self_attn.v_proj": ("key_value_rows", "hidden"),
    "self_attn.o_proj": ("hidden", "query_rows"),
    "post_attention_layernorm": ("hidden",),
    "mlp.gate_proj": ("feed_forward", "hidden"),
    "mlp.up_proj": ("feed_forward", "hidden"),
    "mlp.down_proj": ("hidden", "feed_forward"),
}
"""Modules of every layer; a bias is as long as its weight has rows."""


@dataclass(frozen=True)
class Stored:
    """Where a tensor lies, and what the header of that file says of it."""

    path: Path
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Checkpoint:
    """An opened folder whose tensors are all there, in the shapes that its config says."""

    folder: Path
    config: Config
    shapes: Mapping[str, tuple[int, ...]]
    """Hugging Face name to shape, in the order of the model; a head equal to its tied embedding left out."""
    stored: Mapping[str, Stored]

    def tensor(self, name: str) -> NDArray:
        """Read one tensor, float32, float16 or bfloat16 as it is stored; ``InputError`` names its first NaN or Inf."""
        stored = self.stored[name]
        weight, exponent = _read(stored, name), EXPONENTS[stored.dtype]
        if not _finite(weight, exponent):
            index = tuple(int(i) for i in np.unravel_index(np.argmin(np.isfinite(weight)), weight.shape))
            raise InputError(f"tensor {name}: {weight[index]} at {list(index)}, expected a finite weight")
        return weight


def open_checkpoint(folder: Path) -> Checkpoint:
    """Open a folder with ``config.json`` and ``model.safetensors``, or its shards and their index.

    Raises ``InputError`` for a missing or damaged file, and for a tensor that is missing, unexpected, of
    another shape than the config gives it or of a type other than F32, F16 and BF16.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder, expected a Hugging Face checkpoint")
    config = read_config(folder / "config.json")
    stored = {name: tensor for name, tensor in _located(folder).items() if not RECOMPUTED.fullmatch(name)}
    shapes = _expected_shapes(config)
    if config.tied and not _ships_own_head(stored):
        del shapes["lm_head.weight"]
        stored.pop("lm_head.weight", None)
    _require_tensors(stored, shapes, folder)
    return Checkpoint(folder, config, shapes, stored)


def _located(folder: Path) -> dict[str, Stored]:
    """Every tensor of the folder by name."""
    if (folder / SINGLE).is_file():
        return _header(folder / SINGLE)
    index = folder / INDEX
    if not index.is_file():
        raise InputError(f"{folder}: neither {SINGLE} nor {INDEX} there")
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        raise InputError(f"{index}: weight_map is not an object of tensor names and shard file names")
    shards = {shard: _shard(folder / shard, index) for shard in sorted(set(weight_map.values()))}
    for name, shard in weight_map.items():
        if name not in shards[shard]:
            raise InputError(f"{index}: tensor {name} should be in {shard}, which does not hold it")
    for shard, tensors in shards.items():
        for name in tensors:
            if weight_map.get(name) != shard:
                raise InputError(f"{index}: tensor {name} is in {shard}, which the index does not say")
    return {name: shards[shard][name] for name, shard in weight_map.items()}


def _shard(path: Path, index: Path) -> dict[str, Stored]:
    if not path.is_file():
        raise InputError(f"{path}: shard missing, named by {index.name}")
    return _header(path)


def _header(path: Path) -> dict[str, Stored]:
    with _opened(path) as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  safe_open is no mapping
        return {name: Stored(path, tuple(tensor.get_shape()), tensor.get_dtype()) for name, tensor in slices.items()}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="np") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: not a whole safetensors file: {error}") from error


def _read(tensor: Stored, name: str) -> NDArray:
    # Opened for each tensor, so that the mapped pages of those before are given back.
    with _opened(tensor.path) as file:
        return file.get_tensor(name)


def _finite(weight: NDArray, exponent: np.unsignedinteger) -> bool:
    """Whether no value has all bits of ``exponent``: a few times as fast as asking numpy of each if it is finite."""
    bits = weight.reshape(-1).view(exponent.dtype)
    pieces = (bits[start : start + PIECE] for start in range(0, bits.size, PIECE))
    return not any((piece & exponent).max() == exponent for piece in pieces)


def _ships_own_head(stored: Mapping[str, Stored]) -> bool:
    """Whether a checkpoint with tied embeddings holds a head that differs from them.

    Such a head is used, not tied: that is what transformers 5.24 does (``tie_weights``), with a warning.
    """
    head, embedding = "lm_head.weight", "model.embed_tokens.weight"
    if head not in stored or embedding not in stored:
        return False
    return not np.array_equal(_read(stored[head], head), _read(stored[embedding], embedding))


def _expected_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    def shape(fields: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(getattr(config, field) for field in fields)

    biased = {"self_attn": config.attention_bias, "mlp": config.mlp_bias}
    shapes = {"model.embed_tokens.weight": shape(MODEL_SHAPES["model.embed_tokens"])}
    for layer in range(config.layers):
        for module, fields in LAYER_SHAPES.items():
            name = f"model.layers.{layer}.{module}"
            shapes[f"{name}.weight"] = shape(fields)
            if biased.get(module.partition(".")[0]):
                shapes[f"{name}.bias"] = shape(fields[:1])
    for module in ("model.norm", "lm_head"):
        shapes[f"{module}.weight"] = shape(MODEL_SHAPES[module])
    return shapes


def _require_tensors(stored: Mapping[str, Stored], shapes: Mapping[str, tuple[int, ...]], folder: Path) -> None:
    for name in sorted(stored.keys() - shapes.keys()):
        raise InputError(f"{stored[name].path}: tensor {name} is unexpected in the model of config.json")
    for name, shape in shapes.items():
        if name not in stored:
            raise InputError(f"{folder}: tensor {name} is missing")
        tensor = stored[name]
        where = f"{tensor.path}: tensor {name}"
        if tensor.shape != shape:
            raise InputError(f"{where} has shape {list(tensor.shape)}, expected {list(shape)} by config.json")
        if tensor.dtype not in EXPONENTS:
            raise InputError(f"{where} is {tensor.dtype}, expected one of {', '.join(EXPONENTS)}")
