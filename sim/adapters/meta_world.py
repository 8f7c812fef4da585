"""Meta-World's 50 tasks (Yu et al., CoRL 2019; package ``metaworld`` 3.0.0, MIT), with its scripted policies.

    temporeal train task=metaworld task.settings.env=door-open-v3 algo=ppo
    temporeal train task=metaworld task.settings.env=door-open-v3 task.settings.see=hand algo=ppo \
        cameras.front.width=64 cameras.front.height=64

One environment of the library serves all worlds: what differs between them (MuJoCo's state, where the model's bodies
stand, the Python object's attributes) is put in before a step and taken out after it. The model is loaded once, and a
reset goes from the state that the library itself reaches after bringing the hand home, which it simulates anew each
time. Steps and resets equal the library's own (``tests/sim/adapters/test_meta_world.py``).

One repair: the library writes 11 numbers into rows of ``eq_data`` that have 12 in MuJoCo 4.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from temporeal.robots.registry import guess
from temporeal.sim.adapters.foreign_worlds import Described, copied, foreign_task
from temporeal.sim.adapters.meta_world_sentences import MT10, SENTENCES
from temporeal.sim.adapters.meta_world_signals import Hand, StateTold, Told, tokens_of, told_at_start
from temporeal.sim.stl.instructions.vocabulary import INSTRUCTION
from temporeal.sim.task import Task, check_range

if TYPE_CHECKING:
    from temporeal.sim.rendering.several_models import Poses

STATE, ACTION = 39, 4
CONTROL_DT = 0.0125  # s: five steps of 2.5 ms
LONGEST = 500  # control steps of the library's episodes
WELD = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, 5.0)
"""What the library writes into the welds that hold the hand: ``SawyerMocapBase.reset_mocap_welds``."""
CONSTANTS: dict[str, Any] = {}
VIEWPOINTS = {"front": ((0.0, 1.5, 0.7), (0.0, 0.6, 0.1), 45.0), "right": ((0.8, 0.2, 0.6), (0.0, 0.7, 0.1), 40.0),
              "left": ((-0.8, 0.2, 0.6), (0.0, 0.7, 0.1), 40.0), "high": ((0.35, 1.1, 0.95), (0.0, 0.7, 0.1), 40.0)}
"""Where cameras are placed by name: the library's own ``corner2`` is upside down. Position and target, m; the robot
stands at the origin and looks along y."""


def make(
    *, env: str = "door-open-v3", steps: int = LONGEST, reward: str = "dense", see: str = "state",
    formula: str | None = None, constants: Mapping[str, Any] | None = None,
) -> Task:
    """The task.

    Args:
        env: the library's name of it; several, as in ``drawer-open-v3,drawer-close-v3``, or ``mt10``: each episode
            draws one, and the instruction says which.
        steps: of an episode; the library's own has 500.
        reward: ``dense``: the library's, 0 to 10; ``success``: 1 while its goal is reached.
        see: what the policy is shown: ``state``: what the library observes; ``hand``: what cameras need not find
            (:data:`temporeal.sim.adapters.meta_world_signals.SHOWN`); the critic is shown the state.
        formula: None: its goal is reached within the episode.
    """
    check_range("metaworld", "steps", steps, 1, 10_000, "")
    envs = envs_in(env)
    if reward not in ("dense", "success"):
        raise ValueError(f"task 'metaworld': reward is dense or success, got {reward!r}")
    if see not in ("state", "hand"):
        raise ValueError(f"task 'metaworld': see is state or hand, got {see!r}")
    about = Described("metaworld", "metaworld", STATE, (-1.0,) * ACTION, (1.0,) * ACTION, steps, CONTROL_DT)
    sentence = SENTENCES[envs[0]] if len(envs) == 1 else ""
    task = foreign_task(about, lambda worlds: Mixed(envs, worlds, reward == "success"), library(), ",".join(envs),
                        sentence, formula, constants, Told(), partial(told_at_start, envs))
    return task if see == "state" else replace(task, observe=Hand(), objective=StateTold(task.episode_s))


def envs_in(text: str) -> tuple[str, ...]:
    """The environments that ``text`` names."""
    found, known = MT10 if text == "mt10" else tuple(part.strip() for part in text.split(",")), names()
    for env in found:
        if env not in known:
            raise ValueError(f"task 'metaworld': env={env}: no such environment; {guess(env, known)}known: mt10, "
                             f"{', '.join(known)}")
    if len(set(found)) < len(found):
        raise ValueError(f"task 'metaworld': env={text} names an environment twice")
    return found


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


class Mixed:
    """N worlds of several environments (:class:`temporeal.sim.adapters.foreign_worlds.Simulation`): the seed of an
    episode says which, as :func:`temporeal.sim.adapters.meta_world_signals.told_at_start` has it. Also what cameras see
    of them.

    Attributes:
        parts: one for each environment.
    """

    def __init__(self, envs: Sequence[str], worlds: int, sparse: bool) -> None:
        self.sawyers = [Sawyer(env, worlds, sparse) for env in envs]
        self.of = torch.zeros(worlds, dtype=torch.int64)
        self.parts = [SawyerDrawn(one) for one in self.sawyers]
        self.scenery = self

    def which(self) -> Tensor:
        """The environment that each world is of now: int64 [N]."""
        return self.of

    def reset(self, world: int, seed: int) -> Mapping[str, np.ndarray]:
        """Begin the episode of ``seed``."""
        self.of[world] = seed % len(self.sawyers)
        return self.sawyers[seed % len(self.sawyers)].reset(world, seed)

    def step(self, world: int, action: np.ndarray) -> Mapping[str, np.ndarray]:
        """One control step."""
        return self.sawyers[int(self.of[world])].step(world, action)

    def close(self) -> None:
        """Nothing to give back."""


def expert(task: Task, worlds: int) -> Callable[[Mapping[str, Tensor], Tensor], Tensor]:
    """The library's scripted policy. ``pace``: of the hand, at most."""
    repaired()
    from metaworld.policies import ENV_POLICY_MAP

    envs = task.scene.env.split(",")  # type: ignore[attr-defined]
    policies = [[ENV_POLICY_MAP[env]() for env in envs] for _ in range(worlds)]
    said = {told: number for number, told in enumerate(map(tuple, tokens_of(envs).tolist()))}

    def act(signals: Mapping[str, Tensor], pace: Tensor) -> Tensor:
        which = [said[tuple(row)] for row in signals[INSTRUCTION.name].tolist()] if len(envs) > 1 else [0] * worlds
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that gains exceed 1: actions are clipped
            chosen = [own[k].get_action(state) for own, k, state in zip(
                policies, which, signals["state"].double().numpy())]
        action = torch.as_tensor(np.stack(chosen), dtype=torch.float32).clamp(-1.0, 1.0)
        moved = torch.minimum(torch.maximum(action[:, :3], -pace[:, None]), pace[:, None])
        return torch.cat([moved, action[:, 3:]], -1)

    return act
