"""One-step distillation of a trained flow or diffusion policy: one evaluation of the network instead of K.

The teacher is given by what both kinds have: levels from noise to data, ``corrupt``, ``clean`` (the chunk that x at a
level seems to come from) and ``move`` (the deterministic step to another level). Its context, the encoded signals, is
taken over and stays as it is. The student is the teacher's own network; f(x, level) = clean(x, level).

method = consistency: Song et al. 2023 (arXiv 2303.01469), algorithm 2, for neighbouring levels i (noisier), i + 1:

    x_i of a demonstrated chunk and noise;  x' = the teacher's step of x_i to level i + 1
    loss = E | f(x_i, i) - f_average(x', i + 1) |^2,  f(x, last) = x

method = regression: one step of reflow (Liu et al. 2022, arXiv 2209.03003, section 2.2) on pairs of noise and where the
teacher takes it:

    loss = E | f(n, first) - teacher(n) |^2

with a share ``fixed`` of the noises being the one that the teacher is deployed with. That is all that a deployed policy
needs: with ``fixed`` = 1 the student is a plain regression of the deployed teacher, and no sampler any more. """

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from temporeal.policies.data.episodes.interface import require_same
from temporeal.policies.training import checkpoint, offline_learner
from temporeal.policies.training.chunk_rl.tuning import BASE
from temporeal.policies.training.chunks import learner
from temporeal.policies.training.chunks.learner import Cloning, CloningConfig, Result, WindowBatches
from temporeal.policies.training.chunks.policy import ChunkPolicy, Decoder, Denoising
from temporeal.policies.training.chunks.windows import Source, windows
from temporeal.policies.training.errors import SettingsError, choose, require
from temporeal.policies.training.policy_graphs import algorithm_of, learner_of
from temporeal.policies.vla.worded import worded
from temporeal.robots.registry import resolve

REGISTRY = "temporeal.policies.imitation"
TEACHERS = ("flow", "diffusion", "vla")
METHODS = ("regression", "consistency")


@dataclass(frozen=True)
class ConsistencyConfig(CloningConfig):
    """Settings of the learner. ``configs/algo/consistency.yaml`` has the same names.

    Args:
        policy: the folder of the teacher's run, of algo=flow, algo=diffusion or algo=vla, or of one that was tuned
            (algo=flow_sde, algo=dppo, algo=rl100_offline).
        method: regression or consistency.
        levels: K of the teacher while it teaches; 0: as many as it is deployed with.
        fixed: share of the batch whose noise is the one that is deployed, with method=regression.
    """

    policy: str = ""
    updates: int = 4000
    learning_rate: float = 5e-4
    method: str = "regression"
    levels: int = 0
    fixed: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        choose(self, method=METHODS)
        require(self, levels="[0, inf)", fixed="[0, 1]")


class OneStep(Decoder):
    """The student as it is deployed: f(n, first) of the fixed noise n, one evaluation of the network."""

    def __init__(self, inner: Denoising) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, context: Tensor) -> Tensor:
        """The chunk [N, H, U]."""
        return self.at(self.inner.start(context), self.first(), context)

    def first(self) -> Tensor:
        """The noisiest level [1], for all contexts."""
        return self.inner.grid(1)[:1]

    def at(self, x: Tensor, level: Tensor, context: Tensor) -> Tensor:
        """f(x, level): x itself at the last level, by construction (Consistency Models, eq. 5)."""
        skip, out = (value[:, None, None] for value in self.inner.skip(level))
        return skip * x + out * self.inner.net(x, self.inner.share(level), context)


