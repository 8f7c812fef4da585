"""How fast setpoints may move: speed, change of speed, and braking in time before the ends of the joints' ranges."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from temporeal.robots.spec import MotionLimits


class Limiter(nn.Module):
    """Steps of setpoints that a robot accepts, one setpoint per ``dt``, for J joints.

    A step is at most ``speed * dt``, differs from the last one by at most ``acceleration * dt**2``, and is so short
    that braking at ``brake`` comes to rest within ``low`` and ``high``: a step d leaves enough room r if
    (d + b/2)^2 <= 2 b r with b = brake * dt^2, and then there is always a next step that keeps all three. As control
    points of a uniform cubic B-spline the setpoints keep the same limits in between, with a jerk of at most
    2 acceleration / dt: each of its derivatives lies within the differences of the points.

    Args:
        limits: rad, rad/s, rad/s^2. ``dt``: s.
    """

    def __init__(self, limits: MotionLimits, dt: float) -> None:
        super().__init__()
        self.dt = dt
        rows = {"longest": [v * dt for v in limits.speed], "change": [a * dt**2 for a in limits.acceleration],
                "brake": [a * dt**2 for a in limits.brake], "low": limits.low, "high": limits.high}
        for name, value in rows.items():
            self.register_buffer(name, torch.tensor(value, dtype=torch.float32))
        self.longest: Tensor
        self.change: Tensor
        self.brake: Tensor
        self.low: Tensor
        self.high: Tensor

    def forward(
        self, at: Tensor, last: Tensor, wanted: Tensor, bounds: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """The step [N, J] from ``at`` that is nearest to ``wanted`` after the step ``last``, [N, J] each, rad.

        Where a step or a change is too long, those of all joints are shortened alike: the direction stays. ``bounds``:
        the least and the greatest step [N, J], kept where the change of the step allows it.
        """
        wanted = shortened(wanted, self.longest)
        step = last + shortened(wanted - last, self.change)
        if bounds is not None:
            low, high = (torch.minimum(torch.maximum(b, last - self.change), last + self.change) for b in bounds)
            step = torch.minimum(torch.maximum(step, low), high)
            step = torch.minimum(torch.maximum(step, -self.longest), self.longest)
        return torch.minimum(torch.maximum(step, -self.within(at - self.low)), self.within(self.high - at))

    def within(self, room: Tensor) -> Tensor:
        """The longest step [N, J] towards an end that is ``room`` [N, J] rad away."""
        room = room.clamp(min=1e-12)  # no step either; the gradient of a root at 0 is not a number
        return ((2 * self.brake * room).sqrt() - 0.5 * self.brake).clamp(min=0.0)


def shortened(vector: Tensor, longest: Tensor) -> Tensor:
    """``vector`` [N, J], shortened until no component is longer than ``longest`` [J]."""
    return vector / (vector.abs() / longest).max(-1, keepdim=True).values.clamp(min=1.0)
