"""What of a row is alike is found from the function alone, and computed once."""

from dataclasses import replace

import pytest
import torch
from tests.examples import thinned

from temporeal.sim.compiler.expressions import needed
from temporeal.sim.compiler.tracing import alike
from temporeal.sim.env import make_env
from temporeal.sim.task import load_task

FORMULA = "F[0,3] (base_pos_w.x > 1) & F[3,6] (base_pos_w.y > 1) & G[0,6] (norm(base_pos_w) < 5)"
SHAPES: dict[str, tuple[int, ...]] = dict.fromkeys(("a", "b", "c", "d", "x"), ())


def step(x):
    """b goes as a does; d does as c as long as these two are alike, but for what comes into it from x."""
    return {"a": x["a"] + x["x"], "b": x["b"] + x["x"], "c": x["c"] * x["a"], "d": x["d"] * x["b"]}


def disturbed(x):
    return {**step(x), "b": x["b"] + 2 * x["x"]}


def same(*functions, pairs):
    return alike(dict.fromkeys(functions, SHAPES), pairs)[0]


def test_what_stays_equal_is_found_and_what_depends_on_what_does_not_is_left_out():
    pairs = {"b": "a", "d": "c"}
    assert same(step, pairs=pairs) == pairs
    assert same(step, pairs={"d": "c"}) == {}  # d follows b, and c a: of which nobody says that they are equal
    assert same(disturbed, pairs=pairs) == {}  # d would only stay c if b stayed a
    assert same(step, disturbed, pairs=pairs) == {}
    assert same(step, pairs={"b": "a", "x": "a"}) == {"b": "a"}  # x is no output
    assert alike({step: SHAPES}, {}) == ({}, [])


def test_numbers_are_alike_by_their_value_and_places_of_maxima_by_what_they_are_of():
    assert same(lambda x: {"a": 0.0 * x["x"] + 3.0, "b": 0.0 * x["x"] + 3.0}, pairs={"a": "b"}) == {"a": "b"}
    shapes = {"x": (3,), "y": (3,), "m": (), "p": ()}

    def places(x):
        return {"m": x["x"].max(-1)[1], "p": x["y"].max(-1)[1]}

    assert alike({places: shapes}, {"m": "p"})[0] == {}


def test_what_is_joined_is_computed_once():
    (found,) = alike({step: SHAPES}, {"b": "a", "d": "c"})[1]
    assert found.outputs["a"][0] is found.outputs["b"][0] and found.outputs["c"][0] is found.outputs["d"][0]
    assert {s.op for s in needed([v for x in found.outputs.values() for v in x])} == {"input", "add", "mul"}
    assert len(needed([v for x in found.outputs.values() for v in x])) == 5  # a, x, c and two operations


def envs(sensors=None, mid_episode_starts=0.0, compiled=True, **settings):
    task = load_task("stl", system="unicycle", formula=FORMULA, **settings)
    return make_env(task, num_worlds=33, seed=3, threads=1, mid_episode_starts=mid_episode_starts, compiled=compiled,
                    **({"sensors": sensors} if sensors else {}))


NOISE = {"noise": {"base_pos_w": 0.01}, "delay_steps": 1}
CASES = [("scheduled", 0.0, None), ("scheduled", 0.7, None), ("scheduled", 0.5, NOISE), ("f_mdp", 0.0, None),
         ("tau_mdp", 0.0, None)]


@pytest.mark.parametrize(("view", "share", "sensors"), thinned(CASES, keep=CASES[2:4]))
def test_a_mission_that_is_followed_once_gives_what_following_it_twice_gives(monkeypatch, view, share, sensors):
    """To the bit: of starts in the middle of a mission, states that are loaded and episodes that are replayed, too."""
    one, plain = (envs(sensors, share, compiled, view=view) for compiled in (True, False))
    monkeypatch.setattr("temporeal.sim.step_table.alike", lambda functions, pairs: ({}, []))
    two = envs(sensors, share, view=view)
    assert one.functions.twins and not two.functions.twins and not plain.functions.twins
    assert torch.equal(one.reset().actor, two.reset().actor)
    plain.reset()
    generator, ended = torch.Generator().manual_seed(0), 0
    for number in range(80):
        if number == 30:
            one.load_state_dict(two.state_dict())
            two.load_state_dict(one.state_dict())
        if number == 60:
            records = [one.record(world) for world in range(33)]
            for env in (one, two, plain):
                env.begin(records)
        action = torch.randn(33, one.action_dim, generator=generator)
        a, b, c = (env.step(action) for env in (one, two, plain))
        assert torch.equal(a.obs.actor, b.obs.actor) and torch.equal(a.final_obs.actor, b.final_obs.actor)
        assert torch.equal(a.reward, b.reward) and torch.equal(a.terminated, b.terminated)
        torch.testing.assert_close(a.obs.actor, c.obs.actor, rtol=1e-4, atol=1e-4)
        assert all(torch.equal(two.column[name], two.column[twin]) for name, twin in one.functions.twins.items())
        ended += int(a.terminated.sum())
    assert ended > 10


def test_a_mission_is_followed_once_where_the_policy_sees_it_as_it_is():
    assert envs().functions.twins == {"memory.tick": "progress.tick", "memory.hit": "progress.hit"}
    assert envs(NOISE).functions.twins == {"memory.tick": "progress.tick"}
    assert {"memory.tick", "memory.flags"} <= set(envs(view="f_mdp").functions.twins)
    assert set(envs(view="terminal_robustness").functions.twins) == {"memory.tick"}


def test_states_in_which_they_differ_are_refused_and_starts_name_what_is_remembered():
    env = envs()
    env.reset()
    state = env.state_dict()
    state["columns"]["memory.hit"][3] += 1.0
    with pytest.raises(ValueError, match=r"memory\.hit and progress\.hit differ, which are always equal"):
        env.load_state_dict(state)
    state, memory = env.task.mid_episode(lambda name, count: torch.rand(33, count))
    task = replace(env.task, mid_episode=lambda draw: (state, {**memory, "memory.hit": memory["hit"]}))
    with pytest.raises(ValueError, match=r"has memory 'memory\.hit', which neither .* known: .*hit.*tick"):
        make_env(task, num_worlds=33, seed=3, threads=1, mid_episode_starts=1.0).reset()
