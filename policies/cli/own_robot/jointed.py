"""Entries of ``spec.yaml`` for robots with joints: arms, hands, legged robots and bases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf, isfinite
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from temporeal.policies.cli.own_robot.answers import Answers
from temporeal.policies.cli.own_robot.copying import copy_model, write_model
from temporeal.policies.cli.own_robot.dynamics import (
    Physics,
    assumed_efforts,
    finger_gains,
    physics_of,
    proposed_home,
    rotor_inertia,
    servo_gains,
)
from temporeal.policies.cli.own_robot.fingers import TURN, ends, gripper, tie_fingers
from temporeal.policies.cli.own_robot.inertias import mended
from temporeal.policies.cli.own_robot.link_shapes import entry, link_shapes
from temporeal.policies.cli.own_robot.sources import Source
from temporeal.policies.cli.own_robot.structure import Structure
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.model_files import Content, read_model
from temporeal.robots.spec import RobotSpec
from temporeal.robots.user_robots.description import describe

CONTROL_HZ = {"arm": 25.0, "hand": 20.0, "legged": 50.0, "mobile_base": 20.0}
HEAVIEST = 3.0  # kg: of several short chains heavier than that are legs, lighter ones fingers. Chosen
DELAY_STEPS = 40  # of physics, mostly 2.5 ms: room for delays of commands to be drawn. Chosen
RATE_HZ = 100.0  # of signals: controller_manager's default update rate
PREFIX = "tool"


def likely_kind(source: Source) -> str:
    """The kind that the structure suggests: a free body or several short chains are legs or fingers."""
    root = source.root
    if any(True for _ in root.iter("freejoint")) or any(
            joint.get("type") in ("free", "floating") for joint in root.iter("joint")):
        return "legged"
    chains = branches(root) if source.is_urdf else {}
    if len(chains) < 3 or not all(2 <= length <= 5 for length in chains.values()):
        return "arm"
    mass = sum(float(element.get("value", "0")) for element in root.iter("mass"))
    return "hand" if mass < HEAVIEST else "legged"


def branches(root: ElementTree.Element) -> dict[str, int]:
    """For each joint of a URDF that no other is above, the number of moving joints on the longest way from it."""
    above = {child.get("link", ""): joint for joint in root.findall("joint") for child in joint.findall("child")}
    found: dict[str, int] = {}
    for link in above:
        way: list[str] = []
        while (joint := above.get(link)) is not None and len(way) < len(above):
            if joint.get("type") != "fixed" and joint.find("mimic") is None:
                way.append(joint.get("name", ""))
            parent = joint.find("parent")
            link = "" if parent is None else parent.get("link", "")
        if way:
            found[way[-1]] = max(found.get(way[-1], 0), len(way))
    return found


def entries(
    kind: str, source: Source, folder: Path, answers: Answers
) -> tuple[dict[str, Any], list[str]]:
    """Copy the model to ``folder``; the entries, and what was changed."""
    packages = {str(name): Path(str(place)) for name, place in answers.given.get("packages", {}).items()}
    if kind in ("legged", "mobile_base") and source.is_urdf:
        set_free(source)
    model, notes = copy_model(source, folder, packages)
    content = replace(read_model(model), folder=folder)
    structure = Structure(content)
    if kind == "arm" and (tied := tie_fingers(source, structure, answers)):
        notes.append(tied)
        write_model(source, model)
        structure = Structure(replace(read_model(model), folder=folder))
    given: dict[str, Any] = {"model": model.name, "kind": kind}
    given |= parts(kind, structure, answers)
    given["control_hz"] = rate(answers, "control_hz", CONTROL_HZ[kind])
    given["rate_hz"] = rate(answers, "rate_hz", RATE_HZ)
    notes += loose(structure, given)
    if "license" in answers.given:
        given["license"] = str(answers.given["license"])
    drop_motors(source, content, given)
    write_model(source, model)
    notes += mended(source, model)
    write_model(source, model)
    content = replace(read_model(model), folder=folder)
    return with_physics(content, given, answers), notes


def rate(answers: Answers, name: str, usual: float) -> float:
    """The rate called ``name`` that was said, Hz; else the ``usual`` one."""
    value = answers.given.get(name, usual)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < inf:
        raise BadInput(f"{name}: a number of Hz above 0 is needed, got {value!r}")
    return float(value)


def loose(structure: Structure, given: Mapping[str, Any]) -> list[str]:
    """A note on the joints that nothing drives."""
    driven = {*given["joints"], *given.get("gripper", {}).get("joints", [])}
    left = [name for name in structure.leaders if name not in driven]
    note = f"not driven, so that they hang loose: {' '.join(left)} (else --driven, or fix them in the model)"
    return [note] if left else []


def set_free(source: Source) -> None:
    """A free joint for a URDF's root link, which MuJoCo would fix to the world."""
    root = source.root
    if any(joint.get("type") == "floating" for joint in root.findall("joint")):
        return
    children = {child.get("link") for joint in root.findall("joint") for child in joint.findall("child")}
    top = next((link.get("name", "") for link in root.findall("link") if link.get("name") not in children), "")
    names = {link.get("name") for link in root.findall("link")}
    world = "world" if "world" not in names else "world_frame"
    root.insert(0, ElementTree.Element("link", name=world))
    joint = ElementTree.SubElement(root, "joint", name="floating_base", type="floating")
    ElementTree.SubElement(joint, "parent", link=world)
    ElementTree.SubElement(joint, "child", link=top)


