"""Two ONNX graphs as one: that of an artifact, and one that reads its command.

The artifact's own signals are shared, its memory goes in and out under names of its own, and its command becomes an
input of the second graph. Nothing is computed anew: the nodes stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from temporeal.robots.artifact.manifest import METADATA_KEY, ArtifactError, Manifest, contract

INNER = "base/"
"""Before the names of what is inside the artifact's graph."""


def merged(base: bytes, second: bytes, names: Mapping[str, str], manifest: Manifest) -> bytes:
    """``base`` before ``second``, as ``manifest`` describes both together.

    Args:
        names: of inputs and outputs of ``base``: what they are called in the whole, or in ``second``; signals that are
            left out keep their names.
    """
    first, then = onnx.load_from_string(base), onnx.load_from_string(second)
    require_same_operators(first, then)
    outside = {each.name: names.get(each.name, each.name) for each in (*first.graph.input, *first.graph.output)}
    rename(first.graph, outside)
    inner = {each.name for each in first.graph.output} & {each.name for each in then.graph.input}
    inputs = {each.name: each for each in (*first.graph.input, *then.graph.input) if each.name not in inner}
    outputs = {each.name: each for each in (*first.graph.output, *then.graph.output) if each.name not in inner}
    memory = [spec.name for spec in manifest.memory]
    order = [*(s.name for s in manifest.signals), *(f"memory.{name}" for name in memory)]
    given = [*(c.name for c in manifest.commands), *(f"next.{name}" for name in memory)]
    graph = onnx.helper.make_graph(
        [*first.graph.node, *then.graph.node], "base and residual", picked(order, inputs), picked(given, outputs),
        [*first.graph.initializer, *then.graph.initializer])
    model = onnx.helper.make_model(graph, opset_imports=list(then.opset_import), ir_version=then.ir_version)
    onnx.helper.set_model_props(model, {METADATA_KEY: contract(manifest)})
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def require_same_operators(first: Any, then: Any) -> None:
    """Refuse graphs of different sets of operators, and functions of an own kind."""
    sets = [{each.domain: each.version for each in model.opset_import} for model in (first, then)]
    if sets[0] != sets[1] or first.functions or then.functions:
        raise ArtifactError(f"the graph of the base has operators {sets[0]}, that of the residual {sets[1]}: export "
                            "the base anew with this version")


def rename(graph: Any, outside: Mapping[str, str]) -> None:
    """Give inputs and outputs their names ``outside``, and all else one that no other graph has."""

    def new(name: str) -> str:
        return outside.get(name, f"{INNER}{name}") if name else name

    for node in graph.node:
        if any(attribute.HasField("g") for attribute in node.attribute):
            raise ArtifactError(f"the graph of the base has a branch or a loop ({node.op_type}), which is not merged")
        node.name = f"{INNER}{node.name}"
        node.input[:] = [new(name) for name in node.input]
        node.output[:] = [new(name) for name in node.output]
    for part in (graph.input, graph.output, graph.initializer):
        for each in part:
            each.name = new(each.name)


def picked(order: Sequence[str], found: Mapping[str, Any]) -> list[Any]:
    """Those of ``found``, all of them, in ``order``."""
    if different := set(order) ^ set(found):
        raise ArtifactError(f"the merged graph and its manifest differ in {', '.join(sorted(different))}")
    return [found[name] for name in order]
