"""Samplers of flow matching and diffusion against exact Gaussians, and what they learn where there are two ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.policies.toy_demonstrations import forks, pictured
from torch import Tensor, nn

from temporeal.policies.imitation import consistency, diffusion, flow
from temporeal.policies.imitation.flow import Flow, FlowConfig
from temporeal.policies.training.checkpoint import CheckpointError
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal.policies.training.errors import SettingsError

SMALL: dict[str, Any] = {"horizon": 8, "execute": 4, "context": 32, "hidden": (64, 64), "batch": 64}


class ExactVelocity(nn.Module):
    """E[n - a | x_t] for chunks of one number a ~ N(.7, .3)."""

    def forward(self, x: Tensor, level: Tensor, context: Tensor) -> Tensor:
        t, mean, var = level[:, None, None], 0.7, 0.09
        slope = (t - (1 - t) * var) / ((1 - t) ** 2 * var + t**2)
        return -mean + slope * (x - (1 - t) * mean)


class ExactNoise(nn.Module):
    """E[n | x_k, o] where a ~ N(0, .3) and o = a + N(0, .4) was seen: the posterior is N(.36 o, .24)."""

    def __init__(self, kept: Tensor) -> None:
        super().__init__()
        self.kept = kept

    def forward(self, x: Tensor, level: Tensor, context: Tensor) -> Tensor:
        kept = self.kept[(level * (len(self.kept) - 1)).round().long()][:, None, None]
        mean = 0.36 * context[:, :1, None]
        return (1 - kept).sqrt() * (x - kept.sqrt() * mean) / (kept * 0.24**2 + 1 - kept)


@pytest.mark.parametrize(("steps", "std"), [(100, 0.294), (4, 0.177)])
def test_euler_steps_bring_noise_to_a_known_gaussian(steps: int, std: float) -> None:
    # the exact flow has std .3; that of so many Euler steps was measured apart from this code
    decoder = Flow(FlowConfig(**SMALL), 1)
    decoder.net = ExactVelocity()
    noise = torch.randn(20_000, 1, 1, generator=torch.Generator().manual_seed(0))
    found = decoder.denoised(noise, noise[:, 0], steps)
    assert float(found.mean()) == pytest.approx(0.7, abs=6e-3)
    assert float(found.std()) == pytest.approx(std, abs=5e-3)


@pytest.mark.parametrize("seen", [-1.0, 0.0, 0.8])
def test_ddim_samples_a_known_posterior(seen: float) -> None:
    decoder = diffusion.Diffusion(diffusion.DiffusionConfig(**SMALL), 1)
    decoder.net = ExactNoise(decoder.kept)
    noise = torch.randn(5_000, 1, 1, generator=torch.Generator().manual_seed(0))
    found = decoder.denoised(noise, torch.full((5_000, 1), seen), 95)
    assert float(found.mean()) == pytest.approx(0.36 * seen, abs=0.015)
    assert float(found.std()) == pytest.approx(0.24, rel=0.05)


def test_noise_levels_are_those_of_the_squared_cosine() -> None:
    kept = diffusion.squared_cosine(100)
    assert kept[0] == 1 and bool((kept.diff() < 0).all())
    assert float(kept[50]) == pytest.approx(0.49384, abs=1e-4)  # cos^2 at .508 / 1.008 over that at .008 / 1.008


@pytest.mark.parametrize("build", [Flow(FlowConfig(**SMALL), 2),
                                   diffusion.Diffusion(diffusion.DiffusionConfig(**SMALL), 2)])
def test_a_clean_chunk_and_its_noise_are_consistent(build: Any) -> None:
    # moving along the true noise gives what corrupting directly gives, at every level
    chunk, noise = torch.rand(5, 8, 2) - 0.5, torch.randn(5, 8, 2)
    grid = build.grid(4)
    for level, to in zip(grid, grid[1:]):
        here, there = level.repeat(5), to.repeat(5)
        moved = build.move(build.corrupt(chunk, noise, here), chunk, here, there)
        assert torch.allclose(moved, build.corrupt(chunk, noise, there), atol=1e-5)
    assert torch.equal(grid[-1:].float(), torch.zeros(1))
    skip, out = build.skip(grid[-1:])
    assert float(skip) == 1 and float(out) == 0


def sides(policy: ChunkPolicy) -> Tensor:
    """First commands [50] at fresh places."""
    place = 2.0 * torch.rand(50, 2, generator=torch.Generator().manual_seed(3)) - 1.0
    with torch.no_grad():
        return policy.rows({"place_w": place})[:, :, 0].mean(1)


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of flow matching on forks; its settings as a run has them."""
    out = tmp_path_factory.mktemp("flow")
    flow.train(forks(), FlowConfig(updates=250, **SMALL), out=out)
    (out / "config.yaml").write_text("algo: {name: flow}\n")
    return out


def test_flow_takes_a_side_where_the_mean_hits_the_obstacle(taught: Path) -> None:
    found = sides(flow.load_chunks(taught))
    assert float(found.abs().quantile(0.1)) > 0.4 and float(found.abs().max()) < 1.1


@pytest.mark.slow
def test_diffusion_takes_a_side_where_the_mean_hits_the_obstacle(tmp_path: Path) -> None:
    found = diffusion.train(forks(), diffusion.DiffusionConfig(updates=400, **SMALL), out=tmp_path)
    assert float(sides(found.policy).abs().quantile(0.1)) > 0.4


@pytest.mark.parametrize("method", ["regression", pytest.param("consistency", marks=pytest.mark.slow)])
def test_one_step_gives_what_the_teacher_gives_in_five(method: str, taught: Path, tmp_path: Path) -> None:
    updates = 80 if method == "regression" else 800  # its target moves
    config = consistency.ConsistencyConfig(policy=str(taught), updates=updates, execute=4, method=method, noise=0.0,
                                           batch=64, average=0.95)
    found = consistency.train(forks(), config, out=tmp_path)
    assert torch.equal(sides(consistency.load_chunks(tmp_path)), sides(found.policy))
    off = (sides(found.policy) - sides(flow.load_chunks(taught))).abs()
    assert float(off.median()) < (0.15 if method == "regression" else 0.3)


def test_a_student_needs_a_teacher_that_denoises(taught: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="algo.policy=RUN"):
        consistency.train(forks(), consistency.ConsistencyConfig(), out=tmp_path)
    with pytest.raises(CheckpointError, match="^nowhere is no run: there is no such folder$"):
        consistency.train(forks(), consistency.ConsistencyConfig(policy="nowhere"), out=tmp_path)
    (tmp_path / "config.yaml").write_text("algo: {name: bc}\n")
    with pytest.raises(SettingsError, match="trained by algo=bc; a teacher is of flow or diffusion"):
        consistency.train(forks(), consistency.ConsistencyConfig(policy=str(tmp_path)), out=tmp_path)


@pytest.mark.slow
def test_a_policy_that_sees_goes_where_the_square_is(tmp_path: Path) -> None:
    config = FlowConfig(updates=250, signals=("front_rgb",), auxiliary=("goal_w",), keypoints=8, shift=0,
                        **{**SMALL, "horizon": 4})
    found, fresh = flow.train(pictured(), config, out=tmp_path), pictured(seed=5)
    assert found.policy.signals == ("front_rgb",)
    with torch.no_grad():
        rows = found.policy.rows({"front_rgb": torch.from_numpy(fresh.column("front_rgb")[::7].copy())})
    off = rows[:, 0] - torch.from_numpy(fresh.column("goal_w")[::7].copy())
    assert float(off.norm(dim=1).median()) < 0.3  # a guess of the middle is .75 off
