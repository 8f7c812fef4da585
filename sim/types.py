"""The few types that simulation and learning share. N worlds, K chosen worlds, U command, A action."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from temporeal.robots.spec import Parameter, RobotSpec
    from temporeal.sim.scene import Scene
    from temporeal.sim.task import Task

Signals = Mapping[str, "Tensor"]
"""Signal name -> [N, *shape]. Float32 on the backend's device."""


class Obs(NamedTuple):
    """What a learner sees of N worlds: the deployable observation and the critic's privileged one.

    Where the task has nothing privileged, both are one tensor.
    """

    actor: Tensor  # [N, O]
    critic: Tensor  # [N, C]
    images: Mapping[str, Tensor] = {}  # by camera and kind: rgb uint8 [N, H, W, 3], depth float32 [N, H, W] m


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
    """N worlds of one scene. State is reset, stepped, read and parameterized; nothing else.

    Time step ``dt`` [s] is the physics step. Tensors are float32 on ``device``; ``ids`` are int64 [K], each once.
    ``capabilities``: the names of :mod:`temporeal.sim.capabilities` that hold here. Results depend on what was called
    with what, never on the number of worlds or threads (``deterministic``).
    """

    name: str
    """The module of ``temporeal.sim.backends`` that makes it."""
    scene: Scene
    robot: RobotSpec
    command: str
    num_worlds: int
    dt: float
    device: torch.device
    seed: int
    capabilities: frozenset[str]
    snapshot: bool
    """Whether each step first keeps the state, for :meth:`extract`; settable."""
    bad: Tensor
    """[N] bool: worlds that the simulator itself gave up; their signals may look sound. Live, part of ``status()``."""
    parameters: Mapping[str, Parameter]
    """What :meth:`set_params` takes, with nominal values: the robot's, the objects' (``cube.mass``), disturbances."""

    def reset(self, ids: Tensor, state: Signals) -> None:
        """Set the worlds ``ids`` to ``state`` [K, ...] (home where a signal is left out) at rest actuators."""

    def step(self, ctrl: Tensor, substeps: int) -> None:
        """Advance all worlds by ``substeps * dt`` with command ``ctrl`` [N, U].

        A world whose state or command is not finite is flagged in :meth:`status` until it is reset. It changes nothing
        in the others, and nothing resets it behind the caller's back.
        """

    def signals(self) -> dict[str, Tensor]:
        """The true signals, [N, ...]: the scene's own and the backend's privileged ones.

        Tensors that the next call may overwrite.
        """

    def params(self) -> dict[str, Tensor]:
        """Parameters of all worlds by name, [N, ...]."""

    def set_params(self, ids: Tensor, params: Mapping[str, Tensor]) -> None:
        """Set physical parameters: [K, count] by the names of :attr:`parameters`, [K] where the count is 1."""

    def status(self) -> Status:
        """What went wrong in the worlds since they were reset."""

    def state(self) -> dict[str, Tensor]:
        """A copy of the complete state, parameters included, enough for a bit-exact continuation."""

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned."""

    def extract(self, world: int, *, before: bool = False) -> dict[str, Tensor]:
        """State of one world, as :meth:`set_state` of a backend with one world takes it.

        ``before``: as it was before the last step; needs ``snapshot`` to have been true in that step.
        """

    def close(self) -> None:
        """Give threads, processes and memory back. Nothing else may be called afterwards."""


class Status(NamedTuple):
    """Health of N worlds."""

    bad: Tensor  # [N] bool: not finite, or failed in the simulator; stands still until reset
    overflow: Tensor  # [N] bool: contacts or constraints that had no room were left out since the last reset
    warnings: Mapping[str, int]  # the simulator's own, counted over all worlds since construction


class VecEnv(Protocol):
    """What a learning algorithm sees: tensors and sizes.

    Implement it to train on worlds of your own: :mod:`temporeal.policies.algos.ppo` needs no more.

    Attributes:
        obs_dim, critic_dim, action_dim: O, C and A. C = O where nothing is privileged.
        capabilities: what else there is; ``EnvCapabilities()`` where that is nothing.
    """

    num_worlds: int
    obs_dim: int
    critic_dim: int
    action_dim: int
    device: torch.device

    @property
    def capabilities(self) -> EnvCapabilities:
        """What the environment offers besides steps."""

    def reset(self) -> Obs:
        """Start a new episode in every world."""

    def step(self, action: Tensor) -> Step:
        """One control step with ``action`` [N, A] (nominal range [-1, 1], clipped by the action map).

        Where an episode ended, the world begins its next one in the same step. Each tensor [N] in ``info`` is averaged
        over the episodes that ended and logged by its name; those where ``info["mid_episode"]`` [N] is true, if it is
        there, are no whole episodes and count nowhere.
        """

    def state_dict(self) -> dict[str, object]:
        """All state, for a bit-exact resume."""

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore what :meth:`state_dict` returned."""


class Curriculum(Protocol):
    """What decides how hard episodes are (:class:`temporeal.sim.curriculum.curriculum.Curriculum`)."""

    def update(self, gathered: Callable[[Tensor], Tensor]) -> object:
        """Learn from the episodes that ended; ``gathered`` joins rows [K, ...] of all processes."""

    def metrics(self) -> dict[str, float]:
        """Figures for the log, by name."""


@dataclass(frozen=True)
class EnvCapabilities:
    """What an environment offers to learners besides :class:`VecEnv`; None: it does not.

    Args:
        stagger: cuts the running episodes off, each at a random step, so that worlds do not end in step.
        health: counts by name of what has gone wrong: ``diverged``, ``warnings``, ``overflow``.
        curriculum: is told when an iteration is over.
        task_env: the environment itself, where its worlds are those of a task.
        zero_start: a policy is to begin with the action 0 everywhere: what it learns is added to something.
        elements: the last numbers of an observation are a set: how many elements at most, and numbers of each.
        randomized: whether anything is drawn of the machine, its sensors or what disturbs it.
        beside: ``beside(task, num_worlds, seed)`` makes new worlds of another task of this robot, under the same
            randomization, sensors and disturbances.
    """

    stagger: Callable[[], None] | None = None
    health: Callable[[], Mapping[str, int]] | None = None
    curriculum: Curriculum | None = None
    task_env: TaskEnv | None = None
    zero_start: bool = False
    elements: tuple[int, int] | None = None
    randomized: bool = False
    beside: Callable[[Task, int, int], TaskEnv] | None = None


class TaskEnv(VecEnv, Protocol):
    """Worlds of a task (:class:`temporeal.sim.env.Env`), for learners that follow its formula or choose its starts.

    Attributes:
        compiled: whether the task's functions run compiled.
        mid_episode: whether [N] the running episodes are not whole.
    """

    task: Task
    compiled: bool
    mid_episode: Tensor

    @property
    def count(self) -> Tensor:
        """Control steps since the start of each world's mission, int64 [N]."""

    def true_signals(self) -> dict[str, Tensor]:
        """The true signals now, [N, ...]; those of a step, before any reset, are its ``info["signals"]``."""

    def subgoal_hits(self) -> Tensor | None:
        """1 + the sample [N, V] at which each subgoal was hit, 0 before; None where the objective has no subgoals."""

    def set_mid_episode_starts(self, share: float, truncate_after: int | None = None) -> None:
        """Which ``share`` of the next episodes start in mid-episode; after how many steps, on average, they are cut off
        (None: they are not)."""

    def forget_starts(self) -> None:
        """Draw the starts of next episodes anew that were drawn ahead: where they come from has changed."""
