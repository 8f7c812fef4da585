"""Cross-entropy method: search for the actions of a whole mission by their exact robustness, for many robots at once.

For each of B robots, independently (Rubinstein and Kroese, "The Cross-Entropy Method", 2004; for control: Kobilarov,
"Cross-entropy motion planning", 2012):

    draw ``population`` knots of an action spline from a normal distribution, limited to [-1, 1]
    roll them all out in the model and judge each trace by the formula's exact robustness
    move the distribution to the mean and the deviation of the ``elites`` best of them
    after ``iterations`` rounds the best sequence ever drawn is the plan

No gradient is needed, of the model or of the formula. The best samples of a round compete again in the next one, and
the deviation has a floor, as in Pinneri et al., "Sample-efficient cross-entropy method for real-time planning" (2020).

    found = plan(model, formula, dt, signals0, steps, CEMConfig())
    policy = Receding(plan, model, formula, dt, steps, CEMConfig(), generator, every=10)  # replans on the way

B robots, P population, T steps, K knots, A action.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from temporeal.policies.planning.problem import Plan, Problem, Signals, better, check_start, judge, problem
from temporeal.policies.planning.splines import basis, check_spline
from temporeal.sim.stl.language.propositional import Formula

if TYPE_CHECKING:
    from temporeal.sim.system import Model

IN_CACHE = 512  # sequences at once of a model that has all steps in one call: more of them wait for the memory


@dataclass(frozen=True)
class CEMConfig:
    """Settings of the search. ``configs/algo/cem.yaml`` has the same names."""

    population: int = 256  # P: sequences drawn for each robot in a round
    elites: int = 24  # the best of them, to which the distribution moves
    iterations: int = 40  # rounds
    knots: int = 20  # of the action spline over the mission; 0: one for each step
    spline: str = "linear"  # between the knots: hold, linear, cubic
    init_std: float = 0.8  # deviation of the first knots about 0 (about a start: half of it); actions are in [-1, 1]
    min_std: float = 0.05  # floor of the deviation, so that the search never stops
    smoothing: float = 0.1  # share of the old mean and deviation that stays in a round
    kept: int = 4  # best sequences so far that compete again in a round
    enough: float | None = 0.05  # robustness at which a robot's search ends, in its unit; null: all rounds
    rows: int = 65536  # sequences rolled out at once, at most: bounds the memory
    replan: int = 0  # control steps between plans where the plan is followed; 0: once

    def __post_init__(self) -> None:
        check_spline(self.knots, self.spline)
        for name in ("population", "elites", "iterations", "rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("kept", "min_std", "replan"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if not self.init_std > 0:
            raise ValueError(f"init_std must be positive, got {self.init_std}")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing must be within [0, 1), got {self.smoothing}")
        if max(self.elites, self.kept) > self.population:
            raise ValueError(f"elites is {self.elites} and kept is {self.kept}: at most the population, "
                             f"{self.population}")


@dataclass
class Search:
    """The distributions of B robots, and the best sequences drawn from them."""

    mean: Tensor  # [B, K, A]
    std: Tensor  # [B, K, A]
    kept: Tensor  # [B, E, K, A] best knots so far
    best: Plan  # of B robots


@torch.no_grad()
def plan(
    model: Model, formula: Formula, dt: float, signals0: Signals, steps: int, config: CEMConfig,
    generator: torch.Generator | None = None, *, past: Signals | None = None, start: Tensor | None = None,
) -> Plan:
    """The most robust sequence found, for each of the B robots of ``signals0``.

    Args:
        model: predicts; no gradients are taken.
        formula: judged on samples each ``dt`` s, from the first of ``past`` (or from ``signals0``) to step ``steps``.
        signals0: current measurements, [B, *shape].
        generator: of the draws; equal generators give equal plans.
        past: samples before, [k, B, *shape].
        start: initial actions [B, T, A]: a candidate, and the first mean.
    """
    asked = problem(model, formula, dt, signals0, steps, past)
    start = check_start(start, asked)
    spline = basis(steps, config.knots, config.spline, asked.state)
    search = begin(asked, spline, config, start)
    for _ in range(config.iterations):
        worlds = unfinished(search.best, config)
        if not len(worlds):
            break
        improve(search, worlds, asked, spline, config, generator)
    return search.best


def begin(asked: Problem, spline: Tensor, config: CEMConfig, start: Tensor | None) -> Search:
    """The first distribution: around zero, or around the spline nearest to ``start``."""
    count, size = len(asked.state), asked.model.action_dim
    mean = asked.state.new_zeros(count, spline.shape[1], size)
    deviation = config.init_std
    if start is not None:
        mean, deviation = torch.linalg.pinv(spline) @ start, config.init_std / 2
    actions = (spline @ mean).clamp(-1.0, 1.0) if start is None else start
    return Search(mean, torch.full_like(mean, deviation), mean[:, None][:, :0], Plan(actions, judge(asked, actions)))


def unfinished(best: Plan, config: CEMConfig) -> Tensor:
    """Indices of the robots whose best plan is not robust enough yet."""
    if config.enough is None:
        return torch.arange(len(best.robustness), device=best.robustness.device)
    return (best.robustness < config.enough).nonzero()[:, 0]


def improve(
    search: Search, worlds: Tensor, asked: Problem, spline: Tensor, config: CEMConfig,
    generator: torch.Generator | None,
) -> None:
    """One round for the robots ``worlds``, with equally many sequences each."""
    mean, std, kept = search.mean[worlds], search.std[worlds], search.kept[worlds]
    drawn = config.population - kept.shape[1]
    noise = torch.randn(len(worlds), drawn, *mean.shape[1:], generator=generator, dtype=mean.dtype, device=mean.device)
    knots = torch.cat([(mean[:, None] + std[:, None] * noise).clamp(-1.0, 1.0), kept], 1)
    value = values(asked, worlds, knots, spline, config.rows)
    order = value.topk(max(config.elites, config.kept, 1), 1).indices
    ranked = knots.gather(1, order[..., None, None].expand(-1, -1, *knots.shape[2:]))
    elite = ranked[:, : config.elites]
    old = config.smoothing
    search.mean[worlds] = old * mean + (1.0 - old) * elite.mean(1)
    search.std[worlds] = (old * std + (1.0 - old) * elite.std(1, correction=0)).clamp(min=config.min_std)
    if search.kept.shape[1] != config.kept:
        search.kept = search.mean[:, None].repeat(1, config.kept, 1, 1)
    search.kept[worlds] = ranked[:, : config.kept]
    first = (spline @ ranked[:, 0]).clamp(-1.0, 1.0)
    was = Plan(search.best.actions[worlds], search.best.robustness[worlds])
    now = better(was, Plan(first, value.gather(1, order[:, :1])[:, 0]))
    search.best.actions[worlds], search.best.robustness[worlds] = now


def values(asked: Problem, worlds: Tensor, knots: Tensor, spline: Tensor, rows: int) -> Tensor:
    """Exact robustness [W, P] of the sequences with ``knots`` [W, P, K, A] of the robots ``worlds`` [W]."""
    if asked.model.rollout is not None:
        rows = min(rows, IN_CACHE)
    flat = knots.flatten(0, 1)
    owner = worlds.repeat_interleave(knots.shape[1])
    parts = []
    for first in range(0, len(flat), rows):
        part = slice(first, first + rows)
        parts.append(judge(asked.of(owner[part]), (spline @ flat[part]).clamp(-1.0, 1.0)))
    return torch.cat(parts).view(knots.shape[:2])
