"""Readers of flight logs: units and frames of each kind, and what a damaged file is told."""

from __future__ import annotations

import gzip
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.flight_logs import channels
from temporeal.policies.data.flight_logs.flight_log import (
    ACCELERATION,
    ATTITUDE,
    COMMAND,
    POSITION,
    RATES,
    VELOCITY,
    VOLTAGE,
    FlightLog,
)
from temporeal.policies.data.flight_logs.inspection import inspect
from temporeal.policies.data.flight_logs.kinds import READERS, kind_of
from temporeal.policies.data.flight_logs.ulog import running
from temporeal.robots import frames
from temporeal_benchmarks.reality.excerpts import NANOBENCH, USDLOG, clean

from . import px4_file


def read(path: Path) -> FlightLog:
    return READERS[kind_of(path)](path)


def first(log: FlightLog, signal: str) -> np.ndarray:
    stream = log.stream_of(signal)
    assert stream is not None
    return stream.values[signal][0]


def test_a_row_of_nanobench_in_the_projects_units() -> None:
    """The excerpt's first row, by hand: xyzw becomes wxyz, g becomes m/s^2, a duty cycle a share, V stays."""
    header, row = gzip.decompress(NANOBENCH.read_bytes()).decode().splitlines()[:2]
    cell = dict(zip(header.split(","), map(float, row.split(","))))
    log = clean(NANOBENCH)
    assert first(log, ATTITUDE) == pytest.approx([cell[k] for k in ("qw", "qx", "qy", "qz")])
    assert first(log, ACCELERATION) == pytest.approx([9.80665 * cell[f"imu_acc_{k}"] for k in "xyz"])
    assert first(log, RATES) == pytest.approx([cell[f"imu_gyro_{k}"] for k in "xyz"])
    assert first(log, VOLTAGE) == cell["pwr_pm_vbat"]
    motors = log.streams["motors"].values[COMMAND]
    assert 0.5 < motors.max() <= 1.0 and motors.min() == 0.0


def test_an_event_of_a_card_in_the_projects_units() -> None:
    data = USDLOG.read_bytes()
    begin = data.index(b"motor.m4(I)\0") + 12
    _, stamp, *numbers = struct.unpack_from("<HQ6f4I", data, begin)
    log = clean(USDLOG)
    assert first(log, ACCELERATION) == pytest.approx([9.80665 * a for a in numbers[:3]])
    assert first(log, RATES) == pytest.approx(np.radians(numbers[3:6]))
    second = struct.unpack_from("<HQ", data, begin + 50)[1]
    assert log.streams["imu"].times[:2] == pytest.approx([0.0, 1e-6 * (second - stamp)])


def card(*events: bytes, types: int = 2) -> bytes:
    """A file with two types of events: an IMU's, and the battery's."""
    head = b"\xbc" + struct.pack("<HH", 2, types)
    variables = [b"acc.x(f)", b"acc.y(f)", b"acc.z(f)", b"gyro.x(f)", b"gyro.y(f)", b"gyro.z(f)"]
    head += struct.pack("<H", 7) + b"imu\0" + struct.pack("<H", 6) + b"".join(v + b"\0" for v in variables)
    head += struct.pack("<H", 9) + b"battery\0" + struct.pack("<H", 1) + b"pm.vbat(f)\0"
    body = head + b"".join(events)
    return body + struct.pack("<I", zlib.crc32(body))


def imu(us: int, z: float = 1.0) -> bytes:
    return struct.pack("<HQ6f", 7, us, 0, 0, z, 90, 0, 0)


def test_several_types_of_events_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "log03"
    file.write_bytes(card(imu(1000), struct.pack("<HQf", 9, 1500, 3.7), imu(2000), imu(3000),
                          struct.pack("<HQf", 9, 3500, 3.6)))
    log = read(file)
    assert log.cut == ""
    assert log.streams["imu"].times == pytest.approx([0, 1e-3, 2e-3])
    assert log.streams["battery"].times == pytest.approx([0.5e-3, 2.5e-3])
    assert log.streams["battery"].values[VOLTAGE] == pytest.approx([3.7, 3.6])
    assert first(log, RATES) == pytest.approx([np.pi / 2, 0, 0])


