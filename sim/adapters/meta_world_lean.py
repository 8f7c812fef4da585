"""Meta-World's worlds without what a sparse reward does not need: steps equal the library's own, in a fraction of the
time.

The library computes a dense reward in each step, looks up bodies by name and steps one world at a time. Here numbers of
bodies are looked up once, what is observed of all worlds is computed at once, and of the reward there is only whether
the goal is reached (``tests/sim/adapters/test_meta_world_lean.py``). N worlds, K of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from temporeal.sim.adapters.meta_world_worlds import Sawyer

HALF = 18  # numbers of one moment in the library's state: the hand 3, its opening, two objects of 7
SUBSTEPS, WIDEST = 5, 0.1  # of a control step; m between the claws that count as open
DOWN = (1.0, 0.0, 1.0, 0.0)  # of the hand, wxyz: ``SawyerXYZEnv.set_xyz_action``


@dataclass(frozen=True)
class Goal:
    """How the library observes the object of an environment, and when it calls its goal reached: where the distance of
    ``reaches`` from the target, its axes weighed, is at most ``radius`` [m] (``evaluate_state`` and ``compute_reward``
    of the library's environment).

    Args:
        seen, reaches: (kind, name) of what is observed, and of what has to get there.
    """

    seen: tuple[str, str]
    reaches: tuple[str, str]
    radius: float
    weights: tuple[float, float, float] = (1.0, 1.0, 1.0)


PEG = Goal(("site", "pegGrasp"), ("site", "pegHead"), 0.07, (1.0, 2.0, 2.0))
GOALS: Mapping[str, Goal] = {
    "peg-insert-side-v3": PEG, "peg-hard": PEG,
    "soccer-v3": Goal(("body", "soccer_ball"), ("body", "soccer_ball"), 0.07),
}
"""The environments that have lean worlds."""


class LeanSawyer(Sawyer):
    """N worlds of one environment of :data:`GOALS` (:class:`temporeal.sim.adapters.foreign_worlds.Together`). The
    reward is whether the goal is reached."""

    def __init__(self, env: str, worlds: int) -> None:
        super().__init__(env, worlds, sparse=True)
        data, self.goal = self.data, GOALS[env]
        self.hand, self.claws = data.body("hand").xpos, (data.body("rightclaw").xpos, data.body("leftclaw").xpos)
        self.seen, self.reaches = (getattr(data, kind)(name) for kind, name in (self.goal.seen, self.goal.reaches))
        self.weights = np.array(self.goal.weights)
        space = self.env.sawyer_observation_space
        self.low, self.high = space.low, space.high
        self.before = np.zeros((worlds, HALF))
        self.target = np.zeros((worlds, 3))

    def reset(self, world: int, seed: int) -> Mapping[str, np.ndarray]:
        """Begin the episode of ``seed``."""
        found = super().reset(world, seed)
        self.before[world], self.target[world] = found["state"][:HALF], self.env._target_pos
        return found

    def step(self, world: int, action: np.ndarray) -> Mapping[str, np.ndarray]:
        """One control step."""
        return {name: value[0] for name, value in self.steps([world], action[None]).items()}

    def steps(self, worlds: Sequence[int], actions: np.ndarray) -> Mapping[str, np.ndarray]:
        """One control step of K ``worlds`` with ``actions`` [K, 4]: their signals [K, ...]."""
        moved = np.clip(actions[:, :3], -1.0, 1.0) * self.env.action_scale
        poses = np.empty((len(worlds), 24))
        for world, by, grip, pose in zip(worlds, moved, actions[:, 3].tolist(), poses):
            self._moved(world, by, grip, pose)
        return self._signals(np.asarray(worlds), poses)

    def _moved(self, world: int, by: np.ndarray, grip: float, pose: np.ndarray) -> None:
        """Step one world; where its parts are goes into ``pose`` [24]."""
        mujoco, model, data, state = self.mujoco, self.model, self.data, self.states[world]
        for place, value in zip(self.places, self.moved[world]):
            place[:] = value
        mujoco.mj_setState(model, data, state, self.spec)
        data.mocap_pos[0] = (data.mocap_pos[0] + by).clip(self.env.mocap_low, self.env.mocap_high)
        data.mocap_quat[0] = DOWN
        data.ctrl[:] = grip, -grip
        mujoco.mj_step(model, data, SUBSTEPS)
        mujoco.mj_forward(model, data)
        mujoco.mj_getState(model, data, state, self.spec)
        pose[:3], pose[3:6], pose[6:9] = self.hand, *self.claws
        pose[9:12], pose[12:21], pose[21:] = self.seen.xpos, self.seen.xmat, self.reaches.xpos

    def _signals(self, worlds: np.ndarray, poses: np.ndarray) -> Mapping[str, np.ndarray]:
        """What the library observes, [K, 39], and whether the goals are reached."""
        from scipy.spatial.transform import Rotation  # as the library does: the sign of a quaternion is its choice

        now, target = np.zeros((len(worlds), HALF)), self.target[worlds]
        now[:, :3], now[:, 4:7] = poses[:, :3], poses[:, 9:12]
        apart = np.linalg.norm(poses[:, 3:6] - poses[:, 6:9], axis=1)
        now[:, 3] = np.clip(apart / WIDEST, 0.0, 1.0)
        now[:, 7:11] = Rotation.from_matrix(poses[:, 12:21].reshape(-1, 3, 3)).as_quat()
        state = np.clip(np.hstack((now, self.before[worlds], target)), self.low, self.high)
        self.before[worlds] = now
        away = np.linalg.norm((poses[:, 21:] - target) * self.weights, axis=1)
        reached = (away <= self.goal.radius).astype(np.float32)
        return {"state": state, "reward": reached, "success": reached}


def simulated(env: str, worlds: int, sparse: bool) -> Sawyer:
    """N worlds of ``env``: lean ones where there are such and no dense reward is asked for."""
    return LeanSawyer(env, worlds) if sparse and env in GOALS else Sawyer(env, worlds, sparse)
