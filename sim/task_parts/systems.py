"""The system of a robot: an entry of ``sim/systems``, or what its kind makes of its spec."""

from __future__ import annotations

from temporeal.robots.registry import UnknownName, names, resolve
from temporeal.robots.spec import load_robot
from temporeal.sim.system import System
from temporeal.sim.task_parts.arms.arm import arm
from temporeal.sim.task_parts.arms.system import arm_system
from temporeal.sim.task_parts.quadrotor_system import quadrotor_system
from temporeal.sim.task_parts.quadrotors import quadrotor

REGISTRY = "temporeal.sim.systems"


def system_of(name: str) -> System:
    """The system called ``name``, or that of the arm or quadrotor of this name or folder."""
    if name in names(REGISTRY):
        made: System = resolve(REGISTRY, name).make()
        return made
    try:
        robot = load_robot(name)
    except UnknownName as error:
        raise UnknownName(f"no system {name!r}; known: {', '.join(names(REGISTRY))}, or a robot that is an arm or a "
                          f"quadrotor ({error})") from error
    if robot.kind == "quadrotor":
        return quadrotor_system(quadrotor("stl", name))
    return arm_system(arm("stl", name))
