"""What a quantizer or dequantizer under test answers, held to the contract.

An answer of another type, dtype or shape is none: ``FellOver`` makes the claim that asked an error, in one line.
"""

import numpy as np
from numpy.typing import NDArray

from impl.errors import FellOver
from impl.protocol import Dequantizer, Quantizer
from suite.kit import layout


def quantized(
    quantizer: Quantizer, weight: NDArray[np.float32], type: str, importance: NDArray[np.float32] | None = None
) -> NDArray[np.uint8]:
    """Float32[rows, columns] as the quantizer's uint8[rows, bytes per row], with importance only where there is one.

    Raises what the quantizer raises, and ``FellOver`` for an answer that breaks the contract.
    """
    answer = quantizer.quantize(weight, type, *(() if importance is None else (importance,)))
    rows, columns = weight.shape
    return _checked(answer, np.uint8, (rows, layout.tensor_bytes((columns,), type)), f"{quantizer.name}: {type} blocks")


def dequantized(dequantizer: Dequantizer, blocks: NDArray[np.uint8], type: str) -> NDArray[np.float32]:
    """uint8[rows, bytes per row] as the dequantizer's float32[rows, columns]; raises as ``quantized`` does."""
    answer = dequantizer.dequantize(blocks, type)
    values, size = layout.block_size(type)
    return _checked(
        answer, np.float32, (len(blocks), blocks.shape[1] // size * values), f"{dequantizer.name}: {type} weights"
    )


def _checked(answer: object, dtype: type[np.generic], shape: tuple[int, int], what: str) -> NDArray:
    expected = f"expected {np.dtype(dtype)} of shape {list(shape)}"
    if not isinstance(answer, np.ndarray):
        raise FellOver(f"{what}: found {type(answer).__name__}, {expected}")
    if answer.dtype != dtype or answer.shape != shape:
        raise FellOver(f"{what}: found {answer.dtype} of shape {list(answer.shape)}, {expected}")
    return answer
