"""``temporeal data check``: whether a dataset is whole."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from temporeal.policies.cli.console import Parser, add_json, counter, print_json, say
from temporeal.policies.runs.errors import FAILED, OK

SUMMARY = "find damage in a dataset, and move damaged episodes aside"
HELP = """\
Reads every value of a dataset and names what is wrong, by episode and index: files that are missing, cut or changed,
shapes, values that are not finite, gaps in time, time that goes back, missing frames, another rate, an empty set.

--quarantine moves the damaged episodes into FOLDER/quarantine, with a report; the good ones are numbered anew and stay
usable. It writes the set's Parquet files anew (not the videos) and takes its place in one step.

Exit status: 0 nothing found (or, with --quarantine, only good episodes are left), 1 damage, 2 it is no dataset.

Example:
  temporeal data check demos
  temporeal data check demos --quarantine
"""


def add(parser: Parser) -> None:
    """Options."""
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the dataset's folder")
    parser.add_argument("--quarantine", action="store_true", help="move damaged episodes aside")
    add_json(parser)


def run(options: Any) -> int:
    """Check, and print what was found."""
    from temporeal.policies.data.episodes.checking import check
    from temporeal.policies.data.episodes.quarantine import quarantine

    found = check(options.folder, counter("episodes"))
    bad = sorted({one.episode for one in found if one.episode is not None})
    moved = quarantine(options.folder, found) if options.quarantine and bad else None
    if options.json:
        print_json({"ok": not found, "findings": [asdict(one) for one in found], "episodes": bad, "quarantine": moved})
    else:
        for one in found:
            say(str(one))
        say(f"{options.folder}: " + (f"{len(found)} findings in {len(bad)} episodes" if found else "good"))
        if moved is not None:
            say(f"{len(bad)} episodes moved to {moved}")
    left = found if moved is None else [one for one in found if one.episode is None]
    return FAILED if left else OK
