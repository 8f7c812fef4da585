"""A point in the plane that moves with the velocity it is told: the single integrator, x' = u.

It exists in simulation only. Planners of temporal-logic tasks are compared on it since their beginnings, with walls,
doors and keys that are part of the formula: stlpy (Kurtz and Lin, "Mixed-Integer Programming for Signal Temporal Logic
with Fewer Binary Variables", L-CSS 2022), and the environment "Linear" of TGPO (Meng, Chen, Fan, arXiv 2510.00225),
whose numbers are not public. Nobody has measured it: every number here is chosen, and the gain's range with it.

The position is ``base_pos_w``, m, in the plane z = 0; the velocity ``base_vel_w`` is what it was told, times the gain.
"""

from __future__ import annotations

from math import sqrt
from pathlib import Path

from temporeal.robots.signals import CommandSpec, SignalSpec, schema
from temporeal.robots.spec import Parameter, RobotSpec, Source

HERE = Path(__file__).parent

SPEED = 1.0  # m/s along each axis

SPEC = RobotSpec(
    name="linear",
    kind="planar",
    signals=schema(SignalSpec("base_pos_w", (3,), "m", "w"), SignalSpec("base_vel_w", (3,), "m/s", "w")),
    commands={"vel_cmd": CommandSpec("vel_cmd", (2,), "m/s", "w", low=(-SPEED,) * 2, high=(SPEED,) * 2)},
    limits={"speed_m_s": (0.0, sqrt(2) * SPEED)},
    home={"base_pos_w": (0.0,) * 3, "base_vel_w": (0.0,) * 3},
    parameters={"speed_gain": Parameter((1.0,), (0.9,), (1.1,), "1", "velocity per commanded velocity, chosen here")},
    model=HERE / "model.xml",
    sources={"base_pos_w": Source("pos", ("base",)), "base_vel_w": Source("lin_vel", ("base",))},
    actuators={"vel_cmd": ("x", "y")},
)  # fmt: skip
