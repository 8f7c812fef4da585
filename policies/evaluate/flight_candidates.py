"""Who predicts a robot's flights: its spec, what was identified, residual dynamics, and simpler ones as a measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from temporeal.policies.evaluate.flight_prediction import Candidate
from temporeal.robots.spec import RobotSpec
from temporeal.sim.identification import prediction
from temporeal.sim.identification.record import FlightRecord, Numbers
from temporeal.sim.identification.validation import intervals, predictors
from temporeal.sim.identification.validation.intervals import LeftOver
from temporeal.sim.identification.validation.model import Model
from temporeal.sim.identification.validation.stretches import Predictor, Stretches, Told, stretches
from temporeal.sim.physics.quadrotor.residual.ensemble import Ensemble
from temporeal.sim.physics.quadrotor.residual.residual_file import Residual

HORIZON_S = 0.5
NOMINAL, IDENTIFIED, RESIDUAL, HOLD, LINEAR, LSTM = (
    "nominal", "identified", "identified + residual", "hold", "linear", "LSTM")


@dataclass(frozen=True)
class Sources:
    """What there is to predict with.

    Args:
        model: what was identified. residual: on top of it. train: flights for what is learned of them; none: it is
            left out. lstm: an LSTM of them. told: what the linear model is told; None: all that ``train`` tells.
    """

    robot: RobotSpec
    reference_v: float
    model: Model | None = None
    residual: Residual | None = None
    train: tuple[FlightRecord, ...] = ()
    lstm: Predictor | None = None
    told: Told | None = None


def candidates(given: Sources, seed: int = 0, draws: int = intervals.DRAWS) -> tuple[list[Candidate], dict[str, str]]:
    """All that can be made of what is given, and why others are left out."""
    voltage = given.reference_v
    out = [Candidate(HOLD, "goes on at the measured velocity", predictors.hold),
           Candidate(NOMINAL, "the simulator with the spec's nominal parameters (datasheet)",
                     predictors.simulator(prediction.datasheet(given.robot), voltage))]
    left_out = dict[str, str]()
    posed = [each for each in given.train if each.has_pose]
    calibrated = [stretches(each, HORIZON_S) for each in posed]
    if given.model is None:
        left_out[IDENTIFIED] = "no --identified, and no --train to identify from"
    else:
        covered = None
        if calibrated:
            left = intervals.left_over(given.model.best, voltage, calibrated)
            covered = Covered(given.model, left, None, seed, draws)
        else:
            left_out[f"intervals of {IDENTIFIED}"] = ("what it leaves over is told by flights with motion capture that "
                                                      "were fitted: --train")
        out.append(Candidate(IDENTIFIED, "the simulator with what was identified",
                             predictors.simulator(given.model.best, voltage), covered))
    if given.model is None or given.residual is None:
        left_out[RESIDUAL] = "no --residual, and no --train with motion capture to learn it from"
    else:
        ensemble = given.residual.ensemble
        out.append(Candidate(
            RESIDUAL, f"with residual dynamics, the mean of {ensemble.members} members",
            predictors.simulator(given.model.best, voltage, ensemble),
            Covered(given.model, intervals.of_names(given.residual.noise), ensemble, seed, draws)))
    if calibrated:
        out.append(Candidate(LINEAR, f"ARX of {predictors.LAGS} steps, least squares",
                             predictors.linear(calibrated, given.told)))
    else:
        left_out[LINEAR] = "it is learned of flights with motion capture: --train"
    if given.lstm is not None:
        out.append(Candidate(LSTM, "a network without physics", given.lstm))
    else:
        left_out[LSTM] = left_out.get(LINEAR, "it was not asked for")
    return out, left_out


@dataclass(frozen=True)
class Covered:
    """Which measured components lie within the 90 % of draws of a model."""

    model: Model
    left: LeftOver
    ensemble: Ensemble | None
    seed: int
    draws: int

    def __call__(self, where: Stretches) -> Mapping[str, Numbers]:
        """[S, L] shares by channel."""
        if not where.record.has_pose:
            return {}
        found = intervals.drawn(self.model.drawn, self.model.reference_v, where, self.left,
                                np.random.default_rng(self.seed), self.ensemble, self.draws)
        return intervals.coverage(found, where)


def fitted_logs(given: Sources, records: Sequence[FlightRecord]) -> dict[str, list[str]]:
    """SHA-256 of the ``records`` that something was fitted to, and what that is."""
    of = {"identified": [] if given.model is None else given.model.content["logs"],
          "residual dynamics": [] if given.residual is None else given.residual.logs}
    known = [(what, each["sha256"]) for what, logs in of.items() for each in logs]
    known += [("--train", each.digest) for each in given.train]
    return {each.digest: found for each in records
            if (found := [what for what, digest in known if digest == each.digest])}


def of_same_physics(model: Model, residual: Residual, where: str) -> None:
    """Refuse residual dynamics that were trained on top of another identification."""
    residual.of_robot(model.robot, where)
    for name, each in model.content["simulator"].items():
        mine = np.array(each["value"])
        other = np.array(residual.physics[name]["value"])
        if not np.allclose(mine, other, rtol=1e-4, atol=1e-12):
            raise ValueError(f"{where} was trained on top of {name} {other}, and the identification has {mine}: give "
                             "the identified.yaml it was written with, or train it again")
