"""The figures of one mission that the guard keeps."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from temporeal_bridge.mission import AGES, percentiles


@dataclass
class Flight:
    """One mission; on a robot of any kind it is called a flight.

    Args:
        number, start_ns: its number and time zero, as the controller says them.
        began: when it did, s monotonic.
        step: the last one taken.
        sent: commands; limited: those that were changed; bridged: the guard's own, in place of late ones.
        dropped: proposals of another mission, or older than the last.
        swapped: after which step which artifact (identity) took over.
        code, reason: why it was stopped.
        action: the stop action under way, or the last one; answer: the one for the reason, which a later stop may have
            replaced.
        latency_s: from the state's arrival at the controller to the command's departure; latency_ms: its percentiles,
            once the next mission began.
    """

    number: int
    start_ns: int = 0
    began: float = 0.0
    step: int = -1
    sent: int = 0
    limited: int = 0
    bridged: int = 0
    dropped: int = 0
    swapped: list[Any] = field(default_factory=list)
    code: str = ""
    reason: str = ""
    action: str = ""
    answer: str = ""
    latency_s: deque[float] = field(default_factory=lambda: deque(maxlen=AGES))
    latency_ms: dict[str, float | None] | None = None

    def cleared(self) -> Flight:
        """The same mission without figures."""
        return Flight(self.number, self.start_ns, self.began)

    def close(self) -> None:
        """Keep percentiles only."""
        self.latency_ms, self.latency_s = percentiles(list(self.latency_s)), deque(maxlen=AGES)

    def summary(self) -> dict[str, Any]:
        """For the summary of the process."""
        return {
            "flight": self.number, "start_ns": self.start_ns, "sent": self.sent, "limited": self.limited,
            "bridged": self.bridged, "dropped": self.dropped, "code": self.code, "reason": self.reason,
            "action": self.answer or self.action, "swapped": self.swapped,
            "latency_ms": self.latency_ms or percentiles(list(self.latency_s))}
