"""Terminal robustness: the policy sees the state and the time, and is paid the robustness at the episode's end.

With a recurrent actor (``memory`` of :mod:`temporeal.policies.algos.ppo`) it is the recurrent baseline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.robots.signals import SignalSpec
from temporeal.sim.maps import Memory
from temporeal.sim.rewards.online_robustness import Online, Part, Sample
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import And, Formula, to_text
from temporeal.sim.stl.rewriting.normal import positive
from temporeal.sim.task import Carry, weights


class NotSupported(FormulaError):
    """A view was given a formula that it is not published for; the message names both."""


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
    """Base of objectives that succeed where the formula's robustness is known and positive.

    ``carry["tick"]`` counts the samples seen. ``privileged``: whether the critic sees what the robustness is made of,
    the largest and smallest margins so far.
    """

    def __init__(
        self, online: Online, value: Part, steps: int, privileged: bool, cap: float, soft: Soft | None = None
    ) -> None:
        self.online, self.value, self.cap, self.soft = online, value, cap, soft
        self.paid = max(value.late, 1)  # nothing is paid before the first action
        check_length(value.late, steps)
        self.shown = margins_of(online) if privileged else []
        self.privileged_dim = len(self.shown)
        self.carry: dict[str, tuple[int, ...]] = {"tick": (), "worth": (), **online.carry}
        if self.soft is not None:
            self.carry["soft"] = ()

    def start(self, signals: Mapping[str, Tensor], carry: Carry) -> Carry:
        """The carry after the sample at time 0."""
        return self.seen(signals, {**carry, **self.online.begin(carry)})[1]

    def seen(self, signals: Mapping[str, Tensor], carry: Carry, *also: Part) -> tuple[list[Tensor], Carry]:
        """The robustness, and the parts ``also``, at a new sample; and the next carry."""
        sample = self.online.sample(signals, carry["tick"], carry)
        worth, *others = [part(sample) for part in (self.value, *also)]
        after = {"worth": worth, "tick": carry["tick"] + 1.0}
        if self.soft is not None:
            after["soft"] = self.soft(sample)
        return [worth, *others], {**carry, **sample.after, **after}

    def change(self, carry: Carry, after: Carry) -> Tensor:
        """The change of the soft robustness [N]; 0 where none is paid."""
        return after["soft"] - carry["soft"] if self.soft is not None else torch.zeros_like(after["worth"])

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Margins so far [N, privileged_dim], within +-cap."""
        return margins_so_far(carry, self.shown, self.cap)

    def success(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Whether the robustness is known and positive: then the formula is satisfied."""
        return (carry["tick"] > self.value.late) & (carry["worth"] > 0)


def margins_of(online: Online) -> list[str]:
    """The names of the numbers that robustness is made of: the largest and smallest margins so far."""
    return [name for name, shape in online.carry.items() if shape == ()]


def margins_so_far(carry: Carry, names: Sequence[str], cap: float) -> Tensor:
    """Those ``names`` [N, len(names)], within +-``cap``."""
    if not names:
        return carry["tick"][:, None][:, :0]
    return torch.stack([carry[name] for name in names], -1).clamp(-cap, cap)


class Soft:
    """The robustness so far of a conjunction, its minimum as a log-sum-exp.

    A part whose window has not begun counts as ``cap``. Paid as it changes, it sums to its value at the end less that
    at the first sample. It is up to log(parts) / ``sharp`` below the minimum. With a small ``sharp`` all parts count,
    so that one can be improved while another is the least; a part violated by a little may then be worth more than one
    that just holds, which ``satisfied`` makes up for.
    """

    def __init__(self, formula: Formula, online: Online, sharp: float, cap: float) -> None:
        f = positive(formula)
        self.parts = [online.at_start(part) for part in (f.args if isinstance(f, And) else (f,))]
        self.sharp, self.cap = sharp, cap

    def __call__(self, sample: Sample) -> Tensor:
        """At a sample [N]."""
        found = torch.stack([self._known(part, sample) for part in self.parts], -1)
        least = found.amin(-1)
        return least - torch.log(torch.exp(self.sharp * (least[:, None] - found)).sum(-1)) / self.sharp

    def _known(self, part: Part, sample: Sample) -> Tensor:
        value = part(sample)
        unknown = (sample.tick < part.since) | ((sample.tick < part.late) & (value == -inf))
        return torch.where(unknown, torch.full_like(value, self.cap), value.clamp(-self.cap, self.cap))


class Terminal(Scored):
    """Robustness at the end; with ``early`` also its change at each sample."""

    def __init__(self, formula: Formula, dt: float, steps: int, reward: Reward, privileged: bool) -> None:
        online = Online(dt)
        soft = Soft(formula, online, reward.sharp, reward.cap) if reward.early else None
        super().__init__(online, online.at_start(formula), steps, privileged, reward.cap, soft)
        self.weights = reward

    def step(self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry) -> tuple[Tensor, Tensor, Carry]:
        """Reward [N], terminated [N] (never), next carry."""
        w, now = self.weights, carry["tick"] == self.paid
        (worth,), after = self.seen(signals, carry)
        reward = w.robustness * worth.clamp(-w.cap, w.cap) + w.satisfied * (worth > 0).float()
        paid = torch.where(now, reward, torch.zeros_like(reward))
        return paid + w.early * self.change(carry, after), now & ~now, after


def check_length(late: int, steps: int) -> None:
    """A ValueError where an episode of ``steps`` control steps ends before sample ``late``, at which the robustness is
    known."""
    if late > steps:
        raise ValueError(f"the formula's robustness is known after {late} control steps, an episode has {steps}: "
                         f"make it longer, or the windows shorter")


def check_reward(reward: Any, *positive: str) -> Any:
    """``reward``, whose coefficients ``positive`` are above 0."""
    for name in positive:
        if not 0 < getattr(reward, name) < inf:
            raise ValueError(f"reward.{name} must be positive, got {getattr(reward, name)}")
    return reward


class StateAndTime:
    """State and time."""

    reads: tuple[str, ...] = ()
    size = 1
    module: nn.Module | None = None

    def __init__(self, steps: int, objective: Terminal) -> None:
        self.clock, self.objective = Clock(steps), objective
        self.memory: dict[str, tuple[int, ...]] = {"tick": ()}

    def features(self, signals: Mapping[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """The time [N, 1], 0 to 1, and the next memory."""
        return self.clock(memory)


def make(
    formula: Formula, dt: float, steps: int, schema: Mapping[str, SignalSpec], *,
    reward: Mapping[str, float] | None = None, privileged: bool = False,
) -> StateAndTime:
    """The view of any formula whose windows end.

    Args:
        dt: control period, s. ``steps``: control steps of an episode.
        schema: signals by name.
        reward: coefficients of :class:`Reward` by name.
        privileged: whether the critic, which has no memory, sees the margins so far: for recurrent actors.
    """
    checked = check_reward(weights(Reward, reward), "sharp", "cap")
    try:
        return StateAndTime(steps, Terminal(formula, dt, steps, checked, privileged))
    except FormulaError as error:
        raise NotSupported(f"view terminal_robustness of {to_text(formula)}: {error}") from error
