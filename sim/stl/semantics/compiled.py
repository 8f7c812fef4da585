"""The fast evaluator of lowered formulas on the CPU: programs of a register machine, compiled once for all formulas.

NaN propagates: every value that depends on one is NaN. Needs numba.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from temporeal.sim.stl.rewriting.lower import Lowered
from temporeal.sim.stl.semantics.interpreter import Instructions, Memory, Result, Traces, run
from temporeal.sim.stl.semantics.origin_interpreter import OriginMemory, Results, run_with_origins, scatter
from temporeal.sim.stl.semantics.programs import Floats, Ints, Program, of_leaves, of_signals

_CACHE = 3 << 18
"""Bytes of registers and states that a block of traces may take: most of a core's second-level cache."""
_ALIGN = 16
"""Traces in a whole vector register of float32."""
_NO_ORIGIN = 0xFFFFFFFF


def evaluate(
    lowered: Lowered, arrays: Any, shape: tuple[int, int], dtype: Any, *, truth: bool = False,
    lengths: Ints | None = None, of_each_leaf: bool = False,
) -> tuple[Floats, bool]:
    """The value of a lowered formula at every sample, [T, N], and whether a recursion met a NaN.

    A recursion (until, since) carries a NaN on to the beginning or the end of the trace, beyond its window.

    Args:
        arrays: signals [T, N, *shape] by name, or with ``of_each_leaf`` one array [T, N] for each leaf in order; all of
            ``dtype``, float32 or float64.
        shape: (T, N), both at least 1.
        truth: 1 where the formula holds and -1 where it does not, instead of the robustness.
        lengths: [N] samples of each trace. What is returned past them has no meaning.
    """
    lowered, run_rows, masked = _viewed(lowered, shape[0], lengths)
    program = (of_leaves(lowered, run_rows, masked) if of_each_leaf
               else of_signals(lowered, run_rows, masked, truth))
    size = np.dtype(dtype).itemsize
    lanes = _lanes(_rows_of_memory(program, run_rows), shape[1], size)
    instructions, signs, offsets = _typed(program, np.dtype(dtype))
    loads, _held = _loads(program, arrays, not of_each_leaf)
    traces = Traces(loads, signs, offsets, np.zeros(len(loads), np.int64), _ends(shape, lanes, lengths), shape[0],
                    run_rows, shape[1])
    out = np.empty(shape, dtype=dtype)
    _work, memory = _memory(program, run_rows, lanes, np.dtype(dtype).type(1), size, size)
    spread = run(instructions, traces, Result(out.ctypes.data, 0, out.strides[0]), memory)
    return out, bool(spread)


def evaluate_with_origins(
    lowered: Lowered, leaves: Sequence[Floats], shape: tuple[int, int], dtype: Any, lengths: Ints | None = None
) -> tuple[Floats, NDArray[Any]]:
    """Values [T, N] and where each came from, [T, N] integers: leaf * T + sample, -1 if from no leaf."""
    lowered, run_rows, masked = _viewed(lowered, shape[0], lengths)
    program = of_leaves(lowered, run_rows, masked)
    loads, _held = _loads(program, leaves, False)
    small = np.dtype(dtype) == np.float32 and len(leaves) * shape[0] < 2**31
    if small and not any(np.isnan(leaf.max()) for leaf in leaves):
        return _by_tags(program, loads, shape, run_rows, lengths)
    tag, number = np.dtype(np.int32 if small else np.int64), np.dtype(dtype)
    rows = _rows_of_memory(program, run_rows)
    lanes = _lanes(rows, shape[1], number.itemsize + tag.itemsize)
    instructions, signs, offsets = _typed(program, number)
    traces = Traces(loads, signs, offsets, _leaf_of_load(program), _ends(shape, lanes, lengths), shape[0], run_rows,
                    shape[1])
    out, origins = np.empty(shape, dtype=dtype), np.empty(shape, dtype=tag)
    _work, work = _aligned(rows * lanes, number.itemsize)
    _tags, tags = _aligned((rows + 1) * lanes, tag.itemsize)
    memory = OriginMemory(
        work, tags, tags + rows * lanes * tag.itemsize, lanes, np.zeros(program.counters + 1, np.int64),
        number.type(1), number.itemsize, tag.type(-1), tag.itemsize)
    results = Results(out.ctypes.data, out.strides[0], origins.ctypes.data, origins.strides[0])
    run_with_origins(instructions, traces, results, memory)
    return out, origins


def gradient(origins: NDArray[Any], upstream: Floats, leaves: int) -> Floats:
    """Gradients [K, T, N] of each leaf, from those of the values [T, N] and the origins of these."""
    rows, worlds = origins.shape
    out = np.zeros((leaves * rows, worlds), dtype=upstream.dtype)
    scatter(origins, upstream, out, 64)
    return out.reshape(leaves, rows, worlds)


# ---------------------------------------------------------------- tagged numbers


