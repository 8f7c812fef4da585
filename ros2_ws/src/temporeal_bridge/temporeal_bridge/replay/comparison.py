"""What differs between a recorded flight and its replay."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from temporeal_bridge.mission import IDLE
from temporeal_bridge.recording.flight_log import RecordedFlight
from temporeal_bridge.recording.records import Unread

TOLERANCE = 1e-5  # of each component of a command, in its unit
SWAPS = ("swap", "swap_refused", "swapped")  # codes of events that only a successor can cause


@dataclass(frozen=True)
class Compared:
    """Commands of one kind, recorded against replayed.

    Args:
        count: number of compared commands.
        differing: those of them that differ by more than the tolerance in some component.
        largest: greatest difference [A]; infinite where the length differs or a number is not finite on one side only.
        first: step of the first one that differs, None: none does. For the guard's own commands and for chunks: the
            number of commands or chunks before it.
        missing: recorded, and not replayed.
        extra: replayed, and not recorded.
    """

    count: int
    differing: int
    largest: tuple[float, ...]
    first: int | None
    missing: int
    extra: int

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not (self.differing or self.missing or self.extra)


@dataclass(frozen=True)
class FlightReplay:
    """One flight, recorded against replayed.

    Args:
        modes, events: (recorded, replayed) names of modes and codes of events, in order.
        guessed: steps whose message the bag lacks: they got the one before it.
        lost: the controller's steps that the bag lacks: they got the state of the next recorded one.
        swapped: the last step that was compared, because another artifact took over then; None: all were.
        mixed: steps in which a mix of two controllers was sent, which is not compared.
        chunks: the rows of the used chunks; None: the policy gives single commands.
        unmade: chunks whose observation the bag lacks: they are not compared, and played as recorded.
        unrecorded: used chunks that the bag lacks: the proposals until the next one differ.
        flown_by: the artifact that the flight began with.
        unread: steps after the last replayed one that could not be read as this flight's.
        unasked: stops of the operator without a message in the bag: the recorder missed it, or there was none.
    """

    flight: int
    start_ns: int
    steps: int
    proposed: Compared
    sent: Compared
    own: Compared
    modes: tuple[tuple[str, ...], tuple[str, ...]]
    events: tuple[tuple[str, ...], tuple[str, ...]]
    guessed: int
    lost: int
    swapped: int | None = None
    mixed: int = 0
    flown_by: str = ""
    chunks: Compared | None = None
    unmade: int = 0
    unrecorded: int = 0
    unread: int = 0
    unasked: int = 0

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return (self.proposed.equal and self.sent.equal and self.own.equal
                and (self.chunks is None or (self.chunks.equal and self.chunks.count > 0))
                and self.modes[0] == self.modes[1] and self.events[0] == self.events[1]
                and not self.unread and not self.unasked)


@dataclass(frozen=True)
class Replay:
    """All flights of a robot.

    Args:
        partial: flights that were not replayed, because the bag lacks their beginning (of a policy that gives chunks:
            the first chunk).
        unread: by topic, messages on our topics that are none of ours.
        refused: the guard's reasons for missions that it did not let begin, which were not replayed either.
    """

    flights: list[FlightReplay]
    partial: int
    cut: str
    unread: Mapping[str, Unread] = field(default_factory=dict)
    refused: Sequence[str] = ()

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return all(flight.equal for flight in self.flights)


def compared(
    recorded: RecordedFlight, replayed: RecordedFlight, guessed: int, tolerance: float, open_end: bool = False
) -> FlightReplay:
    """What differs. ``open_end``: the bag ends in this flight; what follows its last command is not compared."""
    last = inf if recorded.swapped is None else recorded.swapped
    until = next((row.at for row in recorded.basis if row.step > last), inf)
    open_end = open_end or until < inf
    held = open_end or (bool(recorded.modes) and recorded.modes[-1][1] == "holding")  # its end is not recorded
    both = [before(flight.sent, last) for flight in (recorded, replayed)]
    proposed = [{step: command for step, command in flight.proposed.items() if step <= last}
                for flight in (recorded, replayed)]
    sent = [{step: command for step, command in part if step >= 0 and step not in recorded.mixed} for part in both]
    own = [dict(enumerate(command for step, command in part if step < 0)) for part in both]
    modes = [until_idle([mode for at, mode in flight.modes if at < until]) for flight in (recorded, replayed)]
    events = [tuple(code for at, code, _ in flight.events if at < until and code not in SWAPS)
              for flight in (recorded, replayed)]
    if open_end:
        modes[1], events[1] = modes[1][: len(modes[0])], events[1][: len(events[0])]
    return FlightReplay(
        recorded.number, recorded.start_ns, len(recorded.steps),
        compare(proposed[0], proposed[1], tolerance, open_end), compare(sent[0], sent[1], tolerance, open_end),
        compare(own[0], own[1], tolerance, held), (modes[0], modes[1]), (events[0], events[1]), guessed, recorded.lost,
        recorded.swapped, len(recorded.mixed), recorded.flown_by, unread=recorded.unread)


def until_idle(modes: Sequence[str]) -> tuple[str, ...]:
    """Modes up to the first in which the guard waits for another mission: later ones are not of this flight."""
    ends = [i for i, mode in enumerate(modes) if mode in IDLE]
    return tuple(modes[: ends[0] + 1] if ends else modes)


def before(sent: Sequence[tuple[int, np.ndarray]], last: float) -> list[tuple[int, np.ndarray]]:
    """The sent commands, the guard's own included, up to step ``last``."""
    end = next((i for i, (step, _) in enumerate(sent) if step > last), len(sent))
    return list(sent[:end])


