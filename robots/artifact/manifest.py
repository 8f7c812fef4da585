"""The manifest of an artifact: names, shapes, units, frames, limits, rate, memory, formula, origin. numpy only.

The manifest is ``manifest.json`` beside the network. Its digest (over the JSON without the key ``sha256``) reveals an
edited or damaged manifest. The *contract* (what a robot depends on) is also written into the ONNX file's metadata, so
that a network and a manifest that do not belong together are detected.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from math import isfinite, prod
from typing import Any

import numpy as np

from temporeal.robots.artifact.additions import TOKEN, TOKEN_TYPE, DriftSpec, InstructionSpec, Int8Spec
from temporeal.robots.artifact.formulas import JUDGE, FormulaSpec, misfit
from temporeal.robots.handed_over.files import Refused
from temporeal.robots.handed_over.texts import from_json
from temporeal.robots.signals import CommandSpec, Schema, SignalSpec, is_number, is_size
from temporeal.robots.spec import RobotSpec

SCHEMA_VERSION = 1
CHUNK_VERSION = 2  # has the key "chunk"; what gives one command at a time is still written as version 1
REFLEX_VERSION = 3  # has the key "reflex" and a second network
ADDED_VERSION = 4  # has one or more of the keys "instruction", "int8", "drift", "formulas"; "chunk" or "reflex" where
# it has one
POLICY, GOLDEN, MANIFEST, REFLEX = "policy.onnx", "golden.npz", "manifest.json", "reflex.onnx"
DTYPES = ("float32", "uint8", TOKEN_TYPE)  # of signals; uint8: the colours of pictures, which the network itself
# scales; int32: the words of an instruction
SELF_TEST_TOLERANCE = 1e-5  # of a command's range: some hundred float32 roundings
METADATA_KEY = "temporeal.contract"
CONTRACT = ("schema_version", "robot", "signals", "commands", "rate_hz", "memory", "formula", "constants", "stop")


class ArtifactError(ValueError):
    """An artifact that is damaged, or that does not match the robot; the message names the first mismatch."""


class Damaged(ArtifactError):
    """A file of an artifact is missing, damaged or not what the exporter writes; the message says what to do next."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{message}. What to do: copy the artifact again, or export it again from its run "
                         "(temporeal export RUN --out FOLDER)")


@dataclass(frozen=True)
class MemorySpec:
    """One memory tensor of one robot: policy state carried from one control step to the next.

    Args:
        initial: value at mission start, nested as its shape.
    """

    name: str
    shape: tuple[int, ...]
    initial: Any

    def start(self, n: int) -> np.ndarray:
        """Float32 [n, *shape]: the initial value of ``n`` robots."""
        value = np.asarray(self.initial, dtype=np.float32).reshape(self.shape)
        return np.repeat(value[None], n, axis=0)


@dataclass(frozen=True)
class ChunkSpec:
    """Action chunks: each command has shape [steps, *shape], row k for k * ``dt_s`` after the observation.

    Args:
        hold: components of the (flat) command that must not be interpolated: quaternions, grippers, switches.
    """

    steps: int
    dt_s: float
    hold: tuple[int, ...] = ()


HELD, PHASE, ENGAGED, RISK = "reflex.held", "reflex.phase", "reflex.engaged", "reflex.risk"
"""Memory of a policy with a reflex: the task's action that is held [A], control steps since it was chosen, 0 where the
task network is next; whether the reflex is in charge, 0 or 1; the risk that was found at the last step, 0 to 1."""


