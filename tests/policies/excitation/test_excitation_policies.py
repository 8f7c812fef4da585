"""Excitations in the simulator: no robot that the spec allows leaves the limits, and one that would is not written."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from temporeal.policies.cli.main import main
from temporeal.policies.excitation import geofence, writing
from temporeal.policies.excitation import quadrotor as policies
from temporeal.policies.excitation.rehearsal import FLOWN, check, rehearse
from temporeal.robots.spec import load_robot
from temporeal.sim.identification.excitation import quadrotor
from temporeal.sim.identification.excitation.quadrotor import QuadrotorSettings
from temporeal.sim.identification.excitation.waves import CannotExcite
from temporeal.sim.identification.record import FlightRecord
from temporeal_benchmarks.reality.excerpts import NANOBENCH

BRIEF = QuadrotorSettings(seconds=10.0, low_hz=1.4, high_hz=2.0, fast_low_hz=1.4, settle_s=2.0, quiet_s=2.0)
PLAN = quadrotor.plan(load_robot("crazyflie"), BRIEF)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> writing.Written:
    return writing.write(PLAN, tmp_path_factory.mktemp("excite") / "artifact", worlds=6)


def test_robots_of_all_kinds_that_the_spec_allows_keep_box_speed_and_tilt(written):
    true = written.rehearsal.true
    off = (true["base_pos_w"] - torch.tensor(PLAN.center, dtype=torch.float32)).abs()[:1001].amax((0, 2))
    lean = torch.rad2deg(2 * torch.asin(true["base_quat_w"][..., 1:3].norm(dim=-1))).amax(0)
    assert (off < 0.8).all() and (lean < 35).all() and (true["base_vel_w"].norm(dim=-1) < 2.0).all()
    assert min(written.rehearsal.worst.values()) > 0


def test_no_robot_that_the_spec_allows_falls_far_when_its_rotor_commands_end(written):
    """What comes after the last command of a successful flight is the guard's stop: by motor_cmd, silence."""
    height, speed = written.rehearsal.true["base_pos_w"][..., 2], written.rehearsal.true["base_vel_w"][..., 2]
    landing, last = PLAN.segments[-1].first, written.rehearsal.commands[-1]
    assert (height[landing] > 0.8).all() and (height[-1] < 0.12).all() and (speed[landing:-31] > -0.45).all()
    nothing = policies.ExcitedQuadrotor(PLAN).motors(torch.zeros(1), torch.zeros(1, 3), torch.zeros(1, 3))
    assert torch.allclose(last, nothing.expand_as(last), atol=1e-6)


def strength(values: torch.Tensor, part: slice, quiet: slice) -> float:
    """How many times as much ``values`` vary in a part as in the last half second."""
    return float(values[part].std() / values[quiet][-50:].std())


def test_every_part_excites_what_it_is_for(written):
    """Of the nominal robot, against the hover before it lands: speeds, thrust, and each axis of the body's rates."""
    true, commands = written.rehearsal.true, written.rehearsal.commands[:, 0]
    part = {each.name: slice(each.first, each.last) for each in PLAN.segments}
    for k, axis in enumerate("xyz"):
        speed, rate = true["base_vel_w"][:, 0, k], true["base_ang_vel_b"][:, 0, k]
        ratios = (strength(speed, part[f"place_{axis}"], part["quiet"]),
                  strength(rate, part[f"turn_{axis}"], part["quiet"]))
        assert min(ratios) > 3, (axis, ratios)
    assert strength(commands.mean(-1), part["thrust"], part["quiet"]) > 3


def test_the_artifact_is_an_ordinary_one_that_says_what_it_flies(written):
    manifest = written.artifact.manifest
    assert written.artifact.self_test().steps == PLAN.steps == 1700
    assert manifest.training["by"] == "temporeal excite" and manifest.horizon_s == 17.0
    assert [each["name"] for each in manifest.training["excitation"]["parts"]] == [each.name for each in PLAN.segments]
    assert {memory.name for memory in manifest.memory} >= {"tick", "origin"}


def test_it_begins_where_the_robot_is_and_knows_its_heading():
    """Turned by 2 rad and displaced, in its first step: nothing jumps."""
    policy = policies.ExcitedQuadrotor(PLAN)
    still = {"base_vel_w": torch.zeros(2, 3), "base_ang_vel_b": torch.zeros(2, 3)}
    turned = torch.tensor([[1.0, 0.0, 0.0, 0.0], [np.cos(1.0), 0.0, 0.0, np.sin(1.0)]], dtype=torch.float32)
    place = torch.tensor([[0.0, 0.0, 1.0], [0.3, -0.2, 1.1]])
    commands, memory = policy({"base_pos_w": place, "base_quat_w": turned, **still}, policy.initial_memory(2))
    assert torch.allclose(commands["motor_cmd"][0], commands["motor_cmd"][1], atol=1e-5)
    assert torch.allclose(memory["origin"], place)


