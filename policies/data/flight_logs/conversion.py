"""A log that was inspected, as episodes on one grid, for ``formats/importing.py`` to write.

Values are those of the log, put onto the grid by the rules of bags (``formats/bags/alignment.py``). Across a gap
nothing is made up: it splits the episode. What was marked stays as the log has it, and the signal ``measured`` says for
each source and sample whether it is a measurement: 1, or 0 for an outlier, an end of scale, a line that somebody drew
between two samples, and where a sample is missing or no number and its neighbours stand in for it.
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
from temporeal.policies.data.flight_logs.channels import CLOCK_SET, UNEVEN
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
from temporeal.policies.data.flight_logs.motion import LONGEST_S
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
APART = 1.5
"""Periods between two samples above which one is missing between them."""
MOST_SAMPLES = 5_000_000  # of a grid: 1800 s at 2.7 kHz
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
    if set_back := [each for each in inspection.findings if each.defect == CLOCK_SET]:
        raise DataError(f"{log.path}: {set_back[0].subject}: {set_back[0].said}, which no grid can be made of")
    align = Alignment(rate_hz or rate_of(log), gap_s=gap_s, shortest_s=shortest_s)
    names = list(log.streams)
    marked = SignalSpec(MEASURED, (len(names),), dtype="uint8")
    interface = Interface(
        log.robot or checks.UNKNOWN_ROBOT, schema(*log.signals.values(), marked), log.command, align.rate_hz,
        simulator="real" if log.kind in REAL else "", about={MEASURED: names})
    grids, beyond = grids_of(log, align)
    parts = [part for grid in grids for part in parts_of(inspection, interface, align, grid)]
    short = [length for _, episode in parts if (length := episode.steps * align.period) < align.shortest_s]
    notes = [f"{log.name}: {len(short)} parts between gaps are shorter than {align.shortest_s:g} s and left out, "
             f"{sum(short):.3g} s in all"] * bool(short)
    notes += [f"{log.name}: what comes after {LONGEST_S:g} s, {beyond:.3g} s of it, is neither judged nor "
              "imported"] * (beyond > 0)
    kept = [part for part in parts if part[1].steps * align.period >= align.shortest_s]
    return Reading(interface, taken(inspection, interface, align, kept), (*log.notes, *notes))


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


def taken(inspection: Inspection, interface: Interface, align: Alignment, parts: list[tuple[float, Episode]]
          ) -> Iterator[Episode | Rejected]:
    """The parts that are kept, with what is to be known of them."""
    log = inspection.log
    if not parts:
        yield Rejected(str(log.path), f"no part without a gap lasts {align.shortest_s:g} s")
    told = {"source": log.name, "format": log.kind, "alignment": put_by(align), **verdict_of(inspection)}
    for k, (begin, episode) in enumerate(parts):
        info = {**told, "begin_s": round(begin, 6), "part": k}
        yield checks.attempted(f"{log.path}, part {k}", partial(replace, episode, info=info), interface)


def parts_of(inspection: Inspection, interface: Interface, align: Alignment, grid: Numbers
             ) -> list[tuple[float, Episode]]:
    """The parts of the log between gaps on ``grid`` [G] s, each with the time at which it begins."""
    signals, lost, measured = dict[str, np.ndarray](), np.zeros(len(grid), bool), list[np.ndarray]()
    action, without = np.zeros((len(grid), interface.action.size)), np.zeros(len(grid), bool)
    for name, stream in inspection.log.streams.items():
        there, good = present(stream), inspection.measured[name]
        limit = align.limit(stream.times[there], False)
        whole = np.ones(len(grid), bool)
        for signal, values in stream.values.items():
            points, rule = (grid + 0.5 * align.period, HOLD) if signal == COMMAND else (
                grid, rule_of(interface.signals[signal], False))
            found = places(points, stream.times[there], rule, limit, SLACK * align.period)
            put = interpolated(values[there][found.before], values[there][found.after], found.share, rule)
            whole &= good[there][found.before] & good[there][found.after] & ~missed(points, stream, there, found, rule)
            if signal == COMMAND:
                action, without = put, without | found.lost
            else:
                signals[signal], lost = put, lost | lost_of(found)
        measured.append(whole)
    signals[MEASURED] = np.stack(measured, 1).astype(np.uint8)
    return [(float(grid[part.start]), Episode({name: values[part] for name, values in signals.items()},
                                              action[part.start : part.stop - 1])) for part in runs(lost, without)]


def missed(points: Numbers, stream: Stream, there: Marks, found: Places, rule: str) -> Marks:
    """[G] the ``points`` at which a sample is missing or no number (not ``there`` [T]): neighbours stand in for it."""
    kept, times, late = np.flatnonzero(there), stream.times[there], UNEVEN * stream.period
    before = found.before
    after = np.minimum(before + 1, len(kept) - 1) if rule == HOLD else found.after
    apart = (times[after] - times[before] > APART * stream.period) | (kept[after] - kept[before] > 1)
    since = points - times[before]
    if rule == HOLD:  # until the next one was due, it is the command in force
        return np.asarray(apart & (since > stream.period + late) | (since > APART * stream.period))
    return np.asarray(apart & (since > late) & (times[after] - points > late))


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


def grids_of(log: FlightLog, align: Alignment) -> tuple[list[Numbers], float]:
    """The times of the samples, over the time that all sources have in common: one grid [G] s for each part between
    gaps, so that a time that is far off costs nothing; and how many seconds lie after what is judged."""
    shown = {name: stream.times[present(stream)] for name, stream in log.streams.items()}
    if any(len(times) < 2 for times in shown.values()):
        raise DataError(f"{log.path}: a source has no two samples that are numbers")
    begin, end = max(float(times[0]) for times in shown.values()), min(float(times[-1]) for times in shown.values())
    if not end - begin >= align.period * (1 - SLACK):
        raise DataError(f"{log.path}: its sources have no time in common")
    gone = [hole for times in shown.values() for hole in holes(times, align)]
    spans = between(begin, min(end, begin + LONGEST_S), gone)
    first = [np.ceil((low - begin) * align.rate_hz - SLACK) for low, _ in spans]
    counts = [int((high - begin) * align.rate_hz + SLACK - k) + 1 for (_, high), k in zip(spans, first)]
    if sum(counts) > MOST_SAMPLES:
        raise DataError(f"{log.path}: {sum(counts)} samples at {align.rate_hz:g} Hz; {MOST_SAMPLES} at most are legal: "
                        "--rate says how many a second")
    return [begin + (k + np.arange(count)) / align.rate_hz for k, count in zip(first, counts) if count > 1], max(
        end - begin - LONGEST_S, 0.0)


def holes(times: Numbers, align: Alignment) -> list[tuple[float, float]]:
    """Where samples at ``times`` [T] s give nothing: from a period after the last that is bridged to one before the
    next sample."""
    limit = align.limit(times, False) + align.period
    at = np.flatnonzero(np.diff(times) > limit + align.period)
    return [(float(times[k] + limit), float(times[k + 1] - align.period)) for k in at]


def between(begin: float, end: float, gone: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The spans from ``begin`` to ``end`` that lie in none of ``gone``."""
    out = []
    for low, high in sorted(gone):
        if begin < min(low, end):
            out.append((begin, min(low, end)))
        begin = max(begin, high)
    return [*out, (begin, end)] if begin < end else out
