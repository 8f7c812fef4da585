"""Supervised learning of vision-language-action policies: what all of them share.

The loop, its checkpoints and the moving average are those of all learners of chunks. What is added: the instruction and
its vocabulary, which a checkpoint keeps; another run to begin with; a frozen prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from temporeal.policies.data.episodes.interface import Interface, require_same
from temporeal.policies.nets.encoders import count, is_picture, is_words
from temporeal.policies.training import checkpoint, offline_learner
from temporeal.policies.training.chunks import learner
from temporeal.policies.training.chunks.learner import Build, Cloning, Result
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal.policies.training.chunks.windows import Source, Windows, chosen, without_rest
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.policy_graphs import algorithm_of
from temporeal.policies.vla.advantage import labels
from temporeal.policies.vla.batches import VlaBatches, with_first_looks, with_maps, with_prefixes
from temporeal.policies.vla.config import SIZES, SeeingConfig, VlaConfig
from temporeal.policies.vla.encoder import POSITIVE, VlaEncoder
from temporeal.policies.vla.frozen import weights
from temporeal.policies.vla.plan import training as planning
from temporeal.policies.vla.plan import truth
from temporeal.policies.vla.plan.training import Planning
from temporeal.policies.vla.worded import worded
from temporeal.robots.registry import UnknownName
from temporeal.robots.signals import SignalSpec
from temporeal.robots.spec import load_robot
from temporeal.sim.stl.instructions.vocabulary import InstructionError, Vocabulary

GROUNDING = "vla_grounding"
WEIGHTS = "actor"
ABSENT_DEFAULTS: Mapping[str, Any] = {"remember": "none", "rest": None}
"""Settings that older checkpoints lack, and their values then."""
C = TypeVar("C", bound=VlaConfig)
Fit = Callable[[Cloning, Windows], None]
"""Gives a new decoder its scales, of the windows."""


def train(
    data: Source, config: VlaConfig, build: Build, name: str, fit: Fit | None = None, *, out: Path, seed: int = 0,
    **rest: Any,
) -> Result:
    """Train the policy of algorithm ``name`` whose decoder ``build`` makes, on ``data``; ``rest``: see
    :func:`temporeal.policies.training.chunks.learner.train`. ``fit``: gives a new decoder its scales."""
    generator = torch.Generator().manual_seed(seed)
    algorithm, batches = begin(data, config, build, name, seed, generator, fit)
    result = learner.learned(algorithm, batches, batches.config, out=out, seed=seed, generator=generator, **rest)
    if batches.held is not None:
        figures = planning.judged(result.policy, batches.held)
        result.history[-1].update(figures)
        if (logger := rest.get("logger")) is not None:
            logger(algorithm.updates, figures)
    return result


def begin(
    data: Source, config: VlaConfig, build: Build, name: str, seed: int, generator: torch.Generator,
    fit: Fit | None = None,
) -> tuple[Cloning, VlaBatches]:
    """A learner before its first update."""
    given = held(Path(config.policy), name, config) if config.policy else None
    data, vocabulary = worded(data, vocabulary_of(given) if given is not None else None)
    told = places_of(given, given["sizes"]) if given is not None else chosen_places(config, data.interface)
    config = resolved(config, data.interface, told)
    if config.plan:
        truth.stated(data.interface, config)  # before anything long
    encode = partial(begun_encoder, vocabulary=vocabulary, told=told, given=given)
    algorithm, batches = learner.begin(data, config, build, seed, generator, encode,
                                       lambda encoder, specs: encoder.prefix.places,
                                       partial(Planning, plan_weight=config.plan_weight) if config.plan else Cloning)
    if fit is not None:
        fit(algorithm, batches.data)
    if given is None and vocabulary is not None:
        for part in (algorithm.policy, algorithm.actor):
            silence_unseen(part.encoder, batches.data)
    if given is not None and config.take == "all" and name == given["algo"]:
        check_scales(given, algorithm.policy, config)
        for part in (algorithm.policy, algorithm.actor):
            take(part, given, given["modules"][WEIGHTS])
    seen = with_maps(batches.data, algorithm.policy.encoder.prefix, config)
    if config.tune == "expert":
        seen = with_prefixes(seen, algorithm.policy.encoder.prefix)
    if config.remember != "none":
        seen = with_first_looks(seen, algorithm.policy.encoder, np.asarray(data.starts, dtype=np.int64))
    if config.rest is not None:
        seen = without_rest(seen, config.rest)
    if config.advantage:
        seen = replace(seen, numbers={**seen.numbers, POSITIVE: labels(data, seed)})
    seen, apart = planning.begin(algorithm, seen, data, config) if config.plan else (seen, None)
    return algorithm, VlaBatches(seen, config, {**batches.sizes, **plain(vocabulary, told, config)}, apart)


def silence_unseen(encoder: VlaEncoder, seen: Windows) -> None:
    """Make nothing of the words that ``seen`` never says."""
    prefix = encoder.prefix
    if prefix.sentence is not None:
        prefix.sentence.silence(seen.numbers[prefix.words][seen.at])


def chosen_places(config: VlaConfig, interface: Interface) -> tuple[SignalSpec, ...]:
    """The signals that a new prefix must tell: those of algo.ground that ``interface`` has, and algo.auxiliary."""
    there = [name for name in config.ground if name in interface.signals]
    names = tuple(dict.fromkeys([*config.auxiliary, *there]))
    return tuple(chosen(interface, names).signals.values()) if names else ()


def resolved(config: C, interface: Interface, told: Sequence[SignalSpec]) -> C:
    """The settings with the signals that are read, and those of ``told`` that are learned, by name: all, or of a frozen
    prefix none."""
    names = tuple(spec.name for spec in told)
    if other := set(config.auxiliary) - set(names):
        raise SettingsError(f"algo.auxiliary={sorted(other)[0]}: the run algo.policy={config.policy} tells "
                            f"{', '.join(names) or 'nothing'}, and no more can be added")
    learned = names if config.tune != "expert" else ()
    if missing := [name for name in learned if name not in interface.signals]:
        raise SettingsError(f"the run algo.policy={config.policy} tells {', '.join(missing)}, which the dataset does "
                            "not have: its prefix would forget that; algo.tune=expert leaves the prefix as it is")
    return replace(config, signals=tuple(config.signals) or seen_by_default(interface, (*config.ground, *names)),
                   auxiliary=learned)


def seen_by_default(interface: Interface, told: Sequence[str]) -> tuple[str, ...]:
    """Pictures, the instruction, and what the robot measures of itself, without velocities and forces: with these a
    policy learns to go on as it goes. Of a robot that is not known here: all numbers."""
    try:
        own = {name for name, spec in load_robot(interface.robot).signals.items() if not moving(spec.unit)}
    except UnknownName:
        own = {name for name, spec in interface.signals.items() if not moving(spec.unit)} - set(told)
    return tuple(name for name, spec in interface.signals.items() if is_picture(spec) or is_words(spec) or name in own)


def moving(unit: str) -> bool:
    """Whether a unit is that of a velocity, a force or a torque."""
    return "/s" in unit or unit.startswith("N")


def vla_encoder(
    interface: Interface, config: VlaConfig, vocabulary: Vocabulary | None, told: Sequence[SignalSpec]
) -> VlaEncoder:
    """An encoder with new weights, whose prefix tells the signals ``told``."""
    specs = tuple(interface.signals.values())
    if any(map(is_words, specs)) and vocabulary is None:
        raise SettingsError("the policy reads a sentence, and its vocabulary is not known")
    return VlaEncoder(specs, vocabulary if any(map(is_words, specs)) else None, config, config.advantage,
                      told, config.plan, config.remember == "first")


def begun_encoder(
    interface: Interface, config: VlaConfig, vocabulary: Vocabulary | None, told: Sequence[SignalSpec],
    given: Mapping[str, Any] | None,
) -> VlaEncoder:
    """An encoder that sees and reads as the run ``given`` does, frozen where only the expert is tuned."""
    encoder = vla_encoder(interface, config, vocabulary, told)
    if given is not None:
        start = "encoder.prefix."
        take(encoder.prefix, given, {key.removeprefix(start): value for key, value in given["modules"][WEIGHTS].items()
                                     if key.startswith(start)})
    if config.tune == "expert":
        encoder.prefix.requires_grad_(False)
    return encoder


def held(run: Path, name: str, config: VlaConfig) -> dict[str, Any]:
    """The checkpoint of the run to begin with, and its algorithm; one that cannot be: refused."""
    algo = algorithm_of(run)
    legal = tuple(dict.fromkeys((name, "vla", GROUNDING)))
    if algo not in legal:
        raise SettingsError(f"algo.policy={run} was trained by algo={algo}; algo={name} begins with a run of algo="
                            f"{' or algo='.join(legal)}")
    state = offline_learner.read(run)
    ours = offline_learner.plain(config)
    if unknown := [key for key in SIZES if key not in state["config"]]:
        raise SettingsError(f"algo.policy={run} was written by another version: it does not say algo.{unknown[0]}; "
                            "train it again")
    if other := [f"algo.{key}={state['config'][key]}" for key in SIZES if state["config"][key] != ours[key]]:
        raise SettingsError(f"algo.policy={run} has other sizes: set "
                            f"{' '.join(each.replace(' ', '') for each in other)}")
    weights.require_same(run, state["sizes"].get("frozen"), state["config"])
    return {**state, "algo": algo}


def check_scales(given: Mapping[str, Any], policy: ChunkPolicy, config: VlaConfig) -> None:
    """Refuse to take the scales of the run ``given`` for other signals, another command, or another reference of it.
    """
    who = f"the dataset, and the run algo.policy={config.policy}, whose scales are taken"
    read = learner.interface_of(given["sizes"]["interface"])
    require_same(read, policy.interface, who)
    if tuple(read.signals) != policy.signals:
        raise SettingsError(f"{who}: it reads them in another order: set algo.signals=[{','.join(read.signals)}]")
    if (was := given["config"]["relative"]) != config.relative:
        raise SettingsError(f"{who}: its commands are relative to {was or 'nothing'}; set algo.relative={was!r}, or "
                            "algo.take=prefix")
    if (was := given["config"].get("remember", "none")) != config.remember:
        raise SettingsError(f"{who}: it has algo.remember={was}; set that, or algo.take=prefix")
    if (was := given["config"].get("plan", 0)) != config.plan:
        raise SettingsError(f"{who}: it plans {was} waypoints; set algo.plan={was}, or algo.take=prefix")


def take(part: nn.Module, given: Mapping[str, Any], weights: Mapping[str, Any]) -> None:
    """Load the ``weights`` of the run ``given``."""
    try:
        part.load_state_dict(dict(weights))
    except RuntimeError as error:
        raise SettingsError(f"algo.policy: the weights of {given['path']} do not fit (other signals, cameras or "
                            f"words?): {error}") from error


def plain(vocabulary: Vocabulary | None, told: Sequence[SignalSpec], config: SeeingConfig) -> dict[str, Any]:
    """The vocabulary, the signals that the prefix tells and the frozen encoders, as a checkpoint has them."""
    return {"words": list(vocabulary.words) if vocabulary else [], "length": vocabulary.length if vocabulary else 0,
            "told": [{"name": spec.name, "shape": list(spec.shape), "unit": spec.unit} for spec in told],
            "frozen": weights.chosen(config)}


def vocabulary_of(state: Mapping[str, Any]) -> Vocabulary | None:
    """The vocabulary in a checkpoint."""
    words = state["sizes"]["words"]
    try:
        return Vocabulary(tuple(words), state["sizes"]["length"]) if words else None
    except InstructionError as error:
        raise checkpoint.CheckpointError(f"{state['path']}: {error}") from error


def places_of(state: Mapping[str, Any], sizes: Mapping[str, Any]) -> tuple[SignalSpec, ...]:
    """The signals that a checkpoint's prefix tells."""
    try:
        found = tuple(SignalSpec(**learner.tupled(each)) for each in sizes["told"])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise checkpoint.CheckpointError(f"{state['path']}: the signals that its prefix tells cannot be read (written "
                                         f"by another version?): {error}") from error
    sizes_of = [count(spec) for spec in found]
    for size in (*sizes_of, sum(sizes_of) or 1):
        checkpoint.require_held(state["path"], [size], state["modules"][WEIGHTS])
    return found


def encode_of(state: Mapping[str, Any], sizes: Mapping[str, Any]) -> Callable[..., VlaEncoder]:
    """What makes the encoder that a checkpoint ``state`` describes by ``sizes``."""
    weights.require_same(state["path"], sizes.get("frozen"), sizes.get("config", state["config"]))
    words = vocabulary_of({**state, "sizes": sizes})
    return partial(vla_encoder, vocabulary=words, told=places_of(state, sizes))


def load(run: Path, kind: type[C], build: Build, device: str = "cpu") -> tuple[ChunkPolicy, C]:
    """The averaged policy of a run, and its settings."""
    state = offline_learner.read(Path(run))
    state = {**state, "config": {**ABSENT_DEFAULTS, **state["config"]}}
    return learner.of_state(state, kind, build, device, encode_of(state, state["sizes"]))
