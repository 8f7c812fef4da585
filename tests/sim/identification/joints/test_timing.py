"""When commands came: what of it a log shows, and which joints it makes doubtful."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.sim.identification.joints.two_links import logged

from temporeal.sim.identification.joints import timing
from temporeal.sim.identification.joints.problem import problem_of
from temporeal.sim.identification.uncertainty import Laplace


def held(times: np.ndarray) -> np.ndarray:
    """[T, 1] a command of 1 ms steps that changes at ``times`` [s]."""
    return np.searchsorted(times, np.arange(4000) * 0.001 + 1e-9, side="right")[:, None].astype(float)


def test_the_jitter_of_commands_shows_and_pauses_are_none() -> None:
    even = np.arange(100) * 0.04
    assert timing.jitter(held(even), 0.001) == pytest.approx(0.001 / np.sqrt(12))
    assert timing.jitter(held(np.delete(even, [20, 50, 51])), 0.001) == pytest.approx(0.001 / np.sqrt(12))
    late = even + np.random.default_rng(0).normal(0, 0.003, 100)
    assert timing.jitter(held(np.sort(late)), 0.001) == pytest.approx(0.003, rel=0.3)
    assert timing.jitter(np.zeros((100, 1)), 0.001) == 0.0


def test_forces_of_joints_whose_commands_came_at_unknown_times_are_doubted(tmp_path: Path) -> None:
    made = logged(tmp_path, 1, seconds=3.0, effort=True)
    names = [each.name for each in made.asked]

    def doubted(jitter: float) -> set[str]:
        problem = problem_of(made.mechanism, made.asked, [replace(made.records[0], jitter=jitter)], 0.25)
        marks = timing.doubted(problem, made.truth[0])
        return {name for name, mark in zip(names, marks) if mark}

    assert doubted(0.0) == doubted(1e-5) == set()
    found = doubted(0.003)
    assert {"kp[j1]", "armature[j2]", "tool_mass"} <= found
    assert not {"backlash[j1]", "strength[j1]", "command_delay"} & found


def test_what_is_doubted_is_as_wide_as_its_prior() -> None:
    sure = np.array([[0.01, 0.006], [0.006, 0.04]])
    opened = timing.opened(Laplace(np.zeros(2), sure, sure, np.ones(2), np.array([0.1, 0.2])),
                           np.array([True, False]), np.ones(2))
    assert opened.sd == pytest.approx([1.0, 0.2]) and opened.shrink == pytest.approx([1.0, 0.2])
    assert opened.covariance[0, 1] / (opened.sd[0] * opened.sd[1]) == pytest.approx(0.006 / (0.1 * 0.2))


def test_stiff_servos_are_doubted_sooner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = logged(tmp_path, 1, seconds=3.0, effort=True, fixed={"kp": 60.0, "viscous": 2.0})
    record, found = made.records[0], []
    share = timing.shares(problem_of(made.mechanism, made.asked, [replace(record, jitter=1e-3)], 0.25), made.truth[0])
    between = 1e-3 * 0.4 / share.min()  # of a share of 0.4 at the joint that feels it less
    problem = problem_of(made.mechanism, made.asked, [replace(record, jitter=between)], 0.25)
    for stiff in (0.02, 0.045):  # both servos' time constants are 33 ms
        monkeypatch.setattr(timing, "STIFF_S", stiff)
        found.append(timing.doubted(problem, made.truth[0]))
    less = [each.name for each in made.asked].index(f"kp[j{1 + int(np.argmin(share))}]")
    assert [bool(each[less]) for each in found] == [False, True]
