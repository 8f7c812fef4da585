"""Results of single logs are kept while what they rest on is the same."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from temporeal.robots.spec import load_robot
from temporeal_benchmarks.reality import joints


def test_kept_results_are_of_the_same_code_and_robot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, number, digest = tmp_path / "one.json", count(), "a"
    monkeypatch.setattr(joints, "code_digest", lambda parts, needed: digest)

    def kept(robot: str = "franka") -> int:
        return int(joints.kept(file, load_robot(robot), lambda: {"n": next(number)})["n"])

    assert [kept(), kept()] == [0, 0]
    digest = "b"
    assert [kept(), kept()] == [1, 1]
    assert [kept("leap_hand"), kept("leap_hand")] == [2, 2]
    for spoilt in (file.read_text()[:40], '{"counts": [1]}', "[]"):
        file.write_text(spoilt)
        assert kept("leap_hand") > 2
