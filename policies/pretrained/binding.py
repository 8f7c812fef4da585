"""A mapping bound to a robot's signals: from measured signals to a model's inputs, from its actions to commands.

N worlds, H rows of a chunk, A numbers of an action, U of a command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import pi
from typing import TYPE_CHECKING

import numpy as np

from temporeal.policies.pretrained.mapping import ActionPart, InputPart, MappingError
from temporeal.policies.pretrained.mapping import Mapping as Map
from temporeal.policies.pretrained.serving.interface import Field, Interface
from temporeal.robots.signals import CommandSpec, Schema, SignalSpec

if TYPE_CHECKING:
    from temporeal.robots.motion.cartesian_servo import Servo

Arrays = Mapping[str, np.ndarray]
Decode = Callable[[np.ndarray], str]
"""Word numbers of an instruction, to its sentence."""
FACTORS = {("rad", "deg"): 180.0 / pi, ("rad/s", "deg/s"): 180.0 / pi, ("m", "mm"): 1e3, ("m", "cm"): 1e2}
TOOL_UNITS = ("m/s", "rad/s")


@dataclass(frozen=True)
class Robot:
    """What a mapping is bound to.

    Args:
        signals: that are measured, pictures among them. ``command``: that the task takes.
        servo: of an arm; None where there is none.
        decode: makes the sentence of an instruction's word numbers.
    """

    name: str
    signals: Schema
    command: CommandSpec
    servo: Servo | None = None
    decode: Decode | None = None


@dataclass(frozen=True)
class Binding:
    """A mapping that fits a robot."""

    mapping: Map
    robot: Robot
    interface: Interface

    @property
    def through_joints(self) -> bool:
        """Whether steps of the tool become joint positions."""
        return any(part.kind == "tool" for part in self.mapping.parts) and not moves_tool(self.robot.command)

    def inputs(self, signals: Arrays) -> dict[str, np.ndarray]:
        """The model's inputs [N, *shape], in its units, of measured ``signals`` [N, *shape]."""
        return {name: np.concatenate([part_of(part, signals, self.robot.signals) for part in parts], 1)
                if parts[0].signal not in pictures_of(self.robot.signals) else np.asarray(signals[parts[0].signal])
                for name, parts in self.mapping.inputs.items()}

    def sentences(self, signals: Arrays, worlds: int) -> list[str] | None:
        """The instruction of each world; None for models that read none."""
        if self.mapping.sentence is not None:
            return [self.mapping.sentence] * worlds
        if self.mapping.sentence_signal is None:
            return None
        assert self.robot.decode is not None
        return [self.robot.decode(tokens) for tokens in signals[self.mapping.sentence_signal]]

    def rows(self, action: np.ndarray, signals: Arrays) -> np.ndarray:
        """The command [N, H, U] of the model's ``action`` [N, H, A]."""
        out = np.zeros((*action.shape[:2], self.robot.command.size))
        for part in self.mapping.parts:
            out[:, :, list(part.command)] = self.commanded(part, action[:, :, list(part.action)].astype(float), signals)
        return out.astype(np.float32)

    def commanded(self, part: ActionPart, given: np.ndarray, signals: Arrays) -> np.ndarray:
        """The components of the command that a ``part`` gives, of its numbers ``given`` [N, H, a]."""
        if part.kind == "tool":
            return self.moved(given * part.gain, signals)
        value: np.ndarray = np.asarray(part.gain) * given / factor(part.unit, part.model_unit) + part.offset
        if part.kind == "absolute":
            return value
        base = np.asarray(signals[part.base], float)[:, None, components_of(part, self.robot.signals)]
        steps: np.ndarray = np.cumsum(value, 1) if part.relative_to == "previous" else value
        return np.asarray(base + steps)

    def moved(self, steps: np.ndarray, signals: Arrays) -> np.ndarray:
        """The command of tool steps [N, H, 6] (m, rad): the tool's velocity, or joints by the arm's servo."""
        rate = self.mapping.rate_hz
        if moves_tool(self.robot.command):
            return steps * rate
        servo = self.robot.servo
        assert servo is not None
        joints, rows = np.asarray(signals["joint_pos"], float), []
        for k in range(steps.shape[1]):
            joints = servo.step(joints, steps[:, k] * rate, 1.0 / rate)
            rows.append(joints)
        return np.stack(rows, 1)


