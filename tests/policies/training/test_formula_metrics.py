"""What a training logs of the formula: robustness and verdict of the episodes that really were."""

import warnings

import numpy as np
import pytest
import torch

from temporeal.policies.cli import main
from temporeal.policies.evaluate.evaluation import evaluate
from temporeal.policies.evaluate.rollout import rollout
from temporeal.policies.training.formula_metrics import FormulaMetrics
from temporeal.policies.training.ppo_checkpoint import read_last
from temporeal.sim.env import make_env
from temporeal.sim.task import load_task


def env_of(share=0.0):
    env = make_env(load_task("stl"), num_worlds=8, seed=3, threads=1, mid_episode_starts=share)
    env.reset()
    return env


def to_the_right(obs):
    return torch.tensor([[1.0, 0.2]]).expand(len(obs), -1)


def test_metrics_agree_with_an_evaluation():
    judged = evaluate(rollout(make_env(load_task("stl"), num_worlds=8, seed=3, threads=1), to_the_right),
                      load_task("stl").formula).episodes
    env = env_of()
    metrics, seen = FormulaMetrics(env), set()
    for _ in range(env.task.steps):
        step = env.step(to_the_right(env.worlds))
        again = [int(i) for i in (step.terminated | step.truncated).nonzero()[:, 0] if int(i) in seen]
        metrics.known[again] = False  # of each world its first episode only
        seen |= set((step.terminated | step.truncated).nonzero()[:, 0].tolist())
        metrics(step)
    assert len(seen) == 8
    margins = torch.cat([torch.as_tensor(m) for m in metrics.margins])
    np.testing.assert_allclose(np.sort(margins), np.sort(judged.robustness), atol=1e-6)
    figures = metrics.means()
    assert figures["robustness"] == pytest.approx(float(judged.robustness.mean()), abs=1e-6)
    assert figures["satisfied"] == pytest.approx(float((judged.robustness > 0).mean()))
    assert metrics.means() == {}


def test_only_whole_episodes_count():
    """Not those that start in the middle, nor those already running at construction."""
    env = env_of()
    env.step(to_the_right(env.worlds))
    late, env2 = FormulaMetrics(env), env_of(share=1.0)
    mid_episode = FormulaMetrics(env2)
    for world, metrics in ((env, late), (env2, mid_episode)):
        running = torch.ones(8, dtype=torch.bool)
        while bool(running.any()):
            step = world.step(to_the_right(world.worlds))
            if metrics is late:
                metrics.known[~running] = False
            metrics(step)
            running &= ~(step.terminated | step.truncated)
    assert late.means() == mid_episode.means() == {}


def metrics_after(formula, constants, steps):
    env = make_env(
        load_task("stl", formula=formula, constants=constants), num_worlds=8, seed=3, threads=1, mid_episode_starts=0.0
    )
    env.reset()
    metrics = FormulaMetrics(env)
    for _ in range(steps):
        metrics(env.step(to_the_right(env.worlds)))
    return metrics


FAR, NEAR = "F[0,2] (norm(base_pos_w - a) < r)", "G[0,2] (norm(base_pos_w) < 50)"


def test_a_formula_that_never_held_is_warned_of_once():
    """The clause that is to blame is named: whoever wrote it trained to the end before anything was said."""
    metrics = metrics_after(f"{FAR} & {NEAR}", {"a": [40.0, 0.0, 0.0], "r": 0.5}, 60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metrics.warn(0.3)
    words = r"none of \d+ episodes observed in the first 34% .*in none: F\[0,2\] .*robustness -3"
    with pytest.warns(UserWarning, match=words) as messages:
        metrics.warn(0.34)
    assert "50" not in str(messages[0].message) and metrics.episodes >= 32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metrics.warn(0.9)


def test_clauses_that_never_held_together_are_distinguished_from_those_that_never_held():
    metrics = metrics_after("F[0,2] (base_pos_w.x > 0) & G[0,2] (base_pos_w.x < 0)", {}, 60)
    metrics.times_held[:] = 1
    with pytest.warns(UserWarning, match="each of its clauses held in some of them, all together in none"):
        metrics.warn(0.5)


@pytest.mark.parametrize("steps", [5, 60])
def test_a_formula_that_held_or_was_hardly_seen_raises_no_warning(steps):
    metrics = metrics_after(NEAR if steps == 60 else f"{FAR} & {NEAR}", None if steps == 60 else {
        "a": [40.0, 0.0, 0.0], "r": 0.5}, steps)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metrics.warn(0.9)


SLOW = "F[0.4,2] (norm(base_pos_w) < 50 & norm(base_vel_w) < 1.1)"


@pytest.mark.parametrize(("slack", "word"), [(1.09, "slack"), (0.0, None), (None, None)])
def test_a_slack_too_large_is_warned_of(slack, word):
    """The formula held all the while, and no hit ever counted: at 1.02 m/s a speed below 1.1 holds by 0.08."""
    env = make_env(load_task("stl", formula=SLOW, slack=slack), num_worlds=8, seed=3, threads=1)
    env.reset()
    metrics = FormulaMetrics(env)
    for _ in range(60):
        metrics(env.step(to_the_right(env.worlds)))
    assert metrics.ever and metrics.hit is (word is None)
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        metrics.warn(0.34)
    assert [word in str(w.message) and "1.09" in str(w.message) for w in messages] == [True] * (word is not None)


def test_training_logs_it(tmp_path):
    words = [
        "train",
        "algo=ppo",
        "task=stl/linear_reach",
        "task.settings.view=terminal_robustness",
        "num_worlds=64",
        "threads=1",
        "algo.threads=1",
        "algo.total_steps=16000",
        "algo.actor_hidden=[16]",
        "algo.critic_hidden=[16]",
        "--out",
        str(tmp_path / "r"),
    ]
    assert main.main(words) == 0
    rows = [row for row in read_last(tmp_path / "r")["history"] if "robustness" in row]
    assert rows and all(0 <= row["satisfied"] <= 1 for row in rows)
