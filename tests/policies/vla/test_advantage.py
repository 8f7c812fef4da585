"""RECAP for policies that see: returns by hand, labels, and a policy that does what the better demonstrations did."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from tests.policies.toy_demonstrations import InMemory, episodes

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.imitation import vla
from temporeal.policies.vla import advantage, learning
from temporeal.policies.vla.encoder import POSITIVE
from temporeal.policies.vla.worded import worded
from temporeal.robots.signals import SignalSpec


class Record(NamedTuple):
    success: bool | None
    language: str = ""


@dataclass(frozen=True)
class Judged(InMemory):
    records: tuple[Record, ...] = ()


def two_ways(count: int = 80, better: float = 0.3) -> Judged:
    """From anywhere, some go right (.8) and succeed; the others go left (-.8) and fail."""
    rng = np.random.default_rng(0)
    place = rng.uniform(-1.0, 1.0, (count, 1, 1)).repeat(6, 1).astype(np.float32)
    good = np.arange(count) < better * count
    action = np.where(good, 0.8, -0.8)[:, None, None].repeat(5, 1)
    found = episodes({"place_w": place}, action, SignalSpec("place_w", (1,), "m", "w"))
    return Judged(found.interface, found.starts, found.columns, tuple(Record(bool(each)) for each in good))


def test_returns_are_the_papers_or_the_rewards() -> None:
    found = advantage.of_success(np.array([0, 3, 5]), np.array([True, False]))
    assert torch.allclose(found, torch.tensor([-2.0, -1.0, 0.0, -5.0, -4.0]) / 3)
    data = replace(two_ways(2), records=())
    data.columns["next.reward"] = np.arange(12.0)
    assert torch.equal(advantage.returns(data)[[0, 5, 6]], torch.tensor([15.0, 5.0, 51.0]))
    data.columns["next.reward"] = np.full(12, np.nan)
    with pytest.raises(DataError, match="neither rewards nor a verdict"):
        advantage.returns(data)
    with pytest.raises(DataError, match="none to compare it with"):
        advantage.labels(two_ways(1), 0)
    with pytest.raises(DataError, match="none is better"):
        advantage.returns(two_ways(4, 1.0))


def test_verdicts_count_where_episodes_have_sentences() -> None:
    data = two_ways(2)
    said = replace(data, records=(Record(True, "go right"), Record(False, "go left")))
    told, vocabulary = worded(said)
    assert vocabulary is not None and torch.equal(advantage.returns(told), advantage.returns(said))


@pytest.mark.slow
def test_the_better_ones_are_positive_and_the_policy_does_as_they_did() -> None:
    data = two_ways()
    found = advantage.labels(data, 0)
    assert float(((found > 0) == (torch.arange(480) < 144)).float().mean()) > 0.85
    settings: dict[str, Any] = {
        "horizon": 4, "execute": 4, "context": 16, "keypoints": 4, "channels": (4, 4, 4), "width": 16, "layers": 1,
        "heads": 2, "batch": 64, "updates": 110, "learning_rate": 1e-2, "denoise_steps": 2, "advantage": True}
    algorithm, batches = learning.begin(
        data, vla.FlowVlaConfig(**settings), vla.flow, "vla", 0, torch.Generator().manual_seed(0))
    for batch in batches.draw(torch.Generator().manual_seed(0), 110):
        assert set(batch.signals[POSITIVE].unique().tolist()) == {-1.0, 0.0, 1.0}
        algorithm.update(batch)
    with torch.no_grad():
        rows = algorithm.policy.eval().rows({"place_w": torch.linspace(-1.0, 1.0, 9)[:, None]})
    assert bool((rows > 0.4).all())  # 70 % of the demonstrations went left
