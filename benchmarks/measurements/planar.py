"""``temporeal bench planar``: how fast robots in the plane are simulated, alone and with formulas for rewards."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from temporeal_benchmarks.rounds import Program, rates, ratios, repeated
from temporeal_benchmarks.rows import Row, spread

HELP = (
    "linear and unicycle steps/s at 16,384 worlds: the motion alone; the complete step of formulas of the suite with "
    "TGPO's view of them (schedule, observation, stage-wise reward, ends, resets) under random actions. Per CPU-second "
    "of one thread: medians of interleaved rounds, with the least and the most; a round is a hundred steps or so, with "
    "ends and resets as in the long run. The motion in numpy as a peer"
)

WORLDS = 16384
TARGET = 10e6  # 1/CPU-s: tens of millions
ROUND_S = 0.2  # of a round, about: a hundred complete steps
TASKS = ("linear_reach", "linear_patrol", "unicycle_reach", "unicycle_patrol")
SYSTEMS = {"linear": "vel_cmd", "unicycle": "twist_cmd"}  # and the command of each

Work = tuple[str, Callable[[], object]]


def run(quick: bool, *, out: Path | None = None) -> list[Row]:
    """Medians of the rounds, and the ratios to numpy within rounds."""
    works = [*_motions(), *((f"complete.{task}", _complete(task)) for task in TASKS)]
    found = rates({name: Program(repeated(work, time.thread_time, ROUND_S), WORLDS) for name, work in works},
                  5 if quick else 20)
    rows = [row for name, rounds in found.items() if not name.startswith("numpy.")
            for row in spread(f"planar.{name}", rounds, "1/CPU-s", TARGET)]
    for system in SYSTEMS:
        name, peer = f"motion.{system}", "numpy on arrays in the cache: the motion alone, no checks, no signals"
        rows += spread(f"planar.{name}.against_numpy", ratios(found, name, f"numpy.{system}"), "1", peer=peer)
    return rows


def _motions() -> Iterator[Work]:
    """The backend and the same motion in numpy, for each robot."""
    import numpy as np
    import torch

    from temporeal.robots.spec import load_robot
    from temporeal.sim.backends import planar

    dt, rng = 0.2, np.random.default_rng(0)
    for name, command in SYSTEMS.items():
        backend = planar.make(load_robot(name), WORLDS, command, dt=dt, threads=1)
        control = rng.uniform(-1.0, 1.0, (WORLDS, 2)).astype(np.float32)
        given = torch.from_numpy(control)
        yield f"motion.{name}", lambda backend=backend, given=given: backend.step(given, 1)  # type: ignore
        place, yaw = np.zeros((WORLDS, 2), np.float32), np.zeros(WORLDS, np.float32)

        def point(place: np.ndarray = place, control: np.ndarray = control) -> None:
            place += np.float32(dt) * np.clip(control, -1.0, 1.0)

        def cart(place: np.ndarray = place, yaw: np.ndarray = yaw, control: np.ndarray = control) -> None:
            way, turn = np.clip(control[:, 0], -0.2, 1.0) * np.float32(dt), control[:, 1] * np.float32(dt)
            chord = way * np.sinc(turn / np.float32(2 * np.pi))
            place[:, 0] += chord * np.cos(yaw + np.float32(0.5) * turn)
            place[:, 1] += chord * np.sin(yaw + np.float32(0.5) * turn)
            np.add(yaw, turn, out=yaw)

        yield f"numpy.{name}", point if name == "linear" else cart


def _complete(task: str) -> Callable[[], object]:
    """The environment as TGPO trains in it."""
    import torch

    from temporeal.policies.runs import environments
    from temporeal.policies.runs.settings import compose

    torch.set_num_threads(1)
    settings = compose.compose([f"task=stl/{task}", "threads=1"])
    env = environments.make_env(settings, task=environments.make_task(settings), num_worlds=WORLDS, seed=1)
    env.reset()
    generator = torch.Generator().manual_seed(0)
    actions = [2 * torch.rand(WORLDS, env.action_dim, generator=generator) - 1 for _ in range(8)]
    turns = itertools.cycle(actions)
    return lambda: env.step(next(turns))
