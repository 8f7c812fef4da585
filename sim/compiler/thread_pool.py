"""Threads that share the chunks of one compiled call after another, without Python between the calls.

A step of many worlds lasts some tens of microseconds, as long as it takes to hand work to a sleeping Python thread. The
threads of a :class:`Crew` therefore watch a *box* in memory for the next call, inside a compiled loop and without the
interpreter's lock, and only go to sleep when none has come for a while (:data:`PATIENCE`).

What they run is one compiled function, the *drive*; seat 0 is the caller's:

    call = next_call(box, seat, 0)
    while call:
        chunk = claim(box, call, seat)
        while chunk >= 0:
            ...                 # items from chunk * box[SIZE] on, box[SIZE] at most, by the numbers in box[JOB:]
            finish(box)
            chunk = claim(box, call, seat)
        call = next_call(box, seat, call)

Each seat has its own range of chunks, so that what a processor holds in its cache stays with it, and then helps the
others. A thread that is asleep or has no processor just now costs its help, not the result: the others take its chunks.
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
SEATS = 2 * LINE
CHUNKS, SIZE = 2 * LINE + 1, 2 * LINE + 2  # of the present call; items in a chunk
JOB = 2 * LINE + 3  # [5] the drive's own numbers
OWN = 3 * LINE  # a line per seat
NEXT, END, AWAKE = 0, 1, 2  # on it: call << 32 | next chunk to claim, end of the range, whether it watches the box

SMALLEST, LARGEST = 32, 128  # items in a chunk: some microseconds of work, a share of a processor's cache
CHUNKS_PER_SEAT = 4  # so that others can take over from who is late
PATIENCE = 2_000  # looks at the box before a thread goes to sleep: 0.05 to 0.1 ms
HURRY = 2_000  # looks before the caller gives its processor away while others finish
_CHUNK = 0xFFFFFFFF


# --- memory that several threads change ---


def _word(context, builder, box, array, index):
    return builder.gep(context.make_array(box)(context, builder, array).data, [index])


@intrinsic
def _read(typing, box, i):
    """``box[i]``; what was written before it is visible after it."""

    def generate(context, builder, sig, args):
        return builder.load_atomic(_word(context, builder, box, *args), "acquire", 8)

    return types.int64(box, types.intp), generate


@intrinsic
def _write(typing, box, i, value):
    """``box[i] = value``; what was written before is visible to who reads it."""

    def generate(context, builder, sig, args):
        builder.store_atomic(args[2], _word(context, builder, box, *args[:2]), "release", 8)
        return context.get_dummy_value()

    return types.void(box, types.intp, types.int64), generate


@intrinsic
def _replace(typing, box, i, old, new):
    """``box[i] = new`` if it is ``old``; whether it was."""

    def generate(context, builder, sig, args):
        word = _word(context, builder, box, *args[:2])
        return builder.extract_value(builder.cmpxchg(word, args[2], args[3], "acq_rel", "acquire"), 1)

    return types.boolean(box, types.intp, types.int64, types.int64), generate


@intrinsic
def _increase(typing, box, i):
    """``box[i] += 1``."""

    def generate(context, builder, sig, args):
        word = _word(context, builder, box, *args)
        builder.atomic_rmw("add", word, ir.Constant(ir.IntType(64), 1), "acq_rel")
        return context.get_dummy_value()

    return types.void(box, types.intp), generate


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


_give_way = types.ExternalFunction("sched_yield", types.int32())


# --- for drives ---


@njit(nogil=True, error_model="numpy")
def floats(address, size):
    """The ``size`` float32 at ``address`` as an array that does not keep them alive."""
    return carray(_pointer(address), (size,), np.float32)


@njit(nogil=True, error_model="numpy")
def next_call(box, seat, call):
    """Number of the next call after ``call``; 0 where this seat has to leave the drive."""
    if seat == 0:
        if call == 0:
            return _open_call(box)
        looks = 0
        while _read(box, DONE) < box[CHUNKS]:
            _pause()
            looks += 1
            if looks > HURRY:
                _give_way()
        return 0
    for _ in range(PATIENCE):
        number = _read(box, CALL)
        if number != call:
            return number
        _pause()
    _write(box, OWN + seat * LINE + AWAKE, 0)
    return 0


@njit(nogil=True, error_model="numpy")
def _open_call(box):
    chunks, seats = box[CHUNKS], box[SEATS]
    number = box[CALL] % 0x7FFFFFFE + 1
    box[DONE] = 0
    for seat in range(seats):
        own = OWN + seat * LINE
        box[own + END] = chunks * (seat + 1) // seats
        _write(box, own + NEXT, number << 32 | chunks * seat // seats)
    _write(box, CALL, number)
    return number


@njit(nogil=True, error_model="numpy")
def claim(box, call, seat):
    """A chunk of ``call`` that no other seat has, from the own range first; -1 where none is left."""
    seats = box[SEATS]
    for k in range(seats):
        own = OWN + (seat + k) % seats * LINE
        while True:
            word = _read(box, own + NEXT)
            if word >> 32 != call or word & _CHUNK >= box[own + END]:
                break
            if _replace(box, own + NEXT, word, word + 1):
                return word & _CHUNK
    return -1


@njit(nogil=True, error_model="numpy")
def finish(box):
    """A claimed chunk is done."""
    _increase(box, DONE)


# --- for their caller ---


class Crew:
    """Runs ``drive(box, seat, *arguments)`` on ``threads`` threads, one of them the caller's.

    Args:
        threads: 0 takes every core this process may use.
        drive: a compiled function that releases the interpreter's lock (see the module).
        arguments: arrays and numbers that stay the same from call to call.
    """

    def __init__(self, threads: int, drive: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        if threads < 0:
            raise ValueError(f"threads is {threads}; it must be 0 (every core) or more")
        self.count = threads or len(os.sched_getaffinity(0))
        self.box = np.zeros(OWN + LINE * (self.count + 1), dtype=np.int64)
        self.box[SEATS] = self.count
        self._drive, self._arguments = drive, arguments
        self._bells: list[threading.Lock] = []
        self.close = weakref.finalize(self, _dismiss, self.box, self._bells)

    def __call__(self, items: int, *job: int) -> None:
        """Run the drive over ``items`` items with the numbers ``job`` in the box."""
        if not self.close.alive:
            raise RuntimeError("this backend is closed: make a new one")
        size = min(max(-(-items // (CHUNKS_PER_SEAT * self.count)), SMALLEST), LARGEST)
        chunks = -(-items // size)
        struct.pack_into(f"{2 + len(job)}q", self.box, 8 * CHUNKS, chunks, size, *job)
        if chunks > 1 and self.count > 1:
            self._wake()
        self._drive(self.box, 0, *self._arguments)

    def _wake(self) -> None:
        if not self._bells:
            self._hire()
        for seat, bell in enumerate(self._bells, 1):
            if not self.box[OWN + seat * LINE + AWAKE]:
                self.box[OWN + seat * LINE + AWAKE] = 1
                bell.release()

    def _hire(self) -> None:
        for seat in range(1, self.count):
            bell = threading.Lock()
            bell.acquire()
            self._bells.append(bell)
            work = self.box, seat, bell, self._drive, self._arguments
            threading.Thread(target=_attend, args=work, name=f"crew-{seat}", daemon=True).start()


def _attend(
    box: np.ndarray, seat: int, bell: threading.Lock, drive: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    """What a thread of a crew does; it does not refer to the crew, so that the crew can be forgotten."""
    while True:
        bell.acquire()
        if box[SEATS] == 0:
            return
        drive(box, seat, *arguments)


def _dismiss(box: np.ndarray, bells: list[threading.Lock]) -> None:
    box[SEATS] = 0
    for bell in bells:
        if bell.locked():
            bell.release()
