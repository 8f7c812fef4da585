"""What a policy is not told because it is to find it in pictures: its observation without some signals.

The observation map gets a constant in place of each: zero, or no rotation of an attitude. So nothing that follows from
a hidden signal reaches the policy, and its artifact does not read it. The critic, which only the simulator has, is
given the true values (asymmetric actor and critic: Pinto et al., RSS 2018, arXiv:1710.06542).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from temporeal.robots.registry import guess
from temporeal.robots.signals import SignalSpec
from temporeal.sim.maps import Memory, ObserveMap

if TYPE_CHECKING:
    from temporeal.sim.task import Carry, Objective, Task


class Hiding(nn.Module):
    """The observation map ``observe`` with a constant in place of each of the ``hidden`` signals."""

    def __init__(self, observe: nn.Module, hidden: Sequence[SignalSpec]) -> None:
        super().__init__()
        self.observe, of = observe, cast("ObserveMap", observe)
        self.hidden = tuple(spec.name for spec in hidden)
        self.signals = tuple(name for name in of.signals if name not in self.hidden)
        self.memory, self.obs_dim = dict(of.memory), of.obs_dim
        self.compiles = getattr(observe, "compiles", True)
        for spec in hidden:
            self.register_buffer(f"in_place_of_{spec.name}", in_place_of(spec)[None])

    def forward(self, signals: Mapping[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """Observation [N, O] and the memory for the next control step."""
        worlds = signals[self.signals[0]].shape[0]  # and not len(): an exported graph takes any number
        told = {}
        for name in self.hidden:
            constant = getattr(self, f"in_place_of_{name}")
            told[name] = constant.expand(worlds, *constant.shape[1:])
        found: tuple[Tensor, Memory] = self.observe({**signals, **told}, memory)
        return found

    def record(self, memory: Memory, action: Tensor) -> Memory:
        """The memory with the chosen ``action`` [N, A] entered."""
        found: Memory = cast("ObserveMap", self.observe).record(memory, action)
        return found


def in_place_of(spec: SignalSpec) -> Tensor:
    """What an observation map is given for a hidden signal."""
    constant = torch.zeros(spec.shape)
    if spec.unit == "wxyz":
        constant[..., 0] = 1.0
    return constant


class Telling:
    """The objective ``inner``, whose critic is given the true values of the ``hidden`` signals besides."""

    def __init__(self, inner: Objective, hidden: Sequence[SignalSpec]) -> None:
        self.inner, self.carry = inner, inner.carry
        self.hidden = tuple(spec.name for spec in hidden)
        self.privileged_dim = inner.privileged_dim + sum(spec.size for spec in hidden)

    def __getattr__(self, name: str) -> Any:  # such as its tracker
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def start(self, signals: Mapping[str, Tensor], carry: Carry) -> Carry:
        """The carry after the sample at time 0."""
        return self.inner.start(signals, carry)

    def step(self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry) -> tuple[Tensor, Tensor, Carry]:
        """Reward [N], terminated [N] and the next carry."""
        return self.inner.step(signals, action, carry)

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """The critic's additional inputs, [N, P]."""
        told = [signals[name].reshape(len(signals[name]), -1) for name in self.hidden]
        before = [self.inner.privileged(signals, carry)] if self.inner.privileged_dim else []
        return torch.cat([*before, *told], -1)

    def success(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Whether the objective calls the episode a success, bool [N]."""
        return self.inner.success(signals, carry)


def without(task: Task, hidden: Sequence[str]) -> Task:
    """``task`` whose policy is not told the signals ``hidden``, itself where there are none.

    Raises:
        ValueError: the observation map does not read one of them, or reads nothing else.
    """
    if not hidden:
        return task
    read = cast("ObserveMap", task.observe).signals
    for name in hidden:
        if name not in read:
            raise ValueError(f"algo.hide: the observation of task {task.name!r} has no signal {name!r}; "
                             f"{guess(name, read)}it is made of: {', '.join(read)}")
    if set(read) <= set(hidden):
        raise ValueError(f"algo.hide: the observation of task {task.name!r} is made of {', '.join(read)}: one of them "
                         "must stay, a policy that only sees is not supported")
    specs = [task.schema[name] for name in dict.fromkeys(hidden)]
    return replace(task, observe=Hiding(task.observe, specs), objective=Telling(task.objective, specs))
