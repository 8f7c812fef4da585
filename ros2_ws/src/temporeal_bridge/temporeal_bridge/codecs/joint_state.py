"""sensor_msgs/JointState as state and as command.

Options of the state: ``joints``, read by name, in any order and among others (in several messages:
:mod:`temporeal_bridge.codecs.joint_parts`); ``position``, ``velocity``, ``effort``: the signals that take these fields;
``offset``, ``sign``; ``scale``: {field: our unit per the driver's}; ``mimic``: {joint: {of, multiplier, offset}}:
joints that the driver leaves out because they follow another, ``multiplier`` times it plus ``offset``; ``tool``:
{chain, position, attitude, velocity}: signals of the tool by forward kinematics, exact and of the same instant as the
joints (``chain``: ``self``, which is this robot); ``driven``: {signal, joints}: for motors that pull several joints
each (a list among the joints), the sum of their positions. Fields that nobody reads may be empty.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from temporeal.robots.motion.kinematics import Chain, KinematicsError, SerialChain, chain
from temporeal.robots.signals import all_finite, is_number
from temporeal_bridge.codecs.codec import CodecError, Frames, Options, Signals, finite, per_options
from temporeal_bridge.codecs.joint_options import Shares, joint_names, per_joint, places, shares, signs
from temporeal_bridge.transports import messages

FIELDS = ("position", "velocity", "effort")


@dataclass(frozen=True)
class Mimic:
    """Joints that follow others. ``told``: places of the others among the joints; ``places`` [M] of the followers,
    their ``leaders`` [M], and ``multiplier`` and ``offset`` [M]."""

    told: np.ndarray
    places: np.ndarray
    leaders: np.ndarray
    multiplier: np.ndarray
    offset: np.ndarray

    def filled(self, told: np.ndarray, zero: float = 1.0) -> np.ndarray:
        """The values of all joints, of those that were ``told``; ``zero``: share of the offset."""
        out = np.empty(len(self.told) + len(self.places))
        out[self.told] = told
        out[self.places] = self.multiplier * out[self.leaders] + zero * self.offset
        return out


@dataclass
class JointStateOptions:
    """The checked options of a JointState.

    Args:
        fields: offset and factor [J] by field.
        plain: fields whose zero and unit are the driver's, too.
        driven: shares of the motors, and the places [K] of their joints among ``joints``.
        told: the joints that the driver tells; the others follow, see ``mimic``.
        names: of the last message. order: places of the told joints among these.
    """

    joints: tuple[str, ...]
    fields: Mapping[str, tuple[np.ndarray, np.ndarray]]
    plain: Collection[str]
    driven: tuple[Shares, list[int]] | None
    told: tuple[str, ...]
    mimic: Mimic | None
    names: list[str] | None = None
    order: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=int))


@per_options
def joint_state_options(options: Options) -> JointStateOptions:
    """The options, checked once."""
    joints = joint_names(options)
    fields = conversions(options, len(joints))
    plain = [name for name, (offset, factor) in fields.items() if not offset.any() and (factor == 1.0).all()]
    follows = mimic(options, joints)
    told = tuple(joints) if follows is None else tuple(joints[i] for i in follows.told)
    return JointStateOptions(tuple(joints), fields, plain, driven(options, joints), told, follows)


def mimic(options: Options, joints: Sequence[str]) -> Mimic | None:
    """Option ``mimic``."""
    rows = options.get("mimic")
    if not rows:
        return None
    if not isinstance(rows, Mapping) or "effort" in options or "driven" in options:
        raise CodecError(f"option mimic is {rows!r}; a mapping from joints is needed, and neither effort nor driven")
    for name, row in rows.items():
        good = isinstance(row, Mapping) and set(row) == {"of", "multiplier", "offset"} and is_number(
            row["multiplier"]) and is_number(row["offset"])
        if not good or name not in joints or row["of"] not in joints or row["of"] in rows:
            raise CodecError(f"option mimic: {name!r}: {row!r}; {{of, multiplier, offset}} is needed, where `of` and "
                             f"{name!r} are joints ({', '.join(joints)}) and `of` follows none")
    place = {name: i for i, name in enumerate(joints)}
    numbers = np.array([(row["multiplier"], row["offset"]) for row in rows.values()], dtype=np.float64)
    return Mimic(np.array([i for i, name in enumerate(joints) if name not in rows], dtype=int),
                 np.array([place[name] for name in rows]), np.array([place[row["of"]] for row in rows.values()]),
                 numbers[:, 0], numbers[:, 1])


def driven(options: Options, joints: Sequence[str]) -> tuple[Shares, list[int]] | None:
    """Option ``driven``, see :class:`JointStateOptions`."""
    row = options.get("driven")
    if row is None:
        return None
    if set(row) != {"signal", "joints"} or "position" not in options:
        raise CodecError(f"option driven is {dict(row)}; signal and joints are needed, and the joints' position read")
    found = shares(row["joints"])
    if unknown := sorted(set(found.joints) - set(joints)):
        raise CodecError(f"option driven: no joints {unknown} are read; read: {', '.join(joints)}")
    return found, [list(joints).index(name) for name in found.joints]


def conversions(options: Options, count: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Offset and factor [count] of each field that is read: ours = factor * (the driver's - offset)."""
    scale, sign = options.get("scale", {}), signs(options, count)
    if set(scale) - set(FIELDS):
        raise CodecError(f"option scale has {sorted(scale)}; legal: {', '.join(FIELDS)}")
    zero, offset = np.zeros(count), per_joint(options, "offset", count, 0.0)
    return {field: (offset if field == "position" else zero, sign * per_joint(scale, field, count, 1.0))
            for field in FIELDS if field in options}


