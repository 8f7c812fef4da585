"""A writer is killed (SIGKILL) at random moments: every episode that it had written must be there, whole, afterwards.

The writer says the number of each episode once ``end`` or ``add`` has returned. After the kill the set is opened by a
reader, checked value by value, and appended to; what was said is compared with what is there.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from temporeal.policies.data.episodes.checking import check
from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import ActionSpec, Interface
from temporeal.policies.data.episodes.writer import DatasetWriter
from temporeal.robots.signals import SignalSpec, schema
from temporeal_benchmarks.rows import Row, at_least, none_of

KILLS = 200
LONGEST = 0.6  # s from the first sign of life to the kill
FACE = Interface(
    "arm", schema(SignalSpec("joint_pos", (7,), "rad"), SignalSpec("front", (32, 32, 3), dtype="uint8")),
    ActionSpec("joint_vel", (-1.0,) * 7, (1.0,) * 7, "rad/s"), 20.0)


def episode(number: int) -> Episode:
    """Episode ``number``: 3 to 12 steps whose values are known from the number."""
    rng = np.random.default_rng(number)
    steps = int(rng.integers(3, 13))
    picture = np.zeros((steps + 1, 32, 32, 3), np.uint8)
    picture[:] = (np.arange(steps + 1) * 9 + number * 31)[:, None, None, None] % 256
    return Episode({"joint_pos": rng.normal(size=(steps + 1, 7)).astype(np.float32), "front": picture},
                   rng.uniform(-1, 1, (steps, 7)).astype(np.float32), reward=rng.normal(size=steps).astype(np.float32),
                   language=f"task {number % 3}", info={"number": number})


def write(folder: str) -> None:
    """The writer: an episode after the other, streamed and added in turn, until it is killed."""
    with DatasetWriter(folder, FACE, append=True) as writer:
        print("begins", flush=True)
        while True:
            number = writer.episodes
            one = episode(number)
            if number % 2:
                writer.add(one)
            else:
                stream(writer, one)
            print(number, flush=True)


def stream(writer: DatasetWriter, one: Episode) -> None:
    """Write an episode step by step."""
    assert one.reward is not None
    writer.begin(one.language, one.info)
    for k in range(one.steps):
        writer.step({name: values[k] for name, values in one.signals.items()}, one.action[k], reward=one.reward[k])
    writer.end({name: values[-1] for name, values in one.signals.items()})


def killed_after(folder: Path, seconds: float) -> int:
    """Episodes that a writer said it had written before it was killed, ``seconds`` after it began."""
    process = subprocess.Popen([sys.executable, "-W", "ignore", "-m", "temporeal_benchmarks.data.killed_writer",
                                str(folder)], stdout=subprocess.PIPE, env=os.environ)
    assert process.stdout is not None
    if process.stdout.readline() != b"begins\n":
        raise RuntimeError(f"the writer ended, status {process.wait()}")
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    said = process.stdout.read().split(b"\n")[:-1]  # a line without its end was not said
    process.wait()
    process.stdout.close()
    return int(said[-1]) + 1 if said else -1


@dataclass
class Losses:
    """What went wrong after kills.

    Args:
        lost: episodes that were said to be written and are not there; ``wrong``: that differ from what was written.
        unreadable: kills after which the set could not be opened, or a check found something.
        open_lost: kills that lost the open episode, which may be.
    """

    kills: int = 0
    written: int = 0
    lost: int = 0
    wrong: int = 0
    unreadable: int = 0
    open_lost: int = 0


def kill(folder: Path, seconds: float, losses: Losses) -> None:
    """One kill, and what it did to the set in ``folder``."""
    before = Dataset.open(folder).episodes if (folder / "meta" / "info.json").exists() else 0
    said = max(before, killed_after(folder, seconds))
    losses.kills += 1
    try:
        found = Dataset.open(folder)
        losses.lost += max(0, said - found.episodes)
        losses.wrong += sum(not same(found, number) for number in range(before, found.episodes))
        damage = [one for one in check(folder) if one.kind != "empty"]  # it may be killed before the first episode
        losses.unreadable += bool(damage)
        print(*damage, sep="\n", end="", file=sys.stderr)
        losses.written += found.episodes - before
    except ValueError as error:
        losses.unreadable += 1
        print(f"kill {losses.kills}: {error}", file=sys.stderr)
    with warnings.catch_warnings(record=True) as said_more:
        warnings.simplefilter("always")
        DatasetWriter(folder, FACE, append=True).close()
    losses.open_lost += bool(said_more)


def same(found: Dataset, number: int) -> bool:
    """Whether an episode is what was written, pictures as near as video keeps them."""
    one, wanted = found.episode(number), episode(number)
    near = np.abs(one.signals["front"].astype(int) - wanted.signals["front"]).max() < 8
    assert one.reward is not None and wanted.reward is not None
    return bool(near and one.language == wanted.language and one.info == wanted.info and np.array_equal(
        one.signals["joint_pos"], wanted.signals["joint_pos"]) and np.array_equal(one.action, wanted.action)
        and np.array_equal(one.reward, wanted.reward))


def killed(folder: Path, kills: int, seed: int = 0) -> Losses:
    """``kills`` of writers to a set in ``folder``, at random moments; a set has up to 20 of them, then the next
    begins."""
    rng, losses = random.Random(seed), Losses()
    for number in range(kills):
        home = folder / f"set-{number // 20}"
        if number % 20 == 0:
            shutil.rmtree(home, ignore_errors=True)
        kill(home, rng.uniform(0.0, LONGEST), losses)
    return losses


def rows(quick: bool, out: Path) -> list[Row]:
    """Kills and what they lost."""
    losses = killed(out, 10 if quick else KILLS)
    how = f"{losses.kills} kills, {losses.written} episodes written between them"
    return [at_least("data.killed.kills", losses.kills, "1", 10 if quick else KILLS, how),
            none_of("data.killed.episodes_lost", losses.lost, how),
            none_of("data.killed.episodes_wrong", losses.wrong, how),
            none_of("data.killed.sets_unreadable", losses.unreadable, how),
            Row("data.killed.open_episodes_lost", losses.open_lost, "1", peer="the open episode may be lost")]


if __name__ == "__main__":
    write(sys.argv[1])
