"""Recording in simulation: one world, in real time at the task's control rate, with any operator."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from temporeal.policies.data.demonstrators.collecting import TRUE
from temporeal.policies.data.recording.operators import Operator, Wish
from temporeal.policies.data.recording.session import Session
from temporeal.sim.stl.language.queries import signals_in
from temporeal.sim.stl.semantics.robustness import satisfied
from temporeal.sim.task import MISSION_TIME

if TYPE_CHECKING:
    from temporeal.sim.env import Env
    from temporeal.sim.types import Obs

Measure = Callable[["Env"], Mapping[str, np.ndarray]]
"""The newest measured signals [1, ...] of an environment."""


class Clock(Protocol):
    """Paces the loop."""

    def tick(self, period_s: float) -> bool:
        """Wait until the next period begins; whether it has begun already (the loop is late)."""


class RealTime:
    """The machine's clock. A loop that is late goes on from there, and does not catch up."""

    def __init__(self) -> None:
        self.next = time.monotonic()

    def tick(self, period_s: float) -> bool:
        """See :class:`Clock`."""
        self.next += period_s
        wait = self.next - time.monotonic()
        if wait < 0:
            self.next -= wait
            return True
        time.sleep(wait)
        return False


class AtOnce:
    """No waiting: policies and tests."""

    def tick(self, period_s: float) -> bool:
        """See :class:`Clock`."""
        return False


@dataclass
class Recording:
    """A recording in one world of ``env``, whose episodes last longer than ``steps``
    (:func:`temporeal.policies.data.demonstrators.collecting.prolonged`).

    Args:
        measure: what is recorded of a sample. ``show``: called after each sample.
    """

    env: Env
    operator: Operator
    session: Session
    measure: Measure
    steps: int
    clock: Clock
    show: Callable[[], None] = lambda: None
    late: int = 0

    def run(self) -> None:
        """Until enough episodes are recorded, or the operator quits."""
        obs = self.restart()
        while not self.session.over:
            wish = self.operator(obs, self.now)
            for event in wish.events:
                self.session.hear(event, self.begin, lambda: self.now, self.judged)
            if self.fresh:  # an episode began: the wish was for another state
                self.fresh, obs = False, self.obs
            elif self.session.open:
                obs = self.step(wish)
            self.late += self.clock.tick(self.env.task.control_dt)

    def restart(self) -> Obs:
        """A new episode of the world."""
        self.obs, self.fresh = self.env.reset(), False
        self.now = one_world(self.measure(self.env))
        self.trace = [self.truth(self.env.true_signals())]
        return self.obs

    def begin(self) -> None:
        """A new episode of the dataset."""
        self.restart()
        self.operator.begin()
        self.fresh = True
        self.session.begin(episode=int(self.env.episode[0]))
        self.show()

    @torch.no_grad()
    def step(self, wish: Wish) -> Obs:
        """One control step: the sample before it and its command are recorded."""
        env, action = self.env, torch.from_numpy(np.asarray(wish.action, np.float32))[None]
        if wish.command is not None:
            env.command_override = torch.from_numpy(np.asarray(wish.command, np.float32))[None]
        step = env.step(action.clamp(-1.0, 1.0))
        command = np.clip(env.command[0].numpy(), *self.limits())
        given = None if wish.command is not None else action[0].clamp(-1.0, 1.0).numpy()
        self.session.step(self.now, command, given, float(step.reward[0]))
        over = bool((step.terminated | step.truncated)[0])
        after = {name: value.numpy().copy() for name, value in step.info["signals"].items()}
        # where the episode is over the environment shows the next one already: what was true is what was measured last,
        # and the last picture is the one before
        measured = one_world(self.measure(env))
        self.now = measured if not over else {
            name: np.array(after[key][0]) if (key := name.removeprefix(TRUE)) in after else self.now[name]
            for name in measured}
        self.trace.append(self.truth(step.info["signals"]))
        self.show()
        if over or self.session.steps >= self.steps:
            self.session.end(self.now, self.judged() and not bool(step.terminated[0]), bool(step.terminated[0]))
        return step.obs

    def limits(self) -> tuple[np.ndarray, np.ndarray]:
        """Least and greatest command [U]."""
        spec = self.env.task.robot.command(self.env.task.command)
        return np.asarray(spec.low, np.float32), np.asarray(spec.high, np.float32)

    def truth(self, signals: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
        """What the formula reads of one sample."""
        return {name: signals[name][0].numpy().copy() for name in signals_in(self.env.task.formula)
                if name != MISSION_TIME.name}

    def judged(self) -> bool:
        """Whether the samples so far satisfy the formula, its windows clipped to them."""
        task = self.env.task
        trace = {name: np.stack([sample[name] for sample in self.trace])[:, None] for name in self.trace[0]}
        trace[MISSION_TIME.name] = task.control_dt * np.arange(len(self.trace), dtype=np.float32)[:, None]
        return bool(satisfied(task.formula, trace, task.control_dt)[0, 0])


def one_world(signals: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Copies of the first world's."""
    return {name: np.array(values[0]) for name, values in signals.items()}
