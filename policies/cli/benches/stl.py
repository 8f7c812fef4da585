"""``temporeal bench stl``: how fast formulas are scored, differentiated and monitored, against rtamt and stlcg++."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

import numpy as np

from policies.cli.benches import Row
from policies.cli.peers import PINS, Peer, peak_beyond
from policies.cli.peers.translate import to_rtamt, to_stlcgpp
from sim.stl.lower import Semantics
from sim.stl.robustness import robustness
from sim.stl.syntax import And, Formula, Signal, always, eventually, horizon, since, until

HELP = (
    "STL formulas G = G[0,T-1] x, FG = F[0,T/2] G[0,T/4] y, Uw = x U[0,50] y and ALL, their conjunction, on traces of "
    "T samples of 4096 worlds, float32, robustness at every sample: signal-timesteps per CPU-second on one core, "
    "forward and with the gradient; peak memory of an until over the whole trace; online monitors with windows of 200 "
    "samples; operators on a GPU against a copy. Peers: rtamt and stlcg++ (make peers), in the same rounds, on fewer "
    "signals. Medians of interleaved rounds, once the values agree"
)

WORLDS, DT, SEED = 4096, 1.0, 0
LENGTHS = (100, 200, 500, 1000)
COMPARED = (100, 1000)  # lengths at which the peers are measured
FORWARD, BACKWARD = 100e6, 50e6  # 1/CPU-s, targets
WINDOW = 200  # samples, online
ONLINE_NS, UPDATE_US = 10.0, 10.0  # targets
MEMORY = 64e6  # B, target
GPU_SHARE = 0.5  # of a memory-bound pass, target
# signals that a peer is given: as many as it is fastest with, fewer where that would take seconds or gigabytes
RTAMT_SIGNALS = {("G", 100): 8, ("FG", 100): 8, ("Uw", 100): 4, ("ALL", 100): 4,
                 ("G", 1000): 2, ("FG", 1000): 2, ("Uw", 1000): 1, ("ALL", 1000): 1}  # fmt: skip
STLCGPP_SIGNALS = {("G", 100): 64, ("FG", 100): 64, ("Uw", 100): 8, ("ALL", 100): 8,
                   ("G", 1000): 2, ("FG", 1000): 2, ("Uw", 1000): 1, ("ALL", 1000): 1}  # fmt: skip
SIGNALS = {"rtamt": RTAMT_SIGNALS, "stlcgpp": STLCGPP_SIGNALS}
TARGETS = {("rtamt", "windows"): 1e3, ("stlcgpp", "windows"): 500.0, ("rtamt", "until"): 1e4,
           ("stlcgpp", "until"): 1e4}  # fmt: skip
KINDS = {"windows": ("G", "FG"), "until": ("Uw", "ALL")}
NO_GPU = "no GPU at hand"

X, Y = Signal("x"), Signal("y")
Signals = dict[str, np.ndarray]


@dataclass(frozen=True)
class Program:
    """What is measured: ``seconds()`` of processor time for one pass over ``work`` signal-timesteps."""

    seconds: Callable[[], float]
    work: int


def formulas(length: int) -> dict[str, Formula]:
    """The measured formulas over traces of ``length`` samples."""
    x, y = X > 0.0, Y > 0.0
    parts = {"G": always(0, length - 1, x), "FG": eventually(0, length // 2, always(0, length // 4, y)),
             "Uw": until(x, 0, 50, y)}  # fmt: skip
    return {**parts, "ALL": And(tuple(parts.values()))}


def run(quick: bool) -> list[Row]:
    """Everything on one core; a round measures every program once, so that load and clock changes meet all of them."""
    rounds = 3 if quick else 9
    with one_core(), Peer("rtamt") as rtamt, Peer("stlcgpp") as stlcgpp:
        peers = {"rtamt": rtamt, "stlcgpp": stlcgpp}
        rows = [Row("settings.worlds", WORLDS, "float32"), Row("settings.rounds", rounds),
                *(Row(f"settings.{name}", None, peer=" ".join(PINS[name])) for name in peers)]
        rows += offline(peers, rounds)
        rows += online(rtamt, rounds)
    return rows + memory_rows((100, 200) if quick else (100, 200, 400)) + gpu()


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
    """Signal-timesteps per CPU-second of each program in each round."""
    found: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, program in programs.items():
            found[name].append(program.work / program.seconds())
    return found


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


def offline(peers: Mapping[str, Peer], rounds: int) -> list[Row]:
    """Forward and backward, ours and theirs."""
    signals = {length: random_signals(length) for length in LENGTHS}
    programs = {**_forward(signals), **_backward(signals)}
    for name, peer in peers.items():
        check(name, peer, signals)
        programs |= _theirs(name, peer, signals)
    programs["rtamt.G_without_window.T1000"] = _without_window(peers["rtamt"], signals[1000])
    found = rates(programs, rounds)
    return [*_forward_rows(found), *_ratio_rows(found), *_backward_rows(found)]


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


def _theirs(name: str, peer: Peer, signals: Mapping[int, Signals]) -> dict[str, Program]:
    """Programs of a peer on the first of our signals."""
    programs = {}
    for (key, length), count in SIGNALS[name].items():
        program = f"{name}.{key}.T{length}"
        _prepare(name, peer, program, formulas(length)[key], signals[length], count)
        programs[program] = Program(_asked(peer, program), length * count)
    if name == "stlcgpp":
        count = STLCGPP_SIGNALS["ALL", 100]
        tree = to_stlcgpp(formulas(100)["ALL"], DT)
        peer.ask("prepare", key="backward", tree=tree, signals=_lists(signals[100], count), backward=True)
        programs["stlcgpp.backward.T100"] = Program(_asked(peer, "backward"), 100 * count)
    return programs


def _prepare(name: str, peer: Peer, key: str, formula: Formula, data: Signals, count: int) -> None:
    if name == "rtamt":
        peer.ask("prepare", key=key, text=to_rtamt(formula), worlds=_worlds(data, count), period_ms=1000)
    else:
        peer.ask("prepare", key=key, tree=to_stlcgpp(formula, DT), signals=_lists(data, count), backward=False)


def _without_window(peer: Peer, data: Signals) -> Program:
    """rtamt's operator without a window, which is one pass: the same values as G[0,T-1]."""
    peer.ask("prepare", key="G", text="always (x > 0)", worlds=_worlds(data, 2), period_ms=1000)
    return Program(_asked(peer, "G"), 2 * len(data["x"]))


