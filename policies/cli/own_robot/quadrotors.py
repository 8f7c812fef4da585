"""Entries of ``spec.yaml`` and the model of a quadrotor, from a few numbers."""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from temporeal.policies.cli.own_robot.answers import Answers
from temporeal.policies.cli.own_robot.sources import Source
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.model_files import numbers
from temporeal.robots.user_robots.quadrotors import RATE_HZ, SIZES

CONTROL_HZ = 50.0
MORE = ("arm_length", "max_thrust")
"""Answers in other words: the distance from the middle to a rotor (m), rotors on the diagonals; the thrust of one rotor
at full speed (N), which grows with the square of its speed."""

LEVER, LAG = 0.016, 0.05  # m: reaction torque over thrust; s: lag of the motors. Assumed, as for 10-inch rotors


def entries(source: Source | None, folder: Path, answers: Answers) -> tuple[dict[str, Any], list[str]]:
    """Write the model to ``folder``; the entries, and what was assumed. A model file gives mass and inertia."""
    values = dict(answers.given.get("quadrotor", {}))
    defaults: dict[str, str] = {}
    notes: list[str] = []
    if unknown := [key for key in values if key not in (*SIZES, *MORE)]:
        raise BadInput(f"quadrotor: no entry {unknown[0]!r}; legal: {', '.join((*SIZES, *MORE))}")
    if source is not None:
        values = {**body_of(source), **values}
        notes.append(f"mass and inertia are those of the first body in {source.path.name}; the model is drawn anew")
    for key, question in (("mass", "Mass, kg"), ("arm", "x and y of a rotor from the middle, m"),
                          ("thrust_curve", "Thrust of one rotor at full speed, N")):
        other = dict(zip(("arm", "thrust_curve"), MORE)).get(key)
        if key not in values and other not in values:
            values[other or key] = asked_number(answers, other or key, question)
    if "arm_length" in values:
        side = number("arm_length", values.pop("arm_length")) / sqrt(2)
        values["arm"] = [side, side]
    if "max_thrust" in values:
        values["thrust_curve"] = [0.0, 0.0, number("max_thrust", values.pop("max_thrust"))]
    assume(values, defaults)
    (folder / "model.xml").write_text(model_text(answers_name(folder), values), encoding="utf-8")
    given = {"model": "model.xml", "kind": "quadrotor",
             "quadrotor": {key: values[key] for key in SIZES if key in values},
             "control_hz": float(answers.given.get("control_hz", CONTROL_HZ)),
             "rate_hz": float(answers.given.get("rate_hz", RATE_HZ))}
    if "license" in answers.given:
        given["license"] = str(answers.given["license"])
    return {**given, **({"defaults": defaults} if defaults else {})}, notes


def asked_number(answers: Answers, key: str, question: str) -> float:
    """A number that nobody said yet."""
    if answers.ask is None:
        raise BadInput(f"{question}? Say it in a file of answers: quadrotor: {{{key}: ...}}")
    return number(key, answers.ask(question, ""))


def number(key: str, value: Any) -> float:
    """``value`` as a positive number."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = -1.0
    if not 0 < found < 1e6:
        raise BadInput(f"quadrotor: {key} is a positive number, got {value!r}")
    return found


def assume(values: dict[str, Any], defaults: dict[str, str]) -> None:
    """Fill in what is left out, and say why so."""
    mass = number("mass", values["mass"])
    if "inertia" not in values:
        try:
            across = sum(map(float, values["arm"])) / 2
        except (TypeError, ValueError) as error:
            raise BadInput(f"quadrotor: arm is two numbers, got {values['arm']!r}") from error
        flat = mass * across**2 / 2  # half of it in the motors, at the rotors: m/2 y^2 about x
        values["inertia"] = [flat, flat, 2 * flat]
        defaults["inertia"] = "half of the mass at the rotors: measure it, or take it from the drawing"
    if "torque_per_thrust" not in values:
        values["torque_per_thrust"] = LEVER
        defaults["torque_per_thrust"] = f"{LEVER:g} m, as of 10-inch rotors"
    if "motor_time" not in values:
        values["motor_time"] = LAG
        defaults["motor_time"] = f"{LAG:g} s, as of brushless motors with 10-inch rotors"


def body_of(source: Source) -> dict[str, Any]:
    """Mass and principal inertia of the first body with an inertial element, if they are given."""
    where = f"{source.path}: <inertial>"
    for part in source.root.iter("inertial"):
        if source.is_urdf and part.find("mass") is not None and part.find("inertia") is not None:
            mass, inertia = part.find("mass"), part.find("inertia")
            assert mass is not None and inertia is not None
            return {"mass": numbers(where, mass.get("value", ""), 1)[0],
                    "inertia": [numbers(where, inertia.get(key, ""), 1)[0] for key in ("ixx", "iyy", "izz")]}
        if not source.is_urdf and part.get("mass") and part.get("diaginertia"):
            return {"mass": numbers(where, part.get("mass", ""), 1)[0],
                    "inertia": list(numbers(where, part.get("diaginertia", ""), 3))}
    return {}


def answers_name(folder: Path) -> str:
    """The robot's name; a folder that is being written is called ``.<name>.<random>``."""
    return folder.name.split(".")[1] if folder.name.startswith(".") else folder.name


