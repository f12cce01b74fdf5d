"""Blocks side by side: kernels written as for one block, which work on ``LANES`` of them at once.

In a kernel, a value of type ``Lanes`` is a number of each of ``LANES`` blocks, and an operation on it is one
instruction of a processor that is wide enough. Every block keeps its own operations in their order, each rounded
once, so nothing is left for the compiler to reorder.
"""

import math
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.base import BaseContext
from numba.core.typeconv import Conversion
from numba.core.typing.templates import Signature, signature
from numba.extending import intrinsic, lower_builtin, lower_cast, models, register_model, type_callable
from numpy.typing import NDArray

from impl.reference.blocks.arithmetic import MAGNITUDE, MANTISSA, ROUNDING_ANCHOR, ZERO, compiled

LANES = 16
"""As many float32 as the widest registers of today's CPUs hold; where they are narrower, a value takes several."""


class Lanes:
    """A float32 of each block: arithmetic, comparisons, ``abs``, ``math.sqrt``; a float32 beside it counts for all."""


class Mask:
    """A truth value of each block: ``&`` and ``|``."""


class _LanesType(types.Type):
    def can_convert_from(self, context: object, other: types.Type) -> Conversion | None:
        """A float32 alone is the same number in every lane."""
        return Conversion.safe if other == types.float32 else None


class _MaskType(types.Type):
    pass


_LANES, _MASK = _LanesType("Lanes"), _MaskType("Mask")
_FLOATS, _INTEGERS, _BITS = (
    ir.VectorType(element, LANES) for element in (ir.FloatType(), ir.IntType(32), ir.IntType(1))
)


@register_model(_LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: object, type: types.Type) -> None:
        super().__init__(manager, type, _FLOATS)


@register_model(_MaskType)
class _MaskModel(models.PrimitiveModel):
    def __init__(self, manager: object, type: types.Type) -> None:
        super().__init__(manager, type, _BITS)


@lower_cast(types.float32, _LanesType)
def _in_every_lane(
    context: BaseContext, builder: ir.IRBuilder, from_type: types.Type, to_type: types.Type, number: ir.Value
) -> ir.Value:
    undefined = ir.Constant(_FLOATS, ir.Undefined)
    first = builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(_INTEGERS, [0] * LANES))


Emit = Callable[..., ir.Value]
"""Writes an instruction: a builder and the operands to the result."""


def _register_unary(operation: Callable, emit: Emit) -> None:
    """Make ``operation`` on ``Lanes`` the instruction ``emit``."""

    @type_callable(operation)
    def type_of(context: object) -> Callable[[types.Type], Signature | None]:
        return lambda x: signature(_LANES, _LANES) if x == _LANES else None

    @lower_builtin(operation, _LANES)
    def lower(context: BaseContext, builder: ir.IRBuilder, sig: Signature, operands: list[ir.Value]) -> ir.Value:
        return emit(builder, *operands)


def _register_binary(operation: Callable, operand: types.Type, result: types.Type, emit: Emit) -> None:
    """Make ``operation`` on two of ``operand``, one of which may be a float32, the instruction ``emit``."""

    @type_callable(operation)
    def type_of(context: object) -> Callable[[types.Type, types.Type], Signature | None]:
        def typer(a: types.Type, b: types.Type) -> Signature | None:
            known = {a, b} == {operand} or {a, b} == {operand, types.float32}
            return signature(result, operand, operand) if known else None

        return typer

    @lower_builtin(operation, operand, operand)
    def lower(context: BaseContext, builder: ir.IRBuilder, sig: Signature, operands: list[ir.Value]) -> ir.Value:
        return emit(builder, *operands)


def _of_all(value: int | float, type: ir.VectorType) -> ir.Constant:
    return ir.Constant(type, [value] * LANES)