def read_by(mapping: Map, schema: Schema) -> tuple[str, ...]:
    """The signals that a mapping reads; steps of the tool are taken from where the joints are, if the robot has any."""
    named = [part.signal for parts in mapping.inputs.values() for part in parts]
    named += [part.base for part in mapping.parts if part.base]
    named += ["joint_pos" for part in mapping.parts if part.kind == "tool" and "joint_pos" in schema]
    return tuple(dict.fromkeys([*named, *filter(None, (mapping.sentence_signal,))]))


def part_of(part: InputPart, signals: Arrays, schema: Schema) -> np.ndarray:
    """The numbers [N, s] of a part."""
    value = np.asarray(signals[part.signal], np.float64).reshape(len(signals[part.signal]), -1)
    if part.turns_as == "rotation_vector":
        value = rotation_vectors(value)
    if part.components is not None:
        value = value[:, list(part.components)]
    return (part.gain * factor(part.unit, part.model_unit) * value + part.offset).astype(np.float32)


def rotation_vectors(quat: np.ndarray) -> np.ndarray:
    """Rotation vectors [N, 3] rad, at most pi long, of attitudes [N, 4] wxyz."""
    quat = quat * np.where(quat[:, :1] < 0.0, -1.0, 1.0)
    size = np.linalg.norm(quat[:, 1:], axis=1, keepdims=True)
    angle = 2.0 * np.arctan2(size, quat[:, :1])
    return quat[:, 1:] * np.where(size > 1e-9, angle / np.maximum(size, 1e-9), 2.0)


def bind(mapping: Map, robot: Robot) -> Binding:
    """The mapping on a robot; a :class:`MappingError` says what does not fit."""
    if mapping.robot != robot.name:
        raise MappingError(f"the mapping is for robot {mapping.robot!r}, the task as set has {robot.name!r}")
    if mapping.command != robot.command.name:
        raise MappingError(f"the mapping gives {mapping.command!r}, the task as set takes {robot.command.name!r}")
    inputs = tuple(field_of(name, parts, robot.signals) for name, parts in mapping.inputs.items())
    action = Field("action", (mapping.size,), unit=",".join(part.model_unit for part in mapping.parts))
    found = Binding(mapping, robot, Interface(inputs, action, mapping.rate_hz, bool(
        mapping.sentence or mapping.sentence_signal)))
    for part in mapping.parts:
        check_part(part, robot, found.through_joints)
    if (count := sum(len(part.command) for part in mapping.parts)) != robot.command.size:
        raise MappingError(f"command {robot.command.name!r} has {robot.command.size} numbers, the mapping gives "
                           f"{count}")
    check_sentence(mapping, robot)
    return found


def field_of(name: str, parts: tuple[InputPart, ...], schema: Schema) -> Field:
    """The model's input that parts make."""
    specs = [known(part.signal, schema, f"inputs.{name}") for part in parts]
    if any(spec.name in pictures_of(schema) for spec in specs):
        if len(parts) > 1 or parts[0] != InputPart(parts[0].signal, resize=parts[0].resize):
            raise MappingError(f"inputs.{name}: a picture is an input of its own, and takes no key but resize")
        return Field(name, specs[0].shape, "uint8", "1", parts[0].resize)
    for part, spec in zip(parts, specs, strict=True):
        check_units(part.unit, part.model_unit, spec, f"inputs.{name}")
        check_turn(part, spec, name)
        if part.resize:
            raise MappingError(f"inputs.{name}: resize is of pictures, {spec.name} is none")
    size = sum(len(part.components) if part.components is not None else 3 if part.turns_as else spec.size
               for part, spec in zip(parts, specs, strict=True))
    return Field(name, (size,), "float32", ",".join(part.model_unit for part in parts))


def pictures_of(schema: Schema) -> tuple[str, ...]:
    """The signals that are pictures."""
    return tuple(name for name, spec in schema.items() if spec.dtype == "uint8" and len(spec.shape) == 3)


