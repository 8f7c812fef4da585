"""The bench of the simulation: what is timed is the same work, rows are complete and judged by what was measured."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from temporeal_benchmarks import half_cheetah
from temporeal_benchmarks.measurements import sim
from temporeal_benchmarks.peers import install, process
from temporeal_benchmarks.peers.install import PeerError


@contextmanager
def absent(size):
    raise PeerError("envpool is not installed: python -m temporeal_benchmarks.peers envpool")
    yield {}


@contextmanager
def slow(size):
    yield {"async": sim.Program(lambda: 1.0, 100)}, "slow"


@pytest.mark.slow
def test_quick_run_has_every_row(monkeypatch, capsys):
    monkeypatch.setattr(sim, "SIZES", (16,))
    monkeypatch.setattr(sim, "WORLDS", (16, 32))
    monkeypatch.setattr(sim, "ARM_WORLDS", 4)
    monkeypatch.setattr(sim, "envpool", absent)
    monkeypatch.setattr(sim, "asynchronous", slow)
    rows = {row.name: row for row in sim.run(True)}
    targets = {"cheetah.16.of_raw": 0.95, "cheetah.16.against_envpool": 1.2, "cheetah.16.against_async": 5.0,
               "cheetah.cost_4096_of_64": 1.1, "memory.resident_growth": 1e6, "memory.traced_growth": 16e3,
               "arm.of_raw": 0.9, "camera.wrist.64x64": 1.5, "camera.plain.64x64": 1.5}
    assert {name: row.target for name, row in rows.items() if row.target is not None} == targets
    pool = rows.pop("cheetah.16.against_envpool")
    assert (pool.value, pool.ok) == (None, False)  # a peer that is not there is no target met
    assert "python -m temporeal_benchmarks.peers envpool" in pool.peer
    assert "left out: envpool" in capsys.readouterr().err
    for name in targets.keys() & rows.keys():
        assert rows[name].value >= 0
        assert isinstance(rows[name].ok, bool)
    assert {"cheetah.16.raw", "cheetah.16.env", "cheetah.32.env", "cheetah.16.staggered_of_raw"} <= rows.keys()


def test_other_physics_than_raw_is_an_error():
    env = half_cheetah.environment(16, seed=1)
    env.reset()
    actions = sim.random_actions(16, 6, 3)
    same = sim.Raw(env, [a.double().numpy() for a in actions], half_cheetah.SUBSTEPS)
    assert sim.environment_seconds(env, actions, same) > 0
    other = sim.Raw(env, [a.double().numpy() for a in actions], half_cheetah.SUBSTEPS - 1)
    with pytest.raises(AssertionError, match="did not do the same physics"):
        sim.environment_seconds(env, actions, other)


def test_the_task_is_that_of_gymnasium():
    """From one state under one action: the same observation and reward as HalfCheetah-v5."""
    gymnasium = pytest.importorskip("gymnasium")
    theirs = gymnasium.make(sim.CHEETAH).unwrapped
    theirs.reset(seed=0)
    env = half_cheetah.environment(16, seed=1)
    env.reset()
    views = env.backend.views()
    theirs.set_state(views["qpos"][0].numpy(), views["qvel"][0].numpy())
    for action in sim.random_actions(16, 6, 4):
        step = env.step(action)
        obs, reward, *_ = theirs.step(action[0].double().numpy())
        np.testing.assert_allclose(step.obs.actor[0].numpy(), obs, rtol=1e-4, atol=1e-5)
        assert float(step.reward[0]) == pytest.approx(reward, rel=1e-3, abs=1e-4)


@pytest.mark.slow
def test_a_growing_process_is_seen():
    kept = []
    assert sim.traced_growth(lambda: kept.append(bytearray(10_000))) >= 10_000
    assert sim.traced_growth(lambda: None) < 1000


@pytest.mark.parametrize(("rate", "good"), [(96.0, True), (94.0, False)])
def test_ratios_are_judged(rate, good):
    found = {"64.env": [rate, rate, 1.0], "64.raw": [100.0, 100.0, 100.0]}
    row = sim.compared(found, {}, 64, "raw", 0.95)
    assert (row.name, row.value, row.ok) == ("cheetah.64.of_raw", rate / 100, good)


def test_rows_against_envpool_say_both_versions_of_mujoco():
    found = {"64.env": [96.0], "64.envpool": [100.0]}
    row = sim.compared(found, {}, 64, "envpool", 1.2, "EnvPool 1.2.5 with MuJoCo 3.6.0, ours with MuJoCo 4.0.0")
    assert row.peer == "100 /CPU-s; EnvPool 1.2.5 with MuJoCo 3.6.0, ours with MuJoCo 4.0.0"


def test_rates_leave_the_first_pass_out():
    seconds = iter([9.0, 1.0, 2.0])
    assert sim.rates({"a": sim.Program(lambda: next(seconds), 10)}, 2) == {"a": [10.0, 5.0]}


def test_a_picture_is_judged_by_the_median(monkeypatch):
    """Of repeats of 1, 1 and 4 s for two worlds."""
    clock = iter([0.0, 1.0, 1.0, 5.0, 5.0, 6.0])
    wall = iter([0.0, 1.0, 1.0, 1.0, 3.0])
    rig = SimpleNamespace(renderer="none", render=lambda qpos: None)
    monkeypatch.setattr("temporeal.sim.rendering.rig.Rig", lambda *_: rig)
    monkeypatch.setattr(sim.time, "process_time", lambda: next(clock))
    monkeypatch.setattr(sim.time, "perf_counter", lambda: next(wall))
    middle, least, most = sim.frame("plain", None, [0, 0], 2.0)
    assert (middle.value, least.value, most.value, middle.ok) == (500.0, 500.0, 2000.0, False)


def test_a_large_peer_is_installed_only_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(install.sys, "prefix", str(tmp_path))
    with pytest.raises(PeerError, match=r"envpool is not installed: python -m temporeal_benchmarks\.peers envpool"):
        process.Peer("envpool")
    called = []
    monkeypatch.setattr(install, "install", called.append)
    install.install_missing()
    assert called == ["rtamt", "stlcgpp"]
    install.install_missing(["envpool"])
    assert called[2:] == ["envpool"]
