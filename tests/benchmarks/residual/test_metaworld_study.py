"""The study of residuals on Meta-World counts the same starts for whoever acts, and asks its targets of the worst
seed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from temporeal_benchmarks.residual import metaworld_study as study


class Coins:
    """Worlds whose episode e has e + 1 steps (world 0: twice as many), and succeeds where the action is its sign."""

    num_worlds, action_dim = 2, 1

    def __init__(self) -> None:
        self.env, self.begun = SimpleNamespace(seed=3, reseed=self.reseed), list[int]()

    def reseed(self, seed: int) -> None:
        self.begun.append(seed)

    def reset(self) -> Any:
        self.episode, self.age = torch.zeros(2), torch.zeros(2)
        return self.seen()

    def seen(self) -> Any:
        return SimpleNamespace(actor=torch.where(self.episode[:, None] % 2 == 0, 1.0, -1.0))

    def step(self, action: torch.Tensor) -> Any:
        self.age += 1.0
        ended = self.age >= (self.episode + 1.0) * torch.tensor([2.0, 1.0])
        won = ended & (action[:, 0] == self.seen().actor[:, 0])
        self.episode, self.age = self.episode + ended, torch.where(ended, 0.0, self.age)
        return SimpleNamespace(terminated=won, truncated=ended & ~won, info={"success": won.float()}, obs=self.seen())


def test_the_same_starts_are_played_whoever_acts() -> None:
    env = Coins()
    base = study.played(env, 6, None, None)  # type: ignore[arg-type]
    always = study.played(env, 6, lambda obs: obs, nn.Identity())  # type: ignore[arg-type]
    ones = study.played(env, 6, lambda obs: torch.ones(2, 1), nn.Identity())  # type: ignore[arg-type]
    assert base.shape == (2, 3) and not base.any() and always.all()
    np.testing.assert_array_equal(ones, [[True, False, True]] * 2)
    assert env.begun == [3, 3, 3]


def trial(successes: int, **changed: Any) -> dict[str, Any]:
    return {"successes": successes, "trials": 1000, "low": 0.9, "high": 1.0, "base": 800, "fixed": 190, "broken": 4,
            "steps": 40_000, "base_steps": 9_000, "train_cpu_s": 200.0, "seen": [[0, 0.8], [5000, 0.8], [40_000, 1.0]],
            **changed}


def test_the_worst_seed_is_judged_for_each_target_and_missing_ones_are_said() -> None:
    trials = {f"peg/resfit/{seed}": trial(984 + seed) for seed in (1, 2, 3)}
    trials["peg/resfit/2"] |= {"broken": 16, "seen": [[0, 0.8], [5000, 0.7], [40_000, 1.0]], "train_cpu_s": 301.0}
    found = {row.name: row for row in study.judged(trials)}
    assert len(found) == 2 * 3 * 5
    names = [f"residual.metaworld.peg.resfit{part}" for part in ("", ".broken", ".dip", ".steps", ".seconds")]
    assert [found[name].value for name in names] == [0.985, 0.02, pytest.approx(0.1), 40_000, 301.0]
    assert [found[name].ok for name in names] == [True, False, False, True, False]
    assert "fixed 190, broken 16" in str(found[names[0]].peer)
    row = found["residual.metaworld.soccer.resip.dip"]
    assert row.value is None and "0 of 3 seeds; temporeal bench residual --parts metaworld-study" in str(row.peer)


def test_all_jobs_of_a_seed_are_before_the_next() -> None:
    names = [job.name for job in study.jobs(2)]
    assert len(names) == 12 and names[0] == "peg/resip/1" and all(name.endswith("/1") for name in names[:6])
