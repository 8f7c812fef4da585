"""Counter-based random numbers: known answers, independence of the batch, distribution."""

import math

import numpy as np
import pytest
import torch

from temporeal.sim.compiler import threefry
from temporeal.sim.compiler.keyed_random import _cpu, draw_with_torch, normal, stream, uniform

# Random123's known-answer vectors for threefry4x32, 13 rounds: counter, key, result
KNOWN = [
    ([0] * 4, [0] * 4, [0x531C7E4F, 0x39491EE5, 0x2C855A92, 0x3D6ABF9A]),
    ([2**32 - 1] * 4, [2**32 - 1] * 4, [0xC4189358, 0x1C9CC83A, 0xD5881C67, 0x6A0A89E0]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0, 0x082EFA98, 0xEC4E6C89],
        [0x4AA71D8F, 0x734738C2, 0x431FC6A8, 0xAE6DEBF1],
    ),
]


@pytest.mark.parametrize(("count", "key", "expected"), KNOWN)
def test_words_are_those_of_the_reference(count, key, expected):
    assert list(threefry.threefry(*key, *count)) == expected
    compiled = _cpu.threefry(*(np.uint32(k) for k in key), *(np.uint32(c) for c in count))
    assert [int(w) for w in compiled] == expected


def worlds(n, episode=0):
    return torch.arange(n), torch.full((n,), episode)


def test_a_world_draws_the_same_in_any_batch():
    env, episode = worlds(1000)
    for draw in (uniform, normal):
        whole = draw(3, env, episode, stream("x"), 7)
        part = draw(3, env[413:431], episode[413:431], stream("x"), 7)
        assert torch.equal(whole[413:431], part)
        # asking for more numbers does not change the first ones
        assert torch.equal(draw(3, env, episode, stream("x"), 4), whole[:, :4])


def test_every_part_of_the_key_matters():
    env, episode = worlds(64)
    base = uniform(1, env, episode, stream("a"), 4, step=2)
    others = [
        uniform(2, env, episode, stream("a"), 4, step=2),
        uniform(1 + 2**40, env, episode, stream("a"), 4, step=2),
        uniform(1, env + 64, episode, stream("a"), 4, step=2),
        uniform(1, env, episode + 1, stream("a"), 4, step=2),
        uniform(1, env, episode, stream("b"), 4, step=2),
        uniform(1, env, episode, stream("a"), 4, step=3),
    ]
    for other in others:
        assert not (base == other).any(dim=1).all()
    assert torch.equal(base, uniform(1, env, episode, stream("a"), 4, step=torch.full((64,), 2)))


def test_uniform_numbers_fill_the_interval_evenly():
    x = uniform(0, *worlds(50_000), stream("u"), 8).flatten().double()
    assert 0 <= float(x.min()) and float(x.max()) < 1
    counts = torch.histc(x, 100, 0, 1)
    chi2 = float(((counts - 4000) ** 2 / 4000).sum())
    assert chi2 < 99 + 5 * math.sqrt(2 * 99)


def test_normal_numbers_have_the_moments_and_quantiles_of_the_normal_distribution():
    x = normal(0, *worlds(50_000), stream("n"), 8).flatten().double()
    n = len(x)
    assert abs(float(x.mean())) < 5 / math.sqrt(n)
    assert abs(float((x**2).mean()) - 1) < 5 * math.sqrt(2 / n)
    assert abs(float((x**4).mean()) - 3) < 5 * math.sqrt(96 / n)
    for z in (-2.0, -1.0, 0.5, 1.5, 3.0):
        p = 0.5 * (1 + math.erf(z / math.sqrt(2)))
        assert abs(float((x < z).double().mean()) - p) < 5 * math.sqrt(p * (1 - p) / n)


def test_coarse_normal_numbers_have_the_moments_too():
    words = np.random.default_rng(0).integers(0, 2**32, 20_000)
    x = np.array([threefry.coarse_normal_pair(int(w)) for w in words])
    n = len(words)
    assert np.abs(x.mean(0)).max() < 5 / math.sqrt(n)
    assert np.abs((x**2).mean(0) - 1).max() < 5 * math.sqrt(2 / n)
    assert np.abs((x**4).mean(0) - 3).max() < 5 * math.sqrt(96 / n)
    assert abs((x[:, 0] * x[:, 1]).mean()) < 5 / math.sqrt(n)


def test_draws_are_uncorrelated_between_worlds_episodes_and_columns():
    x = normal(5, *worlds(20_000), stream("c"), 6)
    y = normal(5, *worlds(20_000, episode=1), stream("c"), 6)
    both = torch.cat([x, y, x.roll(1, 0)], dim=1).T
    correlation = torch.corrcoef(both) - torch.eye(18)
    assert float(correlation.abs().max()) < 5.5 / math.sqrt(20_000)


@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_tensor_operations_draw_the_same_numbers(kind):
    env, episode = worlds(500, episode=9)
    step = torch.arange(500)
    fast = {"uniform": uniform, "normal": normal}[kind](77, env, episode, stream("t"), 5, step=step)
    slow = draw_with_torch(kind, 77, env, episode, stream("t"), 5, step)
    assert torch.allclose(fast, slow, rtol=1e-5, atol=2e-6)


def test_logarithm_and_angle_are_accurate():
    x = np.concatenate([np.geomspace(1e-8, 1, 500), np.linspace(0.5, 1, 500)]).astype(np.float32)
    ours = np.array([_cpu.log(v) for v in x])
    assert np.abs(ours - np.log(x.astype(np.float64))).max() < 2e-6
    for quadrant in range(4):
        for fraction in (-0.49, -0.2, 0.0, 0.3, 0.49):
            c, s = threefry.turn(quadrant << 30, fraction)
            angle = math.pi / 2 * (quadrant + fraction)
            assert math.isclose(c, math.cos(angle), abs_tol=1e-7)
            assert math.isclose(s, math.sin(angle), abs_tol=1e-7)


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="must both have shape"):
        uniform(0, torch.arange(3), torch.arange(4), 0, 1)
    assert uniform(0, torch.arange(0), torch.arange(0), 0, 3).shape == (0, 3)
