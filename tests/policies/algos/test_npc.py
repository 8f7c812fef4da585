"""STL neural predictive control: it learns missions through a model, plans, backs up, resumes bit for bit."""

from __future__ import annotations

import dataclasses
import importlib.util
from functools import partial
from pathlib import Path

import pytest
import torch

from temporeal.policies.algos import npc
from temporeal.policies.algos.npc import Missions, NPCConfig, load_policy, plan, train
from temporeal.policies.planning.problem import judge, problem, rollout, smoothed
from temporeal.policies.planning.receding import Receding
from temporeal.policies.training.checkpoint import CheckpointError
from temporeal.policies.training.errors import NonFiniteError, SettingsError
from temporeal.policies.training.predictive_policy import Policy, act
from temporeal.policies.training.ranks import Ranks
from temporeal.robots.signals import SignalSpec
from temporeal.sim.env import make_env
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.semantics.robustness import robustness
from temporeal.sim.task import load_task

HERE = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("plan_models", HERE / "plan_models.py")
assert SPEC and SPEC.loader
models = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(models)

SIGNALS = {"p": SignalSpec("p", (2,), "")}
REACH = "F[0,8] (norm(p - [1, 1]) < 0.4) & G[0,8] (norm(p) > 0.6)"
SEQUENCE = "F[0,6] (norm(p - [1, -1]) < 0.4 & F[0,4] (norm(p - [1, 1]) < 0.4)) & G[0,10] (norm(p) > 0.6)"
UNTIL = "(norm(p - [1, 1]) > 0.6) U[0,5] (norm(p - [-1.5, 1]) < 0.4) & F[0,10] (norm(p - [1, 1]) < 0.5)"
DT = 0.5
SMALL = NPCConfig(updates=120, batch=64, hidden=(64, 64), learning_rate=3e-3, backup_steps=40)


def formula(text):
    return parse(text, SIGNALS)


def missions(text=REACH, model=None):
    model = model or models.Point(DT)

    def draw(count, generator):
        out = models.spread(count, generator)
        return {**out, "heading": torch.zeros(count)} if isinstance(model, models.Unicycle) else out

    return Missions(model, formula(text), DT, 16 if text == REACH else 20, draw)


def fresh(task, count=64):
    return task.draw(count, torch.Generator().manual_seed(1000))


def success(task, policy, config):
    found = plan(task.model, task.formula, task.dt, fresh(task), task.steps, config, policy=policy)
    return float((found.robustness > 0).float().mean())


@pytest.mark.parametrize(("text", "model", "chunk"), [
    (REACH, models.Point(DT), 0), pytest.param(SEQUENCE, models.Point(DT), 0, marks=pytest.mark.slow),
    pytest.param(UNTIL, models.Point(DT), 0, marks=pytest.mark.slow),
    pytest.param(REACH, models.Unicycle(DT), 0, marks=pytest.mark.slow),
    pytest.param(SEQUENCE, models.Unicycle(DT), 5, marks=pytest.mark.slow),
], ids=["reach", "sequence", "until", "unicycle", "unicycle-chunks"])
def test_a_short_training_learns_missions(text: str, model, chunk: int, tmp_path: Path) -> None:
    task, config = missions(text, model), dataclasses.replace(SMALL, chunk=chunk, backup_below=None)
    untrained = npc.begin(task, config, 0).policy
    learned = train(task, config, out=tmp_path, seed=0)
    assert success(task, untrained, config) < 0.2
    assert success(task, learned.policy, config) > 0.9
    assert learned.history[-1]["success"] > 0.9 and learned.history[-1]["loss"] < learned.history[0]["loss"]


def test_what_is_learned_from_is_the_gradient_of_the_loss() -> None:
    config = dataclasses.replace(SMALL, margin=2.0, effort=0.3, grad_norm=1e9, learning_rate=1e-4)
    learner = npc.begin(missions(), config, 0)
    asked = npc.draw(learner.task, 64, torch.Generator().manual_seed(5))
    actions, states = act(learner.policy, asked.model, asked.state, asked.state, 0, 16)
    value = smoothed(asked, states, 0.1, "logsumexp")
    assert bool((value < 2.0).all())
    torch.testing.assert_close(npc.shortfall(config, value, actions),
                               2.0 - value + 0.3 * (actions**2).mean((1, 2)))
    assert not npc.shortfall(dataclasses.replace(config, margin=float(value.min()), effort=0.0), value, actions).any()


@pytest.mark.parametrize("chunk", [1, 5, 0])
def test_segments_give_the_same_gradient(chunk: int) -> None:
    found = []
    for segment in (0, 3):
        config = dataclasses.replace(SMALL, chunk=chunk, segment=segment)
        learner = npc.begin(missions(), config, 0)
        asked = npc.draw(learner.task, 8, torch.Generator().manual_seed(5))
        actions, states = act(learner.policy, asked.model, asked.state, asked.state, 0, 16, segment=segment)
        torch.testing.assert_close(rollout(asked.model, asked.state, actions), states)
        gradient = torch.autograd.grad(smoothed(asked, states, 0.1, "logsumexp").sum(), learner.policy.net[0].weight)
        found.append(gradient[0])
    torch.testing.assert_close(*found)
    assert float(found[0].abs().max()) > 0


