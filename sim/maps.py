"""Observation and action maps: the one place where signals become network inputs and outputs become commands.

The same modules run in the vectorized environment and are traced into the artifact. Memory (mission clock,
progress, action history) is an explicit dictionary ``name -> [N, ...]`` that goes in and comes out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp
from typing import Protocol

import torch
from torch import Tensor, nn

from temporeal.robots.spec import RobotSpec
from temporeal.sim.rotations import rotation

Memory = dict[str, Tensor]


class ObserveMap(Protocol):
    """What an observation map offers.

    ``signals`` names the signals it reads; ``memory`` gives the shape of each memory tensor (zeros at start).
    """

    signals: tuple[str, ...]
    memory: Mapping[str, tuple[int, ...]]
    obs_dim: int

    def __call__(self, signals: Mapping[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """Observation [N, O] of the measured ``signals`` and the memory for the next control step."""

    def record(self, memory: Memory, action: Tensor) -> Memory:
        """The memory with the chosen ``action`` [N, A] entered."""


def initial_memory(observe: ObserveMap, n: int, device: torch.device | str = "cpu") -> Memory:
    """The memory of ``n`` worlds at the start of an episode: zeros."""
    return {name: torch.zeros(n, *shape, device=device) for name, shape in observe.memory.items()}


class ActionMap(Protocol):
    """Action in [-1, 1] to command. ``memory``: the observation map's, with this action already entered."""

    command: str
    action_dim: int

    def __call__(self, action: Tensor, memory: Memory) -> Tensor:
        """Command [N, U] of ``action`` [N, A]."""

    def inverse(self, command: Tensor, memory: Memory) -> Tensor:
        """Action [N, A] whose command is ``command`` [N, U] or near it, with ``memory`` before it."""

    def to(self, device: torch.device) -> ActionMap:
        """The map with its constants on ``device``."""


class Limited(nn.Module):
    """Limits of a robot's command, in its units: buffers ``low`` and ``high`` [U]."""

    def __init__(self, robot: RobotSpec, command: str, **vectors: Sequence[float]) -> None:
        super().__init__()
        spec = robot.command(command)
        for name, value in vectors.items():
            if len(value) != spec.size:
                raise ValueError(f"command {command!r} has {spec.size} components, got {name} {value}")
        self.command, self.action_dim = command, spec.size
        for name, value in (*vectors.items(), ("low", spec.low), ("high", spec.high)):
            self.register_buffer(name, torch.tensor(value, dtype=torch.float32))
        self.low: Tensor
        self.high: Tensor

    def limit(self, command: Tensor) -> Tensor:
        """``command`` [N, U] within the limits."""
        return torch.minimum(torch.maximum(command, self.low), self.high)


class AffineAction(Limited):
    """Action in [-1, 1] to command: ``clip(center + scale * action, low, high)``, all [U] in the command's units."""

    def __init__(
        self, robot: RobotSpec, command: str, center: Sequence[float], scale: Sequence[float]
    ) -> None:
        super().__init__(robot, command, center=center, scale=scale)
        self.center: Tensor
        self.scale: Tensor

    def forward(self, action: Tensor, memory: Memory | None = None) -> Tensor:
        """Command [N, U] of ``action`` [N, U]."""
        return self.limit(self.center + self.scale * action.clamp(-1.0, 1.0))

    def inverse(self, command: Tensor, memory: Memory | None = None) -> Tensor:
        """Action [N, U] whose command is ``command`` [N, U] (within the limits)."""
        return (command - self.center) / self.scale


def begin(act: Limited, measured: Tensor, memory: Memory) -> Memory:
    """``memory`` with a ``target``: the one it has, at an episode's first sample what is ``measured`` [N, U]."""
    begun = memory["begun"][:, None] > 0.5
    target = torch.where(begun, memory["target"], act.limit(measured))
    return {**memory, "target": target, "begun": torch.ones_like(memory["begun"])}


class StepAction(Limited):
    """Actions move a target: ``target' = clip(target + step * action, low, high)``, and the target is the command.

    Smooth by construction: between two control steps a joint's command moves by at most ``step`` [U]. The target is
    memory of the observation map, which keeps it with :meth:`follow` and :meth:`move`; the first one is what is
    measured (``start``), so that nothing jumps when the policy takes over.
    """

    def __init__(self, robot: RobotSpec, command: str, step: Sequence[float]) -> None:
        super().__init__(robot, command, step=step)
        self.step: Tensor
        self.memory = {"target": (len(step),), "begun": ()}

    def follow(self, measured: Tensor, memory: Memory) -> Memory:
        """The memory of this sample: at an episode's first one the target is ``measured`` [N, U]."""
        return begin(self, measured, memory)

    def move(self, memory: Memory, action: Tensor) -> Memory:
        """The memory with the target moved by ``action`` [N, U]."""
        return {**memory, "target": self.limit(memory["target"] + self.step * action.clamp(-1.0, 1.0))}

    def forward(self, action: Tensor, memory: Memory) -> Tensor:
        """Command [N, U]: the target, moved already."""
        return memory["target"]

    def inverse(self, command: Tensor, memory: Memory) -> Tensor:
        """Action [N, U] that moves the target of ``memory`` to ``command`` [N, U], if it can be reached."""
        return (command - memory["target"]) / self.step


