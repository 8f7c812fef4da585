"""Users' own MJCF and URDF: what is read without a simulator is what MuJoCo compiles; wrong files say what is wrong."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import gymnasium
import mujoco
import numpy as np
import pytest
import torch

from temporeal.policies.algos import ppo
from temporeal.policies.training import ppo_state
from temporeal.robots.model_files import RobotFileError
from temporeal.robots.registry import UnknownName
from temporeal.robots.spec import RobotSpec, load_robot
from temporeal.sim.backends import mujoco as backend
from temporeal.sim.env import make_env
from temporeal.sim.physics.mujoco import robot_files

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


SERVOS = """<mujoco><default>{}<default class="near">{}</default></default><worldbody><body name="b">
    <joint name="h" range="-90 90"/><geom size="0.1"/></body></worldbody>
    <tendon><fixed name="t" range="-2 2"><joint joint="h" coef="1"/></fixed></tendon><actuator>{}</actuator></mujoco>"""
SHARE, MOTORS3 = '<position inheritrange="1" kp="5"/>', '<motor ctrlrange="-3 3"/>'


@pytest.mark.parametrize(
    ("main", "near", "actuator", "high"),
    [
        (SHARE, "", '<position joint="h" ctrlrange="-1 1"/>', 1.0),
        (SHARE, "", '<motor joint="h" ctrlrange="-1 1"/>', 1.0),
        (SHARE, "", '<position joint="h"/>', np.pi / 2),
        (SHARE, "", '<general joint="h"/>', np.pi / 2),
        (SHARE, "", '<position tendon="t"/>', 2.0),
        (SHARE, "", '<position joint="h" inheritrange="0" ctrlrange="-1 1"/>', 1.0),
        (SHARE, MOTORS3, '<general joint="h" class="near"/>', 3.0),
        (MOTORS3, "", '<position joint="h" inheritrange="1" kp="5"/>', np.pi / 2),
        (MOTORS3, SHARE, '<position joint="h" class="near"/>', np.pi / 2),
        (MOTORS3 + SHARE, "", '<position joint="h"/>', np.pi / 2),
        (SHARE + MOTORS3, "", '<position joint="h"/>', 3.0),
        ('<position ctrlrange="-1 1"/>', '<position inheritrange="0.5"/>', '<position joint="h" class="near"/>',
         np.pi / 4),
    ],
)  # fmt: skip
def test_the_nearer_of_ctrlrange_and_inheritrange_counts(tmp_path, main, near, actuator, high):
    robot = load_robot(write(tmp_path, SERVOS.format(main, near, actuator)))
    model = robot_files.compiled(robot)
    assert model.actuator_ctrlrange.tolist() == [pytest.approx([-high, high])]
    assert robot.commands["ctrl_cmd"].high == pytest.approx((high,))
    same_as_compiled(robot, model)


@pytest.mark.parametrize(
    ("find", "other", "told"),
    [('ctrlrange="-1 1"', 'ctrlrange="-2 1"', ['<motor name="m">', "-1 to 1", "-2.0"]),
     ('name="a"/>', 'name="a" range="0 9"/>', ['<joint name="a">', "-inf", "MuJoCo compiles hinge from 0"]),
     ('name="m"', 'name="n"', ["actuators", "read as m", "compiles n"]),
     ('name="a"', 'name="x"', ["joints", "read as a", "compiles x"])],
)  # fmt: skip
def test_a_reading_that_differs_from_mujocos_names_file_and_element(tmp_path, monkeypatch, find, other, told):
    """Whatever rule of MuJoCo's the reader may get wrong: here MuJoCo is shown another file than the reader."""
    name = write(tmp_path, GOOD.replace('name="a" />', 'name="a"/>'))
    robot, text = load_robot(name), Path(name).read_text()
    assert find in text
    shown = text.replace(find, other).replace('joint="a"', 'joint="x"') if "x" in other else text.replace(find, other)
    monkeypatch.setattr(robot_files, "parsed", lambda robot, path: mujoco.MjSpec.from_string(shown))
    monkeypatch.setattr(robot_files, "add_servos", lambda spec, robot: None)
    monkeypatch.setattr(robot_files, "add_home", lambda spec, robot: None)
    with pytest.raises(RobotFileError) as caught:
        robot_files.compiled(robot)
    for word in ("arm.xml", *told):
        assert word in str(caught.value)


