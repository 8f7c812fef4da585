"""``temporeal falsify``: search for a flight that violates the formula, and replay it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, add_overrides, add_trust, counter, plain, print_json, say
from temporeal.policies.runs.errors import FAILED, OK, BadInput, bad_input
from temporeal.policies.runs.interrupts import Interrupted
from temporeal.policies.runs.settings.handed_over import described_by
from temporeal.robots.handed_over.files import lies_in

if TYPE_CHECKING:
    from temporeal.policies.evaluate.falsification import PolicyRollout
    from temporeal.policies.runs.trained import Trained, TrainedPolicy
    from temporeal.sim.stl.analysis.counterexample import Counterexample, Replay
    from temporeal.sim.stl.analysis.falsification import Falsification
    from temporeal.sim.stl.analysis.parameter_space import ParameterSpace

SUMMARY = "search for a flight that violates the formula; save and replay it"
HELP = """\
Searches for a start, physics, sensor errors and disturbances with which the policy violates the task's formula, by
CMA-ES or by sampling. The search space is what the task's reset and randomize draw from (--print-space writes it,
--space FILE replaces it). Writes falsification-<backend>.json and, if something was found,
counterexample-<backend>.npz into RUN/falsify or --out; if these exist, with -2, -3, ... Finding nothing proves nothing.
Ctrl-C and SIGTERM end the search after the current batch and write what was found.

--replay FILE flies a counterexample again and compares the trace bit by bit; with another RUN_OR_ARTIFACT it checks
whether that policy violates the formula, too.

Exit status: 0 no violation found (replayed: it is satisfied), 1 a violation, flights that ended undecided, or rollouts
that failed, 2 bad input, 130 and 143 interrupted.

Example:
  temporeal falsify outputs/train/waypoints-ppo-1 --budget 4000
  temporeal falsify outputs/train/waypoints-ppo-1 --backend mujoco --attack clauses --whole-budget
  temporeal falsify outputs/train/waypoints-ppo-1 --print-space > space.yaml
  temporeal falsify outputs/artifact --space space.yaml --method random
  temporeal falsify --replay outputs/train/waypoints-ppo-1/falsify/counterexample-quadrotor.npz
