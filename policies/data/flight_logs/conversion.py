"""A log that was inspected, as episodes on one grid, for ``formats/importing.py`` to write.

Values are those of the log, put onto the grid by the rules of bags (``formats/bags/alignment.py``). Across a gap
nothing is made up: it splits the episode. What was marked stays as the log has it, and the signal ``measured`` says for
each source and sample whether it is a measurement: 1, or 0 for an outlier, an end of scale, a line that somebody drew
between two samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import DataError, Interface
from temporeal.policies.data.flight_logs import nanobench, usdlog
from temporeal.policies.data.flight_logs.flight_log import (
    ALIGNED,
    ATTITUDE,
    COMMAND,
    WRONG,
    FlightLog,
    Marks,
    Numbers,
    Stream,
)
from temporeal.policies.data.flight_logs.inspection import Inspection
from temporeal.policies.data.formats import checks
from temporeal.policies.data.formats.bags.alignment import (
    HOLD,
    SLACK,
    Alignment,
    Places,
    interpolated,
    places,
    rule_of,
    runs,
)
from temporeal.policies.data.formats.found import Reading, Rejected
from temporeal.robots.signals import SignalSpec, schema

MEASURED = "measured"
SHORTEST = 1e-6  # of a quaternion
REAL = (nanobench.KIND, usdlog.KIND)
"""Kinds that no simulator writes."""


def reading_of(inspection: Inspection, rate_hz: float | None = None, gap_s: float | None = None,
               shortest_s: float = 0.5) -> Reading:
    """The episodes of a log.

    Args:
        rate_hz: of the grid; None: that of the fastest source. gap_s: longest time between two samples that is bridged;
            None: three periods of the source. shortest_s: parts that are shorter are left out.
    """
    log = inspection.log
    if log.command is None or not log.signals:
        raise DataError(f"{log.path} has {'no commands' if log.signals else 'nothing but commands'}: a dataset needs "
                        "both; temporeal log inspect reads it as it is")
    align = Alignment(rate_hz or rate_of(log), gap_s=gap_s, shortest_s=shortest_s)
    names = list(log.streams)
    marked = SignalSpec(MEASURED, (len(names),), dtype="uint8")
    interface = Interface(
        log.robot or checks.UNKNOWN_ROBOT, schema(*log.signals.values(), marked), log.command, align.rate_hz,
        simulator="real" if log.kind in REAL else "", about={MEASURED: names})
    return Reading(interface, episodes(inspection, interface, align), log.notes)


def rate_of(log: FlightLog) -> float:
    """Samples per second of the fastest source, to three digits."""
    periods = [stream.period for stream in log.streams.values() if stream.period > 0]
    if not periods:
        raise DataError(f"{log.path}: no source has two samples whose times increase")
    return float(f"{1.0 / min(periods):.3g}")


def verdict_of(inspection: Inspection) -> dict[str, Any]:
    """What of its log an episode's ``info`` keeps: the verdict, what is wrong, the clocks, and how they were moved."""
    clocks = {each.subject: {"status": each.status, "said": each.said, **finite(each.figures)}
              for each in inspection.findings if each.check == "clocks"}
    moved = inspection.log.about.get(ALIGNED)
    return {"verdict": inspection.verdict, "wrong": [f"{each.subject}: {each.said}" for each in inspection.of(WRONG)],
            "clocks": clocks, **({ALIGNED: moved} if moved else {})}


def finite(figures: Mapping[str, float]) -> dict[str, float]:
    """Those that JSON can hold."""
    return {name: float(value) for name, value in figures.items() if np.isfinite(value)}


def put_by(align: Alignment) -> dict[str, Any]:
    """How samples got onto the grid, for an episode's ``info``."""
    return {"rate_hz": align.rate_hz, "gap_limit": align.stated(), "gaps": align.gaps,
            "action": f"{HOLD}: the command in force at the middle of the step"}


def episodes(inspection: Inspection, interface: Interface, align: Alignment) -> Iterator[Episode | Rejected]:
    """The parts of the log between gaps."""
    log = inspection.log
    grid = grid_of(log, align)
    signals, lost, measured = dict[str, np.ndarray](), np.zeros(len(grid), bool), list[np.ndarray]()
    action, without = np.zeros((len(grid), interface.action.size)), np.zeros(len(grid), bool)
    for name, stream in log.streams.items():
        there, good = present(stream), inspection.measured[name]
        limit = align.limit(stream.times[there], False)
        whole = np.ones(len(grid), bool)
        for signal, values in stream.values.items():
            points, rule = (grid + 0.5 * align.period, HOLD) if signal == COMMAND else (
                grid, rule_of(interface.signals[signal], False))
            found = places(points, stream.times[there], rule, limit, SLACK * align.period)
            put = interpolated(values[there][found.before], values[there][found.after], found.share, rule)
            whole &= good[there][found.before] & good[there][found.after]
            if signal == COMMAND:
                action, without = put, without | found.lost
            else:
                signals[signal], lost = put, lost | lost_of(found)
        measured.append(whole)
    signals[MEASURED] = np.stack(measured, 1).astype(np.uint8)
    parts = [part for part in runs(lost, without) if (part.stop - part.start - 1) * align.period >= align.shortest_s]
    if not parts:
        yield Rejected(str(log.path), f"no part without a gap lasts {align.shortest_s:g} s")
    told = {"source": log.path.name, "format": log.kind, "alignment": put_by(align), **verdict_of(inspection)}
    for k, part in enumerate(parts):
        info = {**told, "begin_s": round(float(grid[part.start]), 6), "part": k}
        episode = Episode({name: values[part] for name, values in signals.items()},
                          action[part.start : part.stop - 1], info=info)
        yield checks.attempted(f"{log.path}, part {k}", partial(replace, episode), interface)


def lost_of(found: Places) -> Marks:
    """[G] where there is no value."""
    return np.asarray(found.lost, bool)


def present(stream: Stream) -> Marks:
    """[T] the samples that are numbers, in order of time."""
    there = stream.in_order
    for signal, values in stream.values.items():
        there &= np.isfinite(values.reshape(len(values), -1)).all(1)
        if signal == ATTITUDE:  # of length 0 it has no direction
            there[there] = np.linalg.norm(values[there], axis=1) > SHORTEST
    return there


def grid_of(log: FlightLog, align: Alignment) -> Numbers:
    """The times of the samples, over the time that all sources have in common."""
    ends = [(float(stream.times[there][0]), float(stream.times[there][-1])) for stream in log.streams.values()
            if (there := present(stream)).sum() > 1]
    if len(ends) < len(log.streams):
        raise DataError(f"{log.path}: a source has no two samples that are numbers")
    begin, end = max(begin for begin, _ in ends), min(end for _, end in ends)
    count = int(np.floor((end - begin) * align.rate_hz + 1e-6)) + 1
    if count < 2:
        raise DataError(f"{log.path}: its sources have no time in common")
    return begin + np.arange(count) / align.rate_hz
