"""What formulas are drawn from: a robot's world and a family of missions, read from ``configs/formulas``.

    world("linear"), family("train")          # or the path of a .yaml of one's own with the same names
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from temporeal.robots.handed_over.files import read_text
from temporeal.robots.handed_over.texts import from_yaml
from temporeal.robots.registry import guess
from temporeal.robots.signals import is_number

MODELS = ("point", "cart", "glider")
"""Motions that a witness can have: :mod:`temporeal.sim.stl.distribution.motions`."""
EXACT = {"point": "linear", "cart": "unicycle"}
"""Of them, those that are what the simulator of one system computes; others are stand-ins."""
MOST_PLACES = 12
"""Places of a formula: they are called a, b, c, ..."""
MOST_AVOIDED = 16
MOST_SAMPLES = 100_000
"""Of a horizon."""
FAMILIES = "families.yaml"


@dataclass(frozen=True)
class World:
    """Where a robot's formulas are about, and how its witness moves. Lengths in m, times in s.

    Args:
        robot: whose signals the formulas read. system: of ``task=stl``, which flies them.
        model: the witness's motion, one of :data:`MODELS`: of a system in :data:`EXACT` what the simulator computes,
            of others a stand-in with limits below the robot's.
        dt: period of a witness's samples, the system's control period.
        speed, acceleration: limits of a ``glider``; of the others the robot's commands say.
        signal: the position that formulas read.
        low, high: corners of the arena, [2] or [3]. height: of places in an arena of two dimensions.
        place, avoid, keep: text of being at a place (``{0}`` is its name, ``{0}_r`` its radius), of being clear of a
            disc, and of what is kept throughout; ``constants`` are those of ``keep``.
        radius, avoid_radius: least and greatest radius of a place, and of a disc to avoid.
        gap: middles are at least this many times the sum of the radii apart (in the plane).
        hold_s: least and greatest time to stay.
        deadline: least and greatest factor on the time that the witness takes: 1 would leave none to spare.
        wait: greatest share of a window before which a hit does not count, where a window begins later.
        room: m that ways of a planner keep from what must be kept out of; 0: they are straight.
        depth: how far inside a place the witness goes. margin: least robustness of a witness.
        horizon_s: longest horizon.
        home: where each start is; None: drawn. headed: a start has a heading, which is drawn.
        start: settings of the system's start besides ``low``, ``high`` and ``heading``.
    """

    robot: str
    system: str
    model: str
    dt: float
    signal: str
    low: tuple[float, ...]
    high: tuple[float, ...]
    place: str
    avoid: str
    keep: str
    constants: Mapping[str, float]
    radius: tuple[float, float]
    avoid_radius: tuple[float, float]
    gap: float
    hold_s: tuple[float, float]
    deadline: tuple[float, float]
    wait: float
    depth: float
    margin: float
    horizon_s: float
    height: float = 0.0
    room: float = 0.0
    speed: float = 0.0
    acceleration: float = 0.0
    home: tuple[float, float, float] | None = None
    headed: bool = False
    start: Mapping[str, Any] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """Whether the witness moves as the simulator computes it."""
        return self.model in EXACT

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ValueError(f"model is {self.model!r}; {guess(self.model, MODELS)}legal: {', '.join(MODELS)}")
        if self.model in EXACT and self.system != EXACT[self.model]:
            raise ValueError(f"model {self.model} is how system {EXACT[self.model]} moves, and the system is "
                             f"{self.system!r:.60}; a glider is a stand-in for others")
        self._check_texts()
        for name in ("low", "high"):
            if not isinstance(getattr(self, name), tuple) or not all(map(is_number, getattr(self, name))):
                raise ValueError(f"{name} is a corner of the arena, numbers, got {getattr(self, name)!r:.60}")
        if len(self.low) != len(self.high) or len(self.low) not in (2, 3) or any(
                a >= b for a, b in zip(self.low, self.high)):
            raise ValueError(f"low and high are two corners of 2 or 3 numbers, low below high; got {self.low} and "
                             f"{self.high}")
        for name in ("radius", "avoid_radius", "hold_s", "deadline"):
            first, second = _pair(name, getattr(self, name))
            if not 0 < first <= second:
                raise ValueError(f"{name} is a least and a greatest value above 0, got {[first, second]}")
        if self.deadline[0] < 1.0:
            raise ValueError(f"deadline begins at {self.deadline[0]:g}; at least 1 is legal: the witness must be in "
                             "time")
        for name, low, high in (("dt", 1e-3, 10.0), ("gap", 1.0, 10.0), ("wait", 0.0, 1.0),
                                ("depth", 0.0, self.radius[0]), ("margin", 0.0, self.depth),
                                ("horizon_s", self.dt, 1e5), ("room", 0.0, 1e3), ("speed", 0.0, 1e3),
                                ("acceleration", 0.0, 1e4), ("height", -1e3, 1e3)):
            _within(name, getattr(self, name), low, high)
        if self.horizon_s / self.dt > MOST_SAMPLES:
            raise ValueError(f"horizon_s is {self.horizon_s:g} s, {self.horizon_s / self.dt:.0f} samples; at most "
                             f"{MOST_SAMPLES:,} are legal")
        if self.home is not None and (not isinstance(self.home, tuple) or len(self.home) != 3 or any(
                not is_number(x) for x in self.home)):
            raise ValueError(f"home is a place of three numbers, got {self.home!r:.60}")
        if self.model == "glider" and not (self.speed > 0 and self.acceleration > 0):
            raise ValueError("a glider needs a speed and an acceleration above 0")
        if self.model == "cart" and not self.headed:
            raise ValueError("a cart starts at a heading: headed is true")

    def _check_texts(self) -> None:
        """Texts of a place and of a disc have its name, and no braces besides."""
        for name in ("place", "avoid"):
            text = getattr(self, name)
            if "{0}" not in text or set(text.replace("{0}", "")) & set("{}"):
                raise ValueError(f"{name} is {text!r:.80}; {{0}} is the name of a place, {{0}}_r its radius, and other "
                                 "braces are not legal")
        if any(not isinstance(k, str) or not k.isidentifier() or not is_number(x) for k, x in self.constants.items()):
            raise ValueError(f"constants are numbers by name, got {self.constants!r:.80}")

    def named(self, text: str, name: str) -> str:
        """``text``, that of :attr:`place` or :attr:`avoid`, of the region ``name``."""
        return text.replace("{0}", name)


@dataclass(frozen=True)
class Family:
    """Which missions are drawn, and how often.

    Args:
        name: of the family: it is part of every seed, so that no formula of one family is drawn in another.
        shares: weight of each kind, of those in :mod:`temporeal.sim.stl.distribution.kinds`.
        sequence: fewest and most nested eventuallies. objects: of until patterns. leaves: of an and/or tree.
        depth: fewest and most levels of an and/or tree.
        avoid: probability of 0, 1, 2, ... discs to avoid.
        stay: probability that a place is stayed at, F G[0, hold]. later: probability that a window begins later.
        attempts: draws of one formula before it is given up. alternatives: most of a decomposition.
    """

    name: str
    shares: Mapping[str, float]
    sequence: tuple[int, int]
    objects: tuple[int, int]
    leaves: tuple[int, int]
    depth: tuple[int, int]
    avoid: tuple[float, ...]
    stay: float
    later: float
    attempts: int = 200
    alternatives: int = 64

    def __post_init__(self) -> None:
        if not self.shares or any(not is_number(x) or x < 0 for x in self.shares.values()) or sum(
                self.shares.values()) <= 0:
            raise ValueError(f"family {self.name}: shares are weights of kinds, at least one above 0; got "
                             f"{dict(self.shares)}")
        for name, least, most in (("sequence", 2, MOST_PLACES), ("objects", 2, 7), ("leaves", 2, MOST_PLACES),
                                  ("depth", 1, 4)):
            first, second = _pair(name, getattr(self, name))
            if first != int(first) or second != int(second) or not least <= first <= second <= most:
                raise ValueError(f"family {self.name}: {name} is a least and a greatest whole number of {least} to "
                                 f"{most}, got {[first, second]}")
        if not isinstance(self.avoid, tuple) or not 1 <= len(self.avoid) <= MOST_AVOIDED + 1 or any(
                not is_number(p) or p < 0 for p in self.avoid) or abs(sum(self.avoid) - 1) > 1e-6:
            raise ValueError(f"family {self.name}: avoid are the probabilities of 0, 1, ... discs, at most "
                             f"{MOST_AVOIDED}, which sum to 1; got {self.avoid!r:.80}")
        for name, low, high in (("stay", 0.0, 1.0), ("later", 0.0, 1.0), ("attempts", 1, 100_000),
                                ("alternatives", 1, 1000)):
            _within(f"family {self.name}: {name}", getattr(self, name), low, high)


def world(name: str) -> World:
    """The world of the robot ``name``, or of a ``.yaml`` file."""
    return world_of(*_read(name))


def family(name: str, source: str = FAMILIES) -> Family:
    """The family ``name`` of ``configs/formulas/families.yaml``, or of another ``.yaml`` file."""
    data, where = _read(source)
    if name not in data:
        raise ValueError(f"{where}: no family {name!r}; {guess(name, data)}known: {', '.join(data)}")
    return family_of({"name": name, **_inherited(data, name, where)}, f"{where}, {name}")


def world_of(data: Any, where: str) -> World:
    """The world with the settings ``data``; a ValueError names ``where`` one is not legal."""
    made: World = _made(World, data, where)
    return made


def family_of(data: Any, where: str) -> Family:
    """The family with the settings ``data``."""
    made: Family = _made(Family, data, where)
    return made


def worlds() -> list[str]:
    """The robots that have a world."""
    return sorted(f.name[:-5] for f in files("temporeal.configs").joinpath("formulas").iterdir()
                  if f.name.endswith(".yaml") and f.name != FAMILIES)


def comes_along(of: World | Family) -> bool:
    """Whether ``of`` is that of its name in ``configs/formulas``, unchanged."""
    if isinstance(of, World):
        return of.system in worlds() and of == world(of.system)
    return of.name in families() and of == family(of.name)


def families() -> list[str]:
    """The families that come along."""
    return list(_read(FAMILIES)[0])


def _inherited(data: Mapping[str, Any], name: str, where: str, seen: tuple[str, ...] = ()) -> dict[str, Any]:
    """The settings of a family, over those of the one that it is ``like``."""
    own = data[name]
    if not isinstance(own, Mapping):
        raise ValueError(f"{where}: family {name!r} is a mapping of settings, got {own!r:.60}")
    base = own.get("like")
    if base is None:
        return dict(own)
    if not isinstance(base, str) or base not in data or base in (name, *seen):
        raise ValueError(f"{where}: family {name!r} is like {base!r:.60}, which is none, or like itself")
    return {**_inherited(data, base, where, (*seen, name)), **{k: v for k, v in own.items() if k != "like"}}


def _read(name: str) -> tuple[dict[str, Any], str]:
    """The mapping in a file that comes along, or in one of the user's."""
    if name.endswith((".yaml", ".yml")) and name != FAMILIES:
        text, where = read_text(Path(name)), name
    else:
        file = files("temporeal.configs").joinpath("formulas", name if name == FAMILIES else f"{name}.yaml")
        if name != FAMILIES and name not in worlds():
            raise ValueError(f"no world of formulas for {name!r}; {guess(name, worlds())}known: {', '.join(worlds())}, "
                             "or a .yaml file of your own")
        text, where = file.read_text(encoding="utf-8"), f"configs/formulas/{file.name}"
    try:
        data = from_yaml(text, where)
    except yaml.YAMLError as error:
        raise ValueError(f"{where} is no YAML: {error}") from error
    if not isinstance(data, dict):
        raise ValueError(f"{where}: a mapping of settings is needed")
    return data, where


