"""A task that is a formula and nothing else: a system, what it must do, where it starts. The reward is the formula's.

How the formula is seen and rewarded is a *view*, which the learning algorithm chooses: ``timed`` (TGPO's,
:mod:`temporeal.sim.rewards.scheduled`), or one of the baselines' (:mod:`temporeal.sim.rewards.views`).
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from temporeal.robots.registry import resolve
from temporeal.sim.compiler.vectorize import VectorizedFunction
from temporeal.sim.maps import Memory
from temporeal.sim.rewards import scheduled
from temporeal.sim.rewards.scheduled import SCHEDULE
from temporeal.sim.rewards.schedules import draw_schedules
from temporeal.sim.rewards.timed_subgoals import TimedMission
from temporeal.sim.rewards.views import PER_LENGTH, REWARDS, VIEWS, View
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.language.queries import horizon, signals_in
from temporeal.sim.stl.planning.alternative import NotDecomposable
from temporeal.sim.stl.planning.decompose import Decomposition, decompose
from temporeal.sim.stl.rewriting.normal import positive
from temporeal.sim.stl.rewriting.possible import hopeless, possible
from temporeal.sim.stl.rewriting.ranges import greatest
from temporeal.sim.system import System
from temporeal.sim.task import MISSION_TIME, Constant, Draw, Task, check_range, task_schema, weights
from temporeal.sim.task_parts.regions import shapes_of

FORMULA = "F[0,12] (norm(base_pos_w - a) < r) & G[0,16] (norm(base_pos_w) > r)"
CONSTANTS: dict[str, Any] = {}
"""Legal are those that the formula names."""
TAKES = """\
This task, with algo=tgpo, takes every formula whose windows end and that a schedule can follow; write another for the
part that is named above. `temporeal spec` judges recorded traces by any formula."""
"""What to write where a formula is refused."""
EXAMPLE: dict[str, Any] = {"a": [3.0, 3.0, 0.0], "r": 0.8}  # of FORMULA, m

TIMED = "timed"
BANK = 4096  # schedules to draw from, before an algorithm puts better ones there


class Observe(nn.Module):
    """The system's own observation, then the view's features."""

    def __init__(self, system: System, view: View) -> None:
        super().__init__()
        self.system, self.view = system, view
        self.mission = getattr(view, "module", None)  # so that its constants move with the map
        self.signals = tuple(dict.fromkeys((*system.reads, *view.reads)))
        self.memory = {**view.memory, **system.memory}
        self.obs_dim = system.size + view.size

    def forward(self, signals: Mapping[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """Observation [N, O] and the next memory."""
        kept = self.system.follow(signals, {name: memory[name] for name in self.system.memory})
        seen, after = self.view.features(signals, {name: memory[name] for name in self.view.memory})
        return torch.cat([self.system.observe(signals), seen], -1), {**kept, **after}

    def record(self, memory: Memory, action: Tensor) -> Memory:
        """The memory with ``action`` entered, where the system remembers any."""
        return {**memory, **self.system.record({name: memory[name] for name in self.system.memory}, action)}


class Initial:
    """Starts that ``place`` draws, each with a schedule out of ``bank`` [M, 1 + V], which an algorithm may improve."""

    def __init__(self, place: Callable[[Draw], dict[str, Tensor]], bank: Tensor) -> None:
        self.place, self.bank = place, bank

    def __call__(self, draw: Draw) -> dict[str, Tensor]:
        """State of K worlds and their schedules."""
        pick = (draw("initial.schedule", 1)[:, 0] * len(self.bank)).long().clamp(max=len(self.bank) - 1)
        return {**self.place(draw), SCHEDULE: self.bank.to(pick.device)[pick]}


INSIDE = 0.05  # share of the arena's width that such starts stay away from its ends
AT_TIMES = 0.5  # share of them that are about a time of the schedule, where what is asked changes, or near the end
TRIES = 4  # of which the first is taken from which the mission can go on

State = dict[str, Tensor]


class Explore:
    """Starts in the middle of a mission, for training: anywhere, at any time, all hit that was due by then.

    The hits are at the schedule's own times, so the mission allows them. Of a few such starts the first is taken at
    which nothing is broken and the next subgoal is not farther than the system can come in time; if there is none, the
    mission begins at its beginning. A learning algorithm may choose such starts, too: the ``share`` of them is then
    drawn out of its ``bank``, state and memory of M worlds.
    """

    def __init__(self, first: Initial, system: System, start: Mapping[str, Any], mission: TimedMission) -> None:
        self.first, self.system, self.mission = first, system, mission
        self.bank: tuple[State, State] | None = None
        self.share = 0.0
        self.named = sorted({name for predicate in mission.predicates for name in signals_in(predicate)})
        self.feasible, self.compiled = VectorizedFunction(self._feasible, {"feasible": ()}), True
        low, high = system.fence["low"], system.fence["high"]
        self.crossing = max(b - a for a, b in zip(low, high)) / system.pace / mission.dt  # samples: of the arena
        room = {"low": [a + INSIDE * (b - a) for a, b in zip(low, high)],
                "high": [b - INSIDE * (b - a) for a, b in zip(low, high)]}
        self.anywhere = Initial(system.anywhere or partial(system.initial, start={**start, **room}), first.bank)

    def __call__(self, draw: Draw) -> tuple[State, State]:
        """State and memory of K worlds."""
        fresh = self._fresh(draw)
        if self.bank is None:
            return fresh
        u = draw("explore.bank", 2)
        of_bank, size = u[:, 0] < self.share, len(self.bank[1]["tick"])
        pick = (u[:, 1] * size).long().clamp(max=size - 1)
        state, memory = ({name: _where(of_bank, kept[name].to(pick.device)[pick], x) for name, x in part.items()}
                         for part, kept in zip(fresh, self.bank))
        return state, memory

    def places(self, draw: Draw, missions: int) -> tuple[State, State, Tensor]:
        """State and memory of K starts, ``missions`` schedules and times at K / ``missions`` places each in a row, and
        whether [K] the mission can go on from there."""
        self.anywhere.bank = self.first.bank
        state, memory = self._try(draw)
        each = len(memory["tick"]) // missions
        state[SCHEDULE] = state[SCHEDULE][:missions].repeat_interleave(each, 0)
        memory = {name: value[:missions].repeat_interleave(each, 0) for name, value in memory.items()}
        return state, memory, self._goes_on(state, memory)

    def signals(self, state: Mapping[str, Tensor], memory: Mapping[str, Tensor]) -> State:
        """The signals of starts: all of them where the system has a model, else what ``state`` says."""
        model = self.system.model
        return {**state, **(model.signals(model.state(state)) if model is not None else {}),
                MISSION_TIME.name: memory["tick"] * self.mission.dt}

    def _fresh(self, draw: Draw) -> tuple[State, State]:
        self.anywhere.bank = self.first.bank
        state = self.first(draw)
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
        state = self.anywhere(draw)
        times = state[SCHEDULE][:, 1:]
        tick = self._when(times, draw)
        return state, {"tick": tick, "hit": torch.where(times < tick[:, None], 1.0 + times, 0.0)}

    def _when(self, times: Tensor, draw: Draw) -> Tensor:
        """Samples [K] to start at: anywhere in the mission, or about one of ``times`` [K, V] or its end. Also a sample
        before the end: what is to be kept for long is learned backwards from there."""
        last, u = float(max(self.mission.samples - 2, 0)), draw("explore.time", 4)
        times = torch.cat([times, torch.full_like(times[:, :1], last)], 1)
        one = times.gather(1, (u[:, 1:2] * times.shape[1]).long().clamp(max=times.shape[1] - 1))[:, 0]
        about = (one + torch.floor((2.0 * u[:, 2] - 1.0) * self.crossing)).clamp(min=0.0)
        about = torch.where(about > last, (2.0 * last - about).clamp(min=0.0), about)
        return torch.where(u[:, 0] < AT_TIMES, about, torch.floor((last + 1.0) * u[:, 3]))

    def _goes_on(self, state: Mapping[str, Tensor], memory: Mapping[str, Tensor]) -> Tensor:
        """Whether the mission can still be done from there [K], as far as one can tell; True where one cannot."""
        signals = self.signals(state, memory)
        if not set(self.named) <= set(signals):
            return memory["tick"] >= 0
        given = {f"signal.{name}": signals[name] for name in self.named}
        found = self.feasible({**given, SCHEDULE: state[SCHEDULE], **memory}, self.compiled)
        return found["feasible"] > 0.5

    def _feasible(self, x: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Whether the mission can still be done, of rows."""
        fresh = {name: x["tick"].new_zeros(len(x["tick"]), *shape) for name, shape in self.mission.memory.items()}
        signals = {name: x[f"signal.{name}"] for name in self.named}
        timed, _ = self.mission(signals, x[SCHEDULE], {**fresh, "tick": x["tick"], "hit": x["hit"]})
        left_s = (timed.stage * timed.spare).sum(-1) * self.mission.dt
        return {"feasible": ~timed.violated & ~timed.late & (timed.distance <= self.system.pace * left_s)}


