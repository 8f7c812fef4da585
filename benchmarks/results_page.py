"""``python -m temporeal_benchmarks.results_page`` (``make results``): docs/results.md, and the README's results.

Both are made of ``benchmarks/results/*.json`` alone. ``--check`` writes nothing and fails where they differ. Which
figures are stale changes with every commit: the marks are those of the day on which the page was written, and the check
leaves them out.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Mapping, Sequence

from temporeal_benchmarks.machine import ROOT
from temporeal_benchmarks.results import STALE, Run, all_runs, current, is_stale
from temporeal_benchmarks.rows import Row

PAGE, README = ROOT / "docs/results.md", ROOT / "README.md"
MARKS = {True: " (stale)", None: " (age unknown)", False: ""}
BEGIN, END = "<!-- results -->", "<!-- /results -->"
HEADLINES = (
    ("train-waypoints", "quadrotor.p_satisfied.least", "the demo's mission, trained within 3 minutes on two cores: "
     "probability that a flight satisfies its formula, worst of 3 seeds"),
    ("train-quadrotor", "apg.seconds.median", "a quadrotor learns to hover (task of *Learning to Fly in Seconds*), "
     "from process start, median of 3 seeds"),
    ("stl", "forward.ALL.least", "robustness of a formula on 4096 traces, samples per second of one core, slowest "
     "length"),
    ("sim", "cheetah.1024.of_raw", "environment steps of HalfCheetah over those of MuJoCo alone, 1024 worlds"),
    ("deploy", "deploy.latency.p50 above the bare ping", "state of an arm to guarded command over DDS, above a bare "
     "ping of the same size, median"),
)
"""Of the README: benchmark, figure, what it is."""
INTRODUCTION = f"""\
# Results

Every figure that `temporeal bench` measured and that the repository keeps, missed targets included. This page is
written by `make results` from `benchmarks/results/*.json`; do not edit it. `temporeal bench NAME --kept` prints the
same figures, `temporeal bench NAME` measures them anew, and `temporeal bench NAME --keep` keeps what it measured.

Of each figure the newest measurement counts. A figure is **stale** when the code it was measured on is more than
{STALE} commits old. The machines are virtual and share their cores with others: single figures vary by tens of percent
from run to run, ratios taken within one run vary less. `/CPU-s` is per second of processor time of one thread.
"""


def page(runs: Sequence[Run] | None = None) -> str:
    """``docs/results.md``."""
    runs = all_runs() if runs is None else runs
    benches = sorted({run.bench for run in runs})
    return "\n".join([INTRODUCTION, overview(runs, benches), *(section(bench, runs) for bench in benches)])


def overview(runs: Sequence[Run], benches: Sequence[str]) -> str:
    """A line for each benchmark: targets met, missed, not judged."""
    lines = ["| benchmark | what | targets met | missed | not judged |", "|---|---|---|---|---|"]
    for bench in benches:
        rows = [row for row, _ in current(of(bench, runs)).values() if row.target is not None]
        met, missed = (sum(row.ok is verdict for row in rows) for verdict in (True, False))
        lines.append(f"| [{bench}](#{bench}) | {about(bench)} | {met} | {missed} | {len(rows) - met - missed} |")
    return "\n".join(lines) + "\n"


def section(bench: str, runs: Sequence[Run]) -> str:
    """All of one benchmark: figures with a target by the run that they are of, then those without, then other runs."""
    own = of(bench, runs)
    counting = current(own)
    parts = [f"## {bench}\n", f"{about(bench)[0].upper()}{about(bench)[1:]}.\n"]
    rest = []
    for run in own:
        rows = [row for row, source in counting.values() if source is run]
        if rows:
            parts += of_run(run, [row for row in rows if row.target is not None], len(rows))
            rest += [(row, run) for row in rows if row.target is None and row.value is not None]
    if rest:
        parts += ["<details markdown=\"1\">", f"<summary>{len(rest)} figures without a target</summary>\n",
                  table(rest, judged=False), "</details>\n"]
    others = [run for run in own if not any(source is run for _, source in counting.values())]
    outdated = [run for run in own if run not in others and missed_before(run, counting)]
    if others or outdated:
        parts += ["Other runs that are kept:\n", *(f"- {line}" for run in (*outdated, *others)
                                                   for line in [earlier(run, counting)]), ""]
    return "\n".join(parts)


def of(bench: str, runs: Iterable[Run]) -> list[Run]:
    """The runs of one benchmark."""
    return [run for run in runs if run.bench == bench]


def of_run(run: Run, rows: Sequence[Row], count: int) -> list[str]:
    """What a run was, and its figures with a target."""
    note = [f"{run.note}\n"] if run.note else []
    if not rows:
        return [f"{described(run)} {count} figures, none with a target.\n", *note]
    return [f"{described(run)}\n", *note, table([(row, run) for row in rows])]


def described(run: Run) -> str:
    """Command, revisions, date, machine, file."""
    word = "revision " if len(run.revisions) == 1 else ""
    return (f"`{run.command}`: {word}{code_of(run)}, {run.date[:10]}, {run.machine} (`benchmarks/results/{run.file}`).")


def earlier(run: Run, counting: Mapping[str, tuple[Row, Run]]) -> str:
    """A run whose figures were measured anew, or that has none: what it missed is named."""
    missed = [f"`{row.name}` {number(row.value)} (target {target_of(row)})" for row in missed_before(run, counting)]
    verdict = f" Missed then: {'; '.join(missed)}." if missed else " No target was missed." if run.rows else ""
    return described(run) + verdict + (f" {run.note}." if run.note else "")


def missed_before(run: Run, counting: Mapping[str, tuple[Row, Run]]) -> list[Row]:
    """Targets that the run missed, where a newer measurement counts."""
    return [row for row in run.rows if row.ok is False and counting[row.name][1] is not run]


def table(rows: Sequence[tuple[Row, Run]], judged: bool = True) -> str:
    """Rows as Markdown, each with the revision that it was measured on."""
    if judged:
        lines = ["| figure | value | target | met | compared with, remarks | revision |", "|---|---|---|---|---|---|"]
    else:
        lines = ["| figure | value | compared with, remarks | revision |", "|---|---|---|---|"]
    for row, run in rows:
        value = f"{number(row.value)} {row.unit if row.unit != '1' else ''}".strip()
        verdict = [target_of(row), {True: "yes", False: "**no**", None: "not judged"}[row.ok]] if judged else []
        cells = [f"`{row.name}`", value, *verdict, cell(shortened(number(row.peer))), code_of(run)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def target_of(row: Row) -> str:
    """The target, with its direction where the figure shows it: a row does not say whether more is better."""
    target, value = row.target, row.value
    if isinstance(target, str) or target is None or value is None or row.ok is None or value == target:
        return cell(number(target))
    if target == 0 and not row.ok and value > 0:  # a count of what must not happen
        return "0"
    return f"{'≥' if (value > target) is row.ok else '≤'} {number(target)}"


def number(value: float | str | None) -> str:
    """A figure with three significant digits, in thousands of millions (G) or millions (M) where it is large; text as
    it is."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    for size, sign in ((1e9, " G"), (1e6, " M")):
        if abs(value) >= size:
            return f"{value / size:.3g}{sign}"
    return f"{value:,.0f}" if abs(value) >= 100 or float(value).is_integer() else f"{value:.3g}"


