"""The simulated scene of a typed sentence, and the topics of what its artifact reads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.bridge.instruction.instructed import ROBOT, write

from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.signals import SignalSpec
from temporeal.sim.stl.instructions import formulas
from temporeal.sim.stl.instructions.grammar import SUITE
from temporeal.sim.stl.instructions.vocabulary import InstructionError
from temporeal_bridge.instruction.sentences import (
    missions_of,
    require_words,
    told,
)
from temporeal_bridge.simulated_robot import task_topics
from temporeal_bridge.simulated_robot.camera_exposures import Shutter

pytest.importorskip("mujoco")

CAMERAS = {"front": {"width": 8, "height": 6, "kinds": ["rgb"], "pos": [1.0, 0.0, 0.8], "quat": [1.0, 0.0, 0.0, 0.0]},
           "wrist": {"width": 8, "height": 6, "kinds": ["rgb"]}}


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    made = load_manifest(write(tmp_path_factory.mktemp("told") / "artifact", SUITE, "reach the red cube"))
    seen = tuple(SignalSpec(f"{name}_rgb", (6, 8, 3), "1", "", "uint8") for name in CAMERAS)
    return replace(made, signals=(*made.signals, *seen), horizon_s=8.0, training={
        "task": {"name": "tabletop", "settings": {"kinds": "reach,push"}}, "cameras": CAMERAS, "renderer": "warp"})


@pytest.fixture(scope="module")
def world(manifest):
    from temporeal.sim.task_parts import numpy_world

    return numpy_world.of_task("tabletop", ROBOT, "arm_cmd", {"kinds": "reach,push"})


def test_the_scene_has_what_the_sentence_names_in_its_colours(world):
    world.tell("push the green cube into the tray")
    for seed in (0, 1):
        start = world.start(np.random.default_rng(seed))
        colours = {name: value for name, value in world.looks.items() if "cube" in name}
        assert any(np.allclose(colour, (0.12, 0.65, 0.18)) for colour in colours.values()) and len(world.looks) == 4
        assert set(start) <= set(world.scene.signals)
    with pytest.raises(ValueError, match="no sentence|unknown"):
        world.tell("push the sky")


def test_topics_bring_every_place_that_a_formula_may_read_and_no_words(world, manifest):
    needed = task_topics.needed(manifest, world)
    assert {"red_cube_pos_w", "yellow_ball_pos_w", "tray_pos_w", "drawer_pos"} <= needed
    assert not {"instruction", "kind", "target_pos_w"} & needed
    rows = {row["topic"]: row for row in task_topics.content(world, needed)["states"]}
    cube = rows["sim/red_cube_pos_w"]
    assert (cube["codec"], cube["rate_hz"]) == ("pose", 20.0)  # stamped: who had no time for it knows when it was there


def test_cameras_are_those_of_training(manifest):
    made = task_topics.pictures(manifest)
    assert set(made["signals"]) == {"front_rgb", "wrist_rgb"} and made["signals"]["front_rgb"]["shape"] == [6, 8, 3]
    assert made["cameras"]["front"] == {"latency_s": 0.0, "renderer": "warp", "pos": [1.0, 0.0, 0.8],
                                        "quat": [1.0, 0.0, 0.0, 0.0]}
    assert {row["rate_hz"] for row in made["pictures"]} == {10.0}
    assert set(task_topics.pictures(manifest, told=["front_rgb"])["cameras"]) == {"wrist"}


def test_an_exposure_ends_with_the_looks_of_the_episode():
    class Link:
        sent: list = []

        def send(self, exposure):
            self.sent.append(exposure)
            return True

    data = type("Data", (), {"qpos": np.zeros(3), "mocap_pos": np.zeros((0, 3)), "mocap_quat": np.zeros((0, 4))})
    camera = type("Camera", (), {"rate_hz": 10.0})
    shutter = Shutter((camera,), Link(), type("Body", (), {"data": data}), {"color.a": np.array([1.0, 0.5, 0.0])})
    shutter.expose(0.0, 0.0, 0)
    assert Link.sent[0].world.tolist() == [0.0, 0.0, 0.0, 1.0, 0.5, 0.0]


def test_what_an_artifact_cannot_be_told(manifest):
    from temporeal_bridge.interface.loading import load_interface

    interface = load_interface(ROBOT)
    with pytest.raises(InstructionError, match="must be told"):
        require_words(manifest, ())
    with pytest.raises(InstructionError, match="is judged after 10 s; missions .* last 8 s"):
        told(manifest, ROBOT, "put the red cube on the plate")
    with pytest.raises(InstructionError, match="takes no instruction"):
        told(replace(manifest, instruction=None), ROBOT, "reach the red cube")
    fixed = replace(manifest, instruction=replace(manifest.instruction, fixed="reach the red cube"))
    assert told(fixed, ROBOT, "").formula == told(manifest, ROBOT, "Reach the red cube!").formula
    with pytest.raises(InstructionError, match="takes no other"):
        told(fixed, ROBOT, "reach the blue cube")
    small = replace(manifest, constants={"inside": 0.03, "other": 1.0})  # trained before a smaller arm
    assert told(small, ROBOT, "reach the red cube").constants == {**formulas.constants(), "inside": 0.03}
    assert missions_of(manifest, ROBOT, interface, ()) == []
    with pytest.raises(InstructionError, match="the scene has no red cube"):
        missions_of(manifest, ROBOT, interface, ["reach the red cube"])
