"""What of joints is identified, from what prior, and which parameters of the simulator it makes.

Each joint has its own armature, friction, gains and limit; all share the delay of commands, and an arm carries a tool.
What takes speed away is the joint's viscous friction and the servo's damping together, and motion shows the sum alone
(but for a servo at its limit): so the vector holds the sum, ``viscous``, and, apart, the servo's share of it, which
takes logged efforts to tell. The simulator's ``damping`` and ``kd`` are computed of both.

Priors are the ranges of the robot's spec, as the central 90 % of a normal distribution of the logarithm. Where the spec
has no range (a user's robot, whose file has one number or none) wide ones are assumed about what it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from temporeal.sim.identification.joints import stepping
from temporeal.sim.identification.joints.mechanism import Mechanism
from temporeal.sim.identification.parameters import Quantity, between, by_name, ratio
from temporeal.sim.identification.record import Numbers

OF_DOFS, OF_SERVOS = ("armature", "damping", "frictionloss"), ("kp", "kd", "strength")
ADDED = ("stribeck", "backlash")
"""What MuJoCo's joints do not have: identified, and no parameter of the simulator."""
MEANINGS = {
    "armature": "inertia of the motor, as the joint feels it",
    "viscous": "viscous friction and the servo's damping together (damping + kd)",
    "kd_share": "of viscous, that is the servo's", "frictionloss": "Coulomb friction",
    "stribeck": "friction at rest beyond Coulomb's", "kp": "gain of the servo",
    "strength": "the most that the servo exerts", "backlash": "dead zone of the servo's distance to its setpoint"}
WIDE = {"armature": 4.0, "damping": 5.0, "frictionloss": 5.0, "kp": 2.0, "kd": 3.0, "strength": 1.5}
"""Assumed where a spec has one number and no range: factors down and up from it."""
LEAST = 0.05
"""Share of the upper end that the lower end is taken to be where a spec's range begins at 0."""
FRICTION, DAMPING, ARMATURE = (3e-4, 0.1), (0.02, 0.5), (0.1, 2.0)
"""Assumed where the model has none: Coulomb friction in shares of what the servo exerts, viscous friction in shares of
the critical damping, armature in shares of the inertia at home."""
EXCESS = (0.02, 1.0)
"""Of Coulomb friction that rest has more: nothing that shows, up to as much again (contacts dry or barely lubricated:
Armstrong-Helouvry, Dupont and Canudas-de-Wit, Automatica 30(7), 1994, section 2)."""
PLAY = (5e-5, 0.02)
"""rad, up to 1.1 degrees, of joints that turn; a tenth of it in m where they slide."""
SLOW = (0.01, 0.2)
"""rad/s or m/s in which the Stribeck excess dies away."""
DELAY_S = (0.0, 0.04)
"""Assumed where the spec has none."""
LIGHT, LOAD = 0.5, 0.2
"""Shares of the tool's mass that it has at least, and of the robot's that it carries at most."""
REACH = 0.1
"""rad or m at which a servo without a limit is taken to exert its most, where friction is a share of that."""


def quantities(m: Mechanism) -> tuple[Quantity, ...]:
    """All that is identified, joint by joint, and what they share."""
    out = [each for j in range(len(m.names)) for each in of_joint(m, j)]
    out.append(ratio("stribeck_speed", "rad/s", *SLOW, "in which friction falls from that at rest to Coulomb's"))
    delay = m.robot.parameters.get("command_delay")
    low, high = (delay.low[0], delay.high[0]) if delay is not None and delay.high[0] > delay.low[0] else DELAY_S
    out.append(between("command_delay", "s", low, high, "of commands behind the log's times"))
    if m.carries:
        mass, name = float(m.mj.body_mass[m.tool]), m.mj.body(m.tool).name
        out.append(ratio("tool_mass", "kg", LIGHT * mass, mass + LOAD * float(m.mj.body_mass[1:].sum()),
                         f"of {name} with whatever it carries, at its centre"))
    return tuple(out)


def of_joint(m: Mechanism, j: int) -> Iterator[Quantity]:
    """Of one joint."""
    unit = "rad" if m.turns[j] else "m"
    units = {"armature": "kg m^2" if m.turns[j] else "kg", "viscous": f"N m s/{unit}", "kd_share": "1",
             "kp": f"N m/{unit}", "backlash": unit}
    for name, ends in acting(ranges(m, j)).items():
        text = units.get(name, "N m")
        yield (between if name == "kd_share" else ratio)(
            f"{name}[{m.names[j]}]", text if m.turns[j] else text.replace("N m", "N"), *ends, MEANINGS[name])


