"""``temporeal bench stl``: how fast formulas are scored, differentiated and monitored, against rtamt and stlcg++."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from math import isnan, nan
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np

from temporeal.sim.stl.language.constructors import always, eventually, once, since, until
from temporeal.sim.stl.language.conventions import Semantics
from temporeal.sim.stl.language.propositional import And, Formula, Implies, Signal, to_text
from temporeal.sim.stl.language.queries import horizon
from temporeal.sim.stl.semantics.robustness import robustness
from temporeal_benchmarks.peers.process import PINS, Peer, PeerError, peak_beyond
from temporeal_benchmarks.peers.translate import to_rtamt, to_stlcgpp
from temporeal_benchmarks.rows import Row, among

HELP = (
    "STL formulas G = G[0,T-1] x, FG = F[0,T/2] G[0,T/4] y, Uw = x U[0,50] y and ALL, their conjunction, on traces of "
    "T samples of 4096 worlds, float32, robustness at every sample: signal-timesteps per CPU-second on one core, "
    "forward and with the gradient; peak memory of an until over the whole trace; online monitors with windows of 200 "
    "samples; operators on a GPU against a copy. Peers: rtamt and stlcg++ (make peers), in the same rounds, on fewer "
    "signals; stlcg++ with its masks and with its recurrent operators, the faster of the two judges. Medians of "
    "interleaved rounds, once the values agree"
)

WORLDS, DT, SEED = 4096, 1.0, 0
LENGTHS = (100, 200, 500, 1000)
COMPARED = (100, 1000)  # lengths at which the peers are measured
FORWARD, BACKWARD = 100e6, 50e6  # 1/CPU-s, targets
WINDOW = 200  # samples, online
ONLINE_NS, UPDATE_US = 10.0, 10.0  # targets
MEMORY = 64e6  # B, target
GPU_SHARE = 0.5  # of a memory-bound pass, target
# signals that a peer is given: as many as it is fastest with, fewer where that would take many seconds or gigabytes
RTAMT_SIGNALS = {("G", 100): 8, ("FG", 100): 8, ("Uw", 100): 4, ("ALL", 100): 4,
                 ("G", 1000): 2, ("FG", 1000): 2, ("Uw", 1000): 1, ("ALL", 1000): 1}  # fmt: skip
MASKS_SIGNALS = {("G", 100): 32, ("FG", 100): 32, ("Uw", 100): 8, ("ALL", 100): 8, ("backward", 100): 8,
                 ("G", 1000): 2, ("FG", 1000): 4, ("Uw", 1000): 1, ("ALL", 1000): 1, ("backward", 1000): 1}  # fmt: skip
RECURRENT_SIGNALS = {
    ("G", 100): 256, ("FG", 100): 512, ("Uw", 100): 512, ("ALL", 100): 512, ("backward", 100): 512,
    ("G", 1000): 64, ("FG", 1000): 64, ("Uw", 1000): 512, ("ALL", 1000): 256, ("backward", 1000): 64}  # fmt: skip
SIGNALS: Mapping[str, Mapping[tuple[str, int], int]] = {
    "rtamt": RTAMT_SIGNALS, "stlcgpp_masks": MASKS_SIGNALS, "stlcgpp_recurrent": RECURRENT_SIGNALS}  # fmt: skip
VARIANTS = {"rtamt": ("rtamt",), "stlcgpp": ("stlcgpp_masks", "stlcgpp_recurrent")}  # ways to ask a peer
TOLD = {"rtamt": "rtamt", "stlcgpp_masks": "with masks", "stlcgpp_recurrent": "recurrent"}
TARGETS = {("rtamt", "windows"): 1e3, ("stlcgpp", "windows"): 500.0, ("rtamt", "until"): 1e4,
           ("stlcgpp", "until"): 1e4}  # fmt: skip
BACKWARD_RATIO = 1e3  # target
MISSING = "not installed: make peers"
KINDS = {"windows": ("G", "FG"), "until": ("Uw", "ALL")}
NO_GPU = "no GPU at hand"
PARTS = ("cpu", "gpu")
OPTIONS = {"parts": f"{', '.join(PARTS)} (default: both)"}

X, Y = Signal("x"), Signal("y")
Signals = dict[str, np.ndarray]


@dataclass(frozen=True)
class Program:
    """What is measured: ``seconds()`` of processor time for one pass over ``work`` signal-timesteps of ``signals``."""

    seconds: Callable[[], float]
    work: int
    signals: int = WORLDS


Peers = Mapping[str, Peer | None]
"""The running peers; None where one is not installed and cannot be."""


def formulas(length: int) -> dict[str, Formula]:
    """The measured formulas over traces of ``length`` samples."""
    x, y = X > 0.0, Y > 0.0
    parts = {"G": always(0, length - 1, x), "FG": eventually(0, length // 2, always(0, length // 4, y)),
             "Uw": until(x, 0, 50, y)}  # fmt: skip
    return {**parts, "ALL": And(tuple(parts.values()))}


def run(quick: bool, *, out: Path | None = None, parts: list[str] | None = None) -> list[Row]:
    """The parts that are asked for."""
    wanted = among("parts", parts, PARTS)
    return [*(on_a_cpu(quick) if "cpu" in wanted else ()), *(gpu() if "gpu" in wanted else ())]


def on_a_cpu(quick: bool) -> list[Row]:
    """All on one core; a round measures every program once, so that load and clock changes meet all of them."""
    rounds = 3 if quick else 9
    with one_core(), peers_at_hand() as peers:
        rows = [Row("settings.worlds", WORLDS, "worlds"), Row("settings.dtype", None, peer="float32"),
                Row("settings.rounds", rounds), *(_peer_row(name, peer) for name, peer in peers.items())]
        rows += offline(peers, rounds, quick)
        rows += online(peers["rtamt"], rounds)
    return rows + memory_rows((100, 200) if quick else (100, 200, 400), peers["stlcgpp"] is not None)


@contextmanager
def peers_at_hand() -> Iterator[Peers]:
    """The peers, each in its process; one that is not installed and cannot be is told of, once, and left out."""
    with ExitStack() as stack:
        peers: dict[str, Peer | None] = {}
        for name in PINS:
            try:
                peers[name] = stack.enter_context(Peer(name))
            except PeerError as error:
                print(f"left out: {error}", file=sys.stderr)
                peers[name] = None
        yield peers


def _peer_row(name: str, peer: Peer | None) -> Row:
    told = " ".join(PINS[name]) + ("; its C++ backend not built (source build only)" if name == "rtamt" else "")
    return Row(f"settings.{name}", None, peer=MISSING if peer is None else told)


@contextmanager
def one_core() -> Iterator[None]:
    """This thread, and what it starts, on one processor with one thread of each library."""
    import numba
    import torch

    processors, threads = os.sched_getaffinity(0), (torch.get_num_threads(), numba.get_num_threads())
    os.sched_setaffinity(0, {max(processors)})
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    try:
        yield
    finally:
        os.sched_setaffinity(0, processors)
        torch.set_num_threads(threads[0])
        numba.set_num_threads(threads[1])


def rates(programs: Mapping[str, Program], rounds: int) -> dict[str, list[float]]:
    """Signal-timesteps per CPU-second of each program in each round, NaN in those that leave it out.

    A program of more than half a second runs in every third round only, one of more than 3 s only in the first.
    """
    found: dict[str, list[float]] = {name: [] for name in programs}
    every = dict.fromkeys(programs, 1)
    for i in range(rounds):
        for name, program in programs.items():
            if i % every[name]:
                found[name].append(nan)
                continue
            seconds = program.seconds()
            found[name].append(program.work / seconds)
            if i == 0:
                every[name] = 1 if seconds < 0.5 else 3 if seconds < 3.0 else rounds
    return found


def middle(values: Iterable[float]) -> float:
    """The median of what was measured."""
    return median(value for value in values if not isnan(value))


def repeated(work: Callable[[], object]) -> Callable[[], float]:
    """Processor time of one call, measured over calls of together 5 ms or more."""
    work()  # compiles
    begin = time.process_time()
    work()
    count = max(1, round(5e-3 / max(time.process_time() - begin, 1e-6)))

    def seconds() -> float:
        work()  # brings its memory back into the caches
        begin = time.process_time()
        for _ in range(count):
            work()
        return (time.process_time() - begin) / count

    return seconds


def random_signals(length: int, worlds: int = WORLDS) -> Signals:
    """Standard normal x and y [T, N], float32."""
    generator = np.random.default_rng(SEED + length)
    return {name: generator.standard_normal((length, worlds), np.float32) for name in ("x", "y")}


# ---------------------------------------------------------------- whole traces


def offline(peers: Peers, rounds: int, quick: bool = False) -> list[Row]:
    """Forward and backward, ours and theirs; ``quick`` gives the peers one signal."""
    signals = {length: random_signals(length) for length in LENGTHS}
    programs = {**_forward(signals), **_backward(signals)}
    for library, variants in VARIANTS.items():
        peer = peers[library]
        for variant in variants if peer else ():
            counts = {case: 1 if quick else count for case, count in SIGNALS[variant].items()}
            check(variant, peer, signals, counts)
            programs |= _theirs(variant, peer, signals, counts)
    if peers["rtamt"]:
        programs["rtamt.G_without_window.T1000"] = _without_window(peers["rtamt"], signals[1000])
    found = rates(programs, rounds)
    given = {name: program.signals for name, program in programs.items()}
    return [*_forward_rows(found), *_ratio_rows(found, given), *_backward_rows(found, given)]


def _forward(signals: Mapping[int, Signals]) -> dict[str, Program]:
    programs = {}
    for length, data in signals.items():
        for key, formula in formulas(length).items():
            if key == "ALL" or length in COMPARED:
                work = _scored(formula, data)
                programs[f"forward.{key}.T{length}"] = Program(repeated(work), length * WORLDS)
    return programs


def _scored(formula: Formula, data: Signals) -> Callable[[], object]:
    return lambda: robustness(formula, data, DT)


def _backward(signals: Mapping[int, Signals]) -> dict[str, Program]:
    import torch

    programs = {}
    for length in COMPARED:
        formula = formulas(length)["ALL"]
        data = {name: torch.from_numpy(values).requires_grad_() for name, values in signals[length].items()}
        for loss in ("first_sample", "all_samples"):
            work = _differentiated(formula, data, loss == "first_sample")
            programs[f"backward.{loss}.T{length}"] = Program(repeated(work), length * WORLDS)
    return programs


def _differentiated(formula: Formula, data: Mapping[str, Any], first: bool) -> Callable[[], None]:
    def work() -> None:
        for values in data.values():
            values.grad = None
        values = robustness(formula, data, DT)
        (values[0] if first else values).sum().backward()

    return work


def _theirs(
    variant: str, peer: Peer, signals: Mapping[int, Signals], counts: Mapping[tuple[str, int], int]
) -> dict[str, Program]:
    """Programs of a peer on the first of our signals."""
    programs = {}
    for (key, length), count in counts.items():
        program = f"{variant}.{key}.T{length}"
        if variant == "rtamt":
            peer.ask("prepare", key=program, text=to_rtamt(formulas(length)[key]),
                     worlds=_worlds(signals[length], count), period_ms=1000)  # fmt: skip
        else:
            peer.ask("prepare", key=program, backward=key == "backward",
                     **_posed(variant, key, length, signals[length], count))  # fmt: skip
        programs[program] = Program(_asked(peer, program), length * count, count)
    return programs


def _posed(variant: str, key: str, length: int, data: Signals, count: int) -> dict[str, Any]:
    """What stlcg++ is given."""
    formula = formulas(length)["ALL" if key == "backward" else key]
    return {"tree": to_stlcgpp(formula, DT), "signals": _lists(data, count),
            "recurrent": variant == "stlcgpp_recurrent"}


def _without_window(peer: Peer, data: Signals) -> Program:
    """rtamt's operator without a window, which is one pass: the same values as G[0,T-1]."""
    peer.ask("prepare", key="G", text="always (x > 0)", worlds=_worlds(data, 2), period_ms=1000)
    return Program(_asked(peer, "G"), 2 * len(data["x"]), 2)


