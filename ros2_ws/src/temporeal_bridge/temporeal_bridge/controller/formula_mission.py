"""A typed formula as a controller flies it: planned from where the robot is, refused where that is hopeless, forecast,
and planned again whenever a place was hit, and on the way.

numpy and onnxruntime: the search orders the places, the artifact's judge says how likely each order is, and the policy
reads the best one as a row of numbers. Two places of each plan are read at a time; those beyond what a row holds come
into it by the plans on the way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from temporeal.robots.artifact.formulas import HELD, HIT, TICK
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.spec import RobotSpec
from temporeal.sim.stl.instructions.vocabulary import InstructionError
from temporeal.sim.stl.itineraries.detours import of_formula
from temporeal.sim.stl.itineraries.guide import Guide, Ways
from temporeal.sim.stl.itineraries.itinerary import Itinerary, Leg
from temporeal.sim.stl.itineraries.moving import Floats, moved, placed, shifts
from temporeal.sim.stl.itineraries.on_the_way import chance_left
from temporeal.sim.stl.itineraries.planner import Plan, reading
from temporeal.sim.stl.itineraries.program import BIG
from temporeal.sim.stl.itineraries.regions import Numbers
from temporeal.sim.stl.itineraries.search import straight
from temporeal.sim.stl.language.text import number_text
from temporeal_bridge.instruction.typed_formulas import Typed, formulas_of, typed, where
from temporeal_bridge.interface.interface import Interface

Signals = Mapping[str, np.ndarray]
NO_ORDER = """\
no order of the places is in time from here, {point} m, at {speed:g} m/s: give more time, or start nearer"""
NOMINAL = "the forecast is of a simulator without noise, latency and randomization"


class FormulaMission:
    """One mission.

    Args:
        require: P(satisfied) below which it is refused. read_s: what reading the formula took [s].

    Attributes:
        found: the plan that is followed; None: there was no state yet. forecast: P(satisfied) when the mission was
            planned. left: now. planned_s: what planning took [s]; again_s: at most, planning in a control step.
        done: places that were hit before the plan that is followed. centers, asked_at: where signals that regions are
            bound to were when it was begun, and when the newest plan was.
    """

    def __init__(self, artifact: Artifact, typed: Typed, require: float = 0.0, read_s: float = 0.0) -> None:
        self.artifact, self.typed, self.require = artifact, typed, require
        self.of, self.dt = formulas_of(artifact.manifest), 1.0 / artifact.manifest.rate_hz
        self.found: Plan | None = None
        self.guide: Guide | None = None
        self.done = 0
        self.forecast = self.left = float("nan")
        self.read_s, self.planned_s, self.again_s = read_s, 0.0, 0.0
        self.row: Floats = np.zeros(self.of.size, np.float32)
        self.by: dict[str, Floats] = {}
        self.asked_at: dict[str, np.ndarray] = {}
        self.centers: dict[str, np.ndarray] = {}

    def plan(self, signals: Signals) -> None:
        """Plan from where the robot and what moves are now. InstructionError: it is not flown."""
        began = perf_counter()
        point = numbers(signals[self.of.position])
        guide = Guide(self._ways(signals), straight(self.of.speed, self.dt, self.of.per_axis),
                      self.artifact.judged, self.dt, self.of.room)
        try:
            found = guide.begin(point)
        except ArithmeticError as error:
            raise InstructionError(f"no plan from {point} with these places: {error}") from error
        if found is None:
            raise InstructionError(NO_ORDER.format(point=", ".join(f"{x:.2f}" for x in point), speed=self.of.speed))
        forecast = reading(found.chance, self.of.calibration)
        if forecast < self.require:
            raise InstructionError(f"P(satisfied) is {forecast:.2f}, {self.require:g} is required. The best itinerary: "
                                   + "; ".join(lines(found, self.dt)))
        self.guide, self.forecast, self.left, self.done, self.again_s = guide, forecast, forecast, 0, 0.0
        self._follow(found)
        self.planned_s = perf_counter() - began

    def _ways(self, signals: Signals) -> Ways:
        """The alternatives with the places that move where they are now, for a plan that begins."""
        self.asked_at = {name: np.asarray(signals[name], float).copy() for name in self.typed.bound}
        return placed(self.typed.ways, self.asked_at)

    def _follow(self, found: Plan) -> None:
        self.found, self.row, self.by, self.centers = found, found.program, shifts(found.itinerary), self.asked_at

    def advance(self, signals: Signals) -> None:
        """After a control step with ``signals``: plan the rest where a place was hit, and on the way where another plan
        is likelier. The policy's memory of hits begins anew with a plan."""
        if self.guide is None:
            return
        memory, began = self.artifact.memory, perf_counter()
        found = self.guide.step(numbers(signals[self.of.position]), int(memory[TICK][0]), memory[HIT][0].tolist(),
                                float(memory[HELD][0]), partial(self._ways, signals))
        if found is not None:
            self.artifact.memory = {**memory, HIT: np.zeros_like(memory[HIT]), HELD: np.zeros_like(memory[HELD])}
            self.done = 0 if self.guide.begun is None else len(self.guide.begun.groups)
            self._follow(found)
        self.again_s = max(self.again_s, perf_counter() - began)

    def reads(self, signals: Signals) -> dict[str, np.ndarray]:
        """What the policy reads of the mission: the program, its regions where their signals say that they are."""
        return {self.of.signal: self.now(signals)}

    def now(self, signals: Signals) -> Floats:
        """The program [SIZE]."""
        if not self.by:
            return self.row
        return moved(self.row, self.by, {name: signals[name] - self.centers[name] for name in self.by})

    def update(self, signals: Signals) -> dict[str, Any]:
        """The forecast as it is now, given the policy's memory; places that were hit, of how many."""
        if self.found is None:
            return {}
        memory = self.artifact.memory
        hits = memory[HIT][0]
        chance = 0.0 if self.found.chance <= 0 else chance_left(
            self.found.itinerary, self.now(signals), numbers(signals[self.of.position]), float(memory[TICK][0]), hits,
            self.artifact.judged)
        self.left = reading(chance, self.of.calibration)
        return {"forecast": self.left, "hits": self.done + int((hits > 0).sum()),
                "legs": self.done + len(of_formula(self.found.itinerary.groups)), "again_ms": 1e3 * self.again_s}

    def said(self) -> dict[str, Any]:
        """What the operator is told, besides the mission itself."""
        if self.found is None:
            return {}
        notes = [*self.typed.notes, *(() if self.of.randomized else (NOMINAL,))]
        return {"forecast": self.forecast, "itinerary": lines(self.found, self.dt), "notes": notes,
                "read_ms": 1e3 * self.read_s, "planned_ms": 1e3 * self.planned_s}


