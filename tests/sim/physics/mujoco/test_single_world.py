"""One world in MuJoCo is one of the batch backend, bit for bit: what is simulated behind topics was trained on."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("mujoco")
pytest.importorskip("torch")

import torch

from temporeal.robots.registry import UnknownName
from temporeal.robots.spec import load_robot
from temporeal.sim.backends import mujoco
from temporeal.sim.physics.mujoco.single_world import World, file_dt
from temporeal.sim.scene import Scene, box


@pytest.mark.parametrize(("name", "command"), [
    ("franka", "joint_pos_cmd"), ("franka", "arm_cmd"), ("franka", "joint_vel_cmd"), ("franka", "joint_effort_cmd"),
    ("leap_hand", "joint_pos_cmd"),
    ("allegro_hand", "joint_pos_cmd"), ("shadow_hand", "actuator_pos_cmd")])
def test_it_is_a_world_of_the_batch(name, command):
    robot = load_robot(name)
    scene = Scene(robot, (box("cube", (0.02,) * 3, mass=0.05, pos=(0.5, 0.0, 0.3)),))
    rng, spec = np.random.default_rng(0), robot.command(command)
    one, many = World(scene, command, 0.002), mujoco.make(scene, 1, command, dt=0.002, threads=1)
    params = {n: rng.uniform(p.low, p.high) for n, p in robot.parameters.items() if n in one.params()}
    params |= {"cube.force_w": np.ones(3)}
    start = {"joint_pos": np.array(robot.home["joint_pos"]) + 0.05, "cube_vel_w": np.array([0.1, 0.0, 0.0])}
    world = torch.arange(1)
    one.set_params(params)
    many.set_params(world, {n: torch.from_numpy(v)[None] for n, v in params.items()})
    one.reset(start)
    many.reset(world, {n: torch.from_numpy(v)[None] for n, v in start.items()})
    for _ in range(25):
        for signal, value in many.signals().items():
            assert np.array_equal(one.signals()[signal], value[0].numpy()), signal
        wanted = rng.uniform(spec.low, spec.high).astype(np.float32)
        one.step(wanted, 4)
        many.step(torch.from_numpy(wanted)[None], 4)


def test_a_motor_of_two_joints_holds_their_sum_and_has_parameters_like_the_others():
    from temporeal.robots.shadow_hand.spec import MOTORS, actuator_angles

    robot = load_robot("shadow_hand")
    world, j0 = World(robot, "actuator_pos_cmd", 0.005), MOTORS.index("MFJ0")
    start = np.array(robot.home["joint_pos"]) + np.linspace(0.0, 0.05, 24)
    world.reset({"joint_pos": start})
    assert world.holding() == pytest.approx(actuator_angles(tuple(start)))
    wanted = world.holding()
    wanted[j0] += 0.5
    answers = []
    for params in ({}, {"command_delay": np.array([0.04])}, {"kp": np.zeros(20), "kd": np.zeros(20)}):
        world.set_params(params)
        world.reset({"joint_pos": start})
        world.step(wanted, 6)  # 30 ms
        answers.append(world.signals()["actuator_pos"][j0] - actuator_angles(tuple(start))[j0])
    assert answers[0] > 0.1 and np.abs(answers[1:]).max() < 0.02


def test_speeds_are_integrated_up_to_the_ends_and_a_speed_of_none_holds():
    """What a robot that takes velocities does: the arm is where its setpoint went, and under a load stays there."""
    robot = load_robot("franka")
    world, home = World(robot, "joint_vel_cmd", 0.001), np.array(robot.home["joint_pos"])
    world.set_params({"grip.force_w": np.array([0.0, 0.0, -20.0])})
    world.step(np.zeros(7), 1000)
    assert np.abs(world.signals()["joint_pos"] - home).max() < 0.01  # 10 N m on 3000 N m/rad
    world.set_params({"grip.force_w": np.zeros(3)})
    speed = np.array([0.4, -0.1, 0.2, 0.3, -0.5, 0.6, -0.7])
    world.step(speed, 1000)
    assert world.signals()["joint_vel"] == pytest.approx(speed, abs=2e-3)
    assert np.abs(world.signals()["joint_pos"] - home - speed).max() < 0.05  # behind by the servos' lag
    world.step(np.array([2.0] + [0.0] * 6), 3000)
    assert world.signals()["joint_pos"][0] == pytest.approx(robot.command("joint_pos_cmd").high[0], abs=2e-3)
    world.reset({"joint_pos": home + 0.2})
    world.step(np.zeros(7), 500)
    assert world.signals()["joint_pos"] == pytest.approx(home + 0.2, abs=1e-4)


def test_efforts_turn_joints_as_newton_says_and_none_floats():
    robot = load_robot("franka")
    world, home = World(robot, "joint_effort_cmd", 0.001), np.array(robot.home["joint_pos"])
    assert "kp" not in world.params() and "strength" in world.params()
    world.step(np.zeros(7), 1000)
    assert world.signals()["joint_pos"] == pytest.approx(home, abs=1e-6)  # the robot itself carries its weight
    world.set_params({"frictionloss": np.zeros(9), "damping": np.zeros(9)})
    world.reset({"joint_pos": home})
    world.step(np.array([0.0] * 6 + [0.5]), 100)
    inertia = 0.074 + 0.0016  # kg m^2: the motor's, and about the hand's own about its axis
    assert world.signals()["joint_vel"][6] == pytest.approx(0.05 / inertia, rel=0.05)
    world.set_params({"strength": np.array([87.0] * 4 + [12.0] * 2 + [0.25] + [140.0])})
    world.reset({"joint_pos": home})
    world.step(np.array([0.0] * 6 + [0.5]), 100)
    assert world.signals()["joint_vel"][6] == pytest.approx(0.025 / inertia, rel=0.05)


def test_what_is_wrong_is_said():
    world = World(load_robot("leap_hand"), "joint_pos_cmd", 0.005)
    with pytest.raises(ValueError, match="16 finite numbers"):
        world.step(np.full(16, np.nan))
    with pytest.raises(UnknownName, match="no joint 'elbow'; it has: index_mcp"):
        world.joint_range(["elbow"])
    world.data.qvel[0] = np.nan
    with pytest.raises(FloatingPointError, match="leap_hand diverged"):
        world.step(np.zeros(16))


def test_parameters_by_joint_and_back():
    robot = load_robot("franka")
    world = World(robot, "joint_pos_cmd", file_dt(robot))
    before = world.params()
    assert world.damping_columns(("fr3_joint3", "fr3_finger_joint2")) == [2, 8]
    world.set_params({"damping": 2 * before["damping"], "kp": 0.5 * before["kp"]})
    world.set_params(before)
    assert np.array_equal(world.model.dof_damping, world.nominal.mj.dof_damping)
    assert np.array_equal(world.model.actuator_gainprm, world.nominal.mj.actuator_gainprm)
    low, high = world.joint_range(("fr3_joint4",))
    assert (low.tolist(), high.tolist()) == ([-3.0421], [-0.1518])
