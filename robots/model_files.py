"""Joints and actuators of an MJCF or URDF file, read with the standard library only.

A robot computer has no simulator. This reads what a spec needs (names in the model's order, ranges, control ranges, the
key called ``home``) by MuJoCo's rules for default classes, included files, units and automatic limits. Bodies, masses
and shapes are read by the simulator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf, isfinite, pi
from pathlib import Path
from xml.etree import ElementTree

from temporeal.robots.handed_over import files
from temporeal.robots.handed_over.texts import from_xml
from temporeal.robots.search_path import SPEC

LARGEST = 64 * files.MIB  # bytes of a model's file; meshes are files of their own
SUFFIXES = (".xml", ".mjcf", ".urdf")
QPOS_SIZE = {"free": 7, "ball": 4, "slide": 1, "hinge": 1}
TARGETS = ("joint", "jointinparent", "tendon", "site", "body", "slidersite", "cranksite", "refsite")
ACTUATORS = ("general", "motor", "position", "velocity", "intvelocity", "damper", "cylinder", "muscle", "adhesion",
             "dcmotor", "pid", "orientation", "plugin")
GENERATED = ("replicate", "attach", "composite", "flexcomp")  # what only MuJoCo can unfold
URDF_KINDS = {"revolute": "hinge", "continuous": "hinge", "prismatic": "slide", "floating": "free"}
LIMIT = ("lower", "upper", "effort", "velocity")
SERVOS = ("general", "position", "intvelocity", "pid")  # actuators whose inheritrange a later element may inherit
SHORTCUT = "shortcut of the class"  # no attribute's name: the last tag but <general> among a class's defaults
Defaults = Mapping[str, Mapping[str, Mapping[str, str]]]


class RobotFileError(ValueError):
    """A robot's file breaks a rule; the message names file, element and rule."""


@dataclass(frozen=True)
class Joint:
    """A joint as the model has it: ``kind`` hinge, slide, ball or free; range in rad or m, infinite where unlimited.

    ``rest`` is its position as the model is drawn (MJCF's ``ref``); ``effort`` and ``speed`` are a URDF's limits,
    infinite where it gives none (a speed of 0 is none; an effort of 0 stays 0).
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
    """An actuator of the model: the joint or tendon it drives, and its control range."""

    name: str
    tag: str
    target: str
    low: float = -inf
    high: float = inf


@dataclass(frozen=True)
class Follow:
    """A joint coupled to another: ``rest + a0 + a1 x + ... + a4 x^4``, x the leader's displacement from its own rest.

    A URDF's ``mimic``, an MJCF's ``<equality><joint>``. Without a leader (``""``) x is 0: the joint is held.
    """

    leader: str
    coefficients: tuple[float, ...]
    where: str

    def position(self, rest: float, way: float) -> float:
        """The follower's position for a leader at ``way`` from its rest, rad or m."""
        return rest + sum(a * way**power for power, a in enumerate(self.coefficients))


@dataclass(frozen=True)
class Content:
    """Joints and actuators of a model file; ``followers`` by joint; ``notes`` on what the file leaves out; the robot's
    ``folder``, if the file is in one."""

    path: Path
    joints: tuple[Joint, ...]
    actuators: tuple[Actuator, ...] = ()
    home: Mapping[str, float] = field(default_factory=dict)
    followers: Mapping[str, Follow] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None

    @property
    def beside(self) -> str:
        """Name of the YAML file that says what the model cannot."""
        return self.path.with_suffix(".robot.yaml").name if self.folder is None else SPEC

    def fail(self, element: str, rule: str) -> RobotFileError:
        """The error for ``element``."""
        return RobotFileError(f"{self.path}: {element}: {rule}")


def is_file(name: str) -> bool:
    """Whether ``name`` is the path of a user's robot (a model file, or a folder with spec.yaml) rather than a name."""
    return name.lower().endswith(SUFFIXES) or (Path(name) / SPEC).is_file()


def read_model(path: Path) -> Content:
    """Joints and actuators of the MJCF or URDF file."""
    root = parse(path)
    readers = {"mujoco": read_mjcf, "robot": read_urdf}
    if root.tag not in readers:
        raise RobotFileError(f"{path}: <{root.tag}>: the root element is <mujoco> (MJCF) or <robot> (URDF)")
    return readers[root.tag](path, root)


