"""Search a policy's starts, physics, sensor errors and pushes for a flight that violates the task's formula.

    rollout = PolicyRollout(env, lambda env: graph_policy(graph), default_space(env))
    found = falsify_policy(rollout, budget=2000, seed=1)

A parameter's name says what it sets, for one episode:

``start.<stream>``         the draws in [0, 1) that the task's reset makes its starts of (``start.initial`` [12])
``state.<signal>``         the signal itself at the start (``state.base_vel_w`` [3] m/s), in place of the reset's
``physics.<parameter>``    a physical parameter or constant disturbance, in its unit; a scalar stands for all components
``share.<parameter>``      how far a shared parameter lies from the low to the high end of its distribution, in [0, 1]
``sensor.delay_steps``     age of the measurements, control steps
``sensor.bias.<signal>``   constant measurement error, in the signal's unit (attitude: a small rotation [3], rad)
``push.force_w`` [3] N, ``push.torque_b`` [3] N m: added from ``push.at_s`` for ``push.for_s`` seconds

What is not in the space is drawn as in an evaluation, keyed by the seed of the rollout; so is the white noise of the
sensors. A rollout is then a function of parameters and seed alone, whatever world simulates it beside whatever others.

The judgement is that of an evaluation (:mod:`temporeal.policies.evaluate.partial`): what was seen of an episode
decides, and of one that ended early nothing is made up. See :func:`policy_judge`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.evaluate.partial import bounds, verdict
from temporeal.policies.evaluate.rollout import rollout
from temporeal.policies.training.acting import Act
from temporeal.robots.signals import SignalError
from temporeal.sim.compiler.keyed_random import stream, uniform
from temporeal.sim.curriculum.configuration import start_draws
from temporeal.sim.env import Env
from temporeal.sim.episodes import Draws, Named, draw_episodes
from temporeal.sim.randomization.distributions import Distribution
from temporeal.sim.randomization.distributions import bounds as distribution_bounds
from temporeal.sim.stl.analysis.falsification import Falsification
from temporeal.sim.stl.analysis.falsify import falsify
from temporeal.sim.stl.analysis.parameter_space import (
    REACH,
    Choice,
    Integer,
    Parameter,
    ParameterSpace,
    Real,
    Scale,
    SpaceError,
    is_number,
    number_hint,
)
from temporeal.sim.stl.analysis.rollouts import Judge, Judgement, check_signals
from temporeal.sim.stl.analysis.search_options import SearchOptions
from temporeal.sim.stl.language.propositional import Formula

ALIVE = "episode_alive"
"""1 at the samples that the episode has, 0 afterwards: [T, B], beside the task's signals."""
LARGEST_DRAW = 1.0 - 2.0**-24  # of the numbers that `temporeal.sim.compiler.keyed_random.uniform` gives
FORCES = ("force_w", "torque_b")
PUSH = {"push.at_s": (), "push.for_s": (), "push.force_w": (3,), "push.torque_b": (3,)}


# ---------------------------------------------------------------- the space


def default_space(env: Env) -> ParameterSpace:
    """What an evaluation of ``env`` draws from: every start of the task's reset, every randomized parameter within its
    bounds, every delay and bias of its sensors.

    Sampled, it *is* the evaluation's distribution, but that each component of a normal one ends at three standard
    deviations (beyond lie 0.27 % of its draws): what its samples say is about the evaluation's episodes. A search goes
    wherever it likes in it, to corners too that draws seldom reach: what it finds is possible, and may be rare. Where
    the evaluation draws a command_delay beyond one control step, which acts as one of one step, so does the space.
    """
    out: list[Parameter] = [Real(f"start.{name}", (0.0,) * count, (LARGEST_DRAW,) * count)
                            for name, count in start_draws(env.task.initial).items()]
    out += [p for name, dist in env.distribution.randomization.items() if (p := _randomized(env, name, dist))]
    return ParameterSpace((*out, *(_sensor(env, name) for name in env.distribution.sensors.drawn)))


