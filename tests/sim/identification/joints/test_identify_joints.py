"""Joints' parameters are found again, what a log cannot tell is said, and the file holds it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.sim.identification.joints.two_links import JOINTS, logged, setpoints, two_links

from temporeal.robots.spec import load_robot
from temporeal.sim.identification import identified_file
from temporeal.sim.identification.joints.identify import Identified, identify
from temporeal.sim.identification.joints.mechanism import mechanism
from temporeal.sim.identification.joints.parameters import quantities, simulator_parameters
from temporeal.sim.identification.joints.record import JointRecord
from temporeal.sim.identification.joints.synthetic import Runs
from temporeal.sim.identification.record import CannotTell
from temporeal.sim.identification.settings import Settings
from temporeal.sim.identification.verdicts import GIVEN, IDENTIFIED, PRIOR, verdicts

SURE = (*(f"{kind}[{joint}]" for joint in JOINTS for kind in ("armature", "viscous", "kp")), "command_delay",
        "tool_mass")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("two_links")


@pytest.fixture(scope="module")
def made(folder: Path) -> Runs:
    """One robot's log, with efforts."""
    return logged(folder, 1, seconds=6.0, effort=True)


@pytest.fixture(scope="module")
def found(folder: Path, made: Runs) -> Identified:
    return identify(made.records, two_links(folder))


def test_parameters_are_found_again(made: Runs, found: Identified) -> None:
    told = {each.quantity.name: each for each in verdicts(found)}
    for k, each in enumerate(made.asked):
        error = float(found.posterior.theta[k] - made.truth[0, k])
        assert abs(error) < 4 * found.posterior.sd[k], each.name
        if each.name in SURE:
            assert told[each.name].status == IDENTIFIED, each.name
            assert told[each.name].shrink < 0.2, each.name
    assert found.fit.converged


def test_with_efforts_the_servos_share_is_told_and_a_limit_that_is_not_reached_is_not(found: Identified) -> None:
    told = {each.quantity.name: each for each in verdicts(found)}
    for joint in JOINTS:
        assert told[f"kd_share[{joint}]"].status == IDENTIFIED
        assert told[f"strength[{joint}]"].status == PRIOR
        assert "never came to its limit" in told[f"strength[{joint}]"].why


@pytest.mark.slow
def test_without_efforts_it_is_not(folder: Path, made: Runs) -> None:
    deaf = replace(made.records[0], effort=None, speed=None)
    told = {each.quantity.name: each for each in verdicts(identify([deaf], two_links(folder)))}
    for joint in JOINTS:
        assert told[f"kd_share[{joint}]"].status == PRIOR
        assert "efforts" in told[f"kd_share[{joint}]"].why
        assert told[f"kp[{joint}]"].status == IDENTIFIED  # gravity gives it a scale


def test_of_joints_at_rest_nothing_is_told(folder: Path) -> None:
    still = logged(folder, 2, speed=0.0, seconds=6.0, fixed={"kp": 60.0, "viscous": 4.0, "frictionloss": 0.02})
    for each in verdicts(identify(still.records, two_links(folder))):
        assert each.status == PRIOR and "did not move" in each.why, each.quantity.name
        assert (each.low, each.high) == pytest.approx(each.prior)


@pytest.mark.slow
def test_a_slow_log_does_not_tell_the_inertia_of_motors(folder: Path) -> None:
    slow = logged(folder, 3, speed=0.1, seconds=12.0, fixed={"armature": 0.01})
    told = {each.quantity.name: each for each in verdicts(identify(slow.records, two_links(folder)))}
    assert [told[f"armature[{joint}]"].status for joint in JOINTS] == [PRIOR, PRIOR]


def test_an_unknown_name_is_refused(folder: Path, made: Runs) -> None:
    with pytest.raises(LookupError, match="did you mean 'kp"):
        identify(made.records, two_links(folder), Settings(steps=0, known=(("kp[j3]", 25.0, 0.5),)))


