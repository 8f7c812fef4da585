"""``residual.yaml``: residual dynamics with the physics they are on top of, in a file that whoever reads it can check.

Numbers and texts only. :func:`read` refuses what does not have exactly these keys, what is no finite number of its
range, and networks whose shapes do not fit together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from temporeal.robots.atomic_files import write_whole
from temporeal.robots.handed_over.files import read_text
from temporeal.robots.handed_over.texts import from_yaml
from temporeal.robots.spec import RobotSpec
from temporeal.sim.physics.quadrotor.layout import PARAMETERS, POSITIVE
from temporeal.sim.physics.quadrotor.residual.ensemble import (
    GREATEST,
    MOST_HIDDEN,
    MOST_MEMBERS,
    Ensemble,
    Numbers,
)
from temporeal.sim.physics.quadrotor.residual.scalar import INPUTS, OUTPUTS

FORMAT, VERSION = "temporeal residual dynamics of a quadrotor", 1
LARGEST = 1 << 21
KEYS = ("format", "version", "robot", "revision", "logs", "slow_commands", "physics", "noise", "training", "ensemble")
OF_LOG = ("name", "sha256", "seconds")
OF_TRAINING = ("held_out_before", "held_out_after", "horizon_s", "rounds", "seed")
OF_ENSEMBLE = ("hidden", "mean", "whiten", "near", "far", "bound", "members")
OF_NOISE = {**dict.fromkeys(("rates", "velocity", "position"), ("x", "y", "z")),
            **dict.fromkeys(("attitude", "turning", "pushing"), ("x", "y", "z", "seconds"))}
OF_MEMBER = ("w1", "b1", "w2", "b2", "w3", "b3")
NEEDED = ("mass", "inertia", "thrust_curve", "torque_per_thrust", "tau_up", "tau_down", "arm", "drag", "motor_gain",
          "command_delay")
"""Parameters of the simulator, all but those of disturbances and of the robot's own controller."""
GREATEST_WEIGHT = 1e3
MOST_FAR = 4000.0
"""Squared distance at which a residual is silent at the latest: the mean over training data is 10 (inputs), so that at
most 0.5 % lie beyond 2000 (Markov's inequality), and it has faded at twice that."""
LEAST_WHITEN = 0.01
"""On the diagonal: data of a robot does not spread by 100 m/s or 100 rad/s in any direction."""
OTHER = 10.0
"""Times the ends of the spec's range, beyond which a parameter is none of this robot."""
WIDER = 3.0
"""Times the half of a 90 % interval, within which a parameter is of the same physics."""
BATTERY = 0.5
"""Of full thrust, by which a full or an empty battery may change a coefficient of its curve."""


class WrongResidual(ValueError):
    """A file that is no residual dynamics, or is not those of what it is to be used with."""


@dataclass(frozen=True)
class Residual:
    """Residual dynamics and what they belong to.

    Args:
        robot: whose they are. logs: name, sha256 and seconds of each log that they were trained on.
        slow_commands: of logs whose commands were slower than the robot's loop, part of which is then in here.
        physics: the simulator's parameters under them, by name: value, low, high, lists of numbers.
        noise: by channel, the terms of what is left (as in ``identified.yaml``). training: how it went.
    """

    robot: str
    logs: tuple[Mapping[str, Any], ...]
    slow_commands: bool
    physics: Mapping[str, Mapping[str, Sequence[float]]]
    noise: Mapping[str, Mapping[str, float]]
    training: Mapping[str, float]
    ensemble: Ensemble

    def of_robot(self, robot: str, where: str) -> None:
        """Refuse another robot."""
        if robot != self.robot:
            raise WrongResidual(f"{where} is of robot {self.robot!r}; {robot!r} needs residual dynamics of its own")

    def of_spec(self, robot: RobotSpec, where: str) -> None:
        """Refuse another robot, and physics that no robot of this spec has."""
        self.of_robot(robot.name, where)
        for name in (each for each in self.physics if each in POSITIVE and each in robot.parameters):
            known, value = robot.parameters[name], np.array(self.physics[name]["value"])
            least, most = np.array(known.low) / OTHER, np.array(known.high) * OTHER
            if (value < least).any() or (value > most).any():
                raise WrongResidual(f"{where}: physics.{name} is {value} {known.unit}; the spec of {robot.name!r} has "
                                    f"{known.low} to {known.high}, and {OTHER:g} times beyond that is another robot")

    def of_physics(self, name: str, values: Numbers, where: str) -> None:
        """Refuse parameters ``values`` [K, ...] of other physics than those that this is on top of."""
        if name not in self.physics:
            return
        value, least, most = reach(name, self.physics[name])
        values = values.reshape(len(values), -1)
        wrong = (values < least) | (values > most)
        if wrong.any():
            row, k = np.argwhere(wrong)[0]
            raise WrongResidual(
                f"{name} is {values[row, k]:.4g}; {where} was trained on top of {value[k]:.4g}, and fits "
                f"{least[k]:.4g} to {most[k]:.4g}: draw parameters of the same identification (randomize=FILE of "
                "temporeal identify --randomization, or randomize=none), or leave residual_dynamics empty")


    def limits(self) -> dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """By parameter, the ends [size] of what :meth:`of_physics` takes, as numbers of the simulator within them."""
        out = {}
        for name, each in self.physics.items():
            value, least, most = reach(name, each)
            middle = value.astype(np.float32)
            out[name] = (np.nextafter(least.astype(np.float32), middle), np.nextafter(most.astype(np.float32), middle))
        return out


