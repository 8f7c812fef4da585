"""Controller and guard on the memory bus: what the artifact says is sent, and the robot is stopped when it must be."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from tests.examples import thinned

from temporeal.robots.artifact.manifest import ArtifactError
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.frames import from_rotation_vector
from temporeal.robots.spec import load_robot
from temporeal_bridge import policy_node
from temporeal_bridge.codecs.crazyflie import decode_legacy_rates, encode_legacy_rates
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.controller.loading import load_artifact
from temporeal_bridge.guard.safety.fallback_actions import FLIES_S
from temporeal_bridge.guard.stop_actions import hover_thrust
from temporeal_bridge.guard_node import GuardNode
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.link.in_process import linked
from temporeal_bridge.mission import MISSION_TIME
from temporeal_bridge.policy_node import Options, PolicyNode
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.transport import QOS

ROBOT = load_robot("crazyflie")
TWIST, HEADER, EMPTY = "geometry_msgs/msg/Twist", "std_msgs/msg/Header", "std_msgs/msg/Empty"


class Bench:
    """Controller and guard, and a stand-in for everything else: publishes states at 100 Hz, keeps what they say."""

    def __init__(self, lockstep, artifact: Path, interface: str, **options) -> None:
        self.lockstep, self.interface = lockstep, load_interface(ROBOT, interface)
        self.own = MemoryTransport(lockstep.bus, "peer", "/cf1")
        transport = MemoryTransport(lockstep.bus, "policy_node", "/cf1")
        self.loaded = load_artifact(artifact, ROBOT, self.interface)
        ends, robot = linked(), (ROBOT, self.interface)
        self.node = lockstep.add(transport, PolicyNode(
            transport, self.loaded, *robot, ends[0], Options(**options)))
        transport = MemoryTransport(lockstep.bus, "guard_node", "/cf1")
        self.guard = lockstep.add(transport, GuardNode(transport, self.loaded.manifest, *robot, ends[1]))
        self.commands: list[tuple[float, np.ndarray]] = []
        self.modes: list[str] = []
        topic = self.interface.command("ctbr_cmd")
        self.own.subscribe(topic.topic, TWIST, QOS["command"], lambda r: self.commands.append((
            r.at, decode_legacy_rates(messages.decode(TWIST, r.data), topic.options))))
        self.own.subscribe("mission", HEADER, QOS["latched"], lambda r: self.modes.append(
            messages.decode(HEADER, r.data).frame_id))
        self.states = [(s, self.own.advertise(s.topic, s.type, QOS["default"])) for s in self.interface.states]
        self.start_topic = self.own.advertise("mission/start", "std_msgs/msg/UInt64", QOS["default"])
        self.stop_topic, self.reset_topic = (
            self.own.advertise(f"mission/{name}", EMPTY, QOS["default"]) for name in ("stop", "reset"))
        self.signals, self.seen, self.rng = None, [], np.random.default_rng(0)

    def draw(self) -> dict[str, np.ndarray]:
        position = np.array([0.0, 0.0, 1.0]) + 0.02 * self.rng.normal(size=3)
        return {"base_pos_w": position, "base_quat_w": from_rotation_vector(0.02 * self.rng.normal(size=3)),
                "base_vel_w": 0.1 * self.rng.normal(size=3), "base_ang_vel_b": 0.1 * self.rng.normal(size=3),
                "height": position[2]}

    def publish(self, signals=None) -> None:
        """One state, and the signals as they come out at the other end."""
        signals, decoded = signals or self.draw(), {}
        for topic, endpoint in reversed(self.states):
            codec = STATE_CODECS[topic.codec]
            data = messages.encode(topic.type, codec.encode(signals, self.own.now(), ("world", "cf1"), topic.options))
            decoded.update(codec.decode(messages.decode(topic.type, data), topic.options))
            self.own.publish(endpoint, data)
        self.seen.append((self.own.monotonic(), decoded))

    def fly(self, seconds: float, states: bool = True) -> None:
        """Let time pass with states every 10 ms (or none)."""
        for _ in range(round(seconds / 0.01)):
            if states:
                self.publish()
            self.lockstep.run(0.01)
            self.own.wait(0.0)
        self.own.wait(0.0)

    def begin(self, number: int = 1) -> None:
        kind = "std_msgs/msg/UInt64"
        self.own.publish(self.start_topic, messages.encode(kind, messages.record(kind)(data=number)))

    def tell(self, endpoint) -> None:
        """An empty message."""
        self.own.publish(endpoint, messages.empty())

    @property
    def mode(self) -> str:
        return self.modes[-1].split()[0]


@pytest.fixture(params=["odometry", "crazyswarm2"])
def bench(request, lockstep, artifact):
    made = Bench(lockstep, artifact, request.param)
    made.fly(0.1)
    return made


ONE = pytest.mark.parametrize(
    "bench", thinned(["odometry", "crazyswarm2"], keep=["odometry"]), indirect=True)  # half a minute of descent


def through(command: np.ndarray, bench: Bench) -> np.ndarray:
    """A command as it comes out of its message."""
    spec, options = ROBOT.command("ctbr_cmd"), bench.interface.command("ctbr_cmd").options
    message = encode_legacy_rates(np.clip(command, spec.low, spec.high), options)
    return decode_legacy_rates(message, options)


def test_silent_until_started(bench):
    assert bench.commands == [] and bench.mode == "ready"


def test_rehearsing_changes_no_command(artifact, lockstep_of):
    """The policy's memory, its clock, does not go on either."""
    benches, asked, read_again = [], [], []
    for awake in (False, True):
        benches.append(made := Bench(lockstep_of(Bus()), artifact, "odometry", awake=awake))
        before = made.loaded.act_batch
        made.loaded.act_batch = lambda *given, before=before, of=awake: (
            asked.append(of), before(*given))[1]
        read = made.node.state.rehearse
        made.node.state.rehearse = lambda read=read: read_again.append(read())
        made.fly(0.1)
        made.begin()
        made.fly(1.0)
    first, second = ([command for _, command in made.commands] for made in benches)
    assert np.array_equal(first, second) and len(first) > 40 and benches[0].loaded.memory
    assert asked.count(True) > 1.8 * asked.count(False) and len(read_again) > 40


