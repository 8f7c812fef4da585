"""SAC and TD3 from pictures: bytes once a step, true successors, eyes that critics teach, exact resumption."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from temporeal.policies.algos import sac, td3
from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.seeing_policy import SeeingPolicy
from temporeal.policies.runs import memory
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.off_policy.drawing import batches
from temporeal.policies.training.off_policy.learner import Learner, start, step
from temporeal.policies.training.off_policy.pictures import Pictures
from temporeal.sim.task import load_task
from temporeal.sim.types import EnvCapabilities, Obs, Step

pytestmark = pytest.mark.usefixtures("one_thread")

SPEC = importlib.util.spec_from_file_location("pictures_of_ppo", Path(__file__).parent / "test_ppo_pictures.py")
assert SPEC is not None and SPEC.loader is not None
spots = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(spots)
Spot, SIDE = spots.Spot, spots.SIDE
LEARNERS = {"sac": (sac, sac.SACConfig), "td3": (td3, td3.TD3Config)}
SMALL: dict[str, Any] = {"total_steps": 96, "warmup": 32, "report_steps": 32, "batch": 8, "hidden": (8,), "shift": 1,
                         "keypoints": 2, "checkpoint_seconds": 0.0}


class Counting:
    """Pictures show how many steps the world has made; time cuts each episode of world i after 3 + i steps, and the
    first picture of the next one is 100 more."""

    obs_dim, critic_dim, action_dim, device = 1, 2, 1, torch.device("cpu")
    capabilities = EnvCapabilities()

    def __init__(self, num_worlds: int) -> None:
        self.num_worlds = num_worlds
        self.shown, self.age = torch.zeros(num_worlds, dtype=torch.int64), torch.zeros(num_worlds, dtype=torch.int64)

    def observe(self) -> Obs:
        pictures = self.shown[:, None, None, None].expand(-1, 2, 2, 3).to(torch.uint8).clone()
        nothing = torch.zeros(self.num_worlds, 1)
        return Obs(nothing, torch.zeros(self.num_worlds, 2), {"eye_rgb": pictures})

    def reset(self) -> Obs:
        return self.observe()

    def step(self, action: torch.Tensor) -> Step:
        self.shown, self.age = (self.shown + 1) % 256, self.age + 1
        final, cut = self.observe(), self.age == 3 + torch.arange(self.num_worlds)
        self.shown, self.age = torch.where(cut, (self.shown + 100) % 256, self.shown), torch.where(cut, 0, self.age)
        return Step(self.observe(), torch.zeros(self.num_worlds), torch.zeros_like(cut), cut, final, {})

    def state_dict(self) -> dict[str, object]:
        return {}

    def load_state_dict(self, state: dict[str, object]) -> None:
        pass


def learner_of(env: Any, name: str = "sac", **changes: Any) -> Learner:
    module, kind = LEARNERS[name]
    return start(env, kind(**{**SMALL, **changes}), module.SAC if name == "sac" else module.TD3, 0, None)


def successors(learner: Learner) -> tuple[torch.Tensor, torch.Tensor]:
    """What all remembered steps show before, and after n = 1."""
    drawn = learner.replay.take(torch.arange(learner.replay.steps), 1, 0.9)
    before, after = learner.replay.seen(drawn.chosen, drawn.last)
    return before["eye_rgb"][:, 0, 0, 0].int(), after["eye_rgb"][:, 0, 0, 0].int()


def test_a_picture_is_kept_once_and_what_follows_is_the_true_successor() -> None:
    learner = learner_of(Counting(3), size=24)
    for k in range(1, 30):
        step(learner)
        before, after = successors(learner)
        assert torch.equal(after, (before + 1) % 256), k  # also where the next step shows 100 more
    kept = learner.replay.pictures
    assert kept is not None and kept.table["eye_rgb"].shape == (9, 3, 2, 2, 3)  # eight times, and what is seen now
    assert len(kept.lasts["eye_rgb"]) == 64  # 24 steps end 6 episodes or so: what is forgotten makes room


def test_returns_of_several_steps_end_in_the_last_picture_of_the_episode() -> None:
    learner = learner_of(Counting(1), size=8)
    for _ in range(7):
        step(learner)
    drawn = learner.replay.take(torch.arange(7), 3, 0.9)
    before, after = (pictures["eye_rgb"][:, 0, 0, 0].tolist()
                     for pictures in learner.replay.seen(drawn.chosen, drawn.last))
    assert before == [0, 1, 2, 103, 104, 105, 206] and after == [3, 3, 3, 106, 106, 106, 207]


@pytest.mark.parametrize("size", [16, 8])
def test_what_is_remembered_is_saved_in_order_and_less_of_it_where_there_is_less_room(size: int) -> None:
    learner = learner_of(Counting(2), size=16)
    for _ in range(21):
        step(learner)
    other = learner_of(Counting(2), size=size)
    other.replay.load_state_dict(learner.replay.state_dict())
    for mine, theirs in zip(successors(other), successors(learner)):
        assert torch.equal(mine, theirs[-size:])
    other.env, other.obs = learner.env, learner.obs
    for _ in range(9):  # and it goes on
        step(other)
        before, after = successors(other)
        assert torch.equal(after, (before + 1) % 256)


@pytest.mark.parametrize("name", LEARNERS)
def test_eyes_are_taught_by_the_critics_alone(name: str) -> None:
    """What autograd says of the critics' loss, and no derivative of the policy's."""
    learner = learner_of(Spot(8), name, warmup=0, shift=0, policy_every=1, learning_rate=1e-9, policy_rate=1e-9)
    for _ in range(3):
        step(learner)
    batch, algorithm = next(batches(learner)), learner.algorithm
    with torch.no_grad():
        for p in algorithm.critics.quality.parameters():
            p += 0.3 * torch.randn(p.shape, generator=learner.generator)
    state = learner.generator.get_state()
    algorithm.update(batch)
    found = algorithm.sight.adam.gradient.clone()
    learner.generator.set_state(state)
    for p in algorithm.sight.eyes.parameters():
        p.grad.zero_()
    with torch.no_grad():
        then = algorithm.sight.shown(batch)
        wanted = algorithm.wanted(then) if name == "sac" else None
    if wanted is None:  # the discount is there: of one step, which ends the task, nothing counts after it
        assert bool((batch.discount == 0).all())
        wanted = batch.reward
    seen = algorithm.sight.eyes(batch.pictures)
    pair = torch.cat([batch.critic, seen, batch.pair[:, -1:]], -1)
    value = algorithm.critics.quality.net.plain(pair)[..., 0]
    (value - wanted).square().mean(1).sum().backward()
    assert torch.allclose(found, algorithm.sight.adam.gradient, atol=1e-5) and float(found.norm()) > 1e-3


def test_the_policy_acts_on_what_its_eyes_find_and_critics_read_no_more_than_it() -> None:
    learner = learner_of(Spot(8), "td3", warmup=0, exploration=0.0)
    assert learner.shared and learner.sizes.found == 4 and learner.sizes.critic_dim == 1
    obs, actor = learner.obs, learner.algorithm.actor
    assert isinstance(actor, SeeingPolicy)
    with torch.no_grad():
        wanted = actor(learner.normalizers["actor"](obs.actor), obs.images)
    step(learner)
    assert torch.allclose(learner.replay.pair[0, :, -1:], wanted, atol=0.02)  # the normalizer has seen one step more


@pytest.mark.parametrize("name", LEARNERS)
def test_a_run_from_pictures_resumes_exactly(name: str, tmp_path: Path) -> None:
    module, kind = LEARNERS[name]
    config = kind(**SMALL, size=48)
    whole = module.train(Spot(4, seed=1), config, out=tmp_path / "whole")
    module.train(Spot(4, seed=1), replace(config, total_steps=64), out=tmp_path / "parts")
    parts = module.train(Spot(4, seed=9), config, out=tmp_path / "parts", resume=True)
    a, b = whole.actor.state_dict(), parts.actor.state_dict()
    assert all(torch.equal(a[key], b[key]) for key in a) and any(key.startswith("eyes.") for key in a)
    actor, normalizer, _ = module.load_policy(tmp_path / "parts")
    seen = Spot(5).reset()
    assert torch.allclose(actor(normalizer(seen.actor), seen.images), whole.actor(
        whole.normalizer(seen.actor), seen.images), atol=1e-6)


def demonstrated(side: int = 2) -> Transitions:
    """Two episodes of a longer set: samples 3 to 6, cut by time, and 8 to 10, which ended the task; pictures show their
    sample's number and 200 more."""
    pictures = np.broadcast_to(np.arange(200, 212, dtype=np.uint8)[:, None, None, None], (12, side, side, 3))
    sample = torch.tensor([3, 4, 5, 8, 9])
    return Transitions(torch.zeros(5, 1), torch.zeros(5, 1), torch.full((5,), 99.0), torch.zeros(5, 1),
                       torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0]), torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 3, 5]),
                       sample=sample, pictures={"eye_rgb": pictures})


