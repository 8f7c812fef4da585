"""The mapping of a pretrained policy to a robot: a YAML file that says which signal is which input, and what an action
does to our command. Read, checked and hashed here; :mod:`temporeal.policies.pretrained.binding` carries it out.

    dataset: lerobot/svla_so101_pickplace     # whose statistics normalize
    robot: franka
    command: arm_cmd
    rate_hz: 20
    execute: 8                                # rows of a chunk that are used before the next inference
    instruction: {signal: instruction}        # or {text: push the red cube}; left out where the policy reads none
    inputs:
      observation.state:
        - {signal: joint_pos, unit: rad, model_unit: deg}
        - {signal: finger_pos, components: [0], unit: m, gain: 25.0, model_unit: "1"}
      observation.images.front:
        - {signal: front_rgb, resize: true}
    action:
      size: 8
      parts:
        - {kind: absolute, action: [0, 1, 2, 3, 4, 5, 6], command: [0, 1, 2, 3, 4, 5, 6], unit: rad, model_unit: deg}
        - {kind: absolute, action: [7], command: [7], unit: m, gain: 0.04, model_unit: "1"}
    openvla: {decoding: parallel, rows: 8, bounds: q99, center_crop: true}   # of OpenVLA's kind of model only

docs/how-to/pretrained-models.md explains each key.
"""

from __future__ import annotations

from collections.abc import Mapping as Table
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from temporeal.policies.pretrained.serving.interface import digest_of
from temporeal.policies.pretrained.serving.openvla.checkpoint import DECODING, Settings
from temporeal.policies.pretrained.serving.openvla.statistics import BOUNDS
from temporeal.robots.handed_over.files import Refused, read_text
from temporeal.robots.handed_over.texts import from_yaml
from temporeal.robots.signals import is_number

KINDS = ("absolute", "delta", "tool")
RELATIVE = ("start", "previous")
LARGEST = 1000  # components of an action, rows that are executed


class MappingError(ValueError):
    """A mapping cannot be read, or does not fit the robot; the message names key, value and rule."""


@dataclass(frozen=True)
class InputPart:
    """Numbers of one signal in an input of the model, or a picture.

    Args:
        components: of the signal, in the input's order; None: all.
        unit: of the signal. ``model_unit``: of the model's numbers. Angles and lengths are converted.
        gain, offset: the model's number is ``gain * converted + offset``.
        turns_as: ``rotation_vector``: of an attitude (wxyz).
        resize: a picture may be scaled to the model's size.
    """

    signal: str
    components: tuple[int, ...] | None = None
    unit: str = ""
    model_unit: str = ""
    gain: float = 1.0
    offset: float = 0.0
    turns_as: str = ""
    resize: bool = False


@dataclass(frozen=True)
class ActionPart:
    """What some numbers of an action do to some numbers of the command.

    Args:
        kind: ``absolute``: they are the command's. ``delta``: they are added to the signal ``base``. ``tool``: six
            numbers move the tool: a step of its centre (m), a turn (rad, rotation vector), in the base's frame.
        action, command: components.
        unit, model_unit: of the command's and of the model's numbers; of deltas, those of the signal.
        gain, offset: the command's number is ``gain * converted + offset``; one gain, or one for each number.
        base: the signal that deltas start from; ``components`` of it, None: all.
        relative_to: ``start``: each row's delta is from where the chunk began. ``previous``: from the row before.
    """

    kind: str
    action: tuple[int, ...]
    command: tuple[int, ...]
    unit: str = ""
    model_unit: str = ""
    gain: float | tuple[float, ...] = 1.0
    offset: float = 0.0
    base: str = ""
    components: tuple[int, ...] | None = None
    relative_to: str = ""


@dataclass(frozen=True)
class Mapping:
    """A mapping; see the module's text.

    Args:
        size: numbers of the model's action. ``ignored``: those that no part uses.
        not_normalized: features that the user says the model was trained on as they are.
        history: ``repeat``: a model that reads several observations gets the newest one several times.
        seed: of the noise that flow and diffusion policies begin with.
        openvla: what no file of an OpenVLA model says; None for others.
    """

    dataset: str
    robot: str
    command: str
    rate_hz: float
    inputs: Table[str, tuple[InputPart, ...]]
    size: int
    parts: tuple[ActionPart, ...]
    ignored: tuple[int, ...] = ()
    execute: int = 1
    sentence: str | None = None
    sentence_signal: str | None = None
    not_normalized: tuple[str, ...] = ()
    history: str = ""
    seed: int = 0
    openvla: Settings | None = None

    def digest(self) -> str:
        """SHA-256 of what the mapping says, however its file is laid out."""
        said = asdict(self)
        if self.openvla is None:  # mappings of other kinds have the hash that they had before there was this key
            del said["openvla"]
        return digest_of(said)


