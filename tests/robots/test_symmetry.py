"""Mirrored joints give a mirrored tool pose, mirrored motor commands a mirrored flight; bad symmetries are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from temporeal.robots.model_files import RobotFileError
from temporeal.robots.motion.kinematics import chain
from temporeal.robots.signals import SignalSpec
from temporeal.robots.spec import load_robot
from temporeal.robots.symmetry import PSEUDO_VECTOR, QUATERNION, VECTOR, Mirror, by_kind, mirror_of
from temporeal.robots.user_robots.symmetry import with_symmetry
from temporeal.sim.backends import mujoco, quadrotor
from temporeal.sim.scene import Scene


def test_mirrored_joints_of_the_franka_give_a_mirrored_tool():
    robot, rng = load_robot("franka"), np.random.default_rng(0)
    symmetry, command = robot.symmetry, robot.commands["joint_pos_cmd"]
    joints = mirror_of(robot.signals["joint_pos"], symmetry)
    for _ in range(20):
        angles, speeds = rng.uniform(command.low, command.high), rng.normal(size=7)
        pos, quat, vel = chain("franka")(angles, speeds)
        image = chain("franka")(joints(angles), mirror_of(robot.signals["joint_vel"], symmetry)(speeds))
        np.testing.assert_allclose(image[0], VECTOR(pos), atol=1e-12)
        assert abs(image[1] @ QUATERNION(quat)) == pytest.approx(1.0, abs=1e-12)
        np.testing.assert_allclose(image[2], VECTOR(vel), atol=1e-12)
    np.testing.assert_allclose(joints(joints(angles)), angles, atol=1e-12)


def test_mirrored_motor_commands_fly_a_mirrored_path():
    robot = load_robot("crazyflie")
    backend = quadrotor.make(Scene(robot), 2, "motor_cmd", dt=0.01)
    rng = np.random.default_rng(1)
    start = {"base_pos_w": [0.1, 0.2, 1.0], "base_quat_w": [0.9, 0.2, -0.3, 0.24], "base_vel_w": [0.3, -0.5, 0.1],
             "base_ang_vel_b": [0.5, 1.0, -0.7]}
    start["base_quat_w"] = list(np.array(start["base_quat_w"]) / np.linalg.norm(start["base_quat_w"]))
    both = {name: torch.tensor(np.stack([value, image(robot, name, np.array(value))])).float()
            for name, value in start.items()}
    backend.reset(torch.arange(2), both)
    for _ in range(50):
        motors = rng.uniform(0.2, 0.9, 4)
        backend.step(torch.tensor(np.stack([motors, image(robot, "motor_cmd", motors)])).float(), 1)
    for name, values in backend.signals().items():
        if name in start:
            np.testing.assert_allclose(values[1], image(robot, name, values[0].numpy()), atol=2e-4, err_msg=name)


def test_mirrored_setpoints_of_the_franka_move_it_along_the_mirrored_path():
    robot, rng = load_robot("franka"), np.random.default_rng(0)
    backend = mujoco.make(Scene(robot), 2, "joint_pos_cmd", dt=0.002, threads=1)
    target = np.array(robot.home["joint_pos"]) + [0.4, -0.2, 0.3, 0.1, -0.5, 0.2, 0.1]
    both = lambda name, values: torch.tensor(np.stack([values, image(robot, name, values)])).float()  # noqa: E731
    backend.reset(torch.arange(2), {"joint_pos": both("joint_pos", target)})
    for _ in range(30):
        target = target + 0.02 * rng.normal(size=7)
        backend.step(both("joint_pos_cmd", target), 10)
    place = backend.signals()["grip_pos_w"].numpy()
    np.testing.assert_allclose(place[1], VECTOR(place[0]), atol=1e-3)


def test_joint_7_below_its_mirrored_range_has_no_image():
    command = load_robot("franka").commands["joint_pos_cmd"]
    edge = np.pi / 2 - command.high[6]
    assert edge == pytest.approx(-1.445, abs=1e-3) and command.low[6] < edge


def image(robot, name, values):
    """The mirror image of a signal or command."""
    return mirror_of({**robot.signals, **robot.commands}[name], robot.symmetry)(values)


def test_kind_tells_by_unit_frame_and_shape():
    assert by_kind(SignalSpec("v", (3,), "m/s", "w")) is VECTOR
    assert by_kind(SignalSpec("w", (3,), "rad/s", "b")) is PSEUDO_VECTOR
    assert by_kind(SignalSpec("q", (4,), "wxyz", "w")) is QUATERNION
    for spec in (SignalSpec("angle", (), "rad"), SignalSpec("joints", (3,), "rad"), SignalSpec("y", (), "m")):
        assert by_kind(spec) is None


@pytest.mark.parametrize(("entry", "told"), [
    ({"joint_pos": {"sign": [-1, 1]}}, "has 7"), ({"knee": {"sign": [1]}}, "does not have"),
    ({"joint_pos": {"sign": [2] * 7}}, "1 and -1"), ({"joint_pos": {"sign": "-"}}, "list of numbers"),
    ({"joint_pos": {}}, "sign is needed"), ({"joint_pos": {"sign": [1] * 7, "order": [0] * 7}}, "each of 0 to 6"),
    ({"joint_pos": {"flip": []}}, "no entry"), ({"joint_pos": {"sign": [1] * 7, "order": [0.5] * 7}}, "whole numbers"),
])  # fmt: skip
def test_a_bad_symmetry_is_refused_by_name(entry, told):
    with pytest.raises(RobotFileError, match=told):
        with_symmetry(load_robot("franka"), "spec.yaml", {"symmetry": entry})


def test_a_users_robot_declares_its_symmetry(tmp_path: Path):
    model = tmp_path / "arm.xml"
    model.write_text("""<mujoco><worldbody><body name="a"><joint name="turn" axis="0 0 1"/>
        <geom size="0.1"/><body name="b"><joint name="bend" axis="0 1 0"/><geom size="0.1"/></body></body></worldbody>
        <actuator><position joint="turn" ctrlrange="-1 1"/>
        <position joint="bend" ctrlrange="-1 1"/></actuator></mujoco>""")
    (tmp_path / "arm.robot.yaml").write_text("symmetry: {joint_pos: {sign: [-1, 1], offset: [0.5, 0]}}")
    assert load_robot(model).symmetry.signals["joint_pos"] == Mirror((-1.0, 1.0), (), (0.5, 0.0))
