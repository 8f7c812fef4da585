"""Signals over time on the page: the numbers are the episode's, the formula's come first."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from temporeal.policies.evaluate.report.series import PLOTS, plotted, series_of
from temporeal.policies.evaluate.rollout import Rollout
from temporeal.robots.signals import CommandSpec, SignalSpec, schema
from temporeal.sim.stl.language.parse import parse

SCHEMA = schema(
    SignalSpec("base_pos_w", (3,), "m"), SignalSpec("height", (), "m"), SignalSpec("base_quat_w", (4,), "wxyz"))
FORMULA = parse("G[0,2] (height > 0.5)", SCHEMA)
COMMAND = CommandSpec("twist_cmd", (2,), "m/s,rad/s", low=(-1.0, -1.0), high=(1.0, 1.0))


def rollout(**changes: Any) -> Rollout:
    rng = np.random.default_rng(0)
    signals = {"base_quat_w": rng.normal(size=(6, 2, 4)), "base_pos_w": rng.normal(size=(6, 2, 3)),
               "height": rng.normal(size=(6, 2)), "mission_time": np.zeros((6, 2)), "rgb": np.zeros((6, 2, 8, 8))}
    commands = rng.normal(size=(5, 2, 2)).astype(np.float32)
    return Rollout(**{"signals": signals, "actions": np.zeros((5, 2, 2)), "lengths": np.full(2, 6),
                      "terminated": np.zeros(2, bool), "finite": np.ones(2, bool), "dt": 0.5, "commands": commands,
                      **changes})


def decoded(row: dict[str, Any]) -> np.ndarray:
    raw = np.frombuffer(base64.b64decode(row["data"]), "<i2").reshape(-1, len(row["parts"])).astype(float)
    return np.where(raw == -32768, np.nan, row["low"] + (raw + 32767) / 65534 * (row["high"] - row["low"]))


def test_what_the_formula_reads_comes_first_then_the_command() -> None:
    rows = series_of(rollout(), 1, np.arange(6), FORMULA, COMMAND, SCHEMA)
    assert [(r["name"], r["read"], r["unit"]) for r in rows] == [
        ("height", True, "m"), ("twist_cmd", None, "m/s,rad/s"), ("base_pos_w", False, "m"),
        ("base_quat_w", False, "wxyz")]
    assert [r["parts"] for r in rows] == [[""], ["0", "1"], ["x", "y", "z"], ["w", "x", "y", "z"]]


def test_plots_are_of_the_episodes_numbers() -> None:
    used, steps = rollout(), np.array([0, 2, 5])
    rows = {r["name"]: r for r in series_of(used, 1, steps, FORMULA, COMMAND, SCHEMA)}
    for name in ("height", "base_pos_w"):
        want = used.signals[name][steps, 1].reshape(3, -1)
        np.testing.assert_allclose(decoded(rows[name]), want, atol=1.01 * np.ptp(want) / 65534)
    np.testing.assert_allclose(decoded(rows["twist_cmd"]), used.commands[[0, 2, 4], 1], atol=1e-4)  # held at the end


def test_what_is_no_number_is_a_gap_and_what_is_constant_has_a_height() -> None:
    gap = plotted("x", np.array([1.0, np.nan, 3.0, np.inf]), "m", True)
    np.testing.assert_allclose(decoded(gap)[:, 0], [1, np.nan, 3, np.nan], atol=1e-4)
    flat = plotted("x", np.zeros(3), "m", True)
    assert flat["high"] > flat["low"] and decoded(flat) == pytest.approx(np.zeros((3, 1)), abs=1e-9)


def test_nothing_is_plotted_that_is_unknown_and_not_too_much() -> None:
    unknown = rollout(commands=np.full((5, 2, 2), np.nan))
    assert "twist_cmd" not in {r["name"] for r in series_of(unknown, 0, np.arange(6), FORMULA, COMMAND, SCHEMA)}
    many = rollout(signals={f"s{i}": np.zeros((6, 2)) for i in range(30)})
    assert len(series_of(many, 0, np.arange(6), FORMULA, COMMAND)) == PLOTS
