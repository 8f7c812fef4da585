"""Worlds of Meta-World's environments: the library, what it lacks for MuJoCo 4, and N worlds in one environment of it.

What differs between worlds (MuJoCo's state, where the model's bodies stand, the Python object's attributes) is put in
before a step and taken out after it. The model is loaded once, and a reset goes from the state that the library itself
reaches after bringing the hand home, which it simulates anew each time.

One repair: the library writes 11 numbers into rows of ``eq_data`` that have 12 in MuJoCo 4.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from temporeal.sim.adapters.foreign_worlds import copied

if TYPE_CHECKING:
    from temporeal.sim.rendering.several_models import Poses

WELD = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, 5.0)
"""What the library writes into the welds that hold the hand: ``SawyerMocapBase.reset_mocap_welds``."""
VARIANTS: Mapping[str, tuple[str, int, float]] = {"peg-hard": ("peg-insert-side-v3", 4, 0.6)}
"""Environments of ours that are the library's with fewer starts: of which, and which number of its random vector is at
least how much. ``peg-hard``: holes beyond y = 0.6 m, where the scripted policy mostly fails."""
VIEWPOINTS = {"front": ((0.0, 1.5, 0.7), (0.0, 0.6, 0.1), 45.0), "right": ((0.8, 0.2, 0.6), (0.0, 0.7, 0.1), 40.0),
              "left": ((-0.8, 0.2, 0.6), (0.0, 0.7, 0.1), 40.0), "high": ((0.35, 1.1, 0.95), (0.0, 0.7, 0.1), 40.0)}
"""Where cameras are placed by name: the library's own ``corner2`` is upside down. Position and target, m; the robot
stands at the origin and looks along y."""


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
    """The library's environments, and the variants of them."""
    repaired()
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    return tuple(sorted((*ALL_V3_ENVIRONMENTS, *VARIANTS)))


def original(env: str) -> str:
    """The library's name of ``env``."""
    return VARIANTS[env][0] if env in VARIANTS else env


def made(env: str) -> Any:
    """An environment of the library whose episodes differ by seed and whose goal is observed."""
    repaired()
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = ALL_V3_ENVIRONMENTS[original(env)]()
    out._freeze_rand_vec, out.seeded_rand_vec, out._set_task_called = False, True, True
    out._partially_observable = False
    out.__dict__.pop("sawyer_observation_space", None)  # cached with the goal hidden
    if env in VARIANTS:
        _, number, least = VARIANTS[env]
        out._random_reset_space.low[number] = least
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

    def steps(self, worlds: Sequence[int], actions: np.ndarray) -> Mapping[str, np.ndarray]:
        """One control step of K ``worlds`` with ``actions`` [K, 4]: their signals [K, ...]."""
        found = [self.step(world, action) for world, action in zip(worlds, actions)]
        return {name: np.stack([each[name] for each in found]) for name in found[0]}

    def _keep(self, world: int) -> None:
        self.mujoco.mj_getState(self.model, self.data, self.states[world], self.spec)
        for kept, place in zip(self.moved[world], self.places):
            kept[:] = place

    def close(self) -> None:
        """Nothing to give back."""


class SawyerDrawn:
    """What cameras see of ``worlds`` (:class:`temporeal.sim.rendering.several_models.Drawn`). The library moves objects
    at a reset by moving bodies in its model, and the hand by a mocap body."""

    moved = ("body_pos", "body_quat")

    def __init__(self, worlds: Sawyer) -> None:
        from temporeal.sim.rendering.viewpoints import upright

        self.worlds, self.model = worlds, worlds.model
        self.viewpoints = {name: upright(*view) for name, view in VIEWPOINTS.items()}

    def poses(self, ids: Tensor) -> Poses:
        """Positions and mocap poses [K, ...], and where the bodies of the model stand [K, nbody, ...]."""
        from temporeal.sim.rendering.several_models import Poses

        state, worlds = self.worlds.mujoco.mjtState, ids.tolist()
        qpos, pos, quat = (self._part(part, worlds) for part in (
            state.mjSTATE_QPOS, state.mjSTATE_MOCAP_POS, state.mjSTATE_MOCAP_QUAT))
        places = {name: torch.from_numpy(np.stack([self.worlds.moved[w][i] for w in worlds]).astype(np.float32))
                  for i, name in enumerate(self.moved)}
        return Poses(qpos, pos.reshape(len(ids), -1, 3), quat.reshape(len(ids), -1, 4), places)

    def _part(self, part: Any, worlds: list[int]) -> Tensor:
        """[K, ...] of one part of MuJoCo's state, float32."""
        of = self.worlds
        out = np.zeros((len(worlds), of.mujoco.mj_stateSize(self.model, part)))
        for row, world in zip(out, worlds):
            of.mujoco.mj_extractState(self.model, of.states[world], of.spec, row, part)
        return torch.from_numpy(out.astype(np.float32))