@dataclass(frozen=True)
class ReflexSpec:
    """When a policy's reflex layer replaces the action of its task network (``docs/how-to/reflex.md``).

    Args:
        every: control steps between evaluations of the task network. Its action is held meanwhile; the risk of that
            action is evaluated at each step.
        threshold: risk in [0, 1] above which the reflex takes over.
        release: risk of the task's action at or below which the reflex releases control; at most ``threshold``.
    """

    every: int
    threshold: float
    release: float

    def __post_init__(self) -> None:
        if not (type(self.every) is int and self.every >= 1):
            raise ArtifactError(f"reflex: every is a whole number of control steps, at least 1, got {self.every!r}")
        for name in ("threshold", "release"):
            value = getattr(self, name)
            if not (type(value) in (int, float) and 0.0 <= value <= 1.0):
                raise ArtifactError(f"reflex: {name} is a risk from 0 to 1, got {value!r}")
        if self.release > self.threshold:
            raise ArtifactError(f"reflex: release is at most threshold, got {self.release:g} above "
                                f"{self.threshold:g}: it would let go where it takes over")


@dataclass(frozen=True)
class Manifest:
    """All data of an artifact except the networks.

    Args:
        robot: name of the robot it was trained for.
        signals, commands: inputs and outputs, in the graph's order.
        rate_hz: control steps per second. A chunk is interpolated to it.
        formula, constants: the task in the language of ``temporeal.sim.stl``.
        horizon_s: time after which the formula is decided, s.
        stop: what the guard does when the policy falls silent or leaves its limits.
        training: the training configuration.
        versions: versions of the packages used for the export.
        git_revision: of the project, ``"unknown"`` outside a repository.
        created: UTC, ISO 8601.
        files: SHA-256 of every other file.
        schema_version: 1, or 2 with a chunk, or 3 with a reflex, or 4 with an instruction, 8-bit products or drift:
            programs that do not support these refuse it.
        chunk: None if the policy gives one command at a time.
        reflex: None if the task network alone decides. Otherwise ``policy.onnx`` is the network of the steps at which
            the task network is evaluated, ``reflex.onnx`` that of the steps between; both evaluate the risk.
        instruction: None if the policy cannot be told anything.
        int8: None if the network computes in float32.
        drift: None if no flight is compared with the dynamics that it was trained for.
        formulas: None if the artifact's formula is the only one. Otherwise the policy is given formulas as data, and
            ``judge.onnx`` says how likely they are to be satisfied.
    """

    name: str
    robot: str
    signals: tuple[SignalSpec, ...]
    commands: tuple[CommandSpec, ...]
    rate_hz: float
    memory: tuple[MemorySpec, ...]
    formula: str
    constants: Mapping[str, Any]
    horizon_s: float
    stop: str
    training: Mapping[str, Any]
    versions: Mapping[str, str]
    seed: int
    git_revision: str
    created: str
    files: Mapping[str, str]
    schema_version: int = SCHEMA_VERSION
    chunk: ChunkSpec | None = None
    reflex: ReflexSpec | None = None
    instruction: InstructionSpec | None = None
    int8: Int8Spec | None = None
    drift: DriftSpec | None = None
    formulas: FormulaSpec | None = None

    @property
    def tolerance(self) -> float:
        """Largest difference that a self-test allows, in shares of a command's range."""
        return SELF_TEST_TOLERANCE if self.int8 is None else self.int8.tolerance

    @property
    def networks(self) -> tuple[str, ...]:
        """Names of the ONNX files that give commands."""
        return (POLICY,) if self.reflex is None else (POLICY, REFLEX)

    @property
    def contents(self) -> tuple[str, ...]:
        """Names of its files, without the manifest."""
        return (*self.networks, *(() if self.formulas is None else (JUDGE,)), GOLDEN)

    def given(self, command: CommandSpec) -> tuple[int, ...]:
        """Shape of the network's output for ``command``."""
        return command.shape if self.chunk is None else (self.chunk.steps, *command.shape)


