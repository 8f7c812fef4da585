"""What an MJCF or URDF file says of joints and actuators, read with the standard library only.

A robot computer has no simulator: this reads what a spec needs (names in the model's order, ranges, control ranges, the
key called ``home``) by MuJoCo's own rules for default classes, included files, units and automatic limits. Bodies,
masses and shapes are the simulator's to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite, pi
from pathlib import Path
from xml.etree import ElementTree

QPOS_SIZE = {"free": 7, "ball": 4, "slide": 1, "hinge": 1}
TARGETS = ("joint", "jointinparent", "tendon", "site", "body", "slidersite", "cranksite", "refsite")
ACTUATORS = ("general", "motor", "position", "velocity", "intvelocity", "damper", "cylinder", "muscle", "adhesion",
             "dcmotor", "pid", "orientation", "plugin")
GENERATED = ("replicate", "attach", "composite", "flexcomp")  # what only MuJoCo can unfold
URDF_KINDS = {"revolute": "hinge", "continuous": "hinge", "prismatic": "slide", "floating": "free"}
LIMIT = ("lower", "upper", "effort", "velocity")
Defaults = Mapping[str, Mapping[str, Mapping[str, str]]]


class RobotFileError(ValueError):
    """A robot's file breaks a rule; the message names file, element and rule."""


@dataclass(frozen=True)
class Joint:
    """A joint as the model has it: ``kind`` hinge, slide, ball or free; range in rad or m, infinite where unlimited.

    ``rest`` is its position as the model is drawn (MJCF's ``ref``); ``effort`` and ``speed`` are a URDF's limits.
    """

    name: str
    kind: str
    body: str
    low: float = -inf
    high: float = inf
    effort: float = inf
    speed: float = inf
    rest: float = 0.0


@dataclass(frozen=True)
class Actuator:
    """An actuator of the model: what it drives, and its control range."""

    name: str
    tag: str
    target: str
    low: float = -inf
    high: float = inf


@dataclass(frozen=True)
class Content:
    """What a model file says."""

    path: Path
    joints: tuple[Joint, ...]
    actuators: tuple[Actuator, ...] = ()
    home: Mapping[str, float] = field(default_factory=dict)

    def fail(self, element: str, rule: str) -> RobotFileError:
        """The error for ``element``."""
        return RobotFileError(f"{self.path}: {element}: {rule}")


def read_model(path: Path) -> Content:
    """What the MJCF or URDF file says of joints and actuators."""
    root = parse(path)
    readers = {"mujoco": read_mjcf, "robot": read_urdf}
    if root.tag not in readers:
        raise RobotFileError(f"{path}: <{root.tag}>: the root element is <mujoco> (MJCF) or <robot> (URDF)")
    return readers[root.tag](path, root)


def parse(path: Path) -> ElementTree.Element:
    """The root element."""
    if not path.is_file():
        raise FileNotFoundError(f"no robot file {path}")
    try:
        return ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        raise RobotFileError(f"{path}: not XML: {error}") from error


def numbers(where: str, text: str, count: int) -> tuple[float, ...]:
    """``count`` finite numbers of an attribute."""
    try:
        values = tuple(float(word) for word in text.split())
    except ValueError:
        values = ()
    if len(values) != count or not all(map(isfinite, values)):
        raise RobotFileError(f"{where}: {count} numbers are needed, got {text!r}")
    return values


def label(element: ElementTree.Element) -> str:
    """How messages call an element."""
    name = element.get("name")
    return f"<{element.tag}>" if name is None else f'<{element.tag} name="{name}">'


def frames(path: Path) -> list[str]:
    """Names of bodies, links and sites."""
    root = parse(path)
    unfold(path, root, (path,))
    return [element.get("name", "") for tag in ("body", "link", "site") for element in root.iter(tag)
            if element.get("name")]


# ---------------------------------------------------------------- MJCF


