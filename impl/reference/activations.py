"""Activation rows quantized block by block and back, as ggml and candle do before they multiply on the CPU."""

import numpy as np
import torch
from torch import Tensor

from impl.reference.blocks import FORMATS


def through(x: Tensor, type: str) -> Tensor:
    """What is left of float32[rows, columns] after the block format ``type``.

    Every block of a row has a scale of its own, so that no row depends on another. A value that is not finite
    becomes NaN, which a block could not hold, so that a broken model's logits show it.
    """
    block_format = FORMATS[type]
    with np.errstate(all="ignore"):
        blocks = np.empty(x.numel() // block_format.values, block_format.layout)
        block_format.quantize(x.contiguous().numpy(), None, blocks)
        values = torch.from_numpy(block_format.dequantize(blocks)).view(x.shape)
    return values.where(x.isfinite(), torch.nan)