def _asked(peer: Peer, key: str) -> Callable[[], float]:
    return lambda: float(peer.ask("run", key=key))


def _worlds(data: Signals, count: int) -> list[dict[str, list[float]]]:
    return [{name: values[:, n].tolist() for name, values in data.items()} for n in range(count)]


def _lists(data: Signals, count: int) -> dict[str, list[list[float]]]:
    return {name: values[:, :count].tolist() for name, values in data.items()}


def check(
    variant: str, peer: Peer, signals: Mapping[int, Signals], counts: Mapping[tuple[str, int], int] | None = None
) -> None:
    """What is timed gives the same values, where the conventions agree; an ``AssertionError`` otherwise."""
    for (key, length), count in (counts or SIGNALS[variant]).items():
        data, what = signals[length], f"{key} at T = {length}: ours against {variant}"
        if key == "backward":
            _check_gradient(peer, _posed(variant, key, length, data, count), data, what)
            continue
        formula = formulas(length)[key]
        few = {name: values[:, :count] for name, values in data.items()}
        if variant == "rtamt":
            ours = robustness(formula, few, DT)
            theirs = np.array(peer.ask("evaluate", text=to_rtamt(formula), worlds=_worlds(data, count),
                                       period_ms=1000)).T  # fmt: skip
        else:  # until is closed on its left side there, and values are right where every window ends in the trace
            ours = robustness(formula, few, DT, semantics=Semantics(until="closed"))
            ours = ours[: length - round(horizon(formula) / DT)]
            theirs = np.array(peer.ask("evaluate", **_posed(variant, key, length, data, count)))
        _equal(ours, theirs[: len(ours)], what)


