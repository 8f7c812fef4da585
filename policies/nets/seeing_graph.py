"""Between raw signals, pictures among them, and raw commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from torch import Tensor, nn

from temporeal.policies.nets.actor import SeeingActor
from temporeal.policies.nets.seeing_policy import SeeingPolicy
from temporeal.robots.signals import SignalSpec
from temporeal.sim.maps import ActionMap, Memory, PolicyGraph


class SeeingGraph(PolicyGraph):
    """A policy graph whose actor reads pictures besides the observation. N worlds.

    Attributes:
        pictures: shapes (H, W, 3) of the pictures it reads, uint8, by name.
    """

    def __init__(
        self, observe: nn.Module, normalizer: nn.Module, actor: SeeingActor | SeeingPolicy, act: ActionMap
    ) -> None:
        super().__init__(observe, normalizer, actor, act)
        self.pictures = dict(actor.pictures)

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals it reads, the pictures last."""
        return (*super().signals, *self.pictures)

    @property
    def picture_specs(self) -> dict[str, SignalSpec]:
        """The pictures as signals."""
        return {name: SignalSpec(name, shape, dtype="uint8") for name, shape in self.pictures.items()}

    def see(self, obs: Tensor, pictures: Mapping[str, Tensor]) -> Tensor:
        """Action [N, A] for the raw observation [N, O] and ``pictures`` [N, H, W, 3]."""
        return cast("Tensor", self.actor(self.normalizer(obs), pictures))

    def forward(self, signals: Mapping[str, Tensor], memory: Memory) -> tuple[dict[str, Tensor], Memory]:
        """Commands ``{name: [N, U]}`` and the next memory."""
        obs, after = self.observe(signals, memory)
        action = self.see(obs, signals).clamp(-1.0, 1.0)
        after = {**after, **self.observe.record(after, action)}
        return {self.act.command: self.act(action, after)}, after
