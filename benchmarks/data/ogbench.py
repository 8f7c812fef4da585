"""OGBench's cube-single: what HIQL at the paper's settings would take on this machine, which is why it is not run.

The paper (Park et al., ICLR 2025) makes 1,000,000 updates of 1,024 goals with layers of 512 x 3 on 1,000,000 steps of
play. Both rates are measured here, the oracle's only where ``ogbench`` is installed.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.offline import hiql
from temporeal_benchmarks.rows import Row, not_measured

STATE, ACTIONS = 28, 5  # of cube-single
EPISODE, EPISODES = 200, 50
STEPS, UPDATES = 1_000_000, 1_000_000  # of the paper
COMMAND = ("temporeal data generate task=ogbench task.settings.env=cube-single-v0 quality=play episodes=1000 seed=1 "
           "out=play; temporeal train algo=hiql dataset=play algo.updates=1000000 algo.batch=1024 "
           "algo.hidden=[512,512,512] algo.subgoal_steps=10 algo.goal=[goal] algo.achieved=[state]")


def rows(quick: bool, out: Path) -> list[Row]:
    """Seconds of an update and of a step of the oracle, and the hours that they come to."""
    torch.set_num_threads(1)
    update = seconds_of_update(2 if quick else 10)
    found = [Row("data.ogbench.hiql.update", 1e3 * update, "ms", peer="batch 1,024, layers of 512 x 3, one core"),
             Row("data.ogbench.hiql.training", UPDATES * update / 3600.0, "h", peer="1,000,000 updates, one core")]
    if find_spec("ogbench") is not None:
        step = seconds_of_step(50 if quick else 400)
        found += [Row("data.ogbench.play.steps", 1.0 / step, "1/s", peer="cube-single, its plan oracle, one core"),
                  Row("data.ogbench.play.hours", STEPS * step / 3600.0, "h", peer="1,000,000 steps of play")]
    return [*found, not_measured("data.ogbench.cube_single.success", "1", "paper's interval",
                                 f"it takes the hours above for each seed; {COMMAND}")]


def seconds_of_update(count: int) -> float:
    """Processor time of one update of HIQL at the paper's sizes; the loop's own share is taken off."""
    config = hiql.HIQLConfig(
        batch=1024, hidden=(512, 512, 512), subgoal_steps=10, goal=tuple(range(STATE, 2 * STATE)),
        achieved=tuple(range(STATE)), evaluate_updates=0, report_updates=1, checkpoint_seconds=1e9, updates=2)
    return (timed(config, 2 + count) - timed(config, 2)) / count


def timed(config: hiql.HIQLConfig, updates: int) -> float:
    """Processor time of a training."""
    began = time.process_time()
    with tempfile.TemporaryDirectory() as run:
        hiql.train(steps(), replace(config, updates=updates, report_updates=updates), out=Path(run), seed=0)
    return time.process_time() - began


def steps() -> Transitions:
    """Random play: how long an update takes does not depend on it."""
    rng, count = np.random.default_rng(0), EPISODE * EPISODES
    obs = torch.from_numpy(rng.standard_normal((count, 2 * STATE)).astype(np.float32))
    action = torch.from_numpy(np.tanh(rng.standard_normal((count, ACTIONS))).astype(np.float32))
    return Transitions(obs, action, torch.zeros(count), obs.roll(-1, 0), torch.ones(count),
                       torch.arange(count) // EPISODE, torch.arange(0, count + 1, EPISODE))


def seconds_of_step(count: int) -> float:
    """Processor time of a step of cube-single under its oracle of play."""
    from temporeal.sim.adapters.ogbench import Worlds

    worlds = Worlds("cube-single-v0", 1, "play")
    action = worlds.reset(0, 1)["oracle"]
    began = time.process_time()
    for _ in range(count):
        action = worlds.step(0, action)["oracle"]
    return (time.process_time() - began) / count
