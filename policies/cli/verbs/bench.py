"""``temporeal bench``: measure, compare with the target and with peers, keep the figures."""

from __future__ import annotations

import datetime
import json
import os
import platform
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, plain, print_json, say
from temporeal.policies.runs.errors import FAILED, OK, BadInput
from temporeal.policies.runs.run_folders import check_writable

if TYPE_CHECKING:
    from temporeal_benchmarks.rows import Row

SUMMARY = "measure speed and quality against targets and peers"
HELP = """\
Runs benchmarks and writes outputs/bench/NAME.json with the figures and the machine they were taken on.
Ratios are taken within one run, so that a busy machine moves both sides. Exit status 1: a target was missed.

Example:
  temporeal bench --list
  temporeal bench quadrotor
  temporeal bench --all --quick
"""


def bench_names() -> list[str]:
    """Benchmarks as one writes them, with dashes."""
    from temporeal.robots.registry import names

    return [name.replace("_", "-") for name in names("temporeal_benchmarks.measurements")]


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("bench", HELP)
    p.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run")
    p.add_argument("--list", action="store_true", help="list the benchmarks")
    p.add_argument("--all", action="store_true", help="run every benchmark; those that take days only if quick")
    p.add_argument("--quick", action="store_true", help="a short run that shows the form, not the figures to quote; "
                   "refused where it would overwrite a whole run's")
    p.add_argument("--out", type=Path, default=Path("outputs/bench"), help="folder of the results (%(default)s)")
    add_json(p)
    return p


def run(argv: Sequence[str]) -> int:
    """Run the named benchmarks."""
    known = bench_names()
    own = own_options([name for name in known if name in argv])
    p = parser()
    for name, text in own.items():
        p.add_argument(f"--{name}", metavar="A,B", help=text)
    options = p.parse_intermixed_args(argv)
    if options.list:
        return show_list(known, options.json)
    chosen = [name for name in known if options.quick or not takes_days(name)] if options.all else options.names
    unknown = [name for name in chosen if name not in known]
    if unknown or not chosen:
        told = f"no benchmark {unknown[0]!r}" if unknown else "name a benchmark or say --all"
        raise BadInput(f"{told}; known: {', '.join(known) or 'none'}")
    check_writable(options.out)
    for name in own:
        check_one_meaning(name, getattr(options, name.replace("-", "_")), chosen)
    if options.quick:
        check_no_loss(options.out, chosen)
    given = {name: split(getattr(options, name.replace("-", "_"))) for name in own}
    told = shlex.join(["temporeal", "bench", *argv])
    results = {name: measure(name, options.quick, options.out, options.json, given, told) for name in chosen}
    if options.json:
        print_json(results)
    missed = [f"{name}: {row['name']}" for name, r in results.items() for row in r["rows"] if row["ok"] is False]
    if missed and not options.json:
        say(f"\nmissed: {'; '.join(missed)}")
    return FAILED if missed else OK


def show_list(known: Sequence[str], as_json: bool) -> int:
    """Names and what they measure."""
    from temporeal.robots.registry import resolve

    told = {name: resolve("temporeal_benchmarks.measurements", name.replace("-", "_")).HELP.strip() for name in known}
    if as_json:
        print_json(told)
    for name, text in () if as_json else told.items():
        say(f"{name}\n  " + text.replace("\n", "\n  "))
    return OK


def check_no_loss(out: Path, chosen: Sequence[str]) -> None:
    """Refuse a quick run that would overwrite figures that are no quick ones."""
    if lost := [str(file) for file in (out / f"{name}.json" for name in chosen) if is_whole(file)]:
        raise BadInput(f"figures of whole runs, which a quick one would overwrite: {', '.join(lost)}; say another "
                       "folder with --out, or move them away")


def is_whole(file: Path) -> bool:
    """Whether ``file`` has figures of a run that was not quick."""
    try:
        return json.loads(file.read_text())["quick"] is False
    except (OSError, ValueError, KeyError, TypeError):
        return False  # nothing that a run has written


def takes_days(name: str) -> bool:
    """Whether the benchmark is a study to be run by its name."""
    from temporeal.robots.registry import resolve

    return bool(getattr(resolve("temporeal_benchmarks.measurements", name.replace("-", "_")), "DAYS", False))


def own_options(named: Sequence[str]) -> dict[str, str]:
    """Options that the named benchmarks have besides those of all, with their help: each takes a list."""
    from temporeal.robots.registry import resolve

    modules = [resolve("temporeal_benchmarks.measurements", name.replace("-", "_")) for name in named]
    return {option: text for module in modules for option, text in getattr(module, "OPTIONS", {}).items()}


def check_one_meaning(option: str, given: str | None, chosen: Sequence[str]) -> None:
    """An option that is given means the same to all benchmarks ``chosen`` that have it."""
    texts = {name: own_options([name])[option] for name in chosen if option in own_options([name])}
    if given is not None and len(set(texts.values())) > 1:
        told = "; ".join(f"{name}: {text}" for name, text in texts.items())
        raise BadInput(f"--{option} {given} means another thing to each ({told}): run them one by one")


def split(text: str | None) -> list[str] | None:
    """The words of a list ``A,B``; None where it is not given."""
    return None if text is None else [word for word in (part.strip() for part in text.split(",")) if word]


def measure(
    name: str, quick: bool, out: Path, quiet: bool, given: Mapping[str, list[str] | None] = MappingProxyType({}),
    command: str = "",
) -> dict[str, Any]:
    """Run one benchmark, show it and write its file. ``given``: options of benchmarks, of which it takes its own;
    ``command``: what was typed."""
    from temporeal.policies.export.writer import revision
    from temporeal.robots.atomic_files import write_whole
    from temporeal.robots.registry import resolve

    if not quiet:
        say(f"{name}{' (quick)' if quick else ''} ...")
    started, made_of = time.perf_counter(), revision()
    module = resolve("temporeal_benchmarks.measurements", name.replace("-", "_"))
    own = getattr(module, "OPTIONS", None)
    rows: list[Row] = module.run(quick) if own is None else module.run(
        quick, out=out / name, **{option: given.get(option) for option in own})
    result = {
        "command": command, "revision": made_of, "bench": name, "quick": quick,
        "seconds": round(time.perf_counter() - started, 3),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": machine(), "rows": [plain(asdict(row)) for row in rows],
    }
    write_whole(out / f"{name}.json", (json.dumps(result, indent=2) + "\n").encode())
    if not quiet:
        say(table(rows))
        say(f"  {out / name}.json")
    return result


def table(rows: Sequence[Row]) -> str:
    """Rows as aligned text."""
    head = ("figure", "value", "unit", "target", "peer", "")
    mark = {True: "ok", False: "MISSED", None: ""}
    cells = [head, *((r.name, number(r.value), r.unit, number(r.target), number(r.peer), mark[r.ok]) for r in rows)]
    width = [max(len(row[i]) for row in cells) for i in range(len(head))]
    return "\n".join("  " + "  ".join(f"{c:{w}}" for c, w in zip(row, width)).rstrip() for row in cells)


def number(value: float | str | None) -> str:
    """A figure with four significant digits; text as it is."""
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    from temporeal.policies.cli.verbs.doctor import cpu_model

    return {"cpu": cpu_model(), "cores": os.cpu_count(), "python": platform.python_version(),
            "load": round(os.getloadavg()[0], 2)}
