"""An identification as a randomization: what of ``identified.yaml`` :mod:`temporeal.sim.randomization.posterior` draws.

The quantities of the simulator's parameters are kept, with their means and covariance; biases of sensors and what else
concerns the log alone are left out (of a normal distribution the rest is the rest's own, whatever was left out).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from temporeal.robots.atomic_files import write_whole
from temporeal.robots.spec import RobotSpec
from temporeal.sim.env_config import QUADROTOR
from temporeal.sim.identification import parameters
from temporeal.sim.identification.record import FlightRecord
from temporeal.sim.physics.quadrotor.identified import AXES
from temporeal.sim.randomization.posterior import FORMAT, VERSION, checked
from temporeal.sim.randomization.statuses import PRIOR

SEEN = (0.02, 0.98)
"""Shares of a flight's voltages between which a battery is drawn: the rest are samples that are off."""
WIDER = 1.1
"""Of a spec's range, from which on a parameter is said to be wider: a mere prior is as wide, to rounding."""
HEAD = """\
# What the flights below left open of a robot: `temporeal train task=waypoints randomize={name}` draws from it.
# Means and covariance are in the coordinates that were fitted (natural logarithms of those under logarithm). voltage:
# of the battery, V, uniform from least to greatest; null: as at reference_v. docs/how-to/posterior-randomization.md
"""


def content(identified: Mapping[str, Any], voltage: Sequence[float] | None = None) -> dict[str, Any]:
    """The posterior in the content of an ``identified.yaml``, and the ``voltage`` that its flights had."""
    names = identified["covariance"]["order"]
    keep = [k for k, name in enumerate(names) if name in (*QUADROTOR.needed, QUADROTOR.exponent)]
    order = [names[k] for k in keep]
    matrix = np.array(identified["covariance"]["matrix"], float)[np.ix_(keep, keep)]
    return {
        "format": FORMAT, "version": VERSION, "robot": identified["robot"], "revision": identified["revision"],
        "logs": [{key: each[key] for key in ("name", "sha256")} for each in identified["logs"]],
        "converged": identified["fit"]["converged"], "reference_v": identified["fit"]["reference_v"],
        "voltage": list(voltage) if voltage is not None and QUADROTOR.exponent in order else None,
        "order": order, "status": {name: identified["parameters"][name]["status"] for name in order},
        "logarithm": [name for name in order if identified["parameters"][name]["logarithm"]],
        "mean": [float(identified["covariance"]["mean"][k]) for k in keep], "covariance": matrix.tolist()}


def drawn_together(posterior: Mapping[str, Any]) -> tuple[str, ...]:
    """The simulator's parameters that ``randomize=FILE`` draws from a posterior.

    Not the inertia, where a log does not tell torque to inertia: the prior of that ratio holds the extremes of thrust,
    arm and inertia at once, and is several times wider than what sources say of the inertia alone.
    """
    told = all(posterior["status"][f"torque_to_inertia_{axis}"] != PRIOR for axis in AXES)
    return tuple(name for name in QUADROTOR.made if told or name != "inertia")


def strange(posterior: Mapping[str, Any], robot: RobotSpec) -> list[str]:
    """In words what of a posterior's numbers is none of this robot's, by its spec."""
    variances = np.diag(np.array(posterior["covariance"], float))
    return parameters.strange(robot, posterior["order"], posterior["mean"], np.sqrt(np.maximum(variances, 0)).tolist())


def wider(identified: Mapping[str, Any], posterior: Mapping[str, Any], robot: RobotSpec) -> list[str]:
    """In words which of the parameters that are drawn have wider central 90 % than the ranges of the robot's spec."""
    out = []
    for name in drawn_together(posterior):
        if (own := robot.parameters.get(name)) is None or own.low == own.high:
            continue  # the spec has no range
        found = identified["simulator"][name]
        ratio = max((high - low) / (most - least) for low, high, least, most in zip(
            found["low"], found["high"], own.low, own.high) if most > least)
        if ratio > WIDER:
            out.append(f"{name} ({ratio:.2g} times as wide)")
    return out


def voltage_of(records: Sequence[FlightRecord]) -> list[float] | None:
    """Least and greatest voltage [V] of the flights' batteries; None where one did not log it."""
    found = [record.voltage[record.usable] for record in records if record.voltage is not None]
    if len(found) < len(records):
        return None
    return [round(float(each), 3) for each in np.quantile(np.concatenate(found), SEEN)]


def write(path: Path, what: Mapping[str, Any]) -> None:
    """Write the file whole or not at all; it is checked before."""
    checked(what, QUADROTOR, str(path))
    text = yaml.safe_dump(dict(what), sort_keys=False, width=110, default_flow_style=None)
    write_whole(path, (HEAD.format(name=path.name) + text).encode())
