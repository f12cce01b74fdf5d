"""What ggml, the oracle, makes of a case, and which types it quantizes with an importance only."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from impl.catalogue import resolve
from impl.errors import InputError
from impl.protocol import Quantizer, takes_importance
from suite.kit.answers import quantized
from suite.kit.block_cases import BlockCase
from suite.kit.block_inputs import FINITE
from suite.kit.selection import ORACLE


@cache
def needs_importance(type: str) -> bool:
    """Whether ggml refuses to quantize to a type without an importance."""
    try:
        resolve(ORACLE).quantize(FINITE[0].weight()[:1], type, None)
    except InputError:
        return True
    return False


def quantized_by(quantizer: Quantizer, case: BlockCase, type: str) -> NDArray[np.uint8]:
    """The blocks of a case; a type that needs an importance gets one of ones, where the quantizer takes any."""
    importance = case.importance
    if importance is None and needs_importance(type) and takes_importance(quantizer.quantize):
        importance = np.ones(case.weight.shape[1], np.float32)
    return quantized(quantizer, case.weight, type, importance)


def quantized_by_ggml(case: BlockCase, type: str) -> NDArray[np.uint8]:
    """ggml's blocks of a case."""
    return quantized_by(resolve(ORACLE), case, type)


def read_by_ggml(blocks: NDArray[np.uint8], type: str) -> NDArray[np.float32]:
    """The values of blocks as ggml reads them."""
    return resolve(ORACLE).dequantize(blocks, type)
