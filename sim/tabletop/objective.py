"""The reward of an instruction: its own formula's decomposition, and the way to what it asks for.

Every kind has a tracker of its own formula (:class:`temporeal.sim.rewards.formula_tracker.FormulaTracker`). A world is
paid by the one of its kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from temporeal.sim.rewards.formula_tracker import FormulaTracker
from temporeal.sim.stl.instructions.grammar import KINDS
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.task import Carry

TAKEN = ("pick", "place", "stack")
"""Kinds whose target is taken between the fingers."""
FINGERED = (*TAKEN, "open")
"""Kinds that need fingers: the drawer's handle is hooked with one."""
OVER = 0.045  # m: from a target's middle to the tool that reaches it without touching
BEHIND = 0.045  # m: from a target's middle to closed fingers that touch it


@dataclass(frozen=True)
class Reward:
    """Weights per second."""

    approach: float = 1.0  # times 1 - tanh(5 |way| / m) of the tool to where its kind begins
    near: float = 3.0  # times 1 - tanh(5 miss / m): what the stage to work on lacks, by the formula
    fine: float = 2.0  # times 1 - tanh(30 miss / m)
    inside: float = 3.0  # while what the formula asks for next holds
    hit: float = 5.0  # once per subgoal of the formula
    effort: float = 0.01  # times the squared action
    smooth: float = 0.02  # times the squared change of the action
    violated: float = 5.0  # once, when the tool is on the table, or what is pushed was lifted: the episode ends


class Seen(NamedTuple):
    """One sample of N worlds, each as the formula of its own kind sees it, [N] each."""

    hits: Tensor  # subgoals hit at this sample
    inside: Tensor  # 1 where the predicate of the stage to work on holds
    miss: Tensor  # by how much it does not, 0 where it does, in its unit (m)
    safe: Tensor  # smallest margin of what must be kept
    done: Tensor  # 1 where all subgoals are hit and nothing was broken
    carry: Carry


class KindTrackers:
    """The trackers of ``formulas`` by kind, in worlds whose ``kind`` says which of them counts."""

    def __init__(self, formulas: Mapping[str, Formula], dt: float) -> None:
        self.dt, self.formulas = dt, dict(formulas)
        self.trackers = {kind: FormulaTracker(formula, dt) for kind, formula in formulas.items()}
        self.carry = {f"{kind}.{name}": shape for kind, tracker in self.trackers.items()
                      for name, shape in tracker.carry.items()}

    def __call__(self, signals: Mapping[str, Tensor], carry: Carry) -> Seen:
        """This sample, with the carry for the next."""
        total, after = torch.zeros_like(signals["kind"])[:, None].repeat(1, 5), Carry()
        for kind, tracker in self.trackers.items():
            tracked = tracker(signals, {name: carry[f"{kind}.{name}"] for name in tracker.carry})
            after |= {f"{kind}.{name}": value for name, value in tracked.carry.items()}
            margin = (tracked.progress.margin * tracked.progress.stage).sum(-1)
            row = torch.stack([tracked.hits, tracked.inside, (-margin).clamp(min=0.0), tracked.safe,
                               tracker.success(tracked.carry).float()], -1)
            total = total + asked(signals, kind)[:, None] * row
        hits, inside, miss, safe, done = total.unbind(-1)
        return Seen(hits, inside, miss, safe, done, after)

    def success(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Whether each world did what its own kind asks, bool [N]."""
        done = torch.zeros_like(signals["kind"])
        for kind, tracker in self.trackers.items():
            good = tracker.success({name: carry[f"{kind}.{name}"] for name in tracker.carry})
            done = done + asked(signals, kind) * good.float()
        return done > 0.5


def asked(signals: Mapping[str, Tensor], *kinds: str) -> Tensor:
    """1 in worlds [N] of one of ``kinds``, else 0."""
    numbers = [(signals["kind"] - KINDS.index(kind)).abs() < 0.5 for kind in kinds]
    return torch.stack([n.float() for n in numbers], -1).sum(-1)


def way_to_begin(signals: Mapping[str, Tensor], tool: str, size: float = 1.0) -> Tensor:
    """The tool's way [N, 3] m to where its kind begins: over what is reached, behind what is pushed, at the rest.
    ``size``: of things (:func:`temporeal.sim.tabletop.objects.size_of`)."""
    target, place = signals["target_pos_w"], signals["place_pos_w"]
    ahead = (place - target)[:, :2]
    back = BEHIND * ahead / ahead.square().sum(-1).clamp(min=1e-6).sqrt()[:, None]
    offset = torch.cat([-asked(signals, "push")[:, None] * back, OVER * asked(signals, "reach")[:, None]], -1)
    return target + size * offset - signals[f"{tool}_pos_w"]


class Objective:
    """To where the kind begins, then what its formula asks for next."""

    privileged_dim = 3 + 1

    def __init__(
        self, trackers: KindTrackers, reward: Reward, action_dim: int, tool: str = "grip", size: float = 1.0
    ) -> None:
        self.trackers, self.weights, self.formulas = trackers, reward, trackers.formulas
        self.tool, self.size = tool, size
        self.carry: Mapping[str, tuple[int, ...]] = {**trackers.carry, "previous": (action_dim,)}

    def start(self, signals: Mapping[str, Tensor], carry: Carry) -> Carry:
        """The carry after the sample at time 0."""
        return {**carry, **self.trackers(signals, carry).carry}

    def step(
        self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry
    ) -> tuple[Tensor, Tensor, Carry]:
        """Reward [N], terminated [N], next carry."""
        w, seen = self.weights, self.trackers(signals, carry)
        way = way_to_begin(signals, self.tool, self.size).square().sum(-1).clamp(min=1e-12).sqrt()
        terminated = seen.safe <= 0
        reward = self.trackers.dt * (
            w.approach * (1 - torch.tanh(5 * way)) + w.near * (1 - torch.tanh(5 * seen.miss))
            + w.fine * (1 - torch.tanh(30 * seen.miss)) + w.inside * seen.inside - w.effort * action.square().sum(-1)
            - w.smooth * (action - carry["previous"]).square().sum(-1)) - w.violated * terminated.float()
        return reward + w.hit * seen.hits, terminated, {**seen.carry, "previous": action}

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Velocity of the tool, the time."""
        return torch.cat([signals[f"{self.tool}_vel_w"], signals["mission_time"][:, None] / 10], -1)

    def success(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Whether each world did what it was asked."""
        return self.trackers.success(signals, carry)


def kinds_in(text: str) -> Sequence[str]:
    """The kinds that a setting names, ``reach+push`` or ``all``, in the order of KINDS. A comma is a plus, too."""
    named = [part.strip() for part in text.replace(",", "+").split("+")]
    if unknown := [part for part in named if part not in (*KINDS, "all")]:
        raise ValueError(f"task 'tabletop': kinds are {', '.join(KINDS)}, as in reach+push, or all; got "
                         f"{', '.join(map(repr, unknown))}")
    return [kind for kind in KINDS if kind in named or "all" in named]
