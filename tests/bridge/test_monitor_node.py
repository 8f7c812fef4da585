"""The monitor node by itself: how it evaluates, how long one step may last, how a mission ends."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.artifact.manifest import identity, mission_digest, to_json
from temporeal.robots.spec import load_robot
from temporeal.sim.stl.monitoring import kernels
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.monitor.held_samples import HeldSamples
from temporeal_bridge.monitor.mission_monitor import BEHIND_S, LATE_S
from temporeal_bridge.monitor_node import OWN, MonitorNode
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.transport import QOS

ROBOT = load_robot("crazyflie")
SLOW = "G[0,20] (height > 0.9 -> O[0,4] (height > 0.8))"


class Watched:
    """A monitor node whose samples are put in by hand."""

    def __init__(self, artifact: Path, **changes: Any) -> None:
        self.bus = Bus()
        self.transport = MemoryTransport(self.bus, "monitor_node", "/cf1")
        self.node = MonitorNode(
            self.transport, replace(load_manifest(artifact), **changes), ROBOT, load_interface(ROBOT))
        self.peer = MemoryTransport(self.bus, "peer", "/cf1")
        self.mission = self.peer.advertise("mission", "std_msgs/msg/Header", QOS["latched"])
        self.started = 0

    def say(self, mode: str) -> None:
        self.peer.publish(self.mission, messages.encode(
            "std_msgs/msg/Header", messages.header(self.started, f"{mode} 0")))
        self.transport.wait(0.0)

    def begin(self) -> None:
        self.started = self.transport.now()
        self.say("active")

    def see(self, height: float, seconds: float = 0.0) -> None:
        """A state now; then time passes."""
        for held in self.node.mission.held:
            held.add(self.transport.now(), lambda: {"height": np.float64(height)})
        self.bus.advance(seconds)


@pytest.mark.parametrize("garbage", [b"", b"garbled", messages.encode(
    "std_msgs/msg/Header", messages.header(5, "active one")), messages.encode(
    "std_msgs/msg/Header", messages.header(5, ""))])
def test_what_no_guard_says_neither_ends_it_nor_begins_a_mission(artifact, garbage):
    watched = Watched(artifact)
    watched.begin()
    start = watched.node.mission.start
    watched.peer.publish(watched.mission, garbage)
    watched.transport.wait(0.0)
    assert watched.node.mission.running and (watched.node.mission.start, watched.node.mission.flight) == (start, 0)
    assert watched.node.mission.rejected == 1
    watched.say("finished")
    assert watched.node.mission.end is not None


def test_a_mission_whose_number_comes_again_is_a_new_one(artifact):
    """An operator says `start 1`, stops, resets, and says it again."""
    watched = Watched(artifact, formula="G[0,1] (height > 0.2)", rate_hz=50.0, horizon_s=1.0)
    for height in (1.0, 0.0):
        watched.begin()
        for _ in range(80):
            watched.see(height, 0.02)
            watched.node.step()
        watched.say("finished")
        watched.bus.advance(1.0)
    told = [(row["flight"], row["verdict"]) for row in watched.node.mission.results]
    assert told == [(0, "satisfied"), (0, "violated")]
    first, second = (row["start_ns"] for row in watched.node.mission.results)
    assert first < second == watched.started


def test_a_mission_that_another_follows_is_kept_undecided(artifact):
    """The documented first start: stopped by word in mid-motion, reset, started again."""
    watched = Watched(artifact, formula="G[0,1] (height > 0.2)", rate_hz=50.0, horizon_s=1.0)
    for _ in range(2):
        watched.begin()
        for _ in range(20):
            watched.see(1.0, 0.02)
            watched.node.step()
        watched.say("stopping")
    told = watched.node.summary()["flights"]
    assert [(row["verdict"], row["final"], row["samples"] > 0) for row in told] == [("undecided", False, True)] * 2
    first, second = (row["start_ns"] for row in told)
    assert first < second == watched.started


def test_a_goal_that_is_heard_of_late_was_there_before(artifact):
    """DDS brings what was latched when it has found the one who said it: half a second, once, and the first mission of
    a simulated arm was undecided. A goal that changes holds from then on."""
    arm, number = load_robot("franka"), "std_msgs/msg/Float64MultiArray"
    rows = [{"topic": "goal", "type": number, "codec": "array", "rate_hz": 0, "qos": "latched",
             "options": {"signal": "goal_pos_w", "shape": [3]}}]
    how = load_interface(arm, None, {"definitions": {}, "states": rows, "signals": {
        "goal_pos_w": {"shape": [3], "unit": "m", "frame": "w"}}})
    manifest = replace(load_manifest(artifact), formula="G[0,1] (goal_pos_w.x > 0.5)", rate_hz=50.0, horizon_s=1.0)
    bus = Bus()
    transport, peer = (MemoryTransport(bus, name, "/arm") for name in ("monitor_node", "peer"))
    node = MonitorNode(transport, manifest, arm, how)
    goal = peer.advertise("goal", number, QOS["latched"])
    for said, verdict in ((1.0, "satisfied"), (0.0, "violated")):
        node.mission.begin(0, transport.now())
        for k in range(80):
            node.mission.held[0].add(transport.now(), dict)
            if k == 25:
                peer.publish(goal, messages.encode(number, messages.array64(np.array([said, 0.0, 0.0]))))
            transport.wait(0.0)
            node.step()
            bus.advance(0.02)
        assert (node.mission.results[-1]["verdict"], node.mission.results[-1]["lost"]) == (verdict, 0)
        assert node.mission.results[-1]["upper"] == pytest.approx(said - 0.5)


def test_numpy_for_the_usual_and_numba_for_what_numpy_is_too_slow_for(artifact, capsys):
    assert Watched(artifact).node.summary()["compiled"] is False
    assert Watched(artifact, formula=SLOW, rate_hz=50.0).node.summary()["compiled"] is False
    node = Watched(artifact, formula=SLOW, rate_hz=500.0).node
    assert node.summary()["compiled"] is True
    assert capsys.readouterr().err == ""


def test_without_numba_the_log_says_that_it_may_fall_behind(artifact, monkeypatch, capsys):
    monkeypatch.setattr(kernels, "compiled_kernels", lambda: None)
    node = Watched(artifact, formula=SLOW, rate_hz=500.0).node
    said = capsys.readouterr().err
    assert node.summary()["compiled"] is False
    assert said.startswith("monitor_node: warning: an update of the formula may take 16.") and said.count("\n") == 1
    assert "the sample period is 2 ms" in said and "needs numba" not in said and "numba, which is not installed" in said


def test_a_step_is_short_and_what_is_behind_is_said_once_and_made_good(artifact, capsys):
    watched = Watched(artifact, formula="G[0,10] (height > 0.2)", rate_hz=50.0)
    node, update, seen = watched.node, watched.node.mission.formula.update, []

    def slow(sample: Any) -> Any:
        watched.bus.advance(0.03)  # longer than the period of 20 ms
        seen.append(sample)
        return update(sample)

    node.mission.formula.update = slow
    watched.begin()
    for _ in range(100):
        watched.see(1.0, 0.01)
        before, taken = watched.transport.monotonic(), len(seen)
        node.step()
        assert watched.transport.monotonic() - before < 0.09 and len(seen) - taken <= 2
    assert node.mission.behind and node.deadline() <= watched.transport.monotonic()  # it wants to go on at once
    while node.mission.behind:
        node.step()
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 1 and " s behind at mission time " in warnings[0] and "20 ms" in warnings[0]
    assert BEHIND_S <= float(warnings[0].split()[2]) < BEHIND_S + 0.1
    mission = node.mission
    assert len(seen) == mission.samples and mission.held[0].last - watched.started < mission.samples * 0.02e9


def test_windows_without_an_end_are_decided_where_the_mission_ends(artifact):
    watched = Watched(artifact, formula="G (height > 0.2) & F (height > 0.9)", rate_hz=50.0, horizon_s=inf)
    node = watched.node
    watched.begin()
    for k in range(50):
        watched.see(0.5 + 0.01 * k, 0.02)
        node.step()
    assert node.mission.running and node.mission.formula.reading.verdict == "undecided" and not node.mission.results
    watched.say("stopping")
    watched.bus.advance(0.01)
    for _ in range(5):
        watched.see(0.0, 0.02)  # what comes after the end does not count
        node.step()
    watched.say("finished")
    (result,) = node.mission.results
    assert result["verdict"] == "satisfied" and result["final"] and not node.mission.running
    assert result["lower"] == result["upper"] == pytest.approx(0.5 + 0.49 - 0.9)
    assert json.dumps(node.summary()["flights"]) == json.dumps([result])


def test_bounded_windows_are_watched_to_their_horizon_whatever_the_controller_says(artifact):
    watched = Watched(artifact, formula="G[0,1] (height > 0.2)", rate_hz=50.0)
    watched.begin()
    watched.see(1.0, 0.02)
    watched.say("stopping")
    for k in range(60):
        watched.see(1.0 if k < 40 else 0.1, 0.02)
        watched.node.step()
    assert [r["verdict"] for r in watched.node.mission.results] == ["violated"]


def test_it_warns_before_the_formula_is_violated(artifact):
    """Height 0.23 m over a floor of 0.2 m: nothing is broken, but no more than 3 cm of robustness are left."""
    watched = Watched(artifact, formula="G[0,2] (height > 0.2)", rate_hz=50.0, horizon_s=2.0)
    said: list[tuple[str, bool]] = []
    watched.peer.subscribe("monitor/verdict", "std_msgs/msg/String", QOS["deep"], lambda r: said.append(
        (lambda row: (row["verdict"], row.get("at_risk", False)))(json.loads(messages.decode(r.type, r.data).data))))
    watched.begin()
    for height in (1.0, 0.6, 0.26, 0.23, 0.5, 0.5, 0.1, 0.1):
        watched.see(height, 0.02)
        watched.node.step()
    watched.peer.wait(0.0)
    # one sample is always waited for; violated is said once
    assert said == [("undecided", False), ("undecided", True), ("violated", False)]


def test_a_verdict_says_what_it_judges_and_one_of_an_own_formula_is_told_elsewhere(artifact):
    """What is on ``monitor/verdict`` the guard reads: a formula of the user's own must not be there."""
    manifest, interface, bus = load_manifest(artifact), load_interface(ROBOT), Bus()
    peer, heard = MemoryTransport(bus, "peer", "/cf1"), dict[str, Any]()
    for topic in ("monitor/verdict", "monitor/own/verdict"):
        peer.subscribe(topic, "std_msgs/msg/String", QOS["latched"], lambda r: heard.__setitem__(
            r.topic, json.loads(messages.decode(r.type, r.data).data)))
    MonitorNode(MemoryTransport(bus, "monitor_node", "/cf1"), manifest, ROBOT, interface)
    own = replace(manifest, formula="G[0,4] (height > 5)")
    MonitorNode(MemoryTransport(bus, "monitor", "/cf1"), own, ROBOT, interface, topics=OWN)
    peer.wait(0.0)
    assert {topic: (said["artifact"], said["mission"]) for topic, said in heard.items()} == {
        "/cf1/monitor/verdict": (identity(manifest), mission_digest(to_json(manifest))),
        "/cf1/monitor/own/verdict": (identity(own), mission_digest(to_json(own)))}
    assert heard["/cf1/monitor/own/verdict"]["mission"] != heard["/cf1/monitor/verdict"]["mission"]


