"""A small arm of two joints in the vertical plane, and logs of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from temporeal.robots.signals import CommandSpec, SignalSpec, schema
from temporeal.robots.spec import RobotSpec, Source, cautious_motion
from temporeal.sim.identification.joints.synthetic import Runs, runs

ARM = """<mujoco model="two_links"><compiler angle="radian"/><option integrator="implicitfast"/><worldbody>
<body name="upper" pos="0 0 0.6">
<joint name="j1" axis="0 1 0" range="-2 2" limited="true" damping="0.2" armature="0.02" frictionloss="0.1"/>
<inertial pos="0.15 0 0" mass="1" diaginertia="0.002 0.01 0.01"/>
<body name="lower" pos="0.3 0 0">
<joint name="j2" axis="0 1 0" range="-2 2" limited="true" damping="0.1" armature="0.01" frictionloss="0.05"/>
<inertial pos="0.15 0 0" mass="0.5" diaginertia="0.001 0.005 0.005"/><site name="tip" pos="0.3 0 0"/>
</body></body></worldbody><actuator>
<position name="a1" joint="j1" kp="60" kv="4" forcerange="-30 30" ctrlrange="-2 2" nsample="20"/>
<position name="a2" joint="j2" kp="40" kv="2" forcerange="-20 20" ctrlrange="-2 2" nsample="20"/>
</actuator><keyframe><key name="home" qpos="0.3 0.4" ctrl="0.3 0.4"/></keyframe></mujoco>"""
JOINTS, STEP, EVERY = ("j1", "j2"), 0.01, 0.04


def two_links(folder: Path) -> RobotSpec:
    """The arm, whose model file is written to ``folder``."""
    model = folder / "arm.xml"
    model.write_text(ARM)
    low, high = (-2.0, -2.0), (2.0, 2.0)
    signals = schema(
        SignalSpec("joint_pos", (2,), "rad"), SignalSpec("joint_vel", (2,), "rad/s"),
        SignalSpec("joint_torque", (2,), "N m"), SignalSpec("tip_pos_w", (3,), "m", "w"))
    command = CommandSpec("joint_pos_cmd", (2,), "rad", low=low, high=high)
    return RobotSpec(
        "two_links", "arm", signals, {"joint_pos_cmd": command}, {},
        {"joint_pos": (0.3, 0.4)}, model=model, actuators={"joint_pos_cmd": ("a1", "a2")}, tool="tip",
        sources={"joint_pos": Source("joint_pos", JOINTS), "joint_vel": Source("joint_vel", JOINTS),
                 "joint_torque": Source("joint_torque", JOINTS), "tip_pos_w": Source("pos", ("tip",))},
        motion=cautious_motion((6.0, 6.0), low, high, (30.0, 20.0)))


def setpoints(seconds: float, speed: float = 1.0) -> np.ndarray:
    """[K, 2] about home, sines of several frequencies and of a slow sweep; ``speed``: of all of them."""
    at = np.arange(int(seconds / EVERY)) * EVERY * speed
    sines = [sum(size * np.sin(2 * np.pi * hz * at + phase) for size, hz, phase in parts) for parts in (
        ((0.15, 0.17, 0.0), (0.06, 0.9, 0.4), (0.02, 2.7, 1.0)),
        ((0.2, 0.13, 1.0), (0.08, 1.1, 0.0), (0.02, 3.1, 0.3)))]
    return np.array([0.3, 0.4]) + np.stack(sines, 1) * np.minimum(at, 1.0)[:, None]


def logged(folder: Path, seed: int = 0, *, seconds: float = 8.0, speed: float = 1.0, effort: bool = False,
           count: int = 1, fixed: Mapping[str, float] | None = None) -> Runs:
    """Robots of the prior along the setpoints."""
    return runs(two_links(folder), setpoints(seconds, speed), EVERY, count, seed, step=STEP, each=5, effort=effort,
                fixed=fixed)
