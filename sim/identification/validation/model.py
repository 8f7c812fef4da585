"""What ``identified.yaml`` says of a robot, as the simulator flies it: its best parameters, and draws of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from temporeal.robots.spec import RobotSpec
from temporeal.sim.identification.identified_file import FORMAT
from temporeal.sim.identification.parameters import Quantity, flown, quantities
from temporeal.sim.identification.record import Numbers
from temporeal.sim.identification.shooting import Flown


@dataclass(frozen=True)
class Model:
    """Parameters ``asked`` with their posterior: mean [Q], covariance [Q, Q]."""

    robot: str
    asked: tuple[Quantity, ...]
    mean: Numbers
    covariance: Numbers
    reference_v: float
    content: Mapping[str, Any]

    @property
    def best(self) -> Flown:
        """The posterior's mean, one vector."""
        return flown(self.asked, self.mean[None])

    def drawn(self, count: int, rng: np.random.Generator) -> Flown:
        """That many draws."""
        return flown(self.asked, rng.multivariate_normal(self.mean, self.covariance, count, method="eigh"))


def model_of(content: Mapping[str, Any], robot: RobotSpec, where: str) -> Model:
    """The model of an identification (:func:`..identified_file.read`) of ``robot``."""
    if content["format"] != FORMAT:
        raise ValueError(f"{where} is of format {content['format']!r}; {FORMAT!r} is needed, whose flights are "
                         "predicted")
    if content["robot"] != robot.name:
        raise ValueError(f"{where} is of robot {content['robot']!r}, and the logs are of {robot.name!r}")
    found = content["parameters"]
    fast = not any(name.startswith("command_share") for name in found)
    usual = {each.name: each for each in quantities(robot, fast, "voltage_exponent" in found)}
    if set(found) != set(usual):
        odd = sorted(set(found) ^ set(usual))
        raise ValueError(f"{where} has other parameters than this version identifies ({', '.join(odd)}): identify "
                         "again")
    posterior = content["covariance"]
    return Model(robot.name, tuple(usual[name] for name in posterior["order"]), np.array(posterior["mean"]),
                 np.array(posterior["matrix"]), float(content["fit"]["reference_v"]), content)
