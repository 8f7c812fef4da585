"""What an artifact of a policy for any formula has besides: the judge of legs as a second network, and the data that
the robot's planner needs.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn

from temporeal.policies.export.writer import OPSET
from temporeal.robots.artifact.formulas import CHANCE, HIT, OUTPUTS, SAMPLES, TICK, FormulaSpec
from temporeal.robots.artifact.manifest import METADATA_KEY, ArtifactError, Manifest, contract
from temporeal.robots.artifact.runtime import JUDGED
from temporeal.sim.rewards.follower import LEGS, MISSION, SIZE
from temporeal.sim.stl.distribution.settings import World
from temporeal.sim.task import Task
from temporeal.sim.task_parts.formula_bank import travel_speed

Arrays = Mapping[str, np.ndarray]


def formula_spec(
    task: Task, calibration: Mapping[str, float], validation: float, randomized: bool = False
) -> FormulaSpec:
    """The manifest's part for a policy of ``task``, which is any formula. ``calibration``: slope and offset of the
    judge's log-odds; ``validation``: share of the validation family that was satisfied; ``randomized``: whether both
    are of flights under the training's randomization."""
    observe: Any = task.observe
    world: World = observe.world
    if abs(world.dt - task.control_dt) > 1e-9:
        raise ArtifactError(f"formulas are planned in samples of {world.dt:g} s, the policy acts every "
                            f"{task.control_dt:g} s: they must be the same")
    speed, per_axis = travel_speed(world, observe.system)
    return FormulaSpec(
        MISSION, SIZE, LEGS, world.signal, world.keep, {k: float(v) for k, v in world.constants.items()},
        observe.follower.slack, observe.follower.margin, float(speed), per_axis, float(world.horizon_s),
        world.radius, world.avoid_radius, float(calibration["slope"]), float(calibration["offset"]), float(validation),
        randomized, world.room)


def forecast_of(run: Path, task: Task) -> tuple[nn.Module, FormulaSpec]:
    """The judge that ``run`` learned, and what its manifest says. A CheckpointError where it learned none."""
    from temporeal.policies.any_formula.generalist import load_judge
    from temporeal.policies.training.generalist.forecast import in_conditions
    from temporeal.policies.training.ppo_checkpoint import read_last

    judge, calibration = load_judge(run, task)
    return judge, formula_spec(task, calibration, read_last(run)["companion"]["validation"], in_conditions(run))


def judged(judge: nn.Module, golden: Arrays, of: FormulaSpec) -> dict[str, np.ndarray]:
    """What ``judge`` says of each step of the trace ``golden``, as it is kept there."""
    rows = (golden[f"signals.{of.signal}"], golden[f"signals.{of.position}"], golden[f"memory.{TICK}"],
            golden[f"memory.{HIT}"])
    with torch.no_grad():
        found = judge(*(torch.from_numpy(np.ascontiguousarray(row, np.float32)) for row in rows))
    return {f"{JUDGED}{name}": value.numpy() for name, value in zip((CHANCE, SAMPLES), found)}


def traced(judge: nn.Module, manifest: Manifest) -> bytes:
    """The ONNX file of ``judge`` for any number of rows, with the manifest's contract in its metadata."""
    of, buffer = manifest.formulas, io.BytesIO()
    if of is None:
        raise ArtifactError("a judge belongs to a policy that takes formulas")
    rows = tuple(torch.full((2, *shape), 0.1) for shape in of.inputs.values())
    names = [*of.inputs, *OUTPUTS]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # as in temporeal.policies.export.writer
        torch.onnx.export(
            deepcopy(judge).cpu().eval(), rows, buffer,  # type: ignore[arg-type]
            input_names=list(of.inputs), output_names=list(OUTPUTS), opset_version=OPSET, dynamo=False,
            dynamic_axes={name: {0: "n"} for name in names})
    model = onnx.load_from_string(buffer.getvalue())
    outputs = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", *shape])
               for name, shape in OUTPUTS.items()]
    del model.graph.output[:]
    model.graph.output.extend(outputs)
    onnx.helper.set_model_props(model, {METADATA_KEY: contract(manifest)})
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content
