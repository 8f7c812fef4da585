"""The transfer benchmark: simulators of others fly as ours near hover, hidden robots are what they are said to be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from temporeal.policies.cli.verbs.bench import with_parts
from temporeal.policies.data.flight_logs import nanobench
from temporeal.robots.spec import load_robot
from temporeal.sim.backends.quadrotor import make
from temporeal.sim.physics.quadrotor.rotor import flight_parameters
from temporeal.sim.randomization.distributions import bounds, parse_randomization
from temporeal.sim.scene import Scene
from temporeal_benchmarks.parts import Parts
from temporeal_benchmarks.peers.install import installed
from temporeal_benchmarks.reality import hidden_robot, transfer
from temporeal_benchmarks.reality.simulators.crazyflow import Crazyflow
from temporeal_benchmarks.reality.simulators.pybullet_drones import CLIP_M, GROUND, RADIUS, PybulletDrones
from temporeal_benchmarks.reality.simulators.worlds import Worlds

SCENE = Scene(load_robot("crazyflie"))
WEIGHT = 0.0319 * 9.81


def commands() -> Tensor:
    """[20, 3, 4] of three worlds, 20 ms each: up and down, roll and yaw, pitch against a push."""
    out = torch.zeros(20, 3, 4)
    out[..., 0] = WEIGHT
    out[:10, 0, 0] *= 1.08
    out[:10, 1, 1], out[10:, 1, 1], out[:, 1, 3] = 0.8, -0.8, 0.5
    out[:10, 2, 2], out[10:, 2, 2] = -0.8, 0.8
    return out


def ends(backend: object, substeps: int) -> dict[str, np.ndarray]:
    """Where the three worlds are afterwards."""
    ids = torch.arange(3)
    backend.set_params(ids, {"force_w": torch.tensor([[0.0, 0, 0], [0, 0, 0], [0, 0.01, 0]]),
                             "command_delay": torch.tensor([0.0, 0.01, 0.0])})
    backend.reset(ids, {})
    for command in commands():
        backend.step(command, substeps)
    return {name: value.double().numpy() for name, value in backend.signals().items()}


def fly_alike(other: Worlds, substeps: int) -> None:
    ours, theirs = ends(make(SCENE, 3, "ctbr_cmd", dt=0.001, threads=1), 20), ends(other, substeps)
    way = np.abs(ours["base_pos_w"] - [0, 0, 1]).max(1)
    assert (way > 0.01).all(), "each of the three went somewhere"
    for name, share in (("base_pos_w", 0.15), ("base_vel_w", 0.15), ("base_ang_vel_b", 0.15)):
        size = np.abs(ours[name] - (np.array([0, 0, 1.0]) if name == "base_pos_w" else 0)).max()
        assert np.abs(theirs[name] - ours[name]).max() < share * size, name
    assert np.abs(theirs["base_quat_w"] - ours["base_quat_w"]).max() < 0.01


def test_pybullet_drones_fly_as_ours_near_hover() -> None:
    fly_alike(PybulletDrones(SCENE, 3, 0.004), 5)


@pytest.mark.slow
@pytest.mark.skipif(not installed("crazyflow"), reason="crazyflow: python -m temporeal_benchmarks.peers crazyflow")
def test_crazyflow_flies_as_ours_near_hover() -> None:
    other = Crazyflow(SCENE, 3, 0.002)
    try:
        fly_alike(other, 10)
    finally:
        other.close()


def test_ground_effect_and_quadratic_thrust_are_the_papers() -> None:
    backend = PybulletDrones(SCENE, 2, 0.004)
    backend.pose["base_pos_w"][2] = [0.001, 0.1]
    upright = backend.ground(backend.pose["base_quat_w"])
    assert upright == pytest.approx(1 + GROUND * (RADIUS / (4 * np.array([CLIP_M, 0.1]))) ** 2)
    assert np.array_equal(backend.ground(np.array([[0.0, 0], [1, 1], [0, 0], [0, 0]])), [1, 1])
    hover = backend.rotors.hover_speed(np.arange(2)) * 23216.0
    assert (backend.k_f * hover**2).sum(0) == pytest.approx([WEIGHT, WEIGHT])


@pytest.mark.slow
def test_hidden_robots_are_of_the_published_ranges_and_fixed() -> None:
    known, robots = flight_parameters(load_robot("crazyflie")), [hidden_robot.hidden(seed) for seed in (1, 2, 3)]
    assert [round(each.truth["mass"], 4) for each in robots] == [0.0270, 0.0297, 0.0303], "drawn before any result"
    for robot in robots:
        found = parse_randomization(hidden_robot.missions(robot), known)
        assert set(found) >= set(transfer.PHYSICS)
        for name in ("arm", "torque_per_thrust", "rate_gain"):
            (low, high), p = bounds(found[name], known[name], name), known[name]
            assert all(a <= x == y <= b for x, y, a, b in zip(low, high, p.low, p.high)), name
        (least,), (most,) = bounds(found["mass"], known["mass"], "mass")
        assert known["mass"].low[0] <= least and most == pytest.approx(1.05 * least)


def test_its_log_comes_back_through_the_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hidden_robot, "SECONDS", 1.0)
    hidden_robot.log(hidden_robot.candidate(np.random.default_rng(1)), tmp_path / "flight.csv", 1)
    log = nanobench.read_log(tmp_path / "flight.csv")
    force = log.streams[nanobench.IMU].values[nanobench.ACCELERATION]
    command = log.streams[nanobench.MOTORS].values[nanobench.COMMAND]
    assert force.shape == (100, 3) and 5 < force[:, 2].mean() < 15
    assert 0 < command.min() <= command.max() <= 1
    assert 4.0 < log.streams[nanobench.BATTERY].values[nanobench.VOLTAGE][0] < 4.2


def trial(share: float) -> dict[str, object]:
    one = {"successes": int(100 * share), "trials": 100, "low": 0.0, "high": 1.0, "worst_clause": "G",
           "first_to_fail": 3}
    return {"simulators": {"quadrotor": {**one, "successes": 100}, "mujoco": one}}


def test_rows_are_of_the_worst_simulator_and_the_worst_seed() -> None:
    shares = {"nominal": (0.5, 0.6, 0.7), "ranges": (0.8, 0.8, 0.8), "posterior": (0.8, 0.9, 0.85)}
    trials = {f"{way}/{seed}": trial(share[seed - 1]) for way, share in shares.items() for seed in (1, 2, 3)}
    rows = {row.name.removeprefix("reality.transfer."): row for row in transfer.judged(trials)}
    assert rows["above_nominal"].value == pytest.approx(0.15) and rows["above_nominal"].ok is True
    assert rows["above_ranges"].value == pytest.approx(0.0)
    assert rows["posterior.mujoco"].value == 0.8 and "first to fail (3): G" in str(rows["posterior.mujoco"].peer)
    trials["posterior/3"] = trial(0.75)
    rows = {row.name.removeprefix("reality.transfer."): row for row in transfer.judged(trials)}
    assert rows["above_nominal"].ok is False and rows["above_ranges"].ok is False
    del trials["ranges/2"]
    assert [row.ok for row in transfer.judged(trials)] == [False, False]


def test_the_part_goes_by_its_own_name() -> None:
    named = ["reality", "--parts", "transfer"]
    assert with_parts(["transfer"]) == named == with_parts(named)
    assert with_parts(["transfer", "--kept"]) == ["reality", "--kept"]
    assert with_parts(["quadrotor", "--out", "transfer"]) == ["quadrotor", "--out", "transfer"]
    assert {"transfer"} == set(Parts("reality").studies)


def test_trainings_differ_in_physics_alone() -> None:
    nominal, ranges = (transfer.words_of(way, Path("mine.yaml")) for way in ("nominal", "ranges"))
    assert ranges == ["randomize=default"] and len(nominal) == 1 + len(transfer.PHYSICS)
    assert transfer.words_of("posterior", Path("mine.yaml")) == ["randomize=mine.yaml"]
