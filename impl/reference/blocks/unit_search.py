"""The search for the unit of a super-block's scales, by importance: ggml's ``make_qp_quants``."""

import numpy as np
from numpy.typing import NDArray

from impl.reference.blocks.arithmetic import ONE, ZERO, compiled, nearest
from impl.reference.blocks.scale_search import TENTH, VANISHING


def fit_unit(
    values: NDArray[np.float32], weights: NDArray[np.float32], last: int
) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """The unit that makes weighted squares of value - unit * code small, for values not below 0.

    ``values`` and ``weights`` are float32[blocks, size]. Returns float32[blocks] and uint8[blocks, size].
    """
    unit, codes = np.empty(len(values), np.float32), np.empty(values.shape, np.uint8)
    _fit_unit(values, weights, np.int32(last), unit, codes)
    return unit, codes


@compiled
def _fit_unit(
    values: NDArray[np.float32],
    weights: NDArray[np.float32],
    last: np.int32,
    unit: NDArray[np.float32],
    codes: NDArray[np.uint8],
) -> None:
    for block in range(values.shape[0]):
        unit[block] = _unit_of(values[block], weights[block], last, codes[block])


@compiled
def _unit_of(
    x: NDArray[np.float32], weights: NDArray[np.float32], last: np.int32, codes: NDArray[np.uint8]
) -> np.float32:
    size = x.shape[0]
    largest = ZERO
    for i in range(size):
        largest = max(largest, x[i])
    codes[:] = np.uint8(0)
    if largest < VANISHING:
        return ZERO
    inverse, best_error = ZERO, ZERO
    for attempt in range(9):
        # The plain division comes first; then the divisor moves from -0.4 to 0.4 around it.
        moved = attempt - 5 if attempt < 5 else attempt - 4
        tried = (TENTH * np.float32(moved if attempt else 0) + np.float32(last)) / largest
        error = ZERO
        for i in range(size):
            level = nearest(tried * x[i])
            level = np.int32(np.uint8(level)) if attempt == 0 else min(level, last)
            miss = x[i] - ONE / tried * np.float32(level)
            error += weights[i] * miss * miss
        if attempt == 0 or error < best_error:
            best_error = error
            inverse = tried
    sum_xl = sum_ll = ZERO
    for i in range(size):
        level = min(nearest(inverse * x[i]), last)
        codes[i] = np.uint8(level)
        sum_xl += weights[i] * x[i] * np.float32(level)
        sum_ll += weights[i] * np.float32(level) * np.float32(level)
    for _ in range(5):
        changed = False
        for i in range(size):
            w, level = weights[i], np.float32(codes[i])
            other_xl = sum_xl - w * x[i] * level
            other_ll = sum_ll - w * level * level
            if other_xl > ZERO and other_ll > ZERO:
                moved_level = min(nearest(x[i] * other_ll / other_xl), last)
                if moved_level != np.int32(codes[i]):
                    level = np.float32(moved_level)
                    other_xl += w * x[i] * level
                    other_ll += w * level * level
                    if other_xl * other_xl * sum_ll > sum_xl * sum_xl * other_ll:
                        codes[i] = np.uint8(moved_level)
                        sum_xl, sum_ll, changed = other_xl, other_ll, True
        if not changed:
            break
    return sum_xl / sum_ll if sum_ll > ZERO else ZERO