def test_a_card_is_read_up_to_its_damage(tmp_path: Path) -> None:
    """With a wrong check sum, whose bytes are no event; and with an event that the header does not name."""
    file = tmp_path / "log03"
    battery = struct.pack("<HQf", 9, 1500, 3.7)
    good = card(imu(1000), battery, imu(2000))
    for content, told in ((good[:-4] + b"\1\2\3\4", "missing or wrong"),
                          (card(imu(1000), battery, imu(2000), struct.pack("<HQf", 8, 2500, 1.0), imu(3000)), "type 8"),
                          (card(imu(1000), battery, imu(2000), imu(3000)[:-9]), "part of an event")):
        file.write_bytes(content)
        log = read(file)
        assert told in log.cut and log.streams["imu"].times == pytest.approx([0, 1e-3])


def test_motion_capture_on_a_card_goes_before_the_robots_estimate(tmp_path: Path) -> None:
    groups = {"locSrv": "x y z qx qy qz qw", "stateEstimate": "x y z vx vy vz qx qy qz qw"}
    names = [f"{group}.{axis}" for group, axes in groups.items() for axis in axes.split()]
    head = b"\xbc" + struct.pack("<HHH", 2, 1, 3) + b"pose\0" + struct.pack("<H", len(names))
    body = head + b"".join(f"{name}(f)\0".encode() for name in names)
    body += b"".join(struct.pack("<HQ17f", 3, us, 1, 2, 3, 0, 0, 0, 1, *range(10)) for us in (0, 10_000))
    file = tmp_path / "log07"
    file.write_bytes(body + struct.pack("<I", zlib.crc32(body)))
    log = read(file)
    assert list(log.streams) == ["mocap"]
    assert first(log, POSITION).tolist() == [1, 2, 3]
    assert first(log, ATTITUDE).tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("path", [NANOBENCH, USDLOG], ids=lambda path: path.name)
@pytest.mark.parametrize("lost", [1, 30, 5000])
def test_a_truncated_file_is_read_as_far_as_it_goes_and_said(tmp_path: Path, path: Path, lost: int) -> None:
    file = tmp_path / path.name
    file.write_bytes(path.read_bytes()[:-lost])
    log = read(file)
    assert log.cut
    assert "truncated" in inspect(log).defects
    rows, whole = (each.streams["imu"].values[RATES] for each in (log, clean(path)))
    assert len(whole) // 2 < len(rows) <= len(whole)
    assert (rows == whole[: len(rows)]).all()


def test_a_csv_that_ends_in_a_line_loses_that_line(tmp_path: Path) -> None:
    text = gzip.decompress(NANOBENCH.read_bytes()).decode()
    file = tmp_path / "flight.csv"
    file.write_text(text[: text.index("\n", 40_000) + 30])
    assert "ends in the middle" in read(file).cut


@pytest.mark.parametrize(("content", "told"), [
    (b"\xbc\x02\x00\x00\x00", "0 types of events"),
    (b"\xbc\x02\x00\x01\x00\x07\x00imu\0\x01\x00acc.x(z)\0", "name(F)"),
    (b"\xbc\x02\x00\x01\x00\x07\x00imu", "header cannot be read"),
    (card(struct.pack("<HQf", 8, 1500, 3.7)), "type 8"),
    (card(imu(1)), "has neither"),
    (b"hello", "of no kind of log"),
])
def test_a_file_that_is_none_is_refused_by_name(tmp_path: Path, content: bytes, told: str) -> None:
    file = tmp_path / "log00"
    file.write_bytes(content)
    with pytest.raises(DataError, match=told.replace("(", r"\(").replace(")", r"\)")):
        read(file)


def test_a_row_without_a_time_or_with_a_mark_is_said(tmp_path: Path) -> None:
    header, *rows = gzip.decompress(NANOBENCH.read_bytes()).decode().splitlines()[:30]
    rest = [row.partition(",")[2] for row in rows]
    assert header.startswith("t,")
    file = tmp_path / "flight.csv"
    file.write_text("\n".join([header, f"nan,{rest[0]}", *rows[1:]]) + "\n")
    assert read(file).streams["imu"].times[1:3] == pytest.approx([0.0, 0.01], abs=1e-3)
    file.write_text("\n".join([header, *(f"nan,{each}" for each in rest)]) + "\n")
    assert inspect(read(file)).verdict == "wrong"
    file.write_text("\n".join([header, *rows[:5], f"#{rows[5]}", *rows[6:]]) + "\n")
    with pytest.raises(DataError, match="its rows are no numbers"):
        read(file)


