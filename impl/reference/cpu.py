"""The operations on the CPU, in torch, in the order that transformers' eager Llama (5.24) does them in.

Same operations in the same order give the same bits: a float32 file whose rows are not reordered, and which
rotates halves, has transformers' float32 logits exactly.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from impl.protocol import Arithmetic
from impl.reference.activations import through
from impl.reference.blocks import FORMATS, dequantize
from impl.reference.operations import Rotation

CHUNK = 32
"""Larger makes a long pass faster, smaller each generated token."""


@dataclass(frozen=True)
class CpuMatrix:
    """Float32[rows, columns], and the format that activations go through before they meet it, if any."""

    weight: Tensor
    activation: str | None


@dataclass(frozen=True)
class CpuAngles:
    """Cosine and sine, float32[positions, rotated / 2] each, and how to pair dimensions."""

    cosine: Tensor
    sine: Tensor
    rotation: Rotation


@dataclass(frozen=True)
class CpuOperations:
    """See ``impl.reference.operations.Operations``."""

    arithmetic: Arithmetic

    def chunk(self, types: Collection[str]) -> int | None:
        """A chunk where activations are quantized; as many positions as there are otherwise."""
        # How a matrix product sums depends on its shape. Of float32 activations that moves the last bits;
        # where activations are quantized it moves them across rounding boundaries, and logits by tenths.
        return CHUNK if any(self._activation(type) for type in types) else None

    def vector(self, values: NDArray[np.float32]) -> Tensor:
        """The values as they are."""
        return torch.from_numpy(values)

    def matrix(self, blocks: NDArray[np.uint8], type: str) -> CpuMatrix:
        """Dequantized; float32 stays in the file's memory map."""
        weight = blocks.view(np.float32) if type == "f32" else dequantize(blocks, type)
        return CpuMatrix(torch.from_numpy(weight), self._activation(type))

    def embed(self, embedding: CpuMatrix, tokens: Sequence[int]) -> Tensor:
        """Rows are taken as they are: no activation meets them."""
        return embedding.weight[torch.tensor(tokens)]

    def linear(self, x: Tensor, weight: CpuMatrix, bias: Tensor | None = None) -> Tensor:
        """Activations are quantized and dequantized first where the matrix asks for it."""
        activations = x if weight.activation is None else through(x, weight.activation)
        return functional.linear(activations, weight.weight, bias)

    def rms_norm(self, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        """As ``LlamaRMSNorm``."""
        return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon))

    def split_heads(self, x: Tensor, heads: int) -> Tensor:
        """A view."""
        return x.view(len(x), heads, -1).transpose(0, 1)

    def angles(self, rotation: Rotation, start: int, positions: int) -> CpuAngles:
        """As ``LlamaRotaryEmbedding``, without its second copy of every angle."""
        exponents = torch.arange(0, rotation.rotated, 2, dtype=torch.float32) / rotation.rotated
        frequencies = 1.0 / (rotation.base**exponents) / torch.from_numpy(rotation.divisors)
        turned = torch.arange(start, start + positions, dtype=torch.float32)[:, None] * frequencies
        return CpuAngles(turned.cos(), turned.sin(), rotation)

    def rotate(self, x: Tensor, angles: CpuAngles) -> Tensor:
        """Adjacent pairs or halves; dimensions beyond ``rotated`` stay."""
        rotated, rest = x.split([angles.rotation.rotated, x.shape[-1] - angles.rotation.rotated], dim=-1)
        if angles.rotation.pairing == "halves":
            first, second = rotated.chunk(2, dim=-1)
            turned = torch.cat(_turn(first, second, angles), dim=-1)
        else:
            turned = torch.stack(_turn(rotated[..., 0::2], rotated[..., 1::2], angles), dim=-1).flatten(-2)
        return torch.cat((turned, rest), dim=-1)

    def append(self, past: Tensor, x: Tensor) -> Tensor:
        """A new tensor, so that a cache never changes."""
        return torch.cat((past, x), dim=1)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """As ``eager_attention_forward``, keys and values repeated for their query heads."""
        k, v = (x.repeat_interleave(len(q) // len(x), dim=0) for x in (k, v))
        scores = torch.matmul(q, k.transpose(1, 2)) * q.shape[-1] ** -0.5
        positions, seen = scores.shape[1:]
        later = torch.full((positions, seen), -torch.inf).triu(1 + seen - positions)
        attended = torch.matmul(functional.softmax(scores + later, dim=-1), v)
        return attended.transpose(0, 1).reshape(positions, -1)

    def gate(self, gate: Tensor, up: Tensor) -> Tensor:
        """As ``LlamaMLP``."""
        return functional.silu(gate) * up

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """Elementwise."""
        return x + y

    def last(self, x: Tensor) -> Tensor:
        """A view."""
        return x[-1:]

    def to_numpy(self, x: Tensor) -> NDArray[np.float32]:
        """A view."""
        return x.numpy()

    def _activation(self, type: str) -> str | None:
        return FORMATS[type].activation if self.arithmetic == "quantized-activations" else None


def _turn(first: Tensor, second: Tensor, angles: CpuAngles) -> tuple[Tensor, Tensor]:
    return first * angles.cosine - second * angles.sine, second * angles.cosine + first * angles.sine
