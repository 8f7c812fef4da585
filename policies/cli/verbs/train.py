"""``temporeal train``: learn a task."""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, add_overrides, print_json, say
from temporeal.policies.runs.errors import OK, BadInput
from temporeal.policies.runs.interrupts import Interrupted, stop_asked

if TYPE_CHECKING:
    from temporeal.policies.training.progress import Logger

SUMMARY = "learn a task; settings as words: task=hover algo=ppo seed=2"
HELP = """\
Trains a policy and writes outputs/train/<task>-<algo>-<seed>/: config.yaml (every setting), the checkpoint,
TensorBoard events. Ctrl-C and SIGTERM keep a checkpoint first; a second one stops at once. A run that was stopped or
killed goes on with resume=true, bit for bit.
processes=2 trains with as many processes, each with num_worlds worlds and algo.threads threads, gradients averaged;
over several machines: torchrun ... -m temporeal.policies.cli.main train ...

Example:
  temporeal train task=waypoints algo=ppo seed=1
  temporeal train task=hover algo.learning_rate=1e-3 num_worlds=4096 --out outputs/try
  temporeal train --config task=track              print every setting and stop
  temporeal train task=waypoints resume=true
  temporeal train task=waypoints algo=reflex algo.policy=outputs/train/waypoints-ppo-1     a reflex for that policy
"""


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("train", HELP)
    add_overrides(p)
    p.add_argument("--out", metavar="FOLDER", help="folder of the run (the same as out=FOLDER)")
    p.add_argument("--overwrite", action="store_true", help="start a run anew that is already there")
    p.add_argument("--config", action="store_true", help="print the composed settings and stop")
    add_json(p)
    return p


def run(argv: Sequence[str]) -> int:
    """Compose the settings, train, write the run."""
    from temporeal.policies.runs.settings import compose, files

    options = parser().parse_intermixed_args(argv)
    settings = compose.compose(options.overrides)
    if options.out:
        settings["out"] = options.out
    if options.config:
        if options.json:
            print_json(settings)
        else:
            say(files.as_yaml(settings).rstrip())
        return OK
    words = [word for word in argv if word != "--overwrite" and not word.startswith("resume=")]
    again = f"temporeal train {shlex.join(words)} resume=true"
    result = train(settings, overwrite=options.overwrite, quiet=options.json, again=again)
    if result["rank"] != 0:
        return OK
    if options.json:
        print_json(result)
    else:
        say(f"trained in {result['seconds']:.1f} s: {result['run']}\nnext: temporeal eval {result['run']}")
    return OK


