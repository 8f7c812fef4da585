"""All estimators on one dataset: what a policy would earn, from episodes that another one made. M steps, E episodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.evaluate.ope import behaviour, fitted, imagined, importance, model_based
from temporeal.policies.evaluate.ope.estimates import Estimate, Weighted
from temporeal.policies.evaluate.ope.formula_on_steps import FormulaOnSteps
from temporeal.policies.evaluate.ope.judged_data import closed, returns, with_time
from temporeal.policies.evaluate.ope.members import Resamples
from temporeal.policies.evaluate.ope.support import refused_outside, share_outside

Policy = Callable[[Tensor], Tensor]
WEIGHTED = {"is": ("trajectory", False), "wis": ("trajectory", True), "pdis": ("per_decision", False),
            "wpdis": ("per_decision", True), "dr": ("doubly_robust", False), "wdr": ("doubly_robust", True)}
"""Importance sampling: trajectory-wise, per-decision, doubly robust; w: self-normalized."""
ESTIMATORS = ("fqe", "model", *WEIGHTED)


@dataclass(frozen=True)
class OPEConfig:
    """Settings of all estimators.

    Args:
        discount: gamma; 1: the return of an episode as it is.
        std: noise that gives a deterministic policy a density, in units of actions: its estimate by importance
            sampling is that of the noisy policy. Wider: less variance, more bias.
        least, most: bounds of a return; 0 and 1 for P(satisfied).
    """

    discount: float = 1.0
    std: float = 0.1
    seed: int = 0
    least: float = float("-inf")
    most: float = float("inf")
    fqe: fitted.FQEConfig = field(default_factory=fitted.FQEConfig)
    model: model_based.ModelConfig = field(default_factory=model_based.ModelConfig)
    behaviour: behaviour.BehaviourConfig = field(default_factory=behaviour.BehaviourConfig)


class Evaluator:
    """Estimates from ``data``, whose rewards are what is judged.

    Each episode counts to its last step; time is shown to fitted models. Estimates of one evaluator are paired: their
    differences are on the same resampled episodes.

    Args:
        log_density: [M], of the policy that made the data, of its actions; None: it is cloned when first needed.
        formula: whose satisfaction the rewards say: estimator ``model`` then judges imagined episodes by it.
    """

    def __init__(
        self, data: Transitions, config: OPEConfig, log_density: np.ndarray | None = None,
        formula: FormulaOnSteps | None = None,
    ) -> None:
        self.plain, self.config, self.formula = closed(data), config, formula
        self.data = with_time(self.plain)
        self._given = log_density
        self._fitted: tuple[Policy, fitted.Fitted] | None = None

    def of_the_data(self, name: str = "is") -> Estimate:
        """The value of the policy that made the data, its mean return; paired with estimates by estimator ``name``."""
        earned, seed = returns(self.plain, self.config.discount), self.config.seed
        if name in WEIGHTED:
            return Weighted(earned[:, None], np.ones((len(earned), 1)), np.zeros(len(earned))).estimate(seed=seed)
        members = self.config.fqe.members if name == "fqe" else self.config.model.members
        draws = Resamples(self.plain, members, seed).averages(torch.from_numpy(earned))
        return Estimate(float(draws.mean()), earned, draws, float(len(earned)), independent=True)

    def estimate(self, policy: Policy, name: str) -> Estimate:
        """The value of ``policy``, observations [..., O] of the data to actions [..., A], by estimator ``name``."""
        if name == "fqe":
            return refused_outside(self.fit(policy).estimate(), self.outside(policy), self.config.least,
                                   self.config.most)
        if name == "model" and self.formula is not None:
            return self._imagination.estimate(policy, self.plain, self._model_config, self.config.seed)
        if name == "model":
            model, resamples = self._models
            return model_based.evaluate(model, resamples, self.data, self._shown(policy), self._model_config,
                                        self.config.seed)
        if name in WEIGHTED:
            return self.weighted(policy, *WEIGHTED[name]).estimate(seed=self.config.seed)
        raise ValueError(f"estimator {name!r} is unknown; legal: {', '.join(ESTIMATORS)}")

    def weighted(self, policy: Policy, kind: str, normalized: bool) -> Weighted:
        """The sums of an importance-sampling estimator."""
        starts = self.data.starts.numpy()
        with torch.no_grad():
            judged = behaviour.gaussian_log_density(policy(self.plain.obs), self.config.std, self.plain.action)
        ratio = importance.padded(judged.double().numpy() - self.log_density, starts)
        q, v = self.fit(policy).tables(self.config.std) if kind == "doubly_robust" else (None, None)
        reward = importance.padded(self.plain.reward.double().numpy(), starts)
        return importance.ESTIMATORS[kind](importance.Logged(ratio, reward, self.config.discount, q, v), normalized)

    def fit(self, policy: Policy) -> fitted.Fitted:
        """The fitted Q of ``policy``; that of the last policy is kept for the other estimators that use it."""
        if self._fitted is None or self._fitted[0] is not policy:
            config = replace(self.config.fqe, discount=self.config.discount, least=self.config.least,
                             most=self.config.most)
            self._fitted = policy, fitted.fit(self.data, self._shown(policy), config, self.config.seed)
        return self._fitted[1]

    @cached_property
    def log_density(self) -> np.ndarray:
        """[M], of the data's actions under the policy that made them."""
        if self._given is not None:
            return np.asarray(self._given, dtype=np.float64)
        density = self._cloned
        with torch.no_grad():
            return density(self.plain.obs, self.plain.action).double().numpy()

    def outside(self, policy: Policy) -> float:
        """Share of the data's states where ``policy`` leaves the data's actions."""
        return share_outside(self._cloned, self.plain, policy)

    @cached_property
    def _cloned(self) -> behaviour.MixtureDensity:
        return behaviour.clone(self.plain, self.config.behaviour, self.config.seed)

    @cached_property
    def _imagination(self) -> imagined.Imagination:
        assert self.formula is not None
        return imagined.fit(self.plain, self.formula, self._model_config, self.config.seed)

    @property
    def _model_config(self) -> model_based.ModelConfig:
        return replace(self.config.model, discount=self.config.discount, least=self.config.least,
                       most=self.config.most)

    @cached_property
    def _models(self) -> tuple[model_based.Dynamics, Resamples]:
        return model_based.fit(self.data, self._model_config, self.config.seed)

    def _shown(self, policy: Policy) -> Policy:
        """``policy`` of observations that have the time behind them."""
        return lambda obs: policy(obs[..., :-1])