def acting(of: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """The ranges ``of`` a joint's parameters, with what acts in the place of damping and kd."""
    out = {name: ends for name, ends in of.items() if name not in ("damping", "kd")}
    (low, high), servo = of["damping"], of.get("kd")
    if servo is not None:
        out["kd_share"] = servo[0] / (servo[0] + high), servo[1] / (servo[1] + low)
        low, high = low + servo[0], high + servo[1]
    return out | {"viscous": (low, high)}


def ranges(m: Mechanism, j: int) -> dict[str, tuple[float, float]]:
    """The central 90 % of each parameter of a joint; what its model does not have is left out."""
    mj, dof, servo = m.mj, m.dofs[j], m.servos[j]
    kp, inertia = float(mj.actuator_gainprm[servo, 0]), float(m.drawn[0, dof, dof])
    limited = bool(mj.actuator_forcelimited[servo])
    most = float(mj.actuator_forcerange[servo, 1]) if limited else REACH * kp
    critical = 2 * (kp * inertia) ** 0.5
    own = {"armature": mj.dof_armature[dof], "damping": mj.dof_damping[dof], "frictionloss": mj.dof_frictionloss[dof],
           "kp": kp, "kd": -mj.actuator_biasprm[servo, 2], "strength": most if limited else 0.0}
    none = {"armature": (ARMATURE, inertia), "damping": (DAMPING, critical), "frictionloss": (FRICTION, most)}
    out = {}
    for name, value in own.items():
        found = published(m, name, j) or (
            (float(value) / WIDE[name], float(value) * WIDE[name]) if value > 0 else None)
        if found is None and name in none:
            shares, of = none[name]
            found = (shares[0] * of, shares[1] * of)
        if found is not None:
            out[name] = found
        if name == "frictionloss":
            middle = float(np.sqrt(out[name][0] * out[name][1]))
            out["stribeck"] = (EXCESS[0] * middle, EXCESS[1] * middle)
    scale = 1.0 if m.turns[j] else 0.1
    return out | {"backlash": (scale * PLAY[0], scale * PLAY[1])}


def published(m: Mechanism, name: str, j: int) -> tuple[float, float] | None:
    """The spec's range of one joint's parameter, if it has one."""
    found, k = m.robot.parameters.get(name), column(m, name, j)
    if found is None or k >= len(found.nominal) or not found.high[k] > found.low[k]:
        return None
    return max(found.low[k], LEAST * found.high[k]), found.high[k]


def column(m: Mechanism, name: str, j: int) -> int:
    """Where a joint's parameter is among the simulator's of that name."""
    group = m.model.groups[0]
    ids, own = (group.dofs, m.dofs[j]) if name in OF_DOFS else (group.actuators, m.servos[j])
    return int(np.flatnonzero(ids == own)[0])


def stepped(m: Mechanism, asked: Sequence[Quantity], theta: Numbers) -> Numbers:
    """[P, J, FIELDS] as :mod:`.stepping` takes them, of vectors theta [P, Q]."""
    q = by_name(asked, theta)
    out = np.zeros((len(theta), len(m.names), len(stepping.FIELDS)))
    out[:, :, stepping.STRENGTH] = np.inf
    for j, joint in enumerate(m.names):
        for k, field in enumerate(stepping.FIELDS):
            if f"{field}[{joint}]" in q:
                out[:, j, k] = q[f"{field}[{joint}]"]
        out[:, j, stepping.DAMPING], out[:, j, stepping.KD] = dampings(q, joint)
    out[:, :, stepping.SOFTNESS] = m.softness(out[:, :, stepping.ARMATURE], load(m, q, len(theta)))
    return out


def dampings(q: Mapping[str, Numbers], joint: str) -> tuple[Numbers, Numbers]:
    """[P] of the joint and of its servo."""
    both = q[f"viscous[{joint}]"]
    servo = both * np.clip(q.get(f"kd_share[{joint}]", np.zeros(len(both))), 0.0, 1.0)
    return both - servo, servo


def load(m: Mechanism, q: Mapping[str, Numbers], count: int) -> Numbers:
    """[P] kg on the tool's body beyond what the model has."""
    return q["tool_mass"] - m.mj.body_mass[m.tool] if "tool_mass" in q else np.zeros(count)


def simulator_parameters(m: Mechanism, asked: Sequence[Quantity], theta: Numbers) -> dict[str, Numbers]:
    """The parameters of the backend ``mujoco`` by name, [P, size] each, of vectors theta [P, Q]: nominal where nothing
    was asked."""
    q, out = by_name(asked, theta), {}
    for name in (*OF_DOFS, *OF_SERVOS):
        if name in m.model.parameters:
            out[name] = np.tile(m.model.parameters[name].nominal, (len(theta), 1))
            for j, joint in enumerate(m.names):
                found = dict(zip(("damping", "kd"), dampings(q, joint))).get(name, q.get(f"{name}[{joint}]"))
                if found is not None:
                    out[name][:, column(m, name, j)] = found
    if "command_delay" in m.model.parameters:
        out["command_delay"] = np.clip(q["command_delay"], 0.0, m.model.parameters["command_delay"].most)[:, None]
    if "tool_mass" in q and "mass" in m.model.parameters:
        out["mass"] = np.tile(m.model.parameters["mass"].nominal, (len(theta), 1))
        out["mass"][:, int(np.flatnonzero(m.model.groups[0].bodies == m.tool)[0])] += load(m, q, len(theta))
    return out
