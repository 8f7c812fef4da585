"""Which starts are given episodes, and what is kept of groups."""

import itertools

import numpy as np
import pytest
import torch

from temporeal.policies.training.chunk_rl import groups


@pytest.mark.parametrize("seed", range(5))
def test_knapsack_is_as_good_as_trying_everything(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, budget = groups.value(rng.random(4), 5), 9
    found = groups.knapsack(values, budget)
    ways = (way for way in itertools.product(range(6), repeat=4) if sum(way) <= budget)
    best = max(sum(values[s, n] for s, n in enumerate(way)) for way in ways)
    assert found.sum() <= budget
    assert sum(values[s, n] for s, n in enumerate(found)) == pytest.approx(best)


def test_nothing_goes_to_starts_that_always_or_never_succeed() -> None:
    counts = groups.knapsack(groups.value(np.array([0.0, 0.5, 1.0]), 8), 8)
    assert counts[[0, 2]].tolist() == [0, 0]
    assert groups.filled(np.array([0, 3, 0, 2]), 8).tolist() == [0, 5, 0, 3]


def test_groups_of_one_outcome_teach_nothing() -> None:
    success = torch.tensor([1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).float()
    group = torch.tensor([0, 0, 1, 1, 2, 2] + 10 * [3])
    assert groups.informative(success, group, 0.1, 0.9).tolist() == [False, False, True, False]


def test_group_advantages_are_differences_in_units_of_the_group() -> None:
    found = groups.group_advantages(torch.tensor([1.0, 0.0, 0.0, 1.0, 5.0]), torch.tensor([0, 0, 0, 0, 1]))
    torch.testing.assert_close(found, torch.tensor([1.0, -1.0, -1.0, 1.0, 0.0]), atol=1e-5, rtol=0)


def test_starts_make_room_for_new_ones() -> None:
    starts = groups.Starts(3, tries=4)
    starts.refresh(0.1, 0.9)
    assert starts.memory["key"] == [0, 1, 2]
    starts.count([0, 1, 2], torch.tensor([True, True, True, False, True, False, True, False]),
                 torch.tensor([0, 0, 1, 1, 2, 2, 2, 2]))
    assert starts.memory["done"] == [2, 1, 2]
    starts.refresh(0.1, 0.9)  # 0 always succeeds, 2 was tried four times
    assert starts.memory["key"] == [1, 3, 4] and starts.memory["tried"] == [2, 0, 0]
