"""The chain on the real environment: rollout, verdict, golden trace, and an artifact that gives what the world got."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.examples import thinned

from temporeal.policies.evaluate.evaluation import evaluate
from temporeal.policies.evaluate.judging import reference_of
from temporeal.policies.evaluate.report.outputs import make_report
from temporeal.policies.evaluate.rollout import rollout
from temporeal.policies.export.golden_trace import record_golden
from temporeal.policies.export.policy import export_policy
from temporeal.policies.nets.actor import make_actor
from temporeal.policies.training.acting import graph_policy
from temporeal.robots.artifact.runtime import Artifact
from temporeal.sim.env import Env, make_env
from temporeal.sim.maps import PolicyGraph
from temporeal.sim.task import Task, load_task

TASKS = ("hover", "waypoints", "track")
SENSORS = {"noise": {"base_pos_w": 0.01, "base_quat_w": 0.01}, "delay_steps": 1}


def make(task: Task, worlds: int, seed: int = 11, compiled: bool = True) -> Env:
    return make_env(task, num_worlds=worlds, seed=seed, sensors=SENSORS, threads=1, compiled=compiled)


def graph_of(task: Task, hidden_dim: int = 0) -> PolicyGraph:
    torch.manual_seed(0)
    env = make(task, 1)
    actor = make_actor(env.obs_dim, env.action_dim, (16, 16), hidden_dim=hidden_dim)
    for parameter in actor.parameters():  # the last layer starts near zero: give the actions some size
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    return PolicyGraph(task.observe, torch.nn.Identity(), actor, task.act)


@pytest.mark.parametrize("name, hidden_dim", thinned(
    [(name, hidden_dim) for name in TASKS for hidden_dim in (0, 8)],
    keep=lambda case: (case[0] == "waypoints") == (case[1] == 8)))
def test_artifact_gives_the_commands_that_the_environment_sent(name: str, hidden_dim: int, tmp_path: Path) -> None:
    task = load_task(name)
    graph = graph_of(task, hidden_dim)
    made = export_policy(
        graph, task, tmp_path / "artifact", make(task, 1, compiled=False), training={"algo": "none"}, seed=11)
    assert made.self_test(1e-5).steps >= 10
    assert made.manifest.rate_hz == pytest.approx(1 / task.control_dt)
    assert made.manifest.formula == task.formula_text
    assert {m.name for m in made.manifest.memory} == set(graph.memory)
    # another episode, step by step through the runtime's single-robot path
    env = make(task, 1, seed=12, compiled=False)
    golden = record_golden(env, graph_policy(graph))
    artifact = Artifact.load(tmp_path / "artifact", task.robot)
    sent = golden[f"commands.{task.command}"]
    for k in range(len(sent)):
        got = artifact.act({n: golden[f"signals.{n}"][k] for n in graph.signals})[task.command]
        np.testing.assert_allclose(got, sent[k], atol=1e-5, rtol=0)


def test_a_golden_trace_is_not_taken_from_compiled_maps() -> None:
    task = load_task("hover")
    with pytest.raises(ValueError, match="make it with compiled=False"):
        record_golden(make(task, 1), graph_policy(graph_of(task)), steps=2)


def test_golden_trace_holds_measured_signals_and_leaves_the_environment_whole() -> None:
    task = load_task("waypoints")
    env, graph = make(task, 1, compiled=False), graph_of(task)
    observe = env.functions.observe
    golden = record_golden(env, graph_policy(graph), steps=5)
    assert env.functions.observe is observe
    assert len(golden["commands.ctbr_cmd"]) == 5
    truth = rollout(make(task, 1), graph_policy(graph), keep=("base_pos_w",)).signals["base_pos_w"][:5, 0]
    error = np.abs(golden["signals.base_pos_w"] - truth).max()
    assert 0.002 < error < 0.2  # noise of 1 cm, and up to one step of latency


def test_rollout_is_the_same_whatever_runs_beside_it() -> None:
    task = load_task("waypoints")
    graph = graph_of(task)
    few, many = rollout(make(task, 3), graph_policy(graph)), rollout(make(task, 8), graph_policy(graph))
    steps = min(len(few.actions), len(many.actions))
    np.testing.assert_allclose(few.signals["base_pos_w"][:steps], many.signals["base_pos_w"][:steps, :3], atol=1e-4)
    assert few.lengths.tolist() == many.lengths[:3].tolist()


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_judged_and_reported(name: str, tmp_path: Path) -> None:
    task = load_task(name)
    found = rollout(make(task, 16), graph_policy(graph_of(task)))
    judged = evaluate(found, task.formula, reference=reference_of(task))
    assert judged.satisfied.trials == 16 and np.isfinite(judged.episodes.robustness).all()
    assert (judged.episodes.satisfied == (judged.episodes.robustness >= 0)).all()
    assert (judged.tracking_m is None) == (name == "waypoints")
    pages = make_report(task, [("native", "Own simulator", judged, found)], tmp_path, require=0.95)
    assert pages.html.stat().st_size > 20_000 and pages.json.exists()


def test_last_sample_of_an_episode_is_its_own_and_not_the_next_ones_first() -> None:
    task = load_task("hover")  # ends where a coordinate is more than 0.6 m from home
    found = rollout(make(task, 32), lambda obs: torch.full((len(obs), 4), -1.0))
    assert found.terminated.all()
    last = found.signals["base_pos_w"][found.lengths - 1, np.arange(32)]
    before = found.signals["base_pos_w"][found.lengths - 2, np.arange(32)]
    home = np.asarray(task.constants["home"])
    assert (np.abs(last - home).max(-1) > 0.6).all() and (np.abs(before - home).max(-1) <= 0.6).all()
    failed = evaluate(found, task.formula)
    assert failed.clauses[1].first_to_fail == 32  # the fence, not the goal that was still open
