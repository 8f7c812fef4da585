"""Models of progress: their formulas by hand, what each claims on a toy, and that they are learners like any other."""

from __future__ import annotations

import importlib
import typing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.policies.toy_progress import Judged, films, told_walks, walks

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.evaluate import progress_models
from temporeal.policies.evaluate.ope.ranking import rank_correlation
from temporeal.policies.evaluate.progress_models import auc, summary
from temporeal.policies.nets.encoders import SignalEncoder
from temporeal.policies.progress import gvl, q_progress, vlac, vptr
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.progress_models.learner import Drawing
from temporeal.policies.training.progress_models.moments import held_out, learned_from, moments
from temporeal.policies.training.progress_models.network import ProgressNetwork
from temporeal.robots.registry import names

REGISTRY, NO_ORDER = "temporeal.policies.progress", "success_classifier"  # which says nothing of what comes first
SMALL: dict[str, Any] = {"context": 32, "batch": 32, "updates": 150, "report_updates": 150, "learning_rate": 3e-3,
                         "average": 0.9, "hold_out": 5, "shift": 0}
OWN: dict[str, dict[str, Any]] = {"vlac": {"stride": 5}, "attribution": {"stride": 5, "batch": 12},
                                  "gvl": {"frames": 8, "batch": 12},
                                  "vptr": {"lookahead": 4, "keypoints": 8}, "q_progress": {"lookahead": 5}}


def of(name: str, **settings: Any) -> tuple[Any, Any]:
    module = importlib.import_module(f"{REGISTRY}.{name}")
    return module, typing.get_type_hints(module.train)["config"](**{**SMALL, **OWN.get(name, {}), **settings})


def signals_of(data: Judged, episode: int) -> dict[str, torch.Tensor]:
    return moments(data, ()).signals(torch.arange(int(data.starts[episode]), int(data.starts[episode + 1])))


def figures(model: ProgressNetwork, data: Judged) -> tuple[float, float]:
    """VOC of held-out successes, and AUC of their last values against failures."""
    values = {e: model.values(signals_of(data, e)).numpy() for e in held_out(len(data.records), 5).tolist()}
    good = [v for e, v in values.items() if data.records[e].success]
    bad = [v[-1] for e, v in values.items() if not data.records[e].success]
    assert all((0 <= v).all() and (v <= 1).all() for v in values.values())
    voc = np.mean([rank_correlation(v, np.arange(len(v))) for v in good])
    return float(voc), auc(np.array([v[-1] for v in good]), np.array(bad))


# what each claims


@pytest.mark.parametrize("name", [name for name in names(REGISTRY) if name not in ("vptr", NO_ORDER)])
def test_what_comes_later_is_worth_more_and_successes_end_above_failures(name: str, tmp_path: Path) -> None:
    module, config = of(name)
    voc, area = figures(module.train(walks(), config, out=tmp_path, seed=1).model, walks())
    assert voc > 0.8 and area > 0.9


def test_video_alone_has_a_value_and_policies_start_from_its_eyes(tmp_path: Path) -> None:
    module, config = of("vptr", updates=100, learning_rate=6e-3)
    data = films()
    model = module.train(data, config, out=tmp_path, seed=1).model
    voc, area = figures(model, data)
    assert voc > 0.8 and area > 0.9
    encoder = SignalEncoder(tuple(data.interface.signals.values()), 8, 8)
    assert vptr.eyes(tmp_path, encoder) == ["front_rgb"]
    seen = signals_of(data, 0)["front_rgb"]
    assert torch.equal(encoder.eyes["front_rgb"](seen), model.encoder.seen.eyes["front_rgb"](seen))
    with pytest.raises(SettingsError, match="another size"):
        vptr.eyes(tmp_path, SignalEncoder(tuple(data.interface.signals.values()), 8, 5))
    with pytest.raises(SettingsError, match="there are none among the dataset's signals place_w"):
        module.train(walks(), config, out=tmp_path / "none")


@pytest.mark.parametrize("name", ["vlac", "contrastive_goals"])
def test_the_instruction_says_which_end_is_the_right_one(name: str, tmp_path: Path) -> None:
    module, config = of(name, updates=250)
    model = module.train(told_walks(), config, out=tmp_path, seed=1).model
    right = {"place_w": torch.linspace(0.0, 1.0, 21)[:, None].repeat(1, 2), "instruction": torch.tensor([[1, 0]] * 21)}
    wrong = {**right, "instruction": torch.tensor([[2, 0]] * 21)}
    assert model.values(right)[-1] > 0.7 and model.values(wrong)[-1] < 0.3


