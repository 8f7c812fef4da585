"""Checks of each column by itself: is it whole, does time go on, does it say anything, is it measured.

Samples that are not measured are marked: no number, an outlier, an end of scale, a straight line that somebody drew
between two samples. Nothing is replaced.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from temporeal.policies.data.flight_logs.flight_log import (
    ATTITUDE,
    BATTERY,
    COMMAND,
    GOOD,
    MARKED,
    SPECS,
    WRONG,
    Finding,
    FlightLog,
    Marks,
    Numbers,
    Stream,
)
from temporeal.policies.data.flight_logs.motion import airborne, longer, stretches
from temporeal.sim.stl.samples.times import CLOCK_SET_S, HOLD_PERIODS

CLOCK_SET = "clock set"  # the defect of which nothing can be made
UNEVEN = 0.05  # of a period, by which a time may be off
ENOUGH = 10  # samples in flight below which a column is not judged
SHOWN = 3  # places that a sentence names
FROZEN_S, FROZEN = 0.25, 20
"""A sensor that gives one number for so long, and in so many samples, stands still: a mean of noise never does."""
CLIPPED, OF_ALL = 4, 0.002
"""Samples in a row at a column's end, and their share of the flight, that make an end of its scale."""
ISOLATED, BULK = 3, 12.0
"""An outlier is at most so many samples long, and so many times further from its neighbours than samples are."""
FLOORS = {"m": 0.05, "wxyz": 0.1, "m/s": 0.5, "rad/s": 3.0, "m/s^2": 20.0, "V": 0.5, "1": np.inf}
"""By unit, below which nothing is an outlier; chosen: what no small robot does within a sample. Commands have none."""
STRAIGHT = 3
"""Samples in a row that lie on one line: nobody measures that."""
BENT, STEPS = 1e-3, 20
"""A line bends by no more than this share of its steps, which are at least so many times the column's resolution: of
numbers with few digits everything slow would be a line."""
AT_LIMIT = 1e-3
FILLED_S = 0.15
"""Straight for longer is a finding; shorter ones are marked and said."""
OFF_UNIT = 0.02


def check(log: FlightLog) -> tuple[list[Finding], dict[str, Marks]]:
    """The findings, and by stream which samples are measured [T]."""
    found = [whole(log)]
    good = {name: ~log.doubted.get(name, np.zeros(len(stream.times), bool)) for name, stream in log.streams.items()}
    for stream in log.streams.values():
        found += [*times(stream, good[stream.name])]
    air = {name: airborne(log, stream) for name, stream in log.streams.items()}
    for stream, signal, name, values in log.components():
        found += column(log, stream, signal, name, values, air[stream.name], good[stream.name])
    found += [said for name, stream in log.streams.items()
              if (said := filled(log, stream, air[name], good[name])) is not None]
    if (oriented := log.stream_of(ATTITUDE)) is not None:
        found.append(unit_length(oriented, good[oriented.name]))
    quiet = {each.subject for each in found if each.check == "values"}
    found += [Finding("values", name, GOOD, "moves, within its scale, without outliers")
              for _, _, name, _ in log.components() if name not in quiet]
    return found, good


def whole(log: FlightLog) -> Finding:
    """Whether the file has its end."""
    if log.cut:
        return Finding("file", log.name, MARKED, f"is not whole: {log.cut}; what is before that is read",
                       "truncated")
    return Finding("file", log.name, GOOD, "is whole")


def times(stream: Stream, good: Marks) -> Iterator[Finding]:
    """Whether times increase evenly; samples that do not are marked in ``good``."""
    timed = np.isfinite(stream.times)
    back = timed & ~stream.in_order
    good &= stream.in_order
    if len(timed) > 1 and timed.sum() < 2:
        yield Finding("times", stream.name, WRONG, f"of its {len(timed)} times {timed.sum()} are numbers: nothing can "
                      "be compared", "no time", {"samples": int((~timed).sum())})
        return
    if not timed.all():
        yield Finding("times", stream.name, MARKED, f"{(~timed).sum()} times are no number, the first at sample "
                      f"{int(np.argmin(timed))}", "no number", {"samples": int((~timed).sum())})
    if back.any():
        steps = np.diff(stream.times)
        k = int(np.flatnonzero(back)[0])
        said = f"{back.sum()} samples repeat a time or go back, the first at sample {k} ({stream.times[k]:.3f} s)"
        if (set_by := float(np.nanmax(-steps))) > CLOCK_SET_S:
            yield Finding("times", stream.name, WRONG, f"{said}; its clock was set by {set_by:.3g} s: no order "
                          "of the samples is known", CLOCK_SET)
            return
        stands = stream.in_order.sum() < 2
        yield Finding("times", stream.name, WRONG if stands else MARKED, said + ": time never goes on" * bool(stands),
                      "no time" if stands else "times go back", {"samples": int(back.sum())})
    period = stream.period
    steps = np.diff(stream.times)
    if (gaps := np.flatnonzero(steps > (HOLD_PERIODS + UNEVEN) * period)).size and period > 0:
        longest = float(np.nanmax(steps))
        at = ", ".join(f"{steps[k]:.3g} s at {stream.times[k]:.3f} s" for k in gaps[:SHOWN])
        yield Finding("times", stream.name, MARKED, f"{len(gaps)} gaps, longer than {HOLD_PERIODS:g} periods of "
                      f"{1e3 * period:.3g} ms: {at}{' and more' if len(gaps) > SHOWN else ''}; the longest "
                      f"{longest:.3g} s", "gap", {"gaps": len(gaps), "longest_s": longest})
    elif stream.in_order.all() and period > 0:
        yield Finding("times", stream.name, GOOD, f"{len(stream.times)} samples, {1 / period:.5g} a second, no gap",
                      figures={"rate_hz": 1 / period})