def _sensor(env: Env, name: str) -> Parameter:
    """The distribution of the entry ``name`` of the sensors' :attr:`drawn` in an evaluation."""
    kind, _, of = name.partition(".")
    if kind == "delay":
        low, high = delays(env, of)
        return Integer(_sensor_name(name), low, high)
    if kind == "phase":
        return Real(_sensor_name(name), 0.0, LARGEST_DRAW)
    config = env.distribution.sensors.config
    std = config.drift[of].std if kind == "drift" else getattr(config, kind)[of]
    reach = REACH * np.broadcast_to(np.asarray(std, np.float64), env.distribution.sensors.drawn[name])
    if kind == "drift" and config.drift[of].time_s is None:
        reach = 0.0 * reach  # it begins at none
    return Real(_sensor_name(name), tuple((-reach).tolist()), tuple(reach.tolist()), "normal")


def _sensor_name(name: str) -> str:
    return "sensor.delay_steps" if name == "delay" else f"sensor.{name}"


def delays(env: Env, group: str) -> tuple[int, int]:
    """The least and the greatest delay of a group of signals, control steps; the group ``""`` has the others."""
    sensors = env.distribution.sensors
    low, high = sensors.groups[group].delay_steps if group else (0, sensors.config.delay_steps)
    return int(low), int(high)


def _randomized(env: Env, name: str, dist: Distribution) -> Parameter | None:
    """The parameter that spans ``dist``; None if it has one value only."""
    if dist.posterior is not None:
        raise SpaceError(f"randomize.parameters.{name} is of kind posterior: draws that hang together are no box to "
                         "search in; take randomize=default, or a space of your own")
    low, high = distribution_bounds(dist, env.backend.parameters[name], name)
    symmetric = dist.kind == "normal" and (dist.low, dist.high) == (-inf, inf)
    scale: Scale = "normal" if symmetric else "log" if dist.kind == "log_uniform" else "linear"
    if low == high:
        return None
    if dist.shared and len(set(zip(low, high))) > 1:
        return Real(f"share.{name}", 0.0, 1.0)
    if dist.shared or len(low) == 1:
        return Real(f"physics.{name}", low[0], high[0], scale)
    return Real(f"physics.{name}", low, high, scale)


def component_count(env: Env, name: str) -> int:
    """Components of a physical parameter or disturbance."""
    return len(env.backend.parameters[name].nominal)


def check_space(space: ParameterSpace, env: Env) -> None:
    """Check that ``env`` has every parameter, in its shape; a :class:`SpaceError` lists the legal names."""
    shapes = legal_parameters(env)
    for p in space.parameters:
        if p.name not in shapes:
            raise SpaceError(f"unknown parameter {p.name!r}; legal: {', '.join(shapes)}")
        if isinstance(p, Choice) and not all(is_number(option) for option in p.options):
            raise SpaceError(f"parameter {p.name!r}: its choices are numbers, got {list(p.options)}"
                             f"{number_hint(p.options)}")
        shape = () if isinstance(p, Choice) else np.shape(p.low)
        if shape not in shapes[p.name]:
            legal = " or ".join("a scalar" if not s else f"{s[0]} components" for s in shapes[p.name])
            given = "choices, which are scalars" if isinstance(p, Choice) else f"bounds of shape {shape}"
            raise SpaceError(f"parameter {p.name!r} is {legal}, got {given}")
        check_range(p, env)
    names = set(space.names)
    if names & {"push.force_w", "push.torque_b"} and not {"push.at_s", "push.for_s"} <= names:
        raise SpaceError("a push needs push.at_s and push.for_s: when it begins, and how long it lasts")
    if names & {"push.at_s", "push.for_s"} and not names & {"push.force_w", "push.torque_b"}:
        raise SpaceError("push.at_s and push.for_s do nothing without push.force_w or push.torque_b")
    for name in sorted(n.removeprefix("share.") for n in names if n.startswith("share.")):
        if f"physics.{name}" in names:
            raise SpaceError(f"physics.{name} and share.{name} set the same parameter: leave one out")


