"""``temporeal train``: learn a task."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from policies.cli.console import OK, Parser, add_json, add_overrides, print_json, say

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

    options = parser().parse_args(argv)
    settings = config.compose(options.overrides)
    if options.out:
        settings["out"] = options.out
    if options.config:
        say(config.as_yaml(settings).rstrip())
        return OK
    result = train(settings, overwrite=options.overwrite, quiet=options.json)
    if options.json:
        print_json(result)
    elif result["rank"] == 0:
        say(f"trained in {result['seconds']:.1f} s: {result['run']}\nnext: temporeal eval {result['run']}")
    return OK


def train(settings: dict[str, Any], *, overwrite: bool = False, quiet: bool = False) -> dict[str, Any]:
    """Train as the settings say; where the run is and how long it took."""
    from policies.cli import runs

    folder, rank = runs.run_folder(settings), runs.rank()
    module, configuration = runs.algorithm(settings)
    env = runs.make_env(settings, seed=settings["seed"] + rank * runs.RANK_SEED)
    if rank == 0:
        runs.open_run(settings, folder, overwrite)
    started = time.perf_counter()
    module.train(env, configuration, out=folder, resume=settings["resume"])
    return {"run": str(folder), "seconds": time.perf_counter() - started, "rank": rank}