def _check_gradient(peer: Peer, posed: Mapping[str, Any], data: Signals, what: str) -> None:
    import torch

    theirs = {name: np.array(values) for name, values in peer.ask("gradient", **posed).items()}
    length, count = theirs["x"].shape
    ours = {name: torch.from_numpy(values[:, :count].copy()).requires_grad_() for name, values in data.items()}
    robustness(formulas(length)["ALL"], ours, DT, semantics=Semantics(until="closed"))[0].sum().backward()
    for name, values in ours.items():
        assert values.grad is not None
        _equal(values.grad.numpy(), theirs[name], f"gradient to {name}, {what}")


def _equal(ours: np.ndarray, theirs: np.ndarray, what: str) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6, err_msg=f"the values differ: {what}")


def _forward_rows(found: Mapping[str, Sequence[float]]) -> list[Row]:
    lengths = {length: median(found[f"forward.ALL.T{length}"]) for length in LENGTHS}
    rows = [Row(f"forward.{key}.T{length}", median(found[f"forward.{key}.T{length}"]), "1/CPU-s")
            for length in COMPARED for key in ("G", "FG", "Uw")]
    rows += [Row(f"forward.ALL.T{length}", rate, "1/CPU-s") for length, rate in lengths.items()]
    least = min(lengths.values())
    return [*rows, Row("forward.ALL.least", least, "1/CPU-s", FORWARD, None, least >= FORWARD)]


