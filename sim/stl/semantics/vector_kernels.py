"""Loops over lanes, traces side by side, that the interpreters call for each instruction. Compiled by numba.

A *tagged* number is a uint64: the bits of a float32, so mapped that they order like the numbers, and below them the tag
of the place that the number came from. The minimum or maximum of tagged numbers brings the tag along.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from temporeal.sim.stl.semantics.jit import compiled, inlined, pointer
from temporeal.sim.stl.semantics.programs import (
    ABS,
    ADD,
    ATAN2,
    COS,
    DIV,
    EQ,
    EXP,
    HYPOT,
    LE,
    LT,
    MUL,
    NEG,
    POW,
    SIN,
    SQRT,
    SUB,
)


@inlined
def smaller(x: Any, y: Any) -> Any:
    """The minimum; NaN if one is NaN."""
    o = x if x < y else y
    return o if x == x else x


@inlined
def larger(x: Any, y: Any) -> Any:
    o = x if x > y else y
    return o if x == x else x


@compiled()
def load(o: Any, x: Any, stride: int, lanes: int, sign: Any, offset: Any) -> None:
    if stride == 1:
        for i in range(lanes):
            o[i] = sign * x[i] + offset
    else:
        for i in range(lanes):
            o[i] = sign * x[i * stride] + offset


@compiled()
def pack(o: Any, x: Any, stride: int, lanes: int, tag: Any) -> None:
    """Tagged numbers from the bits ``x`` of float32 numbers and a ``tag``."""
    for i in range(lanes):
        bits = np.int64(x[i * stride])
        ordered = (bits ^ (0x80000000 | -(bits >> 31))) & 0xFFFFFFFF
        o[i] = (np.uint64(ordered) << np.uint64(32)) | tag


@compiled()
def unpack(o: Any, tags: Any, x: Any, lanes: int) -> None:
    """The inverse of :func:`pack`."""
    for i in range(lanes):
        ordered = np.int64(x[i] >> np.uint64(32))
        o[i] = np.uint32((ordered ^ (0x80000000 | -((ordered >> 31) ^ 1))) & 0xFFFFFFFF)
        tags[i] = np.uint32(x[i] & np.uint64(0xFFFFFFFF))


@compiled()
def copy(o: Any, x: Any, lanes: int) -> None:
    for i in range(lanes):
        o[i] = x[i]


@compiled()
def swap(o: Any, ring: Any, x: Any, lanes: int) -> None:
    """Read a row of a ring buffer and replace it."""
    for i in range(lanes):
        v = ring[i]
        ring[i] = x[i]
        o[i] = v


@compiled()
def fill(o: Any, value: Any, lanes: int) -> None:
    for i in range(lanes):
        o[i] = value


@compiled()
def mask(o: Any, x: Any, t: int, ends: Any, neutral: Any, lanes: int) -> None:
    for i in range(lanes):
        a = x[i]
        o[i] = a if t < ends[i] else neutral


@compiled()
def minimum(o: Any, x: Any, y: Any, lanes: int) -> None:
    for i in range(lanes):
        o[i] = smaller(x[i], y[i])


@compiled()
def maximum(o: Any, x: Any, y: Any, lanes: int) -> None:
    for i in range(lanes):
        o[i] = larger(x[i], y[i])


@compiled()
def running_min(o: Any, x: Any, u: Any, lanes: int) -> None:
    for i in range(lanes):
        v = smaller(x[i], u[i])
        u[i] = v
        o[i] = v


@compiled()
def running_max(o: Any, x: Any, u: Any, lanes: int) -> None:
    for i in range(lanes):
        v = larger(x[i], u[i])
        u[i] = v
        o[i] = v


@compiled()
def until(o: Any, keep: Any, reach: Any, u: Any, lanes: int) -> None:
    for i in range(lanes):
        v = larger(reach[i], smaller(keep[i], u[i]))
        u[i] = v
        o[i] = v


@compiled()
def release(o: Any, keep: Any, reach: Any, u: Any, lanes: int) -> None:
    for i in range(lanes):
        v = smaller(reach[i], larger(keep[i], u[i]))
        u[i] = v
        o[i] = v


@compiled()
def slide_min(o: Any, x: Any, here: Any, after: Any, run: Any, lanes: int) -> None:
    """A sample within a block: the window is ``after``, the rest of the previous block, and ``run``, this block."""
    for i in range(lanes):
        v = x[i]
        r = smaller(v, run[i])
        run[i] = r
        o[i] = smaller(r, after[i])
        here[i] = v


@compiled()
def slide_max(o: Any, x: Any, here: Any, after: Any, run: Any, lanes: int) -> None:
    for i in range(lanes):
        v = x[i]
        r = larger(v, run[i])
        run[i] = r
        o[i] = larger(r, after[i])
        here[i] = v


@compiled()
def close_min(o: Any, x: Any, here: Any, run: Any, lanes: int, neutral: Any) -> None:
    """The last sample of a block: the window is the whole block."""
    for i in range(lanes):
        v = x[i]
        o[i] = smaller(v, run[i])
        here[i] = v
        run[i] = neutral


@compiled()
def close_max(o: Any, x: Any, here: Any, run: Any, lanes: int, neutral: Any) -> None:
    for i in range(lanes):
        v = x[i]
        o[i] = larger(v, run[i])
        here[i] = v
        run[i] = neutral


@compiled()
def arithmetic(op: int, o: Any, x: Any, y: Any, lanes: int, one: Any) -> None:
    if op == ADD:
        for i in range(lanes):
            o[i] = x[i] + y[i]
    elif op == SUB:
        for i in range(lanes):
            o[i] = x[i] - y[i]
    elif op == MUL:
        for i in range(lanes):
            o[i] = x[i] * y[i]
    elif op == DIV:
        for i in range(lanes):
            # by zero: 0 / 0, which is NaN in the type of the numbers
            o[i] = x[i] / y[i] if y[i] != 0 else (y[i] - y[i]) / (y[i] - y[i])
    elif op == NEG:
        for i in range(lanes):
            o[i] = -x[i]
    elif op == ABS:
        for i in range(lanes):
            o[i] = abs(x[i])
    elif op == SQRT:
        for i in range(lanes):
            o[i] = np.sqrt(x[i])
    elif op == EXP:
        for i in range(lanes):
            o[i] = np.exp(x[i])
    elif op == SIN:
        for i in range(lanes):
            o[i] = np.sin(x[i])
    elif op == COS:
        for i in range(lanes):
            o[i] = np.cos(x[i])
    elif op == ATAN2:
        for i in range(lanes):
            o[i] = np.arctan2(x[i], y[i])
    elif op == HYPOT:
        for i in range(lanes):
            o[i] = np.hypot(x[i], y[i])
    elif op == POW:
        for i in range(lanes):
            o[i] = x[i] ** y[i] if x[i] != 0 or y[i] >= 0 else (x[i] - x[i]) / (x[i] - x[i])
    elif op == LT:
        for i in range(lanes):
            o[i] = one if x[i] < y[i] else -one
    elif op == LE:
        for i in range(lanes):
            o[i] = one if x[i] <= y[i] else -one
    elif op == EQ:
        for i in range(lanes):
            o[i] = one if x[i] == y[i] else -one
    else:
        for i in range(lanes):
            o[i] = one if x[i] < y[i] or x[i] > y[i] else -one  # false where there is no value


@compiled()
def any_nan(x: Any, lanes: int) -> bool:
    found = False
    for i in range(lanes):
        found |= x[i] != x[i]
    return found


def read(
    o: Any, address: int, stride: int, lanes: int, signs: Any, offsets: Any, slot: int, tag: int, one: Any
) -> None:
    """LOAD: numbers of a signal, or tagged numbers of a leaf."""


@overload(read, strict=False)
def _read_of(
    o: Any, address: Any, stride: Any, lanes: Any, signs: Any, offsets: Any, slot: Any, tag: Any, one: Any
) -> Any:
    if one == types.uint64:
        return lambda o, address, stride, lanes, signs, offsets, slot, tag, one: pack(
            o, pointer(address, np.uint32(0)), stride, lanes, np.uint64(tag))
    return lambda o, address, stride, lanes, signs, offsets, slot, tag, one: load(
        o, pointer(address, one), stride, lanes, signs[slot], offsets[slot])


def write(address: int, tags: int, x: Any, lanes: int, one: Any) -> None:
    """OUT: a row of results, of tagged numbers also the row of their tags."""


@overload(write, strict=False)
def _write_of(address: Any, tags: Any, x: Any, lanes: Any, one: Any) -> Any:
    if one == types.uint64:
        return lambda address, tags, x, lanes, one: unpack(
            pointer(address, np.uint32(0)), pointer(tags, np.uint32(0)), x, lanes)
    return lambda address, tags, x, lanes, one: copy(pointer(address, one), x, lanes)


def compute(op: int, o: Any, x: Any, y: Any, lanes: int, one: Any) -> None:
    """Arithmetic; programs of tagged numbers have none."""


@overload(compute, strict=False)
def _compute_of(op: Any, o: Any, x: Any, y: Any, lanes: Any, one: Any) -> Any:
    if one == types.uint64:
        return lambda op, o, x, y, lanes, one: None
    return lambda op, o, x, y, lanes, one: arithmetic(op, o, x, y, lanes, one)
