"""The F-MDP: the policy sees a flag for each inner temporal sub-formula.

Venkataraman, Aksaray and Seiler, "Tractable Reinforcement Learning of Signal Temporal Logic Objectives" (HSCC 2020)
take F[a,b] phi and G[a,b] phi, where phi joins F and G over predicates by & and |. In place of the history each of
these keeps a flag in [0, 1]:

    F[0,T] p   1 where p holds, else 1/w less, down to 0;   it is satisfied where the flag is above 0
    G[0,T] p   1/w more where p holds, up to 1, else 0;     it is satisfied where the flag is 1

for windows of w samples. From the flags follows whether phi is satisfied on the last samples; the reward is the
log-sum-exp of that indicator, of which only the indicator is left (exp(beta i), i = 0 or 1, is a constant times i and a
constant): each step of an outer F pays where phi is satisfied, each step of an outer G costs where it is not.

What the paper leaves open, and how it is here:

* Windows are closed and may begin late, F[c,d]; what ends before the longest window of phi is delayed by the difference
  (the flags of one moment then speak of one start): the satisfaction of phi is exact.
* A formula with another outer operator, as a conjunction of such formulas, is F[0,0] of itself, and its reward comes
  once, when the last window is over. Windows that count from time 0 have flags too, which stand outside of them; an
  outer F or G in it has one for whether its phi was, or stayed, satisfied. It may also have U, R and W over predicates:
  an F flag for what is reached while what must be kept was kept, and whether that broke.
* Deeper formulas are refused: a flag speaks of one sample, not of what began with it. In published comparisons they
  count as not solved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import torch
from torch import Tensor, nn

from temporeal.robots.signals import SignalSpec
from temporeal.sim.maps import Memory
from temporeal.sim.rewards.online_robustness import Online
from temporeal.sim.rewards.terminal_robustness import (
    Clock,
    NotSupported,
    Soft,
    check_length,
    check_reward,
    margins_of,
    margins_so_far,
)
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import And, Formula, Not, Or, Predicate, Truth, to_text
from temporeal.sim.stl.language.queries import is_temporal, signals_in
from temporeal.sim.stl.language.sampling import window_steps
from temporeal.sim.stl.language.temporal import Always, Eventually, Release, Until, WeakUntil, Window
from temporeal.sim.stl.rewriting.normal import positive
from temporeal.sim.stl.semantics.torch_ops import margin_function
from temporeal.sim.task import MISSION_TIME, Carry, weights

FORMS = """\
The view f_mdp takes, with p and q without windows, and every window with an end:
  F[a,b] p, G[a,b] p, p U[a,b] q, p R[a,b] q, p W[a,b] q
  F[a,b] phi, G[a,b] phi          phi: F[c,d] p and G[c,d] p joined by & | ! ->
