"""Rollouts: what is kept is the first episode of each world, up to its end and no further."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from temporeal.policies.evaluate.rollout import from_flights, resample, rollout
from temporeal.policies.export.golden_trace import record_golden
from temporeal.policies.training.acting import graph_policy
from temporeal.sim.types import Obs, Step


class Line:
    """World i moves by its action along a line and ends after ``ends[i]`` steps; a new episode starts at 100."""

    def __init__(self, ends: list[int], steps: int = 6) -> None:
        self.num_worlds, self.seed = len(ends), 3
        self.ends = torch.tensor(ends)
        self.task = SimpleNamespace(steps=steps, control_dt=0.5, schema={"x": None}, command="push")

    def reset(self) -> Obs:
        self.x, self.count = torch.arange(self.num_worlds).float(), torch.zeros(self.num_worlds, dtype=torch.int64)
        return self.seen()

    def seen(self) -> Obs:
        return Obs(self.x[:, None], self.x[:, None])

    def true_signals(self) -> dict[str, Tensor]:
        return {"x": self.x, "hidden": self.x}

    def step(self, action: Tensor) -> Step:
        self.x = self.x + action[:, 0]
        self.count = self.count + 1
        before, terminated = self.x.clone(), self.count == self.ends
        truncated = (self.count >= self.task.steps) & ~terminated
        done = terminated | truncated
        self.x = torch.where(done, torch.full_like(self.x, 100.0), self.x)
        self.count = torch.where(done, 0, self.count)
        info = {"signals": {"x": before, "hidden": before}, "finite": torch.ones_like(done)}
        return Step(self.seen(), before, terminated, truncated, self.seen(), info)


def full(obs: Tensor) -> Tensor:
    return torch.full((len(obs), 1), 0.25)


def test_samples_of_an_episode_and_nothing_after_its_end() -> None:
    found = rollout(Line([99, 2]), full)
    np.testing.assert_allclose(found.signals["x"][:, 0], 0.25 * np.arange(7))
    np.testing.assert_allclose(found.signals["x"][:, 1], [1.0, 1.25, *[1.5] * 5])  # never the 100 after reset
    assert found.lengths.tolist() == [7, 3]
    assert found.terminated.tolist() == [False, True]
    np.testing.assert_allclose(found.actions[:, 1, 0], [0.25, 0.25, 0, 0, 0, 0])
    assert (found.dt, found.seed, found.episodes, list(found.signals)) == (0.5, 3, 2, ["x"])


def test_rollout_stops_when_every_episode_is_over() -> None:
    calls: list[tuple[int, int]] = []
    found = rollout(Line([2, 3]), full, progress=lambda done, of: calls.append((done, of)))
    assert found.actions.shape == (3, 2, 1) and found.signals["x"].shape == (4, 2)
    assert calls == [(1, 6), (2, 6), (3, 6)]


def test_actions_are_clipped_as_the_environment_clips_them() -> None:
    found = rollout(Line([99]), lambda obs: torch.full((len(obs), 1), 7.0))
    assert found.actions.max() == 1.0


def test_unknown_signal_lists_the_known() -> None:
    with pytest.raises(ValueError, match=r"no signals \['y'\]; the environment has: x, hidden"):
        rollout(Line([9]), full, keep=["y"])


def test_recurrent_policy_carries_its_state_from_step_to_step() -> None:
    def decide(obs: Tensor, carried: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return carried["hidden"][:, :1] / 8, {"hidden": carried["hidden"] + 1}

    graph: Any = SimpleNamespace(decide=decide, carried={"hidden": (2,)})
    found = rollout(Line([99]), graph_policy(graph))
    np.testing.assert_allclose(found.actions[:, 0, 0], np.arange(6) / 8)


def test_flights_of_different_length_become_episodes() -> None:
    found = from_flights([{"x": np.array([1.0, 2, 3]), "only": np.zeros(3)}, {"x": np.array([5.0])}], 0.5)
    np.testing.assert_allclose(found.signals["x"], [[1, 5], [2, 5], [3, 5]])
    assert list(found.signals) == ["x"] and found.lengths.tolist() == [3, 1]
    with pytest.raises(ValueError, match=r"not so in flights \[1\]"):
        from_flights([{"x": np.zeros(2)}, {"x": np.zeros(2), "y": np.zeros(3)}], 0.5)


def test_resampling_takes_the_newest_value_received_by_then() -> None:
    times = np.array([0.05, 0.21, 0.39, 0.62])
    got = resample(times, np.array([10.0, 11.0, 12.0, 13.0]), 0.2, 5.0)
    assert got.tolist() == [10.0, 10.0, 12.0, 12.0]  # at 0, 0.2, 0.4, 0.6; nothing is known of 0.8
    assert resample(times, np.arange(4), 0.2, 0.4).tolist() == [0, 0, 2]


def test_golden_trace_is_recorded_with_one_world_only() -> None:
    with pytest.raises(ValueError, match="one world, the environment has 2"):
        record_golden(Line([3, 3]), full)
