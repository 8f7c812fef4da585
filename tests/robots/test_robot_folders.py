"""A robot's folder: spec.yaml, its model, and nothing outside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from temporeal.robots.crazyflie.spec import PARAMETERS
from temporeal.robots.handed_over.files import Refused
from temporeal.robots.model_files import RobotFileError
from temporeal.robots.spec import load_robot

ARM = """<mujoco><compiler angle="radian"/><worldbody><body name="upper"><joint name="elbow" range="-1 1"/>
  <geom size="0.1"/><body name="hand"><joint name="roll"/><geom size="0.1"/>
  <body name="left"><joint name="finger" type="slide" range="0 0.04"/><geom size="0.01"/></body></body></body>
  </worldbody></mujoco>"""
SPEC = """
model: model.xml
kind: arm
joints: [elbow, roll]
commands:
  joint_pos_cmd: {joints: [elbow, roll], kp: 10, strength: 5, low: [-1, -6], high: [1, 6]}
  arm_cmd: {joints: [elbow, roll, finger], kp: 10, strength: 5, low: [-1, -6, 0], high: [1, 6, 0.04]}
  joint_vel_cmd: {joints: [elbow, roll], drives: velocity}
  joint_effort_cmd: {joints: [roll], drives: effort}
poses: {grip: hand}
tool: grip
gripper: {command: arm_cmd, joints: [finger], bodies: [left], open: 0.04, closed: 0}
limits: {velocity: {elbow: 2}, effort: 5}
home: {finger: 0.04, elbow: 0.5}
control_hz: 25
"""
QUAD = """
model: model.xml
kind: quadrotor
quadrotor:
  mass: 2.0
  inertia: [0.022, 0.022, 0.04]
  arm: [0.17, 0.17]
  thrust_curve: [0, 0, 9.5]
  torque_per_thrust: 0.016
  motor_time: 0.05
