"""Advantages of decisions, by hand; decisions of worlds that end when they do."""

from types import SimpleNamespace

import torch
from tests.policies.chunk_worlds import STEPS, PointWorlds, half_way

from temporeal.policies.algos.flow_sde import SDEAgent
from temporeal.policies.training.chunk_rl import rollouts
from temporeal.policies.training.chunk_rl.halves import Halves
from temporeal.policies.training.chunk_rl.replay import Ring, transitions
from temporeal.policies.training.chunk_rl.rewards import OfProgress, Sparse
from temporeal.policies.training.chunk_rl.rollouts import Drawn, Rollout, Seen
from temporeal.policies.training.chunk_rl.worlds import ChunkWorlds
from temporeal.policies.vla.protocol import as_flow


def rollout(worlds, rounds, reward, ended, cut, tail=None) -> Rollout:
    rows = len(worlds)
    seen = Seen(torch.arange(rows).float()[:, None], torch.zeros(rows, 1))
    drawn, length = Drawn(torch.empty(0), torch.zeros(rows), {}), torch.ones(rows, dtype=torch.int64)
    return Rollout(torch.tensor(worlds), rounds, seen, drawn, torch.tensor(reward), length, torch.tensor(ended),
                   torch.tensor(cut), tail)


def by_hand() -> Rollout:
    """World 0 decides in rows 0, 2, 3; its episode ends in row 2. World 1 decides in row 1; time cuts it, at value 4.
    """
    tail = torch.tensor([1, 3]), Seen(torch.tensor([[40.0], [50.0]]), torch.zeros(2, 1))
    return rollout([0, 1, 0, 0], [0, 2, 3, 4], [1.0, 2.0, 3.0, 5.0], [False, True, True, False],
                   [False, True, False, True], tail)


def test_advantages_by_hand() -> None:
    value, tail = torch.tensor([0.5, 1.0, 1.5, 2.0]), torch.tensor([4.0, 6.0])
    found = rollouts.advantages(by_hand(), value, tail, gamma=0.5, gae_lambda=0.8)
    ended = 3.0 - 1.5  # nothing comes after
    expected = [1.0 + 0.5 * 1.5 - 0.5 + 0.4 * ended, 2.0 + 0.5 * 4.0 - 1.0, ended, 5.0 + 0.5 * 6.0 - 2.0]
    torch.testing.assert_close(found, torch.tensor(expected))


def test_transitions_know_what_came_next() -> None:
    found = transitions(by_hand(), torch.zeros(4, 2))
    assert found.after.context[[0, 1, 3], 0].tolist() == [2.0, 40.0, 50.0]
    assert found.goes_on.tolist() == [True, True, False, True]
    ring = Ring(3)
    ring.add(found)
    assert ring.memory["count"] == 3 and ring.memory["reward"].tolist() == [5.0, 2.0, 3.0]


def test_decisions_are_kept_as_vectors_in_no_more_room_than_they_take() -> None:
    tokens = by_hand()
    tokens.seen = Seen(torch.randn(4, 5, 3), torch.zeros(4, 1))
    tokens.tail = torch.tensor([1, 3]), Seen(torch.ones(2, 5, 3), torch.zeros(2, 1))
    found, ring = transitions(tokens, torch.zeros(4, 2)), Ring(1000)
    torch.testing.assert_close(found.seen.context, tokens.seen.context.mean(1))
    assert found.after.context[1].tolist() == [1.0, 1.0, 1.0]
    for count in (4, 8, 12):
        ring.add(found)
        assert ring.memory["count"] == count and len(ring.memory["reward"]) <= 2 * count
    assert ring.memory["reward"][:12].tolist() == 3 * tokens.reward.tolist()


class Counting:
    """A model of progress that has seen as many pictures as the sum of their pixels says."""

    names = ("front_rgb",)

    def start(self, n: int, every: int = 1) -> None:
        pass

    def update(self, signals, begins=None):
        return signals["front_rgb"].float().flatten(1).sum(1)