def parse(path: Path) -> ElementTree.Element:
    """The root element."""
    if not path.exists() or path.is_dir():
        raise FileNotFoundError(f"no robot file {path}")
    try:
        return from_xml(files.read(path, LARGEST), str(path))
    except files.Refused as error:
        raise RobotFileError(str(error)) from error
    except (ElementTree.ParseError, LookupError, ValueError) as error:  # an unknown or a wrong encoding
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
    """The name of an element in messages."""
    name = element.get("name")
    return f"<{element.tag}>" if name is None else f'<{element.tag} name="{name}">'


def fresh(base: str, index: int, taken: Collection[str]) -> str:
    """A name for element ``index``: ``<base><index>``, or with the next number that is not ``taken``."""
    return next(name for i in count(index) if (name := f"{base}{i}") not in taken)


def frames(content: Content) -> list[str]:
    """Names of bodies, links and sites."""
    root = parse(content.path)
    unfold(content.path, root, [content.path])
    named = [element.get("name", "") for tag in ("body", "link", "site") for element in root.iter(tag)]
    return list(dict.fromkeys([name for name in named if name] + [j.body for j in content.joints if j.body]))


# ---------------------------------------------------------------- MJCF


@dataclass(frozen=True)
class Mjcf:
    """Context for reading elements: classes (class -> element -> attributes), angle unit, automatic limits, axes
    of Euler angles."""

    path: Path
    classes: Defaults
    degrees: bool
    autolimits: bool
    euler: str = "xyz"

    def attributes(self, element: ElementTree.Element, childclass: str, kind: str) -> dict[str, str]:
        """Attributes of ``element`` with those of its class for elements of ``kind``."""
        name = element.get("class", childclass)
        if name not in self.classes:
            raise RobotFileError(f"{self.path}: {label(element)}: no default class {name!r}; known: "
                                 f"{', '.join(self.classes)}")
        return merged(self.classes[name].get(kind, {}), element.tag, element.attrib)

    def limits(self, where: str, given: Mapping[str, str], prefix: str, scale: float) -> tuple[float, float]:
        """Range ``<prefix>range`` if it is in force (``<prefix>limited``), else infinite.

        MuJoCo takes two equal numbers for no range, unless ``<prefix>limited`` insists.
        """
        text, limited = given.get(f"{prefix}range"), given.get(f"{prefix}limited", "auto")
        if limited == "false" or (limited == "auto" and (text is None or not self.autolimits)):
            return -inf, inf
        low, high = numbers(where, text or "0 0", 2)
        if low == high and limited == "auto":
            return -inf, inf
        if not low < high:
            raise RobotFileError(f"{where}: {prefix}range {text or '0 0'!r}: the first number must be below the second")
        return low * scale, high * scale


def mjcf_of(path: Path, root: ElementTree.Element) -> Mjcf:
    """The context of the elements below ``root``, whose includes are already replaced."""
    unfold(path, root, [path])
    compiler = {key: value for element in root.iter("compiler") for key, value in element.attrib.items()}
    return Mjcf(path, default_classes(root), compiler.get("angle", "degree") == "degree",
                compiler.get("autolimits", "true") == "true", compiler.get("eulerseq", "xyz"))


def read_mjcf(path: Path, root: ElementTree.Element) -> Content:
    """MJCF: joints in the order of the compiled model, actuators in theirs."""
    mjcf = mjcf_of(path, root)
    joints = [read_joint(mjcf, body, element, inherited) for body, element, inherited in joint_elements(mjcf, root)]
    listed = tuple(named(joints, {name for body in root.iter("body") if (name := body.get("name"))}))
    actuators = tuple(read_actuators(mjcf, root, {j.name: j for j in listed}))
    tied = dict(read_equalities(mjcf, root, {j.name: j for j in listed}))
    return checked(Content(path, listed, actuators, home_key(path, root, listed), tied))


