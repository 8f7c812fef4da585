"""The plain view of a formula: the policy sees the state and the time, and is told at the end what it was worth.

With a recurrent actor (``memory`` of :mod:`temporeal.policies.algos.ppo`) it is the recurrent baseline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor

from temporeal.robots.signals import SignalSpec
from temporeal.sim.rewards.online_robustness import Online, Part, Sample
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import And, Formula, to_text
from temporeal.sim.stl.rewriting.normal import positive
from temporeal.sim.task import weights

Memory = dict[str, Tensor]


class NotSupported(FormulaError):
    """A view that is published for some forms of formulas only was asked for another one: the message names both."""


@dataclass(frozen=True)
class Reward:
    """Coefficients, paid once, at the sample from which on the robustness is known; ``early`` is paid at each."""

    robustness: float = 1.0  # times the robustness of the formula over the whole episode, per unit of its margins
    satisfied: float = 0.0  # where that is positive
    early: float = 0.0  # times the change of the soft robustness of what was seen so far, `Soft`
    sharp: float = 5.0  # of it, 1 / unit of the margins: with 1, what just failed was worth more than what just held
    cap: float = 10.0  # margins' unit: robustness counts as within +-cap


class Clock:
    """The time as a feature: without it a task that ends is not Markovian (Pardo et al., ICML 2018)."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def __call__(self, memory: Mapping[str, Tensor]) -> tuple[Tensor, Memory]:
        """Share of the episode that is over [N, 1], and the next memory."""
        return (memory["tick"] / self.steps)[:, None], {"tick": memory["tick"] + 1.0}


class Scored:
    """What objectives share that know the formula's robustness when it can be known, and succeed where it is positive.

    ``memory["tick"]`` counts the samples seen. ``privileged``: whether the critic sees the numbers that the robustness
    is made of (the largest and smallest margins so far).
    """

    def __init__(
        self, online: Online, value: Part, steps: int, privileged: bool, cap: float, soft: Soft | None = None
    ) -> None:
        self.online, self.value, self.cap, self.soft = online, value, cap, soft
        self.paid = max(value.late, 1)  # nothing is paid before the first action
        check_length(value.late, steps)
        self.shown = margins_of(online) if privileged else []
        self.privileged_dim = len(self.shown)
        self.memory: dict[str, tuple[int, ...]] = {"tick": (), "worth": (), **online.memory}
        if self.soft is not None:
            self.memory["soft"] = ()

    def start(self, signals: Mapping[str, Tensor], memory: Memory) -> Memory:
        """Memory after the sample at time 0."""
        return self.seen(signals, {**memory, **self.online.begin(memory)})[1]

    def seen(self, signals: Mapping[str, Tensor], memory: Memory, *also: Part) -> tuple[list[Tensor], Memory]:
        """The robustness, and the parts ``also``, at a new sample; and the next memory."""
        sample = self.online.sample(signals, memory["tick"], memory)
        worth, *others = [part(sample) for part in (self.value, *also)]
        after = {"worth": worth, "tick": memory["tick"] + 1.0}
        if self.soft is not None:
            after["soft"] = self.soft(sample)
        return [worth, *others], {**memory, **sample.after, **after}

    def change(self, memory: Memory, after: Memory) -> Tensor:
        """Of the soft robustness [N]; nothing where there is none."""
        return after["soft"] - memory["soft"] if self.soft is not None else torch.zeros_like(after["worth"])

    def privileged(self, signals: Mapping[str, Tensor], memory: Memory) -> Tensor:
        """Margins so far [N, privileged_dim], within +-cap."""
        return margins_so_far(memory, self.shown, self.cap)

    def success(self, signals: Mapping[str, Tensor], memory: Memory) -> Tensor:
        """Whether the robustness is known and positive: then the formula is satisfied."""
        return (memory["tick"] > self.value.late) & (memory["worth"] > 0)


def margins_of(online: Online) -> list[str]:
    """The names of the numbers that robustness is made of: the largest and smallest margins so far."""
    return [name for name, shape in online.memory.items() if shape == ()]


def margins_so_far(memory: Memory, names: Sequence[str], cap: float) -> Tensor:
    """Those ``names`` [N, len(names)], within +-``cap``."""
    if not names:
        return memory["tick"][:, None][:, :0]
    return torch.stack([memory[name] for name in names], -1).clamp(-cap, cap)


