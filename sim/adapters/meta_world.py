"""Meta-World's 50 tasks (Yu et al., CoRL 2019; package ``metaworld`` 3.0.0, MIT), with its scripted policies.

    temporeal train task=metaworld task.settings.env=door-open-v3 algo=ppo

One environment of the library serves all worlds: what differs between them (MuJoCo's state, where the model's bodies
stand, the Python object's attributes) is put in before a step and taken out after it. The model is loaded once, and a
reset goes from the state that the library itself reaches after bringing the hand home, which it simulates anew each
time. Steps and resets equal the library's own (``tests/sim/adapters/test_meta_world.py``).

One repair: the library writes 11 numbers into rows of ``eq_data`` that have 12 in MuJoCo 4.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.robots.registry import guess
from temporeal.sim.adapters.foreign_worlds import Described, copied, foreign_task
from temporeal.sim.adapters.meta_world_sentences import SENTENCES
from temporeal.sim.task import Task, check_range

STATE, ACTION = 39, 4
CONTROL_DT = 0.0125  # s: five steps of 2.5 ms
LONGEST = 500  # control steps of the library's episodes
WELD = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, 5.0)
"""What the library writes into the welds that hold the hand: ``SawyerMocapBase.reset_mocap_welds``."""
CONSTANTS: dict[str, Any] = {}


def make(
    *, env: str = "door-open-v3", steps: int = LONGEST, reward: str = "dense", formula: str | None = None,
    constants: Mapping[str, Any] | None = None,
) -> Task:
    """The task.

    Args:
        env: the library's name of it.
        steps: of an episode; the library's own has 500.
        reward: ``dense``: the library's, 0 to 10; ``success``: 1 while its goal is reached.
        formula: None: its goal is reached within the episode.
    """
    check_range("metaworld", "steps", steps, 1, 10_000, "")
    known = names()
    if env not in known:
        raise ValueError(f"task 'metaworld': env={env}: no such environment; {guess(env, known)}known: "
                         f"{', '.join(known)}")
    if reward not in ("dense", "success"):
        raise ValueError(f"task 'metaworld': reward is dense or success, got {reward!r}")
    about = Described("metaworld", "metaworld", STATE, (-1.0,) * ACTION, (1.0,) * ACTION, steps, CONTROL_DT)
    return foreign_task(about, lambda worlds: Sawyer(env, worlds, reward == "success"), library(), env, SENTENCES[env],
                        formula, constants)


def library() -> str:
    """Name and version."""
    from importlib.metadata import version

    return f"metaworld {version('metaworld')}"


@cache
def repaired() -> Any:
    """The library, its weld reset fitted to MuJoCo 4."""
    import mujoco
    from metaworld import sawyer_xyz_env

    def reset_mocap_welds(self: Any) -> None:
        for i in range(self.model.neq):
            if int(self.model.eq_type[i]) == int(mujoco.mjtEq.mjEQ_WELD):
                self.model.eq_data[i, : len(WELD)] = WELD

    sawyer_xyz_env.SawyerMocapBase.reset_mocap_welds = reset_mocap_welds
    return sawyer_xyz_env


@cache
def names() -> tuple[str, ...]:
    """The library's environments."""
    repaired()
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    return tuple(sorted(ALL_V3_ENVIRONMENTS))


def made(env: str) -> Any:
    """An environment of the library whose episodes differ by seed and whose goal is observed."""
    repaired()
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = ALL_V3_ENVIRONMENTS[env]()
    out._freeze_rand_vec, out.seeded_rand_vec, out._set_task_called = False, True, True
    out._partially_observable = False
    out.__dict__.pop("sawyer_observation_space", None)  # cached with the goal hidden
    return out


