"""The few operations that the forward pass is written over; each backend implements them once.

Arrays are the backend's own, float32. Activations are [positions, width]; heads are [heads, positions,
head size]. Nothing here keeps state.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from impl.reference.hyperparameters import Pairing

Array = Any
"""A float32 array of the backend."""
Matrix = Any
"""A weight of [rows, columns] as the backend multiplies by it."""
Angles = Any
"""The rotation of some positions, as the backend applies it."""


@dataclass(frozen=True)
class Rotation:
    """A rotary embedding: pair i turns by position / (base ** (2i / rotated) × divisor i)."""

    base: float
    rotated: int
    """Dimensions of a head that are rotated, from the first on."""
    pairing: Pairing
    divisors: NDArray[np.float32]
    """float32[rotated / 2]; all ones where positions are not scaled."""


class Operations(Protocol):
    """What a backend computes."""

    def chunk(self, types: Collection[str]) -> int | None:
        """How many positions a pass takes at once, for a file of tensors of these types.

        A number makes a position's bits independent of how many others are computed beside it, since every
        pass then has the same shapes. None: any number of positions at once.
        """

    def vector(self, values: NDArray[np.float32]) -> Array:
        """A norm's weight or a bias, float32[width]."""

    def matrix(self, blocks: NDArray[np.uint8], type: str) -> Matrix:
        """A weight from its rows of blocks, uint8[rows, bytes per row]."""

    def embed(self, embedding: Matrix, tokens: Sequence[int]) -> Array:
        """The rows of the embedding: [positions, columns]."""

    def linear(self, x: Array, weight: Matrix, bias: Array | None = None) -> Array:
        """x · weightᵀ + bias: [positions, rows]."""

    def rms_norm(self, x: Array, weight: Array, epsilon: float) -> Array:
        """x over the root of its mean square, times ``weight``."""

    def split_heads(self, x: Array, heads: int) -> Array:
        """[positions, heads × size] to [heads, positions, size]."""

    def angles(self, rotation: Rotation, start: int, positions: int) -> Angles:
        """The rotation of ``positions`` consecutive positions from ``start`` on."""

    def rotate(self, x: Array, angles: Angles) -> Array:
        """Rotate [heads, positions, size]."""

    def append(self, past: Array, x: Array) -> Array:
        """[heads, positions, size] after those of earlier positions."""

    def attend(self, q: Array, k: Array, v: Array) -> Array:
        """Causal attention, the queries being the last positions of the keys: [positions, heads × size].

        Each key-value head serves as many consecutive query heads as there are queries to a key.
        """

    def gate(self, gate: Array, up: Array) -> Array:
        """silu(gate) × up."""

    def add(self, x: Array, y: Array) -> Array:
        """The residual connection."""

    def last(self, x: Array) -> Array:
        """The last position alone: [1, width]."""

    def to_numpy(self, x: Array) -> NDArray[np.float32]:
        """The values on the host."""
