"""How a flow policy draws chunks: as it is deployed (ODE), and at random, with the probability of what was drawn.

Level t = 1 is noise, t = 0 the chunk; K steps of length d = 1 / K. From a velocity v at (x, t) follow a clean chunk and
the noise it came from:

    x0 = x - t v,   x1 = x + (1 - t) v

    ODE         x' = x0 (1 - (t - d)) + x1 (t - d)                                             Euler, nothing random
    Flow-SDE    x' ~ N(x0 (1 - (t - d)) + x1 (t - d - sigma^2 d / (2 t)), d sigma^2),  sigma = a sqrt(t / (1 - t))
    Flow-Noise  x' ~ N(Euler's x', s^2),  s from a network, within bounds

Flow-SDE has the marginals of the ODE where steps are short; at t = 1 the next grid point stands in 1 - t. Both: Chen et
al. 2025, pi_RL (arXiv 2510.25889). Of a decision one step is random and its probability alone counts (their two-layer
process): an update then costs one pass of the expert, not K. N robots, H steps, U numbers of a command.

Independent noise of a chunk's rows averages out while it is played. Flow-SDE's may be correlated, C[i, j] = r^|i - j|
over rows (:func:`correlated`): the diffusion is then sigma C^(1/2), the drift's correction sigma^2 C score / 2, and the
marginals stay as they are, which holds of every constant C (the Fokker-Planck equation, term by term), of short steps.
One long last step of a policy that takes every noise to one chunk adds its noise to that chunk: it explores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from temporeal.policies.nets.transformer import sinusoids
from temporeal.policies.vla.protocol import FlowPolicy

LOG_2PI = math.log(2.0 * math.pi)


class Normal(NamedTuple):
    """Gaussians of the next x: mean and standard deviation, both [N, H, U]. ``rows`` [H, H]: the lower triangular
    factor of the correlation between rows; None: they are independent. Numbers of a row are."""

    mean: Tensor
    std: Tensor
    rows: Tensor | None = None

    def draw(self, jolt: Tensor) -> Tensor:
        """The next x from white noise [N, H, U]."""
        return self.mean + self.std * (jolt if self.rows is None else self.rows @ jolt)


class Ends(NamedTuple):
    """What an x seems to lie between, both [N, H, U]: the clean chunk x0 and the noise x1."""

    clean: Tensor
    noise: Tensor


Step = Callable[[Tensor, Ends, Tensor, Tensor], Normal]
"""Of the context, the ends of x, its level [N] and the next level [N]: where x goes."""


class Decision(NamedTuple):
    """What an update needs of one drawn chunk.

    Args:
        chunk: [N, H, U], what is executed.
        x, next: [N, H, U] before and after the random step.
        step: int64 [N], which of the K steps was random.
        log_prob: [N], of ``next``.
    """

    chunk: Tensor
    x: Tensor
    next: Tensor
    step: Tensor
    log_prob: Tensor


class Chain(NamedTuple):
    """All of one drawn chunk: ``xs`` [K + 1, N, H, U] from noise to chunk, and their log-probability [N]."""

    xs: Tensor
    log_prob: Tensor

    @property
    def chunk(self) -> Tensor:
        """What is executed."""
        return self.xs[-1]


def grid(steps: int) -> Tensor:
    """Levels [K + 1] from noise to chunk."""
    return torch.linspace(1.0, 0.0, steps + 1)


def column(level: Tensor) -> Tensor:
    """Levels [N] beside [N, H, U]."""
    return level[:, None, None]


def ends(policy: FlowPolicy, context: Tensor, x: Tensor, t: Tensor) -> Ends:
    """What ``x`` at level ``t`` [N] seems to lie between."""
    velocity = policy.velocity(context, x, t)
    return Ends(x - column(t) * velocity, x + (1.0 - column(t)) * velocity)


def euler(found: Ends, to: Tensor) -> Tensor:
    """The next x of the ODE: the point at level ``to`` [N] between the ends."""
    return found.clean * (1.0 - column(to)) + found.noise * column(to)


def sigma(t: Tensor, to: Tensor, a: float) -> Tensor:
    """Flow-SDE's noise level [N] at ``t``; at t = 1, where it would be infinite, the next level stands in 1 - t."""
    return a * (t / (1.0 - torch.where(t >= 1.0, to, t))).sqrt()