SIGNAL_FIELDS = tuple(f.name for f in fields(SignalSpec))
COMMAND_FIELDS = tuple(f.name for f in fields(CommandSpec))
MEMORY_FIELDS = tuple(f.name for f in fields(MemorySpec))
OPTIONAL: dict[str, tuple[type, tuple[str, ...]]] = {  # parts that only some have, with their fields
    "chunk": (ChunkSpec, tuple(f.name for f in fields(ChunkSpec))),
    "reflex": (ReflexSpec, tuple(f.name for f in fields(ReflexSpec))),
    "instruction": (InstructionSpec, tuple(f.name for f in fields(InstructionSpec))),
    "int8": (Int8Spec, tuple(f.name for f in fields(Int8Spec))),
    "drift": (DriftSpec, tuple(f.name for f in fields(DriftSpec))),
    "formulas": (FormulaSpec, tuple(f.name for f in fields(FormulaSpec)))}
LATER = ("randomized", "room")  # that parts came to have: left out where they say nothing, as in manifests of before
NEEDED = {CHUNK_VERSION: ("chunk",), REFLEX_VERSION: ("reflex",)}  # parts of these versions, and no others
MANIFEST_FIELDS = tuple(f.name for f in fields(Manifest) if f.name not in OPTIONAL)


def is_text(value: object) -> bool:
    """Whether it is text; empty text counts."""
    return isinstance(value, str)


def is_map(value: object) -> bool:
    """Whether it is a mapping."""
    return isinstance(value, Mapping)


def is_map_to_text(value: object) -> bool:
    """Whether it is a mapping to text."""
    return isinstance(value, Mapping) and all(map(is_text, value.values()))


RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {  # field: what it is, and whether a value is it
    **dict.fromkeys(("name", "robot", "formula", "stop", "git_revision", "created"), ("text", is_text)),
    **dict.fromkeys(("constants", "training"), ("an object", is_map)),
    **dict.fromkeys(("versions", "files"), ("an object of texts", is_map_to_text)),
    "rate_hz": ("a positive number", lambda v: is_number(v) and v > 0),
    "horizon_s": ("a time in s, 0 or more", lambda v: is_number(v) and v >= 0),
    "seed": ("a whole number", lambda v: type(v) is int)}


def digest(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def canonical(value: object) -> str:
    """The one JSON text of ``value``: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def plain(value: Any, where: str = "manifest") -> Any:
    """``value`` as JSON values (tuples and arrays become lists); anything else is an error that says where it is."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ArtifactError(f"{where}: keys are text, got {key!r}")
        return {key: plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist(), where)
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, np.generic):
        return plain(value.item(), where)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if not isfinite(value):
            raise ArtifactError(f"{where}: JSON has no {value}; numbers are finite")
        return value
    raise ArtifactError(f"{where}: {value!r} of type {type(value).__name__} has no JSON form")


def record(spec: object, names: tuple[str, ...]) -> dict[str, Any]:
    """The named fields of a dataclass as plain JSON values."""
    return {name: plain(getattr(spec, name), name) for name in names}


def to_json(manifest: Manifest) -> dict[str, Any]:
    """The manifest as plain JSON values, without the digest."""
    out: dict[str, Any] = {}
    for name in MANIFEST_FIELDS:
        value = getattr(manifest, name)
        if name == "signals":
            out[name] = [record(spec, SIGNAL_FIELDS) for spec in value]
        elif name == "commands":
            out[name] = [record(spec, COMMAND_FIELDS) for spec in value]
        elif name == "memory":
            out[name] = [record(spec, MEMORY_FIELDS) for spec in value]
        else:
            out[name] = plain(value, name)
    for name, (_, names) in OPTIONAL.items():
        if (part := getattr(manifest, name)) is not None:
            out[name] = record(part, tuple(field for field in names if field not in LATER or getattr(part, field)))
    return out


def encode(manifest: Manifest) -> bytes:
    """The file ``manifest.json``: readable JSON with the digest of its content."""
    content = to_json(manifest)
    content["sha256"] = digest(canonical(content).encode())
    return (json.dumps(content, indent=2, allow_nan=False) + "\n").encode()


