"""How well demonstrations are made: expert, medium, mixed, noisy, play.

* ``expert``: the expert as it is.
* ``medium``: succeeds about every second time; what it did is what is stored. Operators of different skill. An expert
  by hand moves at most at a pace that is drawn for each episode, its logarithm uniform from ``v log SLOWEST`` to 0, and
  wanders a little; each number of its action wavers by ``WAVER``, with a little noise. ``v``, the severity, is such
  that every second episode is late (:mod:`temporeal.policies.runs.demonstrating.demonstrations` finds it). Most steps
  are those of slow episodes: cloning is late. Policies that were learned know no pace: of several, such as those after
  each quarter of a training, one is drawn for each episode, with noise (``SHAKE v``). Noise around one good mean is
  averaged away by cloning. The noise is another one in each control step: where it lasts, the state shows what it was,
  and actions stored with it teach not to correct (at rest ``E[x dx/dt] = 0``: a regression on the place is flat).
* ``random``: correlated noise.
* ``mixed``: a third each of expert, medium and random.
* ``noisy``: DART (Laskey et al., CoRL 2017): noise is executed, the stored action is what the expert gave. The noise is
  one of the command, for a control step: what the policy remembers of its own actions stays consistent with them.
* ``play``: the expert brings about one random goal after another, without reset (:class:`Play`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, sqrt
from typing import Protocol

import torch
from torch import Tensor

from temporeal.sim.task import Task
from temporeal.sim.types import Obs

QUALITIES = ("expert", "medium", "mixed", "noisy", "play")
PARTS: Mapping[str, tuple[str, ...]] = {"mixed": ("expert", "medium", "random")}
"""What a quality is made of, in equal parts; the others are of themselves."""
SLOWEST, WANDERS = 0.01, 0.2  # of medium: the least pace at severity 1; how far, relative, a pace wanders
WAVER, LITTLE = 0.3, 0.02  # of medium: relative and absolute noise of an expert by hand
SHAKE = 1.5  # of medium at severity 1: standard deviation of the noise of a policy that was learned
RANDOM, NOISY = 0.7, 0.3  # standard deviations of the noise of random and, if nothing else is asked for, of noisy
LASTS, LASTS_LONG = 0.25, 1.0  # s: correlation times of noise, and of the pace


class Demonstrator(Protocol):
    """Acts in N worlds over one batch of episodes that begin together."""

    def __call__(self, obs: Obs, signals: Mapping[str, Tensor]) -> Choice:
        """What to do next. ``signals``: the true ones."""


@dataclass(frozen=True)
class Choice:
    """What a demonstrator does next.

    Args:
        action: [N, A] in [-1, 1], as it is stored.
        executed: [N, A], whose command is sent instead; None: ``action``.
        goal: signals of the goal that is pursued, in place of the task's.
    """

    action: Tensor
    executed: Tensor | None = None
    goal: Mapping[str, Tensor] = field(default_factory=dict)


Expert = Callable[[Obs, Mapping[str, Tensor], Tensor], Tensor]
"""Observation, true signals and pace [N] to action [N, A]. A policy that was learned knows no pace."""


class Noise:
    """Noise [N, *size] of standard deviation 1, correlated over ``lasts`` s (Ornstein and Uhlenbeck), or over none."""

    def __init__(self, shape: tuple[int, ...], dt: float, generator: torch.Generator, lasts: float = LASTS) -> None:
        self.generator, self.kept = generator, exp(-dt / lasts) if lasts else 0.0
        self.value = torch.randn(shape, generator=generator)

    def __call__(self) -> Tensor:
        """The noise of the next control step."""
        fresh = torch.randn(self.value.shape, generator=self.generator)
        self.value = self.kept * self.value + sqrt(1.0 - self.kept**2) * fresh
        return self.value


@dataclass(frozen=True)
class Recipe:
    """What a demonstrator of one quality is made of.

    Args:
        expert: makes the expert of a batch. ``paced``: it is by hand and knows a pace.
        lesser: the same of other policies: operators of less skill, for medium.
        severity: of medium, 0 to 1. noise: of noisy, standard deviations, one of which is drawn for each episode;
            lasts_s: s, its correlation time.
        goal_s: s, how long play pursues a goal.
    """

    task: Task
    expert: Callable[[int], Expert]
    paced: bool = True
    lesser: tuple[Callable[[int], Expert], ...] = ()
    severity: float = 0.5
    goal_s: float = 4.0
    noise: Sequence[float] = (NOISY,)
    lasts_s: float = LASTS

    def make(self, quality: str, worlds: int, generator: torch.Generator) -> Demonstrator:
        """The demonstrator of one batch of episodes in ``worlds`` worlds."""
        if quality == "play":
            return Play(self, worlds, generator)
        expert, full = self.expert(worlds), torch.ones(worlds)
        if quality == "expert":
            return lambda obs, signals: Choice(expert(obs, signals, full).clamp(-1.0, 1.0))
        lasts = {"medium": 0.0, "noisy": self.lasts_s}.get(quality, LASTS)
        noise = Noise((worlds, self.task.act.action_dim), self.task.control_dt, generator, lasts)
        if quality == "random":
            return lambda obs, signals: Choice((RANDOM * noise()).clamp(-1.0, 1.0))
        if quality == "noisy":
            which = torch.zeros(worlds, dtype=torch.long)
            if len(self.noise) > 1:
                which = torch.randint(len(self.noise), (worlds,), generator=generator)
            return noisy(expert, noise, full, torch.tensor(self.noise)[which][:, None])
        if not self.paced:
            shake, one = SHAKE * self.severity, self.one_of(expert, worlds, generator)
            return lambda obs, signals: Choice((one(obs, signals, full) + shake * noise()).clamp(-1.0, 1.0))
        return self.slow(expert, noise, Noise((worlds,), self.task.control_dt, generator, LASTS_LONG))

    def one_of(self, expert: Expert, worlds: int, generator: torch.Generator) -> Expert:
        """``expert`` or one of ``lesser`` in each of ``worlds`` worlds."""
        if not self.lesser:
            return expert
        experts = [expert, *(make(worlds) for make in self.lesser)]
        who = torch.randint(len(experts), (worlds,), generator=generator)

        def act(obs: Obs, signals: Mapping[str, Tensor], pace: Tensor) -> Tensor:
            return torch.stack([one(obs, signals, pace) for one in experts])[who, torch.arange(worlds)]

        return act

    def slow(self, expert: Expert, noise: Noise, wander: Noise) -> Demonstrator:
        """Medium of an expert by hand."""
        own = SLOWEST ** (self.severity * torch.rand(wander.value.shape, generator=wander.generator))

        def act(obs: Obs, signals: Mapping[str, Tensor]) -> Choice:
            pace = (own * (1.0 + WANDERS * wander())).clamp(SLOWEST, 1.0)
            action, shaken = expert(obs, signals, pace).clamp(-1.0, 1.0), noise()
            return Choice((action * (1.0 + WAVER * shaken) + LITTLE * shaken).clamp(-1.0, 1.0))

        return act


def noisy(expert: Expert, noise: Noise, full: Tensor, deviation: Tensor) -> Demonstrator:
    """The expert, while what is executed is shaken by ``deviation`` [N, 1]."""

    def act(obs: Obs, signals: Mapping[str, Tensor]) -> Choice:
        action = expert(obs, signals, full).clamp(-1.0, 1.0)
        return Choice(action, (action + deviation * noise()).clamp(-1.0, 1.0))

    return act


class Play:
    """The expert pursues random goals of the task's ``initial``, each for ``goal_s`` seconds, and is anew with each."""

    def __init__(self, recipe: Recipe, worlds: int, generator: torch.Generator) -> None:
        self.recipe, self.worlds, self.generator = recipe, worlds, generator
        self.lasts, self.count = max(1, round(recipe.goal_s / recipe.task.control_dt)), 0
        self.names = goals_of(recipe.task)
        self.goal: dict[str, Tensor] = {}
        self.full = torch.ones(worlds)

    def __call__(self, obs: Obs, signals: Mapping[str, Tensor]) -> Choice:
        """Towards the goal of now."""
        if self.count % self.lasts == 0:
            self.expert = self.recipe.expert(self.worlds)
            drawn = self.recipe.task.initial(lambda stream, n: torch.rand(self.worlds, n, generator=self.generator))
            self.goal = {name: drawn[name] for name in self.names}
        self.count += 1
        return Choice(self.expert(obs, {**signals, **self.goal}, self.full).clamp(-1.0, 1.0), goal=self.goal)


def goals_of(task: Task) -> tuple[str, ...]:
    """The signals of the task that are a goal, drawn for each episode; an error where it has none."""
    names = tuple(name for name in (task.extra.signals if task.extra is not None else ()) if name.startswith("goal_"))
    if not names:
        raise ValueError(f"quality=play: task {task.name!r} has no goals that are drawn; play is for tasks with goals: "
                         "reach, lift, push, joint_target, ogbench")
    return names
