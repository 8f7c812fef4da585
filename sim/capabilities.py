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


NOT_SIMULATED = {
    "quadrotor": "joints, contacts and objects: jointed robots are simulated by mujoco, robots in the plane by planar",
    "planar": "flight, joints, contacts and objects: quadrotors are simulated by quadrotor, jointed robots by mujoco",
    **dict.fromkeys(("mujoco_warp", "isaacgym", "isaaclab"),
                    "rotors and robots in the plane: quadrotors are simulated by quadrotor and mujoco, the others by "
                    "planar")}
"""By backend, what it does not simulate, and who does."""
SIMULATED = {"quadrotor": ("quadrotors", ("quadrotor",)), "planar": ("robots in the plane", ("planar",))}
"""By backend that is for few kinds of robots: them in words, and their kinds."""
ROTORS = ("quadrotor", "planar")  # kinds that backends for jointed robots leave out


def require_kind(backend: str, robot: str, kind: str) -> None:
    """Refuse ``robot`` of ``kind`` where ``backend`` does not simulate it; the message says what else it leaves out."""
    words, kinds = SIMULATED.get(backend, ("jointed robots", ()))
    if kind in kinds or (not kinds and kind not in ROTORS):
        return
    raise MissingCapability(f"backend {backend} simulates {words}; robot {robot!r} is of kind {kind!r}. It does not "
                            f"simulate {NOT_SIMULATED[backend]}")


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
        left_out = NOT_SIMULATED.get(backend.split()[0])
        more = f". It does not simulate {left_out}" if left_out else ""
        raise MissingCapability(f"backend {backend!r} lacks {told}; it has: {', '.join(sorted(has))}{more}")
    return has
