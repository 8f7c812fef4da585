"""Policies that give action chunks, in simulation: how their chunks are played, and how they are exported.

In simulation time stands still while a chunk is inferred, so row k is what step k after the observation gets. A robot
plays chunks by time instead (docs/how-to/chunks.md). N worlds, H rows of a chunk, U numbers of a command.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from temporeal.policies.runs import artifacts
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.learners import algorithm, module_of
from temporeal.policies.training.registries import module_gives_chunks

if TYPE_CHECKING:
    from temporeal.policies.export.instructed import Told
    from temporeal.policies.training.acting import Act
    from temporeal.policies.training.chunks.policy import ChunkPolicy
    from temporeal.robots.artifact.runtime import Artifact
    from temporeal.sim.env import Env
    from temporeal.sim.task import Task

Arrays = Mapping[str, np.ndarray]
Infer = Callable[[Arrays], np.ndarray]
"""Measured signals, by name [N, *shape], to the rows [N, H, U] of the command."""


def gives_chunks(settings: Mapping[str, Any]) -> bool:
    """Whether the policies of the algorithm that ``settings`` name give chunks."""
    return module_gives_chunks(module_of(settings["algo"]["name"]), settings["algo"])


def load_chunks(settings: Mapping[str, Any], folder: Path, task: Task, *, any_robot: bool = False) -> ChunkPolicy:
    """The policy of the run in ``folder``, if it fits ``task``. ``any_robot``: of this name or of another."""
    from temporeal.policies.training.checkpoint import CheckpointError
    from temporeal.policies.training.errors import SettingsError

    try:
        policy: ChunkPolicy = module_of(settings["algo"]["name"]).load_chunks(folder)
    except (CheckpointError, SettingsError) as error:
        raise BadInput(f"{folder}: {error}" if isinstance(error, SettingsError) else str(error)) from error
    except (TypeError, AttributeError, LookupError, ArithmeticError, RuntimeError, ValueError) as error:
        raise BadInput(f"{folder}: its last checkpoint holds no policy of this version ({type(error).__name__}: "
                       f"{error}): train anew, or judge the artifact that was exported then") from error
    check_task(policy, task, folder, any_robot=any_robot)
    return policy


def check_task(policy: ChunkPolicy, task: Task, folder: Path, *, any_robot: bool = False) -> None:
    """Refuse a policy whose robot, command, rate or words are not those of ``task``."""
    interface = policy.interface
    artifacts.check_rate(interface.rate_hz, task)
    for what, reads, shows in (("robot", interface.robot, task.robot.name),
                               ("command", interface.action.name, task.command)):
        if reads != shows and not (any_robot and what == "robot"):
            raise BadInput(f"{folder}: its policy is for {what} {reads}, task {task.name!r} as set has {shows}")
    if policy.vocabulary is None:
        return
    from temporeal.sim.adapters.vocabularies import vocabulary_of as words_of_task
    from temporeal.sim.stl.instructions.vocabulary import INSTRUCTION, InstructionError

    if INSTRUCTION.name not in task.schema:
        return
    try:
        words = words_of_task(task.name)
    except InstructionError as error:
        raise BadInput(f"{folder}: its policy is told instructions: {error}") from error
    if policy.vocabulary != words:
        raise BadInput(f"{folder}: its policy knows other words than those in which task {task.name!r} writes its "
                       "instructions as numbers: the same numbers would mean other words; train anew")


def check_shapes(policy: ChunkPolicy | Told, signals: Arrays) -> None:
    """Refuse signals of another size than the policy reads."""
    for name in policy.signals:
        reads, shown = policy.interface.signals[name].shape, signals[name].shape[1:]
        if reads != shown:
            raise BadInput(f"signal {name} is {list(shown)}, the policy reads {list(reads)}: judge it with the cameras "
                           "that it was trained with")


def infer_by(policy: ChunkPolicy | Told) -> Infer:
    """Inference with PyTorch."""
    import torch

    def infer(signals: Arrays) -> np.ndarray:
        check_shapes(policy, signals)
        with torch.no_grad():
            rows = policy.rows({name: torch.from_numpy(np.ascontiguousarray(signals[name]))
                                for name in policy.signals})
        found: np.ndarray = rows.numpy()
        return found

    return infer


def infer_by_artifact(artifact: Artifact) -> Infer:
    """Inference with the artifact's own graph."""
    name = artifact.manifest.commands[0].name

    def infer(signals: Arrays) -> np.ndarray:
        rows = artifact.act_batch(signals, {})[0][name]
        return rows.reshape(*rows.shape[:2], -1)

    return infer


