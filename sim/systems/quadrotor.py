"""Quadrotor: the Crazyflie by collective thrust and body rates at 50 Hz, in a room of 5 m by 5 m by 2.5 m."""

from __future__ import annotations

from temporeal.sim.system import System
from temporeal.sim.task_parts.quadrotor_system import quadrotor_system
from temporeal.sim.task_parts.quadrotors import quadrotor


def make() -> System:
    """The system."""
    return quadrotor_system(quadrotor("stl", "crazyflie"), "quadrotor")
