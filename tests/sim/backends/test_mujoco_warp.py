"""The MuJoCo Warp backend on Warp's CPU device: agreement with MuJoCo's C engine, isolation of worlds, exact resume.

One small scene for all tests: Warp compiles kernels per kind of model (tens of seconds the first time, then cached).
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from types import SimpleNamespace

import mujoco
import numpy as np
import pytest
import torch

pytest.importorskip("mujoco_warp", reason="needs mujoco-warp")

import warp as wp

from temporeal.robots.registry import UnknownName
from temporeal.robots.signals import CommandSpec, SignalSpec, schema
from temporeal.robots.spec import RobotSpec, Source, load_robot
from temporeal.sim.backends import mujoco as engine
from temporeal.sim.backends import mujoco_warp as backend
from temporeal.sim.capabilities import MissingCapability
from temporeal.sim.compiler.warp_graphs import Graphs
from temporeal.sim.physics.warp import capacity
from temporeal.sim.scene import Scene, box

pytestmark = pytest.mark.slow  # two minutes of compiling, where no kernel is kept yet
DT = 0.002
ARM = """<mujoco model="two_links"><option integrator="{integrator}"{option}/>
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


def robot(tmp_path_factory, option="", integrator="implicitfast"):
    model = tmp_path_factory.mktemp("arm") / "arm.xml"
    model.write_text(ARM.format(option=option, integrator=integrator))
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
    """The cube above, on, or pressed into the floor, turned and moving; joints within and near their limits."""
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
    """Signals that a reset takes."""
    return set(sim.model.writes)


def start(sim, state):
    sim.reset(every(sim), {name: value for name, value in state.items() if name in settable(sim)})


def nominal(sim):
    """All parameters as in the model (in float64: 0.004 s in float32 is a little more than two steps of 2 ms)."""
    n = sim.num_worlds
    sim.set_params(every(sim), {name: torch.tensor([p.nominal], dtype=torch.float64).repeat(n, 1)
                                for name, p in sim.parameters.items()})


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
        for _ in range(15):
            sim.step(torch.tensor([[0.3, 0.4]]).repeat(4, 1), 10)
    a, b = (sim.signals() for sim in sims)
    assert (a["cube_pos_w"] - b["cube_pos_w"]).abs().max() < 1e-4
    assert a["push"].numpy() == pytest.approx(0.2 * 9.81, rel=0.02)


def test_boxes_on_boxes_agree_with_c(scene):
    """Turned by 30 degrees on each other: as many contacts as in C, where Warp's general routine keeps four at most."""
    both = Scene(scene.robot, (*scene.objects, box("top", (0.04, 0.04, 0.03), mass=0.1, pos=(1.0, 0.0, 0.089))))
    sims = [warp(both, 2), engine.make(both, 2, "joint_pos_cmd", dt=DT, threads=1)]
    begin = {"top_quat_w": torch.tensor([[0.965926, 0.0, 0.0, 0.258819]]).repeat(2, 1),
             "cube_pos_w": torch.tensor([[1.0, 0.0, 0.0295]]).repeat(2, 1)}  # fmt: skip
    for sim in sims:
        sim.reset(every(sim), begin)
    data = mujoco.MjData(sims[1].model.mj)
    data.qpos[:] = sims[1].views()["qpos"][0]
    mujoco.mj_forward(sims[1].model.mj, data)
    for sim in sims:
        sim.reset(every(sim), {**begin, "top_vel_w": torch.tensor([[0.1, 0.0, 0.0], [0.0, 0.2, 0.1]])})
        sim.step(torch.tensor([[0.3, 0.4]]).repeat(2, 1), 1)
    assert_close(sims[0].signals(), sims[1].signals(), 1e-3)  # pressed in by 0.5 mm: forces far above SCALE
    assert int(sims[0].simulation.d.nacon.numpy()[0]) == 2 * data.ncon == 2 * (4 + 8)


# --- parameters

