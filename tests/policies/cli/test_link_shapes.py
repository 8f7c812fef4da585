"""The capsules that `robot new` puts around an arm's links hold them, move as they do, and raise few false alarms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

pytest.importorskip("mujoco")

from temporeal.policies.cli.own_robot.answers import Answers
from temporeal.policies.cli.own_robot.dynamics import Physics, physics_of
from temporeal.policies.cli.own_robot.link_shapes import along, capsule, fitted, touching
from temporeal.policies.cli.own_robot.making import make
from temporeal.robots.model_files import RobotFileError
from temporeal.robots.motion.link_shapes import links_of, watched
from temporeal.robots.spec import RobotSpec, load_robot

ROOT = Path(__file__).resolve().parents[3]
SIX = ROOT / "examples/six_axis.urdf"


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory) -> RobotSpec:
    folder = tmp_path_factory.mktemp("robots") / "six"
    make(SIX, folder, Answers({}))
    return load_robot(folder)


@pytest.fixture(scope="module")
def physics(arm: RobotSpec) -> Physics:
    return physics_of(arm, arm.sources["joint_pos"].names)


def poses(arm: RobotSpec, count: int) -> np.ndarray:
    """Half of them anywhere but near the ends of the ranges, half folded: there."""
    assert arm.motion is not None
    rng, size = np.random.default_rng(0), (count // 2, len(arm.motion.low))
    ends = np.where(rng.random(size) < 0.5, arm.motion.low, arm.motion.high)
    return np.vstack([0.8 * rng.uniform(arm.motion.low, arm.motion.high, size), ends])


def test_links_move_as_in_mujoco(arm: RobotSpec, physics: Physics) -> None:
    """A capsule's ends stand where its link's frame brings them."""
    found = watched(arm, "joint_pos", 0.005)
    for pose in poses(arm, 20):
        physics.place(pose)
        for number, ends in enumerate(found.segments(pose)):
            name = found.links[found.of[number]].name
            body = 0 if name == "base" else physics.model.body(name).id
            there = found.ends[number] @ physics.data.xmat[body].reshape(3, 3).T + physics.data.xpos[body]
            assert ends == pytest.approx(there, abs=1e-9)


def test_what_touches_is_seen_and_what_is_clear_mostly_is_no_alarm(arm: RobotSpec, physics: Physics) -> None:
    found = watched(arm, "joint_pos", 0.005)
    names = [link.name for link in found.links]
    pairs = [tuple(sorted((names[found.of[i]], names[found.of[j]]))) for i, j in zip(found.first, found.second)]
    met = alarms = 0
    for k, pose in enumerate(poses(arm, 300)):
        deep = {tuple(sorted(pair)) for pair in physics.touching(pose)} & set(pairs)
        room = dict.fromkeys(pairs, np.inf)
        for pair, gap in zip(pairs, found.clearances(pose)):
            room[pair] = min(room[pair], gap)
        assert all(room[pair] < 0 for pair in deep)
        met += bool(deep)
        if k < 150:
            alarms += any(gap < 0.005 for gap in room.values()) and not set(touching(physics, pose)) & set(pairs)
    assert met > 50 and alarms < 9


def test_a_capsule_holds_its_points_and_is_small() -> None:
    rng = np.random.default_rng(0)
    for stretch in ([1, 1, 1], [5, 1, 1], [1, 1, 0.01]):
        points = rng.normal(size=(200, 3)) * stretch
        for a, b, radius in (capsule(points), along(points, np.array([0.0, 0.0, 1.0]))):
            t = np.clip(((points - a) @ (b - a)) / max(float((b - a) @ (b - a)), 1e-12), 0, 1)
            assert np.linalg.norm(points - a - t[:, None] * (b - a), axis=1).max() <= radius + 1e-9
    bar = np.array([[x, y, z] for x in (0, 1) for y in (-0.1, 0.1) for z in (-0.1, 0.1)])
    a, b, radius = capsule(bar)
    assert radius == pytest.approx(0.1 * 2**0.5, rel=0.02) and np.linalg.norm(b - a) == pytest.approx(1.0, abs=1e-6)


def test_a_bent_link_gets_several() -> None:
    """Two bars at a right angle: one capsule would be mostly air."""
    bar = np.array([[[x, 0, 0], [x + 0.1, 0, 0], [x, 0.05, 0.05]] for x in np.arange(0, 1, 0.1)])
    other = bar[:, :, [1, 0, 2]]
    assert len(fitted(np.concatenate([bar, other]))) > 1


def test_the_guard_of_a_urdf_arm_keeps_links_apart(arm: RobotSpec) -> None:
    assert arm.ros is not None
    rules = yaml.safe_load(arm.ros.read_text())["safety"]["commands"]
    assert all(rule["self_collision"] == {"signal": "joint_pos", "margin": 0.005} for rule in rules.values())


@pytest.mark.parametrize(("entry", "told"), [
    ("{links: {forarm: [[0, 0, 0, 0, 0, 1, 0.1]]}}", "no 'forarm'; did you mean 'forearm'"),
    ("{links: {forearm: [[0, 0, 0, 0, 0, 1]]}}", r"\[x, y, z, x, y, z, radius\] is needed"),
    ("{links: {forearm: [[0, 0, 0, 0, 0, 1, 0]]}}", "a radius above 0 is needed, got 0"),
    ("{links: {forearm: [[0, 0, 0, 0, 0, .nan, 1]]}}", "a finite number is needed"),
    ("{links: {forearm: 3}}", "lists of capsules by link"), ("{link: {}}", "did you mean 'links'"),
    ("{links: {}, loose: [forearm]}", "pairs of links are needed"), ("[]", "capsules is a mapping")])
def test_wrong_capsules_are_named(arm: RobotSpec, tmp_path: Path, entry: str, told: str) -> None:
    import shutil

    assert arm.model is not None
    folder = Path(shutil.copytree(arm.model.parent, tmp_path / "six"))
    lines = (folder / "spec.yaml").read_text().splitlines()
    at = lines.index("capsules:")
    (folder / "spec.yaml").write_text("\n".join([*lines[:at], f"capsules: {entry}", *lines[at + 2:], ""]))
    with pytest.raises(RobotFileError, match=told):
        load_robot(folder)


def test_what_no_chain_of_links_is_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text('<mujoco><worldbody><frame><body name="a"/></frame></worldbody></mujoco>')
    with pytest.raises(RobotFileError, match="links inside a <frame> are not read here"):
        links_of(tmp_path / "a.xml")
    (tmp_path / "b.xml").write_text('<mujoco><worldbody><body name="a"><freejoint/></body></worldbody></mujoco>')
    with pytest.raises(RobotFileError, match="one hinge or slide of a body"):
        links_of(tmp_path / "b.xml")
