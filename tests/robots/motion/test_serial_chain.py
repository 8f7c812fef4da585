"""The tool of any arm from its joints, read from its model file: as MuJoCo has it."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest

from temporeal.robots.frames import matrix
from temporeal.robots.model_files import RobotFileError
from temporeal.robots.motion.kinematics import KinematicsError, SerialChain, serial_chain
from temporeal.robots.spec import load_robot

# frames, classes, Euler angles of two kinds, several joints of one body, anchors, ref, an unnamed joint, a site's class
MJCF = """
<mujoco>
  <compiler angle="degree" eulerseq="zYx"/>
  <default>
    <default class="bent"><joint axis="0 1 1" pos="0.01 0.02 0.03"/><site pos="0 0 0.1" euler="10 20 30"/></default>
  </default>
  <worldbody>
    <body name="other"><joint name="aside" type="slide"/><geom size="0.1"/></body>
    <frame pos="0.1 0 0.5" axisangle="0 1 1 30">
      <body name="base" pos="0.2 0.1 0" quat="1 0.2 0.3 0.4" childclass="bent">
        <joint axis="1 0 0"/>
        <joint name="lift" type="slide" axis="0 0 2" ref="0.2"/>
        <geom size="0.1"/>
        <frame pos="0 0.3 0" zaxis="1 1 1">
          <joint name="framed"/>
          <body name="upper" pos="0.3 0 0" xyaxes="0 1 0 -1 0.1 0">
            <joint name="bend" ref="25"/>
            <geom size="0.1"/>
            <body name="lower" euler="15 25 35"><joint name="last" axis="0 0 1" pos="0 0 0"/><geom size="0.1"/>
              <site name="tip"/>
              <site name="rod" class="main" type="capsule" fromto="0 0 0 0.1 0.2 0.3" size="0.01"/>
            </body>
          </body>
        </frame>
      </body>
    </frame>
  </worldbody>
</mujoco>"""
# children listed first, a fixed tool, a slide, an axis that is not of length 1, an axis left out
LINK = """<link name="{}"><inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/>
  </inertial></link>"""
URDF = f"""
<robot name="arm">
  {"".join(LINK.format(name) for name in ("root", "turret", "rail", "hand", "tool0"))}
  <joint name="flange" type="fixed"><parent link="hand"/><child link="tool0"/>
    <origin xyz="0 0.1 0.2" rpy="1 2 3"/></joint>
  <joint name="roll" type="continuous"><parent link="rail"/><child link="hand"/><origin rpy="0.3 -0.2 0.5"/></joint>
  <joint name="reach" type="prismatic"><parent link="turret"/><child link="rail"/><axis xyz="0 2 1"/>
    <origin xyz="0.1 0.2 0.3" rpy="0.1 0.2 0.3"/><limit lower="-1" upper="1" effort="5" velocity="1"/></joint>
  <joint name="turn" type="revolute"><parent link="root"/><child link="turret"/><axis xyz="0 0 1"/>
    <origin xyz="0 0 1"/><limit lower="-1" upper="1" effort="5" velocity="1"/></joint>
</robot>"""


def against_mujoco(chain: SerialChain, model: mujoco.MjModel, place: str) -> None:
    """Poses and Jacobians of ``chain`` are those of the site or body ``place``."""
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    is_site = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, place) >= 0
    joints = [model.joint(name) for name in chain.joints]
    q = rng.uniform(-1, 1, (10, len(joints)))
    poses, jacobians = chain.forward(q), chain.jacobian(q)
    for k in range(len(q)):
        for joint, angle in zip(joints, q[k]):
            data.qpos[joint.qposadr[0]] = angle
        mujoco.mj_forward(model, data)
        linear, angular = np.zeros((3, model.nv)), np.zeros((3, model.nv))
        if is_site:
            mujoco.mj_jacSite(model, data, linear, angular, model.site(place).id)
        else:
            mujoco.mj_jacBody(model, data, linear, angular, model.body(place).id)
        at = data.site(place) if is_site else data.body(place)
        assert poses[k, :3, 3] == pytest.approx(at.xpos, abs=1e-9)
        assert poses[k, :3, :3] == pytest.approx(at.xmat.reshape(3, 3), abs=1e-9)
        dofs = [joint.dofadr[0] for joint in joints]
        assert jacobians[k] == pytest.approx(np.concatenate([linear, angular])[:, dofs], abs=1e-9)
        position, quat, velocity = chain(q[k], np.ones(len(joints)))
        assert position == pytest.approx(at.xpos) and velocity == pytest.approx(linear[:, dofs].sum(axis=1))
        assert matrix(quat) == pytest.approx(at.xmat.reshape(3, 3), abs=1e-9)


def test_franka():
    robot = load_robot("franka")
    chain = serial_chain(robot)
    assert chain.joints == robot.sources["joint_pos"].names and chain.columns == tuple(range(7))
    assert chain.fixed.shape == (8, 4, 4) and chain.axes.shape == (7, 3) and set(chain.kinds) == {"hinge"}
    against_mujoco(chain, mujoco.MjModel.from_xml_path(str(robot.model)), "grip")


@pytest.mark.parametrize("place", ["tip", "rod", "lower"])
def test_mjcf(tmp_path, place):
    robot = of(tmp_path / "arm.xml", MJCF, place)
    chain = serial_chain(robot)
    assert chain.joints == ("joint1", "lift", "framed", "bend", "last") and chain.kinds[1] == "slide"
    assert chain.columns == (1, 2, 3, 4, 5)  # joint 0 is another body's
    model = mujoco.MjSpec.from_string(MJCF)
    model.joints[1].name = "joint1"
    against_mujoco(chain, model.compile(), place)


def test_urdf(tmp_path):
    chain = serial_chain(of(tmp_path / "arm.urdf", URDF, "tool0"))
    assert chain.joints == ("turn", "reach", "roll")
    spec = mujoco.MjSpec.from_string(URDF)
    spec.compiler.fusestatic = False
    against_mujoco(chain, spec.compile(), "tool0")


def test_what_makes_no_chain(tmp_path):
    with pytest.raises(KinematicsError, match="leap_hand.*kind hand.*has no arm with a tool"):
        serial_chain(load_robot("leap_hand"))
    with pytest.raises(KinematicsError, match="no joint moves 'root'"):
        serial_chain(of(tmp_path / "a.urdf", URDF, "root"))
    with pytest.raises(KinematicsError, match="'tool0' moves with 'reach', which joint_pos has not: turn, roll"):
        serial_chain(of(tmp_path / "b.urdf", URDF, "tool0", "joints: [turn, roll]\n"))
    with pytest.raises(RobotFileError, match="hangs on a free joint"):
        serial_chain(of(tmp_path / "c.xml", '<mujoco><worldbody><body name="flying"><freejoint/><geom size="1"/>'
                        '<body name="neck"><joint name="nod"/><geom size="1"/></body></body>'
                        "</worldbody></mujoco>", "neck", "base: none\n"))
    with pytest.raises(KinematicsError, match="7 joints .fr3_joint1.*are needed, got .6,."):
        serial_chain(load_robot("franka")).forward(np.zeros(6))


def of(path: Path, text: str, place: str, more: str = ""):
    """The robot in a file with ``text``, whose tool is at ``place``."""
    path.write_text(text)
    path.with_suffix(".robot.yaml").write_text(f"poses: {{tool: {place}}}\ntool: tool\n{more}")
    return load_robot(path)
