"""One chunk policy of several that were tuned from one start: their weights are averaged, nothing is trained.

Arithmetic, papers and the choice of weights are those of :mod:`temporeal.policies.training.warm_starts.merging`. A
start is any run whose policy gives chunks; what was tuned from it (algo=flow_sde, dppo, flow_grpo, token_ppo,
rl100_offline, ...: algo.policy=START) keeps a copy of it, by which it is known. A learner that builds other networks
around the start (residual, dsrl, consistency) leaves nothing to average. All numbers of a chunk are commands: what
elsewhere a mask of padded actions says, the command's components and limits say here.

What no gradient changes must be equal bit for bit: normalization, the scale of commands, their limits, the noise that
chunks begin with. Averages of networks that read or write other units would mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from temporeal.policies.data.episodes.interface import differences as other_interface
from temporeal.policies.training import checkpoint, offline_learner
from temporeal.policies.training.chunk_rl.tuning import BASE, checkpoint_of, copy_base
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.policy_graphs import learner_of
from temporeal.policies.training.warm_starts.merging import Each, Found, Judge, averaged

KIND = "temporeal merged chunks 1"
BUFFERS = {"scale": "the scale of its commands", "low": "the limits of its commands",
           "high": "the limits of its commands", "decoder.start": "the noise that its chunks begin with"}
"""By the beginning of a buffer's name: what it is, for errors."""


@dataclass(frozen=True)
class ChunkStart:
    """A policy to be merged.

    Args:
        run: its folder.
        digest: of its weights (:func:`temporeal.policies.training.chunk_rl.tuning.digest`). began: that of the policy
            that it was tuned from; "": of none.
        tuned: what its settings call that policy, for errors.
    """

    run: str
    policy: ChunkPolicy
    digest: str
    began: str = ""
    tuned: str = ""


def merge(
    policies: Sequence[ChunkStart], judges: Sequence[Judge], *, execute: int, weights: Sequence[float],
    choices: Sequence[float], episodes: int, each: Each = lambda figures: None,
) -> Found | None:
    """The merged policy, judged beside those that it is made of (the start first).

    Args:
        execute: control steps of a chunk that are played.
    """
    check(policies)
    start, *others = [one.policy for one in policies]
    if execute > start.horizon:
        raise SettingsError(f"algo.execute is at most {start.horizon}, the control steps of a chunk of "
                            f"algo.adapt={policies[0].run}, got {execute}")
    return averaged(start, others, nn.Identity(), judges, weights=weights, choices=choices, episodes=episodes,
                    each=each)


def check(policies: Sequence[ChunkStart]) -> None:
    """Refuse policies whose weights are not to be averaged, by the names of what differs."""
    start = policies[0]
    told = [f"{one.run}: {'; '.join(found)}" for one in policies[1:] if (found := list(differences(start, one)))]
    if told:
        raise SettingsError(f"algo.merge=true averages weights of what was tuned from algo.adapt={start.run}, and not: "
                            f"{' | '.join(told)}")


def differences(start: ChunkStart, other: ChunkStart) -> Iterator[str]:
    """What keeps ``other`` from being averaged with ``start``, in words."""
    if not other.began:
        yield "it was not tuned from another run (algo=flow_sde, dppo, ..., algo.policy=START), but learned anew"
    elif other.began != start.digest:
        yield f"it was tuned from another policy, algo.policy={other.tuned}"
    yield from other_interface(start.policy.interface, other.policy.interface)
    if start.policy.vocabulary != other.policy.vocabulary:
        yield "it knows other words"
    if start.policy.horizon != other.policy.horizon:
        yield f"chunks of {other.policy.horizon} control steps, {start.policy.horizon} of the start"
        return
    if network := list(other_network(start.policy, other.policy)):
        yield f"another network: {', '.join(network[:SHOWN])}{' ...' if len(network) > SHOWN else ''}"
        return
    yield from other_buffers(start.policy, other.policy)


SHOWN = 4  # differences of networks in one error


def other_network(start: nn.Module, other: nn.Module) -> Iterator[str]:
    """Modules that only one of both has or that are of another kind, and plain attributes and sizes that differ."""
    was, here = dict(start.named_modules()), dict(other.named_modules())
    for name in dict.fromkeys((*was, *here)):
        kinds = [type(each[name]).__name__ if name in each else "none" for each in (here, was)]
        if kinds[0] != kinds[1]:
            yield f"{name} {kinds[0]}, {kinds[1]} of the start"
            continue
        now, then = plain(here[name]), plain(was[name])
        yield from (f"{name}.{key} {now.get(key)}, {then.get(key)} of the start".lstrip(".")
                    for key in dict.fromkeys((*then, *now)) if now.get(key) != then.get(key))


def plain(module: nn.Module) -> dict[str, Any]:
    """Numbers and words among a module's attributes, and the shapes of its own weights."""
    found: dict[str, Any] = {key: value for key, value in vars(module).items() if key != "training"
                             and not key.startswith("_") and isinstance(value, (bool, int, float, str))}
    return found | {key: list(value.shape) for key, value in module.named_parameters(recurse=False)}


def other_buffers(start: nn.Module, other: nn.Module) -> Iterator[str]:
    """What no gradient changes, and differs."""
    was, here = dict(start.named_buffers()), dict(other.named_buffers())
    apart = [name for name in dict.fromkeys((*was, *here))
             if name not in was or name not in here or not torch.equal(was[name], here[name])]
    for name in dict.fromkeys(map(called, apart)):
        yield f"{name} is not the start's"


def called(name: str) -> str:
    """A buffer in words."""
    if "normalizer" in name.split("."):
        return f"its normalization ({name.rpartition('.')[0]})"
    return next((words for first, words in BUFFERS.items() if f"{name}.".startswith(f"{first}.")), f"its {name}")


# ---- on disk


def keep(found: Found, start: Path, config: dict[str, Any], out: Path) -> None:
    """Write the run's one checkpoint, and a copy of the start, from which the network is rebuilt."""
    copy_base(start, out / BASE)
    checkpoint.save(checkpoint.file_of(out / "checkpoints", 1, 0, 1), {
        "kind": KIND, "config": config, "policy": found.actor.state_dict()})


def load(run: Path, device: str = "cpu") -> ChunkPolicy:
    """The merged policy of a run's folder, or of the checkpoint file in it."""
    folder, file = checkpoint_of(Path(run))
    state = offline_learner.read(file, KIND)
    policy = cast("ChunkPolicy", learner_of(folder / BASE).load_chunks(folder / BASE))
    try:
        policy.load_state_dict(state["policy"])
    except (RuntimeError, LookupError, TypeError) as error:
        raise checkpoint.CheckpointError(f"{file} holds no policy of its base: {error}") from error
    return policy.to(device).eval()
