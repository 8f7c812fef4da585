"""Planning problems and plans: predicted traces, and their exact robustness.

A planner is a function ``plan(model, formula, dt, signals0, steps, config, generator, *, past, start) -> Plan``. From
the state of each of B robots it searches for ``steps`` actions whose predicted trace satisfies ``formula`` at its first
sample. Every plan is judged by the exact robustness (:mod:`temporeal.sim.stl.semantics.robustness`) of the trace of
``steps + 1`` samples, preceded by the samples seen so far (``past``).

B robots, T remaining control steps, A action, D state. All tensors on the device of ``signals0``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint as recomputed

from temporeal.robots.signals import SignalError
from temporeal.sim.stl.language.propositional import Formula, to_text
from temporeal.sim.stl.language.queries import horizon, signals_in
from temporeal.sim.stl.semantics.robustness import robustness
from temporeal.sim.stl.semantics.smooth import Method, smooth_robustness
from temporeal.sim.system import states_after

if TYPE_CHECKING:
    from temporeal.sim.system import Model


Signals = Mapping[str, Tensor]
TIME = "mission_time"  # s since the first sample of the trace; every evaluator of a formula supplies it


class Plan(NamedTuple):
    """A planner's result."""

    actions: Tensor  # [B, T, A] in [-1, 1]
    robustness: Tensor  # [B] exact, of the trace that the model predicts; NaN counts as -inf


@dataclass(frozen=True)
class Problem:
    """B robots in their current states, the samples before, and the formula that judges the whole trace."""

    model: Model
    formula: Formula
    dt: float  # s, control period, which is the sample period of the formula
    state: Tensor  # [B, D]
    steps: int  # T
    past: Signals  # of what the formula reads: [k, B, *shape], oldest first, without the sample of now

    @property
    def seen(self) -> int:
        """k, the number of samples before now."""
        return len(next(iter(self.past.values()))) if self.past else 0

    def of(self, worlds: Tensor) -> Problem:
        """The problem of some robots (indices [W], repetitions allowed)."""
        past = {name: x[:, worlds] for name, x in self.past.items()}
        return Problem(self.model, self.formula, self.dt, self.state[worlds], self.steps, past)


def problem(
    model: Model, formula: Formula, dt: float, signals0: Signals, steps: int, past: Signals | None = None
) -> Problem:
    """The checked problem. ``signals0`` [B, *shape]: current measurements; ``past`` [k, B, *shape]: earlier ones.

    Raises a ``ValueError`` if the formula looks beyond the trace, or reads a signal that the model does not give.
    """
    if steps < 1:
        raise ValueError(f"steps is {steps}: a plan has at least one")
    state = model.state(signals0)
    if state.ndim != 2 or not bool(torch.isfinite(state).all()):
        raise ValueError(f"the state must be finite numbers [B, D], got shape {list(state.shape)}; "
                         f"signals: {', '.join(signals0)}")
    names = [name for name in signals_in(formula) if name != TIME]
    given = model.signals(state)
    if missing := [name for name in names if name not in given]:
        raise SignalError(f"the formula reads {', '.join(missing)}, which the model does not predict; "
                          f"it predicts: {', '.join(given)}")
    kept = {}
    if past:
        if missing := [name for name in names if name not in past]:
            raise SignalError(f"the formula reads {', '.join(missing)}, which are not in the past that is given")
        kept = {name: past[name] for name in names or list(given)[:1]}
        if {x.shape[:2] for x in kept.values()} != {(len(next(iter(kept.values()))), len(state))}:
            raise SignalError(f"the past of {len(state)} robots is [k, {len(state)}, *shape], got "
                              f"{ {name: list(x.shape) for name, x in kept.items()} }")
    found = Problem(model, formula, dt, state, steps, kept if kept and len(next(iter(kept.values()))) else {})
    ahead, covered = horizon(formula, dt), (steps + found.seen) * dt
    if isfinite(ahead) and ahead > covered + 1e-9:
        raise ValueError(f"{to_text(formula)} looks {ahead:g} s ahead, the trace covers {covered:g} s ({steps} steps "
                         f"of {dt:g} s{f' behind {found.seen} samples' if found.seen else ''}): plan at least as far")
    return found


