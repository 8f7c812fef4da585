"""Follows programs: of N worlds each has its own itinerary as data (:mod:`temporeal.sim.stl.itineraries.program`).

The same module runs in the reward, on true signals, and in the policy, on measured ones, where it is traced into the
artifact. Legs are hit in turn: a leg at the first sample of a stretch inside its place, within its window, that lasts
as long as it is to be stayed at. N worlds, L legs, K intervals that are kept; times in samples, lengths in m.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from temporeal.sim.stl.itineraries.program import BIG, KEEPS, LEG, LEGS, PARTS, SIZE

MISSION = "mission"
"""The signal that holds the program, [SIZE]."""
MEMORY: dict[str, tuple[int, ...]] = {"tick": (), "hit": (LEGS,), "held": ()}


class Stage(NamedTuple):
    """A leg as it stands now. ``distance``: to its place, signed; ``shape`` [N, 7]: center, half sides, radius."""

    shape: Tensor
    distance: Tensor  # [N]
    hold: Tensor  # [N]
    opens: Tensor  # [N] until its window opens; not positive: it is open
    spare: Tensor  # [N] until its window is over
    there: Tensor  # [N] 1 where there is such a leg


class Followed(NamedTuple):
    """Where N worlds are."""

    time: Tensor  # [N]
    current: Stage  # once all legs are hit: the last one, where the robot stays
    next: Stage  # windows as if the current leg were hit now
    held: Tensor  # [N] samples that the stretch in the current place has lasted
    hits: Tensor  # [N] legs that are hit
    legs: Tensor  # [N] legs that there are
    kept: Tensor  # [N, K, 7] center, half sides, radius
    inside: Tensor  # [N, K] 1: inside is asked for; -1: outside
    margin: Tensor  # [N, K] by how much it is kept, were it asked for
    active: Tensor  # [N, K] bool: asked for now
    then: Tensor  # [N, K] bool: asked for once the current leg is hit
    left: Tensor  # [N, K] until it is over, BIG where nobody knows
    violated: Tensor  # [N] bool: something that is asked for now is not kept
    late: Tensor  # [N] bool: the window of the current leg is over
    done: Tensor  # [N] bool: all legs are hit


class Follower(nn.Module):
    """Follows programs [N, SIZE] at points [N, 3].

    Args:
        slack: m that a point must be inside of a place to count. ``margin``: m by which what is kept must be.
    """

    memory = MEMORY

    def __init__(self, slack: float, margin: float) -> None:
        super().__init__()
        self.slack, self.margin = slack, margin
        self.register_buffer("number", torch.arange(LEGS, dtype=torch.float32))
        self.number: Tensor

    def forward(
        self, point: Tensor, program: Tensor, memory: Mapping[str, Tensor]
    ) -> tuple[Followed, dict[str, Tensor]]:
        """Where the worlds are at this sample, and the memory for the next one (zeros are the start)."""
        time, hit, parts = memory["tick"], memory["hit"], split(program)
        parts["plan"] = torch.cat([parts[name] for name in ("legs", "least", "most")], -1)  # a row of each leg
        legs = parts["legs"][..., 10].sum(-1)
        before = self.stage(point, parts, (hit > 0).float().sum(-1), hit, time)
        now, kept = self.at((hit > 0).float().sum(-1)), parts["kept"]
        inside, distance = kept[..., 7], signed_distance(point[:, None], kept[..., :7])
        broken = -inside * distance <= self.margin
        # what is kept from the hit of this leg on, if the stretch that goes on is its stay: else the stay begins anew
        asked, _ = self.asks(kept, torch.where(now > 0, 1.0 + (time - memory["held"])[:, None], hit), time)
        reached = (before.distance <= -self.slack) & (before.opens <= 0) & (before.there > 0)
        reached = reached & ~(asked & broken).any(-1)
        held = torch.where(reached, memory["held"] + 1.0, 0.0)
        begun = time - held + 1.0
        on_time = (held > 0) & (begun <= time + before.spare)
        whole = on_time & (held - 1.0 >= before.hold)
        hit = torch.where((now > 0) & whole[:, None], 1.0 + begun[:, None], hit)
        held = torch.where(whole, 0.0, held)
        count = (hit > 0).float().sum(-1)
        current = self.stage(point, parts, torch.minimum(count, legs - 1.0), hit, time)
        as_if = torch.where(self.at(count) > 0, 1.0 + time[:, None], hit)
        following = self.stage(point, parts, count + 1.0, as_if, time)
        active, left = self.asks(kept, hit, time)
        then, _ = self.asks(kept, as_if, time)
        violated = (active & broken).any(-1)
        late = (count < legs) & (current.spare < 0) & ~((held > 0) & (begun <= time + current.spare))
        followed = Followed(time, current, following, held, count, legs, kept[..., :7], inside, -inside * distance,
                            active, then, left, violated, late, count >= legs)
        return followed, {"tick": time + 1.0, "hit": hit, "held": held}

    def at(self, leg: Tensor) -> Tensor:
        """1 [N, L] at the place of ``leg`` [N], else 0."""
        return ((self.number - leg[:, None]).abs() < 0.5).float()

    def stage(
        self, point: Tensor, parts: Mapping[str, Tensor], leg: Tensor, hit: Tensor, time: Tensor
    ) -> Stage:
        """``leg`` [N], given the hits [N, L]."""
        row, least, most = row_of(parts["plan"], leg).split((LEG, LEGS, LEGS), -1)
        known = hit > 0
        low = torch.maximum(row[:, 8], torch.where(known, hit - 1.0 + least, -BIG).amax(-1))
        high = torch.minimum(row[:, 9], torch.where(known, hit - 1.0 + most, BIG).amin(-1))
        there = row[:, 10]
        away = torch.where(row[:, 11] > 0.5, -BIG, signed_distance(point, row[:, :7]))
        return Stage(row[:, :7], torch.where(there > 0.5, away, 0.0), row[:, 7], low - time, high - time, there)

    def asks(self, kept: Tensor, hit: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
        """Whether each interval asks for something now, given the hits [N, L]: bool [N, K]; and until when."""
        hits = torch.cat([torch.ones_like(hit[:, :1]), hit], -1)  # of the start, and of the legs
        first, last = (hits.gather(1, within(kept[..., place], LEGS)) for place in (9, 11))
        since = first - 1.0 + kept[..., 10]
        until = torch.where(last > 0, last - 1.0 + kept[..., 12], BIG)
        active = (kept[..., 8] > 0.5) & (first > 0) & (time[:, None] >= since) & (time[:, None] <= until)
        return active, until - time[:, None]


def split(program: Tensor) -> dict[str, Tensor]:
    """The parts of ``program`` [N, SIZE] by name."""
    found, begin = {}, 0
    for name, (a, b) in PARTS.items():
        found[name] = program[:, begin : begin + a * b].reshape(-1, a, b)
        begin += a * b
    return found


def within(place: Tensor, last: int) -> Tensor:
    """``place`` as whole numbers from 0 to ``last``."""
    return torch.where(place > 0, place, 0.0).clamp(max=float(last)).long()


def row_of(table: Tensor, place: Tensor) -> Tensor:
    """The rows [N, F] at ``place`` [N] of ``table`` [N, R, F]; zeros where there is none."""
    last, width = table.shape[1] - 1, table.shape[2]
    every = torch.zeros(width, dtype=torch.int64, device=table.device)  # columns: cheaper than an expand in a graph
    found = table.gather(1, within(place, last)[:, None, None] + every)[:, 0]
    return torch.where(((place > -0.5) & (place < last + 0.5))[:, None], found, 0.0)


def signed_distance(point: Tensor, shape: Tensor) -> Tensor:
    """From points [..., 3] to rounded boxes [..., 7], m: negative inside."""
    q = (point - shape[..., :3]).abs() - shape[..., 3:6]
    return q.clamp(min=0.0).square().sum(-1).sqrt() + q.amax(-1).clamp(max=0.0) - shape[..., 6]


__all__ = ["KEEPS", "LEGS", "MEMORY", "MISSION", "SIZE", "Followed", "Follower", "Stage", "signed_distance", "split"]
