"""What the formula itself says of the episodes that are learned from: robustness and verdict, beside the reward."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from temporeal.sim.stl.language.queries import clauses, signals_in
from temporeal.sim.stl.semantics.robustness import robustness
from temporeal.sim.types import Step, TaskEnv

WORLDS = 16
HOPELESS, ENOUGH = 1 / 3, 32
"""Share of a training after which, and episodes in which, a formula that never held is spoken of."""


class Watch:
    """Traces of the first worlds of ``env``, whose episodes are as long as the formula looks ahead.

    Exploring actions and all, but whole episodes only: not those that start in the middle of a mission, nor those that
    ran when the watch began. One that ends early counts as if it had stayed where it was: training gives up on it
    where its schedule cannot be kept any more.
    """

    def __init__(self, env: TaskEnv, worlds: int = WORLDS) -> None:
        self.env, self.formula, self.dt = env, env.task.formula, env.task.control_dt
        self.count = min(worlds, env.num_worlds)
        self.ids = torch.arange(self.count, device=env.device)
        signals = env.true_signals()
        self.traces = {name: signals[name].new_zeros(env.task.steps + 1, self.count, *signals[name].shape[1:])
                       for name in sorted(signals_in(self.formula))}
        self.at = torch.zeros_like(self.ids)
        self.known = env.count[: self.count] == 0  # from the first sample on
        for name, trace in self.traces.items():
            trace[0] = signals[name][: self.count]
        self.margins: list[Tensor] = []
        self.episodes, self.ever, self.warned = 0, False, False
        self.slack = env.task.schedules.slack if env.task.schedules is not None else 0.0
        self.hit = not self.slack or env.subgoal_hits() is None  # whether a subgoal has counted as reached
        self.clauses = clauses(self.formula)
        self.times_held = torch.zeros(len(self.clauses), dtype=torch.int64)  # episodes in which each held, until all do
        self.nearest = torch.full((len(self.clauses),), -torch.inf, dtype=torch.float64)  # robustness, the same

    def __call__(self, step: Step) -> None:
        """After a step of the environment."""
        self.at += 1
        self.hit = self.hit or self._counts(step)
        for name, trace in self.traces.items():
            trace[self.at, self.ids] = step.info["signals"][name][: self.count]
        over = (step.terminated | step.truncated)[: self.count]
        if not bool(over.any()):
            return
        whole = (over & self.known & ~step.info["mid_episode"][: self.count]).nonzero()[:, 0]
        if len(whole):
            self._judge(self._held(whole))
        ended = over.nonzero()[:, 0]
        self.at[ended], self.known[ended] = 0, True
        start = self.env.true_signals()
        for name, trace in self.traces.items():
            trace[0, ended] = start[name][ended]

    def _judge(self, traces: dict[str, Tensor]) -> None:
        """The robustness of whole episodes; while none was satisfied, of each clause, too."""
        margins = torch.as_tensor(robustness(self.formula, traces, self.dt)[0])
        self.margins.append(margins)
        self.episodes += len(margins)
        self.ever = self.ever or bool((margins > 0).any())
        if self.ever:
            return
        for number, (_, clause) in enumerate(self.clauses):
            own = torch.as_tensor(robustness(clause, traces, self.dt)[0])
            self.times_held[number] += int((own > 0).sum())
            self.nearest[number] = max(float(self.nearest[number]), float(own.max()))

    def warn(self, spent: float) -> None:
        """Say once, ``spent`` of the training being over, that the formula never held, or that it did and no subgoal
        ever counted: many an impossible one (a deadline that the robot is too slow for, places that exclude each other,
        a slack that there is no room for) is only found out so."""
        if self.warned or spent < HOPELESS or self.episodes < ENOUGH or not (trouble := self._trouble()):
            return
        self.warned = True
        share, why = trouble
        warnings.warn(f"the formula held in {share} of {self.episodes} episodes that were watched, {spent:.0%} of the "
                      f"training being over; {why}", stacklevel=1)

    def _trouble(self) -> tuple[str, str] | None:
        """In which share of the episodes the formula held, and what may be wrong; None where nothing seems to be."""
        if self.ever:
            return None if self.hit else ("some", "no subgoal ever counted as reached: it does where it holds by more "
                                          f"than task.settings.slack, {self.slack:g}. Is there room for that?")
        never = [f"{text} (nearest: robustness {float(self.nearest[number]):.3g})"
                 for number, (text, _) in enumerate(self.clauses) if not self.times_held[number]]
        which = f"these clauses held in none: {'; '.join(never)}" if never else (
            "each of its clauses held in some of them, all together in none")
        return "none", f"{which}. Can it be done in these times, at these places, by this robot?"

    def _counts(self, step: Step) -> bool:
        """Whether a subgoal has counted in an episode from its start: later than at the first sample, as which those
        count that a schedule does not have."""
        hits = self.env.subgoal_hits()[: self.count][self.known & ~self.env.mid_episode[: self.count]]
        kept = step.info["success"] & (step.terminated | step.truncated)
        return bool((hits > 1.0).any() | kept[: self.count].any())

    def _held(self, worlds: Tensor) -> dict[str, Tensor]:
        """Their traces [T, K, ...], the last sample of each held to the end."""
        times = torch.arange(self.env.task.steps + 1, device=worlds.device)[:, None].minimum(self.at[worlds])
        return {name: trace[times, worlds] for name, trace in self.traces.items()}

    def figures(self) -> dict[str, float]:
        """Means over the episodes that ended since the last call; nothing where none did."""
        if not self.margins:
            return {}
        margins = torch.cat([torch.as_tensor(m) for m in self.margins])
        self.margins.clear()
        return {"robustness": float(margins.mean()), "satisfied": float((margins > 0).float().mean())}
