"""Scenes as data: names, signals, what is refused."""

from __future__ import annotations

import mujoco
import pytest

from temporeal.robots.spec import Source, load_robot
from temporeal.sim.scene import Object, Scene, as_scene, box, fixed_body, free_body, numbers

ROBOT = load_robot("franka")


def test_a_scene_gives_the_signals_of_all_that_stands_in_it():
    scene = Scene(ROBOT, (box("cube", (0.02, 0.02, 0.02), mass=0.1), box("wall", (1, 1, 1), mass=1, free=False)))
    cube = {"cube_pos_w", "cube_quat_w", "cube_vel_w", "cube_ang_vel_w"}
    assert set(scene.signals) == set(ROBOT.signals) | cube
    assert set(scene.sources) == set(ROBOT.sources) | cube
    assert scene.sources["cube_vel_w"] == Source("lin_vel", ("cube.root",))
    assert scene.signals["cube_quat_w"].unit == "wxyz" and scene.signals["cube_quat_w"].frame == "w"


def test_a_bare_robot_is_a_scene():
    scene = Scene(ROBOT)
    assert as_scene(ROBOT) == scene and as_scene(scene) is scene
    assert scene.signals == dict(ROBOT.signals)


def test_two_objects_of_one_name_are_refused():
    with pytest.raises(ValueError, match=r"different names, got \['cube', 'cube'\]"):
        Scene(ROBOT, (box("cube", (1, 1, 1), mass=1), box("cube", (1, 1, 1), mass=1)))


@pytest.mark.parametrize("name", ["", "my cube", "1st", "a.b"])
def test_an_objects_name_is_an_identifier(name):
    with pytest.raises(ValueError, match="identifier"):
        box(name, (1, 1, 1), mass=1)
    with pytest.raises(ValueError, match="an object's name is an identifier"):
        box(name, (1, 1, 1), mass=1, free=False)


def test_signals_and_sources_go_together():
    signals, sources = fixed_body("door")
    assert set(signals) == set(sources) == {"door_pos_w", "door_quat_w"}
    with pytest.raises(ValueError, match="object 'door': signals"):
        Object("door", "<mujoco/>", signals=signals)


def test_an_object_whose_signal_is_the_robots_is_refused():
    signals, sources = free_body("grip")  # grip_pos_w is the robot's
    scene = Scene(ROBOT, (Object("grip", "<mujoco/>", signals=signals, sources=sources),))
    with pytest.raises(ValueError, match="grip_pos_w"):
        _ = scene.signals


def test_a_box_has_the_mass_size_and_friction_it_was_given():
    thing = box("brick", (0.1, 0.05, 1 / 3), mass=0.7, friction=(0.4, 0.01, 0.002), condim=6, rgba=(0, 0, 1, 1))
    model = mujoco.MjModel.from_xml_string(thing.mjcf)
    assert model.body("root").mass[0] == 0.7
    geom = model.geom("geom")
    assert geom.size.tolist() == [0.1, 0.05, 1 / 3]  # every digit
    assert geom.friction.tolist() == [0.4, 0.01, 0.002] and geom.condim[0] == 6
    assert model.njnt == 1
    assert mujoco.MjModel.from_xml_string(box("brick", (1, 1, 1), mass=1, free=False).mjcf).njnt == 0


def test_numbers_lose_no_digit():
    assert [float(x) for x in numbers((1 / 3, 1e-17, -2)).split()] == [1 / 3, 1e-17, -2.0]
