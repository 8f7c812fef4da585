"""The register machine that also knows where each value came from: the leaf and the sample.

Origins go through all minima and maxima, so that the exact subgradient is one addition per value.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from temporeal.sim.stl.semantics import jit, vector_kernels
from temporeal.sim.stl.semantics.interpreter import Instructions, Traces
from temporeal.sim.stl.semantics.jit import compiled, inlined, pointer
from temporeal.sim.stl.semantics.programs import (
    DELAY,
    GET,
    LOAD,
    MASK,
    MAX,
    MIN,
    OUT,
    PUT,
    RELEASE,
    RUN_MAX,
    RUN_MIN,
    SLIDE_MAX,
    SLIDE_MIN,
    UNTIL,
    Ints,
)
from temporeal.sim.stl.semantics.vector_kernels import copy, fill, maximum, minimum, swap


class Results(NamedTuple):
    """Addresses of the results [rows, worlds] and their origins, and bytes from row to row of each.

    An origin is leaf * rows + sample, or -1.
    """

    address: int
    stride: int
    origins: int
    origins_stride: int


class OriginMemory(NamedTuple):
    """What a block of traces works on: each number has its origin beside it.

    Args:
        work: as in `interpreter.Memory`; ``tags``: address of as many origins; ``scratch``: of one for each lane.
        one: 1 in the type of the numbers, of ``size`` bytes; ``none``: -1 in that of the origins, of ``tag_size``.
    """

    work: int
    tags: int
    scratch: int
    lanes: int
    counters: Ints
    one: Any
    size: int
    none: Any
    tag_size: int


@compiled(vector_kernels, jit)
def _load(o: Any, o_tags: Any, x: Any, stride: int, lanes: int, tag: Any) -> None:
    for i in range(lanes):
        o[i] = x[i * stride]
        o_tags[i] = tag


@compiled(vector_kernels, jit)
def _mask(o: Any, o_tags: Any, x: Any, x_tags: Any, t: int, ends: Any, neutral: Any, none: Any, lanes: int) -> None:
    for i in range(lanes):
        a, at = x[i], x_tags[i]
        inside = t < ends[i]
        o[i] = a if inside else neutral
        o_tags[i] = at if inside else none


@compiled(vector_kernels, jit)
def _pick(o: Any, first: Any, x: Any, y: Any, lanes: int) -> None:
    for i in range(lanes):
        a, b = x[i], y[i]  # both are loaded: a choice between loads would not be a vector instruction
        o[i] = a if first[i] else b


@compiled(vector_kernels, jit)
def _extremum(
    most: bool, o: Any, o_tags: Any, x: Any, x_tags: Any, y: Any, y_tags: Any, first: Any, lanes: int
) -> None:
    """The maximum (``most``) or minimum of two rows, with its origin; of equal ones the second's."""
    # three short loops: with all six arrays in one, the compiler fails to prove that they do not overlap
    if most:
        for i in range(lanes):
            first[i] = (x[i] > y[i]) | (x[i] != x[i])
    else:
        for i in range(lanes):
            first[i] = (x[i] < y[i]) | (x[i] != x[i])
    _pick(o_tags, first, x_tags, y_tags, lanes)
    if most:
        maximum(o, x, y, lanes)
    else:
        minimum(o, x, y, lanes)


@inlined
def _row(memory: OriginMemory, index: int) -> Any:
    """Row ``index`` of the numbers and of the origins."""
    lanes = memory.lanes
    return (pointer(memory.work + index * lanes * memory.size, memory.one),
            pointer(memory.tags + index * lanes * memory.tag_size, memory.none))


@inlined
def _move(memory: OriginMemory, to: int, source: int) -> None:
    o, o_tags = _row(memory, to)
    x, x_tags = _row(memory, source)
    copy(o, x, memory.lanes)
    copy(o_tags, x_tags, memory.lanes)


@inlined
def _join(memory: OriginMemory, most: bool, to: int, a: int, b: int) -> None:
    """Row ``to`` is the maximum or minimum of rows ``a`` and ``b``; of equal ones the second's origin."""
    o, o_tags = _row(memory, to)
    x, x_tags = _row(memory, a)
    y, y_tags = _row(memory, b)
    _extremum(most, o, o_tags, x, x_tags, y, y_tags, pointer(memory.scratch, memory.none), memory.lanes)


@inlined
def _slide(memory: OriginMemory, most: bool, to: int, x: int, first: int, width: int, at: int, neutral: Any) -> int:
    """Sample ``at`` of a block of a sliding minimum or maximum, whose rows begin at ``first``; the next ``at``."""
    running = first + width
    _join(memory, most, running, x, running)
    _move(memory, first + at, x)
    if at < width - 1:
        _join(memory, most, to, running, first + at + 1)
        return at + 1
    _move(memory, to, running)
    o, o_tags = _row(memory, running)
    fill(o, neutral, memory.lanes)
    fill(o_tags, memory.none, memory.lanes)
    for j in range(width - 2, -1, -1):
        _join(memory, most, first + j, first + j, first + j + 1)
    return 0


