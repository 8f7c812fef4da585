"""Learning through two processes: the actor's rate while the learner takes the other core, and kills of either side.

``temporeal actor --sim`` flies a simulated quadrotor in real time at 100 Hz, ``temporeal learner`` learns from it over
loopback with more updates owed than it can make, so that it never rests. A cycle is late whose command is sent more
than half a period after the cycle began, or never. Kills are SIGKILL at random moments, of either side in turn; lost
is what the actor had said to be on its disk and the learner's journal does not hold at the end.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from temporeal_benchmarks.priority import load
from temporeal_benchmarks.rows import Row, at_least, at_most, none_of

LATE = 0.001  # target: share of cycles
WORDS = ("task=hover", "algo=sac", "algo.warmup=0", "algo.batch=256", "algo.updates_per_step=50",
         "algo.checkpoint_seconds=2")
EPISODE = re.compile(r"episode \d+, (\d{20}-[0-9a-f]{12}):")
PORTS = 20_000, 32_000
START_S, END_S = 300.0, 300.0  # s, at most: until a process is up, until all is delivered


class Side(NamedTuple):
    """A process, and the lines that it has said."""

    process: subprocess.Popen[str]
    lines: list[str]
    reader: threading.Thread

    def kill(self) -> None:
        """SIGKILL, and what it had said until then."""
        self.process.kill()
        self.process.wait()
        self.reader.join()

    def end(self) -> None:
        """SIGTERM, and its orderly end."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(END_S)
        self.reader.join()


class Killed(NamedTuple):
    """What became of the episodes: lost, there twice, refused; made, and learned from at the end."""

    kills: int
    lost: int
    twice: int
    refused: int
    episodes: int
    learned: int


