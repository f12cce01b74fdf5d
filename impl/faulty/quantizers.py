"""Quantizers and dequantizers with one fault each; their converter uses the same faulty blocks."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from impl.reference import Reference
from impl.reference.blocks import FORMATS, dequantize, quantize
from impl.reference.convert import Steps


class FaultyQuantizer(Reference):
    """A reference whose quantizer, alone and in its converter, is ``faulty``."""

    faulty: Callable[[NDArray[np.float32], str], NDArray[np.uint8]]

    @property
    def steps(self) -> Steps:
        """The reference's, with the faulty quantizer."""
        faulty = type(self).faulty
        return Steps(quantize=lambda weight, type: faulty(weight.astype(np.float32, copy=False), type))

    def quantize(
        self, weight: NDArray[np.float32], type: str, importance: NDArray[np.float32] | None = None
    ) -> NDArray[np.uint8]:
        """Quantize, without regard to importance."""
        return self.__class__.faulty(weight, type)


def _fields(blocks: NDArray[np.uint8], type: str) -> NDArray[np.void]:
    """A writable view of the blocks' fields."""
    return blocks.reshape(-1, FORMATS[type].bytes).view(FORMATS[type].layout)[:, 0]


def _half_to_even(weight: NDArray[np.float32], type: str) -> NDArray[np.uint8]:
    blocks = quantize(weight, type)
    if type == "q8_0":
        x = weight.reshape(-1, 32)
        scale = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
        inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)
        _fields(blocks, type)["codes"] = np.rint(x * inverse)
    return blocks


class HalfToEven(FaultyQuantizer):
    """Rounds Q8_0's codes half to even."""

    name = "half-to-even"
    faulty = staticmethod(_half_to_even)


def _truncated_scale(weight: NDArray[np.float32], type: str) -> NDArray[np.uint8]:
    blocks = quantize(weight, type)
    if type == "q8_0":
        scale = np.abs(weight.reshape(-1, 32)).max(axis=1) / np.float32(127)
        stored = scale.astype(np.float16)
        _fields(blocks, type)["scale"] = np.where(stored > scale, np.nextafter(stored, np.float16(0)), stored)
    return blocks


class TruncatedScale(FaultyQuantizer):
    """Chooses Q8_0's codes by a float32 scale and stores it in float16 rounded towards zero."""

    name = "truncated-scale"
    faulty = staticmethod(_truncated_scale)


def _with_scale(weight: NDArray[np.float32], scale: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Q8_0 with a scale float32[blocks, 1] for each block."""
    blocks = quantize(weight, "q8_0")
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)
    fields = _fields(blocks, "q8_0")
    fields["codes"] = np.round(weight.reshape(-1, 32) * inverse)
    fields["scale"] = scale[:, 0]
    return blocks


def _power_of_two_scale(weight: NDArray[np.float32], type: str) -> NDArray[np.uint8]:
    if type != "q8_0":
        return quantize(weight, type)
    scale = np.abs(weight.reshape(-1, 32)).max(axis=1, keepdims=True) / np.float32(127)
    with np.errstate(divide="ignore"):
        return _with_scale(weight, np.exp2(np.ceil(np.log2(scale))))


class PowerOfTwoScale(FaultyQuantizer):
    """Rounds Q8_0's scale up to a power of two: right, and half as good again."""

    name = "power-of-two-scale"
    faulty = staticmethod(_power_of_two_scale)


def _scale_of_the_tensor(weight: NDArray[np.float32], type: str) -> NDArray[np.uint8]:
    if type != "q8_0":
        return quantize(weight, type)
    scale = np.abs(weight).max() / np.float32(127)
    return _with_scale(weight, np.full((weight.size // 32, 1), scale, np.float32))


class ScaleOfTheTensor(FaultyQuantizer):
    """Gives every block of Q8_0 the scale of the whole tensor."""

    name = "scale-of-the-tensor"
    faulty = staticmethod(_scale_of_the_tensor)


def _lost_last_run(weight: NDArray[np.float32], type: str) -> NDArray[np.uint8]:
    weight = weight.copy()
    weight[:, -32:] = 0
    return quantize(weight, type)


class LostLastRun(FaultyQuantizer):
    """Leaves the last 32 weights of a row out."""

    name = "lost-last-run"
    faulty = staticmethod(_lost_last_run)


def _adjacent_nibbles(weight: NDArray[np.float32], type: str) -> NDArray[np.uint8]:
    blocks = quantize(weight, type)
    if type == "q4_0":
        packed = _fields(blocks, type)["codes"]
        codes = np.concatenate([packed & 15, packed >> 4], axis=1)
        packed[:] = codes[:, 0::2] | codes[:, 1::2] << 4
    return blocks


class AdjacentNibbles(FaultyQuantizer):
    """Packs Q4_0's codes j and j + 1 into one byte instead of j and j + 16."""

    name = "adjacent-nibbles"
    faulty = staticmethod(_adjacent_nibbles)


def _zeroed(weight: NDArray[np.float32], type: str) -> NDArray[np.uint8]:
    return quantize(np.nan_to_num(weight, nan=0.0, posinf=0.0, neginf=0.0), type)


class NonFiniteAsZero(FaultyQuantizer):
    """Takes NaN and infinity for zero."""

    name = "non-finite-as-zero"
    faulty = staticmethod(_zeroed)


def _padded(weight: NDArray[np.float32], type: str) -> NDArray[np.uint8]:
    missing = -weight.shape[1] % FORMATS[type].values
    return quantize(np.pad(weight, ((0, 0), (0, missing))), type)


class PaddedRows(FaultyQuantizer):
    """Fills up a row that is not a multiple of the block."""

    name = "padded-rows"
    faulty = staticmethod(_padded)


def _overflowing(weight: NDArray[np.float32], type: str) -> NDArray[np.uint8]:
    limit = np.float32(32)
    blocks = quantize(np.clip(weight, -limit, limit) if type == "q8_0" else weight, type)
    if type == "q8_0":
        scale = np.abs(weight.reshape(-1, 32)).max(axis=1) / np.float32(127)
        with np.errstate(over="ignore"):
            _fields(blocks, type)["scale"] = scale
    return blocks


class OverflowingScale(FaultyQuantizer):
    """Lets Q8_0's scale overflow to infinity."""

    name = "overflowing-scale"
    faulty = staticmethod(_overflowing)


class NoImportance(Reference):
    """Quantizes without regard to importance, alone and in its converter."""

    name = "no-importance"
    steps = Steps(quantize=lambda weight, type, importance=None: quantize(weight, type))

    def quantize(
        self, weight: NDArray[np.float32], type: str, importance: NDArray[np.float32] | None = None
    ) -> NDArray[np.uint8]:
        """Quantize as if there were no importance."""
        return quantize(weight, type)


class NoMinimum(Reference):
    """Forgets the minimum of a Q4_1 block when it dequantizes."""

    name = "no-minimum"

    def dequantize(self, blocks: NDArray[np.uint8], type: str) -> NDArray[np.float32]:
        """Dequantize, with a minimum of 0 for Q4_1."""
        blocks = blocks.copy()
        if type == "q4_1":
            _fields(blocks, type)["minimum"] = 0
        return dequantize(blocks, type)
