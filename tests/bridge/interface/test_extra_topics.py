"""What a task has and no robot knows comes from topics of a file of the user's; what nobody carries is refused."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import yaml

from temporeal.robots.artifact.manifest import Manifest
from temporeal.robots.spec import load_robot
from temporeal.sim.task import load_task
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.guard.safety.checked_values import SafetyError
from temporeal_bridge.guard.safety.config_checks import profile_on
from temporeal_bridge.guard.safety.profile import Ages
from temporeal_bridge.interface.checks import check_reads
from temporeal_bridge.interface.interface import InterfaceError
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.interface.state_input import StateInput
from temporeal_bridge.launching.preflight import check_mission
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.transport import QOS

GOAL = {
    "definitions": {},
    "signals": {"goal_pos_w": {"shape": [3], "unit": "m", "frame": "w"},
                "goal_quat_w": {"shape": [4], "unit": "wxyz", "frame": "w"}},
    "states": [{
        "topic": "goal", "type": "geometry_msgs/msg/PoseStamped", "codec": "pose", "rate_hz": 0, "qos": "latched",
        "options": {"frame": "fr3_link0", "position": "goal_pos_w", "attitude": "goal_quat_w"}}],
}
CUBE = {
    "definitions": {},
    "signals": {"cube_pos_w": {"shape": [3], "unit": "m", "frame": "w"},
                "cube_quat_w": {"shape": [4], "unit": "wxyz", "frame": "w"}},
    "states": [{
        "topic": "cube", "type": "geometry_msgs/msg/PoseStamped", "codec": "pose", "rate_hz": 60, "qos": "sensor",
        "options": {"frame": "world", "position": "cube_pos_w", "attitude": "cube_quat_w"}}],
}


def write(path, content):
    path.write_text(yaml.safe_dump(content))
    return path


def reads(task):
    """What an exported artifact of the task reads."""
    return [task.schema[name] for name in task.observe.signals]


@pytest.mark.parametrize(("task", "settings", "robot", "extra"), [
    ("reach", {}, "franka", GOAL), ("cube_rotate", {}, "leap_hand", CUBE),
    ("cube_rotate", {"robot": "allegro_hand", "sees": "joints"}, "allegro_hand", None)])
def test_an_artifacts_signals_are_carried(task, settings, robot, extra, tmp_path):
    signals, spec = reads(load_task(task, **settings)), load_robot(robot)
    path = None if extra is None else write(tmp_path / "extra.yaml", extra)
    check_reads(load_interface(spec, extra=path), signals)
    if extra is not None:
        with pytest.raises(InterfaceError, match=f"reads '{next(iter(extra['signals']))}', which no topic"):
            check_reads(load_interface(spec), signals)


def test_the_gripper_is_carried_where_it_is_a_joint_and_not_by_frankas_driver(tmp_path):
    lift, robot = load_task("lift"), load_robot("franka")
    goal = {**GOAL["states"][0], "options": {"frame": "fr3_link0", "position": "goal_pos_w"}}
    both = {"definitions": {}, "signals": {**CUBE["signals"], "goal_pos_w": GOAL["signals"]["goal_pos_w"]},
            "states": [*CUBE["states"], goal]}
    path = write(tmp_path / "lift.yaml", both)
    check_reads(load_interface(robot, "with_fingers", path), reads(lift))
    with pytest.raises(InterfaceError, match="reads 'finger_pos', which no topic of interface 'franka_ros2'"):
        check_reads(load_interface(robot, "franka_ros2", path), reads(lift))
    with pytest.raises(InterfaceError, match="no topic for 'arm_cmd'; it has: joint_pos_cmd"):
        load_interface(robot).command("arm_cmd")


def test_a_signal_of_another_unit_or_shape_is_refused(tmp_path):
    signals = reads(load_task("reach"))
    for change, words in (({"unit": "mm"}, "unit is 'm' for the policy, 'mm'"), ({"frame": "b"}, "frame is 'w'")):
        content = {**GOAL, "signals": {**GOAL["signals"], "goal_pos_w": {**GOAL["signals"]["goal_pos_w"], **change}}}
        interface = load_interface(load_robot("franka"), extra=write(tmp_path / "extra.yaml", content))
        with pytest.raises(InterfaceError, match=words):
            check_reads(interface, signals)


@pytest.mark.parametrize(("change", "words"), [
    (lambda c: c["signals"].update(joint_pos={"shape": [7], "unit": "rad"}), "'joint_pos' is one of robot 'franka'"),
    (lambda c: c["signals"].update(other={"shape": [1], "unit": "1"}), r"no topic carries \['other'\]"),
    (lambda c: c["signals"]["goal_pos_w"].pop("unit"), "shape and unit are needed"),
    (lambda c: c["signals"]["goal_pos_w"].update(shape=[2]), r"goal: a Point has 3 numbers, got shape \(2,\)"),
    (lambda c: c["signals"]["goal_pos_w"].update(rate=3), "frame and dtype are legal"),
    (lambda c: c["states"][0]["options"].update(position="gaol_pos_w"), "no signal 'gaol_pos_w'; known: joint_pos"),
    (lambda c: c["states"][0]["options"].pop("frame"), "option 'frame' is missing"),
    (lambda c: c["states"][0].update(rate_hz=-1), "0 or from 0.01 to"),
    (lambda c: c["states"].append(c["states"][0]), "another topic carries"),
    (lambda c: c["states"][0].update(topic="franka/joint_states"), "topic 'franka/joint_states' is listed twice"),
    (lambda c: c["states"][0].update(topic="fr3_arm_controller/joint_trajectory"), "carries the robot's state"),
    (lambda c: c.pop("definitions"), "expected exactly"),
    (lambda c: c["states"][0].update(rate_hz="10"), "extra.states.rate_hz: a number of Hz.* got '10'"),
    (lambda c: c["states"][0].update(rate_hz=float("nan")), "extra.states.rate_hz: .* got nan"),
    (lambda c: c["states"][0].update(topic=["a"]), r"extra.states.topic: text is needed, got \['a'\]"),
    (lambda c: c["states"][0]["options"].update(frame=1), "goal: option frame is 1; the name of a frame"),
    (lambda c: c["signals"]["goal_pos_w"].update(shape=[2.5]), "shape is .2.5,.; whole numbers"),
    (lambda c: c["signals"]["goal_pos_w"].update(unit=None), "unit is None; text is needed"),
    (lambda c: c["signals"]["goal_pos_w"].update(dtype="object"), "dtype is 'object'; a numpy type of numbers"),
], ids=range(19))
def test_a_wrong_file_is_an_error_that_names_it(change, words, tmp_path):
    content = yaml.safe_load(yaml.safe_dump(GOAL))
    change(content)
    with pytest.raises(InterfaceError, match=words):
        load_interface(load_robot("franka"), extra=write(tmp_path / "extra.yaml", content))


WRONG = (None, [], {}, "x", -1, float("nan"), float("inf"), True, 10**400, [1], {"a": 1}, "0.1", [None], 1e-300)


def places(tree, path=()):
    """Where each value of a tree stands."""
    yield path
    rows = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in rows:
        yield from places(value, (*path, key))


def test_whatever_stands_there_is_refused_in_words_or_right():
    """No value of another kind is a fault of the program: it is right by chance, or an error names the place."""
    numbers = {"topic": "t", "type": "std_msgs/msg/Float64MultiArray", "codec": "array", "rate_hz": 10, "qos": "sensor",
               "options": {"signal": "t", "shape": [2]}}
    seen = {"topic": "eye", "type": "sensor_msgs/msg/Image", "codec": "image", "rate_hz": 30, "qos": "sensor",
            "max_age_s": 0.2, "options": {"signal": "eye_rgb", "encoding": "rgb8"}}
    content = {**GOAL, "states": [*GOAL["states"], numbers], "pictures": [seen], "cameras": {},
               "signals": {**GOAL["signals"], "t": {"shape": [2], "unit": "m"},
                           "eye_rgb": {"shape": [4, 6, 3], "unit": "1", "dtype": "uint8"}}}
    robot, accepted = load_robot("franka"), []
    load_interface(robot, extra=content)
    for *parents, last in list(places(content))[1:]:
        for value in WRONG:
            wrong = deepcopy(content)
            row = wrong
            for key in parents:
                row = row[key]
            row[last] = value
            try:
                load_interface(robot, extra=wrong)
                accepted.append((last, value))
            except InterfaceError as error:
                assert str(error)
    names = [("topic", "x"), ("cameras", {"a": 1})]  # what a camera is like is a simulated robot's business
    names += [(key, text) for key in ("frame", "unit") for text in ("x", "0.1")]
    nothing = [("frame", None), *((key, value) for key in ("definitions", "cameras") for value in (None, {}))]
    assert [found for found in accepted if found not in (*names, *nothing)] == []


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InterfaceError, match="no.yaml cannot be read: No such file"):
        load_interface(load_robot("franka"), extra=tmp_path / "no.yaml")


def test_a_goal_is_waited_for_and_then_never_stale(tmp_path):
    robot = load_robot("franka")
    interface = load_interface(robot, extra=write(tmp_path / "extra.yaml", GOAL))
    bus = Bus()
    node, driver = MemoryTransport(bus, "policy"), MemoryTransport(bus, "driver")
    state = StateInput(node, robot, interface)
    signals = {"joint_pos": np.array(robot.home["joint_pos"]), "joint_vel": np.zeros(7), "joint_torque": np.zeros(7),
               "goal_pos_w": np.array([0.5, 0.0, 0.4]), "goal_quat_w": np.array([0.0, 1.0, 0.0, 0.0])}

    def send(topic, stamp):
        endpoint = driver.advertise(topic.topic, topic.type, QOS["latched" if topic.rate_hz == 0 else "default"])
        message = STATE_CODECS[topic.codec].encode(signals, stamp, ("world", "franka"), topic.options)
        driver.publish(endpoint, messages.encode(topic.type, message))
        node.wait(0.0)

    arm, goal = interface.states
    send(arm, 1)
    assert not state.complete and state.age(node.monotonic()) == np.inf
    send(goal, 2)
    assert state.complete and state.newest()["goal_pos_w"] == pytest.approx(signals["goal_pos_w"])
    bus.advance(10.0)
    assert state.age(node.monotonic()) == pytest.approx(10.0)
    send(arm, 3)
    assert state.age(node.monotonic()) == pytest.approx(0.0, abs=1e-6)


def tracked(rate_hz):
    """The cube, by a tracker of this rate."""
    return {**CUBE, "states": [{**CUBE["states"][0], "rate_hz": rate_hz}]}


def mission(interface):
    """An artifact for the arm's efforts, and how it is flown."""
    robot = load_robot("franka")
    name, *_ = load_interface(robot, interface).commands
    manifest = Manifest(
        name="arm", robot="franka", signals=(robot.signals["joint_pos"],), commands=(robot.command(name),),
        rate_hz=50.0, memory=(), formula="G[0,10] (joint_pos[0] < 3)", constants={}, horizon_s=10.0, stop="damp",
        training={}, versions={}, seed=0, git_revision="test", created="2026-01-01T00:00:00Z", files={})
    return manifest, robot


