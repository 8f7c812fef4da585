"""Views of a formula: what a policy sees and remembers of it, and what it is paid for.

``timed`` (:mod:`sim.timed`) is TGPO's; these are the baselines it is compared with:

* ``plain`` (:mod:`sim.stl_plain`): state and time, the robustness of the episode at its end.
* ``history`` (:mod:`sim.stl_history`): tau-MDP, Aksaray et al., CDC 2016.
* ``flags`` (:mod:`sim.stl_flags`): F-MDP, Venkataraman et al., HSCC 2020.

All know at the end of an episode whether the formula is satisfied. None ends an episode early, and all pay at most
until the formula's windows are over: an episode's end is the end of the task, not a cut (`finite` of `sim.task.Task`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from torch import Tensor

from sim import stl_flags, stl_history, stl_plain
from sim.stl_plain import NotSupported
from sim.task import Objective

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
    "plain": stl_plain.make, "history": stl_history.make, "flags": stl_flags.make}
"""``make(formula, dt, steps, schema, **settings)``."""
REWARDS: Mapping[str, Any] = {"plain": stl_plain.Reward, "history": stl_history.Reward, "flags": stl_flags.Reward}
PER_LENGTH = ("beta", "sharp")
"""Coefficients of these that are 1 / unit of the margins: they fit an arena of 10 m."""
