"""How a robot behind ROS 2 gets to where an episode can begin. A simulated robot is put there; a real one is not.

``Simulated`` orders it of ``robot_sim``, the process that stands for the robot: no machine has such a topic.
``Standing`` is for a machine: before the world is reset a person has put things back (the actor's ``reset=ask``), or a
second policy has, through the same guard (``reset=POLICY``, :mod:`temporeal.policies.robot_learning.resets`).
"""

from __future__ import annotations

from typing import Protocol

from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS, Endpoint, Received, Transport

NUMBER = "std_msgs/msg/UInt64"
AGAIN_S = 2.0  # between orders to a robot that does not answer
SETTLE_S = 0.1  # after "the robot is there": several states of the new episode have arrived. As in `deploy --sim`


class Reset(Protocol):
    """Brings the robot to a start. ``limit_s``: for which it may take at most; s. ``what``: who is waited for."""

    limit_s: float
    what: str

    def ask(self, number: int) -> None:
        """Episode ``number`` is to begin."""

    def done(self) -> bool:
        """Whether the robot is there."""


class Simulated:
    """``sim/reset`` with the episode's number as seed; ``sim/episode`` says that it is done."""

    limit_s, what = 10.0, "the simulated robot (sim/episode)"

    def __init__(self, transport: Transport) -> None:
        self.transport, self.wanted, self.at, self.since, self.asked = transport, -1, -1, 0.0, 0.0
        self.endpoint: Endpoint = transport.advertise("sim/reset", NUMBER, QOS["default"])
        transport.subscribe("sim/episode", NUMBER, QOS["latched"], self._on_episode)

    def _on_episode(self, received: Received) -> None:
        self.at, self.since = int(messages.decode(received.type, received.data).data), received.at

    def ask(self, number: int) -> None:
        """See :class:`Reset`."""
        self.wanted, self.at, self.asked = number, -1, self.transport.monotonic()
        self.transport.publish(self.endpoint, messages.encode(NUMBER, messages.record(NUMBER)(data=number)))

    def done(self) -> bool:
        """See :class:`Reset`. What was said before the robot listened is said again."""
        if self.at != self.wanted and self.transport.monotonic() >= self.asked + AGAIN_S:
            self.ask(self.wanted)
        return self.at == self.wanted and self.transport.monotonic() >= self.since + SETTLE_S


class Standing:
    """The robot is where it is: whoever lets episodes begin has seen to that."""

    limit_s, what = 1.0, "nobody"

    def __init__(self, transport: Transport) -> None:
        """Nothing is advertised: no order of ours moves a robot to a start."""

    def ask(self, number: int) -> None:
        """See :class:`Reset`."""

    def done(self) -> bool:
        """See :class:`Reset`."""
        return True
