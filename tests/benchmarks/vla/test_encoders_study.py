"""What the study of frozen encoders shows its policies, and what it concludes."""

from __future__ import annotations

from pathlib import Path

import pytest

from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.settings.compose import compose
from temporeal_benchmarks.data import studies
from temporeal_benchmarks.vla import encoders_study as study


def test_each_view_changes_one_thing() -> None:
    settings = compose(["experiment=tabletop"])
    views = {view: study.shown(settings, view) for view in study.VIEWS}
    assert views["seen"] == settings
    assert views["wordings"]["task"]["settings"]["split"] == "held_out_wordings"
    camera, light = (views[view]["randomize"]["appearance"] for view in ("camera", "light"))
    assert camera and all(name.startswith("camera.") for name in camera)
    assert light and not any(name.startswith("camera.") for name in light)


def test_means_over_seeds_and_what_is_missing() -> None:
    trials = {f"own/seen/{seed}": {"successes": 10 * seed, "trials": 100} for seed in (1, 2, 3)}
    rows = {row.name: row for row in study.judged({**trials, "minilm/seen/1": {"successes": 1, "trials": 2}})}
    assert abs(rows["vla.encoders.own.seen"].value - 0.2) < 1e-9 and rows["vla.encoders.own.seen"].ok is None
    assert rows["vla.encoders.minilm.seen"].value is None and "1 of 3 seeds" in rows["vla.encoders.minilm.seen"].peer
    assert len(rows) == len(study.ARMS) * len(study.VIEWS)


def test_a_folder_is_of_one_size(tmp_path: Path) -> None:
    study.require_same_size(tmp_path, study.Size(updates=600))
    study.require_same_size(tmp_path, study.Size())  # nothing was made yet
    studies.add(tmp_path, "own/seen/1", {"successes": 1, "trials": 2})
    study.require_same_size(tmp_path, study.Size())
    for other, said in ((study.Size(updates=600), "updates=1500, not 600"), (study.Size(episodes=64), "episodes=256"),
                        (study.Size(demonstrations=5), "demonstrations=20"), (study.Size("push"), "kinds=reach")):
        with pytest.raises(BadInput, match=said):
            study.study(tmp_path, 1, other)
    (tmp_path / "size.json").unlink()
    with pytest.raises(BadInput, match="episodes=unknown, not 256"):
        study.require_same_size(tmp_path, study.Size())


def test_arms_are_known_before_anything_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        study.main([str(tmp_path / "out"), "--arms", "own,clip"])
    assert "no such arm: 'clip'; of own, plain" in capsys.readouterr().err and not (tmp_path / "out").exists()
    studies.add(tmp_path, "own/seen/1", {"successes": 1, "trials": 2})
    with pytest.raises(SystemExit):
        study.main([str(tmp_path), "--arms", "own"])
    assert "holds a study of another size" in capsys.readouterr().err