def compare(
    recorded: Mapping[int, np.ndarray], replayed: Mapping[int, np.ndarray], tolerance: float, open_end: bool = False
) -> Compared:
    """Commands by step."""
    both = sorted(set(recorded) & set(replayed))
    last = max(recorded, default=-1)
    extra = [step for step in replayed if step not in recorded and not (open_end and step > last)]
    difference = [apart(recorded[step], replayed[step]) for step in both]
    size = max((len(row) for row in difference), default=0)
    largest = np.max([np.broadcast_to(row, size) for row in difference], axis=0) if both else np.zeros(0)
    bad = [step for step, row in zip(both, difference) if not row.max(initial=0.0) <= tolerance]
    return Compared(len(both), len(bad), tuple(float(x) for x in largest), bad[0] if bad else None,
                    len(set(recorded) - set(replayed)), len(extra))


def apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|a - b| of two commands [A]: 0 where both are the same infinity or both NaN, infinite where one is not finite."""
    if a.shape != b.shape:
        return np.array([inf])
    with np.errstate(invalid="ignore"):
        out = np.abs(a - b)
    out[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
    return np.where(np.isnan(out), inf, out)


def to_json(found: Replay) -> dict[str, Any]:
    """As plain JSON values."""
    def kind(c: Compared) -> dict[str, Any]:
        return {"compared": c.count, "differing": c.differing, "first": c.first, "missing": c.missing, "extra": c.extra,
                "largest": [x if np.isfinite(x) else None for x in c.largest], "equal": c.equal}

    content: dict[str, Any] = json.loads(json.dumps({
        "equal": found.equal, "cut": found.cut, "partial": found.partial, "barred": list(found.refused),
        "unread": {topic: each.count for topic, each in found.unread.items()}, "flights": [
        {"flight": f.flight, "start_ns": f.start_ns, "steps": f.steps, "equal": f.equal, "proposed": kind(f.proposed),
         "sent": kind(f.sent), "own": kind(f.own), "chunks": None if f.chunks is None else kind(f.chunks),
         "unmade": f.unmade, "unrecorded_chunks": f.unrecorded, "guessed": f.guessed, "lost": f.lost,
         "unread": f.unread, "unasked": f.unasked, "swapped": f.swapped, "mixed": f.mixed, "flown_by": f.flown_by,
         "modes": {"recorded": f.modes[0], "replayed": f.modes[1]},
         "events": {"recorded": f.events[0], "replayed": f.events[1]}} for f in found.flights]}))
    return content