def _asked(peer: Peer, key: str) -> Callable[[], float]:
    return lambda: float(peer.ask("run", key=key))


def _worlds(data: Signals, count: int) -> list[dict[str, list[float]]]:
    return [{name: values[:, n].tolist() for name, values in data.items()} for n in range(count)]


def _lists(data: Signals, count: int) -> dict[str, list[list[float]]]:
    return {name: values[:, :count].tolist() for name, values in data.items()}


def check(name: str, peer: Peer, signals: Mapping[int, Signals]) -> None:
    """What is timed gives the same values, where the conventions agree; an ``AssertionError`` otherwise."""
    for (key, length), count in SIGNALS[name].items():
        formula, data = formulas(length)[key], signals[length]
        if name == "rtamt":
            ours = robustness(formula, data, DT)
            theirs = np.array(peer.ask("evaluate", text=to_rtamt(formula), worlds=_worlds(data, count),
                                       period_ms=1000)).T  # fmt: skip
        else:  # until is closed on its left side there, and values are right where every window ends in the trace
            ours = robustness(formula, data, DT, semantics=Semantics(until="closed"))
            ours = ours[: length - round(horizon(formula) / DT)]
            theirs = np.array(peer.ask("evaluate", tree=to_stlcgpp(formula, DT), signals=_lists(data, count)))
        _equal(ours[:, :count], theirs[: len(ours)], f"{key} at T = {length}: ours against {name}")
    if name == "stlcgpp":
        _check_gradient(peer, signals[100], STLCGPP_SIGNALS["ALL", 100])


def _check_gradient(peer: Peer, data: Signals, count: int) -> None:
    import torch

    formula = formulas(100)["ALL"]
    theirs = peer.ask("gradient", tree=to_stlcgpp(formula, DT), signals=_lists(data, count))
    ours = {name: torch.from_numpy(values).requires_grad_() for name, values in data.items()}
    robustness(formula, ours, DT, semantics=Semantics(until="closed"))[0].sum().backward()
    for name, values in ours.items():
        assert values.grad is not None
        _equal(values.grad[:, :count].numpy(), np.array(theirs[name]), f"gradient to {name}: ours against stlcg++")


