"""A user's quadrotor: physical parameters from a few numbers, with the names of :mod:`temporeal.robots.crazyflie.spec`.

In ``spec.yaml``::

    quadrotor:
      mass: 2.0                    # kg
      inertia: [0.022, 0.022, 0.04]   # kg m^2, about the body's axes
      arm: [0.17, 0.17]            # m: x and y of a rotor
      thrust_curve: [0, 0, 9.5]    # N of one rotor: c0 + c1 n + c2 n^2 at the normalized speed n, 0 to 1
      torque_per_thrust: 0.016     # m
      motor_time: 0.05             # s: time constant of the motors; or [rising, falling]
      drag: [0.3, 0.3, 0.3]        # N s/m; else 0.03 of the weight at 1 m/s
      max_rate: [4, 4, 2]          # rad/s: of commands; else 2 pi, 2 pi, pi

``model.xml`` is a free body ``base`` with the sites and actuators ``rotor1`` to ``rotor4``: front right, rear right,
rear left, front left; 1 and 3 turn counter-clockwise seen from above.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import pi
from pathlib import Path
from typing import Any

from temporeal.robots.model_files import RobotFileError
from temporeal.robots.signals import CommandSpec, SignalSpec, schema
from temporeal.robots.spec import Parameter, RobotSpec
from temporeal.robots.user_robots.entries import check_keys

SIZES = {"mass": 1, "inertia": 3, "arm": 2, "thrust_curve": 3, "torque_per_thrust": 1, "motor_time": 2, "drag": 3,
         "max_rate": 3}
OPTIONAL = ("drag", "max_rate")
MAX_RATE = (2 * pi, 2 * pi, pi)  # rad/s: the Crazyflie's
DRAG = 0.03  # 1 / (m/s): of the weight, at a metre a second. Assumed; the Crazyflie's is 0.047 [DM] and none [R]
SPREADS = {"mass": 0.1, "inertia": 0.2, "arm": 0.05, "thrust_curve": 0.0, "torque_per_thrust": 0.3, "tau_up": 0.5,
           "tau_down": 0.5, "drag": 1.0, "motor_gain": 0.15, "rate_gain": 0.4}
"""Of the nominal value, both ways: the range that randomization draws from. Assumed; the Crazyflie's sources differ by
as much."""

RATE_HZ, CONTROL_HZ = 100.0, 50.0
DAMPING, YAW = 0.5, 0.4  # of the inner rate loop; share of its gain about z. Assumed
HIGHEST_SHARE = 0.915  # of full thrust in commands: the rest is for attitude, and a Crazyflie's setpoints end there
HIGHEST, FASTEST = 100.0, 15.0  # m, m/s: bounds of what a task may ask. Assumed


SIGNALS: tuple[tuple[str, tuple[int, ...], str, str], ...] = (
    ("base_pos_w", (3,), "m", "w"), ("base_quat_w", (4,), "wxyz", "w"), ("base_vel_w", (3,), "m/s", "w"),
    ("base_ang_vel_b", (3,), "rad/s", "b"), ("height", (), "m", "w"))


def quadrotor(name: str, folder: Path, model: Path, given: Mapping[str, Any]) -> RobotSpec:
    """The spec of the quadrotor in ``folder`` whose YAML says ``given``."""
    where = f"{folder / 'spec.yaml'}: quadrotor"
    values = numbers_of(where, given.get("quadrotor", {}))
    parameters = parameters_of(values)
    thrust = 4 * sum(values["thrust_curve"])
    weight = 9.81 * values["mass"][0]
    if thrust <= 1.2 * weight:
        raise RobotFileError(f"{where}: four rotors at full speed lift {thrust:.3g} N, the weight is {weight:.3g} N: "
                             "at least 1.2 times the weight is needed to fly")
    rate = float(given.get("rate_hz", RATE_HZ))
    rates = values["max_rate"]
    return RobotSpec(
        name=name, kind="quadrotor",
        signals=schema(*(SignalSpec(*signal, rate_hz=rate) for signal in SIGNALS)),
        commands={
            "motor_cmd": CommandSpec("motor_cmd", (4,), "1", "b", low=(0.0,) * 4, high=(1.0,) * 4),
            "ctbr_cmd": CommandSpec("ctbr_cmd", (4,), "N,rad/s", "b", low=(0.0, *(-rate for rate in rates)),
                                    high=(HIGHEST_SHARE * thrust, *rates))},
        limits={"tilt_rad": (0.0, pi), "speed_m_s": (0.0, FASTEST), "height_m": (0.0, HIGHEST)},
        home={"base_pos_w": (0.0, 0.0, 1.0), "base_quat_w": (1.0, 0.0, 0.0, 0.0), "base_vel_w": (0.0,) * 3,
              "base_ang_vel_b": (0.0,) * 3, "height": (1.0,)},
        parameters=parameters, model=model, license=str(given.get("license", "the user's own")),
        ros=ros_of(folder), control_hz=float(given.get("control_hz", CONTROL_HZ)), defaults=defaults_of(given))


def ros_of(folder: Path) -> Path | None:
    """The folder's interface file, if it is there."""
    return file if (file := folder / "ros.yaml").is_file() else None


