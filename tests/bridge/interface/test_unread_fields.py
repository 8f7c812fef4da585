"""Fields that nobody reads refuse no message, and change no list of signals."""

from __future__ import annotations

import numpy as np

from temporeal.robots.spec import load_robot
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.interface.state_input import SPARED, StateInput, StateReader
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.transport import QOS

ROBOT = load_robot("crazyflie")
INTERFACE = load_interface(ROBOT)
ODOMETRY = INTERFACE.states[0]


def odometry(stamp: int, velocity: float = 0.0, length: float = 1.0) -> bytes:
    signals = {"base_pos_w": np.array([0, 0, 1.0]), "base_quat_w": np.array([1.0, 0, 0, 0]),
               "base_vel_w": np.full(3, velocity), "base_ang_vel_b": np.zeros(3)}
    message = STATE_CODECS[ODOMETRY.codec].encode(signals, stamp, ("w", "b"), ODOMETRY.options)
    message.pose.pose.orientation.w = length
    return messages.encode(ODOMETRY.type, message)


def test_an_attitude_that_nobody_reads_may_be_anything():
    reader = StateReader(ODOMETRY, INTERFACE.carried, ["height"])
    for k in range(2 * SPARED):
        complete = reader.message(ODOMETRY.type, odometry(k + 1, length=0.0))
        assert complete is not None
        found = reader.signals(complete[0])
        assert float(found["height"]) == 1.0
        assert "base_quat_w" not in found
    complete = reader.message(ODOMETRY.type, odometry(1000))
    for _ in range(SPARED + 1):
        found = reader.signals(complete[0])
    assert "base_quat_w" in found  # it is tried again: others may take over, and read it


def test_the_state_has_the_same_signals_throughout():
    """The log of steps is written by the signals of its first row; one that was left out ended the controller."""
    bus = Bus()
    transport, peer = (MemoryTransport(bus, name, "/cf1") for name in ("policy_node", "peer"))
    state = StateInput(transport, ROBOT, INTERFACE, wanted=["height"])
    publisher = peer.advertise(ODOMETRY.topic, ODOMETRY.type, QOS["default"])
    names = []
    for k, velocity in enumerate((0.0, float("nan"), 0.0)):
        peer.publish(publisher, odometry(1_000_000 * (k + 1), velocity))
        transport.wait(0.0)
        names.append(set(state.newest()))
    assert names[0] == names[1] == names[2]
    assert state.rejected == 0
