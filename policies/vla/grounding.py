"""Grounding: the place of what a sentence names, from pictures of rendered scenes.

It stands in for a pretrained vision-language model. Worlds are reset, the arm moves, pictures and sentences are kept,
and the encoder learns to tell the places that the simulator knows. Of the commands nothing is kept. In some worlds the
arm wanders under random actions, in others it goes where the task's controller by hand brings it: a hand over what is
named hides it, and of such pictures a prefix that never saw any told a tenth 8 cm off (a trial).

Each pointer (:mod:`temporeal.policies.vla.pictures`) is told besides in which cell of a picture its place is (cross
entropy, bilinear over the four cells around it). Without that, places of seven kinds of task were told to 2.0 cm after
1,000 updates, with it to 1.6 (a trial, one seed, not kept).

S frames, N worlds, C cameras, Q pointers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
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
from temporeal.policies.vla.pictures import STRIDE
from temporeal.robots.signals import Schema, SignalSpec, schema
from temporeal.sim.rendering.projection import project
from temporeal.sim.task import Task
from temporeal.sim.types import Obs, TaskEnv

PIXELS = "pixels"
"""Key [N, C, Q, 3] among the signals: where each place is in each picture."""
ASIDE = 0.3  # share of a random action that pushes an arm aside which follows


@dataclass(frozen=True)
class GroundingConfig(SeeingConfig, CloningConfig):
    """Settings of the learner. ``configs/algo/vla_grounding.yaml`` has the same names.

    Args:
        frames: S, of which one scene in 16 is held out, to measure the error.
        looks: frames of each scene: the arm is elsewhere in each.
        wander: control steps between them, under one random action; None: at random moments of an episode. Scenes have
            each in turn. Of the same number of frames, all of whole episodes tell better what is pushed (over
            demonstrations 1.9 cm off and not 3.7, medians, one trial), and worse what is reached: 20 demonstrations on
            such an eye reached in .79 of 512 episodes, on that of 15 steps in .93.
        follow: share of the worlds in which the arm does what the sentence asks for, as the task's controller by hand
            does it, pushed aside; 0: of a task that has none.
        pixels: weight of the cross entropy of where pointers look.
    """

    updates: int = 1500
    batch: int = 96
    learning_rate: float = 3e-3
    shift: int = 0
    noise: float = 0.0
    frames: int = 4096
    looks: int = 4
    wander: Sequence[int | None] = (15,)
    follow: float = 0.5
    pointers: int = 2
    pixels: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, looks="[1, inf)", frames="[16, inf)", follow="[0, 1]", pixels="[0, inf)")
        self.check()
        require(self, wander="[1, inf)")
        if not self.wander:
            raise SettingsError("algo.wander=[] names no number of control steps: [15], [null] or several, [15,null]")
        if self.follow and self.looks < 2:
            raise SettingsError(f"algo.follow={self.follow}: an arm follows between two looks, and algo.looks="
                                f"{self.looks}; algo.follow=0")
        if not self.ground:
            raise SettingsError("algo.ground names no signal: there is nothing to learn")
        if self.pointers > len(self.ground):
            raise SettingsError(f"algo.pointers={self.pointers}: each looks at a place of algo.ground, which names "
                                f"{len(self.ground)}: at most so many pointers")
        if self.pointers and self.shift:
            raise SettingsError("algo.shift moves pictures, and pointers are taught where places are in them: "
                                "algo.shift=0 or algo.pointers=0")


class Grounding(Cloning):
    """Learning of the places alone; the policy has no decoder."""

    config: GroundingConfig

    def losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The squared error, with the cross entropy; the error alone."""
        assert self.told is not None
        tokens, logits = self.policy.encoder.prefix.looked(batch.signals)
        error = self.told.loss(tokens, batch.signals)
        where = batch.signals.get(PIXELS)
        aside = [] if where is None else [looking(each, where[:, i], shape[:2])
                                          for i, (each, shape) in enumerate(zip(logits, self.shapes))]
        return error + self.config.pixels * sum(aside), error[None]

    @property
    def shapes(self) -> list[Sequence[int]]:
        """Of each camera's pictures."""
        return [spec.shape for spec in self.policy.encoder.prefix.pictures]


