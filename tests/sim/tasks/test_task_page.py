"""The task of docs/how-to/adding-a-task.md is what the page says: it runs, learns of its formula, and uses every
part."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from temporeal.sim.env import make_env
from temporeal.sim.stl.semantics.robustness import satisfied
from temporeal.sim.task import Task

PAGE = Path(__file__).parents[3] / "docs/how-to/adding-a-task.md"


@pytest.fixture
def make() -> Iterator[Callable[..., Task]]:
    """``make`` of the page's module."""
    (text,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    module = ModuleType("task_of_the_page")
    sys.modules[module.__name__] = module  # dataclasses look it up
    exec(compile(text, str(PAGE), "exec"), module.__dict__)
    yield module.make
    del sys.modules[module.__name__]


def test_it_flies_as_its_formula_judges(make: Callable[..., Task]) -> None:
    """A pull to the goal, by a controller through the actions: what the judge calls success is satisfied."""
    task = make()
    env = make_env(task, num_worlds=16, seed=2, threads=1)
    obs = env.reset().actor
    signals = [{k: v.clone().numpy() for k, v in env.true_signals().items()}]
    for _ in range(task.steps):
        turn = obs[:, 3:12].reshape(-1, 3, 3)
        wanted = 4.0 * obs[:, :3] - 4.0 * obs[:, 12:15] + torch.tensor([0.0, 0.0, 9.81])
        up = wanted / wanted.norm(dim=-1, keepdim=True)
        tilt = (turn.transpose(1, 2) @ torch.linalg.cross(turn[:, :, 2], up)[..., None])[..., 0]
        thrust = 0.0319 * ((wanted * turn[:, :, 2]).sum(-1) - 9.81) / 0.2
        step = env.step(torch.cat([thrust[:, None], tilt], -1).clamp(-1, 1))
        obs = step.obs.actor
        signals.append({k: v.clone().numpy() for k, v in step.info["signals"].items()})
    assert step.truncated.all()
    trace = {k: np.stack([sample[k] for sample in signals]) for k in ("base_pos_w", "goal_pos_w", "height")}
    holds = satisfied(task.formula, trace, task.control_dt)[0]
    assert (trace["goal_pos_w"] == trace["goal_pos_w"][0]).all() and step.info["success"].sum() >= 12
    assert holds[step.info["success"].numpy()].all()


def test_training_starts_in_the_middle_where_it_says(make: Callable[..., Task]) -> None:
    env = make_env(make(), num_worlds=64, seed=2, mid_episode_starts=0.5, threads=1)
    env.reset()
    signals, mid_episode = env.true_signals(), env.mid_episode
    near = (signals["goal_pos_w"] - signals["base_pos_w"]).abs().max(-1).values
    assert 16 < mid_episode.sum() < 48 and (near[mid_episode] <= 0.2 + 1e-6).all()
    assert (signals["mission_time"][~mid_episode] == 0).all() and signals["mission_time"][mid_episode].max() > 1.0


def test_a_fall_ends_the_episode_and_costs(make: Callable[..., Task]) -> None:
    env = make_env(make(), num_worlds=4, seed=2, threads=1)
    env.reset()
    for _ in range(60):
        step = env.step(torch.tensor([[-1.0, 0.0, 0.0, 0.0]]).expand(4, 4))
        if step.terminated.any():
            break
    assert step.terminated.any() and (step.reward[step.terminated] < -4).all()
    assert not step.info["success"][step.terminated].any()


@pytest.mark.parametrize(("written", "instead", "told"), [
    ("obs_dim = 3 + 9 + 3 + 3 + 4", "obs_dim = 21", r"obs has shape \(22,\) per world; observe.obs_dim says \(21,\)"),
    ('{**memory, "last_action": action}', '{**memory, "last": action}', "last is not declared by observe.memory"),
    ("privileged_dim = 2", "privileged_dim = 3", r"critic has shape \(24,\).*objective.privileged_dim"),
    ('"base_ang_vel_b", "goal_pos_w")', '"base_ang_vel", "goal_pos_w")', "observe.signals names base_ang_vel; known")])
def test_a_part_that_gives_what_it_does_not_declare_is_named(
    written: str, instead: str, told: str
) -> None:
    (text,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert written in text
    module = ModuleType("task_with_a_mistake")
    sys.modules[module.__name__] = module
    exec(compile(text.replace(written, instead), str(PAGE), "exec"), module.__dict__)
    with pytest.raises(ValueError, match=told):
        make_env(module.make(), num_worlds=4, compiled=None if "obs_dim" in told else False, threads=1)


def test_the_page_names_every_field_of_a_task() -> None:
    text = PAGE.read_text()
    for name in set(Task.__dataclass_fields__) - {"name"}:
        assert f"`{name}`" in text, name


def test_settings_reach_the_task(make: Callable[..., Task]) -> None:
    task = make(constants={"floor": 0.4}, reward={"hit": 1.0})
    assert task.constants["floor"] == 0.4 and task.shapes[0]["low"][2] == 0.4 and task.stop == "level"
    with pytest.raises(ValueError, match="unknown weights"):
        make(reward={"hits": 1.0})
