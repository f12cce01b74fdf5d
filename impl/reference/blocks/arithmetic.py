"""The scalar arithmetic blocks are computed in: float32 operations, each rounded once.

Kernels are compiled on first use and cached on disk. The compiler may neither reorder nor fuse float32
operations (no fast-math, no contraction), since the bytes of a block depend on every single rounding.
The cache of a kernel is renewed when its own file changes; after a change of what it calls in another file,
delete ``__pycache__``.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

compiled = njit(nogil=True, cache=True, error_model="numpy")
"""Compiles a kernel that releases the interpreter lock and divides by zero as IEEE 754 does."""

ZERO = np.float32(0)
ONE = np.float32(1)
JUST_BELOW_HALF = np.float32(0.49999997)
INT32_LIMIT = np.float32(2**31)
ROUNDING_ANCHOR = np.float32(3 << 22)
MANTISSA = np.int32(0x007FFFFF)
MAGNITUDE = np.int32(0x7FFFFFFF)


@compiled
def magnitude_bits(value: np.float32) -> np.int32:
    """The bits of ``value`` without its sign; they order as magnitudes do."""
    return np.float32(value).view(np.int32) & MAGNITUDE


@compiled
def largest_magnitudes(blocks: NDArray[np.float32]) -> NDArray[np.float32]:
    """The largest magnitude of each of float32[n, size]."""
    largest = np.empty(blocks.shape[0], np.float32)
    for block in range(blocks.shape[0]):
        bits = np.int32(0)
        for i in range(blocks.shape[1]):
            bits = max(bits, magnitude_bits(blocks[block, i]))
        largest[block] = np.int32(bits).view(np.float32)
    return largest


@compiled
def peaks(values: NDArray[np.float32]) -> tuple[np.float32, np.float32]:
    """Of float32[n] the largest positive value and the negative one of the largest magnitude; 0 for none.

    A NaN counts as larger than any number of its sign.
    """
    # As a signed integer, the bits of no negative number are larger than those of a positive one; as an
    # unsigned one, it is the other way round. Compared as integers, a whole register of values is taken at once.
    positive, negative = np.int32(0), np.uint32(1 << 31)
    for i in range(values.size):
        positive = max(positive, np.float32(values[i]).view(np.int32))
        negative = max(negative, np.float32(values[i]).view(np.uint32))
    return np.int32(positive).view(np.float32), np.uint32(negative).view(np.float32)


@compiled
def extremes_of_blocks(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The first value of the largest magnitude of each of float32[n, size]; NaN where there is one."""
    extremes = np.empty(x.shape[0], np.float32)
    for block in range(x.shape[0]):
        positive, negative = peaks(x[block])
        extremes[block] = negative if -negative > positive or np.isnan(negative) else positive
        if positive == -negative:
            extremes[block] = _first_of_magnitude(x, block, positive)
    return extremes


@compiled
def _first_of_magnitude(x: NDArray[np.float32], block: int, magnitude: np.float32) -> np.float32:
    for i in range(x.shape[1]):
        if x[block, i] != ZERO and abs(x[block, i]) == magnitude:
            return x[block, i]
    return ZERO


@compiled
def ranges_of_blocks(x: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The smallest and the largest of each of float32[n, size]; of zeros of both signs, the first.

    A NaN makes one of them NaN.
    """
    smallest, largest = np.empty(x.shape[0], np.float32), np.empty(x.shape[0], np.float32)
    for block in range(x.shape[0]):
        largest[block], smallest[block] = peaks(x[block])
    for block in range(x.shape[0]):
        # No value of that sign.
        if smallest[block] == ZERO:
            smallest[block] = x[block, 0]
            for i in range(x.shape[1]):
                smallest[block] = min(smallest[block], x[block, i])
        if largest[block] == ZERO:
            largest[block] = x[block, 0]
            for i in range(x.shape[1]):
                largest[block] = max(largest[block], x[block, i])
    return smallest, largest


@compiled
def nearest(value: np.float32) -> np.int32:
    """The nearest integer, half to even, within ±4194303; beyond, what the addition below makes of it.

    ggml's K-quants and IQ4 round this way. A NaN gives 0 and an infinity -4194304.
    """
    return np.int32((np.float32(value + ROUNDING_ANCHOR).view(np.int32) & MANTISSA) - np.int32(1 << 22))


@compiled
def truncated(value: np.float32) -> np.int32:
    """The integer towards zero; 0 where int32 cannot hold it, so that every machine agrees."""
    return np.int32(value) if abs(value) < INT32_LIMIT else np.int32(0)


@compiled
def half_away(value: np.float32) -> np.int32:
    """The nearest integer, half away from zero; 0 where int32 cannot hold it."""
    return truncated(value + np.copysign(JUST_BELOW_HALF, value))


@compiled
def clamped(value: np.int32, low: np.int32, high: np.int32) -> np.int32:
    """``value``, at least ``low`` and at most ``high``."""
    return min(max(np.int32(value), np.int32(low)), np.int32(high))


@compiled
def reciprocal(value: np.float32) -> np.float32:
    """1 / value, and 0 for 0."""
    return ONE / value if value != ZERO else ZERO


@compiled
def float16_bits(value: np.float32) -> np.uint16:
    """The bits of ``value`` rounded to float16, half to even; what overflows becomes infinity."""
    bits = np.float32(value).view(np.uint32)
    magnitude = bits & np.uint32(0x7FFFFFFF)
    odd = np.uint32(magnitude >> np.uint32(13)) & np.uint32(1)
    normal = np.uint32((magnitude + np.uint32(0xFFF) + odd) >> np.uint32(13)) - np.uint32(112 << 10)
    # One half has float16's subnormal step as its own last place, so the sum is rounded as needed.
    subnormal = np.float32(abs(value) + np.float32(0.5)).view(np.uint32) - np.uint32(0x3F000000)
    half = subnormal if magnitude < np.uint32(0x38800000) else min(normal, np.uint32(0x7C00))
    return np.uint16(np.uint32(np.uint32(bits >> np.uint32(16)) & np.uint32(0x8000)) | half)


@compiled
def write_float16(values: NDArray[np.float32], blocks: NDArray[np.uint8], at: int) -> None:
    """Write float32[blocks] as float16, little-endian, to bytes ``at`` and ``at`` + 1 of uint8[blocks, size]."""
    for block in range(values.shape[0]):
        bits = float16_bits(values[block])
        blocks[block, at] = np.uint8(bits & np.uint16(255))
        blocks[block, at + 1] = np.uint8(bits >> np.uint16(8))


def as_float16(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """What a reader finds where ``values`` were stored as float16; too large a value becomes infinity."""
    return values.astype(np.float16).astype(np.float32)
