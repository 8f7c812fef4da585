"""Settings of worlds and families: the files that come along agree with the systems, wrong ones are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from temporeal.robots.spec import load_robot
from temporeal.sim.stl.distribution.drawing import check_shares
from temporeal.sim.stl.distribution.settings import comes_along, families, family, world, worlds
from temporeal.sim.task_parts.formula_worlds import check_world
from temporeal.sim.task_parts.systems import system_of


@pytest.mark.parametrize("name", worlds())
def test_worlds_are_those_of_their_systems(name: str) -> None:
    of, system = world(name), system_of(name)
    assert of.system == name and system.scene.robot.name == of.robot and system.control_dt == of.dt
    assert of.signal in load_robot(of.robot).signals
    assert all(a <= x and y <= b for a, x, y, b in zip(system.fence["low"], of.low, of.high, system.fence["high"]))
    assert of.exact == (name in ("linear", "unicycle"))
    assert of.model != "glider" or of.speed < system.pace
    assert comes_along(of) and not comes_along(replace(of, gap=1.5))
    check_world(of, name)


def test_families_are_what_their_names_say() -> None:
    train = family("train")
    for name in families():
        check_shares(family(name))
    assert replace(family("validation"), name="train") == train
    assert not set(family("unseen").shares) & set(train.shares)
    assert family("deeper").sequence[0] > train.sequence[1] and family("deeper").depth[0] > train.depth[1]
    crowded = family("crowded")
    assert crowded.objects[0] > train.objects[1] and crowded.leaves[0] > train.leaves[1]
    assert sum(crowded.avoid[: len(train.avoid)]) == 0


@pytest.mark.parametrize("change, message", [
    ({"model": "boat"}, "legal: point, cart, glider"), ({"deadline": (0.9, 2.0)}, "at least 1 is legal"),
    ({"radius": (0.0, 1.0)}, "radius is a least and a greatest value above 0"), ({"radius": 1.0}, "two numbers"),
    ({"margin": 0.5}, "margin is 0.5; 0 to 0.25 are legal"), ({"low": (6.0, 0.0)}, "low below high"),
    ({"dt": float("nan")}, "dt is nan"), ({"model": "glider"}, "a glider needs a speed"),
    ({"system": "ant"}, "point is how system linear moves"), ({"model": "cart", "system": "unicycle"}, "at a heading"),
    ({"place": "norm(base_pos_w - {1}) < {0}_r"}, "other braces"), ({"avoid": "{0.__class__}"}, "avoid is '{0.__cla"),
    ({"place": "norm(base_pos_w - {0}) < {0_r"}, "other braces"), ({"horizon_s": 10**400}, "horizon_s is 1000"),
    ({"constants": {1: 2.0}}, "constants are numbers"),
    ({"horizon_s": 9e4}, "450000 samples; at most 100,000"), ({"home": (0.0,)}, "home is a place of three numbers"),
    ({"constants": {"a": "b"}}, "constants are numbers"),
])
def test_worlds_that_cannot_be_are_refused(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(world("linear"), **change)


@pytest.mark.parametrize("name, change, message", [
    ("linear", {"model": "glider", "speed": 100.0, "acceleration": 1.0}, "system linear moves as a point"),
    ("linear", {"dt": 0.1}, "acts each 0.2 s"), ("ant", {"system": "nonsense"}, "no system 'nonsense'"),
    ("linear", {"start": {"bogus": 1}}, "unknown settings"), ("linear", {"robot": "ant"}, "is of 'linear'"),
    ("linear", {"start": {"low": [1.0, 1.0], "high": [1.0, 1.0]}}, "the witness starts at"),
    ("linear", {"low": (-6.0, -5.0)}, "within the arena"), ("linear", {"signal": "base_quat_w"}, "of three numbers"),
    ("linear", {"keep": "x >"}, "no formula of a place"), ("linear", {"constants": {"fence": 5.0, "a": 1.0}}, "a are"),
    ("ant", {"speed": 1.0}, "at most 0.6"), ("ant", {"acceleration": 0.7}, "at most 0.6"),
    ("quadrotor", {"start": {"tilt": 0.0}}, "starts at rest"), ("franka", {"home": (0.3, 0.1, 0.4)}, "starts at"),
    ("franka", {"start": {}}, "nothing is spread"),
    ("quadrotor", {"place": "norm(base_vel_w - {0}) < {0}_r"}, "unknown signal 'base_vel_w'"),
])
def test_a_world_that_is_not_its_systems_is_refused(name: str, change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"(?s)^mine: .*{message}"):
        check_world(replace(world(name), **change), "mine")


@pytest.mark.parametrize("change, message", [
    ({"shares": {"reach": -1}}, "weights of kinds"), ({"shares": {}}, "at least one above 0"),
    ({"avoid": (0.5, 0.4)}, "sum to 1"), ({"avoid": 3}, "probabilities"), ({"sequence": (4, 2)}, "sequence is a least"),
    ({"objects": (2, 8)}, "whole number of 2 to 7"), ({"stay": 1.5}, "stay is 1.5; 0 to 1 are legal"),
    ({"leaves": (2.5, 3)}, "whole number"),
])
def test_families_that_cannot_be_are_refused(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(family("train"), **change)


def test_a_kind_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match="did you mean 'reach'"):
        check_shares(replace(family("train"), shares={"reech": 1}))


@pytest.mark.parametrize("text, message", [
    ("a: {like: b}\nb: {like: a}", "like itself"), ("a: 3", "a mapping of settings"), ("b: {}", "no family 'a'"),
    ("a: [", "no YAML"), ("a: {speed: 3}", "unknown settings speed"), ("a: {shares: {reach: 1}}", "missing"),
    ("a: {like: c}", "which is none"), ("a: {like: [x]}", "which is none"), ("- a", "a mapping of settings"),
])
def test_files_of_families_are_checked(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        family("a", str(file))


def test_a_world_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    text = (Path(__file__).parents[4] / "configs/formulas/linear.yaml").read_text()
    file.write_text(text.replace("5.0", "3.0"))
    assert world(str(file)).high == (3.0, 3.0)
    with pytest.raises(ValueError, match="did you mean 'linear'"):
        world("liner")
