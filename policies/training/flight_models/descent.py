"""Adam with early stopping on held-out blocks, for models of flights: each member keeps where it was best."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from temporeal.policies.training.flight_models.rollout import Flights

EVERY, PATIENCE = 20, 8
"""Updates between looks at what is held out, and looks without a better one after which it ends."""
GREATEST_NORM = 10.0


@dataclass(frozen=True)
class Descent:
    """Of a training. updates: with which its rate falls, so that the same data give the same model; about 50 s of a
    core. seconds: of processor time, an emergency stop: a model that it ends says so and is not reproducible."""

    updates: int = 600
    batch: int = 96
    rate: float = 4e-3
    seconds: float = 600.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.updates < 0 or self.batch < 1 or not self.rate > 0 or not self.seconds > 0:
            raise ValueError(f"updates {self.updates}, batch {self.batch}, rate {self.rate}, seconds {self.seconds}: "
                             "no update at least, a batch of one, and more than 0")


@dataclass(frozen=True)
class Found:
    """Held-out losses [M] before and at the best, and updates that were made."""

    before: Tensor
    after: Tensor
    updates: int


def both(data: Flights) -> tuple[Flights, Flights]:
    """What is trained on, and what is held out; neither is empty."""
    train, held = data.of(~data.held_out), data.of(data.held_out)
    if not len(train.block) or not len(held.block):
        raise ValueError(f"too few flights to train on and to hold out: {len(data.block)} stretches of "
                         f"{(data.measured.shape[1] - data.before - 1) * data.dt:.2g} s; 20 s at least are needed")
    return train, held


def descend(parameters: Sequence[Tensor], loss: Callable[[Flights], Tensor], data: Flights, members: int,
            how: Descent) -> Found:
    """Lower ``loss`` (of M members, [M, S]) of ``data``; parameters [M, ...] (of one member: of any shape) end where
    held-out blocks were best.

    Each member sees blocks of its own: block b of M members counts as often as a Poisson draw says (bootstrap).
    """
    generator = torch.Generator().manual_seed(how.seed)
    train, held = both(data)
    count = torch.poisson(torch.ones(members, int(data.block.max()) + 1), generator=generator)
    if members == 1:
        count = torch.ones_like(count)
    optimizer = torch.optim.Adam(parameters, lr=how.rate)
    best, kept, last, begin = None, [p.detach().clone() for p in parameters], 0, time.process_time()
    before = torch.zeros(members)
    for update in range(how.updates + 1):
        stopped = update < how.updates and time.process_time() - begin > how.seconds
        late = stopped or update == how.updates
        if update % EVERY == 0 or late:
            with torch.no_grad():
                now = torch.nan_to_num(loss(held).mean(1), nan=math.inf)
            before = now if best is None else before
            better = now < best if best is not None else torch.ones(members, dtype=torch.bool)
            best = now if best is None else torch.minimum(best, now)
            for keep, parameter in zip(kept, parameters):
                if members == 1:
                    keep.copy_(parameter.detach() if better.all() else keep)
                else:
                    keep[better] = parameter.detach()[better]
            last = update if better.any() else last
            if late or update - last >= EVERY * PATIENCE:
                break
        for group in optimizer.param_groups:
            group["lr"] = how.rate * 0.5 * (1 + math.cos(math.pi * update / how.updates))
        which = torch.randint(len(train.block), (how.batch,), generator=generator)
        batch = train.of(which)
        optimizer.zero_grad()
        found = (loss(batch) * count[:, batch.block]).mean(1).sum()
        found.backward()
        torch.nn.utils.clip_grad_norm_(parameters, GREATEST_NORM)
        optimizer.step()
    if stopped:
        warnings.warn(f"learning was stopped after {how.seconds:g} s of processor time, {update} of {how.updates} "
                      "updates: elsewhere it would find another model", stacklevel=2)
    with torch.no_grad():
        for keep, parameter in zip(kept, parameters):
            parameter.copy_(keep)
    assert best is not None
    return Found(before, best, update)
