"""Where formulas are flown: worlds of a robot that ask for nothing, end for nothing, and show what is measured.

A task that is learned ends an episode once its program is late or broken; a flight goes on to its formula's end, which
may be satisfied in another way. The observation is the measured signals themselves, one after the other: who flies has
maps of its own. N worlds, K of them, U command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from temporeal.sim.maps import Memory
from temporeal.sim.task import Carry, Draw, Task
from temporeal.sim.types import TaskEnv

Signals = Mapping[str, Tensor]


class FlownEnv(TaskEnv, Protocol):
    """The part of :class:`temporeal.sim.env.Env` that flights take; ``command_override``: what the next step sends."""

    command_override: Tensor | None


Make = Callable[[Task, int, int], Any]
"""``make(task, num_worlds, seed) -> FlownEnv``; under which conditions is its own."""


class Measured(nn.Module):
    """The measured signals as the observation. ``shapes``: of a world's, by name."""

    memory: Mapping[str, tuple[int, ...]] = {}

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        super().__init__()
        self.shapes, self.signals = dict(shapes), tuple(shapes)
        self.obs_dim = sum(map(prod, shapes.values()))

    def forward(self, signals: Signals, memory: Memory) -> tuple[Tensor, Memory]:
        """Observation [N, O]; it remembers nothing."""
        return torch.cat([signals[name].reshape(-1, prod(shape)) for name, shape in self.shapes.items()], -1), memory

    def record(self, memory: Memory, action: Tensor) -> Memory:
        """Nothing."""
        return memory

    def read(self, obs: Tensor) -> dict[str, Tensor]:
        """The signals [N, ...] of an observation [N, O], by name."""
        parts = obs.split([prod(shape) for shape in self.shapes.values()], -1)
        return {name: part.reshape(-1, *shape) for (name, shape), part in zip(self.shapes.items(), parts)}


class Commanded:
    """Actions are commands."""

    def __init__(self, command: str, size: int) -> None:
        self.command, self.action_dim = command, size

    def __call__(self, action: Tensor, memory: Memory) -> Tensor:
        """The command [N, U]."""
        return action

    def inverse(self, command: Tensor, memory: Memory) -> Tensor:
        """The action [N, U]."""
        return command

    def to(self, device: torch.device) -> Commanded:
        """Itself: it has no constants."""
        return self


class Endless:
    """Nothing is worth anything, and nothing ends."""

    carry: Mapping[str, tuple[int, ...]] = {}
    privileged_dim = 0

    def start(self, signals: Signals, carry: Carry) -> Carry:
        """Nothing to carry."""
        return carry

    def step(self, signals: Signals, action: Tensor, carry: Carry) -> tuple[Tensor, Tensor, Carry]:
        """Reward 0 [N], never terminated [N]."""
        nothing = action.new_zeros(len(action))
        return nothing, nothing > 0, carry

    def privileged(self, signals: Signals, carry: Carry) -> Tensor:
        """Nothing."""
        raise NotImplementedError("privileged_dim is 0")

    def success(self, signals: Signals, carry: Carry) -> Tensor:
        """Never [N]."""
        return torch.zeros(len(next(iter(signals.values()))), dtype=torch.bool)


def arena(task: Task, names: Sequence[str], steps: int, states: Mapping[str, Tensor]) -> Task:
    """The robot of ``task`` for ``steps`` control steps, world i from row i of ``states`` [N, ...]; its observation is
    what is measured of ``names``."""
    def initial(draw: Draw) -> dict[str, Tensor]:
        count = len(draw("initial.flights", 1))
        return {name: value[:count].clone() for name, value in states.items()}

    size = task.robot.command(task.command).size
    observe = Measured({name: tuple(task.schema[name].shape) for name in names})
    quiet: dict[str, Any] = {"mid_episode": None, "missions": None, "schedules": None, "extra": None, "finite": False}
    return replace(task, observe=observe, act=Commanded(task.command, size), objective=Endless(), initial=initial,
                   episode_s=steps * task.control_dt, **quiet)