@pytest.mark.slow
def test_a_given_value_is_taken(folder: Path, made: Runs) -> None:
    told = {each.quantity.name: each for each in verdicts(identify(
        made.records, two_links(folder), Settings(steps=0, known=(("strength[j1]", 25.0, 0.5),))))}
    assert told["strength[j1]"].status == GIVEN and told["strength[j1]"].value == pytest.approx(25.0, rel=1e-3)


def test_the_file_holds_it_and_says_what_it_is_of(found: Identified, tmp_path: Path) -> None:
    content = identified_file.content(found, "unknown")
    identified_file.write(tmp_path / "i.yaml", content)
    assert identified_file.read(tmp_path / "i.yaml", identified_file.JOINTS) == content
    assert content["fit"]["physics_s"] == pytest.approx(0.002) and "reference_v" not in content["fit"]
    with pytest.raises(identified_file.WrongFile, match="temporeal identified quadrotor"):
        identified_file.read(tmp_path / "i.yaml")
    values = {name: each["value"] for name, each in content["parameters"].items()}
    simulated = content["simulator"]
    for j, joint in enumerate(JOINTS):
        for name in ("armature", "frictionloss", "kp", "strength"):
            assert simulated[name]["value"][j] == pytest.approx(values[f"{name}[{joint}]"], rel=1e-5)
        assert simulated["damping"]["value"][j] + simulated["kd"]["value"][j] == pytest.approx(
            values[f"viscous[{joint}]"], rel=1e-5)
    assert simulated["mass"]["value"][:1] == [1.0]  # the upper link keeps its own
    assert simulated["mass"]["value"][1] == pytest.approx(values["tool_mass"], rel=1e-5)


def test_priors_are_the_specs_ranges_where_it_has_them() -> None:
    asked = {each.name: each for each in quantities(mechanism(load_robot("franka"), 0.002))}
    armature, friction = asked["armature[fr3_joint1]"], asked["frictionloss[fr3_joint7]"]
    assert armature.interval(armature.mean, armature.sd) == pytest.approx((0.1, 0.605721456))
    assert friction.interval(friction.mean, friction.sd) == pytest.approx((0.2, 0.282445))
    hand = {each.name: each for each in quantities(mechanism(load_robot("leap_hand"), 0.002))}
    delay = hand["command_delay"]
    assert delay.interval(delay.mean, delay.sd) == pytest.approx((0.0, 0.04)) and "tool_mass" not in hand


def test_what_was_not_asked_stays_nominal() -> None:
    """A Franka's fingers and gripper are no joints of its log."""
    m = mechanism(load_robot("franka"), 0.002)
    asked = quantities(m)
    found = simulator_parameters(m, asked, np.array([[each.mean for each in asked]]))
    assert found["damping"][0, 7:].tolist() == [1400.0, 1400.0] and found["kp"][0, 7] == 40000.0


def test_too_little_is_refused(folder: Path, made: Runs) -> None:
    record = made.records[0]
    few = JointRecord("few", "", record.step, record.each, record.command[:1000], record.place[:200], None, None,
                      np.ones(200, bool))
    with pytest.raises(CannotTell, match="2 s in which every source is measured"):
        identify([few], two_links(folder))


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say(folder: Path) -> None:
    """20 robots of the prior: of some 270 intervals of what is identified 84 % to 96 % is 90 % give or take three
    standard deviations, were they independent."""
    many = logged(folder, 7, count=20, seconds=6.0)
    held = []
    for k, record in enumerate(many.records):
        for each, true in zip(verdicts(identify([record], two_links(folder))), many.truth[k]):
            if each.status == IDENTIFIED:
                held.append(each.low <= float(each.quantity.value(true)) <= each.high)
    assert len(held) > 200
    assert 0.84 < np.mean(held) < 0.96


def test_setpoints_stay_within_the_arms_range() -> None:
    assert np.abs(setpoints(20.0)).max() < 2.0
