"""What learners from replay need to correct a base: critics first, bounded targets, a share that grows, the best policy
kept, and demonstrations that are the base's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from temporeal.policies.algos import sac, td3
from temporeal.policies.data.views import Padded
from temporeal.policies.nets.bounded_actor import Ramped, squashed
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.off_policy.critics import Sizes
from temporeal.policies.training.off_policy.drawing import Batch
from temporeal.policies.training.off_policy.learner import start, step
from temporeal.policies.training.residual.base import Acted
from temporeal.policies.training.residual.off_policy_episodes import both, own_episodes
from temporeal.policies.training.residual.off_policy_relabelling import RelabelledView, at_success
from temporeal.policies.training.residual.schedule_best import KeepBest
from temporeal.sim.types import EnvCapabilities, Obs, Step

pytestmark = pytest.mark.usefixtures("one_thread")
LEARNERS = {"sac": (sac, sac.SAC, sac.SACConfig), "td3": (td3, td3.TD3, td3.TD3Config)}
SMALL: dict[str, Any] = {"total_steps": 96, "warmup": 32, "report_steps": 32, "batch": 8, "hidden": (8,),
                         "checkpoint_seconds": 0.0}


class Counting:
    """Worlds of one number, the time; world i ends after i + 2 steps, and succeeds where i is odd."""

    num_worlds, obs_dim, critic_dim, action_dim, device = 4, 1, 2, 2, torch.device("cpu")
    capabilities = EnvCapabilities(zero_start=True)

    def reset(self) -> Obs:
        self.time = torch.zeros(4)
        return self.seen()

    def seen(self) -> Obs:
        return Obs(self.time[:, None].clone(), torch.stack([self.time, 10.0 * self.time], -1))

    def step(self, action: Tensor) -> Step:
        self.played = action.clone()
        self.time += 1.0
        final, ended = self.seen(), self.time >= torch.arange(4) + 2
        won = ended & (torch.arange(4) % 2 == 1)
        self.time = torch.where(ended, 0.0, self.time)
        return Step(self.seen(), won.float(), won, ended & ~won, final, {"success": won.float()})

    def state_dict(self) -> dict[str, Any]:
        return {"time": self.time.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.time = state["time"].clone()


def batch_of(rows: int = 6) -> Batch:
    obs, critic = torch.randn(rows, 3), torch.randn(rows, 4)
    return Batch(obs, critic, torch.randn(rows, 6), obs, critic, torch.ones(rows), torch.ones(rows))


def algorithm_of(name: str, **settings: Any) -> Any:
    _, build, config = LEARNERS[name]
    torch.manual_seed(0)
    found = build(Sizes(3, 4, 2), config(**{**SMALL, **settings}), torch.Generator().manual_seed(1))
    with torch.no_grad():
        for p in (*found.actor.parameters(), *found.critics.quality.parameters()):
            p += 0.5 * torch.randn(p.shape)
    return found


@pytest.mark.parametrize("name", LEARNERS)
def test_the_critics_learn_alone_at_first(name: str) -> None:
    found = algorithm_of(name, critic_first=3, policy_every=1)
    before = [p.clone() for p in found.actor.parameters()]
    for count in range(1, 5):
        found.update(batch_of())
        same = all(torch.equal(a, b) for a, b in zip(before, found.actor.parameters()))
        assert same == (count <= 3)


@pytest.mark.parametrize("name", LEARNERS)
def test_targets_are_within_the_range_of_returns(name: str) -> None:
    found, asked = algorithm_of(name, value_range=(0.0, 0.5)), list[Tensor]()
    fit = found.critics.fit
    found.critics.fit = lambda pair, wanted, weight=None: asked.append(wanted.clone()) or fit(pair, wanted, weight)
    found.update(batch_of(64))
    assert float(asked[0].max()) == 0.5 and float(asked[0].min()) >= 0.0  # of rewards of 1
    assert sac.SACConfig().value_range is None and float(algorithm_of(name).critics.bounded(torch.tensor(7.0))) == 7.0


@pytest.mark.parametrize("name", LEARNERS)
def test_a_share_of_the_policy_is_explored_evaluated_and_climbed_alike(name: str) -> None:
    found = algorithm_of(name, ramp_steps=10, policy_rate=1e-9, temperature=0.3) if name == "sac" else algorithm_of(
        name, ramp_steps=10, policy_rate=1e-9, exploration=0.0)
    obs, batch = torch.randn(5, 3), batch_of()
    found.reach.fill_(1.0)
    whole, state = found.actor(obs).detach(), found.generator.get_state()
    tried = found.explore(obs)
    found.reach.fill_(0.25)
    found.generator.set_state(state)
    assert isinstance(found.actor, Ramped)
    torch.testing.assert_close(found.actor(obs), 0.25 * whole)
    torch.testing.assert_close(found.explore(obs), 0.25 * tried)
    state = found.generator.get_state()
    with torch.no_grad():
        found.improve(batch, torch.zeros(2, 0))
    gradient = found.policy_adam.gradient.clone()
    found.generator.set_state(state)
    outputs, cost = found.actor.net.plain(batch.obs)[0], torch.zeros(())
    if name == "sac":
        action, log_prob = squashed(outputs, found.noise(6))
        cost = 0.3 * log_prob
    else:
        action = torch.tanh(outputs)
    value = found.critics.quality.net.plain(torch.cat([batch.critic, 0.25 * action], -1))[..., 0].amin(0)
    found.policy_adam.gradient.zero_()
    (cost - value).mean().backward()
    assert torch.allclose(gradient, found.policy_adam.gradient, atol=1e-6) and float(gradient.norm()) > 0.001


def test_the_share_grows_over_the_steps() -> None:
    config = td3.TD3Config(**{**SMALL, "ramp_steps": 40})
    assert [config.reach(steps) for steps in (0, 32, 42, 72, 90)] == [0.0, 0.0, 0.25, 1.0, 1.0]
    learner = start(Counting(), replace(config, warmup=0), td3.TD3, 0, None)
    for _ in range(3):
        step(learner)
    assert float(learner.algorithm.reach) == pytest.approx(8 / 40)
    assert not isinstance(td3.make_actor(Sizes(3, 4, 2), td3.TD3Config()), Ramped)


def test_the_best_policy_is_kept_from_before_the_first_step_on(tmp_path: Path) -> None:
    """Where nothing is better than what it began with, it is that: a base without a correction."""
    config = td3.TD3Config(**SMALL, evaluate_steps=32, keep_best=True)
    for shares, best in (([0.5, 0.25, 0.25, 0.0], 0), ([0.5, 0.75, 0.25, 0.5], 1)):
        seen: list[Tensor] = []

        def evaluate(
            actor: torch.nn.Module, normalizer: Normalizer, episodes: int, seen: list[Tensor] = seen,
            shares: list[float] = shares,
        ) -> dict[str, float]:
            seen.append(actor(normalizer(torch.ones(1, 1))).detach().clone())
            return {"success": shares[len(seen) - 1]}

        out = tmp_path / str(best)
        found = td3.train(Counting(), config, out=out, evaluate=evaluate)
        assert found.history[0]["first_evaluated_success"] == 0.5 and len(seen) == 4
        actor, normalizer, _ = td3.load_policy(out)
        for kept in ((found.actor, found.normalizer), (actor, normalizer)):
            assert torch.equal(kept[0](kept[1](torch.ones(1, 1))), seen[best])
        assert torch.equal(seen[0], torch.zeros(1, 2)) and not torch.equal(seen[2], seen[3])
    with pytest.raises(SettingsError, match="keep_best=true: nobody evaluates"):
        td3.train(Counting(), config, out=tmp_path / "none")
    with pytest.raises(SettingsError, match=r"keep_best=true is of evaluations"):
        td3.TD3Config(keep_best=True)
    with pytest.raises(SettingsError, match=r"value_range=\[1, 0\]"):
        td3.TD3Config(value_range=(1, 0))
    for name, value in (("value_range", ("a", "b")), ("value_range", (0.0, float("inf"))), ("n_step", 1.5),
                        ("keep_best", 1), ("clock", None), ("hidden", (8.5,))):
        with pytest.raises(SettingsError, match=f"algo.{name}=.*: expected .*, finite"):
            td3.TD3Config(**{name: value})


def test_a_base_s_own_episodes_are_as_many_of_each_world_and_failures_by_a_share() -> None:
    env, generator = Counting(), torch.Generator().manual_seed(0)
    data, taken = own_episodes(env, 8, 1.0, True, generator)
    assert torch.equal(env.played, torch.zeros(4, 2)) and taken == 4 * 10  # the slowest world's two episodes of five
    assert data.starts.diff().sort().values.tolist() == [2, 2, 3, 3, 4, 4, 5, 5] and data.obs.shape == (28, 2)
    assert data.success is not None and data.success.mean() == 0.5 and float(data.reward.sum()) == 4.0
    for begin, end in zip(data.starts, data.starts[1:]):
        assert torch.equal(data.obs[begin:end, 0], torch.arange(end - begin).float())
        assert torch.equal(data.next_obs[begin:end, 0], data.obs[begin:end, 0] + 1.0)
        assert float(data.mask[end - 1]) == 1.0 - float(data.reward[end - 1])
        assert bool((data.mask[begin : end - 1] == 1.0).all())
    alone, _ = own_episodes(env, 8, 0.0, False, generator)
    assert alone.starts.diff().sort().values.tolist() == [3, 3, 5, 5] and alone.obs.shape == (16, 1)
    learner = start(env, td3.TD3Config(**SMALL, base_episodes=8), td3.TD3, 0, both(data, data))
    assert learner.demonstrations is not None and learner.demonstrations.steps == 3 * 28 and learner.base_steps == 40
    env.capabilities = EnvCapabilities()
    with pytest.raises(SettingsError, match="base_episodes=8 are of the base that a residual corrects"):
        start(env, td3.TD3Config(**SMALL, base_episodes=8), td3.TD3, 0, None)


@dataclass
class Remembers:
    """It does 0.1 times the steps since its episode's begin, plus what it sees."""

    worlds: int
    action_dim: int = 1
    title: str = "a counter"

    def __post_init__(self) -> None:
        self.count = torch.full((self.worlds,), 100.0)

    def begin(self, ids: Tensor) -> None:
        self.count[ids] = 0.0

    def act(self, obs: Obs, signals: Any) -> Acted:
        action = 0.1 * self.count + obs.actor[:, 0] + signals.get("more", torch.zeros(1))
        self.count += 1.0
        return Acted(action[:, None])


