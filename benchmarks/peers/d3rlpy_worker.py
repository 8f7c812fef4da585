"""The process of d3rlpy: it trains on arrays that it is given, and is timed."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import torch

from temporeal_benchmarks.peers.process import serve

warnings.simplefilter("ignore")
torch.set_num_threads(1)

import d3rlpy  # type: ignore[import-not-found]  # noqa: E402
from d3rlpy.dataset import MDPDataset  # type: ignore[import-not-found]  # noqa: E402

CONFIGS = {"iql": d3rlpy.algos.IQLConfig, "td3bc": d3rlpy.algos.TD3PlusBCConfig, "cql": d3rlpy.algos.CQLConfig}
STATE: dict[str, Any] = {}


def begin(algo: str, data: str, batch: int, seed: int, normalize: bool) -> int:
    """Build ``algo`` with d3rlpy's defaults for the steps in the NPZ file ``data``: obs, action, reward, terminal (the
    step ends the task) and timeout (the step is the last of an episode that was cut). Returns their number."""
    d3rlpy.seed(seed)
    with np.load(data, allow_pickle=False) as given:
        steps = MDPDataset(given["obs"], given["action"], given["reward"], given["terminal"], given["timeout"])
        count = len(given["reward"])
    scaler = d3rlpy.preprocessing.StandardObservationScaler() if normalize else None
    learner = CONFIGS[algo](batch_size=batch, observation_scaler=scaler).create(device="cpu:0")
    learner.build_with_dataset(steps)
    if scaler is not None:
        scaler.fit_with_transition_picker(steps.episodes, steps.transition_picker)
    STATE.update(learner=learner, steps=steps, batch=batch)
    return count


def update(count: int) -> float:
    """``count`` updates as d3rlpy's own ``fit`` makes them; the CPU seconds that they took."""
    began = time.process_time()
    for _ in range(count):
        STATE["learner"].update(STATE["steps"].sample_transition_batch(STATE["batch"]))
    return time.process_time() - began


def act(obs: list[list[float]]) -> list[list[float]]:
    """The deterministic actions of observations."""
    found: list[list[float]] = STATE["learner"].predict(np.asarray(obs, np.float32)).tolist()
    return found


if __name__ == "__main__":
    serve([begin, update, act])