def test_an_excitation_that_a_robot_would_leave_its_limits_with_is_not_written():
    columns = ("place", "velocity", "acceleration", "thrust", "turn", "power")
    begins = {name: getattr(PLAN, name)[:300] for name in columns}
    slow = replace(PLAN, settings=replace(BRIEF, tilt_deg=3.0), **begins)
    found = rehearse(slow, policies.ExcitedQuadrotor(slow), policies.SIGNALS, policies.start_of, worlds=2)
    with pytest.raises(CannotExcite, match=r"would leave the limits of this excitation \(tilt: by"):
        check(slow, found)


def test_the_verb_names_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = f"out={tmp_path / 'artifact'}"
    for words, told in (
        (["robot=crazyfly", out], "did you mean 'crazyflie'"), ([out], "robot=NAME is needed, one of"),
        (["robot=crazyflie"], "out=FOLDER is needed"), (["robot=crazyflie", out, "second=9"], "did you mean 'seconds'"),
        (["robot=crazyflie", out, "seconds=long"], "seconds=long: a finite number"),
        (["robot=unicycle", out], "quadrotors, arms and hands"),
        (["robot=crazyflie", out, "z=50"], "z=50: with box_m=0.8 the robot may come to z = 0.1 to 50.8 m"),
        (["robot=crazyflie", out, "y=-4.5"], "is -5 to 5 m"), (["robot=crazyflie", out, "z=3.3"], "is -0.2 to 4 m"),
        (["robot=crazyflie", out, "land_m=0.02"], "has landed at 0.06 m"),
        (["robot=crazyflie", out, "robot=franka"], "given twice"), (["crazyflie"], "words are key=value"),
    ):
        assert main(["excite", *words]) == 2 and told in capsys.readouterr().err
    assert not (tmp_path / "artifact").exists()


def test_some_robots_begin_in_the_corners_that_the_formula_allows(written):
    off = (written.rehearsal.true["base_pos_w"][0] - torch.tensor(PLAN.center, dtype=torch.float32)).abs()
    assert torch.allclose(off[3], torch.tensor(0.45)) and (off[:3] <= 0.2).all()


def test_what_leaves_the_geofence_of_the_robot_when_it_is_rehearsed_is_refused():
    inside = torch.tensor([[[0.4, 0.0, 0.5]], [[0.5, 0.0, 0.5]]])
    geofence.check_flown(load_robot("crazyflie"), {"base_pos_w": inside})
    with pytest.raises(CannotExcite, match=r"base_pos_w comes to .* outside the geofence"):
        geofence.check_flown(load_robot("crazyflie"), {"base_pos_w": inside + torch.tensor([0.0, 0.0, 3.6])})


