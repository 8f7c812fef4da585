"""The operator's stop button (topic ``estop``): whether it is pressed, silent, or ambiguous."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from temporeal_bridge.guard.safety.profile import Estop
from temporeal_bridge.guard.safety.reasons import NOTHING, Reason
from temporeal_bridge.mission import ESTOP_SILENT
from temporeal_bridge.transports.transport import Peer

TOPIC, BOOL = "estop", "std_msgs/msg/Bool"


def buttons(peers: Sequence[Peer]) -> list[str]:
    """Names of the stop buttons among the topic's publishers, one for each: several publishers of one node are one
    button, two nodes of one name in two processes are two. Publishers without a name count singly, because nobody knows
    whose they are."""
    able = [peer for peer in peers if peer.type == BOOL]
    return [*(node for node, _ in sorted({(peer.node, peer.participant) for peer in able if peer.node})),
            *("a node without a name" for peer in able if not peer.node)]


class StopButton:
    """The stop button, whichever nodes publish it. Times are in s, monotonic.

    Args:
        rule: the requirements.
        latched: called once when a publisher latches the topic: the button may have been pressed before.

    Attributes:
        set: whether it was pressed, by the last message.
        heard_at: when that arrived.
        names: of the buttons (:func:`buttons`).
    """

    def __init__(self, rule: Estop, latched: Callable[[], None] = lambda: None) -> None:
        self.rule, self.latched, self.latches = rule, latched, False
        self.set, self.heard_at = False, -inf
        self.names, self.seen = list[str](), list[str]()  # in force; at the last check

    @property
    def watched(self) -> bool:
        """Whether it must be heard regularly."""
        return self.rule.required or self.heard_at > -inf

    def hear(self, pressed: bool, at: float) -> None:
        """A message arrived."""
        self.set, self.heard_at = pressed, at

    def look(self, peers: Sequence[Peer], commanded: bool) -> None:
        """The topic's publishers. While the robot is ``commanded``, two checks must agree that there are several."""
        names = buttons(peers)
        before, self.seen = self.seen, names
        if len(names) < 2 or len(before) > 1 or not commanded:
            self.names = names
        if not self.latches and any(peer.type == BOOL and peer.qos.latched for peer in peers):
            self.latches = True
            self.latched()

    def reason(self, now: float) -> Reason:
        """Why the robot must not move, as far as the operator is concerned."""
        if self.set:
            return "operator", "the operator's stop is set"
        if len(self.names) > 1:
            return "operator", (f"{', '.join(self.names)} publish on estop: if one falls silent, or is pressed while "
                                "another says no, that would not be noticed; let one of them publish for all (if one "
                                "was killed and started again, the bus forgets the first after some 10 s)")
        most = self.rule.heartbeat_s
        if self.watched and most is not None and now - self.heard_at > most:
            return "operator", f"{ESTOP_SILENT} {most:g} s"
        return NOTHING
