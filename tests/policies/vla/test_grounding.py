"""Grounding: frames of worlds that only the protocol says, and a prefix that tells places and is taken over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from tests.policies.vla.squares import SIZE, squares
from torch import Tensor

from temporeal.policies.imitation import vla, vla_grounding
from temporeal.policies.training import offline_learner
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.vla import grounding, learning
from temporeal.policies.vla.encoder import PREFIX
from temporeal.policies.vla.grounding import GroundingConfig
from temporeal.robots.signals import SignalSpec, schema
from temporeal.robots.spec import load_robot
from temporeal.sim.stl.instructions.grammar import SUITE
from temporeal.sim.stl.instructions.vocabulary import INSTRUCTION

SMALL: dict[str, Any] = {"context": 32, "keypoints": 8, "channels": (8, 16, 16), "heads": 2, "text_layers": 0,
                         "ground": ("target_pos_w",), "batch": 32, "pointers": 0}
ALONE: dict[str, Any] = {**SMALL, "follow": 0.0}


class Scenes:
    """Worlds that show the squares; each reset, others."""

    num_worlds, action_dim, rendering = 20, 2, True
    rendered: Any = range(2, 50, 3)  # control steps that are the last before a look

    def __init__(self) -> None:
        self.task: Any = SimpleNamespace(
            name="squares", robot=load_robot("franka"), command="arm_cmd", control_dt=0.05, steps=50,
            schema=schema(INSTRUCTION, SignalSpec("target_pos_w", (2,), "m", "w")))
        self.resets = self.steps = 0

    def reset(self) -> Any:
        self.resets += 1
        self.data = squares(self.num_worlds, 1, seed=self.resets)
        return SimpleNamespace(images={"front_rgb": torch.from_numpy(self.data.column("front_rgb")[::2])})

    def step(self, action: Tensor) -> Any:
        assert action.shape == (20, 2) and self.rendering == (self.steps in self.rendered)
        self.steps += 1
        images = {"front_rgb": torch.from_numpy(self.data.column("front_rgb")[::2])} if self.rendering else {}
        return SimpleNamespace(obs=SimpleNamespace(images=images))

    def true_signals(self) -> dict[str, Tensor]:
        words = ["reach the red cube" if "red" in r.language else "reach the blue cube" for r in self.data.records]
        place = torch.from_numpy(self.data.column("target_pos_w")[::2])
        return {"instruction": torch.from_numpy(np.stack([SUITE.encode(text) for text in words])).float(),
                "target_pos_w": place, "joint_pos": torch.zeros(20, 7)}


def test_frames_are_looks_at_fresh_scenes() -> None:
    env: Any = Scenes()
    seen = grounding.frames(env, GroundingConfig(frames=50, looks=2, wander=[3], **ALONE), torch.Generator())
    assert env.resets == 3 and env.steps == 3  # one to see what there is; two scenes, of which one was looked at twice
    assert seen.pictures["front_rgb"].shape == (50, SIZE, SIZE, 3)
    assert seen.numbers["instruction"].dtype == torch.int32 and set(seen.numbers) == {"instruction", "target_pos_w"}
    assert np.array_equal(seen.pictures["front_rgb"][:20], seen.pictures["front_rgb"][20:40])


def test_looks_are_so_many_steps_apart_or_anywhere_in_an_episode() -> None:
    task, generator = Scenes().task, torch.Generator().manual_seed(1)
    assert grounding.apart(task, 4, 15, generator) == [15, 15, 15]
    drawn = torch.tensor([grounding.apart(task, 4, None, generator) for _ in range(400)])
    last = drawn.sum(1)
    assert drawn.shape == (400, 3) and int(drawn.min()) >= 1 and int(last.max()) == 49 and int(last.min()) < 20
    assert abs(float(drawn.float().mean()) - 12.5) < 0.6  # three of 49 moments: a quarter of 50 apart, on average


def test_scenes_have_several_distances_between_looks_in_turn() -> None:
    env: Any = Scenes()
    env.rendered = (2, 8, 11, 17)
    grounding.frames(env, GroundingConfig(frames=160, looks=2, wander=[3, 6], **ALONE), torch.Generator())
    assert env.steps == 3 + 6 + 3 + 6  # of 20 worlds four times, two looks each
    with pytest.raises(SettingsError, match=r"algo.wander=\[\]"):
        GroundingConfig(wander=[], **ALONE)


def test_arms_follow_the_controller_in_a_share_of_the_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    env: Any = Scenes()
    moved: list[Tensor] = []
    monkeypatch.setattr(env, "step", lambda action: moved.append(action) or SimpleNamespace(
        obs=SimpleNamespace(images={"front_rgb": torch.from_numpy(env.data.column("front_rgb")[::2])})))
    paces: list[Tensor] = []

    def expert(worlds: int) -> Any:
        return lambda s, pace: paces.append(pace) or torch.full((worlds, 2), 0.9)

    monkeypatch.setattr(grounding, "scripted", lambda task: expert)
    config = GroundingConfig(frames=80, looks=2, wander=[2], **{**SMALL, "follow": 0.4})
    grounding.frames(env, config, torch.Generator().manual_seed(0))
    follows = (moved[0] - 0.9).abs().amax(1) <= grounding.ASIDE
    assert 3 <= int(follows.sum()) <= 13 and torch.equal(moved[0][~follows], moved[1][~follows])
    assert bool((moved[0][~follows].abs() <= 1).all()) and float(moved[0].max()) <= 1.0
    assert 0.3 <= float(paces[0].min()) < float(paces[0].max()) <= 1.0 and paces[0] is paces[1]


def test_a_scene_is_held_out_with_all_its_looks() -> None:
    env: Any = Scenes()
    seen = grounding.frames(env, GroundingConfig(frames=80, looks=2, wander=[3], **ALONE), torch.Generator())
    known, held = vla_grounding.divided(seen, env.num_worlds, 2)
    assert held.at.tolist() == [0, 16, 20, 36, 52, 72] and len(known.at) == 74
    assert len(held.numbers["target_pos_w"][held.at].unique(dim=0)) == 3
    with pytest.raises(SettingsError, match="of one scene"):
        vla_grounding.divided(seen, 1, 80)


def test_a_prefix_learns_places_and_the_expert_is_tuned_on_it(tmp_path: Path) -> None:
    env: Any = Scenes()
    config = GroundingConfig(frames=200, looks=1, updates=120, report_updates=10, learning_rate=3e-3, **ALONE)
    result = vla_grounding.train(env, config, out=tmp_path)
    assert result.history[-1]["auxiliary"] < 0.3  # normalized: 1 is that of guessing the middle
    assert 0.0 < result.history[-1]["error"] < 0.4  # m; .8 is the median of guessing the middle
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"algo": {"name": "vla_grounding"}}))
    data = squares(20)
    words = np.repeat(np.stack([SUITE.encode("reach the red cube")] * 20), 6, axis=0)
    data.columns["instruction"] = words
    data.interface.signals["instruction"] = INSTRUCTION  # type: ignore[index]
    tuned = vla.FlowVlaConfig(horizon=4, execute=4, width=32, layers=1, policy=str(tmp_path), tune="expert",
                              **{**SMALL, "ground": ()})
    algorithm, batches = learning.begin(data, tuned, vla.flow, "vla", 0, torch.Generator().manual_seed(0))
    held = algorithm.actor.encoder.prefix.state_dict()
    assert all(torch.equal(value, held[name]) for name, value in result.policy.encoder.prefix.state_dict().items())
    assert PREFIX in next(iter(batches.draw(torch.Generator(), 1))).signals
    assert algorithm.told is None  # a frozen prefix learns nothing, and tells what it told


def test_a_runs_places_keep_their_scales_and_learn_on_where_the_data_have_them(tmp_path: Path) -> None:
    env: Any = Scenes()
    vla_grounding.train(env, GroundingConfig(frames=40, looks=1, updates=1, report_updates=1, **ALONE), out=tmp_path)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"algo": {"name": "vla_grounding"}}))
    held = offline_learner.read(tmp_path)["modules"]["actor"]["encoder.prefix.places.normalizer.mean"]
    data = squares(20)
    data.columns["instruction"] = np.repeat(np.stack([SUITE.encode("reach the red cube")] * 20), 6, axis=0)
    data.interface.signals["instruction"] = INSTRUCTION  # type: ignore[index]
    data.columns["target_pos_w"] += 3.0  # another table: what is told is told in the run's scales all the same
    tuned = vla.FlowVlaConfig(horizon=4, execute=4, width=32, layers=1, policy=str(tmp_path), **SMALL)
    algorithm, batches = learning.begin(data, tuned, vla.flow, "vla", 0, torch.Generator().manual_seed(0))
    assert "target_pos_w" not in batches.spread  # what is told must be true: no noise, no dropout
    assert algorithm.told is algorithm.policy.encoder.prefix.places
    assert torch.equal(algorithm.told.normalizer.mean, held)
    assert "told" not in algorithm.modules and len(set(map(id, algorithm.weights))) == len(algorithm.weights)
    del data.columns["target_pos_w"], data.interface.signals["target_pos_w"]  # type: ignore[attr-defined]
    with pytest.raises(SettingsError, match="tells target_pos_w, which the dataset does not have: .*algo.tune=expert"):
        learning.begin(data, tuned, vla.flow, "vla", 0, torch.Generator())
    with pytest.raises(SettingsError, match="algo.auxiliary=speed: .* tells target_pos_w, and no more can be added"):
        learning.begin(data, replace(tuned, auxiliary=("speed",)), vla.flow, "vla", 0, torch.Generator())


def test_what_cannot_be_learned_is_refused() -> None:
    env: Any = Scenes()
    with pytest.raises(SettingsError, match="task 'squares' has no signal place_pos_w"):
        grounding.frames(env, GroundingConfig(**{**ALONE, "ground": ("place_pos_w",)}), torch.Generator())
    with pytest.raises(SettingsError, match="there is no camera"):
        grounding.read_of(env, {}, ("target_pos_w",))
    with pytest.raises(SettingsError, match="algo.follow: task 'squares' has no expert by hand.*algo.follow=0"):
        grounding.frames(env, GroundingConfig(**{**SMALL, "follow": 0.5}), torch.Generator())
    with pytest.raises(SettingsError, match="an episode has 50"):
        grounding.frames(env, GroundingConfig(looks=6, wander=[10], **SMALL), torch.Generator())
    with pytest.raises(SettingsError, match="an arm follows between two looks, and algo.looks=1"):
        GroundingConfig(looks=1, **SMALL)
    with pytest.raises(SettingsError, match="names no signal"):
        GroundingConfig(**{**ALONE, "ground": ()})
