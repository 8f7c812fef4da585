"""The few types that simulation and learning share. N worlds, K chosen worlds, U command, A action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from robots.spec import RobotSpec

Signals = Mapping[str, "Tensor"]
"""Signal name -> [N, *shape]. Float32 on the backend's device."""


class Obs(NamedTuple):
    """What a learner sees of N worlds: the deployable observation and the privileged one of the critic."""

    actor: Tensor  # [N, O]
    critic: Tensor  # [N, C]


@dataclass(frozen=True)
class Step:
    """Result of one control step of N worlds.

    ``obs`` is the observation to act on next (of the new episode where one ended). ``final_obs`` is the true
    successor of this step (of the episode that ended where one did, equal to ``obs`` elsewhere): truncation
    bootstraps from it. ``terminated`` and ``truncated`` are never both true.
    """

    obs: Obs
    reward: Tensor  # [N] float32
    terminated: Tensor  # [N] bool
    truncated: Tensor  # [N] bool
    final_obs: Obs
    info: Mapping[str, Tensor]  # per-episode figures, valid where an episode ended: [N] each


class Backend(Protocol):
    """N worlds of one robot. State is reset, stepped, read and parameterized; nothing else.

    Time step ``dt`` [s] is the physics step. All tensors are float32 on ``device``; ``ids`` are int64 [K].
    """

    robot: RobotSpec
    command: str
    num_worlds: int
    dt: float
    device: torch.device
    seed: int

    def reset(self, ids: Tensor, state: Signals) -> None:
        """Set the worlds ``ids`` to ``state`` [K, ...] (home where a signal is left out) at rest actuators."""

    def step(self, ctrl: Tensor, substeps: int) -> None:
        """Advance all worlds by ``substeps * dt`` with command ``ctrl`` [N, U]."""

    def signals(self) -> dict[str, Tensor]:
        """The true signals, [N, ...]: the robot's own and the backend's privileged ones."""

    def set_params(self, ids: Tensor, params: Mapping[str, Tensor]) -> None:
        """Set physical parameters [K, ...] by the names of ``robot.parameters`` and the disturbances."""

    def state(self) -> dict[str, Tensor]:
        """A copy of the complete state, enough for a bit-exact continuation."""

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned."""


class VecEnv(Protocol):
    """What a learning algorithm sees: tensors and sizes."""

    num_worlds: int
    obs_dim: int
    critic_dim: int
    action_dim: int
    device: torch.device

    def reset(self) -> Obs:
        """Start a new episode in every world."""

    def step(self, action: Tensor) -> Step:
        """One control step with ``action`` [N, A] (nominal range [-1, 1], clipped by the action map)."""

    def state_dict(self) -> dict[str, object]:
        """All state, for a bit-exact resume."""

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore what :meth:`state_dict` returned."""
