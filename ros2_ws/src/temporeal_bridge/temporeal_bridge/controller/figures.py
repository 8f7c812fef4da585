"""Figures of a controller's missions."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from temporeal_bridge.mission import AGES, percentiles


@dataclass
class FlightFigures:
    """Figures of one mission.

    Args:
        steps: control steps so far. missed: control periods without a step of their own.
        starved: control steps for which the policy had no command. starved_why: the last time.
        reason: why it ended early.
        instruction: what the policy was told; empty: nothing.
        planned: of a formula: its forecast, and what reading and planning it took.
        first_s: from the arrival of the state that the first command was made of to its departure.
        latency_s: from the state's arrival to the sent proposal. latency_ms: its percentiles, once the next mission
            began.
    """

    number: int
    start_ns: int = 0
    steps: int = 0
    missed: int = 0
    starved: int = 0
    starved_why: str = ""
    reason: str = ""
    instruction: str = ""
    planned: Mapping[str, Any] = field(default_factory=dict)
    first_s: float = 0.0
    latency_s: deque[float] = field(default_factory=lambda: deque(maxlen=AGES))
    latency_ms: dict[str, float | None] | None = None

    def close(self) -> None:
        """Keep percentiles only."""
        self.latency_ms, self.latency_s = percentiles(list(self.latency_s)), deque(maxlen=AGES)

    def summary(self) -> dict[str, Any]:
        """For the JSON file."""
        told = {"instruction": self.instruction} if self.instruction else {}
        if self.planned:
            took = self.planned["read_ms"] + self.planned["planned_ms"] + 1e3 * self.first_s
            told |= {"forecast": self.planned["forecast"], "formula_to_command_ms": took}
        return {"flight": self.number, "start_ns": self.start_ns, "steps": self.steps, "missed": self.missed,
                "reason": self.reason, **told, "latency_ms": self.latency_ms or percentiles(list(self.latency_s))}
