"""Which missions a curriculum draws more often."""

from __future__ import annotations

import pytest
import torch

from temporeal.policies.training.generalist.curriculum import Curriculum


def test_only_steps_since_a_world_began_its_mission_count() -> None:
    found = Curriculum(3, 1.0)
    surprise = torch.tensor([[9.0, 1.0, 5.0], [9.0, 1.0, 5.0], [2.0, 3.0, 5.0]])
    ended = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 0, 1]]).bool()  # world 2's new mission has no step yet
    found.update(torch.tensor([0.0, 1.0, 2.0]), surprise, ended)
    assert found.scores[:2].tolist() == pytest.approx([2.0, 5.0 / 3.0])
    assert found.scores[2].isnan()


def test_worlds_with_one_mission_are_taken_together_and_old_scores_fade() -> None:
    found = Curriculum(2, 1.0)
    none = torch.zeros(1, 2).bool()
    found.update(torch.tensor([1.0, 1.0]), torch.tensor([[1.0, 3.0]]), none)
    found.update(torch.tensor([1.0, 1.0]), torch.tensor([[4.0, 4.0]]), none)
    assert float(found.scores[1]) == pytest.approx(0.8 * 2.0 + 0.2 * 4.0)


def test_half_hard_missions_are_drawn_most() -> None:
    """Of missions with chance p of a reward of 1, and a critic that knows p."""
    torch.manual_seed(0)
    chance = torch.tensor([0.02, 0.5, 0.98])
    found = Curriculum(4, 0.5)  # the fourth is never flown
    for _ in range(200):
        rows = torch.arange(3).repeat(50)
        won = (torch.rand(150) < chance[rows]).float()
        found.update(rows.float(), (won - chance[rows]).abs()[None], torch.zeros(1, 150).bool())
    weights = found.weights()
    assert weights is not None
    hard, half, easy, unknown = weights.tolist()
    assert half > 2.0 * max(hard, easy) and min(hard, easy) >= 0.5
    assert unknown == pytest.approx(1.0) and min(hard, easy) < unknown < half


def test_without_a_share_or_scores_all_are_drawn_alike() -> None:
    assert Curriculum(2, 1.0).weights() is None
    found = Curriculum(2, 0.0)
    found.update(torch.tensor([0.0]), torch.tensor([[1.0]]), torch.zeros(1, 1).bool())
    assert found.weights() is None


def test_a_curriculum_goes_on_where_it_was() -> None:
    found, other = Curriculum(2, 1.0), Curriculum(2, 1.0)
    found.update(torch.tensor([0.0]), torch.tensor([[1.0]]), torch.zeros(1, 1).bool())
    other.load_state_dict(found.state_dict())
    assert torch.equal(other.weights(), found.weights())
