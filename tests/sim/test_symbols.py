"""What of a row is alike is found from the function alone, and computed once."""

import pytest
import torch

from sim.env import make_env
from sim.symbols import alike, joined, traced
from sim.task import load_task

FORMULA = "F[0,3] (base_pos_w.x > 1) & F[3,6] (base_pos_w.y > 1) & G[0,6] (norm(base_pos_w) < 5)"
SHAPES: dict[str, tuple[int, ...]] = dict.fromkeys(("a", "b", "c", "d", "x"), ())


def step(x):
    """b goes as a does; d does as c as long as these two are alike, but for what comes into it from x."""
    return {"a": x["a"] + x["x"], "b": x["b"] + x["x"], "c": x["c"] * x["a"], "d": x["d"] * x["b"]}


def disturbed(x):
    return {**step(x), "b": x["b"] + 2 * x["x"]}


def test_what_stays_equal_is_found_and_what_depends_on_what_does_not_is_left_out():
    pairs = {"b": "a", "d": "c"}
    assert alike({step: SHAPES}, pairs) == pairs
    assert alike({step: SHAPES}, {"d": "c"}) == {}  # d follows b, and c a: of which nobody says that they are equal
    assert alike({disturbed: SHAPES}, pairs) == {}  # d would only stay c if b stayed a
    assert alike({step: SHAPES, disturbed: SHAPES}, pairs) == {}
    assert alike({step: SHAPES}, {"b": "a", "x": "a"}) == {"b": "a"}  # x is no output
    assert alike({step: SHAPES}, {}) == {}


def test_what_is_joined_is_computed_once():
    found = traced(lambda x: step(joined(x, {"b": "a", "d": "c"})), SHAPES)[2]
    assert found["a"][0] is found["b"][0] and found["c"][0] is found["d"][0]


def envs(sensors=None, **settings):
    task = load_task("stl", system="unicycle", formula=FORMULA, **settings)
    return make_env(task, num_worlds=33, seed=3, threads=1, **({"sensors": sensors} if sensors else {}))


def test_a_mission_is_followed_once_where_the_policy_sees_it_as_it_is(monkeypatch):
    """And the results are to the bit those of following it twice."""
    one = envs()
    assert one.twins == {"memory.tick": "progress.tick", "memory.hit": "progress.hit"}
    monkeypatch.setattr("sim.env.alike", lambda functions, pairs: {})
    two = envs()
    assert two.twins == {}
    assert torch.equal(one.reset().actor, two.reset().actor)
    generator, ended, hits = torch.Generator().manual_seed(0), 0, 0.0
    for _ in range(80):
        action = torch.randn(33, one.action_dim, generator=generator)
        a, b = one.step(action), two.step(action)
        assert torch.equal(a.obs.actor, b.obs.actor) and torch.equal(a.final_obs.actor, b.final_obs.actor)
        assert torch.equal(a.reward, b.reward) and torch.equal(a.terminated, b.terminated)
        for name, twin in (("memory.tick", "progress.tick"), ("memory.hit", "progress.hit")):
            assert torch.equal(two.column[name], two.column[twin])
        ended, hits = ended + int(a.terminated.sum()), hits + float((one.column["memory.hit"] > 0).sum())
    assert ended > 10 and hits > 10


@pytest.mark.parametrize(("view", "twins"), [("flags", {"memory.tick", "memory.flags"}), ("plain", set())])
def test_other_views_are_followed_once_where_they_can_be(view, twins):
    found = envs(view=view).twins
    assert twins <= set(found), found


def test_what_is_measured_with_noise_is_followed_for_itself():
    assert envs({"noise": {"base_pos_w": 0.01}}).twins == {"memory.tick": "progress.tick"}
