"""`temporeal doctor --artifact`: each check on hand-made samples. A healthy one has no finding, each fault its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from temporeal.policies.cli.preflight import findings as preflight_findings
from temporeal.policies.cli.preflight import graph, realtime, robot, timing
from temporeal.policies.cli.preflight import values as preflight_values
from temporeal.policies.cli.preflight.listening import CommandHeard, Heard, StateHeard, decoded
from temporeal.policies.cli.preflight.plan import Plan
from temporeal.robots.spec import load_robot
from temporeal_bridge.codecs.odometry import encode_odometry
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.guard.safety.profile import Estop, Fence, Start
from temporeal_bridge.guard.safety.section import profile
from temporeal_bridge.interface.interface import StateTopic
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import Peer, QoS, Received

ROBOT = load_robot("crazyflie")
INTERFACE = load_interface(ROBOT)
ODOM, GYRO = INTERFACE.states
COMMAND = INTERFACE.command("ctbr_cmd")
SPEC = ROBOT.command("ctbr_cmd")
PROFILE = profile(ROBOT, INTERFACE.safety, SPEC, 0.02)
PLAN = Plan(ROBOT, INTERFACE, PROFILE, SPEC)
K, EPOCH = 300, 1_700_000_000_000_000_000
RELIABLE, SENSOR = QoS(), QoS(reliable=False, depth=5)


def peer(type: str, node: str = "/cf1/driver", qos: QoS = RELIABLE, hash: str | None = None) -> Peer:
    return Peer(node, type, messages.type_hash(type) if hash is None else hash, qos, False)


def state(row: StateTopic, signals: Mapping[str, np.ndarray], **changes: Any) -> StateHeard:
    """300 messages at 100 Hz that arrive 2 ms after their stamps."""
    arrivals = 10.0 + 0.01 * np.arange(K)
    walls = EPOCH + np.rint(1e9 * arrivals).astype(np.int64)
    given: dict[str, Any] = {
        "topic": row, "name": f"/cf1/{row.topic}", "arrivals": arrivals, "walls": walls, "stamps": walls - 2_000_000,
        "signals": signals, "publishers": (peer(row.type),)}
    return StateHeard(**{**given, **changes})


def noisy(*value: float) -> np.ndarray:
    rng = np.random.default_rng(0)
    return (np.array(value) + 1e-3 * rng.standard_normal((K, len(value)))).astype(np.float32)


def odom(**changes: Any) -> StateHeard:
    position = noisy(0.1, 0.2, 1.0)
    signals = {"base_pos_w": position, "base_quat_w": noisy(1, 0, 0, 0), "base_vel_w": noisy(0, 0, 0),
               "height": position[:, 2]}
    return state(ODOM, {**signals, **changes.pop("signals", {})}, **changes)


def gyro(**changes: Any) -> StateHeard:
    return state(GYRO, {"base_ang_vel_b": noisy(0, 0, 0), **changes.pop("signals", {})}, **changes)


def command(**changes: Any) -> CommandHeard:
    given: dict[str, Any] = {"topic": COMMAND, "name": "/cf1/cmd_vel_legacy", "subscribers": (peer(COMMAND.type),)}
    return CommandHeard(**{**given, **changes})


def heard(**changes: Any) -> Heard:
    given: dict[str, Any] = {
        "begin": 10.0, "end": 13.0, "clock_step_s": 0.0, "states": (odom(), gyro()), "commands": (command(),),
        "node": "/cf1/temporeal_doctor", "namespace": "/cf1",
        "nodes": ("/cf1/temporeal_doctor", "/cf1/driver", "/rviz")}
    return Heard(**{**given, **changes})


def findings(sample: Heard, plan: Plan = PLAN) -> dict[str, preflight_findings.Check]:
    """What is not ok, by name; every finding says what to do."""
    checks = [check for examine in robot.ROBOT_CHECKS for check in examine(sample, plan)]
    assert len({check.name for check in checks}) == len(checks)
    found = {check.name: check for check in checks if check.status != "ok"}
    assert all(check.advice for check in found.values())
    return found


def only(sample: Heard, name: str, status: str, *words: str, plan: Plan = PLAN) -> None:
    found = findings(sample, plan)
    assert {key: check.status for key, check in found.items()} == {name: status}
    assert all(word in found[name].found + found[name].advice for word in words), found[name]


def test_a_healthy_robot_has_no_finding() -> None:
    assert findings(heard()) == {}
    names = {check.name for examine in robot.ROBOT_CHECKS for check in examine(heard(), PLAN)}
    assert {"odom there", "odom type", "odom rate", "odom clock", "odom alive", "gyro rate", "clock here", "geofence",
            "height limits", "cmd_vel_legacy alone", "cmd_vel_legacy heard", "node names", "namespace"} <= names


# the graph


def silent(**changes: Any) -> StateHeard:
    none = np.empty(0, np.int64)
    return state(GYRO, {}, arrivals=np.empty(0), walls=none, stamps=none, **changes)


def test_the_operators_stop() -> None:
    """It must be there where it is required, be released, be heard, and be one."""
    panel, other = peer("std_msgs/msg/Bool", "/cf1/panel"), peer("std_msgs/msg/Bool", "/cf1/second")
    assert findings(heard(buttons=(panel,), pressed=False)) == {}
    only(heard(buttons=(panel,), pressed=True), "estop", "fail", "/cf1/panel publishes on estop: it is set", "release")
    only(heard(buttons=(panel,)), "estop", "warn", "nothing came", "every 0.5 s")
    only(heard(buttons=(panel, other), pressed=False), "estop", "fail", "/cf1/panel, /cf1/second", "what all do")
    mine, twin = (replace(panel, participant=bytes([i] * 12)) for i in (1, 2))  # as the guard counts them
    only(heard(buttons=(mine, twin), pressed=False), "estop", "fail", "/cf1/panel, /cf1/panel publish", "what all do")
    assert findings(heard(buttons=(mine, mine), pressed=False)) == {}
    only(heard(buttons=(peer("std_msgs/msg/String", "/cf1/panel"),)), "estop", "fail", "std_msgs/msg/String", "Bool")
    required = replace(PLAN, profile=replace(PLAN.profile, estop=Estop(required=True)))
    only(heard(), "estop", "fail", "nobody publishes on estop", plan=required)
    only(heard(buttons=(panel,)), "estop", "fail", "nothing came", plan=required)
    seldom = replace(PLAN, profile=replace(PLAN.profile, estop=Estop(heartbeat_s=None)))
    only(heard(buttons=(panel,)), "estop", "warn", "whether it is set is not known", "latch it", plan=seldom)


def test_a_topic_that_nobody_publishes() -> None:
    only(heard(states=(odom(), silent(publishers=()))), "gyro there", "fail", "/cf1/gyro", "deploy.namespace")


def test_a_publisher_that_says_nothing() -> None:
    only(heard(states=(odom(), silent())), "gyro silent", "fail", "/cf1/driver", "nothing came")


def test_two_publishers_of_one_state() -> None:
    both = (peer(ODOM.type), peer(ODOM.type, "/cf1/mocap"))
    only(heard(states=(odom(publishers=both), gyro())), "odom there", "fail", "2 publishers", "/cf1/driver, /cf1/mocap")


def test_another_type_and_another_definition_of_the_type() -> None:
    other = (peer("geometry_msgs/msg/PoseStamped"),)
    unconnected = "/cf1/driver: type (geometry_msgs/msg/PoseStamped against nav_msgs/msg/Odometry)"
    only(heard(states=(odom(publishers=other, unconnected=unconnected), gyro())), "odom type", "fail",
         "geometry_msgs/msg/PoseStamped, not nav_msgs")
    other = (peer(ODOM.type, hash="RIHS01_00ff"),)
    only(heard(states=(odom(publishers=other), gyro())), "odom type", "fail", "another definition", "RIHS01_00ff")
    assert findings(heard(states=(odom(publishers=(peer(ODOM.type, hash=""),)), gyro()))) == {}  # Humble has none


def test_qos_that_does_not_connect_names_the_policy() -> None:
    reliable = replace(ODOM, qos="default")
    sample = heard(states=(odom(topic=reliable, publishers=(peer(ODOM.type, qos=SENSOR),)), gyro()))
    only(sample, "odom QoS", "fail", "/cf1/driver: reliability (offered: best effort, requested: reliable)")
    sample = heard(states=(odom(unconnected="1 of 1 that fit otherwise: deadline"), gyro()))
    only(sample, "odom QoS", "fail", "deadline")


def test_a_second_commander_is_named() -> None:
    sample = heard(commands=(command(publishers=(peer(COMMAND.type, "/teleop"),)),))
    only(sample, "cmd_vel_legacy alone", "fail", "/teleop publishes on /cf1/cmd_vel_legacy", "end it")


def test_this_robots_own_guard_is_no_stranger():
    """Somebody asks the doctor why the guard of a deployment that is up stays waiting."""
    twist, text = "geometry_msgs/msg/Twist", "std_msgs/msg/Float64MultiArray"

    def said(by: Sequence[tuple[str, str]], guards: Sequence[tuple[str, str]]) -> dict[str, preflight_findings.Check]:
        def peers(kind: str, whose: Sequence[tuple[str, str]]) -> tuple[Peer, ...]:
            return tuple(replace(peer(kind, node), participant=process) for node, process in whose)

        command = replace(heard().commands[0], publishers=peers(twist, by))
        return {c.name: c for c in graph.alone(heard(commands=(command,), guards=peers(text, guards)), PLAN)}

    guard = ("/cf1/guard_node", "a")
    found = said([guard], [guard])["cmd_vel_legacy alone"]
    assert found.status == "ok" and "this robot's guard is up, and nobody else commands" in found.found
    for by, guards in (([guard], []), ([guard], [("/cf1/guard_node", "b")]), ([("/cf2/guard_node", "a")], [guard]),
                       ([guard, ("/cf1/guard_node", "b")], [guard, ("/cf1/guard_node", "b")])):
        found = said(by, guards)["cmd_vel_legacy alone"]
        assert found.status == "fail" and "guard_node publishes on" in found.found
    found = said([guard, ("/teleop", "c")], [guard])["cmd_vel_legacy alone"]
    assert found.status == "fail" and found.found.startswith("/teleop publishes on")



def test_who_could_command_it_by_another_topic_is_named() -> None:
    sample = heard(rivals={"/cf1/cmd_hover": (peer("geometry_msgs/msg/Twist", "/teleop"),), "/cf1/cmd_position": ()})
    only(sample, "/cf1/cmd_hover alone", "fail", "/teleop publishes on /cf1/cmd_hover, which commands", "end it")
    assert findings(heard(rivals={"/cf1/cmd_hover": ()})) == {}


@pytest.mark.parametrize(("subscribers", "status", "words"), [
    ((), "fail", "nobody subscribes"),
    ((peer("geometry_msgs/msg/TwistStamped"),), "fail", "TwistStamped, not geometry_msgs/msg/Twist"),
    ((peer(COMMAND.type, qos=QoS(latched=True)),), "fail", "durability"),
    ((peer(COMMAND.type, hash="RIHS01_00ff"),), "fail", "another definition"),
    ((peer(COMMAND.type), peer(COMMAND.type, "/bag", QoS(latched=True))), "warn", "/bag: durability")])
def test_whether_a_command_would_be_heard(subscribers: tuple[Peer, ...], status: str, words: str) -> None:
    nodes = ("/cf1/temporeal_doctor", "/cf1/driver", "/bag")
    only(heard(commands=(command(subscribers=subscribers),), nodes=nodes), "cmd_vel_legacy heard", status, words)


def test_companions_of_the_command_are_checked_too() -> None:
    heartbeat = command(topic=replace(COMMAND, topic="heartbeat"), name="/cf1/heartbeat", subscribers=())
    only(heard(commands=(command(), heartbeat)), "heartbeat heard", "fail", "/cf1/heartbeat")


def test_names_that_two_nodes_bear_and_strangers_in_the_namespace() -> None:
    nodes = ("/cf1/temporeal_doctor", "/cf1/driver", "/rviz", "/rviz")
    only(heard(nodes=nodes), "node names", "fail", "/rviz")
    nodes = ("/cf1/temporeal_doctor", "/cf1/driver", "/cf1/policy_node", "/cf10/driver", "/cf1/_hidden")
    only(heard(nodes=nodes), "namespace", "warn", "/cf1/policy_node")
    assert findings(heard(nodes=nodes))["namespace"].found.endswith("beside the robot: /cf1/policy_node")


# time


def spaced(times: np.ndarray, row: StateTopic = ODOM, **changes: Any) -> StateHeard:
    """Odometry at ``times`` after the start of listening."""
    arrivals = 10.0 + times
    walls = EPOCH + np.rint(1e9 * arrivals).astype(np.int64)
    signals = {name: values[:len(times)] for name, values in odom().signals.items()}
    return odom(arrivals=arrivals, walls=walls, stamps=walls - 2_000_000, signals=signals, **changes)


@pytest.mark.parametrize(("times", "status", "words"), [
    (np.arange(0, 3, 1 / 40), "fail", "40.0 Hz of 100"),
    (np.arange(0, 3, 1 / 70), "warn", "70.0 Hz of 100"),
    (np.delete(np.arange(K) / 100, [50, 51, 52]), "warn", "3 of 300 missing, gaps up to 40 ms"),
    (np.delete(np.arange(K) / 100, range(50, 62)), "fail", "12 of 300 missing, gaps up to 130 ms"),
    (np.arange(200) / 100, "fail", "gaps up to 1010 ms")])  # it fell silent
def test_rates_and_gaps(times: np.ndarray, status: str, words: str) -> None:
    only(heard(states=(spaced(times), gyro())), "odom rate", status, words)


def test_a_topic_that_is_too_fast() -> None:
    times = np.arange(K) / 200
    half = gyro(**{name: getattr(gyro(), name)[:150] for name in ("arrivals", "walls", "stamps")})
    only(heard(states=(spaced(times), half), end=11.5), "odom rate", "warn", "200.0 Hz of 100")


def test_one_lost_sample_is_no_finding() -> None:
    assert findings(heard(states=(spaced(np.delete(np.arange(K) / 100, 50)), gyro()))) == {}


def delayed(delay_s: np.ndarray | float) -> Heard:
    """Odometry stamped every 10 ms that arrives ``delay_s`` later by this machine's clock, in order."""
    stamps = odom().walls
    walls = np.maximum.accumulate(stamps + np.rint(1e9 * np.broadcast_to(delay_s, K)).astype(np.int64))
    return heard(states=(odom(stamps=stamps, walls=walls), gyro()))


