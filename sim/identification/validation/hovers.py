"""Whole manoeuvres of a flight: from one hover to the next. What is not measured for a moment is bridged there: most
flights are not measured without any gap for long."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from temporeal.sim.identification.record import WARM_S, FlightRecord, Marks
from temporeal.sim.identification.validation.stretches import Stretches, stride_of

STILL_M_S, STILL_RAD_S = 0.25, 1.5
"""Slower than which a robot hovers."""
LONG_S, SHORTEST_S = 0.3, 1.0
"""For how long, at least; and a manoeuvre."""


BRIDGED_S = 0.15
"""The longest gap of a source over which its straight line is taken, in long predictions alone."""


def bridged(record: FlightRecord) -> FlightRecord:
    """The record of which gaps of up to :data:`BRIDGED_S` count as measured."""
    usable = record.usable.copy()
    for first, last in runs(~usable):
        inside = first > 0 and last < len(usable) - 1
        if inside and (last - first + 1) * record.step <= BRIDGED_S:
            usable[first : last + 1] = True
    return replace(record, usable=usable, begin=record.first)


def between(record: FlightRecord) -> list[Stretches]:
    """The manoeuvres in which all is measured: each begins in the last moment of a hover and ends in the first of the
    next; a flight without two hovers has none."""
    assert record.velocity is not None
    still = (np.linalg.norm(record.velocity, axis=1) < STILL_M_S) & (
        np.linalg.norm(record.rates, axis=1) < STILL_RAD_S) & record.usable
    long = [(first, last) for first, last in runs(still) if (last - first) * record.step >= LONG_S]
    stride, out = stride_of(record), []
    for (_, begin), (end, _) in zip(long, long[1:]):
        steps = (end - begin) // stride
        if steps * stride * record.step >= SHORTEST_S and record.usable[begin : end + 1].all() and (
                begin * record.step >= WARM_S):
            out.append(Stretches(record, np.array([begin]), steps, stride))
    return out


def runs(marks: Marks) -> list[tuple[int, int]]:
    """First and last sample of each run of marks."""
    edges = np.diff(np.concatenate([[0], marks.astype(int), [0]]))
    return list(zip(np.flatnonzero(edges == 1).tolist(), (np.flatnonzero(edges == -1) - 1).tolist()))
