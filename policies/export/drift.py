"""The dynamics that a quadrotor's artifact carries, so that a monitor can compare its flights with them.

What a policy was trained for is what its environment drew: thrust per weight is taken from the draws of the run's own
randomization, about the robot's nominal parameters. Lags, delays and drag say how exact a prediction is: they span the
draws and the published sources, whatever was randomized. Of a robot that was identified
(``identified.yaml``, :mod:`temporeal.sim.identification.identified_file`) they are the file's values and intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from temporeal.robots.artifact.additions import DriftSpec
from temporeal.robots.artifact.manifest import ArtifactError
from temporeal.robots.spec import RobotSpec
from temporeal.sim.env import Env
from temporeal.sim.physics.quadrotor.dynamics import GRAVITY
from temporeal.sim.randomization.distributions import draw_parameters

DRAWS, TAIL = 4000, 0.005  # of the training's distribution; share of it beyond each end of what is called trained for
NOISE = 0.02  # m/s, of a measured velocity where the training's sensors have none: that of configs/randomize/default
LATEST = 0.03  # s, that command and state together are on their way at the least: of a Crazyflie's radio. Chosen
NEEDED = ("mass", "thrust_curve", "tau_up", "tau_down", "drag")
TRAINED = "trained"

Draws = Mapping[str, np.ndarray]
"""Parameters by name, [K] or [K, components]."""


def trained_drift(env: Env, command: str) -> DriftSpec:
    """What ``env`` draws, of a quadrotor that takes ``command``."""
    robot = checked(env.task.robot, command)
    ids, episode = torch.arange(DRAWS), torch.zeros(DRAWS, dtype=torch.int64)
    drawn = {name: value.double().numpy() for name, value in draw_parameters(
        env.backend.parameters, env.distribution.randomization, 0, ids, episode).items()}
    config = env.distribution.sensors.config
    late = config.delay_steps * env.task.control_dt  # a state that is late looks like a command that is
    noise = float(np.max(config.noise.get("base_vel_w", 0.0))) or NOISE
    return drawn_drift(robot, drawn, late, noise)


def drawn_drift(robot: RobotSpec, drawn: Draws, late: float, noise: float) -> DriftSpec:
    """What a training is for whose robots are ``drawn`` [K, ...]; ``late``: s, of a state at the most; ``noise``: m/s,
    of a velocity."""
    values, parameters = nominal(robot), robot.parameters
    many = dict(drawn)
    for name in ("tau_up", "tau_down", "drag"):
        ends = np.stack([parameters[name].low, parameters[name].high])
        many[name] = np.concatenate([np.reshape(drawn.get(name, ends[:0]), (-1, ends.shape[1])), ends])
    source = f"robot {robot.name}, randomization of the run"
    return described(robot, values, many, lifted(values, drawn), source, late, noise)


def identified_drift(robot: RobotSpec, command: str, path: Path) -> DriftSpec:
    """What ``identified.yaml`` at ``path`` says of ``robot``; its intervals are those of 90 %."""
    from temporeal.sim.identification.identified_file import read

    checked(robot, command)
    found = read(path)
    if found["robot"] != robot.name:
        raise ArtifactError(f"{path} is of robot {found['robot']!r}, the policy is for {robot.name!r}")
    simulated, acts = found["simulator"], found["parameters"].get("thrust_to_mass")
    if missing := [name for name in (*NEEDED, "motor_gain") if name not in simulated]:
        raise ArtifactError(f"{path}: simulator lacks {', '.join(missing)}, from which thrust follows")
    if acts is None:
        raise ArtifactError(f"{path}: parameters lacks thrust_to_mass: without it nobody knows how exact it is")
    values = {name: np.ravel(np.asarray(each["value"], dtype=float)) for name, each in simulated.items()}
    ends = {name: np.stack([np.ravel(np.asarray(simulated[name][key], dtype=float)) for key in ("low", "high")])
            for name in ("tau_up", "tau_down", "drag", "command_delay") if name in simulated}
    # motion tells thrust over mass well, and neither of both: their intervals apart would say too little
    ratio = acts["low"] / acts["value"], 1.0, acts["high"] / acts["value"]
    return described(robot, values, ends, ratio, f"robot {robot.name}, {path.name}")


def checked(robot: RobotSpec, command: str) -> RobotSpec:
    """``robot``, if its thrust follows from ``command`` and its parameters."""
    if robot.kind != "quadrotor":
        raise ArtifactError(f"drift is watched of quadrotors; robot {robot.name!r} is of kind {robot.kind!r}")
    if command not in ("motor_cmd", "ctbr_cmd"):
        raise ArtifactError(f"drift: thrust follows from motor_cmd or ctbr_cmd, the policy gives {command!r}")
    if missing := [name for name in NEEDED if name not in robot.parameters]:
        raise ArtifactError(f"drift: the spec of robot {robot.name!r} lacks the parameters {', '.join(missing)}")
    return robot


def nominal(robot: RobotSpec) -> Draws:
    """The spec's values, [components] each."""
    return {name: np.asarray(each.nominal) for name, each in robot.parameters.items()}


