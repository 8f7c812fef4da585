"""The demo's last stage: flights that could not be flown are shown with their reason, and count as not satisfied."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from temporeal.policies.cli.main import main
from temporeal.policies.cli.verbs import demo, deploy
from temporeal.policies.runs.tuning_runs import graphs
from temporeal.sim.task import Task, load_task
from temporeal_bridge.launching.flights import FlightReport

KILLED = "policy_node was killed by SIGKILL (robot /cf1)"
RATE_HZ, HORIZON_S = 50.0, 9.0


def truth(task: Task, path: Path) -> dict[str, Any]:
    """A true trajectory at home, as the simulated robot writes it, and what its row says of it."""
    count = int(HORIZON_S * RATE_HZ) + 10
    arrays = {name: np.tile(np.asarray(task.robot.home[name], float), (count, 1)).reshape(count, *spec.shape)
              for name, spec in task.robot.signals.items()}
    np.savez(path, stamp_ns=np.arange(count) * round(1e9 / RATE_HZ), **arrays)
    return {"file": str(path), "start_ns": 0, "verdict": "violated", "robustness": -1.0}


def flown(rows: list[dict[str, Any]], fault: str = "") -> FlightReport:
    latency = dict.fromkeys(("p50", "p99", "max"), 1.0 if any("truth" in row for row in rows) else None)
    return FlightReport(rows, sum(row["verdict"] == "satisfied" for row in rows), latency, None, Path("bag"), [], fault)


def run(
    rows: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str = ""
) -> tuple[int, dict[str, Any], str]:
    """The demo with everything before the flights already done, and well: status, summary and page."""
    task = load_task("waypoints")
    manifest: Any = SimpleNamespace(horizon_s=HORIZON_S)
    good = {"seed": 9, "verdict": "satisfied", "truth": truth(task, tmp_path / "good.npz")}
    judged = demo.judge_flights(task, manifest, flown([good]))["ros2"]
    monkeypatch.setattr(demo, "train", lambda *_: {"seconds": 1.0, "env_steps": 10**6})
    monkeypatch.setattr(graphs, "load_graph", lambda *_: None)
    monkeypatch.setattr(demo, "judge", lambda *_: judged)
    monkeypatch.setattr(demo, "export", lambda *_: manifest)
    monkeypatch.setattr(demo, "fly", lambda *_: flown(rows, fault))
    monkeypatch.setattr(demo, "REQUIRED", {"native": 0.0, "mujoco": 0.0, "flights": 0.9})
    status = main(["demo", "--out", str(tmp_path / "demo"), "--flights", str(len(rows)), "--overwrite"])
    folder = tmp_path / "demo"
    return status, json.loads((folder / "summary.json").read_text()), (folder / "report.html").read_text()


def test_a_failed_flight_counts_as_not_satisfied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"seed": i, "verdict": "satisfied", "truth": truth(load_task("waypoints"), tmp_path / f"{i}.npz")}
            for i in range(4)]
    status, summary, page = run([*rows, {"seed": 4, "verdict": "failed", "reason": KILLED}], tmp_path, monkeypatch)
    assert (status, summary["verdict"]) == (1, "violated")
    found = summary["eval"]["ros2"]
    assert (found["satisfied"], found["flights"]) == (4, 5)
    assert found["failed"] == [{"flight": 4, "reason": KILLED}]
    assert "4 of 5 satisfied, by the monitor" in page
    assert f"Flight 4 failed: {KILLED}" in page
    assert run(rows, tmp_path, monkeypatch)[0] == 0


def test_flights_that_cannot_be_flown_leave_the_rest_of_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"seed": i, "verdict": "failed", "reason": f"not flown: {KILLED}"} for i in range(10)]
    status, summary, page = run(rows, tmp_path, monkeypatch, fault=KILLED)
    assert status == 2
    assert (summary["verdict"], summary["eval"]["ros2"]["satisfied"]) == ("violated", 0)
    assert summary["eval"]["native"]["episodes"] == 1
    assert "MuJoCo" in page
    assert "Flight 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 failed: not flown" in page
    told = capsys.readouterr().err
    assert told == f"temporeal: 0 of 10 flights were flown: {KILLED}; logs: {tmp_path}/demo/flights\n"


@pytest.mark.parametrize(("verdicts", "fault", "status"), [
    (["satisfied", "satisfied"], "", 0), (["satisfied", "failed"], "", 1), (["satisfied", "failed"], KILLED, 1),
    (["satisfied"], KILLED, 1), (["failed", "failed"], "", 2), (["failed"], KILLED, 2)])
def test_deploy_tells_what_was_not_flown(
    verdicts: list[str], fault: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [{"seed": i, "verdict": v, "reason": KILLED if v == "failed" else "", "missed": None}
            for i, v in enumerate(verdicts)]
    monkeypatch.setattr("temporeal_bridge.launching.flights.fly", lambda *_, **__: flown(rows, fault))
    options = deploy.parser().parse_args([str(tmp_path), "--sim"])
    settings = {"interface": None, "transport": "dds", "signals": None}
    assert deploy.simulate(options, settings, "crazyflie", tmp_path) == status
    told = capsys.readouterr()
    assert (KILLED in told.err) == bool(fault or status == 2)
    assert (KILLED in told.out) == ("failed" in verdicts and status == 1)
