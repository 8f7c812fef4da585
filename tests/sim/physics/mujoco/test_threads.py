"""Worlds on Python threads: equal to MuJoCo's own batch, bit for bit, and what is refused."""

from __future__ import annotations

import gc
import logging
from functools import partial

import mujoco
import numpy as np
import pytest
import torch

pytest.importorskip("mujoco.batch", reason="needs mujoco >= 3.17, to be compared with")

from mujoco.batch import Batch
from tests.contract.scenes import ARM_SCENE, DT, jointed

from temporeal.robots.spec import load_robot
from temporeal.sim.backends import mujoco as backend
from temporeal.sim.physics.mujoco import threads as mujoco_threads
from temporeal.sim.physics.mujoco.threads import SimulationError, Threads, engine_class

CASE = jointed("arm", backend.make, backend.HAS)
VEL, ACC = mujoco_threads.VEL, mujoco_threads.ACC
# a ball that falls, a delayed motor with a filter, a delayed sensor, a weld to a mocap body, energies
XML = """
<mujoco>
  <option timestep="0.004" integrator="{integrator}"><flag energy="enable" autoreset="{autoreset}"/></option>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body name="hand" mocap="true" pos="0.2 0 0.5"><geom size="0.01" contype="0" conaffinity="0"/></body>
    <body name="held" pos="0.2 0 0.4"><freejoint/><geom size="0.05"/></body>
    <body name="pole" pos="-0.3 0 0.5">
      <joint name="hinge" axis="0 1 0" damping="0.02"/><geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.02"/>
      <site name="end" pos="0.3 0 0"/>
    </body>
    <body name="ball" pos="0 0.3 0.2"><freejoint/><geom size="0.05"/></body>
  </worldbody>
  <equality><weld body1="hand" body2="held"/></equality>
  <actuator><general joint="hinge" dyntype="filter" dynprm="0.05" gainprm="2" delay="0.012" nsample="6"/></actuator>
  <sensor>
    <framepos objtype="site" objname="end" delay="0.008" nsample="4"/><gyro site="end"/><accelerometer site="end"/>
    <touch site="end"/>
  </sensor>
</mujoco>
"""


def small(integrator="implicitfast", autoreset="disable"):
    return mujoco.MjModel.from_xml_string(XML.format(integrator=integrator, autoreset=autoreset))


def same(a, b):
    """Equal to the bit, not-a-number included."""
    assert a.dtype == b.dtype and a.shape == b.shape
    assert np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


def of_arm(n, seed):
    generator = torch.Generator().manual_seed(seed)
    spread = 2 * torch.rand(n, 4, generator=generator) - 1
    return torch.tensor(CASE.center) + torch.tensor(CASE.sway) * spread


def start(ids):
    return {name: torch.tensor(value).expand(len(ids), -1).clone() for name, value in CASE.start.items()}


def play(sim):
    """A play with contact: parameters and delays per world, resets, a world that goes bad; everything after each."""
    sim.reset(torch.arange(6), start(range(6)))
    seen = []
    for t in range(24):
        ctrl = of_arm(6, t)
        if t == 6:
            sim.set_params(torch.tensor([4, 1]), {
                name: torch.tensor([p.nominal, p.nominal]) * torch.tensor([[1.1], [0.8]])
                for name, p in sim.parameters.items() if not name.endswith(("delay", "force_w", "torque_w"))})
            sim.set_params(torch.tensor([1, 5]), {"command_delay": torch.tensor([0.006, 0.014])})
            sim.set_params(torch.tensor([2]), {"cube.force_w": torch.tensor([[0.3, 0.1, 0.2]])})
        if t == 12:
            sim.reset(torch.tensor([5, 0]), start(range(2)))
        if t == 18:
            ctrl[2, 1] = float("nan")
        sim.step(ctrl, 5)
        seen.append({**sim.state(), **{f"now.{n}": v.clone() for n, v in sim.signals().items()}})
    return seen, sim.status()


@pytest.fixture(scope="module")
def expected():
    return play(backend.make(ARM_SCENE, 6, "arm_cmd", dt=DT, threads=1, engine="batch"))


