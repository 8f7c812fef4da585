"""Settings of worlds and families: the files that come along agree with the systems, wrong ones are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from temporeal.robots.spec import load_robot
from temporeal.sim.stl.distribution.drawing import check_shares
from temporeal.sim.stl.distribution.settings import families, family, world, worlds
from temporeal.sim.task_parts.systems import system_of


@pytest.mark.parametrize("name", worlds())
def test_worlds_are_those_of_their_systems(name: str) -> None:
    of, system = world(name), system_of(name)
    assert of.system == name and system.scene.robot.name == of.robot and system.control_dt == of.dt
    assert of.signal in load_robot(of.robot).signals
    assert all(a <= x and y <= b for a, x, y, b in zip(system.fence["low"], of.low, of.high, system.fence["high"]))
    assert of.exact == (name in ("linear", "unicycle")) == (of.model in ("point", "cart"))
    assert of.model != "glider" or of.speed < system.pace


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
    ({"horizon_s": 9e4}, "450000 samples; at most 100,000"), ({"home": (0.0,)}, "home is a place of three numbers"),
    ({"constants": {"a": "b"}}, "constants are numbers"),
])
def test_worlds_that_cannot_be_are_refused(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(world("linear"), **change)


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
    ("a: {like: c}", "which is none"), ("- a", "a mapping of settings"),
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