def test_an_episode_that_began_anew_before_its_end_was_seen_gains_nothing() -> None:
    """World 1 ends: a picture that is taken now is of its next episode."""
    env = SimpleNamespace(num_worlds=2, action_dim=1, task=SimpleNamespace(schema={}),
                          render=lambda: {"front_rgb": torch.tensor([[[[2]]], [[[9]]]])})
    reward = OfProgress(env, Counting(), every=1)
    reward.start({})
    ended, false = torch.tensor([False, True]), torch.zeros(2, dtype=torch.bool)

    def step(images, truncated):
        return SimpleNamespace(info={"success": false, "signals": {}}, terminated=false, truncated=truncated,
                               final_obs=SimpleNamespace(images=images))

    assert reward(step({}, false)).tolist() == [0.0, 0.0]  # the first look
    assert reward(step({"front_rgb": torch.tensor([[[[5]]], [[[7]]]])}, false)).tolist() == [3.0, -2.0]
    assert reward(step({}, ended)).tolist() == [-3.0, 0.0]


def test_pictures_of_an_end_are_taken_where_somebody_looks_at_them() -> None:
    env, flow = PointWorlds(2), as_flow(half_way())

    def looks(pictures, goes_on, sees):
        world = ChunkWorlds(env, flow, env.true_signals, pictures, 2, Sparse(env))
        world.reward = SimpleNamespace(goes_on=goes_on, sees=sees)
        return world.looks_back

    assert not looks(("front_rgb",), False, False) and not looks((), True, False)
    assert looks(("front_rgb",), True, False) and looks((), False, True)


def test_joined_rollouts_keep_their_worlds_apart() -> None:
    value, tail = torch.tensor([0.5, 1.0, 1.5, 2.0]), torch.tensor([4.0, 6.0])
    alone = rollouts.advantages(by_hand(), value, tail, 0.5, 0.8)
    both = rollouts.advantages(rollouts.joined([by_hand(), by_hand()]), value.repeat(2), tail.repeat(2), 0.5, 0.8)
    torch.testing.assert_close(both, alone.repeat(2))


def played(execute: int, steps: int, worlds: int = 3, **how) -> tuple[Rollout, ChunkWorlds]:
    env, flow = PointWorlds(worlds), as_flow(half_way())
    world = ChunkWorlds(env, flow, env.true_signals, (), execute, Sparse(env))
    draw = lambda context, _: Drawn(torch.full((len(context), 4, 2), 0.5), torch.zeros(len(context)), {})  # noqa: E731
    return world.rollout(draw, steps, torch.Generator(), **how), world


def test_a_decision_is_as_long_as_what_is_played_of_it() -> None:
    found, _ = played(execute=3, steps=STEPS)  # 3 + 3 + 2 control steps
    assert found.length.tolist() == [3, 3, 3, 3, 3, 3, 2, 2, 2]
    assert found.ended.tolist() == 6 * [False] + 3 * [True] and found.steps == 3 * STEPS
    assert not bool(found.cut.any())  # success at the end is all that is paid: nothing comes after


def test_a_rollout_cuts_what_is_under_way() -> None:
    found, worlds = played(execute=4, steps=6)
    assert found.cut.tolist() == 3 * [False] + 3 * [True]
    assert found.tail is not None and found.tail[0].tolist() == [3, 4, 5]
    now = worlds.env.true_signals()
    torch.testing.assert_close(found.tail[1].context, worlds.coder.encode(now))


def test_waiting_worlds_play_one_episode() -> None:
    found, worlds = played(execute=4, steps=5 * STEPS, once=True)
    assert found.steps == 3 * STEPS and worlds.env.episode.tolist() == [1, 1, 1]
    assert sorted(found.episodes["world"].tolist()) == [0, 1, 2]


def test_a_recorded_start_is_the_same_in_all_worlds() -> None:
    env = PointWorlds(4)
    env.begin([env.record(7, 0)] * 4)
    assert bool((env.goal == env.goal[0]).all())


def test_halves_fly_what_each_would_alone() -> None:
    agent, parts = SDEAgent(half_way(), 0.5, 4), []
    for seed in (0, 1):
        env = PointWorlds(3, seed)
        parts.append(ChunkWorlds(env, agent.flow, env.true_signals, (), 4, Sparse(env)))
    found = Halves(*parts).rollout(agent.draw, STEPS, torch.Generator().manual_seed(3))
    seeds = torch.randint(2**62, (2,), generator=torch.Generator().manual_seed(3)).tolist()
    for seed, first in ((0, 0), (1, found.rows // 2)):
        env = PointWorlds(3, seed)
        alone = ChunkWorlds(env, agent.flow, env.true_signals, (), 4, Sparse(env)).rollout(
            agent.draw, STEPS, torch.Generator().manual_seed(seeds[seed]))
        assert torch.equal(found.drawn.log_prob[first : first + alone.rows], alone.drawn.log_prob)
        assert torch.equal(found.reward[first : first + alone.rows], alone.reward)