def test_garbage_is_no_start(bench):
    bench.own.publish(bench.start_topic, b"garbled")
    bench.fly(0.1)
    assert bench.node.mode == "ready" and bench.commands == []
    bench.begin()
    bench.fly(0.5)
    assert bench.node.mode == "active" and bench.commands


@pytest.mark.slow
def test_it_starts_by_itself_when_the_others_had_time_to_come(lockstep, artifact):
    bench = Bench(lockstep, artifact, "odometry", autostart=True)
    bench.fly(policy_node.AUTOSTART_S - 0.1)
    assert bench.commands == [] and bench.mode == "ready"
    bench.fly(0.6)
    assert bench.mode == "active"
    bench.tell(bench.stop_topic)
    bench.fly(25.0)  # it never sinks: it is let down
    assert bench.mode == "stopped"
    bench.tell(bench.reset_topic)
    bench.fly(5.0)
    assert bench.mode == "ready"  # once: stopped is stopped


def test_a_guard_that_is_not_active_refuses_the_start_and_says_so(bench):
    bench.guard.transport.active = False
    bench.begin()
    bench.fly(0.5)
    assert bench.commands == [] and bench.mode == "ready" and "not active" in bench.node.flight.reason
    bench.guard.transport.active = True
    bench.begin(2)
    bench.fly(0.5)
    assert bench.modes[-1] == "active 2" and bench.commands


