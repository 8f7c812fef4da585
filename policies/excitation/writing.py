"""An excitation as an artifact: the policy, the formula that its flight keeps, and the plan in its manifest."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from temporeal.policies.excitation import quadrotor as quadrotors
from temporeal.policies.excitation.rehearsal import Rehearsal, check, rehearse
from temporeal.policies.export.writer import ArtifactSpec, export
from temporeal.robots.artifact.runtime import Artifact
from temporeal.sim.identification.excitation.quadrotor import QuadrotorPlan

BY = "temporeal excite"
WORLDS = 16
"""Robots that rehearse."""
STOPS = {"ctbr_cmd": "level", "motor_cmd": "silence", "joint_pos_cmd": "hold"}
"""What the guard does when it must stop the robot, by command."""


class Written(NamedTuple):
    """An excitation on disk, and how its rehearsal went."""

    artifact: Artifact
    rehearsal: Rehearsal


def write(plan: QuadrotorPlan, out: Path, *, worlds: int = WORLDS, seed: int = 0) -> Written:
    """Rehearse ``plan`` and write it to the folder ``out``."""
    policy, signals, start = quadrotors.ExcitedQuadrotor(plan), quadrotors.SIGNALS, quadrotors.start_of
    found = rehearse(plan, policy, signals, start, worlds=worlds, seed=seed)
    check(plan, found)
    spec = ArtifactSpec(
        robot=plan.robot, signals=signals, command=plan.command, rate_hz=plan.rate_hz,
        formula_text="\n& ".join(plan.clauses.values()), constants=plan.constants, horizon_s=plan.seconds,
        training={"by": BY, "excitation": stated(plan)}, seed=seed, stop=STOPS[plan.command],
        name=f"excite-{plan.robot.name}")
    return Written(export(policy, out, spec, found.golden), found)


def stated(plan: QuadrotorPlan) -> dict[str, Any]:
    """The plan as the manifest has it: settings, and when each part is."""
    return {"settings": asdict(plan.settings), "parts": [
        {"name": part.name, "from_s": part.first / plan.rate_hz, "to_s": part.last / plan.rate_hz}
        for part in plan.segments]}
