"""Franka: an arm whose actions move the point between its fingertips, which keeps its attitude, at 25 Hz."""

from __future__ import annotations

from temporeal.sim.system import System
from temporeal.sim.task_parts.arms.arm import arm
from temporeal.sim.task_parts.arms.system import arm_system


def make() -> System:
    """The system."""
    return arm_system(arm("stl", "franka"))
