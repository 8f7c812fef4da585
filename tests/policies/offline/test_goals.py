"""Goals from the data: which are drawn, what an observation that asks for one looks like, how they are stitched."""

import importlib
import typing
from pathlib import Path

import pytest
import torch

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.goals import GoalMix, GoalSpace, goal_space, samples_of
from temporeal.policies.data.transitions import Transitions
from temporeal.policies.offline.gcbc import GCBCConfig, Stitching, k_means
from temporeal.policies.offline.hilp import HilbertValue, HILPConfig
from temporeal.policies.offline.hiql import GoalValue, HIQLConfig, implicit_value_loss
from temporeal.policies.offline.smore import SMORe, SMOReConfig
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.offline.flat_parameters import Adam, Average, descend
from temporeal.policies.training.offline.goal_batches import GoalBatches, GoalConfig

NAMES = ("place", "speed", "goal")


def steps(lengths: tuple[int, ...] = (4, 3)) -> Transitions:
    """Episodes on a line: place 0, 1, 2 ... in the first, 10, 11 ... in the second; goal slot -1."""
    place = torch.cat([10.0 * e + torch.arange(n) for e, n in enumerate(lengths)])
    obs = torch.stack((place, torch.ones_like(place), -torch.ones_like(place)), 1)
    total = len(place)
    return Transitions(obs, torch.zeros(total, 1), torch.zeros(total), obs + torch.tensor([1.0, 0.0, 0.0]),
                       torch.ones(total), torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths)),
                       torch.tensor([0, *torch.tensor(lengths).cumsum(0)]), obs_names=NAMES)


def test_samples_hold_the_final_states_too() -> None:
    samples = samples_of(steps())
    assert samples.obs[:, 0].tolist() == [0, 1, 2, 3, 4, 10, 11, 12, 13]
    assert samples.of_step.tolist() == [0, 1, 2, 3, 5, 6, 7]
    assert samples.end.tolist() == [4, 4, 4, 4, 8, 8, 8]


def test_goals_of_the_future_lie_ahead_in_the_same_episode() -> None:
    samples = samples_of(steps())
    chosen = torch.arange(7).repeat(200)
    for mix in (GoalMix(0.0, 1.0), GoalMix(0.0, 1.0, geometric=2.0)):
        goal = mix.draw(samples, chosen, torch.Generator().manual_seed(0))
        assert (goal > samples.of_step[chosen]).all()
        assert (goal <= samples.end[chosen]).all()
        assert set(goal[chosen == 0].tolist()) == {1, 2, 3, 4}


def test_shares_of_the_mix_are_kept() -> None:
    samples = samples_of(steps((100, 100)))
    chosen = torch.zeros(4000, dtype=torch.int64)
    goal = GoalMix(0.2, 0.5, geometric=4.0).draw(samples, chosen, torch.Generator().manual_seed(0))
    assert float((goal == 0).float().mean()) == pytest.approx(0.2, abs=0.03)
    near = goal[(goal > 0) & (goal <= 100)].float()
    assert float((goal > 100).float().mean()) == pytest.approx(0.15, abs=0.03)
    assert float((near == 1).float().sum() / (0.5 * 4000)) == pytest.approx(0.25, abs=0.03)  # 1 - (1 - 1/4)


@pytest.mark.parametrize("relative", [False, True])
def test_an_observation_asks_for_the_goal_that_is_put_in(relative: bool) -> None:
    space = goal_space(steps(), ["goal"], ["place"], relative)
    obs = steps().obs
    asking = space.towards(obs, torch.full((7, 1), 5.0))
    assert space.asked(asking)[:, 0].tolist() == [5.0] * 7
    assert asking[:, :2].equal(obs[:, :2])
    assert asking[1, 2] == (4.0 if relative else 5.0)


def test_names_may_be_indices_or_beginnings() -> None:
    data = steps()
    assert goal_space(data, ["2"], ["0"]).goal.tolist() == [2]
    wide = Transitions(**{**vars(data), "obs_names": ("place[0]", "place[1]", "goal")})
    assert goal_space(wide, ["2"], ["place[1]"]).achieved.tolist() == [1]
    with pytest.raises(DataError, match=r"1 numbers \(goal\) cannot be compared with 2"):
        goal_space(wide, ["goal"], ["place"])


