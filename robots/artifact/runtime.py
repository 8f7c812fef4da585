"""Run an artifact: raw signals in, raw commands out. numpy and onnxruntime only, no torch, Python 3.10 and newer.

    artifact = Artifact.load("outputs/demo/artifact", load_robot("crazyflie"))
    artifact.self_test()
    commands = artifact.act(signals)          # every 1 / artifact.manifest.rate_hz seconds

Loading refuses anything that does not match and names it (:class:`ArtifactError`). Nothing is unpickled.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

# from 1.29 on, onnxruntime otherwise sends what it runs, and on what, to Microsoft; read where it is imported
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime

from temporeal.robots.artifact.additions import QUANTIZED
from temporeal.robots.artifact.formulas import (
    CHANCE,
    HIT,
    HITS,
    JUDGE,
    JUDGE_TOLERANCE,
    OUTPUTS,
    POINTS,
    PROGRAMS,
    SAMPLES,
    TICK,
    TICKS,
    FormulaSpec,
)
from temporeal.robots.artifact.loading import load_manifest, read
from temporeal.robots.artifact.manifest import (
    ENGAGED,
    GOLDEN,
    MANIFEST,
    METADATA_KEY,
    PHASE,
    POLICY,
    REFLEX,
    RISK,
    ArtifactError,
    Damaged,
    Manifest,
    check_robot,
    contract,
    digest,
)
from temporeal.robots.artifact.onnx_file import count, outside
from temporeal.robots.handed_over.arrays import read_npz
from temporeal.robots.handed_over.files import Refused
from temporeal.robots.handed_over.texts import from_json
from temporeal.robots.signals import Schema, SignalError, all_finite, check_signals
from temporeal.robots.spec import RobotSpec

__all__ = ["Artifact", "ArtifactError", "Manifest", "SelfTest"]

Arrays = dict[str, np.ndarray]
JUDGED = "judge."  # begins the names of what the judge says of the golden trace
ONNX_TYPES = {"float32": "tensor(float)", "uint8": "tensor(uint8)", "int32": "tensor(int32)"}


@dataclass(frozen=True)
class SelfTest:
    """Result of replaying the golden trace: largest error of a command (share of its range) over ``steps`` steps."""

    max_error: float
    steps: int


class Artifact:
    """A loaded policy of one robot, with its memory.

    Args:
        manifest: the policy's inputs and outputs.
        golden: the recorded trace: ``signals.<name>`` and ``commands.<name>``, each [T, *shape].
        session: the network.
        reflex: for a policy with a reflex, the network of the steps at which the task network is not evaluated.
        judge: of a policy that takes formulas, the network that says how likely their legs are.

    Attributes:
        commands, kept: names of the network's outputs: commands, then memory.
    """

    def __init__(
        self, path: Path, manifest: Manifest, golden: Arrays, session: Any, reflex: Any = None, judge: Any = None
    ) -> None:
        self.path, self.manifest, self.golden, self.session, self.reflex = path, manifest, golden, session, reflex
        self.judge = judge
        self.schema = {spec.name: spec for spec in manifest.signals}
        self.commands = [spec.name for spec in manifest.commands]
        self.kept = [spec.name for spec in manifest.memory]
        self.memory: Arrays = {}
        self.reset()

    @staticmethod
    def load(
        path: str | Path, robot: RobotSpec | None = None, *, task_signals: Schema | None = None,
        trust: Path | None = None, manifest: Manifest | None = None,
    ) -> Artifact:
        """The artifact in folder ``path``, checked against ``robot``.

        Checks the manifest's version and digest, the SHA-256 of every file, every signal and command against the robot
        (name, shape, unit, frame, type, rate, limits), the network's inputs and outputs against the manifest, and the
        shapes of the golden trace. ``task_signals`` are signals that the task adds to the robot's. ``trust`` is the
        file of a public key: an artifact that its owner did not sign is then refused before anything else is read
        (:mod:`temporeal.robots.artifact.signature`). ``manifest`` is the one that was read there before, with
        ``trust``, if it was: the files are then those that it names, or refused.
        """
        folder = Path(path)
        manifest = manifest or load_manifest(folder, trust)
        data = {name: verified(folder, name, manifest.files[name]) for name in manifest.contents}
        if robot is not None:
            check_robot(manifest, robot, task_signals)
        sessions = {name: open_session(data[name], name) for name in manifest.networks}
        check_products(manifest, data[POLICY])
        for name, session in sessions.items():
            check_graph(manifest, session, name)
        judge = None if manifest.formulas is None else open_session(data[JUDGE], JUDGE)
        if manifest.formulas is not None:
            check_judge(manifest, manifest.formulas, judge)
        return Artifact(folder, manifest, read_golden(data[GOLDEN], manifest), sessions[POLICY], sessions.get(REFLEX),
                        judge)

    def initial_memory(self, n: int) -> Arrays:
        """Memory of ``n`` robots at mission start, [n, *shape] each."""
        return {spec.name: spec.start(n) for spec in self.manifest.memory}

    def reset(self) -> None:
        """Reset the memory: the next :meth:`act` is the first of a mission."""
        self.memory = self.initial_memory(1)
        self.steps = self.reflexes = 0  # control steps since then, and those at which the reflex was in charge

    def figures(self) -> dict[str, Any]:
        """Diagnostics of the reflex since :meth:`reset`; empty without a reflex."""
        if self.reflex is None:
            return {}
        return {"reflex": bool(self.memory[ENGAGED][0] > 0.5), "reflex_steps": self.reflexes,
                "reflex_share": self.reflexes / max(self.steps, 1), "risk": float(self.memory[RISK][0])}

    def act(self, signals: Mapping[str, np.ndarray]) -> Arrays:
        """Commands of one robot by name (shapes without N) for its ``signals``; the memory advances by one control
        step. A policy with chunks gives [steps, *shape].

        A missing, misshapen or non-finite signal raises :class:`SignalError` and leaves the memory unchanged; so does a
        non-finite command. Signals that the policy does not read are ignored.
        """
        commands, memory = self.rehearse(signals)
        for name, value in commands.items():
            if not all_finite(value):
                raise SignalError(f"command {name!r} is not finite: {value[0]}")
        self.memory, self.steps = memory, self.steps + 1
        if self.reflex is not None:
            self.reflexes += bool(memory[ENGAGED][0] > 0.5)
        return {name: value[0] for name, value in commands.items()}

    def rehearse(self, signals: Mapping[str, np.ndarray]) -> tuple[Arrays, Arrays]:
        """Commands and memory, [1, *shape] each, that :meth:`act` would give for ``signals``; nothing changes."""
        checked = check_signals(self.schema, signals)
        return self.act_batch({name: value[None] for name, value in checked.items()}, self.memory)

    @cached_property
    def echoes(self) -> dict[str, str]:
        """Memory that holds exactly the last command, by name of the memory: a target that actions move. Found by
        replaying the golden trace: after every step it equals the command bit by bit."""
        commands = {spec.name: spec.shape for spec in self.manifest.commands} if self.manifest.chunk is None else {}
        found = {(spec.name, name) for spec in self.manifest.memory for name, shape in commands.items()
                 if spec.shape == shape}
        memory, seen = self.initial_memory(1), []
        for t in range(len(next(iter(self.golden.values()))) if found else 0):
            memory |= {name: self.golden[f"memory.{name}"][t : t + 1] for name in memory
                       if f"memory.{name}" in self.golden}
            given, memory = self.act_batch({n: self.golden[f"signals.{n}"][t][None] for n in self.schema}, memory)
            found = {(a, b) for a, b in found if np.array_equal(memory[a], given[b])}
            seen.append(given)
        still = {name for name in commands if all(np.array_equal(seen[0][name], each[name]) for each in seen)}
        return {a: b for a, b in found if b not in still}  # what never changes is known of nothing

    def judged(
        self, programs: np.ndarray, points: np.ndarray, ticks: np.ndarray, hits: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Probability [R] that a leg which begins now is hit in time with nothing broken, and the samples [R] that it
        takes, for ``programs`` [R, S], ``points`` [R, 3] m, ``ticks`` [R] samples and ``hits`` [R, L]: 1 + the sample
        of each leg's hit, 0: not yet. Of a policy that takes formulas."""
        given = zip((PROGRAMS, POINTS, TICKS, HITS), (programs, points, ticks, hits))
        found = self.judge.run([CHANCE, SAMPLES], {name: np.asarray(value, np.float32) for name, value in given})
        chance = np.nan_to_num(found[0], nan=0.0).clip(0.0, 1.0)
        return chance, np.nan_to_num(found[1], nan=0.0, posinf=1e6).clip(min=0.0)

    def adopt(self, commands: Mapping[str, np.ndarray]) -> None:
        """Set ``commands``, by name, as the last ones in the memory that holds them (:attr:`echoes`)."""
        for name, command in self.echoes.items():
            self.memory[name] = np.asarray(commands[command], dtype=np.float32).reshape(self.memory[name].shape)

    def act_batch(self, signals: Mapping[str, np.ndarray], memory: Mapping[str, np.ndarray]) -> tuple[Arrays, Arrays]:
        """Commands [N, *shape] and next memory of N robots. A pure function; values are not checked."""
        feed = {name: np.asarray(signals[name], dtype=spec.dtype) for name, spec in self.schema.items()}
        feed.update({f"memory.{name}": value for name, value in memory.items()})
        values, count = self.run(feed), len(self.commands)
        return dict(zip(self.commands, values)), dict(zip(self.kept, values[count:]))

    def run(self, feed: Arrays) -> list[np.ndarray]:
        """The network's outputs for its inputs; with a reflex, of the network whose turn it is, robot by robot."""
        if self.reflex is None:
            return list(self.session.run(None, feed))
        due = feed[f"memory.{PHASE}"] < 0.5
        if due.all() or not due.any():
            return list((self.session if due.all() else self.reflex).run(None, feed))
        both = zip(self.session.run(None, feed), self.reflex.run(None, feed))
        return [np.where(due.reshape(-1, *[1] * (a.ndim - 1)), a, b) for a, b in both]

    def self_test(self, tolerance: float | None = None) -> SelfTest:
        """Replay the golden trace and compare the commands with the recorded ones.

        Each step starts from the memory recorded with it. The first one's must be the initial memory, and the memory
        that a step yields must be that of the next one. On a robot the physics closes the loop; here it does not, and a
        policy that feeds its own commands back would multiply float32 roundings from step to step. A trace without
        memory (of older artifacts) is replayed from the initial one.

        ``tolerance`` (None: the manifest's own) is a share of each component's range (high - low): a policy's gains and
        its memory of velocity differences multiply roundings, so that rad/s and newtons cannot share one absolute
        tolerance. For memory, which has no range, it is ten shares of its largest value, or of 1. The artifact's own
        memory is left unchanged.
        Raises :class:`ArtifactError` beyond ``tolerance``, and where the network cannot be run.
        """
        try:
            if self.manifest.formulas is not None:
                self._judge_again(self.manifest.formulas)
            return self._replayed(self.manifest.tolerance if tolerance is None else tolerance)
        except ArtifactError:
            raise
        except Exception as error:  # onnxruntime's exception types are private, and a wrong output has any shape
            raise Damaged(f"self-test of {self.path}: its network cannot be run on its trace: {error}") from error

    def _judge_again(self, of: FormulaSpec) -> None:
        """The judge says of the golden trace what it said when it was exported."""
        found = self.judged(self.golden[f"signals.{of.signal}"], self.golden[f"signals.{of.position}"],
                            self.golden[f"memory.{TICK}"], self.golden[f"memory.{HIT}"])
        stated = self.golden[f"{JUDGED}{CHANCE}"], self.golden[f"{JUDGED}{SAMPLES}"]
        off = max(float(np.abs(found[0] - stated[0]).max()),
                  float(np.abs(np.log1p(found[1]) - np.log1p(stated[1])).max()))
        if not off <= JUDGE_TOLERANCE:
            raise ArtifactError(f"self-test of {self.path}: {JUDGE} is off by {off:.3g} from what {GOLDEN} says, "
                                f"{JUDGE_TOLERANCE:g} is allowed")

    def _replayed(self, tolerance: float) -> SelfTest:
        """The result of :meth:`self_test`."""
        memory, errors = self.initial_memory(1), []
        steps = len(self.golden[f"commands.{self.manifest.commands[0].name}"])
        recorded = {k: self.golden[f"memory.{k}"] for k in memory if f"memory.{k}" in self.golden}
        room = {k: 10 * tolerance * max(1.0, float(np.abs(v).max(initial=0.0))) for k, v in recorded.items()}
        for name, value in recorded.items():
            error = float(np.abs(memory[name][0] - value[0]).max(initial=0.0))
            if not error <= room[name]:
                raise ArtifactError(f"self-test of {self.path}: the trace begins with another memory {name!r} than a "
                                    f"mission does: {error:.3g} apart, {room[name]:.3g} is allowed")
        for t in range(steps):
            memory |= {name: value[t : t + 1] for name, value in recorded.items()}
            signals = {name: self.golden[f"signals.{name}"][t][None] for name in self.schema}
            commands, memory = self.act_batch(signals, memory)
            errors.append(max(float(self.difference(name, value[0], self.golden[f"commands.{name}"][t]).max())
                              for name, value in commands.items()))
            for name, value in recorded.items() if t + 1 < steps else ():
                error = float(np.abs(memory[name][0] - value[t + 1]).max(initial=0.0))
                if not error <= room[name]:
                    raise ArtifactError(
                        f"self-test of {self.path}: after step {t} of {steps} the memory {name!r} differs from the "
                        f"recorded one by {error:.3g}, {room[name]:.3g} is allowed")
        worst = int(np.argmax(np.nan_to_num(errors, nan=np.inf)))
        if not errors[worst] <= tolerance:
            raise ArtifactError(
                f"self-test of {self.path}: at step {worst} of {steps} the command differs from the recorded one by "
                f"{errors[worst]:.3g} of its range, {tolerance:.3g} is allowed")
        return SelfTest(errors[worst], steps)

    def difference(self, command: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """|a - b| of two values [..., *shape] of ``command``, in shares of its range; in its unit if it has no range.
        """
        spec = next(spec for spec in self.manifest.commands if spec.name == command)
        span = np.subtract(spec.high, spec.low).reshape(spec.shape)
        found: np.ndarray = np.abs(a - b) / np.where(np.isfinite(span), span, 1.0)
        return found


def verified(folder: Path, name: str, stated: str) -> bytes:
    """Content of a file whose SHA-256 equals ``stated``."""
    data = read(folder, name)
    found = digest(data)
    if found != stated:
        raise Damaged(
            f"{folder / name} was changed after export: its SHA-256 is {found}, the manifest says {stated}")
    return data


def open_session(data: bytes, name: str = POLICY) -> Any:
    """An inference session on one thread: a control loop has no use for a thread pool that wakes late.

    A network with tensors in other files is refused, because no digest and no signature covers those.
    """
    try:
        tensor = outside(data)
    except ValueError as error:
        raise Damaged(f"{name} is not a network in ONNX's format: {error}") from error
    if tensor is not None:
        raise ArtifactError(f"{name} has the tensor {tensor!r} in another file (ONNX external data), which the "
                            f"manifest's digests are not of: all of a network is in {name}")
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.load_model_format", "ONNX")  # what was looked at, no other
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exception types are private and differ between versions
        version = onnxruntime.__version__
        raise Damaged(f"{name} is not a network that onnxruntime {version} can load: {error}") from error


def check_products(manifest: Manifest, network: bytes) -> None:
    """The network has the 8-bit products that the manifest states: a float32 network is allowed no more than its
    roundings."""
    stated = manifest.int8
    if stated is not None and (found := count(network, QUANTIZED)) != stated.tensors:
        raise ArtifactError(f"{POLICY} has {found} products in 8-bit numbers, the manifest says {stated.tensors}")


def check_graph(manifest: Manifest, session: Any, file: str = POLICY) -> None:
    """Compare inputs, outputs and metadata of the network in ``file`` with the manifest."""
    check_belongs(manifest, session, file)
    inputs = {spec.name: spec.shape for spec in manifest.signals}
    inputs.update({f"memory.{spec.name}": spec.shape for spec in manifest.memory})
    outputs = {spec.name: manifest.given(spec) for spec in manifest.commands}
    outputs.update({f"next.{spec.name}": spec.shape for spec in manifest.memory})
    types = {spec.name: spec.dtype for spec in manifest.signals}
    check_tensors("input", inputs, session.get_inputs(), file, types)
    check_tensors("output", outputs, session.get_outputs(), file, {})


def check_judge(manifest: Manifest, of: FormulaSpec, session: Any) -> None:
    """Compare inputs, outputs and metadata of the judge with the manifest."""
    check_belongs(manifest, session, JUDGE)
    check_tensors("input", of.inputs, session.get_inputs(), JUDGE, {})
    check_tensors("output", OUTPUTS, session.get_outputs(), JUDGE, {})


def check_belongs(manifest: Manifest, session: Any, file: str) -> None:
    """Compare the contract in the metadata of the network in ``file`` with the manifest."""
    stated = session.get_modelmeta().custom_metadata_map.get(METADATA_KEY)
    if stated is None:
        raise ArtifactError(f"{file} has no metadata {METADATA_KEY!r}: it was not written by this exporter")
    try:
        network = from_json(stated, f"{file}: its metadata {METADATA_KEY!r}")
    except Refused as error:
        raise Damaged(str(error)) from error
    if not isinstance(network, dict):
        raise Damaged(f"{file}: its metadata {METADATA_KEY!r} is no object")
    check_contract(network, json.loads(contract(manifest)), file)


def check_contract(network: Mapping[str, Any], manifest: Mapping[str, Any], file: str) -> None:
    """Compare the contract in the network's metadata with the manifest; the error names the first difference."""
    for name, value in manifest.items():
        if network.get(name) != value:
            raise ArtifactError(
                f"{file} and {MANIFEST} do not belong together: {name} is {network.get(name)} and {value}")


def check_tensors(
    kind: str, stated: Mapping[str, tuple[int, ...]], found: Any, file: str, types: Mapping[str, str]
) -> None:
    """Compare names, order, types and shapes of graph inputs or outputs with the manifest. ``types``: declared types,
    else float32."""
    names = [node.name for node in found]
    if names != list(stated):
        raise ArtifactError(f"{file} has the {kind}s {names}, the manifest says {list(stated)}")
    for node in found:
        needed = ONNX_TYPES[types.get(node.name, "float32")]
        if node.type != needed:
            raise ArtifactError(f"{file}: {kind} {node.name!r} is {node.type}, {needed} is needed")
        if tuple(node.shape[1:]) != stated[node.name]:
            raise ArtifactError(
                f"{file}: {kind} {node.name!r} has shape {node.shape} with the batch first, "
                f"the manifest says {stated[node.name]} without it")


def read_golden(data: bytes, manifest: Manifest) -> Arrays:
    """The golden trace: arrays [T, *shape] of equal T, in their signals' types, else float32."""
    try:
        golden = read_npz(data, GOLDEN)
    except Refused as error:
        raise Damaged(f"{GOLDEN} cannot be read: {error}") from error
    shapes = {f"signals.{spec.name}": spec.shape for spec in manifest.signals}
    shapes.update({f"commands.{spec.name}": manifest.given(spec) for spec in manifest.commands})
    types = {f"signals.{spec.name}": spec.dtype for spec in manifest.signals}
    memory = {f"memory.{spec.name}": spec.shape for spec in manifest.memory}
    if manifest.formulas is not None:  # what the judge says is of the memory, too
        shapes.update(memory)
        shapes.update({f"{JUDGED}{name}": shape for name, shape in OUTPUTS.items()})
    if set(golden) not in (set(shapes), set(shapes | memory)):
        raise ArtifactError(f"{GOLDEN} holds {sorted(golden)}, the manifest needs {sorted(shapes | memory)}")
    shapes.update(memory)
    steps = {array.shape[0] if array.ndim else 0 for array in golden.values()}
    if len(steps) != 1 or 0 in steps:
        raise ArtifactError(f"{GOLDEN}: every array has the same number of steps, at least 1; found {sorted(steps)}")
    for name, array in golden.items():
        needed = types.get(name, "float32")
        if array.dtype != needed or array.shape[1:] != shapes[name]:
            raise ArtifactError(
                f"{GOLDEN}: {name} is {array.dtype} {array.shape}, needed is {needed} (steps, *{shapes[name]})")
        if not np.isfinite(array).all():
            raise ArtifactError(f"{GOLDEN}: {name} has a non-finite value")
    return golden
