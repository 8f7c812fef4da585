"""``temporeal eval``: evaluate a policy, as a gate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import (
    Parser,
    add_json,
    add_overrides,
    add_overwrite,
    add_trust,
    counter,
    print_json,
    say,
)
from temporeal.policies.runs.errors import FAILED, OK, BadInput

if TYPE_CHECKING:
    from temporeal.policies.evaluate.evaluation import Evaluation
    from temporeal.policies.evaluate.judging import Judged
    from temporeal.policies.runs.trained import Trained

SUMMARY = "judge a run or an artifact: P(satisfied) with interval, as a gate"
HELP = """\
Runs fresh, randomized episodes with the deterministic policy and judges each by the task's formula: probability of
satisfaction with its Clopper-Pearson interval, robustness, which clause fails first, slack to the deadlines, effort.
Writes report.json and report.html (plots and a 3-D replay; opens offline) into RUN/eval or --out.
An artifact is evaluated through its own graph, as it is deployed; its golden trace is replayed first.
A policy for any formula (algo=generalist) flies fresh formulas of a family, each once, judged by the exact robustness,
under the run's randomization or the one that is named (randomize=none).
A pretrained model of another library (a local folder of LeRobot's) is served by a process of its own environment; --map
names the file that maps its inputs and actions (docs/how-to/pretrained-models.md), settings say the task.

Exit status: 0 every requirement is met, 1 one is not, 2 bad input.

Example:
  temporeal eval outputs/train/waypoints-ppo-1 --episodes 1000 --require 0.95
  temporeal eval outputs/train/waypoints-ppo-1 --backend quadrotor --backend mujoco
  temporeal eval outputs/artifact --backend mujoco --require-lower 0.9 randomize=none
  temporeal eval models/smolvla_pushes --map pushes.yaml task=tabletop --episodes 20
"""


IGNORED = {
    "num_worlds": "--episodes N is how many are flown, side by side", "processes": "it runs in one process",
    "resume": "a run is judged as it is", "out": "--out FOLDER is where the report goes"}
"""Settings of a training that an evaluation does not read, and what it has instead."""


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("eval", HELP)
    p.add_argument("policy", type=Path, metavar="RUN_OR_ARTIFACT", help="folder of a run, an artifact or a model")
    add_overrides(p)
    p.add_argument("--episodes", type=int, default=1000, help="episodes per simulator (%(default)s)")
    p.add_argument("--backend", action="append", help="simulator, may be repeated (default: the run's)")
    p.add_argument("--require", type=float, metavar="P", help="pass if the estimate of P(satisfied) is at least this")
    p.add_argument("--require-lower", type=float, metavar="P", help="pass if the interval's lower end is at least this")
    p.add_argument("--confidence", type=float, default=0.95, help="of the interval (%(default)s)")
    p.add_argument("--seed", type=int, help="of the evaluation (default: one that training never uses)")
    p.add_argument("--out", type=Path, metavar="FOLDER", help="folder of the report")
    p.add_argument("--family", help="of a run of algo=generalist: formulas to fly (validation)")
    p.add_argument("--map", type=Path, metavar="FILE", help="of a pretrained model: how it is connected")
    p.add_argument("--python", help="of a pretrained model: the interpreter of an environment of your own")
    p.add_argument("--backbone", type=Path, metavar="FOLDER", help="of a pretrained model: its language model's folder")
    p.add_argument("--answer-s", type=float, default=60.0, metavar="S", help="of a pretrained model: seconds")
    add_overwrite(p)
    add_trust(p)
    add_json(p)
    return p


def run(argv: Sequence[str]) -> int:
    """Evaluate on every named simulator, write the report, apply the gate."""
    options = parser().parse_intermixed_args(argv)  # before anything slow is imported: --help is at once
    from temporeal.policies.runs import evaluating, run_folders, trained
    from temporeal.policies.runs.any_formula import evaluation as formula_evaluation
    from temporeal.policies.runs.settings.compose import override

    check(options)
    evaluating.check_backends(options.backend)
    config = evaluating.EvaluationConfig(options.episodes, options.confidence, options.seed)
    policy = served(options) if options.map else trained.load_trained(options.policy, options.trust)
    if policy.artifact is None and policy.served is None and formula_evaluation.is_generalist(policy.settings):
        return of_formulas(options, policy)
    if options.family is not None:
        raise BadInput(f"--family {options.family}: of runs of algo=generalist, whose policies fly any formula")
    settings = policy.settings if options.map else override(policy.settings, options.overrides)
    if not options.json and (note := evaluating.caveat(settings)):
        say(note)
    folder = Path(options.out) if options.out else policy.results("eval")
    run_folders.check_writable(folder)
    judged: dict[str, Judged] = {}
    for backend in evaluating.backends_of(settings, options.backend):
        found = evaluating.evaluate_on(policy, settings, backend, config, counter(f"{backend}, step"))
        judged[backend] = found
        if not options.json:
            say(describe(evaluating.BACKEND_TITLES.get(backend, backend), found.evaluation, found.seconds))
            if found.pairs is not None:
                say(f"  {found.pairs.said()}")
    report = evaluating.write_report(settings, judged, folder, options.require, policy.folder)
    return outcome(options, judged, report.html)


def of_formulas(options: Any, policy: Trained) -> int:
    """Judge a policy for any formula by formulas of a family."""
    from dataclasses import asdict

    from temporeal.policies.runs.any_formula import evaluation as formula_evaluation

    if options.backend or options.out:
        raise BadInput("a policy for any formula is judged on formulas of its own simulator, without a page: leave "
                       "--backend and --out out; --family and --episodes say which formulas")
    found = formula_evaluation.evaluate(policy.folder, policy.settings, options.family or "validation",
                                        options.episodes, options.confidence, options.seed, options.overrides)
    least = {"require": found.satisfied / found.trials, "require_lower": found.low}
    passed = all(getattr(options, name) is None or value >= getattr(options, name) for name, value in least.items())
    if options.json:
        print_json({"passed": passed, **asdict(found)})
    else:
        say("\n".join([*found.lines(), verdict(options, passed)]))
    return OK if passed else FAILED


def served(options: Any) -> Trained:
    """The pretrained model, with the settings of the task that it is judged on."""
    from temporeal.policies.runs.pretrained.serving import Served, told, where
    from temporeal.policies.runs.settings.compose import compose
    from temporeal.policies.runs.trained import Trained

    if options.trust:
        raise BadInput("--trust is of signed artifacts; nobody signs a pretrained model: leave it out")
    task = compose(options.overrides)
    found = Served(options.policy, options.map, options.python, options.backbone, task["device"], options.answer_s)
    algo = found.settings()
    with told():
        where(found)  # an environment that is missing is said before worlds are built
    return Trained(options.policy, {**task, "algo": algo}, served=found)


def check(options: Any) -> None:
    """Refuse what would fail or be ignored, before anything slow."""
    from temporeal.policies.runs import run_folders, trained
    from temporeal.policies.runs.artifacts import is_artifact
    from temporeal.policies.runs.pretrained.serving import looks_pretrained
    from temporeal.policies.runs.replacing import REPORT, refuse_to_replace
    from temporeal.policies.runs.settings.compose import check_parts

    refuse_to_replace(options.out, options.overwrite, files=REPORT)
    for word in options.overrides:
        key = word.partition("=")[0]
        if key in IGNORED:
            raise BadInput(f"{word}: an evaluation has no use for it; {IGNORED[key]}")
        if options.map and key.partition(".")[0] == "algo":
            raise BadInput(f"{word}: a pretrained model has no such settings; {options.map} says how its chunks are "
                           "played")
    if not options.map:
        if looks_pretrained(options.policy):
            raise BadInput(f"{options.policy} is a pretrained model: --map FILE says which signals it reads and what "
                           "its actions do; see docs/how-to/pretrained-models.md")
        trained.require_trained(options.policy)
        if not is_artifact(options.policy):
            check_parts(run_folders.read_run(options.policy), options.overrides)
    for name in ("require", "require_lower", "confidence"):
        value = getattr(options, name)
        if value is not None and not 0 <= value <= 1:
            raise BadInput(f"--{name.replace('_', '-')} is a probability between 0 and 1, got {value}")


def outcome(options: Any, judged: dict[str, Judged], page: Path) -> int:
    """Print the outcome; the exit status."""
    from temporeal.policies.evaluate.evaluation import gate, to_json

    passed = all(gate(found.evaluation, options.require, options.require_lower) for found in judged.values())
    if options.json:
        figures: dict[str, Any] = {
            key: {**to_json(found.evaluation), **({} if found.pairs is None else {"base": found.pairs.to_json()})}
            for key, found in judged.items()}
        print_json({"passed": passed, "report": page, **figures})
    else:
        say(f"{page}\n{verdict(options, passed)}")
    return OK if passed else FAILED


def describe(title: str, e: Evaluation, seconds: float) -> str:
    """The evaluation on one simulator in a few lines."""
    p = e.satisfied
    lines = [f"{title}: satisfied {p.successes} of {p.trials} = {p.estimate:.3f}, "
             f"{p.confidence:.0%} interval [{p.low:.3f}, {p.high:.3f}], {seconds:.1f} s"]
    quantiles = ", ".join(f"{q:.0%}: {value:.3f}" for q, value in e.robustness.quantiles.items())
    lines.append(f"  robustness {quantiles}")
    lines += [f"  {c.satisfied.estimate:7.1%}  first to fail {c.first_to_fail:4}  {c.label}" for c in e.clauses]
    lines += [f"  {g.reached.estimate:7.1%}  in time, " + (f"with {g.slack_s.median:.3g} s left (median)"
                                                            if g.reached.successes else "never") + f"  {g.label}"
              for g in e.subgoals]
    if p.successes:
        lines.append(f"  slack of the satisfied: {e.delay_s.median:.3g} s (median), {e.delay_s.quantiles[0.0]:.3g} s "
                     f"(least): the delay that they could still take")
    return "\n".join(lines)


def verdict(options: Any, passed: bool) -> str:
    """The gate in words."""
    asked = [f"{what} >= {value}" for what, value in (("P(satisfied)", options.require),
                                                     ("lower end", options.require_lower)) if value is not None]
    if not asked:
        return "judged (no requirement given: --require 0.95 makes this a gate)"
    return f"{'passed' if passed else 'FAILED'}: {' and '.join(asked)}"
