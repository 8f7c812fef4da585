"""Weights on their way from the learner to the actor, and the policy that acts with them. O observation, A action."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.robot_learning.wire.messages import (
    Message,
    MessageError,
    Published,
    array_of,
    decode,
    encode,
    text_of,
    whole_of,
)
from temporeal.policies.training.off_policy.critics import Sizes

if TYPE_CHECKING:
    from temporeal.policies.training.off_policy.settings import OffPolicyConfig

LEARNER, ACTOR = "the learner's weights", "actor."


def publish(actor: nn.Module, normalizer: Normalizer, updates: int, random: bool, agreed: str) -> Published:
    """The bytes that actors are given. ``random``: actions are still drawn at random; ``agreed``: the agreement's
    digest."""
    arrays = {f"{ACTOR}{name}": value.detach().numpy().copy() for name, value in actor.state_dict().items()}
    arrays |= {"shift": normalizer.shift.numpy().copy(), "scale": normalizer.scale.numpy().copy()}
    digest = digest_of(arrays, updates, random)
    return Published(digest, encode(Message("weights", {
        "digest": digest, "updates": updates, "random": random, "agreement": agreed}, arrays)))


def digest_of(arrays: Mapping[str, np.ndarray], updates: int, random: bool) -> str:
    """SHA-256 of weights: names, types, shapes and bytes, and what goes with them."""
    found = hashlib.sha256(f"{updates} {random}".encode())
    for name in sorted(arrays):
        found.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        found.update(np.ascontiguousarray(arrays[name]).tobytes())
    return found.hexdigest()


@dataclass(frozen=True)
class Weights:
    """As they are put into a policy: tensors by name; ``updates`` they had."""

    actor: Mapping[str, Tensor]
    shift: Tensor
    scale: Tensor
    updates: int
    random: bool


class Policy:
    """Acts with the newest weights; before the first ones there is nothing to act with.

    Args:
        build: an algorithm (:class:`temporeal.policies.training.off_policy.learner.Build`), whose actor explores.
        agreed: digest of the agreement.
        explore: try actions as the algorithm does; False: its deterministic action.
    """

    def __init__(
        self, build: Callable[..., Any], sizes: Sizes, config: OffPolicyConfig, seed: int, agreed: str,
        explore: bool = True,
    ) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.algorithm = build(sizes, config, self.generator)
        self.actor: nn.Module = self.algorithm.actor.eval()
        self.normalizer, self.sizes, self.agreed = Normalizer(sizes.obs_dim), sizes, agreed
        self.explore, self.updates, self.random, self.ready = explore, 0, True, False
        self.wanted = {name: tuple(value.shape) for name, value in self.actor.state_dict().items()}

    def read(self, data: bytes) -> Weights:
        """The weights of a message, each of the name, type and shape that this policy has."""
        message = decode(data, LEARNER, "weights")
        if (digest := text_of(message.fields, "agreement", LEARNER)) != self.agreed:
            raise MessageError(f"{LEARNER} are of another agreement, {digest[:12]}, this is {self.agreed[:12]}")
        updates, random = whole_of(message.fields, "updates", LEARNER, 0, 1 << 62), message.fields.get("random")
        shapes = {**{f"{ACTOR}{name}": shape for name, shape in self.wanted.items()},
                  "shift": (self.sizes.obs_dim,), "scale": (self.sizes.obs_dim,)}
        found = {name: array_of(message, name, "float32", shape, LEARNER) for name, shape in shapes.items()}
        if unknown := set(message.arrays) - set(found):
            raise MessageError(f"{LEARNER}: this policy has no {', '.join(sorted(unknown))[:200]}")
        if not isinstance(random, bool) or digest_of(found, updates, random) != message.fields.get("digest"):
            raise MessageError(f"{LEARNER} are not what their digest says")
        tensors = {name: torch.from_numpy(value) for name, value in found.items()}
        return Weights({name.removeprefix(ACTOR): value for name, value in tensors.items() if name.startswith(ACTOR)},
                       tensors["shift"], tensors["scale"], updates, random)

    @torch.no_grad()
    def put(self, weights: Weights) -> None:
        """Act with these from now on."""
        for name, value in self.actor.state_dict().items():
            value.copy_(weights.actor[name])
        self.normalizer.shift.copy_(weights.shift)
        self.normalizer.scale.copy_(weights.scale)
        self.updates, self.random, self.ready = weights.updates, weights.random, True

    @torch.no_grad()
    def __call__(self, obs: Tensor, pictures: Mapping[str, Tensor] = MappingProxyType({})) -> Tensor:
        """An action [1, A] in [-1, 1] where [1, O] is measured and ``pictures``, uint8 [1, H, W, 3], are seen."""
        if self.random and self.explore:
            return torch.rand(1, self.sizes.action_dim, generator=self.generator) * 2.0 - 1.0
        seen, sight = self.normalizer(obs), self.algorithm.sight
        if not self.explore:
            found: Tensor = self.actor(seen) if sight is None else self.actor(seen, pictures)
        else:
            found = self.algorithm.explore(seen if sight is None else torch.cat([seen, sight.eyes(pictures)], -1))
        return found.clamp(-1.0, 1.0)