def test_demonstrations_show_their_pictures_beside_those_of_replay() -> None:
    learner = start(Counting(2), sac.SACConfig(**{**SMALL, "warmup": 0, "batch": 64, "n_step": 1}), sac.SAC, 0,
                    demonstrated())
    for _ in range(6):
        step(learner)
    batch = next(batches(learner))
    before, after = (seen["eye_rgb"][:, 0, 0, 0].int() for seen in (batch.pictures, batch.next_pictures))
    assert batch.shown is not None and int(batch.shown.sum()) == 32 and torch.equal(batch.shown > 0, batch.reward > 50)
    counts = batch.discount > 0  # where the task ended nothing that follows counts
    assert torch.equal(after[counts], before[counts] + 1) and not bool(counts.all())
    assert set(before[batch.shown > 0].tolist()) == {203, 204, 205, 208, 209}
    assert set(before[batch.shown == 0].tolist()) < set(range(110))


def test_pictures_that_have_no_room_and_demonstrations_of_other_pictures_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda device: 10**9)
    task, cameras = load_task("hover"), {"front": {"width": 64, "height": 64}}
    config = sac.SACConfig(size=60_000)
    memory.check_replay(config, 4, task)
    with pytest.raises(BadInput, match="algo.size=60000: .* at most algo.size=[12][0-9]{4}$"):
        memory.check_replay(config, 4, task, cameras=cameras)
    for told, said in ((demonstrated(3), r"they have eye_rgb \[3, 3, 3\]"),
                       (replace(demonstrated(), pictures={}), "they have none")):
        with pytest.raises(SettingsError, match=r"cameras show eye_rgb \[2, 2, 3\].*" + said):
            start(Counting(4), sac.SACConfig(**SMALL), sac.SAC, 0, told)


