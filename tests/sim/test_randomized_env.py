"""Disturbances, curricula and records in the environment: the same for any number of worlds, resumed bit for bit."""

import pytest
import torch

from temporeal.sim.compiler.devices import on_device
from temporeal.sim.env import make_env
from temporeal.sim.episodes import EpisodeRecord, replay
from temporeal.sim.task import load_task

SETTINGS = {
    "randomize": {"mass": {"kind": "sources"}, "force_w": {"kind": "normal", "std": 0.002},
                  "wind_w": {"kind": "uniform", "low": -1, "high": 1, "when": {"every_s": [0.2, 0.4]}}},
    "sensors": {"noise": {"base_pos_w": 0.002}, "drift": {"base_vel_w": {"std": 0.01, "time_s": 1.0}},
                "groups": {"mocap": {"signals": ["base_pos_w", "base_quat_w"], "delay_steps": [0, 2], "dropout": 0.1,
                                     "jitter_steps": 1}}},
    "disturbances": {"interval_s": [0.3, 0.6], "duration_s": 0.1, "force_n": 0.1},
    "curriculum": {"kind": "adr", "samples": 2, "step": 0.2, "grow": 0.5, "shrink": 0.1, "outcome": "return",
                   "return_range": [-1e6, 0], "parameters": {
                       "mass": {"as": "scale", "low": 0.5, "high": 1.5, "first": [0.9, 1.1]},
                       "start.initial": {"low": 0.0, "high": 1.0, "first": [0.4, 0.6], "components": [0]}}}}
ACTIONS = 0.3 * torch.randn(90, 16, 4, generator=torch.Generator().manual_seed(0))


def environment(n=16, **kw):
    return make_env(load_task("hover"), num_worlds=n, seed=3, threads=1, **{**SETTINGS, **kw})


def play(env, first, last):
    """What is observed, [T, N, O], with an update of the curriculum every 15 steps."""
    out = []
    for t in range(first, last):
        out.append(env.step(ACTIONS[t, : env.num_worlds]).obs.actor.clone())
        if t % 15 == 14 and env.distribution.curriculum is not None:
            env.distribution.curriculum.update()
    return torch.stack(out)


@pytest.mark.slow
def test_resumed_in_mid_episode_it_goes_on_bit_for_bit():
    straight, before, after = environment(), environment(), environment()
    for env in (straight, before, after):
        env.reset()
    whole = play(straight, 0, 90)
    part = play(before, 0, 50)
    after.load_state_dict(before.state_dict())
    assert torch.equal(torch.cat([part, play(after, 50, 90)]), whole)
    assert straight.episode.max() > 0
    assert straight.distribution.curriculum.metrics() == after.distribution.curriculum.metrics()


@pytest.mark.parametrize("backend", ["quadrotor", pytest.param("mujoco", marks=pytest.mark.slow)])
@pytest.mark.parametrize("settings", [{}, {"curriculum": None, "mid_episode_starts": 0.5}],
                         ids=["curriculum", "mid-episode"])
def test_recorded_episodes_play_again_in_a_new_environment(settings, backend):
    """Same task, seed and settings; other worlds, in another order, one of them in another episode."""
    task = "waypoints" if "mid_episode_starts" in settings else "hover"
    env = make_env(load_task(task), backend=backend, num_worlds=16, seed=3, threads=1, **{**SETTINGS, **settings})
    firsts = [env.reset(), env.reset()]
    records = {w: EpisodeRecord.from_json(env.record(w).to_json()) for w in (11, 2, 7)}
    assert records[2].about["task"] == task and records[2].about["disturbances"] == SETTINGS["disturbances"]
    again = make_env(load_task(task), backend=backend, num_worlds=3, seed=3, threads=1,
                     **{**SETTINGS, "curriculum": None})
    again.reset()
    again.step(ACTIONS[0, :3])
    ids = list(records)
    assert torch.equal(again.begin(list(records.values())).critic, firsts[1].critic[ids])
    assert [again.record(i) for i in range(3)] == list(records.values())
    running, moved = torch.ones(3, dtype=torch.bool), 0
    for t in range(60):
        a, b = env.step(ACTIONS[t]), again.step(ACTIONS[t][ids])
        assert torch.equal(b.final_obs.critic[running], a.final_obs.critic[ids][running])
        assert torch.equal(b.reward[running], a.reward[ids][running])
        running &= ~(b.terminated | b.truncated)
        moved += int(running.sum())
    assert moved > 60
    assert not running.any() or again.record(int(running.nonzero()[0])) in records.values()


def test_what_follows_a_recorded_episode_is_the_next_of_its_world():
    env, again = environment(16, curriculum=None), environment(2, curriculum=None)
    env.reset()
    again.begin([env.record(9), env.record(4)])
    assert torch.equal(again.reset().critic, env.reset().critic[[9, 4]])
    assert again.record(0).world == 9 and again.record(0).episode == 1
    with pytest.raises(ValueError, match="world is from 0 to 1, got 2"):
        again.record(2)
    state = again.state_dict()
    other = environment(2, curriculum=None)
    other.load_state_dict(state)
    assert torch.equal(play(other, 0, 40), play(again, 0, 40))


def test_records_that_do_not_fit_are_refused():
    env = environment(2, curriculum=None)
    env.reset()
    records = [env.record(0), env.record(1)]
    with pytest.raises(ValueError, match="one record for each of the 2 worlds, got 1"):
        env.begin(records[:1])
    with pytest.raises(ValueError, match="without curriculum"):
        environment(2).begin(records)
    with pytest.raises(ValueError, match="disturbances: it has .*0.1.*here it is {}"):
        environment(2, curriculum=None, disturbances=None).begin(records)
    with pytest.raises(ValueError, match="seed: it has 3, here it is 4"):
        make_env(load_task("hover"), num_worlds=2, seed=4, **{**SETTINGS, "curriculum": None}).begin(records)
    with pytest.raises(ValueError, match="task: it has 'hover', here it is 'track'"):
        make_env(load_task("track"), num_worlds=2, seed=3, **{**SETTINGS, "curriculum": None}).begin(records)


