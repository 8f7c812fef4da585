"""``alp_gmm``: teach where the learner's competence changes, whether it learns or forgets.

Portelas, Colas, Hofmann, Oudeyer, "Teacher algorithms for curriculum learning of Deep RL in continuously parameterized
environments", CoRL 2019; in Romac et al., "TeachMyAgent", ICML 2021. The absolute learning progress (ALP) of an episode
is how far its outcome lies from that of the nearest point tried before. A Gaussian mixture is fitted to the latest
(point, ALP); a component is chosen in proportion to its mean ALP, and a point drawn from it. A share of the points is
uniform, so that what has become learnable is found.

What differs from the paper: outcomes come in batches (those of all worlds between two updates), so an outcome is
compared with those of earlier batches; a batch may exceed ``every``, and is then fitted once, over the latest
``window`` points; points tried are forgotten after ``history`` others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from temporeal.sim.compiler.keyed_random import normal, stream, uniform
from temporeal.sim.curriculum.checks import check_settings
from temporeal.sim.curriculum.points import Points, Trials

GROWS = False
RIDGE = 1e-6  # added to the variances of a mixture, as scikit-learn does
ROUNDS, GAIN = 100, 1e-3  # of expectation and maximization, and the gain of the mean log-likelihood at which they end
FLOOR = 1e-12


@dataclass(frozen=True)
class Settings:
    """The paper's values where it has them.

    ``random``: share of uniform points. ``every``: episodes between two fits, and before the first. ``window``: latest
    points that a mixture is fitted to. ``components``: least and greatest number, chosen by Akaike's criterion.
    ``history``: points that outcomes are compared with.
    """

    random: float = 0.2
    every: int = 250
    window: int = 1000
    components: tuple[int, int] = (2, 10)
    history: int = 20_000

    def __post_init__(self) -> None:
        check_settings(self, shares=("random",))
        first, last = self.components
        if self.every < 1 or self.window < 2 or self.history < 1 or not 1 <= first <= last:
            raise ValueError("curriculum: needs every >= 1, window >= 2, history >= 1 and 1 <= least <= greatest "
                             f"components; got {self}")


class Mixture(NamedTuple):
    """Weights [G], means [G, D], covariances [G, D, D] of a Gaussian mixture."""

    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray


class AlpGmm:
    """``low``, ``high`` [D]: bounds of the points before the first fit (where the ranges begin)."""

    shared = True

    def __init__(self, low: np.ndarray, high: np.ndarray, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.low, self.high = low.astype(np.float64), high.astype(np.float64)
        self.tried = np.zeros((0, len(low) + 1))  # point, outcome
        self.window = np.zeros((0, len(low) + 1))  # point, absolute learning progress
        self.waiting = self.fits = 0
        self.mixture: Mixture | None = None

    def propose(self, seed: int, worlds: Tensor, episode: Tensor) -> Points:
        """Points [K, D]; the tag is the component, -1 where the point is uniform."""
        size, device = len(self.low), worlds.device
        u = uniform(seed, worlds, episode, stream("curriculum.alp.point"), size).double()
        if self.mixture is None:
            low, high = torch.from_numpy(self.low).to(device), torch.from_numpy(self.high).to(device)
            return Points(low + (high - low) * u, torch.full_like(worlds, -1))
        pick = uniform(seed, worlds, episode, stream("curriculum.alp.pick"), 2).double()
        z = normal(seed, worlds, episode, stream("curriculum.alp.normal"), size).double()
        ends = torch.from_numpy(self._shares().cumsum()[:-1]).to(device)
        component = torch.searchsorted(ends, pick[:, 1].contiguous(), right=True)
        means = torch.from_numpy(self.mixture.means[:, :size].copy()).to(device)
        roots = torch.from_numpy(np.linalg.cholesky(self.mixture.covariances[:, :size, :size])).to(device)
        drawn = means[component] + (roots[component] * z[:, None, :]).sum(-1)
        anywhere = pick[:, 0] < self.settings.random
        return Points(torch.where(anywhere[:, None], u, drawn.clamp(0.0, 1.0)), torch.where(anywhere, -1, component))

    def _shares(self) -> np.ndarray:
        """Probability of each component: in proportion to its mean learning progress."""
        assert self.mixture is not None
        progress = np.maximum(self.mixture.means[:, -1], 0.0)
        if progress.sum() <= FLOOR:
            return np.full(len(progress), 1 / len(progress))
        shares: np.ndarray = progress / progress.sum()
        return shares

    def observe(self, trials: Trials) -> None:
        """Take in finished episodes; fit again where there are enough."""
        if not len(trials.outcome):
            return
        rows = np.column_stack([trials.points, trials.outcome])
        if len(self.tried):
            _, nearest = cKDTree(self.tried[:, :-1]).query(trials.points)
            progress = np.abs(trials.outcome - self.tried[nearest, -1])
            self.window = np.concatenate([self.window, np.column_stack([trials.points, progress])])
            self.window = self.window[-self.settings.window :]
            self.waiting += len(rows)
        self.tried = np.concatenate([self.tried, rows])[-self.settings.history :]
        if self.waiting >= self.settings.every:
            self.mixture = best_mixture(self.window, *self.settings.components, seed=self.fits)
            self.waiting, self.fits = 0, self.fits + 1

    def figures(self) -> dict[str, float]:
        """``alp``: mean over the window; ``components`` of the mixture; ``fits`` made."""
        alp = float(self.window[:, -1].mean()) if len(self.window) else 0.0
        return {"alp": alp, "components": float(0 if self.mixture is None else len(self.mixture.weights)),
                "fits": float(self.fits)}

    def state_dict(self) -> dict[str, Any]:
        """Everything that a bit-exact continuation needs."""
        mixture = [] if self.mixture is None else [torch.from_numpy(np.array(x)) for x in self.mixture]
        return {"tried": torch.from_numpy(self.tried.copy()), "window": torch.from_numpy(self.window.copy()),
                "waiting": self.waiting, "fits": self.fits, "mixture": mixture}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        if state["tried"].shape[1] != len(self.low) + 1:
            raise ValueError(f"curriculum: a state of {state['tried'].shape[1] - 1} dimensions, expected "
                             f"{len(self.low)}")
        self.tried, self.window = (state[key].numpy().copy() for key in ("tried", "window"))
        self.waiting, self.fits = int(state["waiting"]), int(state["fits"])
        mixture = [x.numpy().copy() for x in state["mixture"]]
        self.mixture = Mixture(*mixture) if mixture else None


def make(low: np.ndarray, high: np.ndarray, num_worlds: int, settings: Settings) -> AlpGmm:
    """The teacher."""
    return AlpGmm(low, high, settings)


# ---------------------------------------------------------------- Gaussian mixtures


def best_mixture(rows: np.ndarray, least: int, most: int, seed: int) -> Mixture:
    """Of the mixtures with ``least`` to ``most`` components fitted to ``rows`` [E, D], that with the least Akaike
    criterion: twice the number of free parameters minus twice the log-likelihood."""
    size = rows.shape[1]
    found, best = None, np.inf
    for count in range(least, min(most, max(least, len(rows) // 2)) + 1):
        mixture, likelihood = fitted(rows, count, np.random.Generator(np.random.Philox(key=(seed << 8) + count)))
        free = count - 1 + count * size + count * size * (size + 1) // 2
        criterion = 2 * free - 2 * likelihood * len(rows)
        if found is None or criterion < best:
            found, best = mixture, criterion
    assert found is not None
    return found


def fitted(rows: np.ndarray, count: int, rng: np.random.Generator) -> tuple[Mixture, float]:
    """A mixture of ``count`` components by expectation and maximization, and its mean log-likelihood."""
    share = _seeded(rows, count, rng)
    before = -np.inf
    for _ in range(ROUNDS):
        mixture = _maximized(rows, share)
        logs = _log_densities(rows, mixture) + np.log(mixture.weights)
        top = logs.max(1, keepdims=True)
        total = top[:, 0] + np.log(np.exp(logs - top).sum(1))
        share = np.exp(logs - total[:, None])
        likelihood = float(total.mean())
        if likelihood - before < GAIN:
            break
        before = likelihood
    return mixture, likelihood


def _seeded(rows: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Component of each row at first, [E, count]: of centers far from each other (k-means++), the nearest."""
    scale = np.maximum(rows.std(0), FLOOR)
    scaled = rows / scale
    centers = [int(rng.integers(len(rows)))]
    distance = ((scaled - scaled[centers[0]]) ** 2).sum(1)
    while len(centers) < count:
        total = distance.sum()
        pick = rng.random() * total
        centers.append(min(int(np.searchsorted(distance.cumsum(), pick, side="right")), len(rows) - 1)
                       if total > 0 else int(rng.integers(len(rows))))
        distance = np.minimum(distance, ((scaled - scaled[centers[-1]]) ** 2).sum(1))
    near = ((scaled[:, None] - scaled[centers][None]) ** 2).sum(-1).argmin(1)
    return np.eye(count)[near]


def _maximized(rows: np.ndarray, share: np.ndarray) -> Mixture:
    """The most likely mixture for the shares [E, G] of its components in each row."""
    total = share.sum(0) + 10 * np.finfo(float).eps
    means = np.einsum("eg,ed->gd", share, rows) / total[:, None]
    apart = rows[:, None] - means[None]
    covariances = np.einsum("eg,egc,egd->gcd", share, apart, apart) / total[:, None, None]
    return Mixture(total / total.sum(), means, covariances + RIDGE * np.eye(rows.shape[1]))


def _log_densities(rows: np.ndarray, mixture: Mixture) -> np.ndarray:
    """Logarithm of each component's density at each row, [E, G]."""
    roots = np.linalg.cholesky(mixture.covariances)
    apart = rows[:, None] - mixture.means[None]
    inverse = np.linalg.inv(roots)
    white = np.einsum("gcd,egd->egc", inverse, apart)
    half_log_det = np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(1)
    densities: np.ndarray = -0.5 * (white**2).sum(-1) - half_log_det - 0.5 * rows.shape[1] * np.log(2 * np.pi)
    return densities
