"""``temporeal bench planar``: how fast robots in the plane are simulated, alone and with formulas for rewards."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from statistics import median

from temporeal_benchmarks.measurements.quadrotor import Program, rates_of
from temporeal_benchmarks.rows import Row

HELP = (
    "linear and unicycle steps/s at 16,384 worlds: the motion alone; the complete step of formulas of the suite with "
    "TGPO's view of them (schedule, observation, stage-wise reward, ends, resets) under random actions. Per CPU-second "
    "of one thread, the fastest of interleaved rounds, the median round beside it; a round is a hundred steps or so, "
    "with ends and resets as in the long run. The motion in numpy as a peer"
)

WORLDS = 16384
TARGET = 10e6  # tens of millions
ROUND_S = 0.2  # of a round, about: a hundred complete steps
TASKS = ("linear_reach", "linear_patrol", "unicycle_reach", "unicycle_patrol")


def run(quick: bool) -> list[Row]:
    """Every round measures every program once, so that load and clock changes meet all of them."""
    rounds = 5 if quick else 20
    programs = {**dict(_motions()), **{f"complete.{task}": _complete(task) for task in TASKS}}
    rates = rates_of(programs, rounds, time.thread_time, ROUND_S)
    peers = {f"motion.{system}": max(rates[f"numpy.{system}"]) for system in ("linear", "unicycle")}
    return [row for name in programs if not name.startswith("numpy.") for row in (
        Row(f"planar.{name}", max(rates[name]), "1/CPU-s", TARGET, peers.get(name), max(rates[name]) >= TARGET),
        Row(f"planar.{name}.median_round", median(rates[name]), "1/CPU-s"))]


def _motions() -> Iterator[tuple[str, Program]]:
    """The backend and the same motion in numpy, for each robot."""
    import numpy as np
    import torch

    from temporeal.robots.spec import load_robot
    from temporeal.sim.backends import planar

    dt, rng = 0.2, np.random.default_rng(0)
    for name, command in (("linear", "vel_cmd"), ("unicycle", "twist_cmd")):
        backend = planar.make(load_robot(name), WORLDS, command, dt=dt, threads=1)
        control = rng.uniform(-1.0, 1.0, (WORLDS, 2)).astype(np.float32)
        given = torch.from_numpy(control)
        yield f"motion.{name}", (lambda backend=backend, given=given: backend.step(given, 1), WORLDS)  # type: ignore
        place, yaw = np.zeros((WORLDS, 2), np.float32), np.zeros(WORLDS, np.float32)

        def point(place: np.ndarray = place, control: np.ndarray = control) -> None:
            place += np.float32(dt) * np.clip(control, -1.0, 1.0)

        def cart(place: np.ndarray = place, yaw: np.ndarray = yaw, control: np.ndarray = control) -> None:
            way, turn = np.clip(control[:, 0], -0.2, 1.0) * np.float32(dt), control[:, 1] * np.float32(dt)
            chord = way * np.sinc(turn / np.float32(2 * np.pi))
            place[:, 0] += chord * np.cos(yaw + np.float32(0.5) * turn)
            place[:, 1] += chord * np.sin(yaw + np.float32(0.5) * turn)
            np.add(yaw, turn, out=yaw)

        yield f"numpy.{name}", (point if name == "linear" else cart, WORLDS)


def _complete(task: str) -> Program:
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
    return lambda: env.step(next(turns)), WORLDS