def started(verb: str, *words: str) -> Side:
    """``temporeal VERB`` with the words."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "temporeal.policies.cli.main", verb, *words], text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"})
    lines = list[str]()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    return Side(process, lines, reader)


def learner(folder: Path, *words: str) -> Side:
    """A learner at a port that stays the same."""
    return started("learner", *WORDS, f"out={folder / 'learner'}", f"listen=127.0.0.1:{port_of(folder)}", *words)


def actor(folder: Path, *words: str) -> Side:
    """An actor of it."""
    return started("actor", "--sim", *WORDS, f"out={folder / 'actor'}", f"connect=127.0.0.1:{port_of(folder)}",
                   f"token={folder / 'learner' / 'token'}", "weights=0.5", *words)


def port_of(folder: Path) -> int:
    """A port that was free when it was first asked for: below those that the system gives to whoever connects, for an
    actor that asks again and again would be given that of the learner that is gone."""
    file = folder / "port"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(str(free_port(np.random.default_rng())))
    return int(file.read_text())


def free_port(rng: np.random.Generator) -> int:
    """A free port of :data:`PORTS`."""
    while True:
        port = int(rng.integers(*PORTS))
        with socket.socket() as link, suppress(OSError):
            link.bind(("127.0.0.1", port))
            return port


def until(true: Callable[[], bool], seconds: float, sides: Sequence[Side] = ()) -> None:
    """Wait until something is so; an error where a side has ended meanwhile."""
    end = time.monotonic() + seconds
    while not true():
        for side in sides:
            if side.process.poll() is not None:
                raise RuntimeError(f"a side has ended: {''.join(side.lines[-20:])}")
        if time.monotonic() > end:
            raise RuntimeError(f"nothing came about within {seconds:g} s: {[side.lines[-5:] for side in sides]}")
        time.sleep(0.01)


def made_by(sides: Sequence[Side]) -> list[str]:
    """Identities of the episodes that actors have said to be on their disk."""
    return [found[1] for side in sides for line in side.lines if (found := EPISODE.match(line))]


def killed(folder: Path, kills: int, rng: np.random.Generator) -> Killed:
    """Kill actor and learner in turn, most often after another episode, sometimes while they are starting."""
    learning, acting = learner(folder), None
    until((folder / "learner" / "token").exists, START_S, [learning])
    acting = actor(folder)
    actors = [acting]
    for k in range(kills):
        before = len(made_by(actors))
        if rng.random() < 0.8:
            until(lambda before=before: len(made_by(actors)) > before, START_S, [learning, acting])  # type: ignore[misc]
        time.sleep(rng.uniform(0.0, 1.0))
        if k % 2:
            learning.kill()
            learning = learner(folder)
        else:
            acting.kill()
            acting = actor(folder)
            actors.append(acting)
    before = len(made_by(actors))
    until(lambda: len(made_by(actors)) > before, START_S, [learning, acting])
    acting.end()
    waits = folder / "actor" / "episodes"
    if any(waits.glob("[!.]*")):  # the courier ends with its actor: one more delivers what is left
        acting = actor(folder, "episodes=1")
        actors.append(acting)
        acting.process.wait(END_S)
        acting.reader.join()
    learning.end()
    return counted(folder, kills, made_by(actors))


def counted(folder: Path, kills: int, made: Sequence[str]) -> Killed:
    """What the disks of both sides say at the end."""
    from temporeal.policies.robot_learning.learning.journal import NAME, Journal
    from temporeal.policies.robot_learning.wire.messages import decode
    from temporeal.policies.training import offline_learner
    from temporeal.policies.training.off_policy import checkpoints

    journal = Journal(folder / "learner" / NAME)
    held = Counter(decode(data, "the journal", "episode").fields["id"] for data in journal.records())
    journal.close()
    learned = offline_learner.read(checkpoints.latest(folder / "learner"), checkpoints.KIND)["env"]["episodes"]
    return Killed(kills, len(set(made) - set(held)), sum(count - 1 for count in held.values()),
                  len(list((folder / "actor" / "refused").glob("*.episode"))), len(held), int(learned))


def held_rate(folder: Path, seconds: float, priority: str) -> dict[str, float]:
    """What an actor says of its cycles in ``seconds`` of flight beside a learner that does not rest; and the learner's
    updates per second."""
    learning = learner(folder, "algo.report_steps=100000")
    until((folder / "learner" / "token").exists, START_S, [learning])
    acting = actor(folder, f"priority={priority}", "--json")
    until(lambda: (folder / "actor" / "episodes").exists() and journal_size(folder) > 0, START_S, [learning, acting])
    began = time.monotonic()
    before = processor(learning.process.pid)
    time.sleep(seconds)
    busy = (processor(learning.process.pid) - before) / (time.monotonic() - began)
    acting.end()
    learning.end()
    said = "".join(acting.lines)
    found = json.loads(said[said.index("{") : said.rindex("}") + 1])
    return {**{name: float(found[name]) for name in ("cycles", "late", "late_share", "episodes")}, "busy": busy}


def journal_size(folder: Path) -> int:
    """Bytes that the learner has received."""
    from temporeal.policies.robot_learning.learning.journal import NAME

    path = folder / "learner" / NAME
    return path.stat().st_size if path.exists() else 0


def processor(pid: int) -> float:
    """Processor time [s] that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rows(quick: bool, out: Path) -> list[Row]:
    """The rate, with real-time priority where that is permitted, and with none; and the kills."""
    import shutil

    shutil.rmtree(out, ignore_errors=True)
    seconds, kills = (10.0, 4) if quick else (120.0, 50)
    ahead, plain = (held_rate(out / name, seconds, name) for name in ("auto", "normal"))
    about = (f"{ahead['cycles']:.0f} cycles at 100 Hz, loopback, the learner took {ahead['busy']:.0%} of a core; "
             f"{load()}")
    made = killed(out / "kills", kills, np.random.default_rng(49))
    said = f"{made.kills} kills of either side in turn, {made.episodes} episodes"
    return [at_most("residual.robot.actor.late", ahead["late_share"], "1", LATE, about),
            Row("residual.robot.actor.late at normal priority", plain["late_share"], "1",
                peer=f"{plain['cycles']:.0f} cycles"),
            none_of("residual.robot.kills.lost", made.lost, said),
            none_of("residual.robot.kills.twice", made.twice, said),
            none_of("residual.robot.kills.refused", made.refused, said),
            at_least("residual.robot.kills.learned", made.learned, "1", made.episodes, "episodes, at the end")]
