"""`temporeal robot check`: does a robot's folder hold together, and does it fit what is on the bus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.preflight.findings import Check, guarded
from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.robots.registry import guess
from temporeal.robots.spec import RobotSpec, load_robot

if TYPE_CHECKING:
    from temporeal_bridge.interface.interface import Interface

CONTROL_HZ = 50.0  # where the robot names no rate, as in `doctor`
TIGHT, LIFT = 0.7, 1.5  # share of an effort that holding home takes; thrust over weight: worse is a warning. Chosen


def checks(name: str) -> Iterator[Check]:
    """All checks of the robot ``name`` that need no bus."""
    with bad_input():
        robot = load_robot(name)
    for examine in (described, limits, assumed, model, gravity, interface):
        yield from guarded(examine, robot)


def described(robot: RobotSpec) -> Iterator[Check]:
    """Joints, commands and tool."""
    joints = robot.sources["joint_pos"].names if "joint_pos" in robot.sources else ()
    yield Check("robot", "ok", f"{robot.name}: {robot.kind}"
                + (f", {len(joints)} joints: {', '.join(joints)}" if joints else ""))
    if robot.commands:
        yield Check("commands", "ok", "; ".join(f"{c.name} [{c.size}] {c.unit}" for c in robot.commands.values()))
    else:
        yield Check("commands", "fail", "none: the robot cannot be driven",
                    "say in its YAML which joints or actuators a command drives (commands:)")
    if robot.tool:
        grip = "" if robot.gripper is None else f"; gripper {', '.join(robot.gripper.joints)}"
        yield Check("tool", "ok", f"{robot.sources[f'{robot.tool}_pos_w'].names[0]}{grip}")
    elif robot.kind == "arm":
        yield Check("tool", "warn", "none: reach and other tasks of a tool cannot be trained",
                    "name a pose and make it the tool (poses:, tool:)")


def limits(robot: RobotSpec) -> Iterator[Check]:
    """Limits of motion, joint by joint."""
    if robot.motion is None:
        return
    m = robot.motion
    for i, name in enumerate(robot.sources["joint_pos"].names):
        effort = f", {m.effort[i]:.4g} N m" if m.effort else ", effort unknown"
        yield Check("limits", "ok", f"{name}: {m.low[i]:.4g} to {m.high[i]:.4g}, {m.speed[i]:.4g}/s, "
                                    f"{m.acceleration[i]:.4g}/s^2{effort}")


def assumed(robot: RobotSpec) -> Iterator[Check]:
    """What no source gives."""
    for name, why in robot.defaults.items():
        yield Check("assumed", "warn", f"{name}: {why}", "look it up or measure it, and say it in the robot's YAML")


def model(robot: RobotSpec) -> Iterator[Check]:
    """MuJoCo takes the model, and nothing touches at home."""
    if robot.model is None:
        return
    try:
        import mujoco
    except ModuleNotFoundError:
        yield Check("model", "warn", "MuJoCo is not installed, so the model was not compiled", "pip install mujoco")
        return
    with bad_input():
        if robot.kind == "quadrotor":
            from temporeal.sim.physics.mujoco.quadrotor_model import build

            mass = float(build(robot).body_mass.sum())
            yield Check("model", "ok", f"{robot.model.name}: {mass:.4g} kg, MuJoCo {mujoco.__version__}")
            return
        if not moved(robot):  # a base that rolls: the model is for pictures
            from temporeal.sim.physics.mujoco.robot_files import compiled

            yield Check("model", "ok", f"{robot.model.name}: {compiled(robot).nbody - 1} bodies, "
                                       f"MuJoCo {mujoco.__version__}")
            return
        from temporeal.policies.cli.own_robot.dynamics import physics_of

        physics = physics_of(robot, moved(robot))
    yield Check("model", "ok", f"{robot.model.name}: {physics.model.nbody - 1} bodies, "
                               f"{float(physics.model.body_mass.sum()):.4g} kg, MuJoCo {mujoco.__version__}")
    from temporeal.policies.cli.own_robot.plausible import doubts

    for doubt in doubts(robot, physics):
        yield Check("plausible", "warn", doubt, "correct the model, or spec.yaml, if it is not meant")
    pairs = ", ".join(f"{a} and {b}" for a, b in physics.touching())
    if pairs:
        yield Check("home", "warn", f"bodies touch: {pairs}",
                    "exclude pairs that may touch (exclude:), or choose another home")
    else:
        yield Check("home", "ok", "nothing touches")


def moved(robot: RobotSpec) -> tuple[str, ...]:
    """The joints in the robot's signals."""
    return tuple(dict.fromkeys(name for source in robot.sources.values() if source.what == "joint_pos"
                               for name in source.names))


