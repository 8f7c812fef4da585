"""``temporeal bench``: measure, compare with targets and peers, keep the figures. Benchmarks run from a clone."""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, print_json, say
from temporeal.policies.runs.errors import FAILED, OK, BadInput
from temporeal.policies.runs.run_folders import check_writable
from temporeal.robots.registry import guess

if TYPE_CHECKING:
    from temporeal_benchmarks.results import Run
    from temporeal_benchmarks.rows import Row

SUMMARY = "measure speed and quality against targets and peers"
HELP = """\
Runs benchmarks and writes outputs/bench/NAME.json: the figures, the command, the revision and the machine.
Ratios to peers are taken within one run, so that a busy machine slows both sides. Exit status 1: a target was
missed, or could not be measured. With --kept nothing is run, and the exit status is 0 whatever the figures are.

Example:
  temporeal bench --list
  temporeal bench quadrotor
  temporeal bench sim --kept
  temporeal bench transfer          (reality --parts transfer)
  temporeal bench --all --quick
"""
NAMED = {"transfer": "reality"}
"""Parts that are benchmarks of their own to whoever asks, and what they are parts of."""
NOT_HERE = ("benchmarks are not part of the installed package: run `temporeal bench` from a clone of the repository, "
            "set up with `make install`")


def bench_names() -> list[str]:
    """Benchmarks as one writes them, with dashes; none where this is no clone."""
    if importlib.util.find_spec("temporeal_benchmarks") is None:
        return []
    from temporeal_benchmarks.runner import bench_names

    return bench_names()


def completions() -> list[str]:
    """Names of benchmarks."""
    return bench_names()


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("bench", HELP)
    p.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run")
    p.add_argument("--list", action="store_true", help="list the benchmarks")
    p.add_argument("--all", action="store_true", help="all benchmarks; those that take days only with --quick")
    p.add_argument("--quick", action="store_true", help="a short run that shows the form, not figures to quote; "
                   "refused where it would overwrite those of a whole run")
    p.add_argument("--kept", action="store_true", help="run nothing: print the figures kept in benchmarks/results")
    p.add_argument("--keep", action="store_true", help="write the figures of this run to benchmarks/results as well")
    p.add_argument("--out", type=Path, default=Path("outputs/bench"), help="folder of the results (%(default)s)")
    add_json(p)
    return p


def run(argv: Sequence[str]) -> int:
    """Run the named benchmarks, or show what is kept of them."""
    argv = with_parts(argv)
    p, known = parser(), bench_names()
    if not known and not {"-h", "--help"} & set(argv):
        raise BadInput(NOT_HERE)
    own = add_own_options(p, [name for name in known if name in argv])
    options = p.parse_intermixed_args(argv)
    if options.list:
        return show_list(known, options.json)
    chosen = choose(known, options)
    if options.kept:
        check_nothing_is_run(options, own)
        return show_kept(chosen, options.json)
    check(options, chosen, own)
    given = {name: split(getattr(options, name.replace("-", "_"))) for name in own}
    return measure(chosen, options, given, argv)


def with_parts(argv: Sequence[str]) -> list[str]:
    """``argv`` with the benchmark and ``--parts`` in place of a part that goes by its own name: :data:`NAMED`."""
    words = list[str]()
    for before, word in zip(["", *argv], argv):
        of = None if before in ("--parts", "--out") else NAMED.get(word)
        words += [word] if of is None else [of] if "--kept" in argv else [of, "--parts", word]
    return words


def command_of(name: str, argv: Sequence[str]) -> str:
    """The command that measures the same benchmark: without the others, and without what says where figures go."""
    known = bench_names()
    left_out = [word in (*known, "--all", "--json", "--keep", "--out") or word.startswith("--out=") or before == "--out"
                for before, word in zip(["", *argv], argv)]
    return shlex.join(["temporeal", "bench", name, *(word for word, out in zip(argv, left_out) if not out)])


def add_own_options(p: Parser, named: Sequence[str]) -> list[str]:
    """Add the options that the ``named`` benchmarks have besides those of all; their names."""
    if not named:
        return []
    from temporeal_benchmarks.runner import options_of

    own = {option: text for name in named for option, text in options_of(name).items()}
    for option, text in own.items():
        p.add_argument(f"--{option}", metavar="A,B", help=text)
    return list(own)


