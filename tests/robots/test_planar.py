"""Robots in the plane: their MJCF says what their specs say, and MuJoCo moves them as the backend ``planar`` does."""

from __future__ import annotations

from math import cos, pi, sin

import mujoco
import numpy as np
import pytest
import torch

from temporeal.robots.spec import load_robot
from temporeal.sim.backends import mujoco as mujoco_backend
from temporeal.sim.backends import planar

ROBOTS = {"linear": "vel_cmd", "unicycle": "twist_cmd"}
DT = 0.01


@pytest.mark.parametrize("name", ROBOTS)
def test_the_model_takes_the_command_within_its_limits(name):
    robot = load_robot(name)
    model = mujoco.MjModel.from_xml_path(str(robot.model))
    spec = robot.command(ROBOTS[name])
    for actuator, low, high in zip(robot.actuators[spec.name], spec.low, spec.high):
        assert model.actuator(actuator).ctrlrange.tolist() == [low, high]


@pytest.mark.parametrize("name", ROBOTS)
def test_mujoco_goes_the_same_way_with_a_lag(name):
    """Servos of 20 ms: behind by at most 0.02 s of the way, and of the turn."""
    robot = load_robot(name)
    ours, theirs = (module.make(robot, 2, ROBOTS[name], dt=DT, threads=1) for module in (planar, mujoco_backend))
    command = torch.tensor([[0.8, 0.6], [0.5, -1.0]])
    for _ in range(20):
        for sim in (ours, theirs):
            sim.step(command, 10)
    a, b = ours.signals()["base_pos_w"], theirs.signals()["base_pos_w"]
    assert float(a.norm(dim=-1).min()) > 0.5
    assert torch.allclose(a, b, atol=0.05), (a, b)
    for sim in (ours, theirs):
        sim.close()


def test_a_cart_drives_arcs_exactly():
    """However a turn is cut into steps, it ends where the closed form says: on a circle of radius v / w."""
    robot, speed, rate, yaw = load_robot("unicycle"), 0.7, -1.3, 0.4
    start = {"base_pos_w": torch.tensor([[1.0, 2.0, 0.0]]),
             "base_quat_w": torch.tensor([[cos(yaw / 2), 0.0, 0.0, sin(yaw / 2)]])}
    for dt, substeps, steps in ((0.1, 1, 20), (0.05, 10, 4), (0.5, 2, 2)):
        sim = planar.make(robot, 1, "twist_cmd", dt=dt, threads=1)
        sim.reset(torch.tensor([0]), start)
        for _ in range(steps):
            sim.step(torch.tensor([[speed, rate]]), substeps)
        end = yaw + 2.0 * rate
        place = (1 + speed / rate * (sin(end) - sin(yaw)), 2 - speed / rate * (cos(end) - cos(yaw)), 0.0)
        assert sim.signals()["base_pos_w"][0].tolist() == pytest.approx(place, abs=2e-6)
        quat = sim.signals()["base_quat_w"][0].double()
        assert float(2 * torch.atan2(quat[3], quat[0])) == pytest.approx(end, abs=2e-6)
        assert sim.signals()["base_vel_w"][0].tolist() == pytest.approx(
            (speed * cos(end), speed * sin(end), 0.0), abs=2e-6)
        sim.close()


def test_the_largest_turn_of_a_step_is_still_exact():
    """Gain 2 at the limit of 1.5 rad/s for 1 s: 3 rad."""
    sim = planar.make(load_robot("unicycle"), 1, "twist_cmd", dt=1.0, threads=1)
    sim.set_params(torch.tensor([0]), {"turn_gain": torch.tensor([2.0])})
    sim.step(torch.tensor([[1.0, 9.0]]), 1)
    expected = (sin(3.0) / 3, (1 - cos(3.0)) / 3, 0.0)
    assert sim.signals()["base_pos_w"][0].tolist() == pytest.approx(expected, abs=3e-7)
    sim.close()


