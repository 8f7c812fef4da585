"""Grounding: the place of what a sentence names, from pictures of rendered scenes.

It stands in for a pretrained vision-language model. Worlds are reset, the arm moves, pictures and sentences are kept,
and the encoder learns to tell the places that the simulator knows. Of the commands nothing is kept. In some worlds the
arm wanders under random actions, in others it goes where the task's controller by hand brings it: a hand over what is
named hides it, and of such pictures a prefix that never saw any told a tenth 8 cm off (a trial). S frames, N worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.data.demonstrators.arms import Controller
from temporeal.policies.data.demonstrators.scripted import scripted
from temporeal.policies.data.episodes.interface import ActionSpec, Interface
from temporeal.policies.nets.encoders import is_picture, is_words
from temporeal.policies.training.chunks.learner import Cloning, CloningConfig
from temporeal.policies.training.chunks.windows import Batch, Windows
from temporeal.policies.training.errors import SettingsError, require
from temporeal.policies.vla.config import SeeingConfig
from temporeal.robots.signals import Schema, SignalSpec, schema
from temporeal.sim.task import Task
from temporeal.sim.types import Obs, TaskEnv

ASIDE = 0.3  # share of a random action that pushes an arm aside which follows


@dataclass(frozen=True)
class GroundingConfig(SeeingConfig, CloningConfig):
    """Settings of the learner. ``configs/algo/vla_grounding.yaml`` has the same names.

    Args:
        frames: S, of which one scene in 16 is held out, to measure the error.
        looks: frames of each scene: the arm is elsewhere in each.
        wander: control steps between them, under one random action.
        follow: share of the worlds in which the arm does what the sentence asks for, as the task's controller by hand
            does it, pushed aside; 0: of a task that has none.
    """

    updates: int = 1500
    batch: int = 96
    learning_rate: float = 3e-3
    shift: int = 0
    noise: float = 0.0
    frames: int = 4096
    looks: int = 4
    wander: int = 15
    follow: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, looks="[1, inf)", wander="[1, inf)", frames="[16, inf)", follow="[0, 1]")
        self.check()
        if self.follow and self.looks < 2:
            raise SettingsError(f"algo.follow={self.follow}: an arm follows between two looks, and algo.looks="
                                f"{self.looks}; algo.follow=0")
        if not self.ground:
            raise SettingsError("algo.ground names no signal: there is nothing to learn")


class Grounding(Cloning):
    """Learning of the places alone; the policy has no decoder."""

    def losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The squared error."""
        assert self.told is not None
        found = self.told.loss(self.policy.encoder.prefix(batch.signals), batch.signals)
        return found, found[None]


def read_of(env: TaskEnv, cameras: Mapping[str, Tensor], ground: Sequence[str]) -> Schema:
    """Pictures, the sentence and the signals ``ground`` of the worlds; a clear error where there are none."""
    known = env.task.schema
    pictures = [SignalSpec(name, tuple(value.shape[1:]), "1", "", "uint8") for name, value in cameras.items()]
    pictures = [spec for spec in pictures if is_picture(spec)]
    if not pictures:
        raise SettingsError("grounding looks at pictures in colour, and there is no camera: cameras.front.width=64 "
                            "cameras.front.height=64")
    if missing := [name for name in ground if name not in known]:
        raise SettingsError(f"algo.ground: task {env.task.name!r} has no signal {', '.join(missing)}; it has: "
                            f"{', '.join(known)}")
    return schema(*pictures, *(spec for spec in known.values() if is_words(spec)), *(known[name] for name in ground))


@torch.no_grad()
def looks(env: TaskEnv, config: GroundingConfig, generator: torch.Generator) -> Iterator[dict[str, Tensor]]:
    """Pictures and signals of all worlds [N, ...], one look after the other, without an end."""
    experts = expert_of(env.task, config) if config.follow else None
    while True:
        obs, drawn = env.reset(), torch.rand((2, env.num_worlds), generator=generator)
        leads = led(env, experts(env.num_worlds), drawn[0] < config.follow, 0.3 + 0.7 * drawn[1]) if experts else alone
        for look in range(config.looks):
            obs = wander(env, config.wander, leads, generator) if look else obs
            yield {**env.true_signals(), **obs.images}


def expert_of(task: Task, config: GroundingConfig) -> Callable[[int], Controller]:
    """The controller by hand; a clear error where there is none, or episodes end before the last look."""
    if (last := (config.looks - 1) * config.wander) >= task.steps:
        raise SettingsError(f"algo.looks={config.looks} and algo.wander={config.wander}: the last look is after {last} "
                            f"control steps, and an episode has {task.steps}")
    try:
        return scripted(task)
    except ValueError as error:
        raise SettingsError(f"algo.follow: {error}; algo.follow=0 wanders alone") from error


def alone(action: Tensor) -> Tensor:
    """Nobody leads: the random action [N, A]."""
    return action


def led(env: Any, expert: Controller, follows: Tensor, pace: Tensor) -> Callable[[Tensor], Tensor]:
    """``expert`` leads the worlds that follow [N], at their ``pace`` [N]; the random action pushes them aside."""

    def leads(action: Tensor) -> Tensor:
        wanted = expert(env.true_signals(), pace)
        return torch.where(follows[:, None], (wanted + ASIDE * action).clamp(-1.0, 1.0), action)

    return leads


def wander(env: Any, steps: int, leads: Callable[[Tensor], Tensor], generator: torch.Generator) -> Obs:
    """The observations after steps with one random action in each world, or what ``leads`` makes of it; the last step
    alone is rendered."""
    action = 2.0 * torch.rand((env.num_worlds, env.action_dim), generator=generator) - 1.0
    rendering, env.rendering = env.rendering, False
    for _ in range(steps - 1):
        env.step(leads(action))
    env.rendering = rendering
    obs: Obs = env.step(leads(action)).obs
    return obs


def frames(env: TaskEnv, config: GroundingConfig, generator: torch.Generator) -> Windows:
    """S frames, as windows that have no commands."""
    read = read_of(env, env.reset().images, config.ground)
    kept: dict[str, list[np.ndarray]] = {name: [] for name in read}
    seen = 0
    for look in looks(env, config, generator):
        for name, spec in read.items():
            kept[name].append(look[name].cpu().numpy().astype(spec.dtype))
        seen += env.num_worlds
        if seen >= config.frames:
            break
    found: dict[str, Any] = {name: np.concatenate(parts)[: config.frames] for name, parts in kept.items()}
    numbers = {name: torch.from_numpy(value) for name, value in found.items() if not is_picture(read[name])}
    at = torch.arange(config.frames)
    command = env.task.robot.command(env.task.command)
    interface = Interface(env.task.robot.name, read, ActionSpec(command.name, command.low, command.high),
                          1.0 / env.task.control_dt)
    return Windows(interface, numbers, {name: value for name, value in found.items() if is_picture(read[name])},
                   torch.zeros(config.frames, command.size), at, at, 1)
