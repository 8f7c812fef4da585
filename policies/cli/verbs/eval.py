"""``temporeal eval``: judge a policy with an interval, as a gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, add_overrides, counter, print_json, say
from temporeal.policies.runs.errors import FAILED, OK, BadInput

if TYPE_CHECKING:
    from temporeal.policies.evaluate.evaluation import Evaluation
    from temporeal.policies.evaluate.run_outputs import Judged
    from temporeal.robots.artifact.runtime import Artifact

SUMMARY = "judge a run or an artifact: P(satisfied) with interval, as a gate"
HELP = """\
Flies fresh, randomized episodes with the deterministic policy and judges each by the task's formula: probability of
satisfaction with its Clopper-Pearson interval, robustness, which clause fails first, slack to the deadlines, effort.
Writes report.json and report.html (plots and a 3-D replay; opens offline) into RUN/eval or --out.
An artifact is judged through its own graph, as it would fly; its recorded trace is replayed first.

Exit status: 0 every requirement is met, 1 one is not, 2 bad input.

Example:
  temporeal eval outputs/train/waypoints-ppo-1 --episodes 1000 --require 0.95
  temporeal eval outputs/train/waypoints-ppo-1 --backend quadrotor --backend mujoco
  temporeal eval outputs/artifact --backend mujoco --require-lower 0.9 randomize=none
"""
TITLES = {"quadrotor": "Own simulator (quadrotor)", "mujoco": "MuJoCo"}


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("eval", HELP)
    p.add_argument("policy", type=Path, metavar="RUN_OR_ARTIFACT", help="folder of a run or of an artifact")
    add_overrides(p)
    p.add_argument("--episodes", type=int, default=1000, help="episodes per simulator (%(default)s)")
    p.add_argument("--backend", action="append", help="simulator, may be repeated (default: the run's)")
    p.add_argument("--require", type=float, metavar="P", help="pass if the estimate of P(satisfied) is at least this")
    p.add_argument("--require-lower", type=float, metavar="P", help="pass if the interval's lower end is at least this")
    p.add_argument("--confidence", type=float, default=0.95, help="of the interval (%(default)s)")
    p.add_argument("--seed", type=int, help="of the evaluation (default: one that training never uses)")
    p.add_argument("--out", type=Path, metavar="FOLDER", help="folder of the report")
    add_json(p)
    return p


def run(argv: Sequence[str]) -> int:
    """Judge on every named simulator, write the report, apply the gate."""
    options = parser().parse_intermixed_args(argv)
    for name in ("require", "require_lower", "confidence"):
        value = getattr(options, name)
        if value is not None and not 0 <= value <= 1:
            raise BadInput(f"--{name.replace('_', '-')} is a probability between 0 and 1, got {value}")
    if options.confidence in (0, 1):
        raise BadInput(f"--confidence lies between 0 and 1, both excluded, got {options.confidence}")
    if options.episodes < 1:
        raise BadInput(f"--episodes is at least 1, got {options.episodes}")
    from temporeal.policies.evaluate.evaluation import gate, to_json
    from temporeal.policies.evaluate.run_outputs import make_report
    from temporeal.policies.runs import environments, run_folders, trained
    from temporeal.policies.runs.settings.compose import override
    from temporeal.robots.artifact.manifest import MANIFEST, POLICY

    is_artifact = any((options.policy / name).is_file() for name in (MANIFEST, POLICY))
    artifact = trained.load_artifact(options.policy) if is_artifact else None
    settings = trained.artifact_settings(options.policy, artifact) if artifact else run_folders.load_run(options.policy)
    settings = override(settings, options.overrides)
    if not options.json and (note := left_out(settings)):
        say(note)
    folder = report_folder(options, is_artifact)
    run_folders.check_writable(folder)
    task = environments.make_task(settings)
    judged: list[tuple[str, Judged]] = []
    for backend in dict.fromkeys(options.backend or [settings["backend"]["name"]]):
        found = judge(settings, artifact or options.policy, backend, options)
        judged.append((backend, found))
        if not options.json:
            say(describe(TITLES.get(backend, backend), found.evaluation, found.seconds))
    rows = [(key, TITLES.get(key, key), found.evaluation, found.rollout) for key, found in judged]
    report = make_report(task, rows, folder, require=options.require, settings=settings)
    passed = all(gate(found.evaluation, options.require, options.require_lower) for _, found in judged)
    if options.json:
        figures: dict[str, Any] = {key: to_json(found.evaluation) for key, found in judged}
        print_json({"passed": passed, "report": report.html, **figures})
    else:
        say(f"{report.html}\n{verdict(options, passed)}")
    return OK if passed else FAILED


def judge(settings: dict[str, Any], policy: Path | Artifact, backend: str, options: Any) -> Judged:
    """Fresh episodes of an artifact, or of the policy of the run in a folder, on ``backend``."""
    import time
    from functools import partial

    from temporeal.policies.evaluate.evaluation import evaluate
    from temporeal.policies.evaluate.full_horizon import lasting
    from temporeal.policies.evaluate.measurement_recorder import witnessed
    from temporeal.policies.evaluate.rollout import graph_policy, rollout
    from temporeal.policies.evaluate.run_outputs import EVALUATION_SEED, Judged, reference_of
    from temporeal.policies.runs import environments, trained

    seed = settings["seed"] + EVALUATION_SEED if options.seed is None else options.seed
    task = environments.make_task(settings)
    make_env = partial(environments.make_env, settings, num_worlds=options.episodes, backend=backend, seed=seed)
    if isinstance(policy, Path):
        graph = trained.load_graph(settings, policy, task)
        env, act = make_env(task=trained.shown_to(graph, task)), graph_policy(graph)
    else:
        env = make_env(task=lasting(witnessed(task, policy.schema)))
        act = trained.artifact_policy(policy, env)
    started = time.perf_counter()
    found = rollout(env, act, progress=counter(f"{backend}, step"))
    seconds = time.perf_counter() - started
    evaluation = evaluate(found, task.formula, reference=reference_of(task), confidence=options.confidence)
    return Judged(evaluation, found, seconds)


def left_out(settings: Mapping[str, Any]) -> str:
    """What the algorithm has besides the policy that is judged; empty where the policy is all."""
    if (settings.get("algo") or {}).get("name") != "npc":
        return ""
    from temporeal.policies.algos.npc import JUDGED_WITHOUT

    return f"algo=npc: {JUDGED_WITHOUT}"


def report_folder(options: Any, is_artifact: bool) -> Path:
    """Where the report goes: an artifact is sealed, so its report lies beside it."""
    if options.out:
        return Path(options.out)
    folder: Path = options.policy
    return folder.with_name(f"{folder.name}-eval") if is_artifact else folder / "eval"


def describe(title: str, e: Evaluation, seconds: float) -> str:
    """A few lines for a person."""
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
                     f"(least): so much later everything could have been")
    return "\n".join(lines)


def verdict(options: Any, passed: bool) -> str:
    """The gate in words."""
    asked = [f"{what} >= {value}" for what, value in (("P(satisfied)", options.require),
                                                     ("lower end", options.require_lower)) if value is not None]
    if not asked:
        return "judged (no requirement given: --require 0.95 makes this a gate)"
    return f"{'passed' if passed else 'FAILED'}: {' and '.join(asked)}"