def named(joints: Iterable[Joint], bodies: set[str]) -> Iterator[Joint]:
    """``joints`` with names for the unnamed ones and for the bodies of free joints."""
    joints, places = list(joints), set(bodies)
    taken = {joint.name for joint in joints if joint.name}
    for index, joint in enumerate(joints):
        name, body = joint.name or fresh("joint", index, taken), joint.body
        if joint.kind == "free" and not body:
            body = "base" if "base" not in places else fresh("base", 1, places)
            places.add(body)
        taken.add(name)
        yield replace(joint, name=name, body=body)


def checked(content: Content) -> Content:
    """``content``, if every leader exists and nothing follows itself."""
    plain = {joint.name for joint in content.joints if QPOS_SIZE[joint.kind] == 1}
    for name, follow in content.followers.items():
        chain = [name]
        while chain[-1] in content.followers and content.followers[chain[-1]].leader:
            chain.append(content.followers[chain[-1]].leader)
            if chain[-1] not in plain:
                raise content.fail(follow.where, f"it follows {chain[-1]!r}, which is no hinge or slide of the model")
            if chain[-1] in chain[:-1]:
                raise content.fail(follow.where, f"joints follow each other: {' -> '.join(chain)}")
    return content


def read_equalities(
    mjcf: Mjcf, root: ElementTree.Element, joints: Mapping[str, Joint]
) -> Iterator[tuple[str, Follow]]:
    """Joints that an active ``<equality><joint>`` couples to another; the first one counts if there are several."""
    seen: set[str] = set()
    for element in [child for part in root.findall("equality") for child in part if child.tag == "joint"]:
        given, name = mjcf.attributes(element, "main", "equality"), element.get("joint1", "")
        where = f'<equality><joint joint1="{name}" joint2="{element.get("joint2", "")}">'
        if given.get("active", "true") != "true" or name in seen:
            continue
        if name not in joints or QPOS_SIZE[joints[name].kind] != 1:
            raise RobotFileError(f"{mjcf.path}: {where}: joint1 {name!r} is no hinge or slide of the model")
        seen.add(name)
        text = given.get("polycoef", "0 1 0 0 0")
        yield name, Follow(element.get("joint2", ""), numbers(f"{mjcf.path}: {where}: polycoef", text,
                                                              max(1, min(5, len(text.split())))), where)


def unfold(path: Path, element: ElementTree.Element, seen: list[Path]) -> None:
    """Replace each <include> below ``element`` by the children of the file's root, relative to the main file.

    ``seen``: the files that are read, the main one first. As for MuJoCo, each is included once.
    """
    for index in reversed(range(len(element))):
        child = element[index]
        if child.tag != "include":
            unfold(path, child, seen)
            continue
        other = seen[0].parent / child.get("file", "")
        if other in seen:
            raise RobotFileError(f"{path}: <include file={child.get('file')!r}>: the file includes itself, or is "
                                 "included twice")
        seen.append(other)
        try:
            content = parse(other)
        except FileNotFoundError as error:
            raise RobotFileError(f"{path}: <include file={child.get('file')!r}>: {error}") from error
        unfold(other, content, seen)
        element.remove(child)
        for offset, part in enumerate(content):
            element.insert(index + offset, part)


def default_classes(root: ElementTree.Element) -> dict[str, dict[str, dict[str, str]]]:
    """Attributes by class and element, inherited ones included."""
    classes: dict[str, dict[str, dict[str, str]]] = {"main": {}}

    def add(element: ElementTree.Element, name: str, inherited: Mapping[str, Mapping[str, str]]) -> None:
        mine = {kind: dict(values) for kind, values in {**inherited, **classes.get(name, {})}.items()}
        for child in element:
            kind = "actuator" if child.tag in ACTUATORS else child.tag  # all kinds of actuators share one set
            if kind in ("joint", "actuator", "equality", "tendon", "geom", "site"):
                mine[kind] = merged(mine.get(kind, {}), child.tag, child.attrib)
        classes[name] = mine
        for child in element.findall("default"):
            add(child, child.get("class", ""), mine)

    for element in root.findall("default"):
        add(element, "main", {})
    return classes


