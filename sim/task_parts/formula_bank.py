"""Drawn formulas as programs to learn from, and the starts of their episodes.

Each formula of a family (:mod:`temporeal.sim.stl.distribution`) is decomposed and searched for itineraries, as the
robot will do with a formula that it is given; the best few become rows of a bank. B rows, K worlds, L legs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.sim.rewards.follower import MISSION, Follower
from temporeal.sim.rotations import about_z
from temporeal.sim.stl.distribution.drawing import Drawn, draw
from temporeal.sim.stl.distribution.motions import loaded
from temporeal.sim.stl.distribution.settings import World, family, world
from temporeal.sim.stl.itineraries.itinerary import Itinerary
from temporeal.sim.stl.itineraries.planner import ways_of, written
from temporeal.sim.stl.itineraries.program import LEGS, split
from temporeal.sim.stl.itineraries.search import Travel, search, straight
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.system import System
from temporeal.sim.task import Draw
from temporeal.sim.task_parts.systems import system_of

OFFERED = 3  # itineraries of a formula that are learned from
WORST = -0.1  # of the time until its last hit: itineraries that are expected to be later are left out
TRIES = 4  # starts in mid-episode of which the first is taken from which the mission can go on
ROW = "mission_row"
"""The signal that says which row of the bank a world flies: for a learner, no robot has it."""
INSIDE = 0.05  # share of the arena's width that starts stay away from its ends
PLANNED = 0.5  # share of starts in mid-episode that are where the itinerary expects the robot
RESTING = 0.08  # share of them at which all legs are hit
SPREAD = 0.1  # m, about there
State = dict[str, Tensor]


@dataclass(frozen=True)
class Bank:
    """Programs [B, SIZE] with the starts [B, 3] m and headings [B] rad of their formulas, legs [B], and what the
    search expects: hits [B, L] samples and points [B, L, 3] m."""

    programs: Tensor
    starts: Tensor
    headings: Tensor
    legs: Tensor
    times: Tensor
    points: Tensor


def itineraries(found: Drawn, world: World, travel: Travel, most: int = OFFERED) -> list[Itinerary]:
    """The best itineraries of a drawn formula."""
    formula = parse(found.formula, loaded(world.robot).signals, found.constants)
    place = (*found.place, 0.0)[:3]
    ways = ways_of(formula, world.dt, world.signal)
    ranked = search(ways, (place[0], place[1], place[2]), travel)[:most]
    return [each for each in ranked if each.slack >= WORST * max(each.times, default=0)] or ranked[:1]


def travel_of(world: World, system: System) -> Travel:
    """How long the search takes ways to be."""
    speed, per_axis = travel_speed(world, system)
    return straight(speed, world.dt, per_axis)


def travel_speed(world: World, system: System) -> tuple[float, bool]:
    """m/s by which the search takes ways to be, and whether along each axis by itself."""
    return world.speed or {"point": 1.0, "cart": 0.9}.get(world.model, system.pace), world.model == "point"


@lru_cache(maxsize=8)
def bank(system: str, name: str, seed: int, count: int) -> Bank:
    """The bank of ``count`` formulas of the family ``name`` for ``system``; those that cannot be planned are left
    out."""
    where, rows = world(system), list[tuple[Any, ...]]()
    travel = travel_of(where, system_of(system))
    for index in range(count):
        found = draw(where, family(name), seed, index)
        try:
            planned, programs = written(itineraries(found, where, travel))
        except FormulaError:  # more ways than are searched, or more intervals than there is room for
            continue
        rows += [(row, (*found.place, 0.0)[:3], found.heading, min(len(each.legs), LEGS), _padded(each.times),
                  _padded(each.places, (0.0, 0.0, 0.0))) for each, row in zip(planned, programs)]
    if not rows:
        raise ValueError(f"task 'any_formula': none of {count} formulas of family {name!r} can be planned for "
                         f"{system!r}")
    columns = [torch.as_tensor(np.array(column), dtype=torch.float32) for column in zip(*rows)]
    return Bank(*columns)


def _padded(values: Sequence[Any], empty: Any = 0) -> list[Any]:
    return [*values[:LEGS], *[empty] * (LEGS - len(values))]


class Starts:
    """Starts of episodes: states with their programs. Every start is that of a formula; those in mid-episode are at any
    leg, where the itinerary expects the robot or anywhere in the arena, with time enough to come to its place.

    Attributes:
        bank: drawn when it is first needed: who only flies a policy needs none.
        weights: [B] how often each row is drawn, in proportion; None: all alike. A learner changes them.
        squeeze: least and greatest factor on the ends of windows, drawn for each episode: below 1 many are too short,
            which a judge must have seen. None: as they are.
    """

    squeeze: tuple[float, float] | None = None
    weights: Tensor | None = None

    def __init__(self, system: System, world: World, drawn: Callable[[], Bank], follower: Follower) -> None:
        self.system, self.world, self.drawn, self.follower = system, world, drawn, follower
        low, high = system.fence["low"], system.fence["high"]
        room = {"low": [a + INSIDE * (b - a) for a, b in zip(low, high)],
                "high": [b - INSIDE * (b - a) for a, b in zip(low, high)]}
        start = dict(world.start)
        self.anywhere: Callable[[Draw], State] = system.anywhere or partial(system.initial, start={**start, **room})
        self.begun = partial(system.initial, start=start)
        self.square = len(low) >= 2 and low[0] == low[1] == -high[0] == -high[1]

    def initial(self, draw: Draw) -> State:
        """State of K worlds at an episode's beginning, and their programs; on the device of the draws."""
        device = draw("mission.device", 1).device
        return moved(self._initial(on_cpu(draw)), device)

    def mid_episode(self, draw: Draw) -> tuple[State, State]:
        """State and memory of K worlds in mid-episode."""
        device = draw("mission.device", 1).device
        state, memory = self._mid_episode(on_cpu(draw))
        return moved(state, device), moved(memory, device)

    def _initial(self, draw: Draw) -> State:
        row = self._row(draw)
        mirror = self._mirror(draw)
        return {**self._placed(self.begun(draw), *self._start(row, mirror)),
                MISSION: self._program(row, mirror, draw), ROW: row[:, None].float()}

    def _mid_episode(self, draw: Draw) -> tuple[State, State]:
        state = self._initial(draw)
        count = len(state[MISSION])
        memory = {name: torch.zeros(count, *shape) for name, shape in self.follower.memory.items()}
        there, then = self._try(partial(_tries, draw))
        good = self._goes_on(there, then).reshape(TRIES, -1)
        taken = good.int().argmax(0) * count + torch.arange(count)
        found = good.any(0)
        state = {name: _where(found, there[name][taken], value) for name, value in state.items()}
        return state, {name: _where(found, then[name][taken], value) for name, value in memory.items()}

    @cached_property
    def bank(self) -> Bank:
        """The formulas."""
        return self.drawn()

    @property
    def count(self) -> int:
        """How many rows the bank has."""
        return len(self.bank.programs)

    def _row(self, draw: Draw) -> Tensor:
        weights = torch.ones(self.count) if self.weights is None else self.weights
        share = weights.cumsum(0) / weights.sum()
        return torch.searchsorted(share, draw("mission.row", 1)[:, 0].contiguous()).clamp(max=len(share) - 1)

    def _mirror(self, draw: Draw) -> Tensor:
        """Signs of x and y and whether they change places [K, 3]: the arena's symmetries."""
        u = draw("mission.mirror", 3)
        return (u < 0.5).float() * (1.0 if self.square and self.world.home is None else 0.0)

    def _program(self, row: Tensor, mirror: Tensor, draw: Draw) -> Tensor:
        """The programs [K, SIZE] of rows of the bank."""
        found = mirrored_program(self.bank.programs[row], mirror)
        if self.squeeze is not None:
            low, high = self.squeeze
            factor = low + (high - low) * draw("mission.squeeze", 1)
            parts = split(found.numpy())  # views
            parts["legs"][..., 9] = np.floor(parts["legs"][..., 9] * factor.numpy())
            parts["most"][:] = np.floor(parts["most"] * factor.numpy()[..., None])
        return found

    def _start(self, row: Tensor, mirror: Tensor) -> tuple[Tensor, Tensor]:
        heading = self.bank.headings[row]
        ahead = torch.stack([heading.cos(), heading.sin(), torch.zeros_like(heading)], -1)
        ahead = mirrored(ahead, mirror)
        return mirrored(self.bank.starts[row], mirror), torch.atan2(ahead[:, 1], ahead[:, 0])

    def _placed(self, state: State, place: Tensor, heading: Tensor) -> State:
        """``state`` at ``place`` [K, 3], where the system has a place of its own."""
        if self.world.home is not None or "base_pos_w" not in state:
            return state
        z = state["base_pos_w"][:, 2:] if len(self.world.low) == 2 else place[:, 2:]
        out = {**state, "base_pos_w": torch.cat([place[:, :2], z], -1)}
        if self.world.headed:
            out["base_quat_w"] = about_z(heading)
        return out

    def _try(self, draw: Draw) -> tuple[State, State]:
        row, u = self._row(draw), draw("mission.leg", 8)
        mirror, own = self._mirror(draw), self.bank
        legs = own.legs[row]
        leg = torch.where(u[:, 7] < RESTING, legs, torch.floor(u[:, 0] * legs).clamp(max=LEGS - 1.0)).long()
        parts = split(own.programs[row].numpy())["legs"]
        holds = torch.from_numpy(np.ascontiguousarray(parts[..., 7]))
        before = (leg - 1).clamp(min=0)
        pick = lambda x: x.gather(1, before[:, None])[:, 0]  # noqa: E731
        come = torch.where(leg > 0, pick(own.times[row]) + pick(holds) + 1.0, 0.0)
        hit = torch.where(torch.arange(LEGS) < leg[:, None], 1.0 + own.times[row], 0.0)
        point = torch.where((leg > 0)[:, None], own.points[row].gather(
            1, before[:, None, None].expand(-1, 1, 3))[:, 0], own.starts[row])
        _, heading = self._start(row, mirror)
        state = self.anywhere(draw)
        if "base_pos_w" in state and self.world.home is None:
            near = mirrored(point, mirror) + SPREAD * (2.0 * u[:, 1:4] - 1.0)
            wide = state["base_pos_w"].clone()
            planned = (u[:, 4:5] < PLANNED)
            turned = 2.0 * torch.pi * u[:, 5]
            state = self._placed(state, torch.where(planned, near, wide), turned)
        late = torch.floor(u[:, 6] ** 2 * 10.0)
        state = {**state, MISSION: self._program(row, mirror, draw), ROW: row[:, None].float()}
        return state, {"tick": come + late, "hit": hit, "held": torch.zeros_like(come)}

    def _goes_on(self, state: Mapping[str, Tensor], memory: Mapping[str, Tensor]) -> Tensor:
        """Whether [K] the mission can go on from there."""
        model = self.system.model
        signals = {**state, **(model.signals(model.state(state)) if model is not None else {})}
        if self.world.signal not in signals:
            return memory["tick"] < 0
        found, _ = self.follower(signals[self.world.signal], state[MISSION], memory)
        reach = found.current.distance <= self.system.pace * self.world.dt * found.current.spare.clamp(min=0.0)
        return ~found.violated & ~found.late & (reach | found.done)


