"""Logged efforts are held against the joints' model: wrong ones are named, those of robots within the prior are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tests.sim.identification.joints.two_links import logged

from temporeal.policies.data.joint_logs import efforts
from temporeal.policies.data.joint_logs.checks import Finding
from temporeal.sim.identification.joints.synthetic import Runs


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Robots whose gains are at both ends of their range, or anywhere."""
    folder = tmp_path_factory.mktemp("efforts")
    ends = [logged(folder, 4, seconds=4.0, effort=True, fixed={"kp": kp}) for kp in (30.0, 110.0)]
    return replace(ends[0], records=ends[0].records + ends[1].records)


def said(made: Runs, factors: Sequence[float]) -> list[list[Finding]]:
    """Of each robot, whose efforts are ``factors`` [J] times what they are."""
    return [list(efforts.findings(replace(each, effort=each.effort * np.array(factors)), made.mechanism))
            for each in made.records if each.effort is not None]


def test_efforts_of_any_robot_of_the_prior_are_right(made: Runs) -> None:
    assert said(made, (1.0, 1.0)) == [[], []]


@pytest.mark.parametrize(("factor", "words"), [(-1.0, "the opposite sign"), (0.1, "a motor's current")])
def test_a_sign_and_a_unit_are_named(made: Runs, factor: float, words: str) -> None:
    for found in said(made, (factor, 1.0)):
        assert [(each.subject, each.wrong) for each in found] == [("joint_torque[j1]", True)]
        assert words in found[0].said


def test_a_dead_effort_of_a_joint_that_moves_is_named(made: Runs) -> None:
    for found in said(made, (1.0, 0.0)):
        assert [(each.subject, each.wrong) for each in found] == [("joint_torque[j2]", True)]
        assert "0 all the time while the joint moves" in found[0].said
