"""The operator's stop as the guard hears it: set, silent, or said by several who do not know of each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from temporeal_bridge.guard.safety import Estop
from temporeal_bridge.guard.state_monitor import NOTHING, Reason
from temporeal_bridge.mission import ESTOP_SILENT
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS, Peer, Received, Transport

TOPIC, BOOL = "estop", "std_msgs/msg/Bool"
# A stop is heard from every publisher, and again from one that makes sure; to hear it twice is no harm.
STOPS = ("best_effort", "default")


def buttons(peers: Sequence[Peer]) -> list[str]:
    """Names of the stop buttons among those who publish on the topic, one for each: several publishers of one node are
    one button, two nodes of one name in two processes are two. Of publishers without a name nobody knows whose they
    are: each counts."""
    able = [peer for peer in peers if peer.type == BOOL]
    return [*(node for node, _ in sorted({(peer.node, peer.participant) for peer in able if peer.node})),
            *("a node without a name" for peer in able if not peer.node)]


class StopButton:
    """Topic ``estop``, of whichever nodes publish it.

    Args:
        rule: the profile's.
        pressed: called whenever somebody says that it is set.
        garbled: called for a message that cannot be read; it counts as set, for it is no leave to go on.

    Attributes:
        set: whether it was, by the last message.
        heard_at: when that came [s, monotonic].
        names: of the buttons (:func:`buttons`).
    """

    def __init__(
        self, transport: Transport, rule: Estop, pressed: Callable[[], None], garbled: Callable[[], None]
    ) -> None:
        self.transport, self.rule, self.pressed, self.garbled = transport, rule, pressed, garbled
        self.set, self.heard_at = False, -np.inf
        self.names, self.seen = list[str](), list[str]()  # in force; at the last look
        self.latches = False  # whether one of them has latched it
        for way in STOPS:
            transport.subscribe(TOPIC, BOOL, QOS[way], self._hear)

    @property
    def watched(self) -> bool:
        """Whether it must go on to be heard."""
        return self.rule.required or self.heard_at > -np.inf

    def _hear(self, received: Received) -> None:
        try:
            self.set = bool(messages.decode(received.type, received.data).data)
        except messages.MessageError:
            self.garbled()
            self.set = True
        self.heard_at = received.at
        if self.set:
            self.pressed()

    def look(self, commanded: bool) -> None:
        """Who publishes it? While the robot is ``commanded``, two looks must agree that there are several."""
        peers = self.transport.publishers(TOPIC)
        names = buttons(peers)
        before, self.seen = self.seen, names
        if len(names) < 2 or len(before) > 1 or not commanded:
            self.names = names
        if not self.latches and any(peer.type == BOOL and peer.qos.latched for peer in peers):
            self.latches = True  # it may have been pressed before
            self.transport.subscribe(TOPIC, BOOL, QOS["latched"], self._hear)

    def reason(self, now: float) -> Reason:
        """Why the robot must not move, as far as the operator is concerned."""
        if self.set:
            return "operator", "the operator's stop is set"
        if len(self.names) > 1:
            return "operator", (f"{', '.join(self.names)} publish on estop: one that falls silent, or is pressed "
                                "while another says no, would not be seen; let one of them say what all do (of one "
                                "that was killed and started again the bus forgets the first after some 10 s)")
        most = self.rule.heartbeat_s
        if self.watched and most is not None and now - self.heard_at > most:
            return "operator", f"{ESTOP_SILENT} {most:g} s"
        return NOTHING
