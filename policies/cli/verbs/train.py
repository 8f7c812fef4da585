"""``temporeal train``: learn a task."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from temporeal.policies.cli.console import Parser, add_json, add_overrides, add_overwrite, print_json, say
from temporeal.policies.runs.errors import OK

SUMMARY = "learn a task; settings as words: task=hover algo=ppo seed=2"
HELP = """\
Trains a policy and writes outputs/train/<task>-<algo>-<seed>/: config.yaml (every setting), checkpoints, TensorBoard
events. Ctrl-C and SIGTERM write a checkpoint first; a second one stops at once. resume=true continues a run that was
stopped or killed, bit for bit.
processes=2 trains with two processes, each with num_worlds worlds and algo.threads threads, and averages the gradients;
over several machines: torchrun ... -m temporeal.policies.cli.main train ...

Example:
  temporeal train task=waypoints algo=ppo seed=1
  temporeal train task=hover algo.learning_rate=1e-3 num_worlds=4096 --out outputs/try
  temporeal train --config task=track              print every setting and stop
  temporeal train task=waypoints resume=true
  temporeal train task=waypoints algo=reflex algo.policy=outputs/train/waypoints-ppo-1     a reflex for that policy
  temporeal train algo=flow_sde algo.policy=outputs/reach       tune the flow policy of that run in simulation
"""


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("train", HELP)
    add_overrides(p)
    p.add_argument("--out", metavar="FOLDER", help="folder of the run (the same as out=FOLDER)")
    add_overwrite(p)
    p.add_argument("--config", action="store_true", help="print the composed settings and stop")
    add_json(p)
    return p


def completions() -> list[str]:
    """Options of every group, and settings."""
    from temporeal.policies.runs.settings.folders import groups

    return [f"{group}={option}" for group, options in groups().items() for option in options] + [
        f"{key}=" for key in ("seed", "out", "num_worlds", "device", "threads", "resume")]


def run(argv: Sequence[str]) -> int:
    """Compose the settings, train, write the run."""
    options = parser().parse_intermixed_args(argv)  # before anything slow is imported: --help is at once
    from temporeal.policies.runs.settings.files import as_yaml
    from temporeal.policies.runs.tuning_runs.bases import settings_of

    settings = settings_of(options.overrides)
    if options.out:
        settings["out"] = options.out
    if options.config:
        if options.json:
            print_json(settings)
        else:
            say(as_yaml(settings).rstrip())
        return OK
    from temporeal.policies.runs import training
    from temporeal.policies.runs.progress import learns_progress

    words = [word for word in argv if word != "--overwrite" and not word.startswith("resume=")]
    again = f"temporeal train {shlex.join(words)} resume=true"
    result = training.train(settings, overwrite=options.overwrite, quiet=options.json, again=again)
    if result.rank != 0:
        return OK
    if options.json:
        print_json(result.to_json())
        return OK
    for note in result.notes:
        say(note)
    folder = shlex.quote(str(result.folder))
    judge = f"data progress {folder} SET" if learns_progress(settings["algo"]["name"]) else f"eval {folder}"
    say(f"trained in {result.seconds:.1f} s: {result.folder}\nnext: temporeal {judge}")
    return OK
