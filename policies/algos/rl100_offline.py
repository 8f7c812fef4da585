"""RL-100's offline stage: a denoising chunk policy is improved from a dataset alone, by clipped updates through its
denoise steps, and is let through by off-policy evaluation only.

Lei et al. 2025, RL-100 (arXiv 2510.14830), and its predecessor Uni-O4 (arXiv 2311.03351): critics by implicit
Q-learning, PPO's clipped objective on each denoise step with the critics' advantage, and the policy is replaced only
where off-policy evaluation does not say that it is worse. The formulas are in
:mod:`temporeal.policies.denoising_rl.improvement`, the steps in :mod:`temporeal.policies.denoising_rl.chains`.

Unlike there: off-policy evaluation is fitted Q evaluation with an interval (theirs rolls a learned model out and
averages Q), critics read the policy's own encoding, and the encoder is frozen. ``algo=rl100`` repeats this stage with
new data between. """

from __future__ import annotations

import hashlib
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import torch

from temporeal.policies.denoising_rl.chains import denoising
from temporeal.policies.denoising_rl.decisions import Judged, decisions
from temporeal.policies.denoising_rl.improvement import Gate, Improvement, OfflineRL100Config, Rows
from temporeal.policies.training import checkpoint, offline_learner
from temporeal.policies.training.chunk_rl import tuning
from temporeal.policies.training.chunks.learner import Result
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal.policies.training.chunks.windows import Source
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.policy_graphs import gives_chunks, learner_of


def train(
    data: Source, config: OfflineRL100Config, *, out: Path, seed: int = 0, gate: Gate | None = None, **rest: Any
) -> Result:
    """Improve the policy of the run ``config.policy`` on ``data``.

    ``gate``: says whether a policy may replace its parent; without one each may. ``rest``: see
    :func:`temporeal.policies.training.offline_learner.learn`. A copy of what is improved goes to ``out/base``.
    """
    if not config.policy:
        raise SettingsError("algo=rl100_offline improves a trained policy: algo.policy=RUN, the folder of a run of "
                            "algo=flow or algo=diffusion, or of one that was tuned")
    run = Path(config.policy)
    policy = policy_of(run)
    if not rest.get("resume"):
        tuning.copy_base(run, Path(out) / tuning.BASE)
    return improve(cast("Judged", data), policy, config, out=out, seed=seed, gate=gate, **rest)


def policy_of(run: Path) -> ChunkPolicy:
    """The policy of ``run``, which must be denoised in steps."""
    if not gives_chunks(run):
        raise SettingsError(f"algo.policy={run} gives single commands; algo=rl100_offline improves policies that give "
                            "chunks")
    policy: ChunkPolicy = learner_of(run).load_chunks(run)
    denoising(policy)
    return policy


def improve(
    data: Judged, policy: ChunkPolicy, config: OfflineRL100Config, *, out: Path, seed: int = 0,
    gate: Gate | None = None, **rest: Any,
) -> Result:
    """Improve a copy of ``policy``."""
    if config.execute > policy.horizon:
        raise SettingsError(f"algo.execute is at most {policy.horizon}, the control steps of a chunk of "
                            f"algo.policy={config.policy}, got {config.execute}")
    seen = decisions(data, policy, config.execute, config.reward)
    generator = torch.Generator().manual_seed(seed)
    algorithm = tuning.seeded(seed, lambda: Improvement(deepcopy(policy).eval(), seen, config, generator, gate))
    told = hashlib.sha256(seen.context.numpy().tobytes() + seen.action.numpy().tobytes())
    told.update(seen.reward.numpy().tobytes() + tuning.digest(policy).encode())
    found = offline_learner.learn(algorithm, Rows(seen, config.batch, told.hexdigest()), config, out=out, seed=seed,
                                  generator=generator, **rest)
    return Result(algorithm.actor.eval(), found.history)


def load_chunks(run: Path, device: str = "cpu") -> ChunkPolicy:
    """The last accepted policy of a run."""
    folder, file = tuning.checkpoint_of(Path(run))
    state = offline_learner.read(file)
    offline_learner.config_of(state, OfflineRL100Config)
    policy: ChunkPolicy = learner_of(folder / tuning.BASE).load_chunks(folder / tuning.BASE)
    try:
        policy.load_state_dict(state["modules"]["actor"])
    except (RuntimeError, LookupError) as error:
        raise checkpoint.CheckpointError(f"{file} holds no policy of its base: {error}") from error
    return policy.to(device).eval()
