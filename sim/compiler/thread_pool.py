"""A thread pool for compiled calls: threads share the chunks of one call after another, without Python in between.

A step of many worlds lasts some tens of microseconds, as long as it takes to hand work to a sleeping Python thread. The
threads of a :class:`ThreadPool` therefore watch a queue in shared memory for the next call, inside a compiled loop and
without the interpreter's lock. They go to sleep only when no call has come for a while (:data:`LOOKS_BEFORE_SLEEP`).

What they run is one compiled function, the *work loop*; worker 0 is the caller's thread:

    call = next_call(queue, worker, 0)
    while call:
        chunk = claim(queue, call, worker)
        while chunk >= 0:
            ...                 # items from chunk * queue[SIZE] on, queue[SIZE] at most, by the numbers in queue[JOB:]
            finish(queue)
            chunk = claim(queue, call, worker)
        call = next_call(queue, worker, call)

Each worker has its own range of chunks, so that its processor's cache stays warm, and then helps the others. A thread
that sleeps or has no processor costs its help, not the result: the others take its chunks.
"""

from __future__ import annotations

import os
import platform
import struct
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

LINE = 8  # int64 words in a cache line: what different threads write lies on different lines
CALL = 0  # number of the present call
DONE = LINE  # its chunks that are finished
WORKERS = 2 * LINE
CHUNKS, SIZE = 2 * LINE + 1, 2 * LINE + 2  # of the present call; items in a chunk
JOB = 2 * LINE + 3  # [5] numbers of the work loop
OWN = 3 * LINE  # a line per worker
NEXT, END, AWAKE = 0, 1, 2  # on it: call << 32 | next chunk to claim, end of the range, whether it watches the queue

SMALLEST, LARGEST = 32, 128  # items in a chunk: some microseconds of work, a share of a processor's cache
CHUNKS_PER_WORKER = 4  # so that others can take over from a late worker
LOOKS_BEFORE_SLEEP = 2_000  # at the queue, by a thread without work: 0.05 to 0.1 ms
LOOKS_BEFORE_YIELD = 2_000  # by the caller, before it yields its processor while others finish
_CHUNK = 0xFFFFFFFF


# --- memory that several threads change ---


def _word(context, builder, queue, array, index):
    return builder.gep(context.make_array(queue)(context, builder, array).data, [index])


@intrinsic
def _read(typing, queue, i):
    """``queue[i]``; what was written before it is visible after it."""

    def generate(context, builder, sig, args):
        return builder.load_atomic(_word(context, builder, queue, *args), "acquire", 8)

    return types.int64(queue, types.intp), generate


@intrinsic
def _write(typing, queue, i, value):
    """``queue[i] = value``; what was written before is visible to who reads it."""

    def generate(context, builder, sig, args):
        builder.store_atomic(args[2], _word(context, builder, queue, *args[:2]), "release", 8)
        return context.get_dummy_value()

    return types.void(queue, types.intp, types.int64), generate


@intrinsic
def _replace(typing, queue, i, old, new):
    """``queue[i] = new`` if it is ``old``; whether it was."""

    def generate(context, builder, sig, args):
        word = _word(context, builder, queue, *args[:2])
        return builder.extract_value(builder.cmpxchg(word, args[2], args[3], "acq_rel", "acquire"), 1)

    return types.boolean(queue, types.intp, types.int64, types.int64), generate


@intrinsic
def _increase(typing, queue, i):
    """``queue[i] += 1``."""

    def generate(context, builder, sig, args):
        word = _word(context, builder, queue, *args)
        builder.atomic_rmw("add", word, ir.Constant(ir.IntType(64), 1), "acq_rel")
        return context.get_dummy_value()

    return types.void(queue, types.intp), generate