def _ratio_rows(found: Mapping[str, Sequence[float]], given: Mapping[str, int]) -> list[Row]:
    rows, kinds = [], []
    for (library, kind), target in TARGETS.items():
        judged = []
        for length in COMPARED:
            for key in KINDS[kind]:
                ours, case = f"forward.{key}.T{length}", f"{key}.T{length}"
                judged.append(_against(found, given, ours, library, case, target))
                kinds += _against_each(found, given, ours, library, case)
        rows += [*judged, _least(f"against_{library}.{kind}.least", judged, target)]
    plain = "rtamt.G_without_window.T1000"
    ratio, told = None, MISSING
    if plain in found:
        ratio = _ratio(found["forward.G.T1000"], found[plain])
        told = f"rtamt's always without a window, {middle(found[plain]):.3g} /CPU-s"
    return [*rows, *kinds, Row("against_rtamt.G_without_window.T1000", ratio, "1", peer=told)]


def _against(
    found: Mapping[str, Sequence[float]], given: Mapping[str, int], ours: str, library: str, case: str, target: float
) -> Row:
    """Our rate over that of the library, of its fastest variant, judged."""
    name = f"against_{library}.{case}"
    theirs = [f"{variant}.{case}" for variant in VARIANTS[library] if f"{variant}.{case}" in found]
    if not theirs:
        return Row(name, None, "1", target, MISSING)
    fastest = max(theirs, key=lambda program: middle(found[program]))
    ratio = _ratio(found[ours], found[fastest])
    return Row(name, ratio, "1", target, _told(found, given, fastest), ratio >= target)


