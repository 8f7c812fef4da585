"""When things happened: which message each step was made of, and when each node must get it. Pure functions."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import inf

from temporeal_bridge.recording.bags import Message
from temporeal_bridge.recording.flight_log import RecordedFlight
from temporeal_bridge.recording.records import Row

AT_ONCE_NS = 2_000_000  # between the reason and the first command of the stop action, where that does not wait
ASKED_S = (-0.005, 0.05)  # from the recording of a request to the event that it led to

TimedRow = tuple[int, int, Row]
"""Time [ns], index of the flight, row."""


def delivery(at: Sequence[int], used: Sequence[int], when: Sequence[int]) -> list[tuple[int, int]]:
    """When each message of a topic is given to a node: (time [ns], 0 before a record of that time, 2 after it).

    Args:
        at: when each was recorded.
        used: for each record of the node, in order, the newest message behind it; -1: none. Never falls.
        when: time of each record.
    """
    out = []
    for i, time in enumerate(at):
        r = bisect_left(used, i)  # the first record that has this message
        floor, ceiling = when[r - 1] if r else -inf, when[r] if r < len(used) else inf
        if time >= ceiling:
            out.append((int(ceiling), 0))
        elif time <= floor:
            out.append((int(floor), 2))
        else:
            out.append((time, 0))
    for i in range(len(out) - 2, -1, -1):  # in the order in which they were recorded
        out[i] = min(out[i], out[i + 1])
    return out


def uses(at: Sequence[int], marks: Sequence[int], wanted: Sequence[int], when: Sequence[int]) -> tuple[list[int], int]:
    """For each record the index of the message with its mark, nearest in time and not before that of the record before;
    and how many were not found: those keep the one before."""
    places: dict[int, list[int]] = {}
    for i, found in enumerate(marks):
        places.setdefault(found, []).append(i)
    out, last, missing = [], -1, 0
    for target, time in zip(wanted, when):
        near = [i for i in places.get(target, ()) if i >= last]
        if near:
            last = min(near, key=lambda i: abs(at[i] - time))
        elif target:
            missing += 1
        out.append(last)
    return out, missing


def made_at(flight: RecordedFlight) -> list[float]:
    """When each step of the controller is made again [s since the guard's mission began].

    A mission begins for the guard when it hears of it, about 0.1 ms after the controller's own zero. On the guard's
    clock a step is not later than the command that it led to. A step that led to none came before its turn, at an
    unrecorded time: no sooner than the quickest proposal of this flight, so that it is before its turn again.
    """
    heard = {row.step: row.at for row in flight.basis if row.step >= 0}
    quickest = min((heard[row.step] - row.at for row in flight.steps if row.step in heard), default=0.0)
    at, out = inf, list[float]()
    for row in reversed(flight.steps):
        begins = row.step == row.missed  # with chunks, ``at`` is somewhat later than the beginning
        at = 0.0 if begins else min(at, row.at, heard.get(row.step, row.at + quickest))
        out.append(at)
    return out[::-1]


def led_to(message: Message, event: int, shifts: Sequence[int]) -> bool:
    """Whether a message can have led to an event [ns]. ``shifts``: of the recorder's clock in that flight [ns]."""
    return any(ASKED_S[0] <= 1e-9 * (event - (message.at - shift)) <= ASKED_S[1] for shift in shifts)


def acted(event: int, commands: Sequence[TimedRow], late: int) -> int:
    """When the guard acted on an event [ns]: it publishes the event after it has begun its stop, whose first command
    has a recorded time. ``late``: longest time from that command to the event [ns]."""
    first = [at for (_, _, before), (at, _, row) in zip(commands, commands[1:])
             if before.step >= 0 > row.step and 0 <= event - at < late]
    own = first or [at for at, _, row in commands if row.step < 0 and abs(at - event) < AT_ONCE_NS]
    return min(own, key=lambda at: abs(at - event), default=event)


def ended_silent(flight: RecordedFlight) -> bool:
    """Whether the controller was to be silent after the mission: then the guard goes from active to finished."""
    names = [mode for _, mode in flight.modes]
    return any(pair == ("active", "finished") for pair in zip(names, names[1:]))
