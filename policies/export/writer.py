"""Write an artifact: trace observe -> network -> command into ONNX, add manifest and golden trace, self-test, publish.

The exporter is torch's TorchScript one (``dynamo=False``): deprecated since torch 2.9 but present in the pinned
version, and the only one that needs no package beyond ``onnx`` (its successor needs ``onnxscript``). Its result is
checked from outside (names, shapes, golden trace, batch sizes), so the exporter can be exchanged in `trace`. """

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from temporeal.policies.export.int8 import quantized
from temporeal.policies.export.provenance import revision, versions
from temporeal.robots.artifact.additions import DriftSpec, InstructionSpec
from temporeal.robots.artifact.formulas import JUDGE, OUTPUTS, FormulaSpec
from temporeal.robots.artifact.loading import refuse_other_folder
from temporeal.robots.artifact.manifest import (
    GOLDEN,
    MANIFEST,
    METADATA_KEY,
    POLICY,
    REFLEX,
    SELF_TEST_TOLERANCE,
    ArtifactError,
    ChunkSpec,
    Manifest,
    MemorySpec,
    ReflexSpec,
    check,
    contract,
    digest,
    encode,
    plain,
    version_of,
)
from temporeal.robots.artifact.runtime import JUDGED, Artifact
from temporeal.robots.atomic_files import staged
from temporeal.robots.signals import CommandSpec, Schema, SignalSpec
from temporeal.robots.spec import RobotSpec

OPSET = 17  # read by onnxruntime 1.12 (2022) and newer


class Exportable(Protocol):
    """An exportable policy: a module from raw signals and memory [N, ...] to raw commands and the next memory."""

    def __call__(
        self, signals: Mapping[str, Tensor], memory: Mapping[str, Tensor]
    ) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """Commands by name [N, *shape] and the memory for the next control step."""

    def initial_memory(self, n: int) -> Mapping[str, Tensor]:
        """Memory of ``n`` robots at mission start, [n, *shape] each."""


class Flat(nn.Module):
    """The policy with positional tensors instead of dictionaries, as ONNX graphs have them."""

    def __init__(self, policy: Any, signals: Sequence[str], commands: Sequence[str], memory: Sequence[str]) -> None:
        super().__init__()
        self.policy = policy
        self.signals, self.commands, self.memory = tuple(signals), tuple(commands), tuple(memory)

    def forward(self, *flat: Tensor) -> tuple[Tensor, ...]:
        """Signals then memory in, commands then next memory out."""
        count = len(self.signals)
        commands, after = self.policy(dict(zip(self.signals, flat[:count])), dict(zip(self.memory, flat[count:])))
        return (*(commands[name] for name in self.commands), *(after[name] for name in self.memory))


@dataclass(frozen=True)
class ArtifactSpec:
    """What an artifact states besides its networks; see :class:`temporeal.robots.artifact.manifest.Manifest`.

    Args:
        signals: names of the signals that the policy reads, in the order of the graph's inputs.
        command: name of the robot's command that it gives.
        task_signals: signals of the task that the robot does not have.
        git_revision: of the project; None: that of the working tree.
        instruction: what the policy can be told; with ``fixed``, ``policy`` does not read it any more.
        drift: what a monitor compares its flights with.
        formulas: what its formulas may be; None: it has one.
    """

    robot: RobotSpec
    signals: Sequence[str]
    command: str
    rate_hz: float
    formula_text: str
    constants: Mapping[str, Any]
    horizon_s: float
    training: Mapping[str, Any]
    seed: int
    stop: str
    name: str = "policy"
    git_revision: str | None = None
    task_signals: Schema | None = None
    chunk: ChunkSpec | None = None
    reflex: ReflexSpec | None = None
    instruction: InstructionSpec | None = None
    drift: DriftSpec | None = None
    formulas: FormulaSpec | None = None


Trace = Callable[[Exportable, Manifest], bytes]
"""The ONNX file of a policy, as its manifest describes it."""


