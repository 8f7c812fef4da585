"""What a policy read, found in what another task shows: signals by their names, numbers by what they are made of.

An observation's numbers have no names of their own. Two of them are one if, for the same signals (and the same memory
of actions), they are equal bit for bit: both maps are asked about random signals. So a signal that moved to another
place is found, one that is scaled or turned otherwise is not taken for the same, and one that is missing is refused by
the names of the signals that it was made of. P probes, O numbers of the old observation, M of the new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from temporeal.policies.training.errors import SettingsError
from temporeal.robots.signals import SignalSpec
from temporeal.sim.maps import ObserveMap

PROBES = 16
NEW = -1
"""In a correspondence: a number that the old policy did not read."""
Schema = Mapping[str, SignalSpec]


def correspondence(old: ObserveMap, new: ObserveMap, schemas: tuple[Schema, Schema], run: str) -> Tensor:
    """Of each number of the new observation the number of the old one, int64 [M]; :data:`NEW`: there is none.

    Args:
        schemas: the signals of the old task and of the new one.
        run: whose policy it is, for errors.
    """
    if missing := [name for name in old.signals if name not in schemas[1]]:
        raise SettingsError(f"algo.adapt={run}: its policy reads {', '.join(missing)}, which this task does not have; "
                            f"it has: {', '.join(schemas[1])}")
    if other := [name for name in old.signals if schemas[0][name].shape != schemas[1][name].shape]:
        shapes = [[list(schema[name].shape) for schema in schemas] for name in other]
        told = "; ".join(f"{name} {there}, here {here}" for name, (there, here) in zip(other, shapes))
        raise SettingsError(f"algo.adapt={run}: signals of other shapes: {told}")
    drawn = probes({**schemas[0], **schemas[1]})
    before, after = shown(old, drawn), shown(new, drawn)
    found, taken = torch.full((after.shape[1],), NEW), list[int]()
    for k in range(before.shape[1]):
        same = (after == before[:, k:k + 1]).all(0).nonzero()[:, 0].tolist()
        free = [place for place in same if place not in taken]
        if not free:
            names = made_of(old, drawn, k) or ["its memory"]
            raise SettingsError(f"algo.adapt={run}: number {k} of what its policy reads, made of {', '.join(names)}, "
                                "is not shown by this task, or otherwise (scaled, turned, relative to something else)")
        found[free[0]] = k
        taken.append(free[0])
    return found


def probes(schema: Schema) -> dict[str, Tensor]:
    """Random signals [P, *shape]; quaternions of length 1."""
    generator = torch.Generator().manual_seed(0)
    drawn = dict[str, Tensor]()
    for name in sorted(schema):
        value = torch.randn(PROBES, *schema[name].shape, generator=generator)
        drawn[name] = value / value.norm(dim=-1, keepdim=True) if schema[name].unit == "wxyz" else value
    return drawn


@torch.no_grad()
def shown(observe: ObserveMap, drawn: Mapping[str, Tensor]) -> Tensor:
    """The observation [P, O] of ``drawn`` signals, with a random memory that depends on its names alone."""
    memory = dict[str, Tensor]()
    for name in sorted(observe.memory):
        generator = torch.Generator().manual_seed(sum(name.encode()))
        memory[name] = torch.randn(PROBES, *observe.memory[name], generator=generator)
    return observe({name: drawn[name] for name in observe.signals}, memory)[0]


def made_of(observe: ObserveMap, drawn: Mapping[str, Tensor], number: int) -> list[str]:
    """Names of the signals that change a ``number`` of the observation."""
    here, found = shown(observe, drawn), list[str]()
    for name in observe.signals:
        other = shown(observe, {**drawn, name: drawn[name].flip(0)})
        if bool((other[:, number] != here[:, number]).any()):
            found.append(name)
    return found


def widened(weight: Tensor, columns: Tensor) -> Tensor:
    """Weights [H, O] of the old numbers as those [H, M] of the new ones: 0 where the number is new."""
    padded = torch.cat([weight, weight.new_zeros(len(weight), 1)], 1)
    return padded[:, columns]


def vector_of(value: Tensor, columns: Tensor, other: Tensor) -> Tensor:
    """A value [O] of each old number as one [M] of each new one; that of ``other`` [M] where the number is new."""
    return torch.where(columns == NEW, other, torch.cat([value, value.new_zeros(1)])[columns])


def new_numbers(columns: Tensor) -> Sequence[int]:
    """The numbers of the new observation that the old policy did not read."""
    found: list[int] = (columns == NEW).nonzero()[:, 0].tolist()
    return found
