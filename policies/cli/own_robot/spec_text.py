"""The texts of a robot's folder: ``spec.yaml`` with the origin of its numbers, and ``README.md``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from temporeal.robots.ros_interface.text import comment, flow, rounded

SAID = {
    "model": "", "kind": "arm, hand, quadrotor, mobile_base or legged",
    "joints": "what joint_pos and joint_vel hold, in this order",
    "commands": "what the robot takes; kp, kd: position servos that a simulator adds (N m/rad, N m s/rad; N/m, N s/m)",
    "armature": "kg m^2 or kg: inertia of the motors", "poses": "signals <name>_pos_w, <name>_quat_w, <name>_vel_w",
    "tool": "which of the poses is the tool's",
    "gripper": "the last component of its command opens it; bodies: what touches an object that is held",
    "base": "the body of the signals base_*",
    "home": "rad or m",
    "limits": "of motion, by joint: rad/s, rad/s^2, rad/s^3, N m (m and N for joints that slide)",
    "defaults": "numbers that no source gives: look them up or measure them, and take the line out",
    "control_hz": "how often a policy sets a command", "rate_hz": "of the robot's signals",
    "capsules": "what the guard keeps apart: around each link's shapes, [x, y, z, x, y, z, radius] in its frame, m; "
                "loose: pairs it does not watch, because their capsules meet where they do not",
    "exclude": "pairs that touch at home, or are neighbours: no contacts between them",
    "mobile_base": "speeds of commands: forward, backward, left, m/s; turn, rad/s",
    "quadrotor": "kg, kg m^2, m, N, s: see docs/reference/robots/own.md", "license": "of the files in this folder"}
"""What stands above each entry."""


ASSUMED = "  # assumed: see defaults"


def spec_text(entries: Mapping[str, Any], head: Sequence[str]) -> str:
    """``entries`` as ``spec.yaml``: one line for each short value, and a comment above each entry."""
    lines = [line for sentence in head for line in comment(sentence)]
    for name, value in entries.items():
        if SAID[name]:
            lines += ["", *comment(SAID[name])]
        lines += entry_lines(name, value, entries.get("defaults", {}))
    return "\n".join([*lines, ""])


def entry_lines(name: str, value: Any, assumed: Collection[str]) -> list[str]:
    """One entry; mappings of mappings or of texts take a line for each. What is ``assumed`` says so."""
    value = plain(value, 8 if name in ("home", "gripper") else 5)  # ends of ranges must not be rounded out of them
    if isinstance(value, dict) and any(isinstance(each, (dict, str)) for each in value.values()):
        return [f"{name}:", *(f"  {flow(key)}: {flow(each)}{ASSUMED if key in assumed and name != 'defaults' else ''}"
                              for key, each in value.items())]
    return [f"{name}: {flow(value)}{ASSUMED if name in assumed else ''}"]


def plain(value: Any, digits: int) -> Any:
    """``value`` with numbers of so many digits."""
    if isinstance(value, Mapping):
        return {str(key): plain(each, digits) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each, digits) for each in value]
    return rounded(float(value), digits) if isinstance(value, float) else value


def readme(name: str, kind: str, task: str, notes: Sequence[str]) -> str:
    """The folder's README."""
    lines = [
        f"# {name}", "",
        "A robot for [Temporeal](https://github.com/temporeal/temporeal): data, no code.", "",
        "| file | holds |", "|---|---|",
        "| `spec.yaml` | what the robot is: joints, commands, limits, home; which numbers were assumed |",
        "| `model.*`, `files/` | the model, and its meshes |",
        "| `ros.yaml` | how to speak to it over ROS 2, and what the guard demands of every command |", "",
        "Next, in the folder above this one (or anywhere, with this folder's parent in `TEMPOREAL_PATH`):", "",
        "```bash", *commands(name, task), "```"]
    if notes:
        lines += ["", f"What `temporeal robot new` assumed or changed ({kind}):", "", *(f"- {note}" for note in notes)]
    return "\n".join([*lines, ""])


def commands(name: str, task: str) -> list[str]:
    """The next commands."""
    run, look = f"outputs/{name}", [f"temporeal robot check {name}", f"temporeal robot view {name}"]
    if not task:
        return [*look, "temporeal train task=FILE.py    # a task of your own: docs/how-to/adding-a-task.md"]
    return [*look, f"temporeal train {task} robot={name} out={run}", f"temporeal eval {run}",
            f"temporeal export {run} --out {run}-artifact",
            f"temporeal deploy {run}-artifact --sim", f"temporeal doctor --artifact {run}-artifact"]
