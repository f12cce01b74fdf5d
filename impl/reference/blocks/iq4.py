"""4-bit codes for sixteen unevenly spaced values: IQ4_NL in blocks of 32, IQ4_XS in super-blocks of 256."""

import numpy as np
from numpy.typing import NDArray

from impl.reference.blocks.arithmetic import ONE, ZERO, as_float16, clamped, compiled, nearest, reciprocal
from impl.reference.blocks.block_format import BlockFormat
from impl.reference.blocks.lanes import LANES, Lanes, extremes, lanes, load, store, where
from impl.reference.blocks.packing import pack_nibbles, unpack_nibbles
from impl.reference.blocks.scale_search import VANISHING, better_fit, fit_of
from impl.reference.blocks.transposition import choose, into_lanes, room_for_lanes
from impl.reference.blocks.weighting import weights_from_groups

VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=np.float32)
"""What each code stands for, in units of the scale."""
MIDPOINTS = (VALUES[1:] + VALUES[:-1]) / np.float32(2)
GAPS = np.diff(VALUES)
ATTEMPTS = 7


class IQ4_NL(BlockFormat):
    """weight = scale * value of the code."""

    name = "iq4_nl"
    values = 32
    layout = np.dtype([("scale", "<f2"), ("codes", "u1", 16)])
    activation = "q8_0"

    def quantize(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None, blocks: NDArray[np.void]
    ) -> None:
        """Search the scale; the codes are of x over it before it was rounded to float16."""
        x = rows.reshape(-1, 32)
        scale = _fit_scale_to_values(x, _weights(rows, importance, 32))
        codes = np.empty(x.shape, np.uint8)
        _nearest_values(x, scale, codes)
        blocks["scale"] = as_float16(scale)
        pack_nibbles(codes, blocks.view(np.uint8).reshape(len(x), -1), 2)

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """Scale times the value of the code."""
        return blocks["scale"].astype(np.float32)[:, None] * VALUES[unpack_nibbles(blocks["codes"])]


class IQ4_XS(BlockFormat):
    """weight = unit * (scale - 32) * value of the code, with a scale of 6 bits for each 32."""

    name = "iq4_xs"
    values = 256
    layout = np.dtype([("unit", "<f2"), ("upper_scales", "<u2"), ("lower_scales", "u1", 4), ("codes", "u1", 128)])
    activation = "q8_k"

    def quantize(
        self, rows: NDArray[np.float32], importance: NDArray[np.float32] | None, blocks: NDArray[np.void]
    ) -> None:
        """Search each scale; the codes are of x over its integer times the unit before that was rounded."""
        x = rows.reshape(-1, 32)
        scale = _fit_scale_to_values(x, _weights(rows, importance, 256)).reshape(-1, 8)
        unit, scales = np.empty(len(scale), np.float32), np.empty(scale.shape, np.int32)
        _in_units_of_extreme(scale, unit, scales)
        step = unit[:, None] * scales.astype(np.float32)
        codes = np.empty(x.shape, np.uint8)
        _nearest_values(x, step.reshape(-1), codes)
        scales = (scales + 32).astype(np.uint8)
        blocks["unit"] = as_float16(unit)
        blocks["upper_scales"] = ((scales.astype(np.uint16) >> 4) << np.arange(0, 16, 2, np.uint16)).sum(axis=1)
        blocks["lower_scales"] = (scales[:, ::2] & np.uint8(15)) | (scales[:, 1::2] << np.uint8(4))
        packed = np.empty((len(x), 16), np.uint8)
        pack_nibbles(codes, packed, 0)
        blocks["codes"] = packed.reshape(-1, 128)

    def dequantize(self, blocks: NDArray[np.void]) -> NDArray[np.float32]:
        """unit * (scale - 32) * value of the code."""
        lower = unpack_nibbles(blocks["lower_scales"][:, :, None]).reshape(-1, 8)
        upper = (blocks["upper_scales"][:, None] >> np.arange(0, 16, 2, np.uint16)) & np.uint16(3)
        scales = (lower | (upper.astype(np.uint8) << np.uint8(4))).astype(np.int8) - np.int8(32)
        step = blocks["unit"].astype(np.float32)[:, None] * scales
        codes = unpack_nibbles(blocks["codes"].reshape(-1, 8, 16))
        return (step[:, :, None] * VALUES[codes]).reshape(-1, 256)


