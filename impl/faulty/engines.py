"""Engines with one fault each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from impl.errors import InputError
from impl.protocol import Model
from impl.reference import Reference
from impl.reference.cpu import CpuMatrix, CpuOperations
from impl.reference.llama import Llama


class PerTensorOperations(CpuOperations):
    """Quantizes activations with one scale for the whole input."""

    def linear(self, x: Tensor, weight: CpuMatrix, bias: Tensor | None = None) -> Tensor:
        """Multiply by activations of 8 bits under one scale."""
        if weight.activation is not None:
            scale = x.abs().max() / 127
            x = torch.round(x / scale) * scale
        return functional.linear(x, weight.weight, bias)


class PerTensorActivationScale(Reference):
    """One activation scale for all positions, so that later ones change earlier ones."""

    name = "per-tensor-activation-scale"

    def load(self, path: Path, backend: str) -> Model:
        """Load, and exchange the operations."""
        model = super().load(path, backend)
        return replace(model, operations=PerTensorOperations(model.operations.arithmetic), chunk=None)


class UnmaskedOperations(CpuOperations):
    """Attends to later positions too."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention without a mask."""
        k, v = (x.repeat_interleave(len(q) // len(x), dim=0) for x in (k, v))
        weights = functional.softmax(torch.matmul(q, k.transpose(1, 2)) * q.shape[-1] ** -0.5, dim=-1)
        return torch.matmul(weights, v).transpose(0, 1).reshape(q.shape[1], -1)


class NoCausalMask(Reference):
    """Lets a position attend to those after it."""

    name = "no-causal-mask"

    def load(self, path: Path, backend: str) -> Model:
        """Load, and exchange the operations."""
        model = super().load(path, backend)
        return replace(model, operations=UnmaskedOperations(model.operations.arithmetic), chunk=None)


class IgnoredFreqBase(Reference):
    """Rotates with the default base, whatever the file says."""

    name = "ignored-freq-base"

    def load(self, path: Path, backend: str) -> Model:
        """Load, and exchange the base."""
        model = super().load(path, backend)
        rotation = replace(model.weights.rotation, base=10000.0)
        return replace(model, weights=replace(model.weights, rotation=rotation))


class AdjacentPairsAlways(Reference):
    """Rotates adjacent pairs, whatever the architecture."""

    name = "adjacent-pairs-always"

    def load(self, path: Path, backend: str) -> Model:
        """Load, and exchange the pairing."""
        model = super().load(path, backend)
        rotation = replace(model.weights.rotation, pairing="adjacent")
        return replace(model, weights=replace(model.weights, rotation=rotation))


@dataclass(frozen=True)
class ModelWithMemory:
    """A model that keeps earlier sequences in front of the next."""

    model: Llama
    seen: list[int]

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """The logits of these tokens after all that came before."""
        self.seen.extend(tokens)
        return self.model.logits(self.seen)[-len(tokens) :]

    def generate(self, prompt: Sequence[int], n: int) -> list[int]:
        """Continue all that came before."""
        self.seen.extend(prompt)
        generated = self.model.generate(self.seen, n)
        self.seen.extend(generated)
        return generated


class CacheNotCleared(Reference):
    """Keeps its cache from one sequence to the next."""

    name = "cache-not-cleared"

    def load(self, path: Path, backend: str) -> Any:  # noqa: ANN401
        """Load a model with a memory."""
        return ModelWithMemory(super().load(path, backend), [])


@dataclass(frozen=True)
class ShortSightedModel:
    """A model that generates from the last few tokens alone."""

    model: Llama

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """As it should be."""
        return self.model.logits(tokens)

    def generate(self, prompt: Sequence[int], n: int) -> list[int]:
        """Continue the last 8 tokens, as a cache would that dropped the others."""
        return self.model.generate(prompt[-8:], n)


class CacheTooShort(Reference):
    """Generates with a cache that holds 8 positions."""

    name = "cache-too-short"

    def load(self, path: Path, backend: str) -> Any:  # noqa: ANN401
        """Load a model with a short cache."""
        return ShortSightedModel(super().load(path, backend))


class SilentAboutKeys(Reference):
    """Refuses a file that lacks a key, and does not say which."""

    name = "silent-about-keys"

    def load(self, path: Path, backend: str) -> Model:
        """Load, or fail without a word."""
        try:
            return super().load(path, backend)
        except InputError as error:
            raise InputError("not a model") from error
