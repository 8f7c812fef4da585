"""Episodes that a denoising chunk policy records itself, with noise in its denoise steps: what it did is stored."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs import chunks
from temporeal.policies.runs.errors import bad_input
from temporeal.policies.runs.offline import open_dataset
from temporeal.policies.runs.run_folders import load_run
from temporeal.policies.runs.settings.files import Settings

if TYPE_CHECKING:
    import numpy as np

    from temporeal.policies.runs.demonstrating.demonstrations import Generated, MakeExpert
    from temporeal.policies.training.chunks.policy import ChunkPolicy

LEAST, WORLDS = 0.05, 128  # of the standard deviation of a diffusion's steps; worlds at once
APART = 50_000  # between the seed of a pipeline and those of the episodes that it records


@dataclass(frozen=True)
class Recording:
    """What is recorded: how many ``episodes``, by which noise of the denoise steps, from which ``seed``."""

    episodes: int
    noise: float
    execute: int
    seed: int


def recorded(settings: Settings, run: Path, asked: Recording, out: Path) -> Generated:
    """Record episodes of the policy of ``run`` as the dataset ``out``; what was there of it is removed."""
    from temporeal.policies.runs.demonstrating.demonstrations import Request, Worlds, written

    shutil.rmtree(out, ignore_errors=True)
    before = load_run(run)
    here = {**settings, "algo": before["algo"], "seed": asked.seed, "num_worlds": min(asked.episodes, WORLDS)}
    request = Request(here, out, "expert", asked.episodes, (str(run),))
    with bad_input():
        worlds = Worlds(request)
        worlds.makers = [drawing(chunks.load_chunks(before, run, worlds.task), asked)]
        return written(worlds, None, time.perf_counter())


def drawing(policy: ChunkPolicy, asked: Recording) -> MakeExpert:
    """What makes, of an environment, the policy that draws its chunks at random."""
    import torch

    from temporeal.policies.denoising_rl.chains import Chains

    agent = Chains(policy, asked.noise, LEAST, asked.execute, 1.0)
    generator = torch.Generator().manual_seed(asked.seed)

    def infer(signals: Mapping[str, np.ndarray]) -> np.ndarray:
        seen = {name: torch.from_numpy(signals[name].copy()) for name in policy.signals}
        with torch.no_grad():
            chunk = agent.draw(policy.encoder(seen), generator).chunk
            rows: np.ndarray = policy.commands(chunk, seen).numpy()
        return rows

    def make(env: Any) -> Callable[..., Any]:
        act = chunks.chunk_act(infer, policy.signals, {"algo": {"execute": asked.execute}}, env)
        return lambda obs, signals, pace: act(obs.actor)

    return make


def joined(folders: list[Path], out: Path) -> Path:
    """The datasets ``folders`` as one; what was there of it is removed."""
    from temporeal.policies.data.curation.copying import merged, own_interface, write

    shutil.rmtree(out, ignore_errors=True)
    with bad_input():
        sets = [open_dataset(folder) for folder in folders]
        write(out, own_interface(*sets), merged(sets), f"merge of {', '.join(data.folder.name for data in sets)}")
    return out