def contract(manifest: Manifest) -> str:
    """The part that a robot depends on, as canonical JSON; also written into the ONNX metadata."""
    content = to_json(manifest)
    return canonical({name: content[name] for name in (*CONTRACT, *OPTIONAL) if name in content and name != "int8"})


def identity(manifest: Manifest) -> str:
    """SHA-256 of the manifest's content, by which two processes agree on an artifact."""
    return digest(canonical(to_json(manifest)).encode())


MISSION = ("robot", "formula", "constants", "horizon_s", "rate_hz")  # what a monitor's verdict depends on


def mission_digest(content: Mapping[str, Any]) -> str:
    """SHA-256 of the mission part of a manifest (``content``: its JSON values). Artifacts that replace each other in
    flight must agree on it: then one monitor judges both."""
    return digest(canonical({name: content[name] for name in MISSION}).encode())


def decode(data: bytes) -> Manifest:
    """The manifest of ``data``; :class:`ArtifactError` names what is damaged, unknown or missing."""
    try:
        content = from_json(data, MANIFEST)
    except Refused as error:
        raise Damaged(str(error)) from error
    if not isinstance(content, dict):
        raise Damaged(f"{MANIFEST} holds a {type(content).__name__}, an object is needed")
    version = content.get("schema_version")
    if type(version) is not int or version not in (SCHEMA_VERSION, *NEEDED, ADDED_VERSION):
        raise ArtifactError(f"{MANIFEST} has schema_version {version!r}; this program reads version {SCHEMA_VERSION}, "
                            f"{CHUNK_VERSION} of policies that give chunks, {REFLEX_VERSION} of those with a reflex, "
                            f"{ADDED_VERSION} of those with an instruction, in int8, with drift or with formulas")
    parts = tuple(name for name in OPTIONAL if name in content) if version == ADDED_VERSION else NEEDED.get(version, ())
    keys = (*MANIFEST_FIELDS, "sha256", *parts)
    missing = [name for name in keys if name not in content]
    unknown = sorted(set(content) - set(keys))
    if missing or unknown:
        raise Damaged(f"{MANIFEST} lacks the keys {missing} and has the unknown keys {unknown}")
    stated = content.pop("sha256")
    found = digest(canonical(content).encode())
    if stated != found:
        raise Damaged(f"{MANIFEST} was changed after export: its SHA-256 is {found}, it states {stated}")
    try:
        return build(content)
    except ArtifactError:
        raise
    except (TypeError, LookupError, ValueError, AttributeError, ArithmeticError, MemoryError) as error:
        raise Damaged(f"{MANIFEST} is malformed: {error}") from error


def build(content: dict[str, Any]) -> Manifest:
    """A manifest from checked JSON content."""
    signals = tuple(SignalSpec(**tupled(item)) for item in content["signals"])
    commands = tuple(CommandSpec(**tupled(item)) for item in content["commands"])
    memory = tuple(MemorySpec(item["name"], tupled(item)["shape"], item["initial"]) for item in content["memory"])
    parts = {name: kind(**tupled(content[name])) for name, (kind, _) in OPTIONAL.items() if name in content}
    manifest = replace(Manifest(**content), signals=signals, commands=commands, memory=memory, **parts)
    check(manifest)
    return manifest