UNEVEN = np.where(np.arange(K) % 20 == 0, 0.03, 0.002)


@pytest.mark.parametrize(("delay", "status", "words"), [
    (-0.0015, "warn", "from the future"),
    (-0.12, "fail", "(0.1 s): -120.0 ms"),
    (0.12, "fail", "(0.1 s): 120.0 ms"),
    (0.06, "warn", "60.0 ms old"),
    (UNEVEN, "warn", "2.0 ms old on arrival (median), 30.0 (p99)"),
    (np.where(np.arange(K) < 150, 0.002, 0.052), "fail", "clock moved by -50 ms")])
def test_stamps_against_the_clock(delay: Any, status: str, words: str) -> None:
    only(delayed(delay), "odom clock", status, words)


def test_stamps_that_are_not_there_go_back_or_are_repeated() -> None:
    walls = odom().walls
    only(heard(states=(odom(stamps=np.zeros(K, np.int64)), gyro())), "odom clock", "fail", "no stamp")
    swapped = walls - 2_000_000
    swapped[[100, 101]] = swapped[[101, 100]]
    only(heard(states=(odom(stamps=swapped), gyro())), "odom clock", "fail", "go back, 1 times")
    repeated = np.repeat(walls[::4] - 2_000_000, 4)
    only(heard(states=(odom(stamps=repeated), gyro())), "odom clock", "warn", "same stamp")
    turned = replace(GYRO, topic="turned", type="std_msgs/msg/Float64MultiArray", codec="array")
    found = timing.stamped(state(turned, {}, stamps=np.zeros(K, np.int64)), PLAN)
    assert found.status == "warn" and "Float64MultiArray has no stamp" in found.found


