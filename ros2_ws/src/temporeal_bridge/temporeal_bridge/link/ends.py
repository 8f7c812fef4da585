"""The two ends of the link between controller and guard.

The controller proposes; the guard alone publishes to the robot. Proposals do not go over the bus: there anybody could
propose, and one hop over DDS costs more than the whole link.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from temporeal_bridge.link.datagrams import TAKEOVER, Answer, LinkError, Proposal, pack_answer, unpack

BUSY = pack_answer(Answer("refused", reason="another takeover is under way"))


class GuardEnd(Protocol):
    """The guard's end."""

    malformed: int

    def receive(self) -> list[Proposal]:
        """Datagrams of the controller in charge, and of a successor that asked (:data:`TAKEOVER`)."""

    def answer(self, answer: Answer, successor: bool = False) -> None:
        """Answer the controller in charge, or the successor; it may not listen."""

    def promote(self) -> None:
        """The successor is in charge from now on; datagrams of the other one are ignored."""

    def dismiss(self) -> None:
        """Ignore the successor from now on."""

    def release(self) -> None:
        """Listen to the controller that sends next."""

    def wait(self, timeout_s: float) -> None:
        """Wait for a datagram for at most ``timeout_s``."""

    def close(self) -> None:
        """End."""


class ControllerEnd(Protocol):
    """The controller's end."""

    def send(self, proposal: Proposal) -> bool:
        """Propose; False where no guard takes it. Never blocks."""

    def receive(self) -> list[Answer]:
        """The guard's answers since the last call."""

    def close(self) -> None:
        """End."""


class Parties:
    """Whom the guard listens to: the controller in charge, which sent first, and one that asked to succeed it."""

    def __init__(self) -> None:
        self.peer: str | None = None
        self.successor: str | None = None
        self.malformed = self.strangers = 0

    def accept(self, data: bytes, sender: str, send: Callable[[bytes, str], None]) -> Proposal | None:
        """The proposal in a datagram of ``sender``; None where it is ignored. ``send(answer, sender)`` refuses a second
        successor."""
        try:
            found: Proposal | None = unpack(data)
        except LinkError:
            found = None
        if found is not None and found.kind == TAKEOVER and sender != self.peer:
            if self.successor not in (None, sender):
                send(BUSY, sender)
            self.successor = self.successor or sender
        elif self.peer is None and sender != self.successor:
            self.peer = sender
        if sender not in (self.peer, self.successor):
            self.strangers += 1
        elif found is None:
            self.malformed += 1
        else:
            return found._replace(successor=True) if sender == self.successor else found
        return None

    def promote(self) -> None:
        """See :class:`GuardEnd`."""
        self.peer, self.successor = self.successor, None

    def dismiss(self) -> None:
        """See :class:`GuardEnd`."""
        self.successor = None

    def release(self) -> None:
        """See :class:`GuardEnd`."""
        self.peer = self.successor = None
