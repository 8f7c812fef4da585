"""A robot's ros.yaml from templates: numbers come from its spec, and what a template lacks is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tests.bridge import foreign_robots

from temporeal.robots.ros_interface.flight import standing
from temporeal.robots.ros_interface.joints import Driver
from temporeal.robots.ros_interface.text import TemplateError, inside, shared
from temporeal.robots.ros_templates import TEMPLATES, interfaces, ros_yaml
from temporeal.robots.spec import MotionLimits, Parameter, load_robot


@pytest.fixture(scope="module")
def arm(tmp_path_factory):
    return foreign_robots.arm(tmp_path_factory.mktemp("arm"))


@pytest.fixture(scope="module")
def flyer(tmp_path_factory):
    return foreign_robots.flyer(tmp_path_factory.mktemp("flyer"))


def content(*arguments, **options):
    return yaml.safe_load(ros_yaml(*arguments, **options))


def test_an_arm_gets_every_interface_that_its_commands_permit(arm):
    assert interfaces(arm) == ["joint_trajectory", "forward_position"]
    assert interfaces(load_robot("franka")) == list(TEMPLATES["arm"])
    made = content(arm, "forward_position")
    assert made["default"] == "forward_position" and set(made["interfaces"]) == set(interfaces(arm))


def test_limits_of_motion_are_a_share_of_the_specs(arm):
    limits = MotionLimits(speed=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0), acceleration=(10.0,) * 6, brake=(8.0,) * 6,
                          low=(-2.6,) * 6, high=(2.7,) * 6, jerk=(90.0,) * 6)
    own = content(replace(arm, motion=limits))["safety"]["commands"]["joint_pos_cmd"]
    assert own["motion"] == {"margin": 0.1, "speed": [0.6, 1.2, 1.8, 2.4, 3.0, 3.6], "acceleration": 6.0, "jerk": 90.0}
    assert content(replace(arm, motion=limits))["safety"]["jump"]["joint_pos"] == pytest.approx(6.0 * 0.04)


def test_the_margin_never_exceeds_the_room_that_the_spec_leaves():
    assert inside(0.03749) == 0.0374 and inside(0.0) == 0.0 and inside(-1.0) == 0.0 and inside(0.02) == 0.02
    assert shared([0.3, 0.3]) == 0.3 and shared([0.3, 0.4]) == [0.3, 0.4]


def test_times_follow_the_rates(arm):
    slow = content(replace(arm, control_hz=10.0), driver=Driver(rate_hz=20.0))
    assert slow["safety"]["stale_after_s"] == 0.2 and slow["safety"]["silent_after_s"] == 0.3
    assert slow["interfaces"]["joint_trajectory"]["states"][0]["rate_hz"] == 20.0


def test_the_geofence_holds_the_home_and_what_the_arm_reaches(arm):
    fence = content(arm)["safety"]["geofence"]
    assert fence["signal"] == "spitze_pos_w" and fence["low"][2] == -0.02  # it stands on its table
    assert 0.5 < fence["high"][0] < 0.9 and 0.8 < fence["high"][2] < 1.1  # 0.5 m of arm at a height of 0.5 m
    assert "geofence" not in content(replace(arm, tool=""))["safety"]


def test_a_driver_may_call_joints_otherwise_and_tell_no_velocity(arm):
    made = content(arm, driver=Driver(joints={"ellbogen": "joint_3"}, velocity=False))
    options = made["interfaces"]["joint_trajectory"]["states"][0]["options"]
    assert options["joints"][2] == "joint_3" and "velocity" not in options and "velocity" not in options["tool"]
    assert made["interfaces"]["joint_trajectory"]["commands"]["joint_pos_cmd"]["options"]["joints"][2] == "joint_3"
    assert "agree" not in made["safety"]["commands"]["joint_pos_cmd"]
    rates = ("forward_velocity", "joint_vel_cmd")
    assert all(name not in ros_yaml(load_robot("franka"), driver=Driver(velocity=False)) for name in rates)
    with pytest.raises(TemplateError, match=r"no joints \['elbow'\] to rename.*schulter_dreh"):
        ros_yaml(arm, driver=Driver(joints={"elbow": "joint_3"}))


def test_a_finger_that_mimics_another_may_be_left_out(arm):
    rows = content(arm)["interfaces"]["joint_trajectory"]["states"]
    assert rows[1]["options"]["mimic"] == {"backe_gegen": {"of": "backe", "multiplier": 1.0, "offset": 0.0}}


def test_a_gripper_has_a_controller_of_its_own_or_is_joined(arm):
    row = content(arm)["interfaces"]["joint_trajectory"]["commands"]["arm_cmd"]
    assert row["components"] == [0, 1, 2, 3, 4, 5] and row["options"]["joints"] == list(foreign_robots.JOINTS)
    (gripper,) = row["also"]
    assert gripper["topic"] == "gripper_controller/joint_trajectory" and gripper["components"] == [6]
    assert gripper["options"]["joints"] == ["backe"]
    joined = content(arm, driver=Driver(gripper="joined"))["interfaces"]["joint_trajectory"]["commands"]["arm_cmd"]
    assert "also" not in joined and joined["options"]["joints"] == [*foreign_robots.JOINTS, "backe"]
    with pytest.raises(TemplateError, match="no gripper 'claw'; legal: controller, command, action, joined"):
        ros_yaml(arm, driver=Driver(gripper="claw"))


def test_thrust_and_motors_are_the_quadrotors_own(flyer):
    made = content(flyer, "px4")
    commands = made["interfaces"]["px4"]["commands"]
    assert commands["ctbr_cmd"]["options"]["max_thrust_n"] == 38.0  # four times 1.5 + 8
    assert commands["motor_cmd"]["options"] == {"order": [1, 4, 2, 3], "thrust_curve": [0.0, 1.5, 8.0]}
    assert made["safety"]["level"]["landed_m"] == pytest.approx(0.095)  # its hull is 10 cm high
    assert set(made["interfaces"]) == {"px4"}


@pytest.mark.parametrize("interface", TEMPLATES["quadrotor"])
def test_every_interface_of_a_quadrotor_is_written(flyer, interface):
    made = content(flyer, interface)
    assert made["interfaces"][interface]["commands"]["ctbr_cmd"]["options"]["max_thrust_n"] == 38.0


@pytest.mark.parametrize("change, message", [
    ({"mass": Parameter((5.0,), (5.0,), (5.0,), "kg", "")}, "hovers at more than 0.9"),
    ({"mass": None}, "has no parameter 'mass'")])
def test_a_quadrotor_that_cannot_hover_is_refused(flyer, change, message):
    parameters = {name: p for name, p in {**flyer.parameters, **change}.items() if p is not None}
    with pytest.raises(TemplateError, match=message):
        ros_yaml(replace(flyer, parameters=parameters), "px4")


def test_errors_name_what_is_legal(arm, flyer):
    with pytest.raises(TemplateError, match="no interface 'px4' for a robot of kind 'arm'; legal: joint_trajectory"):
        ros_yaml(arm, "px4")
    with pytest.raises(TemplateError, match="no command for 'forward_effort'.*legal: joint_trajectory, forward_pos"):
        ros_yaml(arm, "forward_effort")
    with pytest.raises(TemplateError, match="of kind 'quadruped'; templates are for arm, hand, legged"):
        ros_yaml(load_robot("ant"))
    with pytest.raises(TemplateError, match="has no limits of motion"):
        ros_yaml(replace(arm, motion=None))
    with pytest.raises(TemplateError, match="joint_pos has.*first components"):
        ros_yaml(replace(arm, actuators={"joint_pos_cmd": tuple(reversed(foreign_robots.JOINTS))}, commands={
            "joint_pos_cmd": arm.commands["joint_pos_cmd"]}, gripper=None))


def test_a_crazyflies_file_is_its_own(tmp_path):
    """What the template writes for the Crazyflie agrees with the file that was written by hand."""
    robot = load_robot("crazyflie")
    ours, made = yaml.safe_load(robot.ros.read_text()), content(robot, "px4", stands_m=0.015)
    assert standing(robot) == 0.0145
    assert made["interfaces"]["px4"]["autopilot"] == ours["interfaces"]["px4"]["autopilot"]
    assert made["interfaces"]["px4"]["definitions"] == ours["interfaces"]["px4"]["definitions"]
    options = made["interfaces"]["px4"]["commands"]["motor_cmd"]["options"]
    theirs = ours["interfaces"]["px4"]["commands"]["motor_cmd"]["options"]
    assert options["order"] == theirs["order"] and options["thrust_curve"] == pytest.approx(
        theirs["thrust_curve"], rel=1e-4)
    assert made["safety"]["level"] == ours["safety"]["level"] and made["safety"]["jump"] == ours["safety"]["jump"]


def test_the_page_names_every_template():
    page = (Path(__file__).parents[2] / "docs/reference/robots/interfaces.md").read_text(encoding="utf-8")
    table = page.split("## Templates", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    told, kind = {}, ""
    for first, interface, *_ in rows[2:]:
        kind = first or kind
        told.setdefault(kind, []).append(interface.strip("`"))
    assert told == {"arm, hand, legged": list(TEMPLATES["arm"]), "mobile_base": list(TEMPLATES["mobile_base"]),
                    "quadrotor": list(TEMPLATES["quadrotor"])}