and these joined by & | ! ->. Not taken: three layers of windows; U, R or W inside F or G, F or G inside U, R or W; X
and the past. The views terminal_robustness and tau_mdp take all."""

Truths = Callable[[Mapping[str, Tensor]], Tensor]
Verdict = Callable[[Sequence[Tensor]], Tensor]
"""Bool [N] of the flags [N] each."""


@dataclass(frozen=True)
class Reward:
    """Coefficients."""

    satisfied: float = 1.0  # each step of an outer F where phi holds; each of an outer G where not (minus); else once
    shaping: float = 0.0  # times the change of the share of sub-formulas whose flags say that they (still) hold
    # times the change of the soft robustness of what was seen so far (`temporeal.sim.rewards.terminal_robustness.Soft`)
    early: float = 0.0
    sharp: float = 5.0  # of it, 1 / unit of the margins: with 1, what just failed was worth more than what just held
    cap: float = 10.0  # margins' unit: robustness counts as within +-cap


@dataclass(frozen=True)
class Flag:
    """A sub-formula F (``most``) or G over the samples ``lo`` to ``hi``; with ``kept`` an until (``most``).

    ``holds(signals, flags)``: of what. ``moving``: its window counts from each sample again, else from time 0.
    ``wait``: samples by which what it reads is delayed.
    """

    most: bool
    holds: Callable[[Mapping[str, Tensor], Sequence[Tensor]], Tensor]
    lo: int
    hi: int
    moving: bool
    kept: Truths | None = None
    wait: int = 0

    @property
    def width(self) -> int:
        """Samples of its window."""
        return self.hi - self.lo + 1

    def moved(self, before: Tensor, holds: Tensor, tick: Tensor) -> Tensor:
        """The next value [N] (in units of 1 / width) where it was ``before`` and ``holds`` now."""
        width = float(self.width)
        if self.most:
            moved = torch.where(holds, width, (before - 1.0).clamp(min=0.0))
        else:
            moved = torch.where(holds, (before + 1.0).clamp(max=width), 0.0)
        return moved if self.moving else torch.where((tick >= self.lo) & (tick <= self.hi), moved, before)

    def good(self, value: Tensor, seen: Tensor) -> Tensor:
        """Whether its ``value`` [N] says that it holds, or still holds, 0 or 1, when ``seen`` [N] samples were."""
        if self.most:
            return (value > 0).float()
        # the window of a G that counts from time 0 has had so many samples by now
        due = torch.full_like(seen, self.width) if self.moving else (seen - self.lo).clamp(0.0, float(self.width))
        return (value >= due).float()


class Flags:
    """The flags of a formula and what follows from them.

    ``outer``: whether the formula is published as it stands: an F (``most``) or G over ``phi``, which the samples
    ``first`` to ``last`` decide; its own flag is for the verdict, a policy does not see it.
    """

    def __init__(self, formula: Formula, dt: float) -> None:
        self.dt, f = dt, positive(formula)
        self.found: list[Flag] = []
        self.phi: Verdict | None = None
        self.satisfied = self._of(f, False)
        self.outer = isinstance(f, (Always, Eventually)) and is_temporal(f.arg)
        self.last = max(flag.hi for flag in self.found if not flag.moving)
        self.first = self.found[-1].lo if self.outer else self.last
        self.most = self.found[-1].most if self.outer else True
        self.shown = self.found[:-1] if self.outer else self.found
        self.reaching = [i for i, flag in enumerate(self.found) if flag.kept is not None]
        self.size = len(self.shown) + len(self.reaching)
        self.memory: dict[str, tuple[int, ...]] = {"tick": (), "flags": (len(self.found),)}
        if self.reaching:
            self.memory["broken"] = (len(self.reaching),)
        self.memory |= {f"wait{i}": (flag.wait,) for i, flag in enumerate(self.found) if flag.wait}

    def __call__(self, signals: Mapping[str, Tensor], memory: Mapping[str, Tensor]) -> Memory:
        """The memory with a new sample; ``flags`` [N, F] are whole numbers: flags times the width of their windows."""
        tick, flags, after = memory["tick"], list[Tensor](), dict[str, Tensor]()
        broken = list(memory["broken"].unbind(-1)) if self.reaching else []
        for i, (flag, before) in enumerate(zip(self.found, memory["flags"].unbind(-1))):
            holds = flag.holds(signals, flags)
            if flag.kept is not None:
                place = self.reaching.index(i)
                holds = holds & (broken[place] == 0)
                broken[place] = torch.maximum(broken[place], (~flag.kept(signals)).float())
            if flag.wait:
                waiting = torch.cat([memory[f"wait{i}"], holds.float()[:, None]], -1)
                holds, after[f"wait{i}"] = waiting[:, 0] > 0.5, waiting[:, 1:]
            flags.append(flag.moved(before, holds, tick))
        if self.reaching:
            after["broken"] = torch.stack(broken, -1)
        return {**after, "flags": torch.stack(flags, -1), "tick": tick + 1.0}

    def seen(self, memory: Mapping[str, Tensor]) -> Tensor:
        """What a policy sees [N, size]: the flags, 0 to 1, and for each until whether what it keeps broke."""
        shares = [n / flag.width for flag, n in zip(self.shown, memory["flags"].unbind(-1))]
        return torch.cat([torch.stack(shares, -1), *([memory["broken"]] if self.reaching else [])], -1)

    def verdict(self, memory: Mapping[str, Tensor]) -> Tensor:
        """Whether the formula is satisfied, bool [N]: known from sample ``last`` on."""
        return self.satisfied(list(memory["flags"].unbind(-1)))

    def now(self, memory: Mapping[str, Tensor]) -> Tensor:
        """Whether ``phi`` is satisfied by the newest samples, bool [N]; without outer operator the formula."""
        return (self.phi if self.outer and self.phi else self.satisfied)(list(memory["flags"].unbind(-1)))

    def share(self, memory: Mapping[str, Tensor]) -> Tensor:
        """Share [N] of the flags that a policy sees which say that what they stand for holds, or still holds."""
        found = zip(self.shown, memory["flags"].unbind(-1))
        return torch.stack([flag.good(n, memory["tick"]) for flag, n in found], -1).mean(-1)

    # ---- from a formula

    def _of(self, f: Formula, moving: bool) -> Verdict:
        match f:
            case _ if not is_temporal(f):
                return self._plain(f, False, f, Window(0.0, 0.0), moving)
            case And(args) | Or(args):
                parts = [self._of(a, moving) for a in args]
                join = torch.logical_and if isinstance(f, And) else torch.logical_or
                return lambda flags: reduce(join, [part(flags) for part in parts])
            case Always(arg, window) | Eventually(arg, window) if not is_temporal(arg):
                return self._plain(f, isinstance(f, Eventually), arg, window, moving)
            case Always(arg, window) | Eventually(arg, window) if not moving:
                return self._outer(f, isinstance(f, Eventually), arg, window)
            case Until(left, right, window) if self._flat(moving, left, right):
                return self._plain(f, True, right, window, False, left)
            case Release(left, right, window) if self._flat(moving, left, right):
                broken = self._plain(f, True, positive(Not(right)), window, False, positive(Not(left)))
                return lambda flags: torch.logical_not(broken(flags))
            case WeakUntil(left, right, window) if self._flat(moving, left, right):
                return self._of(Or((Until(left, right, window), Always(left, Window(0.0, window.hi)))), False)
        raise NotSupported(f"{to_text(f)} {self._why(f, moving)}")

    def _flat(self, moving: bool, *args: Formula) -> bool:
        return not moving and not any(map(is_temporal, args))

    def _why(self, f: Formula, moving: bool) -> str:
        if isinstance(f, (Until, Release, WeakUntil)):
            return "is inside an F or G" if moving else "has windows inside its own"
        deep = isinstance(f, (Always, Eventually))
        return "is a third layer of windows" if deep else "looks to the next sample, or back"

    def _outer(self, f: Formula, most: bool, arg: Formula, window: Window) -> Verdict:
        begin, (lo, hi) = len(self.found), self._steps(f, window)
        self.phi = phi = self._of(arg, True)
        late = max(flag.hi for flag in self.found[begin:])
        self.found[begin:] = [replace(flag, wait=late - flag.hi) for flag in self.found[begin:]]
        return self._flag(Flag(most, lambda signals, flags: phi(flags), lo + late, hi + late, False))

    def _plain(
        self, f: Formula, most: bool, arg: Formula, window: Window, moving: bool, kept: Formula | None = None
    ) -> Verdict:
        lo, hi = self._steps(f, window)
        holds, keeps = truths(arg), None if kept is None else truths(kept)
        return self._flag(Flag(most, lambda signals, flags: holds(signals), lo, hi, moving, keeps))

    def _flag(self, flag: Flag) -> Verdict:
        place, width = len(self.found), float(flag.width)
        self.found.append(flag)
        return lambda flags: flags[place] > 0 if flag.most else flags[place] >= width

    def _steps(self, f: Formula, window: Window) -> tuple[int, int]:
        lo, hi = window_steps(window, self.dt)
        if hi is None:
            raise NotSupported(f"{to_text(f)} has no end")
        return lo, hi


def truths(f: Formula) -> Truths:
    """Whether a formula without temporal operators, in positive normal form, holds: bool [N] of signals."""
    match f:
        case Truth():
            raise NotSupported(f"{to_text(f)} is no predicate: it reads no signal")
        case And(args) | Or(args):
            parts = [truths(a) for a in args]
            join = torch.logical_and if isinstance(f, And) else torch.logical_or
            return lambda s: reduce(join, [part(s) for part in parts])
        case Predicate(op):
            margin = margin_function(f)
            return (lambda s: margin(s) > 0) if op in ("<", ">", "!=") else (lambda s: margin(s) >= 0)
    raise TypeError(f"not a formula of one sample: {f!r}")


class Objective:
    """Reward from the flags of the true signals. ``privileged``: whether the critic sees the largest and smallest
    margins so far, by which ``early`` is paid and which no flag tells: without them the reward is not Markovian.
    """

    def __init__(self, formula: Formula, dt: float, steps: int, reward: Reward, privileged: bool = False) -> None:
        if privileged and not reward.early:
            raise ValueError("of_view.privileged shows the critic what reward.early is paid by, which is 0 here")
        self.flags, self.weights = Flags(formula, dt), reward
        check_length(self.flags.last, steps)
        self.carry: dict[str, tuple[int, ...]] = {**self.flags.memory, "share": (), "soft": ()}
        self.shares = reward.shaping != 0
        self.online = Online(dt)
        self.soft = Soft(formula, self.online, reward.sharp, reward.cap) if reward.early else None
        self.carry |= self.online.carry
        self.shown = margins_of(self.online) if privileged else []
        self.privileged_dim = len(self.shown)

    def start(self, signals: Mapping[str, Tensor], carry: Carry) -> Carry:
        """The carry after the sample at time 0."""
        return self._seen(signals, {**carry, **self.online.begin(carry)})

    def step(self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry) -> tuple[Tensor, Tensor, Carry]:
        """Reward [N], terminated [N] (never), next carry."""
        flags, w, tick = self.flags, self.weights, carry["tick"]
        after = self._seen(signals, carry)
        holds = flags.now(after).float()
        due = (tick >= flags.first) & (tick <= flags.last) if flags.outer else tick == max(flags.last, 1)
        reward = w.satisfied * torch.where(due, holds if flags.most else holds - 1.0, torch.zeros_like(holds))
        shaped = w.shaping * (after["share"] - carry["share"]) + w.early * (after["soft"] - carry["soft"])
        return reward + shaped, due & ~due, after

    def _seen(self, signals: Mapping[str, Tensor], carry: Carry) -> Carry:
        after = {**carry, **self.flags(signals, carry)}
        if self.shares:
            after["share"] = self.flags.share(after)
        if self.soft is None:
            return after
        sample = self.online.sample(signals, carry["tick"], carry)
        soft = self.soft(sample)
        return {**after, **sample.after, "soft": soft}

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Margins so far [N, privileged_dim], within +-cap."""
        return margins_so_far(carry, self.shown, self.weights.cap)

    def success(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Whether the formula is satisfied, and that is known: bool [N]."""
        return (carry["tick"] > self.flags.last) & self.flags.verdict(carry)


class FlagsView:
    """Flags and time."""

    def __init__(self, formula: Formula, dt: float, steps: int, objective: Objective) -> None:
        self.clock, self.objective, self.flags, self.dt = Clock(steps), objective, Flags(formula, dt), dt
        self.module: nn.Module | None = None
        self.reads = tuple(n for n in signals_in(formula) if n != MISSION_TIME.name)
        self.size = self.flags.size + 1
        self.memory = dict(self.flags.memory)

    def features(self, signals: Mapping[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """Flags and time [N, size], 0 to 1, and the next memory."""
        time, _ = self.clock(memory)
        after = self.flags({**signals, MISSION_TIME.name: memory["tick"] * self.dt}, memory)
        return torch.cat([self.flags.seen(after), time], -1), after


def make(
    formula: Formula, dt: float, steps: int, schema: Mapping[str, SignalSpec], *,
    reward: Mapping[str, float] | None = None, privileged: bool = False,
) -> FlagsView:
    """The view of a formula of the forms in :data:`FORMS`; others are :class:`NotSupported`.

    Args:
        dt: control period, s. ``steps``: control steps of an episode.
        schema: signals by name.
        reward: coefficients of :class:`Reward` by name.
        privileged: of :class:`Objective`.
    """
    try:
        checked = check_reward(weights(Reward, reward), "sharp", "cap")
        return FlagsView(formula, dt, steps, Objective(formula, dt, steps, checked, privileged))
    except FormulaError as error:
        raise NotSupported(f"view f_mdp of {to_text(formula)}: {error}\n{FORMS}") from error