def reach(name: str, known: Mapping[str, Sequence[float]]) -> tuple[Numbers, Numbers, Numbers]:
    """A parameter's value, and the ends of what is still of the same physics: :data:`WIDER` times as far from it as the
    ends of its interval, in logarithms where it is positive."""
    value, low, high = (np.array(known[key]) for key in ("value", "low", "high"))
    if name in POSITIVE and (low > 0).all():
        side = WIDER * np.maximum(np.log(high / value), np.log(value / low)) + 1e-4
        return value, value * np.exp(-side), value * np.exp(side)
    side = WIDER * np.maximum(high - value, value - low) + 1e-4 * abs(value) + 1e-9
    if name == "thrust_curve":
        side = side + BATTERY * abs(value).sum()
    return value, value - side, value + side


def content(residual: Residual, revision: str) -> dict[str, Any]:
    """What the file says, in numbers and texts alone."""
    net = residual.ensemble
    members = [{f"{kind}{k + 1}": lists(values[k][m]) for k in range(3)
                for kind, values in (("w", net.weights), ("b", net.biases))} for m in range(net.members)]
    return {
        "format": FORMAT, "version": VERSION, "robot": residual.robot, "revision": revision,
        "logs": [dict(each) for each in residual.logs], "slow_commands": residual.slow_commands,
        "physics": {name: {key: lists(np.array(value)) for key, value in each.items()}
                    for name, each in residual.physics.items()},
        "noise": {name: dict(each) for name, each in residual.noise.items()},
        "training": dict(residual.training),
        "ensemble": {"hidden": net.hidden, "mean": lists(net.mean), "whiten": lists(net.whiten),
                     "near": float(net.near), "far": float(net.far), "bound": lists(net.bound), "members": members}}


def lists(values: Numbers) -> Any:
    """Numbers of nine digits, which float32 needs."""
    if values.ndim == 0:
        return float(f"{float(values):.9g}")
    return [lists(each) for each in values]


def write(path: Path, residual: Residual, revision: str) -> None:
    """Write the file whole or not at all; it is checked before."""
    what = content(residual, revision)
    checked(what, str(path))
    write_whole(path, yaml.safe_dump(what, sort_keys=False, width=110, default_flow_style=None).encode())


def read(path: Path) -> Residual:
    """The residual dynamics of a file that somebody handed over."""
    try:
        what = from_yaml(read_text(path, LARGEST), str(path))
    except yaml.YAMLError as error:
        raise WrongResidual(f"{path}: {error}") from error
    return checked(what, str(path))


def checked(what: Any, where: str) -> Residual:
    """``what`` as residual dynamics, if it is that."""
    keyed(what, KEYS, where)
    if (what["format"], what["version"]) != (FORMAT, VERSION):
        raise WrongResidual(f"{where}: format {str(what['format'])[:60]!r}, version {str(what['version'])[:9]}; "
                            f"{FORMAT!r}, {VERSION} is read")
    for key in ("robot", "revision"):
        text(what[key], f"{where}: {key}")
    if not isinstance(what["slow_commands"], bool):
        raise WrongResidual(f"{where}: slow_commands is true or false")
    if not isinstance(what["logs"], list) or not what["logs"]:
        raise WrongResidual(f"{where}: logs is a list of one at least")
    for k, log in enumerate(what["logs"]):
        keyed(log, OF_LOG, f"{where}: logs[{k}]")
        text(log["name"], f"{where}: logs[{k}].name")
        text(log["sha256"], f"{where}: logs[{k}].sha256")
        array(log["seconds"], (), f"{where}: logs[{k}].seconds", low=0.0)
    noise = what["noise"]
    keyed(noise, tuple(OF_NOISE), f"{where}: noise")
    for name, terms in OF_NOISE.items():
        keyed(noise[name], terms, f"{where}: noise.{name}")
        for term, value in noise[name].items():
            array(value, (), f"{where}: noise.{name}.{term}", low=1e-6 if term == "seconds" else 0.0)
    keyed(what["training"], OF_TRAINING, f"{where}: training")
    for name, value in what["training"].items():
        array(value, (), f"{where}: training.{name}", low=0.0)
    return Residual(what["robot"], tuple(what["logs"]), what["slow_commands"], physics(what["physics"], where), noise,
                    what["training"], ensemble(what["ensemble"], f"{where}: ensemble"))


