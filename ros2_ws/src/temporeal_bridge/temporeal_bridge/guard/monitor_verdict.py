"""What the formula monitor says of the guard's mission."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from temporeal.robots.artifact.manifest import Manifest, mission_digest, to_json
from temporeal_bridge.guard.flight import Flight


class Verdict(NamedTuple):
    """Whether the formula is violated, or at risk of it; ``upper``: the largest robustness that is still possible."""

    violated: bool
    at_risk: bool
    upper: Any


def monitor_verdict(text: str, flight: Flight, manifest: Manifest, identity: str) -> Verdict | None:
    """The verdict in a message of the monitor; None: it is about another mission or formula. ValueError, AttributeError
    or RecursionError: the message is no JSON object."""
    said = json.loads(text)
    began = said.get("start_ns", flight.start_ns)  # older monitors did not say it
    ours = (said.get("flight"), began) == (flight.number, flight.start_ns)
    found = Verdict(said.get("verdict") == "violated", bool(said.get("at_risk")), said.get("upper"))
    if ours and "mission" in said:  # nor which formula they judge
        ours = said.get("artifact") == identity or said["mission"] == mission_digest(to_json(manifest))
    return found if ours else None