def test_a_guard_that_is_deactivated_in_flight_levels_and_then_sends_nothing_more(bench):
    bench.begin()
    bench.fly(0.5)
    bench.guard.transport.active = False
    bench.fly(0.1)
    assert bench.mode == "stopping" and "deactivated" in bench.guard.flight.reason
    for _ in range(40):
        if bench.mode == "stopping":
            bench.fly(1.0)
    sent = len(bench.commands)
    assert bench.mode == "stopped"
    bench.guard.transport.active = True
    bench.fly(1.0)
    assert len(bench.commands) == sent  # active again is not started again


def test_commands_equal_those_of_the_artifact(bench, artifact):
    """The state that arrives when a control step is due goes in; what the artifact gives for it comes out, in time."""
    bench.begin()
    bench.fly(2.0)
    direct = Artifact.load(artifact, ROBOT, task_signals={MISSION_TIME.name: MISSION_TIME})
    states = dict(bench.seen)
    assert 98 <= len(bench.commands) <= 101
    for at, sent in bench.commands:
        wanted = direct.act(states[at])["ctbr_cmd"]
        assert sent == pytest.approx(through(wanted, bench), abs=1e-5)
    steps = np.diff([at for at, _ in bench.commands])
    assert steps == pytest.approx(0.02, abs=1e-6)


def test_mission_time_zero_is_the_first_command(bench):
    bench.begin(7)
    bench.fly(0.5)
    assert bench.modes[-1] == "active 7"
    assert bench.node.flight.start_ns == bench.own.bus.epoch_ns + round(bench.commands[0][0] * 1e9)


@ONE
def test_a_second_mission_starts_from_a_fresh_memory(bench):
    bench.begin(1)
    bench.fly(6.5)
    assert bench.node.flight.reason == ""
    bench.fly(25.0, states=True)  # it never sinks: it is let down
    assert bench.mode == "finished"
    bench.begin(2)
    bench.fly(0.3)
    assert bench.modes[-1] == "active 2" and float(bench.loaded.memory["tick"][0]) == bench.node.flight.steps


@pytest.mark.slow
@ONE
def test_after_the_mission_it_levels_and_sinks_then_falls_silent(bench):
    bench.begin()
    bench.fly(6.14)
    assert bench.mode == "stopping"
    hover = ROBOT.parameters["mass"].nominal[0] * 9.81
    flown = hover_thrust.hover_thrust(ROBOT, bench.guard.stream.airborne.estimate) / hover
    assert all(0.85 - 1e-6 <= command[0] / hover / flown < 1.1 for _, command in bench.commands[-5:])  # by a noise
    bench.fly(25.0)  # it never sinks: it is let down
    assert bench.mode == "finished"
    assert bench.commands[-1][1] == pytest.approx(np.zeros(4))  # the last word is a zero setpoint
    count = len(bench.commands)
    bench.fly(0.5)
    assert len(bench.commands) == count


def test_stale_state_stops_blind_then_silent(bench):
    """Within the limit and two steps it stops; it does not turn without an attitude; after blind_s it says nothing."""
    bench.begin()
    bench.fly(1.0)
    last = bench.own.monotonic()
    bench.fly(1.0 + FLIES_S, states=False)
    safety = bench.interface.safety
    stopped = [at for at, c in bench.commands if at > last + safety["stale_after_s"]]
    assert "old" in bench.guard.flight.reason and bench.mode == "stopped"
    assert stopped[0] - last <= safety["stale_after_s"] + 0.05
    assert stopped[-1] - stopped[0] <= safety["level"]["blind_s"] + 0.03
    for at, command in bench.commands:
        if at >= stopped[0]:
            assert command[1:] == pytest.approx(np.zeros(3))


