"""RL-100's pipeline as one algorithm: imitation, iterated offline reinforcement learning, a short online phase, and a
policy of one step.

Lei et al. 2025, RL-100 (arXiv 2510.14830):

    imitation     a flow or diffusion policy is cloned from the dataset
    offline-k     it is improved from data alone, and let through by off-policy evaluation (algo=rl100_offline)
    collect-k     what was let through records episodes, which are added to the data of the next iteration
    online        it is tuned in simulation (algo=dppo, or algo=flow_sde)
    one_step      it is distilled to one evaluation of its network (algo=consistency)

Each stage is a run of its own, in a folder of this run: it is judged, exported, resumed and tuned as any other. What
this run gives is the policy of its last stage. """

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from temporeal.policies.training.checkpoint import CheckpointError
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal.policies.training.errors import SettingsError, choose, require
from temporeal.policies.training.policy_graphs import learner_of
from temporeal.robots.handed_over.files import Refused, read_text

STAGES = ("imitation", "offline", "collect", "online", "one_step")
BASES = ("flow", "diffusion")
TUNERS = ("dppo", "flow_sde", "none")
STATE = "stages.json"
"""In the run's folder: the stages that are done, in their order."""
NAME = re.compile(r"imitation|offline-\d{1,3}|collect-\d{1,3}|online|one_step")


@dataclass(frozen=True)
class RL100Config:
    """Settings of the pipeline. ``configs/algo/rl100.yaml`` has the same names.

    Args:
        base: flow or diffusion: the algorithm of the imitation.
        iterations: of offline learning.
        tuner: of the online phase: dppo, flow_sde (of flows alone), or none: no online phase, for data of a robot.
        one_step: whether the last policy is distilled.
        execute: control steps of a chunk that are played before the next decision, in all stages.
        ensemble: of evaluations only, see :class:`temporeal.policies.training.chunks.learner.CloningConfig`.
        record: episodes that the accepted policy records between iterations; 0: none.
        record_noise: of its denoise steps then.
        episodes: fresh ones that each stage is judged on, the same for all; 0: none is judged.
        stages: by stage (imitation, offline, online, one_step), settings of its own algorithm: their budgets.
    """

    base: str = "flow"
    iterations: int = 2
    tuner: str = "dppo"
    one_step: bool = True
    execute: int = 8
    ensemble: float | None = None
    record: int = 64
    record_noise: float = 0.3
    episodes: int = 256
    stages: Mapping[str, Any] = field(default_factory=lambda: {
        "imitation": {"updates": 6000}, "offline": {"updates": 3040, "critic_updates": 3000},
        "online": {"total_steps": 200_000}, "one_step": {"updates": 4000}})

    def __post_init__(self) -> None:
        require(self, iterations="[0, inf)", execute="[1, inf)", ensemble="[0, inf)", record="[0, inf)",
                record_noise="(0, inf)", episodes="[0, inf)")
        choose(self, base=BASES, tuner=TUNERS)
        if self.base == "diffusion" and self.tuner == "flow_sde":
            raise SettingsError("algo.tuner=flow_sde tunes flows, algo.base=diffusion is none: algo.tuner=dppo")
        legal = ("imitation", "offline", "online", "one_step")
        for name, values in self.stages.items():
            if name not in legal or not isinstance(values, Mapping):
                raise SettingsError(f"algo.stages.{name}={values}: settings below one of {', '.join(legal)}, as in "
                                    "algo.stages.offline.noise=0.2")


class Stages(Protocol):
    """Who runs the stages, each in a folder of its own; one that is done is not done again."""

    def learned(self, name: str, algo: str, *, data: Path | None = None, policy: Path | None = None) -> Path:
        """The run of stage ``name``, by algorithm ``algo``, from a dataset or of the run ``policy``, or both."""

    def recorded(self, name: str, policy: Path, data: Path) -> Path:
        """The dataset ``data``, and episodes that the run ``policy`` recorded."""


class Result(NamedTuple):
    """The run of the last stage."""

    run: Path


def train(data: Path, config: RL100Config, *, stages: Stages) -> Result:
    """All stages, in their order."""
    run = stages.learned("imitation", config.base, data=data)
    for k in range(1, config.iterations + 1):
        run = stages.learned(f"offline-{k}", "rl100_offline", data=data, policy=run)
        if k < config.iterations and config.record:
            data = stages.recorded(f"collect-{k}", run, data)
    if config.tuner != "none":
        run = stages.learned("online", config.tuner, policy=run)
    if config.one_step:
        run = stages.learned("one_step", "consistency", data=data, policy=run)
    return Result(run)


def last_stage(run: Path) -> Path:
    """The folder of the last stage of ``run`` that gave a policy."""
    file = run / STATE
    try:
        done = json.loads(read_text(file, within=run))["done"]
        names = [str(stage["name"]) for stage in done if stage["kind"] == "policy"]
    except (OSError, ValueError, TypeError, LookupError, Refused) as error:
        raise CheckpointError(f"{run} holds no stage that is done: its {STATE} says none ({type(error).__name__}: "
                              f"{error})") from error
    if not names or not NAME.fullmatch(names[-1]):
        raise CheckpointError(f"{run} holds no policy: none of its stages is done; resume=true goes on")
    return run / names[-1]


def load_chunks(run: Path, device: str = "cpu") -> ChunkPolicy:
    """The policy of the last stage."""
    folder = last_stage(Path(run))
    policy: ChunkPolicy = learner_of(folder).load_chunks(folder, device)
    return policy
