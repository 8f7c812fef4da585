"""What backends can do, by name. What a task or a setting needs is asked for when a backend is made."""

from __future__ import annotations

from collections.abc import Iterable

CAPABILITIES = {
    "objects": "scenes with objects beside the robot",
    "arms": "jointed robots: arms, hands, legs",
    "deterministic": "the same results for any number of worlds and threads",
    "full_state": "state() continues bit-exactly",
    "wrench": "forces and torques on bodies, as parameters (force_w, torque_w)",
    "delay": "a delay of the command of its own in each world, in physics steps",
    "gravity": "gravity of its own in each world",
    "mass": "masses and inertias that change between episodes",
    "overflow": "status().overflow is meaningful",
    "cuda": "worlds on a GPU",
}


class MissingCapability(ValueError):
    """A backend was asked for what it cannot do."""


def require(backend: str, has: Iterable[str], needs: Iterable[str]) -> frozenset[str]:
    """``has``, if it covers ``needs``; an unknown or missing capability is an error that lists what there is."""
    has, needs = frozenset(has), frozenset(needs)
    unknown = needs - set(CAPABILITIES)
    if unknown:
        raise ValueError(f"no such capability: {', '.join(sorted(unknown))}; legal: {', '.join(CAPABILITIES)}")
    if missing := sorted(needs - has):
        told = "; ".join(f"{name} ({CAPABILITIES[name]})" for name in missing)
        raise MissingCapability(f"backend {backend!r} lacks {told}; it has: {', '.join(sorted(has))}")
    return has
