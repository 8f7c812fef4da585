"""A simulated robot that differs from what its spec says, as a real one does: the gap, in a file.

    parameters: {mass: {scale: 1.2}, force_w: {add: [0.02, 0.0, 0.0]}}   # of the plant: value = nominal * scale + add
    noise: {base_pos_w: 0.004}         # standard deviations, in place of those of ros.yaml, by signal
    bias: {base_pos_w: [0.03, 0.0, 0.0]}   # constant error of a sensor, in the signal's unit (orientations: rad)
    state_latency_s: 0.02              # in place of that of ros.yaml; so are command_latency_s and spread
    command_latency_s: 0.03
    spread: 0.2

Only the process of the simulated robot (``robot_sim --hidden FILE``) reads it; controller, guard and monitor, and
whoever learns behind them, see its effect on the topics and nothing else. All keys are optional.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.robots.frames import from_rotation_vector, multiply
from temporeal.robots.signals import is_number
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.interface.interface import InterfaceError
from temporeal_bridge.interface.rows import read_yaml

NUMBERS = ("state_latency_s", "command_latency_s", "spread")
KEYS = ("parameters", "noise", "bias", *NUMBERS)
CHANGES = ("scale", "add")
Arrays = Mapping[str, np.ndarray]


def hidden_settings(path: Path, robot: RobotSpec, simulation: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of :class:`temporeal_bridge.robot_sim.SimOptions` that the file asks for, checked; names of
    parameters are checked by the plant, which alone knows them. ``simulation``: of the robot's ``ros.yaml``."""
    content = read_yaml(path, KEYS)
    if unknown := sorted(map(str, set(content) - set(KEYS))):
        raise InterfaceError(f"{path} has the keys {unknown}; legal: {', '.join(KEYS)}")
    for key in KEYS[:3]:
        if not isinstance(content.get(key, {}), Mapping):
            raise InterfaceError(f"{path}: {key} is a mapping from names, got {content[key]!r}")
    for key in NUMBERS:
        value = content.get(key, 0.0)
        if not is_number(value) or value < 0 or (key == "spread" and value > 1):
            raise InterfaceError(f"{path}: {key} is a number from 0{' to 1' if key == 'spread' else ' s on'}, "
                                 f"got {value!r}")
    check_changes(path, content.get("parameters", {}))
    check_errors(path, robot, content.get("noise", {}), content.get("bias", {}))
    return {**content, "noise": {**simulation["noise"], **content.get("noise", {})}}


def check_changes(path: Path, parameters: Mapping[str, Any]) -> None:
    """Each change of a parameter has ``scale``, ``add`` or both, of finite numbers."""
    for name, change in parameters.items():
        if not isinstance(change, Mapping) or not change or set(change) - set(CHANGES):
            raise InterfaceError(f"{path}: parameters.{name} is a mapping with {' or '.join(CHANGES)}, or both; "
                                 f"got {change!r}")
        for key, value in change.items():
            if not numbers(value):
                raise InterfaceError(f"{path}: parameters.{name}.{key} is a number, or a list of numbers; "
                                     f"got {value!r}")


def check_errors(path: Path, robot: RobotSpec, noise: Mapping[str, Any], bias: Mapping[str, Any]) -> None:
    """Noise and bias are of signals that the robot has, of a legal size."""
    for key, entries in (("noise", noise), ("bias", bias)):
        if unknown := sorted(set(entries) - set(robot.signals)):
            raise InterfaceError(f"{path}: {key} has {unknown}; signals of {robot.name}: {', '.join(robot.signals)}")
    for name, value in noise.items():
        if not is_number(value) or value < 0:
            raise InterfaceError(f"{path}: noise.{name} is a standard deviation from 0 on, got {value!r}")
    for name, value in bias.items():
        size = error_size(robot, name)
        if not numbers(value) or np.size(value) not in (1, size):
            raise InterfaceError(f"{path}: bias.{name} is a number or {size} of them, got {value!r}")


def numbers(value: Any) -> bool:
    """Whether it is a finite number, or a list of such."""
    return is_number(value) or (isinstance(value, list) and len(value) > 0 and all(map(is_number, value)))


def error_size(robot: RobotSpec, name: str) -> int:
    """Numbers of an error of signal ``name``: a turn about three axes for an orientation."""
    spec = robot.signals[name]
    return 3 if spec.unit == "wxyz" else spec.size


def altered(drawn: Arrays, nominal: Arrays, settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The parameters ``drawn`` for a flight, changed as the settings say; those that are not drawn are ``nominal``."""
    changes, known = settings.get("parameters", {}), {**nominal, **drawn}
    if unknown := sorted(set(changes) - set(known)):
        raise InterfaceError(f"the hidden robot has no parameters {unknown}; legal: {', '.join(sorted(known))}")
    out = dict(drawn)
    for name, change in changes.items():
        value = np.asarray(known[name], dtype=float)
        try:
            new = value * np.asarray(change.get("scale", 1.0)) + np.asarray(change.get("add", 0.0))
        except ValueError:
            new = np.empty(0)
        if new.shape != value.shape:
            raise InterfaceError(f"parameters.{name} has the shape {list(value.shape)}: give one number, or so many; "
                                 f"got {dict(change)}")
        out[name] = new
    return out


def biased(robot: RobotSpec, true: Arrays, bias: Mapping[str, Any]) -> Arrays:
    """The signals with a constant error of their sensors."""
    if not bias:
        return true
    out = dict(true)
    for name, value in bias.items():
        error = np.broadcast_to(np.asarray(value, dtype=float), error_size(robot, name))
        seen = np.asarray(true[name], dtype=float)
        turned = robot.signals[name].unit == "wxyz"
        out[name] = multiply(seen, from_rotation_vector(error)) if turned else seen + error.reshape(seen.shape)
    return out