def merged(inherited: Mapping[str, str], tag: str, given: Mapping[str, str]) -> dict[str, str]:
    """Attributes ``given`` over those ``inherited``, as MuJoCo reads them.

    ``ctrlrange`` and ``inheritrange`` exclude each other: the nearer one counts. An actuator that is no servo resets
    ``inheritrange``.
    """
    out = dict(inherited)
    if tag in ACTUATORS:
        if tag not in SERVOS or "ctrlrange" in given:
            out.pop("inheritrange", None)
        elif tag != "intvelocity" and given.get("inheritrange", "0").strip() not in ("", "0"):
            out.pop("ctrlrange", None)
        if tag != "general":
            out[SHORTCUT] = tag
    return {**out, **given}


Found = tuple[ElementTree.Element, ElementTree.Element, str]  # body, joint, class of elements that name none


def joint_elements(mjcf: Mjcf, root: ElementTree.Element) -> Iterator[Found]:
    """The joints in the order of the compiled model, each with its body and the class that it inherits."""
    for world in root.findall("worldbody"):
        yield from walk(mjcf, world, world.get("childclass", "main"))


def walk(mjcf: Mjcf, body: ElementTree.Element, childclass: str) -> Iterator[Found]:
    """The joints of ``body``, then those of the bodies below it."""
    bodies: list[tuple[ElementTree.Element, str]] = []

    def visit(element: ElementTree.Element, inherited: str) -> Iterator[Found]:
        for child in element:
            inside = child.get("childclass", inherited)
            if child.tag in GENERATED:
                raise RobotFileError(f"{mjcf.path}: {label(child)}: only MuJoCo can unfold it: load the file there "
                                     "(mujoco.MjSpec.from_file), save it with to_xml(), and use the result")
            if child.tag in ("joint", "freejoint"):
                yield body, child, inherited
            elif child.tag == "frame":
                yield from visit(child, inside)
            elif child.tag == "body":
                bodies.append((child, inside))

    yield from visit(body, childclass)
    for child, inside in bodies:
        yield from walk(mjcf, child, inside)


def read_joint(mjcf: Mjcf, body: ElementTree.Element, element: ElementTree.Element, childclass: str) -> Joint:
    """One joint of ``body``; both may still lack a name."""
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
    return Joint(given.get("name", ""), kind, body.get("name", ""), low, high, rest=rest)


def read_actuators(mjcf: Mjcf, root: ElementTree.Element, joints: Mapping[str, Joint]) -> Iterator[Actuator]:
    """The actuators, in the order of the file."""
    elements = [child for part in root.findall("actuator") for child in part]
    taken = {element.get("name", "") for element in elements}
    tendons = {name: mjcf.limits(f"{mjcf.path}: {label(tendon)}", mjcf.attributes(tendon, "main", "tendon"), "", 1.0)
               for part in root.findall("tendon") for tendon in part if (name := tendon.get("name"))}
    for index, element in enumerate(elements):
        given = mjcf.attributes(element, "main", "actuator")
        target = next((given[key] for key in TARGETS if key in given), "")
        name = element.get("name") or (target if target and target not in taken else fresh("actuator", index, taken))
        taken.add(name)
        joint = joints.get(given.get("joint", ""))
        driven = (joint.low, joint.high) if joint is not None else tendons.get(given.get("tendon", ""), (-inf, inf))
        low, high = control_range(mjcf, element, given, driven)
        yield Actuator(name, element.tag, target, low, high)


def control_range(
    mjcf: Mjcf, element: ElementTree.Element, given: Mapping[str, str], driven: tuple[float, float]
) -> tuple[float, float]:
    """``ctrlrange``, or the range ``driven`` of a position servo's joint or tendon times ``inheritrange``."""
    where = f"{mjcf.path}: {label(element)}"
    servo = is_position_servo(where, element.tag, given)
    share = numbers(where, given.get("inheritrange", "0"), 1)[0] if servo else 0.0
    if not share:
        return mjcf.limits(where, given, "ctrl", 1.0)
    if "ctrlrange" in element.attrib and "inheritrange" in element.attrib:
        raise RobotFileError(f"{where}: give ctrlrange or inheritrange, not both")
    if not isfinite(driven[0]):
        raise RobotFileError(f"{where}: inheritrange needs a joint or tendon with a range, got joint "
                             f"{given.get('joint', given.get('tendon'))!r}")
    if given.get("ctrllimited") == "false":
        return -inf, inf
    middle, half = (driven[0] + driven[1]) / 2, (driven[1] - driven[0]) / 2
    return middle - share * half, middle + share * half