def shortened(text: str, most: int = 400) -> str:
    """``text``, or its beginning: the JSON has all of it."""
    return text if len(text) <= most else f"{text[:most]} ..."


def cell(text: str) -> str:
    """``text`` in a cell of a table."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;")


def code_of(run: Run) -> str:
    """The revision that was measured, with the mark of its age; of a study, how many there are."""
    first = short(run.revisions[0])
    return (first if len(run.revisions) == 1 else f"{len(run.revisions)} revisions") + MARKS[is_stale(run)]


def short(revision: str) -> str:
    """The first seven digits of a revision, with what else is said of it."""
    return re.sub(r"^([0-9a-f]{7})[0-9a-f]*(-dirty)?", lambda m: m[1] + (" with changes" if m[2] else ""), revision)


def about(bench: str) -> str:
    """What a benchmark measures: the first line of its module, which is not imported."""
    module = ROOT / "benchmarks/measurements" / bench.replace("-", "_")
    file = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
    summary = (ast.get_docstring(ast.parse(file.read_text())) or "").split("\n\n")[0]
    return summary.partition(": ")[2].rstrip(".").replace("\n", " ")


# ---------------------------------------------------------------- README


def headlines(runs: Sequence[Run] | None = None) -> str:
    """The table of the README, between its marks."""
    runs = all_runs() if runs is None else runs
    lines = ["| figure | measured | target | command |", "|---|---|---|---|"]
    for bench, name, what in HEADLINES:
        row, run = current(of(bench, runs))[name]
        value = f"{number(row.value)} {row.unit if row.unit not in ('1', '1/CPU-s') else ''}".strip()
        met = "" if row.ok is not False else ", missed"
        lines.append(f"| {what} | {value}{MARKS[is_stale(run)]} | {target_of(row)}{met} | `temporeal bench {bench}` |")
    return "\n".join([BEGIN, *lines, "", "[All results](docs/results.md), with revision, date, machine and command of "
                      "each figure.", END])


def with_headlines(readme: str, block: str) -> str:
    """The README with this table between its marks."""
    if BEGIN not in readme:
        raise SystemExit(f"README.md has no place for the results: {BEGIN} ... {END}")
    return re.sub(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: block, readme, flags=re.DOTALL)


# ---------------------------------------------------------------- the command


def unmarked(text: str) -> str:
    """``text`` without marks of age."""
    return re.sub("|".join(re.escape(mark) for mark in MARKS.values() if mark), "", text)


def different() -> list[str]:
    """The files that differ from the results, marks of age left out."""
    readme = README.read_text()
    wanted = {PAGE: page(), README: with_headlines(readme, headlines())}
    return [str(path.relative_to(ROOT)) for path, text in wanted.items()
            if not path.is_file() or unmarked(path.read_text()) != unmarked(text)]


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page and the table, or check them."""
    p = argparse.ArgumentParser("python -m temporeal_benchmarks.results_page",
                                description="Write docs/results.md and the results table of README.md.")
    p.add_argument("--check", action="store_true", help="write nothing; exit status 1 where a file differs")
    if p.parse_args(argv).check:
        if found := different():
            print(f"{', '.join(found)}: not what benchmarks/results says; `make results` writes it", file=sys.stderr)
        return int(bool(found))
    PAGE.write_text(page())
    README.write_text(with_headlines(README.read_text(), headlines()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
