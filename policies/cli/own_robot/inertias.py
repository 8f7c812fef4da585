"""Masses and inertias of a URDF that MuJoCo refuses, raised to ones that it takes."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import mujoco
import numpy as np

from temporeal.policies.cli.own_robot.copying import child, write_model
from temporeal.policies.cli.own_robot.sources import Source

LEAST = 1e-7  # kg m^2: principal moments that are not positive are raised to it
BOUNDS = {"boundmass": "1e-4", "boundinertia": "1e-7"}  # kg, kg m^2: of links without mass, by MuJoCo's compiler
KEYS = ("ixx", "iyy", "izz", "ixy", "ixz", "iyz")
PLACES = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))


def mended(source: Source, target: Path) -> list[str]:
    """What was changed of the URDF in ``target`` so that MuJoCo takes its masses; nothing if it does already."""
    if not source.is_urdf or not why_refused(target):
        return []
    notes = []
    if raised := sum(raise_moments(element) for element in source.root.iter("inertia")):
        write_model(source, target)
        notes.append(f"{raised} inertias were none of a solid: their principal moments were raised; correct them")
    if why := why_refused(target):
        for key, value in BOUNDS.items():
            child(child(source.root, "mujoco"), "compiler").set(key, value)
        write_model(source, target)
        notes.append(f"links without mass ({why}): they get {BOUNDS['boundmass']} kg; correct them")
    return notes


def why_refused(path: Path) -> str:
    """What MuJoCo says against the masses in ``path``, "" if it takes them."""
    try:
        mujoco.MjSpec.from_file(str(path)).compile()
    except ValueError as error:
        said = str(error).splitlines()[0].removeprefix("Error: ")
        return said if any(word in said for word in ("inertia", "mass")) else ""
    return ""


def raise_moments(element: ElementTree.Element) -> bool:
    """Raise an <inertia>'s principal moments so that they are positive and none exceeds the others' sum; whether that
    was needed."""
    values = [float(element.get(key, "0")) for key in KEYS]
    tensor = np.zeros((3, 3))
    for value, (row, column) in zip(values, PLACES):
        tensor[row, column] = tensor[column, row] = value
    moments, axes = np.linalg.eigh(tensor)
    least, middle, most = np.maximum(moments, LEAST)
    lacking = max(0.0, 1.001 * most - least - middle) / 2
    if moments[0] > 0 and moments[2] <= moments[0] + moments[1]:
        return False
    whole = axes @ np.diag([least + lacking, middle + lacking, most]) @ axes.T
    for key, (row, column) in zip(KEYS, PLACES):
        element.set(key, f"{whole[row, column]:.9g}")
    return True
