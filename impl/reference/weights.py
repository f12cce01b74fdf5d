"""The weights of a Llama, read from a GGUF file and handed to a backend."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from impl.errors import InputError
from impl.reference.blocks import FORMATS, dequantize
from impl.reference.gguf_file import GgufFile
from impl.reference.hyperparameters import Hyperparameters
from impl.reference.operations import Array, Matrix, Operations, Rotation


@dataclass(frozen=True)
class Projection:
    """A matrix and its bias, if it has one."""

    weight: Matrix
    bias: Array | None


@dataclass(frozen=True)
class Layer:
    """The weights of one layer, under GGUF's names."""

    attn_norm: Array
    attn_q: Projection
    attn_k: Projection
    attn_v: Projection
    attn_output: Projection
    ffn_norm: Array
    ffn_gate: Projection
    ffn_up: Projection
    ffn_down: Projection


@dataclass(frozen=True)
class Weights:
    """All weights, under GGUF's names."""

    token_embd: Matrix
    layers: tuple[Layer, ...]
    output_norm: Array
    output: Matrix
    rotation: Rotation
    vocabulary: int


def read_weights(file: GgufFile, sizes: Hyperparameters, operations: Operations) -> Weights:
    """Read every tensor; ``InputError`` names the first that is missing, of another shape or unknown type.

    Without ``output.weight`` the embedding is the output matrix too.
    """
    return _Reader(file, sizes, operations).weights()


@dataclass(frozen=True)
class _Reader:
    file: GgufFile
    sizes: Hyperparameters
    operations: Operations

    def weights(self) -> Weights:
        vocabulary = self.file.shape("token_embd.weight")[0]
        token_embd = self._matrix("token_embd", vocabulary, self.sizes.hidden)
        tied = "output.weight" not in self.file.tensors
        return Weights(
            token_embd=token_embd,
            layers=tuple(self._layer(f"blk.{index}.") for index in range(self.sizes.layers)),
            output_norm=self._vector("output_norm.weight", self.sizes.hidden),
            output=token_embd if tied else self._matrix("output", vocabulary, self.sizes.hidden),
            rotation=self._rotation(),
            vocabulary=vocabulary,
        )

    def _layer(self, block: str) -> Layer:
        hidden = self.sizes.hidden
        query, key = (heads * self.sizes.head_size for heads in (self.sizes.heads, self.sizes.key_value_heads))
        inner = self.file.shape(f"{block}ffn_gate.weight")[0]
        return Layer(
            attn_norm=self._vector(f"{block}attn_norm.weight", hidden),
            attn_q=self._projection(f"{block}attn_q", query, hidden),
            attn_k=self._projection(f"{block}attn_k", key, hidden),
            attn_v=self._projection(f"{block}attn_v", key, hidden),
            attn_output=self._projection(f"{block}attn_output", hidden, query),
            ffn_norm=self._vector(f"{block}ffn_norm.weight", hidden),
            ffn_gate=self._projection(f"{block}ffn_gate", inner, hidden),
            ffn_up=self._projection(f"{block}ffn_up", inner, hidden),
            ffn_down=self._projection(f"{block}ffn_down", hidden, inner),
        )

    def _rotation(self) -> Rotation:
        pairs = self.sizes.rotated // 2
        divisors = np.full(pairs, self.sizes.position_scale, np.float32)
        if "rope_freqs.weight" in self.file.tensors:
            divisors *= self._values("rope_freqs.weight", pairs)
        return Rotation(self.sizes.freq_base, self.sizes.rotated, self.sizes.pairing, divisors)

    def _projection(self, name: str, rows: int, columns: int) -> Projection:
        has_bias = f"{name}.bias" in self.file.tensors
        return Projection(self._matrix(name, rows, columns), self._vector(f"{name}.bias", rows) if has_bias else None)

    def _matrix(self, name: str, rows: int, columns: int) -> Matrix:
        return self.operations.matrix(*self._blocks(f"{name}.weight", (rows, columns)))

    def _vector(self, name: str, size: int) -> Array:
        return self.operations.vector(self._values(name, size))

    def _values(self, name: str, size: int) -> NDArray[np.float32]:
        return dequantize(*self._blocks(name, (size,)))[0]

    def _blocks(self, name: str, shape: tuple[int, ...]) -> tuple[NDArray[np.uint8], str]:
        blocks, type = self.file.blocks(name, shape)
        if type not in FORMATS:
            raise InputError(f"{self.file.path}: tensor {name} is {type}, expected one of {', '.join(FORMATS)}")
        return blocks, type
