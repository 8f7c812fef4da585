"""Flies a recording again: the real controller and guard, in fake time, on the raw bytes that were recorded.

The controller publishes with every step (``policy/step``), the guard with every command (``guard/command``), which
messages it was made of. The order in which a third process received them does not matter: each node gets the messages
by the recorder's time, but the one behind a step always before it, and the next one after it. Steps are made when the
recording says, whatever the node's own schedule. The controller sends the beginning and the end of a mission together
with a command: the guard gets them when the recorded one did. A step that led to no command came before its turn; it is
made at the earliest possible time (:func:`temporeal_bridge.replay.timing.made_at`). Everything else is up to the nodes:
what is proposed, what is limited, when a flight is stopped and how.

A policy that gives chunks was run by a worker. The controller publishes the observation of each used chunk and its
arrival (``policy/chunk``): chunks are inferred again from those observations, compared, and taken in at those times.

A guard that was asked to end (Ctrl-C) publishes an event, and is asked at that time. An operator's stop of which the
bag has the event only is made at the time of the event, so that the rest can be compared; but it is counted, and the
flight differs: nobody in the bag has asked for it.

Not repeated: what the bag lacks (a second publisher of commands, a deactivation), how long a step took, and how fast a
worker was. A stop that the guard finds by its clock (a stale state, a silent controller) is found within a tick: a
command more or less may be sent. How old a state was then is known by the recorder's time only, which may have stood
still: the guard's own commands may differ by that. How long the robot had rested before the bag began is unknown: of a
mission that starts in its first 0.2 s it is taken for long enough, for the recorded guard let it start.

The autopilot's status comes from the bag, so the guard arms and waits as it did; the start that was void until then is
made again, too. Requests to the autopilot are not compared. Where another artifact took over in flight
(:mod:`temporeal_bridge.guard.artifact_swap`), the flight is compared up to that step, and mixed commands are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.interface.interface import Interface, armed_by
from temporeal_bridge.recording import flight_log
from temporeal_bridge.recording.bags import BagError, Recording, full_name
from temporeal_bridge.recording.flight_log import RecordedFlight
from temporeal_bridge.recording.records import remarks
from temporeal_bridge.replay.chunks import compared_chunks, inferred_again
from temporeal_bridge.replay.comparison import TOLERANCE, Replay, compared
from temporeal_bridge.replay.cues import INPUTS
from temporeal_bridge.replay.stage import ReplayStage

READ_TOPICS = ("policy/step", "guard/command", "guard/event", "guard/artifact", "mission", "guard/swap", "policy/chunk")


def needed(interface: Interface, namespace: str) -> Callable[[str], bool]:
    """Which topics of a bag a replay reads."""
    pilot = interface.autopilot
    rows = [] if pilot is None else [row for row in (pilot.status, pilot.orders) if row is not None]
    topics = (*(row.topic for row in (*interface.topics, *rows)), *INPUTS, *READ_TOPICS)
    return {full_name(topic, namespace) for topic in topics}.__contains__


def replay(
    recording: Recording, artifact: Artifact, robot: RobotSpec, interface: Interface, namespace: str,
    tolerance: float = TOLERANCE,
) -> Replay:
    """Fly every flight of a recording again with ``artifact`` and report what differs."""
    found, partial, unread = flight_log.flights(recording, namespace)
    recorded, refused = [f for f in found if not f.refusal], [f.refusal for f in found if f.refusal]
    if not recorded:
        raise BagError("; ".join([
            f"{recording.path} has no flight of {namespace}" + ("" if refused else ": no control step on policy/step"),
            *([f"{partial} began before it"] if partial else []), *refused, *remarks(unread)]))
    if artifact.manifest.chunk is not None:
        whole = [flight for flight in recorded if flight.chunks and flight.chunks[0].number == 0]
        partial, recorded = partial + len(recorded) - len(whole), whole
        if not recorded:
            raise BagError(f"{artifact.manifest.name} gives chunks, and {recording.path} has no flight of {namespace} "
                           "with its first one on policy/chunk: it was recorded by an earlier version, lost it, or "
                           "another artifact was flown")
    starts = [start for flight in recorded for start in (*flight.void, flight)]
    made = None if artifact.manifest.chunk is None else inferred_again(
        recording, artifact, interface, namespace, starts)
    stage = ReplayStage(
        recording, artifact, robot, armed_as(interface, recording, namespace), namespace, starts, made)
    stage.play()
    again = flight_log.flights(stage.published, namespace).found
    out = []
    for i, flight in enumerate(starts):
        if not any(flight is each for each in recorded):
            continue
        last = flight is recorded[-1] and bool(recording.cut)
        row = replace(compared(flight, counterpart(flight, again), stage.guessed[i], tolerance, open_end=last),
                      unasked=stage.unasked[i])
        out.append(row if made is None else replace(
            row, chunks=compared_chunks(flight.chunks, made[i], tolerance),
            unmade=sum(rows is None for rows in made[i]),
            unrecorded=flight.chunks[-1].number + 1 - len(flight.chunks)))
    return Replay(out, partial, recording.cut, unread, refused)


def counterpart(flight: RecordedFlight, again: list[RecordedFlight]) -> RecordedFlight:
    """The replayed flight with the same time zero, to 1 ms; an empty one where there is none."""
    ms = flight.start_ns // 1_000_000
    return next((other for other in again if abs(other.start_ns // 1_000_000 - ms) <= 1),
                RecordedFlight(flight.number, flight.start_ns))


def armed_as(interface: Interface, recording: Recording, namespace: str) -> Interface:
    """The interface with the rule for arming that was flown (``--arm``, which the bag does not say): we armed the
    autopilot if the bag has orders to it."""
    pilot = interface.autopilot
    if pilot is not None and not recording.of(full_name(pilot.status.topic, namespace)):
        raise BagError(f"{recording.path} has no message on {full_name(pilot.status.topic, namespace)}, the "
                       "autopilot's status: without it no guard flies")
    if pilot is None or pilot.orders is None:
        return interface
    return armed_by(interface, "ask" if recording.of(full_name(pilot.orders.topic, namespace)) else "never")
