"""Tasks of the shipped robots make the steps that they made when their kept results were measured.

``tests/golden/first_steps.json`` was written before tasks took other robots: by case, at steps 1, 10 and 50 of four
worlds, the sums of the sizes of observations and commands, and of rewards.
"""

import json
from pathlib import Path

import pytest
import torch

from temporeal.sim.env import make_env
from temporeal.sim.task import load_task

FILE = Path(__file__).parents[2] / "golden" / "first_steps.json"
QUICK = ("reach", "waypoints", "lift")
SETTINGS = {
    "reach-velocity": {"drive": "velocity"}, "reach-effort": {"drive": "effort"}, "reach-tool": {"drive": "tool"},
    "stl-franka": {"system": "franka", "formula": "F[0,4] (grip_pos_w.z > 0.5)"},
    "stl-quadrotor": {"system": "quadrotor", "formula": "F[0,4] (height > 1.5)"}}
BEFORE = json.loads(FILE.read_text())


def first_steps(case):
    task = load_task(case.partition("-")[0], **SETTINGS.get(case, {}))
    env = make_env(task, num_worlds=4, seed=3, threads=1, compiled=False)
    env.reset()
    generator, rows = torch.Generator().manual_seed(5), []
    for i in range(50):
        step = env.step((0.5 * torch.randn(4, env.action_dim, generator=generator)).clamp(-1, 1))
        if i in (0, 9, 49):
            rows.append([float(x.double().sum()) for x in (step.obs.critic.abs(), env.command.abs(), step.reward)])
    return rows


@pytest.mark.parametrize("case", [
    pytest.param(case, marks=() if case in QUICK else pytest.mark.slow) for case in BEFORE])
def test_default_tasks_make_the_steps_that_they_made(case):
    for now, then in zip(first_steps(case), BEFORE[case], strict=True):
        assert now == pytest.approx(then, rel=1e-3, abs=1e-3)
