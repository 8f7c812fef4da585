"""A simulated robot in real time, as a :class:`temporeal.policies.robot_learning.world.RobotWorld`: any task's world.

Sensors, delays and randomization are the settings'. Commands are confined to the robot's limits, and to limits of its
motion where these are given, as a guard does; what was executed is what the actor is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from temporeal.policies.data.demonstrators.collecting import prolonged, seen
from temporeal.policies.evaluate.measurement_recorder import measured, with_recorder
from temporeal.policies.robot_learning.wire.agreement import read_by
from temporeal.policies.robot_learning.world import Pacer, Sample
from temporeal.policies.runs import environments
from temporeal.policies.runs.artifacts import picture_specs
from temporeal.policies.runs.demonstrating.demonstrations import simulator
from temporeal.robots.motion import shield
from temporeal.robots.motion.rate_limiter import Bounds, Motion
from temporeal.robots.signals import SignalSpec
from temporeal.sim.task import MISSION_TIME

if TYPE_CHECKING:
    from temporeal.sim.env import Env
    from temporeal.sim.task import Task

FOREVER = 1 << 24  # steps of an episode of the simulation, whose end is the actor's to say


class SimWorld:
    """One world of ``env``, whose task records what is measured and does not end by itself.

    Args:
        limits: of the command and its motion; None: those of the command alone. pacer: None: real time.
    """

    def __init__(self, env: Env, limits: Bounds | None = None, pacer: Pacer | None = None) -> None:
        task = env.task
        self.env, self.robot, self.command, self.period_s = env, task.robot, task.command, task.control_dt
        self.name, self.spec = f"simulation: {simulator(env)}", task.robot.command(task.command)
        observe: Any = task.observe
        names = [name for name in observe.signals if name != MISSION_TIME.name]
        self.signals: dict[str, SignalSpec] = {**{name: task.schema[name] for name in names}, **picture_specs(env)}
        self.limits = limits or Bounds(self.spec.low, self.spec.high, self.period_s)
        self.pacer = pacer or Pacer(self.period_s)
        self.before: Motion | None = None
        self.idle, self.newest, self.broken = torch.zeros(1, env.action_dim), dict[str, np.ndarray](), "no episode yet"

    def reset(self) -> Sample:
        """A new episode of the simulation."""
        self.env.reset()
        self.before, self.broken = None, ""
        self.pacer.start()
        return Sample(self.measure())

    def resume(self) -> Sample:
        """Go on from where the robot is."""
        self.pacer.start()
        return Sample(self.newest, failed=self.broken)

    @torch.no_grad()
    def step(self, command: np.ndarray) -> Sample:
        """One control step, and the wait for the next one."""
        late = self.pacer.sent()
        verdict, self.before = shield.guard(self.spec, command, self.limits, self.before)
        if verdict.command is None:
            raise ValueError(f"the simulated robot takes no such command: {verdict.reason}")
        executed = verdict.command.reshape(-1).astype(np.float32)
        self.env.command_override = torch.from_numpy(executed)[None]
        step = self.env.step(self.idle)
        self.broken = "the simulated robot can go no further" if bool(step.terminated[0] | step.truncated[0]) else ""
        truth: Any = step.info["signals"]
        now = self.last(truth) if self.broken else self.measure()
        return Sample(now, executed, verdict.reason, self.broken, late + self.pacer.wait())

    def measure(self) -> dict[str, np.ndarray]:
        """The newest signals."""
        found = {name: np.array(value[0]) for name, value in seen(self.env, measured).items() if name in self.signals}
        self.newest = found
        return found

    def last(self, truth: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """What is known of the end: the environment shows its next episode already. What was true stands for what was
        measured, the last picture is the one before."""
        return {name: np.asarray(truth[name][0]).copy() if name in truth else value
                for name, value in self.newest.items()}

    def hold(self) -> None:
        """A simulation stands still by itself."""

    def close(self) -> None:
        """Give the simulator back."""
        self.env.backend.close()


def open_simulation(settings: Mapping[str, Any], task: Task, also: tuple[str, ...] = ()) -> SimWorld:
    """The simulation that the settings describe. ``also``: signals that are measured beside what policy and formula
    read, without the time, which the actor counts."""
    also = tuple(name for name in also if name != MISSION_TIME.name)
    task = prolonged(with_recorder(task, (*read_by(task), *also)), FOREVER)
    # one thread: others would have to wait for theirs, which have no real-time priority
    return SimWorld(environments.make_env({**settings, "num_worlds": 1, "threads": 1}, task=task))
