"""SIMD vectors of float32 that a numba kernel computes with as with numbers: one world in each lane.

A kernel that loads such vectors, calls a scalar function compiled for them (:data:`TARGET` for
:func:`temporeal.sim.compiler.scalar_functions.instantiate`) and stores the result is vectorized by construction. The
compiler need not prove that arrays do not overlap, which it cannot, and makes no second, scalar copy of the loop.

    w = load(state, i, 17)                    # 17 rows of 16 worlds, from state[i], state[i + 16], ...
    store(state, i, BLOCK, advance(w, dt))

A vector has :data:`WIDTH` lanes, as many as a register of this machine holds, at most :data:`BLOCK`. Indices are not
checked.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features
from numba.core.datamodel import models
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, lower_cast, register_model

BLOCK = 16  # worlds in a block: float32 in a 512-bit register
# not "nnan", "ninf": a world that diverges must show it
FASTMATH = ("contract", "reassoc", "nsz", "arcp")


def _register_width() -> int:
    """Float32 in a register of the processor that numba compiles for."""
    given = numba.config.CPU_FEATURES
    features = get_host_cpu_features() if given is None else given
    return 16 if "+avx512f" in features else 8 if "+avx" in features else 4


WIDTH = _register_width()
STACK = 64  # bytes, a register


class VectorType(types.Type):
    """:data:`WIDTH` numbers of one kind as a value."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(name=f"VectorType({kind})")


FLOATS, WORDS, INTS, MASK = (VectorType(kind) for kind in ("float32", "uint32", "int32", "bool"))
_WORD = ir.IntType(32)
_ELEMENT = {FLOATS: ir.FloatType(), WORDS: _WORD, INTS: _WORD, MASK: ir.IntType(1)}
_VECTOR = {kind: ir.VectorType(element, WIDTH) for kind, element in _ELEMENT.items()}
_SCALAR = {FLOATS: types.float32, WORDS: types.uint32, INTS: types.int32, MASK: types.boolean}


@register_model(VectorType)
class _Model(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _VECTOR[kind])


# --- operators: of two vectors, or of a vector and a number that stands in every lane ---


@lower_cast(types.Number, VectorType)
@lower_cast(types.Boolean, VectorType)
def _splat(context, builder, source, target, value):
    value = context.cast(builder, value, source, _SCALAR[target])
    if target is MASK:
        value = builder.icmp_unsigned("!=", value, ir.Constant(value.type, 0))
    undefined = ir.Constant(_VECTOR[target], ir.Undefined)
    single = builder.insert_element(undefined, value, cgutils.int32_t(0))
    return builder.shuffle_vector(single, undefined, ir.Constant(ir.VectorType(_WORD, WIDTH), [0] * WIDTH))


def _kind(*args):
    """The one kind of vector among the argument types; None where there is none or two."""
    kinds = {a for a in args if isinstance(a, VectorType)}
    return kinds.pop() if len(kinds) == 1 else None


def _typed(function, result=None):
    """Teach numba that ``function`` takes vectors of one kind and gives ``result``, or the same kind."""

    @infer_global(function)
    class _Template(AbstractTemplate):
        def generic(self, args, kws):
            kind = _kind(*args)
            return None if kind is None else signature(result or kind, *[kind] * len(args))


def _binary(function, for_floats, for_words, for_ints):
    _typed(function)

    @lower_builtin(function, VectorType, VectorType)
    def _lower(context, builder, sig, args):
        kind = sig.args[0]
        if kind is FLOATS:
            return getattr(builder, for_floats)(*args, flags=FASTMATH)
        return getattr(builder, for_ints if kind is INTS else for_words)(*args)


def _comparison(function, sign):
    _typed(function, MASK)

    @lower_builtin(function, VectorType, VectorType)
    def _lower(context, builder, sig, args):
        if sig.args[0] is FLOATS:
            compare = builder.fcmp_unordered if sign == "!=" else builder.fcmp_ordered
            return compare(sign, *args, flags=FASTMATH)
        return (builder.icmp_signed if sig.args[0] is INTS else builder.icmp_unsigned)(sign, *args)


_binary(operator.add, "fadd", "add", "add")
_binary(operator.sub, "fsub", "sub", "sub")
_binary(operator.mul, "fmul", "mul", "mul")
_binary(operator.truediv, "fdiv", "udiv", "sdiv")
_binary(operator.and_, "", "and_", "and_")
_binary(operator.or_, "", "or_", "or_")
_binary(operator.xor, "", "xor", "xor")
_binary(operator.lshift, "", "shl", "shl")
_binary(operator.rshift, "", "lshr", "ashr")
for _function, _sign in (
    (operator.lt, "<"), (operator.le, "<="), (operator.gt, ">"), (operator.ge, ">="), (operator.eq, "=="),
    (operator.ne, "!="),
):  # fmt: skip
    _comparison(_function, _sign)
