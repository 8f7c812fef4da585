"""The hover task of *Learning to Fly in Seconds* (L2F) with everything of a control step in one kernel.

Dynamics, 18-number observation with sensor noise, reward, termination and reset of N worlds, as a
:class:`temporeal.sim.types.VecEnv`. The task's numbers are those of the paper's public code (Eschmann, Albani, Loianno,
RA-L 2024; arplaboratory/learning-to-fly): rotor speed setpoints at 100 Hz, one Runge-Kutta step each, a constant random
force and torque per episode, starts up to 90 degrees tilted.

Every random number is drawn by (seed, world, episode, step): see :mod:`temporeal.sim.compiler.keyed_random`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.robots.crazyflie.spec import GRAVITY, L2F_PARAMETERS
from temporeal.sim.compiler.keyed_random import key, stream
from temporeal.sim.compiler.thread_pool import ThreadPool
from temporeal.sim.physics.quadrotor import fused_kernels as kernels
from temporeal.sim.physics.quadrotor import hover
from temporeal.sim.physics.quadrotor.layout import BLOCK, DISTURBANCES, PARAMETERS
from temporeal.sim.physics.quadrotor.parameters import hover_speed, pack_params
from temporeal.sim.physics.quadrotor.runners import WholeBlocks, as_command, checked_device
from temporeal.sim.types import EnvCapabilities, Obs, Step

DT = 0.01  # s, control and physics step
MASS = L2F_PARAMETERS["mass"][0]


@dataclass(frozen=True)
class HoverTask:
    """The numbers of the task; the defaults are L2F's, with the reward its training begins with.

    reward = constant - scale (position |p|^2 + orientation (1 - qw^2) + velocity |v|^2 + rate |w|^2
    + action |a - hover|^2) of the state before the step; 0 in a step that leaves the box.
    """

    reward_constant: float = 2.0
    reward_scale: float = 0.5
    position: float = 5.0  # per m^2
    orientation: float = 5.0
    velocity: float = 0.01  # per (m/s)^2
    rate: float = 0.0  # per (rad/s)^2
    action: float = 0.01
    hover_action: float = 0.334  # L2F's baseline, close to the action that holds the weight
    fence: float = 0.6  # m, |p_i| beyond it terminates
    episode_steps: int = 500
    action_center: float = 0.5  # rotor speed setpoint = center + scale * action
    action_scale: float = 0.5
    noise_position: float = 0.001  # m, standard deviation
    noise_rotation: float = 0.001  # of each entry of the matrix
    noise_velocity: float = 0.002  # m/s
    noise_rate: float = 0.002  # rad/s
    force_std: float = MASS * GRAVITY / 20  # N per axis
    torque_std: float = MASS * GRAVITY / 10000  # N m per axis
    guidance: float = 0.1  # probability of a start at rest, level, at the origin
    start_position: float = 0.2  # m, uniform within +-
    start_velocity: float = 1.0  # m/s
    start_rate: float = 1.0  # rad/s
    start_rotor: float = 0.5  # normalized speed

    def packed(self) -> np.ndarray:
        """The numbers in the order of the kernels, float32 [TASK_SIZE]."""
        return np.array([getattr(self, f.name) for f in fields(self)], dtype=np.float32)


TRAINING = HoverTask()
TARGET = replace(TRAINING, position=40.0, velocity=1.0, action=1.0)
"""With the reward that L2F's curriculum ends at and that its evaluation uses."""


class FusedStep(Step):
    """A step whose ``final_obs`` is put together when it is first read: few worlds end in a step.

    Read it before the next step.
    """

    def __init__(
        self, obs: Obs, reward: Tensor, terminated: Tensor, truncated: Tensor, info: Mapping[str, Tensor],
        last: tuple[Tensor, Tensor],
    ) -> None:  # fmt: skip
        self.__dict__.update(
            obs=obs, reward=reward, terminated=terminated, truncated=truncated, info=info, last=last
        )

    @cached_property
    def final_obs(self) -> Obs:  # type: ignore[override]
        """The true successor of the step in every world, a copy."""
        ended = (self.terminated | self.truncated).nonzero().squeeze(1)
        actor = self.obs.actor.clone()
        actor[ended] = self.__dict__["last"][0][ended]
        if self.obs.critic is self.obs.actor:
            return Obs(actor, actor)
        critic = self.obs.critic.clone()
        critic[ended] = self.__dict__["last"][1][ended]
        return Obs(actor, critic)


