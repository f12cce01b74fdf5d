"""A checkpoint folder to a GGUF file, in four steps: rename, reorder, quantize, write with metadata."""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from numpy.typing import NDArray

from impl.errors import InputError
from impl.output import written_whole
from impl.protocol import Metadata
from impl.reference.blocks import bytes_per_row, quantize
from impl.reference.checkpoint import Checkpoint, open_checkpoint
from impl.reference.config import Config
from impl.reference.importance import ImportanceMatrix
from impl.reference.importance_file import read_importance
from impl.reference.metadata import ARCHITECTURE, Entry, full_entries, importance_entries, minimal_entries
from impl.reference.names import gguf_name
from impl.reference.permute import to_gguf
from impl.reference.recipe import FLOATS, Recipe, find_recipe, types_for
from impl.reference.rope import Llama3Scaling
from impl.reference.tokenizer import tokenizer_entries


@dataclass(frozen=True)
class Tensor:
    """One tensor of the GGUF file: its shape, rows first, and how to read its weights, in whatever float type."""

    shape: tuple[int, ...]
    read: Callable[[], NDArray]
    importance: NDArray[np.float32] | None = None
    """Float32[cols], where there is one."""


Quantize = Callable[..., NDArray[np.uint8]]
"""Weights [rows, cols] as the checkpoint stores them (float32, float16 or bfloat16), a type and, only where there
is one, an importance to uint8[rows, bytes per row]."""


def convert(
    checkpoint: Path,
    output: Path,
    recipe: str,
    metadata: Metadata = "full",
    steps: "Steps | None" = None,
    importance: Path | None = None,
) -> None:
    """Convert a Hugging Face Llama checkpoint folder to the GGUF file ``output``.

    Tensors are read, quantized and written one after the other, so that memory holds one of them at a
    time. Raises ``InputError`` for an unknown recipe, for a checkpoint that is damaged or that a GGUF
    llama file cannot express, and for an output that cannot be written. Whatever is raised, no file is
    left behind, and one that was at ``output`` before is as it was. ``steps`` exchanges some of the four.

    ``importance`` is an importance matrix file. A tensor that it does not have is quantized without one, as
    llama.cpp does; ``InputError`` where it has none of this checkpoint's, or one of another length.
    """
    steps = steps or Steps()
    chosen = find_recipe(recipe, with_importance=importance is not None)
    matrix = read_importance(importance) if importance else None
    source = open_checkpoint(checkpoint)
    tensors = steps.tensors(source)
    if matrix:
        tensors = _weighted(tensors, matrix, importance)
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    grouping = source.config.heads // source.config.key_value_heads
    types = steps.types(chosen, shapes, source.config.layers, grouping)
    entries = steps.entries(source, chosen, metadata, types)
    if matrix and metadata == "full":
        entries = [*entries, *importance_entries(matrix, importance.name)]
    with written_whole(output) as unfinished, closing(GGUFWriter(unfinished, ARCHITECTURE)) as writer:
        _write(writer, entries, tensors, types, steps.quantize)


def heads_of(config: Config) -> dict[str, int]:
    """The modules whose rows are reordered, and by how many heads."""
    return {"self_attn.q_proj": config.heads, "self_attn.k_proj": config.key_value_heads}


def tensors_of(source: Checkpoint, heads_of: Callable[[Config], Mapping[str, int]] = heads_of) -> dict[str, Tensor]:
    """Every tensor of the file by GGUF name: renamed, and q and k with their rows in GGUF's order."""
    config = source.config
    heads = heads_of(config)
    tensors = {}
    for name, shape in source.shapes.items():
        read = partial(source.tensor, name)
        for module, count in heads.items():
            if f".{module}." in name:
                read = partial(_reordered, read, count)
        tensors[gguf_name(name)] = Tensor(shape, read)
    if isinstance(config.rope_scaling, Llama3Scaling):
        divisors = partial(config.rope_scaling.divisors, config.rope_theta, config.head_size)
        tensors["rope_freqs.weight"] = Tensor((config.head_size // 2,), divisors)
    return tensors


def _weighted(tensors: Mapping[str, Tensor], matrix: ImportanceMatrix, path: Path) -> dict[str, Tensor]:
    """The tensors, each with its importance."""
    try:
        weighted = {
            name: replace(tensor, importance=matrix.of(name, tensor.shape[-1])) for name, tensor in tensors.items()
        }
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    if all(tensor.importance is None for tensor in weighted.values()):
        known = next(iter(matrix.columns), "none")
        raise InputError(f"{path}: no importance for any tensor of the checkpoint, the first it has is {known}")
    return weighted


def _reordered(read: Callable[[], NDArray], heads: int) -> NDArray:
    return to_gguf(read(), heads)


def entries_of(source: Checkpoint, recipe: Recipe, metadata: Metadata, types: Mapping[str, str]) -> list[Entry]:
    """The keys of the file, but for ``general.architecture``, which the writer puts first."""
    if metadata == "minimal":
        return minimal_entries(source.config)
    if metadata != "full":
        raise InputError(f"metadata {metadata!r}: unknown, expected 'minimal' or 'full'")
    parameters = sum(prod(shape) for shape in source.shapes.values())
    quantized = any(type not in FLOATS for type in types.values())
    name = source.folder.resolve().name
    return [
        *full_entries(source.config, name, parameters, recipe.file_type, quantized),
        *tokenizer_entries(source.folder, source.config.vocabulary),
    ]


def _write(
    writer: GGUFWriter,
    entries: list[Entry],
    tensors: Mapping[str, Tensor],
    types: Mapping[str, str],
    quantize: Quantize,
) -> None:
    for entry in entries:
        writer.add_key_value(entry.key, entry.value, entry.type, entry.element)
    for name, tensor in tensors.items():
        size = prod(tensor.shape[:-1]) * bytes_per_row(types[name], tensor.shape[-1])
        number = GGMLQuantizationType[types[name].upper()]
        writer.add_tensor_info(name, tensor.shape, np.dtype(np.float32), size, number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, tensor in tensors.items():
        writer.write_tensor_data(_encoded(name, tensor, types[name], quantize))


def _encoded(name: str, tensor: Tensor, type: str, quantize: Quantize) -> NDArray:
    if type == "f32":
        return tensor.read().astype(np.float32, copy=False)
    importance = () if tensor.importance is None else (tensor.importance,)
    try:
        return quantize(tensor.read(), type, *importance)
    except InputError as error:
        raise InputError(f"tensor {name}: {error}") from error


@dataclass(frozen=True)
class Steps:
    """The four steps of a conversion, so that an implementation can exchange one and keep the others."""

    tensors: Callable[[Checkpoint], dict[str, Tensor]] = tensors_of
    types: Callable[[Recipe, Mapping[str, tuple[int, ...]], int, int], dict[str, str]] = types_for
    quantize: Quantize = quantize
    entries: Callable[[Checkpoint, Recipe, Metadata, Mapping[str, str]], list[Entry]] = entries_of
