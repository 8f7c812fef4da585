"""Writes the ``ros.yaml`` of a robot (topics, types, codecs, safety, simulation) from templates and the robot's spec.

    text = ros_yaml(load_robot("my_arm"), "joint_trajectory")

The file is in the format of :mod:`temporeal_bridge.interface`. Every limit in it says where it comes from: the spec, or
a choice made here. It is a first version, for the user to compare with the driver; then the simulated robot, the guard
and the real robot read the same file. Standard library and YAML only.
"""

from __future__ import annotations

from temporeal.robots.ros_interface import flight, joints, wheels
from temporeal.robots.ros_interface.joints import Driver
from temporeal.robots.ros_interface.text import TemplateError, named
from temporeal.robots.spec import RobotSpec

TEMPLATES = {
    **dict.fromkeys(joints.KINDS, tuple(joints.CONTROLLERS)), "mobile_base": tuple(wheels.TEMPLATES),
    "quadrotor": flight.TEMPLATES}
"""By the robot's kind, the interfaces that it may have; the first one is the usual one."""


def interfaces(spec: RobotSpec) -> list[str]:
    """The templates that the robot's commands permit, the usual one first."""
    check_kind(spec)
    if spec.kind == "quadrotor":
        return flight.possible(spec)
    return wheels.possible(spec) if spec.kind == "mobile_base" else joints.possible(spec)


def ros_yaml(
    spec: RobotSpec, interface: str | None = None, *, driver: Driver | None = None, stands_m: float | None = None
) -> str:
    """The text of ``ros.yaml``.

    Args:
        interface: the default one, out of :func:`interfaces` (None: the first). Arms, hands and bases get the others
            that their commands permit, too.
        driver: what is known of the driver of an arm, a hand or a legged robot.
        stands_m: height of a quadrotor's origin where it stands on the ground [m]; None: by the model's shapes.

    Raises:
        TemplateError: the spec lacks what the template needs.
    """
    check_kind(spec)
    chosen = interface or next(iter(interfaces(spec)), None)
    if chosen not in TEMPLATES[spec.kind]:
        raise TemplateError(f"no interface {chosen!r} for a robot of kind {spec.kind!r}; legal: "
                            f"{named(TEMPLATES[spec.kind])}")
    if spec.kind == "quadrotor":
        lines = flight.flight_yaml(spec, chosen, stands_m)
    elif spec.kind == "mobile_base":
        lines = wheels.wheel_yaml(spec, chosen)
    else:
        lines = joints.joint_yaml(spec, chosen, driver or Driver())
    return "\n".join([*HEAD, *lines, ""])


HEAD = (
    "# ROS 2 interfaces of this robot: topics, types, rates, quality of service. A first version from a template and",
    "# the robot's spec: compare topics, joint names and rates with the driver's (`ros2 topic list -t`,",
    "# `ros2 topic hz`), and the limits with the manual. Topic names are relative: they live in the robot's namespace.",
    "")


def check_kind(spec: RobotSpec) -> None:
    """Refuse kinds without a template."""
    if spec.kind not in TEMPLATES:
        raise TemplateError(f"robot {spec.name!r} is of kind {spec.kind!r}; templates are for {named(list(TEMPLATES))}")
