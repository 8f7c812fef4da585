"""What a policy for any formula sees of its mission, and what it is paid.

It sees the leg under way and the next one, each with its place and its window, and as a *set* the regions that are to
be kept now or once this leg is hit: the nearest ``TOKENS`` of them, any of which may be left out or exchanged. No
weight belongs to a formula. The reward is that of reach-avoid with deadlines: the way to the current place, hits, what
is broken, what is late (:class:`Reward`).

N worlds, D = 2 or 3 axes, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from temporeal.sim.rewards.follower import MISSION, Followed, Follower, Stage
from temporeal.sim.task import Carry

TOKENS = 8
Lost = Callable[[Mapping[str, Tensor]], Tensor]


@dataclass(frozen=True)
class Reward:
    """Coefficients; none is negative. The return of an episode, without those per second, is

        hit * hits - progress * distance / scale, at the end less at the start, + done - broken - late

    where ``hit`` is at least ``progress``: a hit pays wherever the next place is.
    """

    hit: float = 2.0  # once per leg
    progress: float = 1.0  # times the share of the way to the current place, in units of ``scale``
    done: float = 2.0  # once, when all legs are hit
    broken: float = 6.0  # once, when what is to be kept is not, or the robot is lost: the episode ends
    late: float = 2.0  # once, when a window passed: the episode ends
    time: float = 0.1  # per second until all legs are hit: who is early has time to spare
    stay: float = 0.5  # per second, times how far the last place is once all legs are hit: the robot stays there
    near: float = 0.5  # per second, times 1 - margin / guard of what must be kept, where that is positive
    effort: float = 0.005  # per second, times the squared action

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value >= 0:
                raise ValueError(f"reward.{name} is at least 0, got {value:g}: costs are given as positive numbers")
        if self.hit < self.progress:
            raise ValueError(f"reward.hit is at least reward.progress, {self.progress:g}; got {self.hit:g}")


@dataclass(frozen=True)
class Lengths:
    """Units of what is seen: ``scale`` and ``near`` m, ``time`` samples, ``pace`` m per sample, ``axes`` D."""

    scale: float
    near: float
    time: float
    pace: float
    axes: int
    guard: float


def stage_size(axes: int) -> int:
    """Numbers of a leg in an observation."""
    return 3 * axes + 9


def token_size(axes: int) -> int:
    """Numbers of a token."""
    return 2 * axes + 11


def size(axes: int) -> int:
    """Numbers of a mission in an observation: the legs, then the tokens."""
    return 2 * stage_size(axes) + 4 + TOKENS * token_size(axes)


Turn = Callable[[Tensor], Tensor]
"""Vectors [..., 3] of the world in the frame in which the robot sees them."""


def seen(found: Followed, point: Tensor, turn: Turn, unit: Lengths) -> Tensor:
    """The mission as a policy sees it [N, :func:`size`]."""
    own = torch.stack([found.held / unit.time, torch.tanh(found.hits), torch.tanh((found.legs - found.hits) / 3.0),
                       (found.hits >= found.legs).float()], -1)
    return torch.cat([leg(found.current, point, turn, unit), leg(found.next, point, turn, unit), own,
                      tokens(found, point, turn, unit).flatten(1)], -1)


def leg(stage: Stage, point: Tensor, turn: Turn, unit: Lengths) -> Tensor:
    """One leg as a policy sees it."""
    d, shape = unit.axes, stage.shape
    there = stage.there[:, None]
    to = limited(shape[:, :3] - point, shape[:, 3:6])
    way = turn(to)
    length = way.square().sum(-1, keepdim=True).sqrt()
    away = stage.distance.clamp(-2.0 * unit.scale, 2.0 * unit.scale)
    opens = stage.opens.clamp(0.0, 2.0 * unit.time) / unit.time
    spare = stage.spare.clamp(-0.2 * unit.time, 2.0 * unit.time) / unit.time
    haste = away.clamp(min=0.0) / (unit.pace * stage.spare.clamp(min=1.0))
    numbers = torch.stack([
        away / unit.scale, torch.tanh(away / unit.near), opens, (stage.opens > 0).float(), spare, haste.clamp(max=2.0),
        (stage.hold / unit.time).clamp(max=2.0), shape[:, 6] / unit.scale], -1)
    half = turn_sizes(shape[:, 3:6], unit)
    return torch.cat([way[:, :d] / unit.scale, (way / (length + unit.near))[:, :d], half, numbers,
                      torch.ones_like(there)], -1) * there


def turn_sizes(half: Tensor, unit: Lengths) -> Tensor:
    """Half sides [..., D] as a policy sees them."""
    return half[..., : unit.axes].clamp(max=2.0 * unit.scale) / unit.scale


def limited(to: Tensor, half: Tensor) -> Tensor:
    """Vectors [..., 3] to a middle; 0 along axes without an end."""
    return torch.where(half > 500.0, 0.0, to)


def tokens(found: Followed, point: Tensor, turn: Turn, unit: Lengths) -> Tensor:
    """The nearest regions that are kept now or next [N, T, :func:`token_size`]; zeros where there are fewer."""
    asked = found.active | found.then
    chosen = nearest(torch.where(asked, found.margin, UNASKED))
    known = torch.cat([found.kept, torch.stack([found.inside, found.active.float(), found.then.float(), found.margin,
                                                found.left], -1)], -1)
    row = known.gather(1, chosen[..., None] + torch.zeros(known.shape[-1], dtype=torch.int64, device=known.device))
    shape, (inside, active, then, margin, left) = row[..., :7], row[..., 7:].unbind(-1)
    to = limited(shape[..., :3] - point[:, None], shape[..., 3:6])
    way = turn(to)[..., : unit.axes] / unit.scale
    margin = margin.clamp(max=2.0 * unit.scale)
    numbers = torch.stack([
        margin / unit.scale, torch.tanh(margin / unit.near), shape[..., 6] / unit.scale, inside, active, then,
        (left / unit.time).clamp(max=1.0), torch.ones_like(margin),
        *on_the_way(to, found.current.shape, point, shape[..., 6], unit)], -1)
    every = torch.cat([way.clamp(-2.0, 2.0), turn_sizes(shape[..., 3:6], unit), numbers], -1)
    return torch.where((active + then > 0)[..., None] & (every != 0), every, 0.0)  # no zero has a sign


def on_the_way(
    to: Tensor, goal: Tensor, point: Tensor, radius: Tensor, unit: Lengths
) -> tuple[Tensor, Tensor, Tensor]:
    """How far along the straight way to the ``goal`` [N, 7] the middles ``to`` [N, K, 3] are, how far beside it, and by
    how much they clear it [N, K]: in the plane, where pillars stand."""
    ahead = limited(goal[:, :3] - point, goal[:, 3:6])[:, :2]
    length = ahead.square().sum(-1, keepdim=True).sqrt()
    one = ahead / (length + 1e-3)
    along = to[..., 0] * one[:, :1] + to[..., 1] * one[:, 1:]
    beside = to[..., 1] * one[:, :1] - to[..., 0] * one[:, 1:]
    between = (along > 0) & (along < length + radius)
    clear = torch.where(between, torch.tanh((beside.abs() - radius) / unit.near), 1.0)
    return along / unit.scale, beside / unit.scale, clear


UNASKED = 1e4
"""m: farther than anything."""


def nearest(away: Tensor) -> Tensor:
    """The T nearest of K [N, T], by ``away`` [N, K]; of equals the first one is nearer. Sorted by counting, which
    compiles."""
    place = torch.arange(away.shape[1], dtype=torch.float32, device=away.device)
    later = place[None, :] > place[:, None]  # [K, K]: the second one
    nearer = torch.where(later, (away[:, None, :] < away[:, :, None]).float(), 0.0)
    rank = nearer.sum(-1) - nearer.sum(-2) + place  # those after it that are nearer, those before it that are not
    taken = (rank[:, None] - place[:TOKENS, None]).abs() < 0.5  # [N, T, K]
    return torch.where(taken, place, 0.0).sum(-1).long()


def yaw_frame(quat: Tensor) -> Turn:
    """Turns vectors of the world into the frame of a robot's heading; ``quat`` [N, 4] wxyz."""
    w, x, y, z = quat.unbind(-1)
    ahead, aside = 1.0 - 2.0 * (y * y + z * z), 2.0 * (w * z + x * y)
    norm = (ahead * ahead + aside * aside).sqrt().clamp(min=1e-6)
    cos, sin = ahead / norm, aside / norm

    def turn(v: Tensor) -> Tensor:
        c, s = (cos, sin) if v.ndim == 2 else (cos[:, None], sin[:, None])
        return torch.stack([c * v[..., 0] + s * v[..., 1], c * v[..., 1] - s * v[..., 0], v[..., 2]], -1)

    return turn