def test_two_equal_numbers_are_no_range(tmp_path):
    """MuJoCo's rule for automatic limits."""
    text = GOOD.replace('name="a" ', 'name="a" range="0 0"').replace('ctrlrange="-1 1"', 'ctrlrange="0 0"')
    robot = load_robot(write(tmp_path, text, "commands: {c: {actuators: [m], low: -2, high: 2}}"))
    model = robot_files.compiled(robot)
    assert not model.jnt_limited[0] and not model.actuator_ctrllimited[0]
    assert robot.commands["c"].high == (2.0,) and robot.home["joint_pos"] == (0.0,)


def test_actuators_with_several_controls_are_refused(tmp_path):
    text = JOINT.format("", '<actuator><pid name="m" joint="a" kp="1"/></actuator>')
    robot = load_robot(write(tmp_path, text, "commands: {c: {actuators: [m], low: -1, high: 1}}"))
    with pytest.raises(ValueError, match=r"arm\.xml: 1 actuators take 2 controls; .*<position>"):
        robot_files.compiled(robot)


def test_a_general_actuator_inherits_if_it_is_a_position_servo(tmp_path):
    servo = '<general joint="h" biastype="affine" gainprm="9" biasprm="0 {} -1" inheritrange="1"/>'
    text = SERVOS.format("", "", servo)
    robot = load_robot(write(tmp_path, text.format("-9")))
    same_as_compiled(robot, robot_files.compiled(robot))
    assert robot.commands["ctrl_cmd"].high == pytest.approx((np.pi / 2,))
    with pytest.raises(RobotFileError, match="ctrlrange"):  # MuJoCo inherits nothing: there is no range
        load_robot(write(tmp_path, text.format("-8")))
    with pytest.raises(RobotFileError, match=r"<general>: biasprm: 1 numbers .*'x'"):
        load_robot(write(tmp_path, text.format("x")))


def test_names_that_are_taken_are_skipped(tmp_path):
    text = """<mujoco><worldbody><body><joint name="joint1"/><joint axis="1 0 0"/><joint axis="0 1 0"/>
        <geom size="0.1"/></body></worldbody><actuator><motor name="actuator1" joint="joint1" ctrlrange="-1 1"/>
        <motor joint="joint1" ctrlrange="-1 1"/><motor joint="joint1" ctrlrange="-1 1"/></actuator></mujoco>"""
    robot = load_robot(write(tmp_path, text))
    assert robot.sources["joint_pos"].names == ("joint1", "joint2", "joint3")
    assert robot.actuators["ctrl_cmd"] == ("actuator1", "joint1", "actuator2")
    same_as_compiled(robot, robot_files.compiled(robot))


def test_a_free_body_without_a_name_gets_one_and_is_the_base(tmp_path):
    text = """<mujoco><worldbody><body name="base" pos="1 0 0"><geom size="0.1"/></body><body pos="0 0 2">
        <freejoint/><geom size="0.1"/></body></worldbody></mujoco>"""
    robot = load_robot(write(tmp_path, text))
    assert robot.sources["base_pos_w"].names == ("base1",)
    robot_files.compiled(robot).body("base1")
    only = load_robot(write(tmp_path, text.replace('name="base" ', ""), "poses: {hull: base}", name="only.xml"))
    model = robot_files.compiled(only)
    assert model.body("base").pos.tolist() == [0, 0, 2] and only.sources["hull_pos_w"].names == ("base",)


