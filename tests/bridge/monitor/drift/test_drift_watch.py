"""The watch of a stream: when it must be silent, and the whole way through nodes in fake time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.bridge.monitor.drift.quadrotors import DT, G, spec

from temporeal.robots.artifact.additions import DriftSpec
from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.signals import CommandSpec
from temporeal.robots.spec import load_robot
from temporeal_bridge.guard_node import GuardNode
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.link.in_process import linked
from temporeal_bridge.mission import CommandRecord, MissionStatus
from temporeal_bridge.monitor.drift.watch import DriftWatch
from temporeal_bridge.monitor_node import MonitorNode
from temporeal_bridge.recording import records
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import MemoryTransport
from temporeal_bridge.transports.transport import QOS

COMMAND = CommandSpec("ctbr_cmd", (4,), "N,rad/s", "b", low=(0.0, -6.0, -6.0, -6.0), high=(20.0, 6.0, 6.0, 6.0))
START = 5_000_000_000
Stream = dict[str, Any]


class Hover:
    """A watched hover whose thrust falls by ``loss`` at ``when``: the robot falls, as commands go on. ``of`` changes
    what is told of a step: sent, proposed, step, height, velocity; None in place of it: nothing is."""

    def __init__(self, **changes: Any) -> None:
        self.said: list[dict[str, Any]] = []
        self.watch = DriftWatch(spec(ratio=(0.5, 1.0, 2.0), **changes), COMMAND, 1 / DT, self.said.append)
        self.rng = np.random.default_rng(0)

    def fly(self, seconds: float = 8.0, when: float = 4.0, loss: float = 0.2,
            of: Callable[[float, Stream], Stream] = lambda t, told: told) -> list[dict[str, Any]]:
        self.watch.on_status(MissionStatus("active", 1, START))
        speed = 0.0
        for k in range(round(seconds / DT)):
            t = DT * k
            speed -= loss * G * DT * (t >= when)
            told = of(t, {"sent": G, "proposed": G, "step": k, "height": 1.0,
                          "velocity": np.array([0.0, 0.0, speed]) + self.rng.normal(0.0, 0.02, 3)})
            if told.get("sent") is not None:
                sent, asked = (np.array([told[name], 0.0, 0.0, 0.0]) for name in ("sent", "proposed"))
                self.watch.on_command(CommandRecord(1, told["step"], 0.0, t, t, sent, asked, [0]))
            if told.get("velocity") is not None:
                self.watch.on_state(0, START + round(1e9 * (t + DT)), lambda told=told: {
                    "base_vel_w": told["velocity"], "base_quat_w": np.array([1.0, 0.0, 0.0, 0.0]),
                    "base_pos_w": np.array([0.0, 0.0, told["height"]])})
            self.watch.advance(START + round(1e9 * (t + DT)))
        return self.said


def test_it_says_what_changed_since_when_and_what_it_cannot_tell_apart():
    (event,) = Hover().fly()
    assert event["kind"] == "change" and event["flight"] == 1 and event["start_ns"] == START
    assert 4.0 < event["t"] <= 6.0 and event["since"] == pytest.approx(4.0, abs=0.4)
    assert event["low"] <= 0.8 <= event["high"] and event["high"] - event["low"] < 0.15
    assert "% less" in event["text"] and "battery, propeller, motor" in event["text"]
    assert "payload" in event["text"] and "cannot tell these apart" in event["text"]


@pytest.mark.parametrize("silent", [
    {"height": 0.1},  # on the ground, and where the ground is felt
    {"sent": 2.0, "proposed": 2.0},  # near idle
    {"proposed": 15.0},  # the guard sent less than was asked for
    {"step": -1, "proposed": np.nan},  # a command of the guard's own
    {"sent": None},  # no command arrives
    {"velocity": None}])  # no state arrives
def test_it_is_silent_while_nothing_can_be_said(silent):
    """From before the loss to the end the flight is one of these: no event."""
    assert Hover().fly(of=lambda t, told: {**told, **silent} if t >= 3.9 else told) == []


def test_samples_that_are_missing_now_and_then_hide_nothing():
    """Three states of ten are lost, and a second of them."""
    hover = Hover()

    def lossy(t: float, told: Stream) -> Stream:
        return {**told, "velocity": None} if hover.rng.random() < 0.3 or 4.5 < t < 5.5 else told

    (event,) = hover.fly(of=lossy)
    assert event["kind"] == "change" and event["low"] <= 0.8 <= event["high"]


def test_a_landing_is_no_drift():
    """Down from a metre: in the last 0.25 m the ground lifts and then holds it, with less and less thrust."""
    def landing(t: float, told: Stream) -> Stream:
        if t < 4.0:
            return told
        height = max(1.0 - 0.5 * (t - 4.0), 0.0)
        lift = G if height > 0.25 else G * max(0.9 - 0.3 * (t - 5.5), 0.0)
        return {**told, "height": height, "sent": lift, "proposed": lift}

    assert Hover().fly(seconds=9.0, loss=0.0, of=landing) == []


def test_a_new_mission_begins_anew():
    hover = Hover()
    assert len(hover.fly()) == 1
    assert hover.watch.detector.said[-1].all()
    hover.watch.on_status(MissionStatus("finished", 1, START))
    assert not hover.watch.running
    hover.watch.on_status(MissionStatus("active", 2, START))
    assert hover.watch.running and not hover.watch.detector.said[-1].any() and not hover.watch.states


def crazyflie() -> DriftSpec:
    """The spec's nominal Crazyflie, with the delays of the simulated one and its noise."""
    p = {name: each.nominal for name, each in load_robot("crazyflie").parameters.items()}
    up, down, drag = ((p[name][-1],) * 3 for name in ("tau_up", "tau_down", "drag"))
    return DriftSpec("the spec", p["mass"][0], p["thrust_curve"], p["thrust_curve"], up, down, (0.0, 0.02, 0.04), drag,
                     (0.85, 1.0, 1.25), 0.02)