_typed(operator.neg)
_typed(math.sqrt)


@lower_builtin(operator.neg, VectorType)
def _negate(context, builder, sig, args):
    return builder.fneg(args[0], flags=FASTMATH)


@lower_builtin(math.sqrt, VectorType)
def _square_root(context, builder, sig, args):
    vector = _VECTOR[FLOATS]
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(vector, [vector]), f"llvm.sqrt.v{WIDTH}f32"
    )
    return builder.call(function, args)


# --- what the scalar functions of the physics, the task and the random numbers need in another form ---


def _chosen(sign):
    """Intrinsic of two floats, in lanes or not: the one that compares so with the other, else the second."""

    @intrinsic
    def choose(typing, a, b):
        kind = _kind(a, b) or types.float32

        def generate(context, builder, sig, args):
            return builder.select(builder.fcmp_ordered(sign, *args, flags=FASTMATH), *args)

        return kind(kind, kind), generate

    return choose


larger, smaller = _chosen(">"), _chosen("<")


@intrinsic
def select(typing, condition, a, b):
    """In each lane ``a`` where the condition holds, else ``b``."""
    kind = _kind(a, b) or FLOATS

    def generate(context, builder, sig, args):
        return builder.select(*args)

    return kind(MASK, kind, kind), generate


def _conversion(target):
    """Intrinsic that converts, in lanes or not, to the kind ``target``; between words and integers the bits stay."""

    @intrinsic
    def convert(typing, x):
        def generate(context, builder, sig, args):
            if not isinstance(x, VectorType):
                return context.cast(builder, args[0], x, _SCALAR[target])
            if target is FLOATS and x is not FLOATS:
                return (builder.sitofp if x is INTS else builder.uitofp)(args[0], _VECTOR[FLOATS])
            if x is FLOATS and target is not FLOATS:
                return (builder.fptosi if target is INTS else builder.fptoui)(args[0], _VECTOR[target])
            return args[0]

        return (target if isinstance(x, VectorType) else _SCALAR[target])(x), generate

    return convert


def _same_bits(source, target):
    @intrinsic
    def convert(typing, x):
        def generate(context, builder, sig, args):
            return builder.bitcast(args[0], _VECTOR[target])

        return target(source), generate

    return convert


word, signed, real = _conversion(WORDS), _conversion(INTS), _conversion(FLOATS)
TARGET: dict[str, Any] = {
    "select": select, "larger": larger, "smaller": smaller, "word": word, "signed": signed, "real": real,
    "bits_of": _same_bits(FLOATS, INTS), "float_of": _same_bits(INTS, FLOATS),
}  # fmt: skip
"""What replaces functions of these names when a module of scalar functions is compiled for lanes."""


# --- memory ---


def _pointer(context, builder, array_type, array, index, target):
    """Pointer to ``target`` at the flat ``index`` of a contiguous array."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), target.as_pointer())


def _load(builder, pointer):
    value = builder.load(pointer)
    value.align = 4
    return value


def _offset(builder, index, places):
    return builder.add(index, ir.Constant(index.type, places))


@intrinsic(prefer_literal=True)
def load(typing, source, i, count):
    """A tuple of ``count`` vectors at the flat ``source[i]``, ``source[i + BLOCK]``, ...; ``count`` is a literal."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    size = count.literal_value

    def generate(context, builder, sig, args):
        places = (_offset(builder, args[1], BLOCK * k) for k in range(size))
        vectors = [_load(builder, _pointer(context, builder, source, args[0], x, _VECTOR[FLOATS])) for x in places]
        return context.make_tuple(builder, sig.return_type, vectors)

    return types.UniTuple(FLOATS, size)(source, types.intp, count), generate