def test_a_stop_is_latched_until_it_is_reset(bench):
    bench.begin()
    bench.fly(1.0)
    bench.fly(1.0 + FLIES_S, states=False)
    count = len(bench.commands)
    bench.begin(2)
    bench.fly(0.5)
    assert bench.mode == "stopped" and len(bench.commands) == count
    assert "mission/reset clears it" in bench.node.flight.reason and "old" in bench.node.flight.reason
    bench.tell(bench.reset_topic)
    bench.fly(0.5)
    assert bench.mode == "ready"
    bench.begin(3)
    bench.fly(0.1)
    assert bench.modes[-1] == "active 3"


def test_the_operator_stops_it(bench):
    bench.begin()
    bench.fly(0.5)
    bench.tell(bench.stop_topic)
    bench.fly(0.1)
    assert bench.mode == "stopping" and "operator" in bench.guard.flight.reason
    assert bench.node.mode == "ready" and "operator" in bench.node.flight.reason  # the controller was told


def test_a_state_with_nan_is_dropped_and_counted(bench):
    bench.begin()
    bench.fly(0.5)
    before = bench.node.state.rejected
    signals = bench.draw()
    signals["base_vel_w"] = np.array([np.nan, 0, 0])
    bench.publish(signals)
    bench.fly(0.2)
    assert bench.node.state.rejected == before + 1 and "base_vel_w" in bench.node.state.last_rejection
    assert bench.mode == "active" and np.isfinite([c for _, c in bench.commands]).all()


class Broken:
    """An artifact whose commands are not fit to be sent."""

    def __init__(self, artifact: Artifact, command: np.ndarray | Exception) -> None:
        self.manifest, self.command = artifact.manifest, command

    def reset(self) -> None:
        pass

    def act(self, signals):
        if isinstance(self.command, Exception):
            raise self.command
        return {"ctbr_cmd": self.command}


def test_commands_are_clamped_and_counted(bench):
    bench.node.policy.artifact = Broken(bench.loaded, np.array([9.0, 99.0, -99.0, 0.0]))
    bench.begin()
    bench.fly(0.2)
    spec = ROBOT.command("ctbr_cmd")
    wanted = through(np.array([spec.high[0], spec.high[1], spec.low[2], 0.0]), bench)
    assert bench.commands[-1][1] == pytest.approx(wanted) and bench.guard.flight.limited == bench.node.flight.steps


@pytest.mark.parametrize(("command", "word"), [
    (np.full(4, np.nan), "not finite"), (np.zeros(3), "shape"), (ZeroDivisionError("by zero"), "ZeroDivisionError")])
def test_a_broken_policy_is_stopped_before_anything_is_sent(bench, command, word):
    bench.node.policy.artifact = Broken(bench.loaded, command)
    bench.begin()
    bench.fly(0.05)
    assert word in bench.guard.flight.reason and bench.mode == "stopped"
    assert bench.guard.flight.sent == 0 and not np.any([c for _, c in bench.commands])  # at most the zero that unlocks


def test_leaving_the_geofence_stops_it(bench):
    bench.begin()
    bench.fly(0.3)
    height = 1.0
    for speed in [*range(1, 9), *[8] * 40]:
        height += 0.01 * speed
        assert bench.guard.flight.reason == "" or height > 4.0
        bench.publish({**bench.draw(), "base_pos_w": np.array([0.0, 0.0, height]),
                       "base_vel_w": np.array([0.0, 0.0, float(speed)]), "height": height})
        bench.fly(0.01, states=False)
    assert re.search(r"z = 4.0\d m is outside the geofence", bench.guard.flight.reason) and bench.mode == "stopping"


def test_a_position_that_jumps_stops_it(bench):
    """A motion capture system that took another robot for this one."""
    bench.begin()
    bench.fly(0.3)
    bench.publish({**bench.draw(), "base_pos_w": np.array([2.0, 0.0, 1.0])})
    bench.fly(0.01, states=False)
    assert bench.guard.flight.code == "jump" and bench.mode == "stopping"


