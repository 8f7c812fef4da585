"""DAgger: who is labelled, what a run learns where cloning drifts off, and how it resumes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from temporeal.policies.imitation import dagger
from temporeal.policies.training.checkpoint import CheckpointError
from temporeal.policies.training.errors import SettingsError
from temporeal.sim.types import Obs

TINY: dict[str, Any] = {"hidden": (32,), "batch": 64, "updates": 200, "round_updates": 50, "learning_rate": 3e-3}


class Line:
    """Points on a line that are to be at 0 after ten steps of at most .3; what they are told is their place."""

    obs_dim = action_dim = 1

    def __init__(self, count: int) -> None:
        self.num_worlds, self.episodes = count, 0
        self.task = SimpleNamespace(name="line", steps=10)

    def reset(self) -> Obs:
        self.episodes, self.age = self.episodes + 1, 0
        draw = torch.rand(self.num_worlds, 1, generator=torch.Generator().manual_seed(self.episodes))
        self.place = 4.0 * draw - 2.0
        return self.seen()

    def seen(self) -> Obs:
        return Obs(self.place.clone(), self.place.clone())

    def true_signals(self) -> dict[str, torch.Tensor]:
        return {"place": self.place}

    def step(self, action: torch.Tensor) -> Any:
        self.place, self.age = self.place + 0.3 * action, self.age + 1
        over = torch.full((self.num_worlds,), self.age == 10)
        success = (self.place[:, 0].abs() < 0.1).float()
        return SimpleNamespace(obs=self.seen(), terminated=over & False, truncated=over, info={"success": success})

    def state_dict(self) -> dict[str, Any]:
        return {"episodes": self.episodes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.episodes = state["episodes"]


def expert() -> dagger.Expert:
    return lambda obs, signals: (-signals["place"] / 0.3).clamp(-1.0, 1.0)


def train(config: dagger.DaggerConfig, out: Path, **rest: Any) -> dagger.Result:
    return dagger.train(Line(32), config, out=out, make_expert=lambda: expert(), **rest)


def test_the_formula_picks_what_the_learner_did_wrong_and_the_expert_right() -> None:
    by_expert = torch.tensor([True, True, False, False])
    satisfied = torch.tensor([True, False, True, False])
    assert dagger.chosen("formula", by_expert, satisfied).tolist() == [True, False, False, True]
    assert dagger.chosen("expert", by_expert, satisfied).all()


def test_the_expert_labels_what_the_learner_flies(tmp_path: Path) -> None:
    found = train(dagger.DaggerConfig(**TINY), tmp_path)
    assert [row["data"] for row in found.history] == [320.0 * k for k in range(1, 5)]
    share = [row["success"] for row in found.history]
    assert share[0] != share[0] and share[-1] > 0.9  # in the first round the expert flies: no share of the learner's
    actor, normalizer, config = dagger.load_policy(tmp_path)
    obs = torch.randn(5, 1)
    assert config.round_updates == 50 and not hasattr(dagger, "load_graph")  # a plain actor: no graph of its own
    assert torch.equal(actor(normalizer(obs)), found.actor(found.normalizer(obs)))


def test_the_formula_asks_the_expert_less(tmp_path: Path) -> None:
    found = train(dagger.DaggerConfig(judge="formula", **TINY), tmp_path)
    assert found.history[-1]["data"] < 320.0 * 4 and found.history[-1]["success"] > 0.8


def test_a_resumed_run_is_the_uninterrupted_one_bit_by_bit(tmp_path: Path) -> None:
    config, whole, parts = dagger.DaggerConfig(mix=0.5, judge="formula", **TINY), tmp_path / "whole", tmp_path / "parts"
    train(config, whole)
    train(config, parts, on_iteration=lambda it: it.rounds == 2)
    train(config, parts, resume=True)
    one, other = dagger.load_policy(whole)[0], dagger.load_policy(parts)[0]
    for name, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name
    with pytest.raises(CheckpointError, match="mix"):
        train(dagger.DaggerConfig(**TINY), parts, resume=True)


def test_an_expert_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is no run"):
        dagger.train(Line(2), dagger.DaggerConfig(expert=str(tmp_path), **TINY), out=tmp_path)
    with pytest.raises(SettingsError, match="algo.expert=scripted: task 'line' has no expert by hand"):
        dagger.train(Line(2), dagger.DaggerConfig(**TINY), out=tmp_path)
    with pytest.raises(SettingsError, match="algo.judge=nobody: one of expert, formula"):
        dagger.DaggerConfig(judge="nobody")
