"""Robustness and satisfaction of a task's formula in the training episodes, logged beside the reward."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from temporeal.sim.stl.language.queries import clauses, signals_in
from temporeal.sim.stl.semantics.robustness import robustness
from temporeal.sim.types import Step, TaskEnv

WORLDS = 16
WARN_AFTER, WARN_EPISODES = 1 / 3, 32
"""A formula that never held is reported after this share of the training and this many episodes."""


class FormulaMetrics:
    """Robustness of the formula in the first worlds of ``env``, whose episodes span the formula's horizon.

    Actions include exploration. Only whole episodes count: none that starts in the middle of a mission, and none that
    was already running at construction. An episode that ends early is judged as if its last sample were held to the
    end: training ends it early when its schedule can no longer be kept.
    """

    def __init__(self, env: TaskEnv, worlds: int = WORLDS) -> None:
        self.env, self.formula, self.dt = env, env.task.formula, env.task.control_dt
        self.count = min(worlds, env.num_worlds)
        self.ids = torch.arange(self.count, device=env.device)
        signals = env.true_signals()
        self.traces = {name: signals[name].new_zeros(env.task.steps + 1, self.count, *signals[name].shape[1:])
                       for name in sorted(signals_in(self.formula))}
        self.at = torch.zeros_like(self.ids)
        self.known = env.count[: self.count] == 0  # observed from its first sample on
        for name, trace in self.traces.items():
            trace[0] = signals[name][: self.count]
        self.margins: list[Tensor] = []
        self.episodes, self.ever, self.warned = 0, False, False
        self.slack = env.task.schedules.slack if env.task.schedules is not None else 0.0
        self.hit = not self.slack or env.subgoal_hits() is None  # has any subgoal counted as reached?
        self.clauses = clauses(self.formula)
        # until the formula holds in some episode: in how many each clause did, and its largest robustness
        self.times_held = torch.zeros(len(self.clauses), dtype=torch.int64)
        self.nearest = torch.full((len(self.clauses),), -torch.inf, dtype=torch.float64)

    def __call__(self, step: Step) -> None:
        """Record a step of the environment."""
        self.at += 1
        self.hit = self.hit or self._subgoal_counted(step)
        for name, trace in self.traces.items():
            trace[self.at, self.ids] = step.info["signals"][name][: self.count]
        over = (step.terminated | step.truncated)[: self.count]
        if not bool(over.any()):
            return
        whole = (over & self.known & ~step.info["mid_episode"][: self.count]).nonzero()[:, 0]
        if len(whole):
            self._judge(self._full_traces(whole))
        ended = over.nonzero()[:, 0]
        self.at[ended], self.known[ended] = 0, True
        start = self.env.true_signals()
        for name, trace in self.traces.items():
            trace[0, ended] = start[name][ended]

    def _judge(self, traces: dict[str, Tensor]) -> None:
        """Store the robustness of whole episodes, and of each clause until the formula has been satisfied once."""
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
        """Warn once if the formula never held, or if it held and no subgoal ever counted as reached.

        ``spent`` is the share of the training that is over. Many impossible tasks show only here: a deadline too short
        for the robot, places that exclude each other, a slack larger than the room there is.
        """
        if self.warned or spent < WARN_AFTER or self.episodes < WARN_EPISODES or not (trouble := self._trouble()):
            return
        self.warned = True
        share, why = trouble
        warnings.warn(f"the formula held in {share} of {self.episodes} episodes observed in the first {spent:.0%} "
                      f"of the training; {why}", stacklevel=1)

    def _trouble(self) -> tuple[str, str] | None:
        """The share of episodes in which the formula held, and the likely cause; None if nothing looks wrong."""
        if self.ever:
            return None if self.hit else ("some", "no subgoal ever counted as reached: it does where it holds by more "
                                          f"than task.settings.slack, {self.slack:g}. Is there room for that?")
        never = [f"{text} (nearest: robustness {float(self.nearest[number]):.3g})"
                 for number, (text, _) in enumerate(self.clauses) if not self.times_held[number]]
        which = f"these clauses held in none: {'; '.join(never)}" if never else (
            "each of its clauses held in some of them, all together in none")
        return "none", f"{which}. Can it be done in these times, at these places, by this robot?"

    def _subgoal_counted(self, step: Step) -> bool:
        """Whether a subgoal counted in a whole episode, later than at its first sample (where subgoals outside the
        schedule count)."""
        hits = self.env.subgoal_hits()[: self.count][self.known & ~self.env.mid_episode[: self.count]]
        kept = step.info["success"] & (step.terminated | step.truncated)
        return bool((hits > 1.0).any() | kept[: self.count].any())

    def _full_traces(self, worlds: Tensor) -> dict[str, Tensor]:
        """Traces [T, K, ...] of ``worlds``, the last sample of each held to the end."""
        times = torch.arange(self.env.task.steps + 1, device=worlds.device)[:, None].minimum(self.at[worlds])
        return {name: trace[times, worlds] for name, trace in self.traces.items()}

    def means(self) -> dict[str, float]:
        """Means over the episodes that ended since the last call; empty if none did."""
        if not self.margins:
            return {}
        margins = torch.cat([torch.as_tensor(m) for m in self.margins])
        self.margins.clear()
        return {"robustness": float(margins.mean()), "satisfied": float((margins > 0).float().mean())}
