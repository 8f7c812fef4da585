"""Real processes on a private bus: flights, and what is said when they cannot be flown."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest
from rosbags.highlevel import AnyReader

from policies.export.manifest import ArtifactError
from temporeal_bridge.flights import FlightError, fly


def test_at_least_one_flight(artifact, tmp_path):
    with pytest.raises(ValueError, match="at least 1, got 0 and 2"):
        fly(artifact, "crazyflie", 0, 2, 0, tmp_path)


def test_a_folder_without_an_artifact(tmp_path):
    with pytest.raises(ArtifactError, match="is not an artifact"):
        fly(tmp_path, "crazyflie", 1, 1, 0, tmp_path / "out")


def test_a_process_that_ends_is_quoted(artifact, tmp_path):
    """The network was changed after export: the controller refuses it, and the report of the flights says so."""
    broken: Path = tmp_path / "broken"
    shutil.copytree(artifact, broken)
    with (broken / "policy.onnx").open("ab") as file:
        file.write(b"x")
    with pytest.raises(FlightError, match="policy_node ended with status 2.*SHA-256"):
        fly(broken, "crazyflie", 1, 1, 0, tmp_path / "out")


@pytest.mark.skipif(importlib.util.find_spec("rclpy") is not None, reason="a ROS 2 is sourced")
def test_rclpy_without_ros_is_told_what_to_source(artifact, tmp_path, capsys):
    from policies.cli.main import main

    assert main(["deploy", str(artifact), "--sim", "deploy=rclpy", "--out", str(tmp_path / "out")]) == 2
    message = capsys.readouterr().err
    assert "source /opt/ros" in message and "transport dds" in message and "Traceback" not in message


@pytest.mark.slow
@pytest.mark.parametrize("interface", ["crazyswarm2", "odometry"])
def test_flights_in_real_time(artifact, tmp_path, interface):
    """Two robots beside each other: satisfied by the monitor and in truth, recorded, with figures of the controller."""
    pytest.importorskip("mujoco")
    rows = []
    report = fly(artifact, "crazyflie", 3, 2, 7, tmp_path, interface=interface, progress=rows.append)
    assert [row["seed"] for row in report.flights] == [7, 8, 9] and len(rows) == 3
    assert report.satisfied == 3 and {row["robot"] for row in report.flights} == {"/cf1", "/cf2"}
    for row in report.flights:
        assert row["truth"]["verdict"] == "satisfied" and row["reason"] == "" and len(row["clauses"]) == 3
        assert abs(row["truth"]["robustness"] - row["robustness_lower"]) < 0.1
    assert 0 < report.latency_ms["p50"] <= report.latency_ms["p99"]
    with AnyReader([report.bag]) as reader:
        counts = {c.topic: c.msgcount for c in reader.connections}
    assert counts["/cf1/odom"] > 500 and counts["/cf1/cmd_vel_legacy"] > 250
