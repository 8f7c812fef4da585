"""Train the run that settings describe, in this process or in several of this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs import chunks, environments, learners, run_folders, trained, workers
from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.interrupts import Interrupted, stop_asked
from temporeal.policies.runs.residual import copies, relabelling, teaching
from temporeal.policies.runs.residual import training as residual
from temporeal.policies.runs.settings.compose import PRESET
from temporeal.policies.runs.settings.files import Settings, read, write
from temporeal.policies.runs.trained_run import TrainedRun, events, naming_checkpoint
from temporeal.policies.runs.tuning_runs import bases as tuning
from temporeal.policies.runs.tuning_runs import beside

if TYPE_CHECKING:
    from temporeal.policies.training.progress import Logger, Progress


def train(
    settings: Settings, *, overwrite: bool = False, quiet: bool = False, opened: bool = False, again: str = ""
) -> TrainedRun:
    """Train as the settings say.

    Ctrl-C and SIGTERM end the training after an iteration with a checkpoint and :class:`Interrupted`.

    Args:
        overwrite: replace a run that is in the folder already.
        quiet: show no progress.
        opened: this is one of several processes, and the run's folder is ready.
        again: the command that continues the run, for the message of an interruption.
    """
    module, configuration = checked(settings)
    if hasattr(module, "STAGES"):
        from temporeal.policies.runs.pipelines import rl100

        return rl100.train(settings, module, configuration, train, overwrite=overwrite, quiet=quiet, again=again)
    if learners.learns_from_data(module):
        from temporeal.policies.runs import offline

        return offline.train(settings, module, configuration, overwrite=overwrite, quiet=quiet, again=again)
    folder = run_folders.run_folder(settings)
    if settings["processes"] > 1 and "RANK" not in os.environ:
        environments.make_task(settings)  # its errors are clearer here than from several processes at once
        settings = environments.resolved(settings)
        named = naming_checkpoint(folder, settings["processes"], again)
        with run_folders.opened_run(settings, folder, overwrite), named:
            return result_of(folder, workers.train(settings, folder, quiet))
    return _Training(settings, folder, quiet, opened).run(module, configuration, overwrite, again)


def checked(settings: Settings) -> tuple[Any, Any]:
    """The learner's module and its configuration, if a training with ``settings`` can begin."""
    for key in ("num_worlds", "processes"):
        if settings[key] < 1:
            raise BadInput(f"{key} is at least 1, got {settings[key]}")
    run_folders.check_writable(run_folders.run_folder(settings), "out=<folder>")
    if settings["processes"] > 1 and settings["task"]["name"].endswith(".py"):
        raise BadInput(f"processes={settings['processes']}: a task that is a file, {settings['task']['name']}, is "
                       "trained by one process")
    run_folders.resumes(settings)
    environments.check_device(settings["device"])
    learners.check_training_seed(settings["seed"])
    found = learners.algorithm(settings)
    residual.check_learner(settings, found[0])
    if settings.get("dataset") and not learners.reads_episodes(found[0]):
        word = settings["algo"].get(PRESET, settings["algo"]["name"])
        those = residual.reading_episodes(settings) or learners.from_data()
        raise BadInput(f"dataset={settings['dataset']}: algo={word} learns in a simulation and reads no episodes; "
                       f"those that do: {', '.join(those)}")
    if settings.get("cameras") and not (chunks.gives_chunks(settings) or getattr(found[0], "SEES", False)):
        raise BadInput(f"cameras: algo={settings['algo']['name']} learns from the observation alone and does not see "
                       "pictures; algo=ppo, sac, td3 and learners of chunks do "
                       "(docs/how-to/learning-from-pictures.md), and Gymnasium, stable-baselines3 and rsl_rl "
                       "(docs/how-to/other-learners.md)")
    if settings["algo"].get("hide") and not settings.get("cameras"):
        raise BadInput(f"algo.hide={list(settings['algo']['hide'])} are signals to be found in pictures, and there is "
                       "no camera: cameras.front.width=64 cameras.front.height=64, or leave algo.hide out")
    return found


def result_of(folder: Path, result: Mapping[str, Any]) -> TrainedRun:
    """What the first worker wrote of its training."""
    own = ("run", "seconds", "rank", "notes")
    figures = {key: value for key, value in result.items() if key not in own}
    return TrainedRun(folder, result["seconds"], result["rank"], figures, tuple(result["notes"]))