def test_clocks_that_are_not_compared_and_a_topic_that_speaks_when_something_changes() -> None:
    free = replace(PLAN, profile=replace(PROFILE, stamps_within_s=None))
    assert findings(delayed(0.6), free)["odom clock"].status == "warn"
    goal = state(replace(ODOM, topic="goal", rate_hz=0, qos="latched"), {}, arrivals=np.array([8.0]),
                 walls=np.array([EPOCH]), stamps=np.array([EPOCH - 10**12]),
                 publishers=(peer(ODOM.type, qos=QoS(depth=1, latched=True)),))
    assert findings(heard(states=(odom(), gyro(), goal))) == {}


def test_a_clock_that_is_set_here() -> None:
    only(heard(clock_step_s=-0.5), "clock here", "fail", "-500 ms", "chrony")


# values


def test_messages_that_cannot_be_used_are_counted_by_reason() -> None:
    sample = odom(rejected={"signal 'base_pos_w' has a non-finite value": 7, "other": 2})
    only(heard(states=(sample, gyro())), "odom content", "fail",
         "9 of 300 messages refused; 7 times: signal 'base_pos_w'")


def test_a_dead_sensor_and_a_signal_that_may_rest() -> None:
    still = np.repeat(noisy(0.1, 0.2, 1.0)[:1], K, axis=0)
    sample = heard(states=(odom(signals={"base_pos_w": still, "height": still[:, 2]}), gyro()))
    only(sample, "odom alive", "fail", "base_pos_w", "restart")
    for rate in (0.0, 0.01):  # a gyro never rests: zeros are those of a driver that does not fill it
        dead = gyro(signals={"base_ang_vel_b": np.full((K, 3), rate)})
        only(heard(states=(odom(), dead)), "gyro alive", "fail", "base_ang_vel_b", "restart")
    quiet = replace(PLAN, profile=replace(PROFILE, frozen=None))
    only(sample, "odom alive", "warn", "base_pos_w, height", "by hand", plan=quiet)
    few = {name: values[:5] for name, values in {**odom().signals, "base_pos_w": still}.items()}
    assert "odom alive" not in findings(heard(states=(odom(signals=few), gyro())))