def test_a_toy_of_stepwise_attribution_pays_where_the_point_moves(tmp_path: Path) -> None:
    module, config = of("attribution", hold_out=0)
    model = module.train(walks(), config, out=tmp_path, seed=1).model
    still = {"place_w": torch.full((31, 2), 0.8)}
    moves = {"place_w": torch.linspace(0.8, 0.0, 31)[:, None].repeat(1, 2)}
    assert model.values(still)[-1] < 0.3 < 0.7 < model.values(moves)[-1]


# formulas


def test_the_recursion_follows_the_changes_exactly() -> None:
    value = torch.tensor([0.0, 0.3, 0.2, 0.9, 0.9, 1.0])
    change = vlac.change(value[:-1], value[1:])
    assert change.tolist() == pytest.approx([0.3, -1 / 3, 0.875, 0.0, 1.0])
    found = [torch.zeros(())]
    for c in change:
        found.append(vlac.recursion(found[-1], c))
    assert torch.allclose(torch.stack(found), value)


def test_a_shuffled_judge_is_asked_in_random_order_and_its_answers_are_put_back() -> None:
    class Telling:
        def completion(self, first: dict[str, torch.Tensor], frames: dict[str, torch.Tensor]) -> torch.Tensor:
            assert first["x"].tolist() == [0.0] and frames["x"].diff().min() < 0
            return frames["x"] / 10.0

    found = gvl.shuffled_values(Telling(), {"x": torch.arange(11.0)}, 6, torch.Generator().manual_seed(0))
    assert torch.allclose(found, torch.linspace(0.0, 1.0, 11))
    model = gvl.GVL(tuple(walks().interface.signals.values()), gvl.GVLConfig(context=16, heads=2))
    first, frames = torch.randn(1, 16), torch.randn(1, 5, 16)
    order = torch.tensor([3, 0, 4, 1, 2])
    assert torch.allclose(model.logits(first, frames)[:, order], model.logits(first, frames[:, order]), atol=1e-5)


def test_chances_are_projected_on_the_nearest_atoms() -> None:
    found = q_progress.projected(torch.tensor([[0.5, 0.0, 0.5]]), torch.tensor([[0.0, 0.25, 0.5 * 0.9]]))
    assert found[0].tolist() == pytest.approx([0.5 + 0.05, 0.45, 0.0])
    assert float((found @ torch.linspace(0, 1, 3))[0]) == pytest.approx(0.5 * 0.45)  # the mean stays


def test_the_area_under_the_curve_counts_pairs() -> None:
    assert auc(np.array([0.9, 0.5]), np.array([0.5, 0.1])) == pytest.approx(3.5 / 4)
    assert np.isnan(auc(np.array([1.0]), np.array([])))


def test_figures_of_an_episode_end_where_its_task_was_done() -> None:
    values = np.array([0.0, 0.5, 0.4, 1.0, 0.2])
    good = progress_models.Judged(0, values, 1.0, np.nan, 3)
    bad = progress_models.Judged(1, values[::-1], 0.0, np.nan, 4)
    assert good.voc == pytest.approx(0.8) and good.voc_whole == pytest.approx(0.3)  # 1 - 6 sum d^2 / (n (n^2 - 1))
    assert good.negative == pytest.approx(1 / 3) and bad.negative == pytest.approx(2 / 4) and good.final == 0.2
    found = summary([good, bad])
    assert (found.successes, found.failures, found.auc, found.auc_greatest) == (1, 1, 1.0, 0.5)
    assert found.voc == good.voc and found.voc_failures == bad.voc and np.isnan(found.agreement)


# moments


def test_what_follows_a_done_task_is_rest() -> None:
    seen = moments(walks(4, 10), (), np.array([5, 5, 10, 10]))
    assert seen.done.tolist() == [5, 21, 32, 43]  # a failure's is its last sample
    episode, sample = torch.tensor([0, 0, 0, 1]), torch.tensor([0, 2, 8, 21])
    assert seen.progress(episode, sample).tolist() == pytest.approx([0.0, 0.4, 1.0, 0.0])
    later, last = seen.later(episode, sample, 4)
    assert later.tolist() == [4, 5, 8, 21] and last.tolist() == [False, True, True, True]


def test_episodes_are_held_out_by_number() -> None:
    assert held_out(11, 5).tolist() == [4, 9] and learned_from(6, 5).tolist() == [0, 1, 2, 3, 5]
    assert held_out(11, 0).tolist() == [] and len(learned_from(11, 0)) == 11
    assert held_out(3, 5).tolist() == [] and len(learned_from(3, 5)) == 3
    config = vlac.VLACConfig(hold_out=2)
    drawing = Drawing(moments(walks(), ()), config, torch.Generator().manual_seed(0))
    assert drawing.successes.tolist() == list(range(0, 40, 2)) and not len(drawing.failures)


