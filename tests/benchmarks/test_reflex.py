"""``temporeal bench reflex``: what counts as a violation."""

from __future__ import annotations

import numpy as np

from temporeal.policies.algos.reflex import Constraint
from temporeal.policies.evaluate.rollout import Rollout
from temporeal.robots.signals import SignalSpec, schema
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.task import MISSION_TIME
from temporeal_benchmarks.measurements import reflex


def test_a_violation_counts_while_its_episode_lasts() -> None:
    """Two episodes of x < 1, of 3 and 2 samples: what is written behind an end is of no episode."""
    x = np.array([[0.0, 0.0], [0.5, 0.5], [0.9, 2.0]], np.float32)
    time = np.repeat(np.arange(3, dtype=np.float32)[:, None], 2, 1)
    constraint = Constraint(parse("G[0,2] (x < 1)", schema(SignalSpec("x", (), "m"), MISSION_TIME)))
    lengths = [np.array([3, 2]), np.array([3, 3])]
    found = [reflex.violations(Rollout({"x": x, "mission_time": time}, x[:2, :, None], n, x[0] > 1, x[0] < 1, 1.0),
                               constraint).tolist() for n in lengths]
    assert found == [[False, False], [False, True]]
