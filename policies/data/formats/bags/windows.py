"""Which parts of a bag are episodes: the whole bag, the missions of its guard, or times that a user gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.formats.bags.rows import Bag, Rows
from temporeal.robots.handed_over.files import MIB, read_text
from temporeal_bridge.recording import records
from temporeal_bridge.recording.bags import full_name

BAG, MISSION = "bag", "mission"
MISSION_TOPIC, VERDICT_TOPIC = "mission", "monitor/verdict"
VERDICTS = {"satisfied": True, "violated": False}


@dataclass(frozen=True)
class Window:
    """A part of a bag. ``begin_s``, ``end_s``: since the bag's start; ``name``: for messages."""

    name: str
    begin_s: float
    end_s: float
    language: str = ""
    success: bool | None = None
    info: Mapping[str, Any] = field(default_factory=dict)


def topics_for(episodes: str, namespace: str) -> list[str]:
    """Topics that tell where episodes begin and end."""
    return [full_name(topic, namespace) for topic in (MISSION_TOPIC, VERDICT_TOPIC)] if episodes == MISSION else []


def windows(bag: Bag, episodes: str, namespace: str, language: str) -> list[Window]:
    """The episodes of a bag; ``episodes``: ``bag``, ``mission``, or a CSV file of times."""
    length = (bag.end_ns - bag.start_ns) / 1e9
    if episodes == BAG:
        return [Window("the whole bag", 0.0, length, language)]
    if episodes == MISSION:
        return missions(bag, namespace, language, length)
    return given(Path(episodes), language)


def missions(bag: Bag, namespace: str, language: str, length: float) -> list[Window]:
    """The missions of the guard: each while it was active. The monitor's verdict says whether one succeeded."""
    states = bag.rows.get(full_name(MISSION_TOPIC, namespace))
    if states is None:
        raise DataError(f"{bag.path} has no topic {full_name(MISSION_TOPIC, namespace)}: it was recorded without a "
                        "guard; --episodes bag takes it whole")
    verdicts = verdicts_of(bag.rows.get(full_name(VERDICT_TOPIC, namespace)))
    begun: dict[int, float] = {}
    ended: dict[int, float] = {}
    for at, status in read(states, MISSION_TOPIC):
        since = (at - bag.start_ns) / 1e9
        if status.mode == "active":
            begun.setdefault(status.number, since)
        for number in begun:
            if status.number != number or status.mode != "active":
                ended.setdefault(number, since)
    if not begun:
        raise DataError(f"{bag.path} has no mission: its guard was never active")
    return [Window(f"mission {number}", begin, ended.get(number, length), language, verdicts.get(number),
                   {"mission": number}) for number, begin in begun.items()]


def verdicts_of(rows: Rows | None) -> dict[int, bool]:
    """Whether each mission satisfied its formula, where that was decided."""
    found = {} if rows is None else {told["flight"]: told["verdict"] for _, told in read(rows, VERDICT_TOPIC)}
    return {number: VERDICTS[verdict] for number, verdict in found.items() if verdict in VERDICTS}


def read(rows: Rows, topic: str) -> list[tuple[int, Any]]:
    """(receipt [ns], content) of each message that a node of ours can have published."""
    out = []
    for at, data in zip(rows.received, rows.data):
        try:
            out.append((at, records.read(topic, _Encoded(rows.type, data))))
        except records.RecordError:
            continue
    return out


@dataclass(frozen=True)
class _Encoded:
    type: str
    data: bytes


def given(file: Path, language: str) -> list[Window]:
    """Times from a CSV file: begin and end [s since the bag's start], perhaps an instruction; a header may be there."""
    out: list[Window] = []
    for number, line in enumerate(read_text(file, MIB).splitlines(), start=1):
        begin, _, rest = line.partition(",")
        end, _, told = rest.partition(",")
        try:
            times = float(begin), float(end)
        except ValueError:
            if number == 1 or not line.strip():
                continue
            raise DataError(
                f"{file}, line {number}: {line[:60]!r}; begin,end[,instruction] in seconds is needed") from None
        if not 0.0 <= times[0] < times[1]:
            raise DataError(f"{file}, line {number}: an episode from {times[0]:g} to {times[1]:g} s; 0 <= begin < end "
                            "is needed")
        out.append(Window(f"line {number}", *times, told.strip() or language, None, {"line": number}))
    if not out:
        raise DataError(f"{file} has no episode: lines of begin,end[,instruction] are needed")
    return out
