"""The classifier of success: thresholds by hand, what it learns, what it refuses to learn from, and its file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.policies.toy_progress import Judged, films, walks

from temporeal.policies.cli.data_verbs.progress import called_done, calls
from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.evaluate import progress_models
from temporeal.policies.progress import success_classifier as classifier
from temporeal.policies.training.checkpoint import CheckpointError
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.progress_models import thresholds
from temporeal.policies.training.progress_models.learner import Drawing
from temporeal.policies.training.progress_models.moments import held_out, moments

SMALL = classifier.SuccessConfig(updates=150, report_updates=150, batch=32, context=32, learning_rate=3e-3, average=0.9,
                                 shift=0, ends=3)


def test_a_score_is_the_highest_threshold_that_so_many_in_a_row_reach() -> None:
    values = np.array([0.1, 0.9, 0.2, 0.6, 0.7, 0.3, 0.8])
    assert [thresholds.score(values, k, stays=False) for k in (1, 2, 3, 8)] == [0.9, 0.6, 0.3, -1.0]
    assert [thresholds.score(values, k, stays=True) for k in (1, 2, 3)] == [0.9, 0.8, 0.8]


def test_thresholds_lie_in_the_middle_of_what_they_divide_and_never_below_the_half() -> None:
    good, bad = np.array([0.9, 0.8, 0.3]), np.array([0.5, 0.1, 0.6])
    assert thresholds.between(good, bad, 0.0) == pytest.approx(0.7)
    assert thresholds.between(good, bad, 0.34) == pytest.approx(0.65)  # one of three may be above
    assert thresholds.between(good, bad, 0.7) == thresholds.LEAST  # not 0.2
    assert thresholds.between(good, np.array([0.95]), 0.0) > 1.0


def test_figures_are_of_halves_that_did_not_choose_the_threshold() -> None:
    found = thresholds.chosen([0.9, 0.7, 0.8, 0.6], [0.1, 0.65, 0.2, 0.1], 2, 0.0)
    assert found.value == pytest.approx(0.675) and (found.found, found.false_positives) == (0.75, 0.0)
    assert found.auc == pytest.approx(15 / 16)
    # the first half, good 0.9, 0.8 and bad 0.1, 0.2, chooses 0.5; the other, 0.7, 0.6 and 0.65, 0.1, chooses 0.675
    assert (found.fresh_found, found.fresh_false_positives) == (1.0, 0.25)
    assert found.interval is not None and found.interval[0] < 0.25 < found.interval[1]
    alone = thresholds.chosen([0.9], [0.1, 0.2], 2, 0.0)
    assert alone.fresh_found is None and alone.interval is None


def test_what_is_taught_as_done_is_the_end_and_nothing_shortly_before_it() -> None:
    data = moments(walks(20, 30), ())
    drawing = Drawing(data, replace(SMALL, batch=4096, margin=4, failures=0.25, noise=0.0),
                      torch.Generator().manual_seed(0))
    seen = list[torch.Tensor]()
    drawing.signals = lambda at: seen.append(at) or {}  # type: ignore[method-assign, func-returns-value, assignment]
    told = classifier.draw(drawing, known=False)
    episode, sample = seen[0] // 31, seen[0] % 31
    good = data.success[episode] > 0
    assert int(told.done.sum()) == 2048 and bool(good[told.done > 0].all())
    assert sorted(sample[told.done > 0].unique().tolist()) == [28, 29, 30]
    assert sorted(sample[(told.done == 0) & good].unique().tolist()) == list(range(24))  # 24 to 27 are neither
    assert sorted(sample[~good].unique().tolist()) == list(range(31))
    assert float((~good).float().sum() / 2048) == pytest.approx(0.25, abs=0.05)  # five deviations
    known = classifier.first_done(moments(walks(4, 30), (), np.array([10, 0, 20, 0])), 3, known=True)
    assert (known - torch.arange(4) * 31)[::2].tolist() == [10, 20]


@pytest.mark.parametrize("data", [walks(40), films(24)], ids=["state", "pictures"])
def test_it_finds_held_out_successes_and_no_failure(data: Judged, tmp_path: Path) -> None:
    history = classifier.train(data, SMALL, out=tmp_path, seed=1).history[-1]
    model = classifier.load_progress(tmp_path)
    assert model.chosen is not None and history["threshold"] == model.chosen.value
    (told,) = classifier.notes(tmp_path)
    assert f"{model.chosen.found:.0%} of {model.chosen.successes} successes" in told and "the other half" in told
    assert model.chosen.auc > 0.9 and model.chosen.found > 0.7 and model.chosen.false_positives == 0.0
    seen = moments(data, ())
    for e in held_out(len(data.records), 5).tolist():
        values = model.values(seen.signals(torch.arange(int(seen.starts[e]), int(seen.starts[e + 1]))))
        assert data.records[e].success or thresholds.score(values.numpy(), 2, stays=True) < model.chosen.value


def test_a_classifier_is_judged_by_its_own_threshold() -> None:
    found = [progress_models.Judged(k, np.array(values), success, np.nan, 1) for k, (values, success) in enumerate((
        ([0.1, 0.8, 0.9], 1.0), ([0.1, 0.9, 0.2], 1.0), ([0.7, 0.7, 0.1], 0.0), ([0.6, 0.6, 0.6], 0.0)))]
    model = SimpleNamespace(chosen=SimpleNamespace(value=0.65, in_a_row=2))
    counts = called_done(model, found)
    assert counts == {"called_done": {"threshold": 0.65, "in_a_row": 2, "successes": 1, "failures": 1}}
    assert "1 of 2 successes, 1 of 2 failures" in calls(counts, progress_models.summary(found))[0]
    assert called_done(SimpleNamespace(), found) == {}


def verdicts(data: Judged, of: dict[int, bool | None]) -> Judged:
    records = [SimpleNamespace(success=of.get(k, record.success)) for k, record in enumerate(data.records)]
    return replace(data, records=records)


@pytest.mark.parametrize(("changed", "said"), [
    (dict.fromkeys(range(20), True), "of the 16 episodes that are learned from none is a failure; the set has 0 of 20"),
    (dict.fromkeys(range(20), False), "of the 16 episodes that are learned from none is a success; the set has 0 of"),
    ({4: False, 9: False, 14: False, 19: False}, "of the 4 episodes that are held out, .* none is a success"),
    ({3: None, 7: None}, "of 2 of 20 episodes nobody said whether they succeeded, such as episode 3")])
def test_sets_without_one_of_both_kinds_are_refused(changed: dict[int, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said):
        classifier.train(verdicts(walks(20), changed), SMALL, out=tmp_path)


def test_what_cannot_be_learned_is_said(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="algo.hold_out=0: the threshold is chosen by episodes"):
        replace(SMALL, hold_out=0)
    with pytest.raises(SettingsError, match="algo.in_a_row=32: the longest episode of the set has 31 samples.*most 31"):
        classifier.train(walks(20, 30), replace(SMALL, in_a_row=32), out=tmp_path)
    for good, bad, counts in (([0.9], [], "1 and 0"), ([], [0.1], "0 and 1")):
        with pytest.raises(SettingsError, match=f"a threshold is chosen by scores of at least one .* got {counts}"):
            thresholds.chosen(good, bad, 2, 0.0)
    with pytest.raises(DataError, match="signals front_rgb are not in the dataset; it has: place_w"):
        classifier.train(walks(), replace(SMALL, signals=("front_rgb",)), out=tmp_path)
    blind = walks(20)
    blind.columns["place_w"][:] = 0.0
    config = replace(SMALL, updates=4, report_updates=2)
    with pytest.raises(SettingsError, match="no threshold tells the 2 held-out successes from what is none"):
        classifier.train(blind, config, out=tmp_path / "blind")
    with pytest.raises(CheckpointError, match="it finds none|its threshold is"):
        classifier.load_progress(tmp_path / "blind")
    classifier.train(blind, config, out=tmp_path / "part", on_iteration=lambda loop: True)  # interrupted: no complaint


def test_a_threshold_of_other_weights_or_none_is_refused(tmp_path: Path) -> None:
    classifier.train(walks(), replace(SMALL, updates=60), out=tmp_path, seed=1)
    file = tmp_path / classifier.FILE
    good = json.loads(file.read_text())
    for changed, said in (({"weights": "0" * 64}, "of other weights"),
                          ({"threshold": {**good["threshold"], "value": 1.5}}, r"is 1.5, not in \(0, 1\]"),
                          ({"threshold": {**good["threshold"], "in_a_row": 0}}, "a whole number from 1"),
                          ({"threshold": 0.9}, "does not say")):
        file.write_text(json.dumps({**good, **changed}))
        with pytest.raises(CheckpointError, match=said):
            classifier.load_progress(tmp_path)
    file.unlink()
    with pytest.raises(CheckpointError, match="train it again"):
        classifier.load_progress(tmp_path)
