"""Physical parameters of quadrotors: nominal values, packed sets, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from temporeal.robots.spec import RobotSpec
from temporeal.sim.physics.quadrotor import dynamics as physics
from temporeal.sim.physics.quadrotor.layout import DISTURBANCES, PARAMETERS, RECIPROCAL


def nominal_params(robot: RobotSpec) -> dict[str, tuple[float, ...]]:
    """The parameters of ``robot`` by name, disturbances zero."""
    given = {name: robot.parameters[name].nominal for name in PARAMETERS if name not in DISTURBANCES}
    return given | {name: (0.0,) * PARAMETERS[name][1] for name in DISTURBANCES}


def controller_params(robot: RobotSpec) -> np.ndarray:
    """What the rate loop and mixer on the robot believe: the ``NOM_...`` values, float32 [NOMINAL_SIZE]."""
    p = {name: robot.parameters[name].nominal for name in ("inertia", "thrust_curve", "torque_per_thrust", "arm")}
    if p["thrust_curve"][2] <= 0:
        raise ValueError(f"thrust_curve {p['thrust_curve']} of {robot.name!r}: its quadratic coefficient must be > 0")
    return np.array(
        [*p["inertia"], *p["thrust_curve"], *p["torque_per_thrust"], *p["arm"]], dtype=np.float32
    )  # fmt: skip


def pack_params(params: Mapping[str, Tensor]) -> Tensor:
    """Parameters by name, [K, ...] each, in the form the derivative uses: [K, PARAM_SIZE]."""
    count = len(params["mass"])
    out = params["mass"].new_zeros(count, physics.PARAM_SIZE)
    for name, (field, size) in PARAMETERS.items():
        out[:, field : field + size] = params[name].reshape(count, size)
    for field in RECIPROCAL.values():
        out[:, field] = out[:, field].reciprocal()
    out[:, physics.INV_JX : physics.INV_JZ + 1] = params["inertia"].reciprocal()
    return out


def hover_speed(params: Mapping[str, Tensor]) -> Tensor:
    """Rotor speed [K, 4] at which four equal rotors carry the weight: each thrust is m g / 4 by its own curve."""
    c0, c1, c2 = params["thrust_curve"].unsqueeze(-1).unbind(-2)
    thrust = (0.25 * physics.GRAVITY * params["mass"]).unsqueeze(-1) / params["motor_gain"]
    root = (c1 * c1 + 4 * c2 * (thrust - c0)).clamp_min(0).sqrt()
    return ((root - c1) / (2 * c2)).clamp(0, 1)