def test_outside_the_fence() -> None:
    far = {"base_pos_w": noisy(0.0, 6.0, 1.0), "height": noisy(0.0, 6.0, 1.0)[:, 2]}
    only(heard(states=(odom(signals=far), gyro())), "geofence", "fail", "1.0", "outside [-5, -5, -0.2]")


def test_a_robot_without_a_fence_or_without_a_position_has_none() -> None:
    for box in (None, Fence("grip_pos_w", (0.0,) * 3, (1.0,) * 3)):
        assert findings(heard(), replace(PLAN, profile=replace(PROFILE, geofence=box))) == {}


# an arm: joints by name, limits, degrees, first command

ARM = load_robot("franka")
JOINTS = ARM.sources["joint_pos"].names
ROW = StateTopic("joint_states", "sensor_msgs/msg/JointState", "joint_state", 100.0, "sensor",
                 {"joints": list(JOINTS), "position": "joint_pos", "velocity": "joint_vel"})
ARM_SPEC = ARM.command("joint_pos_cmd")
ARM_PROFILE = replace(PROFILE, geofence=None, frozen=None, start=Start("joint_pos", (0.3,) * 6 + (0.6,), 2.0))
ARM_PLAN = Plan(ARM, replace(INTERFACE, name="arm", states=(ROW,)), ARM_PROFILE, ARM_SPEC)
HOME = np.array(ARM.home["joint_pos"])


