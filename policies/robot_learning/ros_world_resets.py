"""How a robot behind ROS 2 gets to where an episode can begin. A simulated robot is put there; a real one is not.

``Simulated`` orders it of ``robot_sim``, the process that stands for the robot: nothing like it exists on a machine.
``Operator`` waits until somebody says that the robot is there: a person who put it back, or a program that did, such as
a reset policy that was flown by a controller of its own. Either says so with ``mission/start``, as for any mission.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS, Endpoint, Received, Transport

NUMBER = "std_msgs/msg/UInt64"
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
        self.transport, self.wanted, self.at, self.since = transport, -1, -1, 0.0
        self.endpoint: Endpoint = transport.advertise("sim/reset", NUMBER, QOS["default"])
        transport.subscribe("sim/episode", NUMBER, QOS["latched"], self._on_episode)

    def _on_episode(self, received: Received) -> None:
        self.at, self.since = int(messages.decode(received.type, received.data).data), received.at

    def ask(self, number: int) -> None:
        """See :class:`Reset`."""
        self.wanted, self.at = number, -1
        self.transport.publish(self.endpoint, messages.encode(NUMBER, messages.record(NUMBER)(data=number)))

    def done(self) -> bool:
        """See :class:`Reset`."""
        return self.at == self.wanted and self.transport.monotonic() >= self.since + SETTLE_S


class Operator:
    """Somebody puts the robot back and says ``mission/start``. ``say``: shows an operator what is waited for."""

    what = "the operator (mission/start, once the robot is back at a start)"

    def __init__(self, transport: Transport, say: Callable[[str], None], limit_s: float = 600.0) -> None:
        self.say, self.limit_s, self.told = say, limit_s, False
        transport.subscribe("mission/start", NUMBER, QOS["default"], self._on_start)

    def _on_start(self, received: Received) -> None:
        self.told = True

    def ask(self, number: int) -> None:
        """See :class:`Reset`. What was said before is not about this episode."""
        self.told = False
        self.say(f"episode {number}: put the robot back, then say mission/start "
                 "(python -m temporeal_bridge.operator_messages start)")

    def done(self) -> bool:
        """See :class:`Reset`."""
        return self.told