def _weights(rows: NDArray[np.float32], importance: NDArray[np.float32] | None, group: int) -> NDArray[np.float32]:
    """How much each weight counts, float32[blocks, 32]: x², or by importance within each ``group``."""
    if importance is None:
        return (rows * rows).reshape(-1, 32)
    return weights_from_groups(rows.reshape(-1, group), importance.reshape(-1, group), 2).reshape(-1, 32)


def _fit_scale_to_values(x: NDArray[np.float32], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    scale = room_for_lanes(len(x))
    _search_scale(x, weights, scale)
    return scale[: len(x)]


@compiled
def _value_below(x: Lanes) -> Lanes:
    """The value nearest to ``x``; from a midpoint up, the larger one."""
    value = lanes(VALUES[0])
    for i in range(15):
        value += where(x >= MIDPOINTS[i], GAPS[i], ZERO)
    return value


@compiled
def _search_scale(x: NDArray[np.float32], weights: NDArray[np.float32], scale: NDArray[np.float32]) -> None:
    """The scale with the least weighted squares among sixteen; ggml's ``quantize_row_iq4_nl_impl``.

    A block whose largest magnitude is below 1e-15 has scale 0.
    """
    v = np.empty((32, LANES), np.float32)
    w = np.empty((32, LANES), np.float32)
    blocks, chosen = np.arange(x.shape[0]), np.empty(LANES, np.intp)
    for start in range(0, blocks.size, LANES):
        choose(blocks, start, chosen)
        into_lanes(x, chosen, v)
        into_lanes(weights, chosen, w)
        extreme = extremes(v)
        # First the extreme takes the largest value's place with its own sign, then with the other.
        inverse = ONE / (-extreme / VALUES[0])
        sum_xq, sum_qq = _sum_values(v, w, inverse)
        best = fit_of(sum_xq, sum_qq, inverse)
        for attempt in range(-ATTEMPTS, ATTEMPTS + 1):
            inverse = (np.float32(attempt) + VALUES[0]) / extreme
            sum_xq, sum_qq = _sum_values(v, w, inverse)
            best = better_fit(sum_xq, sum_qq, inverse, best)
        store(where(abs(extreme) < VANISHING, ZERO, best.scale), scale, start // LANES)


@compiled
def _sum_values(v: NDArray[np.float32], w: NDArray[np.float32], inverse: Lanes) -> tuple[Lanes, Lanes]:
    """The weighted sums of values times x, and of squares of values."""
    sum_xq = sum_qq = lanes(ZERO)
    for i in range(v.shape[0]):
        x, weight = load(v, i), load(w, i)
        value = _value_below(inverse * x)
        sum_xq += weight * value * x
        sum_qq += weight * value * value
    return sum_xq, sum_qq


@compiled
def _in_units_of_extreme(scale: NDArray[np.float32], unit: NDArray[np.float32], scales: NDArray[np.int32]) -> None:
    """Unit = first scale of the largest magnitude over -32, and each scale in it, -32 to 31."""
    for block in range(scale.shape[0]):
        extreme = ZERO
        for i in range(8):
            extreme = scale[block, i] if abs(scale[block, i]) > abs(extreme) else extreme
        unit[block] = -extreme / np.float32(32)
        inverse = reciprocal(unit[block])
        for i in range(8):
            scales[block, i] = clamped(nearest(inverse * scale[block, i]), -32, 31)


@compiled
def _nearest_values(x: NDArray[np.float32], step: NDArray[np.float32], codes: NDArray[np.uint8]) -> None:
    """The code whose value is nearest to x / step; where step is 0, that of the value nearest to 0."""
    for block in range(x.shape[0]):
        inverse = reciprocal(step[block])
        for j in range(32):
            scaled = inverse * x[block, j]
            code = np.uint8(0)
            for i in range(15):
                # A NaN is below no midpoint, and takes the last value as it does in ggml.
                code += np.uint8(not scaled < MIDPOINTS[i])
            codes[block, j] = code
