"""``temporeal log``: logs of flights that somebody recorded: checked against physics, shown, imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, complain, print_json, say
from temporeal.policies.runs.errors import BAD_INPUT, FAILED, OK, BadInput, bad_input
from temporeal.robots.registry import guess

if TYPE_CHECKING:
    from temporeal.policies.data.flight_logs.inspection import Inspection

SUMMARY = "logs of flights: check them against physics, look at them, import them"
HELP = """\
  temporeal log inspect LOG             a verdict for each check, and a page with plots
  temporeal log plot LOG                the page alone
  temporeal log import LOG ... --out SET   a dataset of the project's signals

LOG: NanoBench's CSV, a file of a Crazyflie's SD card (usdlog), PX4's ULog (pip install pyulog), a bag (rosbag2: MCAP or
SQLite, with the options of temporeal data import), or a dataset's folder.

Judged: whether the file is whole, times go on, columns are alive, unclipped and measured; units, axes and quaternion
order by gravity, by the gyro against the orientation and by the accelerometer against the motion; offset and drift
between motion capture and IMU, and the lag of the motors, each with a 95 % interval; whether the robot answers its
motors as its spec says. "marked": samples are marked, the others can be used. "wrong": the numbers are not what they
are said to be. "unknown": this log cannot tell. A log that is wrong is not imported, unless --anyway: then the info of
each of its episodes says what was wrong.

Example:
  temporeal log inspect flight.csv.gz
  temporeal log inspect log15 --json
  temporeal log import flight1.csv flight2.csv --out flights
  temporeal log import log15 --out hover --rate 500
"""


def parser_of(what: str) -> Parser:
    """The options of a part."""
    add, work = PARTS[what]
    p = Parser(f"log {what}", str(work.__doc__))
    add(p)
    return p


def part_helps() -> dict[str, str]:
    """What ``temporeal log PART --help`` prints, by part."""
    return {what: parser_of(what).format_help().strip() for what in PARTS}


def completions() -> list[str]:
    """Parts."""
    return list(PARTS)


def run(argv: Sequence[str]) -> int:
    """One of the parts."""
    if not argv or argv[0] in ("-h", "--help"):
        say(f"usage: temporeal log PART ...\n\n{HELP}")
        return OK if argv else BAD_INPUT
    if argv[0] not in PARTS:
        raise BadInput(f"log {' '.join(argv)}: no such part; {guess(argv[0], PARTS)}known: {', '.join(PARTS)}; see "
                       "temporeal log --help")
    options = parser_of(argv[0]).parse_intermixed_args(argv[1:])
    check(options)
    with bad_input():
        return PARTS[argv[0]][1](options)


def check(options: Any) -> None:
    """The numbers lie where they must."""
    if options.rate is not None and not 0 < options.rate < 1e6:
        raise BadInput(f"--rate {options.rate:g}: samples per second, above 0 and below 1e6, are needed")
    if not 0 <= options.shortest < float("inf"):
        raise BadInput(f"--shortest is a time in seconds from 0 on, got {options.shortest}")
    if options.gap is not None and not 0 < options.gap < float("inf"):
        raise BadInput(f"--gap is a time in seconds above 0, got {options.gap}")
    if getattr(options, "episode", 0) < 0:
        raise BadInput(f"--episode {options.episode}: numbers from 0 on")


def add_inspect(p: Parser) -> None:
    """Options of ``inspect`` and ``plot``."""
    from temporeal.policies.cli.verbs.flight_logs import reading

    p.add_argument("log", type=Path, metavar="LOG", help="a file, a bag, or a dataset's folder")
    p.add_argument("-o", "--out", type=Path, metavar="PAGE", help="the page (LOG.html, here)")
    p.add_argument("--episode", type=int, default=0, metavar="N", help="of a dataset or a bag: this one (0)")
    reading.add(p)
    add_json(p)


def add_import(p: Parser) -> None:
    """Options of ``import``."""
    from temporeal.policies.cli.verbs.flight_logs import reading

    p.add_argument("logs", type=Path, nargs="+", metavar="LOG", help="files or bags, of one robot and rate")
    p.add_argument("--out", type=Path, required=True, metavar="SET", help="folder of the dataset")
    p.add_argument("--append", action="store_true", help="add to the dataset that is there")
    p.add_argument("--anyway", action="store_true", help="import what is wrong, too; each episode's info says what")
    reading.add(p)
    add_json(p)


def inspect(options: Any) -> int:
    """Judge a log and write its page. Exit status 1 where something is wrong."""
    from temporeal.policies.cli.verbs.flight_logs import reading
    from temporeal.policies.evaluate.report.flight_log_page import write_log_page

    page = page_of(options)
    found = reading.inspected(options.log, options)
    write_log_page(page, found)
    failed = found.verdict == "wrong"
    if options.json:
        print_json({"log": options.log, "kind": found.log.kind, "robot": found.log.robot, "verdict": found.verdict,
                    "findings": reading.rows(found), "notes": found.log.notes, "page": page})
        return FAILED if failed else OK
    for note in found.log.notes:
        complain(f"temporeal: {note}")
    for line in reading.lines(found):
        show(line)
    show(f"\n{options.log}: {found.verdict}; {page}")
    return FAILED if failed else OK


def plot(options: Any) -> int:
    """Write the page of a log, with its plots and the verdict of each check."""
    from temporeal.policies.cli.verbs.flight_logs import reading
    from temporeal.policies.evaluate.report.flight_log_page import write_log_page

    page = page_of(options)
    found = reading.inspected(options.log, options)
    write_log_page(page, found)
    if options.json:
        print_json({"page": page, "bytes": page.stat().st_size, "verdict": found.verdict})
    else:
        show(f"{page} ({page.stat().st_size / 1e6:.2f} MB)")
    return OK


def show(text: str) -> None:
    """Print a line; what of a file's name is no text becomes a question mark."""
    say(text.encode(errors="replace").decode())