def looking(logits: Tensor, where: Tensor, size: Sequence[int]) -> Tensor:
    """Cross entropy [] of where pointers look, over those whose places are in sight.

    Args:
        logits: [B, Q, cells].
        where: [B, Q, 3] row and column [pixels], and whether that is in sight (1) or not (0).
        size: of the pictures.
    """
    rows, columns = (-(-side // STRIDE) for side in size)
    at = where[..., :2] / STRIDE - 0.5  # a cell's middle is a whole number
    shares = near(at[..., 0], rows)[..., :, None] * near(at[..., 1], columns)[..., None, :]  # [B, Q, rows, columns]
    seen = where[..., 2]
    missed = -(shares.flatten(2) * torch.log_softmax(logits, -1)).sum(-1)
    return torch.where(seen > 0.0, missed, 0.0).sum() / seen.sum().clamp(min=1.0)


def near(at: Tensor, count: int) -> Tensor:
    """Shares [..., ``count``] of the two cells around each place ``at`` [...], by how near they are; sum: 1."""
    return (1.0 - (at.clamp(0.0, count - 1.0)[..., None] - torch.arange(count, device=at.device)).abs()).clamp(min=0.0)


def pixels_of(env: Any, read: Schema, places: Sequence[str], signals: Mapping[str, Tensor]) -> Tensor:
    """Where the signals ``places`` [N, 3] are in the latest pictures [N, C, Q, 3], as :func:`looking` takes it."""
    rig = env.pictures.rig
    found = project(torch.stack([signals[name] for name in places], 1).float(), rig.poses(), rig.cameras)
    order = [f"{camera.name}_rgb" for camera in rig.cameras]
    whose = [order.index(name) for name, spec in read.items() if is_picture(spec)]
    return torch.cat([found.pixel, found.inside[..., None]], -1)[:, whose]


def places_of(task: Task, config: GroundingConfig) -> tuple[str, ...]:
    """The signals that pointers look at; a clear error where one is no place in the world."""
    names = tuple(config.ground[: config.pointers])
    for name in names:
        if (spec := task.schema[name]).shape != (3,) or spec.unit != "m" or spec.frame != "w":
            raise SettingsError(f"algo.pointers={config.pointers}: signal {name!r} of algo.ground is no place in the "
                                f"world (3 numbers in m), it is {list(spec.shape)} in {spec.unit or 'no unit'}; places "
                                "first, or fewer pointers")
    return names


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
    for wander in config.wander:
        check_wander(env.task, config.looks, wander)
    experts = expert_of(env.task) if config.follow else None
    for wander in cycle(config.wander):
        obs, drawn = env.reset(), torch.rand((2, env.num_worlds), generator=generator)
        leads = led(env, experts(env.num_worlds), drawn[0] < config.follow, 0.3 + 0.7 * drawn[1]) if experts else alone
        yield {**env.true_signals(), **obs.images}
        for steps in apart(env.task, config.looks, wander, generator):
            obs = wandered(env, steps, leads, generator)
            yield {**env.true_signals(), **obs.images}


def check_wander(task: Task, looks: int, wander: int | None) -> None:
    """Refuse looks of which the last is after the episode's end."""
    if (last := (looks - 1) * (wander or 1)) >= task.steps:
        raise SettingsError(f"algo.looks={looks} and algo.wander=[{wander}]: the last look is after {last} control "
                            f"steps, and an episode has {task.steps}")


def apart(task: Task, looks: int, wander: int | None, generator: torch.Generator) -> list[int]:
    """Control steps from each of so many looks to the next: ``wander``, or anywhere in an episode."""
    if wander is not None:
        return [wander] * (looks - 1)
    times = torch.randperm(task.steps - 1, generator=generator)[: looks - 1].sort().values + 1
    return torch.diff(times, prepend=times.new_zeros(1)).tolist()


def expert_of(task: Task) -> Callable[[int], Controller]:
    """The controller by hand; a clear error where there is none."""
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


def wandered(env: Any, steps: int, leads: Callable[[Tensor], Tensor], generator: torch.Generator) -> Obs:
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
    places = places_of(env.task, config)
    kept: dict[str, list[np.ndarray]] = {name: [] for name in (*read, *([PIXELS] if places else []))}
    seen = 0
    for look in looks(env, config, generator):
        for name, spec in read.items():
            kept[name].append(look[name].cpu().numpy().astype(spec.dtype))
        if places:
            kept[PIXELS].append(pixels_of(env, read, places, look).cpu().numpy())
        seen += env.num_worlds
        if seen >= config.frames:
            break
    found: dict[str, Any] = {name: np.concatenate(parts)[: config.frames] for name, parts in kept.items()}
    numbers = {name: torch.from_numpy(value) for name, value in found.items()
               if name == PIXELS or not is_picture(read[name])}
    at = torch.arange(config.frames)
    command = env.task.robot.command(env.task.command)
    interface = Interface(env.task.robot.name, read, ActionSpec(command.name, command.low, command.high),
                          1.0 / env.task.control_dt)
    return Windows(interface, numbers, {name: value for name, value in found.items() if name not in numbers},
                   torch.zeros(config.frames, command.size), at, at, 1)
