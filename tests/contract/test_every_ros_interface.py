"""Every robot with a ROS 2 interface: what crosses the wire, and that it is this robot's, of its model and limits."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace

import mujoco
import numpy as np
import pytest

from temporeal.robots.spec import load_robot, robot_names
from temporeal_bridge.codecs.table import COMMAND_CODECS, STATE_CODECS
from temporeal_bridge.interface.checks import at_home
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.interface.rows import read_yaml
from temporeal_bridge.transports import messages

FRAMES = ("world", "robot")


def interfaces():
    for name in robot_names():
        robot = load_robot(name)
        if robot.ros is not None and robot.ros.exists():
            for key in read_yaml(robot.ros)["interfaces"]:
                yield pytest.param(robot, load_interface(robot, key), id=f"{name}-{key}")


ALL = list(interfaces())
JOINTED = [case for case in ALL if case.values[0].kind in ("arm", "hand")]


def across(type, message):
    """What comes out at the other end."""
    messages.type_hash(type)
    return messages.decode(type, messages.encode(type, message))


def test_arms_and_hands_have_interfaces():
    assert {case.values[0].name for case in JOINTED} >= {"franka", "leap_hand", "allegro_hand", "shadow_hand"}


@pytest.mark.parametrize(("robot", "interface"), ALL)
def test_states_at_home_survive_the_wire(robot, interface):
    home = at_home(robot, robot.signals)
    for topic in interface.states:
        codec = STATE_CODECS[topic.codec]
        found = codec.decode(across(topic.type, codec.encode(home, 1, FRAMES, topic.options)), topic.options)
        assert set(found) == set(codec.signals(topic.options)) and set(found) <= set(interface.carried)
        for name, value in found.items():
            assert value.shape == robot.signals[name].shape and str(value.dtype) == robot.signals[name].dtype
            if name not in topic.options.get("tool", {}).values():
                assert value == pytest.approx(home[name], abs=1e-6)


@pytest.mark.parametrize(("robot", "interface"), ALL)
def test_commands_at_home_and_at_their_limits_survive_the_wire(robot, interface):
    for name, topic in interface.commands.items():
        spec, codec = robot.command(name), COMMAND_CODECS[topic.codec]
        low, high = np.array(spec.low), np.array(spec.high)
        commands = [0.5 * (low + high), high, low]
        if spec.size == robot.signals.get("joint_pos", spec).size:
            commands.append(np.array(robot.home.get("joint_pos", high)))
        for command in commands:
            again = codec.decode(across(topic.type, codec.encode(command, topic.options, 2)), topic.options)
            assert again == pytest.approx(command, abs=1e-6 if topic.codec != "legacy_rates" else 0.008)


@pytest.mark.parametrize(("robot", "interface"), JOINTED)
def test_every_component_has_its_own_place(robot, interface):
    """No two joints change places between the command and the state of a robot that is where it was told to be."""
    (name,) = interface.commands
    topic, size = interface.commands[name], robot.signals["joint_pos"].size
    states = [s for s in interface.states if s.options.get("position") == "joint_pos"]
    for i in range(robot.command(name).size):
        command = np.zeros(robot.command(name).size)
        command[i] = 0.25
        message = COMMAND_CODECS[topic.codec].encode(command, topic.options)
        if topic.type == "std_msgs/msg/Float64MultiArray":  # these controllers list their joints by name
            assert sorted(topic.options["joints"])[int(np.flatnonzero(message.data)[0])] == topic.options["joints"][i]
        assert COMMAND_CODECS[topic.codec].decode(message, topic.options).tolist() == pytest.approx(command.tolist())
    for state in states:
        q = np.linspace(-0.1, 0.1, size)
        home = {**at_home(robot, robot.signals), "joint_pos": q}
        message = STATE_CODECS[state.codec].encode(home, 0, FRAMES, state.options)
        turned = np.random.default_rng(0).permutation(size)
        message.name = [message.name[i] for i in turned]
        for field in ("position", "velocity", "effort"):
            values = getattr(message, field)
            setattr(message, field, values[turned] if len(values) else values)
        assert STATE_CODECS[state.codec].decode(message, state.options)["joint_pos"] == pytest.approx(q, abs=1e-6)


@pytest.mark.parametrize(("robot", "interface"), JOINTED)
def test_safety_is_within_the_robot(robot, interface):
    safety, spec = interface.safety, importlib.import_module(f"temporeal.robots.{robot.name}.spec")
    assert set(interface.commands) <= set(safety["commands"]) <= set(robot.commands)
    assert 0 < safety["stale_after_s"] <= 0.2 and 0 < safety["silent_after_s"] <= 0.2
    slowest = min(state.rate_hz for state in interface.states)
    assert safety["stale_after_s"] >= 3 / slowest  # two lost samples are no stop
    for name, row in safety["commands"].items():
        command, motion = robot.command(name), row["motion"]
        if name in robot.drives:  # see the test of its rates
            continue
        start = row["start"]
        size, joints = command.size, robot.signals[start["signal"]].size
        speed = np.broadcast_to(motion["speed"], size)[:joints]
        most = np.broadcast_to(spec.SPEED if hasattr(spec, "SPEED") else spec.NO_LOAD_SPEED, joints)
        assert (0 < speed).all() and (speed <= most + 1e-9).all()
        margin = np.broadcast_to(motion["margin"], size)
        low, high = np.array(command.low) + margin, np.array(command.high) - margin
        assert (margin >= 0).all() and (low < high).all()
        home = np.array(robot.home[start["signal"]])
        assert (low[:joints] <= home).all() and (home <= high[:joints]).all()
        assert start["signal"] in interface.carried and start["within"] > 0
        if row.get("tracking"):
            assert row["tracking"]["signal"] in interface.carried
        if row.get("effort"):
            effort = row["effort"]
            assert {effort["position"], effort["velocity"]} <= set(interface.carried)
            for key in ("kp", "kd"):
                assert np.broadcast_to(effort[key], joints) == pytest.approx(robot.parameters[key].nominal[:joints])
            assert (np.broadcast_to(effort["limit"], joints) <= np.array(robot.parameters["strength"].nominal)).all()
    assert set(safety["jump"]) | set(safety.get("frozen", {"signals": []})["signals"]) <= set(interface.carried)
    if safety.get("geofence"):
        fence = safety["geofence"]
        assert fence["signal"] in interface.carried and (np.array(fence["low"]) < fence["high"]).all()


@pytest.mark.parametrize(("robot", "interface"), JOINTED)
def test_the_simulated_robot_is_described(robot, interface):
    simulation = interface.simulation
    assert set(simulation) - {"servo_lag_s"} == {"noise", "state_latency_s", "command_latency_s", "start", "spread"}
    assert set(simulation["noise"]) <= set(robot.signals) and min(simulation["noise"].values()) > 0
    assert 0 <= simulation["state_latency_s"] < 0.05 and 0 <= simulation["command_latency_s"] < 0.05


# ---------------------------------------------------------------- names, orders and numbers, robot by robot


def options(name, interface=None):
    robot = load_robot(name)
    loaded = load_interface(robot, interface)
    (command,) = loaded.commands.values()
    return robot, loaded.states[0].options, command.options


@pytest.mark.parametrize("interface", ["franka_ros2", "forward_position", "with_fingers"])
def test_frankas_names_are_the_models(interface):
    robot, state, command = options("franka", interface)
    model = mujoco.MjModel.from_xml_path(str(robot.model))
    (name,) = load_interface(robot, interface).commands
    assert tuple(state["joints"]) == robot.sources["joint_pos"].names
    driven = [model.actuator(actuator).trnid[0] for actuator in robot.actuators[name]]
    assert command["joints"] == [model.joint(joint).name for joint in driven]


def test_the_fingers_names_are_the_models():
    robot = load_robot("franka")
    rows = {row.topic: row for row in load_interface(robot, "with_fingers").states}
    assert tuple(rows["finger_states"].options["joints"]) == robot.sources["finger_pos"].names


def test_frankas_numbers_are_those_of_its_spec_and_of_the_tasks_actions():
    from temporeal.robots.franka import spec
    from temporeal.sim.task_parts.arms.arm import SHARE_OF_LIMITS

    robot = load_robot("franka")
    commands, limits = load_interface(robot).safety["commands"], spec.motion(SHARE_OF_LIMITS)
    for name in ("joint_pos_cmd", "arm_cmd"):
        row = commands[name]
        motion, command = row["motion"], robot.command(name)
        assert motion["speed"][:7] == pytest.approx(limits.speed)
        assert np.broadcast_to(motion["acceleration"], command.size)[:7] == pytest.approx(limits.acceleration)
        assert motion["jerk"] == spec.JERK[0]
        # the actions' own ends lie just inside the guard's: it bends nothing that they ask for
        low = np.array(command.low)[:7] + motion["margin"][:7]
        high = np.array(command.high)[:7] - motion["margin"][:7]
        assert (low <= limits.low).all() and (low >= np.array(limits.low) - 2e-3).all()
        assert (high >= limits.high).all() and (high <= np.array(limits.high) + 2e-3).all()
    assert commands["arm_cmd"]["motion"]["speed"][7] == spec.FINGER_SPEED
    lag = np.array(spec.KD) / spec.KP + 2 * load_interface(robot).command("joint_pos_cmd").options["reach_s"]
    error = np.array(commands["joint_pos_cmd"]["tracking"]["error"])
    assert (error > 1.4 * lag * limits.speed).all() and (error < 0.5).all()


def test_frankas_rates_are_those_of_its_spec_and_of_the_tasks_actions():
    from temporeal.robots.franka import spec
    from temporeal.sim.task_parts.arms.actions import IMPEDANCE
    from temporeal.sim.task_parts.arms.arm import SHARE_OF_LIMITS

    robot = load_robot("franka")
    commands, limits = load_interface(robot).safety["commands"], spec.motion(SHARE_OF_LIMITS)
    speeds, efforts = commands["joint_vel_cmd"], commands["joint_effort_cmd"]
    for row in (speeds, efforts):
        assert row["ends"]["speed"] == pytest.approx(limits.speed)
        assert row["ends"]["brake"] == pytest.approx(limits.brake)
        assert row["stop"] == {"default": "damp"}
    margin = np.array(commands["joint_pos_cmd"]["motion"]["margin"][:7])
    margin[[4, 6]] = 0.02  # the wrist's fast joints stop a little late
    assert speeds["ends"]["margin"] == margin.tolist()
    assert speeds["motion"] == {"speed": limits.acceleration[0], "acceleration": spec.JERK[0]}
    assert efforts["motion"] == {"speed": spec.TORQUE_RATE[0]}
    assert tuple(efforts["ends"]["gain"]) == IMPEDANCE["franka"][1]
    assert tuple(commands["tool_vel_cmd"]["motion"]["speed"]) == spec.TOOL_ACCELERATIONS
    lag = np.array(spec.KD) / spec.KP + 2 * load_interface(robot).command("joint_pos_cmd").options["reach_s"]
    assert (speeds["tracking"]["error"] > lag * limits.acceleration).all()


def test_leaps_order_and_zero_are_those_of_its_spec():
    from temporeal.robots.leap_hand.spec import MOTOR_IDS, MOTOR_ZERO, NO_LOAD_SPEED

    robot, state, command = options("leap_hand")
    assert state["joints"] == command["joints"] == [str(i) for i in MOTOR_IDS]
    assert tuple(command["index"]) == MOTOR_IDS and state["offset"] == command["offset"] == MOTOR_ZERO
    speed = load_interface(robot).safety["commands"]["joint_pos_cmd"]["motion"]["speed"]
    assert speed == pytest.approx(NO_LOAD_SPEED, abs=5e-3)


def test_the_publisher_that_the_page_shows_says_what_we_read():
    """The lines for the driver's node, run on a stand-in: its motors' angles, ids as names."""
    page = (Path(__file__).parents[2] / "docs" / "reference/robots" / "leap_hand.md").read_text(encoding="utf-8")
    start, methods = page.split("```python\n")[1].split("```")[0].split("\n\n")
    robot, state, _ = options("leap_hand")
    q, sent, timers = np.linspace(-0.2, 0.3, 16), [], []
    raw = np.empty(16)
    raw[[int(name) for name in state["joints"]]] = q + np.pi

    class Node:
        motors = list(range(16))
        dxl_client = SimpleNamespace(read_pos=lambda: raw)

        def create_publisher(self, *args):
            assert args[1:] == ("joint_states", 10)
            return SimpleNamespace(publish=sent.append)

        def create_timer(self, *args):
            timers.append(args)

        def get_clock(self):
            return SimpleNamespace(now=lambda: SimpleNamespace(to_msg=lambda: messages.time(7)))

    def joint_state(name, position):
        return messages.record("sensor_msgs/msg/JointState")(
            header=messages.header(0), name=name, position=np.array(position), velocity=np.zeros(0), effort=np.zeros(0))

    found = {"JointState": joint_state}
    exec(f"class Ours(Node):\n    def __init__(self):\n{start}\n\n{methods}", {**found, "Node": Node}, found)
    found["Ours"]()
    ((period, publish),) = timers
    publish()
    topic = load_interface(robot).states[0]
    assert topic.topic == "joint_states" and period == pytest.approx(1 / topic.rate_hz)
    assert STATE_CODECS["joint_state"].decode(sent[0], state)["joint_pos"] == pytest.approx(q, abs=1e-6)
    assert STATE_CODECS["joint_state"].stamp(sent[0]) == 7


def test_allegros_fingers_are_the_drivers():
    """ah_joint00 to 03 are the thumb, and the controller's order is that of the names."""
    from temporeal.robots.allegro_hand.spec import JOINTS

    finger = {"index": 1, "middle": 2, "ring": 3, "thumb": 0}
    robot, state, command = options("allegro_hand")
    wanted = [f"ah_joint{finger[name.split('_')[0]]}{i % 4}" for i, name in enumerate(JOINTS)]
    assert state["joints"] == command["joints"] == wanted
    order = sorted(wanted)
    assert command["index"] == [order.index(name) for name in wanted]


