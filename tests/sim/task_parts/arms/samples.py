"""Joint angles and attitudes for tests of arms."""


import torch

from temporeal.robots.franka.spec import (
    HIGH,
    LOW,
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def random_joints(n, seed=0, margin=0.1):
    low, high = torch.tensor(LOW) + margin, torch.tensor(HIGH) - margin
    return low + (high - low) * torch.rand(n, 7, generator=generator(seed))


def random_quats(n, seed=0):
    return torch.nn.functional.normalize(torch.randn(n, 4, generator=generator(seed)), dim=-1)


def same_attitude(a, b, atol):
    torch.testing.assert_close((a * b).sum(-1).abs(), torch.ones(len(a)), atol=atol, rtol=0)