"""


def folder(at: Path, spec: str = SPEC, model: str = ARM) -> Path:
    at.mkdir(parents=True, exist_ok=True)
    (at / "model.xml").write_text(model)
    (at / "spec.yaml").write_text(spec)
    return at


def test_an_arm_with_a_gripper(tmp_path):
    robot = load_robot(folder(tmp_path / "my_arm"))
    assert (robot.tool, robot.control_hz, robot.ros) == ("grip", 25.0, None)
    assert robot.gripper is not None and robot.gripper.joints == ("finger",) and robot.gripper.bodies == ("left",)
    assert robot.home == {"joint_pos": (0.5, 0.0), "joint_vel": (0.0, 0.0), "finger_pos": (0.04,)}
    assert robot.sources["finger_pos"].names == ("finger",) and robot.signals["finger_pos"].unit == "m"
    motion = robot.motion
    assert motion is not None and motion.speed == (2.0, 1.0) and motion.acceleration == (8.0, 4.0)
    assert motion.jerk == (160.0, 80.0) and motion.effort == (5.0, 5.0)
    assert (motion.low, motion.high) == ((-1.0, -6.0), (1.0, 6.0))  # roll has no range: its command's counts
    assert robot.defaults["velocity"].startswith("roll: 1 rad/s") and {"acceleration", "jerk"} <= set(robot.defaults)
    assert robot.drives == {"joint_vel_cmd": "velocity", "joint_effort_cmd": "effort"}
    assert robot.commands["joint_vel_cmd"].high == (2.0, 1.0) and robot.commands["joint_vel_cmd"].unit == "rad/s"
    assert robot.commands["joint_effort_cmd"].low == (-5.0,) and robot.actuators["joint_effort_cmd"] == ("roll",)
    (tmp_path / "my_arm" / "ros.yaml").write_text("")
    assert load_robot(tmp_path / "my_arm").ros == tmp_path / "my_arm" / "ros.yaml"


def test_a_quadrotor_has_the_parameters_of_the_shipped_one(tmp_path):
    robot = load_robot(folder(tmp_path / "quad", QUAD))
    assert list(robot.parameters) == list(PARAMETERS)
    assert {name: len(p.nominal) for name, p in robot.parameters.items()} == {
        name: len(p.nominal) for name, p in PARAMETERS.items()}
    assert robot.parameters["drag"].nominal == pytest.approx((0.03 * 9.81 * 2.0,) * 3) and "drag" in robot.defaults
    assert robot.parameters["drag"].low == (0.0,) * 3  # a range to draw from: sources of the Crazyflie say none
    assert robot.parameters["tau_up"].nominal == (0.05,) and robot.parameters["mass"].high == (2.2,)
    assert robot.commands["ctbr_cmd"].high[0] == pytest.approx(0.915 * 4 * 9.5)
    assert set(robot.signals) == set(load_robot("crazyflie").signals) and robot.control_hz == 50.0


@pytest.mark.parametrize(("spec", "told"), [
    (SPEC.replace("kind: arm", "kind: toaster"), "kind is one of arm, hand, .*got 'toaster'"),
    (SPEC.replace("model: model.xml", ""), "model names the MJCF or URDF file in the folder, got None"),
    (SPEC.replace("tool: grip", "tool: claw"), "spec.yaml: tool: one of poses is needed .grip., got 'claw'"),
    (SPEC.replace("open: 0.04", "open: 0.4"), "gripper.open: 0.4 is not within 0 to 0.04"),
    (SPEC.replace("closed: 0}", "}"), "gripper: closed is needed"),
    (SPEC.replace("bodies: [left]", "bodies: [right]"), "gripper.bodies: the model has no 'right'; known: upper, hand"),
    (SPEC.replace("effort: 5", "effort: -5"), "limits.effort, 'elbow': a positive number is needed, got -5"),
    (SPEC.replace("effort: 5", "torque: 5"), "limits: no entry 'torque'; legal: velocity, acceleration, jerk, effort"),
    (SPEC.replace("control_hz: 25", "control_hz: .nan"), "control_hz: a number >= 0 is needed, got nan"),
    (SPEC.replace("drives: effort", "drives: heat"), "drives is one of velocity, effort"),
    (SPEC.replace("joints: [roll], drives", "joints: [finger], drives"), "has no 'finger'; known: elbow, roll"),
    (SPEC.replace(", effort: 5}", "}"), "limits of effort are needed"),
    (QUAD.replace("mass: 2.0", "mass: 5"), "lift 38 N, the weight is 49.1 N"),
    (QUAD.replace("  mass: 2.0\n", ""), "quadrotor: mass is needed"),
    (QUAD.replace("[0.17, 0.17]", "0.17"), "quadrotor.arm: 2 positive numbers expected, got 0.17"),
])  # fmt: skip
def test_wrong_entries_say_what_is_legal(tmp_path, spec, told):
    with pytest.raises(RobotFileError, match=told):
        load_robot(folder(tmp_path / "robot", spec))


@pytest.mark.parametrize(("spec", "model"), [
    (SPEC.replace("model: model.xml", "model: ../other.xml"), ARM),
    (SPEC.replace("model: model.xml", "model: /etc/hostname"), ARM),
    (SPEC + "packages: {mine: ../..}\n", ARM),
    (SPEC, ARM.replace("<worldbody>", '<asset><mesh file="/etc/passwd.stl"/></asset><worldbody>')),
    (SPEC, ARM.replace("<worldbody>", '<asset><mesh file="../secret.stl"/></asset><worldbody>')),
    (SPEC, ARM.replace("<worldbody>", '<include file="../../other.xml"/><worldbody>')),
    (SPEC, ARM.replace('angle="radian"', 'meshdir="/etc"')),
    (SPEC, ARM.replace("<worldbody>", '<asset><mesh file="link.stl"/></asset><worldbody>')),
    (SPEC, ARM.replace("<worldbody>", '<asset><mesh file="file:///etc/hostname"/></asset><worldbody>')),
    (SPEC, ARM.replace("<worldbody>", '<asset><mesh file="package://etc/hostname"/></asset><worldbody>')),
    (SPEC + "packages: {mine: meshes}\n",
     ARM.replace("<worldbody>", '<asset><mesh file="package://mine/../../secret.stl"/></asset><worldbody>')),
    (SPEC, ARM.replace("<worldbody>", '<asset><texture type="cube" fileup="../secret.stl"/></asset><worldbody>')),
    (SPEC, ARM.replace('angle="radian"', 'meshdir="meshes"').replace(
        "<worldbody>", '<asset><mesh file="link.stl"/></asset><worldbody>')),
])  # fmt: skip
def test_a_folder_names_nothing_outside_itself(tmp_path, spec, model):
    (tmp_path / "other.xml").write_text(ARM)
    (tmp_path / "secret.stl").write_text("")
    place = folder(tmp_path / "robot", spec, model)
    (place / "meshes").mkdir()
    for where in (place, place / "meshes"):
        os.symlink(tmp_path / "secret.stl", where / "link.stl")
    with pytest.raises(Refused, match="leads out of"):
        load_robot(place)


def test_spec_yaml_is_data(tmp_path):
    place = folder(tmp_path / "robot", SPEC + "license: !!python/object/apply:os.system ['true']\n")
    with pytest.raises(RobotFileError, match="not YAML"):
        load_robot(place)
