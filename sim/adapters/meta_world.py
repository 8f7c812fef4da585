"""Meta-World's 50 tasks (Yu et al., CoRL 2019; package ``metaworld`` 3.0.0, MIT), with its scripted policies.

    temporeal train task=metaworld task.settings.env=door-open-v3 algo=ppo
    temporeal train task=metaworld task.settings.env=door-open-v3 task.settings.see=hand algo=ppo \
        cameras.front.width=64 cameras.front.height=64

One environment of the library serves all worlds (:mod:`temporeal.sim.adapters.meta_world_worlds`); with a sparse reward
some of them step without what that does not need (:mod:`temporeal.sim.adapters.meta_world_lean`). Steps and resets
equal the library's own (``tests/sim/adapters/test_meta_world.py``).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.robots.registry import guess
from temporeal.sim.adapters.foreign_worlds import Described, foreign_task
from temporeal.sim.adapters.meta_world_lean import simulated
from temporeal.sim.adapters.meta_world_scripts import SCRIPTS
from temporeal.sim.adapters.meta_world_sentences import MT10, SENTENCES
from temporeal.sim.adapters.meta_world_signals import Hand, Motion, StateTold, Told, tokens_of, told_at_start
from temporeal.sim.adapters.meta_world_worlds import Sawyer, SawyerDrawn, made, names, original, repaired
from temporeal.sim.stl.instructions.vocabulary import INSTRUCTION
from temporeal.sim.task import Task, check_range

__all__ = ("Mixed", "Sawyer", "expert", "made", "make", "names")
STATE, ACTION = 39, 4
CONTROL_DT = 0.0125  # s: five steps of 2.5 ms
LONGEST = 500  # control steps of the library's episodes
CONSTANTS: dict[str, Any] = {}
REWARDS, SEEN = ("dense", "success"), ("state", "motion", "hand")


def make(
    *, env: str = "door-open-v3", steps: int = LONGEST, reward: str = "dense", see: str = "state",
    formula: str | None = None, constants: Mapping[str, Any] | None = None,
) -> Task:
    """The task.

    Args:
        env: the library's name of it; several, as in ``drawer-open-v3,drawer-close-v3``, or ``mt10``: each episode
            draws one, and the instruction says which.
        steps: of an episode; the library's own has 500.
        reward: ``dense``: the library's, 0 to 10; ``success``: 1 while its goal is reached, and
            worlds of some environments step faster.
        see: what the policy is shown: ``state``: what the library observes; ``motion``: the same as poses, velocities
            and differences (:class:`temporeal.sim.adapters.meta_world_signals.Motion`); ``hand``: what cameras need not
            find (:data:`temporeal.sim.adapters.meta_world_signals.SHOWN`); the critic is shown the state.
        formula: None: its goal is reached within the episode.
    """
    check_range("metaworld", "steps", steps, 1, 10_000, "")
    envs = envs_in(env)
    for name, value, known in (("reward", reward, REWARDS), ("see", see, SEEN)):
        if value not in known:
            raise ValueError(f"task 'metaworld': {name} is one of {', '.join(known)}, got {value!r}")
    about = Described("metaworld", "metaworld", STATE, (-1.0,) * ACTION, (1.0,) * ACTION, steps, CONTROL_DT)
    sentence = SENTENCES[envs[0]] if len(envs) == 1 else ""
    task = foreign_task(about, lambda worlds: Mixed(envs, worlds, reward != "dense"), library(), ",".join(envs),
                        sentence, formula, constants, Told(), partial(told_at_start, envs))
    if see == "state":
        return task
    if see == "motion":
        return replace(task, observe=Motion(CONTROL_DT))
    return replace(task, observe=Hand(), objective=StateTold(task.episode_s))


def envs_in(text: str) -> tuple[str, ...]:
    """The environments that ``text`` names."""
    found, known = MT10 if text == "mt10" else tuple(part.strip() for part in text.split(",")), names()
    for env in found:
        if env not in known:
            raise ValueError(f"task 'metaworld': env={env}: no such environment; {guess(env, known)}known: mt10, "
                             f"{', '.join(known)}")
    if len(set(found)) < len(found):
        raise ValueError(f"task 'metaworld': env={text} names an environment twice")
    return found


def library() -> str:
    """Name and version."""
    from importlib.metadata import version

    return f"metaworld {version('metaworld')}"


class Mixed:
    """N worlds of several environments (:class:`temporeal.sim.adapters.foreign_worlds.Simulation`): the seed of an
    episode says which, as :func:`temporeal.sim.adapters.meta_world_signals.told_at_start` has it. Also what cameras see
    of them.

    Attributes:
        parts: one for each environment.
    """

    def __init__(self, envs: Sequence[str], worlds: int, sparse: bool) -> None:
        self.sawyers = [simulated(env, worlds, sparse) for env in envs]
        self.of = torch.zeros(worlds, dtype=torch.int64)
        self.parts = [SawyerDrawn(one) for one in self.sawyers]
        self.scenery = self

    def which(self) -> Tensor:
        """The environment that each world is of now: int64 [N]."""
        return self.of

    def reset(self, world: int, seed: int) -> Mapping[str, np.ndarray]:
        """Begin the episode of ``seed``."""
        self.of[world] = seed % len(self.sawyers)
        return self.sawyers[seed % len(self.sawyers)].reset(world, seed)

    def step(self, world: int, action: np.ndarray) -> Mapping[str, np.ndarray]:
        """One control step."""
        return self.sawyers[int(self.of[world])].step(world, action)

    def steps(self, worlds: Sequence[int], actions: np.ndarray) -> Mapping[str, np.ndarray]:
        """One control step of K ``worlds`` with ``actions`` [K, 4]: their signals [K, ...]."""
        first = self.sawyers[0]
        if len(self.sawyers) == 1:
            return first.steps(worlds, actions)
        found = [self.step(world, action) for world, action in zip(worlds, actions)]
        return {name: np.stack([each[name] for each in found]) for name in found[0]}

    def close(self) -> None:
        """Nothing to give back."""


def expert(task: Task, worlds: int) -> Callable[[Mapping[str, Tensor], Tensor], Tensor]:
    """The library's scripted policy. ``pace``: of the hand, at most."""
    envs = task.scene.env.split(",")  # type: ignore[attr-defined]
    chosen = SCRIPTS[envs[0]] if len(envs) == 1 and envs[0] in SCRIPTS else scripted(envs, worlds)

    def act(signals: Mapping[str, Tensor], pace: Tensor) -> Tensor:
        action = torch.as_tensor(chosen(signals), dtype=torch.float32).clamp(-1.0, 1.0)
        moved = torch.minimum(torch.maximum(action[:, :3], -pace[:, None]), pace[:, None])
        return torch.cat([moved, action[:, 3:]], -1)

    return act


def scripted(envs: Sequence[str], worlds: int) -> Callable[[Mapping[str, Tensor]], np.ndarray]:
    """The actions [N, 4] of the library's own policies in ``worlds`` worlds of ``envs``, asked one after the other."""
    repaired()
    from metaworld.policies import ENV_POLICY_MAP

    policies = [[ENV_POLICY_MAP[original(env)]() for env in envs] for _ in range(worlds)]
    said = {told: number for number, told in enumerate(map(tuple, tokens_of(envs).tolist()))}

    def act(signals: Mapping[str, Tensor]) -> np.ndarray:
        which = [said[tuple(row)] for row in signals[INSTRUCTION.name].tolist()] if len(envs) > 1 else [0] * worlds
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that gains exceed 1: actions are clipped
            return np.stack([own[k].get_action(state) for own, k, state in zip(
                policies, which, signals["state"].double().numpy())])

    return act
