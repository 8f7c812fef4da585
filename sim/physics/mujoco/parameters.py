"""Parameters of a scene in MuJoCo that can differ between worlds: nominal values, checks, and how they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import mujoco
import numpy as np

from temporeal.robots.registry import UnknownName
from temporeal.robots.spec import Parameter, RobotSpec
from temporeal.sim.physics.mujoco.model import Array, Fields, Group, Model


@dataclass(frozen=True)
class Quantity:
    """A kind of parameter: nominal values of a group (flat), and how values [K, count] are written for worlds ids [K].

    ``fields``: the model fields that it writes.
    """

    unit: str
    fields: tuple[str, ...]
    nominal: Callable[[mujoco.MjModel, Group], Array]
    write: Callable[[mujoco.MjModel, Group, Fields, Array, Mapping[str, Array]], None]
    positive: bool = False


def _rows(ids: Array) -> Array:
    return ids[:, None]


def _write_mass(mj: mujoco.MjModel, g: Group, fields: Fields, ids: Array, values: Mapping[str, Array]) -> None:
    """``inertia`` is meant at the nominal mass: a heavier body of the same shape has more of it."""
    mass, inertia = values["mass"], values["inertia"].reshape(len(ids), -1, 3)
    share = mass / np.where(mj.body_mass[g.bodies] > 0, mj.body_mass[g.bodies], 1.0)
    fields["body_mass"][_rows(ids), g.bodies] = mass
    fields["body_inertia"][_rows(ids), g.bodies] = inertia * share[:, :, None]


def _write_com(mj: mujoco.MjModel, g: Group, fields: Fields, ids: Array, values: Mapping[str, Array]) -> None:
    fields["body_ipos"][_rows(ids), g.bodies] = values["com"].reshape(len(ids), -1, 3)


def _write_friction(mj: mujoco.MjModel, g: Group, fields: Fields, ids: Array, values: Mapping[str, Array]) -> None:
    fields["geom_friction"][_rows(ids), g.geoms, 0] = values["friction"]


def _write_servo(mj: mujoco.MjModel, g: Group, fields: Fields, ids: Array, values: Mapping[str, Array]) -> None:
    """MuJoCo's position servo: force = kp ctrl - kp length - kd velocity."""
    fields["actuator_gainprm"][_rows(ids), g.actuators, 0] = values["kp"]
    fields["actuator_biasprm"][_rows(ids), g.actuators, 1] = -values["kp"]
    fields["actuator_biasprm"][_rows(ids), g.actuators, 2] = -values["kd"]


def _write_strength(mj: mujoco.MjModel, g: Group, fields: Fields, ids: Array, values: Mapping[str, Array]) -> None:
    fields["actuator_forcerange"][_rows(ids), g.actuators, 0] = -values["strength"]
    fields["actuator_forcerange"][_rows(ids), g.actuators, 1] = values["strength"]


def _write_delay(mj: mujoco.MjModel, g: Group, fields: Fields, ids: Array, values: Mapping[str, Array]) -> None:
    # a hair less: rounding in float32 or in the sum of times must not add a step to a delay of whole steps
    fields["actuator_delay"][_rows(ids), g.actuators] = np.maximum(
        values["command_delay"] - 1e-4 * mj.opt.timestep, 0.0)


def _write_gravity(mj: mujoco.MjModel, g: Group, fields: Fields, ids: Array, values: Mapping[str, Array]) -> None:
    fields["opt.gravity"][ids] = values["gravity_w"]


def _of_dofs(field: str, unit: str) -> Quantity:
    def write(mj: mujoco.MjModel, g: Group, fields: Fields, ids: Array, values: Mapping[str, Array]) -> None:
        fields[field][_rows(ids), g.dofs] = values[field.removeprefix("dof_")]

    return Quantity(unit, (field,), lambda mj, g: getattr(mj, field)[g.dofs], write)


def _servos(mj: mujoco.MjModel, g: Group) -> bool:
    fixed = mj.actuator_gaintype[g.actuators] == mujoco.mjtGain.mjGAIN_FIXED
    affine = mj.actuator_biastype[g.actuators] == mujoco.mjtBias.mjBIAS_AFFINE
    return bool(len(g.actuators) and (fixed & affine).all())