@pytest.mark.parametrize(("goal", "achieved", "message"), [
    ([], ["place"], "algo.goal="), (["aim"], ["place"], "no number 'aim'; it has place, speed, goal"),
    (["goal"], ["goal"], "both the goal and what is achieved"), (["9"], ["0"], "no number '9'"),
])
def test_wrong_goals_are_named(goal: list[str], achieved: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        goal_space(steps(), goal, achieved)


def test_batches_look_ahead_no_further_than_goal_and_episode() -> None:
    config = GoalConfig(goal=("goal",), achieved=("place",), batch=64)
    batch = next(GoalBatches(steps(), config).draw(torch.Generator().manual_seed(0), 1))
    assert (batch.ahead(2) == torch.minimum(batch.now + 2, batch.end)).all()
    ahead = batch.ahead(3, batch.policy_goal)
    assert (ahead <= batch.policy_goal).all()
    assert batch.arrived(batch.now + 1).all()
    assert not batch.arrived(batch.now).any()
    assert batch.arrived(batch.ahead(3), 3).all()


def test_observations_are_normalized_with_goals_of_the_data() -> None:
    batches = GoalBatches(steps(), GoalConfig(goal=("goal",), achieved=("place",), batch=8))
    assert batches.normalizer.mean[2] == pytest.approx(float(batches.normalizer.mean[0]))
    assert batches.normalizer.mean[2] > 0  # the data's own goal slot is -1


def test_stitched_goals_come_from_episodes_that_passed_by() -> None:
    """Episode 0 passes 0..4, episode 1 passes 10..13; 4 and 10 are one cluster, so 0 may lead to 13, and not back."""
    samples = samples_of(steps())
    cluster = torch.tensor([0, 1, 2, 3, 4, 4, 5, 6, 7])
    stitching = Stitching(samples, cluster, 8, GCBCConfig(stitch=0.9))
    chosen = torch.zeros(500, dtype=torch.int64)
    goal = stitching.draw(samples, chosen, torch.Generator().manual_seed(0))
    assert set(goal.tolist()) == {1, 2, 3, 4, 5, 6, 7, 8}
    back = stitching.draw(samples, torch.full((500,), 4), torch.Generator().manual_seed(0))
    assert (back >= 6).all()
    plain = Stitching(samples, cluster, 8, GCBCConfig(stitch=0.0))
    assert plain.draw(samples, chosen, torch.Generator().manual_seed(0)).max() == 4


def test_clusters_hold_what_is_near() -> None:
    points = torch.cat((torch.randn(50, 2) * 0.1, torch.randn(50, 2) * 0.1 + 5.0))
    found = k_means(points, 2)
    assert found[:50].unique().numel() == found[50:].unique().numel() == 1
    assert found[0] != found[-1]


def test_goal_space_of_relative_observations_is_exact() -> None:
    space = GoalSpace(torch.tensor([2]), torch.tensor([0]), relative=True)
    assert space.asked(torch.tensor([[3.0, 0.0, -1.0]])).item() == 2.0


@pytest.mark.parametrize("name", ["gcbc", "hilp", "hiql", "ota", "smore"])
def test_a_resumed_run_of_goals_equals_an_uninterrupted_one(name: str, tmp_path: Path) -> None:
    module = importlib.import_module(f"temporeal.policies.offline.{name}")
    config = typing.get_type_hints(module.train)["config"](
        goal=("goal",), achieved=("place",), updates=6, report_updates=3, hidden=(8, 8), batch=8)
    whole = module.train(steps(), config, out=tmp_path / "whole", seed=3)
    module.train(steps(), config, out=tmp_path / "parts", seed=3, on_iteration=lambda loop: loop.updates >= 3)
    module.train(steps(), config, out=tmp_path / "parts", seed=3, resume=True)
    actor, normalizer, read = module.load_policy(tmp_path / "parts")
    assert read == config
    assert normalizer.mean.equal(whole.normalizer.mean)
    for key, value in whole.actor.state_dict().items():
        assert torch.equal(value, actor.state_dict()[key]), key


def line(length: int) -> Transitions:
    """One episode along ``length`` + 1 states, one-hot, each goal too."""
    eye = torch.eye(length + 1)
    return Transitions(**{**vars(steps((length,))), "obs": torch.cat((eye[:-1], eye[:-1]), 1),
                          "next_obs": torch.cat((eye[1:], eye[1:]), 1), "obs_names": ()})


def one_way(length: int) -> dict:
    """Settings of a learner on such a line."""
    return {"goal": tuple(str(length + 1 + i) for i in range(length + 1)),
            "achieved": tuple(map(str, range(length + 1))), "hidden": (64,), "batch": 256, "learning_rate": 3e-3,
            "normalize_observations": False}


@pytest.mark.slow
@pytest.mark.parametrize("options", [1, 3])
def test_values_of_goals_are_exact_on_a_line(options: int) -> None:
    """One way to go: V = -(1 + gamma + ...), once for each step to the goal, or each option of ``options`` steps."""
    length, gamma = 9, 0.8
    config = HIQLConfig(**one_way(length), gamma=gamma, future=0.8)
    torch.manual_seed(0)
    batches = GoalBatches(line(length), config)
    state = torch.arange(length + 1)
    value, target = (GoalValue(2 * length + 2, state, config) for _ in range(2))
    adam = Adam(value, rate=3e-3)
    average = Average(value, target)
    for k, batch in enumerate(batches.draw(torch.Generator().manual_seed(0), 1500)):
        if k == 1000:
            adam.set_rate(3e-4)
        descend(implicit_value_loss(value, target, batch, gamma, 0.5, options)[0], adam)
        average.move(0.1)
    for now in range(length):
        for goal in range(now, length + 1):
            count = -(-(goal - now) // options)
            exact = -(1.0 - gamma**count) / (1.0 - gamma)
            with torch.no_grad():
                found = value(batches.view(torch.tensor([now]), torch.tensor([goal]))).mean()
            assert float(found) == pytest.approx(exact, abs=0.25), (now, goal)


@pytest.mark.slow
def test_scores_of_goals_solve_the_dual() -> None:
    """One way to go, all goals ahead: setting the derivative of eq. 1 to zero gives ``S = gamma V + 2 (q / d_mix - beta
    (1 - gamma))`` with V = S, and q / d_mix = 0 but for the step that arrives, which is repeated for ever."""
    length, gamma, beta = 6, 0.8, 0.5
    config = SMOReConfig(**one_way(length), gamma=gamma, mixture=beta, future=1.0, target_rate=0.1, policy_future=1.0)
    torch.manual_seed(0)
    batches = GoalBatches(line(length), config)
    algorithm = SMORe(batches.sizes, config, batches.space)
    for k, batch in enumerate(batches.draw(torch.Generator().manual_seed(0), 1500)):
        if k == 1000:
            algorithm.adam.set_rate(3e-4)
        algorithm.update(batch)
    push = beta * (1.0 - gamma)
    for goal in range(1, length + 1):
        # of goals ahead, which have a geometric distance, the next state is a share 1 - gamma; at the end it is all
        next_is = beta / (beta + (1.0 - beta) * (1.0 if goal == length else 1.0 - gamma))
        exact = 2.0 * (next_is - push) / (1.0 - gamma)
        for now in range(goal - 1, -1, -1):
            view = batches.view(torch.tensor([now]), torch.tensor([goal]))
            with torch.no_grad():
                assert float(algorithm.score(view, torch.zeros(1, 1)).mean()) == pytest.approx(exact, abs=0.4)
                assert float(algorithm.value(view)) == pytest.approx(exact, abs=0.4)
            exact = gamma * exact - 2.0 * push


def test_the_map_of_hilp_is_a_distance() -> None:
    config = HILPConfig(goal=("goal",), achieved=("place",), hidden=(8,), dimensions=4)
    value = HilbertValue(torch.tensor([2]), torch.tensor([0]), config)
    obs = torch.randn(6, 3)
    back = obs[:, [2, 1, 0]]
    there, zero = obs.clone(), obs.clone()
    zero[:, 2] = zero[:, 0]
    there[:, 2] = obs[:, 2].roll(1)
    with torch.no_grad():
        assert torch.allclose(value(obs), value(back))  # symmetric
        assert (value(zero) > -2e-3).all()  # zero where the goal is reached
        second = there.clone()
        second[:, 0] = obs[:, 2]
        assert (value(there) + 1e-5 >= value(obs) + value(second)).all()  # the triangle inequality
    with pytest.raises(SettingsError, match="needs the goal itself"):
        HILPConfig(relative=True)