def choose(known: Sequence[str], options: argparse.Namespace) -> list[str]:
    """The benchmarks that are asked for."""
    from temporeal_benchmarks.runner import takes_days

    if options.all and options.names:
        raise BadInput(f"--all means every benchmark: leave out --all or {', '.join(options.names)}")
    if options.all:
        return [name for name in known if options.quick or options.kept or not takes_days(name)]
    unknown = [name for name in options.names if name not in known]
    if unknown or not options.names:
        problem = f"no benchmark {unknown[0]!r}" if unknown else "name a benchmark or say --all"
        raise BadInput(f"{problem}; {guess(unknown[0], known) if unknown else ''}known: {', '.join(known)}")
    return list(options.names)


def check_nothing_is_run(options: argparse.Namespace, own: Sequence[str]) -> None:
    """Refuse options of a run beside ``--kept``."""
    given = [name for name in ("quick", "keep", *own) if getattr(options, name.replace("-", "_"))]
    if given:
        raise BadInput(f"--kept runs nothing and prints all that is kept: leave out --{', --'.join(given)}")


def check(options: argparse.Namespace, chosen: Sequence[str], own: Sequence[str]) -> None:
    """Options that fit together, and folders that can be written, before anything is run."""
    from temporeal_benchmarks import runner

    check_writable(options.out)
    for name in own:
        runner.check_one_meaning(name, getattr(options, name.replace("-", "_")), chosen)
    if options.quick and options.keep:
        raise BadInput("--keep is for whole runs: leave out --quick")
    if options.quick:
        runner.check_no_loss(options.out, chosen)


def measure(
    chosen: Sequence[str], options: argparse.Namespace, given: dict[str, list[str] | None], argv: Sequence[str]
) -> int:
    """Run the benchmarks one after the other and show their rows."""
    from temporeal_benchmarks import runner
    from temporeal_benchmarks.rows import Row

    found: dict[str, list[Row]] = {}
    for name in chosen:
        result = runner.measure(name, options.quick, options.out, given, command_of(name, argv), options.json)
        found[name] = [Row(**row) for row in result["rows"]]
        files = [options.out / f"{name}.json", *([runner.keep(name, options.out, given)] if options.keep else [])]
        if not options.json:
            say(runner.table(found[name]))
            say("\n".join(f"  {file}" for file in files))
    missed = [f"{name}: {row.name}" for name, rows in found.items() for row in rows if row.ok is False]
    if options.json:
        print_rows(found)
    elif missed:
        say(f"\nmissed: {'; '.join(missed)}")
    return FAILED if missed else OK


def show_kept(chosen: Sequence[str], as_json: bool) -> int:
    """The figures that the repository keeps: of each the newest, with its revision, date and machine."""
    from temporeal_benchmarks import runner
    from temporeal_benchmarks.results import current, is_stale

    kept = kept_runs(chosen)
    found = {name: current(runs) for name, runs in kept.items()}
    if as_json:
        print_rows({name: [row for row, _ in rows.values()] for name, rows in found.items()})
        return OK
    for name, rows in found.items():
        for run in kept[name]:
            own = [row for row, of in rows.values() if of is run]
            if own:
                stale = {True: ", stale", False: "", None: ", age unknown"}[is_stale(run)]
                say(f"{name}: {run.command}\n  {run.date}, revision {', '.join(run.revisions)}{stale}, {run.machine}")
                say(runner.table(own))
    return OK


def kept_runs(chosen: Sequence[str]) -> dict[str, list[Run]]:
    """The kept runs of each benchmark that has some; the others are named on standard error."""
    from temporeal_benchmarks.results import runs_of

    kept = {name: runs for name, runs in ((name, runs_of(name)) for name in chosen) if any(run.rows for run in runs)}
    if missing := [name for name in chosen if name not in kept]:
        text = (f"no figures of {', '.join(missing)} are kept yet: "
                f"`temporeal bench {' '.join(missing)} --keep` measures and keeps them")
        if not kept:
            raise BadInput(text)
        print(f"temporeal: {text}", file=sys.stderr)
    return kept


def print_rows(found: dict[str, list[Row]]) -> None:
    """Rows as JSON. Those of several benchmarks are named BENCHMARK/ROW."""
    rows: list[dict[str, Any]] = [
        {**asdict(row), "name": row.name if len(found) == 1 else f"{name}/{row.name}"}
        for name, own in found.items() for row in own]
    print_json({"rows": rows})


def show_list(known: Sequence[str], as_json: bool) -> int:
    """Names and what they measure."""
    from temporeal_benchmarks.runner import benchmark

    texts = {name: benchmark(name).HELP.strip() for name in known}
    if as_json:
        print_json(texts)
    for name, text in () if as_json else texts.items():
        say(f"{name}\n  " + text.replace("\n", "\n  "))
    return OK


def split(text: str | None) -> list[str] | None:
    """The words of a list ``A,B``; None where it is not given."""
    return None if text is None else [word for word in (part.strip() for part in text.split(",")) if word]