CHANGES = {
    "mass": [1.4, 0.4], "inertia": [3.0], "com": [0.2, 0.0, 0.02], "friction": [0.3], "damping": [2.0, 0.1],
    "armature": [0.1, 0.03], "frictionloss": [0.5, 0.2], "kp": [30.0, 90.0], "kd": [1.0, 5.0], "strength": [2.0, 1.0],
    "command_delay": [0.012], "gravity_w": [1.0, 0.5, -5.0], "cube.mass": [0.5], "cube.inertia": [4.0],
    "cube.com": [0.01, 0.0, 0.005], "cube.friction": [1.8], "cube.force_w": [0.4, -0.3, 0.5],
    "cube.torque_w": [0.002, 0.01, -0.004], "tip.force_w": [3.0, 2.0, -5.0], "tip.torque_w": [0.2, 0.3, -0.4],
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


def test_delay_holds_late_in_an_episode(sims):
    """In float32 a time of 100 s is known to 8 microseconds: the delayed sample must be the one of the start."""
    sim = sims[0]
    nominal(sim)
    delays = torch.tensor([0.0, 0.004, 0.006, 0.018])
    sim.set_params(every(sim), {"command_delay": delays})
    start(sim, random_state(4, 3))
    early = run(sim, commands(4, 12), 1)
    start(sim, random_state(4, 3))
    state = sim.state()
    state["time"] += 100.0
    history = state["history"].view(4, 2, 26)  # two buffers: free number, cursor, 12 times, 12 values
    history[:, :, 2:14] += 100.0
    sim.set_state(state)
    late = run(sim, commands(4, 12), 1)
    nominal(sim)
    torch.testing.assert_close(late[-1]["joint_vel"], early[-1]["joint_vel"], rtol=0, atol=1e-6)


def test_zero_delay_acts_at_once_and_a_longer_one_later(sims):
    sim = sims[0]
    delays = [0.0, 0.002, 0.008, 0.02]
    sim.set_params(every(sim), {"command_delay": torch.tensor(delays)})
    start(sim, {})
    torques = torch.stack([out["joint_torque"][:, 0] for out in run(sim, [torch.full((4, 2), 1.0)] * 13, 1)])
    nominal(sim)
    # a jump of the setpoint by 0.7 rad at 60 N m/rad asks for the full 30 N m, in the first step that sees it
    first = [int((torque.abs() > 29.0).nonzero()[0]) for torque in torques.T]
    assert first == [0, 1, 4, 10]


# --- worlds do not touch each other; results do not depend on their number


def test_reset_touches_its_worlds_alone(sims, other):
    sim = sims[0]
    for s in (sim, other):
        start(s, random_state(4, 7))
        run(s, commands(4, 3))
    before = snapshot(sim)
    sim.reset(torch.tensor([2, 0]), {"joint_pos": torch.tensor([[0.5, -0.5], [0.1, 0.2]])})
    assert same(before, sim.signals(), [1, 3])
    assert sim.signals()["joint_pos"][[2, 0]].flatten().tolist() == pytest.approx([0.5, -0.5, 0.1, 0.2])
    after = [run(s, commands(4, 3, seed=8)) for s in (sim, other)]
    assert all(same(a, b, [1, 3]) and not same(a, b, [0, 2]) for a, b in zip(*after))


def test_reset_world_is_as_new(sims, other):
    """Nothing of the past is left: warm start, delayed commands, time."""
    sim = sims[0]
    start(sim, random_state(4, 1))
    run(sim, commands(4, 5))
    for s in (sim, other):
        start(s, random_state(4, 2))
    assert all(same(a, b) for a, b in zip(*(run(s, commands(4, 5, 3)) for s in (sim, other))))


def test_world_gives_the_same_bits_whatever_their_number(scene, sims):
    state, plan = random_state(4, 4), commands(4, 6)
    few, many = warp(scene, 1), sims[0]
    start(many, state)
    few.reset(every(few), {k: v[1:2] for k, v in state.items() if k in settable(few)})
    for a, b in zip(run(few, [c[1:2] for c in plan], 3), run(many, plan, 3)):
        assert same({k: v[0] for k, v in a.items()}, {k: v[1] for k, v in b.items()})
    assert "deterministic" in few.capabilities


@pytest.mark.parametrize("how", ["state", "huge speed", "command"])
def test_bad_world_is_flagged_frozen_and_leaves_the_others_alone(sims, other, how):
    sim, plan = sims[0], commands(4, 6)
    for s in (sim, other):
        start(s, random_state(4, 6))
        run(s, plan[:2])
    before = snapshot(sim)
    if how == "command":
        plan[2][1, 0] = float("nan")
    else:
        sim.views()["qvel"][1, 0] = float("nan") if how == "state" else 1e12
    ours, theirs = run(sim, plan[2:]), run(other, torch.nan_to_num(plan[2:]))
    assert all(same(a, b, [0, 2, 3]) for a, b in zip(ours, theirs))
    assert sim.status().bad.tolist() == sim.bad.tolist() == [False, True, False, False]
    assert all(same(before, out, [1]) for out in ours)
    assert all(torch.isfinite(v).all() for v in sim.signals().values())
    sim.reset(torch.tensor([1]), {})
    assert not sim.status().bad.any()
    run(sim, commands(4, 2))
    assert not sim.status().bad.any()


# --- state


def test_resume_is_bit_exact(sims, other):
    sim = sims[0]
    start(sim, random_state(4, 9))
    values = {"cube.mass": torch.tensor([0.4, 0.1]), "command_delay": torch.tensor([0.01, 0.0])}
    sim.set_params(torch.tensor([1, 2]), values)
    run(sim, commands(4, 5))
    ctrl = torch.full((4, 2), 0.1)
    ctrl[3] = float("nan")
    sim.step(ctrl, 2)
    state = {name: value.clone() for name, value in sim.state().items()}
    other.set_state(state)
    assert same(sim.signals(), other.signals()) and same(sim.params(), other.params())
    assert torch.equal(sim.status().bad, other.status().bad)
    assert all(same(a, b) for a, b in zip(*(run(s, commands(4, 5, 11)) for s in (sim, other))))
    sim.set_state(state)  # back in time
    assert same(sim.state(), state)
    for s in (sim, other):
        nominal(s)


def test_state_of_one_world_continues_alone(scene, sims):
    sim, alone = sims[0], warp(scene, 1)
    start(sim, random_state(4, 9))
    sim.set_params(torch.tensor([2]), {"mass": torch.tensor([[2.0, 0.2]])})
    plan = commands(4, 6)
    run(sim, plan[:3])
    alone.set_state(sim.extract(2, before=True))
    alone.step(plan[2][2:3], 2)
    assert same({k: v[2:3] for k, v in sim.signals().items()}, alone.signals())
    alone.set_state(sim.extract(2))
    for a, b in zip(run(sim, plan[3:]), run(alone, plan[3:, 2:3])):
        assert same({k: v[2:3] for k, v in a.items()}, b)
    nominal(sim)


def test_state_before_a_step_needs_one(scene):
    with pytest.raises(ValueError, match="no step has been made"):
        warp(scene, 1).extract(0, before=True)


# --- capacity


def test_too_little_capacity_is_told_and_counted(scene):
    sim = warp(scene, 2, constraints=6)
    up = torch.tensor([[1.0, 0.0, 1.0], [1.0, 0.0, 0.0295]])
    sim.reset(every(sim), {"cube_pos_w": up})  # four contacts of the cube need more than six rows
    sim.step(torch.full((2, 2), 0.3), 1)
    with pytest.warns(UserWarning, match="contacts or constraints of 1 worlds had no room"):
        status = sim.status()
    assert status.overflow.tolist() == [False, True] and status.warnings["nefc"] == 1
    sim.reset(torch.tensor([1]), {"cube_pos_w": up[:1]})
    assert not sim.status().overflow.any() and sim.status().warnings["nefc"] == 1


def test_measured_capacity_holds_what_c_meets(scene, sims):
    """... in plays that were not measured, and not more than a few times that."""
    model, limits = sims[0].model, sims[0].simulation.capacity
    data, rng = mujoco.MjData(model.mj), np.random.default_rng(123)
    contacts = rows = 0
    for _ in range(6):
        capacity.start(model, data, rng, capacity.ANYWHERE)
        for step in range(200):
            data.ctrl[:] = capacity.command(model, data, rng) if step % 20 == 0 else data.ctrl
            mujoco.mj_step(model.mj, data)
            contacts, rows = max(contacts, data.ncon), max(rows, data.nefc)
    assert 4 <= contacts <= limits.contacts <= 40 and 4 * 4 <= rows <= limits.constraints <= 120
    assert limits.convex == 0  # a plane and capsules: all in closed form but capsule and box, which is, too


def test_given_capacity_replaces_the_measured_one():
    limits = capacity.Capacity(contacts=40, convex=20, constraints=100)
    assert limits.given(0, 0) == limits
    assert limits.given(80, 0) == capacity.Capacity(80, 40, 100)  # the share of shapes that need iterations stays
    assert limits.given(10, 30) == capacity.Capacity(10, 10, 30)


def test_candidate_pairs_are_those_of_the_filters(sims):
    """The floor far away, the lower link near: no candidates; the cube inside the lower link's box: one."""
    model = sims[0].model
    data, pairs = mujoco.MjData(model.mj), capacity.pairs_of(model.mj)
    names = {(int(a), int(b)) for a, b in zip(pairs.first, pairs.second)}
    assert len(names) == 5  # floor with three, cube with two; neighbours in the arm are left out
    data.qpos[:] = model.home_qpos
    data.qpos[2:5] = (5.0, 0.0, 3.0)
    mujoco.mj_forward(model.mj, data)
    assert capacity.candidates(model.mj, data, pairs).sum() == 0
    data.qpos[2:5] = data.site("tip").xpos
    mujoco.mj_forward(model.mj, data)
    assert capacity.candidates(model.mj, data, pairs).sum() == 1


# --- what runs as a graph on a GPU


def test_rehearsal_leaves_nothing_behind(sims):
    sim = sims[0]
    start(sim, random_state(4, 3))
    run(sim, commands(4, 2))
    state = {name: value.clone() for name, value in sim.state().items()}
    sim.simulation._rehearse(lambda: sim.simulation._advance(2))
    assert same(sim.state(), state)


def test_step_does_not_wait_for_the_device(sims, monkeypatch):
    sim = sims[0]
    start(sim, random_state(4, 3))
    ctrl = commands(4, 1)[0]

    def forbidden(*_, **__):
        raise AssertionError("this waits for the device")

    for name in ("item", "cpu", "nonzero", "tolist", "__bool__", "numpy"):
        monkeypatch.setattr(torch.Tensor, name, forbidden)
    sim.step(ctrl, 2)
    sim.signals()


def test_graphs_are_recorded_once_and_again_when_an_array_was_replaced(scene, monkeypatch):
    """Recording and launching themselves need a GPU; when they happen does not."""
    sim, calls = warp(scene, 2), []

    class Recorder:
        torch_device = sim.device
        known: set = set()

        def run(self, key, work, rehearse):
            calls.append((key, key in self.known))
            self.known.add(key)
            work()

        def drop(self):
            self.known.clear()

    monkeypatch.setattr(sim.simulation, "graphs", Recorder())
    ctrl = torch.zeros(2, 2)
    sim.step(ctrl, 2), sim.step(ctrl, 2), sim.step(ctrl, 3)
    sim.set_params(torch.tensor([0]), {"damping": torch.ones(1, 2)})  # the first time: new memory
    sim.step(ctrl, 2)
    sim.set_params(torch.tensor([1]), {"damping": torch.ones(1, 2)})
    sim.step(ctrl, 2)
    step2, step3 = ("step", 2), ("step", 3)
    assert calls == [(step2, False), (step2, True), (step3, False), (step2, False), (step2, True)]


def test_signals_and_views_are_the_simulators_memory(sims):
    sim = sims[0]
    start(sim, {})
    assert sim.signals()["joint_pos"].data_ptr() == sim.signals()["joint_pos"].data_ptr()
    sim.views()["xfrc_applied"][1, sim.model.groups[1].root, 2] = 0.2 * 9.81 + 0.2 * 2.0
    start_z = sim.signals()["cube_pos_w"][:, 2].clone()
    for _ in range(5):
        sim.step(torch.tensor([[0.3, 0.4]]).repeat(4, 1), 10)
    rise = sim.signals()["cube_pos_w"][:, 2] - start_z
    assert rise[1].item() == pytest.approx(0.5 * 2.0 * 0.1**2, rel=0.05) and rise[0].abs() < 1e-3


# --- what is refused


def test_what_is_refused(scene, tmp_path_factory):
    with pytest.raises(ValueError, match="quadrotors are simulated by quadrotor"):
        backend.make(load_robot("crazyflie"), 2, "ctbr_cmd")
    with pytest.raises(ValueError, match="mjSOL_PGS"):
        warp(Scene(robot(tmp_path_factory, ' solver="PGS"'), scene.objects), 2)
    with pytest.raises(ValueError, match="noslip"):
        warp(Scene(robot(tmp_path_factory, ' noslip_iterations="3"', "discrete"), scene.objects), 2)
    with pytest.raises(ValueError, match="mjENBL_SLEEP"):
        warp(Scene(robot(tmp_path_factory, '><flag sleep="enable"/></option><option'), scene.objects), 2)
    with pytest.raises(MissingCapability, match="cuda"):
        warp(scene, 2, needs=("cuda",))
    with pytest.raises(ValueError, match="num_worlds is 0"):
        warp(scene, 0)
    with pytest.raises(ValueError, match="contacts is -1"):
        warp(scene, 2, contacts=-1)
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="no NVIDIA GPU here"):
            warp(scene, 2, device="cuda")


