"""Consecutive goals: the next one is given as soon as one is met."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

import torch
from torch import Tensor

from temporeal.robots.signals import Schema, SignalSpec, schema
from temporeal.sim.task import Carry


class Goals:
    """A goal, for how long it has been the goal, and how many were met before.

    A goal is met at the sample at which ``miss`` is below ``reach``. That sample still shows the goal, so that readers
    of the signals see it met; the next sample shows the goal that follows, of age 0.

    Args:
        spec: of the goal's signal. The first goal of an episode is what the task's ``initial`` gives by that name.
        miss: ``miss(signals, goal [N, ...]) -> [N]``: how far the simulator's true signals are from the goal.
        following: ``following(chance [N, chances], goal) -> goal``: from fresh uniform numbers and the goal before.
    """

    def __init__(
        self, spec: SignalSpec, dt: float, reach: float, miss: Callable[[Mapping[str, Tensor], Tensor], Tensor],
        following: Callable[[Tensor, Tensor], Tensor], chances: int,
    ) -> None:
        if isinstance(reach, bool) or not isinstance(reach, (int, float)) or not 0 < reach < inf:
            raise ValueError(f"reach is how near a goal is met: a positive number, got {reach!r}")
        self.name, self.dt, self.reach, self.chances = spec.name, dt, reach, chances
        self.miss, self.following = miss, following
        self.signals: Schema = schema(spec, SignalSpec("goal_age", (), "s"), SignalSpec("goals_met", (), "1"))
        self.carry = {spec.name: spec.shape, "age": (), "met": ()}

    def __call__(
        self, signals: Mapping[str, Tensor], chance: Tensor, carry: Carry
    ) -> tuple[dict[str, Tensor], Carry]:
        """The goal's signals at this sample, and the carry for the next. ``age`` counts samples."""
        goal, age = carry[self.name], carry["age"]
        hit = self.miss(signals, goal) < self.reach
        met = carry["met"] + hit.float()
        after = {self.name: torch.where(hit[:, None], self.following(chance, goal), goal),
                 "age": torch.where(hit, torch.zeros_like(age), age + 1.0), "met": met}
        return {self.name: goal, "goal_age": age * self.dt, "goals_met": met}, after