@pytest.mark.parametrize("threads", [1, 3])
def test_the_arms_play_is_the_batchs(expected, threads):
    seen, status = play(backend.make(ARM_SCENE, 6, "arm_cmd", dt=DT, threads=threads, engine="threads"))
    assert max(float(now["now.finger_force"].max()) for now in seen) > 1.0  # the cube was gripped
    for ours, theirs in zip(seen, expected[0], strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in theirs.items():
            same(ours[name].numpy(), value.numpy())
    assert status.bad.tolist() == expected[1].bad.tolist() == [False, False, True, False, False, False]
    assert status.warnings == expected[1].warnings


def test_the_crazyflies_flight_is_the_batchs():
    flights = []
    for engine in ("batch", "threads"):
        sim = backend.make(load_robot("crazyflie"), 3, "ctbr_cmd", threads=2, engine=engine)
        sim.set_params(torch.tensor([1]), {"mass": torch.tensor([0.035]), "arm": torch.tensor([[0.03, 0.035]])})
        sim.step(torch.tensor([[0.3, 1.0, -2.0, 0.5]]).repeat(3, 1), 40)
        flights.append(sim.state())
    for name, value in flights[0].items():
        same(flights[1][name].numpy(), value.numpy())


@pytest.mark.parametrize("integrator", ["Euler", "implicit", "implicitfast", "RK4"])
@pytest.mark.parametrize("stage", [0, 1, VEL, ACC])
def test_raw_worlds_are_the_batchs(integrator, stage):
    """State, histories, activations, delayed sensors, energies and warnings, with mocap bodies and forces applied."""
    model = small(integrator)
    pair = Batch(model, 5, nthread=1), Threads(model, 5, nthread=2)
    outputs = ("sensordata", "energy", "xpos", "qacc")
    for worlds in pair:
        for name in outputs:
            worlds.bind(name)
        rng = np.random.default_rng(1)
        worlds.bind("qvel")[:] = rng.normal(size=(5, model.nv))
        worlds.bind("mocap_pos")[:] += rng.normal(0, 0.02, (5, 1, 3))
        worlds.expand("opt.gravity")[:, 2] = rng.uniform(-12, -8, 5)
        worlds.expand("opt.timestep")[3] = 0.003
        worlds.expand("geom_friction")[2] *= 0.5
        worlds.expand("body_mass")[:] *= rng.uniform(0.8, 1.2, (5, 1))
        worlds.set_const(np.array([0, 2, 4]))
        for t in range(12):
            worlds.bind("ctrl")[:] = rng.normal(size=(5, 1))
            worlds.bind("xfrc_applied")[:, 4] = rng.normal(0, 0.1, (5, 6))
            worlds.bind("eq_active")[:] = t < 8
            worlds.step(None if t % 2 else np.array([0, 1, 4]), nstep=3, stage=stage)
            if t == 5:
                worlds.reset(np.array([1, 3]), stage=stage)
            if t == 7:
                worlds.forward(np.array([2, 3]), stage=max(stage, 1))
        # MuJoCo warns
        worlds.bind("qpos")[1, 0], worlds.bind("qvel")[2, 0], worlds.bind("xfrc_applied")[3, 4] = 1e12, 1e12, 1e14
        with backend.quiet():
            worlds.step(nstep=2, stage=stage)
    same(pair[1].state, pair[0].state)
    # a stage that was not asked for leaves the last world's values of a thread behind, in either
    for name in outputs if stage == ACC else ("sensordata",) if stage else ():
        same(pair[1].bind(name), pair[0].bind(name))
    same(pair[1].warning, pair[0].warning)
    assert (pair[1].warning[1:4, :, 1].sum(1) > 0).all()
    for name in ("body_subtreemass", "dof_invweight0", "body_mass"):
        same(pair[1].expanded(name), pair[0].expanded(name))
        same(pair[1].expand(name), pair[0].expand(name))


@pytest.mark.parametrize("call", ["step", "forward"])
def test_a_world_that_mujoco_resets_goes_on_as_in_the_batch(call):
    model = small(autoreset="enable")
    pair = Batch(model, 4, nthread=1), Threads(model, 4, nthread=1)
    for worlds in pair:
        worlds.step(nstep=2)
        worlds.bind("qvel")[1, 3], worlds.bind("qpos")[2, 4], worlds.bind("xfrc_applied")[3, 4] = np.nan, 1e12, 1e14
        with backend.quiet():
            getattr(worlds, call)(stage=VEL)
            worlds.step(nstep=4)
    same(pair[1].state, pair[0].state)
    same(pair[1].warning, pair[0].warning)


def test_an_error_of_mujocos_is_told_and_spares_the_others():
    model = small()
    pair = Batch(model, 5, nthread=1), Threads(model, 5, nthread=2)
    for worlds in pair:
        before = worlds.state.copy()
        worlds.expand("opt.integrator")[[1, 4]] = 99
        with pytest.raises(SimulationError, match="integrator") as caught:
            worlds.step()
        assert caught.value.ids.tolist() == [1, 4]
        assert "integrator" in worlds.error(4) and not worlds.error(0)
        same(worlds.state[[1, 4]], before[[1, 4]])
        worlds.expand("opt.integrator")[:] = 0
        worlds.step()
    same(pair[1].state, pair[0].state)
    assert pair[1].bind("time").tolist() == [0.008, 0.004, 0.008, 0.008, 0.004]


def test_outputs_survive_an_error():
    """An error costs the thread its MjData: what is bound is read from the next one."""
    worlds = Threads(small(), 2, nthread=1)
    sensors = worlds.bind("sensordata")

    def fail(seat, sim):
        raise mujoco.FatalError("made up")

    with pytest.raises(SimulationError, match="made up"):
        worlds._each(None, fail)
    assert worlds.error(1) == "made up"
    worlds.bind("qvel")[:, 6] = 1.5
    worlds.step(stage=VEL)
    assert worlds.error(1) == ""
    assert np.abs(sensors).max() > 0.1 and np.array_equal(sensors[0], sensors[1])


def test_worlds_share_their_model_until_a_field_is_expanded():
    worlds = Threads(small(), 3, nthread=1)
    assert len({id(m) for m in worlds._models}) == 1 and worlds.expanded("body_mass") is None
    worlds.expand("body_mass")
    assert len({id(m) for m in worlds._models}) == 3


def test_the_model_given_stays_as_it_is():
    model = small()
    mass = model.body_mass.copy()
    worlds = Threads(model, 2, nthread=1)
    worlds.expand("body_mass")[:] = 7.0
    worlds.set_const()
    same(model.body_mass, mass)
    model.opt.gravity[:] = 0.0
    worlds.step(np.array([0]), nstep=5)
    assert worlds.bind("qvel")[0, 9] < -0.1  # the ball falls


@pytest.mark.parametrize(("call", "told"), [
    (lambda w: w.bind("qpso"), "qpso is not an array of MjData"),
    (lambda w: w.expand("body_mas"), "body_mas is not a field of MjModel"),
    (lambda w: w.expand("mesh_vert"), "can differ between worlds"),
    (lambda w: w.expand("opt.gravitation"), "opt.gravitation is not a field"),
    (lambda w: w.step(np.array([1, 0])), "sorted, unique and in"),
    (lambda w: w.step(np.array([0, 3])), r"in \[0, 3\), got \[0, 3\]"),
    (lambda w: w.step(np.array([0.0])), "whole numbers"),
    (lambda w: Threads(small(), 0), "nsim is 0"),
    (lambda w: engine_class("rollout"), "engine is 'rollout'; it must be one of auto, batch, threads"),
    (lambda w: backend.make(ARM_SCENE, 1, "arm_cmd", engine="fast"), "engine is 'fast'")])
def test_what_cannot_be_is_refused(call, told):
    with pytest.raises(ValueError, match=told):
        call(Threads(small(), 3, nthread=1))


def test_sleeping_bodies_are_refused():
    model = small()
    model.opt.enableflags |= int(mujoco.mjtEnableBit.mjENBL_SLEEP)
    with pytest.raises(ValueError, match="bodies sleep"):
        Threads(model, 2)


def test_outputs_are_to_be_read_only():
    worlds = Threads(small(), 2, nthread=1)
    with pytest.raises(ValueError, match="read-only"):
        worlds.bind("sensordata")[:] = 0.0


def test_auto_takes_the_batch_where_there_is_one(monkeypatch, caplog):
    assert engine_class("auto") is Batch and engine_class("batch") is Batch and engine_class("threads") is Threads
    monkeypatch.setattr(mujoco_threads, "Batch", None)
    monkeypatch.setattr(mujoco_threads, "_TOLD", [])
    with caplog.at_level(logging.WARNING):
        assert engine_class("auto") is Threads and engine_class("auto") is Threads
    assert len(caplog.records) == 1 and "has no mujoco.batch" in caplog.text
    with pytest.raises(ModuleNotFoundError, match="needs mujoco >= 3.17"):
        engine_class("batch")


def test_threads_end_with_the_worlds():
    worlds = Threads(small(), 16, nthread=3)
    worlds.step()
    pool = worlds._pool
    threads = list(pool._threads)
    assert threads and all(thread.is_alive() for thread in threads)
    del worlds
    gc.collect()
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(partial(int))
    for thread in threads:
        thread.join(10.0)
    assert not any(thread.is_alive() for thread in threads)
