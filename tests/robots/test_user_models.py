"""Users' own MJCF and URDF: what is read without a simulator is what MuJoCo compiles; wrong files say what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gymnasium
import mujoco
import numpy as np
import pytest
import torch

from robots.model_files import RobotFileError
from robots.registry import UnknownName
from robots.spec import RobotSpec, load_robot
from sim import robot_files
from sim.backends import mujoco as backend

ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
MODELS = sorted(ASSETS.glob("*.xml"))

# all that decides on names and ranges: included files, nested classes, frames, units, ref, automatic limits, a key
TRICKY = """
<mujoco>
  <compiler angle="degree"/>
  <include file="parts/defaults.xml"/>
  <worldbody>
    <body name="cart">
      <body name="later"><joint name="late" class="stiff" range="0 5"/><geom size="0.1"/></body>
      <joint type="slide" axis="1 0 0" range="-1 2" ref="0.5"/>
      <geom size="0.1"/>
      <body name="pole" childclass="stiff">
        <frame pos="0 0 1" childclass="loose">
          <joint name="swing" axis="0 1 0" limited="false"/>
          <body><joint name="tip" class="stiff"/><geom size="0.1"/></body>
        </frame>
        <joint axis="1 0 0"/>
        <geom size="0.1"/>
        <site name="top" pos="0 0 1"/>
      </body>
    </body>
  </worldbody>
  <include file="parts/motors.xml"/>
  <keyframe>
    <key name="other" qpos="0 0 0 0 0"/>
    <key name="home" qpos="0.25 0.1 0.2 0.3 0.05"/>
  </keyframe>
</mujoco>"""
DEFAULTS = """
<mujocoinclude>
  <default>
    <joint range="-90 90"/>
    <motor ctrlrange="-3 3"/>
    <default class="stiff"><joint range="-10 20"/>
      <default class="loose"><joint range="-45 45"/><position kp="10" inheritrange="0.5"/></default>
    </default>
  </default>
</mujocoinclude>"""
MOTORS = """
<mujoco>
  <actuator>
    <motor joint="swing"/>
    <position joint="swing" kp="5" ctrlrange="-1 1"/>
    <position name="push" joint="late" kp="5" ctrlrange="0 0.08"/>
    <position class="loose" joint="tip"/>
    <motor site="top" gear="0 0 1 0 0 0" ctrlrange="-4 4" ctrllimited="true"/>
  </actuator>
</mujoco>"""

URDF = """
<robot name="two_link">
  <link name="base"/>
  <link name="upper"><inertial><origin xyz="0 0 0.2"/><mass value="1"/>
    <inertia ixx="0.02" ixy="0" ixz="0" iyy="0.02" iyz="0" izz="0.002"/></inertial></link>
  <link name="lower"><inertial><origin xyz="0 0 0.15"/><mass value="0.5"/>
    <inertia ixx="0.01" ixy="0" ixz="0" iyy="0.01" iyz="0" izz="0.001"/></inertial></link>
  <link name="tool"/>
  <joint name="shoulder" type="revolute"><parent link="base"/><child link="upper"/><origin xyz="0 0 0.1"/>
    <axis xyz="0 1 0"/><limit lower="-2" upper="2" effort="40" velocity="3"/></joint>
  <joint name="elbow" type="revolute"><parent link="upper"/><child link="lower"/><origin xyz="0 0 0.4"/>
    <axis xyz="0 1 0"/><limit lower="0.2" upper="2.5" effort="20" velocity="4"/></joint>
  <joint name="mount" type="fixed"><parent link="lower"/><child link="tool"/><origin xyz="0 0 0.3"/></joint>
</robot>"""
BESIDE = """
kind: arm
joints: [elbow, shoulder]
commands:
  shoulder_cmd: {joints: [shoulder], kp: 400, kd: 10, high: 1.0}
  joint_pos_cmd: {joints: [shoulder, elbow], kp: [400, 200], kd: 10}