def train(
    settings: dict[str, Any], *, overwrite: bool = False, quiet: bool = False, opened: bool = False, again: str = ""
) -> dict[str, Any]:
    """Train as the settings say; where the run is and how long it took.

    Ctrl-C and SIGTERM end it after an iteration with a checkpoint and :class:`Interrupted`, which says ``again``: how
    to go on. ``opened``: one of several processes, the run's folder is ready.
    """
    from temporeal.policies.cli import workers
    from temporeal.policies.runs import environments, errors, learners, run_folders, trained
    from temporeal.policies.runs.settings import files
    from temporeal.policies.training.checkpoint import CheckpointError
    from temporeal.policies.training.errors import NonFiniteError, SettingsError
    from temporeal.policies.training.progress import show
    from temporeal.policies.training.ranks import join
    from temporeal.sim import diverged_worlds

    folder, resume = run_folders.run_folder(settings), run_folders.resumes(settings)
    if settings["processes"] < 1:
        raise BadInput(f"processes is at least 1, got {settings['processes']}")
    environments.check_device(settings["device"])
    learners.check_training_seed(settings["seed"])
    module, configuration = learners.algorithm(settings)
    if settings.get("cameras"):
        raise BadInput(f"cameras: algo={settings['algo']['name']} learns from the observation alone and does not see "
                       "pictures; Gymnasium, stable-baselines3 and rsl_rl do (docs/how-to/other-learners.md)")
    if settings["processes"] > 1 and "RANK" not in os.environ:
        environments.make_task(settings)  # its errors are clearer here than from several processes at once
        settings = environments.resolved(settings)
        with run_folders.opened_run(settings, folder, overwrite), said_where(folder, settings["processes"], again):
            return workers.train(settings, folder, quiet)
    with errors.bad_input():
        ranks, device = join(settings["device"])
    seed = settings["seed"] + ranks.index * learners.RANK_SEED
    task = environments.make_task(settings)
    settings = environments.resolved(settings)
    base = learners.base_of(settings, task)
    if base is not None:
        task = trained.shown_to(base, task)
    env = environments.make_env(settings, task=task, seed=seed, device=str(device), training=True)
    diverged = folder / run_folders.DIVERGED if "full_state" in env.backend.capabilities else None
    if diverged is not None:
        diverged_worlds.keep(env, diverged)
    title = f"{run_folders.title_of(settings)}, {settings['algo']['name']}, seed {settings['seed']}"
    started = time.perf_counter()
    with run_folders.opened_run(settings, folder, overwrite) if ranks.is_first and not opened else nullcontext():
        ranks.wait()
        with (events(folder / run_folders.EVENTS) if ranks.is_first else nullcontext() as logger,
              said_where(folder, ranks.size, again if base is None else ""), stop_asked(quiet=opened) as asked):
            try:
                result = module.train(
                    env, configuration, out=folder, seed=settings["seed"], resume=resume, ranks=ranks, logger=logger,
                    progress=show(title) if ranks.is_first and not quiet else None,
                    on_iteration=lambda _: bool(asked), **({} if base is None else {"base": base}))
            except (CheckpointError, SettingsError) as error:
                raise BadInput(str(error)) from error
            except NonFiniteError as error:
                raise BadInput(
                    f"the training diverged and was stopped: {error}; try a smaller learning rate") from error
            if asked:
                raise Interrupted(asked[0])
    if resume and ranks.is_first:
        saved = files.read(folder / run_folders.CONFIG)["task"]  # the same, but what the system brings may have changed
        files.write({**settings, "task": saved, "resume": None}, folder / run_folders.CONFIG)  # the budget may have changed
    found = health(result.history, env)
    if ranks.is_first and not quiet:
        for line in troubles(found, env, diverged):
            say(line)
    last = result.history[-1] if result.history else {}
    # the last iteration's seconds are the budget's, without what is flown at the end
    return {**last, **found, "run": str(folder), "seconds": time.perf_counter() - started, "rank": ranks.index}


def health(history: Sequence[Mapping[str, float]], env: Any) -> dict[str, float]:
    """Diverged worlds and warnings of the whole run, of all processes, and the most worlds that lacked room at once."""
    rows = [row for row in history if "diverged" in row]
    if not rows:  # the algorithm does not count: of this process
        ask = env.capabilities.health
        return {key: float(value) for key, value in ask().items()} if ask is not None else {}
    return {"diverged": sum(row["diverged"] for row in rows), "warnings": sum(row["warnings"] for row in rows),
            "overflow": max(row["overflow"] for row in rows)}


def troubles(found: Mapping[str, float], env: Any, folder: Path | None) -> Iterator[str]:
    """Lines about what went wrong in the worlds of a run.

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


@contextmanager
def events(folder: Path) -> Iterator[Logger]:
    """TensorBoard events in ``folder``. A full disk is one line: their writer is a thread that would show a traceback,
    while what it raises there is raised here too.
    """
    from temporeal.policies.training.progress import tensorboard

    show = threading.excepthook
    threading.excepthook = lambda error: None if isinstance(error.exc_value, OSError) else show(error)
    try:
        with tensorboard(folder) as logger:
            yield logger
    except OSError as error:
        raise BadInput(f"events cannot be written to {folder}: {error.strerror}; the run goes on with resume=true from "
                       "its last checkpoint, if there is one") from error
    finally:
        threading.excepthook = show


@contextmanager
def said_where(folder: Path, processes: int, again: str) -> Iterator[None]:
    """An interrupted training says what is kept of it, and how to go on."""
    from temporeal.policies.runs.run_folders import CHECKPOINTS
    from temporeal.policies.training.checkpoint import iterations

    try:
        yield
    except Interrupted as stop:
        kept = iterations(folder / CHECKPOINTS, processes)
        if not kept:
            raise Interrupted(stop.number, f"{stop} before the first checkpoint; --overwrite starts anew") from None
        where = f"{stop}; iteration {kept[-1]} is kept in {folder / CHECKPOINTS}"
        raise Interrupted(stop.number, f"{where}; go on with: {again}" if again else where) from None
