"""Why the guard stops a robot: a code, by which the stop action is chosen, and a text for the operator."""

from __future__ import annotations

Reason = tuple[str, str]
"""Code (a key of :data:`CODES`) and text. ("", ""): nothing is wrong."""
NOTHING: Reason = ("", "")

CODES = {
    "policy": "the policy failed, or its command has the wrong shape or is not finite",
    "silent": "the controller is silent",
    "stale": "the state is stale",
    "stamps": "the stamps of the state disagree with our clock",
    "frozen": "the state no longer changes",
    "jump": "the state jumped",
    "speeds": "a velocity disagrees with the change of its position",
    "tracking": "the robot does not follow its command",
    "start": "the robot is far from where the policy begins",
    "fence": "outside the geofence",
    "collision": "links would come too close to each other",
    "violated": "the formula is violated",
    "operator": "stopped by the operator",
    "publisher": "a competing publisher commands the robot",
    "inactive": "the node was deactivated",
    "autopilot": "the autopilot no longer obeys",
    "guard": "the guard itself failed",
}
