"""The study of 8 bits counts episodes one by one, and says which policies are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from temporeal.policies.runs.errors import BadInput
from temporeal_benchmarks.vla import int8_study
from temporeal_benchmarks.vla.int8_study import error_of, judged, key_of


def test_a_loss_is_of_the_same_episodes() -> None:
    there, lacking = judged({"base": {"episodes": 200, "float32": 150, "int8": 148, "lost": 5, "gained": 3}})
    assert there.value == 1.0 and there.ok and "5 lost, 3 gained; 95 % [-1.8, 3.8]" in str(there.peer)
    assert lacking.value is None and lacking.ok is False and "int8-study" in str(lacking.peer)


def test_the_error_is_that_of_differences() -> None:
    apart = [1.0] * 5 + [-1.0] * 3 + [0.0] * 192  # lost, gained, the same
    mean = sum(apart) / 200
    assert error_of(5, 3, 200) == pytest.approx((sum((x - mean) ** 2 for x in apart) / 200 / 200) ** 0.5)


def run_of(folder: Path, weights: bytes, settings: str = "seed: 1") -> Path:
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "00000001.rank0of1.pt").write_bytes(weights)
    (folder / "config.yaml").write_text(settings)
    return folder


def test_runs_share_artifacts_only_where_they_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, same = (run_of(tmp_path / place, weights) for place, weights in (
        ("outputs/a", b"1"), ("outputs/b", b"1"), ("elsewhere/a", b"1")))
    others = [run_of(tmp_path / "later/a", b"2"), run_of(tmp_path / "set/a", b"1", "seed: 2")]
    assert key_of(a).startswith("a-") and key_of(a) == key_of(same) and len(set(map(key_of, (a, b, *others)))) == 4
    with pytest.raises(BadInput, match="no checkpoint"):
        key_of(tmp_path / "outputs")
    exported = []

    def export(run: Path, folder: Path, int8: bool) -> None:
        exported.append((run, int8))
        folder.mkdir(parents=True)
        (folder / "manifest.json").touch()
        raise InterruptedError

    monkeypatch.setattr(int8_study, "export_run", export)
    monkeypatch.setattr(int8_study, "load_trained", lambda folder: pytest.fail("made before"))
    for run in (a, b, others[0]):
        with pytest.raises(InterruptedError):
            int8_study.counted(run, tmp_path / "artifacts", 4)
    with pytest.raises(pytest.fail.Exception, match="made before"):
        int8_study.counted(same, tmp_path / "artifacts", 4)
    assert exported == [(a, False), (b, False), (others[0], False)]
