"""The tabletop suite before arms of others: what its experts by hand do there.

A UR5e as its file has it, whose tool is its flange: kinds that need no fingers. A UR5e with a parallel gripper of boxes
(:data:`GRIPPER`): all kinds. An SO-101, whose jaw turns and whose five joints choose no attitude: kinds that take
nothing between fingers. Robots are built by ``temporeal robot new`` from the files of
:data:`temporeal_benchmarks.own_robot.models.PEER`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from temporeal.sim.stl.instructions.grammar import KINDS
from temporeal_benchmarks.own_robot.models import PEER
from temporeal_benchmarks.own_robot.robots import ROBOTS, Foreign, build, commands
from temporeal_benchmarks.peers.install import install_missing
from temporeal_benchmarks.rows import Row
from temporeal_benchmarks.vla.suite import of_kind

EPISODES = (16, 64)
OPEN, FORCE, SPEED = 0.025, 60.0, 0.15  # m, N and m/s of a finger: the stroke, and less than the force and speed, of
# Robotiq's Hand-E (50 mm, 20 to 185 N, 20 to 150 mm/s of both fingers together: its data sheet)
FINGER = """<body name="{side}_finger" pos="0 0 0.1">
  <inertial pos="0 {sign}0.008 0.025" mass="0.05" diaginertia="0.00002 0.00002 0.00001"/>
  <joint name="{joint}" type="slide" axis="0 {sign}1 0" range="0 {open}" damping="1"/>
  <geom name="{side}_finger" type="box" size="0.011 0.004 0.028" pos="0 {sign}0.004 0.028" rgba="0.5 0.5 0.52 1"
    friction="1 0.005 0.0001" condim="4" solref="0.01 1"/></body>"""
GRIPPER = f"""<body name="hand"><inertial pos="0 0 0.05" mass="0.9" diaginertia="0.001 0.001 0.0006"/>
  <geom name="hand" type="cylinder" size="0.0375 0.05" pos="0 0 0.05" rgba="0.2 0.2 0.22 1"/>
  <site name="grip" pos="0 0 0.145"/>
  {FINGER.format(side="left", sign="", joint="finger", open=OPEN)}
  {FINGER.format(side="right", sign="-", joint="finger_mirrored", open=OPEN)}</body>"""
FOLLOWS = '<equality><joint joint1="finger_mirrored" joint2="finger" solref="0.005 1"/></equality></mujoco>'
INSERTED = {"<!-- To add gripper -->": GRIPPER, "</mujoco>": FOLLOWS}  # robosuite's words, at its UR5e's flange


@dataclass(frozen=True)
class Before:
    """An arm and the kinds that are measured before it."""

    robot: Foreign
    kinds: Sequence[str]


def with_hand(bare: Foreign) -> Foreign:
    """A UR5e with the gripper: its answers, and those of the gripper."""
    limits: Mapping[str, Mapping[str, float]] = bare.answers["limits"]
    speeds = {**dict.fromkeys(limits["effort"], 3.14), "finger": SPEED}
    return replace(bare, name="ur5e_gripper", inserted=INSERTED, answers={
        **bare.answers, "tool": "grip", "limits": {"velocity": speeds, "effort": {**limits["effort"], "finger": FORCE}},
        "gripper": {"joints": ["finger", "finger_mirrored"], "open": OPEN, "closed": 0.0}})


ARMS = (Before(ROBOTS["ur5e"], ("reach", "push", "press")),
        Before(with_hand(ROBOTS["ur5e"]), KINDS),
        Before(ROBOTS["so101"], ("reach", "push", "press", "open")))


def rows(quick: bool, out: Path) -> list[Row]:
    """Shares of fresh episodes that satisfy their instruction's formula."""
    install_missing((PEER,))
    return [row for arm in ARMS for row in before(arm, EPISODES[not quick], out)]


def before(arm: Before, episodes: int, out: Path) -> list[Row]:
    """All kinds before one arm."""
    name, robots = arm.robot.name, out / "robots"
    if not (robots / name / "spec.yaml").is_file():
        build(arm.robot, robots, out, commands(robots))
    return [of_kind(f"tabletop.{name}.{kind}", kind, "expert", episodes, out / f"{name}-{kind}",
                    f"robot={(robots / name).absolute()}") for kind in arm.kinds]
