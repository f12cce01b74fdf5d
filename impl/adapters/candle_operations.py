"""The operations of a forward pass on candle's tensors, as quantized_llama (candle 0.11) does them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import candle
import numpy as np
from candle import QTensor, Tensor
from candle.functional import silu, softmax
from numpy.typing import NDArray

from impl.adapters.candle import in_one_line, to_candle, to_numpy, to_qtensor
from impl.reference.operations import Rotation


@dataclass(frozen=True)
class CandleMatrix:
    """A weight as candle keeps it."""

    blocks: QTensor

    @cached_property
    def weight(self) -> Tensor:
        """Dequantized, for the embedding."""
        return self.blocks.dequantize()


@dataclass(frozen=True)
class CandleAngles:
    """Cosine and sine, float32[positions, rotated / 2] each, and how to pair dimensions."""

    cosine: Tensor
    sine: Tensor
    rotation: Rotation


class CandleOperations:
    """See ``impl.reference.operations.Operations``."""

    def chunk(self, types: Collection[str]) -> int | None:
        """As many positions as there are, as quantized_llama."""
        return None

    def vector(self, values: NDArray[np.float32]) -> Tensor:
        """A tensor of candle's."""
        return to_candle(values)

    def matrix(self, blocks: NDArray[np.uint8], type: str) -> CandleMatrix:
        """The blocks as they are."""
        return CandleMatrix(to_qtensor(blocks, type))

    def embed(self, embedding: CandleMatrix, tokens: Sequence[int]) -> Tensor:
        """Rows of the dequantized embedding."""
        return embedding.weight.index_select(candle.tensor(list(tokens)), 0)

    def linear(self, x: Tensor, weight: CandleMatrix, bias: Tensor | None = None) -> Tensor:
        """``QTensor.matmul_t``, which quantizes the rows of x to match the type of the weight."""
        with in_one_line():
            product = weight.blocks.matmul_t(x.contiguous())
        return product if bias is None else product.broadcast_add(bias)

    def rms_norm(self, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        """x over the root of its mean square, times ``weight``."""
        mean = x.sqr().sum_keepdim(1) / x.shape[1]
        return x.broadcast_div((mean + epsilon).sqrt()).broadcast_mul(weight)

    def split_heads(self, x: Tensor, heads: int) -> Tensor:
        """[positions, heads × size] to [heads, positions, size]."""
        positions, width = x.shape
        return x.reshape((positions, heads, width // heads)).transpose(0, 1).contiguous()

    def angles(self, rotation: Rotation, start: int, positions: int) -> CandleAngles:
        """The table of angles is float32, as quantized_llama's."""
        exponents = np.arange(0, rotation.rotated, 2, dtype=np.float32) / np.float32(rotation.rotated)
        frequencies = np.float32(1) / np.float32(rotation.base) ** exponents / rotation.divisors
        turned = to_candle(np.arange(start, start + positions, dtype=np.float32)[:, None] * frequencies)
        return CandleAngles(turned.cos(), turned.sin(), rotation)

    def rotate(self, x: Tensor, angles: CandleAngles) -> Tensor:
        """Adjacent pairs or halves; dimensions beyond ``rotated`` stay."""
        heads, positions, size = x.shape
        rotated, pairs = angles.rotation.rotated, angles.rotation.rotated // 2
        halves = angles.rotation.pairing == "halves"
        shape, axis = ((heads, positions, 2, pairs), 2) if halves else ((heads, positions, pairs, 2), 3)
        paired = x.narrow(2, 0, rotated).contiguous().reshape(shape)
        cosine, sine = (each.unsqueeze(axis - 1) for each in (angles.cosine, angles.sine))
        first, second = paired.narrow(axis, 0, 1), paired.narrow(axis, 1, 1)
        turned = candle.cat(
            [
                first.broadcast_mul(cosine) - second.broadcast_mul(sine),
                first.broadcast_mul(sine) + second.broadcast_mul(cosine),
            ],
            axis,
        ).reshape((heads, positions, rotated))
        return turned if rotated == size else candle.cat([turned, x.narrow(2, rotated, size - rotated)], 2)

    def append(self, past: Tensor, x: Tensor) -> Tensor:
        """A new tensor, so that a cache never changes."""
        return candle.cat([past, x], 1)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """As quantized_llama off Metal, keys and values repeated for their query heads."""
        (heads, positions, size), seen = q.shape, k.shape[1]
        k, v = (_repeated(each, heads // each.shape[0]) for each in (k, v))
        scores = q.matmul(k.transpose(1, 2).contiguous()) / float(np.sqrt(size))
        later = to_candle(np.triu(np.full((positions, seen), -np.inf, np.float32), 1 + seen - positions))
        attended = softmax(scores.broadcast_add(later), 2).matmul(v)
        return attended.transpose(0, 1).reshape((positions, heads * size))

    def gate(self, gate: Tensor, up: Tensor) -> Tensor:
        """silu(gate) × up."""
        return silu(gate) * up

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """The residual connection."""
        return x + y

    def last(self, x: Tensor) -> Tensor:
        """The last position alone: [1, width]."""
        return x.narrow(0, x.shape[0] - 1, 1)

    def to_numpy(self, x: Tensor) -> NDArray[np.float32]:
        """The values on the host."""
        return to_numpy(x)


def _repeated(x: Tensor, times: int) -> Tensor:
    heads, positions, size = x.shape
    spread = x.unsqueeze(1).broadcast_as((heads, times, positions, size))
    return spread.contiguous().reshape((heads * times, positions, size))
