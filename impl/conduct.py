"""How a quantizer or dequantizer behaves in the process that it is called in, whatever its answers are.

What is looked at here does not show from another process, where every call has arrays of its own.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from numpy.typing import NDArray

from impl.protocol import Dequantizer, Quantizer, takes_importance

THREADS = 2
ROUNDS = 4
"""How often each of two matrices is handed over by two threads at once."""


def of_quantizer(quantizer: Quantizer, weight: NDArray[np.float32], type: str) -> list[str]:
    """What is wrong with how float32[rows, columns] are quantized; empty where nothing is.

    An importance of ones goes with them where one is taken. Raises what the quantizer raises.
    """
    importance = (np.ones(weight.shape[1], np.float32),) if takes_importance(quantizer.quantize) else ()
    quantize = partial(_with_type, quantizer.quantize, type, importance)
    faults = list(_faults(quantize, weight, -weight[::-1], "the weights", "the blocks"))
    return [*faults, *("the importance is changed in place" for columns in importance if (columns != 1).any())]


def of_dequantizer(dequantizer: Dequantizer, blocks: NDArray[np.uint8], type: str) -> list[str]:
    """What is wrong with how uint8[rows, bytes per row] are read; empty where nothing is."""
    read = partial(_with_type, dequantizer.dequantize, type, ())
    return list(_faults(read, blocks, blocks[::-1].copy(), "the blocks", "the weights"))


def _with_type(method: Callable[..., NDArray], type: str, further: tuple[NDArray, ...], array: NDArray) -> NDArray:
    return method(array, type, *further)


def _faults(
    call: Callable[[NDArray], NDArray], first: NDArray, second: NDArray, given: str, answer: str
) -> Iterator[str]:
    handed = first.copy()
    result = call(handed)
    if not _same_bits(handed, first):
        yield f"{given} are changed in place"
    kept = result.copy()
    other = call(second.copy()).copy()
    if not _same_bits(result, kept):
        yield f"{answer} that were returned change with the next call"
    if not _same_bits(call(first.copy()), kept):
        yield f"{answer} of the same input differ at the second call"
    with ThreadPoolExecutor(THREADS) as threads:
        answers = [each.copy() for each in threads.map(call, [first.copy(), second.copy()] * ROUNDS)]
    if not all(_same_bits(each, expected) for each, expected in zip(answers, [kept, other] * ROUNDS, strict=True)):
        yield f"{answer} differ where two threads call at once"


def _same_bits(a: NDArray, b: NDArray) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()