def page_of(options: Any) -> Path:
    """The page's file, which is neither the log, nor in it, nor anything else than a page that was there before."""
    from temporeal.policies.evaluate.report.flight_log_page import is_log_page
    from temporeal.policies.runs.run_folders import check_writable
    from temporeal.robots.handed_over.files import lies_in

    log: Path = options.log
    out: Path = options.out or Path(f"{log.resolve().name}.html")
    bag = [log.parent] if (log.parent / "metadata.yaml").exists() else []
    if lies_in(out, log, *bag) or out.exists() and log.exists() and out.samefile(log):
        raise BadInput(f"--out {out} is the log {log}, or lies in it: a page of its own is needed")
    check_writable(out.parent, "--out")
    if out.exists() and not out.is_file():
        raise BadInput(f"--out {out} is no file: the page's name is needed, such as {out / 'log.html'}")
    if out.exists() and not is_log_page(out):
        raise BadInput(f"--out {out} is there, and no page of temporeal log: it is not replaced")
    return out


def import_(options: Any) -> int:
    """Write logs as a dataset of the project's signals.

    A log in which something is wrong is left out, unless --anyway: then the info of its episodes says what is wrong.
    Gaps split its episodes, and the signal `measured` says which samples of which source are measurements. Of a bag
    each episode is judged by itself; bags get no `measured`. Exit status 1 where something is left out, 2 where all is.
    """
    from temporeal.policies.cli.verbs.flight_logs import episodes, reading
    from temporeal.policies.data.formats import importing

    if len({path.resolve() for path in options.logs}) < len(options.logs):
        raise BadInput(f"a log is named twice: {', '.join(map(str, options.logs))}")
    if options.out.exists() and not options.out.is_dir():
        raise BadInput(f"--out {options.out} is a file: a dataset's folder is needed")
    found: dict[str, Inspection] = {}
    files = [importing.File(path, partial(episodes.of_log, path, options, found), limits_of_data=False)
             for path in options.logs]
    settings = importing.Options(options.append, language=options.language)
    result = importing.write(options.out, files, settings)
    if options.json:
        print_json({"out": options.out, "episodes": result.episodes, "notes": result.notes,
                    "rejected": [{"where": each.where, "why": each.why} for each in result.rejected],
                    "logs": {name: {"verdict": each.verdict, "findings": reading.rows(each)}
                             for name, each in found.items()}})
    else:
        for line in (*result.notes, *(f"left out: {each}" for each in result.rejected)):
            complain(f"temporeal: {line}")
        for name, each in found.items():
            for told in each.of("wrong", "marked"):
                show(f"{name}: {told.status}: {told.subject}: {told.said}")
        show(f"{options.out}: {result.episodes} episodes imported, {len(result.rejected)} left out")
    return FAILED if result.rejected else OK


PARTS: Mapping[str, tuple[Callable[[Parser], None], Callable[[Any], int]]] = {
    "inspect": (add_inspect, inspect), "plot": (add_inspect, plot), "import": (add_import, import_)}