poses: {grip: tool}
home: {shoulder: 0.3}
rate_hz: 100
"""


def write(folder: Path, model: str, beside: str = "", name: str = "arm.xml") -> str:
    path = folder / name
    path.write_text(model)
    if beside:
        path.with_suffix(".robot.yaml").write_text(beside)
    return str(path)


@pytest.fixture
def tricky(tmp_path: Path) -> str:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "defaults.xml").write_text(DEFAULTS)
    (tmp_path / "parts" / "motors.xml").write_text(MOTORS)
    return write(tmp_path, TRICKY)


def same_as_compiled(robot: RobotSpec, model: mujoco.MjModel) -> None:
    """Names and control ranges of the spec are those of the compiled model, in its order."""
    slide = int(mujoco.mjtJoint.mjJNT_SLIDE)
    plain = [model.joint(i) for i in range(model.njnt) if model.jnt_type[i] >= slide]
    assert list(robot.sources["joint_pos"].names) == [joint.name for joint in plain]
    assert robot.signals["joint_vel"].shape == (len(plain),)
    assert list(robot.actuators["ctrl_cmd"]) == [model.actuator(i).name for i in range(model.nu)]
    command = robot.commands["ctrl_cmd"]
    np.testing.assert_allclose(model.actuator_ctrlrange.T, [command.low, command.high], rtol=0, atol=1e-12)
    key = model.key("home").qpos
    np.testing.assert_allclose([key[j.qposadr[0]] for j in plain], robot.home["joint_pos"], rtol=0, atol=1e-12)
    for joint, position in zip(plain, robot.home["joint_pos"], strict=True):
        assert not model.jnt_limited[joint.id] or joint.range[0] <= position <= joint.range[1]


# ---------------------------------------------------------------- MJCF


@pytest.mark.filterwarnings("ignore:compiler attribute")
@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_every_model_of_gymnasium_is_read_as_mujoco_compiles_it(path):
    robot = load_robot(str(path))
    model = robot_files.compiled(robot)
    same_as_compiled(robot, model)
    free = bool((model.jnt_type == mujoco.mjtJoint.mjJNT_FREE).any())
    assert ("base_pos_w" in robot.signals) == free
    original = mujoco.MjModel.from_xml_path(str(path))
    np.testing.assert_array_equal(model.body_mass, original.body_mass)
    np.testing.assert_array_equal(model.jnt_range, original.jnt_range)


@pytest.mark.filterwarnings("ignore:compiler attribute")
def test_half_cheetah_runs_in_the_backend_like_mujoco_alone():
    robot = load_robot(str(ASSETS / "half_cheetah.xml"))
    assert robot.name == str(ASSETS / "half_cheetah.xml")
    sim = backend.make(robot, 3, "ctrl_cmd", dt=0.01)
    model = mujoco.MjModel.from_xml_path(robot.name)
    data = mujoco.MjData(model)
    data.ctrl = np.linspace(-1, 1, 6)
    sim.step(torch.linspace(-1, 1, 6).repeat(3, 1), 50)
    mujoco.mj_step(model, data, 50)
    for got in sim.signals()["joint_pos"]:
        np.testing.assert_allclose(got, data.qpos, rtol=0, atol=1e-5)


def test_base_of_a_walking_robot_is_its_free_body():
    robot = load_robot(str(ASSETS / "ant.xml"))
    assert robot.sources["base_ang_vel_b"].names == ("torso",)
    state = backend.make(robot, 1, "ctrl_cmd", dt=0.01).signals()
    assert state["base_pos_w"][0].tolist() == [0.0, 0.0, 0.75]
    assert robot.actuators["ctrl_cmd"][:2] == ("hip_4", "ankle_4")  # without names of their own: what they drive


@pytest.mark.parametrize("angle", ["degree", "radian"])
def test_classes_includes_frames_and_units_are_followed_as_mujoco_does(tricky, angle):
    path = Path(tricky)
    path.write_text(path.read_text().replace('angle="degree"', f'angle="{angle}"').replace(
        "0.25 0.1 0.2 0.3 0.05", "0.25 0.01 0.02 0.03 0.0005"))
    robot = load_robot(tricky)
    same_as_compiled(robot, robot_files.compiled(robot))
    assert robot.sources["joint_pos"].names == ("joint0", "late", "swing", "joint3", "tip")
    assert robot.actuators["ctrl_cmd"] == ("swing", "actuator1", "push", "tip", "top")
    assert robot.home["joint_pos"][0] == 0.25


def test_without_a_home_key_joints_rest_as_drawn_or_in_the_middle_of_their_range(tricky):
    path = Path(tricky)
    path.write_text(path.read_text().replace('name="home"', 'name="start"').replace('range="0 5"', 'range="3 5"'))
    robot = load_robot(tricky)
    home = dict(zip(robot.sources["joint_pos"].names, robot.home["joint_pos"], strict=True))
    assert home["joint0"] == 0.5  # its ref
    assert home["late"] == pytest.approx(np.radians(4))
    assert home["swing"] == 0.0
    same_as_compiled(robot, robot_files.compiled(robot))


def test_automatic_limits_can_be_switched_off(tmp_path):
    text = """<mujoco><compiler angle="radian" autolimits="false"/><worldbody><body><joint name="a" range="1 2"
        limited="{}"/><geom size="0.1"/></body></worldbody><actuator><motor joint="a" ctrlrange="-1 1"
        ctrllimited="true"/></actuator></mujoco>"""
    free, limited = (load_robot(write(tmp_path, text.format(x), name=f"{x}.xml")) for x in ("false", "true"))
    assert (free.home["joint_pos"], limited.home["joint_pos"]) == ((0.0,), (1.5,))


def test_units_follow_what_the_actuators_take(tmp_path):
    text = """<mujoco><worldbody><body><joint name="a"/><joint name="b" type="slide"/><geom size="0.1"/></body>
        </worldbody><actuator>{}</actuator></mujoco>"""
    servo = '<position joint="{}" ctrlrange="-1 1"/>'
    for inside, unit in ((servo.format("a"), "rad"), (servo.format("b"), "m"),
                         (servo.format("a") + servo.format("b"), "rad,m"),
                         ('<motor joint="a" ctrlrange="-1 1"/>', "1")):
        assert load_robot(write(tmp_path, text.format(inside))).commands["ctrl_cmd"].unit == unit


# ---------------------------------------------------------------- URDF


def test_urdf_with_its_yaml_is_a_whole_robot(tmp_path):
    robot = load_robot(write(tmp_path, URDF, BESIDE, "arm.urdf"))
    assert robot.kind == "arm"
    assert robot.sources["joint_pos"].names == ("elbow", "shoulder")
    assert robot.home["joint_pos"] == (1.35, 0.3)  # the elbow cannot be at 0
    assert robot.limits == {"elbow_vel": (-4.0, 4.0), "shoulder_vel": (-3.0, 3.0)}
    assert robot.parameters["strength"].nominal == (40.0, 20.0)  # efforts of the URDF
    assert robot.commands["shoulder_cmd"].high == (1.0,)
    assert robot_files.compiled(robot).actuator("shoulder").ctrlrange.tolist() == [-2.0, 2.0]  # of the wider command
    assert load_robot(robot.model).commands == robot.commands  # a Path does as well
    assert robot.signals["grip_quat_w"].unit == "wxyz"
    assert robot.signals["joint_pos"].rate_hz == 100


def test_urdf_moves_as_its_servos_say(tmp_path):
    """kp (setpoint - position) = gravity torque at rest, kept within the effort, tool link included."""
    robot = load_robot(write(tmp_path, URDF, BESIDE, "arm.urdf"))
    sim = backend.make(robot, 2, "joint_pos_cmd", dt=0.002)
    assert sim.signals()["joint_pos"][0].tolist() == pytest.approx([1.35, 0.3])
    target = torch.tensor([[0.5, 1.0], [-0.5, 2.0]])
    sim.step(target, 3000)
    state = sim.signals()
    elbow, shoulder = state["joint_pos"].T.double()
    reach = 0.4 * torch.sin(shoulder)
    lower = 0.5 * 9.81 * 0.15 * torch.sin(shoulder + elbow)
    upper = 9.81 * 0.2 * torch.sin(shoulder) + 0.5 * 9.81 * reach + lower
    np.testing.assert_allclose(400 * (shoulder - target[:, 0]), upper, rtol=1e-3)
    np.testing.assert_allclose(200 * (elbow - target[:, 1]), lower, rtol=1e-3)
    np.testing.assert_allclose(
        state["grip_pos_w"][:, 0], 0.4 * torch.sin(shoulder) + 0.3 * torch.sin(shoulder + elbow), rtol=1e-5)


def test_urdf_alone_can_be_looked_at_and_says_what_it_lacks(tmp_path):
    robot = load_robot(write(tmp_path, URDF, name="arm.urdf"))
    assert robot.sources["joint_pos"].names == ("shoulder", "elbow") and not robot.commands
    assert robot_files.compiled(robot).nu == 0
    with pytest.raises(UnknownName, match=r"\.robot\.yaml"):
        robot.command("ctrl_cmd")


def test_mimic_joints_follow(tmp_path):
    text = URDF.replace('velocity="3"/>', 'velocity="3"/><mimic joint="elbow" multiplier="0.5"/>')
    robot = load_robot(write(tmp_path, text, "commands: {c: {joints: [elbow], kp: 400, kd: 20, strength: 100}}",
                             "arm.urdf"))
    sim = backend.make(robot, 1, "c", dt=0.002)
    sim.step(torch.tensor([[1.6]]), 2000)
    shoulder, elbow = sim.signals()["joint_pos"][0].tolist()
    assert elbow > 1.4 and shoulder == pytest.approx(0.5 * elbow, abs=0.02)


def test_a_floating_joint_makes_a_base(tmp_path):
    text = """<robot name="r"><link name="world"/><link name="hull"><inertial><mass value="2"/>
        <inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>
        <joint name="root" type="floating"><parent link="world"/><child link="hull"/></joint></robot>"""
    robot = load_robot(write(tmp_path, text, name="r.urdf"))
    assert robot.sources["base_pos_w"].names == ("hull",)
    model = robot_files.compiled(robot)
    assert model.joint(0).type[0] == mujoco.mjtJoint.mjJNT_FREE and model.body("hull").mass[0] == 2


# ---------------------------------------------------------------- wrong input

JOINT = '<mujoco><worldbody><body name="b"><joint name="a" {}/><geom size="0.1"/></body></worldbody>{}</mujoco>'
MOTOR = '<actuator><motor name="m" joint="a" {}/></actuator>'
GOOD = JOINT.format("", MOTOR.format('ctrlrange="-1 1"'))


@pytest.mark.parametrize(
    ("model", "beside", "told"),
    [
        ("<mujoco><worldbody>", "", ["arm.xml", "not XML"]),
        ("<sdf/>", "", ["arm.xml", "<sdf>", "<mujoco>", "<robot>"]),
        (JOINT.format('type="hing"', ""), "", ['<joint name="a">', "'hing'", "hinge"]),
        (JOINT.format('range="1"', ""), "", ['<joint name="a">', "2 numbers", "'1'"]),
        (JOINT.format('range="2 1"', ""), "", ['<joint name="a">', "'2 1'", "below"]),
        (JOINT.format('class="nope"', ""), "", ["'nope'", "known: main"]),
        (JOINT.format("", '<actuator><position joint="a" inheritrange="1"/></actuator>'), "", ["inheritrange", "'a'"]),
        (JOINT.format('type="ball"', ""), "", ['<joint name="a">', "ball", "joints:", "arm.robot.yaml"]),
        (JOINT.format("", MOTOR.format("")), "", ['<motor name="m">', "ctrlrange", "arm.robot.yaml"]),
        ('<mujoco><include file="gone.xml"/></mujoco>', "", ["arm.xml", "gone.xml"]),
        ('<mujoco><include file="arm.xml"/></mujoco>', "", ["arm.xml", "itself"]),
        ('<mujoco><worldbody><replicate count="3"/></worldbody></mujoco>', "", ["<replicate>", "to_xml"]),
        ("<mujoco><worldbody><body><freejoint/></body></worldbody></mujoco>", "", ["joint0", "name"]),
        (JOINT.format("", '<keyframe><key name="home" qpos="1 2"/></keyframe>'), "", ["home", "1 numbers", "'1 2'"]),
        (GOOD, "[1]", ["arm.robot.yaml", "mapping", "[1]"]),
        (GOOD, "joint: [a]", ["arm.robot.yaml", "'joint'", "joints"]),
        (GOOD, "joints: [b]", ["'b'", "known: a"]),
        (GOOD, "joints: [a, a]", ["different", "['a', 'a']"]),
        (GOOD, "poses: {grip: hand}", ["poses.grip", "'hand'", "known: b"]),
        (GOOD, "home: {a: x}", ['<joint name="a">', "'x'"]),
        (GOOD, "rate_hz: often", ["rate_hz", "'often'"]),
        (GOOD, "commands: {c: {}}", ["commands.c", "actuators", "joints"]),
        (GOOD, "commands: {c: {actuators: [x]}}", ["commands.c", "'x'", "known: m"]),
        (GOOD, "commands: {c: {joints: [a]}}", ["commands.c", "kp"]),
        (GOOD, "commands: {c: {joints: [a], kp: 1, ki: 2}}", ["commands.c", "'ki'", "kd"]),
        (GOOD, "commands: {c: {joints: [a], kp: [1, 2], strength: 1}}", ["commands.c.kp", "list of 1", "[1, 2]"]),
        (GOOD, "commands: {c: {joints: [a], kp: 1}}", ['<joint name="a">', "strength", "inf"]),
        (GOOD, "commands: {c: {joints: [a], kp: 1, strength: 1}}", ['<joint name="a">', "low and high"]),
        (GOOD, "commands: {c: {joints: [a], kp: -1, strength: 1, low: 0, high: 1}}", ["kp -1", "positive"]),
        (GOOD, "commands: {c: {joints: [a], kp: 1, strength: 1, low: 1, high: 0}}", ["low", "below"]),
        (GOOD.replace('name="m"', 'name="a"'), "commands: {c: {joints: [a], kp: 1, strength: 1, low: 0, high: 1}}",
         ["actuator of this name", "actuators"]),
        (GOOD, "commands: {c: {joints: [a], kp: 1, strength: 1, low: 0, high: 1}, "
               "d: {joints: [a], kp: 2, strength: 1, low: 0, high: 1}}", ["commands.d", "other gains"]),
        (GOOD, "a: [", ["arm.robot.yaml", "not YAML"]),
    ],
)  # fmt: skip
def test_wrong_files_say_file_element_and_rule(tmp_path, model, beside, told):
    with pytest.raises(ValueError) as caught:
        load_robot(write(tmp_path, model, beside))
    for word in ["arm", *told]:
        assert word in str(caught.value)


def test_urdf_errors_name_the_joint(tmp_path):
    for old, new, told in (('type="revolute"', 'type="planar"', "'planar'"), ('lower="-2"', 'lower="two"', "'two'"),
                           ('lower="-2"', 'lower="3"', "lower must be below upper"),
                           ('name="shoulder"', "", "needs a name")):
        with pytest.raises(RobotFileError, match=told):
            load_robot(write(tmp_path, URDF.replace(old, new, 1), name="arm.urdf"))


def test_what_mujoco_refuses_names_the_file(tmp_path):
    name = write(tmp_path, GOOD.replace('size="0.1"', 'size="0.1" type="dodecahedron"'))
    with pytest.raises(ValueError, match=r"arm\.xml.*dodecahedron|dodecahedron.*arm\.xml|(?s:arm\.xml.*type)"):
        robot_files.read(load_robot(name))


def test_a_file_that_is_not_there_and_a_name_that_is_not_known():
    with pytest.raises(FileNotFoundError, match=r"nowhere/arm\.urdf"):
        load_robot("nowhere/arm.urdf")
    with pytest.raises(UnknownName, match=r"known: .*franka.*\.urdf"):
        load_robot("fanka")


def test_loading_needs_neither_torch_nor_mujoco():
    code = ("import sys; from robots.spec import load_robot; "
            f"robot = load_robot({str(ASSETS / 'ant.xml')!r}); "
            "print(robot.commands['ctrl_cmd'].size, 'torch' in sys.modules, 'mujoco' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["8", "False", "False"]
