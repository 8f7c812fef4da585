"""What was measured is kept as it was, compiled or not, and changes nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from temporeal.policies.evaluate.measurement_recorder import MeasurementRecorder, measured, own, with_recorder
from temporeal.sim.env import Env, make_env
from temporeal.sim.task import load_task

SENSORS = {"noise": {"base_pos_w": 0.01}, "bias": {"base_vel_w": 0.05}, "delay_steps": 2}


def env_of(compiled: bool, *, watched: bool = True) -> Env:
    task = load_task("waypoints")
    return make_env(with_recorder(task) if watched else task, num_worlds=5, seed=4, sensors=SENSORS, compiled=compiled)


@pytest.mark.parametrize("compiled", [True, False])
def test_observations_are_made_of_what_is_kept(compiled: bool) -> None:
    env = env_of(compiled)
    obs, action = env.reset(), 0.3 * torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    inner = load_task("waypoints").observe
    memory = {name: torch.zeros(5, *shape) for name, shape in inner.memory.items()}
    for _ in range(4):
        seen = {name: torch.from_numpy(value.copy()) for name, value in measured(env).items()}
        again, memory = inner(seen, memory)
        torch.testing.assert_close(obs.actor, again, rtol=0, atol=2e-6)
        off = seen["base_pos_w"] - env.true_signals()["base_pos_w"]
        assert off.abs().max() > 1e-3  # the noise is in it
        memory = {**memory, **inner.record(memory, action)}
        obs = env.step(action).obs


def test_witnessed_episodes_are_the_same_episodes() -> None:
    watched, plain = env_of(True), env_of(True, watched=False)
    np.testing.assert_array_equal(watched.reset().actor, plain.reset().actor)
    for _ in range(30):
        a, b = (env.step(torch.full((5, 4), 0.1)) for env in (watched, plain))
        assert torch.equal(a.obs.actor, b.obs.actor) and torch.equal(a.reward, b.reward)


def test_a_witness_tells_the_maps_memory_from_its_own() -> None:
    task = load_task("hover")
    witness = with_recorder(task).observe
    assert isinstance(witness, MeasurementRecorder) and witness.signals == task.observe.signals
    assert set(own(dict.fromkeys(witness.memory, torch.zeros(1)))) == set(task.observe.memory)
    assert witness.memory["measured.base_quat_w"] == (4,)