@intrinsic(prefer_literal=True)
def scalars(typing, source, count):
    """A tuple of the first ``count`` numbers of ``source``; ``count`` is a literal."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    size = count.literal_value

    def generate(context, builder, sig, args):
        at = (_pointer(context, builder, source, args[0], cgutils.intp_t(k), ir.FloatType()) for k in range(size))
        return context.make_tuple(builder, sig.return_type, [_load(builder, pointer) for pointer in at])

    return types.UniTuple(types.float32, size)(source, count), generate


@intrinsic
def store(typing, target, i, stride, values):
    """Write the tuple of vectors ``values`` to the flat ``target[i]``, ``target[i + stride]``, ..."""
    if any(kind is not FLOATS for kind in values):
        return None

    def generate(context, builder, sig, args):
        for k in range(len(values)):
            place = builder.add(args[1], builder.mul(args[2], ir.Constant(args[1].type, k)))
            pointer = _pointer(context, builder, target, args[0], place, _VECTOR[FLOATS])
            builder.store(builder.extract_value(args[3], k), pointer).align = 4
        return context.get_dummy_value()

    return types.void(target, types.intp, types.intp, values), generate


@intrinsic
def store_flags(typing, target, i, mask):
    """Write ``mask`` to the flat ``target[i]`` of an array of bool."""

    def generate(context, builder, sig, args):
        flags = ir.VectorType(ir.IntType(8), WIDTH)
        pointer = _pointer(context, builder, target, args[0], args[1], flags)
        builder.store(builder.zext(args[2], flags), pointer).align = 1
        return context.get_dummy_value()

    return types.void(target, types.intp, MASK), generate


@intrinsic
def columns(typing, source, i):
    """The four columns of the :data:`WIDTH` rows of 4 that begin at the flat ``source[i]``."""
    rows = ir.VectorType(ir.FloatType(), 4 * WIDTH)

    def generate(context, builder, sig, args):
        loaded = _load(builder, _pointer(context, builder, source, args[0], args[1], rows))
        order = [ir.Constant(ir.VectorType(_WORD, WIDTH), [4 * k + row for k in range(WIDTH)]) for row in range(4)]
        turned = [builder.shuffle_vector(loaded, ir.Constant(rows, ir.Undefined), places) for places in order]
        return context.make_tuple(builder, sig.return_type, turned)

    return types.UniTuple(FLOATS, 4)(source, types.intp), generate


@intrinsic
def gather(typing, source, places):
    """The vector of ``source.flat[places]``."""

    def generate(context, builder, sig, args):
        out = ir.Constant(_VECTOR[FLOATS], ir.Undefined)
        for lane in range(WIDTH):
            pointer = _place(context, builder, source, args[0], args[1], lane)
            out = builder.insert_element(out, _load(builder, pointer), cgutils.int32_t(lane))
        return out

    return FLOATS(source, WORDS), generate


@intrinsic
def scatter(typing, target, places, stride, values):
    """Write the tuple of vectors ``values`` to ``target.flat[places]``, ``target.flat[places + stride]``, ..."""

    def generate(context, builder, sig, args):
        vectors = [builder.extract_value(args[3], k) for k in range(len(values))]
        for lane in range(WIDTH):
            pointer = _place(context, builder, target, args[0], args[1], lane)
            for k, vector in enumerate(vectors):
                at = builder.gep(pointer, [builder.mul(args[2], ir.Constant(args[2].type, k))])
                builder.store(builder.extract_element(vector, cgutils.int32_t(lane)), at).align = 4
        return context.get_dummy_value()

    return types.void(target, WORDS, types.intp, values), generate


def _place(context, builder, array_type, array, places, lane):
    index = builder.zext(builder.extract_element(places, cgutils.int32_t(lane)), cgutils.intp_t)
    return _pointer(context, builder, array_type, array, index, ir.FloatType())


@intrinsic
def words(typing, source, i):
    """The vector of the integers at the flat ``source[i]`` of an int64 array."""
    wide = ir.VectorType(ir.IntType(64), WIDTH)

    def generate(context, builder, sig, args):
        pointer = _pointer(context, builder, source, args[0], args[1], wide)
        value = builder.load(pointer)
        value.align = 8
        return builder.trunc(value, _VECTOR[WORDS])

    return WORDS(source, types.intp), generate


@intrinsic
def spread(typing, number):
    """``number`` in every lane."""

    def generate(context, builder, sig, args):
        return context.cast(builder, args[0], number, FLOATS)

    return FLOATS(number), generate


@intrinsic
def count_from(typing, first):
    """``first``, ``first + 1``, ... in the lanes."""

    def generate(context, builder, sig, args):
        start = _splat(context, builder, types.intp, WORDS, args[0])
        return builder.add(start, ir.Constant(_VECTOR[WORDS], list(range(WIDTH))))

    return WORDS(types.intp), generate


@intrinsic
def bits(typing, mask):
    """The lanes of ``mask`` as bits of a number."""

    def generate(context, builder, sig, args):
        return builder.zext(builder.bitcast(args[0], ir.IntType(WIDTH)), ir.IntType(64))

    return types.int64(MASK), generate


@intrinsic
def lowest(typing, number):
    """The trailing zeros of ``number``."""

    def generate(context, builder, sig, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), generate


@intrinsic
def align_stack(typing):
    """Begin the frame of the calling kernel at a multiple of a register's size.

    The compiler keeps what does not fit into registers on the stack, and trusts it to begin at a multiple of 16 bytes
    only: in three of four processes every such vector would lie across two cache lines, and physics takes 1.4 times
    as long.
    """

    def generate(context, builder, sig, args):
        builder.function.attributes.alignstack = STACK
        builder.function.attributes.add("noinline")  # inlined, the kernel would have the frame of its caller
        return context.get_dummy_value()

    return types.void(), generate