def _made(kind: Any, data: Any, where: str) -> Any:
    """``kind`` with the fields ``data``, lists as tuples."""
    names = [f.name for f in fields(kind)]
    if not isinstance(data, dict):
        raise ValueError(f"{where}: a mapping of settings is needed, got {data!r:.60}")
    if unknown := sorted(map(str, set(data) - set(names))):
        raise ValueError(f"{where}: unknown settings {', '.join(unknown)}; {guess(unknown[0], names)}legal: "
                         f"{', '.join(names)}")
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    kinds = {"str": str, "bool": bool, "int": int, "Mapping[str, float]": dict, "Mapping[str, Any]": dict}
    for f in fields(kind):
        name, value, wanted = f.name, values.get(f.name), kinds.get(str(f.type)) if f.name in values else None
        if wanted is not None and not isinstance(value, wanted):
            raise ValueError(f"{where}: {name} is a {'mapping' if wanted is dict else wanted.__name__}, got "
                             f"{value!r:.60}")
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {str(error).replace('__init__() ', '')}") from error


def _pair(name: str, value: Sequence[Any]) -> tuple[float, float]:
    if not isinstance(value, tuple) or len(value) != 2 or not all(is_number(x) for x in value):
        raise ValueError(f"{name} is two numbers, got {value!r:.60}")
    return value[0], value[1]


def _within(name: str, value: Any, low: float, high: float) -> None:
    if not is_number(value) or not low <= value <= high:
        raise ValueError(f"{name} is {value!r:.60}; {low:g} to {high:g} are legal")