def test_the_state_of_another_environment_is_refused_and_changes_nothing():
    env = environment(4)
    env.reset()
    state = env.state_dict()
    for others, told in (({"sensors": None}, "sensors: it has {'noise'"), ({"curriculum": None}, "here it is {}"),
                         ({"randomize": {"mass": {"kind": "sources"}}, "curriculum": None}, "randomize: it has"),
                         ({"n": 5}, "num_worlds: it has 4, here it is 5"), ({"disturbances": None}, "disturbances")):
        other = environment(**{"n": 4, **others})
        other.reset()
        before = other.episode.clone()
        with pytest.raises(ValueError, match=f"state of an environment does not fit this environment; .*{told}"):
            other.load_state_dict(state)
        assert torch.equal(other.episode, before)
    with pytest.raises(ValueError, match="curriculum: it has {}, here it is {'kind': 'adr'"):
        environment(4).load_state_dict(environment(4, curriculum=None).state_dict())
    with pytest.raises(ValueError, match="seed: it has 3, here it is 8"):
        make_env(load_task("hover"), num_worlds=4, seed=8, **SETTINGS).load_state_dict(state)
    with pytest.raises(ValueError, match="not the state of an environment: about, "):
        env.load_state_dict({"columns": {}})


def test_faults_are_part_of_the_state():
    env, other = environment(4), environment(4)
    env.reset()
    env.step(torch.full((4, 4), torch.nan))
    other.load_state_dict(env.state_dict())
    assert env.diverged == other.diverged == 4


def test_worlds_do_not_depend_on_how_many_there_are():
    few, many = (environment(n, curriculum=None) for n in (5, 16))
    for env in (few, many):
        env.reset()
    assert torch.equal(play(few, 0, 60), play(many, 0, 60)[:, :5])


def test_pushes_and_gusts_reach_the_simulator_and_add_to_what_was_drawn():
    env = environment(curriculum=None)
    env.reset()
    pushed, winds = [], []
    for _ in range(60):
        env.step(torch.zeros(16, 4))
        running = env.count > 0
        base = replay([env.record(w) for w in range(16)]).parameters["force_w"]
        found = env.backend.params()
        pushed.append(((found["force_w"] - base).norm(dim=-1) > 0.05)[running])
        winds.append(found["wind_w"].clone())
        size = (found["force_w"] - base).norm(dim=-1)
        assert torch.all((size < 1e-6) | ((size - 0.1).abs() < 1e-5))
    share = torch.cat(pushed).float().mean()
    assert 0.1 < share < 0.35  # 0.1 s of 0.45 s
    assert len(torch.stack(winds)[:, 0, 0].unique()) > 2


def test_a_curriculum_reaches_the_simulator():
    env = environment()
    env.reset()
    play(env, 0, 90)
    assert env.distribution.curriculum.metrics()["curriculum/volume"] > 0.21  # both ranges were a fifth of the whole
    found = env.backend.params()["mass"]
    for world in range(16):
        record = env.record(world)
        assert 0.5 <= record.curriculum["mass"] <= 1.5
        assert abs(found[world].item() / record.parameters["mass"] - 1) < 1e-6
    assert len({round(env.record(w).curriculum["mass"], 6) for w in range(16)}) > 1


@pytest.mark.parametrize("task", ["lift", "ant", "cube_reorient", "waypoints"])
def test_all_of_a_task_moves_to_another_device(task):
    """Seen on torch's ``meta`` device: what stayed on the CPU would fail on a GPU."""
    def tensors(part):
        if isinstance(part, torch.nn.Module):
            return [*part.parameters(), *part.buffers()]
        if isinstance(part, torch.Tensor):
            return [part]
        if isinstance(part, (list, tuple)):
            return [t for x in part for t in tensors(x)]
        stateful = hasattr(part, "memory") or hasattr(part, "carry")  # a map or an objective
        return [t for x in vars(part).values() for t in tensors(x)] if stateful else []

    objective = load_task(task).objective
    moved = on_device(objective, torch.device("meta"))
    found = tensors(moved)
    assert all(t.device.type == "meta" for t in found)
    assert len(found) == len(tensors(objective)) > 0
    assert all(t.device.type == "cpu" for t in tensors(objective))


def test_pictures_are_augmented_by_world_episode_and_step():
    from temporeal.sim.rendering.cameras import Camera

    def env_of(n, augment):
        eye = Camera("wrist", 16, 16, kinds=("rgb",))
        return make_env(load_task("reach"), num_worlds=n, seed=3, threads=1, cameras=(eye,), renderer="gl",
                        augment=augment)

    shifted = {"wrist_rgb": {"shift": {"high": 4}}}
    few, many, plain = env_of(2, shifted), env_of(5, shifted), env_of(2, None)
    a, b, c = (env.reset().images["wrist_rgb"] for env in (few, many, plain))
    assert torch.equal(a, b[:2]) and not torch.equal(a, c)
    few.step(torch.zeros(2, 6))
    state = few.state_dict()
    later = few.step(torch.zeros(2, 6)).obs.images["wrist_rgb"]
    few.load_state_dict(state)
    assert torch.equal(few.step(torch.zeros(2, 6)).obs.images["wrist_rgb"], later)
    with pytest.raises(ValueError, match="no camera"):
        make_env(load_task("reach"), num_worlds=2, augment=shifted)
