"""Moves of 16 float32 at once, for kernels over blocks of 16 worlds.

The compiler vectorizes a loop over 16 lanes only if it can prove, without a check at run time, that what is stored is
not what is loaded. Between two arrays it cannot; these intrinsics say it in one instruction. Indices are not checked.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

FLOATS = ir.VectorType(ir.FloatType(), 16)
ROWS = ir.VectorType(ir.FloatType(), 64)


def _pointer(context, builder, array_type, array, index, vector):
    """Pointer to ``vector`` at the flat ``index`` of a contiguous array."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


def _load(builder, pointer, align):
    value = builder.load(pointer)
    value.align = align
    return value


def _store(builder, value, pointer, align):
    builder.store(value, pointer).align = align


@intrinsic
def copy(typing, source, i, target, j):
    """``target.flat[j : j + 16] = source.flat[i : i + 16]``."""

    def generate(context, builder, signature, args):
        a, x, b, y = args
        value = _load(builder, _pointer(context, builder, signature.args[0], a, x, FLOATS), 4)
        _store(builder, value, _pointer(context, builder, signature.args[2], b, y, FLOATS), 4)
        return context.get_dummy_value()

    return types.void(source, types.intp, target, types.intp), generate


@intrinsic
def equal(typing, source, i, value, target, j):
    """``target.flat[j : j + 16] = source.flat[i : i + 16] == value`` for a bool ``target``."""

    def generate(context, builder, signature, args):
        a, x, v, b, y = args
        bytes_ = ir.VectorType(ir.IntType(8), 16)
        loaded = _load(builder, _pointer(context, builder, signature.args[0], a, x, FLOATS), 4)
        same = builder.fcmp_ordered("==", loaded, _splat(builder, v))
        pointer = _pointer(context, builder, signature.args[3], b, y, bytes_)
        _store(builder, builder.zext(same, bytes_), pointer, 1)
        return context.get_dummy_value()

    return types.void(source, types.intp, types.float32, target, types.intp), generate


@intrinsic
def nonzero(typing, source, i):
    """The lanes of ``source.flat[i : i + 16]`` that are not zero, as bits."""

    def generate(context, builder, signature, args):
        value = _load(builder, _pointer(context, builder, signature.args[0], args[0], args[1], FLOATS), 4)
        mask = builder.fcmp_unordered("!=", value, ir.Constant(FLOATS, [0.0] * 16))
        return builder.zext(builder.bitcast(mask, ir.IntType(16)), ir.IntType(64))

    return types.int64(source, types.intp), generate


@intrinsic
def lowest(typing, mask):
    """The number of trailing zeros of ``mask``."""

    def generate(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), generate


@intrinsic
def columns(typing, source, i, target, j):
    """The 16 rows of 4 at ``source.flat[i]`` as 4 rows of 16 at ``target.flat[j]``."""

    def generate(context, builder, signature, args):
        a, x, b, y = args
        rows = _load(builder, _pointer(context, builder, signature.args[0], a, x, ROWS), 4)
        places = [4 * lane + row for row in range(4) for lane in range(16)]
        order = ir.Constant(ir.VectorType(ir.IntType(32), 64), places)
        turned = builder.shuffle_vector(rows, ir.Constant(ROWS, ir.Undefined), order)
        _store(builder, turned, _pointer(context, builder, signature.args[2], b, y, ROWS), 4)
        return context.get_dummy_value()

    return types.void(source, types.intp, target, types.intp), generate


def _splat(builder, value):
    single = builder.insert_element(ir.Constant(FLOATS, ir.Undefined), value, cgutils.int32_t(0))
    return builder.shuffle_vector(single, ir.Constant(FLOATS, ir.Undefined), ir.Constant(
        ir.VectorType(ir.IntType(32), 16), [0] * 16))  # fmt: skip
