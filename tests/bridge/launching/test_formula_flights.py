"""Typed formulas in real time, one after another: nodes as processes over DDS, none of which is started anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mujoco")
pytest.importorskip("torch")

from tests.bridge.instruction.flown_formulas import PLACES, write

from temporeal_bridge.launching.flights import FlightPlan, fly
from temporeal_bridge.recording import bags

FORMULAS = (
    "F[0,3] (norm(base_pos_w - a) < r)",
    "F[0,2] (norm(base_pos_w - a) < r & F[0,2] (norm(base_pos_w - b) < r))",
    "F[0,0.1] (norm(base_pos_w - far) < r)",
    "F[0,3] G[0,0.5] (norm(base_pos_w - b) < r) & G[0,3.5] (hypot(base_pos_w.x - 1.5, base_pos_w.y) > 0.4)",
    "F[0,3] (norm(base_pos_w - far) < r) | F[0,3] (norm(base_pos_w - b) < r)")


@pytest.mark.slow
def test_typed_formulas_are_flown_in_a_row_and_one_that_is_hopeless_is_refused(tmp_path: Path) -> None:
    artifact, said = write(tmp_path / "artifact"), list[tuple[int, Any]]()
    texts = tuple(json.dumps({"formula": text, "constants": {**PLACES, "far": [2.0, 2.0, 1.0]}}) for text in FORMULAS)
    report = fly(artifact, FlightPlan("crazyflie", len(FORMULAS), instructions=texts), tmp_path / "flights",
                 forecast=lambda seed, answer: said.append((seed, answer)))
    rows = report.flights
    assert report.fault == "" and len({row["logs"] for row in rows}) == 1  # the same processes throughout
    assert rows[2]["verdict"] == "failed" and "no order of the places is in time" in rows[2]["reason"]
    flown = [row for row in rows if row["verdict"] != "failed"]
    assert [row["seed"] for row in flown] == [seed for seed, _ in said] == [0, 1, 3, 4]
    assert [row["verdict"] for row in flown] == ["satisfied"] * 4 == [row["truth"]["verdict"] for row in flown]
    assert [json.loads(row["instruction"])["formula"] for row in flown] == [FORMULAS[row["seed"]] for row in flown]
    assert all(0 < row["forecast"] < 1 and row["formula_to_command_ms"] > 0 for row in flown)
    forecasts = bags.read(report.bag, lambda topic: topic == "/cf1/policy/forecast")
    assert len(forecasts.messages) > 10