def arm(position: np.ndarray = HOME, names: tuple[str, ...] = JOINTS, row: StateTopic = ROW, **changes: Any) -> Heard:
    signals = {"joint_pos": noisy(*position), "joint_vel": noisy(*np.zeros(7)), **changes}
    return heard(states=(state(row, signals, joints=names),), commands=())


def test_joints_in_any_order_and_more_of_them_are_fine() -> None:
    assert findings(arm(), ARM_PLAN) == {}
    (check,) = preflight_values.joints(arm(names=("gripper", *reversed(JOINTS))), ARM_PLAN)
    assert check.status == "ok" and "all 7 by name, 1 more that are not used: gripper" in check.found


def test_missing_and_doubled_joints() -> None:
    only(arm(names=JOINTS[1:]), "joint_states joints", "fail", "missing fr3_joint1;", plan=ARM_PLAN)
    doubled = arm(names=(*JOINTS, JOINTS[0]))
    only(doubled, "joint_states joints", "fail", "twice in one message: fr3_joint1", plan=ARM_PLAN)


def test_joints_are_those_of_the_model_where_the_interface_names_none(monkeypatch: pytest.MonkeyPatch) -> None:
    by_model = replace(STATE_CODECS["odometry"], signals=lambda options: ("joint_pos", "joint_vel", "grip_pos_w"))
    monkeypatch.setitem(STATE_CODECS, "by_model", by_model)
    assert preflight_values.expected_joints(replace(ROW, codec="by_model", options={}), ARM) == JOINTS
    assert preflight_values.expected_joints(replace(ROW, options={"joints": ["7", "1"]}), ARM) == ("7", "1")