class Soft:
    """The robustness of a conjunction of what was seen so far: its minimum as a log-sum-exp.

    What no sample could tell yet, a window that has not begun, counts as ``cap``. Paid as it changes, it sums to what
    it is at the end, less what it was at the first sample. It is up to log(parts) / ``sharp`` below the minimum: with a
    small one all parts count, so that one can be improved while another one is the least; what is violated by a
    little may then be worth more than what just holds, which a reward for being satisfied mends.
    """

    def __init__(self, formula: Formula, online: Online, sharp: float, cap: float) -> None:
        f = positive(formula)
        self.parts = [online.at_start(part) for part in (f.args if isinstance(f, And) else (f,))]
        self.sharp, self.cap = sharp, cap

    def __call__(self, sample: Sample) -> Tensor:
        """At a sample [N]."""
        found = torch.stack([self._told(part, sample) for part in self.parts], -1)
        least = found.amin(-1)
        return least - torch.log(torch.exp(self.sharp * (least[:, None] - found)).sum(-1)) / self.sharp

    def _told(self, part: Part, sample: Sample) -> Tensor:
        value = part(sample)
        untold = (sample.tick < part.since) | ((sample.tick < part.late) & (value == -inf))
        return torch.where(untold, torch.full_like(value, self.cap), value.clamp(-self.cap, self.cap))


class Terminal(Scored):
    """Robustness at the end; besides, if asked for, its change all along."""

    def __init__(self, formula: Formula, dt: float, steps: int, reward: Reward, privileged: bool) -> None:
        online = Online(dt)
        soft = Soft(formula, online, reward.sharp, reward.cap) if reward.early else None
        super().__init__(online, online.at_start(formula), steps, privileged, reward.cap, soft)
        self.weights = reward

    def step(self, signals: Mapping[str, Tensor], action: Tensor, memory: Memory) -> tuple[Tensor, Tensor, Memory]:
        """Reward [N], terminated [N] (never), next memory."""
        w, now = self.weights, memory["tick"] == self.paid
        (worth,), after = self.seen(signals, memory)
        reward = w.robustness * worth.clamp(-w.cap, w.cap) + w.satisfied * (worth > 0).float()
        paid = torch.where(now, reward, torch.zeros_like(reward))
        return paid + w.early * self.change(memory, after), now & ~now, after


def check_length(late: int, steps: int) -> None:
    """An episode of ``steps`` control steps reaches to sample ``late``, at which the robustness is known."""
    if late > steps:
        raise ValueError(f"the formula's robustness is known after {late} control steps, an episode has {steps}: "
                         f"make it longer, or the windows shorter")


def check_reward(reward: Any, *positive: str) -> Any:
    """``reward``, whose coefficients ``positive`` are above 0."""
    for name in positive:
        if not 0 < getattr(reward, name) < inf:
            raise ValueError(f"reward.{name} must be positive, got {getattr(reward, name)}")
    return reward


class Plain:
    """State and time."""

    reads: tuple[str, ...] = ()
    size = 1

    def __init__(self, steps: int, objective: Terminal) -> None:
        self.clock, self.objective = Clock(steps), objective
        self.memory: dict[str, tuple[int, ...]] = {"tick": ()}

    def features(self, signals: Mapping[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """The time [N, 1], 0 to 1, and the next memory."""
        return self.clock(memory)


def make(
    formula: Formula, dt: float, steps: int, schema: Mapping[str, SignalSpec], *,
    reward: Mapping[str, float] | None = None, privileged: bool = False,
) -> Plain:
    """The view of any formula whose windows end.

    Args:
        dt: control period, s. ``steps``: control steps of an episode.
        schema: signals by name.
        reward: coefficients of :class:`Reward` by name.
        privileged: whether the critic sees margins so far: for actors that remember, with a critic that does not.
    """
    checked = check_reward(weights(Reward, reward), "sharp", "cap")
    try:
        return Plain(steps, Terminal(formula, dt, steps, checked, privileged))
    except FormulaError as error:
        raise NotSupported(f"plain view of {to_text(formula)}: {error}") from error