def _equal(ours: np.ndarray, theirs: np.ndarray, what: str) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6, err_msg=f"the values differ: {what}")


def _forward_rows(found: Mapping[str, Sequence[float]]) -> list[Row]:
    lengths = {length: median(found[f"forward.ALL.T{length}"]) for length in LENGTHS}
    rows = [Row(f"forward.{key}.T{length}", median(found[f"forward.{key}.T{length}"]), "1/CPU-s")
            for length in COMPARED for key in ("G", "FG", "Uw")]
    rows += [Row(f"forward.ALL.T{length}", rate, "1/CPU-s") for length, rate in lengths.items()]
    least = min(lengths.values())
    return [*rows, Row("forward.ALL.least", least, "1/CPU-s", FORWARD, None, least >= FORWARD)]


def _ratio_rows(found: Mapping[str, Sequence[float]]) -> list[Row]:
    rows = []
    for (name, kind), target in TARGETS.items():
        ratios = []
        for length in COMPARED:
            for key in KINDS[kind]:
                ratio, told = _against(found, f"forward.{key}.T{length}", name, key, length)
                rows.append(Row(f"against_{name}.{key}.T{length}", ratio, "1", peer=told))
                ratios.append(ratio)
        least = min(ratios)
        rows.append(Row(f"against_{name}.{kind}.least", least, "1", target, None, least >= target))
    theirs = found["rtamt.G_without_window.T1000"]
    plain = median(a / b for a, b in zip(found["forward.G.T1000"], theirs))
    told = f"rtamt's always without a window, {median(theirs):.3g} /CPU-s"
    return [*rows, Row("against_rtamt.G_without_window.T1000", plain, "1", peer=told)]


def _against(found: Mapping[str, Sequence[float]], ours: str, name: str, key: str, length: int) -> tuple[float, str]:
    theirs = found[f"{name}.{key}.T{length}"]
    ratio = median(a / b for a, b in zip(found[ours], theirs))
    return ratio, f"{median(theirs):.3g} /CPU-s on {SIGNALS[name][key, length]} signals"


def _backward_rows(found: Mapping[str, Sequence[float]]) -> list[Row]:
    rows = []
    for loss in ("first_sample", "all_samples"):
        rows += [Row(f"backward.{loss}.T{length}", median(found[f"backward.{loss}.T{length}"]), "1/CPU-s")
                 for length in COMPARED]
    least = min(row.value or 0.0 for row in rows if "first_sample" in row.name)
    rows.append(Row("backward.first_sample.least", least, "1/CPU-s", BACKWARD, None, least >= BACKWARD))
    theirs = found["stlcgpp.backward.T100"]
    ratio = median(a / b for a, b in zip(found["backward.first_sample.T100"], theirs))
    told = f"{median(theirs):.3g} /CPU-s on {STLCGPP_SIGNALS['ALL', 100]} signals"
    return [*rows, Row("against_stlcgpp.backward.T100", ratio, "1", 1e3, told, ratio >= 1e3)]


# ---------------------------------------------------------------- online


