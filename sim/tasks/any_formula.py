"""A task that is any formula: a system, and in each world another formula, drawn from a family.

What a policy sees is a program, an itinerary through its formula as data (:mod:`temporeal.sim.rewards.follower`), so
that one policy flies formulas that it has never seen. The planner that makes programs of formulas is the robot's.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.robots.signals import SignalSpec
from temporeal.sim.maps import Memory
from temporeal.sim.rewards.follower import MISSION, SIZE, Follower
from temporeal.sim.rewards.itinerary_view import TOKENS, Lengths, Objective, Reward, as_it_is, seen, size, token_size
from temporeal.sim.rewards.itinerary_view import yaw_frame as yawed
from temporeal.sim.stl.distribution.settings import World, world
from temporeal.sim.stl.distribution.settings import family as families
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.system import System
from temporeal.sim.task import Constant, Task, check_range, task_schema, weights
from temporeal.sim.task_parts.formula_bank import ROW, Starts, bank
from temporeal.sim.task_parts.systems import system_of

CONSTANTS: dict[str, Any] = {}
"""None: formulas bring their own."""
ATTITUDE = "base_quat_w"
SAFE = 0.3


class Observe(nn.Module):
    """The system's own observation, then the mission's, of which the last numbers are a set of regions.

    Attributes:
        elements: how many regions, and numbers of each. ``world``: of its formulas; ``unit``: of what is seen.
    """

    def __init__(self, system: System, follower: Follower, world: World, unit: Lengths) -> None:
        super().__init__()
        self.system, self.follower, self.world, self.unit = system, follower, world, unit
        self.position, self.headed = world.signal, world.headed
        attitude = (ATTITUDE,) if self.headed else ()
        self.signals = tuple(dict.fromkeys((*system.reads, self.position, *attitude, MISSION)))
        self.memory = {**follower.memory, **system.memory}
        self.obs_dim = system.size + size(unit.axes)
        self.elements = (TOKENS, token_size(unit.axes))

    def forward(self, signals: Mapping[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """Observation [N, O] and the next memory."""
        kept = self.system.follow(signals, {name: memory[name] for name in self.system.memory})
        point = signals[self.position]
        found, after = self.follower(point, signals[MISSION], {name: memory[name] for name in self.follower.memory})
        turn = yawed(signals[ATTITUDE]) if self.headed else as_it_is
        return torch.cat([self.system.observe(signals), seen(found, point, turn, self.unit)], -1), {**kept, **after}

    def record(self, memory: Memory, action: Tensor) -> Memory:
        """The memory with ``action`` entered, where the system remembers any."""
        return {**memory, **self.system.record({name: memory[name] for name in self.system.memory}, action)}


def check_count(name: str, value: Any) -> None:
    """A ValueError where ``value`` is no whole number from 1 on."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"task 'any_formula': {name} is a whole number from 1 on, got {value!r}")


def lengths(of: System, where: World, guard: float | None = None) -> Lengths:
    """The units of what is seen. ``guard`` m; None: two fifths of the least radius."""
    wide = max(b - a for a, b in zip(of.fence["low"], of.fence["high"]))
    scale = 0.5 * wide
    return Lengths(scale, 0.5 * where.radius[0], wide / of.pace / of.control_dt, of.pace * of.control_dt,
                   len(where.low), 0.4 * where.radius[0] if guard is None else guard)


def make(
    *, system: str = "linear", family: str = "train", formulas: int = 1000, seed: int = 0, slack: float | None = None,
    margin: float | None = None, guard: float | None = None, rest_s: float = 10.0,
    reward: Mapping[str, float] | None = None,
) -> Task:
    """The task.

    Args:
        system: with a world in `configs/formulas`. ``family``: of formulas there; ``formulas``: how many are drawn,
            with ``seed``.
        slack: m that a robot must be inside of a place to count; None: the system's. ``margin``: m by which what is
            kept must be; None: ``SAFE`` times that of witnesses. ``guard``: m from what must be kept at which
            ``reward.near`` begins; None: two fifths of the least radius of places. What cannot stop at once needs more.
        rest_s: s after the last hit at which an episode ends.
    """
    of: System = system_of(system)
    where = world(system)
    slack = of.slack if slack is None else slack
    margin = SAFE * where.margin if margin is None else margin
    for name, value in (("slack", slack), ("margin", margin), ("rest_s", rest_s)):
        check_range("any_formula", name, value, 0.0, 10.0, "m, or s")
    check_range("any_formula", "guard", 1.0 if guard is None else guard, 1e-3, 10.0, "m")
    unit = lengths(of, where, guard)
    families(family)  # that there is one
    check_count("formulas", formulas)
    length = where.horizon_s
    follower = Follower(slack, margin)
    starts = Starts(of, where, partial(bank, system, family, seed, formulas), Follower(slack, margin))
    text = f"G[0,{length:g}] ({where.keep})"
    constants: dict[str, Any] = dict(where.constants)
    objective = Objective(Follower(slack, margin), where.signal, weights(Reward, reward), unit, of.control_dt,
                          round(rest_s / of.control_dt), of.lost)
    return Task(
        name="any_formula", scene=of.scene, command=of.command, control_dt=of.control_dt, substeps=of.substeps,
        episode_s=length, formula=parse(text, task_schema(of.scene), constants), formula_text=text,
        constants=constants, observe=Observe(of, follower, where, unit), act=of.act,
        objective=objective, initial=starts.initial, mid_episode=starts.mid_episode,
        extra=Constant(SignalSpec(MISSION, (SIZE,), "1"), SignalSpec(ROW, (1,), "1")), missions=starts,
        stop=of.stop, finite=True)
