"""Replay: n-step returns by hand, what a ring forgets, where episodes end, and what is demonstrated."""

from __future__ import annotations

import pytest
import torch

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.training.off_policy.replay import TABLES, Replay, bytes_of_step, remembered


def filled(replay: Replay, times: int, ends: dict[int, str] | None = None) -> Replay:
    """World i of 2 sees 10 i + t at time t, does -t, earns 1 + t, and sees 10 i + t + 0.5 after; world 0 ends as said.
    """
    for t in range(times):
        over = torch.tensor([(ends or {}).get(t, "") != "", False])
        terminated = torch.tensor([(ends or {}).get(t) == "terminated", False])
        seen = torch.tensor([[float(t)], [10.0 + t]])
        replay.add(seen, torch.full((2, 1), -float(t)), torch.full((2,), 1.0 + t), seen + 0.5, terminated, over)
    return replay


def test_returns_of_several_steps_by_hand() -> None:
    replay = filled(Replay(8, 2, 1, 1), 6, {2: "truncated", 4: "terminated"})
    chosen = torch.tensor([0, 2, 4, 6, 8, 10, 1, 9])  # world 0 at times 0 to 5, world 1 at 0 and 4
    found = replay.take(chosen, 3, 0.5)
    # time 0: 1 + 2/2 + 3/4, cut by time after step 2: the true successor 2.5 counts by 1/8
    # time 1: 2 + 3/2, cut after two steps; time 2: 3, cut after one
    # time 3: 4 + 5/2, and there it terminated; time 4: 5, likewise. Time 5: the newest
    # world 1: 1 + 2/2 + 3/4 up to 12.5; at time 4: 5 + 6/2, the newest has no more
    assert found.reward.tolist() == [2.75, 3.5, 3.0, 6.5, 5.0, 6.0, 2.75, 8.0]
    assert found.after[:, 0].tolist() == [2.5, 2.5, 2.5, 4.5, 4.5, 5.5, 12.5, 15.5]
    assert found.discount.tolist() == [0.125, 0.25, 0.5, 0.0, 0.0, 0.5, 0.125, 0.25]
    assert found.pair[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 10, 14]
    assert torch.equal(found.pair[:, 1], torch.tensor([0.0, -1, -2, -3, -4, -5, 0, -4]))


def test_one_step_is_what_was_seen() -> None:
    found = filled(Replay(8, 2, 1, 1), 3, {1: "terminated"}).take(torch.arange(6), 1, 0.9)
    assert found.reward.tolist() == [1, 1, 2, 2, 3, 3]
    assert torch.allclose(found.discount, torch.tensor([0.9, 0.9, 0.0, 0.9, 0.9, 0.9]))


@pytest.mark.parametrize("times", [4, 7, 11])
def test_a_ring_remembers_the_last_and_no_return_runs_into_the_oldest(times: int) -> None:
    replay = filled(Replay(4, 2, 1, 1), times)
    assert replay.steps == 8
    found = replay.take(torch.arange(8), 3, 1.0)
    assert found.pair[::2, 0].tolist() == [times - 4, times - 3, times - 2, times - 1]
    assert found.after[::2, 0].tolist() == [times - 1.5, times - 0.5, times - 0.5, times - 0.5]
    assert found.reward[::2].tolist() == [3 * times - 6, 3 * times - 3, 2 * times - 1, times]


def test_all_that_is_remembered_is_as_likely() -> None:
    replay = filled(Replay(4, 2, 1, 1), 9)
    drawn = replay.draw(8000, 1, 1.0, torch.Generator().manual_seed(0)).pair[:, 0]
    values, counts = drawn.unique(return_counts=True)
    assert values.tolist() == [5, 6, 7, 8, 15, 16, 17, 18]
    assert float((counts / 1000 - 1).abs().max()) < 0.1


@pytest.mark.parametrize("times", [3, 6])
def test_steps_are_drawn_as_often_as_their_errors_say(times: int) -> None:
    replay = filled(Replay(4, 2, 1, 1), times)
    ages = torch.arange(replay.steps)
    replay.note(ages, torch.zeros(len(ages)))
    replay.note(torch.tensor([0, 3]), torch.tensor([4.0, 1.0]))  # of world 0 the oldest, of world 1 the second
    drawn = replay.draw(6000, 1, 1.0, torch.Generator().manual_seed(0), priority=0.5)
    values, counts = drawn.chosen[drawn.chance > 0.5].unique(return_counts=True)
    assert values.tolist() == [0, 3] and float(counts[0] / counts[1]) == pytest.approx(2.0, rel=0.1)
    assert torch.equal(drawn.pair, replay.take(drawn.chosen, 1, 1.0).pair)
    # chances are relative to those of an even draw
    assert drawn.chance[drawn.chosen == 0].unique() == pytest.approx(2 / 3 * len(ages), rel=0.01)
    seen = torch.full((2, 1), 77.0)
    replay.add(seen, seen, torch.zeros(2), seen, torch.zeros(2), torch.zeros(2))
    often = replay.draw(6000, 1, 1.0, torch.Generator().manual_seed(0), priority=1.0).pair[:, 0]
    assert float((often == 77.0).float().mean()) > 0.6  # what nobody has learned from counts as the greatest error


def test_what_a_step_takes_is_what_the_tables_hold() -> None:
    replay = Replay(3, 2, 5, 4)
    assert bytes_of_step(5, 4) * 6 == sum(getattr(replay, name).nbytes for name in TABLES)


def test_what_is_demonstrated_ends_where_its_episodes_do() -> None:
    # two episodes: of two steps, which time cut, and of one, which terminated
    obs = torch.tensor([[0.0], [1.0], [5.0]])
    data = Transitions(obs, -obs, torch.tensor([1.0, 2.0, 4.0]), obs + 1, torch.tensor([1.0, 1.0, 0.0]),
                       torch.tensor([0, 0, 1]), torch.tensor([0, 2, 3]))
    found = remembered(data, data.obs, data.next_obs).take(torch.arange(3), 5, 0.5)
    assert found.reward.tolist() == [2.0, 2.0, 4.0]
    assert found.discount.tolist() == [0.25, 0.5, 0.0] and found.after[:, 0].tolist() == [2.0, 2.0, 6.0]


@pytest.mark.parametrize("times, room", [(6, 4), (3, 4), (4, 7), (9, 3)])
def test_what_was_remembered_comes_back_as_far_as_there_is_room(times: int, room: int) -> None:
    before, after = filled(Replay(4, 2, 1, 1), times), Replay(room, 2, 1, 1)
    after.load_state_dict(before.state_dict())
    kept = min(before.count, room)
    assert after.steps == 2 * kept
    rows = torch.arange(2 * kept)
    found = before.take(rows + 2 * (before.count - kept), 2, 0.9), after.take(rows, 2, 0.9)
    assert all(torch.equal(getattr(found[0], name), getattr(found[1], name)) for name in ("pair", "reward", "after"))
    seen = torch.full((2, 1), 77.0)
    after.add(seen, seen, torch.zeros(2), seen, torch.zeros(2), torch.zeros(2))
    assert after.take(torch.tensor([after.steps - 1]), 1, 0.9).pair[0, 0] == 77.0
