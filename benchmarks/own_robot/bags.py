"""Random bags with defects, judged by ``temporeal spec`` and by a reader that shares no line with it."""

from __future__ import annotations

import io
import json
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from temporeal.policies.cli.main import main
from temporeal_benchmarks.own_robot.bag_cases import MAPS, Case, case, text, write
from temporeal_benchmarks.own_robot.bag_reader import REFUSED, SATISFIED, VIOLATED, verdict
from temporeal_benchmarks.rows import Row, none_of

BAGS = 200


@dataclass(frozen=True)
class Judged:
    """One bag: what the independent reader says and why, and what ``temporeal spec`` does, with its message."""

    case: Case
    expected: str
    why: str
    found: str
    told: str

    @property
    def wrong(self) -> bool:
        """Whether a verdict was given that is not the right one."""
        return self.found in (SATISFIED, VIOLATED) and self.found != self.expected

    @property
    def other(self) -> bool:
        """Whether a verdict that the rules give was not given, or the program failed."""
        return not self.wrong and self.found != self.expected

    @property
    def misnamed(self) -> bool:
        """Whether a truncated file was called anything else."""
        return self.why == "truncated" and "truncated" not in self.told


def spec(made: Case, path: Path) -> tuple[str, str]:
    """What ``temporeal spec check`` says of a bag: a verdict, or that it refuses it; and its message."""
    maps = [word for name, field in MAPS.items() for word in ("--map", f"{name}={field}")]
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(["spec", "check", text(made.formula), str(path), *maps, *made.words, "--json"])
    try:
        return str(json.loads(out.getvalue())["verdict"]), out.getvalue()
    except ValueError:
        return (REFUSED if status == 2 else f"status {status}"), err.getvalue()


def judged(number: int, seed: int, folder: Path) -> Judged:
    """Bag ``number`` of a ``seed``, judged twice."""
    made = case(number, seed)
    path = write(made, folder)
    return Judged(made, *verdict(path, made.formula, made.words), *spec(made, path))


def all_of(numbers: range, seed: int = 0) -> list[Judged]:
    """Several bags, judged twice."""
    with TemporaryDirectory() as folder:
        return [judged(number, seed, Path(folder)) for number in numbers]


def rows(count: int = BAGS, seed: int = 0) -> list[Row]:
    """Wrong verdicts on random bags, refusals that the rules do not make, and truncated files called anything else."""
    found = all_of(range(count), seed)
    given = Counter(one.expected for one in found)
    peer = ", ".join(f"{number} {name}" for name, number in sorted(given.items()))
    name = "own_robot.bags"
    return [Row(name, len(found), "1", peer=f"seed {seed}; by the independent reader: {peer}"),
            none_of(f"{name}.wrong_verdicts", sum(one.wrong for one in found)),
            none_of(f"{name}.other_outcomes", sum(one.other for one in found)),
            none_of(f"{name}.truncated_misnamed", sum(one.misnamed for one in found))]