class Distillation:
    """The objective: what the student is to be like. ``averaged``: the student with averaged weights."""

    figures = ("loss",)

    def __init__(self, config: ConsistencyConfig, teacher: Denoising, levels: int, student: OneStep) -> None:
        self.config, self.teacher, self.levels, self.student = config, teacher, levels, student
        self.averaged = student

    def __call__(self, context: Tensor, chunk: Tensor, given: Tensor, generator: torch.Generator) -> Tensor:
        """The squared error [1] between both sides of the method's equation."""
        noise = torch.randn(chunk.shape, generator=generator)
        both = self.regression if self.config.method == "regression" else self.consistency
        found, wanted = both(context, chunk, noise, generator)
        return (found - wanted).square().mean()[None]

    def regression(
        self, context: Tensor, chunk: Tensor, noise: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """f(n, first), and where the teacher takes n."""
        deployed = torch.rand(len(noise), generator=generator) < self.config.fixed
        noise = torch.where(deployed[:, None, None], self.teacher.start(context), noise)
        with torch.no_grad():
            wanted = self.teacher.denoised(noise, context, self.levels)
        return self.student.at(noise, self.student.first(), context), wanted

    def consistency(
        self, context: Tensor, chunk: Tensor, noise: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """f at a level, and the averaged f at the next one on the teacher's path."""
        grid = self.teacher.grid(self.levels)
        which = torch.randint(self.levels, (len(chunk),), generator=generator)
        level, to = grid[which], grid[which + 1]
        x = self.teacher.corrupt(chunk, noise, level)
        with torch.no_grad():
            ahead = self.teacher.move(x, self.teacher.clean(x, level, context), level, to)
            wanted = self.averaged.at(ahead, to, context)
        return self.student.at(x, level, context), wanted


def train(data: Source, config: ConsistencyConfig, *, out: Path, seed: int = 0, **rest: Any) -> Result:
    """Distil the policy of the run ``config.policy`` on the windows of a dataset; ``rest``: see
    :func:`temporeal.policies.training.chunks.learner.train`."""
    if not config.policy:
        raise SettingsError("algo=consistency distils a trained policy: algo.policy=RUN, the folder of a run of "
                            f"algo={' or algo='.join(TEACHERS)}")
    teacher, about = teacher_of(Path(config.policy))
    return distil(data, config, teacher, about, out=out, seed=seed, **rest)


def teacher_of(run: Path) -> tuple[ChunkPolicy, dict[str, Any]]:
    """The policy of a teacher's run, and what it is rebuilt from: of one that was tuned, the run that it began as."""
    root = run
    while (name := algorithm_of(root)) not in TEACHERS and (root / BASE).is_dir():
        root = root / BASE
    if name not in TEACHERS:
        raise SettingsError(f"algo.policy={run} was trained by algo={name}; a teacher is of {' or '.join(TEACHERS)}, "
                            "or was tuned of one")
    policy: ChunkPolicy = learner_of(run).load_chunks(run)
    if policy.initial_memory(1):
        raise SettingsError(f"algo.policy={run} remembers its first look (algo.remember=first), which "
                            "distillation does not tell the student: a teacher of algo.remember=none is needed")
    if not isinstance(policy.decoder, Denoising):
        raise SettingsError(f"algo.policy={run}: what algo={algorithm_of(run)} made of its base is not denoised in "
                            "steps any more, and so cannot be distilled to one")
    state = offline_learner.read(root)
    return policy, {"algo": name, "config": state["config"], **state["sizes"]}


def distil(
    data: Source, config: ConsistencyConfig, teacher: ChunkPolicy, about: Mapping[str, Any], *, out: Path,
    seed: int = 0, **rest: Any,
) -> Result:
    """Distil ``teacher``; ``about``: what it is rebuilt from, a part of the student's checkpoints."""
    learner.check_execute(config, teacher.horizon)
    inner = cast("Denoising", teacher.decoder)
    student = student_of(teacher)
    objective = Distillation(config, inner, config.levels or inner.steps, cast("OneStep", student.decoder))
    generator = torch.Generator().manual_seed(seed)
    cloning = Cloning(student, config, generator, objective, objective.figures)
    objective.averaged = cast("OneStep", cloning.actor.decoder)
    seen = windows(data if teacher.vocabulary is None else worded(data, teacher.vocabulary)[0], teacher.signals,
                   teacher.horizon)
    require_same(teacher.interface, seen.interface, f"the dataset, and the teacher algo.policy={config.policy}")
    batches = WindowBatches(seen, config, {"teacher": dict(about)})
    return learner.learned(cloning, batches, config, out=out, seed=seed, generator=generator, **rest)


def student_of(teacher: ChunkPolicy) -> ChunkPolicy:
    """A policy that is to be the teacher in one step: its encoder, which is not trained, and its network to begin with.
    """
    found = deepcopy(teacher).requires_grad_(False)
    found.decoder = OneStep(cast("Denoising", found.decoder).requires_grad_(True))
    return found


def load_chunks(run: Path, device: str = "cpu") -> ChunkPolicy:
    """The policy of a run."""
    state = offline_learner.read(Path(run))
    offline_learner.config_of(state, ConsistencyConfig)
    about = state["sizes"]["teacher"]
    if about["algo"] not in TEACHERS:
        raise checkpoint.CheckpointError(f"{state['path']}: its teacher is of {about['algo']!r}")
    teacher = resolve(REGISTRY, about["algo"]).untrained(state, about)
    return learner.weighted(student_of(teacher), state).to(device).eval()
