"""The operations in MLX, on a Metal, CUDA or CPU device, activations in float32 throughout.

Every operation is given the device, so that no setting outside of it decides where it runs.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from impl.reference.blocks import dequantize
from impl.reference.mlx_blocks import GROUP_SIZE, REPACKINGS, affine_groups
from impl.reference.operations import Rotation

CHUNK = 16
"""On a GPU the kernel of a matrix product, and with it the order of its sums, depends on how many rows there are."""


@dataclass(frozen=True)
class PackedMatrix:
    """A matrix that stays quantized; see ``impl.reference.mlx_blocks.AffineGroups``."""

    codes: mx.array
    scales: mx.array
    biases: mx.array
    bits: int


@dataclass(frozen=True)
class MlxAngles:
    """What pairs are turned by: position ``start`` and those after it, over float32[rotated / 2] ``wavelengths``."""

    wavelengths: mx.array
    start: int
    rotation: Rotation


@dataclass(frozen=True)
class MlxOperations:
    """See ``impl.reference.operations.Operations``."""

    device: mx.Device

    def chunk(self, types: Collection[str]) -> int:
        """Always a chunk, whatever the types."""
        return CHUNK

    def vector(self, values: NDArray[np.float32]) -> mx.array:
        """A copy on the device."""
        return mx.array(values)

    def matrix(self, blocks: NDArray[np.uint8], type: str) -> PackedMatrix | mx.array:
        """Packed where MLX has the type's arithmetic, float32[columns, rows] where not."""
        if type not in REPACKINGS:
            weight = blocks.view(np.float32) if type == "f32" else dequantize(blocks, type)
            # In this order MLX multiplies twice as fast on a CPU as by the transpose of [rows, columns].
            return mx.array(np.ascontiguousarray(weight.T))
        groups = affine_groups(blocks, type)
        return PackedMatrix(*map(mx.array, (groups.codes, groups.scales, groups.biases)), groups.bits)

    def embed(self, embedding: PackedMatrix | mx.array, tokens: Sequence[int]) -> mx.array:
        """Of a packed matrix, only the rows taken are dequantized."""
        rows = mx.array(tokens)
        if not isinstance(embedding, PackedMatrix):
            return mx.transpose(mx.take(embedding, rows, axis=1, stream=self.device), stream=self.device)
        parts = (self._rows(part, rows) for part in (embedding.codes, embedding.scales, embedding.biases))
        return mx.dequantize(*parts, group_size=GROUP_SIZE, bits=embedding.bits, stream=self.device)

    def linear(self, x: mx.array, weight: PackedMatrix | mx.array, bias: mx.array | None = None) -> mx.array:
        """A packed matrix is multiplied by as it is."""
        if isinstance(weight, PackedMatrix):
            parts = (weight.codes, weight.scales, weight.biases)
            product = mx.quantized_matmul(x, *parts, group_size=GROUP_SIZE, bits=weight.bits, stream=self.device)
        else:
            product = mx.matmul(x, weight, stream=self.device)
        return product if bias is None else self.add(product, bias)

    def rms_norm(self, x: mx.array, weight: mx.array, epsilon: float) -> mx.array:
        """``mx.fast``."""
        return mx.fast.rms_norm(x, weight, epsilon, stream=self.device)

    def split_heads(self, x: mx.array, heads: int) -> mx.array:
        """A view."""
        split = mx.reshape(x, (len(x), heads, -1), stream=self.device)
        return mx.transpose(split, (1, 0, 2), stream=self.device)

    def angles(self, rotation: Rotation, start: int, positions: int) -> MlxAngles:
        """Wavelengths in float32, which MLX takes the reciprocal of."""
        exponents = np.arange(0, rotation.rotated, 2, dtype=np.float32) / np.float32(rotation.rotated)
        wavelengths = np.float32(rotation.base) ** exponents * rotation.divisors
        return MlxAngles(mx.array(wavelengths), start, rotation)

    def rotate(self, x: mx.array, angles: MlxAngles) -> mx.array:
        """``mx.fast``, whose traditional way is adjacent pairs."""
        return mx.fast.rope(
            x,
            angles.rotation.rotated,
            traditional=angles.rotation.pairing == "adjacent",
            base=None,
            scale=1.0,
            offset=angles.start,
            freqs=angles.wavelengths,
            stream=self.device,
        )

    def append(self, past: mx.array, x: mx.array) -> mx.array:
        """A new array, so that a cache never changes."""
        return mx.concatenate((past, x), axis=1, stream=self.device)

    def attend(self, q: mx.array, k: mx.array, v: mx.array) -> mx.array:
        """``mx.fast``, which serves query heads by their key-value head itself and aligns the mask to the last key."""
        q, k, v = (mx.expand_dims(x, 0, stream=self.device) for x in (q, k, v))
        scale = q.shape[-1] ** -0.5
        attended = mx.fast.scaled_dot_product_attention(q, k, v, scale=scale, mask="causal", stream=self.device)
        positions = q.shape[2]
        return mx.reshape(mx.transpose(attended, (0, 2, 1, 3), stream=self.device), (positions, -1), stream=self.device)

    def gate(self, gate: mx.array, up: mx.array) -> mx.array:
        """Elementwise."""
        swish = mx.multiply(gate, mx.sigmoid(gate, stream=self.device), stream=self.device)
        return mx.multiply(swish, up, stream=self.device)

    def add(self, x: mx.array, y: mx.array) -> mx.array:
        """Elementwise."""
        return mx.add(x, y, stream=self.device)

    def last(self, x: mx.array) -> mx.array:
        """A copy."""
        return self._rows(x, mx.array([len(x) - 1]))

    def to_numpy(self, x: mx.array) -> NDArray[np.float32]:
        """A copy on the host; what has only been noted down until then is computed."""
        return np.array(x)

    def _rows(self, x: mx.array, rows: mx.array) -> mx.array:
        return mx.take(x, rows, axis=0, stream=self.device)
