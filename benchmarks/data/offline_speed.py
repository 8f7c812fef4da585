"""Updates per second of offline learners against d3rlpy 2.8.0: batch 256, networks of 256 x 2, one core, CPU time.

Both are bound by the same products of matrices in float32: IQL's update has 15 of 256 x 256 x 256 here and 18 there,
about 5 ms of a core that makes 100 GFLOPS; first and last layers, activations and Adam took 1.9 ms in a profile.
``iql-bfloat16``: with ``algo.precision=bfloat16``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.offline import cql, iql, td3bc
from temporeal.policies.training.offline.transition_batches import TransitionBatches
from temporeal_benchmarks.peers.install import PeerError
from temporeal_benchmarks.peers.process import Peer
from temporeal_benchmarks.rows import Row, not_measured, spread

STEPS, EPISODE, OBS, ACTIONS, BATCH = 20_000, 200, 20, 4, 256
TARGET = 3.0  # times d3rlpy's rate, of IQL
LEARNERS: dict[str, tuple[Any, Any]] = {
    "iql": (iql.IQL, iql.IQLConfig()), "iql-bfloat16": (iql.IQL, iql.IQLConfig(precision="bfloat16")),
    "td3bc": (td3bc.TD3BC, td3bc.TD3BCConfig()), "cql": (cql.CQL, cql.CQLConfig())}


def rows(quick: bool, out: Path) -> list[Row]:
    """Ratios within interleaved rounds: drawing the batch and the update, as a training makes them."""
    out.mkdir(parents=True, exist_ok=True)
    data, found = steps(), list[Row]()
    write(data, out / "steps.npz")
    rounds, count = (3, 20) if quick else (7, 60)
    torch.set_num_threads(1)
    for name in LEARNERS:
        target = TARGET if name.startswith("iql") else None
        try:
            with Peer("d3rlpy") as peer:
                peer.ask("begin", algo=name.partition("-")[0], data=str(out / "steps.npz"), batch=BATCH, seed=0,
                         normalize=False)
                found += compared(name, peer, data, rounds, count if name != "cql" else max(4, count // 6), target)
        except PeerError as error:
            found.append(not_measured(f"update.{name}.against_d3rlpy", "1", target, str(error)))
    return found


def compared(
    name: str, peer: Peer, data: Transitions, rounds: int, count: int, target: float | None
) -> list[Row]:
    """Our seconds of an update, and d3rlpy's in ours."""
    ours = timed(name, data)
    ours(count), peer.ask("update", count=count)
    pairs = [(ours(count) / count, peer.ask("update", count=count) / count) for _ in range(rounds)]
    return [Row(f"update.{name}", 1.0 / median(a for a, _ in pairs), "1/s",
                peer=f"d3rlpy {1.0 / median(b for _, b in pairs):.1f}"),
            *spread(f"update.{name}.against_d3rlpy", [b / a for a, b in pairs], "1", target,
                    "d3rlpy 2.8.0, CPU time of drawing a batch and of the update")]


def timed(name: str, data: Transitions) -> Callable[[int], float]:
    """``seconds(count)``: CPU time of so many updates."""
    kind, config = LEARNERS[name]
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    batches = TransitionBatches(data, BATCH)
    algorithm = kind(batches.sizes, config, generator)

    def seconds(count: int) -> float:
        began = time.process_time()
        for batch in batches.draw(generator, count):
            algorithm.update(batch)
        return time.process_time() - began

    return seconds


def steps() -> Transitions:
    """Random steps in episodes of one length: how long an update takes does not depend on them."""
    rng = np.random.default_rng(0)
    obs = torch.from_numpy(rng.standard_normal((STEPS, OBS)).astype(np.float32))
    action = torch.from_numpy(np.tanh(rng.standard_normal((STEPS, ACTIONS))).astype(np.float32))
    reward = torch.from_numpy(rng.standard_normal(STEPS).astype(np.float32))
    return Transitions(obs, action, reward, obs.roll(-1, 0), torch.ones(STEPS), torch.arange(STEPS) // EPISODE,
                       torch.arange(0, STEPS + 1, EPISODE))


def write(data: Transitions, file: Path) -> None:
    """``data`` as d3rlpy takes it (:func:`temporeal_benchmarks.peers.d3rlpy_worker.begin`)."""
    last = np.zeros(data.steps, np.float32)
    last[data.starts[1:].numpy() - 1] = 1.0
    terminal = (data.mask == 0).float().numpy()
    np.savez(file, obs=data.obs.numpy(), action=data.action.numpy(), reward=data.reward.numpy(), terminal=terminal,
             timeout=last * (1.0 - terminal))
