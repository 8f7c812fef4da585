"""An estimate with its interval, made of what each episode says; lower bounds on the difference of two of them.

E episodes, B draws of the bootstrap, T steps. All arrays are float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

DRAWS = 1000  # of the bootstrap
RULES = ("t", "bootstrap", "bernstein")


@dataclass(frozen=True)
class Estimate:
    """The value of a policy, estimated from data that another one made.

    Args:
        value: the estimate.
        shares: [E], what each episode adds: their mean is ``value``, their spread its error (the influence function).
        draws: [B], the estimate on resampled episodes; those of two estimates of one ``seed`` are paired.
        effective: the effective number of episodes, E / (1 + variance of their weights over their squared mean);
            NaN where no episode has a weight.
        independent: the draws are a few separate fits, and not a resampling of one.
        below, above: how much lower and higher the value may be beside the error of its draws.
        outside: share of the data's states where the policy's action leaves the data; NaN where it does not matter.
    """

    value: float
    shares: np.ndarray
    draws: np.ndarray
    effective: float = float("nan")
    independent: bool = False
    below: float = 0.0
    above: float = 0.0
    outside: float = float("nan")

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """The two-sided interval: of Student where the draws are separate fits, else percentiles of the draws."""
        tail = (1.0 - confidence) / 2.0
        if self.independent:
            half = float(quantile_of_t(1.0 - tail, len(self.draws) - 1) * self.draws.std(ddof=1))
            return self.value - half - self.below, self.value + half + self.above
        low, high = np.quantile(self.draws, (tail, 1.0 - tail))
        return float(low) - self.below, float(high) + self.above

    def minus(self, other: Estimate) -> Estimate:
        """The difference to ``other`` of the same episodes, draws and seed: paired, so that what both share cancels."""
        if self.shares.shape != other.shares.shape or self.draws.shape != other.draws.shape:
            raise ValueError(f"estimates of {len(self.shares)} and {len(other.shares)} episodes cannot be paired")
        return Estimate(self.value - other.value, self.shares - other.shares, self.draws - other.draws,
                        min(self.effective, other.effective), self.independent, self.below + other.above,
                        self.above + other.below, float(np.fmax(self.outside, other.outside)))


@dataclass(frozen=True)
class Weighted:
    """Sums that every importance-sampling estimator consists of.

    The estimate is ``mean(offset) + sum over t of mean over e of weight[e, t] value[e, t]``; with ``normalized`` the
    mean over e is the weighted one, which is biased and of far less variance.

    Args:
        value: [E, T], discounted.
        weight: [E, T], ratios of the policies' densities.
        offset: [E].
    """

    value: np.ndarray
    weight: np.ndarray
    offset: np.ndarray
    normalized: bool = False

    def of_counts(self, counts: np.ndarray) -> np.ndarray:
        """The estimates [B] where episode e counts ``counts[b, e]`` times."""
        total = counts.sum(1)
        sums = counts @ (self.weight * self.value)
        below = counts @ self.weight if self.normalized else total[:, None]
        steps = np.divide(sums, below, out=np.zeros_like(sums), where=below > 0)
        return counts @ self.offset / total + steps.sum(1)

    def shares(self) -> np.ndarray:
        """What each episode adds [E], to first order in its count: their mean is the estimate."""
        if not self.normalized:
            return self.offset + (self.weight * self.value).sum(1)
        mean = self.weight.mean(0)
        centre = np.divide((self.weight * self.value).mean(0), mean, out=np.zeros_like(mean), where=mean > 0)
        scaled = np.divide(self.weight, mean, out=np.zeros_like(self.weight), where=mean > 0)
        return self.offset + (centre + scaled * (self.value - centre)).sum(1)

    def estimate(self, draws: int = DRAWS, seed: int = 0) -> Estimate:
        """The estimate and its bootstrap over episodes."""
        episodes = len(self.value)
        counts = resampled(episodes, draws, seed)
        last = self.weight[:, -1]
        effective = float(last.sum() ** 2 / np.square(last).sum()) if last.any() else 0.0
        return Estimate(float(self.of_counts(np.ones((1, episodes)))[0]), self.shares(), self.of_counts(counts),
                        effective)


def resampled(episodes: int, draws: int, seed: int) -> np.ndarray:
    """How often each episode is drawn [B, E] when E are drawn of E with replacement."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(episodes, np.full(episodes, 1.0 / episodes), size=draws).astype(np.float64)


def lower_bound(estimate: Estimate, confidence: float, rule: str = "t", spread: float | None = None) -> float:
    """What the true value exceeds with ``confidence``, one-sided.

    Args:
        rule: ``t``: Student's bound on the shares (or on the separate fits); ``bootstrap``: percentile of the draws;
            ``bernstein``: the empirical Bernstein bound (Maurer and Pontil, COLT 2009, theorem 4), which holds for
            every number of episodes and every distribution of shares in an interval as wide as ``spread``.
        spread: greatest minus smallest value that a share can have; ``bernstein`` needs it.
    """
    if rule not in RULES:
        raise ValueError(f"rule {rule!r} is unknown; legal: {', '.join(RULES)}")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence lies between 0 and 1, got {confidence}")
    value = estimate.value - estimate.below
    if estimate.independent:
        return float(value - quantile_of_t(confidence, len(estimate.draws) - 1) * estimate.draws.std(ddof=1))
    if rule == "bootstrap":
        return float(np.quantile(estimate.draws, 1.0 - confidence)) - estimate.below
    n, deviation = len(estimate.shares), estimate.shares.std(ddof=1)
    if rule == "t":
        return float(value - quantile_of_t(confidence, n - 1) * deviation / np.sqrt(n))
    return value - _bernstein(n, float(deviation), confidence, spread)


def _bernstein(n: int, deviation: float, confidence: float, spread: float | None) -> float:
    """Half-width for the mean of n independent shares."""
    if spread is None or spread <= 0:
        raise ValueError("rule bernstein needs the spread of the shares: greatest minus smallest possible value")
    log = np.log(2.0 / (1.0 - confidence))
    return float(deviation * np.sqrt(2.0 * log / n) + 7.0 * spread * log / (3.0 * (n - 1)))


def quantile_of_t(probability: float, freedom: int) -> float:
    """Quantile of Student's t with ``freedom`` degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(max(freedom, 1), probability))