def tupled(item: dict[str, Any]) -> dict[str, Any]:
    """A spec's JSON lists as tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in item.items()}


def check(manifest: Manifest) -> None:
    """Check the rules that hold for every manifest, whatever the robot."""
    for key, (wanted, good) in RULES.items():
        if not good(getattr(manifest, key)):
            raise ArtifactError(f"{key} is {wanted}, got {getattr(manifest, key)!r}")
    if set(manifest.files) != set(manifest.contents):
        raise ArtifactError(f"files are {', '.join(manifest.contents)}, the manifest names {sorted(manifest.files)}")
    check_types(manifest)
    if not manifest.signals or not manifest.commands:
        raise ArtifactError("a policy reads at least one signal and gives at least one command")
    for memory in manifest.memory:
        check_memory(memory)
    needed = version_of(manifest.chunk, manifest.reflex, manifest.instruction, manifest.int8, manifest.drift,
                        manifest.formulas)
    if manifest.schema_version != needed:
        raise ArtifactError(f"schema_version is {manifest.schema_version}; with chunk {manifest.chunk} and reflex "
                            f"{manifest.reflex} and its other parts it is {needed}")
    if manifest.chunk is not None:
        check_chunk(manifest, manifest.chunk)
    if manifest.reflex is not None:
        check_reflex(manifest)
    if manifest.int8 is not None:
        check_int8(manifest)
    if manifest.formulas is not None:
        check_formulas(manifest, manifest.formulas)


def check_memory(memory: MemorySpec) -> None:
    """Check a memory tensor."""
    if not is_text(memory.name):
        raise ArtifactError(f"memory: a name is text, got {memory.name!r}")
    if not isinstance(memory.shape, tuple) or not all(map(is_size, memory.shape)):
        raise ArtifactError(f"memory {memory.name!r}: shape is a list of whole numbers, got {memory.shape!r}")
    initial = np.asarray(memory.initial, dtype=np.float64)
    if initial.size != prod(memory.shape):
        raise ArtifactError(f"memory {memory.name!r}: initial value does not have the shape {memory.shape}")
    if not (np.abs(initial) <= np.finfo(np.float32).max).all():
        raise ArtifactError(f"memory {memory.name!r}: the initial value is not finite in float32: {memory.initial}")


def version_of(
    chunk: ChunkSpec | None, reflex: ReflexSpec | None, instruction: InstructionSpec | None = None,
    int8: Int8Spec | None = None, drift: DriftSpec | None = None, formulas: FormulaSpec | None = None,
) -> int:
    """The schema version of a manifest with these parts."""
    if chunk is not None and reflex is not None:
        raise ArtifactError("a policy gives chunks or has a reflex, not both: a chunk was chosen before the risk was")
    if any(part is not None for part in (instruction, int8, drift, formulas)):
        return ADDED_VERSION
    return CHUNK_VERSION if chunk is not None else REFLEX_VERSION if reflex is not None else SCHEMA_VERSION


def check_types(manifest: Manifest) -> None:
    """Check the signals' types; those of words belong to the instruction."""
    told = manifest.instruction
    for signal in manifest.signals:
        if signal.dtype not in DTYPES:
            raise ArtifactError(f"signal {signal.name!r} is {signal.dtype}; an artifact takes signals of "
                                f"{', '.join(DTYPES)}")
        words = signal.unit == TOKEN or signal.dtype == TOKEN_TYPE
        if words and (told is None or told.fixed or signal != told.spec):
            raise ArtifactError(f"signal {signal.name!r} is {signal.dtype} {list(signal.shape)} in {signal.unit!r}, "
                                f"words that the manifest's instruction does not explain: {told and told.spec}")
    if told is not None and not told.fixed and told.spec not in manifest.signals:
        raise ArtifactError(f"instruction: the policy does not read its signal {told.signal!r}")


def check_reflex(manifest: Manifest) -> None:
    """Check a policy with a reflex: its state between steps is memory that starts at zero."""
    known = {memory.name: memory for memory in manifest.memory}
    if missing := [name for name in (HELD, PHASE, ENGAGED, RISK) if name not in known]:
        raise ArtifactError(f"reflex: the memory lacks {missing}; it has {list(known)}")
    for name, dims in ((HELD, 1), (PHASE, 0), (ENGAGED, 0), (RISK, 0)):
        memory = known[name]
        if len(memory.shape) != dims or np.any(np.asarray(memory.initial)):
            raise ArtifactError(f"reflex: memory {name!r} has {dims} dimensions and begins with 0; it has the shape "
                                f"{memory.shape} and begins with {memory.initial}")


