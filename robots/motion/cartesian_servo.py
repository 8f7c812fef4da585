"""Cartesian servoing by the law of MoveIt Servo: tool velocity to joint steps. numpy, for one arm or many at once.

Follows moveit2 8fcb5d2, ``moveit_servo/src/utils/{command,common}.cpp`` and ``servo.cpp``, with the defaults of
``config/servo_parameters.yaml`` except for the speeds: joint steps by the pseudo-inverse of the Jacobian (Servo without
an IK plugin; a plugin's solution for an arm of seven joints may differ in its null space), slower near singularities,
scaled to the joints' speed limits, and halted near a joint limit. Scene collisions and the smoothing filter are left
out.

N arms of J joints. Twists are m/s and rad/s in the base frame, about the tool's centre.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from temporeal.robots.motion.kinematics import Array, Chain, KinematicsError, SerialChain, kinematics_of
from temporeal.robots.motion.rate_limiter import Flags
from temporeal.robots.spec import RobotSpec

PERIOD = 0.01  # s: publish_period
TIMEOUT = 0.1  # s: incoming_command_timeout
LOWER, HARD, LEAVING = 17.0, 30.0, 2.0  # condition numbers: slower from the first on, still from the second on
PROBE = 0.01  # singularity_step_scale
MARGIN = 0.1  # rad: joint_limit_margins


@dataclass(frozen=True)
class Servo:
    """The arm's kinematics and limits, as a Servo node knows them.

    Args:
        low, high: [J] rad. speed: [J] rad/s. linear, rotational: m/s, rad/s: longer twists are shortened (``scale``).
    """

    chain: Chain | SerialChain
    low: Array
    high: Array
    speed: Array
    linear: float
    rotational: float
    margin: float = MARGIN

    def step(self, joints: Array, twist: Array, dt: float) -> Array:
        """Joints [N, J] rad after ``dt`` [s], of arms at ``joints`` [N, J] whose tools shall move with ``twist`` [N,
        6]."""
        wanted = self.shortened(twist) * dt
        jacobian = self.chain.jacobians(joints)
        u, sizes, vt = np.linalg.svd(jacobian, full_matrices=False)
        inverse = np.einsum("nkj,nk,nik->nji", vt, 1.0 / np.maximum(sizes, 1e-9), u)
        delta = np.einsum("nji,ni->nj", inverse, wanted)
        delta *= self.near_singularity(joints, u[:, :, -1], sizes, inverse, wanted)[:, None]
        delta /= np.maximum(np.abs(delta / (self.speed * dt)).max(axis=1, keepdims=True), 1.0)
        out: Array = np.where(self.bounded(joints + delta, delta)[:, None], joints, joints + delta)
        return out

    def shortened(self, twist: Array) -> Array:
        """``twist`` [N, 6] with its linear and its rotational half shortened to their limits."""
        parts = []
        for part, most in ((twist[:, :3], self.linear), (twist[:, 3:], self.rotational)):
            size = np.linalg.norm(part, axis=1, keepdims=True)
            parts.append(part / np.maximum(size / most, 1.0))
        return np.concatenate(parts, axis=1)

    def near_singularity(self, joints: Array, weakest: Array, sizes: Array, inverse: Array, wanted: Array) -> Array:
        """Factor [N] on the step near a singularity (``velocityScalingFactorForSingularity``). ``weakest`` [N, 6]: the
        direction in which the arm moves least."""
        condition = sizes[:, 0] / np.maximum(sizes[:, -1], 1e-9)
        share = np.ones(len(joints))
        near = np.flatnonzero(condition > LOWER)
        if len(near):
            probe = joints[near] + np.einsum("nji,ni->nj", inverse[near], PROBE * weakest[near])
            there = np.linalg.svd(self.chain.jacobians(probe), compute_uv=False)
            grows = there[:, 0] / np.maximum(there[:, -1], 1e-9) > condition[near]
            into = np.where(grows, 1.0, -1.0) * (weakest[near] * wanted[near]).sum(axis=1) > 0.0
            upper = np.where(into, HARD, LOWER + LEAVING * (HARD - LOWER))
            share[near] = np.where(condition[near] < HARD, 1.0 - (condition[near] - LOWER) / (upper - LOWER), 0.0)
        return share

    def bounded(self, joints: Array, delta: Array) -> Flags:
        """Arms [N] that ``joints`` [N, J] would bring closer to a limit than the margin, moving towards it: all their
        joints halt (``halt_all_joints_in_cartesian_mode``)."""
        down = (delta < 0.0) & (joints < self.low + self.margin)
        up = (delta > 0.0) & (joints > self.high - self.margin)
        return np.asarray((down | up).any(axis=1))


def servo_of(robot: RobotSpec) -> Servo:
    """The servo of an arm: its kinematics and limits of motion, speeds of its command ``tool_vel_cmd``."""
    places, tool = robot.command("joint_pos_cmd"), robot.command("tool_vel_cmd")
    if robot.motion is None:
        raise KinematicsError(f"robot {robot.name!r}: a servo needs the joints' limits of motion in its spec")
    return Servo(kinematics_of(robot), np.array(places.low), np.array(places.high), np.array(robot.motion.speed),
                 tool.high[0], tool.high[3])
