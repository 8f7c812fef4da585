"""What disturbs a world within an episode, as a pure function of (seed, world, episode, step).

    raw = {"interval_s": [2, 5], "duration_s": 0.2, "force_n": [1, 3]}
    wrenches = WrenchDisturbances.parse(raw, backend.parameters, dt=0.02)
    wrenches.at(seed, worlds, episode, step)   # {"force_w": [N, 3]} to add to the drawn value; None: as a step before

No timer is kept. Event k of an episode comes at ``(phase + k) T + j_k``, where ``T`` is the middle of the interval,
``phase`` in [0, 1) is drawn per episode and ``j_k`` per event, uniform within a quarter of the interval's spread to
both sides of 0. The distance of two events then never leaves the interval, and the present event is found without going
through those before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, floor, inf, isfinite
from typing import Any

import torch
from torch import Tensor

from temporeal.robots.spec import Parameter
from temporeal.sim.compiler.keyed_random import normal, stream, uniform
from temporeal.sim.randomization.distributions import Distribution, draw_parameters

KEYS = ("interval_s", "duration_s", "force_n", "impulse_ns", "torque_nm", "direction", "on")
DIRECTIONS = ("any", "horizontal")
TORQUES = ("torque_w", "torque_b")
TOOL = "tool"
NONE_YET = -1
SLACK_S = 1e-6  # a step's time is a sum of floats; an event at a step belongs to it
ONLY = "push"  # name of a disturbance that the configuration does not name. Names key the draws, so they stay


@dataclass(frozen=True)
class Schedule:
    """Events of which each comes between ``low`` and ``high`` seconds after the one before; ``name`` keys the draws."""

    name: str
    low: float
    high: float

    def present(self, seed: int, worlds: Tensor, episode: Tensor, time_s: Tensor) -> tuple[Tensor, Tensor]:
        """Number [K] of the latest event at ``time_s`` [K] (-1: none yet), and the seconds [K] since it."""
        period = (self.low + self.high) / 2
        phase = uniform(seed, worlds, episode, stream(f"{self.name}.phase"), 1)[:, 0].double()
        start = phase * period
        latest = torch.round((time_s + SLACK_S - start) / period)
        begins = self._begins(seed, worlds, episode, start, latest, period)
        late = begins > time_s + SLACK_S
        if bool(late.any()):
            latest = latest - late.double()
            begins = self._begins(seed, worlds, episode, start, latest, period)
        return latest.long().clamp(min=NONE_YET), time_s - begins

    def beginning(self, seed: int, worlds: Tensor, episode: Tensor, event: Tensor) -> Tensor:
        """When the events [K] come, s [K]."""
        period = (self.low + self.high) / 2
        phase = uniform(seed, worlds, episode, stream(f"{self.name}.phase"), 1)[:, 0].double()
        return self._begins(seed, worlds, episode, phase * period, event.double(), period)

    def _begins(
        self, seed: int, worlds: Tensor, episode: Tensor, start: Tensor, event: Tensor, period: float
    ) -> Tensor:
        spread = (self.high - self.low) / 2
        begins = start + event * period
        if spread:
            step = event.long().clamp(min=NONE_YET) + 1
            u = uniform(seed, worlds, episode, stream(f"{self.name}.time"), 1, step=step)[:, 0]
            begins = begins + spread * (u.double() - 0.5)
        return begins


@dataclass(frozen=True)
class WrenchDisturbance:
    """A recurring force and torque of limited duration.

    Args:
        name: in the configuration; keys the draws.
        steps: duration, control steps.
        force: least and greatest force, N, on the parameter ``force_on``.
        torque: least and greatest torque, N m, on the parameter ``torque_on``.
        horizontal: whether forces lie in the world's horizontal plane, and torques of the world frame about its z.
    """

    name: str
    schedule: Schedule
    steps: int
    force: tuple[float, float] | None
    torque: tuple[float, float] | None
    horizontal: bool
    force_on: str
    torque_on: str

    def wrench(self, seed: int, worlds: Tensor, episode: Tensor, event: Tensor) -> dict[str, Tensor]:
        """Force and torque of the event [K], [K, 3] each, by the names of the parameters that they are added to."""
        out = {}
        for what, size, on in (("force", self.force, self.force_on), ("torque", self.torque, self.torque_on)):
            if size is not None:
                step = event + 1
                key = f"push.{self.name}.{what}"  # keys the draws: another name would change them
                share = uniform(seed, worlds, episode, stream(key), 1, step=step)
                direction = normal(seed, worlds, episode, stream(f"{key}.direction"), 3, step=step)
                out[on] = self._unit(direction, on) * (size[0] + (size[1] - size[0]) * share)
        return out

    def _unit(self, direction: Tensor, on: str) -> Tensor:
        """Directions [K, 3] of length 1, horizontal where asked for; normal numbers prefer no direction."""
        if self.horizontal and on == self.force_on:
            direction = torch.cat([direction[:, :2], torch.zeros_like(direction[:, 2:])], -1)
        elif self.horizontal and not on.endswith("_b"):
            direction = torch.cat([torch.zeros_like(direction[:, :2]), direction[:, 2:]], -1)
        return direction / direction.norm(dim=-1, keepdim=True).clamp(min=1e-12)


@dataclass(frozen=True)
class WrenchDisturbances:
    """All forces and torques that disturb an environment. ``dt``: control period, s.

    A disturbance begins with the first control step at or after its event and acts in as many whole steps as its
    duration needs. Events before the episode do not act in it.
    """

    kinds: tuple[WrenchDisturbance, ...]
    dt: float

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that they are added to."""
        found = [n for k in self.kinds for n, size in ((k.force_on, k.force), (k.torque_on, k.torque)) if size]
        return tuple(dict.fromkeys(found))

    @staticmethod
    def parse(raw: Mapping[str, Any] | None, parameters: Mapping[str, Parameter], dt: float) -> WrenchDisturbances:
        """From configuration: one disturbance, or several by name; every key and number is checked.

        Keys: ``interval_s`` [least, greatest] between the beginnings of two events; ``duration_s``; ``force_n``, or
        ``impulse_ns`` (force times duration), and ``torque_nm``, each a number or [least, greatest]; ``direction`` any
        or horizontal; ``on`` the robot's base or an object.
        """
        raw = dict(raw or {})
        several = bool(raw) and all(isinstance(v, Mapping) or v is None for v in raw.values())
        given = raw if several else {ONLY: raw} if raw else {}
        kinds = [parse_wrench(f"disturbances.{name}" if several else "disturbances", str(name), spec, parameters, dt)
                 for name, spec in given.items() if spec is not None]
        return WrenchDisturbances(tuple(kinds), dt)

    def at(self, seed: int, worlds: Tensor, episode: Tensor, step: Tensor) -> dict[str, Tensor] | None:
        """What is added to the parameters [K, 3] in the control step that follows sample ``step`` [K] of the worlds.

        None where no world differs from the step before (nothing acts before step 0).
        """
        if not bool(self.changed(seed, worlds, episode, step).any()):
            return None
        return self.wrench(seed, worlds, episode, step)

    def changed(self, seed: int, worlds: Tensor, episode: Tensor, step: Tensor) -> Tensor:
        """Whether anything differs from the step before: bool [K]."""
        out = torch.zeros_like(worlds, dtype=torch.bool)
        for kind in self.kinds:
            event, acts = self._acting(kind, seed, worlds, episode, step)
            before, acted = self._acting(kind, seed, worlds, episode, step - 1)
            out |= (acts != acted) | (acts & (event != before))
        return out

    def wrench(self, seed: int, worlds: Tensor, episode: Tensor, step: Tensor) -> dict[str, Tensor]:
        """What acts, changed or not."""
        total: dict[str, Tensor] = {}
        for kind in self.kinds:
            event, acts = self._acting(kind, seed, worlds, episode, step)
            for name, value in kind.wrench(seed, worlds, episode, event).items():
                value = value * acts[:, None]
                total[name] = total[name] + value if name in total else value
        return total

    def unchanged_until(self, seed: int, worlds: Tensor, episode: Tensor, step: Tensor) -> Tensor:
        """A time [K] up to which nothing changes after sample ``step`` [K], s; infinite without disturbances."""
        out = torch.full(step.shape, inf, dtype=torch.float64, device=step.device)
        for kind in self.kinds:
            event, ago, acts = self._latest(kind, seed, worlds, episode, step)
            begins = kind.schedule.beginning(seed, worlds, episode, event + 1)
            ends = (step - ago + kind.steps).double() * self.dt
            out = torch.minimum(out, torch.where(acts, torch.minimum(ends, begins), begins))
        return out

    def _acting(
        self, kind: WrenchDisturbance, seed: int, worlds: Tensor, episode: Tensor, step: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The latest event, and whether it still acts."""
        event, _, acts = self._latest(kind, seed, worlds, episode, step)
        return event, acts

    def _latest(
        self, kind: WrenchDisturbance, seed: int, worlds: Tensor, episode: Tensor, step: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The latest event, the control steps since its first one, and whether it still acts."""
        event, since = kind.schedule.present(seed, worlds, episode, step.double() * self.dt)
        ago = torch.floor((since + SLACK_S) / self.dt).long().clamp(min=0)
        return event, ago, (event > NONE_YET) & (ago < kind.steps) & (ago <= step)


# ---------------------------------------------------------------- from configuration


def parse_wrench(
    where: str, name: str, raw: Any, parameters: Mapping[str, Parameter], dt: float
) -> WrenchDisturbance:
    """One disturbance, checked."""
    if not isinstance(raw, Mapping) or set(raw) - set(KEYS):
        raise ValueError(f"{where} is a mapping with some of {', '.join(KEYS)}; got {raw!r}")
    given = {key: value for key, value in raw.items() if value is not None}
    for key in ("interval_s", "duration_s"):
        if key not in given:
            raise ValueError(f"{where} needs {key}")
    low, high = _ends(f"{where}.interval_s", given["interval_s"])
    steps = _duration(where, given["duration_s"], low, dt)
    force = _force(where, given, steps * dt)
    torque = _ends(f"{where}.torque_nm", given["torque_nm"]) if "torque_nm" in given else None
    if not force and not torque:
        raise ValueError(f"{where} needs force_n, impulse_ns or torque_nm")
    direction = given.get("direction", "any")
    if direction not in DIRECTIONS:
        raise ValueError(f"{where}.direction is {direction!r}; legal: {', '.join(DIRECTIONS)}")
    prefix = _prefix(where, str(given.get("on", "base")), parameters)
    torque_on = next((prefix + t for t in TORQUES if prefix + t in parameters), "")
    if torque and not torque_on:
        raise ValueError(f"{where}.torque_nm: {given.get('on', 'base')} takes no torque; parameters: "
                         f"{', '.join(parameters)}")
    return WrenchDisturbance(name, Schedule(f"push.{name}", low, high), steps, force, torque,
                             direction == "horizontal", f"{prefix}force_w", torque_on)


def _duration(where: str, value: Any, least_interval: float, dt: float) -> int:
    """``duration_s`` in whole control steps; it fits into the least interval."""
    duration, longest = _ends(f"{where}.duration_s", value)
    if duration != longest or not dt - SLACK_S <= duration:
        raise ValueError(f"{where}.duration_s is one number, at least a control step of {dt:g} s; got {value!r}")
    steps = ceil(duration / dt - SLACK_S)
    if floor(least_interval / dt + SLACK_S) < steps:
        raise ValueError(f"{where}: disturbances of {duration:g} s cannot be {least_interval:g} s apart; interval_s is "
                         f"at least duration_s in whole control steps, {steps * dt:g} s")
    return steps


def _force(where: str, given: Mapping[str, Any], duration: float) -> tuple[float, float] | None:
    """Least and greatest force, N, from a force or from an impulse over ``duration`` s."""
    if "force_n" in given and "impulse_ns" in given:
        raise ValueError(f"{where}: force_n and impulse_ns are alternatives; give one")
    if "impulse_ns" in given:
        first, last = _ends(f"{where}.impulse_ns", given["impulse_ns"])
        return first / duration, last / duration
    return _ends(f"{where}.force_n", given["force_n"]) if "force_n" in given else None


def _prefix(where: str, on: str, parameters: Mapping[str, Parameter]) -> str:
    """The beginning of the names of the body's parameters."""
    frames = [name.removesuffix("force_w") for name in parameters if name.endswith(".force_w")]
    # of a robot that is fixed to the world the last frame that is a signal, such as an arm's tool
    prefix = "" if on == "base" else frames[-1] if on == TOOL and f"{TOOL}." not in frames and frames else f"{on}."
    if f"{prefix}force_w" not in parameters:
        legal = ["base" if name == "force_w" else name.removesuffix(".force_w")
                 for name in parameters if name == "force_w" or name.endswith(".force_w")]
        listed = ", ".join(legal) or "nothing: nothing in this scene moves freely"
        raise ValueError(f"{where}.on is {on!r}; what takes a force here: {listed}")
    return prefix


def _ends(where: str, value: Any) -> tuple[float, float]:
    ends = value if isinstance(value, (list, tuple)) else (value, value)
    numbers = [x for x in ends if isinstance(x, (int, float)) and not isinstance(x, bool) and isfinite(x) and x > 0]
    if len(ends) != 2 or len(numbers) != 2 or ends[0] > ends[1]:
        raise ValueError(f"{where} is a number greater than 0, or [least, greatest]; got {value!r}")
    return float(ends[0]), float(ends[1])


# ---------------------------------------------------------------- all that changes within an episode


@dataclass(frozen=True)
class Disturbances:
    """Forces and torques, and parameters that are drawn again within an episode (``when: {every_s: ...}``)."""

    wrenches: WrenchDisturbances
    redrawn: Mapping[str, Distribution]
    parameters: Mapping[str, Parameter]
    known: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """When each world that was asked about last changes next: saves time, decides nothing."""

    @staticmethod
    def parse(
        raw: Mapping[str, Any] | None, distributions: Mapping[str, Distribution], parameters: Mapping[str, Parameter],
        dt: float,
    ) -> Disturbances:
        """``raw``: from configuration; ``distributions``: all that are drawn; ``dt``: control period, s."""
        redrawn = {name: d for name, d in distributions.items() if isinstance(d.when, tuple)}
        return Disturbances(WrenchDisturbances.parse(raw, parameters, dt), redrawn, parameters)

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that :meth:`at` gives."""
        return tuple(dict.fromkeys((*self.wrenches.names, *self.redrawn)))

    def at(
        self, seed: int, worlds: Tensor, episode: Tensor, step: Tensor, base: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]] | None:
        """What to set before the control step that follows sample ``step`` [K] of ``worlds`` [K]: the worlds [M] in
        which something changes, and their values [M, count] by name. None: nothing changes.

        ``base``: what the running episodes were given at their start, [K, count] by name (nominal if left out). Step 0
        counts as a change. An episode that begins later (in mid-mission) begins with :meth:`values`, because the
        episode before it may have ended in a disturbance.
        """
        if not self.names:
            return None
        some = self._may_change(seed, worlds, episode, step)
        if len(some):
            some = some[self._changed(seed, worlds[some], episode[some], step[some])]
        if not len(some):
            return None
        ids = worlds[some]
        return ids, self.values(seed, ids, episode[some], step[some], {k: v[some] for k, v in base.items()})

    def _may_change(self, seed: int, worlds: Tensor, episode: Tensor, step: Tensor) -> Tensor:
        """Places [M] of the worlds that are not known to be as a step before."""
        known = self.known
        if known.get("seed") != seed or not torch.equal(known["worlds"], worlds):
            until = torch.full(step.shape, -inf, dtype=torch.float64, device=step.device)
            known |= {"seed": seed, "worlds": worlds.clone(), "episode": episode - 1, "from": step.clone(),
                      "until": until}
        ahead = (known["episode"] == episode) & (step >= known["from"])
        unchanged = ahead & (step.double() * self.wrenches.dt < known["until"] - 2 * SLACK_S)
        some = (~unchanged).nonzero()[:, 0]
        if len(some):
            ids, when, steps = worlds[some], episode[some], step[some]
            until = self.wrenches.unchanged_until(seed, ids, when, steps)
            for name in self.redrawn:
                begins = self._schedule(name).beginning(seed, ids, when, self._change(name, seed, ids, when, steps) + 1)
                until = torch.minimum(until, begins)
            for key, value in (("episode", when), ("from", steps), ("until", until)):
                known[key][some] = value
        return some

    def _changed(self, seed: int, worlds: Tensor, episode: Tensor, step: Tensor) -> Tensor:
        changed = (step == 0) | self.wrenches.changed(seed, worlds, episode, step)
        for name in self.redrawn:
            before = self._change(name, seed, worlds, episode, step - 1)
            changed |= self._change(name, seed, worlds, episode, step) != before
        return changed

    def values(
        self, seed: int, worlds: Tensor, episode: Tensor, step: Tensor, base: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """What holds in the control step that follows sample ``step`` [K], changed or not: [K, count] by name."""
        count = len(worlds)
        out = {name: base[name].reshape(count, -1) if name in base else self._nominal(name, count, step.device)
               for name in self.names}
        for name, dist in self.redrawn.items():
            event = self._change(name, seed, worlds, episode, step)
            drawn = draw_parameters(self.parameters, {name: dist}, seed, worlds, episode, change=event + 1)[name]
            out[name] = torch.where((event > NONE_YET)[:, None], drawn.reshape(count, -1), out[name])
        for name, value in self.wrenches.wrench(seed, worlds, episode, step).items():
            out[name] = out[name] + value
        return out

    def _change(self, name: str, seed: int, worlds: Tensor, episode: Tensor, step: Tensor) -> Tensor:
        """Number of its latest change, -1: none yet."""
        return self._schedule(name).present(seed, worlds, episode, step.double() * self.wrenches.dt)[0]

    def _schedule(self, name: str) -> Schedule:
        low, high = self.redrawn[name].when
        return Schedule(f"change.{name}", float(low), float(high))

    def _nominal(self, name: str, count: int, device: torch.device) -> Tensor:
        return torch.tensor(self.parameters[name].nominal, device=device).expand(count, -1)
