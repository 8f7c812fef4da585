"""Records of episodes: what is drawn is what is recorded, through JSON and back, and what an environment plays."""

import json

import pytest
import torch

from temporeal.sim.curriculum.configuration import parse_curriculum, start_draws
from temporeal.sim.env import make_env
from temporeal.sim.episodes import EpisodeDistribution, EpisodeRecord, draw_episodes, episode_record, replay
from temporeal.sim.task import load_task

SETTINGS = {"randomize": {"mass": {"kind": "sources"}, "force_w": {"kind": "normal", "std": 0.01},
                          "motor_gain": {"kind": "scale", "by": "log_uniform", "low": 0.9, "high": 1.1}},
            "sensors": {"bias": {"base_quat_w": 0.01}, "delay_steps": 2}}
CURRICULUM = {"kind": "adr", "samples": 5, "parameters": {
    "mass": {"as": "scale", "low": 0.5, "high": 2.0, "first": 1.0}, "start.initial": {
        "low": 0.0, "high": 1.0, "first": [0.0, 1.0], "components": [0]}}}


def environment(n=4, share=0.5):
    return make_env(load_task("waypoints"), num_worlds=n, seed=9, threads=1, compiled=False, mid_episode_starts=share,
                    **SETTINGS)


def distribution(env, curriculum=None):
    task = env.task
    of = env.distribution
    return EpisodeDistribution(env.seed, task.initial, env.backend.parameters, of.randomization, of.sensors,
                               task.mid_episode, of.mid_episode_starts, curriculum=curriculum)


def curriculum(env):
    return parse_curriculum(CURRICULUM, env.backend.parameters, start_draws(env.task.initial), env.num_worlds, env.seed)


def test_a_record_reads_back_as_it_was():
    env = environment()
    record = episode_record(distribution(env, None), 2, 5, about={"task": "waypoints"})
    assert EpisodeRecord.from_json(record.to_json()) == record
    assert set(record.parameters) == {"mass", "force_w", "motor_gain"} and record.about["task"] == "waypoints"
    draws = draw_episodes(distribution(env), torch.arange(4), torch.full((4,), 5))
    again = replay([EpisodeRecord.from_json(record.to_json())])
    for group in ("parameters", "sensors", "state", "memory"):
        for name, value in getattr(draws, group).items():
            assert torch.equal(getattr(again, group)[name][0], value[2].float()), name
    assert again.worlds.tolist() == [2] and again.episode.tolist() == [5]
    both = replay([episode_record(distribution(env), w, 5) for w in (1, 3)])
    assert torch.equal(both.parameters["motor_gain"], draws.parameters["motor_gain"][[1, 3]])


def test_what_is_recorded_is_what_the_environment_plays():
    env = environment(share=0.0)
    for _ in range(3):
        env.reset()
    record = episode_record(distribution(env), 1, 2)
    played = env.backend.params()
    for name, value in replay([record]).parameters.items():
        torch.testing.assert_close(played[name][1], value[0], rtol=1e-6, atol=0)
    assert env.column["delay"][1] == record.sensors["delay"]
    signals = env.backend.signals()
    for name, value in replay([record]).state.items():
        torch.testing.assert_close(signals[name][1], value[0], rtol=1e-5, atol=1e-6)


def test_a_curriculum_is_part_of_the_record():
    env = environment()
    c = curriculum(env)
    with pytest.raises(ValueError, match="world 1 has not drawn episode 0"):
        episode_record(distribution(env, c), 1, 0)
    draws = draw_episodes(distribution(env, c), torch.arange(4), torch.zeros(4, dtype=torch.int64))
    c.teacher.ends[1] = 1.0
    record = episode_record(distribution(env, c), 1, 0)
    assert set(record.curriculum) == {"mass", "start.initial"}
    again = replay([record])
    assert torch.equal(again.curriculum[0], draws.curriculum[1])
    assert torch.equal(again.parameters["mass"][0], draws.parameters["mass"][1])
    plain = draw_episodes(distribution(env), torch.arange(4), torch.zeros(4, dtype=torch.int64))
    torch.testing.assert_close(draws.parameters["mass"], plain.parameters["mass"] * draws.curriculum[:, 0])
    assert torch.equal(draws.parameters["force_w"], plain.parameters["force_w"])


def test_draws_do_not_depend_on_the_other_worlds():
    env, episode = environment(), torch.arange(4) + 3
    whole = draw_episodes(distribution(env), torch.arange(4), episode)
    one = draw_episodes(distribution(env), torch.tensor([2]), episode[2:3])
    for group in ("parameters", "sensors", "state", "memory"):
        for name, value in getattr(one, group).items():
            assert torch.equal(value[0], getattr(whole, group)[name][2]), name


def test_what_is_no_record_is_refused():
    record = episode_record(distribution(environment()), 0, 0)
    with pytest.raises(ValueError, match="not the record of an episode"):
        EpisodeRecord.from_json("[1]")
    with pytest.raises(ValueError, match="not the record of an episode"):
        EpisodeRecord.from_json("{")
    with pytest.raises(ValueError, match="version"):
        EpisodeRecord.from_json(json.dumps({**record.as_dict(), "version": 99}))
    with pytest.raises(ValueError, match="one seed"):
        replay([record, EpisodeRecord.from_dict({**record.as_dict(), "seed": 10})])
    with pytest.raises(ValueError, match="the same state"):
        replay([record, EpisodeRecord.from_dict({**record.as_dict(), "state": {}})])
    with pytest.raises(ValueError, match="at least one"):
        replay([])
    with pytest.raises(ValueError, match="at least 0, got -1"):
        episode_record(distribution(environment()), -1, 0)


def point(n):
    task = load_task("stl", system="linear", formula="F[0,10] (norm(base_pos_w) < 0.5)", view="terminal_robustness")
    return make_env(task, backend="planar", num_worlds=n, seed=9, threads=1)


def test_staggered_worlds_are_at_all_parts_of_their_episodes_for_ever():
    env, again = point(300), point(300)
    with pytest.raises(RuntimeError, match="before the first reset"):
        env.stagger()
    for one in (env, again):
        one.reset()
        one.stagger()
    first, steps = env.column["until"].clone(), env.task.steps
    assert torch.equal(again.column["until"], first)
    assert first.min() == 1 and first.max() == steps == 50 and first.unique().numel() == 50
    rest = torch.zeros(300, 2)
    for count in range(1, 3 * steps):
        step = env.step(rest)
        ended = step.truncated | step.terminated
        assert torch.equal(ended, (count - first) % steps == 0)
        was_cut = ended & (count < steps) & (first == count)
        assert torch.equal(step.truncated, was_cut)  # its value goes on, a whole episode's does not
        assert torch.equal(step.info["mid_episode"][ended], was_cut[ended])
    both = env.state_dict()
    again.load_state_dict(both)
    assert torch.equal(again.column["until"], env.column["until"])
