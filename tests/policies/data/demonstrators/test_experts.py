"""Experts by hand do their tasks; a slow one is late; what they are asked that they cannot do is named."""

import numpy as np
import pytest
import torch

from temporeal.policies.data.demonstrators.quadrotors import next_place, pillars_of
from temporeal.policies.data.demonstrators.scripted import EXPERTS, said, scripted, sentence
from temporeal.robots.registry import names
from temporeal.sim.env import make_env
from temporeal.sim.stl.instructions.grammar import SUITE
from temporeal.sim.stl.instructions.vocabulary import InstructionError
from temporeal.sim.task import load_task


def succeeded(name, pace):
    """Share of worlds that do the task, one for each entry of ``pace``."""
    task, worlds = load_task(name), len(pace)
    env = make_env(task, num_worlds=worlds, seed=1, threads=1)
    env.reset()
    act, done, good = scripted(task)(worlds), torch.zeros(worlds, dtype=torch.bool), torch.zeros(worlds)
    for _ in range(task.steps):
        step = env.step(act(env.true_signals(), pace))
        over = (step.terminated | step.truncated) & ~done
        good[over] = step.info["success"][over].float()
        done |= over
    return good


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [
    ("track", 0.95), ("hover", 0.8), ("joint_target", 0.95), ("hold", 0.95), ("arm_track", 0.95), ("push", 0.95),
    ("tabletop", 0.9)])
def test_experts_do_their_tasks(name, least):
    assert succeeded(name, torch.ones(32)).mean() >= least


def test_an_expert_flies_the_mission_and_a_slow_one_is_late():
    good = succeeded("waypoints", torch.tensor([1.0] * 24 + [0.3] * 8))
    assert good[:24].mean() >= 0.95 and good[24:].mean() < 0.2


def test_the_way_leads_around_pillars():
    task = load_task("waypoints")
    pillars = pillars_of(task)
    place = torch.tensor([[0.0, 0.2, 1.0], [0.0, -1.0, 1.0]])
    goal = torch.tensor([[1.2, 0.7, 1.2], [1.0, -1.0, 1.0]])
    found = next_place(place, goal, pillars)
    assert torch.equal(found[1], goal[1]) and not torch.equal(found[0], goal[0])
    way = torch.linspace(0, 1, 50)[:, None] * (found[:1] - place[:1]) + place[:1]
    assert ((way[:, None, :2] - pillars[:, :2]).norm(dim=-1) > pillars[:, 2]).all()


def test_each_expert_is_of_a_task_and_has_a_sentence():
    assert set(EXPERTS) - {"metaworld", "ogbench"} <= set(names("temporeal.sim.tasks"))
    assert sentence(load_task("lift")) == "lift the cube to the goal"


def test_each_episode_has_the_sentence_of_its_word_numbers():
    words = ["push the red cube into the tray", "open the drawer"]
    numbers = np.stack([SUITE.encode(text) for text in words]).astype(np.float32)  # as environments give them
    assert said(load_task("tabletop", kinds="push+open"), numbers, 2) == words
    with pytest.raises(InstructionError, match="task 'reach' does not say which words: .* VOCABULARY"):
        said(load_task("reach"), numbers, 2)
    assert said(load_task("reach"), None, 2) == ["bring the gripper to the goal"] * 2


def test_a_slow_one_of_the_tabletop_has_not_begun_when_a_fast_one_is_done():
    """Phases are of each world; what is asked for chooses the controller."""
    task = load_task("tabletop", kinds="reach+press")
    act, signals = scripted(task)(2), {name: torch.zeros(2, *spec.shape) for name, spec in task.schema.items()}
    signals |= {"kind": torch.tensor([0.0, 6.0]), "grip_pos_w": torch.tensor([[0.4, 0.0, 0.2]] * 2),
                "grip_quat_w": torch.tensor([[0.0, 1.0, 0.0, 0.0]] * 2),
                "target_pos_w": torch.tensor([[0.4, 0.1, 0.02], [0.4, 0.0, 0.05]])}
    action = act(signals, torch.ones(2))
    assert action[0, 1] > 0.5 and action[0, 2] < -0.5  # to the side and down, over what is to be reached
    assert action[1, :2].abs().max() < 1e-6 and action[1, 2] < -0.5  # over the button already: straight down
    assert (action[:, -1] == -1).all()  # closed fingers do both


def test_a_task_without_expert_names_those_with_one():
    with pytest.raises(ValueError, match="'ant' has no expert by hand: .*expert=outputs.*reach"):
        scripted(load_task("ant"))
