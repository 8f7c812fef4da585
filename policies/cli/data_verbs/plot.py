"""``temporeal data plot``: signals of all episodes over time, as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from temporeal.policies.cli.console import Parser, add_json, print_json, say
from temporeal.policies.runs.errors import OK, BadInput

SUMMARY = "signals over time as a picture: every episode, coloured by success"
HELP = """\
Draws signals of a dataset over time, one panel for each component, a line for each episode: green where it was judged
a success, red where a failure, grey where nobody judged.

Example:
  temporeal data plot demos --signals height,base_pos_w,action --out heights.png
"""
SUFFIXES = (".png", ".svg", ".pdf")


def add(parser: Parser) -> None:
    """Options."""
    parser.add_argument("folder", type=Path, metavar="SET", help="the dataset's folder")
    parser.add_argument("--signals", metavar="NAME,...", help="signals, or action, or reward (all that are numbers)")
    parser.add_argument("--episodes", metavar="N,N,...", help="these (100, evenly spaced)")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="PICTURE", help="(.png, .svg, .pdf)")
    add_json(parser)


def run(options: Any) -> int:
    """Draw it."""
    import numpy as np

    from temporeal.policies.data.curation.plotting import plot
    from temporeal.policies.data.episodes.dataset import Dataset

    data = Dataset.open(options.folder)
    check_picture(options.out)
    if options.episodes is None:
        chosen = np.unique(np.linspace(0, max(data.episodes - 1, 0), min(data.episodes, 100)).astype(int)).tolist()
    else:
        parts = options.episodes.split(",")
        if not all(part.strip().isdecimal() and int(part) < data.episodes for part in parts):
            raise BadInput(f"--episodes {options.episodes}: numbers from 0 to {data.episodes - 1}, such as 0,5,7")
        chosen = [int(part) for part in parts]
    names = options.signals.split(",") if options.signals else None
    panels = plot(options.out, data, names, chosen)
    if options.json:
        print_json({"out": options.out, "panels": panels, "episodes": chosen})
    else:
        say(f"{options.out}: {panels} panels, {len(chosen)} episodes")
    return OK


def check_picture(path: Path) -> None:
    """Refuse a file for --out that is no picture, or that cannot be written."""
    from temporeal.policies.runs.run_folders import check_writable

    if path.suffix.lower() not in SUFFIXES:
        raise BadInput(f"--out {path}: a picture is {', '.join(SUFFIXES)}")
    check_writable(path.parent, "--out")
