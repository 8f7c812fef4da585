"""The Shadow hand's guard before its simulated driver: J0 within its limits on the way, and what silence leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("mujoco")

from temporeal.robots.artifact.manifest import Manifest, identity
from temporeal.robots.shadow_hand.spec import COUPLED, JOINTS, MOTORS, SPEED
from temporeal.robots.spec import load_robot
from temporeal_bridge.guard_node import GuardNode
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.link import datagrams
from temporeal_bridge.link.datagrams import Proposal
from temporeal_bridge.link.in_process import linked
from temporeal_bridge.robot_sim import RobotSim, SimOptions
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import MemoryTransport
from temporeal_bridge.transports.transport import QOS

ROBOT = load_robot("shadow_hand")
MANIFEST = Manifest(
    name="grip", robot="shadow_hand", signals=(ROBOT.signals["joint_pos"],),
    commands=(ROBOT.command("actuator_pos_cmd"),), rate_hz=20.0, memory=(), formula="G[0,10] (joint_pos[0] < 3)",
    constants={}, horizon_s=10.0, stop="ramp", training={}, versions={}, seed=0, git_revision="test",
    created="2026-01-01T00:00:00Z", files={})
J0 = [MOTORS.index(motor) for motor in COUPLED]


class Hand:
    """A guard, a controller, and the simulated hand, on one bus in fake time."""

    def __init__(self, lockstep: Any, settings: dict[str, Any]) -> None:
        self.lockstep, interface = lockstep, load_interface(ROBOT)
        bus = MemoryTransport(lockstep.bus, "robot_sim", "/hand")
        self.sim = lockstep.add(bus, RobotSim(bus, ROBOT, interface, SimOptions(settings=settings)))
        ends = linked()
        self.controller = ends[0]
        transport = MemoryTransport(lockstep.bus, "guard_node", "/hand")
        self.guard = lockstep.add(transport, GuardNode(transport, MANIFEST, ROBOT, interface, ends[1]))
        self.peer, self.topic = MemoryTransport(lockstep.bus, "peer", "/hand"), interface.command("actuator_pos_cmd")
        self.modes: list[str] = []
        self.sent: list[Any] = []
        self.peer.subscribe("mission", "std_msgs/msg/Header", QOS["latched"], lambda r: self.modes.append(
            messages.decode(r.type, r.data).frame_id))
        self.peer.subscribe(self.topic.topic, self.topic.type, QOS["deep"], lambda r: self.sent.append(
            messages.decode(r.type, r.data)))
        self.step = -1

    def run(self, seconds: float, command: np.ndarray | None = None) -> None:
        """Let time pass; ``command`` is proposed at 20 Hz."""
        for _ in range(round(seconds / 0.05)):
            if command is not None:
                self.step, now = self.step + 1, self.peer.monotonic()
                self.controller.send(Proposal(datagrams.COMMAND, 1, self.step, 5, now, now, command))
            self.lockstep.run(0.05)
            self.peer.wait(0.0)

    def begin(self) -> None:
        self.controller.send(Proposal(datagrams.HELLO, text=identity(MANIFEST)))
        self.run(0.5)
        assert self.modes[-1].startswith("ready")
        self.controller.send(Proposal(datagrams.BEGIN, 1, -1, 5))

    def actuators(self) -> np.ndarray:
        return self.sim.plant.signals()["actuator_pos"]


@pytest.fixture
def hand(lockstep):
    made = Hand(lockstep, {"start": {"joint_rad": 0.0}})
    made.begin()
    return made


def test_fingers_close_within_their_limits_and_rest_where_silence_finds_them(hand):
    start = hand.actuators().astype(float)
    goal = start.copy()
    goal[J0] = 1.0
    hand.run(2.0, goal)
    assert hand.modes[-1].startswith("active") and hand.sim.rejected == 0
    assert hand.actuators()[J0] == pytest.approx(1.0, abs=0.05)
    assert len(hand.sent) >= 39 and all(len(m.joint_names) == 24 for m in hand.sent)
    last = dict(zip(hand.sent[-1].joint_names, hand.sent[-1].points[-1].positions))
    assert set(last) == {f"rh_{joint}" for joint in JOINTS}
    for motor, pair in COUPLED.items():
        assert [last[f"rh_{joint}"] for joint in pair] == pytest.approx([0.5, 0.5], abs=1e-6), motor
    fastest = np.max([np.abs(p.velocities) for m in hand.sent for p in m.points], axis=0)
    of = {joint: motor for motor, pair in COUPLED.items() for joint in pair}
    top = [SPEED[MOTORS.index(of.get(name[3:], name[3:]))] * (0.5 if name[3:] in of else 1.0)
           for name in hand.sent[0].joint_names]
    assert (fastest <= np.array(top) + 1e-6).all() and fastest.max() > 0.3

    hand.run(1.0)  # the controller is silent
    assert hand.modes[-1].startswith("holding") and "controller" in hand.guard.flight.reason
    rest = hand.actuators()
    hand.run(0.5)
    assert hand.actuators() == pytest.approx(rest, abs=0.01) and rest[J0] == pytest.approx(1.0, abs=0.05)


def test_a_sum_beyond_its_end_is_not_sent(hand):
    """4 rad for J0: the guard sends pi at most, so neither joint is told more than a right angle."""
    goal = hand.actuators().astype(float)
    goal[J0[0]] = 1.0
    hand.run(0.1, goal)
    goal[J0[0]] = 4.0
    hand.run(3.0, goal)
    place = hand.sent[-1].joint_names.index("rh_FFJ1")
    most = max(p.positions[place] for m in hand.sent for p in m.points)
    assert 1.0 < most <= np.pi / 2 + 1e-9


def test_a_start_far_from_the_sum_is_refused(hand):
    goal = hand.actuators().astype(float)
    goal[J0[1]] += 0.6
    hand.run(0.2, goal)
    assert not hand.sent and hand.modes[-1].startswith("stopped")
    assert "component 7 is 0.59" in hand.guard.flight.reason and MOTORS[7] == "MFJ0"
