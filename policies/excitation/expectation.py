"""What an excitation will tell of a robot: the simulator's measurements, and how they answer to its parameters.

A quadrotor's flight is rehearsed once, and what identification flies along it is asked for every stretch. Joints follow
setpoints that do not depend on them: one world for each parameter, a little changed, runs along the whole excitation.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, log

import numpy as np
import torch

from temporeal.policies.excitation import joints as joint_policies
from temporeal.policies.excitation import quadrotor as quadrotor_policies
from temporeal.policies.excitation.rehearsal import FLOWN, NOISE, now, rehearse
from temporeal.robots.spec import RobotSpec
from temporeal.sim.backends import mujoco
from temporeal.sim.identification.excitation import quadrotor, quadrotor_information
from temporeal.sim.identification.excitation.information import Asked, Information, gathered
from temporeal.sim.identification.excitation.joints import COMMAND, PLACE, JointPlan
from temporeal.sim.identification.excitation.quadrotor import QuadrotorPlan
from temporeal.sim.identification.parameters import SIDE_90
from temporeal.sim.identification.record import FlightRecord, check
from temporeal.sim.types import Backend

OF_LOG = 5.0  # s: the shortest flight from which anything is said
OF_JOINTS = ("armature", "damping", "frictionloss")
OF_SERVOS = ("kp", "kd")
PHYSICS_S = 0.004  # of a physics step of joints, at most
CHANGED = 0.05  # of a parameter: for differences
BLOCK_S = 0.5  # of a stretch of joints
UNKNOWN = 0.5  # relative: of a parameter whose range the spec does not give
TORQUE = 0.1  # N m: noise of measured torques, as the simulated Franka's


def of_plan(plan: QuadrotorPlan | JointPlan) -> Information:
    """Of an excitation that is planned."""
    return of_quadrotor(plan) if isinstance(plan, QuadrotorPlan) else of_joints(plan)


def of_log(record: FlightRecord, robot: RobotSpec, slow: bool) -> Information:
    """Of a quadrotor's flight that was recorded. ``slow``: its commands were logged more slowly than they were made."""
    check([record], OF_LOG)
    return quadrotor_information.information(robot, record, record.seconds, fast=not slow)


def of_quadrotor(plan: QuadrotorPlan) -> Information:
    """Of its flight by rotor commands: where rates are commanded, the motors must be logged on board."""
    if plan.command != "motor_cmd":
        plan = quadrotor.plan(plan.robot, replace(plan.settings, command="motor_cmd"))
    found = rehearse(plan, quadrotor_policies.ExcitedQuadrotor(plan), quadrotor_policies.SIGNALS,
                     quadrotor_policies.start_of, worlds=1)
    steps = round(plan.lands_s * plan.rate_hz)
    true = {name: value[:steps, 0].double().numpy() for name, value in found.true.items()}
    record = FlightRecord(
        "planned", "", 1.0 / plan.rate_hz, found.commands[:steps, 0].double().numpy(), None, true["base_ang_vel_b"],
        np.zeros((steps, 3)), np.ones(steps, bool), true["base_quat_w"], true["base_vel_w"], true["base_pos_w"])
    return quadrotor_information.information(plan.robot, record, plan.lands_s, flown=FLOWN)


def of_joints(plan: JointPlan) -> Information:
    """Of friction, armature and gains of each joint."""
    substeps = ceil(1.0 / (plan.rate_hz * PHYSICS_S) - 1e-9)
    dt = 1.0 / (plan.rate_hz * substeps)
    one = mujoco.make(plan.robot, 1, COMMAND, dt=dt, threads=1)
    asked = asked_of(plan.robot, one)
    one.close()
    backend = mujoco.make(plan.robot, len(asked) + 1, COMMAND, dt=dt, threads=1)
    try:
        for world, (asks, column) in enumerate(asked, 1):
            name = asks.name.partition("[")[0]
            values = backend.params()[name][world : world + 1].clone()
            values.view(1, -1)[0, column] *= 1.0 + CHANGED
            backend.set_params(torch.tensor([world]), {name: values})
        return answered(plan, backend, substeps, [asks for asks, _ in asked])
    finally:
        backend.close()


def asked_of(robot: RobotSpec, backend: Backend) -> list[tuple[Asked, int]]:
    """The parameters, positive ones, and where they are in the simulator's."""
    count, out = len(robot.home[PLACE]), []
    for name in (*OF_JOINTS, *OF_SERVOS):
        if name not in robot.parameters or name not in backend.parameters:
            continue
        p = robot.parameters[name]
        for j in range(min(count, len(p.nominal))):
            if p.nominal[j] > 0:
                known = 0 < p.low[j] < p.high[j]
                prior = log(p.high[j] / p.low[j]) / (2 * SIDE_90) if known else UNKNOWN
                out.append((Asked(f"{name}[{j + 1}]", p.unit, p.nominal[j], True, prior, 1.0), j))
    return out


@torch.no_grad()
def answered(plan: JointPlan, backend: Backend, substeps: int, asked: list[Asked]) -> Information:
    """How what is measured differs between the nominal world, the first, and the others."""
    policy, n = joint_policies.ExcitedJoints(plan), backend.num_worlds
    names = tuple(name for name in (PLACE, "joint_vel", "joint_torque") if name in plan.robot.signals)
    backend.reset(torch.arange(n), {PLACE: torch.tensor(plan.home).float().expand(n, -1)})
    memory, rows = policy.initial_memory(1), []
    place = torch.tensor(plan.home).float()[None]
    for _ in range(plan.steps):
        commands, memory = policy({PLACE: place}, memory)
        backend.step(commands[COMMAND].expand(n, -1).contiguous(), substeps)
        seen = now(backend, names)
        rows.append(torch.cat([seen[name] / NOISE.get(name, TORQUE) for name in names], -1).double())
    seen_all = torch.stack(rows, 1).numpy()  # [N, T, C] in standard deviations
    block = max(1, round(BLOCK_S * plan.rate_hz))
    whole = plan.steps // block
    slope = (seen_all[1:, : whole * block] - seen_all[:1, : whole * block]) / np.log(1.0 + CHANGED)
    slope = slope.reshape(len(asked), whole, block, -1)
    ends = (np.arange(whole) + 1) * block / plan.rate_hz
    return Information(tuple(asked), gathered(slope, [np.eye(block)] * slope.shape[-1]), ends, plan.seconds)
