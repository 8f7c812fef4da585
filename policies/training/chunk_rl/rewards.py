"""What a control step is paid, by one word.

    sparse    the change of the task's success: over an episode, 1 where it succeeds and 0 where not. It is paid when
              the task is done, and taken back where it is undone
    formula   the task's formula, decomposed (:class:`temporeal.sim.rewards.formula_progress.FormulaProgress`): progress
              towards its subgoals, in shares of what a whole episode can earn. Of instructions each has its own formula
    task      the task's own reward
    progress  the change of a learned model's progress, and success at the end

N worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.progress_models.protocol import ProgressModel
from temporeal.sim.rewards.formula_progress import FormulaProgress
from temporeal.sim.rewards.formula_progress import Reward as Earnings
from temporeal.sim.rewards.formula_tracker import FormulaTracker
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.tabletop.objective import KindTrackers, asked
from temporeal.sim.task import Task
from temporeal.sim.types import Step

Signals = Mapping[str, Tensor]


class Reward(Protocol):
    """What is paid. ``goes_on``: an episode that time cuts off would earn more; else its end is the end. ``sees``: it
    looks at pictures, those of an episode's end among them."""

    goes_on: bool
    sees: bool

    def start(self, signals: Signals) -> None:
        """All worlds begin an episode; ``signals``: their true ones."""

    def action(self, command: Tensor) -> Tensor:
        """The action [N, A] that stands for ``command`` [N, U] in the environment's own reward and memory."""

    def __call__(self, step: Step) -> Tensor:
        """Of the step just made, [N]."""

    @property
    def memory(self) -> dict[str, Tensor]:
        """What is carried from step to step, [N, ...] by name: for checkpoints, which write into it."""


class Sparse:
    """Success, when it comes."""

    goes_on = sees = False

    def __init__(self, env: Any) -> None:
        self.env, self.before = env, torch.zeros(env.num_worlds)
        self.none = torch.zeros(env.num_worlds, env.action_dim)

    def start(self, signals: Signals) -> None:
        """No success yet."""
        self.before.zero_()

    def action(self, command: Tensor) -> Tensor:
        """None: success does not ask for it."""
        return self.none

    def __call__(self, step: Step) -> Tensor:
        """The change of success."""
        now = step.info["success"].float()
        paid = now - self.before
        self.before = torch.where(step.terminated | step.truncated, 0.0, now)
        return paid

    @property
    def memory(self) -> dict[str, Tensor]:
        """Success so far."""
        return {"before": self.before}


class OfTask:
    """The environment's reward."""

    goes_on, sees = True, False

    def __init__(self, env: Any) -> None:
        self.env = env

    def start(self, signals: Signals) -> None:
        """The environment keeps it."""

    def action(self, command: Tensor) -> Tensor:
        """What the action map makes the command of: rewards count effort."""
        memory = {name.removeprefix("memory."): value for name, value in self.env.column.items()
                  if name.startswith("memory.")}
        found: Tensor = self.env.task.act.inverse(command, memory)
        return found

    def __call__(self, step: Step) -> Tensor:
        """The reward."""
        return step.reward

    @property
    def memory(self) -> dict[str, Tensor]:
        """Nothing: it is the environment's."""
        return {}


class Part(NamedTuple):
    """A formula that worlds are paid by: its objective, what an episode can earn at most, and which worlds [N] it is
    about, 1 or 0, by their signals."""

    objective: FormulaProgress
    most: float
    asked: Callable[[Signals], Tensor]


class OfFormula:
    """The decomposed formula, followed beside the environment's own objective. A whole episode earns at most 1. Where
    the task has a formula for each kind of instruction, a world is paid by that of its own."""

    goes_on = sees = False

    def __init__(self, env: Any) -> None:
        self.env, self.parts = env, parts_of(env.task)
        self.none = torch.zeros(env.num_worlds, env.action_dim)
        self.carry: dict[str, Tensor] = {}

    def start(self, signals: Signals) -> None:
        """The carry after the first sample."""
        self.carry = self.first(signals)

    def first(self, signals: Signals) -> dict[str, Tensor]:
        """The same, of all parts."""
        found = dict[str, Tensor]()
        for name, part in self.parts.items():
            zeros = {key: torch.zeros(self.env.num_worlds, *shape) for key, shape in part.objective.carry.items()}
            found |= {f"{name}.{key}": value for key, value in (zeros | part.objective.start(signals, zeros)).items()}
        return found

    def action(self, command: Tensor) -> Tensor:
        """None: formulas speak of signals."""
        return self.none

    def __call__(self, step: Step) -> Tensor:
        """The share that this step earned."""
        signals: Any = step.info["signals"]
        paid, after = torch.zeros(self.env.num_worlds), dict[str, Tensor]()
        for name, part in self.parts.items():
            own = {key: self.carry[f"{name}.{key}"] for key in part.objective.carry}
            earned, _, carry = part.objective.step(signals, self.none, own)
            paid = paid + part.asked(signals) * torch.nan_to_num(earned) / part.most
            after |= {f"{name}.{key}": value for key, value in (own | carry).items()}
        over = step.terminated | step.truncated
        if bool(over.any()):
            new = self.first(self.env.true_signals())
            after = {key: torch.where(over.reshape(-1, *[1] * (value.dim() - 1)), new[key], value)
                     for key, value in after.items()}
        self.carry = after
        return paid

    @property
    def memory(self) -> dict[str, Tensor]:
        """The carry."""
        return self.carry


