"""Ten missions in words, in real time: typed sentences over DDS, each judged by its own formula."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("mujoco")
pytest.importorskip("torch")

from temporeal_benchmarks.vla import by_hand, missions
from temporeal_bridge.recording import bags


@pytest.mark.slow
def test_each_typed_sentence_is_flown_and_judged_by_its_own_formula(tmp_path: Path) -> None:
    by_hand.write(tmp_path / "artifact")
    report = missions.flown(tmp_path / "artifact", tmp_path / "missions", missions.MISSIONS)
    assert report.satisfied > missions.MISSIONS / 2  # how many: `temporeal bench vla --parts missions`
    assert [row["instruction"] for row in report.flights] == list(missions.SENTENCES)
    judged = [row for row in report.flights if row["verdict"] in ("satisfied", "violated")]
    assert [row["verdict"] for row in judged] == [row["truth"]["verdict"] for row in judged]
    assert all(row["why"] for row in judged if row["verdict"] == "violated")
    recording = bags.read(report.bag, lambda topic: topic == "/arm1/policy/instruction")
    assert len(recording.messages) >= missions.MISSIONS
