"""Robots that differ from their spec: in physics, in sensors, in time; and files that say so wrongly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from temporeal.robots.spec import load_robot
from temporeal_bridge.interface.interface import InterfaceError
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.simulated_robot.hidden import altered, biased, hidden_settings

pytest.importorskip("mujoco")

from temporeal_bridge.robot_sim import RobotSim, SimOptions
from temporeal_bridge.simulated_robot.plants import plant_of
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport

ROBOT = load_robot("crazyflie")
SIMULATION = load_interface(ROBOT).simulation


def settings_of(text: str, folder: Path) -> dict:
    path = folder / "gap.yaml"
    path.write_text(text, encoding="utf-8")
    return hidden_settings(path, ROBOT, SIMULATION)


def test_parameters_are_scaled_and_moved(tmp_path: Path) -> None:
    found = settings_of("parameters: {mass: {scale: 1.5}, force_w: {add: [0.1, 0.0, -0.2]}}", tmp_path)
    plant = plant_of(ROBOT, load_interface(ROBOT), "ctbr_cmd", {**SIMULATION, **found}, period=0.01)
    plant.reset(np.random.default_rng(0))
    params = plant.body.params()
    assert float(params["mass"]) == pytest.approx(1.5 * ROBOT.parameters["mass"].nominal[0])
    assert params["force_w"] == pytest.approx([0.1, 0.0, -0.2])


def test_draws_of_a_flight_are_the_same_with_and_without(tmp_path: Path) -> None:
    states = []
    for text in ("{}", "parameters: {mass: {scale: 1.5}}"):
        plant = plant_of(ROBOT, load_interface(ROBOT), "ctbr_cmd", {**SIMULATION, **settings_of(text, tmp_path)},
                         period=0.01)
        plant.reset(np.random.default_rng(3))
        states.append(plant.signals()["base_pos_w"])
    assert np.array_equal(*states)


def test_an_arm_is_altered_as_well() -> None:
    robot = load_robot("franka")
    interface = load_interface(robot)
    changed = {"parameters": {"kp": {"scale": 0.5}}}
    plant = plant_of(robot, interface, "joint_pos_cmd", {**interface.simulation, **changed}, period=0.001)
    nominal = plant.nominal["kp"]
    plant.reset(np.random.default_rng(0))
    assert plant.body.params()["kp"] == pytest.approx(0.5 * nominal)


def test_a_biased_sensor_is_off_by_as_much(tmp_path: Path) -> None:
    found = settings_of("bias: {base_pos_w: [0.1, 0.0, 0.0]}\nnoise: {base_pos_w: 0.0}", tmp_path)
    bus = Bus()
    transport = MemoryTransport(bus, "robot", "/cf1")
    robot = RobotSim(transport, ROBOT, load_interface(ROBOT), SimOptions(settings=found))
    shown = biased(ROBOT, robot.true(), robot.settings["bias"])
    assert shown["base_pos_w"] - robot.true()["base_pos_w"] == pytest.approx([0.1, 0.0, 0.0], abs=1e-6)
    assert robot.settings["noise"]["base_vel_w"] == SIMULATION["noise"]["base_vel_w"]


def test_an_orientation_is_turned() -> None:
    true = {"base_quat_w": np.array([1.0, 0.0, 0.0, 0.0])}
    turned = biased(ROBOT, true, {"base_quat_w": [0.0, 0.0, np.pi]})["base_quat_w"]
    assert np.abs(turned) == pytest.approx([0.0, 0.0, 0.0, 1.0], abs=1e-9)


@pytest.mark.parametrize(("text", "told"), [
    ("latency: 1", r"has the keys \['latency'\]; legal: parameters, noise"),
    ("state_latency_s: -1", "state_latency_s is a number from 0 s on, got -1"),
    ("spread: 2", "spread is a number from 0 to 1"),
    ("parameters: {mass: 2}", "parameters.mass is a mapping with scale or add"),
    ("parameters: {mass: {times: 2}}", "parameters.mass is a mapping with scale or add"),
    ("parameters: {mass: {scale: heavy}}", "parameters.mass.scale is a number"),
    ("noise: {smell: 1}", r"noise has \['smell'\]; signals of crazyflie"),
    ("noise: {height: -1}", "noise.height is a standard deviation from 0 on"),
    ("bias: {base_pos_w: [1, 2]}", "bias.base_pos_w is a number or 3 of them"),
])
def test_a_wrong_file_is_refused(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(InterfaceError, match=told):
        settings_of(text, tmp_path)


def test_unknown_parameters_and_shapes_are_refused() -> None:
    known = {"mass": np.array(1.0), "force_w": np.zeros(3)}
    with pytest.raises(InterfaceError, match=r"no parameters \['weight'\]; legal: force_w, mass"):
        altered(known, known, {"parameters": {"weight": {"scale": 2.0}}})
    with pytest.raises(InterfaceError, match=r"force_w has the shape \[3\]"):
        altered(known, known, {"parameters": {"force_w": {"add": [1.0, 2.0]}}})
