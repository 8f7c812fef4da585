"""Every task exports: its artifact proves itself, also where commands feed back through the policy's memory."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.examples import thinned

from temporeal.policies.evaluate.measurement_recorder import with_recorder
from temporeal.policies.export.golden_trace import record_golden
from temporeal.policies.export.policy import export_policy
from temporeal.policies.export.writer import ArtifactSpec, export
from temporeal.policies.nets.actor import make_actor
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.runs.artifacts import artifact_policy
from temporeal.policies.training.acting import graph_policy
from temporeal.policies.training.reflex_policy import Reflex, ReflexGraph
from temporeal.robots.artifact.manifest import ENGAGED, ArtifactError, ReflexSpec
from temporeal.robots.registry import names
from temporeal.sim.env import make_env
from temporeal.sim.maps import PolicyGraph
from temporeal.sim.task import load_task

STEPS = 20


def graph_of(task, hidden=0):
    """A policy of high gain: what it does a step later is far from what it does now."""
    torch.manual_seed(3)
    actor = make_actor(task.observe.obs_dim, task.act.action_dim, (32, 32), hidden_dim=hidden)
    with torch.no_grad():
        for parameter in (actor.head if hidden else actor.net[-1]).parameters():
            parameter.mul_(200.0)
    return PolicyGraph(task.observe, Normalizer(task.observe.obs_dim), actor, task.act).eval()


def environment(task):
    seen = [name for name in task.observe.signals if name in task.robot.signals]
    return make_env(task, num_worlds=1, seed=2, compiled=False, threads=1, sensors={"noise": dict.fromkeys(seen, 1e-3)})


def write(task, graph, golden, path):
    spec = ArtifactSpec(
        robot=task.robot, signals=graph.signals, command=task.command, rate_hz=1 / task.control_dt,
        formula_text=task.formula_text, constants=task.constants, horizon_s=task.episode_s, training={}, seed=0,
        stop=task.stop, task_signals=dict(task.schema))
    return export(graph, path, spec, golden)


@pytest.mark.parametrize("task", thinned(
    names("temporeal.sim.tasks"),  # arms: reach; hands: tests/sim/tasks/test_hands.py
    keep=lambda task: task not in (
        "any_formula", "arm_track", "cube_reorient", "cube_rotate", "drawer", "lift", "peg", "push", "tabletop")))
def test_every_task_exports(task, tmp_path):
    task = load_task(task)
    graph = graph_of(task)
    golden = record_golden(environment(task), graph_policy(graph), steps=STEPS)
    commands = golden[f"commands.{task.command}"]
    assert len(commands) > 1 and np.abs(np.diff(commands, axis=0)).max() > 0
    artifact = write(task, graph, golden, tmp_path / "artifact")
    assert artifact.self_test().steps == len(commands)
    assert {s.name for s in artifact.manifest.signals} == set(task.observe.signals)
    assert {f"memory.{m.name}" for m in artifact.manifest.memory} <= set(artifact.golden)


def with_reflex(graph, every=3):
    """The policy with a reflex whose risk goes up and down."""
    layer = Reflex(graph.observe.obs_dim, graph.act.action_dim, (16,), "silu", every)
    with torch.no_grad():
        for net in (*layer.critics, layer.actor):
            net[0].weight.mul_(10.0)  # of small changes of what is observed, great ones of the risk
            net[-1].weight.mul_(10.0)
    return ReflexGraph(graph, layer, ReflexSpec(every, 0.5, 0.4)).eval()


@pytest.mark.parametrize("task", ["hover", *(
    pytest.param(task, marks=pytest.mark.slow) for task in names("temporeal.sim.tasks")
    if task not in ("hover", "any_formula"))])  # of any formula: in these few steps nothing engages it
def test_every_task_exports_with_a_reflex(task, tmp_path):
    """And its runtime does what the environment does: from the recorded memory in the self-test, which is of both
    networks; on its own for as long as roundings have not grown."""
    task = load_task(task)
    env = environment(replace(task, episode_s=12 * task.control_dt))
    artifact = export_policy(with_reflex(graph_of(task)), task, tmp_path / "artifact", env, training={}, seed=0)
    engaged = artifact.golden[f"memory.{ENGAGED}"]
    assert 0 < engaged.sum() < len(engaged) and artifact.self_test().steps == len(engaged)
    for t in range(6):
        found = artifact.act({name: artifact.golden[f"signals.{name}"][t] for name in artifact.schema})[task.command]
        wanted = artifact.golden[f"commands.{task.command}"][t]
        assert artifact.difference(task.command, found, wanted).max() <= 1e-3


@pytest.mark.slow
def test_a_reflex_chooses_the_stiffness(tmp_path):
    """The action map that makes it of positions is in the artifact, the choice in the networks."""
    task = load_task("reach", stiffness=0.2)
    graph = with_reflex(graph_of(task), 1)
    env = environment(replace(task, episode_s=12 * task.control_dt))
    artifact = export_policy(graph, task, tmp_path / "artifact", env, training={}, seed=0)
    assert artifact.self_test().steps == 12
    engaged, last = (artifact.golden[f"memory.{name}"] for name in (ENGAGED, "last_action"))
    assert 0 < engaged.sum() < len(engaged) and last.shape[1] == 7
    assert np.ptp(last[:, 6]) > 0.1  # a stiffness that changes, in what was sent
    assert np.abs(artifact.golden["memory.sent"] - artifact.golden["memory.target"])[1:].max() > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("task", ["reach", "drawer"])
def test_judging_an_artifact_rewards_its_own_actions(task, tmp_path):
    task = load_task(task)
    graph = graph_of(task)
    artifact = write(task, graph, record_golden(environment(task), graph_policy(graph), steps=STEPS), tmp_path / "a")
    one = make_env(task, num_worlds=3, seed=5, threads=1, compiled=False)
    other = make_env(with_recorder(task), num_worlds=3, seed=5, threads=1, compiled=False)
    ours, its = graph_policy(graph), artifact_policy(artifact, other)
    obs, seen = one.reset(), other.reset()
    for _ in range(25):
        a, b = one.step(ours(obs.actor)), other.step(its(seen.actor))
        obs, seen = a.obs, b.obs
        torch.testing.assert_close(a.reward, b.reward, atol=1e-3, rtol=1e-3)
    for name in task.observe.memory:
        torch.testing.assert_close(one.column[f"memory.{name}"], other.column[f"memory.{name}"], atol=1e-3, rtol=1e-3)


def test_a_wrong_memory_is_found_at_its_step(tmp_path):
    task = load_task("reach")
    graph = graph_of(task)
    golden = record_golden(environment(task), graph_policy(graph), steps=10)
    golden["memory.target"] = golden["memory.target"].copy()
    golden["memory.target"][6] += 1e-3
    with pytest.raises(ArtifactError, match="after step 5 of 10 the memory 'target' differs"):
        write(task, graph, golden, tmp_path / "artifact")


def test_a_trace_begins_where_a_mission_does(tmp_path):
    task = load_task("reach")
    graph = graph_of(task)
    golden = record_golden(environment(task), graph_policy(graph), steps=10)
    later = {name: value[4:] for name, value in golden.items()}
    with pytest.raises(ArtifactError, match="begins with another memory"):
        write(task, graph, later, tmp_path / "artifact")


def test_what_a_recurrent_network_carries_is_recorded(tmp_path):
    task = load_task("reach")
    graph = graph_of(task, hidden=8)
    golden = record_golden(environment(task), graph_policy(graph), steps=10)
    assert golden["memory.hidden"].shape == (10, 8)
    assert not golden["memory.hidden"][0].any() and golden["memory.hidden"][9].any()
    assert write(task, graph, golden, tmp_path / "artifact").self_test().steps == 10


def test_an_exported_run_carries_its_memory(tmp_path):
    task = replace(load_task("hover", history=2), episode_s=0.2)
    artifact = export_policy(graph_of(task), task, tmp_path / "artifact", environment(task), training={}, seed=0)
    assert "memory.actions" in artifact.golden
