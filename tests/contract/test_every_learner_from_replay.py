"""SAC and TD3 on every task: they explore, remember, update and give a finite action."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.contract.test_every_task import TASKS
from tests.examples import thinned

from temporeal.policies.algos import sac, td3
from temporeal.sim.env import make_env
from temporeal.sim.task import load_task

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = {"total_steps": 12, "warmup": 6, "report_steps": 12, "batch": 4, "hidden": (8,), "n_step": 2}


@pytest.mark.parametrize("name", thinned(TASKS, keep=["hover", "reach"]))
def test_sac_and_td3_learn_from_each_task(name: str, tmp_path: Path) -> None:
    env = make_env(load_task(name), num_worlds=2, seed=1, threads=1, compiled=False)
    for module, kind in ((sac, sac.SACConfig), (td3, td3.TD3Config)):
        found = module.train(env, kind(**SMALL), out=tmp_path / module.__name__)
        assert found.history[-1]["gradient_steps"] == 6
        seen = env.reset().actor
        with torch.no_grad():
            action = found.actor(found.normalizer(seen))
        assert action.shape == (2, env.action_dim) and bool((action.abs() <= 1.0).all())