def test_the_base_can_be_chosen_or_left_out(tmp_path):
    ball = '<body name="ball" pos="0 0 3"><freejoint/><geom size="0.1"/></body></worldbody>'
    two = FREE.replace("</worldbody>", ball)
    for beside, base in (("", "hull"), ("base: ball", "ball")):
        assert load_robot(write(tmp_path, two, beside)).sources["base_pos_w"].names == (base,)
    for beside in ("base: none", "base:"):
        assert not load_robot(write(tmp_path, two, beside)).signals
    sliding = load_robot(write(tmp_path, GOOD, "base: b"))  # on joints: read, not set
    assert backend.make(sliding, 1, "ctrl_cmd", dt=0.01).signals()["base_quat_w"].tolist() == [[1, 0, 0, 0]]


def test_delays_and_joint_dynamics_of_users_robots(tmp_path):
    """The history is room for a delay of each world; damping and the like are the parameters' nominal values."""
    beside = """
    commands: {c: {joints: [shoulder, elbow], kp: [400, 200], kd: 10, delay_steps: 10}}
    damping: 0.5
    armature: {elbow: 0.02}
    frictionloss: {shoulder: 0.3}
    home: {elbow: 1}"""
    robot = load_robot(write(tmp_path, URDF, beside, "arm.urdf"))
    sim = backend.make(robot, 2, "c", dt=0.002)
    wanted = {"damping": (0.5, 0.5), "armature": (0.0, 0.02), "frictionloss": (0.3, 0.0), "command_delay": (0.0,)}
    assert {name: sim.parameters[name].nominal for name in wanted} == wanted
    sim.set_params(torch.tensor([1]), {"command_delay": torch.tensor([0.02])})
    sim.step(torch.tensor([0.0, 1.0]).repeat(2, 1), 10)
    before = sim.signals()["joint_pos"].clone()
    sim.step(torch.tensor([1.0, 1.0]).repeat(2, 1), 9)
    moved = (sim.signals()["joint_pos"] - before)[:, 0]
    assert moved[0] > 0.01 and abs(float(moved[1])) < 0.2 * float(moved[0])
    with pytest.raises(ValueError, match=r"command_delay is at most 0\.02"):
        sim.set_params(torch.tensor([0]), {"command_delay": torch.tensor([0.03])})


def test_actuators_of_the_model_get_room_for_a_delay(tmp_path):
    robot = load_robot(write(tmp_path, GOOD, "commands: {c: {actuators: [m], delay_steps: 7}}"))
    assert robot_files.compiled(robot).actuator_history[0, 0] == 7
    assert "command_delay" in backend.make(robot, 1, "c", dt=0.01).parameters
    without = load_robot(write(tmp_path, GOOD, "", "without.xml"))
    assert "command_delay" not in backend.make(without, 1, "ctrl_cmd", dt=0.01).parameters


def test_excluded_pairs_do_not_touch(tmp_path):
    text = """<mujoco><worldbody>
        <body name="p"><joint name="a"/><geom size="0.1"/></body>
        <body name="q"><joint name="c"/><geom size="0.1"/></body></worldbody></mujoco>"""
    for beside, touching in (("", 1), ("exclude: [[p, q]]", 0)):
        model = robot_files.compiled(load_robot(write(tmp_path, text, beside)))
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        assert data.ncon == touching


# ---------------------------------------------------------------- joints that follow others

TIED = """<mujoco><worldbody><body name="b"><joint name="a" range="-90 90" ref="10"/><geom size="0.1" mass="1"/>
    <body pos="0 0 0.5"><joint name="b" range="-80 80" axis="0 1 0"/><geom size="0.1" mass="1"/></body></body>
    </worldbody><equality><joint joint1="{}" joint2="{}" polycoef="0.2 -1 0.5 0 0"/></equality></mujoco>"""


def moved(robot: RobotSpec, substeps: int = 20) -> float:
    """How far joints get from home without gravity, rad."""
    spec = robot_files.read(robot)
    spec.option.gravity = [0, 0, 0]
    model = spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, model.key("home").id)
    home = data.qpos.copy()
    mujoco.mj_step(model, data, substeps)
    return float(np.abs(data.qpos - home).max())


