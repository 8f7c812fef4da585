"""Imagined episodes that a formula judges, and the support of a policy, on a known world: its action moves a point,
which shall come near the origin."""

import numpy as np
import pytest
import torch

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.evaluate.ope import behaviour, fitted, model_based
from temporeal.policies.evaluate.ope.evaluator import Evaluator, OPEConfig
from temporeal.policies.evaluate.ope.formula_on_steps import FormulaOnSteps, unit_of
from temporeal.policies.evaluate.ope.gate import gate
from temporeal.policies.evaluate.ope.judged_data import satisfied
from temporeal.policies.evaluate.ope.support import MOST_OUTSIDE

EPISODES, STEPS, NEAR = 80, 20, 0.2


def recorded() -> tuple[Transitions, torch.Tensor]:
    """A third each goes to the origin, stays, and leaves; all with noise."""
    generator = torch.Generator().manual_seed(0)
    x, gain = torch.rand(EPISODES, 1, generator=generator) + 1.0, torch.tensor([-0.6, 0.0, 0.3])
    at, taken = [x], []
    for _ in range(STEPS):
        action = gain[torch.arange(EPISODES) % 3, None] * x.sign() + 0.2 * torch.randn(x.shape, generator=generator)
        taken.append(action.clamp(-1.0, 1.0))
        at.append(x := x + 0.2 * taken[-1])
    obs, action = torch.stack(at, 1), torch.stack(taken, 1).flatten(0, 1)  # [E, S, 1]
    starts = torch.arange(0, EPISODES * STEPS + 1, STEPS)
    success = (obs[:, :, 0].abs().amin(1) < NEAR).float()
    steps = EPISODES * STEPS
    data = Transitions(obs[:, :-1].flatten(0, 1), action, torch.zeros(steps), obs[:, 1:].flatten(0, 1),
                       torch.ones(steps), torch.arange(EPISODES).repeat_interleave(STEPS), starts, success=success)
    return data, NEAR - data.obs.abs()


def evaluator() -> Evaluator:
    data, margin = recorded()
    formula = FormulaOnSteps(margin / (margin.abs() + unit_of(margin.numpy())), lambda m: m[..., 0].max(0))
    config = OPEConfig(
        least=0.0, most=1.0, fqe=fitted.FQEConfig(members=3, updates=40, warm_up=20, hidden=(16,)),
        model=model_based.ModelConfig(members=3, updates=250, hidden=(32,), learning_rate=5e-3),
        behaviour=behaviour.BehaviourConfig(updates=150, hidden=(16,)))
    return Evaluator(satisfied(data), config, formula=formula)


def homing(obs: torch.Tensor) -> torch.Tensor:
    return -0.6 * obs.sign()


def leaving(obs: torch.Tensor) -> torch.Tensor:
    return obs.sign()


def test_imagined_episodes_are_judged_by_the_formula_and_fqe_is_refused_outside() -> None:
    judge = evaluator()
    good, bad = judge.estimate(homing, "model"), judge.estimate(leaving, "model")
    assert good.value > 0.9
    assert bad.value < 0.05
    assert bad.interval()[1] < 0.3
    assert gate(good, judge.of_the_data("model")).accepted
    assert not gate(bad, judge.of_the_data("model")).accepted
    assert judge.outside(leaving) > MOST_OUTSIDE
    far = judge.estimate(leaving, "fqe")
    assert far.interval()[0] <= 0.0
    assert far.interval()[1] >= 1.0
    assert "leaves the data" in gate(far, judge.of_the_data("fqe")).why


@pytest.mark.parametrize(("margin", "unit"), [([-3.0, -2.0, -1.0, 0.1, 0.3], 0.2), ([1.0, 2.0, 3.0, 4.0], 2.5)])
def test_margins_are_squashed_on_the_scale_of_the_rarer_sign(margin: list[float], unit: float) -> None:
    assert unit_of(np.array(margin)) == pytest.approx(unit)
