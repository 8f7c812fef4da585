"""``temporeal train``: learn a task."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from policies.cli.console import OK, BadInput, Parser, add_json, add_overrides, print_json, say

SUMMARY = "learn a task; settings as words: task=hover algo=ppo seed=2"
HELP = """\
Trains a policy and writes outputs/train/<task>-<algo>-<seed>/: config.yaml (every setting), the checkpoint,
TensorBoard events. A run that was killed goes on with resume=true, bit for bit.
Several processes: torchrun --nproc-per-node 2 -m policies.cli.main train ...

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


def train(settings: dict[str, Any], *, overwrite: bool = False, quiet: bool = False) -> dict[str, Any]:
    """Train as the settings say; where the run is and how long it took."""
    from policies.algos.checkpoint import CheckpointError
    from policies.algos.progress import show, tensorboard
    from policies.algos.ranks import join
    from policies.cli import runs
    from policies.cli import settings as config

    folder, resume = runs.run_folder(settings), runs.resumes(settings)
    module, configuration = runs.algorithm(settings)
    with runs.bad_input():
        ranks, device = join(settings["device"])
    seed = settings["seed"] + ranks.index * runs.RANK_SEED
    env = runs.make_env(settings, seed=seed, device=str(device), training=True)
    if ranks.is_first:
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
    if resume and ranks.is_first:
        config.write({**settings, "resume": None}, folder / runs.CONFIG)  # the budget may have changed
    last = result.history[-1] if result.history else {}
    return {"run": str(folder), "seconds": time.perf_counter() - started, "rank": ranks.index, **last}