def warm(artifact: Artifact, robot: RobotSpec, interface: Interface) -> None:
    """Read and plan a formula, without effect: parser and networks are made at their first use, which takes longer."""
    of, dt = formulas_of(artifact.manifest), 1.0 / artifact.manifest.rate_hz
    text = f"F[0,{number_text(2 * dt)}] (norm({of.position} - here) < wide)"
    wide = 2.0 * of.radius[1] + of.slack
    found = typed(artifact.manifest, robot, interface, json.dumps(
        {"formula": text, "constants": {"here": [0.0, 0.0, 0.0], "wide": wide}}))
    FormulaMission(artifact, found).plan({of.position: np.zeros(3)})


def numbers(point: Any) -> Numbers:
    """A position [3] as plain numbers."""
    x, y, z = map(float, point)
    return x, y, z


def lines(found: Plan, dt: float) -> list[str]:
    """The itinerary in words, a place each."""
    return [leg_line(k, leg, found.itinerary, found.chances, dt) for k, leg in enumerate(found.itinerary.legs)]


def leg_line(k: int, leg: Leg, found: Itinerary, chances: Sequence[float], dt: float) -> str:
    """One place in words: where, when, for how long, how likely."""
    place = "anywhere" if leg.region is None else f"at {where(leg.region)}"
    until = "" if leg.high >= BIG else f" to {leg.high * dt:g}"
    stay = f", for {leg.hold * dt:g} s" if leg.hold else ""
    chance = f", P {chances[k]:.2f}" if k < len(chances) else ""
    return f"{place} after {found.times[k] * dt:.1f} s ({leg.low * dt:g}{until} s){stay}{chance}"
