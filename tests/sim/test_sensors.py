"""The sensor model: statistics of noise and bias, age of samples, and rotations that stay rotations."""

import torch

from sim.sensors import SensorConfig, Sensors, perturb

N = 4000


def truth(value=0.0):
    quat = torch.zeros(N, 4)
    quat[:, 0] = 1.0
    return {"base_pos_w": torch.full((N, 3), float(value)), "base_quat_w": quat}


def sensors(**kw):
    names = ("base_pos_w", "base_quat_w")
    made = Sensors(SensorConfig.parse(kw, names), names, N, seed=5, device="cpu")
    made.reset(torch.arange(N), torch.zeros(N, dtype=torch.int64), truth())
    return made


def test_noise_is_white_and_bias_is_constant():
    zero, one = torch.zeros(N, dtype=torch.int64), torch.ones(N, dtype=torch.int64)
    s = sensors(noise={"base_pos_w": 0.1})
    a, b = (s.measure(truth(), zero, step)["base_pos_w"] for step in (zero, one))
    assert abs(a.std() - 0.1) < 0.005 and abs((a * b).mean()) < 0.001  # sd of the mean product: 0.01/sqrt(12000)=1e-4
    s = sensors(bias={"base_pos_w": 0.1})
    a, b = (s.measure(truth(), zero, step)["base_pos_w"] for step in (zero, one))
    assert torch.equal(a, b) and abs(a.std() - 0.1) < 0.005


def test_delay_gives_each_world_one_age_and_the_start_is_its_own_past():
    s = sensors(delay_steps=2)
    zero = torch.zeros(N, dtype=torch.int64)
    assert torch.equal(s.measure(truth(), zero, zero)["base_pos_w"], truth()["base_pos_w"])
    for t in range(1, 6):
        s.push(truth(t))
        seen = s.measure(truth(t), zero, zero)["base_pos_w"][:, 0]
        expected = (t - s.delay).clamp(min=0).float()
        assert torch.equal(seen, expected)
    assert sorted(s.delay.unique().tolist()) == [0, 1, 2]


def test_attitude_noise_is_a_small_rotation():
    quat = torch.nn.functional.normalize(torch.randn(N, 4, generator=torch.Generator().manual_seed(0)), dim=-1)
    delta = torch.zeros(N, 3)
    delta[:, 1] = 0.01
    turned = perturb("base_quat_w", quat, delta)
    torch.testing.assert_close(turned.norm(dim=-1), torch.ones(N))
    dot = (turned * quat).sum(-1).clamp(max=1.0)
    torch.testing.assert_close(2 * torch.acos(dot.double()), torch.full((N,), 0.01).double(), atol=2e-4, rtol=0)