def gravity(robot: RobotSpec) -> Iterator[Check]:
    """Whether the efforts hold the home, by MuJoCo's inverse dynamics; whether the thrust lifts a quadrotor."""
    if robot.kind == "quadrotor":
        ratio = 4 * sum(robot.parameters["thrust_curve"].nominal) / (9.81 * robot.parameters["mass"].nominal[0])
        slow = ratio < LIFT
        yield Check("gravity", "warn" if slow else "ok", f"full thrust is {ratio:.3g} times the weight",
                    f"below {LIFT:g} it climbs and turns slowly" if slow else "")
        return
    if robot.motion is None or not robot.motion.effort or robot.model is None:
        return
    try:
        from temporeal.policies.cli.own_robot.dynamics import physics_of
    except ModuleNotFoundError:
        return
    names = robot.sources["joint_pos"].names
    torque = abs(physics_of(robot, names).gravity())
    share, name, needed = max((float(t) / most, name, float(t))
                              for t, most, name in zip(torque, robot.motion.effort, names))
    status = "fail" if share > 1 else "warn" if share > TIGHT else "ok"
    yield Check("gravity", status, f"holding home takes at most {share:.0%} of an effort ({name}: {needed:.3g} N m)",
                "" if status == "ok" else "choose another home, or look up the joint's effort (limits: effort)")


def interface(robot: RobotSpec) -> Iterator[Check]:
    """The rows of the ROS 2 interface, which carries the robot's signals and commands."""
    if robot.ros is None:
        yield Check("interface", "warn", "no ros.yaml: `deploy` cannot speak to it", "`temporeal robot new` writes one")
        return
    try:
        from temporeal_bridge.interface.loading import load_interface
    except ModuleNotFoundError:
        yield Check("interface", "warn", "temporeal_bridge is not installed, so ros.yaml was not read",
                    "pip install ros2_ws/src/temporeal_bridge")
        return
    try:
        found = load_interface(robot)
    except ValueError as error:
        yield Check("interface", "fail", str(error), "correct ros.yaml, or write it anew with `temporeal robot new`")
        return
    for row in rows(found):
        yield Check("interface", "ok", f"{found.name}: {row}")
    yield from strange_joints(robot, found)
    yield from safety(robot, found)


def strange_joints(robot: RobotSpec, found: Interface) -> Iterator[Check]:
    """Joints of the driver that are called nearly like one of the model's: mistakes, unless the driver does so."""
    known = sorted({name for source in robot.sources.values() for name in source.names
                    if source.what in ("joint_pos", "joint_vel", "joint_torque")})
    topics: list[Any] = [*found.states, *found.commands.values()]
    for row in topics:
        for name in row.options.get("joints", ()):
            if name not in known and (near := guess(name, known)):
                yield Check("interface", "warn", f"{row.topic}: the model has no joint {name!r}; {near.strip()}",
                            "correct ros.yaml, unless the driver calls the joint like that")


def safety(robot: RobotSpec, found: Interface) -> Iterator[Check]:
    """What the guard demands of each command of the interface."""
    from temporeal_bridge.guard.safety.checked_values import SafetyError
    from temporeal_bridge.guard.safety.config_checks import profile_on

    for name in found.commands:
        try:
            profile_on(robot, found, robot.command(name), 1.0 / (robot.control_hz or CONTROL_HZ))
        except (SafetyError, ValueError) as error:
            yield Check("safety", "fail", f"{name}: {error}", "correct the section safety of ros.yaml")
        else:
            yield Check("safety", "ok", f"{name}: the guard takes what ros.yaml demands of it")
            yield from too_fast(robot, name, found.safety["commands"][name].get("motion", {}).get("speed"))


def too_fast(robot: RobotSpec, command: str, said: Any) -> Iterator[Check]:
    """Joints to which the guard would let through more than the robot's own limit of speed. ``said``: of the section
    of a command of positions; one number for all, or one for each component."""
    if robot.motion is None or said is None or robot.drives.get(command, "position") != "position":
        return
    names = robot.sources["joint_pos"].names
    if robot.actuators.get(command, ())[:len(names)] != names:  # components that are not joints, as a hand's tendons
        return
    for name, speed, most in zip(names, said if isinstance(said, list) else [said] * len(names), robot.motion.speed):
        if speed > most * (1.0 + 1e-6):
            yield Check("safety", "warn",
                        f"{command}: the guard lets {name} move at {speed:g}/s, its limit is {most:g}/s",
                        "lower safety.commands motion.speed, or correct limits.velocity")


def rows(found: Interface) -> Iterator[str]:
    """The interface's topics in words."""
    for state in found.states:
        yield f"reads {state.topic} ({state.type})"
    for name, command in found.commands.items():
        yield f"{name} to {command.topic} ({command.type})"


def on_bus(name: str, overrides: Sequence[str], seconds: float) -> Iterator[Check]:
    """What the robot's bus has, under the settings of `deploy`: topics, rates, clocks, joints' names, values."""
    from temporeal.policies.cli.deployment.bus_settings import check_bus, deploy_settings
    from temporeal.policies.cli.deployment.requirements import needs_bridge

    with bad_input():
        robot = load_robot(name)
    needs_bridge()
    deploy = deploy_settings(list(overrides))
    check_bus(deploy, robot.name)
    from temporeal.policies.cli.preflight.robot import standing

    if robot.ros is None or not robot.commands:
        raise BadInput(f"{robot.name} has no {'ros.yaml' if robot.ros is None else 'command'}: nothing to compare with")
    yield from standing(robot, deploy, seconds)
