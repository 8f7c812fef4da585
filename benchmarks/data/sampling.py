"""Batches drawn at random from a dataset, against a gather from numpy arrays and LeRobot's loader on the same set.

Each round draws with all in turn, so that a busy machine slows all of them. LeRobot's loader is torch's DataLoader over
its dataset class, in one process, as the columns are.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np

from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import ActionSpec, Interface
from temporeal.policies.data.episodes.writer import DatasetWriter
from temporeal.robots.signals import SignalSpec, schema
from temporeal_benchmarks.peers.install import PeerError
from temporeal_benchmarks.peers.process import Peer
from temporeal_benchmarks.rows import Row, at_least, not_measured

BATCH = 256
SIGNALS = schema(SignalSpec("joint_pos", (7,), "rad"), SignalSpec("joint_vel", (7,), "rad/s"),
                 SignalSpec("tool_pos_b", (3,), "m", "b"), SignalSpec("cube_pos_b", (3,), "m", "b"))
ACTION = ActionSpec("joint_pos_cmd", (-3.0,) * 7, (3.0,) * 7, "rad")
STATE = Interface("arm", SIGNALS, ACTION, 50.0)
SEEING = Interface("arm", {**SIGNALS, "front": SignalSpec("front", (64, 64, 3), dtype="uint8")}, ACTION, 50.0)
NAMES = ("joint_pos", "joint_vel", "tool_pos_b", "cube_pos_b", "action", "next.reward")
OVER_NUMPY, OVER_LEROBOT = 0.5, 5.0


def episodes(face: Interface, count: int, steps: int) -> Iterator[Episode]:
    """Random numbers in each signal; pictures that move."""
    rng = np.random.default_rng(0)
    for number in range(count):
        signals = {name: rng.normal(size=(steps + 1, *spec.shape)).astype(np.float32)
                   for name, spec in face.signals.items() if spec.dtype == "float32"}
        if "front" in face.signals:
            ramp = (np.arange(64)[None, :] * 3 + np.arange(steps + 1)[:, None] * 2 + number) % 256
            signals["front"] = np.broadcast_to(ramp[:, None, :, None], (steps + 1, 64, 64, 3)).astype(np.uint8)
        yield Episode(signals, rng.uniform(-1, 1, (steps, 7)).astype(np.float32),
                      reward=rng.normal(size=steps).astype(np.float32))


def made(folder: Path, face: Interface, count: int, steps: int) -> Dataset:
    """A set of random episodes."""
    shutil.rmtree(folder, ignore_errors=True)
    with DatasetWriter(folder, face) as writer:
        writer.add_many(episodes(face, count, steps))
    return Dataset.open(folder)


def rate(draw: Callable[[np.ndarray], object], samples: int, seconds: float, seed: int) -> float:
    """Samples per second that ``draw`` gathers, :data:`BATCH` indices at a time."""
    rng = np.random.default_rng(seed)
    indices = rng.integers(0, samples, (1000, BATCH))
    drawn, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in range(10):
            draw(indices[drawn % 1000])
            drawn += 1
    return drawn * BATCH / (time.perf_counter() - began)


def against_numpy(data: Dataset, rounds: int, seconds: float) -> tuple[float, list[float]]:
    """Samples per second of mapped columns, and in each round the share of it of what plain arrays give."""
    mapped = [data.column(name) for name in NAMES]
    plain = [np.array(column) for column in mapped]
    ours, ratios = [], []
    for number in range(rounds):
        a = rate(lambda rows: [column[rows] for column in mapped], data.samples, seconds, number)
        b = rate(lambda rows: [column[rows] for column in plain], data.samples, seconds, number)
        ours.append(a)
        ratios.append(a / b)
    return median(ours), ratios


def rows(quick: bool, out: Path) -> list[Row]:
    """Rates and ratios, from state and with pictures."""
    count, steps, rounds, seconds = (20, 100, 3, 0.2) if quick else (400, 250, 7, 1.0)
    state = made(out / "state", STATE, count, steps)
    ours, ratios = against_numpy(state, rounds, seconds)
    found = [Row("data.sampling.samples_per_second", ours, "1/s", peer=f"of {state.samples} samples, 6 columns"),
             at_least("data.sampling.over_numpy", median(ratios), "1", OVER_NUMPY,
                      f"rounds from {min(ratios):.2f} to {max(ratios):.2f}")]
    seen = made(out / "seeing", SEEING, *((4, 50) if quick else (40, 250)))
    pictures = [seen.column(name) for name in (*NAMES, "front")]
    with_pictures = rate(lambda indices: [column[indices] for column in pictures], seen.samples, seconds, 0)
    decoding = rate(lambda indices: seen.frames("front", indices[:32]), seen.samples, seconds, 0) * 32 / BATCH
    found += [Row("data.sampling.with_pictures.samples_per_second", with_pictures, "1/s",
                  peer=f"64x64 pictures of h264 from the decoded column; {seen.samples} samples"),
              Row("data.sampling.decoding.samples_per_second", decoding, "1/s", peer="pictures, decoded each time")]
    return found + against_lerobot(state, seen, {"over_lerobot": ours, "with_pictures.over_lerobot": with_pictures,
                                                 "decoding.over_lerobot": decoding}, seconds)


def against_lerobot(state: Dataset, seen: Dataset, ours: dict[str, float], seconds: float) -> list[Row]:
    """How many times as many samples a second as LeRobot's loader draws from the same sets."""
    try:
        with Peer("lerobot") as peer:
            theirs = [peer.ask("sampling", folder=str(data.folder.absolute()), batch=BATCH, seconds=max(2.0, seconds),
                               keys=[data.key(name) for name in NAMES] if data is state else [])
                      for data in (state, seen)]
    except PeerError as error:
        return [not_measured(f"data.sampling.{name}", "1", OVER_LEROBOT, str(error)) for name in list(ours)[:2]]
    state_only, pictures = (f"LeRobot 0.4.4: {other:,.0f} samples/s" for other in theirs)
    first, second, third = ours
    return [at_least(f"data.sampling.{first}", ours[first] / theirs[0], "1", OVER_LEROBOT, state_only),
            at_least(f"data.sampling.{second}", ours[second] / theirs[1], "1", OVER_LEROBOT, pictures),
            Row(f"data.sampling.{third}", ours[third] / theirs[1], "1", peer=pictures)]
