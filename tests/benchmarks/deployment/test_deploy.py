"""``temporeal bench deploy``: who is beside the robot's nodes is really there, and rows say what was measured."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from temporeal.policies.cli.preflight.realtime import may_be_realtime
from temporeal_benchmarks.deployment import camera_load
from temporeal_benchmarks.deployment.bus_peers import READ
from temporeal_benchmarks.deployment.camera_load import Camera
from temporeal_benchmarks.deployment.latency_flight import LatencyFlight, Round
from temporeal_benchmarks.deployment.latency_rows import ENOUGH, beside_camera, compared, late_row
from temporeal_benchmarks.measurements import deploy
from temporeal_benchmarks.rows import Row

MS = 1e-3


@pytest.fixture
def flight(tmp_path: Path) -> Iterator[LatencyFlight]:
    """The simulated robot and its bus; neither guard nor controller."""
    made = LatencyFlight(tmp_path / "artifact", 500.0, tmp_path / "run", [])
    yield made
    made.close()


@pytest.fixture
def camera(flight: LatencyFlight, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Camera:
    """A camera that is off, with its reader."""
    monkeypatch.setattr(camera_load, "CAMERA_S", 0.2)
    monkeypatch.setattr(flight, "round", lambda seconds: flight.run(seconds))  # nobody flies
    made = Camera(flight, tmp_path / "camera")
    made.begin()
    return made


def rounds(p50_ms: float, bare_ms: float = 0.1) -> list[Round]:
    many = np.ones(2 * ENOUGH)
    return [Round(p50_ms * MS * many, bare_ms * MS * many, np.outer(many, [0.05 * MS, 0.1 * MS]))]


def named(rows: list[Row], part: str) -> Row:
    row, = (row for row in rows if part in row.name)
    return row


@pytest.mark.slow
def test_pictures_are_read_in_rounds_with_a_camera_and_only_there(flight: LatencyFlight, camera: Camera) -> None:
    flight.run(0.5)  # a round without it
    camera.round(1.0)
    read, due = camera.end()
    assert due == pytest.approx(30.0, abs=1.5)
    assert 0.5 * due < read <= due + 3  # a busy machine loses some; one comes at once, and one may come on either end
    assert np.diff(json.loads((camera.out / READ).read_text())["at"]).max() > 0.4


@pytest.mark.slow
def test_a_camera_that_nobody_sees_is_none(flight: LatencyFlight, camera: Camera) -> None:
    camera.camera.send_signal(signal.SIGSTOP)
    camera.round(0.5)
    camera.camera.send_signal(signal.SIGCONT)
    read, due = camera.end()
    row = named(beside_camera(rounds(0.3), rounds(0.3), read, due), "p99")
    assert (read, row.value, row.ok) == (0, None, False)
    assert row.peer is not None and str(row.peer).startswith("not measured: only 0 of ")


@pytest.mark.skipif(not may_be_realtime(), reason="no real-time priority here")
def test_the_ping_has_the_core_and_the_priority_of_guard_and_controller(
    flight: LatencyFlight, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = max(os.sched_getaffinity(0))
    flight.own = ["--core", str(core), "--awake"]
    with monkeypatch.context() as real:
        real.setattr(os, "sched_getscheduler", lambda pid: os.SCHED_FIFO)  # as after take_priority
        echo = flight.echo()
    flight.pings = True
    flight.run(30.0, lambda: len(flight.bare) > 20)
    assert len(flight.bare) > 20 and 0 < np.median(flight.bare) < 1.0
    assert os.sched_getaffinity(echo.pid) == {core} and os.sched_getscheduler(echo.pid) == os.SCHED_FIFO


def test_a_round_whose_ping_has_ended_is_none(flight: LatencyFlight) -> None:
    helper = flight.helper("echo", "--core", "-1")
    helper.wait()
    with pytest.raises(RuntimeError, match="echo ended with status 2"):
        flight.round(1.0)


def test_latency_is_judged_above_the_ping() -> None:
    rows = compared(rounds(0.35), 1, 1.0)
    assert named(rows, "p50 above").value == pytest.approx(0.25) and named(rows, "p50 above").ok
    rows = compared(rounds(1.15), 1, 1.0)
    assert not named(rows, "p50 above").ok and not named(rows, "p99 above").ok


@pytest.mark.parametrize("read, theirs_ms, share, ok", [
    (240, 0.3, 1.0, True), (216, 0.6, 2.0, True), (240, 0.61, 2.033, False), (215, 0.3, None, False)])
def test_what_a_camera_costs_is_told_where_nine_tenths_of_its_pictures_are_read(
    read: int, theirs_ms: float, share: float | None, ok: bool
) -> None:
    rows = beside_camera(rounds(0.3), rounds(theirs_ms), read, 240.0)
    found = named(rows, "p99 with")
    assert found.ok is ok and named(rows, "decoded").ok is (read >= 216)
    assert found.value is None if share is None else found.value == pytest.approx(share, abs=1e-3)


def test_a_camera_beside_rounds_that_did_not_last_is_not_judged_good() -> None:
    rows = beside_camera(rounds(0.3), [], 240, 240.0)
    assert named(rows, "p99 with").ok is False and named(rows, "p99 with").value is None


def test_rounds_that_did_not_last_are_targets_missed() -> None:
    for found in ([], [Round(np.ones(3), np.ones(300), np.ones((3, 2)))], [*rounds(0.3), *[rounds(0.3)[0]._replace(
            found=np.ones(3))] * 2]):
        rows = compared(found, 3, 1.0)
        assert [(row.value, row.target, row.ok) for row in rows] == [(None, 0.3, False), (None, 1.0, False)]
        assert all("rounds of 1 s lasted" in str(row.peer) for row in rows)


@pytest.mark.parametrize("times, late", [
    ([0.0, 1.0, 2.0, 3.0, 4.0], 0), ([0.0, 1.4, 2.0, 3.0, 4.0], 0), ([0.0, 1.6, 2.0, 3.0, 4.0], 1),
    ([0.0, 1.0, 4.0], 2),  # two cycles without a command
    ([0.0, 1.0, 2.0, 100.0], 97),  # it fell silent
    ([0.0, 97.6, 99.0, 100.0], 97)])  # it began late
def test_each_cycle_without_its_command_is_late(times: list[float], late: int) -> None:
    """Of a hundred cycles, by when a stretch of flight began, its commands came and it ended, in periods of 5 ms."""
    row = late_row([0.005 * np.array(times)], 0.005, 0.5)
    assert row.value == pytest.approx(late / 100) and row.ok is (late == 0)


def test_a_robot_that_hears_nothing_is_late_in_all_cycles_or_not_measured() -> None:
    row = late_row([np.array([0.0, 60.0])], 0.005, 60.0)
    assert (row.value, row.ok) == (None, False) and "no command came" in str(row.peer)
    both = late_row([np.array([0.0, *np.arange(1, 101) * 0.005, 0.5025]), np.array([0.6, 60.1])], 0.005, 60.0)
    assert both.value == pytest.approx(59.5 / 60.0, abs=1e-3) and both.ok is False
    assert late_row([], 0.005, 60.0).ok is False


@pytest.mark.slow
def test_a_short_run_measures_all(tmp_path: Path) -> None:
    """Whether targets are met is the machine's matter; that everything is measured is not."""
    rows = deploy.run(True, out=tmp_path, minutes=["0.05"], rounds=["1"], priority=None)
    missing = {row.name for row in rows if row.value is None}
    if importlib.util.find_spec("rclpy") is None:
        missing -= {"deploy.rclpy_ping.p50", "deploy.latency.p50 over that of the rclpy ping"}
    assert not missing, [row for row in rows if row.name in missing]
    assert named(rows, "decoded").ok and named(rows, "outside limits").ok
    worker, none = named(rows, "controller, worker").value, named(rows, "controller, monitor and recorder (PSS)").value
    assert isinstance(worker, float) and isinstance(none, float) and worker > none
    assert len([row for row in rows if "start to active" in row.name]) == 2