"""
METHODS, ATTACKS = ("cma", "random", "sobol", "lhs"), ("formula", "scaled", "clauses")


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("falsify", HELP)
    p.add_argument("policy", type=Path, nargs="?", metavar="RUN_OR_ARTIFACT", help="folder of a run or of an artifact")
    add_overrides(p)
    p.add_argument("--budget", type=int, default=2000, help="flights at most (%(default)s)")
    p.add_argument("--worlds", type=int, default=64, help="flights at once (%(default)s)")
    p.add_argument("--method", choices=METHODS, default="cma", help="%(choices)s (%(default)s)")
    p.add_argument("--attack", choices=ATTACKS, default="formula",
                   help="what is minimised: the formula's robustness, each clause in its own scale, or each clause by "
                        "a search of its own (%(default)s)")
    p.add_argument("--whole-budget", action="store_true", help="go on after the first violation: look for the worst")
    p.add_argument("--patience", type=int, metavar="N", help="end after N flights without a smaller robustness")
    p.add_argument("--fresh-noise", action="store_true", help="search over the sensors' noise too: each flight its own")
    p.add_argument("--space", type=Path, metavar="FILE", help="what to search, YAML (default: what eval draws from)")
    p.add_argument("--print-space", action="store_true", help="print the space as YAML and end")
    p.add_argument("--backend", help="simulator (default: the run's)")
    p.add_argument("--seed", type=int, help="of search and noise (default: one that training never uses)")
    p.add_argument("--out", type=Path, metavar="FOLDER", help="folder of the results")
    p.add_argument("--replay", type=Path, metavar="FILE", help="fly this counterexample again")
    add_trust(p)
    add_json(p)
    return p


def run(argv: Sequence[str]) -> int:
    """Search, or replay."""
    options = parser().parse_intermixed_args(argv)
    if options.policy is not None and "=" in options.policy.name and not options.policy.exists():
        options.overrides, options.policy = [str(options.policy), *options.overrides], None
    for name in ("budget", "worlds", "patience"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise BadInput(f"--{name} is at least 1, got {value}")
    from temporeal.policies.runs import environments

    if options.seed is not None:
        environments.check_seed("--seed", options.seed)
    if options.replay is not None:
        return run_replay(options)
    if options.policy is None:
        raise BadInput("name a policy: temporeal falsify RUN_OR_ARTIFACT, or --replay FILE; see its --help")
    return run_search(options)


# ---------------------------------------------------------------- search


def run_search(options: Any) -> int:
    """Search the space, write what was found."""
    from temporeal.policies.runs import environments, run_folders, trained

    trained.require_trained(options.policy)
    from temporeal.policies.evaluate.falsification import PolicyRollout, default_space, falsify_policy
    from temporeal.policies.runs.interrupts import stop_asked
    from temporeal.policies.runs.settings.compose import override
    from temporeal.sim.stl.analysis.search_options import SearchOptions

    check_search(options.method)
    subject = trained.load_trained(options.policy, options.trust)
    settings = override(subject.settings, options.overrides)
    backend, seed = options.backend or settings["backend"]["name"], search_seed(options, settings)
    folder = Path(options.out) if options.out else subject.results("falsify")
    with described_by(options.policy):
        policy = trained.trained_policy(subject, settings, environments.make_task(settings))
        env = environments.make_env(settings, task=policy.task, num_worlds=1 if options.print_space else options.worlds,
                                    backend=backend, seed=seed)
    with bad_input():
        space = default_space(env) if options.space is None else read_space(options.space)
    if options.print_space:
        say(space_text(space))
        return OK
    run_folders.check_writable(folder)
    with bad_input(), stop_asked("finishing this batch and writing what was found") as asked:
        search = SearchOptions(
            options.method, options.budget, seed, attack=options.attack, stop_at_violation=not options.whole_budget,
            patience=options.patience, noise="fresh" if options.fresh_noise else "fixed")
        found = falsify_policy(
            PolicyRollout(env, policy.act, space), search, interrupted=lambda: bool(asked),
            progress=lambda done, of, least: counter(f"{backend}, least robustness {least:.4g}, flight")(done, of))
        about = {"policy": os.path.relpath(options.policy, folder), "digest": policy.digest(), "backend": backend,
                 "worlds": options.worlds, "env_seed": seed, "settings": plain(settings)}
        result = write(found, folder, backend, about)
    if options.json:
        print_json(result)
    else:
        say(describe(found, result["counterexample"]))
    if asked:
        raise Interrupted(asked[0], f"interrupted after {found.evaluations} of {found.budget} flights; written: "
                                    f"{result['report']}")
    return OK if result["passed"] else FAILED


def check_search(method: str) -> None:
    """The method's package is installed."""
    from temporeal.sim.stl.analysis.search_options import check_method

    try:
        check_method(method)
    except ModuleNotFoundError as error:
        raise BadInput(str(error)) from error


def search_seed(options: Any, settings: Mapping[str, Any]) -> int:
    """The seed of search and noise: the one given, else one that the training never used."""
    from temporeal.policies.evaluate.judging import EVALUATION_SEED
    from temporeal.policies.runs import environments

    environments.check_seed("seed", settings["seed"])
    seed: int = settings["seed"] + EVALUATION_SEED if options.seed is None else options.seed
    environments.check_seed("the seed of the search (the run's and a constant)", seed)
    return seed


