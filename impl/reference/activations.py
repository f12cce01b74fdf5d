"""Activation rows quantized block by block and back, as ggml and candle do before they multiply on the CPU.

Each function takes float32[rows, columns] and gives what is left of it after the format: one scale for
each block of a row, so that no row depends on another.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

JUST_BELOW_HALF = 0.5 - 2.0**-25


def through_q8_0(x: Tensor) -> Tensor:
    """Blocks of 32: scale = largest magnitude / 127, stored as float16; codes half away from zero."""
    blocks = x.reshape(-1, 32)
    scale = blocks.abs().amax(dim=1, keepdim=True) / 127
    stored = scale.half().float()
    scaled = blocks * torch.where(stored == 0, 0, 1 / scale)
    codes = torch.trunc(scaled + torch.copysign(torch.tensor(JUST_BELOW_HALF), scaled))
    return (codes * stored).reshape(x.shape)


def through_q8_k(x: Tensor) -> Tensor:
    """Blocks of 256: the first value of the largest magnitude takes code -127; scale in float32, half to even."""
    blocks = x.reshape(-1, 256)
    largest = blocks.gather(1, blocks.abs().argmax(dim=1, keepdim=True))
    # torch divides a plain number by a tensor in two roundings, and by another tensor in one.
    inverse = torch.tensor(-127.0) / largest
    codes = torch.round(blocks * inverse)
    # Zero, and what is so small that its inverse is none, has scale 0.
    return torch.where(inverse.isinf(), 0, codes * (1 / inverse)).reshape(x.shape)


THROUGH: Mapping[str, Callable[[Tensor], Tensor]] = {
    "q8_0": through_q8_0,
    # Q8_1 adds a sum that a minimum is multiplied by; the values it stands for are Q8_0's.
    "q8_1": through_q8_0,
    "q8_k": through_q8_k,
}
"""By the name of the activation format."""
