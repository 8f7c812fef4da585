"""What the formula monitor says of the guard's mission."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from temporeal.robots.artifact.manifest import Manifest, mission_digest, to_json
from temporeal_bridge.guard.flight import Flight

LONGEST = 400  # characters of an instruction or a reason that the guard repeats


class Verdict(NamedTuple):
    """Whether the formula is violated, or at risk of it; ``upper``: the largest robustness that is still possible;
    ``told``: in words, what was to be done and why it was not, where the mission was said in words; else empty."""

    violated: bool
    at_risk: bool
    upper: Any
    told: str = ""


def monitor_verdict(text: str, flight: Flight, manifest: Manifest, identity: str) -> Verdict | None:
    """The verdict in a message of the monitor; None: it is about another mission or formula. ValueError, AttributeError
    or RecursionError: the message is no JSON object."""
    said = json.loads(text)
    began = said.get("start_ns", flight.start_ns)  # older monitors did not say it
    ours = (said.get("flight"), began) == (flight.number, flight.start_ns)
    told = ": ".join(str(said[key])[:LONGEST] for key in ("instruction", "why") if said.get(key))
    found = Verdict(said.get("verdict") == "violated", bool(said.get("at_risk")), said.get("upper"), told)
    if ours and "mission" in said:  # nor which formula they judge
        ours = said.get("artifact") == identity or said["mission"] == mission_digest(to_json(manifest))
    return found if ours else None
