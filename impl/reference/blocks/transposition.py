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
        found = _chosen(context, builder, sig.args[1], chosen)
        rows = []
        for address in _addresses(context, builder, sig.args[0], blocks, found, start, BYTES if codes else FLOATS):
            numbers = builder.load(address, align=1 if codes else 4)
            rows.append(builder.uitofp(numbers, FLOATS) if codes else numbers)
        addresses = _side_by_side(context, builder, sig.args[3], v, start)
        for row, address in zip(_transposed(builder, rows), addresses, strict=True):
            builder.store(row, address, align=4)
        return context.get_dummy_value()

    return types.void(blocks, chosen, types.intp, v), generate


@intrinsic
def _square_out_of_lanes(
    context: object, v: NDArray[np.float32], chosen: NDArray[np.intp], start: int, codes: NDArray[np.uint8]
) -> None:
    """``out_of_lanes`` for the ``LANES`` codes from ``start`` on."""

    def generate(context: BaseContext, builder: ir.IRBuilder, sig: Signature, operands: list[ir.Value]) -> ir.Value:
        v, chosen, start, codes = operands
        addresses = _side_by_side(context, builder, sig.args[0], v, start)
        rows = [builder.fptoui(builder.load(address, align=4), BYTES) for address in addresses]
        found = _chosen(context, builder, sig.args[1], chosen)
        addresses = _addresses(context, builder, sig.args[3], codes, found, start, BYTES)
        for row, address in zip(_transposed(builder, rows), addresses, strict=True):
            builder.store(row, address, align=1)
        return context.get_dummy_value()

    return types.void(v, chosen, types.intp, codes), generate


def _chosen(context: BaseContext, builder: ir.IRBuilder, type: types.Array, chosen: ir.Value) -> list[ir.Value]:
    data = context.make_array(type)(context, builder, chosen).data
    return [builder.load(cgutils.gep(builder, data, lane)) for lane in range(LANES)]


def _side_by_side(
    context: BaseContext, builder: ir.IRBuilder, type: types.Array, v: ir.Value, start: ir.Value
) -> list[ir.Value]:
    """Where the ``LANES`` rows of float32[size, LANES] from ``start`` on begin."""
    rows = [builder.add(start, context.get_constant(types.intp, i)) for i in range(LANES)]
    return _addresses(context, builder, type, v, rows, context.get_constant(types.intp, 0), FLOATS)


def _addresses(
    context: BaseContext,
    builder: ir.IRBuilder,
    type: types.Array,
    array: ir.Value,
    rows: list[ir.Value],
    column: ir.Value,
    vector: ir.VectorType,
) -> list[ir.Value]:
    """Where ``LANES`` elements of each row begin, as pointers to ``vector``."""
    array = context.make_array(type)(context, builder, array)
    items = [cgutils.get_item_pointer(context, builder, type, array, [row, column]) for row in rows]
    return [builder.bitcast(item, vector.as_pointer()) for item in items]


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