def read_mapping(path: Path) -> Mapping:
    """The mapping in a YAML file."""
    try:
        found = from_yaml(read_text(path), str(path))
    except (Refused, yaml.YAMLError) as error:
        raise MappingError(f"{path}: {error}") from error
    except OSError as error:
        raise MappingError(f"{path} cannot be read: {error.strerror}") from error
    try:
        return mapping_of(found)
    except MappingError as error:
        raise MappingError(f"{path}: {error}") from error


TOP = ("dataset", "robot", "command", "rate_hz", "execute", "instruction", "inputs", "action", "not_normalized",
       "history", "seed", "openvla")


def mapping_of(given: Any) -> Mapping:
    """The mapping that plain values describe."""
    table(given, "the mapping", TOP, ("dataset", "robot", "command", "rate_hz", "inputs", "action"))
    action = table(given["action"], "action", ("size", "parts", "ignored"), ("size", "parts"))
    inputs = {str(name): tuple(input_part(entry, f"inputs.{name}") for entry in listed(entries, f"inputs.{name}"))
              for name, entries in table(given["inputs"], "inputs").items()}
    sentence = table(given.get("instruction") or {}, "instruction", ("text", "signal"))
    if len(sentence) > 1:
        raise MappingError("instruction: text or signal, not both")
    found = Mapping(
        **{key: text(given[key], key) for key in ("dataset", "robot", "command")},
        rate_hz=positive(given["rate_hz"], "rate_hz"), inputs=inputs, size=whole(action["size"], "action.size"),
        parts=tuple(action_part(entry, "action.parts") for entry in listed(action["parts"], "action.parts")),
        ignored=indexes(action.get("ignored") or [], "action.ignored"),
        execute=whole(given.get("execute", 1), "execute"),
        sentence=text(sentence["text"], "instruction.text") if "text" in sentence else None,
        sentence_signal=text(sentence["signal"], "instruction.signal") if "signal" in sentence else None,
        not_normalized=tuple(text(name, "not_normalized") for name in listed(
            given.get("not_normalized") or [], "not_normalized", empty=True)),
        history=one_of(given.get("history", ""), "history", ("", "repeat")),
        seed=whole(given.get("seed", 0), "seed", 0),
        openvla=openvla_settings(given["openvla"]) if "openvla" in given else None)
    check_components(found)
    return found


def openvla_settings(given: Any) -> Settings:
    """How an OpenVLA model decodes: each key is stated."""
    keys = tuple(f.name for f in fields(Settings))
    table(given, "openvla", keys, keys)
    return Settings(one_of(given["decoding"], "openvla.decoding", DECODING), whole(given["rows"], "openvla.rows"),
                    one_of(given["bounds"], "openvla.bounds", tuple(BOUNDS)),
                    truth(given["center_crop"], "openvla.center_crop"))


def input_part(entry: Any, where: str) -> InputPart:
    """A part of an input."""
    table(entry, where, tuple(f.name for f in fields(InputPart)), ("signal",))
    return InputPart(
        text(entry["signal"], where), indexes(entry["components"], where) if "components" in entry else None,
        *units(entry, where),
        number(entry.get("gain", 1.0), where), number(entry.get("offset", 0.0), where),
        one_of(entry.get("turns_as", ""), f"{where}: turns_as", ("", "rotation_vector")),
        truth(entry.get("resize", False), f"{where}: resize"))


def action_part(entry: Any, where: str) -> ActionPart:
    """A part of the action."""
    table(entry, where, tuple(f.name for f in fields(ActionPart)), ("kind", "action", "command"))
    gain = entry.get("gain", 1.0)
    found = ActionPart(
        one_of(entry["kind"], f"{where}: kind", KINDS),
        indexes(entry["action"], where), indexes(entry["command"], where),
        *units(entry, where),
        tuple(number(v, where) for v in gain) if isinstance(gain, list) else number(gain, where),
        number(entry.get("offset", 0.0), where), text(entry.get("base", ""), where, empty=True),
        indexes(entry["components"], where) if "components" in entry else None,
        one_of(entry.get("relative_to", ""), f"{where}: relative_to", ("", *RELATIVE)))
    check_part(found, where)
    return found


def units(entry: dict[str, Any], where: str) -> tuple[str, str]:
    """Our unit and the model's, which is ours where it is not stated."""
    ours = text(entry.get("unit", ""), where, empty=True)
    return ours, text(entry.get("model_unit", ours), where, empty=True)