SIGNS = ((1, -1, -1), (-1, -1, 1), (-1, 1, -1), (1, 1, 1))  # of x, y and the torque about z: as of the Crazyflie


def model_text(name: str, values: dict[str, Any]) -> str:
    """An MJCF of plain shapes: arms, rotors, a hull that touches; its mass is in the inertial element."""
    x, y = map(float, values["arm"])
    curve = [float(c) for c in values["thrust_curve"]]
    most, lever = sum(curve), float(values["torque_per_thrust"])
    root = ElementTree.Element("mujoco", model=name)
    ElementTree.SubElement(root, "compiler", angle="radian")
    ElementTree.SubElement(root, "option", timestep="0.002", integrator="RK4")
    world = ElementTree.SubElement(root, "worldbody")
    ElementTree.SubElement(world, "geom", name="floor", type="plane", size="0 0 0.05", rgba="0.8 0.82 0.85 1")
    ElementTree.SubElement(world, "light", pos="0 0 4", dir="-0.3 0.2 -1", directional="true")
    body = ElementTree.SubElement(world, "body", name="base", pos="0 0 1")
    ElementTree.SubElement(body, "freejoint", name="root")
    ElementTree.SubElement(body, "inertial", pos="0 0 0", mass=f"{float(values['mass']):g}",
                           diaginertia=" ".join(f"{float(i):g}" for i in values["inertia"]))
    thick, radius = 0.06 * (x + y), 0.8 * min(x, y)
    look: dict[str, Any] = {"contype": "0", "conaffinity": "0", "group": "2", "mass": "0"}
    ElementTree.SubElement(body, "geom", name="hull", type="box", group="3", mass="0", rgba="0.2 0.8 0.2 0.2",
                           size=f"{x + radius:.4g} {y + radius:.4g} {thick:.4g}")
    for index, (sx, sy, turn) in enumerate(SIGNS, 1):
        at = f"{sx * x:.6g} {sy * y:.6g} 0"
        color = "0.85 0.25 0.2 0.5" if turn < 0 else "0.2 0.35 0.8 0.5"
        ElementTree.SubElement(body, "geom", type="capsule", size=f"{0.3 * thick:.4g}", fromto=f"0 0 0 {at}",
                               rgba="0.15 0.16 0.18 1", **look)
        ElementTree.SubElement(body, "geom", type="cylinder", size=f"{radius:.4g} {0.05 * thick:.4g}",
                               pos=f"{sx * x:.6g} {sy * y:.6g} {0.5 * thick:.4g}", rgba=color, **look)
        ElementTree.SubElement(body, "site", name=f"rotor{index}", pos=at, size=f"{0.2 * thick:.4g}", group="4")
    drives = ElementTree.SubElement(root, "actuator")
    for index, (_, _, turn) in enumerate(SIGNS, 1):
        ElementTree.SubElement(drives, "motor", name=f"rotor{index}", site=f"rotor{index}",
                               gear=f"0 0 1 0 0 {turn * lever:g}", ctrlrange=f"0 {most:g}")
    keys = ElementTree.SubElement(root, "keyframe")
    ElementTree.SubElement(keys, "key", name="home", qpos="0 0 1 1 0 0 0")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"