def test_truncation_cuts_the_gradient_at_whole_chunks() -> None:
    learner = npc.begin(missions(), dataclasses.replace(SMALL, chunk=2), 0)
    asked = npc.draw(learner.task, 4, torch.Generator().manual_seed(5))
    flown = partial(act, learner.policy, asked.model, asked.state)
    weight = learner.policy.net[0].weight
    gradients = [torch.autograd.grad(flown(asked.state, 0, 16, truncate=truncate)[1][-1].sum(), weight)[0]
                 for truncate in (0, 5)]  # of 5: 6, three chunks
    late = flown(asked.state, 0, 12)[1][-1].detach()
    torch.testing.assert_close(gradients[1], torch.autograd.grad(flown(late, 12, 4)[1][-1].sum(), weight)[0])
    assert not torch.allclose(gradients[0], gradients[1])


# ---------------------------------------------------------------- on line


@pytest.mark.parametrize("text", [REACH, SEQUENCE, UNTIL])
def test_without_a_network_the_backup_policy_is_a_planner(text: str) -> None:
    task = missions(text, models.Unicycle(DT))
    found = plan(task.model, task.formula, DT, fresh(task, 8), task.steps, NPCConfig(),
                 torch.Generator().manual_seed(0))
    assert bool((found.robustness > 0).all()) and bool((found.actions.abs() <= 1).all())
    asked = problem(task.model, task.formula, DT, fresh(task, 8), task.steps)
    signals = {"p": rollout(task.model, asked.state, found.actions)[..., :2]}
    torch.testing.assert_close(found.robustness, robustness(task.formula, signals, DT)[0])


def test_the_backup_policy_helps_where_the_network_fails_and_only_there() -> None:
    task, config = missions(), dataclasses.replace(SMALL, backup_restarts=1)
    policy = npc.begin(task, config, 0).policy
    signals, generator = fresh(task, 6), torch.Generator().manual_seed(0)
    arguments = (task.model, task.formula, DT, signals, task.steps)
    alone = plan(*arguments, dataclasses.replace(config, backup_below=None), generator, policy=policy)
    with_backup = plan(*arguments, config, generator, policy=policy)
    assert bool((alone.robustness < 0).all()) and bool((with_backup.robustness > 0).all())
    low = float(alone.robustness.sort().values[2:4].mean())
    some = plan(*arguments, dataclasses.replace(config, backup_below=low), generator, policy=policy)
    kept = alone.robustness >= low
    assert 0 < int(kept.sum()) < 6
    assert torch.equal(some.actions[kept], alone.actions[kept])
    assert bool((some.robustness[~kept] > alone.robustness[~kept]).all())


@pytest.mark.slow
def test_on_line_it_makes_up_for_another_plant(tmp_path: Path) -> None:
    task, plant = missions(SEQUENCE), models.Point(DT, speed=0.8)
    results = []
    for chunk in (0, 5):
        config = dataclasses.replace(SMALL, chunk=chunk)
        policy = train(task, config, out=tmp_path / str(chunk), seed=0).policy
        for every in (0, 4):
            pilot = Receding(partial(plan, policy=policy), task.model, task.formula, DT, 20, config,
                             torch.Generator().manual_seed(0), every=every)
            results.append(models.pursue(pilot, plant, task.formula, DT, fresh(task, 8), 20).robustness)
    for once, again in (results[:2], results[2:]):
        assert float((again > 0).float().mean()) == 1.0 > float((once > 0).float().mean())


def test_a_network_is_asked_about_its_own_missions_only() -> None:
    task = missions()
    policy = npc.begin(task, SMALL, 0).policy
    with pytest.raises(ValueError, match="missions of 16 control steps; this one has 0 \\+ 18"):
        plan(task.model, task.formula, DT, fresh(task), 18, SMALL, policy=policy)
    cart = models.Cart(DT)
    now = {"p": torch.zeros(1, 2), "v": torch.zeros(1, 2)}
    policy = Policy(4, 2, 16, SMALL)
    with pytest.raises(ValueError, match="past must have all signals, also v"):
        plan(cart, task.formula, DT, now, 15, SMALL, policy=policy, past={"p": torch.zeros(1, 1, 2)})


# ---------------------------------------------------------------- runs


def test_a_run_goes_on_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, updates=8, checkpoint_seconds=0.0)
    whole = train(missions(), config, out=tmp_path / "whole", seed=3)
    stopped = train(missions(), config, out=tmp_path / "parts", seed=3, on_iteration=lambda x: x.update == 5)
    assert len(stopped.history) == 5
    rest = train(missions(), config, out=tmp_path / "parts", seed=3, resume=True)
    for a, b in zip(whole.policy.state_dict().values(), rest.policy.state_dict().values()):
        assert torch.equal(a, b)
    assert [r["loss"] for r in whole.history] == [r["loss"] for r in rest.history]
    policy, read = load_policy(tmp_path / "parts")
    assert read == config
    state = missions().draw(4, torch.Generator().manual_seed(0))["p"]
    assert torch.equal(policy(state, state, 0), rest.policy(state, state, 0))
    other = train(missions(), config, out=tmp_path / "other", seed=4)
    assert not torch.equal(other.policy.net[0].weight, whole.policy.net[0].weight)


