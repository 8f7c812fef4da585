"""Curricula: what an episode is made of, chosen by how the learner does.

    curriculum = parse_curriculum({"kind": "adr", "parameters": {"friction": {"as": "scale", "low": 0.3, "high": 3.0,
                                  "log": True, "first": 1.0}}}, backend.parameters, start_draws(task.initial), N, seed)
    values = curriculum.draw(ids, episode)                     # [K, D], the same whenever it is asked for
    params = curriculum.apply(values, params)                  # over what the randomization drew
    state = task.initial(curriculum.steer(draw, values))       # over what the task's reset draws
    curriculum.finish(ids, episode, success, returns)          # episodes that ended
    curriculum.update()                                        # once per iteration: the teacher learns

A dimension is a number that is set, multiplied with or added to a parameter of the backend or of a camera rig, or one
of the uniform numbers ``start.<stream>`` that the task's reset makes its starts and goals of. Teachers
(:mod:`temporeal.sim.curricula`) see the unit cube.

Between two updates a proposal depends on (seed, world, episode) alone. Several processes have one teacher where that
learns from all: each gathers the others' episodes in :meth:`Curriculum.update` and so keeps an equal copy; its
proposals differ by its seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from math import isfinite, log
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.robots.spec import Parameter
from temporeal.sim.compiler.devices import moved
from temporeal.sim.curricula import adr, alp_gmm, plain
from temporeal.sim.curriculum.points import Teacher, Trials, check_share
from temporeal.sim.randomization.distributions import LARGEST_UNIT, POSITIVE, is_signed

Draw = Callable[[str, int], Tensor]
Gather = Callable[[Tensor], Tensor]
"""Rows [E, C] of this process to the rows [sum of E, C] of all, in the order of the processes; float64 on the CPU."""

START = "start."
ACTIONS = ("value", "scale", "add")
KINDS: dict[str, tuple[str, ...]] = {
    "none": (), "fixed": (), "uniform": (), "linear": ("episodes",),
    "levels": tuple(f.name for f in fields(plain.LevelSettings)),
    "adr": tuple(f.name for f in fields(adr.Settings)),
    "alp_gmm": tuple(f.name for f in fields(alp_gmm.Settings))}
GROWING = ("fixed", "linear", "levels", "adr")  # where the range begins decides what is drawn
WHOLE = ("episodes", "levels", "samples", "every", "window", "components", "history")
SHARES, PAIRS = ("up", "down", "grow", "shrink", "boundary", "random"), ("components",)
COMMON = ("kind", "parameters", "outcome", "return_range")
DIMENSION_KEYS = ("of", "as", "low", "high", "log", "first", "components")


@dataclass(frozen=True)
class Dimension:
    """One number of an episode.

    Args:
        of: a parameter's name, or ``start.<stream>``.
        action: ``value``: it is set; ``scale``: it multiplies, ``add``: it is added to, what the randomization drew
            (the nominal value where it drew nothing).
        low, high: over the whole curriculum. ``log``: its logarithm is what is spread evenly.
        first: range in which the curriculum begins (``uniform`` has the whole range from the start).
        components: of the parameter or stream that it acts on; all if empty.
    """

    name: str
    of: str
    action: str
    low: float
    high: float
    log: bool
    first: tuple[float, float]
    components: tuple[int, ...]

    def value(self, u: Tensor) -> Tensor:
        """The value at ``u`` [K] in [0, 1], float32."""
        if self.log:
            return torch.exp(log(self.low) + (log(self.high) - log(self.low)) * u.double()).float()
        return (self.low + (self.high - self.low) * u.double()).float()

    def unit(self, value: float) -> float:
        """The opposite of :meth:`value`."""
        if self.log:
            return (log(value) - log(self.low)) / (log(self.high) - log(self.low))
        return (value - self.low) / (self.high - self.low)


def start_draws(initial: Callable[[Draw], object]) -> dict[str, int]:
    """Streams that a task's reset draws from, and how many numbers of each."""
    found: dict[str, int] = {}

    def draw(name: str, count: int) -> Tensor:
        found[name] = max(count, found.get(name, 0))
        return torch.full((1, count), 0.5)

    initial(draw)
    return found


# ---------------------------------------------------------------- from configuration