class FusedHover:
    """N hovering quadrotors (:class:`temporeal.sim.types.VecEnv`); actions [N, 4] in [-1, 1], clipped.

    The actor sees position (3), rotation matrix (9, row-major), velocity (3) and body rates (3) with noise, then the
    four rotor speeds if ``rotor``, then the last ``history`` actions, newest first. The critic sees the same 18
    numbers without noise, rotor speeds (4), 10 x force (3), 1000 x torque (3); or, without ``privileged``, what the
    actor sees.

    Tensors of a :class:`temporeal.sim.types.Step` are views of the environment's memory ([N, rows] with worlds
    contiguous). Observations hold until the step after the next; all else until the next step.

    Args:
        num_worlds: N.
        seed: of all draws.
        task: numbers of the task.
        params: one parameter set for all worlds by the backend's names; no drag.
        threads: CPU threads, 0 for every core.
        device: ``"cpu"`` or ``"cuda"``.
    """

    action_dim = 4
    capabilities = EnvCapabilities()

    def __init__(
        self, num_worlds: int, *, seed: int = 0, task: HoverTask = TRAINING, rotor: bool = False, history: int = 0,
        privileged: bool = True, params: Mapping[str, tuple[float, ...]] = L2F_PARAMETERS, threads: int = 0,
        device: str = "cpu",
    ) -> None:  # fmt: skip
        if num_worlds < 1:
            raise ValueError(f"num_worlds is {num_worlds}; it must be at least 1")
        if history < 0:
            raise ValueError(f"history is {history}; it must be 0 or more actions")
        if any(params["drag"]):
            raise ValueError(f"the fused step has no drag; params['drag'] is {params['drag']}, it must be zero")
        self.num_worlds, self.seed, self.task = num_worlds, seed, task
        self.device = checked_device(device)
        self.rotor, self.history, self.privileged = rotor, history, privileged
        self.known = hover.ROWS + 4 * rotor  # rows of an observation before the past actions
        self.obs_dim = self.known + 4 * history
        self.critic_dim = hover.PRIVILEGED if privileged else self.obs_dim
        blocks = -(-num_worlds // BLOCK)
        # an odd number of cache lines per row: at a power of two all rows of a block would compete for one cache set
        columns = (blocks | 1) * BLOCK

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=self.device)

        self._turn = 0
        self._state = zeros(blocks, hover.FIELDS, BLOCK)
        self._obs = zeros(2, self.obs_dim, columns)
        self._critic = zeros(2, hover.PRIVILEGED if privileged else 0, columns)
        self._final = zeros(blocks * BLOCK, self.obs_dim)  # rows of the worlds that ended in the last step
        self._final_critic = zeros(blocks * BLOCK, self._critic.shape[1])
        self._reward = zeros(columns)
        self._flags = zeros(2, columns, dtype=torch.bool)
        self._episode = zeros(2, columns)  # length [control steps], return
        self._views = (self._view(0), self._view(1))
        length, total = self._episode[:, :num_worlds]
        self._results = (
            self._reward[:num_worlds], *self._flags[:, :num_worlds],
            {"episode_length": length, "episode_return": total}, (self._final, self._final_critic),
        )  # fmt: skip
        self._runner = _runner(self, shared_params(params), threads)

    def _view(self, turn: int) -> Obs:
        actor = self._obs[turn, :, : self.num_worlds].t()
        return Obs(actor, self._critic[turn, :, : self.num_worlds].t() if self.privileged else actor)

    def reset(self) -> Obs:
        """Start a new episode in every world."""
        self._turn ^= 1
        self._runner.reset(self._turn)
        return self._views[self._turn]

    def step(self, action: Tensor) -> Step:
        """One control step (10 ms) with ``action`` [N, 4]; worlds whose episode ended start a new one."""
        if action.shape != (self.num_worlds, 4):
            raise ValueError(f"action has shape {tuple(action.shape)}, expected {(self.num_worlds, 4)}")
        action = as_command(action, self.device)
        self._turn ^= 1
        self._runner.step(action, self._turn)
        return FusedStep(self._views[self._turn], *self._results)

    def state_dict(self) -> dict[str, object]:
        """All state, for a bit-exact resume."""
        return {"seed": self.seed, "state": self._state.clone(), "obs": self._obs[self._turn].clone()}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore what :meth:`state_dict` returned, of an environment built with the same arguments."""
        blocks, obs, seed = state["state"], state["obs"], state["seed"]
        if not isinstance(blocks, Tensor) or blocks.shape != self._state.shape:
            raise ValueError(f"the state does not fit {self.num_worlds} worlds")
        if not isinstance(obs, Tensor) or obs.shape != self._obs[0].shape:
            raise ValueError(f"the state does not fit an observation of {self.obs_dim} numbers")
        if seed != self.seed:
            raise ValueError(f"the state was made with seed {seed}, this environment has seed {self.seed}")
        self._state.copy_(blocks)
        self._obs[self._turn].copy_(obs)


def _runner(env: FusedHover, params: np.ndarray, threads: int) -> Any:
    """What runs the kernels of the device of ``env``."""
    keys = random_keys(env.seed)
    if env.device.type == "cpu":
        return CpuHover(env, params, keys, threads)
    from temporeal.sim.physics.quadrotor.fused_cuda import CudaHover

    return CudaHover(env, params, keys, DT)


def random_keys(seed: int) -> np.ndarray:
    """The two key words of ``seed``, the streams of sensor noise and of initial states: uint32 [4]."""
    return np.array([*key(seed, 0)[:2], stream("hover.noise"), stream("hover.initial")], dtype=np.uint32)


class CpuHover:
    """Runs the CPU kernels on threads."""

    def __init__(self, env: FusedHover, params: np.ndarray, keys: np.ndarray, threads: int) -> None:
        blocks, columns = len(env._state), env._obs.shape[2]
        self._blocks, self._whole = blocks, WholeBlocks(env.num_worlds)
        self._final, self._final_critic = env._final.numpy(), env._final_critic.numpy()
        self._episode = env._episode.numpy()
        self._state, self._obs, self._critic = env._state.view(-1).numpy(), env._obs.numpy(), env._critic.numpy()
        self._figures, self._keys, self._known = env.task.packed(), keys, env.known
        self._pool = ThreadPool(threads, kernels.work_loop, (
            self._state, params, self._figures, np.float32(DT), self._keys, env.num_worlds, self._known, self._obs,
            self._critic, self._final, self._final_critic, env._reward.numpy(), env._flags.numpy(), self._episode,
            np.zeros((2, columns), np.int64),
        ))  # fmt: skip

    def reset(self, turn: int) -> None:
        """A new episode in every world; observations go to the half ``turn``."""
        worlds = np.arange(self._blocks * BLOCK)
        kernels.restart(
            self._state, worlds, 0, len(worlds), self._keys, self._figures, self._known, self._obs[turn],
            self._critic[turn], self._final, self._final_critic, self._episode,
        )  # fmt: skip

    def step(self, action: Tensor, turn: int) -> None:
        """One control step; observations go to the half ``turn``."""
        rows = self._whole(action)
        self._pool(self._blocks, turn, rows.data_ptr(), rows.numel())


def shared_params(params: Mapping[str, tuple[float, ...]]) -> np.ndarray:
    """One parameter set, without disturbances, as the physics takes it: float32 [PARAM_SIZE]."""
    values = {name: torch.tensor([params[name]]) for name in PARAMETERS if name not in DISTURBANCES}
    values |= {name: torch.zeros(1, PARAMETERS[name][1]) for name in DISTURBANCES}
    packed: np.ndarray = pack_params(values).flatten().numpy()
    return packed


def true_hover_action(task: HoverTask = TRAINING, params: Mapping[str, tuple[float, ...]] = L2F_PARAMETERS) -> float:
    """The action at which four undisturbed rotors carry the weight."""
    speed = hover_speed({
        "mass": torch.tensor(params["mass"]), "thrust_curve": torch.tensor([params["thrust_curve"]]),
        "motor_gain": torch.tensor([params["motor_gain"]]),
    })  # fmt: skip
    return (float(speed[0, 0]) - task.action_center) / task.action_scale
