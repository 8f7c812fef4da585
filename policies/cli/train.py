"""``temporeal train``: learn a task."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from policies.cli.console import OK, BadInput, Parser, add_json, add_overrides, print_json, say

SUMMARY = "learn a task; settings as words: task=hover algo=ppo seed=2"
HELP = """\
Trains a policy and writes outputs/train/<task>-<algo>-<seed>/: config.yaml (every setting), the checkpoint,
TensorBoard events. A run that was killed goes on with resume=true, bit for bit.
processes=2 trains with as many processes, each with num_worlds worlds and algo.threads threads, gradients averaged;
over several machines: torchrun ... -m policies.cli.main train ...

Example:
  temporeal train task=waypoints algo=ppo seed=1
  temporeal train task=hover algo.learning_rate=1e-3 num_worlds=4096 --out outputs/try
  temporeal train --config task=track              print every setting and stop
  temporeal train task=waypoints resume=true
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
    from policies.cli import settings as config

    options = parser().parse_intermixed_args(argv)
    settings = config.compose(options.overrides)
    if options.out:
        settings["out"] = options.out
    if options.config:
        if options.json:
            print_json(settings)
        else:
            say(config.as_yaml(settings).rstrip())
        return OK
    result = train(settings, overwrite=options.overwrite, quiet=options.json)
    if result["rank"] != 0:
        return OK
    if options.json:
        print_json(result)
    else:
        say(f"trained in {result['seconds']:.1f} s: {result['run']}\nnext: temporeal eval {result['run']}")
    return OK


def train(
    settings: dict[str, Any], *, overwrite: bool = False, quiet: bool = False, opened: bool = False
) -> dict[str, Any]:
    """Train as the settings say; where the run is and how long it took. ``opened``: its folder is ready."""
    from policies.algos.checkpoint import CheckpointError
    from policies.algos.progress import show, tensorboard
    from policies.algos.ranks import join
    from policies.cli import runs
    from policies.cli import settings as config

    folder, resume = runs.run_folder(settings), runs.resumes(settings)
    if settings["processes"] < 1:
        raise BadInput(f"processes is at least 1, got {settings['processes']}")
    runs.check_device(settings["device"])
    module, configuration = runs.algorithm(settings)
    if settings["processes"] > 1 and "RANK" not in os.environ:
        runs.make_task(settings)  # its errors are clearer here than from several processes at once
        runs.open_run(settings, folder, overwrite)
        return in_processes(settings, folder, quiet)
    with runs.bad_input():
        ranks, device = join(settings["device"])
    seed = settings["seed"] + ranks.index * runs.RANK_SEED
    env = runs.make_env(settings, seed=seed, device=str(device), training=True)
    if ranks.is_first and not opened:
        runs.open_run(settings, folder, overwrite)
    ranks.wait()
    title = f"{settings['task']['name']}, {settings['algo']['name']}, seed {settings['seed']}"
    started = time.perf_counter()
    with tensorboard(folder / "events") if ranks.is_first else nullcontext() as logger:
        try:
            result = module.train(
                env, configuration, out=folder, seed=settings["seed"], resume=resume, ranks=ranks, logger=logger,
                progress=show(title) if ranks.is_first and not quiet else None)
        except CheckpointError as error:
            raise BadInput(str(error)) from error
        except getattr(module, "NonFiniteError", CheckpointError) as error:
            raise BadInput(f"the training diverged and was stopped: {error}; try a smaller learning rate") from error
    if resume and ranks.is_first:
        config.write({**settings, "resume": None}, folder / runs.CONFIG)  # the budget may have changed
    last = result.history[-1] if result.history else {}
    return {"run": str(folder), "seconds": time.perf_counter() - started, "rank": ranks.index, **last}


RESULT = "result.json"  # in a run's folder: what `train` returned, where several processes made it


def in_processes(settings: dict[str, Any], folder: Path, quiet: bool) -> dict[str, Any]:
    """:func:`train` in ``processes`` processes of this machine; the run's folder is ready."""
    (folder / RESULT).unlink(missing_ok=True)
    words = [str(folder), json.dumps(settings["resume"]), *(["--quiet"] if quiet else [])]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
               str(settings["processes"]), "-m", "policies.cli.train", *words]
    # one thread in each operation: the processes share the cores
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1", STARTED_BY: str(os.getpid())}
    status = wait_for(subprocess.Popen(command, env=surroundings))
    if status or not (folder / RESULT).exists():
        raise BadInput(f"training in {settings['processes']} processes ended with status {status}; see above "
                       f"what they printed; resume=true goes on from the last checkpoint in {folder}")
    result: dict[str, Any] = json.loads((folder / RESULT).read_text())
    return result


STARTED_BY = "TEMPOREAL_STARTED_BY"  # process id of the `temporeal train` that started this one of several processes


def wait_for(launcher: subprocess.Popen[bytes]) -> int:
    """Status of the launcher. An interrupt or SIGTERM here stops it, and it stops the processes that it started."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        return launcher.wait()
    finally:
        signal.signal(signal.SIGTERM, before)
        if launcher.poll() is None:
            launcher.terminate()
            try:
                launcher.wait(timeout=30)
            except subprocess.TimeoutExpired:
                launcher.kill()
                launcher.wait()


def end_with(parents: Sequence[int]) -> None:
    """End this process when one of ``parents`` is no more (kill -9): nobody would ever stop it."""

    def watch() -> None:
        while all(Path(f"/proc/{pid}").exists() for pid in parents):
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main(argv: Sequence[str]) -> None:
    """One of several processes: the run's folder, what to resume (JSON), and whether to be quiet."""
    from policies.cli import settings as config

    if Path("/proc/self").exists():
        end_with([os.getppid(), *(int(pid) for pid in [os.environ.get(STARTED_BY)] if pid)])

    folder = Path(argv[0])
    settings = {**config.read(folder / "config.yaml"), "out": str(folder), "resume": json.loads(argv[1])}
    result = train(settings, quiet="--quiet" in argv, opened=True)
    if result["rank"] == 0:
        (folder / RESULT).write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
