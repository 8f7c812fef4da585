"""The gate of an offline iteration: off-policy evaluation of a chunk policy's decisions on recorded episodes.

Judged is P(success) of the deployed policy, by fitted Q evaluation of its decisions. The candidate replaces its parent
if it is not worse by more than a margin, with a confidence that all comparisons of a run share (Bonferroni). Where its
chunks leave the data the estimate extrapolates, and it is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from temporeal.policies.data.transitions import Transitions
    from temporeal.policies.denoising_rl.improvement import Decide, OfflineRL100Config
    from temporeal.policies.evaluate.ope.estimates import Estimate
    from temporeal.policies.evaluate.ope.evaluator import Evaluator
    from temporeal.policies.evaluate.ope.gate import Verdict

ESTIMATOR = "fqe"


@dataclass
class FittedGate:
    """A :data:`temporeal.policies.denoising_rl.improvement.Gate` of the run with these settings and this seed.

    Attributes:
        accepted: the estimate of the last policy that was let through; None: nobody was.
        verdicts: all so far, of this process.
    """

    config: OfflineRL100Config
    seed: int
    evaluator: Evaluator | None = None
    accepted: Estimate | None = None
    verdicts: list[Verdict] = field(default_factory=list)

    def __call__(self, data: Transitions, candidate: Decide, parent: Decide) -> Verdict:
        """Whether ``candidate`` may replace ``parent``, by the decisions ``data``."""
        from temporeal.policies.evaluate.ope.gate import gate, share_of

        if self.evaluator is None:
            self.evaluator = evaluator_of(data, self.config, self.seed)
        before = self.accepted or self.evaluator.estimate(parent, ESTIMATOR)
        now = self.evaluator.estimate(candidate, ESTIMATOR)
        found = gate(now, before, share_of(self.config.confidence, self.config.gates), least=-self.config.margin)
        self.accepted = now if found.accepted else before
        self.verdicts.append(found)
        return found


def evaluator_of(data: Transitions, config: OfflineRL100Config, seed: int) -> Evaluator:
    """What estimates P(success) from ``data``."""
    from temporeal.policies.evaluate.ope.evaluator import Evaluator, OPEConfig
    from temporeal.policies.evaluate.ope.fitted import FQEConfig
    from temporeal.policies.evaluate.ope.judged_data import satisfied

    fqe = FQEConfig(updates=config.fqe_updates, warm_up=min(FQEConfig.warm_up, config.fqe_updates // 3))
    return Evaluator(satisfied(data), OPEConfig(seed=seed, least=0.0, most=1.0, fqe=fqe))