def check_int8(manifest: Manifest) -> None:
    """Check a policy in 8-bit numbers."""
    if manifest.memory or manifest.reflex is not None:
        raise ArtifactError("int8: a policy with memory or a reflex is exported in float32: its errors would add up "
                            "from step to step")


def check_formulas(manifest: Manifest, formulas: FormulaSpec) -> None:
    """Check a policy that takes formulas."""
    if manifest.chunk is not None or manifest.reflex is not None or manifest.instruction is not None:
        raise ArtifactError("formulas: the policy gives one command at a time, has no reflex, and is told nothing else")
    if why := misfit(formulas, {signal.name: signal for signal in manifest.signals},
                     {memory.name: memory.shape for memory in manifest.memory}):
        raise ArtifactError(f"formulas: {why}")


def check_chunk(manifest: Manifest, chunk: ChunkSpec) -> None:
    """Check a policy that gives chunks."""
    if not (type(chunk.steps) is int and chunk.steps >= 2):
        raise ArtifactError(f"chunk: steps is a whole number of at least 2, got {chunk.steps!r}")
    if not (type(chunk.dt_s) in (int, float) and isfinite(chunk.dt_s) and chunk.dt_s > 0):
        raise ArtifactError(f"chunk: dt_s is a positive time in s, got {chunk.dt_s!r}")
    if len(manifest.commands) != 1 or manifest.memory:
        # memory moves on by a control step at a time; how many of them lie between two inferences is not known before
        raise ArtifactError(f"a policy that gives chunks has one command and no memory, not {len(manifest.commands)} "
                            f"and {[memory.name for memory in manifest.memory]}")
    command, hold = manifest.commands[0], chunk.hold
    if not all(type(i) is int and 0 <= i < command.size for i in hold) or list(hold) != sorted(set(hold)):
        raise ArtifactError(f"chunk: hold names components from 0 to {command.size - 1} in rising order, got {hold}")
    if command.unit == "wxyz" and len(hold) != command.size:
        raise ArtifactError(f"chunk: command {command.name!r} is a quaternion, which cannot be interpolated by "
                            f"component: hold all of {list(range(command.size))}")


def added_signals(manifest: Manifest, robot: RobotSpec) -> dict[str, SignalSpec]:
    """Signals that the policy reads and ``robot`` lacks, as the artifact describes them: those of its task, such as a
    goal. A topic or the task must provide them."""
    return {signal.name: signal for signal in manifest.signals if signal.name not in robot.signals}


def check_robot(manifest: Manifest, robot: RobotSpec, task_signals: Schema | None = None) -> None:
    """Compare every signal and command with ``robot`` (and the task's own signals); the error names the first
    difference."""
    if manifest.robot != robot.name:
        raise ArtifactError(f"the artifact is for robot {manifest.robot!r}, this robot is {robot.name!r}")
    known = {**robot.signals, **(task_signals or {})}
    for signal in manifest.signals:
        if signal.name not in known:
            raise ArtifactError(
                f"the policy reads signal {signal.name!r}, robot {robot.name!r} has: {', '.join(known)}. What a task "
                "adds comes with a file of its topics: deploy.signals=, or --signals")
        compare("signal", signal, known[signal.name], robot.name, SIGNAL_FIELDS)
    for command in manifest.commands:
        if command.name not in robot.commands:
            raise ArtifactError(
                f"the policy gives command {command.name!r}, robot {robot.name!r} takes: {', '.join(robot.commands)}")
        compare("command", command, robot.commands[command.name], robot.name, COMMAND_FIELDS)


def compare(kind: str, mine: SignalSpec, theirs: SignalSpec, robot: str, names: tuple[str, ...]) -> None:
    """Compare the named fields of two specs; the first difference is an :class:`ArtifactError` with both values."""
    for name in names:
        ours, other = plain(getattr(mine, name)), plain(getattr(theirs, name))
        if ours != other:
            raise ArtifactError(
                f"{kind} {mine.name!r}: {name} is {ours} in the artifact and {other} on robot {robot!r}")
