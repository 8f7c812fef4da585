"""Flights of formulas: under which conditions, what policy and planner see, what is judged."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from temporeal.policies.training.generalist.flights import Flight, fly, judged, start_states
from temporeal.policies.training.generalist.forecast import planner
from temporeal.policies.training.generalist.worlds import arena
from temporeal.sim.env import Env, make_env
from temporeal.sim.maps import Memory, PolicyGraph
from temporeal.sim.rewards.follower import MEMORY, MISSION, Follower
from temporeal.sim.stl.distribution.drawing import Drawn
from temporeal.sim.stl.distribution.settings import world
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.task import Task
from temporeal.sim.tasks import hover
from temporeal.sim.tasks.any_formula import make

OF = world("linear")
COUNT = 24


class Ahead(nn.Module):
    """How far it is to the place that is next; ``seen``: the positions that it was given."""

    signals, memory, obs_dim = (OF.signal, MISSION), dict(MEMORY), 2

    def __init__(self) -> None:
        super().__init__()
        self.follower, self.seen = Follower(0.05, 0.0), list[Tensor]()

    def forward(self, signals: Mapping[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        point = signals[OF.signal]
        self.seen.append(point)
        found, after = self.follower(point, signals[MISSION], memory)
        shape = found.current.shape
        return torch.where(shape[:, 3:5] > 500.0, 0.0, shape[:, :2] - point[:, :2]), after

    def record(self, memory: Memory, action: Tensor) -> Memory:
        return memory


class Straight(nn.Module):
    """There, as fast as it goes."""

    def forward(self, obs: Tensor) -> Tensor:
        return (5.0 * obs).clamp(-1.0, 1.0)


@pytest.fixture(scope="module")
def task() -> Task:
    return make(system="linear", formulas=1)


def reaches(count: int = COUNT) -> list[Drawn]:
    """To places all around, a fifth more than the time that it takes at 1 m/s, and a small disc to hit."""
    out = []
    for k in range(count):
        x, y = 3.0 * np.cos(0.7 * k), 3.0 * np.sin(0.7 * k)
        text = "F[0,4] (norm(base_pos_w - a) < r)"
        out.append(Drawn("train", "reach", 0, k, text, {"a": [x, y, 0.0], "r": 0.3}, (0.1 * (k % 5), 0.2, 0.0), 0.0, 20,
                         np.zeros((20, 2)), 0.1))
    return out


def flown(task: Task, seed: int = 0, **conditions: Any) -> tuple[list[Flight], list[Tensor]]:
    """Flights under ``conditions``, and what the policy saw."""
    ahead = Ahead()
    env = make_env(task, num_worlds=1, compiled=False, **conditions)
    flights = fly(env.capabilities.beside, task, PolicyGraph(ahead, nn.Identity(), Straight(), task.act), reaches(), OF,
                  planner(OF, None), seed=seed)
    return flights, ahead.seen


def satisfied(flights: list[Flight]) -> int:
    return sum(flight.robustness > 0 for flight in flights)


def test_noise_and_latency_cost_what_they_cost_and_the_truth_is_judged(task: Task) -> None:
    """Who is wrong about where it is by half a metre misses places of 0.3 m, and is judged by where it was."""
    (calm, exact), (lost, measured) = flown(task), flown(task, sensors={"bias": {OF.signal: 0.5}})
    assert satisfied(calm) == COUNT and satisfied(lost) < COUNT // 2
    places = torch.tensor([each.place for each in reaches()])
    assert torch.equal(exact[0], places.float())
    off = (measured[0] - places).norm(dim=1)
    assert all(float(away) > 0.2 for away, flight in zip(off, lost) if flight.robustness < 0)
    late, seen = flown(task, sensors={"delay_steps": 3})
    still = (seen[1] == seen[0]).all(-1)  # those whose sensors are a step or more behind
    assert 0 < int(still.sum()) < COUNT and late != calm


def test_what_is_drawn_follows_the_seed(task: Task) -> None:
    noise = {"sensors": {"noise": {OF.signal: 0.2}}}
    one, other, again = (flown(task, seed, **noise)[0] for seed in (0, 1, 0))
    assert one == again != other


def test_of_conditions_an_environment_says_whether_anything_is_drawn(task: Task) -> None:
    build = partial(make_env, task, num_worlds=2, compiled=False)
    assert not build().capabilities.randomized and not build(sensors={}, randomize={}).capabilities.randomized
    assert build(sensors={"delay_steps": 1}).capabilities.randomized


def test_a_machine_is_drawn_as_in_training() -> None:
    """Mass and pushes of the quadrotor beside an environment that draws them; not beside a nominal one."""
    task, states = hover.make(), {"base_pos_w": torch.tensor([[0.0, 0.0, 1.0]]).repeat(4, 1)}
    place = arena(task, ["base_pos_w"], 10, states)
    pushed = {"disturbances": {"interval_s": [0.1, 0.1], "duration_s": 0.1, "force_n": [0.02, 0.02]}}

    def masses(**conditions: Any) -> tuple[Tensor, Env]:
        env = make_env(task, num_worlds=2, compiled=False, **conditions).capabilities.beside(place, 4)
        env.reset()
        return env.backend.params()["mass"], env

    drawn_mass, env = masses(randomize={"mass": {"kind": "uniform", "low": 0.025, "high": 0.035}}, **pushed)
    same, _ = masses()
    assert len(drawn_mass.unique()) == 4 and len(same.unique()) == 1 and env.disturbed
    assert torch.equal(env.true_signals()["base_pos_w"], states["base_pos_w"])


def test_an_arena_ends_for_nothing_and_starts_where_it_is_told(task: Task) -> None:
    formulas = reaches(3)
    env = make_env(arena(task, [OF.signal], 60, start_states(formulas, OF)), num_worlds=3, compiled=False)
    env.reset()
    for _ in range(50):
        env.command_override = torch.full((3, 2), 1.0)  # out of the arena and on
        step = env.step(torch.zeros(3, 2))
        assert not bool(step.terminated.any() or step.truncated.any())
    assert bool((step.obs.actor[:, :2] > torch.tensor(OF.high)).any())


def test_what_was_not_flown_to_its_end_is_not_judged() -> None:
    formula = parse("F[0,2] (norm(base_pos_w) < r)", {OF.signal: make(system="linear", formulas=1).schema[OF.signal]},
                    {"r": 0.5})
    still = {OF.signal: np.zeros((11, 3), np.float32)}
    assert judged(formula, still, 10, 0.2) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="looks 10 samples ahead"):
        judged(formula, {OF.signal: still[OF.signal][:-1]}, 10, 0.2)