def is_position_servo(where: str, tag: str, given: Mapping[str, str]) -> bool:
    """Whether ``inheritrange`` sets this actuator's ``ctrlrange``: its gain equals minus its bias on the length."""
    if tag != "general" or given.get(SHORTCUT) == "position":
        return tag in ("position", "general")
    gain, bias = given.get("gainprm", "1").split() or [""], given.get("biasprm", "0 0").split()
    if given.get("biastype") != "affine" or len(bias) < 2:
        return False
    return numbers(f"{where}: gainprm", gain[0], 1)[0] == -numbers(f"{where}: biasprm", bias[1], 1)[0]


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
    """URDF: its moving joints in the order of the compiled model."""
    joints: list[Joint] = []
    tied: dict[str, Follow] = {}
    notes: dict[str, str] = {}
    for element in joints_from_root(path, root):
        where, kind = f"{path}: {label(element)}", element.get("type", "")
        if kind == "fixed":
            continue
        if kind not in URDF_KINDS:
            raise RobotFileError(f"{where}: type {kind!r} is not one of fixed, {', '.join(URDF_KINDS)}")
        if not element.get("name"):
            raise RobotFileError(f"{where}: a joint needs a name")
        if element.get("name") in {joint.name for joint in joints}:
            raise RobotFileError(f"{where}: another joint has this name")
        joints.append(urdf_joint(where, element, URDF_KINDS[kind]))
        if kind in ("revolute", "prismatic") and not isfinite(joints[-1].low):
            notes[f"{joints[-1].name} range"] = "none: its <limit> has no lower and upper that differ, and MuJoCo " \
                "takes that for no range"
        mimic = element.find("mimic")
        if mimic is not None:
            factors = tuple(numbers(f"{where}: <mimic>: {key}", mimic.get(key, default), 1)[0]
                            for key, default in (("offset", "0"), ("multiplier", "1")))
            tied[joints[-1].name] = Follow(mimic.get("joint", ""), factors, f"{label(element)}: <mimic>")
    return checked(Content(path, tuple(joints), followers=tied, notes=notes))


def joints_from_root(path: Path, root: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """The joints from the root link on, depth first, those of one link in the order of the file: as MuJoCo has them."""
    below: dict[str, list[ElementTree.Element]] = {}
    for joint in root.findall("joint"):
        below.setdefault(linked(joint, "parent"), []).append(joint)
    children = {linked(joint, "child") for joint in root.findall("joint")}
    waiting: list[ElementTree.Element] = []
    for link in [link for link in below if link not in children][::-1]:
        waiting += below.pop(link)[::-1]
    while waiting:
        joint = waiting.pop()
        yield joint
        waiting += below.pop(linked(joint, "child"), [])[::-1]
    for joints in below.values():
        raise RobotFileError(f"{path}: {label(joints[0])}: its links are above each other: no root link leads to it")


def linked(joint: ElementTree.Element, tag: str) -> str:
    """The link that a joint's <parent> or <child> names."""
    element = joint.find(tag)
    return "" if element is None else element.get("link", "")


def urdf_joint(where: str, element: ElementTree.Element, kind: str) -> Joint:
    """One moving joint."""
    limit = element.find("limit")
    given = {} if limit is None else {key: numbers(f"{where}: <limit>: {key}", text, 1)[0]
                                      for key, text in limit.attrib.items() if key in LIMIT}
    if wrong := next((key for key in ("effort", "velocity") if given.get(key, 0.0) < 0), None):
        raise RobotFileError(f"{where}: <limit {wrong}={given[wrong]:g}>: a number >= 0 is needed")
    low, high = -inf, inf
    if element.get("type") in ("revolute", "prismatic"):
        lower, upper = given.get("lower", -inf), given.get("upper", inf)
        if lower > upper:
            raise RobotFileError(f"{where}: <limit lower={lower:g} upper={upper:g}>: lower must be below upper")
        if lower < upper and isfinite(lower) and isfinite(upper):
            low, high = lower, upper
    return Joint(element.get("name", ""), kind, linked(element, "child"), low, high, given.get("effort", inf),
                 given.get("velocity", 0.0) or inf)
