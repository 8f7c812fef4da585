"""What flights show of a quadrotor (ratios, and scales beside them), as the parameters that a simulator takes.

Motion shows thrust per mass, torque per inertia, drag per mass; mass, arm and torque per thrust only fix their scale
(:mod:`temporeal.sim.identification.parameters`). Identification and the randomization from its posterior
(:mod:`temporeal.sim.randomization.posterior`) both go through here.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import numpy as np
from numpy.typing import NDArray

from temporeal.sim.physics.quadrotor.dynamics import GRAVITY

Numbers = NDArray[np.float64]

AXES = ("x", "y", "z")
SIGN_X, SIGN_Y = np.array([1.0, -1.0, -1.0, 1.0]), np.array([-1.0, -1.0, 1.0, 1.0])
"""Of a rotor's place, as in the simulator's ``wrench``."""
SIGN_YAW = SIGN_X * SIGN_Y

NEEDED = ("mass", "arm", "torque_per_thrust", "thrust_to_mass", "curve_linear", "tau_up", "tau_down", "delay",
          *(f"torque_to_inertia_{a}" for a in AXES), *(f"drag_to_mass_{a}" for a in AXES), "centre_x", "centre_y",
          "gain_roll", "gain_pitch", "gain_yaw")
"""What :func:`simulator_parameters` is made of."""
EXPONENT = "voltage_exponent"
"""Power of the battery's voltage in rotor speed, for :func:`on_battery`."""
POSITIVE = ("mass", "arm", "torque_per_thrust", "thrust_to_mass", "tau_up", "tau_down",
            *(f"torque_to_inertia_{a}" for a in AXES))
"""Those of which identification fits the logarithm."""
MADE = ("mass", "inertia", "thrust_curve", "torque_per_thrust", "tau_up", "tau_down", "arm", "drag", "motor_gain",
        "command_delay")
"""Parameters that the simulator is given."""

LINEAR = (-0.5, 0.95)
"""Of ``curve_linear``, in what is drawn: beyond, a rotor pulls down over a third of its speeds, or its curve has no
quadratic part left, by which the simulator finds the speed that a thrust needs."""
LEAST_GAIN = 0.2
"""Of a rotor, in what is drawn: differences of gains are fitted without an end, and no rotor pulls down."""


def simulator_parameters(q: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """The parameters of the quadrotor's simulators by name, [P, size] each, of quantities ``q`` [P] in their units.

    ``arm * thrust / inertia`` of one rotor is the torque to inertia, from which the inertia follows. A centre of mass
    that is off by c moves torque as gains do that differ by c / arm, and is given to the simulator so: it has no other
    parameter for it.
    """
    full = q["mass"] * q["thrust_to_mass"] / 4  # N of one rotor
    gains = 1 + (np.outer(q["gain_roll"] - q["centre_y"] / q["arm"], SIGN_Y)
                 + np.outer(q["gain_pitch"] - q["centre_x"] / q["arm"], SIGN_X) + np.outer(q["gain_yaw"], SIGN_YAW))
    zero = np.zeros_like(full)
    levers = (q["arm"], q["arm"], q["torque_per_thrust"])
    return {
        "mass": q["mass"][:, None],
        "inertia": np.stack([lever * full / q[f"torque_to_inertia_{a}"] for a, lever in zip(AXES, levers)], 1),
        "thrust_curve": np.stack([zero, full * q["curve_linear"], full * (1 - q["curve_linear"])], 1),
        "torque_per_thrust": q["torque_per_thrust"][:, None], "tau_up": q["tau_up"][:, None],
        "tau_down": q["tau_down"][:, None], "arm": np.stack([q["arm"]] * 2, 1),
        "drag": np.stack([q[f"drag_to_mass_{a}"] * q["mass"] for a in AXES], 1), "motor_gain": gains,
        "command_delay": np.maximum(q["delay"], 0.0)[:, None],
    }


def possible(q: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """Quantities ``q`` [P] with what is fitted without an end cut to what can be: drag, the thrust curve's form."""
    out = dict(q) | {f"drag_to_mass_{a}": np.maximum(q[f"drag_to_mass_{a}"], 0.0) for a in AXES}
    out["curve_linear"] = np.clip(q["curve_linear"], *LINEAR)
    return out


def drawn_parameters(q: Mapping[str, Numbers], share: Numbers | None, period: float = inf) -> dict[str, Numbers]:
    """:func:`simulator_parameters` of what was drawn, cut to what is :func:`possible`.

    Args:
        share: [P] voltage over the reference's; None: as at the reference. period: of control, s; the simulator keeps
            one previous command, so that none acts later than that.
    """
    out = simulator_parameters(possible(q))
    out["motor_gain"] = np.maximum(out["motor_gain"], LEAST_GAIN)
    out["command_delay"] = np.minimum(out["command_delay"], period)
    return out if share is None else on_battery(out, share, q[EXPONENT])


def on_battery(made: Mapping[str, Numbers], share: Numbers, exponent: Numbers) -> dict[str, Numbers]:
    """``made`` at ``share`` [P] of the reference voltage: a command turns rotors ``share ** exponent`` times as fast,
    which is the same as another thrust curve."""
    factor = (share**exponent)[:, None]
    return dict(made) | {"thrust_curve": made["thrust_curve"] * factor ** np.arange(3)}


def lifted(made: Mapping[str, Numbers]) -> Numbers:
    """[P] of the weight, what all rotors lift at full command."""
    return np.asarray(made["thrust_curve"].sum(1) * made["motor_gain"].sum(1) / (made["mass"][:, 0] * GRAVITY))