def test_last_pictures_make_room_for_each_other() -> None:
    kept = Pictures(2, 1, {"eye_rgb": (1, 1, 3)})
    for k in range(200):
        before, final = (Obs(torch.zeros(1, 1), torch.zeros(1, 1), {"eye_rgb": torch.full((1, 1, 1, 3), v).byte()})
                         for v in (k, k + 1))
        kept.add(before, final, torch.tensor([True]))
        assert kept.after(torch.tensor([1]), torch.tensor([0]))["eye_rgb"].unique().tolist() == [(k + 1) % 256]
    assert len(kept.lasts["eye_rgb"]) == 64


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_a_policy_learns_to_point_at_what_only_pictures_show(name: str, tmp_path: Path) -> None:
    """Mean squares of what it is off; blind 0.26 at best. PPO needs 8,192 steps (test_ppo_pictures.py)."""
    module, kind = LEARNERS[name]
    config = kind(total_steps=1500, warmup=300, report_steps=500, batch=64, hidden=(32, 32), keypoints=4, shift=1,
                  gamma=0.0, learning_rate=1e-3, policy_rate=1e-3)
    policy = module.train(Spot(8), config, out=tmp_path, seed=1)
    assert spots.error(policy) < 0.3 * float(Spot(512, seed=7).place().square().mean())
