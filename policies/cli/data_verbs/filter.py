"""``temporeal data filter``: the episodes that meet conditions, as a new dataset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, counter
from temporeal.policies.cli.specs.dataset_options import add_formula, add_out, formula_given, written
from temporeal.policies.runs.errors import FAILED, OK, BadInput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from temporeal.policies.data.episodes.dataset import Dataset

SUMMARY = "take episodes by formula, return, success, progress"
HELP = """\
Writes the episodes of a dataset that meet all conditions into a new one. With --formula alone, those that satisfy it;
with --robustness or --progress, those whose robustness, or share of timed subgoals hit, is as asked. --model RUN is a
model of progress (temporeal data progress): --voc, --negative and --final are what it says of an episode's order, the
share of the steps in which its value falls, and its last value.

Exit status: 0 some episodes are left, 1 none (nothing is written), 2 bad input.

Example:
  temporeal data filter demos --formula mission.stl --out good
  temporeal data filter demos --return '>=20' --success yes --out good
  temporeal data filter demos --formula mission.stl --top 0.3 --by robustness --out best
  temporeal data filter demos --model outputs/train/push-vlac-1 --voc '>=0.8' --final '>=0.7' --out orderly
  temporeal data filter demos --without 11,46 --out whole
"""

MODEL = {"voc": "rank correlation of value and time", "negative": "share of the steps in which the value falls",
         "final": "last value"}


def add(parser: Parser) -> None:
    """Options."""
    parser.add_argument("folder", type=Path, metavar="SET", help="the dataset's folder")
    add_out(parser)
    add_formula(parser, "what episodes must satisfy")
    for name, what in (("robustness", "robustness of the formula"), ("progress", "share of its timed subgoals hit"),
                       ("return", "sum of the rewards"), ("length", "duration in s")):
        parser.add_argument(f"--{name}", metavar="'>=X'", help=f"{what}: a comparison and a number")
    parser.add_argument("--model", type=Path, metavar="RUN", help="a model of progress")
    for name, what in MODEL.items():
        parser.add_argument(f"--{name}", metavar="'>=X'", help=f"{what}, by --model: a comparison and a number")
    parser.add_argument("--success", choices=("yes", "no"), help="episodes that were judged so")
    parser.add_argument("--language", metavar="TEXT", help="episodes with this in their instruction")
    parser.add_argument("--without", metavar="N,N", help="all but the episodes of these numbers, from 0")
    parser.add_argument("--top", type=float, metavar="SHARE", help="of those that are left, this share, the best first")
    parser.add_argument("--by", choices=("return", "robustness"), default="return", help="what is best (%(default)s)")
    add_json(parser)


def run(options: Any) -> int:
    """Write the episodes."""
    import numpy as np

    from temporeal.policies.data.curation.copying import originals, own_interface, write
    from temporeal.policies.data.curation.robustness import table_of
    from temporeal.policies.data.curation.selection import masks
    from temporeal.policies.data.episodes.dataset import Dataset

    data = Dataset.open(options.folder)
    formula, semantics = formula_given(options, table_of(data))
    met = {**by_number(options, data), **by_model(options, data), **masks(data, wanted(options, formula), semantics)}
    chosen = np.flatnonzero(np.logical_and.reduce(list(met.values())))
    result = {"out": options.out, "episodes": len(chosen), "of": data.episodes,
              "met": {name: int(mask.sum()) for name, mask in met.items()}}
    if len(chosen):
        write(options.out, own_interface(data), originals(data, chosen), said(options), counter("episodes"),
              len(chosen))
    written(options, result)
    return OK if len(chosen) else FAILED


def by_number(options: Any, data: Dataset) -> dict[str, NDArray[np.bool_]]:
    """[E] by condition: which episodes are not among those to be left out."""
    if options.without is None:
        return {}
    import numpy as np

    try:
        numbers = [int(part) for part in options.without.split(",")]
    except ValueError:
        raise BadInput(f"--without: numbers of episodes, as in 11,46; got {options.without!r}") from None
    if absent := [number for number in numbers if not 0 <= number < data.episodes]:
        raise BadInput(f"--without {absent[0]}: the dataset's episodes are 0 to {data.episodes - 1}")
    return {"without": ~np.isin(np.arange(data.episodes), numbers)}


def by_model(options: Any, data: Dataset) -> dict[str, NDArray[np.bool_]]:
    """[E] by condition: which episodes meet those of the model of progress."""
    rules = {name: getattr(options, name) for name in MODEL if getattr(options, name) is not None}
    if options.model is None and not rules:
        return {}
    if options.model is None or not rules:
        raise BadInput("--voc, --negative and --final are what a --model RUN says: give the model, and one or more of "
                       "them")
    import numpy as np

    from temporeal.policies.data.curation.selection import condition
    from temporeal.policies.evaluate.progress_models import judged
    from temporeal.policies.runs.offline import task_of
    from temporeal.policies.runs.progress import done_at, load_progress

    checked = {name: condition(text, f"--{name}") for name, text in rules.items()}
    task = task_of(data)
    done = None if task is None else done_at(data, task)
    found = list(judged(load_progress(options.model), data, range(data.episodes), done=done))
    return {name: rule(np.array([getattr(one, name) for one in found])) for name, rule in checked.items()}


def wanted(options: Any, formula: Any) -> Any:
    """The conditions of the options."""
    from temporeal.policies.data.curation.selection import Wanted, condition

    def rule(name: str) -> Any:
        text = getattr(options, name)
        return None if text is None else condition(text, f"--{name}")

    by_robustness = options.top is not None and options.by == "robustness"
    of_formula = options.robustness or options.progress or by_robustness
    if of_formula and formula is None:
        raise BadInput("--robustness, --progress and --by robustness are those of a --formula")
    if formula is None and not any((getattr(options, "return"), options.length, options.success, options.language,
                                    options.top, options.model, options.without)):
        raise BadInput("no condition is given; --formula, --return, --length, --success, --language, --top, --model, "
                       "--without")
    success = None if options.success is None else options.success == "yes"
    return Wanted(formula, formula is not None and not of_formula, rule("robustness"), rule("progress"), rule("return"),
                  rule("length"), success, options.language, options.top, by_robustness)


def said(options: Any) -> str:
    """What was asked for, for the new set's ``about``."""
    names = ("formula", "robustness", "progress", "return", "length", "success", "language", "without", "model", *MODEL,
             "top")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    return f"filter of {options.folder.name}: " + ", ".join(f"{name} {value}" for name, value in given.items())