def test_limits_come_from_setpoints_signals_and_joints() -> None:
    known = preflight_values.limits(ARM)
    assert known["joint_pos"][0].tolist() == list(ARM.commands["joint_pos_cmd"].low)
    assert known["joint_vel"][1].tolist() == [ARM.limits[f"{joint}_vel"][1] for joint in JOINTS]
    assert known["joint_torque"][1].tolist() == [87.0] * 4 + [12.0] * 3
    hand = preflight_values.limits(load_robot("leap_hand"))
    assert hand["joint_vel"][1].shape == (16,)
    assert preflight_values.limits(ROBOT)["height"][1] == 10.0


def test_outside_and_on_the_limits() -> None:
    over, edge = HOME.copy(), HOME.copy()
    over[3], edge[3] = 0.2, ARM.commands["joint_pos_cmd"].high[3] + 0.005
    only(arm(over), "joint_pos limits", "fail", "outside by up to 0.35", "components [3]", plan=ARM_PLAN)
    only(arm(edge), "joint_pos limits", "warn", "components [3]", "move it inside", plan=ARM_PLAN)


def test_degrees_are_told_from_radians() -> None:
    only(arm(np.rad2deg(HOME)), "joint_pos limits", "fail", "inside if read as degrees", plan=ARM_PLAN)
    fast = noisy(*np.full(7, 9.0))  # beyond every limit, but a degree is not what makes it so large
    assert findings(arm(joint_vel=fast), ARM_PLAN)["joint_vel limits"].status == "fail"


def proposing(command: np.ndarray) -> Plan:
    return replace(ARM_PLAN, propose=lambda signals: command)


