"""The MuJoCo Warp backend on Warp's CPU device: agreement with MuJoCo's C engine, isolation of worlds, exact resume.

One small scene for all tests: Warp compiles kernels per kind of model (tens of seconds the first time, then cached).
"""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch

pytest.importorskip("mujoco.batch", reason="needs mujoco >= 3.17")
pytest.importorskip("mujoco_warp", reason="needs mujoco-warp")

from robots.registry import UnknownName
from robots.signals import CommandSpec, SignalSpec, schema
from robots.spec import RobotSpec, Source, load_robot
from sim.backends import mjcf, warp_room
from sim.backends import mujoco as engine
from sim.backends import mujoco_warp as backend
from sim.capabilities import MissingCapability
from sim.scene import Scene, box

DT = 0.002
ARM = """<mujoco model="two_links"><option integrator="implicitfast"{option}/>
<worldbody>
  <body name="upper" pos="0 0 0.6">
    <joint name="j1" axis="0 1 0" range="-2 2" limited="true" damping="0.5" armature="0.02" frictionloss="0.05"/>
    <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03" mass="1"/>
    <body name="lower" pos="0.3 0 0">
      <joint name="j2" axis="0 1 0" range="-2 2" limited="true" damping="0.3" armature="0.01"/>
      <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03" mass="0.5"/>
      <site name="tip" pos="0.3 0 0"/>
    </body>
  </body>
</worldbody>
<actuator>
  <position name="a1" joint="j1" kp="60" kv="4" forcerange="-30 30" ctrlrange="-2 2" delay="0.004" nsample="12"/>
  <position name="a2" joint="j2" kp="40" kv="2" forcerange="-20 20" ctrlrange="-2 2" delay="0.004" nsample="12"/>
</actuator>
<keyframe><key name="home" qpos="0.3 0.4" ctrl="0.3 0.4"/></keyframe></mujoco>"""
JOINTS, MOTORS = ("j1", "j2"), ("a1", "a2")
SOURCES = {
    "joint_pos": Source("joint_pos", JOINTS), "joint_vel": Source("joint_vel", JOINTS),
    "joint_torque": Source("joint_torque", JOINTS), "tip_pos_w": Source("pos", ("tip",)),
    "tip_vel_w": Source("lin_vel", ("tip",)), "push": Source("contact_force", ("cube.root",)),
}  # fmt: skip
SIGNALS = schema(
    SignalSpec("joint_pos", (2,), "rad"), SignalSpec("joint_vel", (2,), "rad/s"),
    SignalSpec("joint_torque", (2,), "N m"), SignalSpec("tip_pos_w", (3,), "m", "w"),
    SignalSpec("tip_vel_w", (3,), "m/s", "w"), SignalSpec("push", (1,), "N"),
)  # fmt: skip


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    return Scene(robot(tmp_path_factory), (box("cube", (0.04, 0.05, 0.03), mass=0.2, pos=(1.0, 0.0, 0.03)),))


def robot(tmp_path_factory, option=""):
    model = tmp_path_factory.mktemp("arm") / "arm.xml"
    model.write_text(ARM.format(option=option))
    command = CommandSpec("joint_pos_cmd", (2,), "rad", low=(-2.0, -2.0), high=(2.0, 2.0))
    return RobotSpec("two_links", "arm", SIGNALS, {"joint_pos_cmd": command}, {}, {"joint_pos": (0.3, 0.4)},
                     model=model, sources=SOURCES, actuators={"joint_pos_cmd": MOTORS})


@pytest.fixture(scope="module")
def sims(scene):
    """Four worlds in Warp and in C: shared by tests, which reset all of both and undo their parameters."""
    return warp(scene), engine.make(scene, 4, "joint_pos_cmd", dt=DT, threads=1)


@pytest.fixture(scope="module")
def other(scene):
    """Another Warp backend of the same size."""
    return warp(scene)


def warp(scene, n=4, **kw):
    return backend.make(scene, n, "joint_pos_cmd", dt=DT, **kw)


def every(sim):
    return torch.arange(sim.num_worlds)


