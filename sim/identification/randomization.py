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
from temporeal.sim.env_config import QUADROTOR
from temporeal.sim.identification.record import FlightRecord
from temporeal.sim.physics.quadrotor.identified import AXES
from temporeal.sim.randomization.posterior import FORMAT, VERSION, checked
from temporeal.sim.randomization.statuses import PRIOR

SEEN = (0.02, 0.98)
"""Shares of a flight's voltages between which a battery is drawn: the rest are samples that are off."""
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
    arm and inertia at once, and is wider than what sources say of the inertia alone.
    """
    told = all(posterior["status"][f"torque_to_inertia_{axis}"] != PRIOR for axis in AXES)
    return tuple(name for name in QUADROTOR.made if told or name != "inertia")


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
