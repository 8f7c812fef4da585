"""Where a quadrotor's numbers lie: in the blocks of the state array, and in a packed parameter set. No torch.

The state array is a sequence of blocks, each a [FIELDS, BLOCK] tile: field f of world w lies at the flat index
``(w // BLOCK * FIELDS + f) * BLOCK + w % BLOCK``.
"""

from __future__ import annotations

from temporeal.sim.compiler import simd
from temporeal.sim.physics.quadrotor import dynamics as physics

BLOCK = simd.BLOCK  # worlds in a block
COMMAND = physics.STATE_SIZE  # the last command [4]
FIELDS = physics.STATE_SIZE + 4  # of a world in the state array

COMMANDS = ("motor_cmd", "ctbr_cmd")
SIGNALS = {
    "base_pos_w": (physics.PX, 3), "base_quat_w": (physics.QW, 4), "base_vel_w": (physics.VX, 3),
    "base_ang_vel_b": (physics.WX, 3), "rotor_speed": (physics.N0, 4),
}  # fmt: skip
"""Signal -> (first field, components) in the state."""
PARAMETERS = {
    "mass": (physics.INV_MASS, 1), "inertia": (physics.JX, 3), "thrust_curve": (physics.C0, 3),
    "torque_per_thrust": (physics.REACTION, 1), "tau_up": (physics.RATE_UP, 1), "tau_down": (physics.RATE_DOWN, 1),
    "arm": (physics.ARM_X, 2), "drag": (physics.DRAG_X, 3), "motor_gain": (physics.GAIN0, 4),
    "rate_gain": (physics.RATE_GAIN_X, 3), "wind_w": (physics.WIND_X, 3), "force_w": (physics.FORCE_X, 3),
    "torque_b": (physics.TORQUE_X, 3), "command_delay": (physics.DELAY, 1),
}  # fmt: skip
"""Parameter -> (first field, components) in a packed set."""
DISTURBANCES = ("wind_w", "force_w", "torque_b", "command_delay")
POSITIVE = ("mass", "inertia", "torque_per_thrust", "tau_up", "tau_down", "arm")
RECIPROCAL = {"mass": physics.INV_MASS, "tau_up": physics.RATE_UP, "tau_down": physics.RATE_DOWN}
"""Parameters of which a packed set holds the reciprocal, with its field."""


def shape_of(parameter: str) -> tuple[int, ...]:
    """Shape of the parameter in one world."""
    size = PARAMETERS[parameter][1]
    return () if size == 1 else (size,)
