"""Formulas flown in closed loop by any method, one rollout each, and judged by the formula's exact robustness.

    class Method(Protocol):                    # what a policy or a planner has to be
        name, gives, at_once, identity
        begin(missions, signals) -> Pilot      # Pilot.act(signals) -> [N, A]; Pilot.forecast: [N] P(satisfied)

    flights = fly(method, formulas, world("linear"))

A method is told formulas, constants and horizons (:class:`Mission`), and the true signals of now; never the witness.
World i starts where formula i was drawn to start. The environment is that of ``task=stl`` on the system's own backend,
without randomization, and goes on whatever the robot does: a robot that fell lies there until its formula is over.
What it did is judged as flights of a training are: the robustness at time 0 of the whole formula on the recorded
signals, float64. Times are of the processor.

N formulas flown together, T control steps of the longest, A action, U command.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.training.generalist.flights import judged, recorded
from temporeal.sim.stl.distribution.drawing import Drawn, start_settings
from temporeal.sim.stl.distribution.motions import loaded
from temporeal.sim.stl.distribution.settings import World
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.language.queries import signals_in
from temporeal.sim.stl.language.text import number_text

if TYPE_CHECKING:
    from temporeal.sim.env import Env
    from temporeal.sim.task import Draw, Task

Signals = Mapping[str, Tensor]
"""True signals by name, [N, ...]: the robot's, and ``mission_time`` s."""
ACTIONS, COMMANDS = "actions", "commands"
NEAR = 2e-3  # m: of a start; homes are written in millimetres


@dataclass(frozen=True)
class Mission:
    """What a method is told of a formula.

    Args:
        index: of the formula in its set: what is drawn for it may be keyed by this.
        text, constants: of the formula, as ``task=stl`` takes them; ``formula``: the same, parsed.
        steps: control steps of the horizon; nothing that happens later counts.
    """

    index: int
    text: str
    constants: Mapping[str, Any]
    formula: Formula
    steps: int


class Pilot(NamedTuple):
    """A method on its way.

    Args:
        act: ``act(signals) -> [N, A]`` actions in [-1, 1], or [N, U] commands; called once for each control step.
        forecast: P(satisfied) [N], told before the first step; None: the method does not say.
    """

    act: Callable[[Signals], Tensor]
    forecast: Tensor | None = None


class Method(Protocol):
    """A way to fly formulas of one robot that it may never have seen.

    Attributes:
        name: in rows and trials.
        gives: :data:`ACTIONS` in [-1, 1] of the system's action map, or :data:`COMMANDS` in the robot's units, as a
            policy's graph and an artifact give them.
        at_once: how many formulas one pilot takes, at most. 1: each is begun, and timed, by itself.
        identity: settings, or the digest of what was trained: trials of another identity are made again.
    """

    @property
    def name(self) -> str:
        """See above."""

    @property
    def gives(self) -> str:
        """See above."""

    @property
    def at_once(self) -> int:
        """See above."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """See above."""

    def begin(self, missions: Sequence[Mission], signals: Signals) -> Pilot:
        """The pilot of N missions whose robots are where ``signals`` say; whatever is decided once is decided here."""


class Flight(NamedTuple):
    """What became of one formula.

    Args:
        number: of the formula, its index in the set.
        robustness: exact, of the whole formula at time 0; -inf where a signal was not finite.
        forecast: P(satisfied) as told before.
        decision_s: of a formula that was begun by itself: from its text to its first command. later_s: all later steps;
            slowest_s: the slowest of them.
    """

    number: int
    robustness: float
    forecast: float | None = None
    decision_s: float | None = None
    later_s: float | None = None
    slowest_s: float | None = None

    @property
    def satisfied(self) -> bool:
        """Whether the formula is."""
        return self.robustness > 0


def fly(method: Method, formulas: Sequence[Drawn], world: World, seed: int = 0) -> list[Flight]:
    """One rollout of each formula. ``seed``: of what a start leaves open, such as an ant's joints."""
    env, longest = environment(formulas, world, seed), max(found.horizon for found in formulas)
    env.reset()
    check_starts(env, formulas, world)
    crew = [Seat(method, formulas[first : first + method.at_once], first, world)
            for first in range(0, len(formulas), method.at_once)]
    names = sorted({name for seat in crew for mission in seat.missions for name in signals_in(mission.formula)})
    size = env.action_dim if method.gives == ACTIONS else env.task.robot.command(env.task.command).size

    def act(k: int) -> Signals:
        signals = {name: value.clone() for name, value in env.true_signals().items()}
        given = torch.zeros(len(formulas), size)
        for seat in crew:
            if k < seat.steps:
                given[seat.rows] = seat.act({name: value[seat.rows] for name, value in signals.items()})
        return step(env, given, method.gives)

    flown, finite = recorded(env, act, names, longest)
    return [flight for seat in crew for flight in seat.judged(flown, finite)]


