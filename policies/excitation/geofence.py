"""The robot's own guard, before an excitation is written: what its geofence forbids is not planned."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from temporeal.robots.spec import RobotSpec
from temporeal.sim.identification.excitation.joints import JointPlan
from temporeal.sim.identification.excitation.quadrotor import QuadrotorPlan
from temporeal.sim.identification.excitation.waves import CannotExcite, Numbers

SIGNAL = "base_pos_w"


def check(plan: QuadrotorPlan | JointPlan) -> None:
    """Refuse a quadrotor's box, or a landing, that the robot's ``ros.yaml`` does not allow."""
    safety = safety_of(plan.robot)
    if not isinstance(plan, QuadrotorPlan) or not safety:
        return
    stands = safety.get("level", {}).get("landed_m", 0.0)
    if plan.lands_s < plan.seconds and plan.settings.land_m < stands:
        raise CannotExcite(f"land_m={plan.settings.land_m:g}: {plan.robot.name} has landed at {stands:g} m (landed_m "
                           "in its ros.yaml), so that its rotors would push into the ground: at least that is needed")
    fence = fence_of(plan.robot, safety)
    if fence is None or fence[0] != SIGNAL:
        return
    _, low, high = fence
    s, reach = plan.settings, np.full(3, plan.settings.box_m)
    least = plan.center - reach
    least[2] = min(max(least[2], s.floor_m), s.land_m if plan.lands_s < plan.seconds else np.inf)
    for k, axis in enumerate("xyz"):
        if least[k] < low[k] or plan.center[k] + reach[k] > high[k]:
            raise CannotExcite(f"{axis}={plan.center[k]:g}: with box_m={s.box_m:g} the robot may come to {axis} = "
                               f"{least[k]:g} to {plan.center[k] + reach[k]:g} m; the geofence in the ros.yaml of "
                               f"{plan.robot.name} is {low[k]:g} to {high[k]:g} m")


def check_flown(robot: RobotSpec, true: Mapping[str, Tensor]) -> None:
    """Refuse an excitation with which a simulated robot left the geofence: an arm's is of its tool."""
    fence = fence_of(robot, safety_of(robot))
    if fence is None or fence[0] not in true:
        return
    signal, low, high = fence
    where = true[signal].double().numpy().reshape(-1, 3)
    if (where < low).any() or (where > high).any():
        said = ", ".join(f"{a:.3g} to {b:.3g}" for a, b in zip(where.min(0), where.max(0)))
        raise CannotExcite(f"simulated, {signal} comes to {said} m: outside the geofence in the ros.yaml of "
                           f"{robot.name}")


def safety_of(robot: RobotSpec) -> Mapping[str, dict[str, float]]:
    """Of its ``ros.yaml``; nothing where it has none: such a robot exists in simulation only."""
    from temporeal_bridge.interface.rows import read_yaml

    found: Mapping[str, dict[str, float]] = {} if robot.ros is None else read_yaml(robot.ros).get("safety") or {}
    return found


def fence_of(robot: RobotSpec, safety: Mapping[str, dict[str, float]]) -> tuple[str, Numbers, Numbers] | None:
    """Signal, low [3] and high [3] of the geofence; None: there is none."""
    from temporeal_bridge.guard.safety.state_rules import fence

    found = fence(robot, safety.get("geofence"))
    return None if found is None else (found.signal, np.array(found.low), np.array(found.high))