def write(found: Falsification, folder: Path, backend: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """Write report and counterexample beside those of earlier searches; the report."""
    report, trace = free_names(folder, backend)
    interrupted = found.stopped == "interrupted"
    result = {"passed": found.verdict == "none found" and not interrupted, "interrupted": interrupted,
              "backend": backend, **figures(found), "counterexample": save(found, trace, about), "report": report}
    write_result(report, result)
    return result


def free_names(folder: Path, backend: str) -> tuple[Path, Path]:
    """Names of a report and a counterexample that are not there: the number of the search is in both."""
    k = 1
    while True:
        end = backend if k == 1 else f"{backend}-{k}"
        names = folder / f"falsification-{end}.json", folder / f"counterexample-{end}.npz"
        if not any(name.exists() for name in names):
            return names
        k += 1


def read_space(path: Path) -> ParameterSpace:
    """The space that a YAML file describes."""
    import yaml

    from temporeal.robots.handed_over.files import Refused, read_text
    from temporeal.robots.handed_over.texts import from_yaml
    from temporeal.sim.stl.analysis.parameter_space import space_from_json

    try:
        data = from_yaml(read_text(path), str(path))
    except (OSError, Refused, yaml.YAMLError) as error:
        raise BadInput(f"cannot read the space in {path}: {error}") from error
    try:
        return space_from_json(data)
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise BadInput(f"{path}: {error}") from error


def space_text(space: ParameterSpace) -> str:
    """The space as YAML, for :func:`read_space`."""
    import yaml

    text: str = yaml.safe_dump(space.to_json(), sort_keys=False, default_flow_style=None, width=110)
    return text.rstrip()


def save(found: Falsification, path: Path, about: Mapping[str, Any]) -> Path | None:
    """Write the counterexample, if there is one."""
    from temporeal.policies.export.provenance import revision
    from temporeal.sim.stl.analysis.counterexample import save_counterexample

    if found.verdict == "none found":
        return None
    return save_counterexample(path, found.counterexample(about, revision()))


def figures(found: Falsification) -> dict[str, Any]:
    """The result as plain JSON values, null for what is not a finite number."""
    from dataclasses import asdict

    from temporeal.policies.evaluate.evaluation import clean
    from temporeal.sim.stl.language.propositional import to_text

    values: dict[str, Any] = clean(plain({
        "verdict": found.verdict, "statement": found.statement(), "formula": to_text(found.formula),
        "robustness": found.robustness, "searched": found.searched, "clause": found.clause, "margin": found.margin,
        "at_s": found.at_s,
        "parameters": found.parameters, "seed": found.seed, "evaluations": found.evaluations, "budget": found.budget,
        "method": found.method, "attack": found.attack, "noise": found.noise, "stopped": found.stopped,
        "clauses": [{"clause": c.text, "robustness": c.robustness, "violated": c.violated, "undecided": c.undecided,
                     "spread": c.spread,
                     "parameters": c.parameters, "seed": c.seed} for c in found.clauses],
        "failures": [{"message": f.message, "parameters": f.parameters, "seed": f.seed} for f in found.failures],
        "sampled": None if found.sampled is None else asdict(found.sampled),
        "history": found.history, "space": found.space.to_json()}))
    return values


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """The figures as a JSON file."""
    import json

    from temporeal.robots.atomic_files import write_whole

    write_whole(path, json.dumps(plain(result), indent=2).encode())


def describe(found: Falsification, path: Path | None) -> str:
    """A few lines for a person."""
    lines = [found.statement()]
    for c in found.clauses:
        spreads = f"{c.robustness / c.spread:8.3g} spreads" if c.spread > 0 else " " * 16
        word = "VIOLATED" if c.violated else "undecided" if c.undecided else "held"
        lines.append(f"  {c.robustness:10.4g}  {word:9}  {spreads}  {c.text}")
    if path is not None:
        lines += [f"{path}", f"again: temporeal falsify --replay {path}"]
    return "\n".join(lines)


# ---------------------------------------------------------------- replay


def run_replay(options: Any) -> int:
    """Fly a counterexample again."""
    from temporeal.policies.evaluate.falsification import policy_judge
    from temporeal.policies.runs import environments, trained
    from temporeal.policies.runs.settings.compose import override
    from temporeal.sim.stl.analysis.counterexample import load_counterexample, replay
    from temporeal.sim.stl.language.propositional import to_text

    with bad_input():
        found = load_counterexample(options.replay)
    lacking = {"policy", "digest", "backend", "worlds", "env_seed", "settings"} - set(found.about)
    if lacking or found.space is None:
        raise BadInput(f"{options.replay} was not written by temporeal falsify: it does not say which policy flew")
    settings = override(settings_of(found, options.replay), options.overrides)
    environments.check_seed("seed", settings["seed"])
    with described_by(options.replay):
        policy = trained.trained_policy(flown(options, found), settings, environments.make_task(settings))
        rollout = replay_rollout(settings, policy, options.backend or found.about["backend"], found)
    if options.overrides and rollout.env.task.formula != found.formula:
        raise BadInput("the overrides change the formula, and a replay judges the saved one. Leave them out, or search "
                       f"anew.\n  saved:   {to_text(found.formula)}\n  changed: {to_text(rollout.env.task.formula)}")
    again = replay(found, rollout, policy_judge(found.dt))
    result = replayed(found, again, policy.digest() == found.about["digest"], chosen(options, found))
    if options.json:
        from temporeal.policies.evaluate.evaluation import clean

        print_json(clean(plain(result)))
    else:
        say(describe_replay(found, again, result))
    return FAILED if again.violated or again.undecided or again.failure else OK


def settings_of(found: Counterexample, file: Path) -> dict[str, Any]:
    """The settings in a counterexample, as ones that were handed over."""
    from temporeal.policies.runs.settings.handed_over import checked
    from temporeal.policies.runs.settings.renamed import with_current_names

    settings = found.about["settings"]
    if not isinstance(settings, Mapping) or not {"task", "backend", "randomize", "seed"} <= set(settings):
        raise BadInput(f"{file} was not written by temporeal falsify: it does not say in which settings it was found")
    return checked(with_current_names(settings), str(file))


def chosen(options: Any, found: Counterexample) -> Path:
    """The folder of the policy to fly: the one given, else the one that flew, where the counterexample lies in or
    beside it, or below the working directory."""
    if options.policy is not None:
        return Path(options.policy)
    named = str(found.about["policy"])
    folder = Path(os.path.normpath(options.replay.parent / named))
    home = options.replay.resolve().parent
    beside = home.parent == folder.resolve().parent and home.name == f"{folder.name}-falsify"
    if not (beside or lies_in(options.replay, folder) or lies_in(folder, Path.cwd())):
        raise BadInput(f"{options.replay} names a policy elsewhere, {named}; name it: temporeal falsify RUN "
                       f"--replay {options.replay}")
    return folder


def flown(options: Any, found: Counterexample) -> Trained:
    """The policy to fly, loaded."""
    from temporeal.policies.runs import trained

    try:
        return trained.load_trained(chosen(options, found), options.trust)
    except BadInput as error:
        if options.policy is not None:
            raise
        raise BadInput(f"{error}. The policy that flew is not where it was: name it: temporeal falsify RUN "
                       f"--replay {options.replay}") from error


def replay_rollout(
    settings: dict[str, Any], policy: TrainedPolicy, backend: str, found: Counterexample
) -> PolicyRollout:
    """The rollout that ``found`` came from, of ``policy``."""
    from temporeal.policies.evaluate.falsification import PolicyRollout
    from temporeal.policies.runs import environments

    assert found.space is not None
    env = environments.make_env(settings, task=policy.task, num_worlds=found.about["worlds"], backend=backend,
                                seed=found.about["env_seed"])
    with bad_input():
        return PolicyRollout(env, policy.act, found.space)


def replayed(found: Counterexample, again: Replay, same_policy: bool, policy: Path) -> dict[str, Any]:
    """The result of a replay."""
    from temporeal.sim.stl.analysis.counterexample import versions

    changed = {k: [v, versions().get(k)] for k, v in found.versions.items() if versions().get(k) != v}
    return {
        "violated": again.violated, "undecided": again.undecided,
        "robustness": again.robustness, "saved_robustness": found.robustness,
        "change": again.change, "identical": again.identical, "tolerance": again.tolerance,
        "difference": dict(again.difference), "failure": again.failure, "policy": policy,
        "same_policy": same_policy, "changed_versions": changed}


def describe_replay(found: Counterexample, again: Replay, result: Mapping[str, Any]) -> str:
    """A few lines for a person."""
    if again.failure:
        lines = [f"failed: {again.failure}"]
    else:
        word = "violated" if again.violated else "undecided when it ended" if again.undecided else "satisfied"
        lines = [f"{word}: robustness {again.robustness:.6g}, saved {found.robustness:.6g}"]
    if again.identical:
        lines.append("the trace is the same, bit for bit")
    else:
        lines.append(f"the trace differs, by at most {again.tolerance:.3g}")
        if not result["same_policy"]:
            lines.append("  the policy is not the one that flew")
        lines += [f"  {name} was {old}, is {new}" for name, (old, new) in result["changed_versions"].items()]
    return "\n".join(lines)