class Seat:
    """One pilot and its formulas, rows ``first`` and on of those that are flown together."""

    def __init__(self, method: Method, formulas: Sequence[Drawn], first: int, world: World) -> None:
        self.method, self.formulas, self.world = method, formulas, world
        self.alone, self.rows = method.at_once == 1, slice(first, first + len(formulas))
        began = time.process_time()
        self.missions = [mission_of(found, world) for found in formulas]
        self.decision_s, self.later = time.process_time() - began, list[float]()
        self.steps, self.pilot = max(found.horizon for found in formulas), Pilot(unbegun)

    def act(self, signals: Signals) -> Tensor:
        """What the pilot gives for ``signals``, timed."""
        began, first = time.process_time(), self.pilot.act is unbegun
        if first:
            self.pilot = self.method.begin(self.missions, signals)
        found: Tensor = self.pilot.act(signals)
        took = time.process_time() - began
        if first:
            self.decision_s += took
        else:
            self.later.append(took)
        return found

    def judged(self, flown: Mapping[str, np.ndarray], finite: np.ndarray) -> list[Flight]:
        """The flights, of the signals [T+1, N, ...] of all."""
        out = []
        for k, (found, mission) in enumerate(zip(self.formulas, self.missions)):
            row = self.rows.start + k
            own = {name: x[:, row] for name, x in flown.items()}
            value = judged(mission.formula, own, mission.steps, self.world.dt) if finite[row] else -inf
            told = None if self.pilot.forecast is None else float(self.pilot.forecast[k])
            times = (self.decision_s, sum(self.later), max(self.later, default=0.0)) if self.alone else (None,) * 3
            out.append(Flight(found.index, value, told, *times))
        return out


def unbegun(signals: Signals) -> Tensor:
    """Of a seat whose pilot is not there yet."""
    raise RuntimeError("no pilot was begun")


def mission_of(found: Drawn, world: World) -> Mission:
    """What a method is told of ``found``."""
    formula = parse(found.formula, loaded(world.robot).signals, found.constants)
    return Mission(found.index, found.formula, found.constants, formula, found.horizon)


# ---------------------------------------------------------------- where it is flown


def environment(formulas: Sequence[Drawn], world: World, seed: int) -> Env:
    """The environment of ``task=stl``: a world for each formula, that starts where it does, longer than any."""
    from temporeal.sim.env import make_env

    task = arena(world, max(found.horizon for found in formulas) + 1, formulas[0])
    starts = [start_settings(world, found.place, found.heading) for found in formulas]
    system: Any = task.observe.system

    def initial(draw: Draw) -> dict[str, Tensor]:
        kept = dict[str, Tensor]()

        def of(row: int) -> Draw:
            def one(name: str, count: int) -> Tensor:
                if name not in kept:
                    kept[name] = draw(name, count)
                return kept[name][row : row + 1]
            return one

        rows = [system.initial(of(row), start) for row, start in enumerate(starts[: len(draw("initial.formulas", 1))])]
        return {name: torch.cat([row[name] for row in rows]) for name in rows[0]}

    return make_env(replace(task, initial=initial), backend=system.backend, num_worlds=len(formulas), threads=1,
                    seed=seed)


def arena(world: World, steps: int, found: Drawn) -> Task:
    """A task of ``world``'s system that asks for its arena alone, for ``steps`` control steps, and ends for nothing."""
    from temporeal.sim.tasks import stl

    end = number_text(round(steps * world.dt, 9))
    return stl.make(system=world.system, formula=f"G[0,{end}] ({world.keep})", constants=world.constants,
                    start=start_settings(world, found.place, found.heading), view="terminal_robustness")


def check_starts(env: Env, formulas: Sequence[Drawn], world: World) -> None:
    """Each robot is where its formula begins."""
    axes = len(world.low)
    there = env.true_signals()[world.signal][:, :axes].double().cpu()
    wanted = torch.tensor([found.place[:axes] for found in formulas], dtype=torch.float64)
    if not bool((off := (there - wanted).abs().amax(1)).max() <= NEAR):
        worst = int(off.argmax())
        raise RuntimeError(f"formula {formulas[worst].index} of {world.robot} starts at {wanted[worst].tolist()}, and "
                           f"its robot is at {there[worst].tolist()}")


def step(env: Env, given: Tensor, gives: str) -> Mapping[str, Any]:
    """One control step; what the environment tells of it."""
    if gives == COMMANDS:
        env.command_override = given
        given = given.new_zeros(env.num_worlds, env.action_dim)
    info: Mapping[str, Any] = env.step(given).info
    return info
