"""The task of any formula: programs, symmetries, starts, what ends an episode."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from temporeal.sim.rewards.follower import MEMORY, MISSION, Follower
from temporeal.sim.rewards.itinerary_view import Reward
from temporeal.sim.stl.itineraries.program import SIZE, split
from temporeal.sim.task import Draw, Task
from temporeal.sim.task_parts.formula_bank import Starts, mirrored, mirrored_program
from temporeal.sim.tasks.any_formula import make

COUNT = 256


@pytest.fixture(scope="module")
def task() -> Task:
    return make(system="linear", formulas=12, seed=3)


def draws(seed: int) -> Draw:
    generator = torch.Generator().manual_seed(seed)
    return lambda name, count: torch.rand(COUNT, count, generator=generator)


def test_starts_are_those_of_formulas(task: Task) -> None:
    state = task.initial(draws(0))
    assert state[MISSION].shape == (COUNT, SIZE) and len(state[MISSION].unique(dim=0)) > 12
    found, _ = Follower(0.0, 0.0)(state["base_pos_w"], state[MISSION],
                                  {name: torch.zeros(COUNT, *shape) for name, shape in MEMORY.items()})
    assert not bool(found.violated.any() or found.late.any() or found.done.any())


def test_starts_in_mid_episode_can_go_on(task: Task) -> None:
    assert task.mid_episode is not None
    state, memory = task.mid_episode(draws(1))
    found, _ = Follower(0.0, 0.0)(state["base_pos_w"], state[MISSION], memory)
    later = memory["tick"] > 0
    assert 0.5 < float(later.float().mean()) and not bool((found.violated | found.late)[later].any())
    assert len(found.hits.unique()) > 2


def test_a_mirrored_mission_is_the_same_mission(task: Task) -> None:
    assert task.mid_episode is not None
    state, memory = task.mid_episode(draws(2))
    mirror = torch.randint(0, 2, (COUNT, 3), generator=torch.Generator().manual_seed(0)).float()
    follower = Follower(0.0, 0.0)
    point = state["base_pos_w"]
    one, _ = follower(point, state[MISSION], memory)
    other, _ = follower(mirrored(point, mirror), mirrored_program(state[MISSION], mirror), memory)
    torch.testing.assert_close(other.margin, one.margin, atol=1e-4, rtol=0)
    torch.testing.assert_close(other.current.distance, one.current.distance, atol=1e-4, rtol=0)
    assert not torch.equal(other.kept, one.kept)


def test_squeezed_windows_end_sooner(task: Task) -> None:
    starts = task.missions
    assert isinstance(starts, Starts)
    before = task.initial(draws(4))[MISSION].numpy()
    starts.squeeze = (0.5, 0.5)
    try:
        after = task.initial(draws(4))[MISSION].numpy()
    finally:
        starts.squeeze = None
    used = split(before)["legs"][..., 10] > 0
    np.testing.assert_array_equal(split(after)["legs"][..., 9][used],
                                  np.floor(0.5 * split(before)["legs"][..., 9][used]))


def test_what_pays_less_than_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="reward.broken is at least 0, got -1"):
        Reward(broken=-1.0)
    with pytest.raises(ValueError, match="reward.hit is at least reward.progress"):
        Reward(hit=0.5)
    with pytest.raises(ValueError, match="slack"):
        make(system="linear", formulas=1, slack=-1.0)
    with pytest.raises(ValueError, match="formulas is a whole number from 1 on, got 0"):
        make(system="linear", formulas=0)
    with pytest.raises(ValueError, match="nope"):
        make(system="linear", family="nope")
