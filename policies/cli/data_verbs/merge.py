"""``temporeal data merge``: several datasets of one interface as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from temporeal.policies.cli.console import Parser, add_json, counter
from temporeal.policies.cli.specs.dataset_options import add_out, written
from temporeal.policies.runs.errors import OK, BadInput

SUMMARY = "join datasets of one interface into a new one"
HELP = """\
Writes the episodes of all datasets into a new one, each with the name of the set that it came from (`source`). Sets of
another robot, rate, signal or action are refused by the name of what differs.

Example:
  temporeal data merge monday tuesday --out both
"""


def add(parser: Parser) -> None:
    """Options."""
    parser.add_argument("folders", type=Path, nargs="+", metavar="SET", help="folders of the datasets")
    add_out(parser)
    add_json(parser)


def run(options: Any) -> int:
    """Write them."""
    from temporeal.policies.data.curation.copying import merged, own_interface, require_episodes, write
    from temporeal.policies.data.episodes.dataset import Dataset
    from temporeal.policies.data.episodes.interface import require_same

    if len(set(options.folders)) < len(options.folders):
        raise BadInput(f"a set is named twice: {', '.join(map(str, options.folders))}")
    sets = [Dataset.open(folder) for folder in options.folders]
    require_episodes(sets)
    for data in sets[1:]:
        require_same(sets[0].interface, data.interface, f"{data.folder} (beside {sets[0].folder})")
    count = sum(data.episodes for data in sets)
    what = f"merge of {', '.join(data.folder.name for data in sets)}"
    write(options.out, own_interface(*sets), merged(sets), what, counter("episodes"), count)
    written(options, {"out": options.out, "episodes": count})
    return OK