def random_state(n, seed=0):
    """The cube a little above, on, or pressed into the floor, turned and moving; joints within and near their limits."""
    g = torch.Generator().manual_seed(seed)
    uniform = lambda k, r: (2 * torch.rand(n, k, generator=g) - 1) * r  # noqa: E731
    tilt = torch.cat([torch.ones(n, 1), uniform(2, 0.02), uniform(1, 1.0)], 1)
    height = torch.tensor([0.0298, 0.0299, 0.2, 0.0305]).repeat(n // 4 + 1)[:n, None]
    return {
        "joint_pos": uniform(2, 1.9), "joint_vel": uniform(2, 3.0),
        "cube_pos_w": torch.cat([1.0 + uniform(2, 0.2), height], 1),
        "cube_quat_w": torch.nn.functional.normalize(tilt, dim=1), "cube_vel_w": uniform(3, 0.3),
        "cube_ang_vel_w": uniform(3, 1.0),
    }  # fmt: skip


def settable(sim):
    """Start signals: the angular velocity of a free body is set in the body's frame."""
    return set(sim.model.writes)


def start(sim, state):
    sim.reset(every(sim), {name: value for name, value in state.items() if name in settable(sim)})


def nominal(sim):
    """All parameters as in the model (in float64: 0.004 s in float32 is a little more than two steps of 2 ms)."""
    values = {n: torch.tensor([p.nominal], dtype=torch.float64).repeat(sim.num_worlds, 1) for n, p in sim.parameters.items()}
    sim.set_params(every(sim), values)


def commands(n, steps, seed=5):
    return 2 * torch.rand(steps, n, 2, generator=torch.Generator().manual_seed(seed)) - 1


def snapshot(sim):
    return {name: value.clone() for name, value in sim.signals().items()}


def run(sim, plan, substeps=2):
    out = []
    for ctrl in plan:
        sim.step(ctrl, substeps)
        out.append(snapshot(sim))
    return out


def same(a, b, worlds=slice(None)):
    return all(torch.equal(a[name][worlds], b[name][worlds]) for name in a)


SCALE = {"joint_torque": 30.0, "push": 2.0, "joint_vel": 3.0, "tip_vel_w": 3.0, "cube_ang_vel_w": 3.0}


def assert_close(ours, theirs, tolerance):
    for name, value in ours.items():
        error = (value - theirs[name]).abs().max().item() / SCALE.get(name, 1.0)
        assert error < tolerance, f"{name}: {error}"


# --- agreement with MuJoCo's C engine


def test_signals_after_a_reset_are_those_of_c(sims):
    ours, theirs = sims
    state = random_state(4)
    for sim in sims:
        start(sim, state)
    a, b = ours.signals(), theirs.signals()
    assert list(a) == list(b) and all(v.dtype == torch.float32 for v in a.values())
    assert_close(a, b, 1e-5)
    assert a["joint_pos"].tolist() == state["joint_pos"].tolist()


@pytest.mark.parametrize("seed", range(4))
def test_single_steps_agree_with_c_from_the_same_states(sims, seed):
    for sim in sims:
        start(sim, random_state(4, seed))
        sim.step(commands(4, 1, seed)[0], 1)
    assert_close(sims[0].signals(), sims[1].signals(), 2e-4)


def test_a_falling_then_resting_cube_agrees_with_c(sims):
    """Free fall from 2 cm, impact, rest: positions within 0.1 mm of C, weight carried by the floor."""
    for sim in sims:
        start(sim, {"cube_pos_w": torch.tensor([[1.0, 0.0, 0.05]]).repeat(4, 1)})
        for _ in range(30):
            sim.step(torch.tensor([[0.3, 0.4]]).repeat(4, 1), 10)
    a, b = (sim.signals() for sim in sims)
    assert (a["cube_pos_w"] - b["cube_pos_w"]).abs().max() < 1e-4
    assert a["push"].numpy() == pytest.approx(0.2 * 9.81, rel=0.02)


# --- parameters

CHANGES = {
    "mass": [1.4, 0.4], "inertia": [3.0], "com": [0.2, 0.0, 0.02], "friction": [0.3], "damping": [2.0, 0.1],
    "armature": [0.1, 0.03], "frictionloss": [0.5, 0.2], "kp": [30.0, 90.0], "kd": [1.0, 5.0], "strength": [2.0, 1.0],
    "command_delay": [0.012], "gravity_w": [1.0, 0.5, -5.0], "cube.mass": [0.5], "cube.inertia": [4.0],
    "cube.com": [0.01, 0.0, 0.005], "cube.friction": [1.8], "cube.force_w": [0.4, -0.3, 0.5],
    "cube.torque_w": [0.002, 0.01, -0.004],
}  # fmt: skip


def changed(sim, name):
    """The values of ``CHANGES``; factors of the nominal ones for inertia, the same for all where there are too few."""
    plain, value = np.array(sim.parameters[name].nominal), np.array(CHANGES[name])
    if name.endswith("inertia"):
        return torch.tensor(plain * value)
    return torch.tensor(np.resize(value, plain.shape))


def test_every_parameter_of_the_scene_is_tried(sims):
    assert set(sims[0].parameters) == set(sims[1].parameters) == set(CHANGES)


@pytest.fixture(scope="module")
def plain(sims):
    for sim in sims:
        nominal(sim)
        start(sim, random_state(4, 2))
    return [run(sim, commands(4, 4), 3) for sim in sims]


@pytest.mark.parametrize("name", CHANGES)
def test_parameter_takes_effect_in_its_world_alone_and_as_in_c(sims, plain, name):
    ours = []
    for sim in sims:
        value = changed(sim, name)
        for world in (0, 3):
            sim.set_params(torch.tensor([world]), {name: value[None]})
        start(sim, random_state(4, 2))
        ours.append(run(sim, commands(4, 4), 3))
        got = sim.params()[name][0].reshape(-1)
        nominal(sim)
        torch.testing.assert_close(got, value.float().reshape(-1))
    rest, effect = [1, 2], [0, 3]
    assert all(same(a, b, rest) for a, b in zip(ours[0], plain[0]))
    assert name == "friction" or not same(ours[0][-1], plain[0][-1], effect)  # nothing touches the arm here
    assert_close(ours[0][0], ours[1][0], 1e-3)
