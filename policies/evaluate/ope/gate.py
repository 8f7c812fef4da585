"""The gate before an update: a policy replaces its parent only if its estimate is better with stated confidence."""

from __future__ import annotations

from dataclasses import dataclass

from temporeal.policies.evaluate.ope.estimates import Estimate, lower_bound
from temporeal.policies.evaluate.ope.support import MOST_OUTSIDE

LEAST_EFFECTIVE = 10.0  # episodes: below, the sampled weights say nothing of the tail that decides


@dataclass(frozen=True)
class Verdict:
    """What the gate says.

    Args:
        accepted: the update goes through.
        difference: estimate of the candidate minus that of the parent.
        lower: what the true difference exceeds with ``confidence``.
        confidence: of this one update.
        why: in words.
    """

    accepted: bool
    difference: float
    lower: float
    confidence: float
    why: str


def share_of(confidence: float, updates: int) -> float:
    """The confidence of each of ``updates`` decisions such that all together hold with ``confidence`` (Bonferroni)."""
    if updates < 1:
        raise ValueError(f"updates is at least 1, got {updates}")
    return 1.0 - (1.0 - confidence) / updates


def gate(
    candidate: Estimate, parent: Estimate, confidence: float = 0.95, *, rule: str = "t", spread: float | None = None,
    least: float = 0.0,
) -> Verdict:
    """Accept ``candidate`` if it exceeds ``parent`` by more than ``least`` with ``confidence``, one-sided.

    Both are estimated on the same episodes with the same seed: what they share cancels.

    Args:
        rule, spread: of :func:`~temporeal.policies.evaluate.ope.estimates.lower_bound`.
        least: improvement that is demanded.
    """
    change = candidate.minus(parent)
    lower = lower_bound(change, confidence, rule, spread)
    if change.effective < LEAST_EFFECTIVE:
        return Verdict(False, change.value, lower, confidence,
                       f"the data say too little: {change.effective:.1f} effective episodes, {LEAST_EFFECTIVE:g} are "
                       "needed; record more, or with a policy nearer to the candidate")
    if change.outside > MOST_OUTSIDE:
        return Verdict(False, change.value, lower, confidence,
                       f"the policy leaves the data in {change.outside:.0%} of their states, and {MOST_OUTSIDE:.0%} "
                       "are the most that an estimate by extrapolation is allowed; record more, or ask --estimators "
                       "model")
    accepted = lower > least
    said = "more" if accepted else "not more"
    return Verdict(accepted, change.value, lower, confidence,
                   f"the improvement is estimated {change.value:+.4g} and exceeds {lower:+.4g} with {confidence:.4g}: "
                   f"{said} than {least:g}")
