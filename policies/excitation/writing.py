"""An excitation as an artifact: the policy, the formula that its flight keeps, and the plan in its manifest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from temporeal.policies.excitation import geofence, joints, quadrotor
from temporeal.policies.excitation.rehearsal import Rehearsal, Start, check, rehearse
from temporeal.policies.export.writer import ArtifactSpec, export
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.spec import RobotSpec
from temporeal.sim.identification.excitation.joints import JointPlan, JointSettings
from temporeal.sim.identification.excitation.joints import plan as plan_joints
from temporeal.sim.identification.excitation.quadrotor import QuadrotorPlan, QuadrotorSettings
from temporeal.sim.identification.excitation.quadrotor import plan as plan_quadrotor
from temporeal.sim.identification.excitation.waves import CannotExcite

BY = "temporeal excite"
WORLDS = 16
"""Robots that rehearse."""
STOPS = {"ctbr_cmd": "level", "motor_cmd": "silence", "joint_pos_cmd": "hold"}
"""What the guard does when it must stop the robot, by command."""


class Written(NamedTuple):
    """An excitation on disk, and how its rehearsal went."""

    artifact: Artifact
    rehearsal: Rehearsal


Plan = QuadrotorPlan | JointPlan


def kind_of(robot: RobotSpec) -> tuple[type[Any], Callable[[RobotSpec, Any], Plan]]:
    """The settings of an excitation of ``robot``, and what makes its plan of them."""
    if robot.kind == "quadrotor":
        return QuadrotorSettings, plan_quadrotor
    if robot.kind in ("arm", "hand"):
        return JointSettings, plan_joints
    raise CannotExcite(f"robot {robot.name!r} is a {robot.kind}: quadrotors, arms and hands are excited so far")


def write(plan: Plan, out: Path, *, worlds: int = WORLDS, seed: int = 0) -> Written:
    """Rehearse ``plan`` and write it to the folder ``out``."""
    policy: Any
    signals: tuple[str, ...]
    start: Start
    if isinstance(plan, QuadrotorPlan):
        policy, signals, start = quadrotor.ExcitedQuadrotor(plan), quadrotor.SIGNALS, quadrotor.start_of
    else:
        policy, signals, start = joints.ExcitedJoints(plan), joints.SIGNALS, joints.start_of
    geofence.check(plan)
    found = rehearse(plan, policy, signals, start, worlds=worlds, seed=seed)
    check(plan, found)
    geofence.check_flown(plan.robot, found.true)
    spec = ArtifactSpec(
        robot=plan.robot, signals=signals, command=plan.command, rate_hz=plan.rate_hz,
        formula_text="\n& ".join(plan.clauses.values()), constants=plan.constants, horizon_s=plan.seconds,
        training={"by": BY, "excitation": stated(plan)}, seed=seed, stop=STOPS[plan.command],
        name=f"excite-{plan.robot.name}")
    return Written(export(policy, out, spec, found.golden), found)


def stated(plan: Plan) -> dict[str, Any]:
    """The plan as the manifest has it: settings, and when each part is."""
    return {"settings": asdict(plan.settings), "parts": [
        {"name": part.name, "from_s": part.first / plan.rate_hz, "to_s": part.last / plan.rate_hz}
        for part in plan.segments]}
