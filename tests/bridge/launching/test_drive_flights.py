"""Arms that are commanded with places, speeds, efforts or velocities of the tool: real processes, one task, one law."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("mujoco")
pytest.importorskip("torch")

from tests.bridge.launching.drive_artifacts import INTERFACES, write_drive_artifact

from temporeal_bridge.launching.flights import FlightPlan, fly


@pytest.mark.slow
@pytest.mark.parametrize("drive", INTERFACES)
def test_an_arm_reaches_its_goals_by_each_of_its_interfaces(drive: str, tmp_path: Path) -> None:
    plan = FlightPlan("franka", 2, seed=3, interface=INTERFACES[drive])
    report = fly(write_drive_artifact(drive, tmp_path / "artifact"), plan, tmp_path / "flights")
    assert [row["reason"] for row in report.flights] == [""] * 2
    assert [(row["verdict"], row["lost"]) for row in report.flights] == [("satisfied", 0)] * 2
    assert [row["truth"]["verdict"] for row in report.flights] == ["satisfied"] * 2