@pytest.mark.slow
def test_an_arm_keeps_its_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("mujoco")
    assert main(["excite", "robot=franka", f"out={tmp_path / 'artifact'}", "seconds=50", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    margin = said["rehearsal"]["least_margin"]
    assert margin.pop("start") > 0  # every fourth robot begins in a corner of what that clause allows
    assert said["rehearsal"]["robots"] == 16 and min(margin.values()) > 0.05


def nominal_flight(written: writing.Written) -> FlightRecord:
    """Of the nominal robot, until it lands."""
    true = {name: value[:1000, 0].double().numpy() for name, value in written.rehearsal.true.items()}
    return FlightRecord(
        "", "", 0.01, written.rehearsal.commands[:1000, 0].double().numpy(), None, true["base_ang_vel_b"],
        np.zeros((1000, 3)), np.ones(1000, bool), true["base_quat_w"], true["base_vel_w"], true["base_pos_w"])


@pytest.mark.slow
def test_stretches_of_a_flight_that_is_cut_know_for_how_long_its_battery_has_emptied(written):
    from temporeal.sim.identification.excitation.quadrotor_information import nominal, within
    from temporeal.sim.identification.parameters import quantities
    from temporeal.sim.identification.residuals import Problem, problem_of, residuals

    asked = quantities(PLAN.robot, True, False)
    whole = problem_of(asked, [nominal_flight(written)], 0.25, 3.8)
    last = Problem(whole.asked, whole.records, whole.length, (whole.begins[0][-4:],), whole.reference_v)
    theta = nominal(PLAN.robot, asked, {"speed_loss": 0.01, "delay": 0.0})[None]
    assert np.abs(residuals(last, theta) - residuals(within(last), theta)).max() < 0.01
    lossless = nominal(PLAN.robot, asked, {"speed_loss": 0.0, "delay": 0.0})[None]
    assert np.abs(residuals(last, theta) - residuals(last, lossless)).max() > 0.1


def test_what_a_flight_will_tell_and_what_it_cannot(written):
    """Motor lag and thrust to mass are told; mass, and centre of mass against unequal rotors, are known not to be."""
    from temporeal.sim.identification.excitation import quadrotor_information
    from temporeal.sim.identification.excitation.information import expected

    record = nominal_flight(written)
    found = quadrotor_information.information(PLAN.robot, record, PLAN.lands_s, flown=FLOWN)
    told = {each.asked.name: each for each in expected(found, 0.05)}
    assert all(told[name].told for name in ("thrust_to_mass", "tau_up", "tau_down", "torque_to_inertia_x", "delay"))
    assert not told["mass"].told and told["mass"].needed == np.inf
    assert "gain_pitch" in told["centre_x"].mixed and "centre_y" in told["gain_roll"].mixed


def test_a_log_in_which_something_is_wrong_tells_nothing_unless_anyway(tmp_path, capsys):
    lines = gzip.decompress(NANOBENCH.read_bytes()).decode().splitlines()
    swapped = lines[0].replace("gyro_x", "gyro_?").replace("gyro_y", "gyro_x").replace("gyro_?", "gyro_y")
    (log := tmp_path / "flight.csv").write_text("\n".join([swapped, *lines[1:]]) + "\n")
    words = ["excite", "robot=crazyflie", "--information", "--log", str(log), "--json"]
    assert main(words) == 2 and "x is y, y is x" in capsys.readouterr().err
    assert main([*words, "--anyway"]) == 0 and json.loads(capsys.readouterr().out)["expected"]["seconds"] > 5
    assert main(["excite", "robot=crazyflie", "--information", "--anyway"]) == 2
    assert "--anyway is of --log" in capsys.readouterr().err


@pytest.mark.slow
def test_what_an_arms_run_will_tell(capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("mujoco")
    words = ["robot=franka", "seconds=20", "sweeps=1", "low_hz=0.4"]
    assert main(["excite", *words, "--information", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["expected"]["parameters"]
    assert all(told[f"frictionloss[{j}]"]["told"] and told[f"kp[{j}]"]["sd"] < 0.05 for j in range(1, 8))
    assert told["damping[2]"]["sd"] > 10 * told["frictionloss[2]"]["sd"]


@pytest.mark.slow
def test_what_is_expected_is_what_identification_finds(tmp_path: Path):
    """A noisy log of the nominal robot: its parameters are found, as surely as was expected before it flew."""
    from temporeal.sim.identification.excitation import quadrotor_information as before
    from temporeal.sim.identification.excitation.information import expected
    from temporeal.sim.identification.identify import identify
    from temporeal.sim.identification.settings import Settings
    from temporeal.sim.rotations import rotation

    plan, rng = quadrotor.plan(PLAN.robot, QuadrotorSettings(seconds=24.0, low_hz=0.5)), np.random.default_rng(1)
    found = rehearse(plan, policies.ExcitedQuadrotor(plan), policies.SIGNALS, policies.start_of, worlds=1)
    count = round(plan.lands_s * plan.rate_hz)
    true = {name: value[: count + 1, 0].double() for name, value in found.true.items()}
    pull = torch.gradient(true["base_vel_w"], spacing=0.01, dim=0)[0] + torch.tensor([0.0, 0.0, 9.81])
    force = (rotation(true["base_quat_w"]).transpose(1, 2) @ pull[:, :, None])[:, :, 0].numpy()

    def seen(values: np.ndarray, sensor: str) -> np.ndarray:
        return np.asarray(values[:-1] + before.SENSORS[sensor] * rng.standard_normal(values[:-1].shape))

    quat = true["base_quat_w"].numpy()[:-1] + 0.5 * before.SENSORS["attitude"] * rng.standard_normal((count, 4))
    record = FlightRecord(
        "", "", 0.01, found.commands[:count, 0].double().numpy(), None, seen(true["base_ang_vel_b"].numpy(), "gyro"),
        seen(force, "accelerometer"), np.ones(count, bool), quat / np.linalg.norm(quat, axis=1, keepdims=True),
        seen(true["base_vel_w"].numpy(), "velocity"), true["base_pos_w"].numpy()[:-1])
    after = identify([record], plan.robot, Settings(steps=0))
    told = expected(before.information(plan.robot, record, plan.lands_s, flown=FLOWN), 0.05)
    truth = before.nominal(plan.robot, after.asked, FLOWN)
    for k, each in enumerate(told):
        plain = np.sqrt(after.posterior.plain[k, k])
        assert 0.67 < plain / each.sd < 1.5, (each.asked.name, plain, each.sd)
        assert abs(after.posterior.theta[k] - truth[k]) < 5 * after.posterior.sd[k], each.asked.name