EARNED = Earnings(progress=2.0, hit=2.0, done=4.0, broken=4.0, scale=0.3)
"""Shares of what is earned on the way, at subgoals, at the end; arms begin about 0.3 m from where they are to be."""


def parts_of(task: Task) -> dict[str, Part]:
    """The formulas of ``task`` by kind of instruction; one, where it has no kinds."""
    trackers = getattr(task.objective, "trackers", None)
    if isinstance(trackers, KindTrackers):
        return {kind: part(tracker, partial(by_kind, kind)) for kind, tracker in trackers.trackers.items()}
    try:
        return {"formula": part(FormulaTracker(task.formula, task.control_dt), every)}
    except FormulaError as error:
        raise SettingsError(f"algo.reward=formula: the formula of task {task.name!r} does not decompose ({error}); "
                            "algo.reward=task is the reward that the task was given, algo.reward=sparse its success"
                            ) from error


def part(tracker: FormulaTracker, asked: Callable[[Signals], Tensor]) -> Part:
    """A formula and what it can earn."""
    subgoals = len(tracker.automaton.subgoals)
    return Part(FormulaProgress(tracker, EARNED), EARNED.done + EARNED.hit * subgoals + EARNED.progress, asked)


def by_kind(kind: str, signals: Signals) -> Tensor:
    """1 in worlds [N] that are asked for ``kind``."""
    return asked(signals, kind)


def every(signals: Signals) -> Tensor:
    """1 []: all worlds."""
    return torch.ones(())


class OfProgress:
    """What a learned model's progress gained, and the change of success. The model looks once a chunk, and where time
    ends episodes: it may read pictures, which cost more than all the rest. An episode that ends before its time has
    begun anew when pictures could be taken: there its last stretch gains nothing."""

    goes_on = False

    def __init__(self, env: Any, model: ProgressModel, every: int) -> None:
        self.env, self.model, self.every, self.success = env, model, every, Sparse(env)
        self.calls = 0
        self.pictures = [name for name in model.names if name not in env.task.schema]
        self.sees = bool(self.pictures)
        self.before = torch.zeros(env.num_worlds)
        self.begins = torch.ones(env.num_worlds, dtype=torch.bool)

    def start(self, signals: Signals) -> None:
        """The model's first look comes with the first step."""
        self.success.start(signals)
        self.model.start(self.env.num_worlds, self.every)
        self.begins.fill_(True)
        self.calls = 0

    def action(self, command: Tensor) -> Tensor:
        """None."""
        return self.success.none

    def __call__(self, step: Step) -> Tensor:
        """What was gained since the last look, and success."""
        paid, over = self.success(step), step.terminated | step.truncated
        if self.calls % self.every == 0 or bool(over.any()):
            value = self.model.update(self.shown(step), self.begins.clone())
            unseen = over if self.sees and not step.final_obs.images else torch.zeros_like(over)
            paid = paid + torch.where(self.begins | unseen, 0.0, value - self.before)
            self.before, self.begins = value.clone(), over.clone()
        self.calls += 1
        return paid

    def shown(self, step: Step) -> dict[str, Tensor]:
        """What the model reads of the step just made: true signals, before any reset; pictures likewise where they
        were rendered in the step, else now."""
        signals: Any = step.info["signals"]
        images = step.final_obs.images or (self.env.render() if self.sees else {})
        return {name: images[name] if name in self.pictures else signals[name] for name in self.model.names}

    @property
    def memory(self) -> dict[str, Tensor]:
        """Success so far; the model begins anew where a run is resumed."""
        return self.success.memory


def make_reward(name: str, env: Any, model: ProgressModel | None, every: int) -> Reward:
    """The reward called ``name`` of the worlds of ``env``. ``model``, looking each ``every`` control steps: of
    ``progress``."""
    if name == "progress":
        if model is None:
            raise SettingsError("algo.reward=progress: algo.progress_model=RUN, the folder of a progress model")
        return OfProgress(env, model, every)
    return KINDS[name](env)


KINDS: Mapping[str, Callable[[Any], Reward]] = {"sparse": Sparse, "formula": OfFormula, "task": OfTask}