def test_the_first_command_is_near_the_measured_pose() -> None:
    near, far = HOME.copy(), HOME.copy()
    near[2] += 0.25
    near[6] += 0.5  # 0.6 is allowed there
    far[2] += 0.5
    assert findings(arm(), proposing(near)) == {}
    only(arm(), "first command", "fail", "from joint_pos, component 2; 0.3 is allowed", plan=proposing(far))
    only(arm(), "first command", "fail", "not finite", plan=proposing(np.full(7, np.nan)))


def test_a_first_command_beyond_the_limits() -> None:
    golden = {"base_ang_vel_b": np.zeros((2, 3)), "mission_time": np.zeros(2)}
    plan = replace(PLAN, propose=lambda signals: np.array([1.0, 0.0, 0.0, 0.0]), golden=golden)
    only(heard(), "first command", "warn", "beyond its limits, components [0]", plan=plan)
    assert findings(heard(states=(odom(),)), plan) == {}  # without the gyro, which it reads, there is nothing to act on


def test_a_start_state_unlike_the_recorded_trace() -> None:
    trace = np.stack([HOME, HOME + 0.1]).astype(np.float32)
    assert findings(arm(), replace(ARM_PLAN, golden={"joint_pos": trace})) == {}
    only(arm(), "start state", "warn", "components [0, 1, 2, 3, 4, 5, 6]",
         plan=replace(ARM_PLAN, golden={"joint_pos": trace + 0.5, "mission_time": np.zeros((2,))}))


# the machine and the artifact


@pytest.mark.parametrize(
    ("found", "status"), [({}, "ok"), ({"performance": 4}, "ok"), ({"powersave": 3, "performance": 1}, "warn")])
def test_governors(found: Mapping[str, int], status: str) -> None:
    assert realtime.governor(found).status == status


def test_realtime() -> None:
    assert [realtime.realtime(allowed).status for allowed in (True, False)] == ["ok", "warn"]


def test_trying_realtime_leaves_the_scheduler_as_it_was() -> None:
    import os

    before = os.sched_getscheduler(0)
    realtime.may_be_realtime()
    assert os.sched_getscheduler(0) == before


# from bytes to samples


def message(edit: Callable[[Any], None] = lambda message: None) -> bytes:
    signals = {"base_pos_w": [1, 2, 3], "base_quat_w": [1, 0, 0, 0], "base_vel_w": [0, 0, 0]}
    made = encode_odometry(signals, 7_000_000_000, ("world", "cf1"), ODOM.options)
    edit(made)
    return messages.encode(ODOM.type, made)


def test_messages_become_samples_and_refusals_are_counted() -> None:
    def break_position(made: Any) -> None:
        made.pose.pose.position.x = float("nan")

    bad = message(break_position)
    raw = [(Received("/cf1/odom", ODOM.type, data, 10.0 + i), EPOCH + i)
           for i, data in enumerate((message(), bad, b"\x00\x01\x00\x00", bad))]
    sample = decoded(ODOM, "/cf1/odom", raw, INTERFACE.carried)
    assert sample.signals["base_pos_w"].tolist() == [[1, 2, 3]] and sample.stamps.tolist() == [7_000_000_000]
    assert sorted(sample.rejected.values()) == [1, 2] and sample.joints is None
    assert sample.arrivals.tolist() == [10, 11, 12, 13] and sample.walls.tolist() == [EPOCH]
    nothing = decoded(ODOM, "/cf1/odom", [], INTERFACE.carried)
    assert not nothing.signals and nothing.stamps.shape == nothing.walls.shape == nothing.arrivals.shape == (0,)


def test_names_in_a_joint_state_are_kept() -> None:
    from temporeal.policies.cli.preflight.listening import names_in

    made = messages.record("sensor_msgs/msg/JointState")(
        header=messages.header(5), name=["b", "a"], position=np.zeros(2), velocity=np.zeros(0), effort=np.zeros(0))
    assert names_in(made, None) == ("b", "a") and names_in(object(), ("a",)) == ("a",)
