"""Schedules: drawn legal, moved legal, and moved as often there as back."""

from collections import Counter

import numpy as np
import pytest
import torch

from temporeal.robots.signals import SignalSpec, schema
from temporeal.sim.rewards.schedules import draw_schedules, moved
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.planning.arrivals import with_arrivals
from temporeal.sim.stl.planning.decompose import decompose
from temporeal.sim.stl.planning.grounding import feasible, groundings

PLACE = schema(SignalSpec("p", (2,), "m"))
TEXTS = ["F[0,1] p.x > 1 & F[0,1] p.y > 1", "F[0,1] (p.x > 1 & F[0.2,0.6] p.y > 1)",
         "(F[0,1] p.x > 1) | F[0,1] (p.x < 0 & F[0,0.4] p.y > 1)", "G[0,1] F[0,0.6] p.x > 1",
         "F[0,1] (p.x > 1 & G[0.4,0.6] p.y > 1) & G[1.2,1.4] p.x > 0"]


@pytest.mark.parametrize("text", TEXTS)
def test_drawn_and_moved_schedules_are_legal_and_reach_all(text):
    alternatives = tuple(map(with_arrivals, decompose(parse(text, PLACE), 0.2).alternatives))
    rng = np.random.default_rng(0)
    schedules = draw_schedules(alternatives, 500, rng)
    seen = set()
    for _ in range(40):
        for number, alternative in enumerate(alternatives):
            rows = schedules[schedules[:, 0] == number, 1:].numpy()
            assert feasible(alternative, rows[:, : alternative.variables].astype(int)).all()
            assert (rows[:, alternative.variables :] == 0).all()
        seen |= {tuple(row) for row in schedules.tolist()}
        schedules = moved(alternatives, schedules, rng)
    width = schedules.shape[1] - 1
    every = {(float(a), *map(float, row), *[0.0] * (width - len(row)))
             for a, alternative in enumerate(alternatives) for row in groundings(alternative).tolist()}
    assert seen <= every and len(seen) > 0.9 * len(every)


@pytest.mark.parametrize("text", [TEXTS[1], "F[0,1] (p.x > 1 & F[0,0.6] (p.y > 1 & G[0.4,0.6] p.y > 1))"])
def test_a_walk_of_moves_stays_uniform(text):
    alternatives = tuple(map(with_arrivals, decompose(parse(text, PLACE), 0.2).alternatives))
    every = groundings(alternatives[0])
    rng = np.random.default_rng(1)
    count = 200 * len(every)
    schedules = torch.cat([torch.zeros(count, 1), torch.tensor(np.tile(every, (200, 1))).float()], 1)
    for _ in range(5):
        schedules = moved(alternatives, schedules, rng)
    found = Counter(map(tuple, schedules[:, 1:].int().tolist()))
    assert len(found) == len(every)
    chi2 = sum((found[tuple(row)] - 200) ** 2 / 200 for row in every.tolist())
    assert chi2 < len(every) + 5 * np.sqrt(2 * len(every))
