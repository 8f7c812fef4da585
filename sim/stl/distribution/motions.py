"""How witnesses move: ways along corners at the speed limits, and what signals the commands give.

- ``point``: x' = u, one velocity per control period (sim/systems/linear.py).
- ``cart``: turns in place, then rolls straight (sim/systems/unicycle.py), v and yaw rate per control period.
- ``glider``: x'' = u, from rest to rest between corners, below a speed and an acceleration: a stand-in for robots that
  have no motion in closed form.

Commands are float32 [T, A]; signals are float64 and are computed from the commands alone, as whoever reads a witness
computes them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import atan2, ceil, hypot, pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from temporeal.robots.spec import RobotSpec, load_robot
from temporeal.sim.stl.distribution.settings import World

Floats = NDArray[Any]
Pose = tuple[Floats, float]
"""Position [D] m and heading rad."""
SLIGHT = 1e-9  # m or rad: a way that is none
_COMMAND = {"point": "vel_cmd", "cart": "twist_cmd"}
TOLERANCE = 1e-5  # of a limit: float32's rounding
GLIDER_TOLERANCE = 1e-4  # share of a limit: the same, summed up


@cache
def loaded(robot: str) -> RobotSpec:
    """The spec of ``robot``, read once: half of a formula's time otherwise."""
    return load_robot(robot)


def go(world: World, pose: Pose, target: Floats) -> tuple[Floats, Pose]:
    """Commands [n, A] from ``pose`` straight to ``target`` [D], at rest at both, at the limits; the pose there."""
    return _GO[world.model](world, pose, target)


def still(world: World, count: int) -> Floats:
    """``count`` commands [count, A] that move nothing."""
    return np.zeros((count, len(limits(world)[0])))


def pace(world: World) -> float:
    """m/s: the greatest speed along a line."""
    return world.speed if world.model == "glider" else float(limits(world)[1][0])


def limits(world: World) -> tuple[Floats, Floats]:
    """Least and greatest command [A]."""
    if world.model == "glider":
        most = np.full(len(world.low), world.acceleration)
        return -most, most
    found = loaded(world.robot).commands
    if list(found) != [_COMMAND[world.model]]:
        raise ValueError(f"a {world.model} takes {_COMMAND[world.model]}; robot {world.robot!r} has {', '.join(found)}")
    command, = found.values()
    return np.asarray(command.low), np.asarray(command.high)


def signals(world: World, start: tuple[float, ...], heading: float, commands: Floats) -> dict[str, Floats]:
    """Signals [T+1, 3] (and of a cart the attitude [T+1, 4]) from rest at ``start`` [3] under ``commands`` [T, A]."""
    u, dt = np.asarray(commands, np.float64), world.dt
    places = np.tile(np.asarray(start, np.float64), (len(u) + 1, 1))
    out = {world.signal: places}
    if world.model == "point":
        places[1:, : u.shape[1]] += np.cumsum(dt * u, 0)
    elif world.model == "cart":
        turned = heading + np.concatenate([[0.0], np.cumsum(dt * u[:, 1])])
        half = 0.5 * dt * u[:, 1]
        chord, mean = dt * u[:, 0] * np.sinc(half / pi), turned[:-1] + half
        places[1:, :2] += np.cumsum(chord[:, None] * np.stack([np.cos(mean), np.sin(mean)], 1), 0)
        zero = np.zeros_like(turned)
        out["base_quat_w"] = np.stack([np.cos(0.5 * turned), zero, zero, np.sin(0.5 * turned)], 1)
    else:
        places[1:, : u.shape[1]] += np.cumsum(dt * (_speeds(world, u)[:-1] + 0.5 * dt * u), 0)
    return out


def broken_limit(world: World, commands: Floats) -> str | None:
    """What of ``commands`` [T, A] the robot cannot do; None: it can."""
    low, high = limits(world)
    u = np.asarray(commands, np.float64)
    if u.ndim != 2 or u.shape[1] != len(low):
        return f"commands are [T, {len(low)}], got {list(u.shape)}"
    beyond = (u < low - TOLERANCE) | (u > high + TOLERANCE) | ~np.isfinite(u)
    if beyond.any():
        k, axis = (int(x) for x in np.argwhere(beyond)[0])
        return (f"command {u[k, axis]:g} of axis {axis} at {k * world.dt:g} s is outside {low[axis]:g} to "
                f"{high[axis]:g}")
    if world.model == "glider":
        for name, rows, most in (("acceleration", u, world.acceleration), ("speed", _speeds(world, u), world.speed)):
            if (found := float(np.linalg.norm(rows, axis=1).max(initial=0.0))) > most * (1 + GLIDER_TOLERANCE):
                return f"the {name} is {found:g}; at most {most:g} is legal"
    return None


def _speeds(world: World, u: Floats) -> Floats:
    """Velocities [T+1, D] of a glider."""
    return np.concatenate([np.zeros((1, u.shape[1])), np.cumsum(world.dt * u, 0)])


def _point(world: World, pose: Pose, target: Floats) -> tuple[Floats, Pose]:
    way = target - pose[0]
    most = limits(world)[1]
    count = ceil(float((np.abs(way) / (most * world.dt)).max()) - SLIGHT)
    return np.tile(way / (max(count, 1) * world.dt), (count, 1)), (target, pose[1])


def _cart(world: World, pose: Pose, target: Floats) -> tuple[Floats, Pose]:
    (x, y), heading = target - pose[0], pose[1]
    far = hypot(x, y)
    if far < SLIGHT:
        return np.zeros((0, 2)), pose
    forward, turn = limits(world)[1] * world.dt
    angle = (atan2(y, x) - heading + pi) % (2 * pi) - pi
    turns, rolls = ceil(abs(angle) / turn - SLIGHT), ceil(far / forward - SLIGHT)
    rows = np.zeros((turns + rolls, 2))
    rows[:turns, 1] = angle / (max(turns, 1) * world.dt)
    rows[turns:, 0] = far / (rolls * world.dt)
    return rows, (target, heading + angle)


def _glider(world: World, pose: Pose, target: Floats) -> tuple[Floats, Pose]:
    """``m`` periods faster, ``c`` as fast, ``m`` slower: a way of a dt^2 m (m + c)."""
    way = target - pose[0]
    far = float(np.linalg.norm(way))
    if far < SLIGHT:
        return still(world, 0), pose
    most = world.acceleration
    wanted = far / (most * world.dt ** 2)
    m = max(1, min(int(world.speed / (most * world.dt) + SLIGHT), ceil(sqrt(wanted))))
    both = max(m, ceil(wanted / m - SLIGHT), ceil(far / (world.speed * world.dt) - SLIGHT))
    row = way / (world.dt ** 2 * m * both)
    return np.concatenate([np.tile(row, (m, 1)), still(world, both - m), np.tile(-row, (m, 1))]), (target, pose[1])


_GO: dict[str, Callable[[World, Pose, Floats], tuple[Floats, Pose]]] = {
    "point": _point, "cart": _cart, "glider": _glider}