class _Training:
    """One process of a training: its environment, what it writes, and what it reports."""

    def __init__(self, settings: Settings, folder: Path, quiet: bool, opened: bool) -> None:
        from temporeal.policies.data.hidden_signals import without
        from temporeal.policies.training.ranks import join
        from temporeal.sim import diverged_worlds

        self.folder, self.quiet, self.opened, self.started = folder, quiet, opened, time.perf_counter()
        with bad_input():
            self.ranks, device = join(settings["device"])
        with bad_input():
            task = without(environments.make_task(settings), settings["algo"].get("hide") or ())
        self.settings = environments.resolved(settings)
        self.base = trained.base_of(self.settings, task)
        if self.base is not None:
            task = trained.shown_to(self.base, task)
        self.corrected = residual.opened(self.settings, task)
        self.teacher = teaching.teacher(self.settings, task)
        if (shown := self.corrected or self.teacher) is not None:
            task = shown.task
        seed = settings["seed"] + self.ranks.index * learners.RANK_SEED
        seed += tuning.APART if tuning.tunes_chunks(settings) else 0
        self.env = environments.make_env(self.settings, task=task, seed=seed, device=str(device), training=True)
        self.worlds = self.env if self.corrected is None else residual.worlds(self.corrected, self.env)
        self.diverged = folder / run_folders.DIVERGED if "full_state" in self.env.backend.capabilities else None
        if self.diverged is not None:
            diverged_worlds.keep(self.env, self.diverged)

    def run(self, module: ModuleType, configuration: Any, overwrite: bool, again: str) -> TrainedRun:
        """Learn, in the run's folder."""
        self.started = time.perf_counter()
        given = beside.given(module, self.settings, self.env, configuration)
        if self.corrected is not None and "evaluate" in given:
            given["evaluate"] = residual.evaluation(self.settings, self.corrected)
        if self.teacher is not None:
            given["make_expert"] = self.teacher.experts(self.env)
        if self.corrected is not None and "demonstrations" in given:
            recorded = beside.recorded(self.settings, self.env.task)
            given["demonstrations"] = relabelling.demonstrations(self.corrected, recorded, configuration)
        learn = partial(module.train, **given)
        with self._folder(overwrite):
            self.ranks.wait()
            if self.corrected is not None:
                copies.keep(self.corrected, self.folder)
            again = again if self.base is None or tuning.tunes_chunks(self.settings) else ""  # a reflex does not resume
            with self._events() as logger, naming_checkpoint(self.folder, self.ranks.size, again), stop_asked(
                    quiet=self.opened) as asked:
                history = self._learn(learn, configuration, logger, asked)
                if asked:
                    raise Interrupted(asked[0])
        if run_folders.resumes(self.settings) and self.ranks.is_first:
            self._keep_budget()
        found = health(history, self.env)
        notes = tuple(troubles(found, self.env, self.diverged)) if self.ranks.is_first else ()
        # the last iteration's seconds are the budget's, without what is flown at the end
        figures = {**(history[-1] if history else {}), **found}
        return TrainedRun(self.folder, time.perf_counter() - self.started, self.ranks.index, figures, notes)

    def _folder(self, overwrite: bool) -> AbstractContextManager[None]:
        if self.ranks.is_first and not self.opened:
            return run_folders.opened_run(self.settings, self.folder, overwrite)
        return nullcontext()

    def _events(self) -> AbstractContextManager[Logger | None]:
        return events(self.folder / run_folders.EVENTS) if self.ranks.is_first else nullcontext()

    def _learn(
        self, learn: Callable[..., Any], configuration: Any, logger: Logger | None, asked: Sequence[int]
    ) -> list[dict[str, float]]:
        """The history of the training; errors of settings, checkpoints and numbers are the user's to correct."""
        from temporeal.policies.training.checkpoint import CheckpointError
        from temporeal.policies.training.errors import NonFiniteError, SettingsError

        try:
            result = learn(
                self.worlds, configuration, out=self.folder, seed=self.settings["seed"],
                resume=run_folders.resumes(self.settings), ranks=self.ranks, logger=logger, progress=self._progress(),
                on_iteration=lambda _: bool(asked), **({} if self.base is None else {"base": self.base}))
        except (CheckpointError, SettingsError) as error:
            raise BadInput(str(error)) from error
        except NonFiniteError as error:
            raise BadInput(f"the training diverged and was stopped: {error}; try a smaller learning rate") from error
        history: list[dict[str, float]] = result.history
        return history

    def _progress(self) -> Progress | None:
        from temporeal.policies.training import progress

        settings = self.settings
        title = f"{run_folders.title_of(settings)}, {settings['algo']['name']}, seed {settings['seed']}"
        return progress.show(title) if self.ranks.is_first and not self.quiet else None

    def _keep_budget(self) -> None:
        """Write the settings of a resumed run: its budget may have changed, the task's must not."""
        file = self.folder / run_folders.CONFIG
        write({**self.settings, "task": read(file)["task"], "resume": None}, file)


def health(history: Sequence[Mapping[str, float]], env: Any) -> dict[str, float]:
    """Diverged worlds and warnings of the whole run, of all processes, and the most worlds that lacked room at once."""
    rows = [row for row in history if "diverged" in row]
    if not rows:  # the algorithm does not count: of this process
        ask = env.capabilities.health
        return {key: float(value) for key, value in ask().items()} if ask is not None else {}
    return {"diverged": sum(row["diverged"] for row in rows), "warnings": sum(row["warnings"] for row in rows),
            "overflow": max(row["overflow"] for row in rows)}


def troubles(found: Mapping[str, float], env: Any, folder: Path | None) -> Iterator[str]:
    """Sentences about what went wrong in the worlds of a run.

    Args:
        found: from :func:`health`.
        folder: where worlds that diverged are kept; None: nowhere.
    """
    if count := int(found.get("diverged", 0)):
        kept = f"; diagnostics were written to {folder}" if folder is not None else ""
        yield (f"{count} episodes ended because a world's action, simulation, observation or reward was not finite"
               f"{kept}")
    if worlds := int(found.get("overflow", 0)):
        yield (f"contacts or constraints had no room in up to {worlds} worlds at once and were left out: the physics "
               f"there is wrong; give the simulator more room or the scene fewer contacts")
    if count := int(found.get("warnings", 0)):
        named = ", ".join(f"{name} {n}" for name, n in env.backend.status().warnings.items() if n)
        yield f"the simulator warned {count} times{f': {named}' if named else ''}"