def measured(env: Env, names: tuple[str, ...]) -> Arrays:
    """The signals ``names`` [N, ...] that the newest observations were made of, and the newest pictures; ``env`` is of
    a task :func:`temporeal.policies.evaluate.measurement_recorder.with_recorder`."""
    from temporeal.policies.evaluate.measurement_recorder import measured

    images = env.images if env.rendering else env.render()
    seen = {**measured(env), **{name: value.cpu().numpy() for name, value in images.items()}}
    if missing := [name for name in names if name not in seen]:
        raise BadInput(f"the policy reads {', '.join(missing)}, which task {env.task.name!r} as set does not show; it "
                       f"shows: {', '.join(seen)} (pictures: cameras=...)")
    return {name: seen[name] for name in names}


class Player:
    """The command of each control step from chunks: the next row of the last chunk, or an average of what all chunks
    say of the step. For worlds whose episodes begin together.

    Args:
        execute: rows of a chunk that are used before the next inference.
        ensemble: m: infer at every step, and weigh chunks with exp(-m i), i = 0 the oldest (ACT, algorithm 2); None:
            do not.
    """

    def __init__(self, infer: Infer, execute: int, ensemble: float | None) -> None:
        self.infer, self.execute, self.ensemble = infer, execute, ensemble
        self.step = 0
        self.chunks: deque[np.ndarray] = deque(maxlen=1)

    def command(self, signals: Callable[[], Arrays]) -> np.ndarray:
        """The command [N, U] for now; ``signals`` are asked for where a chunk is inferred."""
        age = self.step if self.ensemble is not None else self.step % self.execute
        if self.ensemble is not None or age == 0:
            rows = self.infer(signals())
            if self.ensemble is None and self.execute > rows.shape[1]:
                raise BadInput(f"algo.execute is at most {rows.shape[1]}, the control steps of a chunk, got "
                               f"{self.execute}")
            if self.step == 0 and self.ensemble is not None:
                self.chunks = deque(maxlen=rows.shape[1])
            self.chunks.append(rows)
        self.step += 1
        if self.ensemble is None:
            return self.chunks[-1][:, age]
        return ensembled(self.chunks, self.ensemble)


def ensembled(chunks: deque[np.ndarray], m: float) -> np.ndarray:
    """Average [N, U] of the rows that ``chunks``, inferred one step after the other, oldest first, have for the step of
    the last one's first row."""
    count = len(chunks)
    rows = np.stack([chunk[:, count - 1 - k] for k, chunk in enumerate(chunks)])
    weights = np.exp(-m * np.arange(count))
    return np.tensordot(weights / weights.sum(), rows, 1).astype(np.float32)


def chunk_act(infer: Infer, signals: tuple[str, ...], settings: Mapping[str, Any], env: Env) -> Act:
    """A policy of ``env`` that plays chunks as ``settings`` say (``algo.execute``, ``algo.ensemble``). The commands go
    to the simulator as they are; the action that is returned stands for them."""
    import torch

    player = Player(infer, *playing(settings["algo"]))
    env.rendering = False  # but where a chunk is inferred

    def policy(obs: Any) -> Any:
        command = torch.from_numpy(player.command(lambda: measured(env, signals))).to(obs.device)
        memory = {k.removeprefix("memory."): v for k, v in env.column.items() if k.startswith("memory.")}
        env.command_override = command
        return env.task.act.inverse(command, memory)

    return policy


def playing(algo: Mapping[str, Any]) -> tuple[int, float | None]:
    """``execute`` and ``ensemble`` among the algorithm's settings, which an evaluation may replace."""
    execute, ensemble = algo.get("execute"), algo.get("ensemble")
    execute = 1 if execute is None else execute
    if isinstance(execute, bool) or not isinstance(execute, int) or execute < 1:
        raise BadInput(f"algo.execute is a whole number of control steps from 1 to those of a chunk, got {execute}")
    if ensemble is not None and not 0 <= ensemble < float("inf"):
        raise BadInput(f"algo.ensemble is a finite number from 0 on, or null, got {ensemble}")
    return execute, ensemble


