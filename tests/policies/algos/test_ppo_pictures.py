"""PPO from pictures: bytes in the rollout, one look for actor and critic, exact resumption, hidden signals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from temporeal.policies.algos import ppo
from temporeal.policies.nets.actor import SeeingActor
from temporeal.policies.training import checkpoint
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.ppo_state import PPOConfig, allocate, columns_of, start
from temporeal.policies.training.ranks import Ranks
from temporeal.sim.types import EnvCapabilities, Obs, Step

pytestmark = pytest.mark.usefixtures("one_thread")

SIDE = 16


class Spot:
    """A bright spot in a dark picture: the reward is -(action - its column)^2, columns in [-1, 1]; a new one each step.
    Only the critic is told the column."""

    obs_dim, critic_dim, action_dim, device = 1, 2, 1, torch.device("cpu")
    capabilities = EnvCapabilities()

    def __init__(self, num_worlds: int, seed: int = 0) -> None:
        self.num_worlds, self.generator = num_worlds, torch.Generator().manual_seed(seed)
        self.draw()

    def draw(self) -> None:
        self.column = torch.randint(1, SIDE - 1, (self.num_worlds,), generator=self.generator)

    def observe(self) -> Obs:
        pictures = torch.zeros(self.num_worlds, SIDE, SIDE, 3, dtype=torch.uint8)
        for off in (-1, 0, 1):
            pictures[torch.arange(self.num_worlds), 6:9, self.column + off] = 255
        nothing = torch.zeros(self.num_worlds, 1)
        return Obs(nothing, torch.cat([nothing, self.place()[:, None]], -1), {"eye_rgb": pictures})

    def place(self) -> torch.Tensor:
        return self.column / (SIDE - 1) * 2.0 - 1.0

    def reset(self) -> Obs:
        self.draw()
        return self.observe()

    def step(self, action: torch.Tensor) -> Step:
        reward = -(action[:, 0] - self.place()).square()
        final = self.observe()
        self.draw()
        ended = torch.ones(self.num_worlds, dtype=torch.bool)
        return Step(self.observe(), reward, ended, ~ended, final, {"return": reward})

    def state_dict(self) -> dict[str, object]:
        return {"column": self.column, "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, object]) -> None:
        self.column = state["column"].clone()
        self.generator.set_state(state["generator"])


CONFIG = PPOConfig(total_steps=8_192, rollout_steps=8, epochs=4, minibatches=2, actor_hidden=(32,), critic_hidden=(32,),
                   keypoints=4, gamma=0.0, learning_rate=1e-3, threads=1, checkpoint_seconds=0.0)


def trained(out: Path, **replaced: object) -> ppo.Result:
    return ppo.train(Spot(64), replace(CONFIG, **replaced), out=out, seed=1)


def error(policy: ppo.Result) -> float:
    """Mean square of what the deterministic policy is off."""
    env = Spot(512, seed=7)
    obs = env.reset()
    with torch.no_grad():
        action = policy.actor(policy.normalizer(obs.actor), obs.images)
    return float((action[:, 0] - env.place()).square().mean())


@pytest.mark.slow
def test_a_policy_learns_to_point_at_what_only_pictures_show(tmp_path: Path) -> None:
    blind = float(Spot(512, seed=7).place().square().mean())
    assert blind > 0.25
    assert error(trained(tmp_path)) < 0.3 * blind


def test_pictures_are_kept_as_bytes() -> None:
    learner = start(Spot(8), CONFIG, 0, Ranks())
    rollout = allocate(learner)
    assert rollout.pictures["eye_rgb"].dtype == torch.uint8
    assert rollout.pictures["eye_rgb"].nbytes == CONFIG.rollout_steps * 8 * SIDE * SIDE * 3
    assert rollout.table.shape[-1] == 1 + 2 + 2 * 1 + 5  # nothing of them among the numbers
    assert rollout.seen.numel() == 0
    sees = start(Spot(8), replace(CONFIG, critic_sees=True), 0, Ranks())
    assert allocate(sees).seen.shape == (CONFIG.rollout_steps, 8, 2 * CONFIG.keypoints)


@pytest.mark.parametrize("critic_sees", [False, True])
def test_the_first_update_starts_at_ratio_one_and_the_values_that_acting_had(
    tmp_path: Path, critic_sees: bool,
) -> None:
    learner = start(Spot(8), replace(CONFIG, critic_sees=critic_sees), 0, Ranks())
    rollout = allocate(learner)
    ppo.iterate(learner, rollout, ppo.losses, tmp_path)  # finds the scales
    ppo.collect(learner, rollout)
    ppo.take_statistics(learner, rollout)
    ppo.estimate_advantages(learner, rollout)
    rows = torch.arange(64)
    batch = columns_of(learner, rollout.table.flatten(0, 1))
    with torch.no_grad():
        mean, value = ppo.outputs(learner.actor, learner.critic, batch, learner.hidden, ppo.pictures_of(rollout, rows),
                                  critic_sees)
    torch.testing.assert_close(mean, batch.mean, atol=1e-6, rtol=0)
    torch.testing.assert_close(value, batch.value, atol=1e-6, rtol=0)


def test_a_look_is_shared_and_both_losses_teach_the_eyes(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = start(Spot(8), replace(CONFIG, critic_sees=True), 0, Ranks())
    rollout, looks = allocate(learner), []
    ppo.collect(learner, rollout)
    plain = SeeingActor.look
    monkeypatch.setattr(SeeingActor, "look", lambda self, pictures: looks.append(1) or plain(self, pictures))
    batch = columns_of(learner, rollout.table.flatten(0, 1))
    mean, value = ppo.outputs(learner.actor, learner.critic, batch, learner.hidden,
                              ppo.pictures_of(rollout, torch.arange(64)), True)
    assert looks == [1]
    first = learner.actor.eyes["eye_rgb"].net[0].weight
    for output in (mean.sum(), value.sum()):
        assert torch.autograd.grad(output, first, retain_graph=True)[0].abs().max() > 0


@pytest.mark.parametrize("shift", [0, 2])
def test_a_run_from_pictures_resumes_exactly(tmp_path: Path, shift: int) -> None:
    config = replace(CONFIG, total_steps=4 * 128, shift=shift)
    whole = ppo.train(Spot(16), config, out=tmp_path / "whole", seed=1)
    ppo.train(Spot(16), config, out=tmp_path / "parts", seed=1, on_iteration=lambda one: one.iteration >= 2)
    parts = ppo.train(Spot(16), config, out=tmp_path / "parts", seed=1, resume=True)
    assert all(torch.equal(a, b) for a, b in zip(whole.actor.parameters(), parts.actor.parameters(), strict=True))
    actor, _, _ = ppo.load_policy(tmp_path / "parts")
    assert isinstance(actor, SeeingActor) and actor.pictures == {"eye_rgb": (SIDE, SIDE, 3)}
    assert all(torch.equal(a, b) for a, b in zip(actor.parameters(), parts.actor.parameters(), strict=True))


def test_another_size_of_pictures_is_not_resumed(tmp_path: Path) -> None:
    ppo.train(Spot(16), replace(CONFIG, total_steps=128), out=tmp_path, seed=1)

    class Wider(Spot):
        def observe(self) -> Obs:
            obs = super().observe()
            return obs._replace(images={"eye_rgb": obs.images["eye_rgb"].repeat(1, 1, 2, 1)})

    with pytest.raises(checkpoint.CheckpointError, match=r"16, 16, 3.*16, 32, 3"):
        ppo.train(Wider(16), replace(CONFIG, total_steps=256), out=tmp_path, seed=1, resume=True)


def test_what_cannot_be_seen_with_is_refused() -> None:
    class Depth(Spot):
        def observe(self) -> Obs:
            return super().observe()._replace(images={"eye_depth": torch.zeros(self.num_worlds, 4, 4)})

    with pytest.raises(SettingsError, match=r"eye_depth.*kinds=\[rgb\]"):
        start(Depth(4), CONFIG, 0, Ranks())
    with pytest.raises(SettingsError, match="memory is 8.*eye_rgb"):
        start(Spot(4), replace(CONFIG, memory=8), 0, Ranks())
