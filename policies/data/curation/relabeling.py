"""Rewards for recorded episodes, by the objectives that tasks train with, and goals in hindsight.

An :class:`temporeal.sim.task.Objective` is run over the recorded samples as the environment runs it over simulated
ones: ``start`` at the first sample, ``step`` at each later one. So a log that has no reward and a formula are a task.
Where the objective terminates, the episode ends, as it would have in training. E episodes, T steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.data.curation.robustness import TIME, Table, blocks, padded
from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import DataError
from temporeal.robots.signals import Schema, SignalSpec
from temporeal.sim.rewards.formula_progress import FormulaProgress, Reward
from temporeal.sim.rewards.formula_tracker import FormulaTracker
from temporeal.sim.rewards.views import VIEWS
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import Formula, to_text
from temporeal.sim.stl.language.queries import signals_in
from temporeal.sim.task import SEQUENTIAL, Objective, weights

PROGRESS = "progress"
KINDS = (PROGRESS, *VIEWS)
"""Rewards of a formula: progress over its decomposition, and those of the baselines."""
SOME = 256
"""Episodes that are held in memory and rewarded together."""


@dataclass(frozen=True)
class Rewarded:
    """What an objective says of one episode.

    Args:
        reward: [T], up to and with the step at which it terminated.
        terminated: whether it did.
        success: what the objective calls so at the end.
        state: [T + 1, F] of :meth:`FormulaProgress.state`; [T + 1, 0] unless asked for.
        done: the first sample at which the objective called it a success; the last one where it never did.
    """

    reward: np.ndarray
    terminated: bool
    success: bool
    state: np.ndarray
    done: int


def objective_of(
    formula: Formula, dt: float, steps: int, signals: Schema, kind: str = PROGRESS,
    reward: Mapping[str, Any] | None = None,
) -> Objective:
    """The objective of a formula: ``kind`` out of :data:`KINDS`, with coefficients of its own by name.

    ``dt``: seconds between samples; ``steps``: of the longest episode.
    """
    if kind not in KINDS:
        raise DataError(f"no reward {kind!r}; known: {', '.join(KINDS)}")
    try:
        if kind == PROGRESS:
            return FormulaProgress(FormulaTracker(formula, dt), weights(Reward, reward))
        return VIEWS[kind](formula, dt, steps, signals, reward=reward).objective
    except FormulaError as error:
        told = SEQUENTIAL if kind == PROGRESS else ""
        raise DataError(f"reward {kind!r} of {to_text(formula)}: {error}\n{told}\nrewards that take other formulas: "
                        f"{', '.join(VIEWS)}") from error


def rewarded(
    objective: Objective, table: Table, actions: Sequence[np.ndarray], reads: Sequence[str], states: bool = False
) -> Iterator[tuple[int, Rewarded]]:
    """Number and verdict of each episode of ``table``, in no order; with ``states`` those of a reward by progress.

    Args:
        actions: by episode [T, A], what the policy gave, in [-1, 1]; T is one less than the samples.
        reads: signals that the objective may read; those that the table lacks are left out.
    """
    names = [name for name in reads if name in table.signals or name == TIME.name]
    for block in blocks(table.lengths):
        signals = {name: torch.from_numpy(padded(table, name, block)).float() for name in names}
        width = max(actions[e].shape[1] for e in block)
        given = np.zeros((int(table.lengths[block].max()), len(block), width), dtype=np.float32)
        for column, e in enumerate(block):
            given[: len(actions[e]), column] = actions[e]
        found = run(objective, signals, torch.from_numpy(given), table.lengths[block], table.source,
                    states and isinstance(objective, FormulaProgress))
        yield from zip(block.tolist(), found)


@torch.no_grad()
def run(
    objective: Objective, signals: Mapping[str, Tensor], actions: Tensor, lengths: np.ndarray, source: str,
    states: bool = False,
) -> list[Rewarded]:
    """The objective over E padded episodes: ``signals`` [T + 1, E, ...], ``actions`` [T or more, E, A]."""
    count, samples = len(lengths), int(lengths.max())
    carry = {name: torch.zeros(count, *shape) for name, shape in objective.carry.items()}
    if "previous" in carry:
        actions = fitted(actions, carry["previous"].shape[-1])
    reward, over = torch.zeros(samples, count), torch.zeros(samples, count, dtype=torch.bool)
    success = torch.zeros(samples, count, dtype=torch.bool)
    kept = [state_of(objective, signals, 0, carry)] if states else []
    try:
        carry = {**carry, **objective.start(at(signals, 0), carry)}
        success[0] = objective.success(at(signals, 0), carry)
        for k in range(1, samples):
            kept += [state_of(objective, signals, k, carry)] if states else []
            reward[k], over[k], after = objective.step(at(signals, k), actions[k - 1], carry)
            carry = {**carry, **after}
            success[k] = objective.success(at(signals, k), carry)
    except KeyError as error:
        raise DataError(f"{source}: the reward reads the signal {error.args[0]!r}, which is not there; signals: "
                        f"{', '.join(signals)}") from error
    every = torch.stack(kept) if kept else torch.zeros(samples, count, 0)
    return [of_episode(e, int(n), reward, over, success, every) for e, n in enumerate(lengths)]


def of_episode(e: int, samples: int, reward: Tensor, over: Tensor, success: Tensor, states: Tensor) -> Rewarded:
    """What stands in column ``e``, up to where the episode ended or was terminated."""
    ends = over[1:samples, e].nonzero()
    last = int(ends[0]) + 1 if len(ends) else samples - 1
    good = success[: last + 1, e].nonzero()
    return Rewarded(reward[1 : last + 1, e].numpy(), bool(len(ends)), bool(success[last, e]),
                    states[: last + 1, e].numpy(), int(good[0]) if len(good) else last)


def at(signals: Mapping[str, Tensor], k: int) -> dict[str, Tensor]:
    """The sample ``k``."""
    return {name: values[k] for name, values in signals.items()}


def state_of(objective: Objective, signals: Mapping[str, Tensor], k: int, carry: dict[str, Tensor]) -> Tensor:
    """The state of a reward by progress [E, F]."""
    assert isinstance(objective, FormulaProgress)
    return objective.state(at(signals, k), carry)


def fitted(actions: Tensor, size: int) -> Tensor:
    """``actions`` as the objective takes them: zeros where the log has no action of the task's policy."""
    return actions if actions.shape[-1] == size else torch.zeros(*actions.shape[:-1], size)


