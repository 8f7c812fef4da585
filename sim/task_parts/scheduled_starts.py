"""Starts of episodes whose policy follows a schedule: states, schedules, and mid-episode starts.

Names of random streams key the draws: they stay as they are, whatever is renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from temporeal.sim.compiler.vectorize import VectorizedFunction
from temporeal.sim.rewards.schedule_automaton import ScheduleAutomaton
from temporeal.sim.rewards.scheduled import SCHEDULE
from temporeal.sim.stl.language.queries import signals_in
from temporeal.sim.system import System
from temporeal.sim.task import MISSION_TIME, Draw

INSIDE = 0.05  # share of the arena's width that mid-episode starts stay away from its ends
AT_TIMES = 0.5  # share of them that are about a time of the schedule, where what is asked changes, or near the end
TRIES = 4  # of which the first is taken from which the mission can go on

State = dict[str, Tensor]


class ScheduledStarts:
    """Starts of a task on ``system`` that follows ``automaton``: a :class:`temporeal.sim.task.Schedules`.

    A start in mid-episode is anywhere in the arena, at any time, with all hit that was due by then: at the schedule's
    own times, so that the mission allows it. Of a few such starts the first is taken at which nothing is broken and the
    next subgoal is not farther than the system can come in time; if there is none, the episode begins at its beginning.

    Args:
        place: ``place(draw) -> state`` of K worlds at an episode's beginning.
        start: the system's settings of where episodes begin.
        buffer: [M, 1 + V] schedules that episodes are drawn from.
    """

    def __init__(
        self, place: Callable[[Draw], State], system: System, start: Mapping[str, Any], automaton: ScheduleAutomaton,
        buffer: Tensor,
    ) -> None:
        self.place, self.system, self.automaton, self.buffer = place, system, automaton, buffer
        self.alternatives, self.slack = automaton.alternatives, automaton.slack
        self.frontier: tuple[State, State] | None = None
        self.frontier_share = 0.0
        self.named = sorted({name for predicate in automaton.predicates for name in signals_in(predicate)})
        self.feasible, self.compiled = VectorizedFunction(self._feasible, {"feasible": ()}), True
        low, high = system.fence["low"], system.fence["high"]
        self.crossing = max(b - a for a, b in zip(low, high)) / system.pace / automaton.dt  # samples: of the arena
        room = {"low": [a + INSIDE * (b - a) for a, b in zip(low, high)],
                "high": [b - INSIDE * (b - a) for a, b in zip(low, high)]}
        self.anywhere = system.anywhere or partial(system.initial, start={**start, **room})

    def initial(self, draw: Draw) -> State:
        """State of K worlds at an episode's beginning, and their schedules."""
        return self._scheduled(self.place, draw)

    def mid_episode(self, draw: Draw) -> tuple[State, State]:
        """State and memory of K worlds in mid-episode: the ``frontier_share`` of them out of ``frontier``."""
        fresh = self._fresh(draw)
        if self.frontier is None:
            return fresh
        u = draw("explore.bank", 2)
        chosen, size = u[:, 0] < self.frontier_share, len(self.frontier[1]["tick"])
        pick = (u[:, 1] * size).long().clamp(max=size - 1)
        state, memory = ({name: _where(chosen, kept[name].to(pick.device)[pick], x) for name, x in part.items()}
                         for part, kept in zip(fresh, self.frontier))
        return state, memory

    def places(self, draw: Draw, missions: int) -> tuple[State, State, Tensor]:
        """State and memory of K starts in mid-episode, ``missions`` schedules and times at K / ``missions`` places each
        in a row, and whether [K] the formula can still be satisfied from there."""
        state, memory = self._try(draw)
        each = len(memory["tick"]) // missions
        state[SCHEDULE] = state[SCHEDULE][:missions].repeat_interleave(each, 0)
        memory = {name: value[:missions].repeat_interleave(each, 0) for name, value in memory.items()}
        return state, memory, self._goes_on(state, memory)

    def signals(self, state: Mapping[str, Tensor], memory: Mapping[str, Tensor]) -> State:
        """The signals of starts: all of them where the system has a model, else what ``state`` says."""
        model = self.system.model
        return {**state, **(model.signals(model.state(state)) if model is not None else {}),
                MISSION_TIME.name: memory["tick"] * self.automaton.dt}

    def _scheduled(self, place: Callable[[Draw], State], draw: Draw) -> State:
        size = len(self.buffer)
        pick = (draw("initial.schedule", 1)[:, 0] * size).long().clamp(max=size - 1)
        return {**place(draw), SCHEDULE: self.buffer.to(pick.device)[pick]}

    def _fresh(self, draw: Draw) -> tuple[State, State]:
        state = self.initial(draw)
        memory = {"tick": torch.zeros(len(state[SCHEDULE]), device=state[SCHEDULE].device),
                  "hit": torch.zeros_like(state[SCHEDULE][:, 1:])}
        there, then = self._try(partial(_tries, draw))
        good = self._goes_on(there, then).reshape(TRIES, -1)
        found, worlds = good.any(0), good.shape[1]
        taken = good.int().argmax(0) * worlds + torch.arange(worlds, device=good.device)  # the first that is good
        state = {name: _where(found, there[name][taken], value) for name, value in state.items()}
        memory = {name: _where(found, then[name][taken], value) for name, value in memory.items()}
        return state, memory

    def _try(self, draw: Draw) -> tuple[State, State]:
        state = self._scheduled(self.anywhere, draw)
        times = state[SCHEDULE][:, 1:]
        tick = self._when(times, draw)
        return state, {"tick": tick, "hit": torch.where(times < tick[:, None], 1.0 + times, 0.0)}

    def _when(self, times: Tensor, draw: Draw) -> Tensor:
        """Samples [K] to start at: anywhere in the episode, or about one of ``times`` [K, V] or its end. Also a sample
        before the end: long invariants are learned backwards from there."""
        last, u = float(max(self.automaton.samples - 2, 0)), draw("explore.time", 4)
        times = torch.cat([times, torch.full_like(times[:, :1], last)], 1)
        one = times.gather(1, (u[:, 1:2] * times.shape[1]).long().clamp(max=times.shape[1] - 1))[:, 0]
        about = (one + torch.floor((2.0 * u[:, 2] - 1.0) * self.crossing)).clamp(min=0.0)
        about = torch.where(about > last, (2.0 * last - about).clamp(min=0.0), about)
        return torch.where(u[:, 0] < AT_TIMES, about, torch.floor((last + 1.0) * u[:, 3]))

    def _goes_on(self, state: Mapping[str, Tensor], memory: Mapping[str, Tensor]) -> Tensor:
        """Whether [K] the formula can still be satisfied from there; True where that cannot be told."""
        signals = self.signals(state, memory)
        if not set(self.named) <= set(signals):
            return memory["tick"] >= 0
        given = {f"signal.{name}": signals[name] for name in self.named}
        found = self.feasible({**given, SCHEDULE: state[SCHEDULE], **memory}, self.compiled)
        return found["feasible"] > 0.5

    def _feasible(self, x: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Whether the formula can still be satisfied, as a function of one world."""
        fresh = {name: x["tick"].new_zeros(len(x["tick"]), *shape) for name, shape in self.automaton.memory.items()}
        signals = {name: x[f"signal.{name}"] for name in self.named}
        timed, _ = self.automaton(signals, x[SCHEDULE], {**fresh, "tick": x["tick"], "hit": x["hit"]})
        left_s = (timed.stage * timed.spare).sum(-1) * self.automaton.dt
        return {"feasible": ~timed.violated & ~timed.late & (timed.distance <= self.system.pace * left_s)}


def _tries(draw: Draw, name: str, count: int) -> Tensor:
    """Draws of their own for each try [TRIES * K, count]: all worlds' first, all worlds' second, and so on."""
    return torch.cat([draw(f"{name}.try{number}", count) for number in range(TRIES)])


def _where(flags: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.where(flags.reshape(-1, *[1] * (a.ndim - 1)), a, b)
