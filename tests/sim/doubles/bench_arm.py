"""A small arm with a gripper, a cube and a drawer: the scene that the tests of Isaac's backends share."""

from __future__ import annotations

from pathlib import Path

from temporeal.robots.signals import CommandSpec, SignalSpec, schema
from temporeal.robots.spec import RobotSpec, Source
from temporeal.sim.scene import Object, Scene, box

JOINTS = ("turn", "lift", "bend", "left", "right")

ARM = """<mujoco model="bench_arm">
  <compiler angle="radian" autolimits="true"/>
  <option timestep="0.002" integrator="implicitfast"/>
  <default><position nsample="12"/></default>
  <worldbody>
    <body name="stand" pos="0.1 0 0.05" gravcomp="1">
      <inertial pos="0 0 0.02" mass="2" diaginertia="0.01 0.01 0.01"/>
      <geom type="cylinder" size="0.05 0.05"/>
      <body name="upper" pos="0 0 0.06" gravcomp="1">
        <inertial pos="0.01 0.02 0.1" mass="1" fullinertia="0.01 0.012 0.004 0.0005 0.0002 -0.0003"/>
        <joint name="turn" axis="0 0 1" range="-2 2" armature="0.05" damping="0.1"/>
        <geom type="capsule" size="0.03" fromto="0 0 0.02 0 0 0.2"/>
        <body name="fore" pos="0 0 0.25" quat="0.9238795 0 0.3826834 0" gravcomp="1">
          <inertial pos="0.1 0.01 0" mass="0.6" diaginertia="0.001 0.004 0.004"/>
          <joint name="lift" axis="0 1 0" pos="0 0 0.01" range="-2 2" armature="0.05" damping="0.1"/>
          <geom type="capsule" size="0.025" fromto="0.03 0 0 0.2 0 0"/>
          <body name="cover" pos="0.05 0 0.02"><geom type="box" size="0.01 0.01 0.01" mass="0"/></body>
          <body name="hand" pos="0.25 0 0" gravcomp="1">
            <inertial pos="0.02 0 0" mass="0.3" diaginertia="0.0005 0.0005 0.0005"/>
            <joint name="bend" axis="0 1 0" range="-2 2" armature="0.02" damping="0.05"/>
            <geom type="box" size="0.02 0.05 0.02"/>
            <site name="grip" pos="0.08 0 0" quat="0.7071068 0 0.7071068 0"/>
            <body name="left_finger" pos="0.03 0.005 0" gravcomp="1">
              <inertial pos="0.02 0.005 0" mass="0.05" diaginertia="0.00002 0.00002 0.00002"/>
              <joint name="left" type="slide" axis="0 1 0" range="0 0.04" armature="0.1" damping="20"/>
              <geom type="box" pos="0.03 0.006 0" size="0.03 0.005 0.01"/>
            </body>
            <body name="right_finger" pos="0.03 -0.005 0" gravcomp="1">
              <inertial pos="0.02 -0.005 0" mass="0.05" diaginertia="0.00002 0.00002 0.00002"/>
              <joint name="right" type="slide" axis="0 -1 0" range="0 0.04" armature="0.1" damping="20"/>
              <geom type="box" pos="0.03 -0.006 0" size="0.03 0.005 0.01"/>
            </body>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
  <contact><exclude body1="stand" body2="upper"/></contact>
  <tendon><fixed name="fingers"><joint joint="left" coef="0.5"/><joint joint="right" coef="0.5"/></fixed></tendon>
  <equality><joint joint1="right" joint2="left" polycoef="0 1 0 0 0" solref="0.004 1"/></equality>
  <actuator>
    <position name="lift" joint="lift" kp="200" kv="15" forcerange="-60 60" inheritrange="1"/>
    <position name="turn" joint="turn" kp="200" kv="15" forcerange="-60 60" inheritrange="1"/>
    <position name="bend" joint="bend" kp="80" kv="5" forcerange="-20 20" inheritrange="1"/>
    <position name="fingers" tendon="fingers" kp="2000" forcerange="-60 60" ctrlrange="0 0.04"/>
  </actuator>
  <keyframe><key name="home" qpos="0.2 0.3 0.4 0.03 0.03" ctrl="0.3 0.2 0.4 0.03"/></keyframe>
</mujoco>"""

