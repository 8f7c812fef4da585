"""The gate of an offline iteration: off-policy evaluation of a chunk policy's decisions on recorded episodes.

Judged is P(success) of the deployed policy, by fitted Q evaluation of its decisions. The candidate replaces its parent
if it is not worse by more than a margin, neither than the parent nor than the policy that the stage began with: else
small losses would add up. All comparisons of a run share its confidence (Bonferroni). Where its
chunks leave the data the estimate extrapolates, and it is refused: in more than 5 % of the states, or, where its parent
leaves them in more (a chunk has many numbers, and a clone of few episodes is seldom where the data are), in 1 % more
than that one does.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from temporeal.policies.data.transitions import Transitions
    from temporeal.policies.denoising_rl.improvement import Decide, OfflineRL100Config
    from temporeal.policies.evaluate.ope.estimates import Estimate
    from temporeal.policies.evaluate.ope.evaluator import Evaluator
    from temporeal.policies.evaluate.ope.gate import Verdict


@dataclass
class FittedGate:
    """A :data:`temporeal.policies.denoising_rl.improvement.Gate` of the run with these settings and this seed.

    Attributes:
        began: the estimate of the policy that the stage began with.
        accepted: of the last policy that was let through, the estimate and the share of the states where it leaves the
            data; None: nobody was.
        verdicts: all so far, of this process.
    """

    config: OfflineRL100Config
    seed: int
    evaluator: Evaluator | None = None
    began: Estimate | None = None
    accepted: tuple[Estimate, float] | None = None
    verdicts: list[Verdict] = field(default_factory=list)

    def __call__(self, data: Transitions, candidate: Decide, parent: Decide) -> Verdict:
        """Whether ``candidate`` may replace ``parent``, by the decisions ``data``."""
        from temporeal.policies.evaluate.ope.gate import gate, share_of

        if self.evaluator is None:
            self.evaluator = evaluator_of(data, self.config, self.seed)
        before = self.accepted or estimated(self.evaluator, parent)
        self.began = self.began or before[0]
        now = estimated(self.evaluator, candidate)
        share = share_of(self.config.confidence, 2 * self.config.gates)
        found = gate(now[0], before[0], share, least=-self.config.margin)
        if found.accepted and before[0] is not self.began:
            overall = gate(now[0], self.began, share, least=-self.config.margin)
            found = found if overall.accepted else replace(overall, why=f"since the stage began: {overall.why}")
        found = within(found, now[1], before[1])
        self.accepted = now if found.accepted else before
        self.verdicts.append(found)
        return found


def estimated(evaluator: Evaluator, policy: Decide) -> tuple[Estimate, float]:
    """The estimate of a policy, and the share of the data's states where it leaves the data."""
    return evaluator.fit(policy).estimate(), evaluator.outside(policy)


def within(verdict: Verdict, share: float, parents: float) -> Verdict:
    """``verdict``, refused where the candidate leaves the data more than it may."""
    from temporeal.policies.evaluate.ope.support import MOST_OUTSIDE, RARE

    if share <= max(MOST_OUTSIDE, parents + RARE):
        return verdict
    return replace(verdict, accepted=False, why=(
        f"its chunks leave the data in {share:.1%} of the states, and {MOST_OUTSIDE:.0%}, or {RARE:.0%} more than "
        f"those of its parent ({parents:.1%}), are the most: what is estimated there is extrapolated; record "
        "more, or take smaller steps (algo.noise, algo.gate_rounds)"))


def evaluator_of(data: Transitions, config: OfflineRL100Config, seed: int) -> Evaluator:
    """What estimates P(success) from ``data``."""
    from temporeal.policies.evaluate.ope.evaluator import Evaluator, OPEConfig
    from temporeal.policies.evaluate.ope.fitted import FQEConfig
    from temporeal.policies.evaluate.ope.judged_data import satisfied

    fqe = FQEConfig(updates=config.fqe_updates, warm_up=min(FQEConfig.warm_up, config.fqe_updates // 3))
    return Evaluator(satisfied(data), OPEConfig(seed=seed, least=0.0, most=1.0, fqe=fqe))
