"""What one world makes of its signals in a control step: functions of named values, tensors [N, ...] each.

Every row is computed from the same row of the inputs alone, so that the functions can be compiled
(:mod:`temporeal.sim.step_table`). Names of inputs and outputs:

* ``truth.<signal>``: of the simulator. ``action`` [N, A], ``command`` [N, U].
* ``obs`` [N, O] and, where the critic sees more, ``critic`` [N, C].
* columns that a world keeps: ``memory.*`` of the maps, ``progress.*`` of the objective, ``extra.*`` and ``added.*`` of
  the task's own signals, what the sensors draw and delay, and the episode's own (:data:`EPISODE`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TypeVar

import torch
from torch import Tensor

from temporeal.sim.compiler.devices import on_device
from temporeal.sim.compiler.tracing import joined
from temporeal.sim.randomization.sensors import Sensors
from temporeal.sim.task import Task

T = TypeVar("T")
Named = dict[str, Tensor]
Shapes = Mapping[str, tuple[int, ...]]

EPISODE: Shapes = {"count": (), "until": (), "time": (), "return": (), "unsound": ()}
"""Columns of an episode: control steps since the mission's start, the step at which it is cut off, the time in s, the
sum of rewards, and whether its first observation was not finite."""

OUTCOMES = ("reward", "ended", "terminated", "truncated", "finite", "success")
"""Columns that a step writes and never reads."""


class StepFunctions:
    """The functions of one task with its sensors.

    Attributes:
        observed: sizes of what is observed, by name.
        columns: shapes of what a world keeps between steps.
        draws_samples: whether anything is drawn anew at each sample (:func:`temporeal.sim.episodes.draw_samples`).
        twins: columns of the maps' memory that always equal a column of the objective's: they are read from there, so
            that what follows from both is computed once.
    """

    def __init__(self, task: Task, sensors: Sensors, device: torch.device) -> None:
        self.task, self.sensors, self.device = task, sensors, device
        self.observe, self.act = task.observe.to(device), task.act.to(device)
        self.objective, self.extra = (on_device(part, device) for part in (task.objective, task.extra))
        self.obs_dim = task.observe.obs_dim
        self.observed = {"obs": self.obs_dim}
        if task.objective.privileged_dim:
            self.observed["critic"] = self.obs_dim + task.objective.privileged_dim
        self.added: Shapes = {name: spec.shape for name, spec in task.extra.signals.items()} if task.extra else {}
        self.columns = self._columns()
        self.draws_samples = bool(sensors.noise or (task.extra and task.extra.chances))
        self.twins: dict[str, str] = {}

    def _columns(self) -> dict[str, tuple[int, ...]]:
        sensors, extra = self.sensors, self.task.extra
        return {
            **EPISODE, **sensors.drawn, **sensors.noise, **sensors.past,
            **({"chance": (extra.chances,)} if extra is not None and extra.chances else {}),
            **{f"memory.{k}": tuple(v) for k, v in self.observe.memory.items()},
            **{f"progress.{k}": tuple(v) for k, v in self.objective.carry.items()},
            **{f"extra.{k}": tuple(v) for k, v in (extra.carry.items() if extra is not None else ())},
            **{f"added.{k}": tuple(v) for k, v in self.added.items()}}

    def check(self, signals: Shapes) -> None:
        """Compute once on two worlds of zeros; a ValueError where a part of the task gives what it does not declare."""
        declared = {**self.columns, **dict.fromkeys(OUTCOMES, ()), **{k: (n,) for k, n in self.observed.items()},
                    "command": (self.task.robot.command(self.task.command).size,)}
        shapes = {**self.columns, "action": (self.act.action_dim,), **{f"truth.{k}": v for k, v in signals.items()}}
        x = {name: torch.zeros(2, *shape, device=self.device) for name, shape in shapes.items()}
        for function in (self.first, self.command, self.after):
            for name, value in function(x).items():
                if declared.get(name) != tuple(value.shape[1:]):
                    raise ValueError(f"task {self.task.name!r}: {undeclared(name, value, declared)}")

    def command(self, x: Named) -> Named:
        """The command of an action."""
        action = x["action"].clamp(-1.0, 1.0)
        return {"command": self.act(action, self.observe.record(group("memory.", x), action))}

    def after(self, x: Named) -> Named:
        """What follows from the signals after a control step."""
        return self.evaluate(x)[0]

    def evaluate(self, x: Named) -> tuple[Named, Named]:
        """What follows from the signals after a control step, and which parts of it are finite: bool [N] by name."""
        truth, memory, progress = group("truth.", x), self._memory(x), group("progress.", x)
        sound = {"start": x["unsound"] < 0.5, "action": finite(x["action"]),
                 **{f"signal {k}": finite(v) for k, v in truth.items()}}
        # a world that diverged ends here, counted; its values must not reach anything that is shared with the others
        truth = {k: cleaned(v) for k, v in truth.items()}
        count, action = x["count"] + 1.0, x["action"].clamp(-1.0, 1.0)
        truth, kept = self._complete(truth, x, count)
        memory = {**memory, **self.observe.record(memory, action)}
        reward, terminated, progress = self.objective.step(truth, action, progress)
        success = self.objective.success(truth, progress)
        measured, past = self.sensors.sample(truth, x)
        seen = self._see(measured, truth, memory, progress)
        sound |= {"reward": torch.isfinite(reward), "observation": finite(seen["obs"])}
        if "critic" in self.observed:
            sound["privileged"] = finite(seen["critic"][:, self.obs_dim :])
        whole = reduce(torch.logical_and, sound.values())
        seen |= {name: cleaned(seen[name]) for name in self.observed}
        reward = torch.where(whole, reward, torch.zeros_like(reward))
        outcomes = self._outcomes(count, x["until"], reward, terminated, success, whole)
        return {"count": count, "return": x["return"] + reward, **outcomes, **kept, **past, **seen}, sound

    def _outcomes(
        self, count: Tensor, until: Tensor, reward: Tensor, terminated: Tensor, success: Tensor, whole: Tensor
    ) -> Named:
        """The :data:`OUTCOMES` [N] of a step; an episode that terminates, as one does that is not finite, fails: unless
        its objective ends it because it is done (``ends_done``)."""
        terminated = terminated | ~whole
        success = success & (whole if getattr(self.objective, "ends_done", False) else ~terminated)
        over, cut = count >= self.task.steps, count >= until
        if self.task.finite:
            terminated = terminated | over
        ended = terminated | over | cut
        return {"reward": reward, "ended": ended, "terminated": terminated, "truncated": ended & ~terminated,
                "finite": whole, "success": success}

    def first(self, x: Named) -> Named:
        """What follows from the signals at the start of an episode."""
        truth = group("truth.", x)
        sound = reduce(torch.logical_and, (finite(v) for v in truth.values()))
        truth, kept = self._complete({k: cleaned(v) for k, v in truth.items()}, x, x["count"])
        progress = self.objective.start(truth, group("progress.", x))
        measured, past = self.sensors.first(truth, x)
        seen = self._see(measured, truth, self._memory(x), progress)
        # an episode whose start is not finite ends in its first step: nothing can end it before
        sound = sound & reduce(torch.logical_and, (finite(seen[name]) for name in self.observed))
        seen |= {name: cleaned(seen[name]) for name in self.observed}
        return {"unsound": ~sound, **past, **kept, **seen}

    def _memory(self, x: Named) -> Named:
        """The maps' memory, :attr:`twins` from the objective's columns."""
        return group("memory.", joined(x, self.twins))

    def _complete(self, truth: Named, x: Named, count: Tensor) -> tuple[Named, Named]:
        """The simulator's signals with the task's own and the time; and the columns that keep these."""
        kept: Named = {}
        if self.extra is not None:
            added, memory = self.extra(truth, x.get("chance", count[:, None]), group("extra.", x))
            truth = {**truth, **added}
            kept = {**{f"extra.{k}": v for k, v in memory.items()}, **{f"added.{k}": v for k, v in added.items()}}
        kept["time"] = count * self.task.control_dt
        return {**truth, "mission_time": kept["time"]}, kept

    def _see(self, measured: Named, truth: Named, memory: Named, progress: Named) -> Named:
        """Observations, and the memory and progress after them."""
        actor, memory = self.observe(measured, memory)
        found = {"obs": actor}
        if "critic" in self.observed:
            found["critic"] = torch.cat([actor, self.objective.privileged(truth, progress)], -1)
        return {**found, **{f"memory.{k}": v for k, v in memory.items()},
                **{f"progress.{k}": v for k, v in progress.items()}}


DECLARED_BY = {"obs": "observe.obs_dim", "critic": "objective.privileged_dim, beside the observation",
               "memory": "observe.memory", "progress": "objective.carry", "extra": "extra.carry",
               "added": "extra.signals", "command": "the robot's command"}
"""What declares the shapes of values, by the first part of their names."""


def undeclared(name: str, value: Tensor, declared: Shapes) -> str:
    """What to say of a ``value`` [N, ...] that is not as it is ``declared``."""
    kind, _, own = name.partition(".")
    by = DECLARED_BY.get(kind, "the environment")
    if name in declared:
        return f"{own or name} has shape {tuple(value.shape[1:])} per world; {by} says {tuple(declared[name])}"
    return f"{own} is not declared by {by}, which has: {', '.join(group(f'{kind}.', declared)) or 'nothing'}"


def group(prefix: str, x: Mapping[str, T]) -> dict[str, T]:
    """The entries of ``x`` whose names begin with ``prefix``, without it."""
    return {k.removeprefix(prefix): v for k, v in x.items() if k.startswith(prefix)}


def finite(value: Tensor) -> Tensor:
    """Whether all of ``value`` [N, ...] is finite: [N] bool."""
    return torch.isfinite(value).reshape(len(value), -1).all(-1)


def cleaned(value: Tensor) -> Tensor:
    """``value`` with 0 in place of what is not finite."""
    return torch.nan_to_num(value, nan=0.0, posinf=0.0, neginf=0.0)
