"""``temporeal spec draw``, and ``check`` of what it wrote: sets of formulas that can be satisfied."""

from __future__ import annotations

import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, add_overwrite, counter, print_json, say
from temporeal.policies.runs.errors import FAILED, OK, BadInput, bad_input

if TYPE_CHECKING:
    from temporeal.sim.stl.distribution.settings import World

SUFFIX = ".jsonl"
MOST = 10_000_000
NAMED = 10
"""Faults that are printed; --json has all of them."""
HELP = """\
Draws formulas with regions, a start, and a witness: a trajectory that moves as the robot can and satisfies the formula
by the exact robustness. What cannot be certified is drawn again and counted. The same seed gives the same formulas, and
no two families share one. Names of robots, families and settings: configs/formulas.

  temporeal spec check FILE.jsonl ...   does all proofs of files again and draws each formula again; no formula may be
                                        in two of them

Example:
  temporeal spec draw --robot linear --family train --count 1000 --seed 1 --out formulas.jsonl
  temporeal spec draw --robot unicycle --family unseen --count 100 --out unseen.jsonl --json
  temporeal spec draw --robot my_world.yaml --families my_families.yaml --family patrols --count 10 --out my.jsonl
"""


def parser() -> Parser:
    """Options of ``spec draw``."""
    p = Parser("spec draw", HELP)
    p.add_argument("--robot", default="linear", metavar="NAME", help="whose formulas, or the .yaml of a world (linear)")
    p.add_argument("--family", default="train", metavar="NAME",
                   help="which missions: train, validation, unseen, deeper, crowded (train)")
    p.add_argument("--families", default="", metavar="FILE.yaml", help="families of your own")
    p.add_argument("--count", type=int, default=100, metavar="N", help="how many formulas (%(default)s)")
    p.add_argument("--seed", type=int, default=0, metavar="N", help="of the draws (%(default)s)")
    p.add_argument("--first", type=int, default=0, metavar="N", help="index of the first one, to go on (%(default)s)")
    p.add_argument("-o", "--out", type=Path, required=True, metavar="FILE.jsonl", help="the file to write")
    add_overwrite(p)
    add_json(p)
    return p


def draw(argv: Sequence[str]) -> int:
    """Draw a set and write it."""
    options = parser().parse_args(argv)
    if options.out.suffix != SUFFIX:
        raise BadInput(f"--out {options.out}: a file of formulas is {SUFFIX}")
    if options.out.is_dir():
        raise BadInput(f"--out {options.out} is a folder; a file is written")
    if not 1 <= options.count <= MOST:
        raise BadInput(f"--count is {options.count}; 1 to {MOST} are legal")
    from temporeal.policies.runs.replacing import refuse_to_replace

    refuse_to_replace(options.out, options.overwrite, "--out")
    with bad_input():
        return _drawn(options)


def _drawn(options: Namespace) -> int:
    from temporeal.sim.stl.distribution import drawing
    from temporeal.sim.stl.distribution.formula_sets import Header, by_kind, write
    from temporeal.sim.stl.distribution.settings import FAMILIES, family, world

    of, missions = world(options.robot), family(options.family, options.families or FAMILIES)
    _check_world(of, options.robot)
    counts: Counter[tuple[str, str]] = Counter()
    progress, began = counter("formulas"), time.perf_counter()

    def each() -> Iterator[drawing.Drawn]:
        for k in range(options.count):
            yield drawing.draw(of, missions, options.seed, options.first + k, counts)
            progress(k + 1, options.count)

    write(options.out, lambda: Header(of, missions, options.seed, by_kind(counts)), each())
    seconds, kinds = time.perf_counter() - began, by_kind(counts)
    if options.json:
        print_json({"file": options.out, "formulas": options.count, "robot": of.robot, "family": missions.name,
                    "seed": options.seed, "first": options.first, "counts": kinds, "seconds": seconds})
        return OK
    say(f"{options.out}: {options.count} formulas of family {missions.name} for {of.robot}, in {seconds:.1f} s")
    say("\n".join(_table(kinds)))
    if not of.exact:
        say(f"  {_stand_in(of)}")
    return OK


