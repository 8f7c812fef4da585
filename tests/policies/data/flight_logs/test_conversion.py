"""Logs as datasets: values stay what they were, gaps split, marks are kept; clocks are estimated with intervals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.flight_logs import channels
from temporeal.policies.data.flight_logs.clocks import Shift, line
from temporeal.policies.data.flight_logs.conversion import MEASURED, reading_of, verdict_of
from temporeal.policies.data.flight_logs.flight_log import (
    ACCELERATION,
    ATTITUDE,
    COMMAND,
    POSITION,
    RATES,
    FlightLog,
)
from temporeal.policies.data.flight_logs.inspection import Inspection, align, inspect
from temporeal.policies.data.flight_logs.recorded import read_episode
from temporeal.policies.data.formats import importing
from temporeal.policies.data.formats.found import Reading
from temporeal.robots.spec import load_robot
from temporeal_benchmarks.reality.defects import lined
from temporeal_benchmarks.reality.excerpts import NANOBENCH, USDLOG, both, clean, times, values, without

CRAZYFLIE = load_robot("crazyflie")


def imported(log: FlightLog, out: Path, **how: float) -> Dataset:
    file = importing.File(log.path, lambda: reading_of(inspect(log, CRAZYFLIE), **how), limits_of_data=False)
    importing.write(out, [file], importing.Options())
    return Dataset.open(out)


def test_a_log_of_even_times_is_kept_number_for_number(tmp_path: Path) -> None:
    log = clean(NANOBENCH)
    data = imported(log, tmp_path / "set")
    assert (data.episodes, data.interface.robot, data.interface.rate_hz) == (1, "crazyflie", 100.0)
    assert data.interface.action.name == "motor_pwm"
    found = data.episode(0)
    for signal in (POSITION, RATES, ACCELERATION):  # the file's times are rounded to 10 us
        stream = log.stream_of(signal)
        assert stream is not None
        whole = stream.values[signal][: found.samples]
        near = np.abs(np.gradient(whole, axis=0)).max() * 0.02
        assert found.signals[signal] == pytest.approx(whole, abs=near)
    motors = log.streams["motors"].values[COMMAND]
    assert found.action == pytest.approx(motors[: found.steps], abs=1e-6)
    assert found.signals[MEASURED].shape == (found.samples, 4)
    assert data.interface.about[MEASURED] == ["mocap", "imu", "motors", "battery"]


def test_what_was_filled_is_marked_and_left_as_it_is(tmp_path: Path) -> None:
    log = values(POSITION, lined)(clean(NANOBENCH))
    found = imported(log, tmp_path / "set").episode(0)
    marks = found.signals[MEASURED]
    assert not marks[605:645, 0].any()
    assert marks[:, 3].all()
    assert marks[200:580, 0].mean() > 0.9
    assert found.signals[POSITION][625] == pytest.approx(log.streams["mocap"].values[POSITION][625], abs=1e-3)


def test_a_gap_splits_and_nothing_is_made_up(tmp_path: Path) -> None:
    log = without("imu", 600, 640)(clean(NANOBENCH))
    data = imported(log, tmp_path / "set")
    begins = [record.info["begin_s"] for record in data.records]
    assert data.episodes == 2 and begins == pytest.approx([0.0, 6.4], abs=0.011)
    assert data.episode(0).samples == pytest.approx(600, abs=2)


def read(log: FlightLog, **how: float) -> Reading:
    """The log as episodes, its times judged alone."""
    good = {name: np.ones(len(stream.times), bool) for name, stream in log.streams.items()}
    found = [each for name, stream in log.streams.items() for each in channels.times(stream, good[name])]
    return reading_of(Inspection(log, tuple(found), good, None), **how)


def test_what_stands_in_for_a_missing_sample_is_not_measured_and_short_parts_are_said() -> None:
    """Row 600 is missing, a number of row 700 is none; between two gaps of the IMU are 0.2 s."""
    streams = clean(NANOBENCH).streams
    log = both(*(without(name, 600, 601) for name in streams), without("imu", 899, 939), without("imu", 919, 959),
               values(POSITION, lambda p: np.where(np.arange(len(p))[:, None] == 699, np.nan, p)))(clean(NANOBENCH))
    found = read(log)
    first = next(iter(found.episodes))
    assert isinstance(first, Episode)
    lost = [np.flatnonzero(column == 0).tolist() for column in first.signals[MEASURED].T]
    assert lost == [[600, 700], [600], [600], [600]]
    assert any("1 parts between gaps are shorter than 0.5 s and left out, 0.1" in note for note in found.notes)


def test_one_time_far_off_makes_no_grid_of_its_size() -> None:
    """The last time is of the year 33000: what is before it is kept. One between others: their order is not known."""
    def far(at: int) -> FlightLog:
        change = lambda t: np.where(np.arange(len(t)) == at % len(t), 1e12, t)  # noqa: E731
        return both(*(times(name, change) for name in clean(NANOBENCH).streams))(clean(NANOBENCH))

    (kept,) = read(far(-1)).episodes
    assert isinstance(kept, Episode) and kept.samples == len(clean(NANOBENCH).streams["imu"].times) - 1
    assert "neither judged nor imported" in read(far(-1), gap_s=1e13).notes[-1]
    with pytest.raises(DataError, match="its clock was set"):
        read(far(500))
    with pytest.raises(DataError, match="5000000 at most"):
        read(clean(NANOBENCH), rate_hz=9e5)


def test_a_faster_log_is_put_onto_a_slower_grid(tmp_path: Path) -> None:
    data = imported(clean(USDLOG), tmp_path / "set", rate_hz=100.0)
    found, stream = data.episode(0), clean(USDLOG).streams["imu"]
    at = found.info["begin_s"] + np.arange(found.samples) / 100.0
    wanted = np.stack([np.interp(at, stream.times, column) for column in stream.values[RATES].T], 1)
    assert found.signals[RATES] == pytest.approx(wanted, abs=1e-4)


def test_an_imported_log_is_judged_as_the_log_was(tmp_path: Path) -> None:
    imported(clean(NANOBENCH), tmp_path / "set")
    found = inspect(read_episode(tmp_path / "set"), CRAZYFLIE)
    assert found.verdict == "good"
    assert {each.check for each in found.of("good")} >= {"orientation", "gravity", "acceleration", "velocity", "clocks"}


def test_a_log_without_commands_is_no_dataset() -> None:
    log = clean(NANOBENCH)
    silent = FlightLog(log.path, log.kind, log.robot, {"imu": log.streams["imu"]}, None)
    with pytest.raises(DataError, match="no commands"):
        reading_of(inspect(silent))


@pytest.mark.parametrize("late", [-0.31, 0.083])
def test_an_offset_is_estimated_within_its_interval_and_corrected(late: float) -> None:
    """The offset that was injected, over the one that the excerpt has."""
    def of(log: FlightLog):
        return next(each for each in inspect(log).findings if each.check == "clocks" and "mocap" in each.subject)

    before = of(clean(NANOBENCH)).figures
    found = of(times("mocap", lambda t: t + late)(clean(NANOBENCH)))
    half = found.figures["offset_half_s"]
    assert half < 0.05
    assert abs(found.figures["offset_s"] - before["offset_s"] - late) < half
    moved = align(inspect(times("mocap", lambda t: t + late)(clean(NANOBENCH))), None)
    assert "two clocks" not in moved.defects and "drift" in verdict_of(moved)["aligned"]
    corrected = of(moved.log)
    assert corrected.status == "good"
    assert abs(corrected.figures["offset_s"]) < 0.01


def test_intervals_of_a_line_cover_what_they_should() -> None:
    """Windows that are independent but for their overlap, as many as a flight of 30 s has: 95 % intervals hold the
    offset and the drift in at least 90 of 100 cases."""
    rng = np.random.default_rng(0)
    at = np.arange(30.0)
    held = np.zeros(2)
    for _ in range(100):
        noise = 0.01 * np.convolve(rng.normal(size=31), [0.5, 0.5], "valid") / np.sqrt(0.5)
        found = line(at, 0.05 + 1e-3 * (at - 14.5) + noise, 14.5)
        assert isinstance(found, Shift)
        held += [abs(found.offset_s - 0.05) < found.offset_half, abs(found.drift - 1e-3) < found.drift_half]
    assert held.min() >= 90


def test_a_bag_of_odometry_has_no_second_opinion_and_says_so() -> None:
    """Position and attitude alone: nothing is called right that nothing else confirms."""
    log = clean(NANOBENCH)
    mocap = log.streams["mocap"]
    alone = FlightLog(log.path, log.kind, log.robot, {"mocap": mocap}, None)
    found = inspect(alone)
    assert not {"orientation", "gravity", "acceleration"} & {each.check for each in found.findings}
    assert ATTITUDE in mocap.values