def monitored(window: int = WINDOW) -> Formula:
    """The conjunction with windows of ``window`` samples."""
    x, y = X > 0.0, Y > 0.0
    return And((always(0, window, x), eventually(0, window // 2, always(0, window // 2, y)), until(x, 0, window, y)))


def online(rtamt: Peer, rounds: int) -> list[Row]:
    """Updates of many worlds and of one robot, exact values and bounds, and of rtamt's monitor, in the same rounds."""
    from sim.stl.monitor import Monitor
    from sim.stl.stream import Stream
    from sim.stl.stream_bounds import Missions

    formula, data = monitored(), random_signals(2 * WINDOW)
    check_stream(formula, data)
    many, one, missions = Stream(formula, DT, WORLDS), Stream(formula, DT), Missions(formula, DT, WORLDS)
    of_many = [{name: values[t] for name, values in data.items()} for t in range(2 * WINDOW)]
    of_one = [{name: float(values[t, 0]) for name, values in data.items()} for t in range(2 * WINDOW)]
    rtamt.ask("monitor", key="online", text=to_rtamt(formula), names=["x", "y"], period_ms=1000)

    def mission(samples: Sequence[Mapping[str, Any]]) -> list[float]:
        """Bounds from the first sample to the horizon: they do not change behind it."""
        missions.reset()
        return _updates(missions.update, samples[: WINDOW + 1])

    programs = {
        "many": lambda: _updates(many.update, of_many),
        "one": lambda: _updates(one.update, of_one),
        "bounds of many": lambda: mission(of_many),
        "bounds of one": lambda: _updates(Monitor(formula, DT).update, of_one[: WINDOW + 1]),
        "rtamt": lambda: rtamt.ask("updates", key="online", signals=_some(data, WINDOW // 4)),
    }
    for program in programs.values():
        program()
    rtamt.ask("updates", key="online", signals=_some(data, WINDOW))  # its windows are full from here on
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, program in programs.items():
            seconds[name] += program()
    return _online_rows(seconds)


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


def _online_rows(seconds: Mapping[str, Sequence[float]]) -> list[Row]:
    # an update now and then makes up for many cheap ones: what counts is the mean over whole windows
    whole = [seconds["many"][i : i + 2 * WINDOW] for i in range(0, len(seconds["many"]), 2 * WINDOW)]
    each = 1e9 * median(sum(part) / len(part) for part in whole) / WORLDS
    bounds = sum(seconds["bounds of many"]) / len(seconds["bounds of many"])
    worst = 1e9 * quantiles(seconds["many"], n=100)[-1] / WORLDS
    one, slowest = (1e6 * s for s in (median(seconds["one"]), quantiles(seconds["one"], n=100)[-1]))
    theirs = 1e6 * median(seconds["rtamt"])
    return [
        Row("online.window", WINDOW, "samples"),
        Row("online.worlds.update", each, "ns/world", ONLINE_NS, None, each <= ONLINE_NS),
        Row("online.worlds.p99", worst, "ns/world"),
        Row("online.one.update", one, "us", UPDATE_US, f"rtamt {theirs:.4g} us", one <= UPDATE_US),
        Row("online.one.p99", slowest, "us"),
        Row("online.against_rtamt", theirs / one, "1", peer="one robot; rtamt's values are wrong for mixed horizons"),
        Row("online.bounds.worlds.update", 1e9 * bounds / WORLDS, "ns/world"),
        Row("online.bounds.one.update", 1e6 * median(seconds["bounds of one"]), "us"),
    ]


def check_stream(formula: Formula, samples: Signals) -> None:
    """What is timed gives the robustness of the whole trace, later by the horizon."""
    from sim.stl.stream import Stream

    few = {name: np.concatenate([values[:, :8]] * 2) for name, values in samples.items()}
    stream = Stream(formula, DT, worlds=8)
    length, delay = len(few["x"]), stream.delay_steps
    values = [stream.update({name: column[t] for name, column in few.items()}) for t in range(length)]
    _equal(np.array(values[delay:]), robustness(formula, few, DT)[: length - delay], "stream against whole trace")


# ---------------------------------------------------------------- memory


def memory_rows(lengths: Sequence[int]) -> list[Row]:
    """Peak memory of forward and backward of ``x U[0,T-1] y``, each in a process of its own."""
    done = subprocess.run([sys.executable, "-m", __name__], check=True, capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"})
    needed = float(done.stdout)
    rows = [Row("memory.until.T1000.N64", needed, "B", MEMORY, None, needed <= MEMORY)]
    for length in lengths:
        with Peer("stlcgpp") as peer:
            tree = to_stlcgpp(until(X > 0.0, 0, length - 1, Y > 0.0), DT)
            theirs = float(peer.ask("memory", tree=tree, signals=_lists(random_signals(length, 1), 1)))
        rows.append(Row(f"memory.stlcgpp.until.T{length}.N1", theirs, "B"))
    guessed = theirs * (1000 / lengths[-1]) ** 3
    return [*rows, Row("memory.stlcgpp.until.T1000.N1", guessed, "B",
                       peer=f"extrapolated from T = {lengths[-1]} with the cube of T, the size of its tensors")]


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