# ---------------------------------------------------------------- tool, joints, gripper, commands


def parts(kind: str, structure: Structure, answers: Answers) -> dict[str, Any]:
    """Joints, poses, tool, gripper and commands."""
    out: dict[str, Any] = {}
    places = list(structure.ways)
    tool = ""
    if kind == "arm":
        tool = answers.get("tool", "Which link, body or site is the tool", structure.tool(), places)
        proposal = [joint for joint in structure.ways[tool] if joint not in structure.content.followers]
    else:
        proposal = structure.leaders
    driven = answers.get("driven", "Which joints are driven (in this order)", proposal, structure.leaders)
    if not driven:
        raise BadInput("driven: no joint is driven: name one at least")
    out["joints"] = driven
    if tool:
        out |= {"poses": {PREFIX: tool}, "tool": PREFIX}
    elif kind == "hand":
        out["poses"] = {identifier(tip): tip for tip in structure.tips()}
    grip = gripper(structure, driven, answers) if kind == "arm" else None
    out["commands"] = {"joint_pos_cmd": {**driving(structure.content, driven), "delay_steps": DELAY_STEPS}}
    if kind == "arm":
        out["commands"] |= {f"joint_{short}_cmd": {"joints": driven, "drives": drives}
                            for short, drives in (("vel", "velocity"), ("effort", "effort"))}
    if grip is not None:
        out["gripper"] = grip
        out["commands"][grip["command"]] = {**driving(structure.content, [*driven, *grip["joints"][:1]]),
                                            "delay_steps": DELAY_STEPS}
    return out


def identifier(name: str) -> str:
    """``name`` as the first part of a signal's name."""
    plain = "".join(c if c.isalnum() else "_" for c in name).strip("_")
    return plain if plain.isidentifier() else f"tip_{plain}"


def driving(content: Content, joints: list[str]) -> dict[str, Any]:
    """A command of positions: by the model's own position servos where each joint has one, else by added ones."""
    servos = {actuator.target: actuator.name for actuator in content.actuators if actuator.tag == "position"}
    if all(joint in servos for joint in joints):
        entry: dict[str, Any] = {"actuators": [servos[joint] for joint in joints]}
        limited = {actuator.name: isfinite(actuator.low) for actuator in content.actuators}
        if all(limited[name] for name in entry["actuators"]):
            return entry
    else:
        entry = {"joints": joints}
    named = {joint.name: joint for joint in content.joints}
    low, high = zip(*(ends(named[joint]) for joint in joints))
    if entry.get("joints") and all(isfinite(named[joint].low) for joint in joints):
        return entry
    return {**entry, "low": list(low), "high": list(high)}


def drop_motors(source: Source, content: Content, given: Mapping[str, Any]) -> None:
    """Take an MJCF's other actuators of driven joints out: position servos take their place."""
    driven = {joint for entry in given["commands"].values() if "drives" not in entry
              for joint in entry.get("joints", [])}
    names = {actuator.name for actuator in content.actuators if actuator.target in driven}
    if not names:
        return
    root = source.root
    for part in root.findall("actuator"):
        for element in list(part):
            if element.get("joint") in driven:
                part.remove(element)
    for part in root.findall("sensor"):
        for element in list(part):
            if element.get("actuator") in names:
                part.remove(element)
    for part in root.findall("keyframe"):
        for key in part:
            key.attrib.pop("ctrl", None)
            key.attrib.pop("act", None)