def hit_shares(formula: Formula, table: Table) -> np.ndarray:
    """[E] the share of a formula's timed subgoals that each episode of ``table`` hits, up to where it is broken."""
    objective = objective_of(formula, table.dt, int(table.lengths.max(initial=1)), table.signals)
    assert isinstance(objective, FormulaProgress)
    goals = len(objective.tracker.automaton.subgoals)
    if not goals:
        raise DataError(f"{to_text(formula)} has no timed subgoal to make progress to")
    nothing = [np.zeros((int(n) - 1, 1), dtype=np.float32) for n in table.lengths]
    out = np.zeros(len(table.lengths))
    for e, found in rewarded(objective, table, nothing, read_by(formula, table.signals), True):
        out[e] = found.state[-1, :goals].mean()
    return out


def relabeled(episode: Episode, found: Rewarded, satisfied: bool | None = None, state: str = "") -> Episode:
    """``episode`` with the reward ``found``, cut where it was terminated.

    Args:
        satisfied: the formula's own verdict, which then is the ``success``; else the objective's.
        state: name of a signal for what the reward depends on besides the samples; "": none.
    """
    steps = len(found.reward)
    signals = {name: values[: steps + 1] for name, values in episode.signals.items()}
    if state:
        signals[state] = found.state.astype(np.float32)
    given = None if episode.policy_action is None else episode.policy_action[:steps]
    return replace(episode, signals=signals, action=episode.action[:steps], policy_action=given,
                   reward=found.reward.astype(np.float32), terminated=found.terminated,
                   success=found.success if satisfied is None else satisfied)


def state_signal(objective: Objective, name: str) -> SignalSpec:
    """The declaration of the signal for the state of a reward by progress."""
    if not isinstance(objective, FormulaProgress):
        raise DataError(f"the state of a formula is that of the reward {PROGRESS!r}: the other rewards' is not kept")
    automaton = objective.tracker.automaton
    goals, stages = len(automaton.subgoals), len(automaton.stages)
    return SignalSpec(name, (2 * goals + stages + 2,))


def hindsight(episode: Episode, goal: str, achieved: str) -> Episode:
    """``episode`` as if what it reached had been its goal: ``goal`` is at all samples what ``achieved`` is at the end
    (the strategy "final" of Andrychowicz et al., "Hindsight Experience Replay", NeurIPS 2017)."""
    for name in (goal, achieved):
        if name not in episode.signals:
            raise DataError(f"no signal {name!r} to take goals from; signals: {', '.join(episode.signals)}")
    values, last = episode.signals[goal], episode.signals[achieved][-1]
    if values.shape[1:] != last.shape:
        raise DataError(f"the goal {goal!r} has shape {list(values.shape[1:])}, {achieved!r} {list(last.shape)}")
    moved = np.broadcast_to(last, values.shape).astype(values.dtype)
    return replace(episode, signals={**episode.signals, goal: moved}, reward=None, success=None,
                   info={**episode.info, "hindsight": f"{goal}={achieved}"})


def read_by(formula: Formula | None, signals: Schema) -> list[str]:
    """Signals that an objective may read: those of the formula, or with None all that are numbers."""
    numbers = [name for name, spec in signals.items() if spec.dtype != "uint8"]
    return [*(numbers if formula is None else signals_in(formula)), TIME.name]
