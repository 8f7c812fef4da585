"""Plans: their scores by hand, their truth by a camera, and a head that learns them and reaches no command."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from tests.policies.vla.plan.table import FRONT, table
from torch import tensor

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.imitation import vla
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.vla import learning
from temporeal.policies.vla.plan import scores, truth
from temporeal.policies.vla.plan.training import divided

SMALL: dict[str, Any] = {
    "horizon": 4, "execute": 4, "context": 32, "keypoints": 8, "channels": (8, 16, 16), "width": 32, "layers": 1,
    "heads": 2, "denoise_steps": 2, "batch": 32, "learning_rate": 3e-3, "average": 0.9, "evaluate_updates": 0,
    "word_dropout": 0.0, "signals": ("front_rgb",)}
PLAN: dict[str, Any] = {"plan": 2, "plan_step": 3, "plan_weight": 1.0, "plan_sizes": (0.125, 0.25)}


def test_boxes_are_scored_by_hand() -> None:
    a, b, far = tensor([0.0, 0.0, 2.0, 2.0]), tensor([1.0, 0.0, 3.0, 2.0]), tensor([0.0, 3.0, 1.0, 4.0])
    assert scores.iou(a, a) == 1.0 and scores.giou(a, a) == 1.0
    assert scores.iou(a, b) == pytest.approx(2 / 6) and scores.giou(a, b) == pytest.approx(2 / 6)
    assert scores.iou(a, far) == 0.0 and scores.giou(a, far) == pytest.approx(-(8 - 5) / 8)
    assert scores.iou(a, tensor([1.0, 1.0, 1.0, 1.0])) == 0.0  # a box without an area


def test_frechet_is_the_leash_of_a_walk() -> None:
    line = tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    beside = line + tensor([0.0, 0.5, 0.0])
    assert scores.frechet(line, beside) == pytest.approx(0.5)
    assert scores.frechet(line, line.flip(0)) == pytest.approx(2.0)  # the same places, the other way round
    assert scores.frechet(line, tensor([[0.0, 0.0, 0.0], [2.0, 0.0, 0.0]])) == pytest.approx(1.0)
    detour = tensor([[0.0, 0.0, 0.0], [1.0, 3.0, 0.0], [2.0, 0.0, 0.0]])
    assert scores.frechet(line, detour) == pytest.approx(3.0)
    pair = torch.stack([line, line])
    assert torch.allclose(scores.frechet(pair, torch.stack([beside, detour])), tensor([0.5, 3.0]))


def test_a_trajectory_has_a_direction_and_lengths() -> None:
    line = 0.1 * tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    assert scores.oriented(line, line) == 0.0
    assert scores.oriented(line, line + tensor([0.0, 0.03, 0.0])) == pytest.approx(0.1, abs=1e-6)  # 3 of 30 cm
    turned = line[:, [1, 0, 2]]
    across = float(scores.frechet(line, turned)) / 0.3
    assert scores.oriented(line, turned) == pytest.approx(across + 0.25 * 0.5, abs=1e-5)
    longer = 2 * line
    assert scores.oriented(line, longer) == pytest.approx(0.2 / 0.3 + 0.1 * np.log(2), abs=1e-5)
    assert bool(scores.oriented(line[:1].repeat(3, 1), line).isfinite())  # one that stands still


def test_the_reward_is_one_for_the_truth_and_falls() -> None:
    box = tensor([[[0.2, 0.2, 0.4, 0.4], [0.5, 0.5, 0.9, 0.9]]])
    path = torch.rand(1, 3, 3, generator=torch.Generator().manual_seed(0))
    seen = torch.ones(1, 2)
    best = scores.reward(box, box, seen, path, path)
    assert best == 1.0
    worse = scores.reward(box, box + 0.1, seen, path + 0.05, path)
    far = scores.reward(box, box + 3.0, seen, path + 5.0, path)
    assert 0.0 <= far < worse < best and far < 0.1
    assert scores.reward(box, box + 3.0, 0 * seen, path, path) == 1.0  # no box in the picture: the way alone


def test_who_goes_the_same_way_turns_by_nothing_at_all() -> None:
    """An arc cosine says about 1e-4 of the same directions, in float32."""
    paths = torch.rand(500, 4, 3, generator=torch.Generator().manual_seed(1))
    assert bool((scores.oriented(paths, paths) == 0.0).all())


def test_the_truth_is_what_the_camera_sees() -> None:
    data = table(4)
    found = truth.truth(data, vla.FlowVlaConfig(**SMALL, **PLAN))
    x, y, _ = data.column("target_pos_w")[0]
    box, depth = found[truth.BOXES][0, 0], np.array([0.875, 1.125])  # m, of the cube's upper and lower side
    edges = [-((y + 0.125) / depth).max(), ((x - 0.125) / depth).min(), -((y - 0.125) / depth).min(),
             ((x + 0.125) / depth).max()]
    assert np.allclose(box, (1 + np.array(edges)) / 2, atol=1e-5) and bool(found[truth.SEEN][0, 0])
    path, tool = found[truth.PATH], data.column("grip_pos_w")
    assert np.array_equal(path[0], tool[[3, 6]]) and np.array_equal(path[7], tool[[8, 8]])  # an episode's end stays
    outside = truth.boxes_of(tensor([[[5.0, 0.0, 0.0], [0.0, 0.0, 2.0]]]), (0.1, 0.1), truth.camera_of(
        data.interface, "front"))
    assert outside[1].tolist() == [[False, False]] and bool(((outside[0] >= 0) & (outside[0] <= 1)).all())


def test_plans_are_learned_and_judged_on_episodes_apart(tmp_path: Path) -> None:
    config = vla.FlowVlaConfig(updates=40, report_updates=40, **SMALL, **PLAN)
    logged = list[dict[str, float]]()
    result = vla.train(table(), config, out=tmp_path, logger=lambda step, figures: logged.append(dict(figures)))
    last = result.history[-1]
    assert logged[-1] == {name: last[name] for name in ("plan_iou", "plan_frechet_m", "plan_reward")}
    assert last["plan_iou"] > 0.15 and last["plan_frechet_m"] < 0.3 and last["plan_reward"] > 0.3
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"algo": {"name": "vla"}}))
    policy, data = vla.load_chunks(tmp_path), table(6, seed=5)
    with torch.no_grad():
        signals = {"front_rgb": torch.from_numpy(data.column("front_rgb")[::9])}
        plans = policy.encoder.plan(policy.encoder(signals))
    assert plans.boxes.shape == (6, 2, 4) and plans.path.shape == (6, 2, 3)
    assert np.abs(plans.path[:, -1].numpy() - data.column("grip_pos_w")[6::9]).mean() < 0.2
    other = replace(config, policy=str(tmp_path), plan=3)
    with pytest.raises(SettingsError, match="it plans 2 waypoints; set algo.plan=2, or algo.take=prefix"):
        vla.train(table(8), other, out=tmp_path / "on")


def test_the_head_reaches_no_command() -> None:
    begin = partial(learning.begin, table(32), build=vla.flow, name="vla", seed=0)
    (off, _), (on, batches) = (begin(config=vla.FlowVlaConfig(**SMALL, **plan), generator=torch.Generator())
                               for plan in ({}, PLAN))
    assert off.policy.encoder.plan is None and not [key for key in off.policy.state_dict() if "plan" in key]
    signals = {"front_rgb": torch.randint(0, 256, (3, 16, 16, 3), dtype=torch.uint8)}
    with torch.no_grad():
        assert torch.equal(off.policy.rows(signals), on.policy.rows(signals))
        for value in on.policy.encoder.plan.parameters():
            value.add_(1.0)
        assert torch.equal(off.policy.rows(signals), on.policy.rows(signals))
    assert batches.held is not None and not set(batches.held.at.tolist()) & set(batches.data.at.tolist())
    assert set((batches.held.at // 9).tolist()) == {0, 16}


def test_a_frozen_prefix_can_still_be_asked_for_plans(tmp_path: Path) -> None:
    vla.train(table(8), vla.FlowVlaConfig(updates=1, **SMALL), out=tmp_path)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"algo": {"name": "vla"}}))
    config = vla.FlowVlaConfig(updates=2, policy=str(tmp_path), take="prefix", tune="expert", **SMALL, **PLAN)
    last = vla.train(table(20), config, out=tmp_path / "on").history[-1]
    assert 0.0 <= last["plan_iou"] <= 1.0 and last["plan_frechet_m"] > 0.0


def test_what_cannot_be_planned_is_refused() -> None:
    config = vla.FlowVlaConfig(**SMALL, **PLAN)

    def told(data: Any, **settings: Any) -> Any:
        return truth.truth(data, replace(config, **settings))

    with pytest.raises(DataError, match="plan_camera=side: the dataset does not state where such a camera was; it "
                                        "states: front"):
        told(table(2), plan_camera="side")
    with pytest.raises(SettingsError, match="this one moves, or its model places it"):
        told(table(2, body="hand"))
    shaken = table(2)
    side = {"settings": {"cameras": {**shaken.interface.about["settings"]["cameras"], "side": FRONT}}}
    with pytest.raises(SettingsError, match="side_rgb, which the policy does not read; it reads: front_rgb"):
        learning.begin(replace(shaken, interface=replace(shaken.interface, about=side)), replace(
            config, plan_camera="side"), vla.flow, "vla", 0, torch.Generator())
    merged = {**shaken.interface.about, "differs": ["cameras"]}
    with pytest.raises(DataError, match="plan_camera=front: the dataset was merged of sets that differ in cameras"):
        told(replace(shaken, interface=replace(shaken.interface, about=merged)))
    about = {"settings": {**shaken.interface.about["settings"],
                          "randomize": {"appearance": {"camera.front.pos": {"kind": "add"}}}}}
    with pytest.raises(SettingsError, match="stood elsewhere in each episode"):
        told(replace(shaken, interface=replace(shaken.interface, about=about)))
    for about in ({}, {"settings": 3}, {"settings": {"cameras": [1]}}):
        with pytest.raises(DataError, match="it states: none"):
            told(replace(shaken, interface=replace(shaken.interface, about=about)))
    blind = {name: spec for name, spec in shaken.interface.signals.items() if name != "grip_pos_w"}
    with pytest.raises(DataError, match="the dataset has no signal grip_pos_w"):
        told(replace(shaken, interface=replace(shaken.interface, signals=blind)))
    with pytest.raises(DataError, match="one episode is held out"):
        learned = learning.begin(table(1), replace(config, plan=0), vla.flow, "vla", 0, torch.Generator())[1]
        divided(learned.data, table(1).starts)
    with pytest.raises(SettingsError, match="plan_sizes are two lengths"):
        replace(config, plan_sizes=(0.1,))
    with pytest.raises(SettingsError, match="algo.shift=0 or algo.plan=0"):
        replace(config, shift=2)
