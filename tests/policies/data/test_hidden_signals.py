"""Signals that a policy is not told: nothing of them in its observation or artifact, all of them for the critic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from temporeal.policies.data.hidden_signals import without
from temporeal.policies.export.writer import ArtifactSpec, export
from temporeal.policies.nets.actor import make_actor
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.nets.seeing_graph import SeeingGraph
from temporeal.robots.artifact.runtime import Artifact
from temporeal.sim.env import make_env
from temporeal.sim.task import Task, load_task

pytestmark = pytest.mark.usefixtures("one_thread")
HIDDEN = ("goal_pos_w", "goal_quat_w")


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task("reach")


def test_the_observation_does_not_depend_on_them_and_the_critic_is_told(task: Task) -> None:
    told, hiding = (make_env(each, num_worlds=3, seed=5, compiled=compiled) for each, compiled in (
        (task, False), (without(task, HIDDEN), None)))
    whole, seen = told.reset(), hiding.reset()
    assert seen.actor.shape == whole.actor.shape and seen.critic.shape[1] == whole.critic.shape[1] + 7
    goal = hiding.true_signals()
    assert torch.equal(seen.critic[:, -7:], torch.cat([goal["goal_pos_w"], goal["goal_quat_w"]], -1))
    assert not torch.equal(seen.actor, whole.actor)
    at_origin = {**goal, "goal_pos_w": torch.zeros(3, 3), "goal_quat_w": torch.tensor([[1.0, 0, 0, 0]] * 3)}
    memory = {name: torch.zeros(3, *shape) for name, shape in task.observe.memory.items()}
    torch.testing.assert_close(seen.actor, task.observe(at_origin, memory)[0], atol=1e-6, rtol=0)


def test_an_unknown_signal_and_the_last_one_are_refused(task: Task) -> None:
    with pytest.raises(ValueError, match=r"no signal 'goal_pos'; did you mean 'goal_pos_w'\?.*joint_pos"):
        without(task, ["goal_pos"])
    with pytest.raises(ValueError, match="one of them must stay"):
        without(task, task.observe.signals)
    assert without(task, ()) is task


def test_an_artifact_reads_pictures_and_no_hidden_signal(task: Task, tmp_path: Path) -> None:
    shown = without(task, HIDDEN)
    actor = make_actor(shown.observe.obs_dim, shown.act.action_dim, (16,), pictures={"front_rgb": (12, 16, 3)})
    with torch.no_grad():
        actor.net[-1].weight.mul_(30.0)
    graph = SeeingGraph(shown.observe, Normalizer(shown.observe.obs_dim), actor, shown.act).eval()
    assert graph.signals[-1] == "front_rgb" and not set(graph.signals) & set(HIDDEN)
    draw = np.random.default_rng(0)

    def signals(count: int) -> dict[str, np.ndarray]:
        found = {name: draw.normal(size=(count, *task.schema[name].shape)).astype(np.float32)
                 for name in shown.observe.signals}
        found["grip_quat_w"] /= np.linalg.norm(found["grip_quat_w"], axis=-1, keepdims=True)
        return {**found, "front_rgb": draw.integers(0, 256, (count, 12, 16, 3), dtype=np.uint8)}

    def answer(given: dict[str, np.ndarray], count: int) -> np.ndarray:
        with torch.no_grad():
            commands, _ = graph({k: torch.from_numpy(v) for k, v in given.items()}, graph.initial_memory(count))
        return commands[task.command].numpy()

    trace, memory, rows = signals(4), graph.initial_memory(1), []
    for t in range(4):
        with torch.no_grad():
            commands, after = graph({k: torch.from_numpy(v[t : t + 1]) for k, v in trace.items()}, memory)
        rows.append({**{f"memory.{k}": v[0].numpy() for k, v in memory.items()},
                     f"commands.{task.command}": commands[task.command][0].numpy()})
        memory = after
    golden = {**{f"signals.{k}": v for k, v in trace.items()}, **{k: np.stack([r[k] for r in rows]) for k in rows[0]}}
    spec = ArtifactSpec(
        robot=task.robot, signals=graph.signals, command=task.command, rate_hz=1 / task.control_dt,
        formula_text=task.formula_text, constants=task.constants, horizon_s=task.episode_s, training={}, seed=0,
        stop=task.stop, name="seeing", task_signals={**task.schema, **graph.picture_specs})
    artifact = export(graph, tmp_path / "seeing", spec, golden)
    assert isinstance(artifact, Artifact)
    artifact.self_test()
    fresh = signals(5)
    commands, _ = artifact.act_batch(fresh, artifact.initial_memory(5))
    np.testing.assert_allclose(commands[task.command], answer(fresh, 5), atol=2e-5)
    darker = {**fresh, "front_rgb": fresh["front_rgb"] // 2}
    assert np.abs(artifact.act_batch(darker, artifact.initial_memory(5))[0][task.command] - commands[
        task.command]).max() > 1e-4