def joint_state_signals(options: Options) -> tuple[str, ...]:
    """Names of the signals that a JointState carries."""
    tool = options.get("tool", {})
    sums = (options["driven"]["signal"],) if "driven" in options else ()
    return tuple(options[f] for f in FIELDS if f in options) + sums + tuple(
        tool[f] for f in ("position", "attitude", "velocity") if f in tool)


def decode_joint_state(message: Any, options: Options) -> Signals:
    """Signals of the named joints, wherever they stand in the message."""
    known = joint_state_options(options)
    if known.names != message.name:
        known.order = np.array(order_of(known.told, list(message.name)), dtype=int)
        known.names = list(message.name)
    joints, order, values = known.told, known.order, {}
    for part, (offset, factor) in known.fields.items():
        raw = np.asarray(getattr(message, part), dtype=np.float64)
        if len(raw) != len(message.name):
            raise CodecError(f"JointState has {len(message.name)} names and {len(raw)} values of {part}")
        value = raw[order]
        if not all_finite(value):
            bad = int(np.flatnonzero(~np.isfinite(value))[0])
            raise CodecError(f"JointState: {part} of joint {joints[bad]!r} is {value[bad]}")
        if known.mimic is not None:
            told = known.mimic.told
            value = known.mimic.filled(factor[told] * (value - offset[told]), float(part == "position"))
            values[part] = value
        else:
            values[part] = value if part in known.plain else factor * (value - offset)
    out = {options[part]: value.astype(np.float32) for part, value in values.items()}
    if known.driven is not None:
        motors, places_of = known.driven
        out[options["driven"]["signal"]] = motors.gather(values["position"][places_of]).astype(np.float32)
    return {**out, **tool_signals(values, options["tool"])} if "tool" in options else out


def order_of(joints: Sequence[str], found: list[str]) -> list[int]:
    """Places of our joints among those of a message."""
    place = {name: i for i, name in enumerate(found)}
    missing = [name for name in joints if name not in place]
    if missing:
        raise CodecError(f"JointState has no joint {missing[0]!r}; it has: {', '.join(found) or 'none'}")
    twice = [name for name in joints if found.count(name) > 1] if len(place) < len(found) else []
    if twice:
        raise CodecError(f"JointState has joint {twice[0]!r} more than once")
    return [place[name] for name in joints]


def tool_signals(values: Mapping[str, np.ndarray], tool: Mapping[str, Any]) -> Signals:
    """Pose and velocity of the tool from the joints' ``position`` and ``velocity`` [J]."""
    legal = ("chain", "position", "attitude", "velocity")
    if set(tool) - set(legal) or "position" not in values or ("velocity" in tool and "velocity" not in values):
        raise CodecError(f"option tool is {dict(tool)}; legal: {', '.join(legal)}, and the joints' position (for a "
                         f"velocity also their velocity) must be read")
    try:
        found = tool_state(tool, values["position"], values.get("velocity"))
    except KinematicsError as error:
        raise CodecError(f"option tool: {error}") from error
    return {tool[key]: value.astype(np.float32) for key, value in zip(legal[1:], found) if key in tool}


def tool_state(tool: Mapping[str, Any], position: np.ndarray, velocity: np.ndarray | None) -> tuple[np.ndarray, ...]:
    """Position, attitude and velocity of the tool; the position alone where no more is wanted, which costs less."""
    by = tool["chain"] if isinstance(tool["chain"], (Chain, SerialChain)) else chain(tool["chain"])
    alone = set(tool) == {"chain", "position"}
    if isinstance(by, Chain):
        return (by.position(position),) if alone else by(position, velocity)
    columns = list(by.columns)
    if alone:
        return (by.forward(position[columns])[:3, 3],)
    return by(position[columns], None if velocity is None or "velocity" not in tool else velocity[columns])


def encode_joint_state(signals: Mapping[str, np.ndarray], stamp_ns: int, frames: Frames, options: Options) -> Any:
    """The JointState that a driver publishes: these joints in this order, fields that nobody reads empty."""
    known, fields = joint_state_options(options), dict.fromkeys(FIELDS, np.zeros(0))
    joints = list(known.joints)
    told = slice(None) if known.mimic is None else known.mimic.told
    for part, (offset, factor) in known.fields.items():
        value = np.asarray(signals[options[part]], dtype=np.float64)
        if value.shape != (len(joints),):
            raise CodecError(f"signal {options[part]!r} has shape {value.shape}, there are {len(joints)} joints")
        fields[part] = (value / factor + offset)[told]
    return messages.record("sensor_msgs/msg/JointState")(
        header=messages.header(stamp_ns), name=list(known.told), **fields)


# As a command: positions only, by place. Options: joints, index, offset, sign.


def encode_joint_command(command: np.ndarray, options: Options, stamp_ns: int = 0) -> Any:
    """The driver's angles in the driver's order; the names are for human readers."""
    joints = joint_names(options)
    count = len(joints)
    place, position = places(options, count), np.empty(count)
    position[place] = (
        signs(options, count) * finite(command, (count,), "the command") + per_joint(options, "offset", count, 0.0))
    called = [joints[i] for i in np.argsort(place)]
    return messages.record("sensor_msgs/msg/JointState")(
        header=messages.header(stamp_ns), name=called, position=position, velocity=np.zeros(0), effort=np.zeros(0))


def decode_joint_command(message: Any, options: Options) -> np.ndarray:
    """The command that these angles mean, read by place, as the driver does."""
    count = len(joint_names(options))
    raw = finite(message.position, (count,), "JointState: position")[places(options, count)]
    return np.asarray(signs(options, count) * (raw - per_joint(options, "offset", count, 0.0)))