def mirrored(v: Tensor, mirror: Tensor) -> Tensor:
    """Vectors [K, 3] under the symmetries [K, 3] of :meth:`Starts._mirror`."""
    x, y = v[:, 0] * (1.0 - 2.0 * mirror[:, 0]), v[:, 1] * (1.0 - 2.0 * mirror[:, 1])
    swap = mirror[:, 2] > 0.5
    return torch.stack([torch.where(swap, y, x), torch.where(swap, x, y), v[:, 2]], -1)


def mirrored_program(rows: Tensor, mirror: Tensor) -> Tensor:
    """Programs [K, SIZE] under the symmetries: the same missions in mirrored arenas."""
    out = rows.clone()
    parts = split(out.numpy())  # views
    flip = 1.0 - 2.0 * mirror[:, :2].numpy()
    swap = mirror[:, 2].numpy() > 0.5
    for name in ("legs", "kept"):
        part = parts[name]
        part[..., 0] *= flip[:, :1]
        part[..., 1] *= flip[:, 1:]
        for a, b in ((0, 1), (3, 4)):
            part[swap, :, a], part[swap, :, b] = part[swap, :, b].copy(), part[swap, :, a].copy()
    return out


def on_cpu(draw: Draw) -> Draw:
    """``draw`` on the CPU, where the bank is."""
    return lambda name, count: draw(name, count).cpu()


def moved(state: State, device: torch.device) -> State:
    """``state`` on ``device``."""
    return {name: value.to(device) for name, value in state.items()}


def _tries(draw: Draw, name: str, count: int) -> Tensor:
    """Draws of their own for each try [TRIES * K, count]."""
    return torch.cat([draw(f"{name}.try{number}", count) for number in range(TRIES)])


def _where(flags: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.where(flags.reshape(-1, *[1] * (a.ndim - 1)), a, b)
