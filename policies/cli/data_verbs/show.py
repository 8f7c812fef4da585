"""``temporeal data show``: a dataset as a page, or as a rerun recording."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, print_json, say
from temporeal.policies.cli.specs.dataset_options import add_formula, formula_given
from temporeal.policies.runs.errors import OK, BadInput

if TYPE_CHECKING:
    from temporeal.policies.data.episodes.dataset import Dataset

SUMMARY = "one page of a set: episodes, verdicts, signals, pictures; or a rerun file"
HELP = """\
Writes a self-contained page, below 10 MB: what is in the set, shares with intervals, distributions, every episode with
length, return, success, instruction and, with --formula, robustness and verdict of each clause, and signals and
pictures of the chosen one. --rerun writes a recording for Rerun's viewer instead (pip install rerun-sdk).

Example:
  temporeal data show demos --formula mission.stl -o demos.html
  temporeal data show demos --rerun demos.rrd --episodes 0,5,7
"""


def add(parser: Parser) -> None:
    """Options."""
    parser.add_argument("folder", type=Path, metavar="SET", help="the dataset's folder")
    parser.add_argument("-o", "--out", type=Path, metavar="PAGE", help="the page (SET.html, here)")
    add_formula(parser, "judge the episodes by it")
    parser.add_argument("--rerun", type=Path, metavar="FILE.rrd", help="write this recording instead of a page")
    parser.add_argument("--episodes", metavar="N,N,...", help="with --rerun: these (all)")
    add_json(parser)


def run(options: Any) -> int:
    """Write it."""
    from temporeal.policies.data.episodes.dataset import Dataset
    from temporeal.policies.runs.run_folders import check_writable

    data = Dataset.open(options.folder)
    if options.episodes and not options.rerun:
        raise BadInput("--episodes is for --rerun: a page has all")
    out = options.rerun or options.out or Path(f"{options.folder.resolve().name}.html")
    check_writable(out.parent, "--rerun" if options.rerun else "--out")
    if options.rerun:
        from temporeal.policies.data.curation.rerun_file import write_rerun

        write_rerun(out, data, numbers(options.episodes, data))
    else:
        page(options, data, out)
    if options.json:
        print_json({"out": out, "bytes": out.stat().st_size, "episodes": data.episodes})
    else:
        say(f"{out} ({out.stat().st_size / 1e6:.2f} MB)")
    return OK


def page(options: Any, data: Dataset, out: Path) -> None:
    """Write the page."""
    from temporeal.policies.data.curation.robustness import judge, table_of
    from temporeal.policies.evaluate.report.dataset_page import Judged, write_dataset_page
    from temporeal.sim.stl.language.propositional import to_text

    table = table_of(data)
    formula, semantics = formula_given(options, table)
    judged = None if formula is None else Judged(to_text(formula), judge(formula, table, semantics))
    write_dataset_page(out, data, judged)


def numbers(text: str | None, data: Dataset) -> list[int]:
    """``0,5,7`` as numbers of episodes."""
    if text is None:
        return list(range(data.episodes))
    out = []
    for part in text.split(","):
        if not part.strip().isdecimal() or int(part) >= data.episodes:
            raise BadInput(f"--episodes {text}: numbers from 0 to {data.episodes - 1}, such as 0,5,7")
        out.append(int(part))
    return out
