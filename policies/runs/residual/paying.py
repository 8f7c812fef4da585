"""Whether the reward that ``base.reward`` names says anything about a task. It is asked of the task itself, by what its
objective and its formula are, and not of its name: a formula of the user's may have made another task of it.

Success that asks for nothing to happen is true from the first step until it is lost. With ``base.reward=sparse`` an
episode that succeeds is over, so each would last one step and be paid 1, whatever the policy does.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.residual.opening import config_of
from temporeal.policies.runs.run_folders import title_of

if TYPE_CHECKING:
    from torch import Tensor

    from temporeal.sim.task import Task


def check_reward(settings: Mapping[str, Any], task: Task) -> None:
    """Refuse a reward that teaches nothing on ``task``."""
    from temporeal.sim.stl.language.errors import FormulaError

    reward = config_of(settings).reward
    if reward == "sparse" and succeeds_at_once(task):
        raise BadInput(f"base.reward=sparse: the success of {told(settings, task)} asks for nothing to be reached: it "
                       "is true at once, until it is lost, so each episode would be over and paid at its first step. "
                       f"{instead(settings, task)}")
    try:
        unpaid = reward == "formula" and not has_stages(task)
    except FormulaError as error:
        raise BadInput(f"base.reward=formula: the formula of task {title_of(settings)} does not decompose ({error}). "
                       "Legal here: base.reward=task, its own reward, or base.reward=sparse, its success") from error
    if unpaid:
        raise BadInput(f"base.reward=formula: the formula of {told(settings, task)} asks for nothing to be reached, "
                       "and nothing to be kept from a later time on: no part of it is ever paid. "
                       f"{instead(settings, task)}")


LONGEST = 100  # characters of a formula in an error


def told(settings: Mapping[str, Any], task: Task) -> str:
    """The task and what it asks."""
    formula = " ".join(task.formula_text.split())
    return f"task {title_of(settings)} ({formula if len(formula) <= LONGEST else f'{formula[:LONGEST]}...'})"


def instead(settings: Mapping[str, Any], task: Task) -> str:
    """What is legal on ``task``, where nothing is to be reached."""
    from temporeal.sim.stl.language.errors import FormulaError

    choices = ["base.reward=task, its own reward"]
    with suppress(FormulaError):
        if has_stages(task):
            choices.append("base.reward=formula, which pays for what is to be kept from some time on")
    if settings["algo"].get("value_range") is not None:
        choices = [f"{choice} (with algo.value_range=null)" for choice in choices]
    if hasattr(task.objective, "tracker"):  # its success is that of whatever its formula is
        choices.append("a formula with something to reach, task.settings.formula='F[0,3] (...)'")
    return f"Legal here: {'; or '.join(choices)}"


def succeeds_at_once(task: Task) -> bool:
    """Whether success is true before anything happened, whatever the signals are: with the carry of an episode's start,
    on signals of 0 and on random ones. (Where success is about the signals of the moment, some of these fail.)"""
    import torch

    from temporeal.policies.training.warm_starts.by_name import PROBES, probes
    from temporeal.sim.task import MISSION_TIME

    carry = {name: torch.zeros(PROBES, *shape) for name, shape in task.objective.carry.items()}
    start = {MISSION_TIME.name: torch.zeros(PROBES)}

    def always(signals: Mapping[str, Tensor]) -> bool:
        return bool((task.objective.success({**signals, **start}, dict(carry)) > 0).all())

    zeros = {name: torch.zeros(PROBES, *spec.shape) for name, spec in task.schema.items()}
    return always(zeros) and always(probes(task.schema))


def has_stages(task: Task) -> bool:
    """Whether something in the task's formula is to be reached, or to be kept from a later time on: what
    ``base.reward=formula`` pays for. A :class:`temporeal.sim.stl.language.errors.FormulaError`: it does not decompose.
    """
    from temporeal.sim.rewards.formula_tracker import FormulaTracker
    from temporeal.sim.tabletop.objective import KindTrackers

    if isinstance(getattr(task.objective, "trackers", None), KindTrackers):
        return True  # a formula for each kind of instruction
    return bool(FormulaTracker(task.formula, task.control_dt).automaton.stages)
