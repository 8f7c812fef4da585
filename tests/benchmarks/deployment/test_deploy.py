"""``temporeal bench deploy``: who is beside the robot's nodes is really there, and rows say what was measured."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from temporeal.policies.cli.preflight.preflight import may_be_realtime
from temporeal_benchmarks.deployment.bus_peers import READ
from temporeal_benchmarks.measurements import deploy

MS = 1e-3


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[deploy.Bench]:
    """The simulated robot and its bus; neither guard nor controller."""
    made = deploy.Bench(tmp_path / "artifact", 500.0, tmp_path / "run", [])
    yield made
    made.close()


@pytest.fixture
def camera(bench: deploy.Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> deploy.Camera:
    """A camera that is off, with its reader."""
    monkeypatch.setattr(deploy, "CAMERA_S", 0.2)
    monkeypatch.setattr(bench, "round", lambda seconds: bench.run(seconds))  # nobody flies
    made = deploy.Camera(bench, tmp_path / "camera")
    made.begin()
    return made


def rounds(p50_ms: float, bare_ms: float = 0.1) -> list[deploy.Round]:
    many = np.ones(2 * deploy.ENOUGH)
    return [deploy.Round(p50_ms * MS * many, bare_ms * MS * many, np.outer(many, [0.05 * MS, 0.1 * MS]))]


def named(rows: list[deploy.Row], part: str) -> deploy.Row:
    row, = (row for row in rows if part in row.name)
    return row


def test_pictures_are_read_in_rounds_with_a_camera_and_only_there(bench: deploy.Bench, camera: deploy.Camera) -> None:
    bench.run(0.5)  # a round without it
    camera.round(1.0)
    read, due = camera.end()
    assert due == pytest.approx(30.0, abs=1.5)
    assert 0.5 * due < read <= due + 3  # a busy machine loses some; one comes at once, and one may come on either end
    assert np.diff(json.loads((camera.out / READ).read_text())["at"]).max() > 0.4


def test_a_camera_that_nobody_sees_is_none(bench: deploy.Bench, camera: deploy.Camera) -> None:
    camera.camera.send_signal(signal.SIGSTOP)
    camera.round(0.5)
    camera.camera.send_signal(signal.SIGCONT)
    read, due = camera.end()
    row = named(deploy.beside_camera(rounds(0.3), rounds(0.3), read, due), "p99")
    assert (read, row.value, row.ok) == (0, None, False)
    assert row.peer is not None and str(row.peer).startswith("not measured: only 0 of ")


@pytest.mark.skipif(not may_be_realtime(), reason="no real-time priority here")
def test_the_ping_has_the_core_and_the_priority_of_guard_and_controller(
    bench: deploy.Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = max(os.sched_getaffinity(0))
    bench.own = ["--core", str(core), "--awake"]
    with monkeypatch.context() as real:
        real.setattr(os, "sched_getscheduler", lambda pid: os.SCHED_FIFO)  # as after take_priority
        echo = bench.echo()
    bench.pings = True
    bench.run(30.0, lambda: len(bench.bare) > 20)
    assert len(bench.bare) > 20 and 0 < np.median(bench.bare) < 1.0
    assert os.sched_getaffinity(echo.pid) == {core} and os.sched_getscheduler(echo.pid) == os.SCHED_FIFO


def test_a_round_whose_ping_has_ended_is_none(bench: deploy.Bench) -> None:
    helper = bench.helper("echo", "--core", "-1")
    helper.wait()
    with pytest.raises(RuntimeError, match="echo ended with status 2"):
        bench.round(1.0)


def test_latency_is_judged_above_the_ping() -> None:
    rows = deploy.compared(rounds(0.35), 1, 1.0)
    assert named(rows, "p50 above").value == pytest.approx(0.25) and named(rows, "p50 above").ok
    rows = deploy.compared(rounds(1.15), 1, 1.0)
    assert not named(rows, "p50 above").ok and not named(rows, "p99 above").ok


@pytest.mark.parametrize("read, theirs_ms, share, ok", [
    (240, 0.3, 1.0, True), (216, 0.6, 2.0, True), (240, 0.61, 2.033, False), (215, 0.3, None, False)])
def test_what_a_camera_costs_is_told_where_nine_tenths_of_its_pictures_are_read(
    read: int, theirs_ms: float, share: float | None, ok: bool
) -> None:
    rows = deploy.beside_camera(rounds(0.3), rounds(theirs_ms), read, 240.0)
    found = named(rows, "p99 with")
    assert found.ok is ok and named(rows, "decoded").ok is (read >= 216)
    assert found.value is None if share is None else found.value == pytest.approx(share, abs=1e-3)


def test_a_camera_beside_rounds_that_did_not_last_is_not_judged_good() -> None:
    rows = deploy.beside_camera(rounds(0.3), [], 240, 240.0)
    assert named(rows, "p99 with").ok is False and named(rows, "p99 with").value is None


@pytest.mark.slow
def test_a_short_run_measures_all(tmp_path: Path) -> None:
    """Whether targets are met is the machine's matter; that everything is measured is not."""
    rows = deploy.run(True, out=tmp_path, minutes=["0.05"], rounds=["1"], priority=None)
    missing = {row.name for row in rows if row.value is None} - {"deploy.rclpy_ping.p50"}
    assert not missing, [row for row in rows if row.name in missing]
    assert named(rows, "decoded").ok and named(rows, "outside limits").ok
    worker, none = named(rows, "controller, worker").value, named(rows, "controller, monitor and recorder (PSS)").value
    assert isinstance(worker, float) and isinstance(none, float) and worker > none
    assert len([row for row in rows if "start to active" in row.name]) == 2