@pytest.mark.slow
def test_a_robot_that_loses_thrust_in_a_mission_is_noticed_by_the_node(lockstep, artifact, tmp_path, capsys):
    """Simulated robot, controller, guard and monitor: nominal, nothing is said; with 15 % less thrust from 2.8 s on,
    the monitor says so on its topic and in its log before the formula is violated, for which the guard stops."""
    pytest.importorskip("mujoco")
    from temporeal_bridge.controller.loading import load_artifact
    from temporeal_bridge.policy_node import Options, PolicyNode
    from temporeal_bridge.robot_sim import RobotSim, SimOptions

    robot, interface = load_robot("crazyflie"), load_interface(load_robot("crazyflie"))
    manifest = replace(load_manifest(artifact), drift=crazyflie(), schema_version=4)
    bus = {name: MemoryTransport(lockstep.bus, name, "/cf1")
           for name in ("robot_sim", "policy_node", "monitor_node", "guard_node", "peer")}
    flying = lockstep.add(bus["robot_sim"], RobotSim(bus["robot_sim"], robot, interface, SimOptions(out=tmp_path)))
    ends = linked()
    lockstep.add(bus["policy_node"], PolicyNode(
        bus["policy_node"], load_artifact(artifact, robot, interface), robot, interface, ends[0],
        Options(after="silence")))
    guard = lockstep.add(bus["guard_node"], GuardNode(
        bus["guard_node"], load_manifest(artifact), robot, interface, ends[1]))
    monitor = lockstep.add(bus["monitor_node"], MonitorNode(bus["monitor_node"], manifest, robot, interface))
    heard: list[dict[str, Any]] = []
    bus["peer"].subscribe("monitor/drift", "std_msgs/msg/String", QOS["latched"],
                          lambda r: heard.append(records.read("monitor/drift", r)))

    def fly(number: int, loss: float) -> None:
        for topic in ("sim/reset", "mission/start"):
            kind = "std_msgs/msg/UInt64"
            bus["peer"].publish(bus["peer"].advertise(topic, kind, QOS["default"]),
                                messages.encode(kind, messages.record(kind)(data=number)))
            lockstep.run(0.2)
        lockstep.run(2.6)
        if loss:
            flying.plant.body.set_params({"motor_gain": np.full(4, 1.0 - loss)})
        lockstep.run(6.0, until=lambda: len(monitor.mission.results) >= number)
        lockstep.run(0.3)
        bus["peer"].wait(0.0)

    fly(1, 0.0)
    assert heard == [] and monitor.summary()["drift"] == []
    fly(2, 0.15)
    (event,) = heard
    assert event["flight"] == 2 and event["kind"] == "change" and event["ratio"] == pytest.approx(0.85, abs=0.04)
    assert 2.6 < event["t"] < 4.8 and json.dumps(monitor.summary()["drift"])
    assert "less" in capsys.readouterr().err
    good, bad = monitor.mission.results
    assert (good["verdict"], bad["verdict"], guard.flight.code) == ("satisfied", "violated", "violated")
    assert event["t"] < bad["time_s"] - 0.5  # this policy sags: the formula is violated later
