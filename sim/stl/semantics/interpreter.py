"""The register machine that runs the programs of `programs`, sample by sample for a block of traces side by side.

Every instruction is one vector loop over the traces of the block. All intermediate values stay in the cache; signals
are read and results written once.

A sliding minimum over w samples costs three comparisons per sample whatever w is (van Herk, Pattern Recognition Letters
13(7), 1992; Gil and Werman, IEEE PAMI 15(5), 1993): the samples come in blocks of w, each with its running minimum from
the left and, once complete, from the right; every window is a right part of one block and a left part of the next. Work
is O(T) for every operator, memory O(w) per trace of the block.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from temporeal.sim.stl.semantics import jit, vector_kernels
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
    Floats,
    Ints,
)
from temporeal.sim.stl.semantics.vector_kernels import (
    any_nan,
    close_max,
    close_min,
    compute,
    copy,
    fill,
    mask,
    maximum,
    minimum,
    read,
    release,
    running_max,
    running_min,
    slide_max,
    slide_min,
    swap,
    until,
    write,
)


class Instructions(NamedTuple):
    """A `programs.Program` with its numbers in the type that the machine runs on.

    Args:
        root: the register of the result, if an instruction computes it; else -1.
    """

    code: Ints
    passes: Ints
    constants: Ints
    values: Floats
    masks: Floats
    initial: Floats
    registers: int
    root: int


class Traces(NamedTuple):
    """What a program reads.

    Args:
        loads: [K, 3] address, bytes from sample to sample, numbers from trace to trace.
        signs, offsets: [K] of what each LOAD reads.
        tags: [K] tag of the first sample of what each LOAD reads; for tagged numbers only.
        ends: [worlds + lanes] samples of each trace.
        run_rows: samples to run; those from ``rows`` on have no signals (a MASK hides what is loaded there).
    """

    loads: Ints
    signs: Floats
    offsets: Floats
    tags: Ints
    ends: Ints
    rows: int
    run_rows: int
    worlds: int


class Result(NamedTuple):
    """Addresses of the result [rows, worlds] and of its tags; ``stride`` is the bytes from row to row."""

    address: int
    tags: int
    stride: int


class Memory(NamedTuple):
    """What a block of traces works on.

    Args:
        work: address of [registers + states + buffers * run_rows, lanes] numbers of ``size`` bytes.
        homes: [registers] the address of each: in ``work``, or in a signal or the result itself.
        one: 1 in the type that the machine runs on: float32, float64, or uint64 for tagged float32.
        outer: bytes of a number outside the machine.
    """

    work: int
    lanes: int
    counters: Ints
    homes: Ints
    one: Any
    size: int
    outer: int


@compiled(vector_kernels, jit)
def run(program: Instructions, traces: Traces, result: Result, memory: Memory) -> bool:
    """Run a program over all traces. Returns whether a recursion met a NaN, which it carries on past any window."""
    spread = False
    for block in range(0, traces.worlds, memory.lanes):
        _begin(program, memory)
        for k in range(len(program.passes)):
            spread |= _run_pass(program, traces, result, memory, block, k)
    return spread


@compiled(vector_kernels, jit)
def _begin(program: Instructions, memory: Memory) -> None:
    """Registers, constants and states before the first sample of a block."""
    row, work, one, lanes = memory.lanes * memory.size, memory.work, memory.one, memory.lanes
    states = work + program.registers * row
    for i in range(program.registers):
        fill(pointer(work + i * row, one), one, lanes)
        memory.homes[i] = work + i * row
    for i in range(len(program.constants)):
        fill(pointer(work + program.constants[i] * row, one), program.values[i], lanes)
    for i in range(len(program.initial)):
        fill(pointer(states + i * row, one), program.initial[i], lanes)
    memory.counters[:] = 0


@compiled(vector_kernels, jit)
def _run_pass(program: Instructions, traces: Traces, result: Result, memory: Memory, block: int, k: int) -> bool:
    """Pass ``k`` over the traces from ``block`` on."""
    code, root, rows, run_rows = program.code, program.root, traces.rows, traces.run_rows
    lanes, one, homes, counters, outer = memory.lanes, memory.one, memory.homes, memory.counters, memory.outer
    loads, signs, offsets = traces.loads, traces.signs, traces.offsets
    row = lanes * memory.size
    states = memory.work + program.registers * row
    buffers = states + len(program.initial) * row
    here = min(lanes, traces.worlds - block)
    whole = here == lanes and memory.size == outer
    direct = whole and root >= 0 and k == len(program.passes) - 1  # the result is computed where it belongs
    end = pointer(traces.ends.ctypes.data + block * 8, counters[0])
    first, last = program.passes[k, 0], program.passes[k, 1]
    for step in range(run_rows):
        t = step if program.passes[k, 2] > 0 else run_rows - 1 - step
        place = t * result.stride + block * outer
        if direct:
            homes[root] = result.address + place if t < rows else memory.work + root * row
        for i in range(first, last):
            op, a, b, p, q = code[i, 0], code[i, 2], code[i, 3], code[i, 4], code[i, 5]
            if op == LOAD:
                if t < rows:
                    source = loads[a, 0] + t * loads[a, 1] + block * loads[a, 2] * outer
                    if whole and loads[a, 2] == 1 and signs[a] == 1 and offsets[a] == 0:
                        homes[code[i, 1]] = source  # the numbers are used where they are
                    else:
                        o = pointer(homes[code[i, 1]], one)
                        read(o, source, loads[a, 2], here, signs, offsets, a, traces.tags[a] + t, one)
                continue
            o, x, y = pointer(homes[code[i, 1]], one), pointer(homes[a], one), pointer(homes[b], one)
            if op == MIN:
                minimum(o, x, y, lanes)
            elif op == MAX:
                maximum(o, x, y, lanes)
            elif op == SLIDE_MIN or op == SLIDE_MAX:
                counters[q] = _slide(op, o, x, states + b * row, p, counters[q], row, lanes, one, program.initial[b])
            elif op == RUN_MIN:
                running_min(o, x, pointer(states + b * row, one), lanes)
            elif op == RUN_MAX:
                running_max(o, x, pointer(states + b * row, one), lanes)
            elif op == UNTIL:
                until(o, x, y, pointer(states + p * row, one), lanes)
            elif op == RELEASE:
                release(o, x, y, pointer(states + p * row, one), lanes)
            elif op == DELAY:
                swap(o, pointer(states + (b + counters[q]) * row, one), x, lanes)
                counters[q] = counters[q] + 1 if counters[q] + 1 < p else 0
            elif op == MASK:
                mask(o, x, t, end, program.masks[p], lanes)
            elif op == PUT:
                copy(pointer(buffers + (p * run_rows + t) * row, one), x, lanes)
            elif op == GET:
                copy(o, pointer(buffers + (p * run_rows + t) * row, one), lanes)
            elif op != OUT:
                compute(op, o, x, y, lanes, one)
            elif t < rows and homes[a] != result.address + place:
                write(result.address + place, result.tags + place, x, here, one)
    spread = False
    for i in range(first, last):
        if code[i, 0] == UNTIL or code[i, 0] == RELEASE:
            spread |= any_nan(pointer(states + code[i, 4] * row, one), here)
    return spread


@inlined
def _slide(
    op: int, o: Any, x: Any, first: int, width: int, at: int, row: int, lanes: int, one: Any, neutral: Any
) -> int:
    """Sample ``at`` of a block of a sliding minimum or maximum, whose rows begin at ``first``; the next ``at``."""
    ring, running = pointer(first + at * row, one), pointer(first + width * row, one)
    if at < width - 1:
        after = pointer(first + (at + 1) * row, one)
        if op == SLIDE_MIN:
            slide_min(o, x, ring, after, running, lanes)
        else:
            slide_max(o, x, ring, after, running, lanes)
        return at + 1
    if op == SLIDE_MIN:
        close_min(o, x, ring, running, lanes, neutral)
    else:
        close_max(o, x, ring, running, lanes, neutral)
    # from here on the block is needed as the aggregates of its right parts
    for j in range(width - 2, -1, -1):
        left, right = pointer(first + j * row, one), pointer(first + (j + 1) * row, one)
        if op == SLIDE_MIN:
            minimum(left, left, right, lanes)
        else:
            maximum(left, left, right, lanes)
    return 0
