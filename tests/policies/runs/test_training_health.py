"""What goes wrong in the worlds of a training is counted in each iteration, for all processes, and told at its end."""

import pytest
import torch

from temporeal.policies.algos import ppo
from temporeal.policies.cli.verbs import train as verb
from temporeal.policies.runs import training
from temporeal.policies.training import ppo_state
from temporeal.policies.training.ranks import Ranks
from temporeal.sim.env import make_env
from temporeal.sim.task import load_task
from temporeal.sim.types import Status

CONFIG = {"rollout_steps": 8, "epochs": 1, "minibatches": 1, "actor_hidden": [8], "critic_hidden": [8], "threads": 1}


class Two(Ranks):
    """Two processes in which the same happens."""

    def gathered(self, rows):
        return torch.cat([rows, rows])


def environment(monkeypatch):
    """Worlds whose first action sometimes makes the reward no number, in a simulator that lacks room and warns."""
    task = load_task("hover")

    def step(self, signals, action, memory):
        reward, ended, memory = type(task.objective).__mro__[1].step(self, signals, action, memory)
        zero = torch.where(action[:, 0] > 0.5, 0.0, 1.0)
        return reward * zero / zero, ended, memory

    task.objective.__class__ = type("Other", (type(task.objective),), {"step": step})
    env = make_env(task, num_worlds=16, seed=1, threads=1)
    asked = []

    def status():
        asked.append(None)
        overflow = torch.arange(16) < 3
        return Status(env.backend.bad, overflow, {"contactfull": 2 * len(asked), "inertia": 0})

    monkeypatch.setattr(env.backend, "status", status)
    return env, asked


@pytest.mark.parametrize("ranks", [Ranks(), Two()], ids=["one", "two"])
def test_diverged_worlds_warnings_and_lost_contacts_are_counted_in_each_iteration(ranks, tmp_path, monkeypatch):
    env, asked = environment(monkeypatch)
    rows = []
    result = ppo.train(env, ppo_state.PPOConfig(**CONFIG, total_steps=3 * 8 * 16), out=tmp_path, ranks=ranks,
                       logger=lambda steps, row: rows.append(row))
    size = 2 if isinstance(ranks, Two) else 1
    assert len(rows) == 3 == len(result.history)
    assert sum(row["diverged"] for row in rows) == size * env.diverged > 0
    assert all(row["overflow"] == size * 3 and row["warnings"] == size * 2 for row in rows)
    assert len(asked) <= 2 * len(rows)  # not in each step: asking costs
    found = training.health(result.history, env)
    assert found == {"diverged": size * env.diverged, "overflow": size * 3, "warnings": size * 6}
    told = list(training.troubles(found, env, tmp_path))
    assert len(told) == 3 and told[0].startswith(f"{int(found['diverged'])} episodes ended because")
    assert f"no room in up to {size * 3} worlds" in told[1]
    assert f"warned {size * 6} times" in told[2] and "contactfull" in told[2] and "inertia" not in told[2]


def test_nothing_is_told_where_nothing_went_wrong():
    env = make_env(load_task("hover"), num_worlds=4, threads=1)
    found = training.health([], env)
    assert found == {"diverged": 0, "overflow": 0, "warnings": 0} and not list(training.troubles(found, env, None))
    older = [
        {"steps": 1.0},
        {"diverged": 1.0, "warnings": 0.0, "overflow": 0.0},
    ]  # of a run that began before they were
    assert training.health(older, env)["diverged"] == 1


def test_the_end_of_a_training_tells(tmp_path, monkeypatch, capsys):
    env, _ = environment(monkeypatch)
    monkeypatch.setattr("temporeal.policies.runs.environments.make_env", lambda *a, **k: env)
    assert verb.run(["task=hover", "algo=ppo", "num_worlds=16", f"out={tmp_path / 'run'}", "algo.total_steps=512",
                    "algo.rollout_steps=8", "algo.minibatches=1", "algo.threads=1"]) == 0
    said = capsys.readouterr().out
    assert "not finite; diagnostics were written to" in said and "no room in up to 3 worlds" in said
    assert "the simulator warned" in said