def export(
    policy: Exportable, path: str | Path, spec: ArtifactSpec, golden: Mapping[str, np.ndarray], *,
    between: Exportable | None = None, int8: bool = False, traced: Trace | None = None,
    judge: Callable[[Manifest], bytes] | None = None,
) -> Artifact:
    """Write ``policy`` as an artifact to the folder ``path`` and return it loaded.

    ``golden`` is a recorded mission from its first step: ``signals.<name>`` and ``commands.<name>`` [T, *shape] of the
    environment that the policy was trained in, and ``memory.<name>``, the policy's memory before each step. The folder
    appears complete under its name or not at all: it is written beside it, loaded, self-tested against ``golden``, and
    then renamed. An older artifact there is replaced; anything else there is an error. With a chunk, commands are [N,
    steps, *shape], and [T, steps, *shape] in ``golden``. With a reflex, ``between`` decides at the steps between
    evaluations of the task network, with the same memory as ``policy``. ``int8``: products in 8-bit numbers
    (:mod:`temporeal.policies.export.int8`). ``traced``: makes the graph of ``policy``, in place of :func:`trace`.
    ``judge``: makes that of the judge of a policy that takes formulas; ``golden`` has what it says
    (:mod:`temporeal.policies.export.formulas`).
    """
    if (spec.reflex is None) != (between is None):
        raise ArtifactError("a reflex and the network of the steps between belong together")
    if (spec.formulas is None) != (judge is None):
        raise ArtifactError("a policy that takes formulas and a judge of them belong together")
    path, robot, task_signals = Path(path), spec.robot, spec.task_signals
    refuse_other_folder(path)
    manifest = manifest_of(spec, policy)
    check(manifest)
    data = {POLICY: (traced or trace)(policy, manifest), GOLDEN: pack(golden, manifest)}
    if between is not None:
        data[REFLEX] = trace(between, manifest)
    if judge is not None:
        data[JUDGE] = judge(manifest)
    if int8:
        data[POLICY], manifest = quantized(data[POLICY], manifest, golden)
    manifest = replace(manifest, files={file: digest(content) for file, content in data.items()})
    data[MANIFEST] = encode(manifest)
    with staged(path) as folder:
        for file, content in data.items():
            write(folder / file, content)
        written = Artifact.load(folder, robot, task_signals=task_signals)
        written.self_test()
        check_batch(written, written.manifest.tolerance)
    return Artifact.load(path, robot, task_signals=task_signals)


def manifest_of(spec: ArtifactSpec, policy: Exportable) -> Manifest:
    """The manifest of ``policy`` as ``spec`` describes it, its files without their digests."""
    robot = spec.robot
    known = {**robot.signals, **(spec.task_signals or {})}
    return Manifest(
        name=spec.name, robot=robot.name, signals=chosen(known, spec.signals, robot.name),
        commands=(robot.command(spec.command),), rate_hz=float(spec.rate_hz), memory=memory_specs(policy),
        formula=spec.formula_text, constants=plain(spec.constants, "constants"), horizon_s=float(spec.horizon_s),
        stop=spec.stop, training=plain(spec.training, "training"), versions=versions(), seed=int(spec.seed),
        git_revision=spec.git_revision or revision(),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        files=dict.fromkeys((GOLDEN, POLICY, *((REFLEX,) if spec.reflex is not None else ()),
                             *((JUDGE,) if spec.formulas is not None else ())), ""),
        chunk=spec.chunk, reflex=spec.reflex, instruction=spec.instruction, drift=spec.drift, formulas=spec.formulas,
        schema_version=version_of(spec.chunk, spec.reflex, spec.instruction, drift=spec.drift,
                                  formulas=spec.formulas))


def chosen(known: Schema, names: Sequence[str], robot: str) -> tuple[SignalSpec, ...]:
    """The specs of the signals that the policy reads."""
    for name in names:
        if name not in known:
            raise ArtifactError(f"the policy reads signal {name!r}, robot {robot!r} has: {', '.join(known)}")
    return tuple(known[name] for name in names)


def memory_specs(policy: Exportable) -> tuple[MemorySpec, ...]:
    """Name, shape and initial value of each memory tensor."""
    start = policy.initial_memory(1)
    return tuple(MemorySpec(name, tuple(value.shape[1:]), value[0].tolist()) for name, value in start.items())


def example(specs: Sequence[SignalSpec | CommandSpec], n: int) -> list[Tensor]:
    """Tensors of the right shapes to trace with; quaternions are the identity."""
    out = []
    for spec in specs:
        value = torch.full((n, *spec.shape), 0.1 if spec.dtype == "float32" else 1, dtype=getattr(torch, spec.dtype))
        if spec.unit == "wxyz":
            value = torch.tensor([1.0, 0.0, 0.0, 0.0]).repeat(n, 1)
        out.append(value)
    return out


