"""The sensor model: statistics of noise and bias, age of samples, and rotations that stay rotations."""

import torch

from sim.sensors import SensorConfig, Sensors, perturb

N = 4000


def truth(value=0.0):
    quat = torch.zeros(N, 4)
    quat[:, 0] = 1.0
    return {"base_pos_w": torch.full((N, 3), float(value)), "base_quat_w": quat}


SHAPES = {"base_pos_w": (3,), "base_quat_w": (4,)}
WORLDS, FIRST = torch.arange(N), torch.zeros(N, dtype=torch.int64)


class Worlds:
    """Sensors and the rows that a caller keeps for them, as the environment does."""

    def __init__(self, **kw):
        self.sensors = Sensors(SensorConfig.parse(kw, tuple(SHAPES)), SHAPES)
        self.rows = self.sensors.draw_episode(5, WORLDS, FIRST) | self.sensors.remember(truth())

    def measure(self, step, value=0.0):
        noise = {name: torch.zeros(N, *shape) for name, shape in self.sensors.noise.items()}
        self.sensors.draw_noise(5, WORLDS, FIRST, FIRST + step, noise)
        return self.sensors.measure(truth(value), self.rows | noise)["base_pos_w"]


def test_noise_is_white_and_bias_is_constant():
    s = Worlds(noise={"base_pos_w": 0.1})
    a, b = s.measure(0), s.measure(1)
    assert abs(a.std() - 0.1) < 0.005 and abs((a * b).mean()) < 0.001  # sd of the mean product: 0.01/sqrt(12000)=1e-4
    s = Worlds(bias={"base_pos_w": 0.1})
    a, b = s.measure(0), s.measure(1)
    assert torch.equal(a, b) and abs(a.std() - 0.1) < 0.005
    s = Worlds(noise={"base_pos_w": 0.3}, bias={"base_pos_w": 0.4})
    assert abs(s.measure(0).std() - 0.5) < 0.01


def test_delay_gives_each_world_one_age_and_the_start_is_its_own_past():
    s = Worlds(delay_steps=2)
    assert torch.equal(s.measure(0), truth()["base_pos_w"])
    for t in range(1, 6):
        expected = (t - s.rows["delay"]).clamp(min=0)
        assert torch.equal(s.measure(t, t)[:, 0], expected)
        s.rows |= s.sensors.remember(truth(t), s.rows)
    assert sorted(s.rows["delay"].unique().tolist()) == [0, 1, 2]


def test_attitude_noise_is_a_small_rotation():
    quat = torch.nn.functional.normalize(torch.randn(N, 4, generator=torch.Generator().manual_seed(0)), dim=-1)
    delta = torch.zeros(N, 3)
    delta[:, 1] = 0.01
    turned = perturb("base_quat_w", quat, delta)
    torch.testing.assert_close(turned.norm(dim=-1), torch.ones(N))
    dot = (turned * quat).sum(-1).clamp(max=1.0)
    torch.testing.assert_close(2 * torch.acos(dot.double()), torch.full((N,), 0.01).double(), atol=2e-4, rtol=0)