@compiled(vector_kernels, jit)
def _begin(program: Instructions, memory: OriginMemory) -> None:
    """Registers, constants and states before the first sample of a block."""
    for i in range(program.registers + len(program.initial)):
        x, tags = _row(memory, i)
        fill(x, program.initial[i - program.registers] if i >= program.registers else memory.one, memory.lanes)
        fill(tags, memory.none, memory.lanes)
    for i in range(len(program.constants)):
        x, tags = _row(memory, program.constants[i])
        fill(x, program.values[i], memory.lanes)
    memory.counters[:] = 0


@compiled(vector_kernels, jit)
def run_with_origins(program: Instructions, traces: Traces, results: Results, memory: OriginMemory) -> None:
    """Run a program on leaves over all traces. ``traces.tags`` are the leaves that each LOAD reads."""
    for block in range(0, traces.worlds, memory.lanes):
        _begin(program, memory)
        for k in range(len(program.passes)):
            _run_pass(program, traces, results, memory, block, k)


@compiled(vector_kernels, jit)
def _run_pass(
    program: Instructions, traces: Traces, results: Results, memory: OriginMemory, block: int, k: int
) -> None:
    """Pass ``k`` over the traces from ``block`` on. Rows: registers, states, buffers."""
    code, rows, run_rows = program.code, traces.rows, traces.run_rows
    one, none, lanes, counters = memory.one, memory.none, memory.lanes, memory.counters
    states = program.registers
    buffers = states + len(program.initial)
    here = min(lanes, traces.worlds - block)
    end = pointer(traces.ends.ctypes.data + block * 8, counters[0])
    for step in range(run_rows):
        t = step if program.passes[k, 2] > 0 else run_rows - 1 - step
        for i in range(program.passes[k, 0], program.passes[k, 1]):
            op, to, a, b, p, q = code[i, 0], code[i, 1], code[i, 2], code[i, 3], code[i, 4], code[i, 5]
            if op == LOAD:
                if t < rows:
                    o, o_tags = _row(memory, to)
                    stride = traces.loads[a, 2]
                    source = traces.loads[a, 0] + t * traces.loads[a, 1] + block * stride * memory.size
                    _load(o, o_tags, pointer(source, one), stride, here, traces.tags[a] * rows + t)
            elif op == MIN or op == MAX:
                _join(memory, op == MAX, to, a, b)
            elif op == SLIDE_MIN or op == SLIDE_MAX:
                counters[q] = _slide(memory, op == SLIDE_MAX, to, a, states + b, p, counters[q], program.initial[b])
            elif op == RUN_MIN or op == RUN_MAX:
                _join(memory, op == RUN_MAX, states + b, a, states + b)
                _move(memory, to, states + b)
            elif op == UNTIL or op == RELEASE:
                _join(memory, op == RELEASE, states + p, a, states + p)
                _join(memory, op == UNTIL, states + p, b, states + p)
                _move(memory, to, states + p)
            elif op == DELAY:
                o, o_tags = _row(memory, to)
                x, x_tags = _row(memory, a)
                ring, ring_tags = _row(memory, states + b + counters[q])
                swap(o, ring, x, lanes)
                swap(o_tags, ring_tags, x_tags, lanes)
                counters[q] = counters[q] + 1 if counters[q] + 1 < p else 0
            elif op == MASK:
                o, o_tags = _row(memory, to)
                x, x_tags = _row(memory, a)
                _mask(o, o_tags, x, x_tags, t, end, program.masks[p], none, lanes)
            elif op == PUT:
                _move(memory, buffers + p * run_rows + t, a)
            elif op == GET:
                _move(memory, to, buffers + p * run_rows + t)
            elif op == OUT and t < rows:
                x, x_tags = _row(memory, a)
                place = results.origins + t * results.origins_stride + block * memory.tag_size
                copy(pointer(results.address + t * results.stride + block * memory.size, one), x, here)
                copy(pointer(place, none), x_tags, here)


@compiled()
def scatter(origins: Any, gradient: Any, out: Any, lanes: int) -> None:
    """Add each ``gradient`` [T, N] to ``out`` [K * T, N] at the row that its value came from."""
    rows, worlds = origins.shape
    for block in range(0, worlds, lanes):
        last = min(block + lanes, worlds)
        for t in range(rows):
            for n in range(block, last):
                if gradient[t, n] != 0 and origins[t, n] >= 0:
                    out[origins[t, n], n] += gradient[t, n]
