"""Lift with clutter: cubes around the one to be lifted do not touch at the start; the observation has none of them."""

from __future__ import annotations

from itertools import combinations
from math import sqrt
from typing import Any

import pytest
import torch

from temporeal.sim.env import make_env
from temporeal.sim.task import load_task
from temporeal.sim.tasks import lift


def extremes(name: str, count: int) -> torch.Tensor:
    """Of all [256, count], the corners of what is drawn among them."""
    u = torch.rand(256, count, generator=torch.Generator().manual_seed(0))
    u[:128] = u[:128].round()
    return u


@pytest.mark.parametrize("clutter", [1, 2, 3, 4])
def test_cubes_around_lie_apart_from_each_other_and_from_the_cube(clutter: int) -> None:
    place = torch.tensor([[0.5, 0.1]]).expand(256, 2)
    found = lift.around(place, clutter, extremes)
    at = [found[f"clutter_{i}_pos_w"] for i in range(clutter)]
    assert len(found) == 2 * clutter and all((pos[:, 2] == lift.HALF).all() for pos in at)
    low, high = lift.CLUTTER_AWAY
    for pos in at:
        away = (pos[:, :2] - place).norm(dim=-1)
        assert away.min() > low - 1e-6 and away.max() < high + 1e-6
    apart = [(one - other).norm(dim=-1).min() for one, other in combinations(at, 2)]
    assert all(each > 2 * lift.HALF * sqrt(2) for each in (*apart, torch.tensor(low)))


def test_clutter_is_in_the_worlds_and_not_in_the_observation() -> None:
    plain, among = (make_env(load_task("lift", clutter=count), num_worlds=2, seed=3) for count in (0, 3))
    first, second = plain.reset(), among.reset()
    torch.testing.assert_close(first.actor, second.actor)
    added = set(among.true_signals()) - set(plain.true_signals())
    assert {name for name in added if name.endswith("_pos_w")} == {f"clutter_{i}_pos_w" for i in range(3)}


@pytest.mark.parametrize("count", [-1, 5])
def test_a_number_of_cubes_that_is_not_there_is_refused(count: Any) -> None:
    with pytest.raises(ValueError, match=f"task 'lift': clutter is 0 to 4, got {count}"):
        load_task("lift", clutter=count)
