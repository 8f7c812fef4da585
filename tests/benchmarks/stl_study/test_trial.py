"""The suite's bench: one trial, real ones of each kind."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from temporeal.policies.evaluate.suite import catalog, timing
from temporeal.policies.evaluate.suite.averages import DONE, NOT_SUPPORTED
from temporeal.policies.evaluate.suite.catalog import METHODS
from temporeal.policies.runs import run_folders
from temporeal.robots.signals import SignalSpec, schema
from temporeal.sim.rewards.schedules import draw_schedules, movable
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.planning.arrivals import with_arrivals
from temporeal.sim.stl.planning.decompose import decompose
from temporeal_benchmarks.code_digest import code_digest
from temporeal_benchmarks.machine import ROOT
from temporeal_benchmarks.measurements import sim_learning
from temporeal_benchmarks.stl_study import digests, landscape, trial
from temporeal_benchmarks.stl_study.items import Item

pytestmark = pytest.mark.usefixtures("one_thread")


def order(tmp_path: Path, method: str, task: str = "linear_reach", **more: Any) -> dict[str, Any]:
    item = Item(task, method, 1)
    words = [*METHODS[method].words, "algo.checkpoint_seconds=1000", "compiled=false"]
    words = words if METHODS[method].kind != catalog.PLANNER else words[: len(METHODS[method].words)]
    return {"task": task, "system": item.system, "method": method, "seed": 1, "words": words, "episodes": 12,
            "budget_s": 0.01, "run": str(tmp_path / "run"), "file": str(tmp_path / "found.json"),
            "began": time.time(), **more}


TINY = ["num_worlds=16", "algo.total_steps=800", "algo.rollout_steps=25", "algo.actor_hidden=[8]",
        "algo.critic_hidden=[8]", "algo.threads=1"]


@pytest.mark.slow
def test_a_real_training_is_made_judged_and_drawn(tmp_path: Path) -> None:
    asked = order(tmp_path, "tgpo")
    asked["words"] += [*TINY, "algo.schedule_buffer=64", "algo.candidates=4", "algo.starts=4"]
    (tmp_path / "order").write_text(json.dumps(asked))
    assert trial.main([str(tmp_path / "order")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["status"], found["episodes"], found["depth"], found["planar"]) == (DONE, 12, 1, True)
    assert sum(found["first_to_fail"].values()) == 12 - found["satisfied"]
    assert found["success"][1] <= found["success"][0] <= found["success"][2]
    assert found["steps"] >= 800 and found["wall_s"] > 0 and found["peak_memory_B"] > 1e7
    assert {shape["role"] for shape in found["shapes"]} == {"goal", "avoid", "fence"}
    assert len(found["paths"]) == 6 and len(found["paths"][0]["points"][0]) == 3
    heat = found["heat"]
    assert np.shape(heat["value"]) == (len(heat["y"]), len(heat["x"])) and "t1" in heat["x_label"]
    assert found["evaluation_seed"] > 1_000_000 and len(found["settings"]) == 16
    anew = trial.learning(trial.history_of(tmp_path / "run"))
    assert anew == {name: found[name] for name in anew} and found["pooled"] == timing.POOL
    assert trial.digest(run_folders.load_run(tmp_path / "run")) == found["settings"]
    judged = trial.trial({**asked, "trained": {"cpu_s": 7.0, "settings": None}})
    assert (judged["cpu_s"], judged["settings"], judged["curve"]) == (7.0, None, found["curve"])


def test_a_real_planner_is_judged_on_as_many_starts_as_its_time_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(trial.BATCH, "cem", (5, 4))
    words = ["algo.population=16", "algo.elites=4", "algo.iterations=2"]
    few = order(tmp_path, "cem")
    found = trial.trial({**few, "words": [*few["words"], *words]})
    assert (found["status"], found["episodes"], found["few_starts"]) == (DONE, 5, True)
    assert found["plan_s"] == pytest.approx(found["planning_s"] / 5)
    every = trial.trial({**few, "words": [*few["words"], *words, "algo.replan=40"], "budget_s": 1e3})
    assert (every["episodes"], every["few_starts"], every["replan"]) == (12, False, 40)


def test_what_a_method_refuses_is_not_supported_with_the_reason(tmp_path: Path) -> None:
    assert "no model" in trial.trial(order(tmp_path, "cem", "ant_reach"))["reason"]
    flat = trial.trial(order(tmp_path, "f-mdp", "linear_seq"))
    assert flat["status"] == NOT_SUPPORTED and "f_mdp" in flat["reason"] and flat["depth"] == 3


def test_learning_is_told_with_its_curve() -> None:
    history = [{"seconds": float(i), "steps": 10.0 * i, "episodes": 100.0, **({"success": i / 100} if i > 10 else {})}
               for i in range(101)]
    found = trial.learning(history)
    assert len(found["curve"]) == 60 and found["curve"][0] == [11.0, 110.0, 0.11]
    assert found["curve"][-1] == [100.0, 1000.0, 1.0]
    assert [timing.time_to(found["curve"], x) for x in (0.5, 0.9)] == [50.0, 91.0] and found["seconds"] == 100.0
    assert trial.learning([])["curve"] == [] and found["pooled"] == timing.POOL
    assert set(found) == {"seconds", "steps", "curve", "pooled"}


def test_the_landscape_is_over_the_two_variables_with_room_and_blank_where_illegal() -> None:
    formula = parse("F[0,2] (p.x > 1 & F[0,1] p.y > 1)", schema(SignalSpec("p", (2,), "m")))
    alternatives = decompose(formula, 0.2).alternatives
    bank = torch.tensor([[0.0, 3.0, 5.0], [0.0, 10.0, 15.0]])
    found = landscape.landscape(alternatives, bank, lambda rows: (rows[:, 1] + 100 * rows[:, 2]).numpy().astype(float))
    assert found is not None
    assert found["best"] == pytest.approx([2.0, 3.0])
    value = found["value"]
    assert value.shape == (16, 11) and value[2, 1] == 201.0  # t1 = 1 sample, t2 = 2 samples
    assert np.isnan(value[0, 1]) and np.isnan(value[9, 3]) and not np.isnan(value[8, 3])  # order; 5 samples apart
    single = decompose(parse("F[0,2] p.x > 1", schema(SignalSpec("p", (2,), "m"))), 0.2).alternatives
    assert landscape.landscape(single, torch.tensor([[0.0, 3.0]]), lambda rows: np.zeros(len(rows))) is None


def test_the_landscape_moves_variables_at_a_fixed_distance_together() -> None:
    formula = parse("F[0,2] (p.x > 1 & G[0.4,0.6] p.y > 1) & F[0,2] p.x < -1", schema(SignalSpec("p", (2,), "m")))
    alternative = with_arrivals(decompose(formula, 0.2).alternatives[0])
    groups = movable(alternative)
    assert sorted(map(len, groups)) == [1, 2]
    x, y = landscape.axes_of(alternative)
    assert {x.index, y.index} == {group[0] - 1 for group in groups}
    bank = draw_schedules([alternative], 1, np.random.default_rng(0))
    found = landscape.landscape([alternative], bank, lambda rows: rows[:, 1:].sum(1).numpy().astype(float))
    assert found is not None and np.isfinite(found["value"]).all()  # no order between the two


def test_paths_show_two_failures_and_the_rest_satisfied() -> None:
    signals = {"base_pos_w": np.arange(5 * 8 * 3, dtype=np.float32).reshape(5, 8, 3)}
    rollout = SimpleNamespace(signals=signals, lengths=np.array([3] * 8))
    good = np.array([True, False, False, False, True, True, True, True])
    found = trial.paths(rollout, SimpleNamespace(episodes=SimpleNamespace(satisfied=good)))
    assert [path["satisfied"] for path in found] == [False, False, True, True, True, True]
    good[4:] = False
    assert [path["satisfied"] for path in trial.paths(
        rollout, SimpleNamespace(episodes=SimpleNamespace(satisfied=good)))] == [False] * 5 + [True]
    assert found[0]["points"].tolist() == [[3, 4, 5], [27, 28, 29], [51, 52, 53]]


def test_the_digest_is_of_what_the_method_is_given_and_not_of_its_formula() -> None:
    from temporeal.policies.runs.settings import compose

    def digest(task: str, *words: str) -> str:
        return trial.digest(compose.compose(["algo=tgpo", f"task=stl/{task}", *words]))

    assert digest("linear_reach") == digest("linear_seq")
    others = [digest("linear_reach", word) for word in ("algo.desired_kl=0.01", "num_worlds=64", "algo=ppo",
                                                        "task.settings.slack=0.01")]
    assert len({digest("linear_reach"), *others}) == 5
    item = Item("linear_seq", "tgpo", 1)
    assert digests.settings_digest(item) == trial.digest(compose.compose([*item.words, "task=stl/linear_seq"]))


def test_what_digests_are_of_is_there() -> None:
    for part in (*digests.CODE, *sim_learning.CODE):
        assert (ROOT / part).exists(), part
    with pytest.raises(FileNotFoundError, match="nosuch"):
        code_digest(["sim/nosuch"], lambda path: True)
