"""``temporeal data diversity``: how varied a dataset is, and what a policy could learn from it instead of the task."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from temporeal.policies.cli.console import Parser, add_json, print_json, say
from temporeal.policies.runs.errors import FAILED, OK

SUMMARY = "how varied and fragmented a set is; what could be learned instead of the task"
HELP = """\
Says how many starts, states and instructions a dataset has in effect (Vendi score), how well its sub-datasets are told
apart by their starts, and how well what has nothing to do with the task (where the robot starts, the light, the
sub-dataset, signals that you name) predicts instruction and action: what a policy may learn instead of the task
(shortcut learning; Xing et al., CoRL 2025, arXiv 2508.06426). Conclusions are in words; each number stands beside what
chance gives.

Exit status: 0 nothing found, 1 a weakness, 2 bad input.

Example:
  temporeal data diversity demos
  temporeal data diversity both --by source --irrelevant lamp_brightness
"""


def add(parser: Parser) -> None:
    """Options."""
    parser.add_argument("folder", type=Path, metavar="SET", help="the dataset's folder")
    parser.add_argument("--by", default="source", metavar="KEY",
                        help="what divides it: a key of the episodes' info, or language (%(default)s)")
    parser.add_argument("--irrelevant", default="", metavar="SIGNAL,...", help="signals beside the task")
    parser.add_argument("--seed", type=int, default=0, help="of draws and shuffles (%(default)s)")
    add_json(parser)


def run(options: Any) -> int:
    """Print the findings."""
    from temporeal.policies.data.curation.diversity import report
    from temporeal.policies.data.episodes.dataset import Dataset

    names = [name for name in options.irrelevant.split(",") if name]
    found = report(Dataset.open(options.folder), by=options.by, irrelevant=names, seed=options.seed)
    flagged = [one for one in found if one.flagged]
    if options.json:
        rows = [{**asdict(one), "chance": None if one.chance != one.chance else one.chance} for one in found]
        print_json({"dataset": options.folder, "good": not flagged, "findings": rows})
    else:
        for one in found:
            chance = "" if one.chance != one.chance else f" [chance {one.chance:.2f}]"
            say(f"{'!' if one.flagged else ' '} {one.said}{chance}")
        say(f"{options.folder}: {len(flagged)} weaknesses" if flagged else f"{options.folder}: no weakness found")
    return FAILED if flagged else OK
