"""``temporeal data split``: parts of a dataset by chance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from temporeal.policies.cli.console import Parser, add_json, counter, print_json, say
from temporeal.policies.cli.specs.dataset_options import add_out
from temporeal.policies.runs.errors import OK, BadInput

SUMMARY = "divide a dataset into parts, such as train and test, by a seed"
HELP = """\
Draws the episodes of each part by the seed and writes a dataset for each: NEW/train, NEW/test. What was made of one
recording (its mirror image, its goals in hindsight) stays together.

Example:
  temporeal data split demos --parts train=.9,test=.1 --seed 0 --out parts
"""


def add(parser: Parser) -> None:
    """Options."""
    parser.add_argument("folder", type=Path, metavar="SET", help="the dataset's folder")
    add_out(parser)
    parser.add_argument("--parts", default="train=.9,test=.1", metavar="NAME=SHARE,...", help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    add_json(parser)


def run(options: Any) -> int:
    """Write the parts."""
    from temporeal.policies.data.curation.copying import originals, own_interface, write
    from temporeal.policies.data.curation.selection import parts
    from temporeal.policies.data.episodes.dataset import Dataset

    data = Dataset.open(options.folder)
    found = parts(data, shares(options.parts), options.seed)
    for name in found:
        if (options.out / name).exists():
            raise BadInput(f"{options.out / name} is there already: split writes new folders")
    for name, chosen in found.items():
        what = f"split of {data.folder.name}: {name} of {options.parts}, seed {options.seed}"
        write(options.out / name, own_interface(data), originals(data, chosen), what, counter(name), len(chosen))
    if options.json:
        print_json({"out": options.out, "parts": found})
    else:
        say("\n".join(f"{options.out / name}: {len(chosen)} episodes" for name, chosen in found.items()))
    return OK


def shares(text: str) -> dict[str, float]:
    """``train=.9,test=.1`` as shares by name, which becomes a folder's."""
    out: dict[str, float] = {}
    for part in text.split(","):
        name, equals, number = part.partition("=")
        try:
            share = float(number)
        except ValueError:
            share = -1.0
        if not equals or not name.replace("-", "_").isidentifier() or name in out or not share > 0:
            raise BadInput(f"--parts {text}: write NAME=SHARE,NAME=SHARE, each name once, such as train=.9,test=.1")
        out[name] = share
    return out