def test_bad_data_and_settings_are_named(tmp_path: Path) -> None:
    module, config = of("vlac", updates=1, report_updates=1)
    data = walks(6, 10)
    data.columns["place_w"][25, 1] = np.nan
    with pytest.raises(DataError, match="episode 2, index 3: place_w, component 1, is nan"):
        module.train(data, config, out=tmp_path)
    data = walks(6, 10)
    data.columns["action"][25, 1] = np.nan
    with pytest.raises(DataError, match="episode 2, index 3: action, component 1, is nan"):
        q_progress.train(data, of("q_progress")[1], out=tmp_path)
    with pytest.raises(DataError, match="signals nothing are not in the dataset; it has: place_w"):
        module.train(walks(), replace(config, signals=("nothing",)), out=tmp_path)
    none = replace(walks(), records=[replace_success(False)] * 40)
    with pytest.raises(SettingsError, match="no episode that is learned from was a success"):
        module.train(none, config, out=tmp_path)
    with pytest.raises(SettingsError, match="algo.words=1: signal instruction has word number 2"):
        module.train(told_walks(), replace(config, words=1), out=tmp_path)
    with pytest.raises(SettingsError, match="algo.hold_out is 0 for none, or at least 2"):
        replace(config, hold_out=1)


def replace_success(value: bool) -> Any:
    return type("Record", (), {"success": value})


# learners, and models of many worlds


@pytest.mark.parametrize("name", ["vlac", "q_progress"])
def test_a_resumed_run_equals_an_uninterrupted_one_and_is_loaded(name: str, tmp_path: Path) -> None:
    module, config = of(name, updates=6, report_updates=2)
    whole = module.train(walks(), config, out=tmp_path / "whole", seed=3).model
    module.train(walks(), config, out=tmp_path / "parts", seed=3, on_iteration=lambda loop: loop.updates >= 2)
    module.train(walks(), config, out=tmp_path / "parts", seed=3, resume=True)
    loaded = module.load_progress(tmp_path / "parts")
    for key, value in whole.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[key]), key


@pytest.mark.parametrize("name", [name for name in names(REGISTRY) if name not in ("vptr", "gvl", NO_ORDER)])
def test_worlds_that_are_followed_have_the_values_of_their_episodes(name: str, tmp_path: Path) -> None:
    module, config = of(name, updates=2, report_updates=2)
    data = walks(6, 12)
    model = module.train(data, config, out=tmp_path, seed=1).model
    seen = [signals_of(data, e) for e in range(4)]
    model.start(2)
    begins = torch.tensor([False, True])
    for k in range(13):  # the second world begins another episode after 6 samples
        second = (seen[1], k) if k < 6 else (seen[2], k - 6)
        now = {"place_w": torch.stack([seen[0]["place_w"][k], second[0]["place_w"][second[1]]])}
        found = model.update(now, begins if k == 6 else None)
        assert found[0] == pytest.approx(float(model.values(seen[0])[k]), abs=1e-5)
        assert found[1] == pytest.approx(float(model.values(second[0])[second[1]]), abs=1e-5)
    with pytest.raises(ValueError, match="progress of 2 worlds is asked for"):
        model.start(3)
        model.update(now)


def test_a_frame_is_judged_beside_those_that_are_remembered_while_an_episode_runs() -> None:
    config = gvl.GVLConfig(context=16, heads=2, frames=4, stride=3)
    model, place = gvl.GVL(tuple(walks().interface.signals.values()), config).eval(), torch.rand(8, 2)
    model.start(1)
    found = torch.cat([model.update({"place_w": place[k : k + 1]}) for k in range(8)])
    with torch.no_grad():
        context = model.contexts({"place_w": place})
        for k, shown in ((0, [0, 0, 0, 0]), (2, [0, 0, 0, 2]), (3, [0, 0, 0, 3]), (5, [0, 0, 3, 5]), (7, [0, 3, 6, 7])):
            logit = model.logits(context[:1], context[shown][None])[0, -1]
            assert found[k] == pytest.approx(float(torch.sigmoid(logit)), abs=1e-5)


def test_each_fourth_sample_is_compared_over_the_same_time(tmp_path: Path) -> None:
    module, config = of("vlac", updates=2, report_updates=2, stride=4)
    data = walks(6, 12)
    model = module.train(data, config, out=tmp_path, seed=1).model
    place = signals_of(data, 0)["place_w"]
    model.start(1, every=4)
    found = torch.cat([model.update({"place_w": place[k : k + 1]}) for k in range(0, 13, 4)])
    assert torch.allclose(found, model.values({"place_w": place})[::4], atol=1e-5)