def test_a_stall_of_the_machine_keeps_the_policy_on_mission_time(bench):
    """Two steps come too late: the policy's clock moves on by them and the one that is due; one command is sent."""
    bench.begin()
    bench.fly(0.5)
    steps, sent = bench.node.flight.steps, len(bench.commands)
    bench.lockstep.bus.advance(0.06)
    bench.publish()
    bench.fly(0.01, states=False)
    assert len(bench.commands) == sent + 1
    assert bench.node.flight.steps == steps + 3 and bench.node.flight.missed == 2


def test_on_the_ground_one_zero_setpoint_unlocks_the_thrust(lockstep, artifact):
    bench = Bench(lockstep, artifact, "crazyswarm2")
    for _ in range(5):
        signals = bench.draw()
        signals["base_pos_w"] = np.array([0.0, 0.0, 0.01])
        bench.publish(signals)
        bench.fly(0.02, states=False)
    assert [abs(c).max() for _, c in bench.commands] == [0.0]


def test_diagnostics_come_once_a_second_with_the_mode(bench):
    got, kind = [], "diagnostic_msgs/msg/DiagnosticArray"
    bench.own.subscribe("/diagnostics", kind, QOS["default"], lambda r: got.append(messages.decode(kind, r.data)))
    bench.fly(3.05)
    values = {v.key: v.value for v in got[-1].status[0].values}
    assert len(got) == 6 and values["mode"] == "ready" and got[-1].status[0].hardware_id == "crazyflie"
    assert {m.status[0].name.split(":")[0] for m in got} == {"policy_node", "guard_node"}


def test_the_summary_has_the_latencies(bench):
    bench.begin()
    bench.fly(1.0)
    summary = bench.node.summary()
    assert summary["latency_ms"]["p99"] == 0.0  # fake time: the state is used at the instant of its arrival
    assert summary["flights"][0]["steps"] == bench.node.flight.steps


def test_an_artifact_of_another_robot_is_refused(tmp_path, artifact):
    from dataclasses import replace

    other = replace(ROBOT, name="dragonfly")
    with pytest.raises(ArtifactError, match="for robot 'crazyflie', this robot is 'dragonfly'"):
        load_artifact(artifact, other, load_interface(ROBOT))


def test_a_damaged_artifact_is_refused(tmp_path, artifact):
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(artifact, broken)
    data = bytearray((broken / "policy.onnx").read_bytes())
    data[len(data) // 2] ^= 1
    (broken / "policy.onnx").write_bytes(data)
    with pytest.raises(ArtifactError, match="SHA-256"):
        load_artifact(broken, ROBOT, load_interface(ROBOT))


def test_it_sleeps_until_the_first_state_after_a_start(bench):
    """A busy wait at real-time priority would keep the robot's own process from sending that state."""
    bench.node.begin(1)
    assert bench.node.mode == "starting" and bench.node.deadline() > bench.node.transport.monotonic()


def test_a_start_with_a_number_that_no_mission_has_is_none(lockstep, artifact):
    bench = Bench(lockstep, artifact, "odometry")
    bench.fly(0.2)
    for number in (2**53 + 1, 2**63 - 1, 2**64 - 1):
        bench.begin(number)
        bench.fly(0.2)
        assert bench.node.mode == "ready" and not bench.node.flights
    bench.begin(2**53)
    bench.fly(0.2)
    assert bench.node.mode == "active"


def test_what_is_made_of_a_state_with_an_old_part_is_no_command(lockstep, artifact):
    """The controller hears nothing more of the second topic, the guard does: it judges what the command was made of."""
    bench = Bench(lockstep, artifact, "crazyswarm2")
    bench.fly(0.2)
    bench.begin(1)
    bench.fly(0.5)
    assert bench.node.mode == "active"
    lost = bench.node.state.endpoints[1].handle
    lost.callback = lambda received: None
    bench.fly(1.0)
    assert bench.guard.flight.code == "stale" and "made of an old state" in bench.guard.flight.reason
