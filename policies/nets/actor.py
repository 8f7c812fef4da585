"""Networks: Gaussian actors, feed-forward, recurrent and seeing, and the critic.

``forward`` of an actor is what is deployed: the deterministic action. The distribution is a value
(:class:`Gaussian`), made from a mean and the actor's ``log_std`` where it is needed; no module remembers one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from temporeal.policies.nets.encoders import Keypoints
from temporeal.policies.nets.layers import ACTIVATIONS, activation, linear, mlp
from temporeal.policies.nets.sets import SetActor, SetCritic

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True)
class Gaussian:
    """Independent normal distributions over actions: ``mean`` [..., A], ``log_std`` [A]."""

    mean: Tensor
    log_std: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        """Action [..., A] of standard normal ``noise`` [..., A]."""
        return self.mean + self.log_std.exp() * noise

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-density [...] of ``action`` [..., A]."""
        noise = (action - self.mean) * torch.exp(-self.log_std)
        return -0.5 * noise.square().sum(-1) - self.log_std.sum() - HALF_LOG_2PI * self.mean.shape[-1]

    def entropy(self) -> Tensor:
        """Differential entropy [] in nats (that of a state does not depend on it)."""
        return self.log_std.sum() + (0.5 + HALF_LOG_2PI) * self.log_std.shape[-1]

    def kl_from(self, old: Gaussian) -> Tensor:
        """Kullback-Leibler divergence KL(old || self) [...] in nats."""
        ratio = torch.exp(2.0 * (old.log_std - self.log_std))
        shift = ((old.mean - self.mean) * torch.exp(-self.log_std)).square()
        return 0.5 * (shift.sum(-1) + (ratio - 1.0).sum()) + (self.log_std - old.log_std).sum()


class FeedForwardActor(nn.Module):
    """Observation [..., O] to the deterministic action [..., A]."""

    hidden_dim = 0

    def __init__(self, obs_dim: int, action_dim: int, hidden: Sequence[int], name: str, init_std: float) -> None:
        super().__init__()
        self.net = mlp(obs_dim, hidden, action_dim, name, 0.01)  # small: all actions are tried from the first step on
        self.log_std = nn.Parameter(torch.full((action_dim,), math.log(init_std)))

    def forward(self, obs: Tensor) -> Tensor:
        """Deterministic action [..., A]: the mean."""
        return self.net(obs)