def parse_curriculum(
    raw: Mapping[str, Any] | None, parameters: Mapping[str, Parameter], starts: Mapping[str, int], num_worlds: int,
    seed: int,
) -> Curriculum | None:
    """The curriculum of a configuration, every name and number checked; None where there is none.

    Args:
        parameters: of the backend, and of the camera rig where there is one.
        starts: from :func:`start_draws`.
        seed: of the environment.
    """
    raw = {key: value for key, value in dict(raw or {}).items() if key != "name"}
    kind = raw.get("kind", "none")
    if kind not in KINDS:
        raise ValueError(f"curriculum.kind is {kind!r}; legal: {', '.join(KINDS)}")
    legal = (*COMMON, *KINDS[kind])
    if unknown := [key for key in raw if key not in legal]:
        raise ValueError(f"curriculum: unknown keys {unknown}; legal with kind {kind}: {', '.join(legal)}")
    parameters_of = raw.get("parameters") or {}
    if not isinstance(parameters_of, Mapping):
        raise ValueError(f"curriculum.parameters is a mapping from names to dimensions, got {parameters_of!r}")
    given = {name: spec for name, spec in parameters_of.items() if spec is not None}
    if kind == "none":
        if given:
            raise ValueError(f"curriculum.parameters ({', '.join(map(str, given))}) need a teacher: name one with "
                             f"curriculum=<kind>; legal: {', '.join(k for k in KINDS if k != kind)}")
        return None
    if not given:
        raise ValueError(f"curriculum: kind {kind} needs parameters, such as "
                         f"friction: {{as: scale, low: 0.5, high: 2}}")
    dimensions = tuple(parse_dimension(str(name), spec, parameters, starts, grows=kind in GROWING)
                       for name, spec in given.items())
    outcome, ends = raw.get("outcome", "success"), raw.get("return_range")
    if outcome not in ("success", "return"):
        raise ValueError(f"curriculum.outcome is {outcome!r}; legal: success, return")
    if outcome == "return" and ends is None:
        raise ValueError("curriculum: outcome return needs return_range: [return of a bad episode, of a good one]")
    settings = {key: tuple(raw[key]) if isinstance(raw[key], list) else raw[key] for key in KINDS[kind] if key in raw}
    teacher = make_teacher(kind, dimensions, num_worlds, settings)
    return Curriculum(teacher, dimensions, num_worlds, seed, None if outcome == "success" else _pair(
        "curriculum.return_range", ends))


def make_teacher(kind: str, dimensions: tuple[Dimension, ...], num_worlds: int, settings: Mapping[str, Any]) -> Teacher:
    """The teacher called ``kind`` for these dimensions."""
    low, high = (np.array([d.unit(d.first[side]) for d in dimensions]) for side in (0, 1))
    for key, value in settings.items():
        pair = key in PAIRS
        numbers = value if pair and isinstance(value, tuple) else (value,)
        if len(numbers) != (2 if pair else 1) or any(not _is_number(x) for x in numbers):
            told = "[least, greatest]" if pair else "a finite number"
            raise ValueError(f"curriculum.{key} is {told}, got {value!r}")
        if key in WHOLE and any(not isinstance(x, int) for x in numbers):
            raise ValueError(f"curriculum.{key} is a whole number{' each' if pair else ''}, got {value!r}")
        if key in SHARES:
            check_share(key, value)
    if kind == "adr":
        return adr.Adr(low, high, adr.Settings(**settings))
    if kind == "alp_gmm":
        return alp_gmm.AlpGmm(low, high, alp_gmm.Settings(**settings))
    if kind == "levels":
        return plain.Levels(low, high, num_worlds, plain.LevelSettings(**settings))
    if kind == "linear":
        if "episodes" not in settings:
            raise ValueError("curriculum: kind linear needs episodes: how many of a world until all is drawn")
        return plain.Linear(low, high, settings["episodes"])
    return (plain.Fixed if kind == "fixed" else plain.Uniform)(low, high)


