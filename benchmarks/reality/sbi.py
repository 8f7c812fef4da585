"""Simulation-based inference as a peer: sbi's neural posterior estimation beside this project's identification.

Both are asked for the same parameters of the same simulated flights (``FLIGHTS`` of ``SECONDS``, robots drawn from the
prior, :mod:`temporeal.sim.identification.synthetic`), which neither has seen. sbi 0.27 (Tejero-Cantero et al., JOSS
5(52), 2020) learns a posterior with its own defaults from ``TRAINED`` other flights of the same simulator, gusts and
noise, each summarized by the regressions of :mod:`temporeal_benchmarks.reality.summaries`: once trained it answers in
milliseconds, but for flights of that length, rate and controller alone. Compared are the parameters that are excited in
every flight (``SHOWN``): how far the middle is off, how wide 90 % are, and how often they hold the truth.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np

from temporeal.sim.identification.identify import identify
from temporeal.sim.identification.parameters import SIDE_90
from temporeal.sim.identification.record import Numbers
from temporeal.sim.identification.settings import Settings
from temporeal.sim.identification.synthetic import Flights, flights
from temporeal_benchmarks.peers.install import installed
from temporeal_benchmarks.peers.process import Peer
from temporeal_benchmarks.reality import logs
from temporeal_benchmarks.reality.summaries import summary
from temporeal_benchmarks.reality.synthetic import SHOWN, SHOWN_WITH_POSE
from temporeal_benchmarks.rows import Row, not_measured

FLIGHTS, TRAINED, AT_ONCE, SECONDS, SEED = 20, 8000, 250, 10.0, 60
SHARES, DRAWS = (0.05, 0.5, 0.95), 2000
NAMES = ("reality.sbi.error", "reality.sbi.width", "reality.sbi.coverage")
ABSENT = "sbi is not installed: python -m temporeal_benchmarks.peers sbi"


def rows(quick: bool, out: Path) -> list[Row]:
    """Ratios of this project's to sbi's; no targets."""
    if not installed("sbi"):
        return [not_measured(name, "1", None, ABSENT) for name in NAMES]
    held = flights(logs.robot(), 3 if quick else FLIGHTS, SECONDS, SEED)
    began = time.process_time()
    ours = np.array([fitted(held, k) for k in range(len(held.records))])
    each_s = (time.process_time() - began) / len(held.records)
    theirs, said = estimated(held, TRAINED // 32 if quick else TRAINED, out)
    shown = [each.name in SHOWN + SHOWN_WITH_POSE for each in held.asked]
    truth = standard(held, held.truth)
    return judged(ours[:, :, shown], theirs[:, :, shown], truth[:, shown], f"{said}; ours {each_s:.1f} s a flight")


def judged(ours: Numbers, theirs: Numbers, truth: Numbers, said: str) -> list[Row]:
    """Of quantiles [N, 3, Q] and truths [N, Q], all in standard deviations of the prior."""
    (error, width, share), (their_error, their_width, their_share) = (
        (off(each, truth), wide(each), held_share(each, truth)) for each in (ours, theirs))
    of = f"{len(truth)} flights of {SECONDS:g} s, {truth.shape[1]} parameters, in standard deviations of the prior"
    return [Row(NAMES[0], error / their_error, "of sbi's", peer=f"root mean square {error:.3f}, sbi {their_error:.3f}; "
                f"{of}; {said}"),
            Row(NAMES[1], width / their_width, "of sbi's", peer=f"median 90 % interval {width:.3f}, sbi "
                f"{their_width:.3f}"),
            Row(NAMES[2], share, "1", peer=f"90 % intervals that hold the truth; sbi {their_share:.3f}")]


def off(found: Numbers, truth: Numbers) -> float:
    """Root mean square of the middles' errors."""
    return float(np.sqrt(((found[:, 1] - truth) ** 2).mean()))


def wide(found: Numbers) -> float:
    """The median interval."""
    return float(np.median(found[:, 2] - found[:, 0]))


def held_share(found: Numbers, truth: Numbers) -> float:
    """Of intervals that hold the truth."""
    return float(((found[:, 0] <= truth) & (truth <= found[:, 2])).mean())


def fitted(held: Flights, k: int) -> Numbers:
    """[3, Q] low, middle and high of the k-th flight by this project."""
    found = identify([held.records[k]], logs.robot(), Settings(steps=0))
    sides = np.array([-SIDE_90, 0.0, SIDE_90])[:, None] * found.posterior.sd
    return standard(held, found.posterior.theta + sides)


def standard(made: Flights, theta: Numbers) -> Numbers:
    """Parameters [..., Q] in standard deviations of the prior."""
    return np.asarray((theta - [each.mean for each in made.asked]) / [each.sd for each in made.asked])


def estimated(held: Flights, count: int, out: Path) -> tuple[Numbers, str]:
    """[N, 3, Q] quantiles of the flights by sbi, and what it cost."""
    file, simulated_s = training_set(count, out)
    with Peer("sbi") as peer:
        trained = peer.ask("train", data=str(file.resolve()), seed=1)
        began = time.perf_counter()
        found = peer.ask("quantiles", x=[summary(each).tolist() for each in held.records], at=SHARES, draws=DRAWS)
        each_s = (time.perf_counter() - began) / len(held.records)
    return np.array(found), (f"sbi: {count} flights simulated in {simulated_s:.0f} s of a core, trained in "
                             f"{trained['seconds']:.0f} s ({trained['epochs']:.0f} epochs), {each_s:.2f} s a flight")


def training_set(count: int, out: Path) -> tuple[Path, float]:
    """An NPZ file of theta and x, made once, and the seconds of a core that it took."""
    out.mkdir(parents=True, exist_ok=True)
    file, cost = out / f"sbi-{SEED}-{count}.npz", out / f"sbi-{SEED}-{count}.json"
    if not cost.exists():
        began = time.process_time()
        parts = [part(SEED + 1 + k, min(AT_ONCE, count)) for k in range(max(count // AT_ONCE, 1))]
        np.savez(file, theta=np.concatenate([theta for theta, _ in parts]), x=np.concatenate([x for _, x in parts]))
        cost.write_text(json.dumps(time.process_time() - began))
    return file, float(json.loads(cost.read_text()))


def part(seed: int, count: int) -> tuple[Numbers, Numbers]:
    """Parameters and summaries of some flights."""
    made = flights(logs.robot(), count, SECONDS, seed)
    return standard(made, made.truth), np.array([summary(each) for each in made.records])