class Sawyer:
    """N worlds of one environment (:class:`temporeal.sim.adapters.foreign_worlds.Simulation`)."""

    def __init__(self, env: str, worlds: int, sparse: bool = False) -> None:
        import mujoco

        self.mujoco, self.env, self.sparse = mujoco, made(env), sparse
        self.model, self.data = self.env.model, self.env.data
        self.spec = mujoco.mjtState.mjSTATE_INTEGRATION
        size = mujoco.mj_stateSize(self.model, self.spec)
        self.states = np.zeros((worlds, size))
        self.places = (self.model.body_pos, self.model.body_quat, self.model.site_pos)
        self.first = [place.copy() for place in self.places]
        self.moved = [[place.copy() for place in self.places] for _ in range(worlds)]
        self.homes: dict[int, tuple[Any, np.ndarray]] = {}
        self.env._reset_hand = self._hand_home(type(self.env)._reset_hand)
        self.attributes = [copied(self.env.__dict__) for _ in range(worlds)]
        self.fresh = copied(self.env.__dict__)

    def _hand_home(self, simulated: Callable[..., None]) -> Callable[..., None]:
        """The library's way of bringing the hand home, ``simulated`` the first time, remembered afterwards."""
        def reset_hand(steps: int = 50) -> None:
            if steps not in self.homes:
                simulated(self.env, steps)
                kept = self.mujoco.MjData(self.model)
                # all of it: what the library reads next is derived from the state before the last substep
                self.mujoco.mj_copyData(kept, self.model, self.data)
                self.homes[steps] = kept, np.array(self.env.init_tcp)
                return
            self.mujoco.mj_copyData(self.data, self.model, self.homes[steps][0])
            self.env.init_tcp = self.homes[steps][1].copy()

        return reset_hand

    def reset(self, world: int, seed: int) -> Mapping[str, np.ndarray]:
        """Begin the episode of ``seed``."""
        env = self.env
        env.__dict__ = self.attributes[world] = copied(self.fresh)
        for place, value in zip(self.places, self.first):
            place[:] = value
        self.mujoco.mj_resetData(self.model, self.data)
        env.seed(seed)
        obs = np.asarray(env.reset_model(), float)
        env._prev_obs = obs[:18].copy()
        obs[18:36] = env._prev_obs
        self._keep(world)
        return {"state": obs, "reward": np.float32(0), "success": np.float32(0)}

    def step(self, world: int, action: np.ndarray) -> Mapping[str, np.ndarray]:
        """One control step."""
        env = self.env
        env.__dict__ = self.attributes[world]
        for place, value in zip(self.places, self.moved[world]):
            place[:] = value
        self.mujoco.mj_setState(self.model, self.data, self.states[world], self.spec)
        env.curr_path_length = 0  # the episode's end is the task's to say
        obs, reward, _, _, info = env.step(action)
        self.mujoco.mj_getState(self.model, self.data, self.states[world], self.spec)
        success = np.float32(info["success"] > 0.5)
        return {"state": obs, "reward": success if self.sparse else np.float32(reward), "success": success}

    def _keep(self, world: int) -> None:
        self.mujoco.mj_getState(self.model, self.data, self.states[world], self.spec)
        for kept, place in zip(self.moved[world], self.places):
            kept[:] = place

    def close(self) -> None:
        """Nothing to give back."""


def expert(task: Task, worlds: int) -> Callable[[Mapping[str, Tensor], Tensor], Tensor]:
    """The library's scripted policy. ``pace``: of the hand, at most."""
    repaired()
    from metaworld.policies import ENV_POLICY_MAP

    policies = [ENV_POLICY_MAP[task.scene.env]() for _ in range(worlds)]  # type: ignore[attr-defined]

    def act(signals: Mapping[str, Tensor], pace: Tensor) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that gains exceed 1: actions are clipped
            chosen = [policy.get_action(state) for policy, state in zip(policies, signals["state"].double().numpy())]
        action = torch.as_tensor(np.stack(chosen), dtype=torch.float32).clamp(-1.0, 1.0)
        moved = torch.minimum(torch.maximum(action[:, :3], -pace[:, None]), pace[:, None])
        return torch.cat([moved, action[:, 3:]], -1)

    return act
