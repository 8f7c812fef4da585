"""The process of MuJoCo's own system identification (``mujoco.sysid``, of the environment's MuJoCo)."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from mujoco.sysid._src import model_modifier, optimize, parameter, residual, timeseries, trajectory

from temporeal_benchmarks.peers.process import serve

STATE: dict[str, Any] = {}


def put(joint: str, spec: mujoco.MjSpec, p: parameter.Parameter) -> None:
    """Write a joint's parameters [armature, viscous, frictionloss, kp] into ``spec``."""
    armature, viscous, friction, kp = p.value
    spec.joint(joint).armature, spec.joint(joint).frictionloss = armature, friction
    spec.joint(joint).damping = np.zeros(3)
    model_modifier.apply_pdgain(spec, joint, np.array([kp, viscous]))


def fit(xml: str, data: str, joints: list[str]) -> dict[str, Any]:
    """Parameters [J, 4] with 90 % half-widths by its defaults, from a log in an NPZ file (its absolute path).

    The file: control [N, U] at ``control_times`` [N], sensors [T, C] at ``times`` [T], qpos where it begins, and
    nominal, low, high [J, 4].
    """
    with np.load(data, allow_pickle=False) as given:
        log = {name: given[name] for name in given.files}
    spec = mujoco.MjSpec.from_string(Path(xml).read_text())
    model = spec.compile()
    params = parameter.ParameterDict()
    for joint, nominal, low, high in zip(joints, log["nominal"], log["low"], log["high"]):
        params.add(parameter.Parameter(joint, nominal, low, high, modifier=partial(put, joint)))
    began = time.process_time()
    begin = trajectory.create_initial_state(model, log["qpos"])
    sequences = trajectory.ModelSequences(
        "arm", spec, "log", begin, timeseries.TimeSeries(log["control_times"], log["control"]),
        timeseries.TimeSeries.from_names(log["times"], log["sensors"], model))
    ask = residual.build_residual_fn(models_sequences=[sequences], n_threads=1)
    found, result = optimize.optimize(params, ask, verbose=False)
    seconds = time.process_time() - began
    left, _, _ = ask(result.x, found)
    _, wide = optimize.calculate_intervals(left, result.jac, alpha=0.1)
    shape = (len(joints), 4)
    return {"values": np.reshape(result.x, shape).tolist(), "wide": np.reshape(wide, shape).tolist(),
            "seconds": seconds}


if __name__ == "__main__":
    serve([fit])