def test_bad_calls_name_the_rule_and_change_nothing(sims):
    sim = sims[0]
    start(sim, random_state(4))
    before = sim.state()
    with pytest.raises(ValueError, match="expected"):
        sim.step(torch.zeros(4, 3), 1)
    with pytest.raises(ValueError, match="substeps is 0"):
        sim.step(torch.zeros(4, 2), 0)
    with pytest.raises(IndexError, match=r"\[0, 4\)"):
        sim.reset(torch.tensor([4]), {})
    with pytest.raises(UnknownName, match="cannot set tip_pos_w"):
        sim.reset(torch.tensor([0]), {"tip_pos_w": torch.zeros(1, 3)})
    with pytest.raises(ValueError, match="non-finite"):
        sim.reset(torch.tensor([0]), {"joint_pos": torch.tensor([[float("nan"), 0.0]])})
    with pytest.raises(UnknownName, match="unknown parameter"):
        sim.set_params(torch.tensor([0]), {"colour": torch.ones(1)})
    with pytest.raises(ValueError, match="must be >= 0"):
        sim.set_params(torch.tensor([0]), {"damping": -torch.ones(1, 2)})
    with pytest.raises(ValueError, match="keys"):
        sim.set_state({})
    assert same(before, sim.state())


def test_ordered_sums_give_the_same_bits_whatever_the_number_of_worlds(scene, sims):
    """What ``deterministic`` turns on; on a GPU it is needed for this, here it must at least change nothing much."""
    few, many = warp(scene, 1, deterministic=True), warp(scene, 4, needs=("deterministic",))
    state, plan = random_state(4, 4), commands(4, 4)
    start(many, state), start(sims[0], state)
    few.reset(every(few), {k: v[1:2] for k, v in state.items() if k in settable(few)})
    ours, theirs = run(few, [c[1:2] for c in plan], 2), run(many, plan, 2)
    assert all(same({k: v[0] for k, v in a.items()}, {k: v[1] for k, v in b.items()}) for a, b in zip(ours, theirs))
    assert_close(theirs[-1], run(sims[0], plan, 2)[-1], 1e-3)


