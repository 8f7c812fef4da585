"""A task that is a formula and nothing else: a system, what it must do, where it starts.

How the formula is seen and rewarded is a *view*, chosen with the learning algorithm: ``scheduled`` (TGPO's,
:mod:`temporeal.sim.rewards.scheduled`), or one of the baselines' (:mod:`temporeal.sim.rewards.views`).
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from temporeal.sim.maps import Memory
from temporeal.sim.rewards import scheduled
from temporeal.sim.rewards.schedule_automaton import ScheduleAutomaton
from temporeal.sim.rewards.schedules import draw_schedules
from temporeal.sim.rewards.views import PER_LENGTH, REWARDS, SCHEDULED, VIEWS, View, check_view
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.language.queries import horizon
from temporeal.sim.stl.planning.decompose import Decomposition, decompose
from temporeal.sim.stl.rewriting.normal import NotDecomposable, positive
from temporeal.sim.stl.rewriting.ranges import margin_upper_bound
from temporeal.sim.stl.rewriting.satisfiability import never_positive, without_unsatisfiable
from temporeal.sim.system import System
from temporeal.sim.task import Constant, Task, check_range, task_schema, weights
from temporeal.sim.task_parts.regions import shapes_of
from temporeal.sim.task_parts.scheduled_starts import ScheduledStarts
from temporeal.sim.task_parts.systems import system_of

FORMULA = "F[0,12] (norm(base_pos_w - a) < r) & G[0,16] (norm(base_pos_w) > r)"
CONSTANTS: dict[str, Any] = {}
"""Legal are those that the formula names."""
TAKES = """\
This task, with algo=tgpo, takes every formula whose windows end and that a schedule can follow; write another for the
part that is named above. `temporeal spec` judges recorded traces by any formula."""
"""What to write where a formula is refused."""
EXAMPLE: dict[str, Any] = {"a": [3.0, 3.0, 0.0], "r": 0.8}  # of FORMULA, m

SCHEDULES = 4096  # schedules to draw from, before an algorithm puts better ones there


class Observe(nn.Module):
    """The system's own observation, then the view's features."""

    def __init__(self, system: System, view: View) -> None:
        super().__init__()
        self.system, self.view = system, view
        self.module = view.module  # so that its constants move with the map
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


def resolved(*, system: str = "linear", view: str = SCHEDULED, **given: Any) -> dict[str, Any]:
    """The settings with what the system brings, so that a run's file says what it was trained with, whatever the
    system's own become."""
    settings = {"system": system, "view": view, **given}
    of: System = system_of(system)
    if view != SCHEDULED:
        return {**settings, "reward": {**fitted(of, view), **(given.get("reward") or {})}}
    slack = of.slack if given.get("slack") is None else given["slack"]
    reward = weights(scheduled.Reward, {**of.reward, **(given.get("reward") or {})})
    return {**settings, "slack": slack, "reward": asdict(reward)}


def fitted(of: System, view: str) -> dict[str, float]:
    """Coefficients of another view's reward that are per length, in proportion to the system's lengths."""
    smaller = scheduled.Reward.scale / of.reward.get("scale", scheduled.Reward.scale)
    return {f.name: smaller * f.default for f in fields(REWARDS[view]) if f.name in PER_LENGTH}


def formula_and_constants(
    formula: str | None, constants: Mapping[str, Any] | None, start: Mapping[str, Any] | None
) -> tuple[str, dict[str, Any]]:
    """The formula and its constants; the example's where none is given."""
    if formula is not None:
        return formula, dict(EXAMPLE if constants is None and formula == FORMULA else constants or {})
    if given := [name for name, value in (("constants", constants), ("start", start)) if value]:
        raise ValueError(f"task 'stl': {' and '.join(given)} without a formula: give one, such as {FORMULA!r}")
    return FORMULA, dict(EXAMPLE)


def satisfiable_decomposition(formula: Formula, dt: float) -> Decomposition:
    """The decomposition without what can never be done: a warning names it, a ValueError where nothing else is left."""
    found = decompose(formula, dt, strict=True)
    if never := _never(found):
        warnings.warn(f"task 'stl': {never}: ways to satisfy the formula that ask for it are left out", stacklevel=3)
    return found


def check_satisfiable(formula: Formula, dt: float) -> None:
    """A warning that names what can never hold, a ValueError where ``formula`` never can: for views without
    :func:`satisfiable_decomposition`. A formula that cannot be decomposed is checked predicate by predicate."""
    try:
        found = decompose(formula, dt, strict=True)
        none_left, never = not found.alternatives, _never(found)
    except NotDecomposable:
        left, impossible = without_unsatisfiable(positive(formula), {})
        none_left = never_positive(left)
        never = _named(impossible, none_left)
    if none_left:
        raise ValueError("task 'stl': nothing can satisfy the formula")
    if never:
        warnings.warn(f"task 'stl': {never}: what asks for it is never done", stacklevel=3)


def _never(found: Decomposition) -> str:
    """What of a strict decomposition never holds, :func:`_named`."""
    clashes = {} if found.alternatives else found.clashes
    pairs = dict.fromkeys(frozenset((one, other)) for one, others in clashes.items() for other in others)
    return _named(found.unsatisfiable, not found.alternatives, [
        f"{' and '.join(sorted(map(str, pair)))} never hold at one time" for pair in pairs])


