"""Converters with one fault each."""

import uuid
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
from gguf import GGUFValueType

from impl.errors import InputError
from impl.protocol import Metadata
from impl.reference import Reference
from impl.reference.blocks import quantize
from impl.reference.checkpoint import Checkpoint
from impl.reference.convert import Steps, Tensor, entries_of, heads_of, tensors_of
from impl.reference.metadata import Entry
from impl.reference.recipe import Recipe, types_for


class NoPermutation(Reference):
    """Leaves the rows of q and k where the checkpoint has them."""

    name = "no-permutation"
    steps = Steps(tensors=partial(tensors_of, heads_of=lambda config: {}))


class KPermutedWithQueryHeads(Reference):
    """Orders the rows of k by the number of query heads."""

    name = "k-permuted-with-query-heads"
    steps = Steps(
        tensors=partial(tensors_of, heads_of=lambda config: heads_of(config) | {"self_attn.k_proj": config.heads})
    )


class KPermutedWithQuotient(Reference):
    """Orders the rows of k by the number of query heads for each key-value head."""

    name = "k-permuted-with-quotient"
    steps = Steps(
        tensors=partial(
            tensors_of,
            heads_of=lambda config: heads_of(config) | {"self_attn.k_proj": config.heads // config.key_value_heads},
        )
    )


def _head_twice(source: Checkpoint) -> dict[str, Tensor]:
    tensors = tensors_of(source)
    return {**tensors, "output.weight": tensors["token_embd.weight"]} if source.config.tied else tensors


class TiedHeadTwice(Reference):
    """Writes a tied head as a tensor of its own."""

    name = "tied-head-twice"
    steps = Steps(tensors=_head_twice)


class LayersInReverse(Reference):
    """Writes the last layer first."""

    name = "layers-in-reverse"
    steps = Steps(tensors=lambda source: dict(reversed(tensors_of(source).items())))


def _norms_too(recipe: Recipe, shapes: Mapping[str, tuple[int, ...]], layers: int, grouping: int) -> dict[str, str]:
    types = types_for(recipe, shapes, layers, grouping)
    return {name: "f16" if len(shapes[name]) == 1 and recipe.base != "f32" else type for name, type in types.items()}


class QuantizedNorms(Reference):
    """Gives norms fewer bits too."""

    name = "quantized-norms"
    steps = Steps(types=_norms_too, quantize=lambda weight, type: quantize(np.atleast_2d(weight), type))


def _without_freq_base(source: Checkpoint, recipe: Recipe, metadata: Metadata, types: Mapping[str, str]) -> list[Entry]:
    return [entry for entry in entries_of(source, recipe, metadata, types) if entry.key != "llama.rope.freq_base"]


class NoFreqBase(Reference):
    """Leaves out ``llama.rope.freq_base``."""

    name = "no-freq-base"
    steps = Steps(entries=_without_freq_base)


def _without_tokenizer(source: Checkpoint, recipe: Recipe, metadata: Metadata, types: Mapping[str, str]) -> list[Entry]:
    return [entry for entry in entries_of(source, recipe, metadata, types) if not entry.key.startswith("tokenizer")]


class NoTokenizer(Reference):
    """Leaves the tokenizer out of full metadata."""

    name = "no-tokenizer"
    steps = Steps(entries=_without_tokenizer)


def _stamped(source: Checkpoint, recipe: Recipe, metadata: Metadata, types: Mapping[str, str]) -> list[Entry]:
    stamp = Entry("general.uuid", uuid.uuid4().hex, GGUFValueType.STRING)
    return [*entries_of(source, recipe, metadata, types), stamp]


class StampedFiles(Reference):
    """Puts something new into every file."""

    name = "stamped-files"
    steps = Steps(entries=_stamped)


class IgnoredRecipe(Reference):
    """Writes q4_0 for whatever is asked."""

    name = "ignored-recipe"

    def convert(self, checkpoint: Path, output: Path, recipe: str, metadata: Metadata = "full") -> None:
        """Convert to q4_0."""
        super().convert(checkpoint, output, "q4_0", metadata)


class PartialFiles(Reference):
    """Leaves half a file behind when it fails."""

    name = "partial-files"

    def convert(self, checkpoint: Path, output: Path, recipe: str, metadata: Metadata = "full") -> None:
        """Convert, writing to the output itself from the start."""
        if output.parent.is_dir():
            output.write_bytes(b"GGUF")
        super().convert(checkpoint, output, recipe, metadata)


class SilentAboutNames(Reference):
    """Refuses what it should, and does not say what was wrong."""

    name = "silent-about-names"

    def convert(self, checkpoint: Path, output: Path, recipe: str, metadata: Metadata = "full") -> None:
        """Convert, or fail without a word."""
        try:
            super().convert(checkpoint, output, recipe, metadata)
        except InputError as error:
            raise InputError("conversion failed") from error
