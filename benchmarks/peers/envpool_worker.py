"""The process of EnvPool: what it can be asked.

Its entry point imports every family of environments, and each looks for its files when it is imported: 600 MB together.
Only MuJoCo's Gymnasium tasks are registered here, whose files are in one of the packages.
"""

from __future__ import annotations

import ctypes
import sys
import time
import types
from typing import Any

import numpy as np

sys.modules["envpool.entry"] = types.ModuleType("envpool.entry")

import envpool  # type: ignore[import-not-found]  # noqa: E402
import envpool.mujoco.gym.registration  # type: ignore[import-not-found]  # noqa: E402

pools: dict[str, Any] = {}


def mujoco_version() -> str:
    """Of the MuJoCo that is linked into EnvPool."""
    from envpool.mujoco import mujoco_gym_envpool  # type: ignore[import-not-found]

    version = ctypes.CDLL(mujoco_gym_envpool.__file__).mj_versionString
    version.restype = ctypes.c_char_p
    return str(version().decode())


def make(key: str, task: str, worlds: int, substeps: int) -> dict[str, Any]:
    """Keep ``worlds`` worlds of ``task`` on one thread under ``key``: versions, physics steps in a step, size of an
    observation."""
    # without the contact forces that the observation does not show: the same work as ours
    pool = envpool.make_gymnasium(task, num_envs=worlds, num_threads=1, frame_skip=substeps, post_constraint=False)
    pool.reset()
    actions = np.random.default_rng(0).uniform(-1, 1, (16, worlds, *pool.action_space.shape))
    pools[key] = pool, actions
    return {"version": envpool.__version__, "mujoco": mujoco_version(), "substeps": pool.spec.config.frame_skip,
            "observation": list(pool.observation_space.shape)}


def run(key: str, steps: int) -> float:
    """Processor time [s] of ``steps`` steps with random actions, resets included, all threads."""
    pool, actions = pools[key]
    begin = time.process_time()
    for i in range(steps):
        pool.step(actions[i % 16])
    return time.process_time() - begin


if __name__ == "__main__":
    from temporeal_benchmarks.peers.process import serve

    serve([make, run])