def column(
    log: FlightLog, stream: Stream, signal: str, name: str, values: Numbers, flown: Marks, good: Marks
) -> list[Finding]:
    """The findings on one column, in flight where ``flown``; what is wrong in it is marked in ``good``."""
    finite = np.isfinite(values)
    values = np.where(finite, values, np.nan)
    good &= finite
    out = []
    if not finite.all():
        out.append(Finding("values", name, MARKED, f"{(~finite).sum()} samples are no number, the first at "
                           f"{stream.times[int(np.argmin(finite))]:.3f} s", "no number",
                           {"samples": int((~finite).sum())}))
    air = flown & finite
    if stream.name == BATTERY or air.sum() < ENOUGH:
        return out
    out += clipped(log, stream, signal, name, values, air, good)
    if (said := standing(log, stream, signal, values, air & good)) is not None:
        frozen, why = said
        dead = frozen.sum() >= 0.5 * air.sum()
        if not dead:  # of a dead column nothing is left to be marked, and the others of its source are alive
            good &= ~frozen
        return [*out, Finding("values", name, WRONG if dead else MARKED, why, "constant",
                              {"samples": int(frozen.sum())})]
    return [*out, *outliers(stream, signal, name, values, air, good)]


def at_limit(log: FlightLog, signal: str, values: Numbers) -> Marks:
    """[T] where a command is at one of its limits: it may stay there."""
    if signal != COMMAND or log.command is None:
        return np.zeros(len(values), bool)
    limits = np.array([*log.command.low, *log.command.high])
    return np.asarray(np.abs(values[:, None] - limits).min(1) < AT_LIMIT)


def standing(log: FlightLog, stream: Stream, signal: str, values: Numbers, air: Marks) -> tuple[Marks, str] | None:
    """Where a column gives one number in flight, and why that is wrong."""
    same = np.concatenate([[False], np.diff(values) == 0]) & air & ~at_limit(log, signal, values)
    frozen = longer(same, max(int(FROZEN_S / max(stream.period, 1e-9)), FROZEN))
    found = stretches(frozen)
    if not found:
        return None
    first, last = max(found, key=lambda ends: ends[1] - ends[0])
    return frozen, (f"gives {values[first]:.6g} for {stream.times[last - 1] - stream.times[first]:.3g} s of the flight "
                    f"from {stream.times[first]:.3f} s on ({len(found)} such stretches)")


def clipped(
    log: FlightLog, stream: Stream, signal: str, name: str, values: Numbers, air: Marks, good: Marks
) -> Iterator[Finding]:
    """Whether a column stays at its largest or smallest number; commands may, at their limits."""
    for end, word in ((values[air].max(), "above"), (values[air].min(), "below")):
        held = longer((values == end) & air, CLIPPED)
        if held.sum() < max(OF_ALL * air.sum(), CLIPPED) or (signal == ATTITUDE and abs(end) > 1 - OFF_UNIT):
            continue
        if not at_limit(log, signal, np.array([end]))[0] and not (len(stretches(held)) > 1 and abrupt(values, held)):
            continue
        portion = 100 * held.sum() / air.sum()
        if at_limit(log, signal, np.array([end]))[0]:
            yield Finding("values", name, GOOD, f"is at its limit {end:.4g} for {portion:.2g} % of the flight",
                          figures={"at_limit_percent": float(portion)})
            continue
        good &= ~held
        yield Finding("values", name, MARKED, f"is clipped: it never goes {word} {end:.6g} and stays there in "
                      f"{len(stretches(held))} stretches, {portion:.2g} % of the flight", "clipped",
                      {"at": float(end), "percent": float(portion)})


