"""Blocks into lanes and out again: the i-th weights of ``LANES`` blocks, side by side."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.base import BaseContext
from numba.core.typing.templates import Signature
from numba.extending import intrinsic
from numpy.typing import NDArray

from impl.reference.blocks.arithmetic import compiled
from impl.reference.blocks.lanes import LANES

FLOATS, BYTES, CHOICE = (ir.VectorType(element, LANES) for element in (ir.FloatType(), ir.IntType(8), ir.IntType(32)))


def room_for_lanes(blocks: int) -> NDArray[np.float32]:
    """Room for a float32 of each of ``blocks``, and as many more as fill up the last lanes."""
    return np.empty(-(-blocks // LANES) * LANES, np.float32)


@compiled
def into_lanes(
    blocks: NDArray[np.float32] | NDArray[np.uint8], chosen: NDArray[np.intp], v: NDArray[np.float32]
) -> None:
    """Bring the ``chosen`` of [blocks, size] into float32[size, LANES]; ``size`` is a multiple of ``LANES``.

    ``blocks`` are float32, or codes of uint8; ``chosen`` is intp[LANES].
    """
    for start in range(0, blocks.shape[1], LANES):
        _square_into_lanes(blocks, chosen, start, v)


@compiled
def out_of_lanes(v: NDArray[np.float32], chosen: NDArray[np.intp], codes: NDArray[np.uint8]) -> None:
    """Bring whole numbers, 0 to 255, from float32[size, LANES] to the ``chosen`` of uint8[blocks, size]."""
    for start in range(0, codes.shape[1], LANES):
        _square_out_of_lanes(v, chosen, start, codes)


@compiled
def choose(blocks: NDArray[np.intp], start: int, chosen: NDArray[np.intp]) -> None:
    """Choose the ``LANES`` of ``blocks`` from ``start`` on; lanes for which there is none take the last once more."""
    for lane in range(LANES):
        chosen[lane] = blocks[min(start + lane, blocks.size - 1)]


@intrinsic
def _square_into_lanes(
    context: object, blocks: NDArray[np.float32], chosen: NDArray[np.intp], start: int, v: NDArray[np.float32]
) -> None:
    """``into_lanes`` for the ``LANES`` weights from ``start`` on."""

    def generate(context: BaseContext, builder: ir.IRBuilder, sig: Signature, operands: list[ir.Value]) -> ir.Value:
        blocks, chosen, start, v = operands
        codes = sig.args[0].dtype == types.uint8
        rows = []
        for block in _chosen(context, builder, sig.args[1], chosen):
            row = _address(context, builder, sig.args[0], blocks, block, start, BYTES if codes else FLOATS)
            numbers = builder.load(row, align=1 if codes else 4)
            rows.append(builder.uitofp(numbers, FLOATS) if codes else numbers)
        for i, row in enumerate(_transposed(builder, rows)):
            position = builder.add(start, context.get_constant(types.intp, i))
            zero = context.get_constant(types.intp, 0)
            builder.store(row, _address(context, builder, sig.args[3], v, position, zero, FLOATS), align=4)
        return context.get_dummy_value()

    return types.void(blocks, chosen, types.intp, v), generate


@intrinsic
def _square_out_of_lanes(
    context: object, v: NDArray[np.float32], chosen: NDArray[np.intp], start: int, codes: NDArray[np.uint8]
) -> None:
    """``out_of_lanes`` for the ``LANES`` codes from ``start`` on."""

    def generate(context: BaseContext, builder: ir.IRBuilder, sig: Signature, operands: list[ir.Value]) -> ir.Value:
        v, chosen, start, codes = operands
        rows = []
        for i in range(LANES):
            position = builder.add(start, context.get_constant(types.intp, i))
            zero = context.get_constant(types.intp, 0)
            numbers = builder.load(_address(context, builder, sig.args[0], v, position, zero, FLOATS), align=4)
            rows.append(builder.fptoui(numbers, BYTES))
        blocks = _chosen(context, builder, sig.args[1], chosen)
        for block, row in zip(blocks, _transposed(builder, rows), strict=True):
            builder.store(row, _address(context, builder, sig.args[3], codes, block, start, BYTES), align=1)
        return context.get_dummy_value()

    return types.void(v, chosen, types.intp, codes), generate


def _chosen(context: BaseContext, builder: ir.IRBuilder, type: types.Array, chosen: ir.Value) -> list[ir.Value]:
    data = context.make_array(type)(context, builder, chosen).data
    return [builder.load(cgutils.gep(builder, data, lane)) for lane in range(LANES)]


def _address(
    context: BaseContext,
    builder: ir.IRBuilder,
    type: types.Array,
    array: ir.Value,
    row: ir.Value,
    column: ir.Value,
    vector: ir.VectorType,
) -> ir.Value:
    """Where ``LANES`` elements of a row begin, as a pointer to ``vector``."""
    item = cgutils.get_item_pointer(
        context, builder, type, context.make_array(type)(context, builder, array), [row, column]
    )
    return builder.bitcast(item, vector.as_pointer())


def _transposed(builder: ir.IRBuilder, rows: list[ir.Value]) -> list[ir.Value]:
    """``LANES`` vectors to those that hold their first elements, their second, and so on.

    A square of squares is transposed by exchanging two of its quarters and transposing each: one step a level.
    """
    step = 1
    while step < LANES:
        upper = [lane if not lane & step else LANES + lane - step for lane in range(LANES)]
        lower = [lane + step if not lane & step else LANES + lane for lane in range(LANES)]
        for row in range(LANES):
            if not row & step:
                pair = rows[row], rows[row + step]
                rows[row] = builder.shuffle_vector(*pair, ir.Constant(CHOICE, upper))
                rows[row + step] = builder.shuffle_vector(*pair, ir.Constant(CHOICE, lower))
        step *= 2
    return rows