def test_home_of_mimic_joints_is_where_their_leaders_put_them(tmp_path):
    text = URDF.replace('lower="0.2" upper="2.5"', 'lower="-2" upper="2"').replace(
        'velocity="4"/>', 'velocity="4"/><mimic joint="shoulder" multiplier="-1" offset="0.2"/>')
    robot = load_robot(write(tmp_path, text, "home: {shoulder: 0.5}", "arm.urdf"))
    assert robot.home["joint_pos"] == pytest.approx((0.5, -0.3))
    model = robot_files.compiled(robot)
    assert model.key("home").qpos == pytest.approx([0.5, -0.3])
    assert moved(robot) < 1e-6
    alone = load_robot(write(tmp_path, text, "joints: [shoulder]\nhome: {shoulder: 0.5}", "alone.urdf"))
    assert robot_files.compiled(alone).key("home").qpos == pytest.approx([0.5, -0.3])  # signals or not


def test_home_of_joints_tied_by_an_equality_is_on_the_polynomial(tmp_path):
    robot = load_robot(write(tmp_path, TIED.format("b", "a"), "home: {a: 0.4}"))
    way = 0.4 - np.radians(10)
    assert robot.home["joint_pos"] == pytest.approx((0.4, 0.2 - way + 0.5 * way**2))
    assert robot_files.compiled(robot).key("home").qpos == pytest.approx(robot.home["joint_pos"])
    assert moved(robot) < 1e-6
    off = load_robot(write(tmp_path, TIED.format("b", "a").replace("<joint joint1", '<joint active="false" joint1'),
                           "home: {a: 0.4, b: 0.1}", "off.xml"))
    assert off.home["joint_pos"] == (0.4, 0.1)


def test_a_follower_of_a_follower_and_a_joint_held_alone(tmp_path):
    text = """<mujoco><compiler angle="radian"/><worldbody><body><joint name="x"/><joint name="y" axis="0 1 0"/>
        <joint name="z" axis="1 0 0"/><joint name="w" type="slide"/><geom size="0.1"/></body></worldbody><equality>
        <joint joint1="x" joint2="y" polycoef="0 2"/><joint joint1="y" joint2="z"/><joint joint1="w" polycoef="0.3"/>
        </equality></mujoco>"""
    robot = load_robot(write(tmp_path, text, "home: {z: 0.1}"))
    assert robot.home["joint_pos"] == pytest.approx((0.2, 0.1, 0.1, 0.3))
    assert robot_files.compiled(robot).key("home").qpos == pytest.approx(robot.home["joint_pos"])


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


MESHED = URDF.replace('<link name="upper">', """<link name="upper">
    <visual><geometry><mesh filename="package://arm_description/meshes/seen.dae"/></geometry></visual>
    <collision><geometry><mesh filename="package://arm_description/meshes/part.obj"/></geometry></collision>""")
TETRAHEDRON = "v 0 0 0\nv 0.1 0 0\nv 0 0.1 0\nv 0 0 0.1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"


def test_meshes_of_a_ros_package_are_found_above_or_where_the_yaml_says(tmp_path):
    package = tmp_path / "arm_description"
    for folder in ("urdf", "meshes"):
        (package / folder).mkdir(parents=True)
    (package / "meshes" / "part.obj").write_text(TETRAHEDRON)
    above = robot_files.compiled(load_robot(write(package / "urdf", MESHED, name="arm.urdf")))
    assert above.nmesh == 1 and above.ngeom == 1  # what is only to be seen is not loaded: MuJoCo's default for a URDF
    (tmp_path / "elsewhere").mkdir()
    package.rename(tmp_path / "renamed")
    name = write(tmp_path / "elsewhere", MESHED, "packages: {arm_description: ../renamed}", "arm.urdf")
    assert robot_files.compiled(load_robot(name)).nmesh == 1
    lost = write(tmp_path / "elsewhere", MESHED, name="lost.urdf")
    with pytest.raises(ValueError, match=r"lost\.urdf.*link name=\"upper\".*'arm_description'.*packages: "):
        robot_files.compiled(load_robot(lost))
    (tmp_path / "renamed" / "meshes" / "part.obj").unlink()
    with pytest.raises(ValueError, match=r"no file .*part\.obj; packages: "):
        robot_files.compiled(load_robot(name))