@dataclass(frozen=True)
class Mjcf:
    """What is needed to read elements: classes (class -> element -> attributes), angle unit, automatic limits."""

    path: Path
    classes: Defaults
    degrees: bool
    autolimits: bool

    def attributes(self, element: ElementTree.Element, childclass: str, kind: str) -> dict[str, str]:
        """Attributes of ``element`` with those of its class for elements of ``kind`` (joint or actuator)."""
        name = element.get("class", childclass)
        if name not in self.classes:
            raise RobotFileError(f"{self.path}: {label(element)}: no default class {name!r}; known: "
                                 f"{', '.join(self.classes)}")
        return {**self.classes[name].get(kind, {}), **element.attrib}

    def limits(self, where: str, given: Mapping[str, str], prefix: str, scale: float) -> tuple[float, float]:
        """Range ``<prefix>range`` if it is in force (``<prefix>limited``), else infinite."""
        text, limited = given.get(f"{prefix}range"), given.get(f"{prefix}limited", "auto")
        if limited == "false" or (limited == "auto" and (text is None or not self.autolimits)):
            return -inf, inf
        low, high = numbers(where, text or "0 0", 2)
        if not low < high:
            raise RobotFileError(f"{where}: {prefix}range {text!r}: the first number must be below the second")
        return low * scale, high * scale


def read_mjcf(path: Path, root: ElementTree.Element) -> Content:
    """MJCF: joints in the order of the compiled model, actuators in theirs."""
    unfold(path, root, (path,))
    compiler = {key: value for element in root.iter("compiler") for key, value in element.attrib.items()}
    mjcf = Mjcf(path, default_classes(root), compiler.get("angle", "degree") == "degree",
                compiler.get("autolimits", "true") == "true")
    joints: list[Joint] = []
    for world in root.findall("worldbody"):
        walk(mjcf, world, world.get("childclass", "main"), joints)
    listed = tuple(joints)
    actuators = tuple(read_actuators(mjcf, root, {j.name: j for j in listed}))
    return Content(path, listed, actuators, home_key(path, root, listed))


def unfold(path: Path, element: ElementTree.Element, seen: tuple[Path, ...]) -> None:
    """Replace each <include> below ``element`` by the children of the file's root, relative to the main file."""
    for index in reversed(range(len(element))):
        child = element[index]
        if child.tag != "include":
            unfold(path, child, seen)
            continue
        other = seen[0].parent / child.get("file", "")
        if other in seen:
            raise RobotFileError(f"{path}: <include file={child.get('file')!r}>: the file includes itself")
        try:
            content = parse(other)
        except FileNotFoundError as error:
            raise RobotFileError(f"{path}: <include file={child.get('file')!r}>: {error}") from error
        unfold(other, content, (*seen, other))
        element.remove(child)
        for offset, part in enumerate(content):
            element.insert(index + offset, part)


def default_classes(root: ElementTree.Element) -> dict[str, dict[str, dict[str, str]]]:
    """Attributes by class and element, inherited ones included."""
    classes: dict[str, dict[str, dict[str, str]]] = {"main": {}}

    def add(element: ElementTree.Element, name: str, inherited: Mapping[str, Mapping[str, str]]) -> None:
        mine = {kind: dict(values) for kind, values in {**inherited, **classes.get(name, {})}.items()}
        for child in element:
            if child.tag != "default":  # all kinds of actuators share one set of defaults
                mine.setdefault("joint" if child.tag == "joint" else "actuator", {}).update(
                    child.attrib if child.tag == "joint" or child.tag in ACTUATORS else {})
        classes[name] = mine
        for child in element.findall("default"):
            add(child, child.get("class", ""), mine)

    for element in root.findall("default"):
        add(element, "main", {})
    return classes


def walk(mjcf: Mjcf, body: ElementTree.Element, childclass: str, joints: list[Joint]) -> None:
    """Append the joints of ``body``, then those of the bodies below it: the order of the compiled model."""
    bodies: list[tuple[ElementTree.Element, str]] = []

    def visit(element: ElementTree.Element, inherited: str) -> None:
        for child in element:
            inside = child.get("childclass", inherited)
            if child.tag in GENERATED:
                raise RobotFileError(f"{mjcf.path}: {label(child)}: only MuJoCo can unfold it: load the file there "
                                     "(mujoco.MjSpec.from_file), save it with to_xml(), and use the result")
            if child.tag in ("joint", "freejoint"):
                joints.append(read_joint(mjcf, body, child, inherited, len(joints)))
            elif child.tag == "frame":
                visit(child, inside)
            elif child.tag == "body":
                bodies.append((child, inside))

    visit(body, childclass)
    for child, inside in bodies:
        walk(mjcf, child, inside, joints)