def _magnitude(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    bits = builder.and_(builder.bitcast(x, _INTEGERS), _of_all(int(MAGNITUDE), _INTEGERS))
    return builder.bitcast(bits, _FLOATS)


def _square_root(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    type = ir.FunctionType(_FLOATS, [_FLOATS])
    return builder.call(cgutils.get_or_insert_function(builder.module, type, f"llvm.sqrt.v{LANES}f32"), [x])


def _comparison(symbol: str) -> Emit:
    """As in Python, of a NaN only ``!=`` is true."""
    compare = ir.IRBuilder.fcmp_unordered if symbol == "!=" else ir.IRBuilder.fcmp_ordered
    return lambda builder, a, b: compare(builder, symbol, a, b)


ARITHMETIC: Mapping[Callable, Emit] = MappingProxyType(
    {
        operator.add: ir.IRBuilder.fadd,
        operator.iadd: ir.IRBuilder.fadd,
        operator.sub: ir.IRBuilder.fsub,
        operator.mul: ir.IRBuilder.fmul,
        operator.truediv: ir.IRBuilder.fdiv,
    }
)
COMPARISONS: Mapping[Callable, str] = MappingProxyType(
    {
        operator.lt: "<",
        operator.le: "<=",
        operator.gt: ">",
        operator.ge: ">=",
        operator.eq: "==",
        operator.ne: "!=",
    }
)

for _operation, _emit in ARITHMETIC.items():
    _register_binary(_operation, _LANES, _LANES, _emit)
for _operation, _symbol in COMPARISONS.items():
    _register_binary(_operation, _LANES, _MASK, _comparison(_symbol))
_register_binary(operator.and_, _MASK, _MASK, ir.IRBuilder.and_)
_register_unary(operator.neg, ir.IRBuilder.fneg)
_register_unary(abs, _magnitude)
_register_unary(math.sqrt, _square_root)


@intrinsic
def lanes(context: object, number: np.float32) -> Lanes:
    """``number`` in every lane."""
    return _LANES(_LANES), lambda context, builder, sig, operands: operands[0]


@intrinsic
def where(context: object, mask: Mask, then: Lanes, otherwise: Lanes) -> Lanes:
    """In each lane, ``then`` where ``mask`` is true, else ``otherwise``."""
    return _LANES(_MASK, _LANES, _LANES), lambda context, builder, sig, operands: builder.select(*operands)


@intrinsic
def nearest_integer(context: object, x: Lanes) -> Lanes:
    """``arithmetic.nearest`` in each lane."""

    def generate(context: BaseContext, builder: ir.IRBuilder, sig: Signature, operands: list[ir.Value]) -> ir.Value:
        anchor = _of_all(float(ROUNDING_ANCHOR), _FLOATS)
        mantissa = builder.and_(
            builder.bitcast(builder.fadd(operands[0], anchor), _INTEGERS), _of_all(int(MANTISSA), _INTEGERS)
        )
        # Under the exponent of 2**23, the mantissa is the integer above 2**23; the anchor is 2**22 more than that.
        above = builder.or_(mantissa, _of_all(0x4B000000, _INTEGERS))
        return builder.fsub(builder.bitcast(above, _FLOATS), anchor)

    return _LANES(_LANES), generate


@intrinsic
def load(context: object, numbers: NDArray[np.float32], position: int) -> Lanes:
    """The ``position``-th ``LANES`` numbers of a contiguous float32 array of any shape."""

    def generate(context: BaseContext, builder: ir.IRBuilder, sig: Signature, operands: list[ir.Value]) -> ir.Value:
        return builder.load(_address(context, builder, sig.args[0], *operands), align=4)

    return _LANES(numbers, types.intp), generate


@intrinsic
def store(context: object, x: Lanes, numbers: NDArray[np.float32], position: int) -> None:
    """Make ``x`` the ``position``-th ``LANES`` numbers of a contiguous float32 array of any shape."""

    def generate(context: BaseContext, builder: ir.IRBuilder, sig: Signature, operands: list[ir.Value]) -> ir.Value:
        builder.store(operands[0], _address(context, builder, sig.args[1], *operands[1:]), align=4)
        return context.get_dummy_value()

    return types.void(_LANES, numbers, types.intp), generate


def _address(
    context: BaseContext, builder: ir.IRBuilder, type: types.Array, array: ir.Value, position: ir.Value
) -> ir.Value:
    data = context.make_array(type)(context, builder, array).data
    return builder.gep(builder.bitcast(data, _FLOATS.as_pointer()), [position])


@compiled
def held(x: Lanes, low: np.float32, high: np.float32) -> Lanes:
    """``x``, at least ``low`` and at most ``high``."""
    at_least = where(x > low, x, low)
    return where(at_least < high, at_least, high)


@compiled
def extremes(v: NDArray[np.float32]) -> Lanes:
    """The first value of the largest magnitude in each lane of float32[size, LANES]; 0 where all are zeros."""
    extreme = lanes(ZERO)
    for i in range(v.shape[0]):
        x = load(v, i)
        extreme = where(abs(x) > abs(extreme), x, extreme)
    return extreme