def test_the_shadow_hands_names_are_the_drivers_in_the_models_order():
    from temporeal.robots.shadow_hand.spec import COUPLED, JOINTS, MOTORS, SPEED

    robot, state, command = options("shadow_hand")
    assert state["joints"] == [f"rh_{name}" for name in JOINTS] and len(JOINTS) == 24
    wanted = [[f"rh_{joint}" for joint in COUPLED[m]] if m in COUPLED else f"rh_{m}" for m in MOTORS]
    assert state["driven"]["joints"] == command["joints"] == wanted and len(wanted) == 20
    assert wanted[4] == ["rh_FFJ2", "rh_FFJ1"] and wanted[14] == ["rh_LFJ2", "rh_LFJ1"]
    speed = load_interface(robot).safety["commands"]["actuator_pos_cmd"]["motion"]["speed"]
    assert tuple(speed) == SPEED


def test_a_motor_of_two_joints_is_commanded_by_halves_and_read_as_the_sum():
    """J0 of the ring finger at 100 degrees: 50 for each joint. What is read of 70 and 20 is 90."""
    from temporeal.robots.shadow_hand.spec import MOTORS

    interface = load_interface(load_robot("shadow_hand"))
    topic = interface.command("actuator_pos_cmd")
    command = np.zeros(20)
    command[MOTORS.index("RFJ0")], command[MOTORS.index("RFJ3")] = np.radians(100), np.radians(30)
    message = across(topic.type, COMMAND_CODECS[topic.codec].encode(command, topic.options))
    sent = dict(zip(message.joint_names, message.points[-1].positions))
    assert len(sent) == 24 and [name for name, angle in sent.items() if angle] == ["rh_RFJ3", "rh_RFJ2", "rh_RFJ1"]
    assert sent["rh_RFJ2"] == sent["rh_RFJ1"] == pytest.approx(np.radians(50))
    assert sent["rh_RFJ3"] == pytest.approx(np.radians(30))
    turned = list(reversed(message.joint_names))
    message.joint_names = turned
    for field in ("positions", "velocities", "accelerations"):
        setattr(message.points[-1], field, np.ascontiguousarray(getattr(message.points[-1], field)[::-1]))
    assert COMMAND_CODECS[topic.codec].decode(message, topic.options) == pytest.approx(command)

    names = sorted(interface.states[0].options["joints"])  # as the driver: by the alphabet
    angles = {"rh_RFJ2": np.radians(70), "rh_RFJ1": np.radians(20), "rh_RFJ3": 0.1, "rh_WRJ1": -0.2}
    state = messages.record("sensor_msgs/msg/JointState")(
        header=messages.header(5), name=names, position=np.array([angles.get(name, 0.0) for name in names]),
        velocity=np.zeros(24), effort=np.full(24, -17.3))
    found = STATE_CODECS["joint_state"].decode(across("sensor_msgs/msg/JointState", state), interface.states[0].options)
    assert set(found) == {"joint_pos", "actuator_pos"} and found["joint_pos"].shape == (24,)
    assert found["actuator_pos"][MOTORS.index("RFJ0")] == pytest.approx(np.pi / 2)
    assert found["actuator_pos"][MOTORS.index("RFJ3")] == pytest.approx(0.1)
    assert found["actuator_pos"][1] == pytest.approx(-0.2) and np.count_nonzero(found["actuator_pos"]) == 3
