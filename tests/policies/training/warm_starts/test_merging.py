"""Specialists of one start become one network: the arithmetic, what is chosen, what is refused, what it reaches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.policies.training.warm_starts.test_forgetting import SETTINGS, Goals, success
from torch import nn

from temporeal.policies.algos import ppo, specialists
from temporeal.policies.algos.specialists import SpecialistsConfig
from temporeal.policies.nets.actor import FeedForwardActor, RecurrentActor
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.ppo_state import PPOConfig
from temporeal.policies.training.warm_starts import merging
from temporeal.policies.training.warm_starts.ppo_start import WarmStart

pytestmark = pytest.mark.usefixtures("one_thread")
CONFIG = PPOConfig(actor_hidden=(4,))


def policy(run: str, seed: int, *, digest: str = "", began: str = "d0", hidden: tuple[int, ...] = (4,)) -> WarmStart:
    torch.manual_seed(seed)
    actor = FeedForwardActor(2, 1, hidden, "silu", 0.5)
    config = replace(CONFIG, actor_hidden=hidden, adapt="elsewhere")
    return WarmStart(run, actor, Normalizer(2), config, torch.tensor([0, 1]), digest, began)


START, ONE, TWO = (policy(run, seed, digest=digest) for run, seed, digest in (
    ("start", 0, "d0"), ("one", 1, "d1"), ("two", 2, "d2")))


@dataclass
class Sums:
    """Succeeds by what the sum of all weights is."""

    title: str
    best: float

    def success(self, actor: nn.Module, normalizer: nn.Module, episodes: int, *, chosen_on: bool) -> float:
        total = sum(float(value.sum()) for name, value in actor.state_dict().items() if name != "log_std")
        return 1.0 / (1.0 + abs(total - self.best))


def test_weights_are_those_of_the_start_and_shares_of_the_differences() -> None:
    found = merging.merged(START.actor, [ONE.actor, TWO.actor], [0.5, -0.25])
    for name, value in found.state_dict().items():
        start, one, two = (each.actor.state_dict()[name] for each in (START, ONE, TWO))
        torch.testing.assert_close(value, start + 0.5 * (one - start) - 0.25 * (two - start))
    same = merging.merged(START.actor, [ONE.actor], [0.0])
    obs = torch.randn(8, 2)
    assert torch.equal(same(obs), START.actor(obs)) and same is not START.actor


def test_one_weight_for_all_is_chosen_first_and_then_each_by_itself() -> None:
    tried: list[tuple[float, ...]] = []

    def score(weights: Sequence[float]) -> float:
        tried.append(tuple(weights))
        return -abs(weights[0] - 1.0) - abs(weights[1] - 0.5)

    assert merging.choose(score, 2, (0.0, 0.5, 1.0)) == (1.0, 0.5)
    assert tried[:3] == [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0)] and len(set(tried)) == len(tried)
    assert merging.choose(lambda weights: 1.0, 3, (1.0, 0.5, 0.0)) == (0.0, 0.0, 0.0)  # nothing is gained: the start
    assert merging.choose(lambda weights: None, 2, (0.0, 1.0)) is None


def test_every_policy_is_judged_on_every_task_and_the_run_is_one_network(tmp_path: Path) -> None:
    judges = [Sums("left", 0.0), Sums("right", 1.0)]
    found = specialists.train(
        Goals(2), SpecialistsConfig(merge=True, episodes=3), out=tmp_path, policies=[START, ONE, TWO],  # type: ignore
        judges=judges)
    told = json.loads((tmp_path / merging.TABLE).read_text())
    assert set(told["success"]) == {"start", "one", "two", "merged"} and set(told["weights"]) == {"one", "two"}
    assert told["success"]["one"] == {each.title: each.success(ONE.actor, ONE.normalizer, 3, chosen_on=False)
                                      for each in judges}
    means = {name: sum(row.values()) / 2 for name, row in told["success"].items()}
    assert means["merged"] >= means["start"]
    loaded, normalizer, config = specialists.load_policy(tmp_path)
    obs = torch.randn(8, 2)
    assert torch.equal(loaded(normalizer(obs)), found.actor(obs)) and config.merge


def test_one_that_was_stopped_begins_anew_and_one_that_is_done_is_not_resumed(tmp_path: Path) -> None:
    def merge(**how: Any) -> specialists.Result:
        return specialists.train(
            Goals(2), SpecialistsConfig(merge=True, choices=(0.0, 1.0), episodes=3), out=tmp_path,  # type: ignore
            policies=[START, ONE], judges=[Sums("left", 0.0)], **how)

    merge(on_iteration=lambda _: True)
    assert not (tmp_path / "checkpoints").exists()
    merge(resume=True)
    assert (tmp_path / merging.TABLE).exists() and any((tmp_path / "checkpoints").iterdir())
    with pytest.raises(SettingsError, match="algo.merge=true is done here, nothing to resume"):
        merge(resume=True)


@pytest.mark.parametrize(("other", "told"), [
    (policy("two", 2, began="d9"), "two: it began as another policy, algo.adapt=elsewhere"),
    (policy("two", 2, began=""), "two: its folder does not say what it began as"),
    (policy("two", 2, hidden=(8,)), r"two: algo.actor_hidden=\[8\], \[4\] of the start"),
    (replace(policy("two", 2), columns=torch.tensor([1, 0])), "two: it reads other numbers, or in another order"),
    (replace(policy("two", 2), actor=RecurrentActor(2, 1, (4,), "silu", 0.5, 3)), "two is a RecurrentActor")])
def test_what_is_not_of_one_kind_is_refused_by_name(other: WarmStart, told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        merging.check([START, ONE, other])


def test_another_normalization_is_refused_and_weights_are_one_for_each(tmp_path: Path) -> None:
    other = policy("two", 2)
    other.normalizer.shift[1] = 0.5
    with pytest.raises(SettingsError, match="two: its normalization of 1 of 2 numbers"):
        merging.check([START, ONE, other])
    with pytest.raises(SettingsError, match=r"algo.weights=\[0.5\]: one for each of algo.specialists, 2 here"):
        merging.merge([START, ONE, TWO], [], weights=[0.5], choices=[], episodes=1)
    with pytest.raises(SettingsError, match="algo.weights are those of merged specialists: algo.merge=true"):
        SpecialistsConfig(weights=(0.5,))
    with pytest.raises(SettingsError, match=r"algo.choices=\[3.0\]"):
        SpecialistsConfig(choices=(0.0, 3.0))


class Side(Goals):
    """Goals on one ``side`` of 0, in [0.5, 1] of it."""

    def __init__(self, num_worlds: int, seed: int, side: float) -> None:
        super().__init__(num_worlds, seed)
        self.side = side

    def drawn(self) -> torch.Tensor:
        return self.side * super().drawn()


@dataclass
class SideJudge:
    title: str
    side: float

    def success(self, actor: nn.Module, normalizer: nn.Module, episodes: int, *, chosen_on: bool) -> float:
        return reached(actor, normalizer, self.side, 50 if chosen_on else 51, episodes)


@torch.no_grad()
def reached(actor: nn.Module, normalizer: nn.Module, side: float, seed: int, episodes: int = 1024) -> float:
    env = Side(episodes, seed, side)
    obs = env.reset().actor
    for _ in range(env.task.steps):
        step = env.step(actor(normalizer(obs)))
        obs = step.obs.actor
    return float(step.info["success"].float().mean())


@pytest.mark.slow
def test_merged_is_at_least_as_good_as_each_specialist_over_all_tasks(tmp_path: Path) -> None:
    """Stated before it was measured: over both tasks together it loses at most .02 to the better specialist."""
    first = ppo.train(Goals(64, 3, 1.0), SETTINGS, out=tmp_path / "start")
    start = WarmStart("START", first.actor, first.normalizer, SETTINGS, torch.arange(3), "d0")
    config = PPOConfig(**{**vars(SETTINGS), "adapt": "START"})
    trained = [ppo.train(Side(64, seed, side), config, out=tmp_path / str(side), seed=seed, warm=start)
               for seed, side in ((4, -1.0), (5, 1.0))]
    others = [WarmStart(f"S{i}", each.actor, each.normalizer, config, torch.arange(3), f"d{i}", "d0")
              for i, each in enumerate(trained, 1)]
    specialists.train(Goals(2), SpecialistsConfig(merge=True), out=tmp_path / "merged",  # type: ignore[arg-type]
                      policies=[start, *others], judges=[SideJudge("left", -1.0), SideJudge("right", 1.0)])
    told = json.loads((tmp_path / "merged" / merging.TABLE).read_text())
    print(told, success(first.actor, first.normalizer, 1.0))
    means = {name: sum(row.values()) / 2 for name, row in told["success"].items()}
    assert means["merged"] >= max(means["S1"], means["S2"]) - 0.02
    assert told["success"]["S2"]["right"] > told["success"]["START"]["right"] + 0.3  # there was something to learn