def parse_dimension(
    name: str, raw: Any, parameters: Mapping[str, Parameter], starts: Mapping[str, int], grows: bool = False
) -> Dimension:
    """One dimension, checked. ``grows``: it begins with ``first``, or where that is not given at what is nominal."""
    where = f"curriculum.parameters.{name}"
    if not isinstance(raw, Mapping) or set(raw) - set(DIMENSION_KEYS) or not {"low", "high"} <= set(raw):
        raise ValueError(f"{where} is a mapping with low and high, legal keys: {', '.join(DIMENSION_KEYS)}; "
                         f"got {raw!r}")
    of = str(raw.get("of") or name)
    low, high = (_number(f"{where}.{key}", raw[key]) for key in ("low", "high"))
    if not low < high:
        raise ValueError(f"{where}: needs low < high, got {low:g} and {high:g}")
    if raw.get("log") not in (None, True, False) or (raw.get("log") and low <= 0):
        raise ValueError(f"{where}.log is true or false, and true needs low > 0; got {raw['log']!r}, low {low:g}")
    count, action = _target(where, of, raw.get("as", "value"), parameters, starts)
    _check_ends(where, of, action, low, high, parameters)
    components = _components(where, raw.get("components"), count)
    first = raw.get("first")
    if first is None and grows:
        first = _nominal(where, of, action, low, high, components, parameters)
    pair = (low, high) if first is None else _pair(f"{where}.first", first)
    if not low <= pair[0] <= pair[1] <= high:
        raise ValueError(f"{where}.first lies from low to high, {low:g} to {high:g}; got {first!r}")
    return Dimension(name, of, action, low, high, bool(raw.get("log")), pair, components)


def _nominal(
    where: str, of: str, action: str, low: float, high: float, components: tuple[int, ...],
    parameters: Mapping[str, Parameter],
) -> float:
    """The value between ``low`` and ``high`` that changes nothing."""
    nominal = parameters[of].nominal if of in parameters else ()
    same = {float(action == "scale")} if action != "value" else {
        x for i, x in enumerate(nominal) if i in (components or range(len(nominal)))}
    if len(same) != 1 or not low <= (value := same.pop()) <= high:
        raise ValueError(f"{where} needs first, where the range begins: a number or [least, greatest] within {low:g} "
                         f"to {high:g}; what is nominal is not one number there")
    return value


def _target(
    where: str, of: str, action: Any, parameters: Mapping[str, Parameter], starts: Mapping[str, int]
) -> tuple[int, str]:
    """How many components ``of`` has, and what is done with it."""
    legal = (*parameters, *(f"{START}{name}" for name in starts))
    if of not in legal:
        raise ValueError(f"{where}: there is no {of!r}; legal: {', '.join(legal)}")
    if action not in ACTIONS:
        raise ValueError(f"{where}.as is {action!r}; legal: {', '.join(ACTIONS)}")
    if of.startswith(START) and action != "value":
        raise ValueError(f"{where}.as is {action!r}; a draw of the reset is set: value")
    return (starts[of.removeprefix(START)] if of not in parameters else len(parameters[of].nominal)), action


def _check_ends(
    where: str, of: str, action: str, low: float, high: float, parameters: Mapping[str, Parameter]
) -> None:
    """Neither end is a value that the parameter cannot have."""
    if of not in parameters:
        if low < 0 or high > 1:
            raise ValueError(f"{where}: a draw of the reset lies in [0, 1], got {low:g} to {high:g}")
        return
    p = parameters[of]
    reached = {"value": high, "scale": high * max(p.nominal), "add": max(p.nominal) + high}[action]
    if reached > p.most + 1e-9:  # of sums in float
        raise ValueError(f"{where}: {of} is at most {p.most:g} {p.unit} in this simulator, and high = {high:g} gives "
                         f"{reached:g}")
    if is_signed(of, p):
        return
    nominal = min(p.nominal)
    least = {"value": low, "scale": low, "add": nominal + low}[action]
    positive = of.rpartition(".")[2] in POSITIVE and nominal > 0
    if least < 0 or (positive and least == 0):
        raise ValueError(f"{where}: {of} is {'greater than' if positive else 'at least'} 0, and low = {low:g} gives "
                         f"{least:g}")


def _components(where: str, raw: Any, count: int) -> tuple[int, ...]:
    places = [] if raw is None else raw if isinstance(raw, (list, tuple)) else [raw]
    if any(isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < count for i in places):
        raise ValueError(f"{where}.components are places from 0 to {count - 1}, got {raw!r}")
    return tuple(places)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)


def _number(where: str, value: Any) -> float:
    if not _is_number(value):
        raise ValueError(f"{where} is a finite number, got {value!r}")
    return float(value)


