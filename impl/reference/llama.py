"""The Llama forward pass over a GGUF file, on any backend's operations."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from impl.errors import InputError
from impl.reference.backends import BACKENDS
from impl.reference.gguf_file import open_gguf
from impl.reference.hyperparameters import Hyperparameters, read_hyperparameters
from impl.reference.operations import Angles, Array, Operations
from impl.reference.weights import Layer, Projection, Weights, read_weights

WHOLE = slice(None)


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
    generating_chunk: int | None
    """The same, where tokens are generated."""

    def logits(self, tokens: Sequence[int], rows: slice = WHOLE) -> NDArray[np.float32]:
        """Float32[rows, vocabulary], row i predicting token i + 1.

        A pass in which no row is asked for computes none. ``InputError`` for no tokens, and for a token outside of
        the vocabulary.
        """
        wanted, found = range(len(tokens))[rows], [np.empty((0, self.weights.vocabulary), np.float32)]
        for start, x, _ in self._passes(Cache(), list(tokens), self.chunk):
            asked = [row - start for row in wanted if start <= row < start + (self.chunk or len(tokens))]
            if asked:
                found.append(self._head(x)[asked])
        return np.concatenate(found)

    def generate(self, prompt: Sequence[int], n: int) -> list[int]:
        """The ``n`` tokens of the largest logit, each found with what is cached of those before it."""
        tokens, cache = list(prompt), Cache()
        for _ in range(n):
            *_, (start, x, after) = self._passes(cache, tokens[cache.positions :], self.generating_chunk)
            # Where a pass has a fixed size, so has the head's product.
            row = len(tokens) - cache.positions - start - 1 if self.generating_chunk else 0
            logits = self._head(x if self.generating_chunk else self.operations.last(x))
            tokens.append(int(logits[row].argmax()))
            cache = after
        return tokens[len(prompt) :]

    def _passes(self, cache: Cache, tokens: list[int], chunk: int | None) -> Iterator[tuple[int, Array, Cache]]:
        """Tokens that follow the cached ones, a chunk at a time, the last one filled up.

        Of each pass: the index of its first token, what its positions come to before the head, and the cache with
        every full chunk so far.
        """
        self._refuse_unknown(tokens)
        size = chunk or len(tokens)
        for start in range(0, len(tokens), size):
            taken = tokens[start : start + size]
            missing = size - len(taken)
            x, after = self._layers(cache, taken + taken[-1:] * missing)
            cache = cache if missing else after
            yield start, x, cache

    def _layers(self, cache: Cache, tokens: list[int]) -> tuple[Array, Cache]:
        ops, weights, epsilon = self.operations, self.weights, self.hyperparameters.norm_epsilon
        angles = ops.angles(weights.rotation, cache.positions, len(tokens))
        x = ops.embed(weights.token_embd, tokens)
        kept = []
        for layer, past in zip(weights.layers, cache.layers or [None] * len(weights.layers), strict=True):
            attended, seen = self._attention(ops.rms_norm(x, layer.attn_norm, epsilon), layer, angles, past)
            x = ops.add(x, attended)
            x = ops.add(x, self._feed_forward(ops.rms_norm(x, layer.ffn_norm, epsilon), layer))
            kept.append(seen)
        return x, Cache(cache.positions + len(tokens), tuple(kept))

    def _head(self, x: Array) -> NDArray[np.float32]:
        ops, weights = self.operations, self.weights
        normed = ops.rms_norm(x, weights.output_norm, self.hyperparameters.norm_epsilon)
        return ops.to_numpy(ops.linear(normed, weights.output))

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


def load(path: Path, backend: str) -> Llama:
    """Load a GGUF file; ``InputError`` names the first key or tensor that is missing or does not fit."""
    chosen = BACKENDS[backend]
    operations = chosen.operations()
    file = open_gguf(path)
    hyperparameters = read_hyperparameters(file)
    weights = read_weights(file, hyperparameters, operations)
    chunk = operations.chunk({tensor.tensor_type.name.lower() for tensor in file.tensors.values()})
    # Generated one by one, float32 activations differ from the whole sequence's in their last bits alone.
    return Llama(
        hyperparameters=hyperparameters,
        weights=weights,
        operations=operations,
        chunk=chunk,
        generating_chunk=chunk if chosen.arithmetic == "quantized-activations" else None,
    )
