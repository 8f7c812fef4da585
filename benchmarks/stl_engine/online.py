"""Online monitors: the time of an update, of many worlds and of one robot, exact values and bounds, and of rtamt."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from statistics import median, quantiles
from typing import Any

import numpy as np

from temporeal.sim.stl.language.propositional import Formula, to_text
from temporeal.sim.stl.language.queries import horizon
from temporeal.sim.stl.semantics.robustness import robustness
from temporeal_benchmarks.peers.process import Peer
from temporeal_benchmarks.peers.translate import to_rtamt
from temporeal_benchmarks.rows import Row, at_most, not_measured
from temporeal_benchmarks.stl_engine.formulas import (
    DT,
    SEED,
    WINDOW,
    WORLDS,
    Signals,
    equal,
    mixed_horizons,
    monitored,
    nested_past,
    of_first_world,
    random_signals,
    walks,
)
from temporeal_benchmarks.stl_engine.peers import NOT_INSTALLED

ONLINE_NS, UPDATE_US = 10.0, 10.0  # targets


def online(rtamt: Peer | None, rounds: int) -> list[Row]:
    """Updates of many worlds and of one robot, exact values and bounds, and of rtamt's monitor, in the same rounds."""
    check_stream(monitored(), walks(2 * WINDOW))
    check_stream(nested_past(), walks(6 * WINDOW))
    programs = {**_streams(), **_bounds()}
    rows = []
    if rtamt:
        rows = check_rtamt(rtamt)
        data = random_signals(WINDOW)
        rtamt.ask("monitor", key="online", text=to_rtamt(monitored()), names=["x", "y"], period_ms=1000)
        rtamt.ask("updates", key="online", signals=of_first_world(data, WINDOW))  # its windows are full from here on
        programs["rtamt"] = lambda: rtamt.ask("updates", key="online", signals=of_first_world(data, WINDOW // 4))
    passes: dict[str, list[list[float]]] = {name: [] for name in programs}
    for program in programs.values():
        program()
    for _ in range(rounds):
        for name, program in programs.items():
            passes[name].append(program())
    return [*_online_rows(passes), *rows]


Updates = Callable[[], list[float]]
"""One pass: processor time [s] of each update."""


def _streams() -> dict[str, Updates]:
    from temporeal.sim.stl.monitoring.stream import Stream

    formula, nested = monitored(), nested_past()
    many, one, plain = Stream(formula, DT, WORLDS), Stream(formula, DT), Stream(formula, DT, compiled=False)
    many_nested = Stream(nested, DT, WORLDS)
    worlds, robot = _samples(2 * WINDOW)
    return {
        "worlds": lambda: _updates(many.update, worlds),
        "one": lambda: _updates(one.update, robot),
        "one_numpy": lambda: _updates(plain.update, robot),
        "nested_past.worlds": lambda: _updates(many_nested.update, worlds),
    }


def _bounds() -> dict[str, Updates]:
    """Whole missions, from the first sample to the horizon: the bounds do not change behind it."""
    from temporeal.sim.stl.monitoring.batch_monitor import BatchMonitor
    from temporeal.sim.stl.monitoring.monitor import Monitor

    formula, nested = monitored(), nested_past()
    together, apart, past = (BatchMonitor(f, DT, WORLDS) for f in (formula, formula, nested))
    worlds, robot = _samples(5 * WINDOW + 1)
    ends = np.random.default_rng(SEED).integers(0, WINDOW + 1, WORLDS)

    def mission(missions: BatchMonitor, length: int) -> list[float]:
        missions.reset()
        return _updates(missions.update, worlds[:length])

    def staggered(sample: Mapping[str, Any]) -> None:
        apart.reset(ends == (apart.time + 1) % (WINDOW + 1))
        apart.update(sample)

    return {
        "bounds.worlds": lambda: mission(together, WINDOW + 1),
        "bounds.worlds_staggered": lambda: _updates(staggered, worlds[: WINDOW + 1]),
        "bounds.one": lambda: _updates(Monitor(formula, DT).update, robot[: WINDOW + 1]),
        "bounds.one_numpy": lambda: _updates(Monitor(formula, DT, compiled=False).update, robot[: WINDOW + 1]),
        "nested_past.bounds.worlds": lambda: mission(past, 5 * WINDOW + 1),
        "nested_past.bounds.one": lambda: _updates(Monitor(nested, DT).update, robot),
    }


def _samples(length: int) -> tuple[list[dict[str, Any]], list[dict[str, float]]]:
    """One sample after the other, of all worlds and of the first."""
    data = random_signals(length)
    return ([{name: values[t] for name, values in data.items()} for t in range(length)],
            [{name: float(values[t, 0]) for name, values in data.items()} for t in range(length)])


def _updates(update: Callable[[Mapping[str, Any]], object], samples: Sequence[Mapping[str, Any]]) -> list[float]:
    """Processor time [s] of each update."""
    seconds = []
    for sample in samples:
        begin = time.thread_time_ns()
        update(sample)
        seconds.append((time.thread_time_ns() - begin) * 1e-9)
    return seconds


def _online_rows(passes: Mapping[str, Sequence[Sequence[float]]]) -> list[Row]:
    rows = [Row("online.window", WINDOW, "samples")]
    for name, seconds in passes.items():
        if name != "rtamt":
            rows += _update_rows(name, seconds)
    if "rtamt" not in passes:
        return [*rows, not_measured("online.against_rtamt", "1", None, NOT_INSTALLED)]
    one, theirs = (median(chain(*passes[name])) for name in ("one", "rtamt"))
    remark = f"one robot, medians; rtamt (pure Python) {1e6 * theirs:.4g} us, its values agree"
    return [*rows, Row("online.against_rtamt", theirs / one, "1", peer=remark)]


def _update_rows(name: str, passes: Sequence[Sequence[float]]) -> list[Row]:
    """Of many worlds the median over the passes of the mean update: one now and then makes up for many cheap ones.

    Of one robot the median of all updates, and their mean beside it. ``p99`` and ``worst`` are of single updates.
    """
    updates = list(chain(*passes))
    slow, worst = quantiles(updates, n=100)[-1], max(updates)
    if "worlds" in name:
        unit, scale, kind, target = "ns/world", 1e9 / WORLDS, "mean", ONLINE_NS if name == "worlds" else None
        found = {"mean": median(sum(part) / len(part) for part in passes)}
    else:
        unit, scale, kind, target = "us", 1e6, "median", UPDATE_US if name == "one" else None
        found = {"median": median(updates), "mean": sum(updates) / len(updates)}
    rows = [Row(f"online.{name}.{key}", scale * value, unit)
            for key, value in {**found, "p99": slow, "worst": worst}.items()]
    return rows if target is None else [at_most(rows[0].name, scale * found[kind], unit, target), *rows[1:]]


def check_stream(formula: Formula, few: Signals) -> None:
    """What is timed gives the robustness of the whole trace, later by the horizon."""
    from temporeal.sim.stl.monitoring.stream import Stream

    for compiled in (None, False):
        stream = Stream(formula, DT, worlds=8, compiled=compiled)
        length, delay = len(few["x"]), stream.delay_steps
        values = [stream.update({name: column[t] for name, column in few.items()}) for t in range(length)]
        equal(np.array(values[delay:]), robustness(formula, few, DT)[: length - delay], "stream against whole trace")


def check_rtamt(rtamt: Peer) -> list[Row]:
    """rtamt's monitor has the timed formula right, after the delay; how often it has not where horizons differ."""
    few = walks(4 * WINDOW)
    for formula in (monitored(), mixed_horizons()):
        theirs = rtamt.ask("monitored", text=to_rtamt(formula), signals=of_first_world(few, 4 * WINDOW), period_ms=1000)
        delay = round(horizon(formula) / DT)
        late, ours = np.array(theirs[delay:]), robustness(formula, few, DT)[: len(theirs) - delay, 0]
        if formula == monitored():
            equal(ours, late, "online against rtamt")
    wrong = float(np.mean(~np.isclose(ours, late, rtol=1e-6, atol=1e-6)))
    remark = f"of its values after the delay, of {to_text(mixed_horizons())}"
    return [Row("online.rtamt.wrong_where_horizons_differ", wrong, "1", peer=remark)]