def _against_each(
    found: Mapping[str, Sequence[float]], given: Mapping[str, int], ours: str, library: str, case: str
) -> list[Row]:
    """The ratio to each variant of a library that has several."""
    variants = VARIANTS[library] if len(VARIANTS[library]) > 1 else ()
    return [
        Row(f"against_{variant}.{case}", _ratio(found[ours], found[program]), "1", peer=_told(found, given, program))
        if program in found else Row(f"against_{variant}.{case}", None, "1", peer=MISSING)
        for variant in variants for program in [f"{variant}.{case}"]
    ]


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return middle(a / b for a, b in zip(ours, theirs))


def _told(found: Mapping[str, Sequence[float]], given: Mapping[str, int], program: str) -> str:
    count, rounds = given[program], sum(not isnan(rate) for rate in found[program])
    signals, times = f"{count} signal{'s' * (count > 1)}", f"{rounds} round{'s' * (rounds > 1)}"
    return f"{TOLD[program.split('.')[0]]}: {middle(found[program]):.3g} /CPU-s on {signals}, {times}"


def _least(name: str, rows: Sequence[Row], target: float) -> Row:
    values = [row.value for row in rows if row.value is not None]
    if not values:
        return Row(name, None, "1", target, MISSING)
    return Row(name, min(values), "1", target, None, min(values) >= target)


def _backward_rows(found: Mapping[str, Sequence[float]], given: Mapping[str, int]) -> list[Row]:
    rows = []
    for loss in ("first_sample", "all_samples"):
        rows += [Row(f"backward.{loss}.T{length}", median(found[f"backward.{loss}.T{length}"]), "1/CPU-s")
                 for length in COMPARED]
    least = min(row.value or 0.0 for row in rows if "first_sample" in row.name)
    rows.append(Row("backward.first_sample.least", least, "1/CPU-s", BACKWARD, None, least >= BACKWARD))
    kinds = []
    for length in COMPARED:
        ours, case = f"backward.first_sample.T{length}", f"backward.T{length}"
        rows.append(_against(found, given, ours, "stlcgpp", case, BACKWARD_RATIO))
        kinds += _against_each(found, given, ours, "stlcgpp", case)
    return rows + kinds


# ---------------------------------------------------------------- online


