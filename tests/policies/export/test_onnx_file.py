"""All of a network is in its file, wherever ONNX lets a tensor be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from temporeal.robots.artifact.manifest import ArtifactError
from temporeal.robots.artifact.onnx_file import fields, outside
from temporeal.robots.artifact.runtime import open_session

WEIGHT = np.arange(4, dtype=np.float32)


def tensor(where: str = "") -> TensorProto:
    """The tensor w, in the file ``where`` if that is not empty."""
    out = numpy_helper.from_array(WEIGHT, "w")
    if where:
        out.ClearField("raw_data")
        out.data_location = TensorProto.EXTERNAL
        for key, value in (("location", where), ("offset", "0"), ("length", "16")):
            entry = out.external_data.add()
            entry.key, entry.value = key, value
    return out


def network(where: str = "", constant: bool = False) -> onnx.ModelProto:
    """y = x + w, with w an initializer or the constant of a node."""
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    if constant:
        nodes.insert(0, helper.make_node("Constant", [], ["w"], value=tensor(where)))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [] if constant else [tensor(where)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def nested() -> onnx.ModelProto:
    """In a branch of a node in a function: nobody may have looked there."""
    branch = helper.make_graph([], "b", [], [], [tensor("w.bin")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    model = network()
    model.functions.append(helper.make_function("d", "f", ["c"], ["y"], [node], [helper.make_opsetid("", 17)]))
    return model


def sparse() -> onnx.ModelProto:
    model = network()
    model.graph.sparse_initializer.add().values.CopyFrom(tensor("w.bin"))
    return model


@pytest.mark.parametrize("make", [
    lambda: network("w.bin"), lambda: network("../w.bin"), lambda: network("/tmp/w.bin"),
    lambda: network("w.bin", constant=True), nested, sparse])
def test_a_tensor_in_another_file_is_refused(
    make: Callable[[], onnx.ModelProto], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the file is there, in the working folder, and onnxruntime would load it."""
    monkeypatch.chdir(tmp_path)
    Path("w.bin").write_bytes(WEIGHT.tobytes())
    with pytest.raises(ArtifactError, match=r"policy.onnx has the tensor 'w' in another file \(ONNX external data\)"):
        open_session(make().SerializeToString())


@pytest.mark.parametrize("constant", [False, True])
def test_a_network_that_is_whole_is_loaded(constant: bool) -> None:
    data = network(constant=constant).SerializeToString()
    assert outside(data) is None
    assert open_session(data).run(None, {"x": np.ones(4, np.float32)})[0].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("data", [
    b"\x18\x00\x00\x00ORTM", b"\x0b", b"\x3a\x05a", b"\x3a", b"\xff" * 12, b"\xf0\x80\x80\x80\x10\x01"])
def test_what_is_no_onnx_is_refused(data: bytes) -> None:
    """Another format of onnxruntime's, groups, torn ends, a tag whose upper bits others' parsers drop."""
    with pytest.raises(ArtifactError, match=r"policy.onnx is not a network in ONNX's format: it is no protobuf"):
        open_session(data)


def test_fields_are_those_that_were_written() -> None:
    found = dict(fields(memoryview(tensor("w.bin").SerializeToString())))
    assert (found[2], found[8], found[14]) == (TensorProto.FLOAT, b"w", TensorProto.EXTERNAL)