@intrinsic
def _pause(typing):
    """Tell the processor, where it has a word for it, that this is a loop that waits."""

    def generate(context, builder, sig, args):
        if platform.machine() in ("x86_64", "AMD64"):
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def _pointer(typing, address):
    def generate(context, builder, sig, args):
        return builder.inttoptr(args[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), generate


_yield_processor = types.ExternalFunction("sched_yield", types.int32())


# --- for work loops ---


@njit(nogil=True, error_model="numpy")
def floats(address, size):
    """The ``size`` float32 at ``address`` as an array that does not keep them alive."""
    return carray(_pointer(address), (size,), np.float32)


@njit(nogil=True, error_model="numpy")
def next_call(queue, worker, call):
    """Number of the next call after ``call``; 0 where this worker has to leave the work loop."""
    if worker == 0:
        if call == 0:
            return _open_call(queue)
        looks = 0
        while _read(queue, DONE) < queue[CHUNKS]:
            _pause()
            looks += 1
            if looks > LOOKS_BEFORE_YIELD:
                _yield_processor()
        return 0
    for _ in range(LOOKS_BEFORE_SLEEP):
        number = _read(queue, CALL)
        if number != call:
            return number
        _pause()
    _write(queue, OWN + worker * LINE + AWAKE, 0)
    return 0


@njit(nogil=True, error_model="numpy")
def _open_call(queue):
    chunks, workers = queue[CHUNKS], queue[WORKERS]
    number = queue[CALL] % 0x7FFFFFFE + 1
    queue[DONE] = 0
    for worker in range(workers):
        own = OWN + worker * LINE
        queue[own + END] = chunks * (worker + 1) // workers
        _write(queue, own + NEXT, number << 32 | chunks * worker // workers)
    _write(queue, CALL, number)
    return number


@njit(nogil=True, error_model="numpy")
def claim(queue, call, worker):
    """A chunk of ``call`` that no other worker has, from the own range first; -1 where none is left."""
    workers = queue[WORKERS]
    for k in range(workers):
        own = OWN + (worker + k) % workers * LINE
        while True:
            word = _read(queue, own + NEXT)
            if word >> 32 != call or word & _CHUNK >= queue[own + END]:
                break
            if _replace(queue, own + NEXT, word, word + 1):
                return word & _CHUNK
    return -1


@njit(nogil=True, error_model="numpy")
def finish(queue):
    """A claimed chunk is done."""
    _increase(queue, DONE)


# --- for their caller ---


class ThreadPool:
    """Runs ``work_loop(queue, worker, *arguments)`` on ``threads`` threads, one of them the caller's.

    Args:
        threads: 0 takes every core this process may use.
        work_loop: a compiled function that releases the interpreter's lock (see the module).
        arguments: arrays and numbers that stay the same from call to call.
    """

    def __init__(self, threads: int, work_loop: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        if threads < 0:
            raise ValueError(f"threads is {threads}; it must be 0 (every core) or more")
        self.count = threads or len(os.sched_getaffinity(0))
        self.queue = np.zeros(OWN + LINE * (self.count + 1), dtype=np.int64)
        self.queue[WORKERS] = self.count
        self._work_loop, self._arguments = work_loop, arguments
        self._wake_locks: list[threading.Lock] = []  # one per thread, held while it is to sleep
        self.close = weakref.finalize(self, _stop, self.queue, self._wake_locks)

    def __call__(self, items: int, *job: int) -> None:
        """Run the work loop over ``items`` items with the numbers ``job`` in the queue."""
        if not self.close.alive:
            raise RuntimeError("this backend is closed: make a new one")
        size = min(max(-(-items // (CHUNKS_PER_WORKER * self.count)), SMALLEST), LARGEST)
        chunks = -(-items // size)
        struct.pack_into(f"{2 + len(job)}q", self.queue, 8 * CHUNKS, chunks, size, *job)
        if chunks > 1 and self.count > 1:
            self._wake()
        self._work_loop(self.queue, 0, *self._arguments)

    def _wake(self) -> None:
        if not self._wake_locks:
            self._start_threads()
        for worker, lock in enumerate(self._wake_locks, 1):
            if not self.queue[OWN + worker * LINE + AWAKE]:
                self.queue[OWN + worker * LINE + AWAKE] = 1
                lock.release()

    def _start_threads(self) -> None:
        for worker in range(1, self.count):
            lock = threading.Lock()
            lock.acquire()
            self._wake_locks.append(lock)
            work = self.queue, worker, lock, self._work_loop, self._arguments
            threading.Thread(target=_work, args=work, name=f"pool-{worker}", daemon=True).start()


def _work(
    queue: np.ndarray, worker: int, lock: threading.Lock, work_loop: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    """What a thread of a pool does. It does not refer to the pool, so that the pool can be garbage-collected."""
    while True:
        lock.acquire()
        if queue[WORKERS] == 0:
            return
        work_loop(queue, worker, *arguments)


def _stop(queue: np.ndarray, wake_locks: list[threading.Lock]) -> None:
    queue[WORKERS] = 0
    for lock in wake_locks:
        if lock.locked():
            lock.release()