class Shown:
    """Two numbers, of which critics alone see the second."""

    names = ("seen",)

    def check(self, interface: Any) -> None:
        raise NotImplementedError

    def __call__(self, episodes: Padded, action: Any) -> tuple[Tensor, Tensor]:
        return episodes.signals["seen"], episodes.command


def test_recorded_episodes_are_relabelled_by_a_base_that_begins_with_each() -> None:
    seen = torch.tensor([[[0.0, 9.0], [-0.1, 9.0]], [[0.1, 9.0], [-0.2, 9.0]], [[0.2, 9.0], [-0.3, 9.0]]])
    command = torch.tensor([[[0.1], [-0.1]], [[0.2], [1.0]], [[0.9], [0.0]]])
    episodes = Padded({"seen": seen, "more": torch.zeros(3, 2)}, command, None)
    view = RelabelledView(Shown(), ("seen", "more"), Remembers, 0.5, 1)  # type: ignore[arg-type]
    for _ in range(2):  # a second batch of episodes begins anew, too
        obs, u = view(episodes, None)  # type: ignore[arg-type]
        base = torch.tensor([[0.0, -0.1], [0.2, -0.1], [0.4, -0.1]])
        torch.testing.assert_close(obs, torch.stack([seen[..., 0], base, seen[..., 1]], -1))
        torch.testing.assert_close(u[..., 0], torch.tensor([[0.2, 0.0], [0.0, 1.0], [1.0, 0.2]]))
        torch.testing.assert_close(view.executed[..., 0], torch.tensor([[0.1, -0.1], [0.2, 0.4], [0.9, 0.0]]))
    told = Padded({**episodes.signals, "more": torch.full((3, 2), 0.05)}, command, None)
    obs, u = RelabelledView(Shown(), (), Remembers, 0.5, 1, condition=False)(told, None)  # type: ignore[arg-type]
    assert torch.equal(obs, seen) and float(u[0, 0]) == pytest.approx(0.1)
    paid = view.paid(lambda signals, actions: (actions[..., 0], actions[..., 0] > 0.5))
    torch.testing.assert_close(paid({}, u)[0], view.executed[..., 0])