def _pair(where: str, value: Any) -> tuple[float, float]:
    ends = value if isinstance(value, (list, tuple)) else (value, value)
    if len(ends) != 2:
        raise ValueError(f"{where} is a number or [least, greatest], got {value!r}")
    low, high = _number(where, ends[0]), _number(where, ends[1])
    if low > high:
        raise ValueError(f"{where} is [least, greatest], got {value!r}")
    return low, high


def _listed(prefix: str, settings: object) -> dict[str, Any]:
    """The fields of a dataclass (of none: nothing) as plain data."""
    values = {} if settings is None else vars(settings)
    return {f"{prefix}{key}": list(v) if isinstance(v, tuple) else v for key, v in values.items()}


# ---------------------------------------------------------------- in training


class Curriculum:
    """A teacher, what its points mean, and what the N worlds of one process play of them.

    Args:
        return_range: returns of a bad (0) and of a good episode (1); None: the outcome is success, 0 or 1.
    """

    def __init__(
        self, teacher: Teacher, dimensions: tuple[Dimension, ...], num_worlds: int, seed: int,
        return_range: tuple[float, float] | None = None,
    ) -> None:
        if return_range is not None and not return_range[0] < return_range[1]:
            raise ValueError(f"curriculum.return_range is [bad, good] with bad < good, got {list(return_range)}")
        self.teacher, self.dimensions, self.seed, self.return_range = teacher, dimensions, seed, return_range
        # of each world the present episode and the next, which is drawn ahead: episode e at place e % 2
        self.points = torch.zeros(2, num_worlds, len(dimensions), dtype=torch.float64)
        self.tags = torch.zeros(2, num_worlds, dtype=torch.int64)
        self.episodes = torch.full((2, num_worlds), -1, dtype=torch.int64)
        self.finished: list[Tensor] = []  # rows: point, tag, outcome, world
        self.results = {"episodes": 0.0, "outcome": 0.0}
        self.about: dict[str, Any] = {
            "teacher": type(teacher).__name__, "return_range": None if return_range is None else list(return_range),
            **_listed("", getattr(teacher, "settings", None)), "episodes": getattr(teacher, "episodes", None)}
        for d in dimensions:
            self.about |= _listed(f"parameters.{d.name}.", d)
        """What makes this curriculum another than one with the same names: plain data."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the dimensions."""
        return tuple(d.name for d in self.dimensions)

    def draw(self, ids: Tensor, episode: Tensor) -> Tensor:
        """Values [K, D] float32 for the episodes [K] of the worlds [K].

        The first call for an episode decides; as long as it is the present or the next one, later calls give the same,
        whatever the teacher has learned by then.
        """
        worlds, when = ids.cpu(), episode.cpu()
        place = when % 2
        new = self.episodes[place, worlds] != when
        if bool(new.any()):
            w, e = worlds[new], when[new]
            found = self.teacher.propose(self.seed, w, e)
            self.points[e % 2, w], self.tags[e % 2, w] = found.points.cpu(), found.tag.cpu()
            self.episodes[e % 2, w] = e
        points = self.points[place, worlds]
        return torch.stack([d.value(points[:, i]) for i, d in enumerate(self.dimensions)], -1).to(ids.device)

    def knows(self, world: int, episode: int) -> bool:
        """Whether the values of this episode are kept: the present and the next one of each world."""
        return bool(self.episodes[episode % 2, world] == episode)

    def apply(
        self, values: Tensor, params: Mapping[str, Tensor], parameters: Mapping[str, Parameter]
    ) -> dict[str, Tensor]:
        """``params`` (by name, [K, count], [K] where the count is 1) with ``values`` [K, D] over them.

        Args:
            parameters: nominal values, for what ``params`` does not have.
        """
        out = dict(params)
        for i, d in enumerate(self.dimensions):
            if d.of not in parameters:
                continue
            nominal = parameters[d.of].nominal
            old = out[d.of] if d.of in out else torch.tensor(nominal, device=values.device).expand(len(values), -1)
            old = old.reshape(len(values), len(nominal))
            value = values[:, i : i + 1].expand_as(old)
            new = {"value": value, "scale": old * value, "add": old + value}[d.action]
            if d.components:
                chosen = torch.zeros(len(nominal), dtype=torch.bool, device=values.device)
                chosen[list(d.components)] = True
                new = torch.where(chosen, new, old)
            out[d.of] = new[:, 0] if len(nominal) == 1 else new
        return out

    def steer(self, draw: Draw, values: Tensor) -> Draw:
        """``draw`` with the numbers replaced that the curriculum chooses: ``values`` [K, D]."""
        steered = {i: d for i, d in enumerate(self.dimensions) if d.of.startswith(START)}
        if not steered:
            return draw

        def chosen(name: str, count: int) -> Tensor:
            out = draw(name, count)
            for i, d in steered.items():
                if d.of == f"{START}{name}":
                    out = out.clone()
                    places = [c for c in d.components or range(count) if c < count]
                    out[:, places] = values[:, i : i + 1].clamp(0.0, LARGEST_UNIT).to(out.dtype)
            return out

        return chosen

    def finish(self, ids: Tensor, episode: Tensor, success: Tensor, returns: Tensor) -> None:
        """Episodes [K] of the worlds [K] ended: bool [K], float [K]. To be called before the next ones are drawn."""
        worlds, when = ids.cpu(), episode.cpu()
        if not len(worlds):
            return
        if not bool((self.episodes[when % 2, worlds] == when).all()):
            raise ValueError("curriculum.finish: these episodes were not drawn here, or too long ago")
        outcome = success.cpu().double()
        if self.return_range is not None:
            bad, good = self.return_range
            outcome = ((returns.cpu().double() - bad) / (good - bad)).clamp(0.0, 1.0)
        place = when % 2
        self.finished.append(torch.column_stack([
            self.points[place, worlds], self.tags[place, worlds].double(), outcome, worlds.double()]))

    def update(self, gather: Gather | None = None) -> None:
        """Tell the teacher of the episodes that ended since the last update; ``gather`` adds those of other processes.

        Every process calls it, as often as the others.
        """
        size = len(self.dimensions)
        rows = torch.cat([torch.zeros(0, size + 3, dtype=torch.float64), *self.finished])
        self.finished = []
        if gather is not None and self.teacher.shared:
            rows = gather(rows)
        table = rows.numpy()
        self.results = {"episodes": float(len(table)), "outcome": float(table[:, -2].mean()) if len(table) else 0.0}
        self.teacher.observe(Trials(table[:, :size], table[:, size].astype(np.int64), table[:, -2],
                                    table[:, -1].astype(np.int64)))

    def metrics(self) -> dict[str, float]:
        """What to log after an update: the teacher's figures, ranges in the dimensions' own units by their names."""
        out = dict(self.results)
        for key, number in self.teacher.figures().items():
            what, _, place = key.partition(".")
            if place:
                d = self.dimensions[int(place)]
                out[f"{what}.{d.name}"] = float(d.value(torch.tensor(number, dtype=torch.float64)))
            else:
                out[key] = number
        return {f"curriculum/{key}": value for key, value in out.items()}

    def state_dict(self) -> dict[str, Any]:
        """Everything that a bit-exact continuation needs."""
        return {"about": dict(self.about), "names": list(self.names), "points": self.points.clone(),
                "tags": self.tags.clone(),
                "episodes": self.episodes.clone(), "finished": [x.clone() for x in self.finished],
                "teacher": self.teacher.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned: of the same curriculum over as many worlds.

        Raises ValueError, and changes nothing, where the state is of another teacher, other settings or other ranges.
        """
        state = moved(state, "cpu")  # where it was written: a learner on a GPU brings all states there
        self._check_same(state)
        if tuple(state["names"]) != self.names or state["points"].shape != self.points.shape:
            raise ValueError(f"curriculum: a state of {tuple(state['points'].shape[1:])} worlds and "
                             f"{', '.join(state['names'])}, expected {tuple(self.points.shape[1:])} and "
                             f"{', '.join(self.names)}")
        self.points, self.tags = state["points"].clone(), state["tags"].clone()
        self.episodes, self.finished = state["episodes"].clone(), [x.clone() for x in state["finished"]]
        self.teacher.load_state_dict(state["teacher"])

    def _check_same(self, state: Mapping[str, Any]) -> None:
        about = state.get("about", {})
        if about.get("teacher") != self.about["teacher"]:
            raise ValueError(f"curriculum: a state of teacher {about.get('teacher')}, expected {self.about['teacher']}")
        if tuple(state["names"]) != self.names:
            return  # told with the number of worlds
        for key in dict.fromkeys((*about, *self.about)):
            if about.get(key) != self.about.get(key):
                raise ValueError(f"curriculum: a state with {key} {about.get(key)}, expected {self.about.get(key)}")