def read_joint(
    mjcf: Mjcf, body: ElementTree.Element, element: ElementTree.Element, childclass: str, index: int
) -> Joint:
    """One joint of ``body``."""
    free = element.tag == "freejoint"
    given = dict(element.attrib) if free else mjcf.attributes(element, childclass, "joint")
    where, kind = f"{mjcf.path}: {label(element)}", "free" if free else given.get("type", "hinge")
    if kind not in QPOS_SIZE:
        raise RobotFileError(f"{where}: type {kind!r} is not one of {', '.join(QPOS_SIZE)}")
    low, high, rest = -inf, inf, 0.0
    if kind in ("hinge", "slide"):
        unit = pi / 180 if kind == "hinge" and mjcf.degrees else 1.0
        low, high = mjcf.limits(where, given, "", unit)
        rest = numbers(where, given.get("ref", "0"), 1)[0] * unit
    return Joint(given.get("name") or f"joint{index}", kind, body.get("name", ""), low, high, rest=rest)


def read_actuators(mjcf: Mjcf, root: ElementTree.Element, joints: Mapping[str, Joint]) -> Iterator[Actuator]:
    """The actuators, in the order of the file."""
    elements = [child for part in root.findall("actuator") for child in part]
    taken = {element.get("name") for element in elements}
    for index, element in enumerate(elements):
        given = mjcf.attributes(element, "main", "actuator")
        target = next((given[key] for key in TARGETS if key in given), "")
        name = element.get("name") or (target if target and target not in taken else f"actuator{index}")
        taken.add(name)
        low, high = control_range(mjcf, element, given, joints)
        yield Actuator(name, element.tag, target, low, high)


def control_range(
    mjcf: Mjcf, element: ElementTree.Element, given: Mapping[str, str], joints: Mapping[str, Joint]
) -> tuple[float, float]:
    """``ctrlrange``, or the joint's range times ``inheritrange``."""
    where, joint = f"{mjcf.path}: {label(element)}", joints.get(given.get("joint", ""))
    share = numbers(where, given.get("inheritrange", "0"), 1)[0]
    if not share:
        return mjcf.limits(where, given, "ctrl", 1.0)
    if joint is None or not isfinite(joint.low):
        raise RobotFileError(f"{where}: inheritrange needs a joint with a range, got joint {given.get('joint')!r}")
    middle, half = (joint.low + joint.high) / 2, (joint.high - joint.low) / 2
    return middle - share * half, middle + share * half


def home_key(path: Path, root: ElementTree.Element, joints: Iterable[Joint]) -> dict[str, float]:
    """Positions of hinges and slides in the key called ``home``, by joint."""
    keys = [key for part in root.findall("keyframe") for key in part if key.get("name") == "home" and key.get("qpos")]
    if not keys:
        return {}
    qpos = numbers(f"{path}: {label(keys[0])}", keys[0].get("qpos", ""), sum(QPOS_SIZE[j.kind] for j in joints))
    home, address = {}, 0
    for joint in joints:
        if QPOS_SIZE[joint.kind] == 1:
            home[joint.name] = qpos[address]
        address += QPOS_SIZE[joint.kind]
    return home


# ---------------------------------------------------------------- URDF


def read_urdf(path: Path, root: ElementTree.Element) -> Content:
    """URDF: its moving joints in the order of the file."""
    joints = []
    for element in root.findall("joint"):
        where, kind = f"{path}: {label(element)}", element.get("type", "")
        if kind == "fixed":
            continue
        if kind not in URDF_KINDS:
            raise RobotFileError(f"{where}: type {kind!r} is not one of fixed, {', '.join(URDF_KINDS)}")
        if not element.get("name"):
            raise RobotFileError(f"{where}: a joint needs a name")
        joints.append(urdf_joint(where, element, URDF_KINDS[kind]))
    return Content(path, tuple(joints))


def urdf_joint(where: str, element: ElementTree.Element, kind: str) -> Joint:
    """One moving joint."""
    child = element.find("child")
    body = "" if child is None else child.get("link", "")
    limit = element.find("limit")
    given = {} if limit is None else {key: numbers(f"{where}: <limit>: {key}", text, 1)[0]
                                      for key, text in limit.attrib.items() if key in LIMIT}
    low, high = -inf, inf
    if element.get("type") in ("revolute", "prismatic"):
        low, high = given.get("lower", 0.0), given.get("upper", 0.0)
        if not low < high:
            raise RobotFileError(f"{where}: <limit lower={low:g} upper={high:g}>: lower must be below upper")
    return Joint(element.get("name", ""), kind, body, low, high, given.get("effort", 0.0) or inf,
                 given.get("velocity", 0.0) or inf)