def check_range(p: Parameter, env: Env) -> None:
    """Refuse values of ``p`` without a meaning or an effect; the :class:`SpaceError` names the legal range."""
    values = np.asarray(p.options if isinstance(p, Choice) else (p.low, p.high), np.float64)
    group, _, name = p.name.partition(".")
    if p.name == "sensor.delay_steps" or p.name.startswith("sensor.delay."):
        of = p.name.removeprefix("sensor.delay.") if p.name != "sensor.delay_steps" else ""
        low, high = delays(env, of)
        if isinstance(p, Real) or not np.isin(values, np.arange(low, high + 1)).all():
            key = f"groups.{of}.delay_steps" if of else "delay_steps"
            raise SpaceError(f"{p.name} is a whole number from {low} to {high} (randomize.sensors.{key}), with "
                             f"'integer: true'")
        return
    ranges = {"start": (0.0, LARGEST_DRAW, "draws of the reset, in [0, 1)"), "share": (0.0, 1.0, "a share")}
    if p.name == "physics.command_delay":
        step, drawn = env.task.control_dt, env.distribution.randomization.get(name)
        most_drawn = (distribution_bounds(drawn, env.backend.parameters[name], name)[1][0]
                      if drawn is not None else 0.0)
        ranges["physics"] = (0.0, max(step, most_drawn), f"s: beyond one control step, {step:g} s, nothing changes")
    if p.name == "push.at_s":
        ranges["push"] = (0.0, env.task.episode_s, "s: the episode")
    if p.name == "push.for_s":
        ranges["push"] = (0.0, float("inf"), "s")
    if p.name.startswith("sensor.phase."):
        ranges["sensor"] = (0.0, LARGEST_DRAW, "a share of the period, in [0, 1)")
    low, high, what = ranges.get(group, (-float("inf"), float("inf"), ""))
    if (values < low).any() or (values > high).any():
        raise SpaceError(f"parameter {p.name!r} runs from {values.min():.9g} to {values.max():.9g}; legal: from "
                         f"{low:g} to {high:.8g} ({what})")