def trace(policy: Exportable, manifest: Manifest) -> bytes:
    """The ONNX file of ``policy`` for any batch size, with the contract in its metadata."""
    signals = [spec.name for spec in manifest.signals]
    commands = [spec.name for spec in manifest.commands]
    memory = [spec.name for spec in manifest.memory]
    inputs = [*signals, *(f"memory.{name}" for name in memory)]
    outputs = [*commands, *(f"next.{name}" for name in memory)]
    arguments = (*example(manifest.signals, 2), *(torch.from_numpy(spec.start(2)) for spec in manifest.memory))
    flat = Flat(deepcopy(policy), signals, commands, memory).cpu().eval()
    buffer = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        # deprecation: see the head of this file; tracer: it warns of Python branches on shapes, which are constant here
        warnings.simplefilter("ignore")
        torch.onnx.export(
            flat, arguments, buffer,  # type: ignore[arg-type]  # its hint is the successor's, this exporter takes a buffer
            input_names=inputs, output_names=outputs, opset_version=OPSET, dynamo=False,
            dynamic_axes={name: {0: "n"} for name in (*inputs, *outputs)})
    model = onnx.load_from_string(buffer.getvalue())
    keep_inputs(model, manifest, dict(zip(inputs, arguments)))
    state_outputs(model, manifest)
    onnx.helper.set_model_props(model, {METADATA_KEY: contract(manifest)})
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def keep_inputs(model: Any, manifest: Manifest, arguments: Mapping[str, Tensor]) -> None:
    """Put back, in order, the inputs that the tracer dropped because nothing reads them.

    A memory tensor that is written but not read is harmless. A signal that is never read is an error.
    """
    kept = {node.name: node for node in model.graph.input}
    unread = [spec.name for spec in manifest.signals if spec.name not in kept]
    if unread:
        raise ArtifactError(f"the policy never reads the signals {unread}: leave them out of `signals`")
    for name, value in arguments.items():
        kept.setdefault(name, onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", *value.shape[1:]]))
    del model.graph.input[:]
    model.graph.input.extend(kept[name] for name in arguments)


def state_outputs(model: Any, manifest: Manifest) -> None:
    """Write the manifest's shapes to the outputs: behind a slice (a pushed history) the tracer loses the size, which is
    constant. A wrong shape would not survive the golden trace: the memory goes back in, where onnxruntime checks it."""
    shapes = {spec.name: manifest.given(spec) for spec in manifest.commands}
    shapes.update({f"next.{spec.name}": spec.shape for spec in manifest.memory})
    stated = [onnx.helper.make_tensor_value_info(node.name, onnx.TensorProto.FLOAT, ["n", *shapes[node.name]])
              for node in model.graph.output]
    del model.graph.output[:]
    model.graph.output.extend(stated)


def pack(golden: Mapping[str, np.ndarray], manifest: Manifest) -> bytes:
    """The file ``golden.npz``: the arrays that the manifest needs, in the signals' types, else float32; memory if all
    of it was recorded."""
    needed = [f"signals.{s.name}" for s in manifest.signals] + [f"commands.{c.name}" for c in manifest.commands]
    needed += [] if manifest.formulas is None else [f"{JUDGED}{name}" for name in OUTPUTS]
    missing = [name for name in needed if name not in golden]
    if missing:
        raise ArtifactError(f"the golden trace lacks {missing}; got {sorted(golden)}")
    memory = [f"memory.{m.name}" for m in manifest.memory]
    needed += memory if all(name in golden for name in memory) else []
    buffer = io.BytesIO()
    types = {f"signals.{s.name}": np.dtype(s.dtype) for s in manifest.signals}
    arrays = dict[str, Any]()
    for name in needed:
        given, wanted = np.asarray(golden[name]), types.get(name, np.dtype(np.float32))
        if wanted == np.uint8 and given.dtype != wanted:  # a cast would wrap what is beyond, and make 0.5 a 0
            raise ArtifactError(f"the golden trace: {name} is {given.dtype}, the signal is uint8")
        if wanted.kind == "i" and not np.array_equal(given, given.astype(wanted)):
            raise ArtifactError(f"the golden trace: {name} has numbers that are not whole, the signal is {wanted}")
        arrays[name] = given.astype(wanted)
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def check_batch(artifact: Artifact, tolerance: float = SELF_TEST_TOLERANCE) -> None:
    """Three robots at once give what each gives alone: the tracer froze nothing of the batch size."""
    rows = [0, len(next(iter(artifact.golden.values()))) // 2, -1]
    signals = {name: artifact.golden[f"signals.{name}"][rows] for name in artifact.schema}
    memory = {name: artifact.golden[f"memory.{name}"][rows] if f"memory.{name}" in artifact.golden else start
              for name, start in artifact.initial_memory(3).items()}
    together, _ = artifact.act_batch(signals, memory)
    for i in range(3):
        one = slice(i, i + 1)
        alone, _ = artifact.act_batch({k: v[one] for k, v in signals.items()}, {k: v[one] for k, v in memory.items()})
        for name, value in alone.items():
            whole = together[name].shape[0] == 3
            error = float(artifact.difference(name, together[name][i], value[0]).max()) if whole else np.inf
            if not error <= tolerance:
                raise ArtifactError(f"command {name!r} depends on the batch size: difference {error:.3g}")


def write(path: Path, content: bytes) -> None:
    """Write ``content`` and flush it to disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