def correlated(rows: int, r: float) -> Tensor:
    """The lower triangular factor [H, H] of the correlation r^|i - j| between rows, 0 <= r < 1."""
    index = torch.arange(rows, dtype=torch.float64)
    correlation = torch.tensor(r, dtype=torch.float64) ** (index[:, None] - index).abs()
    factor: Tensor = torch.linalg.cholesky(correlation)
    return factor.float()


def least_std(steps: int, a: float, last: int = 0) -> float:
    """The least standard deviation of Flow-SDE's ``last`` of ``steps`` steps (0: of all) at noise level ``a``."""
    level = grid(steps).double()
    t, to = level[:-1][-last:], level[1:][-last:]
    return float(((t - to).sqrt() * sigma(t, to, a)).min())


def sharpness(std: float, r: float = 0.0) -> float:
    """By how much an error of a mean, of its own in each row, is enlarged in what a log-probability squares: of noise
    with the correlation r^|i - j| a row counts as (x[i] - r x[i - 1]) / sqrt(1 - r^2)."""
    return math.sqrt((1.0 + r * r) / (1.0 - r * r)) / std


def flow_sde(a: float, rows: Tensor | None = None) -> Step:
    """Flow-SDE's step at noise level ``a``, above 0, with noise whose correlation between rows has the factor ``rows``
    [H, H]; None: white noise."""

    def step(context: Tensor, found: Ends, t: Tensor, to: Tensor) -> Normal:
        spread, length = sigma(t, to, a), t - to
        drift = column(spread.square() * length / (2.0 * t))
        back = found.noise if rows is None else rows @ (rows.T @ found.noise)
        mean = found.clean * (1.0 - column(to)) + found.noise * column(to) - back * drift
        return Normal(mean, column(length.sqrt() * spread).expand_as(mean), rows)

    return step