def numbers_of(where: str, given: Any) -> dict[str, tuple[float, ...]]:
    """The entries of ``quadrotor`` as tuples of finite numbers, optional ones filled in."""
    check_keys(where, given, tuple(SIZES))
    values: dict[str, tuple[float, ...]] = {"max_rate": MAX_RATE}
    for key, size in SIZES.items():
        if key not in given:
            if key not in OPTIONAL:
                raise RobotFileError(f"{where}: {key} is needed; entries: {', '.join(SIZES)}")
            continue
        entry = given[key] if isinstance(given[key], list) else [given[key]] * (2 if key == "motor_time" else 1)
        good = all(isinstance(x, (int, float)) and not isinstance(x, bool) and abs(x) < 1e9 for x in entry)
        least = 0.0 if key == "drag" else -1e9 if key == "thrust_curve" else 1e-12
        if len(entry) != size or not good or min(entry) < least:
            raise RobotFileError(f"{where}.{key}: {size} positive number{'s' * (size > 1)} expected, got "
                                 f"{given[key]!r}")
        values[key] = tuple(map(float, entry))
    values.setdefault("drag", (DRAG * 9.81 * values["mass"][0],) * 3)
    return values


def parameters_of(values: Mapping[str, tuple[float, ...]]) -> dict[str, Parameter]:
    """The parameters, with the names and order of the Crazyflie's."""
    rising, falling = values["motor_time"]
    gain = 1 / (4 * DAMPING**2 * rising)  # the loop's damping is 1 / (2 sqrt(gain tau)), tau the motors' lag
    nominal = {
        "mass": (values["mass"], "kg"), "inertia": (values["inertia"], "kg m^2"),
        "thrust_curve": (values["thrust_curve"], "N"), "torque_per_thrust": (values["torque_per_thrust"], "m"),
        "tau_up": ((rising,), "s"), "tau_down": ((falling,), "s"), "arm": (values["arm"], "m"),
        "drag": (values["drag"], "N s/m"), "motor_gain": ((1.0,) * 4, "1"),
        "rate_gain": ((gain, gain, YAW * gain), "1/s")}
    return {name: Parameter(
        at, tuple(x * (1 - SPREADS[name]) if x > 0 else x for x in at),
        tuple(x * (1 + SPREADS[name]) if x > 0 else x for x in at), unit,
        f"spec.yaml; spread assumed: {SPREADS[name]:.0%} of it") for name, (at, unit) in nominal.items()}


def defaults_of(given: Mapping[str, Any]) -> dict[str, str]:
    """What is assumed because ``spec.yaml`` does not say it."""
    lacking = {
        "max_rate": "2 pi, 2 pi, pi rad/s: the Crazyflie's firmware takes that much",
        "drag": f"{DRAG:g} of the weight at 1 m/s: no source gives one"}
    assumed = {key: why for key, why in lacking.items() if key not in given.get("quadrotor", {})}
    return {**assumed, "rate_gain": f"inner rate loop with damping {DAMPING:g} at the motors' lag: measure it",
            **{str(key): str(why) for key, why in given.get("defaults", {}).items()}}
