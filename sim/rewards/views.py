"""Views of a formula: what a policy sees and remembers of it, and what it is paid for.

``timed`` (:mod:`temporeal.sim.rewards.timed_subgoals`) is TGPO's; these are the baselines it is compared with:

* ``plain`` (:mod:`temporeal.sim.rewards.terminal_robustness`): state and time, the robustness of the episode at its
end.
* ``history`` (:mod:`temporeal.sim.rewards.tau_mdp`): tau-MDP, Aksaray et al., CDC 2016.
* ``flags`` (:mod:`temporeal.sim.rewards.f_mdp`): F-MDP, Venkataraman et al., HSCC 2020.

All know at the end of an episode whether the formula is satisfied. None ends an episode early, and all pay at most
until the formula's windows are over: an episode's end is the end of the task, not a cut (`finite` of
`temporeal.sim.task.Task`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from torch import Tensor

from temporeal.sim.rewards import f_mdp, tau_mdp, terminal_robustness
from temporeal.sim.rewards.terminal_robustness import NotSupported
from temporeal.sim.task import Objective

__all__ = ["PER_LENGTH", "REWARDS", "VIEWS", "NotSupported", "View"]


class View(Protocol):
    """Tensors [N, ...]. ``memory``: shapes (without N) of what the observation remembers; zeros at the start.

    ``reads``: measured signals that :meth:`features` needs. ``size``: numbers that it adds to the observation.
    """

    reads: tuple[str, ...]
    size: int
    memory: Mapping[str, tuple[int, ...]]
    objective: Objective

    def features(self, signals: Mapping[str, Tensor], memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Features [N, size] and the next memory. Torch operations that are compiled and exported."""


VIEWS: Mapping[str, Callable[..., View]] = {
    "plain": terminal_robustness.make, "history": tau_mdp.make, "flags": f_mdp.make}
"""``make(formula, dt, steps, schema, **settings)``."""
REWARDS: Mapping[str, Any] = {"plain": terminal_robustness.Reward, "history": tau_mdp.Reward, "flags": f_mdp.Reward}
PER_LENGTH = ("beta", "sharp")
"""Coefficients of these that are 1 / unit of the margins: they fit an arena of 10 m."""