def test_a_csv_of_other_columns_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.csv"
    file.write_text("t,x,action\n0,1,2\n1,1,2\n")
    with pytest.raises(DataError, match="temporeal data import"):
        read(file)


def px4_flight(path: Path) -> Path:
    """The excerpt's motion as PX4 would log it: NED, FRD, its own order of motors, each topic at its own times."""
    log = clean(NANOBENCH)
    mocap, imu_, motors, battery = (log.streams[name] for name in ("mocap", "imu", "motors", "battery"))
    quat = frames.ned_frd_from_enu_flu(mocap.values[ATTITUDE])
    place = np.concatenate([frames.ned_from_enu(mocap.values[name]) for name in (POSITION, VELOCITY)], 1)
    sensed = np.concatenate([frames.frd_from_flu(imu_.values[name]) for name in (RATES, ACCELERATION)], 1)
    control = np.full((len(motors.times), 12), np.nan)
    control[:, [0, 3, 1, 2]] = motors.values[COMMAND]
    xyz = [(name, 1) for name in ("x", "y", "z", "vx", "vy", "vz")]
    return px4_file.write(path, {
        "vehicle_attitude": ([("q", 4)], mocap.times, quat),
        "vehicle_local_position": (xyz, mocap.times[::2] + 1e-3, place[::2]),
        "sensor_combined": ([("gyro_rad", 3), ("accelerometer_m_s2", 3)], imu_.times, sensed),
        "actuator_motors": ([("control", 12)], motors.times, control),
        "battery_status": ([("voltage_v", 1)], battery.times[::10], battery.values[VOLTAGE][::10, None])})


def test_a_log_of_px4_becomes_enu_and_flu(tmp_path: Path) -> None:
    pytest.importorskip("pyulog")
    log, whole = read(px4_flight(tmp_path / "flight.ulg")), clean(NANOBENCH)
    assert (log.kind, log.robot, log.cut) == ("ulog", "", "")
    for name, signals in (("imu", (RATES, ACCELERATION)), ("motors", (COMMAND,))):
        for signal in signals:
            assert log.streams[name].values[signal] == pytest.approx(whole.streams[name].values[signal], abs=1e-4)
    quats = log.streams["attitude estimate"].values[ATTITUDE], whole.streams["mocap"].values[ATTITUDE]
    alike = np.abs((quats[0] * quats[1]).sum(1))
    assert alike == pytest.approx(np.ones(len(alike)), abs=1e-5)
    assert log.streams["position estimate"].values[POSITION] == pytest.approx(
        whole.streams["mocap"].values[POSITION][::2], abs=1e-5)
    found = inspect(log)
    assert found.of("wrong", "marked") == []


def test_motors_that_px4_stopped_are_marked_and_counted() -> None:
    motors = clean(NANOBENCH).streams["motors"]
    told = motors.values[COMMAND].copy()
    told[3:5, 1] = np.nan
    streams, doubted, (note,) = running({"motors": replace(motors, values={COMMAND: told})})
    assert streams["motors"].values[COMMAND][3:5, 1].tolist() == [0, 0] and "2 of" in note
    log = replace(clean(NANOBENCH), streams={**clean(NANOBENCH).streams, **streams}, doubted=doubted)
    _, good = channels.check(log)
    assert not good["motors"][3:5].any() and good["motors"][[2, 5]].all()


def test_a_log_of_px4_that_ends_early_is_said(tmp_path: Path) -> None:
    pytest.importorskip("pyulog")
    file = px4_flight(tmp_path / "flight.ulg")
    file.write_bytes(file.read_bytes()[:-7])
    assert "ends in the middle" in read(file).cut


def test_without_pyulog_the_command_that_installs_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyulog", None)
    with pytest.raises(DataError, match="pip install pyulog"):
        read(px4_flight(tmp_path / "flight.ulg"))
