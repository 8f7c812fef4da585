"""Graphs as methods: what they are told of missions, their memory, and runs that make no policy for any formula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from temporeal.policies.runs.errors import BadInput
from temporeal.sim.maps import Memory, PolicyGraph
from temporeal.sim.stl.distribution.drawing import Drawn
from temporeal.sim.stl.distribution.settings import world
from temporeal.sim.task_parts.systems import system_of
from temporeal_benchmarks.any_formula import policies, policy_study, sets
from temporeal_benchmarks.any_formula.flights import Mission, Signals, fly
from temporeal_benchmarks.any_formula.graphs import Graph, Told
from temporeal_benchmarks.data import studies


class Ahead(nn.Module):
    """How far it is to the place that it is told, and how many steps it has made."""

    signals, memory, obs_dim = ("base_pos_w", "goal"), {"tick": ()}, 2

    def forward(self, signals: Mapping[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        return signals["goal"] - signals["base_pos_w"][:, :2], {"tick": memory["tick"] + 1}

    def record(self, memory: Memory, action: Tensor) -> Memory:
        return memory


class Straight(nn.Module):
    """To the place, as fast as it goes."""

    def forward(self, obs: Tensor) -> Tensor:
        return (5.0 * obs).clamp(-1.0, 1.0)


def goals(missions: Sequence[Mission], signals: Signals) -> Told:
    """The first place of each; surer the nearer it is."""
    there = torch.tensor([mission.constants["a"][:2] for mission in missions])
    return Told({"goal": there}, torch.exp(-(there - signals["base_pos_w"][:, :2]).norm(dim=1)))


def straight(**more: Any) -> Graph:
    graph = PolicyGraph(Ahead(), nn.Identity(), Straight(), system_of("linear").act)
    return Graph(graph, "straight", tell=goals, **more)


def reach(index: int, x: float, seconds: int) -> Drawn:
    """To (x, 0) from (0, 0), in time."""
    text = f"F[0,{seconds}] (norm(base_pos_w - a) < a_r)"
    return Drawn("train", "reach", 0, index, text, {"a": [x, 0.0, 0.0], "a_r": 0.5}, (0.0, 0.0, 0.0), 0.0,
                 5 * seconds, np.zeros((5 * seconds, 2)), 0.1)


def test_a_graph_is_told_of_each_mission_and_one_by_one_flies_as_together() -> None:
    formulas, of = [reach(0, 2.0, 3), reach(1, -3.0, 2), reach(2, -3.0, 4)], world("linear")  # at 1 m/s
    together, alone = (fly(straight(at_once=n), formulas, of) for n in (1000, 1))
    assert [f.satisfied for f in together] == [True, False, True]
    assert [f.robustness for f in together] == [f.robustness for f in alone]
    assert [f.forecast for f in together] == [f.forecast for f in alone] == pytest.approx(
        [exp(-2.0), exp(-3.0), exp(-3.0)])


class Made:
    """What a maker gives."""

    at_once = 2

    def __init__(self, folder: Path, of: Any) -> None:
        self.method = straight(at_once=2)

    gives = "commands"

    def begin(self, missions: Sequence[Mission], signals: Signals) -> Any:
        return self.method.begin(missions, signals)


def test_a_policy_is_found_by_the_algorithm_of_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("temporeal.policies.runs.run_folders.load_run", lambda folder: {"algo": {"name": "mine"}})
    with pytest.raises(BadInput, match="algo=mine makes no policy for any formula"):
        policies.method_of(tmp_path, world("linear"))
    monkeypatch.setattr(policies, "MAKERS", {"mine": Made})
    monkeypatch.setattr(policies, "weights", lambda folder: "0")
    monkeypatch.setattr(sets, "COUNT", dict.fromkeys(sets.FAMILIES, 2))
    out = tmp_path / "policy-study"
    policy_study.study(out, ["linear"], [1], 2, tmp_path)
    made = studies.read(out)
    assert set(made) == {*(f"policy/linear/{family}/1/0000" for family in sets.FAMILIES), "alone/linear/1/0000"}
    assert made["alone/linear/1/0000"]["each"][0][3] > 0 and len(made["policy/linear/unseen/1/0000"]["each"][0]) == 3
    rows = {row.name: row for row in policy_study.judged(made)}
    assert rows["any_formula.linear.validation"].value is not None and rows["any_formula.linear.validation"].ok is None
    assert rows["any_formula.decision_time"].ok is None and rows["any_formula.decision_time"].value > 0


def test_where_there_is_no_policy_nothing_is_flown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy_study.study(tmp_path / "policy-study", ["ant"], [1])
    assert studies.read(tmp_path / "policy-study") == {} and "no policy for ant, seed 1" in capsys.readouterr().out