class LearnedNoise(nn.Module):
    """Flow-Noise's standard deviations [N, H, U] of a context and a level, between ``low`` and ``high``: a tanh network
    on the mean token, linear in the log-variance between the bounds (pi_RL; there .08 and .16).

    Args:
        context: numbers of a token, or of the context where it has none.
        shape: H, U.
    """

    def __init__(
        self, context: int, shape: tuple[int, int], hidden: int = 128, low: float = 0.08, high: float = 0.16
    ) -> None:
        super().__init__()
        if not 0.0 < low < high:
            raise ValueError(f"bounds of the noise are 0 < low < high, got {low}, {high}")
        self.shape, self.center = shape, math.log(low * high)
        self.reach = math.log(high / low)
        self.net = nn.Sequential(nn.Linear(context + LEVEL, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(),
                                 nn.Linear(hidden, math.prod(shape)))

    def forward(self, context: Tensor, t: Tensor) -> Tensor:
        """The standard deviations at level ``t`` [N]."""
        seen = context.mean(1) if context.dim() == 3 else context
        found = torch.tanh(self.net(torch.cat([seen, sinusoids(1000.0 * t, LEVEL)], -1)))
        spread: Tensor = torch.exp(0.5 * (self.center + self.reach * found)).unflatten(1, self.shape)
        return spread


LEVEL = 32  # numbers that say the level


def flow_noise(spread: LearnedNoise) -> Step:
    """Flow-Noise's step."""

    def step(context: Tensor, found: Ends, t: Tensor, to: Tensor) -> Normal:
        return Normal(euler(found, to), spread(context, t))

    return step


def log_prob(value: Tensor, normal: Normal, mask: Tensor, execute: int) -> Tensor:
    """Log-probability density [N] of ``value`` [N, H, U]: of the ``execute`` rows that are played, and of the numbers
    that are commands by ``mask`` [U]. What is thrown away has no effect, and so no share in the gradient."""
    apart, width = ((value - normal.mean) / normal.std)[:, :execute], normal.std.log()[:, :execute]
    if normal.rows is not None:  # a triangular factor: the first rows do not ask for the others
        factor = normal.rows[:execute, :execute]
        apart = torch.linalg.solve_triangular(factor, apart, upper=False)
        width = width + factor.diagonal().log()[:, None]
    each = -0.5 * apart.square() - width - 0.5 * LOG_2PI
    return each[..., mask].sum((1, 2))


def levels(count: int, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Each step's level and the next one, [N] both, for ``count`` rows."""
    for t, to in pairwise(grid(steps)):
        yield t.expand(count), to.expand(count)


def first_noise(policy: FlowPolicy, context: Tensor, generator: torch.Generator | None) -> Tensor:
    """Fresh noise [N, H, U]."""
    return torch.randn((len(context), policy.horizon, policy.interface.action.size), generator=generator)


@torch.no_grad()
def ode(policy: FlowPolicy, context: Tensor, noise: Tensor, steps: int | None = None) -> Tensor:
    """The chunk [N, H, U] that ``noise`` becomes, in the policy's own number of steps or another."""
    x = noise
    for t, to in levels(len(x), steps or policy.steps):
        x = euler(ends(policy, context, x, t), to)
    return x


@torch.no_grad()
def decide(
    policy: FlowPolicy, context: Tensor, step: Step, execute: int, generator: torch.Generator | None = None,
    last: int = 0,
) -> Decision:
    """A chunk with one random step, drawn evenly among the ``last`` of the K (0: among all) for each robot; the others
    are Euler's."""
    x = first_noise(policy, context, generator)
    which = torch.randint(policy.steps - last if last else 0, policy.steps, x.shape[:1], generator=generator)
    jolt = torch.randn(x.shape, generator=generator)
    before, after = x, x
    chance = x.new_zeros(len(x))
    for k, (t, to) in enumerate(levels(len(x), policy.steps)):
        found, here = ends(policy, context, x, t), which == k
        normal = step(context, found, t, to)
        drawn = normal.draw(jolt)
        chance = torch.where(here, log_prob(drawn, normal, policy.mask, execute), chance)
        before, after = torch.where(column(here), x, before), torch.where(column(here), drawn, after)
        x = torch.where(column(here), drawn, euler(found, to))
    return Decision(x, before, after, which, chance)


def decision_log_prob(policy: FlowPolicy, context: Tensor, step: Step, decision: Decision, execute: int) -> Tensor:
    """Log-probability [N] of the random step of each ``decision`` by the weights as they are now: one pass."""
    level = grid(policy.steps)
    t, to = level[decision.step], level[decision.step + 1]
    normal = step(context, ends(policy, context, decision.x, t), t, to)
    return log_prob(decision.next, normal, policy.mask, execute)


@torch.no_grad()
def sample(
    policy: FlowPolicy, context: Tensor, step: Step, execute: int, generator: torch.Generator | None = None,
) -> Chain:
    """A chunk of which every step is random."""
    x = first_noise(policy, context, generator)
    xs, total = [x], noise_log_prob(x, policy.mask, execute)
    for t, to in levels(len(x), policy.steps):
        normal = step(context, ends(policy, context, x, t), t, to)
        x = normal.draw(torch.randn(x.shape, generator=generator))
        total = total + log_prob(x, normal, policy.mask, execute)
        xs.append(x)
    return Chain(torch.stack(xs), total)


def chain_log_prob(policy: FlowPolicy, context: Tensor, step: Step, xs: Tensor, execute: int) -> Tensor:
    """Log-probability [N] of all of ``xs`` [K + 1, N, H, U], that of the first noise included, by the weights as they
    are now."""
    total = noise_log_prob(xs[0], policy.mask, execute)
    for k, (t, to) in enumerate(levels(xs.shape[1], len(xs) - 1)):
        normal = step(context, ends(policy, context, xs[k], t), t, to)
        total = total + log_prob(xs[k + 1], normal, policy.mask, execute)
    return total


def noise_log_prob(x: Tensor, mask: Tensor, execute: int) -> Tensor:
    """Log-probability [N] of the noise that a chunk begins with."""
    return log_prob(x, Normal(torch.zeros_like(x), torch.ones_like(x)), mask, execute)
