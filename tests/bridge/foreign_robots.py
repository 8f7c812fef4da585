"""Robots that are nobody's: a six-joint arm with a gripper from a URDF, a 2 kg quadrotor, a mobile base. Each is a
folder as `temporeal robot new` makes one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from temporeal.robots.ros_interface.joints import Driver
from temporeal.robots.ros_templates import ros_yaml
from temporeal.robots.spec import RobotSpec, load_robot

JOINTS = ("schulter_dreh", "schulter_kipp", "ellbogen", "hand_roll", "hand_kipp", "hand_dreh")
AXES = ("0 0 1", "0 1 0", "0 1 0", "1 0 0", "0 1 0", "1 0 0")
PLACES = ("0 0 0.05", "0 0 0.15", "0 0 0.3", "0.15 0 0", "0.15 0 0", "0.08 0 0")  # of each joint in its parent
MASSES = (2.0, 1.5, 1.0, 0.5, 0.4, 0.2)
HOME = {"schulter_kipp": -0.4, "ellbogen": 0.9, "hand_kipp": 0.5}


def link(name: str, mass: float, length: str) -> str:
    return (f'<link name="{name}"><inertial><mass value="{mass}"/><origin xyz="{length}"/>'
            f'<inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>')


def joint(name: str, kind: str, parent: str, child: str, place: str, axis: str, limit: str, more: str = "") -> str:
    return (f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>'
            f'<origin xyz="{place}"/><axis xyz="{axis}"/><limit {limit}/>{more}</joint>')


def arm_urdf() -> str:
    """Joints stand in the file from the hand down: nothing promises another order."""
    turns = 'lower="-2.8" upper="2.8" effort="60" velocity="2.5"'
    slides = 'lower="0" upper="0.04" effort="40" velocity="0.2"'
    links = [link("sockel", 3.0, "0 0 0.02")]
    joints = []
    for i, (name, axis, place, mass) in enumerate(zip(JOINTS, AXES, PLACES, MASSES)):
        links.append(link(f"glied{i + 1}", mass, "0 0 0.1" if i < 2 else "0.05 0 0"))
        joints.append(joint(name, "revolute", "sockel" if not i else f"glied{i}", f"glied{i + 1}", place, axis, turns))
    links += [link("backe_l", 0.05, "0.01 0 0"), link("backe_r", 0.05, "0.01 0 0"), link("spitze", 0.01, "0 0 0")]
    joints += [joint("backe", "prismatic", "glied6", "backe_l", "0.05 0.01 0", "0 1 0", slides),
               joint("backe_gegen", "prismatic", "glied6", "backe_r", "0.05 -0.01 0", "0 -1 0", slides,
                     '<mimic joint="backe" multiplier="1" offset="0"/>'),
               joint("spitze_fest", "fixed", "glied6", "spitze", "0.07 0 0", "0 0 1", 'effort="0" velocity="0"')]
    return f'<robot name="arm">{"".join(reversed(links))}{"".join(reversed(joints))}</robot>'


ARM: dict[str, Any] = {
    "model": "model.urdf", "kind": "arm", "joints": list(JOINTS), "control_hz": 25, "rate_hz": 200,
    "commands": {
        "joint_pos_cmd": {"joints": list(JOINTS), "kp": [900, 900, 700, 300, 300, 200],
                          "kd": [60, 60, 40, 12, 12, 8]},
        "arm_cmd": {"joints": [*JOINTS, "backe"], "kp": [900, 900, 700, 300, 300, 200, 2000],
                    "kd": [60, 60, 40, 12, 12, 8, 60]}},
    "gripper": {"command": "arm_cmd", "joints": ["backe", "backe_gegen"], "bodies": ["backe_l", "backe_r"],
                "open": 0.04, "closed": 0.0},
    "poses": {"spitze": "spitze"}, "tool": "spitze", "home": HOME, "damping": 1.0}
FLYER: dict[str, Any] = {
    "model": "model.xml", "kind": "quadrotor", "control_hz": 50,
    "quadrotor": {"mass": 2.0, "inertia": [0.022, 0.022, 0.04], "arm": [0.17, 0.2], "thrust_curve": [0.0, 1.5, 8.0],
                  "torque_per_thrust": 0.016, "motor_time": 0.05, "max_rate": [4, 4, 2]}}
# rotors M1 to M4 where the Crazyflie's are
FLYER_XML = """<mujoco><worldbody><geom type="plane" size="0 0 0.05"/><body name="base" pos="0 0 1"><freejoint/>
<inertial pos="0 0 0" mass="2" diaginertia="0.022 0.022 0.04"/><geom type="box" size="0.17 0.17 0.05" mass="0"/>
<site name="rotor1" pos="0.17 -0.2 0.03"/><site name="rotor2" pos="-0.17 -0.2 0.03"/>
<site name="rotor3" pos="-0.17 0.2 0.03"/><site name="rotor4" pos="0.17 0.2 0.03"/></body></worldbody><actuator>
<motor name="rotor1" site="rotor1" gear="0 0 1 0 0 -0.016"/><motor name="rotor2" site="rotor2" gear="0 0 1 0 0 0.016"/>
<motor name="rotor3" site="rotor3" gear="0 0 1 0 0 -0.016"/><motor name="rotor4" site="rotor4" gear="0 0 1 0 0 0.016"/>
</actuator></mujoco>"""


def arm(folder: Path, interface: str = "joint_trajectory", gripper: str = "controller") -> RobotSpec:
    """The arm in ``folder``, with its ``ros.yaml``."""
    return written(folder, "model.urdf", arm_urdf(), ARM, interface, driver=Driver(gripper=gripper))


def flyer(folder: Path, interface: str = "px4") -> RobotSpec:
    """The 2 kg quadrotor in ``folder``, with its ``ros.yaml``."""
    return written(folder, "model.xml", FLYER_XML, FLYER, interface)


def base(folder: Path, sideways: bool = False) -> RobotSpec:
    """A cart that takes a forward speed (and one to the left) and a turn, with its ``ros.yaml``."""
    spec = {"model": "model.urdf", "kind": "mobile_base",
            "mobile_base": {"forward": 1.2, "backward": 0.3, "turn": 2.0, **({"left": 0.4} if sideways else {})}}
    return written(folder, "model.urdf", f'<robot name="cart">{link("rumpf", 9.0, "0 0 0.1")}</robot>', spec, "twist")


def written(folder: Path, model: str, text: str, spec: dict[str, Any], interface: str, **known: Any) -> RobotSpec:
    """The robot in ``folder``; ``known``: of its driver, see :func:`ros_yaml`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / model).write_text(text)
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec))
    (folder / "ros.yaml").write_text(ros_yaml(load_robot(folder), interface, **known))
    return load_robot(folder)
