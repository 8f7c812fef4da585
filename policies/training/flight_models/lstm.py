"""An LSTM as a baseline: what a network without physics learns of the same flights.

It is told velocity and gravity's direction in body axes, body rates, specific force, what the motors were told and the
battery's voltage (what logs hold of these), remembers (Hochreiter and Schmidhuber, Neural Computation 9(8), 1997), and
says specific force and angular acceleration, which are integrated as the simulator does. Its memory is filled by what
was measured in the fifth of a second before a stretch. Along it, it is told commands and voltage, as the simulator is;
of motion, specific force among it, it knows what it said itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from temporeal.policies.training.flight_models import rollout
from temporeal.policies.training.flight_models.descent import Descent, descend
from temporeal.policies.training.flight_models.rollout import Flights, State
from temporeal.sim.identification.record import FlightRecord, Numbers
from temporeal.sim.identification.shooting import FORCE, QUAT, RATES, VELOCITY
from temporeal.sim.identification.validation.stretches import Predictor, Stretches, Told, stretches, told_by
from temporeal.sim.physics.quadrotor.dynamics import GRAVITY

BEFORE_S, HORIZON_S, HIDDEN = 0.2, 0.5, 32
SPREAD = torch.tensor([2.0, 2.0, 3.0, 20.0, 20.0, 5.0])
"""Of what it says, in m/s^2 and rad/s^2: a scale, which the last layer changes."""


class Lstm(torch.nn.Module):
    """From what is seen and told [S, I] to accelerations [S, 6]; ``force``: specific force is among it."""

    def __init__(self, mean: Tensor, scale: Tensor, seed: int, force: bool) -> None:
        super().__init__()
        self.mean, self.scale, self.force = mean, scale, force
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.cell = torch.nn.LSTMCell(len(mean), HIDDEN)
            self.out = torch.nn.Linear(HIDDEN, 6)
        torch.nn.init.zeros_(self.out.bias)
        with torch.no_grad():
            self.out.weight.mul_(0.1)

    def step(self, seen: Tensor, memory: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """What it says, and its memory."""
        found = self.cell((seen - self.mean) / self.scale, memory)
        out = self.out(found[0]) * SPREAD
        return out + torch.tensor([0.0, 0.0, GRAVITY, 0.0, 0.0, 0.0]), found

    def model(self, which: Flights) -> tuple[rollout.Model, object]:
        """Its flight along stretches, and its memory at their start."""
        memory = None
        for k in range(which.before):
            memory = self.step(told(which.measured[:, k], which.commands[:, k], self.force), memory)[1]

        def accelerations(k: int, state: State, through: Tensor, memory: object) -> tuple[Tensor, Tensor, object]:
            seen = [through[0], state.rates[0], gravity(state.quat[0])]
            if self.force:
                seen.append(which.measured[:, which.before, FORCE] if state.force is None else state.force[0])
            told = torch.cat([*seen, which.commands[:, which.before + k]], -1)
            out, memory = self.step(told, memory)  # type: ignore[arg-type]
            return out[None, :, :3], out[None, :, 3:], memory

        return accelerations, memory


def gravity(quat: Tensor) -> Tensor:
    """Where up is in body axes."""
    up = torch.zeros_like(quat[..., 1:])
    up[..., 2] = 1.0
    return rollout.rotate(rollout.conjugate(quat), up)


def told(measured: Tensor, command: Tensor, force: bool) -> Tensor:
    """[S, I] what the network is told of measured rows [S, 16]."""
    quat = measured[..., QUAT]
    through = rollout.rotate(rollout.conjugate(quat), measured[..., VELOCITY])
    felt = [measured[..., FORCE]] if force else []
    return torch.cat([through, measured[..., RATES], gravity(quat), *felt, command], -1)


def trained(records: Sequence[FlightRecord], descent: Descent | None = None, given: Told | None = None) -> Predictor:
    """An LSTM of the flights ``records``, as one who predicts; ``given``: what it is told, by default all that these
    tell."""
    given = given or told_by(records)
    if why := rollout.needs_pose(records):
        raise ValueError(f"an LSTM needs motion capture: {why}")
    where = [stretches(each, HORIZON_S, HORIZON_S / 4) for each in records]
    before = int(round(BEFORE_S / where[0].dt))
    data, none = rollout.flights(where, before, given.voltage), torch.zeros(3)
    seen = told(data.measured[:, :-1], data.commands, given.force).flatten(0, 1)
    net = Lstm(seen.mean(0), seen.std(0) + 1e-3, (descent or Descent()).seed, given.force)
    first = data.measured[:, before : before + 1]
    still = torch.cat([first[..., :9], first[..., QUAT], first[..., 13:]], -1).expand(
        -1, data.measured.shape[1] - before - 1, -1)
    scale = rollout.scales(held(still, data))

    def loss(which: Flights) -> Tensor:
        model, memory = net.model(which)
        error = rollout.errors(rollout.flown(which, model, 1, none, memory), which, none)
        return rollout.losses(torch.cat([error[..., :12], torch.zeros_like(error[..., 12:])], -1), scale)

    descend(list(net.parameters()), loss, data, 1, descent or Descent())

    def predict(stretch: Stretches) -> Numbers:
        with torch.no_grad():
            which = rollout.whole(stretch, before, given.voltage)
            model, memory = net.model(which)
            return rollout.rows_of(rollout.flown(which, model, 1, none, memory), none)

    return predict


def held(still: Tensor, which: Flights) -> Tensor:
    """Errors [1, S, L, 15] of staying at rest at the start's state ``still`` [S, L, 16]."""
    states = [State(*(still[None, :, k, place] for place in (rollout.POSITION, QUAT, VELOCITY, RATES)))
              for k in range(still.shape[1])]
    return rollout.errors(states, which, torch.zeros(3))