def test_a_urdf_can_keep_what_is_only_to_be_seen(tmp_path):
    seen = URDF.replace('<link name="upper">', '<link name="upper"><visual><geometry><box size="1 1 1"/></geometry>'
                                               '</visual>')
    kept = seen.replace('<robot name="two_link">', '<robot name="two_link"><mujoco><compiler discardvisual="false"/>'
                                                   '</mujoco>')
    counts = [robot_files.compiled(load_robot(write(tmp_path, text, name=f"{i}.urdf"))).ngeom
              for i, text in enumerate((seen, kept))]
    assert counts == [0, 1]


def test_the_root_link_of_a_urdf_can_be_excluded(tmp_path):
    robot = load_robot(write(tmp_path, URDF, "exclude: [[base, lower]]", "arm.urdf"))
    assert robot_files.compiled(robot).nexclude == 1


def test_poses_of_the_root_link_can_be_read(tmp_path):
    beside = BESIDE.replace("{grip: tool}", "{grip: tool, foot: base}")
    sim = backend.make(load_robot(write(tmp_path, URDF, beside, "arm.urdf")), 1, "joint_pos_cmd", dt=0.002)
    assert sim.signals()["foot_pos_w"].tolist() == [[0, 0, 0]]


def test_an_effort_of_zero_asks_for_strength(tmp_path):
    weak = URDF.replace('effort="40"', 'effort="0"')
    beside = "commands: {c: {joints: [shoulder], kp: 1%s}}"
    with pytest.raises(RobotFileError, match=r"name=\"shoulder\".*effort in the URDF is 0: give strength"):
        load_robot(write(tmp_path, weak, beside % "", "arm.urdf"))
    given = load_robot(write(tmp_path, weak, beside % ", strength: 3", "arm.urdf"))
    assert given.parameters["strength"].nominal == (3,)


def test_a_leader_that_is_not_there_is_named(tmp_path):
    text = URDF.replace('velocity="4"/>', 'velocity="4"/><mimic joint="wrist"/>')
    with pytest.raises(RobotFileError, match=r"name=\"elbow\">: <mimic>.*'wrist'"):
        load_robot(write(tmp_path, text, name="arm.urdf"))


# ---------------------------------------------------------------- a task for a user's robot


