"""A network in 8-bit whole numbers, by onnxruntime's dynamic quantizer.

Weights of matrix products become int8, one scale for each output; what is multiplied with them becomes uint8, by the
range that it has in this inference (Jacob et al. 2018, arXiv 1712.05877; the range as in onnxruntime's
DynamicQuantizeLinear). Ranges from a calibration, and products of two activations, were tried as well: the nodes that
scale cost more than the products save. Convolutions stay in float32.

What it costs is measured against float32 on the artifact's golden trace and written into the manifest, and its
self-test allows that much: golden commands stay float32's. What it gains depends on the network: products of less than
some 100 columns gain nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx

from temporeal.robots.artifact.additions import MOST, QUANTIZED, Int8Spec
from temporeal.robots.artifact.manifest import METADATA_KEY, ArtifactError, Manifest, check_int8, contract, version_of
from temporeal.robots.artifact.runtime import open_session

SCHEME = "dynamic, int8 weights by output, uint8 inputs by inference"

Arrays = Mapping[str, np.ndarray]


def quantized(network: bytes, manifest: Manifest, golden: Arrays) -> tuple[bytes, Manifest]:
    """``network`` in 8-bit numbers, and the manifest that says what that costs. ``golden``: of float32.

    :class:`ArtifactError` for a policy with memory or a reflex, whose golden trace does not say what a product sees in
    flight; where there is no product; and where the commands differ by more than a quarter of their range.
    """
    check_int8(manifest)
    if missing := [name for each in manifest.memory if (name := f"memory.{each.name}") not in golden]:
        raise ArtifactError(f"int8: the golden trace lacks {missing}, what was remembered before each inference")
    small = onnx.load_from_string(_quantize(network))
    products = sum(node.op_type == QUANTIZED for node in small.graph.node)
    if not products:
        raise ArtifactError("int8: the network has no product with constant weights to quantize")
    worst, rms = differences(small.SerializeToString(), manifest, golden)
    if not worst <= MOST:
        raise ArtifactError(f"int8: commands differ by {worst:.3g} of their range from those of float32, {MOST:g} is "
                            "allowed: export it in float32")
    spec = Int8Spec(SCHEME, products, worst, rms, Int8Spec.most_tolerance(worst))
    manifest = replace(manifest, int8=spec,
                       schema_version=version_of(manifest.chunk, manifest.reflex, manifest.instruction, spec))
    del small.metadata_props[:]
    onnx.helper.set_model_props(small, {METADATA_KEY: contract(manifest)})
    content: bytes = small.SerializeToString(deterministic=True)
    return content, manifest


def _quantize(network: bytes) -> bytes:
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with tempfile.TemporaryDirectory(prefix="temporeal-int8-") as name:
        plain, ready, made = (Path(name) / file for file in ("plain.onnx", "ready.onnx", "int8.onnx"))
        plain.write_bytes(network)
        quant_pre_process(str(plain), str(ready), skip_symbolic_shape=True)
        quantize_dynamic(
            str(ready), str(made), per_channel=True, op_types_to_quantize=["MatMul"], weight_type=QuantType.QInt8,
            extra_options={"MatMulConstBOnly": True, "DefaultTensorType": onnx.TensorProto.FLOAT})
        return made.read_bytes()


def differences(network: bytes, manifest: Manifest, golden: Arrays) -> tuple[float, float]:
    """Largest and root mean square difference of ``network``'s commands from those of the trace, in shares of each
    component's range. One observation at a time, as on a robot."""
    session, found = open_session(network), list[np.ndarray]()
    for step in range(len(golden[f"commands.{manifest.commands[0].name}"])):
        for spec, value in zip(manifest.commands, session.run(None, of_one(manifest, golden, step))):
            span = np.subtract(spec.high, spec.low).reshape(spec.shape)
            error = (value[0] - golden[f"commands.{spec.name}"][step]) / np.where(np.isfinite(span), span, 1.0)
            found.append(error.ravel())
    errors: np.ndarray = np.concatenate(found)
    return float(np.abs(errors).max()), float(np.sqrt(np.mean(errors**2)))


def seconds_a_run(network: bytes, feed: Arrays, runs: int = 50) -> float:
    """Median time of one inference on one thread [s]; ``feed``: one observation by input."""
    import time

    session, taken = open_session(network), list[float]()
    for _ in range(runs):
        began = time.perf_counter()
        session.run(None, dict(feed))
        taken.append(time.perf_counter() - began)
    return float(np.median(taken[len(taken) // 5 :]))


def of_one(manifest: Manifest, golden: Arrays, step: int = 0) -> dict[str, np.ndarray]:
    """One observation of the trace by input [1, *shape]."""
    held = {f"memory.{spec.name}": golden[f"memory.{spec.name}"][step : step + 1] for spec in manifest.memory}
    return {**{spec.name: np.asarray(golden[f"signals.{spec.name}"][step : step + 1], dtype=spec.dtype)
               for spec in manifest.signals}, **held}