def rollout(model: Model, state: Tensor, actions: Tensor, *, segment: int = 0, truncate: int = 0) -> Tensor:
    """States [T + 1, B, D] from ``state`` [B, D] under ``actions`` [B, T, A], differentiable.

    ``segment`` > 0: only every ``segment``-th state is kept for the gradient, and the steps between are recomputed
    (Chen et al. 2016, "Training deep nets with sublinear memory cost"): the same gradient in less memory. ``truncate``
    > 0: the gradient is cut at every ``truncate``-th state.
    """
    follow = partial(states_after, model)
    steps = actions.shape[1]
    parts, ends = [state[None]], part_ends(steps, segment, truncate)
    for first, last in zip([0, *ends[:-1]], ends):
        if truncate and first and first % truncate == 0:
            state = state.detach()
        part = actions[:, first:last]
        with_memory = segment and torch.is_grad_enabled() and (part.requires_grad or state.requires_grad)
        states = recomputed(follow, state, part, use_reentrant=False) if with_memory else follow(state, part)
        parts.append(states)
        state = states[-1]
    return torch.cat(parts)


def part_ends(steps: int, segment: int, truncate: int) -> list[int]:
    """Ends of the parts of a rollout."""
    inside = {i for size in (segment, truncate) if size for i in range(size, steps, size)}
    return [*sorted(inside), steps]


def trace(problem: Problem, states: Tensor) -> dict[str, Tensor]:
    """The signals [k + T + 1, B, *shape] that the formula is judged on, for predicted ``states`` [T + 1, B, D]."""
    names = signals_in(problem.formula)
    found = problem.model.signals(states.flatten(0, 1))
    shape = states.shape[:2]
    names = names if any(name != TIME for name in names) else {**names, next(iter(found)): None}
    out = {name: found[name].unflatten(0, shape) for name in names if name != TIME}
    out = {name: torch.cat([problem.past[name], x]) if problem.past else x for name, x in out.items()}
    if TIME in names:
        rows = shape[0] + problem.seen
        out[TIME] = (torch.arange(rows, device=states.device, dtype=states.dtype) * problem.dt)[:, None].expand(
            rows, shape[1])
    return out


@torch.no_grad()
def judged(problem: Problem, states: Tensor) -> Tensor:
    """Exact robustness [B] of predicted ``states`` [T + 1, B, D]."""
    value = robustness(problem.formula, trace(problem, states), problem.dt)[0]
    return torch.nan_to_num(value, nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)


@torch.no_grad()
def judge(problem: Problem, actions: Tensor) -> Tensor:
    """Exact robustness [B] of ``actions`` [B, T, A]."""
    return judged(problem, rollout(problem.model, problem.state, actions))


def smoothed(problem: Problem, states: Tensor, temperature: float, method: Method) -> Tensor:
    """Smooth robustness [B] of predicted ``states`` [T + 1, B, D], differentiable
    (:mod:`temporeal.sim.stl.semantics.smooth`)."""
    value: Tensor = smooth_robustness(problem.formula, trace(problem, states), problem.dt, temperature, method)[0]
    return value


def better(a: Plan, b: Plan) -> Plan:
    """For each robot the more robust of two plans; ``a`` on ties."""
    pick = b.robustness > a.robustness
    return Plan(torch.where(pick[:, None, None], b.actions, a.actions), torch.maximum(a.robustness, b.robustness))


def check_start(start: Tensor | None, problem: Problem) -> Tensor | None:
    """``start`` [B, T, A] limited to [-1, 1]; a ``ValueError`` for another shape."""
    wanted = (len(problem.state), problem.steps, problem.model.action_dim)
    if start is None:
        return None
    if tuple(start.shape) != wanted:
        raise ValueError(f"start has shape {list(start.shape)}; the actions of this plan are {list(wanted)}")
    return start.clamp(-1.0, 1.0)