def legal_parameters(env: Env) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Legal names in a space for ``env``, with their shapes."""
    def shapes(count: int) -> tuple[tuple[int, ...], ...]:
        return ((),) if count == 1 else ((count,), ())

    out: dict[str, tuple[tuple[int, ...], ...]] = {
        f"start.{name}": ((count,),) for name, count in start_draws(env.task.initial).items()}
    state = env.task.initial(lambda name, count: torch.full((1, count), 0.5))
    out |= {f"state.{name}": (tuple(value.shape[1:]),) for name, value in state.items()}
    out |= {f"physics.{name}": shapes(component_count(env, name)) for name in env.backend.parameters}
    out |= {f"share.{name}": ((),) for name, dist in env.distribution.randomization.items() if dist.kind != "normal"}
    out |= {_sensor_name(name): (tuple(shape),) for name, shape in env.distribution.sensors.drawn.items()}
    pushes = {name: shape for name, shape in PUSH.items()
              if name.removeprefix("push.") in (*env.backend.parameters, "at_s", "for_s")}
    return out | ({name: (shape,) for name, shape in pushes.items()} if len(pushes) > 2 else {})


# ---------------------------------------------------------------- what each world is given


def make_draws(env: Env, parameters: Mapping[str, np.ndarray], seeds: np.ndarray) -> tuple[Draws, Named]:
    """Initial draws of N candidates, and their push (s, N, N m): ``parameters`` [N, ...], ``seeds`` [N].

    A seed replaces the number of a world: parameters not given are drawn as in that world's first episode.
    """
    ids = torch.as_tensor(seeds, dtype=torch.int64, device=env.device)
    first = torch.zeros_like(ids)
    given: dict[str, Named] = {}
    for name, value in parameters.items():
        group, _, rest = name.partition(".")
        given.setdefault(group, {})[rest] = torch.as_tensor(value, dtype=torch.float32, device=env.device)

    def draw(name: str, count: int) -> Tensor:
        chosen = given.get("start", {}).get(name)
        return uniform(env.seed, ids, first, stream(name), count) if chosen is None else chosen[:, :count]

    drawn = draw_episodes(replace(env.distribution, mid_episode_starts=0.0), ids, first)
    params = dict(drawn.parameters)
    params |= {name: _between(env, name, env.distribution.randomization[name], u)
               for name, u in given.get("share", {}).items()}
    params |= {name: _components(env, name, value) for name, value in given.get("physics", {}).items()}
    push = given.get("push", {})
    for name in FORCES:
        if name in push and name not in params:
            params[name] = torch.zeros_like(push[name])
    sensors = {k.replace("delay_steps", "delay"): v for k, v in given.get("sensor", {}).items()}
    return drawn._replace(parameters=params, sensors={**drawn.sensors, **sensors},
                          state={**env.task.initial(draw), **given.get("state", {})}), push


def _components(env: Env, name: str, value: Tensor) -> Tensor:
    """A scalar repeated for all components, if the parameter has several: [N, c]."""
    count = component_count(env, name)
    return value[:, None].expand(-1, count).contiguous() if value.dim() == 1 and count > 1 else value


def _between(env: Env, name: str, dist: Distribution, share: Tensor) -> Tensor:
    ends = distribution_bounds(dist, env.backend.parameters[name], name)
    low, high = (torch.tensor(side, device=share.device) for side in ends)
    value = low + (high - low) * share[:, None]
    return value[:, 0] if len(low) == 1 else value


class PushedBackend:
    """A backend whose worlds are pushed on demand, in addition to other external forces."""

    def __init__(self, inner: Any, control_dt: float) -> None:
        self.inner, self.control_dt = inner, control_dt
        self.begin({})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def begin(self, push: Named) -> None:
        """Push as in ``push``, [N, ...] each, in the episodes that begin from now on."""
        self.push = push
        self.forces = {k: push[k] for k in FORCES if k in push}
        self.base = {k: torch.zeros_like(v) for k, v in self.forces.items()}
        self.age = torch.zeros(self.inner.num_worlds, device=self.inner.device)
        self.pushed = torch.zeros(self.inner.num_worlds, dtype=torch.bool, device=self.inner.device)

    def set_params(self, ids: Tensor, params: Mapping[str, Tensor]) -> None:
        """Set ``params`` of the worlds ``ids``; forces are added to an active push."""
        for name in self.forces.keys() & params.keys():
            self.base[name][ids] = params[name]
        self.inner.set_params(ids, {**params, **self._forces(ids, self.forces.keys() & params.keys())})

    def _forces(self, ids: Tensor, names: Iterable[str]) -> Named:
        """Current forces on the worlds ``ids``, including the push."""
        return {k: self.base[k][ids] + self.pushed[ids, None] * self.forces[k][ids] for k in names}

    def reset(self, ids: Tensor, state: Mapping[str, Tensor]) -> None:
        """A new episode for the worlds ``ids``: no push has begun."""
        self._set_pushed(ids, torch.zeros_like(ids, dtype=torch.bool))
        self.age[ids] = 0.0
        self.inner.reset(ids, state)

    def step(self, ctrl: Tensor, substeps: int) -> None:
        """One control step. A push acts on the steps that begin within its time."""
        if self.forces:
            time = self.age * self.control_dt + 1e-6
            now = (time >= self.push["at_s"]) & (time < self.push["at_s"] + self.push["for_s"])
            self._set_pushed(torch.arange(len(now), device=now.device), now)
        self.age += 1
        self.inner.step(ctrl, substeps)

    def _set_pushed(self, ids: Tensor, now: Tensor) -> None:
        """Set whether the worlds ``ids`` are pushed, ``now`` [K] bool, where it changes."""
        changed = ids[now != self.pushed[ids]]
        self.pushed[ids] = now
        if len(changed):
            self.inner.set_params(changed, self._forces(changed, self.forces))


# ---------------------------------------------------------------- rollouts


class PolicyRollout:
    """A rollout for `temporeal.sim.stl.analysis.falsify`: at most ``env.num_worlds`` candidates at once, each in its
    own world.

    ``policy(env)`` makes the policy of one batch (a recurrent one carries its state). ``env`` is taken over: its
    episodes are the candidates' from now on. Batches are filled up with copies of their first candidate, so that the
    networks always see the same number of rows and round alike.
    """

    def __init__(self, env: Env, policy: Callable[[Env], Act], space: ParameterSpace) -> None:
        check_space(space, env)
        self.env, self.policy, self.space = env, policy, space
        self.names = (*env.task.schema,)
        self.fresh = env.state_dict()
        self.backend = env.backend = PushedBackend(env.backend, env.task.control_dt)  # type: ignore[assignment]
        options = {len(p.options) for p in space.parameters if isinstance(p, Choice)}
        corners = {0.0, 1.0, *((k + 0.5) / n for n in options for k in range(n))}
        for corner in sorted(corners):  # a bound or choice that the simulator refuses is refused now
            self._begin(space.from_unit(np.full((1, space.dim), corner)), np.zeros(1, np.int64))
            env.reset()

    def __call__(self, parameters: Mapping[str, np.ndarray], seeds: np.ndarray) -> dict[str, np.ndarray]:
        """Signals name -> float32 [T, B, *shape] of B candidates, with :data:`ALIVE`."""
        count = len(seeds)
        if count > self.env.num_worlds:
            raise ValueError(f"{count} candidates at once, the environment has {self.env.num_worlds} worlds")
        self._begin(parameters, seeds)
        observe = self.env.functions.observe
        try:
            found = rollout(self.env, self.policy(self.env), keep=self.names)
        finally:
            self.env.functions.observe = observe  # an artifact's policy looks on through it
        lengths = np.maximum(found.lengths - ~found.finite, 1)
        alive = np.arange(len(found.actions) + 1)[:, None] < lengths[None]
        signals = {**found.signals, ALIVE: alive.astype(np.float32)}
        return {name: value[:, :count] for name, value in signals.items()}

    def _begin(self, parameters: Mapping[str, np.ndarray], seeds: np.ndarray) -> None:
        missing = self.env.num_worlds - len(seeds)
        full = {k: np.concatenate([v, np.repeat(v[:1], missing, axis=0)]) for k, v in parameters.items()}
        drawn, push = make_draws(self.env, full, np.concatenate([seeds, np.repeat(seeds[:1], missing)]))
        self.backend.begin(push)
        self.env.load_state_dict(self.fresh)
        self.env.put_starts(drawn)


def policy_judge(dt: float) -> Judge:
    """The judge of flights that may end early, by their known samples alone, as in an evaluation.

    ``violated``: no continuation could satisfy the formula; with the time at which that was certain. ``undecided``: a
    continuation could still decide either way (an evaluation counts such an episode as failed). The robustness is the
    greatest that any continuation could give (the weak view): a violated clause's own margin, +inf for an open ``F``,
    and for a complete episode the robustness itself.
    """

    def judge(formula: Formula, signals: Mapping[str, np.ndarray]) -> Judgement:
        if ALIVE not in signals:
            raise SignalError(f"a policy's rollout has the signal {ALIVE}, this one has: {', '.join(signals)}")
        traces = {k: v for k, v in signals.items() if k != ALIVE}
        lengths = signals[ALIVE].sum(0).astype(np.int64)
        check_signals(formula, traces)
        found = verdict(formula, traces, dt, lengths)
        _, greatest = bounds(formula, traces, dt, lengths)
        return Judgement(greatest, found.violated, ~(found.satisfied | found.violated), found.decided_at_s)

    return judge


def falsify_policy(
    policy: PolicyRollout, search: SearchOptions, progress: Callable[[int, int, float], None] | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Falsification:
    """Search for a violation of the task's formula, in batches of the environment's worlds."""
    task = policy.env.task
    return falsify(policy, task.formula, policy.space, task.control_dt, replace(search, batch=policy.env.num_worlds),
                   judge=policy_judge(task.control_dt), progress=progress, interrupted=interrupted)


def weights_digest(module: torch.nn.Module) -> str:
    """SHA-256 of the names, shapes and values in ``module``'s state."""
    out = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        out.update(f"{name} {tuple(value.shape)} {value.dtype};".encode())
        out.update(value.detach().cpu().contiguous().numpy().tobytes())
    return out.hexdigest()
