"""What the study of frozen encoders shows its policies, and what it concludes."""

from __future__ import annotations

from temporeal.policies.runs.settings.compose import compose
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