def described(
    robot: RobotSpec, values: Draws, drawn: Draws, ratio: tuple[float, float, float], source: str, late: float = 0.0,
    noise: float = NOISE,
) -> DriftSpec:
    """The spec about ``values``, with ends from ``drawn`` [K, ...]; ``late``: s, of a state at the most."""
    delay = np.ravel(drawn.get("command_delay", values.get("command_delay", np.zeros(1))))
    ends = float(delay.min()), max(float(delay.max()) + late, LATEST)
    return DriftSpec(
        source=source, mass=float(values["mass"][0]), thrust_curve=curve_of(values),
        believed_curve=tuple(map(float, robot.parameters["thrust_curve"].nominal)),
        tau_up=spread(values, drawn, "tau_up"), tau_down=spread(values, drawn, "tau_down"),
        delay=(ends[0], sum(ends) / 2, ends[1]), drag=spread(values, drawn, "drag", -1), ratio=ratio, noise=noise)


def curve_of(values: Draws) -> tuple[float, ...]:
    """Thrust of a rotor of mean gain over its normalized speed, N."""
    gain = float(np.mean(values.get("motor_gain", np.ones(4))))
    return tuple(gain * float(c) for c in values["thrust_curve"])


def lifted(values: Draws, drawn: Draws) -> tuple[float, float, float]:
    """Force over mass at the speed of a hover, the vertical disturbing force included, over that of ``values``: the
    ends of what is ``drawn`` but for :data:`TAIL` at each."""
    hover = speed_of(GRAVITY * float(values["mass"][0]) / 4, curve_of(values))

    def lift(given: Draws) -> np.ndarray:
        mass, curve, gains = (np.reshape(given.get(name, values.get(name, np.ones(4))), (-1, size))
                              for name, size in (("mass", 1), ("thrust_curve", 3), ("motor_gain", 4)))
        force = np.reshape(given.get("force_w", np.zeros(3)), (-1, 3))[:, 2]
        return np.asarray((4 * gains.mean(-1) * (curve @ np.array([1.0, hover, hover**2])) + force) / mass[:, 0])

    ratio = lift(drawn) / lift(values)
    return min(float(np.quantile(ratio, TAIL)), 1.0), 1.0, max(float(np.quantile(ratio, 1 - TAIL)), 1.0)


def speed_of(thrust: float, curve: Sequence[float]) -> float:
    """Normalized speed of a rotor that gives ``thrust`` [N]."""
    c0, c1, c2 = curve
    return float((-c1 + (c1 * c1 + 4 * c2 * (thrust - c0)) ** 0.5) / (2 * c2))


def spread(values: Draws, drawn: Draws, name: str, component: int = 0) -> tuple[float, float, float]:
    """Least, value and greatest of one component."""
    value = float(values[name][component])
    many = np.reshape(drawn.get(name, values[name]), (-1, len(values[name])))[:, component]
    return min(float(many.min()), value), value, max(float(many.max()), value)


def drift_of(how: str, env: Env, command: str) -> DriftSpec | None:
    """``how``: :data:`TRAINED`, or the path of an ``identified.yaml``; empty: None."""
    if not how:
        return None
    return trained_drift(env, command) if how == TRAINED else identified_drift(env.task.robot, command, Path(how))