def test_recorded_steps_of_a_base_that_reads_worlds_are_refused() -> None:
    from temporeal.policies.runs.errors import BadInput
    from temporeal.policies.runs.residual.relabelling import demonstrations
    from temporeal.policies.training.residual.settings import BaseConfig

    config = td3.TD3Config()
    for asked, said in ((BaseConfig(policy="RUN"), "base.policy=RUN reads what is measured in worlds"),
                        (BaseConfig(expert="scripted", reward="formula"), "not paid by base.reward=formula")):
        base: Any = SimpleNamespace(config=asked, task=None, graph=None)
        with pytest.raises(BadInput, match=said):
            demonstrations(base, None, config)  # type: ignore[arg-type]


def test_demonstrations_of_a_sparse_reward_end_at_success() -> None:
    class Late:
        carry, privileged_dim = {"best": ()}, 0

        def start(self, signals: Any, carry: Any) -> Any:
            return {"best": signals["height"]}

        def step(self, signals: Any, action: Tensor, carry: Any) -> Any:
            best = torch.maximum(carry["best"], signals["height"])
            return -torch.ones(1), torch.zeros(1, dtype=torch.bool), {"best": best}

        def success(self, signals: Any, carry: Any) -> Tensor:
            return carry["best"] > 1.0

    height = torch.tensor([[0.0], [0.5], [2.0], [0.0]])
    reward, over = at_success(Late())({"height": height}, torch.zeros(4, 1, 1))  # type: ignore[arg-type]
    assert reward[:, 0].tolist() == [0.0, 1.0, 1.0, 0.0] and over[:, 0].tolist() == [False, True, True, False]


def test_the_best_policy_of_a_watched_learner_is_put_back() -> None:
    shares, actor, normalizer = iter([0.5, 0.25, 0.75, 0.5]), torch.nn.Linear(1, 1), Normalizer(1)
    kept, held = KeepBest(lambda *_: next(shares), 100), list[Tensor]()
    for steps in (0, 60, 120, 180, 260, 350):
        held.append(actor.weight.detach().clone())
        kept(SimpleNamespace(actor=actor, normalizer=normalizer, steps=steps))
        with torch.no_grad():
            actor.weight += 1.0
    assert kept.seen == [(0, 0.5), (120, 0.25), (260, 0.75), (350, 0.5)]
    kept.put_back(actor, normalizer)
    assert torch.equal(actor.weight, held[4])
