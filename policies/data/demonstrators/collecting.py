"""Episodes of many worlds at once, as arrays: T steps, N worlds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.data.demonstrators.qualities import Choice, Demonstrator
from temporeal.policies.data.episodes.episode import Episode
from temporeal.sim.step_functions import group
from temporeal.sim.stl.language.queries import horizon, signals_in
from temporeal.sim.stl.semantics.robustness import satisfied
from temporeal.sim.task import MISSION_TIME, Task

if TYPE_CHECKING:
    from temporeal.sim.env import Env

TRUE = "true_"
"""Before the name of a signal that the formula reads, where what is measured differs from it."""


@dataclass(frozen=True)
class Batch:
    """N episodes. After an episode's end its last sample is repeated.

    Args:
        signals: name -> [T + 1, N, ...], as measured; pictures too.
        truth: name -> [T + 1, N, ...], what the formula reads, true.
        action: [T, N, A] in [-1, 1]. command: [T, N, U], what it commands.
        reward: [T, N].
        steps: int [N], of each episode.
        terminated, success: bool [N].
    """

    signals: Mapping[str, np.ndarray]
    truth: Mapping[str, np.ndarray]
    action: np.ndarray
    command: np.ndarray
    reward: np.ndarray
    steps: np.ndarray
    terminated: np.ndarray
    success: np.ndarray


Measure = Callable[["Env"], Mapping[str, np.ndarray]]
"""The newest measured signals [N, ...] of an environment."""


def prolonged(task: Task, steps: int | None = None) -> Task:
    """``task`` for :func:`collect`: its episodes are a step longer than ``steps`` (None: its own), so that the last
    sample is there before the next episode begins."""
    return replace(task, episode_s=((task.steps if steps is None else steps) + 1) * task.control_dt)


@torch.no_grad()
def collect(
    env: Env, demonstrator: Demonstrator, measure: Measure, names: tuple[str, ...], steps: int, tail: int | None = None
) -> Batch:
    """One episode of ``steps`` steps, or until it terminates, in each world of ``env``, whose task is
    :func:`prolonged`. ``names``: true signals that are kept. ``tail``: steps from the first sample at which the signal
    ``success`` says so to the episode's end; None: it goes on."""
    obs, truth = env.reset(), env.true_signals()
    measured, kept = [seen(env, measure)], [host(truth, names)]
    ended = torch.zeros(env.num_worlds, dtype=torch.bool)
    terminated, length, rows = ended.clone(), torch.zeros(env.num_worlds, dtype=torch.long), []
    since = torch.zeros(env.num_worlds)  # steps since the first success, that one included
    for _ in range(steps):
        choice = demonstrator(obs, truth)
        clean = override(env, choice)
        step = env.step(choice.action.float())
        command = env.command if clean is None else clean
        measured[-1].update(host(choice.goal, tuple(choice.goal)))
        obs, truth, after = step.obs, env.true_signals(), step.info["signals"]
        rows.append((choice.action.numpy(), command.numpy().copy(), step.reward.numpy().copy()))
        over = step.terminated.cpu() & ~ended
        # a world that ended shows its next episode already: its last sample is what was true then
        last = seen(env, measure)
        measured.append({name: hold(value, after.get(name), measured[-1][name], over, ended)
                         for name, value in last.items()})
        kept.append({name: hold(np.asarray(after[name]).copy(), None, kept[-1][name], over, ended) for name in names})
        length += ~ended
        terminated |= over
        ended |= over
        if tail is not None:
            since += (since > 0) | (after["success"] > 0.5)
            ended |= since > tail
        if bool(ended.all()):
            break
    return batch_of(env.task, measured, kept, rows, length.numpy(), terminated.numpy())


