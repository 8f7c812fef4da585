"""How fast setpoints may move: near the ends of the joints' ranges, and what is learned through it."""

from __future__ import annotations

import pytest
import torch

from temporeal.robots.franka.spec import motion
from temporeal.sim.task_parts.arms.arm import SHARE_OF_LIMITS
from temporeal.sim.task_parts.setpoint_limits import Limiter

DT = 0.04
LIMITER = Limiter(motion(SHARE_OF_LIMITS), DT)
STILL = torch.zeros(1, 7)


@pytest.mark.parametrize("sign", (-1.0, 1.0))
@pytest.mark.parametrize("room", (-1e-3, 0.0, 1e-9, 1e-6, 1e-3, 0.5))
def test_the_gradient_is_finite_however_near_an_end_is(sign: float, room: float) -> None:
    end = LIMITER.high if sign > 0 else LIMITER.low
    at = (end - sign * room)[None].requires_grad_()
    wanted = (sign * LIMITER.longest)[None].requires_grad_()
    step = LIMITER(at, sign * 0.5 * LIMITER.longest[None], wanted)
    assert all(bool(torch.isfinite(x).all()) for x in (step, *torch.autograd.grad(step.sum(), (at, wanted))))


def test_there_is_no_step_towards_an_end_that_is_reached() -> None:
    room = torch.tensor([-0.1, -1e-9, 0.0, 1e-12, 1e-9])
    assert all(bool((LIMITER.within(torch.full((1, 7), float(r))) == 0).all()) for r in room)


@pytest.mark.parametrize("sign", (-1.0, 1.0))
def test_setpoints_that_are_driven_at_an_end_come_to_rest_within_it(sign: float) -> None:
    end = LIMITER.high if sign > 0 else LIMITER.low
    at, last = (end - sign * 0.3)[None], STILL
    for _ in range(100):
        last = LIMITER(at, last, (sign * LIMITER.longest)[None])
        at = at + last
    assert bool((sign * (end - at) >= -1e-6).all())
    torch.testing.assert_close(at, (end - sign * LIMITER.brake / 8)[None], atol=2e-3, rtol=0.0)
    assert float(last.abs().max()) < 1e-3