DRAWER = """<mujoco><worldbody><body name="root">
  <inertial pos="0 0 0" mass="5" diaginertia="0.1 0.1 0.1"/>
  <geom name="case" type="box" size="0.1 0.1 0.02" pos="0 0 0.02"/>
  <body name="box" pos="0 0 0.08"><joint name="slide" type="slide" axis="1 0 0" range="0 0.2" damping="2"/>
    <geom name="box" type="box" size="0.08 0.08 0.02" mass="0.5"/></body>
</body></worldbody></mujoco>"""


def arm(folder: Path) -> RobotSpec:
    """The robot; its model is written to ``folder``."""
    path = folder / "bench_arm.xml"
    path.write_text(ARM)
    joints = JOINTS[:3]
    signals = schema(
        SignalSpec("joint_pos", (3,), "rad"), SignalSpec("joint_vel", (3,), "rad/s"),
        SignalSpec("finger_pos", (2,), "m"), SignalSpec("grip_pos_w", (3,), "m", "w"),
        SignalSpec("grip_quat_w", (4,), "wxyz", "w"), SignalSpec("grip_vel_w", (3,), "m/s", "w"),
        SignalSpec("grip_ang_vel_b", (3,), "rad/s", "b"), SignalSpec("joint_torque", (3,), "N m"),
        SignalSpec("finger_force", (2,), "N"), SignalSpec("cover_pos_w", (3,), "m", "w"))
    sources = {
        "joint_pos": Source("joint_pos", joints), "joint_vel": Source("joint_vel", joints),
        "finger_pos": Source("joint_pos", ("left", "right")), "grip_pos_w": Source("pos", ("grip",)),
        "grip_quat_w": Source("quat", ("grip",)), "grip_vel_w": Source("lin_vel", ("grip",)),
        "grip_ang_vel_b": Source("ang_vel_b", ("grip",)), "joint_torque": Source("joint_torque", joints),
        "finger_force": Source("contact_force", ("left_finger", "right_finger")),
        "cover_pos_w": Source("pos", ("cover",))}
    command = CommandSpec("joint_pos_cmd", (4,), "rad", low=(-2, -2, -2, 0), high=(2, 2, 2, 0.04))
    return RobotSpec("bench_arm", "arm", signals, {"joint_pos_cmd": command}, {}, {}, model=path, sources=sources,
                     actuators={"joint_pos_cmd": (*joints, "fingers")})


def drawer() -> Object:
    """A drawer that slides out of its case."""
    signals = schema(SignalSpec("drawer_pos", (1,), "m"), SignalSpec("drawer_vel", (1,), "m/s"))
    slide = ("drawer.slide",)
    sources = {"drawer_pos": Source("joint_pos", slide), "drawer_vel": Source("joint_vel", slide)}
    return Object("drawer", DRAWER, (-0.5, 0.2, 0.0), signals=signals, sources=sources)


def cube(pos: tuple[float, float, float] = (0.45, 0.0, 0.02)) -> Object:
    """A cube of 4 cm and 100 g."""
    return box("cube", (0.02, 0.02, 0.02), mass=0.1, pos=pos, condim=3)


def table() -> Object:
    """A block that does not move."""
    return box("table", (0.1, 0.1, 0.02), mass=1.0, pos=(0.0, -0.6, 0.02), free=False)


def scene(folder: Path, *objects: Object) -> Scene:
    """The arm among objects, by default a cube, a drawer and a table."""
    return Scene(arm(folder), objects or (cube(), drawer(), table()))
