"""A policy that corrects a base as the teacher of one network (``algo=dagger``, ``algo.expert=RUN``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.residual.acting import corrected_act, load_residual
from temporeal.policies.runs.residual.copies import require_same
from temporeal.policies.runs.residual.opened import Opened
from temporeal.policies.runs.residual.opening import is_corrected, open_base
from temporeal.policies.runs.run_folders import CONFIG, load_run, title_of

if TYPE_CHECKING:
    from torch import Tensor

    from temporeal.policies.training.residual.graphs import Residual
    from temporeal.sim.env import Env
    from temporeal.sim.task import Task
    from temporeal.sim.types import Obs


class Teacher(NamedTuple):
    """A base and its residual, on the student's task."""

    base: Opened
    residual: Residual

    @property
    def task(self) -> Task:
        """As worlds must show it: the student sees the same as without."""
        return self.base.task

    def experts(self, env: Env) -> Callable[[], Callable[[Obs, Mapping[str, Tensor]], Tensor]]:
        """What makes the expert of a batch of episodes of ``env``."""

        def make() -> Callable[[Obs, Mapping[str, Tensor]], Tensor]:
            act = corrected_act(self.base, self.residual, env)

            def said(obs: Obs, signals: Mapping[str, Tensor]) -> Tensor:
                action = act(obs.actor)
                env.command_override = None  # it says what it would do; who acts is chosen later
                return action

            return said

        return make


def teacher(settings: Mapping[str, Any], task: Task) -> Teacher | None:
    """The teacher that ``algo.expert`` names, where it corrects a base that reads signals itself; else None: the
    learner takes it as it is."""
    run = Path(str(settings["algo"].get("expert") or ""))
    if not (run / CONFIG).is_file() or not is_corrected(before := load_run(run)):
        return None
    if before["task"]["name"] != settings["task"]["name"]:
        raise BadInput(f"algo.expert={run} was trained on task {title_of(before)}, this is {title_of(settings)}")
    base = open_base(before, task, run)
    if base.graph is not None:
        return None
    require_same(base, run)
    return Teacher(base, load_residual(before, run, base))