def known(name: str, schema: Schema, where: str) -> SignalSpec:
    """The spec of a signal."""
    if name not in schema:
        raise MappingError(f"{where}: no signal {name!r}; the task as set shows: {', '.join(schema)} (pictures: "
                           "cameras.NAME={width: 64, height: 64} shows NAME_rgb)")
    return schema[name]


def check_turn(part: InputPart, spec: SignalSpec, name: str) -> None:
    """Components exist, and attitudes are attitudes."""
    size = 3 if part.turns_as else spec.size
    if part.turns_as and spec.unit != "wxyz":
        raise MappingError(f"inputs.{name}: turns_as is of attitudes (wxyz), {spec.name} is in {spec.unit}")
    check_indexes(part.components, size, f"inputs.{name}: {spec.name}")


def check_indexes(components: tuple[int, ...] | None, size: int, what: str) -> None:
    """Components exist."""
    if components and max(components) >= size:
        raise MappingError(f"{what} has the components 0 to {size - 1}, the mapping names {max(components)}")


def check_units(unit: str, model_unit: str, spec: SignalSpec, where: str) -> None:
    """The unit is stated and the signal's own, and there is a way to the model's."""
    if unit not in spec.unit.split(","):
        raise MappingError(f"{where}: unit of {spec.name} is {spec.unit!r}, the mapping says {unit!r}")
    if model_unit not in (unit, "1"):
        factor(unit, model_unit)


def factor(unit: str, model_unit: str) -> float:
    """By what our numbers are multiplied to be the model's; 1 to a number without unit, whose gain says the rest."""
    if model_unit in (unit, "1"):
        return 1.0
    if (unit, model_unit) in FACTORS:
        return FACTORS[unit, model_unit]
    if (model_unit, unit) in FACTORS:
        return 1.0 / FACTORS[model_unit, unit]
    raise MappingError(f"no way from {unit!r} to {model_unit!r}; known: "
                       f"{', '.join(f'{a} to {b}' for a, b in FACTORS)}, or model_unit: \"1\" with a gain")


def check_part(part: ActionPart, robot: Robot, through_joints: bool) -> None:
    """A part of the action fits the command."""
    where, command = f"action, kind {part.kind}", robot.command
    check_indexes(part.command, command.size, f"{where}: {command.name}")
    if part.kind == "tool":
        check_tool(part, robot, through_joints)
        return
    check_units(part.unit, part.model_unit, command, where)
    if part.kind == "delta":
        base = known(part.base, robot.signals, where)
        check_units(part.unit, part.model_unit, base, where)
        check_indexes(part.components, base.size, f"{where}: {base.name}")
        if (count := len(components_of(part, robot.signals))) != len(part.command):
            raise MappingError(f"{where}: {count} components of {base.name} for {len(part.command)} of the command")


def components_of(part: ActionPart, schema: Schema) -> list[int]:
    """The components of the signal that deltas start from."""
    return list(range(schema[part.base].size) if part.components is None else part.components)


def check_tool(part: ActionPart, robot: Robot, through_joints: bool) -> None:
    """Steps of the tool have a way to the command."""
    command = robot.command
    if not through_joints:
        if part.command != tuple(range(6)):
            raise MappingError(f"action, kind tool: {command.name} takes its numbers 0 to 5 from it")
        return
    joints = known("joint_pos", robot.signals, "action, kind tool").size
    if robot.servo is None or part.command != tuple(range(joints)) or "rad" not in command.unit.split(","):
        raise MappingError(f"action, kind tool: steps of the tool become a tool velocity or joint positions (all "
                           f"{joints} joints, first in the command) of an arm with known kinematics; {command.name} of "
                           f"robot {robot.name!r}, components {list(part.command)}, is neither")


def moves_tool(command: CommandSpec) -> bool:
    """Whether a command is the tool's velocity."""
    return command.size == 6 and tuple(command.unit.split(",")) == TOOL_UNITS


def check_sentence(mapping: Map, robot: Robot) -> None:
    """The instruction's signal is one."""
    if mapping.sentence_signal is None:
        return
    known(mapping.sentence_signal, robot.signals, "instruction")
    if robot.decode is None:
        raise MappingError(f"instruction: the words of signal {mapping.sentence_signal!r} are not known here; give "
                           "instruction: {text: ...}")