def test_only_what_is_in_force_at_a_grid_point_is_read(artifact):
    """An arm says its joints a thousand times a second, and where its tool is must be computed each time."""
    watched = Watched(artifact, formula="G[0,1] (height > 0.2)", rate_hz=50.0)
    read: list[int] = []

    def reading(k: int) -> Any:
        return lambda: read.append(k) or {"height": np.float64(1.0)}

    def see(k: int) -> None:
        for held in watched.node.mission.held:
            held.add(watched.transport.now(), reading(k))
        watched.bus.advance(0.001)
        watched.node.step()

    for k in range(3000):
        see(k)
    assert read == [] and all(len(held.samples) <= 1e3 * LATE_S + 1 for held in watched.node.mission.held)
    watched.begin()
    for k in range(3000, 3200):
        see(k)
    mission = watched.node.mission
    assert mission.samples == 10 and len(read) == 10 * len(mission.held) and mission.lost == 0


@pytest.mark.parametrize("late_s", [0.0, 0.002, 0.02])
def test_time_zero_may_be_said_late(artifact, late_s):
    watched = Watched(artifact, formula="G[0,0.1] (height > 0.2)", rate_hz=50.0)
    for _ in range(300):
        watched.see(1.0, 0.001)
        watched.node.step()
    watched.started = watched.transport.now() - round(late_s * 1e9)
    watched.say("active")
    for _ in range(200):
        watched.see(1.0, 0.001)
        watched.node.step()
    assert [(row["verdict"], row["lost"]) for row in watched.node.mission.results] == [("satisfied", 0)]