class Disturbance(nn.Module):
    """What moves the body beyond the model: an observer with explicit memory, for thrust-and-rates commands.

    A policy without memory of it cannot tell a wind, a weak battery or a bent arm from its own error and stays off its
    target by disturbance / stiffness. Two low-passed differences (time constant ``smooth_s``) between what is
    measured and what the nominal robot would do, both with the command lagging by ``lag_s``: acceleration (thrust
    along body z, and gravity) and body rates (the inner loop would reach those commanded).
    """

    def __init__(self, act: AffineAction, mass: float, dt: float, lag_s: float, smooth_s: float = 0.5) -> None:
        super().__init__()
        self.mass, self.dt = mass, dt
        self.follow, self.smooth = 1.0 - exp(-dt / lag_s), 1.0 - exp(-dt / smooth_s)
        self.register_buffer("center", act.center.clone())
        self.register_buffer("scale", act.scale.clone())
        self.register_buffer("gravity", torch.tensor([0.0, 0.0, 9.81]))
        self.center: Tensor
        self.scale: Tensor
        self.gravity: Tensor
        self.memory = {"residual": (6,), "velocity": (3,), "lagged": (4,), "seen": ()}

    def forward(self, signals: Mapping[str, Tensor], last_action: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """Estimate [N, 6] (m/s^2 in the world frame, rad/s in the body frame) and the next memory.

        ``last_action`` [N, 4] is the one given at the sample before.
        """
        # relative to the centre of the action map, so that a memory of zeros is a robot that hovers
        lagged = memory["lagged"] + self.follow * (self.scale * last_action.clamp(-1.0, 1.0) - memory["lagged"])
        velocity = signals["base_vel_w"]
        thrust = (self.center[0] + lagged[:, :1]) / self.mass
        expected = thrust * rotation(signals["base_quat_w"])[..., 2] - self.gravity
        found = torch.cat([(velocity - memory["velocity"]) / self.dt - expected,
                           signals["base_ang_vel_b"] - self.center[1:] - lagged[:, 1:]], -1)
        residual = memory["residual"] + self.smooth * memory["seen"][:, None] * (found - memory["residual"])
        return residual, {"residual": residual, "velocity": velocity, "lagged": lagged,
                          "seen": torch.ones_like(memory["seen"])}


class PolicyGraph(nn.Module):
    """Everything between raw signals and raw commands: observe, normalize, actor, act. This is what is exported.

    ``actor`` maps a normalized observation [N, O] to the deterministic action [N, A]; a recurrent actor maps
    ``(obs, hidden)`` to ``(action, hidden')`` and names its hidden size as ``hidden_dim``.
    """

    def __init__(self, observe: nn.Module, normalizer: nn.Module, actor: nn.Module, act: ActionMap) -> None:
        super().__init__()
        self.observe, self.normalizer, self.actor, self.act = observe, normalizer, actor, act
        self.hidden_dim = int(getattr(actor, "hidden_dim", 0))

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals it reads."""
        return tuple(self.observe.signals)

    @property
    def memory(self) -> dict[str, tuple[int, ...]]:
        """Shape of each memory tensor (without N)."""
        return {**self.observe.memory, **self.carried}

    def initial_memory(self, n: int, device: torch.device | str = "cpu") -> Memory:
        """Memory of ``n`` worlds at mission start."""
        return {name: torch.zeros(n, *shape, device=device) for name, shape in self.memory.items()}

    @property
    def carried(self) -> dict[str, tuple[int, ...]]:
        """The part of the memory that is not the observation map's: shapes by name."""
        return {"hidden": (self.hidden_dim,)} if self.hidden_dim else {}

    def decide(self, obs: Tensor, carried: Memory) -> tuple[Tensor, Memory]:
        """Action [N, A] for the raw observation [N, O], and what is ``carried`` to the next control step."""
        obs = self.normalizer(obs)
        if self.hidden_dim:
            action, hidden = self.actor(obs, carried["hidden"])
            return action, {"hidden": hidden}
        return self.actor(obs), {}

    def forward(self, signals: Mapping[str, Tensor], memory: Memory) -> tuple[dict[str, Tensor], Memory]:
        """Commands ``{name: [N, U]}`` and the next memory."""
        kept = self.carried
        obs, after = self.observe(signals, {k: v for k, v in memory.items() if k not in kept})
        action, carried = self.decide(obs, {k: memory[k] for k in kept})
        action = action.clamp(-1.0, 1.0)
        after = {**after, **self.observe.record(after, action), **carried}
        return {self.act.command: self.act(action, after)}, after
