"""Who else publishes commands to the robot, and who publishes the operator's stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf

from temporeal_bridge.guard.checks.stop_button import TOPIC, StopButton
from temporeal_bridge.transports.transport import Peer

CHECK_S = 0.5  # interval between checks for competing publishers
IDLE_CHECK_S = 0.1  # the same before a mission, and once the guard was deactivated


class PublisherChecks:
    """Checked at intervals, because a look at the bus takes time. Times are in s, monotonic.

    Args:
        topics: on which the robot can be commanded.
        publishers: gives the publishers of a topic. resolve: gives its full name.
        button: is told of its own publishers, too.

    Attributes:
        competing: who else publishes commands, and where; "": nobody.
        next_at: when the next check is due.
    """

    def __init__(
        self, topics: Sequence[str], publishers: Callable[[str], Sequence[Peer]], resolve: Callable[[str], str],
        button: StopButton,
    ) -> None:
        self.topics, self.publishers, self.resolve, self.button = tuple(topics), publishers, resolve, button
        self.competing, self.next_at = "", -inf

    def look(self, now: float, commanded: bool, active: bool) -> None:
        """Check now. ``commanded``: the robot gets commands; ``active``: the node is active."""
        self.next_at = now + (CHECK_S if commanded and active else IDLE_CHECK_S)
        self.competing = competing_publishers({self.resolve(name): self.publishers(name) for name in self.topics})
        self.button.look(self.publishers(TOPIC), commanded)


def competing_publishers(publishers: Mapping[str, Sequence[Peer]]) -> str:
    """Publishers other than the guard, and where they publish; "": there are none. ``publishers``: by full name of the
    topic."""
    return ", ".join(f"{peer.node or 'a node without a name'} publishes on {topic}, too"
                     for topic, peers in publishers.items() for peer in peers if not peer.own)
