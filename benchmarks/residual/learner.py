"""Updates per second of SAC against stable-baselines3's, and with ten critics: drawing batches of 256 and updating.

At equal settings (two critics of 256 x 2 without layer norm, each update with one of the policy and of the temperature)
both run on one core and CPU time is compared, in interleaved rounds. Nearly all of it is products in float32, at the
processor's speed on both sides; ``bfloat16`` beside it has those between hidden layers in half the bits. Ten critics of
128 x 2 with layer norm, of which the least of two counts, and one update of the policy for twenty, as in RLPD, are
shared by two threads and measured by the clock, as are others beside it: it asks for a quiet machine. An arm's sizes:
40 numbers observed, 51 by the critics, 8 of an action.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from temporeal.policies.algos import sac
from temporeal.policies.training.off_policy.drawing import batches
from temporeal.policies.training.off_policy.learner import Learner, start, step
from temporeal.sim.types import EnvCapabilities, Obs, Step
from temporeal_benchmarks.rows import Row, at_least, not_measured, spread

OBS, CRITIC, ACTION, BATCH, STEPS = 40, 51, 8, 256, 20_000
TIMES, RATE = 2.0, 400.0  # targets: of stable-baselines3's rate, and updates per second with ten critics
EQUAL = sac.SACConfig(hidden=(256, 256), layer_norm=False, batch=BATCH, size=STEPS, warmup=0, updates_per_step=1.0,
                      normalize_observations=False, privileged=False)
TEN = sac.SACConfig(hidden=(128, 128), critics=10, subset=2, policy_value="mean", policy_every=20, batch=BATCH,
                    size=STEPS, warmup=0, updates_per_step=1.0, threads=2)


def rows(quick: bool, out: Path) -> list[Row]:
    """Medians of rounds."""
    rounds, count = (3, 24) if quick else (7, 120)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [*against_sb3(rounds, count), *ten_critics(rounds, 2 * count)]
    finally:
        torch.set_num_threads(before)


def against_sb3(rounds: int, count: int) -> list[Row]:
    """Our CPU time of an update, and stable-baselines3's in ours."""
    name, clock = "residual.learner.against_sb3", time.process_time
    try:
        theirs, version = sb3(clock)
    except ImportError as error:
        return [not_measured(name, "1", TIMES, str(error))]
    ours, rounded = updating(EQUAL, clock), updating(replace(EQUAL, precision="bfloat16"), clock)
    ours(count), rounded(count), theirs(count)
    found = [(ours(count), rounded(count), theirs(count)) for _ in range(rounds)]
    said = f"stable-baselines3 {version}, equal settings, CPU time of one core"
    return [Row("residual.learner.update", 1.0 / median(a for a, _, _ in found), "1/s",
                peer=f"stable-baselines3 {version}: {1.0 / median(c for _, _, c in found):.1f}"),
            *spread(name, [c / a for a, _, c in found], "1", TIMES, f"{said}, float32"),
            *spread(f"{name}.bfloat16", [c / b for _, b, c in found], "1", None, f"{said}; ours rounds products")]


def ten_critics(rounds: int, count: int) -> list[Row]:
    """Updates per second by the clock, on two cores."""
    cases = {"ten_critics": TEN, "ten_critics.bfloat16": replace(TEN, precision="bfloat16"),
             "ten_critics.one_thread": replace(TEN, threads=1),
             "ten_critics.256": replace(TEN, hidden=(256, 256))}
    timed = {name: updating(config, time.perf_counter) for name, config in cases.items()}
    for each in timed.values():
        each(count // 4)
    found = {name: 1.0 / median(each(count) for _ in range(rounds)) for name, each in timed.items()}
    said = "batch 256, two threads, on the clock"
    return [at_least("residual.learner.ten_critics", found["ten_critics"], "1/s", RATE, f"128 x 2, float32, {said}"),
            *(Row(f"residual.learner.{name}", found[name], "1/s", peer=said.replace("two", "one") if "one" in name
                  else said) for name in cases if name != "ten_critics")]


def updating(config: sac.SACConfig, clock: Callable[[], float]) -> Callable[[int], float]:
    """``seconds(count)``: of an update, drawing included, as a training of eight worlds makes them."""
    learner = filled(config)

    def seconds(count: int) -> float:
        began = clock()
        for _ in range(count // 8):
            learner.owed = 8.0
            for batch in batches(learner):
                learner.algorithm.update(batch)
        return (clock() - began) / count

    return seconds


def filled(config: sac.SACConfig) -> Learner:
    """A learner whose memory is full of noise: how long an update takes does not depend on it."""
    learner = start(Noise(), config, sac.SAC, 0, None)
    while learner.replay.count < learner.replay.times:
        step(learner)
    return learner


class Noise:
    """Worlds that show noise."""

    num_worlds, obs_dim, critic_dim, action_dim, device = 8, OBS, CRITIC, ACTION, torch.device("cpu")
    capabilities = EnvCapabilities()

    def reset(self) -> Obs:
        """What is seen."""
        return Obs(torch.randn(8, OBS), torch.randn(8, CRITIC))

    def step(self, action: torch.Tensor) -> Step:
        """The same, whatever is done."""
        found, nothing = self.reset(), torch.zeros(8, dtype=torch.bool)
        return Step(found, torch.randn(8), nothing, nothing, found, {})

    def state_dict(self) -> dict[str, object]:
        """None."""
        return {}

    def load_state_dict(self, state: Any) -> None:
        """None."""


def sb3(clock: Callable[[], float]) -> tuple[Callable[[int], float], str]:
    """``seconds(count)``: of an update of stable-baselines3's SAC, its drawing included; and its version."""
    import gymnasium
    import stable_baselines3
    from stable_baselines3.common.logger import configure

    class Still(gymnasium.Env[np.ndarray, np.ndarray]):
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
        action_space = gymnasium.spaces.Box(-1.0, 1.0, (ACTION,), np.float32)

    model = stable_baselines3.SAC("MlpPolicy", Still(), batch_size=BATCH, buffer_size=STEPS, seed=0, device="cpu",
                                  policy_kwargs={"net_arch": [256, 256]})
    model.set_logger(configure(None, []))
    rng = np.random.default_rng(0)
    for _ in range(STEPS):
        seen = rng.standard_normal((2, 1, OBS)).astype(np.float32)
        model.replay_buffer.add(seen[0], seen[1], np.tanh(rng.standard_normal((1, ACTION))).astype(np.float32),
                                rng.standard_normal(1).astype(np.float32), np.zeros(1), [{}])

    def seconds(count: int) -> float:
        began = clock()
        model.train(gradient_steps=count, batch_size=BATCH)
        return (clock() - began) / count

    return seconds, stable_baselines3.__version__
