"""A formula on a dataset: which episodes satisfy which clause, from when, and how often with what interval."""

from __future__ import annotations

import math
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from temporeal.policies.cli.console import print_json, say
from temporeal.policies.cli.specs.formulas import formula_on
from temporeal.policies.cli.specs.spec_file import Spec, semantics_of
from temporeal.policies.runs.errors import BAD_INPUT, FAILED, OK, BadInput

if TYPE_CHECKING:
    from temporeal.policies.data.curation.robustness import Judgement, Table
    from temporeal.sim.stl.language.propositional import Formula

INFO = Path("meta") / "info.json"
ACTIONS = ("check", "monitor")
WORDS = {1: "satisfied", -1: "violated", 0: "undecided"}
LISTED = 10
"""Episodes that are named on the terminal; --json has them all."""


def is_dataset(path: Path) -> bool:
    """Whether ``path`` is the folder of a dataset."""
    try:
        return (path / INFO).is_file()
    except OSError:  # a formula may be too long for a name
        return False


def on_dataset(action: str, spec: Spec, path: Path, options: Namespace) -> int:
    """Check or monitor every episode of the dataset ``path``."""
    from temporeal.policies.data.curation.robustness import judge, table_of
    from temporeal.policies.data.episodes.dataset import Dataset
    from temporeal.sim.stl.language.errors import FormulaError
    from temporeal.sim.stl.language.queries import horizon

    check_options(action, options)
    data = Dataset.open(path)
    table = table_of(data, options.truth)
    formula = formula_of_set(spec, table)
    try:
        bounded = math.isfinite(horizon(formula, table.dt))  # a formula without an end is judged by the whole episode
        found = judge(formula, table, semantics_of(spec), partial=options.partial or (action == "monitor" and bounded),
                      unknown=options.missing == "unknown", when=action == "monitor")
    except FormulaError as error:
        raise BadInput(f"{spec.source}: {error}; {path} has a sample each {table.dt:g} s") from error
    words = [record.language for record in data.records]
    if options.json:
        print_json(as_json(found, formula, table, words))
    else:
        say("\n".join(as_text(found, str(path))))
    return BAD_INPUT if (found.verdicts == 0).any() else FAILED if (found.verdicts < 0).any() else OK


def check_options(action: str, options: Namespace) -> None:
    """A dataset has its own grid and names: options of traces would be ignored."""
    if action not in ACTIONS:
        raise BadInput(f"spec {action}: of a dataset, give one episode by --episode N, or check or monitor them all")
    given = {"--dt": options.dt, "--resample": options.resample, "--from": options.begin, "--to": options.end_s,
             "--map": options.maps, "--robot": options.robot, "--rename": options.renames, "--series": options.series,
             "--stale-after": options.stale, "--until-decided": options.until_decided}
    if ignored := [name for name, value in given.items() if value]:
        raise BadInput(f"{ignored[0]} is for a trace: a dataset has its own rate and names")


def formula_of_set(spec: Spec, table: Table) -> Formula:
    """The formula over the signals of a dataset, and the time since an episode's start."""
    from temporeal.policies.data.curation.robustness import TIME

    known = {**table.signals, TIME.name: TIME}
    return formula_on(spec, known, list(known), table.source)


def share(verdicts: np.ndarray) -> dict[str, Any]:
    """How many of the episodes that have a verdict are satisfied, with the 95 % interval of the share."""
    from temporeal.policies.evaluate.statistics import proportion

    decided = verdicts[verdicts != 0]
    counts = {word: int((verdicts == sign).sum()) for sign, word in WORDS.items()}
    if not len(decided):
        return {**counts, "share": None, "low": None, "high": None, "confidence": None}
    found = proportion(decided > 0)
    return {**counts, "share": found.estimate, "low": found.low, "high": found.high, "confidence": found.confidence}


def as_json(found: Judgement, formula: Formula, table: Table, words: list[str]) -> dict[str, Any]:
    """Everything, for machines; numbers that JSON lacks as text or null."""
    from temporeal.sim.stl.language.propositional import to_text

    def verdicts(signs: np.ndarray) -> list[str]:
        return [WORDS[int(sign)] for sign in signs]

    def times(rows: np.ndarray) -> list[Any] | None:
        return [number(x) for x in rows] if rows.shape[-1] else None

    clauses = [{"formula": text, **share(found.verdict[c]), "verdicts": verdicts(found.verdict[c]),
                "robustness": [number(x) for x in found.clauses[c]], "decided_s": times(found.decided_s[c])}
               for c, text in enumerate(found.texts)]
    return {"formula": to_text(formula), "dataset": table.source, "dt": table.dt, "episodes": len(table.lengths),
            **share(found.verdicts), "verdicts": verdicts(found.verdicts),
            "robustness": [number(x) for x in found.robustness],
            "decided_s": times(found.decided) if found.decided_s.shape[-1] else None,
            "ends_before_horizon": np.flatnonzero(found.short), "clauses": clauses, "language": words}


def number(x: float) -> float | str | None:
    """A number as JSON can hold it."""
    return float(x) if np.isfinite(x) else None if x != x else "inf" if x > 0 else "-inf"


def as_text(found: Judgement, source: str) -> list[str]:
    """The shares, clause by clause, and which episodes violate the formula."""
    lines = [f"{source}: {len(found.short)} episodes, {said_share(found.verdicts)}"]
    for c, text in enumerate(found.texts):
        lines += [f"  {text}", f"      {said_share(found.verdict[c])}{said_when(found, c)}"]
    finite = found.robustness[np.isfinite(found.robustness)]
    if len(finite):
        low, median, high = np.quantile(finite, (0.05, 0.5, 0.95))
        lines.append(f"robustness: median {median:.4g}, 5 % below {low:.4g}, 5 % above {high:.4g}")
    for sign, word in ((-1, "violated by"), (0, "undecided in")):
        if (these := np.flatnonzero(found.verdicts == sign)).size:
            more = f" and {len(these) - LISTED} more (--json lists them)" if len(these) > LISTED else ""
            lines.append(f"{word} episode{'s' * (len(these) > 1)} {', '.join(map(str, these[:LISTED]))}{more}")
    if found.short.any():
        lines.append(f"note: {int(found.short.sum())} episodes end before the formula's horizon")
    return lines


def said_share(verdicts: np.ndarray) -> str:
    """The share of episodes in words."""
    of = share(verdicts)
    open_ones = f", {of['undecided']} undecided" if of["undecided"] else ""
    if of["share"] is None:
        return f"all undecided ({of['undecided']})"
    return (f"satisfied by {of['satisfied']} of {of['satisfied'] + of['violated']}: {100 * of['share']:.1f} % "
            f"[{100 * of['low']:.1f}, {100 * of['high']:.1f}]{open_ones}")


def said_when(found: Judgement, c: int) -> str:
    """When the verdict of clause ``c`` is certain, in words."""
    if not found.decided_s.shape[-1]:
        return ""
    parts = [f"{word} from {np.median(times):.3g} s on (median; {times.min():.3g} to {times.max():.3g})"
             for sign, word in ((1, "satisfied"), (-1, "violated"))
             if (times := found.decided_s[c][found.verdict[c] == sign]).size]
    return f"; {', '.join(parts)}" if parts else ""
