"""The Llama forward pass over a GGUF file, on any backend's operations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from impl.errors import InputError
from impl.protocol import Arithmetic
from impl.reference.cpu import CpuOperations
from impl.reference.gguf_file import open_gguf
from impl.reference.hyperparameters import Hyperparameters, read_hyperparameters
from impl.reference.operations import Angles, Array, Operations
from impl.reference.weights import Layer, Projection, Weights, read_weights

BACKENDS: Mapping[str, Callable[[Arithmetic], Operations]] = {"cpu": CpuOperations, "cpu-dequantized": CpuOperations}


@dataclass(frozen=True)
class KeysAndValues:
    """What one layer keeps of positions: rotated keys and values, [key-value heads, positions, head size]."""

    k: Array
    v: Array


@dataclass(frozen=True)
class Cache:
    """What every layer keeps of the first ``positions`` positions; empty at first."""

    positions: int = 0
    layers: tuple[KeysAndValues, ...] = ()


@dataclass(frozen=True)
class Llama:
    """A loaded model; nothing of one call is left for the next."""

    hyperparameters: Hyperparameters
    weights: Weights
    operations: Operations
    chunk: int | None
    """Positions in a pass; see ``Operations.chunk``."""

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Float32[len(tokens), vocabulary], row i predicting token i + 1.

        ``InputError`` for no tokens, and for a token outside of the vocabulary.
        """
        return self._continue(Cache(), list(tokens))[0]

    def generate(self, prompt: Sequence[int], n: int) -> list[int]:
        """The ``n`` tokens of the largest logit, each found with what is cached of those before it."""
        tokens, cache = list(prompt), Cache()
        for _ in range(n):
            logits, cache = self._continue(cache, tokens[cache.positions :])
            tokens.append(int(logits[-1].argmax()))
        return tokens[len(prompt) :]

    def _continue(self, cache: Cache, tokens: list[int]) -> tuple[NDArray[np.float32], Cache]:
        """The logits of tokens that follow the cached ones, and the cache with every full chunk of them."""
        self._refuse_unknown(tokens)
        size, logits = self.chunk or len(tokens), []
        for start in range(0, len(tokens), size):
            chunk = tokens[start : start + size]
            missing = size - len(chunk)
            rows, after = self._forward(cache, chunk + chunk[-1:] * missing)
            logits.append(rows[: len(chunk)])
            cache = cache if missing else after
        return np.concatenate(logits), cache

    def _forward(self, cache: Cache, tokens: list[int]) -> tuple[NDArray[np.float32], Cache]:
        ops, weights, epsilon = self.operations, self.weights, self.hyperparameters.norm_epsilon
        angles = ops.angles(weights.rotation, cache.positions, len(tokens))
        x = ops.embed(weights.token_embd, tokens)
        kept = []
        for layer, past in zip(weights.layers, cache.layers or [None] * len(weights.layers), strict=True):
            attended, seen = self._attention(ops.rms_norm(x, layer.attn_norm, epsilon), layer, angles, past)
            x = ops.add(x, attended)
            x = ops.add(x, self._feed_forward(ops.rms_norm(x, layer.ffn_norm, epsilon), layer))
            kept.append(seen)
        logits = ops.linear(ops.rms_norm(x, weights.output_norm, epsilon), weights.output)
        return ops.to_numpy(logits), Cache(cache.positions + len(tokens), tuple(kept))

    def _attention(
        self, x: Array, layer: Layer, angles: Angles, past: KeysAndValues | None
    ) -> tuple[Array, KeysAndValues]:
        ops, sizes = self.operations, self.hyperparameters
        q = ops.rotate(ops.split_heads(self._project(x, layer.attn_q), sizes.heads), angles)
        k = ops.rotate(ops.split_heads(self._project(x, layer.attn_k), sizes.key_value_heads), angles)
        v = ops.split_heads(self._project(x, layer.attn_v), sizes.key_value_heads)
        if past is not None:
            k, v = ops.append(past.k, k), ops.append(past.v, v)
        return self._project(ops.attend(q, k, v), layer.attn_output), KeysAndValues(k, v)

    def _feed_forward(self, x: Array, layer: Layer) -> Array:
        gated = self.operations.gate(self._project(x, layer.ffn_gate), self._project(x, layer.ffn_up))
        return self._project(gated, layer.ffn_down)

    def _project(self, x: Array, projection: Projection) -> Array:
        return self.operations.linear(x, projection.weight, projection.bias)

    def _refuse_unknown(self, tokens: list[int]) -> None:
        if not tokens:
            raise InputError("no tokens, expected at least one")
        for token in tokens:
            if not 0 <= token < self.weights.vocabulary:
                raise InputError(f"token {token}: expected 0 to {self.weights.vocabulary - 1}")


def load(path: Path, backend: str, arithmetic: Arithmetic) -> Llama:
    """Load a GGUF file; ``InputError`` names the first key or tensor that is missing or does not fit."""
    file = open_gguf(path)
    hyperparameters, operations = read_hyperparameters(file), BACKENDS[backend](arithmetic)
    weights = read_weights(file, hyperparameters, operations)
    types = {tensor.tensor_type.name.lower() for tensor in file.tensors.values()}
    return Llama(hyperparameters, weights, operations, operations.chunk(types))
