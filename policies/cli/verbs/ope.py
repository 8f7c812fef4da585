"""``temporeal ope``: how good policies are, from recorded episodes alone, before any of them runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from math import isfinite, isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, print_json, say
from temporeal.policies.cli.specs.dataset_options import add_formula, formula_given
from temporeal.policies.runs.errors import FAILED, OK, BadInput

if TYPE_CHECKING:
    from temporeal.policies.evaluate.ope.estimates import Estimate
    from temporeal.policies.runs.off_policy import Estimated

ESTIMATORS = ("fqe", "model", "is", "wis", "pdis", "wpdis", "dr", "wdr")
SUMMARY = "estimate policies from recorded episodes alone; a gate before an update"
HELP = """\
Off-policy evaluation: what the policies of runs would achieve, estimated from a dataset that another policy made, each
with an interval. By default P(satisfied): of the task's formula, of --formula, or as the episodes were judged; with
--return, the return of the data's rewards.

Estimators: fqe (fitted Q evaluation), model (learned dynamics, whose episodes the formula itself judges), importance
sampling: trajectory-wise (is), per-decision (pdis), doubly robust (dr), and each self-normalized (wis, wpdis, wdr). The
density of the data's policy is cloned. "effective" is the number of episodes that the weights of importance sampling
are worth: below 10, believe model. Where a policy leaves the data, fqe says nothing: its interval is all that is
possible, and it passes no gate.

--gate PARENT lets an update through: it passes if, by every estimator asked for, the policy is better than PARENT (a
run, or the word data: the policy that made the data) with the stated confidence.

Exit status: 0 estimated, and the gate passed if there is one; 1 it did not; 2 bad input.

Example:
  temporeal ope outputs/train/reach-iql-1 outputs/train/reach-bc-1 dataset=logs
  temporeal ope outputs/train/reach-iql-2 dataset=logs --gate outputs/train/reach-iql-1 --confidence 0.95
