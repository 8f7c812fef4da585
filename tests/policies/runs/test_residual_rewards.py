"""A reward that teaches nothing on a task is refused, by what the task asks and not by its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from temporeal.policies.runs import environments
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.residual import training
from temporeal.policies.runs.residual.paying import check_reward, succeeds_at_once
from temporeal.policies.runs.settings.compose import compose
from temporeal.robots.registry import names
from temporeal.sim.env import make_env
from temporeal.sim.task import load_task

KEEP = {"hold", "track", "arm_track", "ant", "cube_rotate", "cube_reorient"}
"""Of the tasks here, those that ask for nothing to be reached (docs/how-to/residual.md names them)."""


def checked(name: str, reward: str, *, algo: Mapping[str, Any] | None = None, **settings: Any) -> None:
    check_reward({"algo": algo or {"name": "ppo"}, "task": {"name": name}, "base": {
        "expert": "scripted", "reward": reward}}, load_task(name, **settings))


def test_the_tasks_that_ask_for_nothing_to_be_reached() -> None:
    assert {name for name in names("temporeal.sim.tasks") if succeeds_at_once(load_task(name))} == KEEP


NOTHING = "asks for nothing to be reached"
TASK = r"Legal here: base.reward=task, its own reward"
OTHER = "a formula with something to reach, task.settings.formula="


@pytest.mark.parametrize(("name", "reward", "told", "more"), [
    ("hold", "sparse", rf"the success of task hold \(G\[0,5\] .* < close\)\) {NOTHING}: .*{TASK}; or {OTHER}", {}),
    ("hold", "formula", rf"the formula of task hold .* {NOTHING}, .* is ever paid. {TASK}; or {OTHER}", {}),
    ("track", "sparse", rf"task track \(.*\.\.\.\) {NOTHING}: .*{TASK}; or base.reward=formula, which pays [^;]*$", {}),
    ("hold", "sparse", rf"{TASK} \(with algo.value_range=null\);", {"algo": {"name": "td3", "value_range": [0, 1]}}),
    ("joint_target", "sparse", f"the success of task joint_target .*{NOTHING}",
     {"formula": "G[0,3] (norm(joint_pos - goal_joint_pos) < 9)"}),
    ("track", "formula", "base.reward=formula: the formula of task track does not decompose",
     {"formula": "G[0,3] F[0,1] (height > 1)"})])
def test_rewards_that_teach_nothing_are_refused_with_what_is_legal(
    name: str, reward: str, told: str, more: dict[str, Any]
) -> None:
    with pytest.raises(BadInput, match=told):
        checked(name, reward, **more)


@pytest.mark.parametrize(("name", "reward", "more"), [
    ("hold", "task", {}), ("track", "formula", {}), ("hover", "sparse", {}),
    ("hold", "sparse", {"formula": "F[0,3] G[0,1] (norm(joint_pos - goal_joint_pos) < close)"})])
def test_others_are_let_through(name: str, reward: str, more: dict[str, Any]) -> None:
    checked(name, reward, **more)


class Near:
    """An objective whose success is about the signals of the moment."""

    def __init__(self, other: Any) -> None:
        self.other, self.carry, self.privileged_dim = other, other.carry, other.privileged_dim

    def success(self, signals: Mapping[str, torch.Tensor], carry: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return signals["joint_pos"].norm(dim=-1) < 0.5  # true on signals of 0


def test_success_of_the_moment_is_not_taken_for_one_that_is_always_true() -> None:
    task = load_task("hold")
    assert succeeds_at_once(task)
    assert not succeeds_at_once(replace(task, objective=Near(task.objective)))


def test_the_worlds_say_the_same_at_their_first_step() -> None:
    for name, at_once in (("track", True), ("hover", False)):
        env = make_env(task := load_task(name), num_worlds=8, seed=0, compiled=False)
        env.reset()
        success = env.step(torch.zeros(8, env.action_dim)).info["success"]
        assert bool(success.all()) == at_once == succeeds_at_once(task) and bool(success.any()) == at_once


def test_a_training_is_refused_before_its_base_is_opened() -> None:
    settings = compose(["task=hold", "algo=resip", "base.policy=nowhere", "base.reward=sparse"])
    with pytest.raises(BadInput, match="base.reward=sparse: the success of task hold"):
        training.opened(settings, environments.make_task(settings))