def test_gpu_work_is_rehearsed_recorded_and_launched(monkeypatch):
    """Recording against a stand-in for CUDA: on a stream of its own, launches on torch's, waits before memory goes."""
    log, graphs = [], Graphs(torch.device("cpu"))
    graphs.torch_device = torch.device("cuda", 0)

    @contextmanager
    def stream(which):
        log.append(f"on {which}")
        yield

    class Capture:
        def __init__(self, device):
            self.graph = "graph"

        def __enter__(self):
            assert not gc.isenabled()
            log.append("record")
            return self

        def __exit__(self, *_):
            log.append("recorded")

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=7))
    for name, stand_in in {
        "stream_from_torch": lambda s: "torch's", "Stream": lambda device: "its own", "ScopedStream": stream,
        "ScopedCapture": Capture, "capture_launch": lambda graph, stream: log.append(f"launch on {stream}"),
        "synchronize_device": lambda device: log.append("wait"),
    }.items():  # fmt: skip
        monkeypatch.setattr(wp, name, stand_in)

    def rehearse(work):
        log.append("rehearse")
        work()

    def use():
        log.clear()
        graphs.run("step", lambda: log.append("work"), rehearse)
        return list(log)

    first = use()
    assert first == ["on torch's", "rehearse", "work", "wait", "on its own", "record", "work", "recorded",
                     "launch on torch's"]  # fmt: skip
    assert gc.isenabled() and graphs.recorded == ("step",)
    assert use() == ["launch on torch's"]
    log.clear()
    graphs.drop()
    assert log == ["wait"] and use() == first
