"""Whether a policy stays where the data are: fitted values say nothing of actions that nobody took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.evaluate.ope.behaviour import MixtureDensity
from temporeal.policies.evaluate.ope.estimates import Estimate

RARE = 0.01  # of the data's own actions are less likely than what counts as inside
MOST_OUTSIDE = 0.05  # of the states: above, an estimate that extrapolates says nothing
STATES = 20_000  # that are looked at, at most


@torch.no_grad()
def share_outside(density: MixtureDensity, data: Transitions, policy: Callable[[Tensor], Tensor]) -> float:
    """Share of the data's states where the policy's action is less likely, by the ``density`` of the data's policy,
    than all but :data:`RARE` of the data's own actions: :data:`RARE` for a sample of the data's own policy."""
    rows = torch.linspace(0, data.steps - 1, min(data.steps, STATES)).long()
    obs = data.obs[rows]
    own, judged = density(obs, data.action[rows]), density(obs, policy(obs))
    return float((judged < own.quantile(RARE)).float().mean())


def refused_outside(estimate: Estimate, outside: float, least: float, most: float) -> Estimate:
    """``estimate`` by a model that extrapolates: where the policy leaves the data, its interval is all that is
    possible, from ``least`` to ``most``."""
    if outside <= MOST_OUTSIDE:
        return replace(estimate, outside=outside)
    return replace(estimate, outside=outside, below=max(estimate.value - least, 0.0),
                   above=max(most - estimate.value, 0.0))