def policy_act(policy: ChunkPolicy, settings: Mapping[str, Any], env: Env) -> Act:
    """:func:`chunk_act` of a policy in PyTorch."""
    return chunk_act(infer_by(policy), policy.signals, settings, env)


def trained_chunks(
    folder: Path, artifact: Artifact | None, settings: Mapping[str, Any], task: Task
) -> tuple[Task, Callable[[Env], Act], Callable[[], str]] | None:
    """Of a policy that gives chunks, the run's in ``folder`` or the ``artifact``: ``task`` as an environment must show
    it, what makes the policy of a batch of episodes, and SHA-256 of its weights. None where it gives single commands.
    """
    from temporeal.policies.evaluate.falsification import weights_digest
    from temporeal.robots.artifact.manifest import POLICY

    if artifact is None and gives_chunks(settings):
        algorithm(settings)  # an evaluation may replace settings of the run: they are checked as in training
        policy = load_chunks(settings, folder, task)
        return (shown_to(policy.signals, task), lambda env: policy_act(policy, settings, env),
                lambda: weights_digest(policy))
    if artifact is None or artifact.manifest.chunk is None:
        return None
    names, file = tuple(artifact.schema), folder / POLICY

    def made(env: Env) -> Act:
        artifacts.check_task(artifact, env)
        return chunk_act(infer_by_artifact(artifact), names, settings, env)

    return shown_to(names, task), made, lambda: hashlib.sha256(file.read_bytes()).hexdigest()


def shown_to(names: tuple[str, ...], task: Task) -> Task:
    """``task`` to its full horizon, whose environments record the signals ``names``."""
    from temporeal.policies.evaluate.full_horizon import to_full_horizon
    from temporeal.policies.evaluate.measurement_recorder import with_recorder

    return to_full_horizon(with_recorder(task, names))


def export_chunks(
    policy: ChunkPolicy, task: Task, path: Path, env: Env, settings: Mapping[str, Any], name: str, *,
    instruction: str = "", int8: bool = False,
) -> Artifact:
    """Write ``policy`` as an artifact of ``task``; its golden trace is what one world measured in an episode under it.
    ``env``: one world of a task with a recorder. ``instruction``: baked in. ``int8``: in 8-bit numbers."""
    from math import isfinite

    from temporeal.policies.export.instructed import Told, instruction_spec
    from temporeal.policies.export.writer import ArtifactSpec, export
    from temporeal.robots.artifact.manifest import ChunkSpec
    from temporeal.sim.stl.language.queries import horizon

    reach, interface, words = horizon(task.formula), policy.interface, policy.vocabulary
    told = instruction_spec(interface.signals.values(), words, grammar_of(task), instruction)
    shown = policy if not instruction or words is None else Told(policy, words, instruction)
    spec = ArtifactSpec(
        robot=task.robot, signals=shown.signals, command=task.command, rate_hz=interface.rate_hz,
        formula_text=task.formula_text, constants=task.constants,
        horizon_s=reach if isfinite(reach) else task.episode_s, training=settings, seed=settings["seed"],
        stop=task.stop, name=name, task_signals={**task.schema, **interface.signals},
        chunk=ChunkSpec(policy.horizon, 1.0 / interface.rate_hz), instruction=told)
    return export(shown, path, spec, golden_trace(shown, env, settings), int8=int8)


def grammar_of(task: Task) -> str:
    """What makes a formula of a sentence in this task; empty: its own formula is for all."""
    from temporeal.robots.artifact.additions import TABLETOP

    return TABLETOP if task.name == TABLETOP else ""


def golden_trace(policy: ChunkPolicy | Told, env: Env, settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Signals [T, *shape] and chunks [T, H, *shape] of the inferences in one episode of one world."""
    import torch

    infer, seen = infer_by(policy), list[Arrays]()
    rows = list[np.ndarray]()

    def noted(signals: Arrays) -> np.ndarray:
        seen.append({name: value[0].copy() for name, value in signals.items()})
        rows.append(infer(signals))
        return rows[-1]

    act = chunk_act(noted, policy.signals, settings, env)
    obs = env.reset()
    with torch.no_grad():
        for _ in range(env.task.steps):
            step = env.step(act(obs.actor))
            obs = step.obs
            if bool((step.terminated | step.truncated)[0]):
                break
    found = {f"signals.{name}": np.stack([each[name] for each in seen]) for name in policy.signals}
    return {**found, f"commands.{policy.interface.action.name}": np.concatenate(rows)}
