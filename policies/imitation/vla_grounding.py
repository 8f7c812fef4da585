"""What sees and reads, before anything is demonstrated: places of what sentences name, in rendered scenes of a task.

    temporeal train algo=vla_grounding task=tabletop num_worlds=64 cameras.front.width=64 ...     the encoder's prefix
    temporeal train algo=vla_few_shot algo.policy=THAT_RUN dataset=...                            the expert, on it

Squared error of the normalized places that the simulator knows (:mod:`temporeal.policies.vla.grounding`). The run's
figure ``error`` is the median distance [m], in scenes that were held out, of the first signal of ``ground``. """

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from temporeal.policies.nets.encoders import is_words, vector
from temporeal.policies.nets.normalizer import moments
from temporeal.policies.training import offline_learner
from temporeal.policies.training.chunks import learner
from temporeal.policies.training.chunks.learner import Cloning, Result
from temporeal.policies.training.chunks.policy import ChunkPolicy, Decoder
from temporeal.policies.training.chunks.windows import Windows
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.progress import Logger, Progress
from temporeal.policies.training.ranks import Ranks
from temporeal.policies.vla import grounding
from temporeal.policies.vla.batches import AT_ONCE, VlaBatches, shown, with_maps
from temporeal.policies.vla.encoder import VlaEncoder
from temporeal.policies.vla.grounding import Grounding, GroundingConfig
from temporeal.policies.vla.learning import plain, silence_unseen
from temporeal.sim.adapters.vocabularies import vocabulary_of
from temporeal.sim.types import TaskEnv

SEES = True
HELD_OUT = 16  # one of so many scenes


def train(
    env: TaskEnv, config: GroundingConfig, *, out: Path, seed: int = 0, resume: bool | Path = False,
    progress: Progress | None = None, logger: Logger | None = None,
    on_iteration: Callable[[Any], bool | None] | None = None, ranks: Ranks = Ranks(),  # noqa: B008 (frozen)
) -> Result:
    """Render frames of ``env`` and learn from them; a resumed run renders the same ones again."""
    if ranks.size > 1:
        raise SettingsError(f"vla_grounding trains in one process, not in {ranks.size}: processes=1")
    generator = torch.Generator().manual_seed(seed)
    seen = grounding.frames(env, config, generator)
    shown_part, held = divided(seen, env.num_worlds, config.looks)
    algorithm, sizes = begin(shown_part, config, seed, generator)
    seen = with_maps(shown_part, algorithm.policy.encoder.prefix, config)
    result = learner.learned(
        algorithm, VlaBatches(seen, config, sizes), config, out=out, seed=seed, generator=generator,
        resume=resume, progress=progress, logger=logger, on_iteration=on_iteration)
    result.history[-1]["error"] = error(algorithm, held, config)
    return result


def divided(seen: Windows, worlds: int, looks: int) -> tuple[Windows, Windows]:
    """Frames to learn from, and those that are held out: whole scenes, each of which was looked at ``looks`` times."""
    scene = seen.at // (worlds * looks) * worlds + seen.at % worlds
    apart = scene % HELD_OUT == 0
    if bool(apart.all()):
        raise SettingsError("algo.frames are of one scene, and none is left to measure the error on: fewer algo.looks")
    return replace(seen, at=seen.at[~apart], last=seen.last[~apart]), replace(seen, at=seen.at[apart],
                                                                              last=seen.last[apart])


def begin(
    seen: Windows, config: GroundingConfig, seed: int, generator: torch.Generator
) -> tuple[Cloning, dict[str, Any]]:
    """A learner before its first update, and what a checkpoint says of it."""
    signals = seen.interface.signals
    read = replace(seen.interface, signals={name: spec for name, spec in signals.items() if name not in config.ground})
    words = vocabulary_of(seen.interface.task) if any(map(is_words, signals.values())) else None
    specs = tuple(signals[name] for name in config.ground)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = VlaEncoder(tuple(read.signals.values()), words, config, told=specs)
    told = encoder.prefix.places
    told.normalizer.update(moments(vector(told.plain, {name: value[seen.at] for name, value in seen.numbers.items()})))
    silence_unseen(encoder, seen)
    policy = ChunkPolicy(read, 1, encoder, Decoder())
    algorithm = Grounding(policy, config, generator, policy.decoder.loss, (), told, 1.0)
    return algorithm, {"interface": learner.plain_interface(read), **plain(words, specs, config)}


@torch.no_grad()
def error(algorithm: Cloning, held: Windows, config: GroundingConfig) -> float:
    """Median distance [m] between told and true places on the frames ``held``."""
    prefix, first = algorithm.actor.encoder.prefix, held.interface.signals[config.ground[0]].size
    found = []
    with offline_learner.threads(config.threads):
        for rows in held.at.split(AT_ONCE):
            signals = shown(held, rows)
            wanted = vector(prefix.places.plain, signals)
            found.append((prefix.places.told(prefix(signals)) - wanted)[:, :first].norm(dim=1))
    return float(torch.cat(found).median())