def as_it_is(v: Tensor) -> Tensor:
    """The vectors, in the world's frame."""
    return v


class Objective:
    """The reward of programs, on true signals.

    Args:
        position: the signal of points that programs are about. ``rest``: samples after the last hit at which a
            mission ends in training; the formula may ask for more, of a robot that has nothing to do any more.
    """

    privileged_dim = 0
    ends_done = True  # an episode ends soon after all legs are hit, and has then succeeded

    def __init__(
        self, follower: Follower, position: str, reward: Reward, unit: Lengths, dt: float, rest: int,
        lost: Lost | None = None,
    ) -> None:
        self.follower, self.position, self.weights, self.unit = follower, position, reward, unit
        self.dt, self.rest, self.lost = dt, float(rest), lost
        self.carry: dict[str, tuple[int, ...]] = {**follower.memory, "potential": (), "rested": (), "broken": ()}

    def to(self, device: torch.device) -> Objective:
        """The objective with its constants on ``device``."""
        self.follower.to(device)
        return self

    def follow(self, signals: Mapping[str, Tensor], carry: Carry) -> tuple[Followed, Carry]:
        """Where the worlds are, and the memory."""
        return self.follower(signals[self.position], signals[MISSION],
                             {name: carry[name] for name in self.follower.memory})

    def start(self, signals: Mapping[str, Tensor], carry: Carry) -> Carry:
        """The carry after the sample at time 0."""
        found, after = self.follow(signals, carry)
        return {**carry, **after, "potential": self.potential(found), "broken": found.violated.float()}

    def step(
        self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry
    ) -> tuple[Tensor, Tensor, Carry]:
        """Reward [N], terminated [N], next carry."""
        w = self.weights
        found, after = self.follow(signals, carry)
        potential = self.potential(found)
        broken = found.violated | (carry["broken"] > 0.5)
        over = broken if self.lost is None else broken | self.lost(signals)
        late = found.late & ~found.done
        first = found.done & (carry["rested"] < 0.5)
        rested = torch.where(found.done, carry["rested"] + 1.0, 0.0)
        unsafe = torch.where(found.active, 1.0 - found.margin / self.unit.guard, 0.0).amax(-1).clamp(0.0, 1.0)
        reward = potential - carry["potential"] + w.done * (first & ~over).float()
        reward = reward - w.broken * over.float() - w.late * (late & ~over).float()
        reward = reward - self.dt * (w.time * (~found.done).float() + w.near * unsafe
                                     + w.effort * action.square().sum(-1))
        ended = over | late | (rested > self.rest)
        reward = reward - self.dt * w.stay * found.done.float() * torch.tanh(
            (found.current.distance + self.follower.slack).clamp(min=0.0) / self.unit.near)
        return reward, ended, {**after, "potential": potential, "rested": rested, "broken": broken.float()}

    def potential(self, found: Followed) -> Tensor:
        """hit * hits - progress * min(distance / scale, 1), [N]."""
        away = (found.current.distance + self.follower.slack).clamp(min=0.0) * found.current.there
        return self.weights.hit * found.hits - self.weights.progress * (away / self.unit.scale).clamp(max=2.0)

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Nothing: the critic judges plans on the robot, from what the robot sees."""
        return signals[MISSION][:, :0]

    def success(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Whether all legs were hit and nothing was broken."""
        return (carry["rested"] > 0.5) & (carry["broken"] < 0.5)