@pytest.fixture
def example(tmp_path, monkeypatch) -> dict[str, object]:
    """What the documentation's example defines, its files in place."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "adding-a-robot.md").read_text(encoding="utf-8")
    model, beside, code = re.findall(r"```\w+\n(.*?)```", page.split("## A task for it")[1], re.DOTALL)
    (tmp_path / "models").mkdir()
    write(tmp_path / "models", model, beside)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "arm_reach"}
    exec(compile(code, "docs/how-to/adding-a-robot.md", "exec"), names)
    return {**names, "code": code}


def test_the_task_in_the_documentation_is_one(example):
    """Its goals are where the tool can be, and some learning raises the reward."""
    task = example["make"]()
    env = make_env(task, num_worlds=64, seed=1)
    model = robot_files.compiled(task.robot)
    goal = task.initial(lambda stream, count: torch.full((1, count), 0.75))["goal_pos_w"][0]
    data = mujoco.MjData(model)
    data.qpos[:] = 0.5, 1.6
    mujoco.mj_forward(model, data)
    assert data.site("tool").xpos == pytest.approx(goal.tolist(), abs=1e-6)
    config = ppo_state.PPOConfig(total_steps=16_000, rollout_steps=25, gamma=0.95, learning_rate=1e-3)
    history = ppo.train(env, config, out=Path("run"), seed=1).history
    assert history[-1]["reward"] > history[0]["reward"] + 0.02


@pytest.mark.slow
def test_the_example_in_the_documentation_learns_its_task(example, capsys):
    exec(compile(example["code"], "docs/how-to/adding-a-robot.md", "exec"), {"__name__": "__main__"})
    said = capsys.readouterr().out
    assert int(re.search(r"last episodes: (\d+)%", said).group(1)) >= 80


# ---------------------------------------------------------------- wrong input

JOINT = '<mujoco><worldbody><body name="b"><joint name="a" {}/><geom size="0.1"/></body></worldbody>{}</mujoco>'
MOTOR = '<actuator><motor name="m" joint="a" {}/></actuator>'
GOOD = JOINT.format("", MOTOR.format('ctrlrange="-1 1"'))
FREE = '<mujoco><worldbody><body name="hull"><freejoint/><geom size="0.1"/></body></worldbody></mujoco>'


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
        (GOOD, "commands: {1: {actuators: [m]}}", ["arm.robot.yaml", "commands", "identifier", "1"]),
        (GOOD, "commands: {c: {joints: [], kp: 1}}", ["arm.robot.yaml", "commands.c", "drives nothing"]),
        (GOOD, "commands: {c: {actuators: []}}", ["arm.robot.yaml", "commands.c", "drives nothing"]),
        (GOOD, "commands: {c: {actuators: [m], kp: 1}}", ["commands.c", "kp is for joints"]),
        (GOOD, "commands: {c: {actuators: [m], high: 2}}", ['<motor name="m">', "2 is wider", "-1 to 1"]),
        (GOOD, "commands: {c: {actuators: [m], delay_steps: 1.5}}", ["commands.c", "delay_steps", "1.5"]),
        (GOOD, "commands: {c: {joints: [a], kp: .inf, strength: 1, low: 0, high: 1}}", ["commands.c.kp", "inf"]),
        (GOOD, "poses: {1: b}", ["arm.robot.yaml", "poses", "identifier", "1"]),
        (FREE, "poses: {base: hull}", ["arm.robot.yaml", "poses", "'base_pos_w'", "another name"]),
        (GOOD, "home: {a: true}", ['<joint name="a">', "number", "True"]),
        (GOOD, "home: {a: .nan}", ['<joint name="a">', "number", "nan"]),
        (GOOD, "damping: {b: 1}", ["damping", "'b'", "known: a"]),
        (GOOD, "armature: -1", ["armature", ">= 0", "-1", "'a'"]),
        (GOOD, "frictionloss: {a: yes}", ["frictionloss", "True"]),
        (GOOD, "base: hull", ["base", "'hull'", "known: b"]),
        (GOOD, "exclude: [b]", ["exclude", "[[a, b], ...]"]),
        (GOOD, "exclude: [[b, x]]", ["exclude", "'x'", "known: b"]),
        (GOOD, "packages: {rob: nowhere}", ["packages.rob", "no folder", "nowhere"]),
        (JOINT.format('range="1 1" limited="true"', ""), "", ['<joint name="a">', "'1 1'", "below"]),
        (TIED.format("b", "a"), "home: {b: 1}", ["home", "'b'", "follows 'a'", "give 'a' instead"]),
        (TIED.format("b", "a"), "commands: {c: {joints: [b], kp: 1, strength: 1, low: 0, high: 1}}",
         ["commands.c", "'b'", "follows 'a'", "give 'a' instead"]),
        (TIED.format("b", "a"), "home: {a: -1.5}", ['<joint name="b">', "not within", "follows 'a'", "give a"]),
        (TIED.format("b", "x"), "", ["joint1=\"b\"", "'x'", "no hinge or slide"]),
        (TIED.format("b", "b"), "", ["follow each other", "b -> b"]),
        (GOOD, "commands: {c: {joints: [a], kp: 1, ki: 2}}", ["commands.c", "'ki'", "kd"]),
        (GOOD, "commands: {c: {joints: [a], kp: [1, 2], strength: 1}}", ["commands.c.kp", "list of 1", "[1, 2]"]),
        (GOOD, "commands: {c: {joints: [a], kp: 1}}", ['<joint name="a">', "no effort is known", "give strength"]),
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
    code = ("import sys; from temporeal.robots.spec import load_robot; "
            f"robot = load_robot({str(ASSETS / 'ant.xml')!r}); "
            "print(robot.commands['ctrl_cmd'].size, 'torch' in sys.modules, 'mujoco' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["8", "False", "False"]