"""


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("ope", HELP)
    p.add_argument("words", nargs="+", metavar="RUN... dataset=SET", help="folders of runs, and of the dataset")
    add_formula(p, "what is judged instead of the task's formula")
    p.add_argument("--return", dest="returns", action="store_true", help="estimate the return, not P(satisfied)")
    p.add_argument("--discount", type=float, default=1.0, help="of the return, per step (%(default)s)")
    p.add_argument("--estimators", default="model,fqe,wpdis,wdr", metavar="A,B", help="of them (%(default)s)")
    p.add_argument("--gate", default="", metavar="PARENT", help="a run, or data: pass only what is better than this")
    p.add_argument("--confidence", type=float, default=0.95, help="of intervals and gate (%(default)s)")
    p.add_argument("--rule", choices=("t", "bootstrap"), default="t", help="of the gate's lower bound (%(default)s)")
    p.add_argument("--updates", type=int, default=1, metavar="N",
                   help="gated updates that the confidence covers together (%(default)s)")
    p.add_argument("--std", type=float, default=0.1,
                   help="noise that gives a policy its density, of the action's half range (%(default)s)")
    p.add_argument("--seed", type=int, default=0, help="of the fits and the resampling (%(default)s)")
    add_json(p)
    return p


def run(argv: Sequence[str]) -> int:
    """Estimate, print, apply the gate."""
    options = parser().parse_intermixed_args(argv)
    folders, dataset = named(options.words)
    check(options)
    names = estimators_of(options)
    from temporeal.policies.data.curation.robustness import table_of
    from temporeal.policies.evaluate.ope.evaluator import OPEConfig
    from temporeal.policies.runs import off_policy
    from temporeal.policies.runs.offline import open_dataset

    episodes = open_dataset(dataset)
    formula, semantics = formula_given(options, table_of(episodes))
    asked = off_policy.Asked(names, options.returns, None if formula is None else (formula, semantics),
                             options.gate)
    config = OPEConfig(discount=options.discount, std=options.std, seed=options.seed)
    if not options.returns:
        config = replace(config, least=0.0, most=1.0)
    found = off_policy.evaluate(folders, episodes, asked, config)
    return outcome(options, found)


def named(words: Sequence[str]) -> tuple[list[Path], Path]:
    """The runs, and the dataset."""
    from temporeal.policies.runs import offline

    sets = [offline.named(word) for word in words if word.startswith("dataset=")]
    runs = [Path(word) for word in words if not word.startswith("dataset=")]
    if len(sets) != 1 or not sets[0]:
        raise BadInput("name one dataset: dataset=FOLDER")
    if not runs:
        raise BadInput("name the runs whose policies are estimated")
    return runs, Path(sets[0])


def check(options: Any) -> None:
    """The numbers lie where they must."""
    if not 0.0 < options.confidence < 1.0:
        raise BadInput(f"--confidence lies between 0 and 1, got {options.confidence}")
    if not 0.0 < options.discount <= 1.0:
        raise BadInput(f"--discount lies in (0, 1], got {options.discount}")
    if options.discount < 1.0 and not options.returns:
        raise BadInput("--discount is of --return: a probability is not discounted")
    if options.std <= 0.0:
        raise BadInput(f"--std is positive, got {options.std}")
    if options.updates < 1:
        raise BadInput(f"--updates is at least 1, got {options.updates}")


def estimators_of(options: Any) -> tuple[str, ...]:
    """The estimators that are asked for."""
    names = tuple(options.estimators.split(","))
    if unknown := [name for name in names if name not in ESTIMATORS]:
        raise BadInput(f"--estimators: unknown: {', '.join(unknown)}; legal: {', '.join(ESTIMATORS)}")
    return names


def outcome(options: Any, found: Estimated) -> int:
    """Print the estimates and the gate's verdicts; the exit status."""
    verdicts = {run: gated(options, estimates, found.parent) for run, estimates in found.runs.items()}
    passed = all(v.accepted for of_run in verdicts.values() for v in of_run.values())
    if options.json:
        print_json({"passed": passed, "value": "return" if options.returns else "satisfied",
                    "data": figures(found.of_the_data, options.confidence),
                    "runs": {run: {name: figures(e, options.confidence) for name, e in estimates.items()}
                             for run, estimates in found.runs.items()},
                    "gate": {run: {name: asdict(v) for name, v in of_run.items()} for run, of_run in verdicts.items()}})
    else:
        say(f"the data's own policy: {said(found.of_the_data, options.confidence)}")
        for run, estimates in found.runs.items():
            say("\n".join([run, *(f"  {name:6} {said(e, options.confidence)}" for name, e in estimates.items()),
                           *(f"  gate by {name}: {'passed' if v.accepted else 'FAILED'}: {v.why}"
                             for name, v in verdicts[run].items())]))
    return OK if passed else FAILED


def gated(options: Any, estimates: dict[str, Estimate], parent: dict[str, Estimate]) -> dict[str, Any]:
    """The gate's verdict by estimator; none without a parent."""
    from temporeal.policies.evaluate.ope.gate import gate, share_of

    confidence = share_of(options.confidence, options.updates)
    return {name: gate(estimates[name], of_parent, confidence, rule=options.rule)
            for name, of_parent in parent.items()}


def figures(estimate: Estimate, confidence: float) -> dict[str, float | None]:
    """For --json."""
    low, high = estimate.interval(confidence)
    said = {"value": estimate.value, "low": low, "high": high, "confidence": confidence,
            "effective": estimate.effective, "outside": estimate.outside}
    return {name: value if isfinite(value) else None for name, value in said.items()}  # JSON knows no infinity


def said(estimate: Estimate, confidence: float) -> str:
    """One line."""
    low, high = estimate.interval(confidence)
    leaves = "" if isnan(estimate.outside) else f", leaves the data in {estimate.outside:.0%} of their states"
    return (f"{estimate.value:.3f}, {confidence:.0%} interval [{low:.3f}, {high:.3f}], "
            f"{estimate.effective:.1f} effective episodes{leaves}")