class RecurrentActor(nn.Module):
    """Observation [N, O] and hidden state [N, H] to the deterministic action [N, A] and the next hidden state (GRU)."""

    def __init__(
        self, obs_dim: int, action_dim: int, hidden: Sequence[int], name: str, init_std: float, hidden_dim: int
    ) -> None:
        super().__init__()
        self.hidden_dim = hidden_dim
        self.encoder = nn.Sequential(mlp(obs_dim, hidden[:-1], hidden[-1], name, math.sqrt(2.0)), activation(name))
        self.from_input = linear(hidden[-1], 3 * hidden_dim, 1.0)  # reset, update, candidate
        self.from_hidden = linear(hidden_dim, 3 * hidden_dim, 1.0)
        self.head = linear(hidden_dim, action_dim, 0.01)
        self.log_std = nn.Parameter(torch.full((action_dim,), math.log(init_std)))

    def forward(self, obs: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Deterministic action [N, A] and next hidden state [N, H]."""
        hidden = self.cell(self.from_input(self.encoder(obs)), hidden)
        return self.head(hidden), hidden

    def cell(self, gates_in: Tensor, hidden: Tensor) -> Tensor:
        """One gated step (Cho et al. 2014), with the input's share [N, 3H] given."""
        in_r, in_z, in_n = gates_in.chunk(3, -1)
        hid_r, hid_z, hid_n = self.from_hidden(hidden).chunk(3, -1)
        update = torch.sigmoid(in_z + hid_z)
        candidate = torch.tanh(in_n + torch.sigmoid(in_r + hid_r) * hid_n)
        return candidate + update * (hidden - candidate)

    def unroll(self, obs: Tensor, hidden: Tensor, first: Tensor) -> Tensor:
        """Actions [T, N, A] over a window of observations [T, N, O] from ``hidden`` [N, H].

        The hidden state is cleared before step t where ``first`` [T, N] says that t begins an episode.
        """
        keep = (~first).to(obs.dtype)[..., None]
        states = []
        for gates, kept in zip(self.from_input(self.encoder(obs)), keep):  # all input gates in one product
            hidden = self.cell(gates, hidden * kept)
            states.append(hidden)
        return self.head(torch.stack(states))


def eyes_of(pictures: Mapping[str, Sequence[int]], keypoints: int) -> nn.ModuleDict:
    """An eye for each of the ``pictures``, shapes (H, W, 3) by name."""
    eyes = nn.ModuleDict({picture: Keypoints(shape, keypoints) for picture, shape in pictures.items()})
    for layer in eyes.modules():
        if isinstance(layer, nn.Conv2d):  # torch's smaller weights give maps so flat that all keypoints are alike
            nn.init.orthogonal_(layer.weight, math.sqrt(2.0))
            nn.init.zeros_(layer.bias)
    return eyes


def looked(eyes: nn.ModuleDict, pictures: Mapping[str, Tensor]) -> Tensor:
    """What the ``eyes`` find in ``pictures``, uint8 [N, H, W, 3] by name: [N, F]."""
    return torch.cat([eye(pictures[name]) for name, eye in eyes.items()], -1)


class SeeingActor(nn.Module):
    """Observation [N, O] and pictures, uint8 [N, H, W, 3] by name, to the deterministic action [N, A].

    Each picture has an eye of its own: ``keypoints`` places (:class:`temporeal.policies.nets.encoders.Keypoints`).

    Attributes:
        pictures: their shapes (H, W, 3) by name.
        seen_dim: F, the numbers that the eyes give of all pictures.
    """

    hidden_dim = 0

    def __init__(
        self, obs_dim: int, action_dim: int, hidden: Sequence[int], name: str, init_std: float,
        pictures: Mapping[str, Sequence[int]], keypoints: int,
    ) -> None:
        super().__init__()
        self.pictures = {picture: tuple(map(int, shape)) for picture, shape in pictures.items()}
        self.eyes = eyes_of(self.pictures, keypoints)
        self.seen_dim = 2 * keypoints * len(self.pictures)
        self.net = mlp(obs_dim + self.seen_dim, hidden, action_dim, name, 0.01)
        self.log_std = nn.Parameter(torch.full((action_dim,), math.log(init_std)))

    def look(self, pictures: Mapping[str, Tensor]) -> Tensor:
        """What the eyes find in ``pictures`` [N, F]."""
        return looked(self.eyes, pictures)

    def decide(self, obs: Tensor, seen: Tensor) -> Tensor:
        """Deterministic action [N, A] of what was ``seen`` [N, F]."""
        return self.net(torch.cat([obs, seen], -1))

    def forward(self, obs: Tensor, pictures: Mapping[str, Tensor]) -> Tensor:
        """Deterministic action [N, A]: the mean."""
        return self.decide(obs, self.look(pictures))


Actor = FeedForwardActor | RecurrentActor | SeeingActor | SetActor


def make_actor(
    obs_dim: int, action_dim: int, hidden: Sequence[int], *, name: str = "silu", init_std: float = 1.0,
    hidden_dim: int = 0, pictures: Mapping[str, Sequence[int]] | None = None, keypoints: int = 16,
    elements: tuple[int, int] | None = None,
) -> Actor:
    """A seeing actor where there are ``pictures``, a recurrent one where ``hidden_dim`` > 0, one that reads a set where
    the observation ends with ``elements``, else a feed-forward one."""
    if init_std <= 0:
        raise ValueError(f"init_std, the standard deviation of the first actions, must be positive, got {init_std}")
    if pictures:
        return SeeingActor(obs_dim, action_dim, hidden, name, init_std, pictures, keypoints)
    if hidden_dim:
        return RecurrentActor(obs_dim, action_dim, hidden, name, init_std, hidden_dim)
    if elements is not None:
        return SetActor(obs_dim, elements, action_dim, hidden, name, init_std)
    return FeedForwardActor(obs_dim, action_dim, hidden, name, init_std)


@torch.no_grad()
def begin_at_zero(actor: nn.Module) -> None:
    """Have the deterministic action of a new ``actor`` be 0 everywhere: its last layer is."""
    if isinstance(actor, RecurrentActor):
        last = [actor.head.weight, actor.head.bias]
    else:
        net: nn.Module = actor.net  # type: ignore[assignment]
        last = [net.weights[-1], net.biases[-1]] if hasattr(net, "biases") else [net[-1].weight, net[-1].bias]  # type: ignore[index]
    for each in last:
        each.zero_()


class Critic(nn.Module):
    """Privileged observation [..., C] to the value [...]."""

    def __init__(self, critic_dim: int, hidden: Sequence[int], name: str) -> None:
        super().__init__()
        self.net = mlp(critic_dim, hidden, 1, name, 1.0)

    def forward(self, obs: Tensor) -> Tensor:
        """Value [...] of ``obs`` [..., C]."""
        return self.net(obs)[..., 0]


def make_critic(
    critic_dim: int, hidden: Sequence[int], name: str, elements: tuple[int, int] | None = None
) -> Critic | SetCritic:
    """A critic that reads a set where the observation ends with ``elements``, else a feed-forward one."""
    return Critic(critic_dim, hidden, name) if elements is None else SetCritic(critic_dim, elements, hidden, name)


__all__ = ["ACTIVATIONS", "Actor", "Critic", "FeedForwardActor", "Gaussian", "RecurrentActor", "SeeingActor",
           "activation", "begin_at_zero", "eyes_of", "linear", "looked", "make_actor", "make_critic", "mlp"]
