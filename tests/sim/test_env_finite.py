"""Tasks that end: their last step terminates, and an episode that did what was asked has succeeded all the same."""

from dataclasses import replace

import pytest
import torch

from temporeal.sim.env import make_env
from temporeal.sim.task import load_task


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("finite", [True, False])
def test_the_end_of_a_task_terminates(finite, compiled):
    formula = "F[0,2] (norm(base_pos_w) < 20) & G[0,2] (base_pos_w.x < 20)"
    task = replace(load_task("stl", formula=formula), finite=finite)
    env = make_env(task, backend="planar", num_worlds=32, seed=1, threads=1, compiled=compiled)
    env.reset()
    for _ in range(task.steps):
        step = env.step(torch.zeros(32, 2))
    assert step.terminated.all() == finite and step.truncated.all() != finite
    assert not (step.terminated & step.truncated).any() and step.info["success"].all()


def test_formulas_alone_are_tasks_that_end():
    assert load_task("stl").finite and not load_task("hover").finite