def abrupt(values: Numbers, held: Marks) -> bool:
    """Whether a column jumps into the stretches ``held``; one with few digits is flat at the top of every slow bend."""
    steps = [abs(values[first] - values[first - 1]) for first, _ in stretches(held) if first > 0]
    return bool(steps) and float(np.median(steps)) > STEPS * resolution(values)


def outliers(stream: Stream, signal: str, name: str, values: Numbers, air: Marks, good: Marks) -> Iterator[Finding]:
    """Samples in flight that are far from those around them, on both sides. On the ground they are landings."""
    floor = FLOORS.get(SPECS[signal].unit if signal in SPECS else "1", np.inf)
    if not np.isfinite(floor) or len(values) < 2 * ISOLATED + 1:
        return
    padded = np.pad(values, ISOLATED, mode="edge")
    around = np.lib.stride_tricks.sliding_window_view(padded, 2 * ISOLATED + 1)
    away = np.full(len(values), np.nan)
    known = np.isfinite(around).any(1)
    middle = np.median if np.isfinite(around).all() else np.nanmedian
    away[known] = np.abs(values[known] - middle(around[known], axis=1))
    usual = 1.4826 * float(np.median(away[away > 0])) if (away > 0).any() else 0.0
    far = np.nan_to_num(away, nan=0.0) > max(floor, BULK * usual)
    far &= ~longer(far, ISOLATED + 1) & air
    if not far.any():
        return
    good &= ~far
    places = np.flatnonzero(far)
    at = ", ".join(f"{values[k]:.4g} at {stream.times[k]:.3f} s" for k in places[:SHOWN])
    yield Finding("values", name, MARKED, f"{len(places)} outliers: {at}{' and more' if len(places) > SHOWN else ''}",
                  "outlier", {"samples": len(places)})


def filled(log: FlightLog, stream: Stream, air: Marks, good: Marks) -> Finding | None:
    """Straight lines in flight: samples that somebody interpolated. They are marked in ``good``."""
    if stream.name == BATTERY or not air.any():
        return None
    lines = np.zeros(len(air), bool)
    for owner, _, _, values in log.components():
        if owner is stream:
            lines |= longer(straight(np.where(np.isfinite(values), values, np.nan)) & air, STRAIGHT)
    good &= ~lines
    ends = stretches(lines)
    if not ends:
        return None
    longest = max(last - first + 1 for first, last in ends) * stream.period
    much = longest > FILLED_S
    return Finding("filled", stream.name, MARKED if much else GOOD, f"{len(ends)} straight lines in flight, "
                   f"{100 * lines.sum() / air.sum():.2g} % of its samples, the longest {longest:.2g} s: somebody "
                   "filled what was not measured; they are marked", "filled" if much else "",
                   {"samples": int(lines.sum()), "longest_s": longest})


def straight(values: Numbers) -> Marks:
    """[T] the samples that lie on the line between their neighbours, and move by more than their resolution."""
    out = np.zeros(len(values), bool)
    if len(values) < STRAIGHT:
        return out
    finest = resolution(values)
    bend, move = np.abs(np.diff(values, 2)), np.abs(np.diff(values))[:-1]
    out[1:-1] = (bend <= np.maximum(1.5 * finest, BENT * move)) & (move > STEPS * finest)
    return out


def resolution(values: Numbers) -> float:
    """The smallest step that a column makes: of rounded numbers their last digit."""
    steps = np.abs(np.diff(values))
    steps = steps[np.isfinite(steps) & (steps > 1e-9 * np.nanmax(np.abs(values), initial=0.0))]
    return float(steps.min()) if len(steps) else 0.0


def unit_length(stream: Stream, good: Marks) -> Finding:
    """Whether quaternions have length 1; others are marked."""
    length = np.linalg.norm(np.where(np.isfinite(stream.values[ATTITUDE]), stream.values[ATTITUDE], 0.0), axis=1)
    wrong = ~(np.abs(length - 1) <= OFF_UNIT)
    good &= ~wrong
    if not wrong.any():
        return Finding("unit", ATTITUDE, GOOD, "has length 1")
    share, typical = wrong.mean(), float(np.median(length))
    return Finding("unit", ATTITUDE, WRONG if share > 0.5 else MARKED, f"{wrong.sum()} of {len(wrong)} quaternions do "
                   f"not have length 1 (median {typical:.4g})", "no unit quaternion", {"samples": int(wrong.sum())})
