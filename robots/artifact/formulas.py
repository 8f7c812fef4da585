"""What an artifact says of the formulas that its policy takes as data, and what makes programs of them on the robot.

A manifest with this part has ``schema_version`` 4, and a second network, ``judge.onnx``: the chance that a leg of a
mission is done, and how long that takes. Plain data, checked where it is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from temporeal.robots.signals import SignalSpec, is_number, is_size

JUDGE = "judge.onnx"
PROGRAMS, POINTS, TICKS, HITS = "programs", "points", "ticks", "hits"  # inputs of the judge
CHANCE, SAMPLES = "chance", "samples"  # outputs
TICK, HIT, HELD = "tick", "hit", "held"
"""Memory of a policy that follows programs: samples since the start; of each leg 1 + the sample of its hit, 0: not yet;
samples that the robot has been in the current place."""
MOST_SIZE, MOST_LEGS, MOST_CONSTANTS, MOST_TEXT = 100_000, 1000, 100, 2000
LARGEST = 1e6  # of a number of a formula, constant or literal: arithmetic of larger ones overflows
JUDGE_TOLERANCE = 1e-3  # of a chance, and of the logarithm of 1 + samples: roundings of another machine


@dataclass(frozen=True)
class FormulaSpec:
    """What a policy that flies any formula was trained for. Lengths in m, times in s.

    Args:
        signal: that carries the program, float32 [``size``] (:mod:`temporeal.sim.stl.itineraries.program`).
        legs: places of a program at most.
        position: the signal, [3] m, that formulas are about.
        keep: formula of a state that every mission keeps throughout, because the policy was trained within it;
            ``constants`` are its numbers.
        slack: that the robot must be inside of a place to count. margin: by which what is kept must be.
        speed: m/s, by which the search guesses how long ways are; per_axis: along each axis by itself.
        horizon_s: of a formula at most.
        radius, avoid_radius: least and greatest of places and of what is avoided, in training.
        slope, offset: of the log-odds of the judge's chance, to P(satisfied)
            (:func:`temporeal.sim.stl.itineraries.planner.reading`).
        validation: share of formulas of the validation family that were satisfied, with this planner and judge.
        randomized: whether these flights, which calibrated the forecast, were under the randomization of the training
            (``training.randomize`` of the manifest); else without noise, latency and randomization.
        room: m that planned ways keep from what must be kept out of; 0: they are straight.
    """

    signal: str
    size: int
    legs: int
    position: str
    keep: str
    constants: Mapping[str, float]
    slack: float
    margin: float
    speed: float
    per_axis: bool
    horizon_s: float
    radius: tuple[float, float]
    avoid_radius: tuple[float, float]
    slope: float
    offset: float
    validation: float
    randomized: bool = False
    room: float = 0.0

    def __post_init__(self) -> None:
        for name in ("signal", "position"):
            if not isinstance(value := getattr(self, name), str) or not value.isidentifier():
                raise ValueError(f"formulas: {name} is {value!r:.60}; a signal's name is needed")
        if self.signal == self.position:
            raise ValueError(f"formulas: signal is {self.signal!r}, and so is position; the program is a signal of its "
                             "own")
        for name, largest in (("size", MOST_SIZE), ("legs", MOST_LEGS)):
            if not is_size(value := getattr(self, name)) or not 1 <= value <= largest:
                raise ValueError(f"formulas: {name} is a whole number from 1 to {largest}, got {value!r:.60}")
        if not isinstance(self.keep, str) or not 0 < len(self.keep) <= MOST_TEXT:
            raise ValueError(f"formulas: keep is a formula of 1 to {MOST_TEXT} characters, got {self.keep!r:.60}")
        if not isinstance(self.constants, Mapping) or len(self.constants) > MOST_CONSTANTS or any(
                not isinstance(k, str) or not k.isidentifier() or not is_number(v) or abs(v) > LARGEST
                for k, v in self.constants.items()):
            raise ValueError(f"formulas: constants are at most {MOST_CONSTANTS} numbers by name, of {LARGEST:g} at "
                             f"most, got {self.constants!r:.80}")
        for name, least, most in (("slack", 0.0, 1e3), ("margin", 0.0, 1e3), ("speed", 1e-6, 1e3),
                                  ("horizon_s", 1e-3, 1e5), ("room", 0.0, 1e3), ("slope", 0.0, 1e6),
                                  ("offset", -1e6, 1e6), ("validation", 0.0, 1.0)):
            if not is_number(value := getattr(self, name)) or not least <= value <= most:
                raise ValueError(f"formulas: {name} is a number from {least:g} to {most:g}, got {value!r:.60}")
        for name in ("radius", "avoid_radius"):
            pair = getattr(self, name)
            if not isinstance(pair, tuple) or len(pair) != 2 or not all(map(is_number, pair)) or not (
                    0 < pair[0] <= pair[1] <= LARGEST):
                raise ValueError(f"formulas: {name} is a least and a greatest value above 0, of {LARGEST:g} at most, "
                                 f"got {pair!r:.60}")
        if not self.slack < self.radius[0]:
            raise ValueError(f"formulas: slack is {self.slack:g} m, and the least radius of places {self.radius[0]:g} "
                             "m; inside of each place there is room for the slack")
        if 0 < self.room <= self.slack:
            raise ValueError(f"formulas: room is {self.room:g} m, and slack {self.slack:g} m: corners of ways are "
                             "places of this size, inside of which there is room for the slack; 0: no corners")
        for name in ("per_axis", "randomized"):
            if type(value := getattr(self, name)) is not bool:
                raise ValueError(f"formulas: {name} is true or false, got {value!r:.60}")

    @property
    def spec(self) -> SignalSpec:
        """The program's declaration."""
        return SignalSpec(self.signal, (self.size,), "1")

    @property
    def calibration(self) -> dict[str, float]:
        """Slope and offset."""
        return {"slope": self.slope, "offset": self.offset}

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the judge's inputs, without the number of rows."""
        return {PROGRAMS: (self.size,), POINTS: (3,), TICKS: (), HITS: (self.legs,)}

    @property
    def memory(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the memory of whoever follows a program."""
        return {TICK: (), HIT: (self.legs,), HELD: ()}


OUTPUTS: dict[str, tuple[int, ...]] = {CHANCE: (), SAMPLES: ()}
"""Shapes of the judge's outputs, without the number of rows."""


def misfit(of: FormulaSpec, signals: Mapping[str, SignalSpec], memory: Mapping[str, Any]) -> str:
    """What a policy that reads ``signals`` and has ``memory``, shapes by name, lacks; empty: nothing."""
    if signals.get(of.signal) != of.spec:
        return f"the policy does not read its signal {of.signal!r}, float32 [{of.size}]"
    if of.position not in signals or signals[of.position].shape != (3,):
        return f"the policy does not read the position {of.position!r}, three numbers"
    for name, shape in of.memory.items():
        if memory.get(name) != shape:
            return f"the policy lacks the memory {name!r} {list(shape)}, which follows programs"
    return ""
