"""Off-policy evaluation on solved decision processes: 200 gated updates, coverage of intervals, rank correlation.

The processes are random, finite and small; the data are 400 episodes of a policy with noise. Candidates are policies
around their parent, better and worse ones. By importance sampling with known densities: what is judged is the gate and
the intervals, not how well a network fits.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from temporeal.policies.evaluate.ope.estimates import Estimate
from temporeal.policies.evaluate.ope.gate import gate, share_of
from temporeal.policies.evaluate.ope.importance import ESTIMATORS, Logged
from temporeal.policies.evaluate.ope.ranking import rank_correlation, sharpe_ratio_at_k
from temporeal_benchmarks.rows import Row, none_of

UPDATES = 200
EPISODES = 400
CONFIDENCE = 0.95
STATES, HORIZON, DISCOUNT = 5, 8, 0.95
POLICIES = 12


@dataclass(frozen=True)
class Process:
    """``move`` [S, 2, S] and ``first`` [S] are probabilities, ``reward`` [S, 2] is the chance to earn 1."""

    move: np.ndarray
    reward: np.ndarray
    first: np.ndarray

    def value(self, policy: np.ndarray) -> float:
        """Of ``policy`` [S, 2], exactly."""
        after = np.zeros(STATES)
        for _ in range(HORIZON):
            after = (policy * (self.reward + DISCOUNT * self.move @ after)).sum(1)
        return float(self.first @ after)

    def q(self, policy: np.ndarray) -> np.ndarray:
        """[H, S, 2] of ``policy``, exactly."""
        out, after = np.zeros((HORIZON, STATES, 2)), np.zeros(STATES)
        for t in reversed(range(HORIZON)):
            out[t] = self.reward + DISCOUNT * self.move @ after
            after = (policy * out[t]).sum(1)
        return out


@dataclass(frozen=True)
class Data:
    """``state``, ``action`` and ``reward`` [E, H] of episodes by policy ``made`` [S, 2]."""

    state: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    made: np.ndarray

    def logged(self, policy: np.ndarray, model: np.ndarray) -> Logged:
        """As importance sampling for ``policy`` reads them, with a model of Q [H, S, 2], which may be wrong."""
        ratio = np.log(policy[self.state, self.action]) - np.log(self.made[self.state, self.action])
        steps = np.arange(HORIZON)
        return Logged(ratio, self.reward, DISCOUNT, model[steps, self.state, self.action],
                      (policy * model).sum(2)[steps, self.state])


def random_process(rng: np.random.Generator) -> Process:
    """A new one."""
    return Process(rng.dirichlet(np.ones(STATES), (STATES, 2)), rng.uniform(0.0, 1.0, (STATES, 2)),
                   rng.dirichlet(np.ones(STATES)))


def policy_near(policy: np.ndarray, size: float, rng: np.random.Generator) -> np.ndarray:
    """Another policy [S, 2]: log-odds moved by normal steps of ``size``; no action below 5 %."""
    odds = np.log(policy[:, 1] / policy[:, 0]) + size * rng.normal(size=STATES)
    chance = np.clip(1.0 / (1.0 + np.exp(-odds)), 0.05, 0.95)
    return np.stack((1.0 - chance, chance), 1)


def recorded(process: Process, policy: np.ndarray, episodes: int, rng: np.random.Generator) -> Data:
    """Episodes of ``policy``."""
    state, action = np.zeros((episodes, HORIZON), int), np.zeros((episodes, HORIZON), int)
    now = rng.choice(STATES, episodes, p=process.first)
    for t in range(HORIZON):
        state[:, t] = now
        action[:, t] = rng.random(episodes) < policy[now, 1]
        upto = process.move[now, action[:, t]].cumsum(1)
        now = (rng.random((episodes, 1)) > upto).sum(1).clip(0, STATES - 1)
    earned = (rng.random(state.shape) < process.reward[state, action]).astype(float)
    return Data(state, action, earned, policy)


def estimated(data: Data, policy: np.ndarray, model: np.ndarray, name: str, normalized: bool) -> Estimate:
    """Of ``policy``."""
    return ESTIMATORS[name](data.logged(policy, model), normalized).estimate(draws=400)


def gated_updates(updates: int, confidence: float, seed: int = 0) -> list[tuple[bool, float]]:
    """Whether each update was accepted, and by how much it is better than its parent. An accepted one becomes the
    parent, and records the next data; a new process every 20 updates."""
    rng, out = np.random.default_rng(seed), list[tuple[bool, float]]()
    for k in range(updates):
        if k % 20 == 0:
            process = random_process(rng)
            parent = policy_near(np.full((STATES, 2), 0.5), 0.5, rng)
        data = recorded(process, parent, EPISODES, rng)
        candidate = policy_near(parent, 0.7, rng)
        model = process.q(parent) + 0.3 * rng.normal(size=(HORIZON, STATES, 2))  # a fitted Q is never right
        judged = [estimated(data, policy, model, "doubly_robust", True) for policy in (candidate, parent)]
        accepted = gate(judged[0], judged[1], confidence).accepted
        out.append((accepted, process.value(candidate) - process.value(parent)))
        parent = candidate if accepted else parent
    return out


def gate_rows(updates: int) -> list[Row]:
    """The gate at 95 % for all updates together: none that it accepts is worse. And at 95 % for each."""
    together = gated_updates(updates, share_of(CONFIDENCE, updates))
    each = gated_updates(updates, CONFIDENCE, seed=1)
    worse, accepted = sum(ok and change < 0 for ok, change in each), sum(ok for ok, _ in each)
    bad = sum(change < 0 for _, change in each)
    allowed = float(np.floor(bad * (1 - CONFIDENCE) + 2.0 * np.sqrt(bad * CONFIDENCE * (1 - CONFIDENCE))))
    return [
        none_of("ope.gate.accepted_and_worse", sum(ok and change < 0 for ok, change in together),
                f"{updates} updates, confidence {CONFIDENCE} of all together"),
        Row("ope.gate.accepted", float(sum(ok for ok, _ in together)), "1",
            peer=f"of {sum(change > 0 for _, change in together)} better ones"),
        Row("ope.gate.each.accepted_and_worse", float(worse), "1", f"<= {allowed:g}",
            f"{bad} worse candidates, confidence {CONFIDENCE} of each: 5 % of them, and two deviations",
            worse <= allowed),
        Row("ope.gate.each.accepted", float(accepted), "1", peer=f"of {len(each) - bad} better ones"),
    ]


def coverage_rows(repeats: int) -> list[Row]:
    """How often the 95 % interval holds the true value, by estimator, and the rank correlation of 12 policies."""
    rng, names = np.random.default_rng(2), [(name, weighted) for name in ESTIMATORS for weighted in (False, True)]
    covered, ranked = {n: list[bool]() for n in names}, {n: list[float]() for n in names}
    sharpe = list[float]()
    for _ in range(repeats):
        process = random_process(rng)
        made = policy_near(np.full((STATES, 2), 0.5), 0.5, rng)
        data = recorded(process, made, EPISODES, rng)
        policies = [made, *(policy_near(made, 0.8, rng) for _ in range(POLICIES - 1))]
        true = np.array([process.value(policy) for policy in policies])
        model = process.q(made) + 0.3 * rng.normal(size=(HORIZON, STATES, 2))
        for name, weighted in names:
            found = np.array([ESTIMATORS[name](data.logged(p, model), weighted).shares().mean() for p in policies])
            low, high = estimated(data, policies[1], model, name, weighted).interval(CONFIDENCE)
            covered[name, weighted].append(bool(low <= true[1] <= high))
            ranked[name, weighted].append(rank_correlation(found, true))
        sharpe.append(sharpe_ratio_at_k(found, true, true[0], 4))
    out = [row for name, weighted in names for row in _rows_of(
        f"ope.{'weighted_' * weighted}{name}", covered[name, weighted], ranked[name, weighted])]
    return [*out, Row("ope.weighted_doubly_robust.sharpe_ratio_at_4", float(np.median(sharpe)), "1", peer="median")]


def _rows_of(key: str, covered: list[bool], ranked: list[float]) -> list[Row]:
    """Of one estimator."""
    return [Row(f"{key}.coverage", float(np.mean(covered)), "1", peer=f"{len(covered)} processes; stated {CONFIDENCE}"),
            Row(f"{key}.rank_correlation", float(np.mean(ranked)), "1", peer=f"{POLICIES} policies")]


def rows(quick: bool, out: Path) -> list[Row]:
    """Gated updates, coverage, rank correlation."""
    return [*gate_rows(UPDATES), *coverage_rows(20 if quick else 200)]