def override(env: Env, choice: Choice) -> Tensor | None:
    """Where something else is executed than is stored: make its command what the next step sends, and return the
    command [N, U] of what is stored."""
    if choice.executed is None:
        return None
    memory = group("memory.", env.column)

    def commanded(action: Tensor) -> Tensor:
        return env.task.act(action, {**memory, **env.task.observe.record(memory, action)})

    env.command_override = commanded(choice.executed).float().contiguous()
    return commanded(choice.action)


def seen(env: Env, measure: Measure) -> dict[str, np.ndarray]:
    """What is measured now, pictures included; copies."""
    pictures = {name: value.cpu().numpy().copy() for name, value in env.images.items()}
    return {**{name: np.array(value) for name, value in measure(env).items()}, **pictures}


def host(signals: Mapping[str, Tensor], names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Copies as arrays."""
    return {name: signals[name].cpu().numpy().copy() for name in names}


def hold(value: np.ndarray, at_end: Any, before: np.ndarray, over: Tensor, ended: Tensor) -> np.ndarray:
    """``value`` [N, ...]; of worlds that are ``over`` now what was so ``at_end`` (of pictures, which are of the next
    episode already, the ones ``before``), of those ``ended`` earlier what was so ``before``."""
    last = before if at_end is None else np.asarray(at_end)
    value[over.numpy()] = last[over.numpy()]
    value[ended.numpy()] = before[ended.numpy()]
    return value


def batch_of(task: Task, measured: list[dict[str, np.ndarray]], kept: list[dict[str, np.ndarray]],
             rows: list[tuple[np.ndarray, ...]], steps: np.ndarray, terminated: np.ndarray) -> Batch:
    """The lists of samples and steps as one batch, judged by the formula."""
    truth = {name: np.stack([sample[name] for sample in kept]) for name in kept[0]}
    signals = {name: np.stack([sample[name] for sample in measured]) for name in measured[0]}
    action, command, reward = (np.stack(part) for part in zip(*rows))
    command = np.clip(command, *limits_of(task))
    time = np.arange(len(kept), dtype=np.float32)[:, None] * np.float32(task.control_dt)
    trace = {**truth, MISSION_TIME.name: np.broadcast_to(time, (len(kept), len(steps)))}
    # of an episode that ended soon after its success the last sample stands for what would have followed
    if (missing := round(horizon(task.formula) / task.control_dt) - (len(kept) - 1)) > 0 and "success" in truth:
        trace = {name: np.concatenate([value, np.repeat(value[-1:], missing, 0)]) for name, value in trace.items()}
    whole = task.control_dt * (len(trace[MISSION_TIME.name]) - 1) >= horizon(task.formula) - 1e-9
    good = np.asarray(satisfied(task.formula, trace, task.control_dt)[0]) if whole else np.zeros(len(steps), bool)
    return Batch(signals, truth, action, command, reward, steps, terminated, good & ~terminated)


def limits_of(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest command [U]."""
    spec = task.robot.command(task.command)
    return np.asarray(spec.low, np.float32), np.asarray(spec.high, np.float32)


def read_by_formula(task: Task) -> tuple[str, ...]:
    """Signals that the task's formula reads, the time left out."""
    return tuple(name for name in signals_in(task.formula) if name != MISSION_TIME.name)


def episodes_of(
    batch: Batch, language: Sequence[str], info: Mapping[str, Any], *, judged: bool = True
) -> Iterator[Episode]:
    """The episodes of a batch, whose sentences [N] are ``language``. ``judged``: with reward and success, which play
    has none of."""
    for world, steps in enumerate(batch.steps.tolist()):
        yield Episode(
            signals={name: values[: steps + 1, world] for name, values in batch.signals.items()},
            action=batch.command[:steps, world], policy_action=batch.action[:steps, world],
            reward=batch.reward[:steps, world] if judged else None, terminated=bool(batch.terminated[world]),
            success=bool(batch.success[world]) if judged else None, language=language[world],
            info={**info, "world": world, "return": float(batch.reward[:steps, world].sum())})