def _limited(mj: mujoco.MjModel, g: Group) -> bool:
    return bool(mj.actuator_forcelimited[g.actuators].all())


def _buffered(mj: mujoco.MjModel, g: Group) -> bool:
    return bool((mj.actuator_history[g.actuators, 0] > 0).all())


NOTHING = np.zeros(0)
QUANTITIES: dict[str, Quantity] = {
    "mass": Quantity("kg", ("body_mass", "body_inertia"), lambda mj, g: mj.body_mass[g.bodies], _write_mass, True),
    "inertia": Quantity("kg m^2", ("body_mass", "body_inertia"), lambda mj, g: mj.body_inertia[g.bodies].ravel(),
                        _write_mass, True),
    "com": Quantity("m", ("body_ipos",), lambda mj, g: mj.body_ipos[g.bodies].ravel(), _write_com),
    "friction": Quantity("1", ("geom_friction",), lambda mj, g: mj.geom_friction[g.geoms, 0], _write_friction),
    "damping": _of_dofs("dof_damping", "N m s/rad"),
    "armature": _of_dofs("dof_armature", "kg m^2"),
    "frictionloss": _of_dofs("dof_frictionloss", "N m"),
    "kp": Quantity("N m/rad", ("actuator_gainprm", "actuator_biasprm"),
                   lambda mj, g: mj.actuator_gainprm[g.actuators, 0] if _servos(mj, g) else NOTHING, _write_servo),
    "kd": Quantity("N m s/rad", ("actuator_gainprm", "actuator_biasprm"),
                   lambda mj, g: -mj.actuator_biasprm[g.actuators, 2] if _servos(mj, g) else NOTHING, _write_servo),
    "strength": Quantity(
        "N m", ("actuator_forcerange",),
        lambda mj, g: mj.actuator_forcerange[g.actuators, 1] if _limited(mj, g) else NOTHING,
        _write_strength, True),
    "command_delay": Quantity(
        "s", ("actuator_delay",),
        lambda mj, g: mj.actuator_delay[g.actuators][:1] if _buffered(mj, g) else NOTHING,
        _write_delay),
    "gravity_w": Quantity("m/s^2", ("opt.gravity",), lambda mj, g: mj.opt.gravity if not g.prefix else NOTHING,
                          _write_gravity),
}
SET_CONST = frozenset(mujoco.MjModel._setconst_inputs)
"""Model fields that mj_setConst derives others from."""
WRENCH = {"force_w": "N", "torque_w": "N m"}  # on the root of a group, at its centre of mass, world frame
SIGNED = ("com", "gravity_w", *WRENCH)  # all others are not negative


def parameters(mj: mujoco.MjModel, groups: Iterable[Group], robot: RobotSpec) -> dict[str, Parameter]:
    """Everything that can be set per world, with nominal values; ranges of sources where the robot's spec has them."""
    found: dict[str, Parameter] = {}
    for g in groups:
        for name, quantity in QUANTITIES.items():
            values = tuple(float(x) for x in quantity.nominal(mj, g))
            if values:
                found[g.prefix + name] = published(robot, g, name, Parameter(values, values, values, quantity.unit,
                                                                            "the model's own value"))
                if name == "command_delay":
                    found[g.prefix + name] = replace(found[g.prefix + name], most=longest_delay(mj))
        if g.root is not None:
            zero = (0.0,) * 3
            found |= {g.prefix + n: Parameter(zero, zero, zero, unit, "a disturbance") for n, unit in WRENCH.items()}
    return found


def published(robot: RobotSpec, g: Group, name: str, plain: Parameter) -> Parameter:
    """The robot's own entry, if it has one of the same length and nominal values."""
    given = robot.parameters.get(name) if not g.prefix else None
    if given is None or len(given.nominal) != len(plain.nominal):
        return plain
    if not np.allclose(given.nominal, plain.nominal, rtol=1e-3, atol=1e-9):
        raise ValueError(f"robot {robot.name!r}: parameter {name!r} is {given.nominal} in its spec and "
                         f"{plain.nominal} in its model")
    return given


