"""Views of a formula: what a policy sees and remembers of it, and what it is paid for.

``scheduled`` (:mod:`temporeal.sim.rewards.scheduled`) is TGPO's. The baselines it is compared with:

* ``terminal_robustness`` (:mod:`temporeal.sim.rewards.terminal_robustness`): state and time; the robustness of the
  episode at its end.
* ``tau_mdp`` (:mod:`temporeal.sim.rewards.tau_mdp`): Aksaray et al., CDC 2016.
* ``f_mdp`` (:mod:`temporeal.sim.rewards.f_mdp`): Venkataraman et al., HSCC 2020.

All know at the end of an episode whether the formula is satisfied. None ends an episode early, and all pay at most
until the formula's windows are over: an episode's end is the end of the task, not a cut (``finite`` of
:class:`temporeal.sim.task.Task`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from torch import Tensor, nn

from temporeal.sim import renamed
from temporeal.sim.maps import Memory
from temporeal.sim.rewards import f_mdp, tau_mdp, terminal_robustness
from temporeal.sim.rewards.terminal_robustness import NotSupported
from temporeal.sim.task import Objective

__all__ = ["PER_LENGTH", "REWARDS", "SCHEDULED", "VIEWS", "NotSupported", "View", "check_view"]


class View(Protocol):
    """What an observation map adds of the formula. Tensors [N, ...].

    Attributes:
        reads: measured signals that :meth:`features` needs.
        size: numbers that it adds to the observation.
        memory: shapes (without N) of what the observation remembers; zeros at the start.
        module: what has constants on a device; None: nothing.
    """

    reads: tuple[str, ...]
    size: int
    memory: Mapping[str, tuple[int, ...]]
    module: nn.Module | None
    objective: Objective

    def features(self, signals: Mapping[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """Features [N, size] and the next memory. Torch operations that are compiled and exported."""


SCHEDULED = "scheduled"
VIEWS: Mapping[str, Callable[..., View]] = {
    "terminal_robustness": terminal_robustness.make, "tau_mdp": tau_mdp.make, "f_mdp": f_mdp.make}
"""``make(formula, dt, steps, schema, **settings)`` of the baselines."""
REWARDS: Mapping[str, Any] = {
    "terminal_robustness": terminal_robustness.Reward, "tau_mdp": tau_mdp.Reward, "f_mdp": f_mdp.Reward}
PER_LENGTH = ("beta", "sharp")
"""Coefficients of these that are 1 / unit of the margins: they fit an arena of 10 m."""


def check_view(view: str) -> None:
    """``view`` is one that there is."""
    if view not in (SCHEDULED, *VIEWS):
        now = f"; {view!r} is now called {renamed.VIEWS[view]!r}" if view in renamed.VIEWS else ""
        raise ValueError(f"task 'stl': view is {view!r}; legal: {', '.join((SCHEDULED, *VIEWS))}{now}")
