"""A unicycle: it rolls forward along its heading and turns, x' = v cos(yaw), y' = v sin(yaw), yaw' = w.

The kinematics of every cart with two driven wheels that do not slip (G. Campion, G. Bastin, B. d'Andrea-Novel, T-RA
1996). It exists in simulation only; the environment "Unicycle" of TGPO (Meng, Chen, Fan, arXiv 2510.00225) is of this
kind, but its numbers are not public. Nobody has measured this one: every number is chosen here, about those of small
carts, and the gains' ranges with them.

Signals: ``base_pos_w``, m, in the plane z = 0; ``base_quat_w`` wxyz, a turn about z; ``base_vel_w``, m/s, along the
heading. Body frame: x forward, y left, z up.
"""

from __future__ import annotations

from pathlib import Path

from temporeal.robots.signals import CommandSpec, SignalSpec, schema
from temporeal.robots.spec import Parameter, RobotSpec, Source

HERE = Path(__file__).parent

FASTEST, BACK = 1.0, -0.2  # m/s along the heading: backwards only to get out of a corner
TURN = 1.5  # rad/s

SPEC = RobotSpec(
    name="unicycle",
    kind="planar",
    signals=schema(
        SignalSpec("base_pos_w", (3,), "m", "w"), SignalSpec("base_quat_w", (4,), "wxyz", "w"),
        SignalSpec("base_vel_w", (3,), "m/s", "w")),
    # speed along the heading and yaw rate; mixed units, so the unit names both
    commands={"twist_cmd": CommandSpec("twist_cmd", (2,), "m/s,rad/s", "b", low=(BACK, -TURN), high=(FASTEST, TURN))},
    limits={"speed_m_s": (BACK, FASTEST), "yaw_rate_rad_s": (-TURN, TURN)},
    home={"base_pos_w": (0.0,) * 3, "base_quat_w": (1.0, 0.0, 0.0, 0.0), "base_vel_w": (0.0,) * 3},
    parameters={
        "speed_gain": Parameter((1.0,), (0.9,), (1.1,), "1", "speed per commanded speed (wheels' radius), chosen here"),
        "turn_gain": Parameter((1.0,), (0.9,), (1.1,), "1", "yaw rate per commanded one (wheels' base), chosen here")},
    model=HERE / "model.xml",
    sources={
        "base_pos_w": Source("pos", ("base",)), "base_quat_w": Source("quat", ("base",)),
        "base_vel_w": Source("lin_vel", ("base",))},
    actuators={"twist_cmd": ("forward", "turn")},
)  # fmt: skip
