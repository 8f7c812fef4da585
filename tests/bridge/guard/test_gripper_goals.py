"""A gripper that takes an action gets a goal where the command changes, not with every command."""

from __future__ import annotations

import numpy as np
from tests.bridge import foreign_robots
from tests.bridge.guard.parts import stream

from temporeal.robots.motion.rate_limiter import at_rest
from temporeal_bridge.codecs.grippers import ACTION
from temporeal_bridge.guard.announcements import Announcements
from temporeal_bridge.guard.command_output import CommandOutput
from temporeal_bridge.guard.config import GuardConfig
from temporeal_bridge.guard.flight import Flight
from temporeal_bridge.guard.safety.config_checks import profile_on
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.recording.topics import robot_topics
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.transport import QOS


def test_goals_are_sent_where_they_differ(tmp_path):
    robot = foreign_robots.arm(tmp_path / "arm", gripper="action")
    found, spec, bus = load_interface(robot), robot.commands["arm_cmd"], Bus()
    of = GuardConfig(robot, found, spec, profile_on(robot, found, spec, 0.04))
    own, peer = MemoryTransport(bus, "guard_node", "/r"), MemoryTransport(bus, "peer", "/r")
    output = CommandOutput(own, stream(of), Announcements(own), None, lambda: [0, 0])
    goals, arms = [], []
    (gripper,) = of.topic.also
    peer.subscribe(gripper.topic, gripper.type, QOS["deep"], lambda r: goals.append(
        messages.decode(ACTION, r.data).position))
    peer.subscribe(of.topic.topic, of.topic.type, QOS["deep"], arms.append)
    home = np.array(robot.home["joint_pos"])

    def send(opening: float, flight: int = 1) -> None:
        command = np.append(home, opening)
        output.stream.motion = at_rest(command)
        bus.advance(0.04)
        output.send(command, own.monotonic(), Flight(flight, began=0.0), True)
        peer.wait(0.0)

    for opening in (0.0, 0.0005, 0.0, 0.02, 0.0202, 0.04, 0.04):  # 2 % of the stroke of 40 mm are 0.8 mm
        send(opening)
    assert goals == [0.0, 0.02, 0.04] and len(arms) == 7
    send(0.04, flight=2)  # somebody may have moved it meanwhile
    assert goals[3:] == [0.04]


def test_a_recorder_takes_no_goals(tmp_path):
    """Who subscribes to an action is its server."""
    found = load_interface(foreign_robots.arm(tmp_path / "arm", gripper="action"))
    topics = {name for name, _, _ in robot_topics(found, ["/r"])}
    assert "/r/joint_trajectory_controller/joint_trajectory" in topics
    assert not any("gripper_cmd" in name for name in topics)