def check_part(part: ActionPart, where: str) -> None:
    """The keys of a part fit its kind."""
    count = len(part.action)
    if isinstance(part.gain, tuple) and len(part.gain) != count:
        raise MappingError(f"{where}: {count} numbers have {len(part.gain)} gains")
    if part.kind == "tool":
        others = part.offset, part.unit, part.model_unit, part.base, part.relative_to, part.components
        if count != 6 or any(others):
            raise MappingError(f"{where}: kind tool takes six numbers of the action (step m, turn rad; gain makes them "
                               f"so), and no offset, unit or base; got {count}")
        return
    if len(part.command) != count:
        raise MappingError(f"{where}: {count} numbers of the action for {len(part.command)} of the command")
    if {bool(part.base), bool(part.relative_to)} != {part.kind == "delta"} or (
            part.components is not None and part.kind != "delta"):
        raise MappingError(f"{where}: kind delta needs base: SIGNAL and relative_to: {' or '.join(RELATIVE)}, and may "
                           "name components of it; kind absolute takes none of these")


def check_components(found: Mapping) -> None:
    """Each number of the action is used once, or ignored in so many words; each of the command is given once."""
    used = [*found.ignored, *(i for part in found.parts for i in part.action)]
    if sorted(used) != list(range(found.size)):
        raise MappingError(f"action: its {found.size} numbers are each used once, or listed under ignored; the parts "
                           f"use {sorted(used)}")
    commanded = sorted(i for part in found.parts for i in part.command)
    if commanded != list(range(len(commanded))):
        raise MappingError(f"action: the numbers of the command are each given once; the parts give {commanded}")
    if not found.inputs:
        raise MappingError("inputs: the model reads nothing")


def table(value: Any, where: str, legal: tuple[str, ...] = (), needed: tuple[str, ...] = ()) -> dict[str, Any]:
    """``value`` if it is a mapping with legal keys and the needed ones."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        keys = f": {', '.join(legal)}" if legal else ""
        raise MappingError(f"{where} is {str(value)[:60]!r}; a group of keys is needed{keys}")
    if legal and (unknown := [key for key in value if key not in legal]):
        raise MappingError(f"{where}: unknown key {unknown[0]!r}; legal: {', '.join(legal)}")
    if missing := [key for key in needed if key not in value]:
        raise MappingError(f"{where}: {', '.join(missing)} is missing")
    return value


def listed(value: Any, where: str, empty: bool = False) -> list[Any]:
    """``value`` if it is a list."""
    if not isinstance(value, list) or not (value or empty):
        raise MappingError(f"{where} is {str(value)[:60]!r}; a list is needed")
    return value


def text(value: Any, where: str, empty: bool = False) -> str:
    """``value`` if it is a word."""
    if not isinstance(value, str) or not (value or empty) or len(value) > 500:
        raise MappingError(f"{where}: {str(value)[:60]!r} is no text")
    return value


def number(value: Any, where: str) -> float:
    """``value`` if it is a finite number."""
    if not is_number(value):
        raise MappingError(f"{where}: {str(value)[:60]!r} is no finite number")
    return float(value)


def positive(value: Any, where: str) -> float:
    """``value`` if it is a number above 0."""
    if number(value, where) <= 0.0:
        raise MappingError(f"{where} is above 0, got {value}")
    return float(value)


def whole(value: Any, where: str, least: int = 1) -> int:
    """``value`` if it is a whole number in its bounds."""
    most = LARGEST if least else 2**31
    if type(value) is not int or not least <= value <= most:
        raise MappingError(f"{where} is {str(value)[:60]!r}; a whole number from {least} to {most} is needed")
    return value


def truth(value: Any, where: str) -> bool:
    """``value`` if it is true or false."""
    if type(value) is not bool:
        raise MappingError(f"{where} is {str(value)[:60]!r}; true or false is needed")
    return value


def indexes(value: Any, where: str) -> tuple[int, ...]:
    """``value`` if it is a list of components."""
    if not isinstance(value, list) or not all(type(i) is int and 0 <= i < LARGEST for i in value):
        raise MappingError(f"{where}: components are {str(value)[:60]!r}; a list of whole numbers from 0 is needed")
    return tuple(value)


def one_of(value: Any, where: str, legal: tuple[str, ...]) -> str:
    """``value`` if it is one of the ``legal`` words."""
    if value not in legal or not isinstance(value, str):
        raise MappingError(f"{where} is {str(value)[:60]!r}; legal: {', '.join(word for word in legal if word)}")
    return value