def _tries(draw: Draw, name: str, count: int) -> Tensor:
    """Draws of their own for each try [TRIES * K, count]: all worlds' first, all worlds' second, and so on."""
    return torch.cat([draw(f"{name}.try{number}", count) for number in range(TRIES)])


def _where(flags: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.where(flags.reshape(-1, *[1] * (a.ndim - 1)), a, b)


def resolved(*, system: str = "linear", view: str = TIMED, **given: Any) -> dict[str, Any]:
    """The settings with what the system brings, so that a run's file says what it was trained with, whatever the
    system's own become."""
    settings = {"system": system, "view": view, **given}
    of: System = resolve("temporeal.sim.systems", system).make()
    if view != TIMED:
        return {**settings, "reward": {**fitted(of, view), **(given.get("reward") or {})}}
    slack = of.slack if given.get("slack") is None else given["slack"]
    reward = weights(scheduled.Reward, {**of.reward, **(given.get("reward") or {})})
    return {**settings, "slack": slack, "reward": asdict(reward)}


def fitted(of: System, view: str) -> dict[str, float]:
    """Coefficients of another view's reward that are per length, in proportion to the system's lengths."""
    smaller = scheduled.Reward.scale / of.reward.get("scale", scheduled.Reward.scale)
    return {f.name: smaller * f.default for f in fields(REWARDS[view]) if f.name in PER_LENGTH}


def spoken(
    formula: str | None, constants: Mapping[str, Any] | None, start: Mapping[str, Any] | None
) -> tuple[str, dict[str, Any]]:
    """The formula and its constants; without any of one's own the example's."""
    if formula is not None:
        return formula, dict(EXAMPLE if constants is None and formula == FORMULA else constants or {})
    if said := [name for name, value in (("constants", constants), ("start", start)) if value]:
        raise ValueError(f"task 'stl': {' and '.join(said)} without a formula; a task says formula: ..., such as "
                         f"{FORMULA!r}")
    return FORMULA, dict(EXAMPLE)


def ways(formula: Formula, dt: float) -> Decomposition:
    """The decomposition without what can never be done: a warning names it, a ValueError where nothing else is left."""
    found = decompose(formula, dt, strict=True)
    if never := _never(found):
        warnings.warn(f"task 'stl': {never}: ways to satisfy the formula that ask for it are left out", stacklevel=3)
    return found


def check_hope(formula: Formula, dt: float) -> None:
    """A warning that names what can never hold, a ValueError where ``formula`` never can: of views that do without
    :func:`ways`. Of one that has no decomposition only as far as its states tell."""
    try:
        found = decompose(formula, dt, strict=True)
        none_left, never = not found.alternatives, _never(found)
    except NotDecomposable:
        left, impossible = possible(positive(formula), {})
        none_left = hopeless(left)
        never = _told(impossible, none_left)
    if none_left:
        raise ValueError("task 'stl': nothing can satisfy the formula")
    if never:
        warnings.warn(f"task 'stl': {never}: what asks for it is never done", stacklevel=3)


def _never(found: Decomposition) -> str:
    """What of a strict decomposition never holds, :func:`_told`."""
    clashes = {} if found.alternatives else found.clashes
    pairs = dict.fromkeys(frozenset((one, other)) for one, others in clashes.items() for other in others)
    return _told(found.impossible, not found.alternatives, [
        f"{' and '.join(sorted(map(str, pair)))} never hold at one time" for pair in pairs])


def _told(impossible: Sequence[Formula], none_left: bool, clashes: Sequence[str] = ()) -> str:
    """What never holds, by name; a ValueError with it, and with the ``clashes``, where there is ``none_left`` to do."""
    never = [f"{p} can never hold" + (f" by more than {greatest(p) + 0.0:g}" if isfinite(greatest(p)) else "")
             for p in impossible]
    if none_left and (never or clashes):
        raise ValueError(f"task 'stl': {'; '.join([*never, *clashes])}: that leaves no way to do what the formula asks "
                         "for; compare with < or > and give it room")
    return "; ".join(never)


def check_room(mission: TimedMission, slack: float | None, margin: float) -> None:
    """A ValueError where a subgoal can never hold by the ``slack`` that a task says, or what is kept by ``margin``."""
    kept = dict.fromkeys(keep.predicate for a in mission.alternatives for keep in a.keeps)
    for name, value, asked in (("slack", slack, mission.reached), ("margin", margin, kept)):
        for predicate in asked:
            most = greatest(predicate)
            if value is not None and value >= most:
                raise ValueError(f"task 'stl': {name} is {value:g}, but {predicate} holds by less than {most:g} at "
                                 f"best, so that it would never count; legal: below {most:g}, or leave it out")


def check_of_view(view: str, given: Mapping[str, Any]) -> None:
    """``given`` are settings that the view has."""
    own = {} if view == TIMED else inspect.signature(VIEWS[view]).parameters
    legal = [name for name, p in own.items() if p.kind is p.KEYWORD_ONLY and name != "reward"]
    if unknown := [name for name in given if name not in legal]:
        raise ValueError(f"task 'stl': of_view.{unknown[0]}: view {view} has no such setting; legal: "
                         f"{', '.join(legal) or 'none'}")


def make(
    *, system: str = "linear", formula: str | None = None, constants: Mapping[str, Any] | None = None,
    start: Mapping[str, Any] | None = None, shapes: Sequence[Mapping[str, Any]] = (), episode_s: float | None = None,
    view: str = TIMED, slack: float | None = None, margin: float = 0.0, reward: Mapping[str, float] | None = None,
    of_view: Mapping[str, Any] | None = None,
) -> Task:
    """The task.

    Args:
        system: of `sim/systems`; ``start``: its settings of where episodes begin.
        view: ``timed``, or one of :data:`temporeal.sim.rewards.views.VIEWS`; ``reward``: coefficients of that view,
        those left out
            as the system says (``timed``) or as the view does, what is per length in proportion to the system's.
        slack, margin: of the timed view, in the predicates' unit; ``slack`` None, or the system's own (as a run's file
            says it): that, or half of what a predicate can hold by at all where this is less. Any other is as it is
            said. ``of_view``: other settings of the view, such as ``samples`` of ``history`` and ``privileged`` of
            ``plain``.
        episode_s: s; the formula's horizon if left out.
    """
    for name, value in (("slack", 0.0 if slack is None else slack), ("margin", margin)):
        check_range("stl", name, value, 0.0, 10.0, "of the predicates' unit")
    if view not in (TIMED, *VIEWS):
        raise ValueError(f"task 'stl': view is {view!r}; legal: {', '.join((TIMED, *VIEWS))}")
    check_of_view(view, dict(of_view or {}))
    of: System = resolve("temporeal.sim.systems", system).make()
    text, given = spoken(formula, constants, start)
    dt, parsed = of.control_dt, parse(text, task_schema(of.scene), given)
    length = max(horizon(parsed, dt), dt) if episode_s is None else episode_s
    start = dict(start or {})
    extra, initial, explore = None, partial(of.initial, start=start), None
    if view == TIMED:
        said = None if slack == of.slack else slack
        seen: Any = scheduled.make(ways(parsed, dt), slack=of.slack if said is None else said, margin=margin,
                                   reward={**of.reward, **(reward or {})}, lost=of.lost, body=of.body,
                                   fitted=said is None)
        check_room(seen.mission, said, margin)
        bank = draw_schedules(seen.mission.alternatives, BANK, np.random.default_rng(0))
        extra, initial = Constant(seen.spec), Initial(initial, bank)
        explore = Explore(initial, of, start, seen.objective.mission)
    else:
        if not isfinite(length):
            raise ValueError("task 'stl': the formula has a window without an end, so that no episode tells whether it "
                             "is satisfied: give it one, such as F[0,10]")
        check_hope(parsed, dt)
        seen = VIEWS[view](parsed, dt, round(length / dt), task_schema(of.scene),
                           reward={**fitted(of, view), **(reward or {})}, **dict(of_view or {}))
    return Task(
        name="stl", scene=of.scene, command=of.command, control_dt=dt, substeps=of.substeps, episode_s=length,
        formula=parsed, formula_text=text, constants=given, observe=Observe(of, seen), act=of.act,
        objective=seen.objective, initial=initial, explore=explore, extra=extra,
        shapes=shapes or shapes_of(parsed, of), stop=of.stop, finite=True)