def check_values(model: Model, name: str, values: Array, count: int) -> Array:
    """Values [K, count] of one parameter, checked."""
    if name not in model.parameters:
        raise UnknownName(f"set_params: unknown parameter {name!r}; known: {', '.join(model.parameters)}")
    size = len(model.parameters[name].nominal)
    values = np.asarray(values, dtype=np.float64)
    if values.ndim == 1 and size == 1:
        values = values[:, None]
    if values.shape != (count, size):
        raise ValueError(f"set_params: {name} has shape {values.shape}, expected {(count, size)}")
    kind = name.rpartition(".")[2]
    if not np.isfinite(values).all():
        raise ValueError(f"set_params: {name} has a non-finite value")
    if kind not in SIGNED and len(values) and values.min() < 0:
        raise ValueError(f"set_params: {name} must be >= 0, got {values.min():g}")
    if kind in QUANTITIES and QUANTITIES[kind].positive:
        zero = (values == 0).any(0) & (np.array(model.parameters[name].nominal) > 0)
        if zero.any():
            raise ValueError(f"set_params: {name} must be > 0, got 0")
    if kind in ("mass", "inertia"):
        check_matter(name, values, np.array(model.parameters[name].nominal))
    nominal = np.array(model.parameters[name].nominal)
    values = np.where(values.astype(np.float32) == nominal.astype(np.float32), nominal, values)  # float32 came in
    most = model.parameters[name].most
    if len(values) and values.max() > most + 1e-9:
        raise ValueError(f"set_params: {name} is at most {most:g} s, the history that the model keeps; got "
                         f"{values.max():g}")
    return values


MOST = 1e6  # kg, kg m^2: heavier bodies sink into what carries them, without any state being flagged as bad
ROUNDING = 1e-5  # of a moment: what float32 and sums of it may be off


def check_matter(name: str, values: Array, nominal: Array) -> None:
    """Whether bodies of matter have the masses [K, B] or principal moments [K, 3 B] ``values``."""
    unit = QUANTITIES[name.rpartition(".")[2]].unit
    if (values > np.maximum(MOST, nominal)).any():
        raise ValueError(f"set_params: {name} is at most {MOST:g} {unit}, got {values.max():g}")
    if name.rpartition(".")[2] == "inertia":
        moments = np.sort(values.reshape(len(values), len(nominal) // 3, 3), -1)
        plain = np.sort(nominal.reshape(-1, 3), -1)
        slack = (1 + ROUNDING) * moments[..., :2].sum(-1) - moments[..., 2]
        wrong = (slack < 0) & (plain[:, :2].sum(-1) >= (1 - ROUNDING) * plain[:, 2])
        if wrong.any():
            listed = ", ".join(f"{x:g}" for x in moments[tuple(np.argwhere(wrong)[0])])
            raise ValueError(f"set_params: {name} has the principal moments {listed} {unit}, which no body of matter "
                             "has: each is at most the sum of the other two")


def longest_delay(mj: mujoco.MjModel) -> float:
    """Delay [s] that the histories of all actuators can hold."""
    return float(mj.actuator_history[:, 0].min() * mj.opt.timestep)


def write_params(
    model: Model, fields: Callable[[str], Array], ids: Array, values: Mapping[str, Array], changed: Iterable[str]
) -> set[str]:
    """Write the parameters ``changed`` of the worlds ``ids`` [K]; the names of the model fields written.

    Args:
        fields: gives the per-world array [N, ...] of a model field.
        values: [K, count] of every parameter.
    """
    written: set[str] = set()
    wanted = set(changed)
    for g in model.groups:
        mine = {n.removeprefix(g.prefix): v for n, v in values.items() if n.startswith(g.prefix)}
        writers = {}
        for name, quantity in QUANTITIES.items():
            if g.prefix + name in wanted:
                writers[quantity.write] = quantity
        for write, quantity in writers.items():
            write(model.mj, g, {f: fields(f) for f in quantity.fields}, ids, mine)
            written.update(quantity.fields)
    return written
