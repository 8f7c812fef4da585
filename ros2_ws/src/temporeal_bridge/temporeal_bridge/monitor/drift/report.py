"""What was noticed, in a sentence and as JSON."""

from __future__ import annotations

from typing import Any

from temporeal.robots.artifact.additions import DriftSpec
from temporeal_bridge.monitor.drift.detector import Drift

LESS = "weaker thrust (battery, propeller, motor) or more mass (payload)"
MORE = "stronger thrust or less mass"
ALIKE = "thrust alone cannot tell these apart"


def sentence(found: Drift, spec: DriftSpec) -> str:
    """The event in words."""
    than = ("at this flight's beginning" if found.kind == "change" else
            f"nominal, beyond the {percent(spec.ratio[0])} to {percent(spec.ratio[2])} trained for")
    less = found.ratio < 1.0 if found.kind == "change" else found.ratio < spec.ratio[0]
    size = f"{abs(100 * (found.ratio - 1)):.0f} % {'less' if found.ratio < 1 else 'more'}"
    mass = 100 * (1 / found.ratio - 1)
    return (f"thrust per mass is {size} (90 %: {percent(found.low)} to {percent(found.high)}) than {than}, since "
            f"{found.since:.1f} s: {LESS if less else MORE}; as mass alone it would be {mass:+.0f} %; {ALIKE}")


def percent(ratio: float) -> str:
    """A ratio as a signed share."""
    return f"{100 * (ratio - 1):+.0f} %"


def content(found: Drift, spec: DriftSpec, flight: int, start_ns: int) -> dict[str, Any]:
    """The event for machines: times are s since the mission began."""
    return {"flight": flight, "start_ns": start_ns, "kind": found.kind, "ratio": found.ratio, "low": found.low,
            "high": found.high, "since": found.since, "t": found.at, "trained": list(spec.ratio),
            "text": sentence(found, spec)}
