"""The guard's health, as it publishes it once a second."""

from __future__ import annotations

from typing import Any, NamedTuple

from temporeal_bridge.guard.mode_machine import ModeMachine
from temporeal_bridge.mission import IDLE, newest, percentiles

INTERVAL_S = 1.0
OK, WARN, ERROR = 0, 1, 2  # levels of diagnostic_msgs/DiagnosticStatus


class Input(NamedTuple):
    """Messages that could not be used: states that were rejected, and why the last one; malformed proposals; others."""

    rejected: int
    rejection: str
    malformed: int
    unreadable: int


def diagnostics(modes: ModeMachine, received: Input, now: float) -> tuple[int, str, dict[str, Any]]:
    """Level, message and values at the time ``now`` [s, monotonic]."""
    flight, checks, stop, output = modes.flight, modes.checks, modes.active_stop, modes.output
    competing = checks.publishers.competing
    level = ERROR if flight.reason or competing else WARN if received.rejected or flight.limited else OK
    values = {
        "mode": modes.mode, "flight": flight.number, "sent": flight.sent, "limited": flight.limited,
        "bridged": flight.bridged, "dropped": flight.dropped, "code": flight.code, "action": flight.action,
        "unheld": len(stop.unheld),
        "state_age_ms": f"{1e3 * checks.monitor.freshness.age(now):.1f}", "state_rejected": received.rejected,
        "state_rejection": received.rejection, "malformed": received.malformed, "unreadable": received.unreadable,
        "unpublished": output.announcements.unpublished, "blind": stop.blind,
        "autopilot": "" if modes.mode in IDLE else checks.autopilot(now),
        **{f"latency_{k}_ms": v for k, v in percentiles(newest(flight.latency_s)).items()},
    }
    return level, flight.reason or checks.controller.stranger or competing or modes.mode, values
