"""Tasks that are formulas are judged to the end of their episodes: the same flight is worth the same in every view."""

import numpy as np
import pytest
import torch

from temporeal.policies.evaluate.evaluation import evaluate
from temporeal.policies.evaluate.full_horizon import to_full_horizon
from temporeal.policies.evaluate.rollout import rollout
from temporeal.sim.env import make_env
from temporeal.sim.task import load_task

FORMULA = "F[0,3] (base_pos_w.x > 0.5 & F[0,2] base_pos_w.x < 0) & G[0,6] (abs(base_pos_w.x) < 4)"


def there_and_back(env):
    """One way for 2 s, then the other; the action [N, 2] by the time alone, in each world at a speed of its own."""
    speed = torch.linspace(0.1, 1.0, env.num_worlds)
    return lambda obs: torch.stack([speed * (1.0 if float(env.count[0]) < 12 else -1.0), 0.0 * speed], -1)


@pytest.mark.parametrize("compiled", [True, False])
def test_the_verdict_does_not_depend_on_a_schedule_that_nobody_follows(compiled):
    found, ended = {}, {}
    for view in ("scheduled", "terminal_robustness"):
        start = {"low": [-0.4, -0.4], "high": [0.4, 0.4]}
        task = load_task("stl", formula=FORMULA, constants={}, start=start, view=view)
        for name, judged in ((view, to_full_horizon(task)), (f"{view}, cut", task)):
            env = make_env(judged, num_worlds=64, seed=5, threads=1, compiled=compiled)
            of_all = evaluate(rollout(env, there_and_back(env)), task.formula)
            found[name], ended[name] = of_all.episodes, of_all.terminated
    for name in ("satisfied", "robustness", "length_s"):
        np.testing.assert_array_equal(getattr(found["scheduled"], name), getattr(found["terminal_robustness"], name))
    assert 0 < found["terminal_robustness"].satisfied.sum() < 64
    assert ended["scheduled"] == ended["terminal_robustness"] == 0  # the clock is no early end
    cut = found["scheduled, cut"]
    assert cut.length_s.min() < 6.0 and cut.satisfied.sum() < found["terminal_robustness"].satisfied.sum()


def test_other_tasks_are_as_they_were():
    task = load_task("hover")
    assert to_full_horizon(task) is task