def test_commands_are_limited_and_gains_act_on_what_is_left():
    sim = planar.make(load_robot("linear"), 3, "vel_cmd", dt=0.2, threads=1)
    sim.set_params(torch.tensor([1]), {"speed_gain": torch.tensor([0.9])})
    sim.step(torch.tensor([[5.0, -0.5], [5.0, -0.5], [-5.0, 0.0]]), 1)
    expected = np.array([[0.2, -0.1, 0], [0.18, -0.09, 0], [-0.2, 0, 0]])
    assert sim.signals()["base_pos_w"].numpy() == pytest.approx(expected, abs=1e-7)
    sim.close()


NAN = float("nan")
MISFITS = {
    "base_pos_w": ([1.0, 2.0, 0.1], [NAN, 0.0, 0.0], [0.0, float("inf"), 0.0]),
    "base_vel_w": ([0.0, 0.0, -1.0], [0.0, NAN, 0.0]),
    "base_quat_w": ([0.0] * 4, [NAN, 0.0, 0.0, 1.0], [1.0, 0.1, 0.0, 0.0], [1.0, 0.0, -0.1, 0.0]),
}


@pytest.mark.parametrize(("name", "row"), [(name, row) for name, rows in MISFITS.items() for row in rows])
def test_a_row_that_does_not_fit_changes_nothing_and_is_named(name, row):
    sim = planar.make(load_robot("unicycle"), 4, "twist_cmd", dt=0.1, threads=1)
    before = sim.state()
    good = {"base_pos_w": [1.0, 2.0, 0.0], "base_vel_w": [0.3, 0.0, 0.0], "base_quat_w": [2.0, 0.0, 0.0, 2.0]}
    state = {signal: torch.tensor([value, row if signal == name else value]) for signal, value in good.items()}
    with pytest.raises(ValueError, match=f"reset: {name} must be finite and .*, got "):
        sim.reset(torch.tensor([2, 0]), state)
    assert all(torch.equal(value, before[key]) for key, value in sim.state().items())
    sim.reset(torch.tensor([2, 0]), {signal: torch.tensor([value, value]) for signal, value in good.items()})
    assert sim.signals()["base_quat_w"][[0, 2]].numpy() == pytest.approx(np.array([[0.5**0.5, 0, 0, 0.5**0.5]] * 2))
    assert sim.signals()["base_pos_w"].tolist() == [[1, 2, 0], [0, 0, 0], [1, 2, 0], [0, 0, 0]]
    sim.close()


def test_what_is_not_in_the_plane_is_refused():
    sim = planar.make(load_robot("unicycle"), 1, "twist_cmd", dt=0.1, threads=1)
    one = torch.tensor([0])
    with pytest.raises(ValueError, match="base_pos_w must be finite and lie in the plane"):
        sim.reset(one, {"base_pos_w": torch.tensor([[0.0, 0.0, 0.1]])})
    with pytest.raises(ValueError, match="base_quat_w must be finite and be a turn about z"):
        sim.reset(one, {"base_quat_w": torch.tensor([[cos(pi / 8), sin(pi / 8), 0.0, 0.0]])})
    with pytest.raises(ValueError, match=r"at most 1 s"):
        sim.step(torch.zeros(1, 2), 11)
    sim.close()
    with pytest.raises(ValueError, match="simulates robots in the plane; robot 'crazyflie' is of kind 'quadrotor'"):
        planar.make(load_robot("crazyflie"), 1, "ctbr_cmd", dt=0.01)
    mujoco = pytest.importorskip("temporeal.sim.backends.mujoco")
    with pytest.raises(ValueError, match=r"MuJoCo, with robot 'linear': dt is 0.2 s; .* backend planar takes longer"):
        mujoco.make(load_robot("linear"), 1, "vel_cmd", dt=0.2)
    with pytest.raises(LookupError, match="no command 'vel_cmd' for robot 'unicycle'; known: twist_cmd"):
        planar.make(load_robot("unicycle"), 1, "vel_cmd", dt=0.1)
    with pytest.raises(ValueError, match="run on 'cpu'"):
        planar.make(load_robot("linear"), 1, "vel_cmd", dt=0.1, device="cuda")