# ---------------------------------------------------------------- what the physics says


def with_physics(content: Content, given: dict[str, Any], answers: Answers) -> dict[str, Any]:
    """The entries with efforts, motors' inertia, home, servos and excluded pairs."""
    moved = list(dict.fromkeys([*given["joints"], *given.get("gripper", {}).get("joints", [])[:1]]))
    given["limits"] = dict(answers.given.get("limits", {}))
    if "home" in answers.given:
        given["home"] = said_home(answers.given["home"], given["joints"])
    given["exclude"] = list(answers.given.get("exclude", [])) + root_neighbours(content)
    assumed: dict[str, str] = {}
    physics = compiled_with(content, given, moved, {})
    efforts = stated_efforts(content, given, moved, physics, assumed)
    motors(content, given, moved, physics, efforts)
    physics = compiled_with(content, given, moved, efforts)
    if "home" not in given and not content.home:
        given["home"] = home(physics, given, answers)
    if "gripper" in given:
        given.setdefault("home", {}).setdefault(moved[-1], given["gripper"]["open"])
    physics = compiled_with(content, given, moved, efforts)
    inertia = physics.inertia()
    kp, kd = servo_gains(inertia, physics.gravity())
    if "gripper" in given:
        stroke = abs(given["gripper"]["open"] - given["gripper"]["closed"])
        kp[-1], kd[-1] = finger_gains(float(inertia[-1]), efforts[moved[-1]], max(stroke, 1e-3))
    set_servos(given, moved, kp, kd, efforts)
    if "exclude" not in answers.given:
        given["exclude"] += [pair for pair in map(list, physics.touching()) if pair not in given["exclude"]]
    if given["kind"] != "hand":  # fingers may touch
        found = link_shapes(compiled_with(content, given, moved, efforts), content.path)
        given["capsules"] = entry(found) if found is not None else {}
    return finished(content, given, assumed, moved, efforts)


def root_neighbours(content: Content) -> list[list[str]]:
    """A URDF's root link and the links that move on it: MuJoCo makes the root part of the world, whose children are no
    neighbours to it."""
    from temporeal.policies.cli.own_robot.structure import parents_of

    parents = parents_of(content.path)
    if content.path.suffix != ".urdf":
        return []
    bodies = [joint.body for joint in content.joints if joint.kind in ("hinge", "slide")]
    return [[parents[body], body] for body in bodies if parents.get(body) and parents[body] not in parents]


def said_home(said: Any, joints: list[str]) -> dict[str, float]:
    """The home that was said: by joint, or a list in the order of the driven joints."""
    if isinstance(said, Mapping):
        return {str(name): value for name, value in said.items()}
    if not isinstance(said, list) or len(said) != len(joints):
        raise BadInput(f"home: {len(joints)} numbers ({', '.join(joints)}) or a mapping are needed, got {said!r}")
    return dict(zip(joints, said))


def compiled_with(
    content: Content, given: Mapping[str, Any], moved: list[str], efforts: Mapping[str, float]
) -> Physics:
    """The robot as the entries have it so far, with provisional servos."""
    trial = {**given, "commands": {name: servo(entry, dict.fromkeys(moved, 1.0), dict.fromkeys(moved, 0.0), {
        joint: efforts.get(joint, 1.0) for joint in moved}) for name, entry in given["commands"].items()}}
    return physics_of(spec_of(content, trial), moved)


def spec_of(content: Content, given: Mapping[str, Any]) -> RobotSpec:
    """The robot of these entries, without the commands that need all limits."""
    commands = {name: entry for name, entry in given["commands"].items() if "drives" not in entry}
    return describe(str(content.path), content, {**given, "commands": commands})


def servo(
    entry: Mapping[str, Any], kp: Mapping[str, float], kd: Mapping[str, float], strength: Mapping[str, float]
) -> dict[str, Any]:
    """A command's entry with the gains of its joints."""
    if "joints" not in entry or "drives" in entry:
        return dict(entry)
    rows = {"kp": kp, "kd": kd, "strength": strength}
    return {**entry, **{key: [float(values[joint]) for joint in entry["joints"]] for key, values in rows.items()}}