def _check_world(of: World, where: str) -> None:
    """Compare a world with its system, unless it is one that comes along: those agree, and need no simulator's code."""
    from temporeal.sim.stl.distribution.settings import comes_along

    if not comes_along(of):
        from temporeal.sim.task_parts.formula_worlds import check_world

        check_world(of, where)


def _stand_in(of: World) -> str:
    """What witnesses that are not the robot's own motion are."""
    return (f"witnesses are a point's that glides below {of.speed:g} m/s and {of.acceleration:g} m/s^2, not the motion "
            f"of {of.robot} itself")


def _table(kinds: Mapping[str, Mapping[str, int]]) -> list[str]:
    """A line for each kind: how many there are, how many were tried, and why others were not taken."""
    from temporeal.sim.stl.distribution.drawing import CERTIFIED

    lines = []
    for kind, outcomes in kinds.items():
        tried, taken = sum(outcomes.values()), outcomes.get(CERTIFIED, 0)
        why = ", ".join(f"{reason} {n}" for reason, n in outcomes.items() if reason != CERTIFIED)
        lines.append(f"  {kind:18} {taken:7} of {tried:7} tried ({taken / tried:.1%}){f': {why}' if why else ''}")
    return lines


def check(paths: Sequence[Path], options: Namespace) -> int:
    """Do the proofs of files again, and compare them: exit status 0 where all hold and no formula is in two places."""
    for path in paths:
        if not path.is_file():
            raise BadInput(f"{path} is not there; it is a file that temporeal spec draw wrote")
    known: dict[tuple[object, ...], str] = {}
    results = [_checked(path, known) for path in paths]
    if options.json:
        print_json(results[0] if len(results) == 1 else {"files": results})
    else:
        for result in results:
            _say_checked(result)
    return FAILED if any(result["faults"] or result["set_faults"] for result in results) else OK


def _checked(path: Path, known: dict[tuple[object, ...], str]) -> dict[str, Any]:
    """What a file has, and what of it does not hold; ``known``: where each formula was seen first."""
    from temporeal.sim.stl.distribution.checking import fault, not_whole, own_settings, unlike_its_seed
    from temporeal.sim.stl.distribution.formula_sets import read

    header, formulas = read(path)
    of, missions = header.world, header.family
    _check_world(of, f"{path}, world")
    kinds, counts = Counter[str](), Counter[tuple[str, str]]()
    faults, indices, least = list[dict[str, Any]](), list[int](), float("inf")
    for found in formulas:
        kinds[found.kind] += 1
        indices.append(found.index)
        least = min(least, found.robustness)
        here = f"{path}, index {found.index}"
        first = known.setdefault(found.identity(), here)
        wrongs = [f"it is {first}, too" if first != here else None, fault(found, of, missions.alternatives),
                  unlike_its_seed(found, of, missions, counts)]
        if wrong := [each for each in wrongs if each is not None]:
            faults.append({"index": found.index, "kind": found.kind, "fault": "; ".join(wrong)})
    if not kinds:
        raise BadInput(f"{path} has no formulas")
    return {"file": path, "robot": of.robot, "family": missions.name, "seed": header.seed, "exact": of.exact,
            "own_settings": own_settings(header), "formulas": kinds.total(),
            "kinds": dict(sorted(kinds.items())), "faults": faults, "set_faults": not_whole(header, indices, counts),
            "least_robustness": least, "stand_in": None if of.exact else _stand_in(of)}


def _say_checked(result: Mapping[str, Any]) -> None:
    total, faults = result["formulas"], result["faults"]
    say(f"{result['file']}: {total} formulas of family {result['family']} for {result['robot']}, seed {result['seed']}")
    say(f"  {', '.join(f'{kind} {count}' for kind, count in result['kinds'].items())}")
    if result["own_settings"]:
        say(f"  {' and '.join(result['own_settings'])}: settings of the file's own, not those of configs/formulas")
    if result["stand_in"]:
        say(f"  {result['stand_in']}")
    for wrong in result["set_faults"]:
        say(f"  {wrong}")
    for wrong in faults[:NAMED]:
        say(f"  index {wrong['index']}, {wrong['kind']}: {wrong['fault']}")
    if len(faults) > NAMED:
        say(f"  and {len(faults) - NAMED} more; --json has all of them")
    say(f"  {total - len(faults)} of {total} proofs hold; the least robustness that is said is "
        f"{result['least_robustness']:.3f} m")