def _named(impossible: Sequence[Formula], none_left: bool, clashes: Sequence[str] = ()) -> str:
    """What never holds, by name; a ValueError with it, and with the ``clashes``, where there is ``none_left`` to do."""
    most = {p: margin_upper_bound(p) for p in impossible}
    never = [f"{p} can never hold" + (f" by more than {most[p] + 0.0:g}" if isfinite(most[p]) else "")
             for p in impossible]
    if none_left and (never or clashes):
        raise ValueError(f"task 'stl': {'; '.join([*never, *clashes])}: that leaves no way to do what the formula asks "
                         "for; compare with < or > and give it room")
    return "; ".join(never)


def check_room(automaton: ScheduleAutomaton, slack: float | None, margin: float) -> None:
    """A ValueError where a subgoal can never hold by the ``slack`` that a task says, or what is kept by ``margin``."""
    kept = dict.fromkeys(keep.predicate for a in automaton.alternatives for keep in a.keeps)
    for name, value, asked in (("slack", slack, automaton.reached), ("margin", margin, kept)):
        for predicate in asked:
            most = margin_upper_bound(predicate)
            if value is not None and value >= most:
                raise ValueError(f"task 'stl': {name} is {value:g}, but {predicate} holds by less than {most:g} at "
                                 f"best, so that it would never count; legal: below {most:g}, or leave it out")


def check_of_view(view: str, given: Mapping[str, Any]) -> None:
    """``given`` are settings that the view has."""
    own = {} if view == SCHEDULED else inspect.signature(VIEWS[view]).parameters
    legal = [name for name, p in own.items() if p.kind is p.KEYWORD_ONLY and name != "reward"]
    if unknown := [name for name in given if name not in legal]:
        raise ValueError(f"task 'stl': of_view.{unknown[0]}: view {view} has no such setting; legal: "
                         f"{', '.join(legal) or 'none'}")


def scheduled_view(
    of: System, formula: Formula, slack: float | None, margin: float, reward: Mapping[str, float]
) -> scheduled.ScheduledView:
    """TGPO's view of ``formula``; arguments as of :func:`make`."""
    asked = None if slack == of.slack else slack
    seen = scheduled.make(
        satisfiable_decomposition(formula, of.control_dt), slack=of.slack if asked is None else asked, margin=margin,
        reward={**of.reward, **reward}, lost=of.lost, body=of.body, fitted=asked is None)
    check_room(seen.automaton, asked, margin)
    return seen


def baseline_view(view: str, of: System, formula: Formula, length_s: float, settings: Mapping[str, Any]) -> View:
    """A baseline's view of ``formula`` in episodes of ``length_s``; ``settings``: of the view, with ``reward``."""
    if not isfinite(length_s):
        raise ValueError("task 'stl': the formula has a window without an end, so that no episode tells whether it "
                         "is satisfied: give it one, such as F[0,10]")
    check_satisfiable(formula, of.control_dt)
    reward = {**fitted(of, view), **settings["reward"]}
    return VIEWS[view](formula, of.control_dt, round(length_s / of.control_dt), task_schema(of.scene),
                       **{**settings, "reward": reward})


def make(
    *, system: str = "linear", formula: str | None = None, constants: Mapping[str, Any] | None = None,
    start: Mapping[str, Any] | None = None, shapes: Sequence[Mapping[str, Any]] = (), episode_s: float | None = None,
    view: str = SCHEDULED, slack: float | None = None, margin: float = 0.0, reward: Mapping[str, float] | None = None,
    of_view: Mapping[str, Any] | None = None,
) -> Task:
    """The task.

    Args:
        system: of `sim/systems`, or an arm or a quadrotor by its name or folder; ``start``: its settings of where
            episodes begin.
        view: ``scheduled``, or one of :data:`temporeal.sim.rewards.views.VIEWS`; ``reward``: coefficients of that view,
            those left out as the system says (``scheduled``) or as the view does, what is per length in proportion to
            the system's.
        slack, margin: of the scheduled view, in the predicates' unit. ``slack`` None, or the system's own (as in a
            run's file): that, or half of the most that a predicate can hold by, whichever is less. ``of_view``: other
            settings of the view, such as ``samples`` of ``tau_mdp`` and ``privileged`` of ``terminal_robustness``.
        episode_s: s; the formula's horizon if left out.
    """
    for name, value in (("slack", 0.0 if slack is None else slack), ("margin", margin)):
        check_range("stl", name, value, 0.0, 10.0, "of the predicates' unit")
    check_view(view)
    check_of_view(view, dict(of_view or {}))
    of: System = system_of(system)
    text, given = formula_and_constants(formula, constants, start)
    dt, parsed = of.control_dt, parse(text, task_schema(of.scene), given)
    length = max(horizon(parsed, dt), dt) if episode_s is None else episode_s
    start = dict(start or {})
    starts: ScheduledStarts | None = None
    if view == SCHEDULED:
        seen: Any = scheduled_view(of, parsed, slack, margin, reward or {})
        buffer = draw_schedules(seen.automaton.alternatives, SCHEDULES, np.random.default_rng(0))
        starts = ScheduledStarts(partial(of.initial, start=start), of, start, seen.automaton, buffer)
    else:
        seen = baseline_view(view, of, parsed, length, {"reward": reward or {}, **(of_view or {})})
    return Task(
        name="stl", scene=of.scene, command=of.command, control_dt=dt, substeps=of.substeps, episode_s=length,
        formula=parsed, formula_text=text, constants=given, observe=Observe(of, seen), act=of.act,
        objective=seen.objective, initial=partial(of.initial, start=start) if starts is None else starts.initial,
        mid_episode=None if starts is None else starts.mid_episode, schedules=starts,
        extra=None if starts is None else Constant(seen.spec), shapes=shapes or shapes_of(parsed, of), stop=of.stop,
        finite=True)