def stated_efforts(
    content: Content, given: dict[str, Any], moved: list[str], physics: Physics, assumed: dict[str, str]
) -> dict[str, float]:
    """The effort of each moved joint: said, the model's, or assumed."""
    named = {joint.name: joint for joint in content.joints}
    said = given["limits"].get("effort", {})
    said = dict(said) if isinstance(said, Mapping) else dict.fromkeys(moved, said)
    efforts = {name: float(said.get(name, named[name].effort)) for name in moved}
    lacking = [name for name in moved if not 0 < efforts[name] < inf]
    if lacking:
        motion = physics.robot.motion
        acceleration = np.ones(len(moved)) if motion is None else np.resize(motion.acceleration, len(moved))
        values = dict(zip(moved, assumed_efforts(physics, acceleration)))
        efforts |= {name: max(float(values[name]), 0.01) for name in lacking}
        assumed["effort"] = (f"{', '.join(lacking)}: twice the largest gravity torque of drawn poses, and the "
                             "acceleration: the model gives none")
    return efforts


def motors(
    content: Content, given: dict[str, Any], moved: list[str], physics: Physics, efforts: Mapping[str, float]
) -> None:
    """The motors' inertia, where the model gives none."""
    motion = physics.robot.motion
    if "armature" in given or motion is None or "joints" not in given["commands"]["joint_pos_cmd"]:
        return
    joints = list(given["joints"])
    own = {name: float(physics.model.dof_armature[physics.model.joint(name).dofadr[0]]) for name in moved}
    acceleration = {**dict.fromkeys(moved, min(motion.acceleration)), **dict(zip(joints, motion.acceleration))}
    values = rotor_inertia(*(np.array([each[name] for name in moved]) for each in (efforts, acceleration)))
    lacking = {name: float(value) for name, value in zip(moved, values) if not own[name]}
    if lacking:
        given["armature"] = lacking


def home(physics: Physics, given: Mapping[str, Any], answers: Answers) -> dict[str, float]:
    """A home for a robot whose model and user give none."""
    found = None
    if given["kind"] == "arm":
        pose = proposed_home(physics)
        if pose is not None:
            found = {name: round(float(q), 4) + 0.0 for name, q in zip(physics.names, pose) if name in given["joints"]}
    if found is None:
        found = dict(zip(given["joints"], map(float, physics.robot.home["joint_pos"])))
    said = answers.get("home", f"Home of {' '.join(given['joints'])}, rad or m", [f"{q:g}" for q in found.values()])
    try:
        return said_home([float(word) for word in said], given["joints"])
    except ValueError as error:
        raise BadInput(f"home: {error}") from error


def set_servos(
    given: dict[str, Any], moved: list[str], kp: np.ndarray, kd: np.ndarray, efforts: Mapping[str, float]
) -> None:
    """The gains of the added servos."""
    gains, damping = dict(zip(moved, kp)), dict(zip(moved, kd))
    given["commands"] = {name: servo(entry, gains, damping, efforts) for name, entry in given["commands"].items()}


def finished(
    content: Content, given: dict[str, Any], assumed: dict[str, str], moved: list[str], efforts: Mapping[str, float]
) -> dict[str, Any]:
    """The entries in the order of the file, all limits written out, and which of them are assumed."""
    joints, motion = given["joints"], spec_of(content, given).motion
    defaults = dict(spec_of(content, given).defaults)
    assert motion is not None
    given["limits"] = {
        "velocity": dict(zip(joints, motion.speed)), "acceleration": dict(zip(joints, motion.acceleration)),
        "jerk": dict(zip(joints, motion.jerk)), "effort": {name: efforts[name] for name in joints}}
    given["defaults"] = {**{k: v for k, v in defaults.items() if k not in content.notes}, **assumed}
    if "armature" in given:
        given["defaults"]["armature"] = "effort / (20 x acceleration): the model gives no inertia of its motors"
    if any("kp" in entry for entry in given["commands"].values()):
        given["defaults"]["gains"] = "critically damped at home, gravity moves a joint by 0.01 rad at most"
    if any("low" in entry for entry in given["commands"].values()):
        given["defaults"]["range"] = f"joints without a range: commands of -{TURN:g} to {TURN:g} rad"
    order = ("model", "kind", "license", "joints", "poses", "tool", "gripper", "base", "commands", "armature", "limits",
             "home", "control_hz", "rate_hz", "exclude", "capsules", "defaults")
    return {key: given[key] for key in order if given.get(key) not in (None, {}, [])}