@pytest.mark.parametrize("interface", ["franka_ros2", "forward_effort"])
def test_a_topic_as_slow_as_its_state_may_be_old_is_refused_before_anything_starts(interface):
    manifest, robot = mission(interface)
    for rate_hz in (0, 11, 60):  # none, or more than 10 Hz
        check_mission(manifest, robot, load_interface(robot, interface, tracked(rate_hz)))
    for rate_hz in (5, 10):
        words = f"safety.stale_after_s is 0.1 s, but topic 'cube' comes every {1 / rate_hz:g} s"
        with pytest.raises(SafetyError, match=words):
            check_mission(manifest, robot, load_interface(robot, interface, tracked(rate_hz)))


def test_short_ages_are_asked_of_topics_that_the_profile_reads():
    """Efforts damp with joints' velocities of 30 ms at most; where a cube is, nobody damps by."""
    robot = load_robot("franka")
    interface = load_interface(robot, "forward_effort", {**tracked(20), "states": [
        *tracked(20)["states"], {**GOAL["states"][0], "options": {"frame": None, "position": "goal_pos_w"}}],
        "signals": {**CUBE["signals"], "goal_pos_w": GOAL["signals"]["goal_pos_w"]}})
    found = profile_on(robot, interface, robot.command("joint_effort_cmd"), 0.02)
    assert list(found.ages) == [Ages(0.03, 0.015), Ages(0.1, 0.5, False), Ages(np.inf, None, False)]
    assert found.oldest_s == 0.1


def test_a_robot_that_is_only_simulated_is_told_to_be():
    with pytest.raises(InterfaceError, match="robot 'linear' exists in simulation only"):
        load_interface(load_robot("linear"))
