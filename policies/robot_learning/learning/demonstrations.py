"""Demonstrations of ``dataset=`` beside an actor's episodes: with rewards of the same kind. S samples, N episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from temporeal.policies.data.objective_rewards import StepRewards, by
from temporeal.policies.robot_learning.success import Judge, judge_of, require_learned_there
from temporeal.policies.runs.errors import BadInput, bad_input

if TYPE_CHECKING:
    from temporeal.policies.data.episodes.dataset import Dataset
    from temporeal.policies.data.transitions import Transitions
    from temporeal.policies.robot_learning.words import Common


def demonstrations(common: Common) -> Transitions | None:
    """The steps of the dataset; None: none is given."""
    from temporeal.policies.data import learnable
    from temporeal.policies.data.views import task_view, transitions
    from temporeal.policies.runs import offline

    if not common.settings.get("dataset"):
        return None
    with bad_input():
        dataset = offline.open_dataset(str(common.settings["dataset"]))
        learnable.require_sound(dataset)
        offline.require_task(dataset, common.task)
        found = transitions(dataset, task_view(common.task), reward=rewards(common, dataset))
        known = [name for name in common.agreed.pictures if name in dataset.interface.signals]
        return replace(found, pictures={name: dataset.column(name) for name in known})


def rewards(common: Common, dataset: Dataset) -> StepRewards:
    """As the actor gives them."""
    if common.reward == "task":
        return by(common.task.objective)
    judge = judge_of(common.success, common.threshold, common.task)
    if not judge.names:
        raise BadInput(f"dataset=: nobody judges its episodes where success={common.success}: name a judge, or "
                       "reward=task")
    seen = dataset.interface
    require_learned_there(judge, seen.robot, seen.rate_hz, seen.signals, "the set of dataset=")
    return at_success(judge)


def at_success(judge: Judge) -> StepRewards:
    """1 at the step that ends in an episode's first success, which ends the task there; else 0."""
    def found(signals: Mapping[str, Tensor], actions: Tensor) -> tuple[Tensor, Tensor]:
        samples, count = actions.shape[:2]
        reward, over = torch.zeros(samples, count), torch.zeros(samples, count, dtype=torch.bool)
        arrays = {name: signals[name].numpy() for name in judge.names if name in signals}
        if missing := [name for name in judge.names if name not in arrays]:
            raise BadInput(f"dataset=: success is judged by {', '.join(missing)}, which the set does not have")
        for n in range(count):
            judge.begin()
            for s in range(samples):
                if judge.update({name: value[s, n] for name, value in arrays.items()}):
                    if s:
                        reward[s - 1, n], over[s - 1, n] = 1.0, True
                    break
        return reward, over

    return found