def physics(what: Any, where: str) -> Mapping[str, Mapping[str, Sequence[float]]]:
    """The parameters under it, if they are the simulator's."""
    keyed(what, NEEDED, f"{where}: physics")
    for name, each in what.items():
        at, size = f"{where}: physics.{name}", PARAMETERS[name][1]
        keyed(each, ("value", "low", "high"), at)
        low, value, high = (array(each[key], (size,), f"{at}.{key}") for key in ("low", "value", "high"))
        apart = 1e-6 * np.abs(value)  # of digits in the file
        outside = (low > value + apart).any() or (value > high + apart).any()
        if outside or name in POSITIVE and (value <= 0).any() or name == "command_delay" and value[0] < 0:
            raise WrongResidual(f"{at}: value {value}, low {low}, high {high}: value is between low and high, "
                                "and of its range")
    return dict(what)


def ensemble(what: Any, where: str) -> Ensemble:
    """The networks, if they fit together and are bounded."""
    keyed(what, OF_ENSEMBLE, where)
    hidden, members = what["hidden"], what["members"]
    if type(hidden) is not int or not 2 <= hidden <= MOST_HIDDEN or hidden % 2:
        raise WrongResidual(f"{where}.hidden is {str(hidden)[:60]}; even numbers from 2 to {MOST_HIDDEN} are legal")
    if not isinstance(members, list) or not 1 <= len(members) <= MOST_MEMBERS:
        raise WrongResidual(f"{where}.members is a list of 1 to {MOST_MEMBERS}")
    shapes = {"w1": (hidden, INPUTS), "b1": (hidden,), "w2": (hidden, hidden), "b2": (hidden,),
              "w3": (OUTPUTS, hidden), "b3": (OUTPUTS,)}
    found = []
    for m, member in enumerate(members):
        keyed(member, OF_MEMBER, f"{where}.members[{m}]")
        found.append({key: array(member[key], shape, f"{where}.members[{m}].{key}", -GREATEST_WEIGHT, GREATEST_WEIGHT)
                      for key, shape in shapes.items()})
    near, far = (float(array(what[key], (), f"{where}.{key}", 0.0, MOST_FAR)) for key in ("near", "far"))
    whiten = array(what["whiten"], (INPUTS, INPUTS), f"{where}.whiten", -1e6, 1e6)
    if (np.abs(np.triu(whiten, 1)) > 1e-9 * np.abs(whiten).max()).any() or (np.diag(whiten) < LEAST_WHITEN).any():
        raise WrongResidual(f"{where}.whiten is to be lower triangular, and {LEAST_WHITEN:g} or more on its diagonal "
                            f"{np.diag(whiten)}: else what is learned ends nowhere")
    bound = array(what["bound"], (OUTPUTS,), f"{where}.bound", low=0.0)
    if not near < far:
        raise WrongResidual(f"{where}: near {near:g} is not below far {far:g}")
    if (bound > GREATEST).any():
        raise WrongResidual(f"{where}.bound is {bound}; at most {GREATEST} are legal (m/s^2, rad/s^2): more than that "
                            "is no residual")
    stacked = {key: np.stack([each[key] for each in found]) for key in OF_MEMBER}
    return Ensemble(array(what["mean"], (INPUTS,), f"{where}.mean"),
                    whiten, near, far, bound, (stacked["w1"], stacked["w2"], stacked["w3"]),
                    (stacked["b1"], stacked["b2"], stacked["b3"]))


def keyed(what: Any, keys: Sequence[str], where: str) -> None:
    """Refuse other keys than these."""
    if not isinstance(what, dict) or set(what) != set(keys):
        got = ", ".join(str(each)[:60] for each in what) if isinstance(what, dict) else str(what)[:60]
        raise WrongResidual(f"{where} has {got}; needed are {', '.join(keys)}")


def text(what: Any, where: str) -> None:
    """Refuse what is no text."""
    if not isinstance(what, str):
        raise WrongResidual(f"{where} is {str(what)[:60]}; a text is needed")


def array(what: Any, shape: tuple[int, ...], where: str, low: float = -1e9, high: float = 1e9) -> Numbers:
    """Numbers of ``shape``, each finite and from ``low`` to ``high``."""
    if not plain(what, shape):
        raise WrongResidual(f"{where} is {str(what)[:60]}; numbers of shape {shape} are needed")
    out = np.array(what, dtype=float)
    if not np.isfinite(out).all() or not ((out >= low) & (out <= high)).all():
        raise WrongResidual(f"{where} holds {str(what)[:60]}; finite numbers of {low:g} to {high:g} are needed")
    return out


def plain(what: Any, shape: tuple[int, ...]) -> bool:
    """Whether ``what`` is nested lists of numbers of ``shape``."""
    if not shape:
        return isinstance(what, float) or type(what) is int and abs(what) < 10**300
    return isinstance(what, list) and len(what) == shape[0] and all(plain(each, shape[1:]) for each in what)