class Spoken(Watched):
    """The states come as messages."""

    def __init__(self, artifact: Path, **changes: Any) -> None:
        super().__init__(artifact, **changes)
        self.states = [(row, self.peer.advertise(row.topic, row.type, QOS["default"]))
                       for row in load_interface(ROBOT).states]

    def message(self, height: float = 1.0, ahead_s: float = 0.0) -> None:
        signals = {"base_pos_w": np.array([0.0, 0.0, height]), "base_quat_w": np.array([1.0, 0.0, 0.0, 0.0]),
                   "base_vel_w": np.full(3, 0.0 * height), "base_ang_vel_b": np.full(3, 0.0 * height),
                   "height": np.float64(height)}
        stamp = self.transport.now() + round(1e9 * ahead_s)
        for row, endpoint in self.states:
            made = STATE_CODECS[row.codec].encode(signals, stamp, ("world", "cf1"), row.options)
            self.peer.publish(endpoint, messages.encode(row.type, made))
        self.transport.wait(0.0)
        self.bus.advance(0.01)
        self.node.step()


def test_messages_that_cannot_be_right_hide_no_others(artifact):
    """None that came first, none stamped far ahead, none just before a mission."""
    spoken = Spoken(artifact, formula="G[0,0.5] (height > 0.2)", rate_hz=50.0, horizon_s=0.5)
    spoken.message(np.nan)
    assert not spoken.node.mission.complete and spoken.node.mission.rejected > 0
    spoken.message()
    assert spoken.node.mission.complete
    for k in range(20):
        spoken.message(np.nan if k in (5, 19) else 1.0, 1000.0 if k == 5 else 0.0)
    spoken.begin()
    for _ in range(60):
        spoken.message()
    assert [(row["verdict"], row["lost"]) for row in spoken.node.mission.results] == [("satisfied", 0)]


def test_a_message_that_cannot_be_right_leaves_the_one_before_it_in_force():
    held = HeldSamples()
    held.add(1, lambda: {"height": np.float64(1.0)})
    held.add(2, lambda: None)
    held.add(2, lambda: {"height": np.float64(5.0)})  # not newer than the last
    held.add(9, lambda: {"height": np.float64(2.0)})
    assert held.at(5, 10.0) == {"height": 1.0} and held.at(8, 7.0) == {"height": 1.0} and held.at(8, 6.0) is None
    assert held.passed(8) and not held.passed(9) and held.at(9, 0.0) == {"height": 2.0}


def test_bytes_that_are_no_state_are_counted(artifact):
    watched = Watched(artifact)
    topic = load_interface(ROBOT).states[0]
    endpoint = watched.peer.advertise(topic.topic, topic.type, QOS["default"])
    watched.peer.publish(endpoint, b"\0\1\0\0no state")
    watched.transport.wait(0.0)
    assert watched.node.mission.rejected == 1 and not watched.node.mission.complete
    assert watched.node.summary()["state_rejected"] == 1
