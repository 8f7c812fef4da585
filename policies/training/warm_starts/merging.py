"""One policy of several that began as one: their weights are averaged, nothing is trained.

    W = W0 + sum over i of l_i (W_i - W0)

W0 is the common start, W_i a specialist that was trained from it, l_i its weight: task arithmetic (Ilharco et al. 2022,
arXiv 2212.04089, eq. 1 and 2); with l_i = 1 / K it is the uniform soup (Wortsman et al. 2022, arXiv 2203.05482). Such
averages mean something only between weights that are near each other, so what did not begin as W0, has another network,
or reads observations by other statistics is refused. K specialists, J tasks. Policies that give chunks:
:mod:`temporeal.policies.training.warm_starts.chunk_merging`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import nn

from temporeal.policies.nets.actor import FeedForwardActor
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.warm_starts.ppo_start import WarmStart, on_this_task, plain
from temporeal.robots.atomic_files import write_whole

TABLE = "merged.json"
"""In a run's folder: the weights, and what each policy reaches on each task."""
STATISTICS = ("mean", "var", "shift", "scale")


class Judge(Protocol):
    """The held-out episodes of one task.

    Attributes:
        title: which task it is.
    """

    title: str

    def success(self, actor: nn.Module, normalizer: nn.Module, episodes: int, *, chosen_on: bool) -> float:
        """The share of ``episodes`` that succeed. ``chosen_on``: those by which weights are chosen; else others, that
        nothing was chosen by. ``normalizer``: of the observation; of a policy that has its own inside, nothing."""


class Found(NamedTuple):
    """A merged policy.

    Args:
        weights: l [K].
        success: of the start, of each specialist and of the merged policy (rows) on each task (columns).
    """

    actor: nn.Module
    normalizer: nn.Module
    weights: tuple[float, ...]
    success: list[list[float]]


Each = Callable[[dict[str, float]], "bool | None"]
"""Told the figures of each evaluation; where it returns True, all ends."""


def merge(
    policies: Sequence[WarmStart], judges: Sequence[Judge], *, weights: Sequence[float], choices: Sequence[float],
    episodes: int, each: Each = lambda figures: None,
) -> Found | None:
    """The merged policy, judged beside those that it is made of (the start first)."""
    check(policies)
    (normalizer, start), *others = [on_this_task(policy) for policy in policies]
    return averaged(start, [actor for _, actor in others], normalizer, judges, weights=weights, choices=choices,
                    episodes=episodes, each=each)


def averaged(
    start: nn.Module, specialists: Sequence[nn.Module], normalizer: nn.Module, judges: Sequence[Judge], *,
    weights: Sequence[float], choices: Sequence[float], episodes: int, each: Each,
) -> Found | None:
    """The merged policy, judged beside those that it is made of; None where ``each`` ended all.

    Args:
        normalizer: of the observations of all.
        weights: l; none: those of ``choices`` that do best.
        episodes: of an evaluation on one task.
    """
    if weights and len(weights) != len(specialists):
        raise SettingsError(f"algo.weights={list(weights)}: one for each of algo.specialists, {len(specialists)} here; "
                            "[]: chosen on episodes")

    def score(given: Sequence[float]) -> float | None:
        actor = merged(start, specialists, given)
        found = [judge.success(actor, normalizer, episodes, chosen_on=True) for judge in judges]
        figures = {"merged_success": sum(found) / len(found), **{f"weight_{i}": x for i, x in enumerate(given)}}
        return None if each(figures) else figures["merged_success"]

    best = tuple(weights) or choose(score, len(specialists), choices)
    if best is None:
        return None
    actor = merged(start, specialists, best)
    table = [[judge.success(one, normalizer, episodes, chosen_on=False) for judge in judges]
             for one in (start, *specialists, actor)]
    return Found(actor, normalizer, best, table)


def choose(
    score: Callable[[Sequence[float]], float | None], count: int, choices: Sequence[float]
) -> tuple[float, ...] | None:
    """Weights [K] of the best ``score``, of several the smallest: first one for all, as in the paper, then each by
    itself, once. None where the score is."""
    known: dict[tuple[float, ...], float] = {}

    def best_of(candidates: Sequence[tuple[float, ...]]) -> tuple[float, ...] | None:
        for candidate in candidates:
            if candidate not in known:
                if (found := score(candidate)) is None:
                    return None
                known[candidate] = found
        return max(candidates, key=lambda each: (known[each], -sum(map(abs, each))))

    best = best_of([(x,) * count for x in choices])
    for i in range(count if count > 1 else 0):
        if best is None:
            return None
        best = best_of([best, *(best[:i] + (x,) + best[i + 1:] for x in choices)])
    return best


M = TypeVar("M", bound=nn.Module)


@torch.no_grad()
def merged(start: M, specialists: Sequence[nn.Module], weights: Sequence[float]) -> M:
    """A network of its own with the weights W. What no gradient changes (buffers) is the start's."""
    found = deepcopy(start)
    states = [dict(each.named_parameters()) for each in specialists]
    for name, value in found.named_parameters():
        own = value.clone()
        for weight, state in zip(weights, states):
            value.add_(weight * (state[name] - own))
    return found


def check(policies: Sequence[WarmStart]) -> None:
    """Refuse policies whose weights are not to be averaged, by the names of what differs."""
    start = policies[0]
    for each in policies:
        if not isinstance(each.actor, FeedForwardActor):
            raise SettingsError(f"algo.merge=true: the policy of {each.run} is a {type(each.actor).__name__}; merged "
                                "are those without memory that do not see")
    told = [f"{each.run}: {', '.join(found)}" for each in policies[1:] if (found := list(differences(start, each)))]
    if told:
        raise SettingsError(f"algo.merge=true averages weights of what began as algo.adapt={start.run}, and not: "
                            f"{'; '.join(told)}. algo.merge=false lets each act where it is better")


def differences(start: WarmStart, other: WarmStart) -> Iterator[str]:
    """What keeps ``other`` from being averaged with ``start``, in words."""
    if not other.began:
        yield "its folder does not say what it began as (algo.adapt, with this version)"
    elif other.began != start.digest:
        yield f"it began as another policy, algo.adapt={other.config.adapt or 'none'}"
    for name in ("actor_hidden", "activation"):
        was, here = (plain(getattr(each.config, name)) for each in (start, other))
        if was != here:
            yield f"algo.{name}={here}, {was} of the start"
    if other.columns.tolist() != list(range(len(other.columns))):
        yield "it reads other numbers, or in another order, than this task shows"
    if (sizes := [len(each.actor.log_std) for each in (start, other)])[0] != sizes[1]:
        yield f"{sizes[1]} numbers of an action, {sizes[0]} of the start"
    own, theirs = on_this_task(start)[0], on_this_task(other)[0]
    apart = [getattr(own, name) != getattr(theirs, name) for name in STATISTICS]
    if count := int(torch.stack(apart).any(0).sum()):
        yield f"its normalization of {count} of {len(apart[0])} numbers of the observation"


def write(found: Found, names: Sequence[str], judges: Sequence[Judge], episodes: int, out: Path) -> None:
    """The table of ``found`` in the run's folder. ``names``: the runs, the start's first."""
    tasks = [judge.title for judge in judges]
    rows = {name: dict(zip(tasks, row)) for name, row in zip([*names, "merged"], found.success)}
    table = {"weights": dict(zip(names[1:], found.weights)), "episodes": episodes, "success": rows}
    write_whole(out / TABLE, f"{json.dumps(table, indent=2)}\n".encode())