def _by_tags(
    program: Program, loads: Ints, shape: tuple[int, int], run_rows: int, lengths: Ints | None
) -> tuple[Floats, NDArray[Any]]:
    """:func:`evaluate_with_origins` of float32 numbers without NaN: one integer holds a number and its origin."""
    lanes = _lanes(_rows_of_memory(program, run_rows), shape[1], 8)
    typed, _, _ = _typed(program, np.dtype(np.float32))
    instructions = typed._replace(
        values=_tagged(typed.values), masks=_tagged(typed.masks), initial=_tagged(typed.initial))
    blank = np.zeros(len(loads), dtype=np.uint64)
    traces = Traces(loads, blank, blank, _leaf_of_load(program) * shape[0], _ends(shape, lanes, lengths), shape[0],
                    run_rows, shape[1])
    out, origins = np.empty(shape, dtype=np.float32), np.empty(shape, dtype=np.int32)
    _work, memory = _memory(program, run_rows, lanes, np.uint64(1), 8, 4)
    run(instructions, traces, Result(out.ctypes.data, origins.ctypes.data, out.strides[0]), memory)
    return out, origins


def _leaf_of_load(program: Program) -> Ints:
    return np.array([key for key, _, _ in program.loads] or [0], dtype=np.int64)


def _tagged(values: Floats) -> NDArray[np.uint64]:
    """float32 numbers without origin as tagged numbers: see `vector_kernels.pack`."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.int64)
    ordered = (bits ^ (0x80000000 | -(bits >> 31))) & 0xFFFFFFFF
    return (ordered.astype(np.uint64) << np.uint64(32)) | np.uint64(_NO_ORIGIN)


# ---------------------------------------------------------------- what a run takes


def _viewed(lowered: Lowered, rows: int, lengths: Ints | None) -> tuple[Lowered, int, bool]:
    """What to run, on how many samples, and whether samples past the end of a trace must be masked."""
    lowered, more = lowered.viewed(rows)
    return lowered, rows + more, lengths is not None or lowered.semantics.end != "clip"


def _rows_of_memory(program: Program, run_rows: int) -> int:
    """Rows that the registers, states and buffers of a block take."""
    return program.registers + len(program.initial) + program.buffers * run_rows


def _lanes(rows: int, worlds: int, size: int) -> int:
    """Traces side by side, so that ``rows`` numbers for each fit the cache."""
    if worlds == 1:
        return 1
    fit = _CACHE // (max(rows, 1) * size) // _ALIGN * _ALIGN
    return int(min(max(fit, _ALIGN), 512, -(-worlds // _ALIGN) * _ALIGN))


def _ends(shape: tuple[int, int], lanes: int, lengths: Ints | None) -> Ints:
    """[worlds + lanes] samples of each trace."""
    ends = np.full(shape[1] + lanes, shape[0], dtype=np.int64)
    if lengths is not None:
        ends[: shape[1]] = lengths
    return ends


def _loads(program: Program, arrays: Any, flat: bool) -> tuple[Ints, list[Floats]]:
    """Where LOAD reads, [K, 3], and the arrays that must live as long as it does. ``flat``: signals by component."""
    loads = np.zeros((max(1, len(program.loads)), 3), dtype=np.int64)
    held: dict[Any, Floats] = {}
    for k, (key, _, _) in enumerate(program.loads):
        name, offset = key if flat else (key, 0)
        if name not in held:
            held[name] = _strided(arrays[name])
        x = held[name]
        loads[k] = x.ctypes.data + offset * x.itemsize, x.strides[0], x.strides[1] // x.itemsize
    return loads, list(held.values())


def _strided(array: Floats) -> Floats:
    """``array`` [T, N, *shape], copied if the numbers of a sample are not contiguous or strides not whole numbers."""
    packed = array.itemsize
    for axis in range(array.ndim - 1, 1, -1):
        if array.shape[axis] > 1 and array.strides[axis] != packed:
            return np.ascontiguousarray(array)
        packed *= array.shape[axis]
    whole = array.strides[1] % array.itemsize == 0 and array.flags.aligned and array.dtype.isnative
    return array if whole else np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))


@lru_cache(maxsize=512)
def _typed(program: Program, dtype: Any) -> tuple[Instructions, Floats, Floats]:
    """The instructions of a program with numbers of ``dtype``, and the signs and offsets of its loads."""
    signs, offsets = (np.array([entry[i] for entry in program.loads] or [0.0], dtype=dtype) for i in (1, 2))
    return Instructions(
        program.code, program.passes, np.array([r for r, _ in program.constants], dtype=np.int64),
        np.array([v for _, v in program.constants], dtype=dtype), np.array(program.masks, dtype=dtype),
        program.initial.astype(dtype), program.registers, program.root), signs, offsets


def _memory(program: Program, run_rows: int, lanes: int, one: Any, size: int, outer: int) -> tuple[Any, Memory]:
    """Memory for one run, and the array that holds it."""
    held, work = _aligned(_rows_of_memory(program, run_rows) * lanes, size)
    return held, Memory(work, lanes, np.zeros(program.counters + 1, np.int64), np.zeros(program.places, np.int64), one,
                        size, outer)


def _aligned(count: int, size: int) -> tuple[Any, int]:
    """Memory for ``count`` numbers of ``size`` bytes, and its address at the start of a cache line."""
    raw = np.empty(count * size + 64, dtype=np.uint8)
    return raw, -(-raw.ctypes.data // 64) * 64
