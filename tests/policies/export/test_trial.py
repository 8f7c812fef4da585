"""A network that asks for memory or time without end takes neither: it is tried in a process with bounds."""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from temporeal.policies.export.writer import ArtifactSpec, export
from temporeal.policies.runs.artifacts import load_artifact
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.artifact import manifest as manifests
from temporeal.robots.artifact import trial
from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.artifact.manifest import ArtifactError
from temporeal.robots.spec import load_robot


class Still(nn.Module):
    """The smallest policy: a command out of the height."""

    def initial_memory(self, n: int) -> dict[str, Any]:
        return {}

    def forward(self, signals: dict[str, Any], memory: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"ctbr_cmd": 0.1 * signals["height"][:, None] * torch.ones(1, 4)}, {}


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    heights = np.linspace(0, 1, 5, dtype=np.float32)
    golden = {"signals.height": heights, "commands.ctbr_cmd": 0.1 * np.tile(heights[:, None], (1, 4))}
    spec = ArtifactSpec(
        robot=load_robot("crazyflie"), signals=("height",), command="ctbr_cmd", rate_hz=50.0,
        formula_text="G[0,1] (height > 0)", constants={}, horizon_s=1.0, training={}, seed=0, stop="level",
        name="still", git_revision="test")
    return export(Still(), tmp_path_factory.mktemp("still") / "artifact", spec, golden).path


def constants(graph: Any, **values: Any) -> None:
    graph.initializer.extend(numpy_helper.from_array(np.asarray(value), name) for name, value in values.items())


def hungry(graph: Any) -> None:
    """Forty gigabytes of zeros."""
    constants(graph, sizes=np.array([10**5, 10**5], np.int64))
    graph.node.extend([helper.make_node("ConstantOfShape", ["sizes"], ["many"]),
                       helper.make_node("ReduceMax", ["many"], ["most"], keepdims=0)])


def endless(graph: Any) -> None:
    """A million million additions."""
    def of(name: str, kind: int) -> Any:
        return helper.make_tensor_value_info(name, kind, [])

    body = helper.make_graph(
        [helper.make_node("Identity", ["c_in"], ["c_out"]), helper.make_node("Add", ["x_in", "one"], ["x_out"])],
        "body",
        [of("i", TensorProto.INT64), of("c_in", TensorProto.BOOL), of("x_in", TensorProto.FLOAT)],
        [of("c_out", TensorProto.BOOL), of("x_out", TensorProto.FLOAT)])
    constants(graph, count=np.int64(10**12), go=np.bool_(True), none=np.float32(0), one=np.float32(1))
    graph.node.append(helper.make_node("Loop", ["count", "go", "none"], ["most"], body=body))


def with_network(artifact: Path, change: Any) -> Path:
    """``artifact`` with a network that computes the same, and something beside it; its digests are right."""
    model = onnx.load(str(artifact / "policy.onnx"))
    out = model.graph.output[0].name
    for node in model.graph.node:
        node.output[:] = ["before" if name == out else name for name in node.output]
    change(model.graph)
    constants(model.graph, zero=np.float32(0))
    model.graph.node.extend([helper.make_node("Mul", ["most", "zero"], ["nothing"]),
                             helper.make_node("Add", ["before", "nothing"], [out])])
    data = model.SerializeToString()
    (artifact / "policy.onnx").write_bytes(data)
    old = manifests.decode((artifact / "manifest.json").read_bytes())
    files = {**old.files, "policy.onnx": hashlib.sha256(data).hexdigest()}
    (artifact / "manifest.json").write_bytes(manifests.encode(replace(old, files=files)))
    return artifact


@pytest.fixture
def copy(artifact: Path, tmp_path: Path) -> Path:
    import shutil

    return Path(shutil.copytree(artifact, tmp_path / "copy"))


def test_a_network_that_takes_memory_without_end_is_refused(copy: Path) -> None:
    with pytest.raises(BadInput, match="cannot be run on its trace: .*allocate"):
        load_artifact(with_network(copy, hungry))


def test_a_network_that_takes_time_without_end_is_refused(copy: Path) -> None:
    with_network(copy, endless)
    began = time.monotonic()
    with pytest.raises(ArtifactError, match="takes too much time: it was tried in a process of its own"):
        trial.tried(copy, load_manifest(copy), least_s=1.0)
    assert time.monotonic() - began < 20


def test_an_honest_one_passes_and_a_damaged_one_is_named(copy: Path) -> None:
    trial.tried(copy, load_manifest(copy))
    (copy / "golden.npz").write_bytes(b"PK")
    with pytest.raises(ArtifactError, match=r"golden\.npz was changed after export"):
        trial.tried(copy, load_manifest(copy))