@pytest.mark.parametrize(("task", "settings", "seed", "told"), [
    (missions(), {"margin": 0.5}, 3, "the configuration differs \\(margin 0.2 -> 0.5\\)"),
    (missions(), {}, 4, "the run differs \\(seed 3 -> 4\\)"),
    (missions(SEQUENCE), {}, 3, "the task differs"),
])
def test_another_run_is_not_resumed(task, settings, seed: int, told: str, tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, updates=2)
    train(missions(), config, out=tmp_path, seed=3)
    with pytest.raises(CheckpointError, match=told):
        train(task, dataclasses.replace(config, **settings), out=tmp_path, seed=seed, resume=True)


def test_a_diverging_gradient_is_an_error_with_advice(tmp_path: Path) -> None:
    class Explodes(models.Point):
        def step(self, state, action):
            return state.detach() + self.dt * action + torch.where(action[:, :1] * 0 == 0, action * torch.nan, action)

    with pytest.raises(SettingsError, match="not finite numbers under random actions"):
        train(missions(model=Explodes(DT)), SMALL, out=tmp_path)

    class Steep(models.Point):
        def step(self, state, action):
            return state + self.dt * action.sign() * action.abs().sqrt()  # its slope at 0 is infinite

    config = dataclasses.replace(SMALL, updates=1, activation="relu")
    learner = npc.begin(missions(model=Steep(DT)), config, 0)
    with torch.no_grad():
        for parameter in learner.policy.net.parameters():
            parameter.zero_()
    with pytest.raises(NonFiniteError, match="set truncate"):
        npc.improve(learner)


def test_progress_and_log_are_told(tmp_path: Path) -> None:
    rows = []
    train(missions(), dataclasses.replace(SMALL, updates=3), out=tmp_path, logger=lambda steps, row: rows.append(
        (steps, dict(row))))
    assert [steps for steps, _ in rows] == [64 * 16, 2 * 64 * 16, 3 * 64 * 16]
    assert rows[-1][1]["fraction"] == 1.0 and rows[-1][1]["eta"] == 0.0
    assert {"loss", "robustness", "success", "rate", "learning_rate", "temperature"} <= set(rows[0][1])
    assert rows[0][1]["temperature"] == 0.1 and rows[-1][1]["temperature"] < 0.1


def test_an_environment_of_the_suite_is_learned_and_flown_by_its_graph(tmp_path: Path) -> None:
    task = load_task("stl", formula="F[0,4] (hypot(base_pos_w.x - 1, base_pos_w.y - 1) < 0.5)", system="unicycle",
                     start={"low": [-1, -1], "high": [0, 0], "heading": [0, 1]})
    env = make_env(task, backend="planar", num_worlds=32, seed=0, threads=1)
    config = dataclasses.replace(SMALL, updates=60, chunk=5)
    train(env, config, out=tmp_path, seed=0)
    graph = npc.load_graph(tmp_path, task)
    env = make_env(dataclasses.replace(task, observe=graph.observe), backend="planar", num_worlds=32, seed=7, threads=1)
    obs, seen = env.reset(), []
    for _ in range(20):
        seen.append(env.true_signals()["base_pos_w"].clone())
        obs = env.step(graph.actor(obs.actor)).obs
    value = robustness(task.formula, {"base_pos_w": torch.stack(seen)}, task.control_dt)[0]
    assert float((value > 0).float().mean()) > 0.9
    commands, memory = graph(env.true_signals(), graph.initial_memory(32))
    assert commands[task.command].shape == (32, 2) and bool((memory["tick"] == 1).all())


def test_tasks_without_a_model_and_several_processes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="task 'hover' does not have"):
        npc.missions(load_task("hover"))
    with pytest.raises(SettingsError, match="one process, not in 2"):
        train(missions(), SMALL, out=tmp_path, ranks=Ranks(0, 2))


@pytest.mark.parametrize(("settings", "told"), [
    ({"method": "max"}, "method is 'max'; legal: logsumexp, softmax"), ({"activation": "step"}, "activation is"),
    ({"spline": "wavy"}, "spline is"), ({"updates": 0}, "updates must"), ({"temperature": 0.0}, "temperature must"),
    ({"chunk": -1}, "chunk must not"), ({"hidden": ()}, "hidden is a list"), ({"max_seconds": 0}, "max_seconds must"),
    ({"backup_steps": -1}, "backup_steps must not"),
])
def test_settings_that_cannot_work_are_refused(settings, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        NPCConfig(**settings)


def test_judged_plans_are_those_that_are_given(tmp_path: Path) -> None:
    task = missions()
    found = plan(task.model, task.formula, DT, fresh(task, 4), 16, dataclasses.replace(SMALL, backup_steps=3))
    torch.testing.assert_close(judge(problem(task.model, task.formula, DT, fresh(task, 4), 16), found.actions),
                               found.robustness)
