"""Residual dynamics of a robot's logs on top of what was identified, as a file takes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from temporeal.policies.training.flight_models import residual, rollout
from temporeal.policies.training.flight_models.descent import Descent
from temporeal.sim.identification.record import FlightRecord
from temporeal.sim.identification.validation.intervals import left_over
from temporeal.sim.identification.validation.model import Model
from temporeal.sim.identification.validation.stretches import stretches
from temporeal.sim.physics.quadrotor.residual.residual_file import Residual


def learned(model: Model, records: Sequence[FlightRecord], slow_commands: bool, descent: Descent | None = None
            ) -> Residual:
    """Residual dynamics trained on ``records``, with what they leave over on blocks that were held out."""
    descent = descent or Descent()
    ensemble, found = residual.trained(records, model.best, model.reference_v, descent=descent)
    held = [stretches(rollout.held_out(each), residual.HORIZON_S) for each in records]
    left = left_over(model.best, model.reference_v, held, ensemble)
    logs = tuple({"name": each.name, "sha256": each.digest, "seconds": round(each.seconds, 3)} for each in records)
    under = {name: {"value": each["value"], "low": np.minimum(each["low"], each["value"]).tolist(),
                    "high": np.maximum(each["high"], each["value"]).tolist()}  # quantiles of draws, of a product
             for name, each in model.content["simulator"].items()}
    return Residual(model.robot, logs, slow_commands, under, left.named(), {
        "held_out_before": float(found.before.mean()), "held_out_after": float(found.after.mean()),
        "horizon_s": residual.HORIZON_S, "rounds": found.updates, "seed": descent.seed}, ensemble)