def monitored(window: int = WINDOW) -> Formula:
    """The conjunction with windows of ``window`` samples."""
    x, y = X > 0.0, Y > 0.0
    return And((always(0, window, x), eventually(0, window // 2, always(0, window // 2, y)), until(x, 0, window, y)))


def nested_past(window: int = WINDOW) -> Formula:
    """A window of the past in one of the future, the dearest for bounds: ``G[0,5W] (x > 0 -> O[0,W] y > 0)``."""
    return always(0, 5 * window, Implies(X > 0.0, once(0, window, Y > 0.0)))


def mixed_horizons(window: int = WINDOW) -> Formula:
    """Conjuncts that look ahead differently far."""
    return And((always(0, window, X > 0.0), eventually(0, window // 2, Y > 0.0)))


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
        rtamt.ask("updates", key="online", signals=_some(data, WINDOW))  # its windows are full from here on
        programs["rtamt"] = lambda: rtamt.ask("updates", key="online", signals=_some(data, WINDOW // 4))
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
    from temporeal.sim.stl.monitoring.monitor import Monitor
    from temporeal.sim.stl.monitoring.stream_bounds import Missions

    formula, nested = monitored(), nested_past()
    together, apart, past = (Missions(f, DT, WORLDS) for f in (formula, formula, nested))
    worlds, robot = _samples(5 * WINDOW + 1)
    ends = np.random.default_rng(SEED).integers(0, WINDOW + 1, WORLDS)

    def mission(missions: Missions, length: int) -> list[float]:
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


def _some(data: Signals, count: int) -> dict[str, list[float]]:
    return {name: values[:count, 0].tolist() for name, values in data.items()}


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
    one, told, ratio = median(chain(*passes["one"])), MISSING, None
    if "rtamt" in passes:
        theirs = median(chain(*passes["rtamt"]))
        told, ratio = f"one robot, medians; rtamt {1e6 * theirs:.4g} us, its values agree", theirs / one
    return [*rows, Row("online.against_rtamt", ratio, "1", peer=told)]


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
    judged = scale * found[kind]
    return rows if target is None else [Row(rows[0].name, judged, unit, target, None, judged <= target), *rows[1:]]


def walks(length: int) -> Signals:
    """Eight random walks x and y [T, 8], in which now one part of a formula decides and now another."""
    return {name: np.cumsum(values, axis=0) * np.float32(0.2) + np.float32(shift)
            for (name, values), shift in zip(random_signals(length, 8).items(), (0.5, -0.5))}


def check_stream(formula: Formula, few: Signals) -> None:
    """What is timed gives the robustness of the whole trace, later by the horizon."""
    from temporeal.sim.stl.monitoring.stream import Stream

    for compiled in (None, False):
        stream = Stream(formula, DT, worlds=8, compiled=compiled)
        length, delay = len(few["x"]), stream.delay_steps
        values = [stream.update({name: column[t] for name, column in few.items()}) for t in range(length)]
        _equal(np.array(values[delay:]), robustness(formula, few, DT)[: length - delay], "stream against whole trace")


def check_rtamt(rtamt: Peer) -> list[Row]:
    """rtamt's monitor has the timed formula right, after the delay; how often it has not where horizons differ."""
    few = walks(4 * WINDOW)
    for formula in (monitored(), mixed_horizons()):
        theirs = rtamt.ask("monitored", text=to_rtamt(formula), signals=_some(few, 4 * WINDOW), period_ms=1000)
        delay = round(horizon(formula) / DT)
        late, ours = np.array(theirs[delay:]), robustness(formula, few, DT)[: len(theirs) - delay, 0]
        if formula == monitored():
            _equal(ours, late, "online against rtamt")
    wrong = float(np.mean(~np.isclose(ours, late, rtol=1e-6, atol=1e-6)))
    told = f"of its values after the delay, of {to_text(mixed_horizons())}"
    return [Row("online.rtamt.wrong_where_horizons_differ", wrong, "1", peer=told)]


# ---------------------------------------------------------------- memory


def memory_rows(lengths: Sequence[int], peer_at_hand: bool) -> list[Row]:
    """Peak memory of forward and backward of ``x U[0,T-1] y``, each in a process of its own; stlcg++ with masks."""
    done = subprocess.run([sys.executable, "-m", __name__], check=True, capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"})
    needed = float(done.stdout)
    rows = [Row("memory.until.T1000.N64", needed, "B", MEMORY, None, needed <= MEMORY)]
    if not peer_at_hand:
        names = [f"memory.stlcgpp.until.T{length}.N1" for length in (*lengths, 1000)]
        return rows + [Row(name, None, "B", peer=MISSING) for name in names]
    for length in lengths:
        with Peer("stlcgpp") as peer:
            tree = to_stlcgpp(until(X > 0.0, 0, length - 1, Y > 0.0), DT)
            theirs = float(peer.ask("memory", tree=tree, signals=_lists(random_signals(length, 1), 1)))
        rows.append(Row(f"memory.stlcgpp.until.T{length}.N1", theirs, "B", peer="with masks"))
    guessed = theirs * (1000 / lengths[-1]) ** 3
    told = f"with masks, extrapolated from T = {lengths[-1]} with the cube of T, the size of its tensors"
    return [*rows, Row("memory.stlcgpp.until.T1000.N1", guessed, "B", peer=told)]


def needed_memory(length: int = 1000, worlds: int = 64) -> int:
    """Bytes beyond the signals that forward and backward of an until over the whole trace need, at their peak."""
    import torch

    def pass_over(data: Mapping[str, Any], samples: int) -> None:
        robustness(until(X > 0.0, 0, samples - 1, Y > 0.0), data, DT)[0].sum().backward()

    def tensors(samples: int) -> dict[str, Any]:
        signals = random_signals(samples, worlds)
        return {name: torch.from_numpy(values).requires_grad_() for name, values in signals.items()}

    torch.set_num_threads(1)
    pass_over(tensors(20), 20)
    data = tensors(length)
    return peak_beyond(lambda: pass_over(data, length))


# ---------------------------------------------------------------- GPU


def gpu() -> list[Row]:
    """Each operator on a GPU as a share of a pass that only reads and writes its traces."""
    import torch

    if torch.cuda.is_available():
        return _share_rows(shares("cuda", 1000, 16 * WORLDS))
    return [Row(f"gpu.{name}.of_memory_bound", None, "1", GPU_SHARE, NO_GPU) for name in operators(1000)]


def operators(length: int) -> dict[str, Formula]:
    """One formula for each kind of operator, with windows of 50 samples, and the conjunction."""
    x, y = X > 0.0, Y > 0.0
    return {"G": always(0, 50, x), "F": eventually(0, 50, x), "U": until(x, 0, 50, y), "S": since(x, 0, 50, y),
            "ALL": formulas(length)["ALL"]}  # fmt: skip


def shares(device: str, length: int, worlds: int) -> dict[str, float]:
    """Time of the pass over the same traces divided by that of the operator: a copy of x, the minimum of x and y."""
    import torch

    data = {name: torch.randn(length, worlds, device=device) for name in ("x", "y")}
    least = wall_seconds(lambda: torch.minimum(data["x"], data["y"]), device)
    copied = wall_seconds(lambda: data["x"].clone(), device)
    return {name: (copied if name in ("G", "F") else least) / wall_seconds(_scored(formula, data), device)
            for name, formula in operators(length).items()}


def _share_rows(found: Mapping[str, float]) -> list[Row]:
    return [Row(f"gpu.{name}.of_memory_bound", share, "1", GPU_SHARE,
                "a copy of x" if name in ("G", "F") else "the minimum of x and y", share >= GPU_SHARE)
            for name, share in found.items()]


def wall_seconds(work: Callable[[], object], device: str) -> float:
    """Median time of a call on ``device``, after two that compile."""
    import torch

    times = []
    for _ in range(8):
        begin = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return median(times[2:])


if __name__ == "__main__":
    print(needed_memory())
