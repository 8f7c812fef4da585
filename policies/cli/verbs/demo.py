"""``temporeal demo``: the whole chain on one robot, from a formula to flights over real middleware."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import (
    Parser,
    add_json,
    add_overrides,
    add_overwrite,
    complain,
    counter,
    print_json,
    say,
)
from temporeal.policies.runs.errors import BAD_INPUT, FAILED, OK, BadInput

if TYPE_CHECKING:
    from temporeal.policies.evaluate.judging import Judged
    from temporeal.robots.artifact.manifest import Manifest
    from temporeal.sim.maps import PolicyGraph
    from temporeal.sim.task import Task
    from temporeal_bridge.launching.flights import FlightReport

SUMMARY = "train a mission, judge it, export it and fly it through the ROS 2 nodes"
HELP = """\
The whole chain in a few minutes: trains a quadrotor on the mission `waypoints`, judges the policy on randomized
episodes in our simulator and in MuJoCo, exports the artifact and replays its golden trace, then flies it in real time
through the ROS 2 nodes (controller, simulated robot, monitor, recorder, each a process, over DDS).
Writes summary.json, report.html (figures and a 3-D replay), artifact/, run/ and flights/ into outputs/demo or --out.
An earlier demo there is replaced.

`temporeal demo vla` is the same for an arm that sees and is told what to do in words (temporeal demo vla --help).

Exit status: 0 satisfied (P(satisfied) at least 0.98 in our simulator and 0.95 in MuJoCo, 9 of 10 flights), 1 not,
2 something could not run.

Example:
  temporeal demo
  temporeal demo vla
  temporeal demo --flights 2 --episodes 200 algo.max_seconds=30 --out outputs/quick
"""

REQUIRED = {"native": 0.98, "mujoco": 0.95, "flights": 0.9}
"""Least P(satisfied) in each simulator and least share of satisfied flights for the verdict "satisfied"."""

OUT = Path("outputs/demo")
TITLES = {"native": "Our simulator", "mujoco": "MuJoCo",
          "ros2": "Simulated flights through the ROS 2 nodes, in real time (MuJoCo)"}


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("demo", HELP)
    add_overrides(p)
    p.add_argument("--episodes", type=int, default=1000,
                   help="judged in our simulator; half of it in MuJoCo (%(default)s)")
    p.add_argument("--flights", type=int, default=10, help="real-time flights (%(default)s)")
    p.add_argument("--parallel", type=int, default=2, help="robots in the air at a time (%(default)s)")
    p.add_argument("--out", type=Path, metavar="FOLDER", help=f"where to ({OUT})")
    add_overwrite(p)
    add_json(p)
    return p


def run(argv: Sequence[str]) -> int:
    """Every stage in order; each prints its figures."""
    if argv and argv[0] == "vla":
        from temporeal.policies.cli.vla_demo import verb

        return verb.run(argv[1:])
    options = parser().parse_intermixed_args(argv)
    for name in ("episodes", "flights", "parallel"):
        if getattr(options, name) < 1:
            raise BadInput(f"--{name} is at least 1, got {getattr(options, name)}")
    from temporeal.policies.cli.deployment.flights import shortfall
    from temporeal.policies.cli.deployment.requirements import needs_bridge, needs_training
    from temporeal.policies.runs import environments, run_folders
    from temporeal.policies.runs.replacing import refuse_to_replace
    from temporeal.policies.runs.settings.compose import compose
    from temporeal.policies.runs.tuning_runs import graphs
    from temporeal.robots.atomic_files import write_whole

    needs_bridge()
    needs_training("demo")
    refuse_to_replace(options.out, options.overwrite)
    options.out = options.out or OUT
    run_folders.check_writable(options.out)
    settings = {**compose(["experiment=demo", *options.overrides]), "out": str(options.out / "run")}
    clear(options.out)
    announce = (lambda text: None) if options.json else say
    began = time.perf_counter()
    task = environments.make_task(settings)
    announce(f"mission ({task.robot.name}):\n{task.formula_text}\n\n1. train")
    words = shlex.join(["experiment=demo", *options.overrides, f"out={settings['out']}", "resume=true"])
    learned = train(settings, options.json, f"temporeal train {words}")
    graph = graphs.load_graph(settings, options.out / "run", task)
    announce(f"   {learned['env_steps'] / 1e6:.1f} M steps in {learned['seconds']:.0f} s\n2. judge")
    judged = {"native": judge(settings, graph, "quadrotor", options.episodes, options.json),
              "mujoco": judge(settings, graph, "mujoco", max(1, options.episodes // 2), options.json)}
    for key, found in judged.items():
        announce(f"   {TITLES[key]}: {in_words(found)}")
    announce("3. export")
    manifest = export(settings, task, graph, options.out / "artifact")
    announce(f"   {options.out / 'artifact'}: self-test passed\n4. fly, {options.parallel} at a time, in real time")
    flown = fly(settings, options, announce)
    judged |= judge_flights(task, manifest, flown)
    summary = summarize(learned, judged, flown, time.perf_counter() - began)
    page = report(task, judged, summary, options.out)
    write_whole(options.out / "summary.json", (json.dumps(summary, indent=2, allow_nan=False) + "\n").encode())
    if options.json:
        print_json(summary)
    announce(f"   {flown.satisfied} of {len(flown.flights)} satisfied{state_to_command(flown.latency_ms)}\n\n"
         f"verdict: {summary['verdict']} in {summary['seconds']:.0f} s\n{NEXT}".format(page=page, out=options.out))
    if flown.fault or not flown.flown:
        complain(f"temporeal: {shortfall(flown)}; logs: {options.out / 'flights'}")
    if not flown.flown:
        return BAD_INPUT
    return OK if summary["verdict"] == "satisfied" else FAILED


NEXT = """\
look at  {page}
try      temporeal demo algo.max_seconds=30           less training: which clause fails first?
         temporeal eval {out}/artifact --backend mujoco --require 0.95
         temporeal deploy {out}/artifact --sim --spread 1   robots drawn from all published parameters
         temporeal train task=track                   another mission: a figure-eight"""


OURS = ("run", "artifact", "flights", "summary.json", "report.html", "report.json")
"""What a demo writes into its folder: all that the next one there may remove."""


def clear(out: Path) -> None:
    """Make room for a new demo: remove an earlier one's files, and nothing else in the folder."""
    import shutil

    from temporeal.policies.runs import run_folders

    found = {path.name for path in out.iterdir()} if out.is_dir() else set()
    if found - set(OURS) and not run_folders.is_run(out / "run"):
        raise BadInput(f"{out} is there and holds no demo: choose another folder with --out")
    try:
        for name in found & set(OURS):
            shutil.rmtree(out / name) if (out / name).is_dir() else (out / name).unlink()
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot write to {out}: {error.strerror}; choose another with --out") from error


def train(settings: dict[str, Any], quiet: bool, again: str) -> dict[str, Any]:
    """Train; return figures. The run is in ``settings["out"]``. ``again``: the command to resume with after an
    interrupt."""
    from temporeal.policies.runs import training

    began = time.perf_counter()
    result = training.train(settings, quiet=quiet, again=again)
    return {"seconds": time.perf_counter() - began, "env_steps": int(result.figures["steps"]),
            "run": str(result.folder)}


def judge(settings: Mapping[str, Any], graph: PolicyGraph, backend: str, episodes: int, quiet: bool) -> Judged:
    """Evaluate fresh randomized episodes in MuJoCo at 2 ms, as the simulated robot of the flights."""
    from temporeal.policies.evaluate.evaluation import evaluate
    from temporeal.policies.evaluate.judging import EVALUATION_SEED, Judged
    from temporeal.policies.evaluate.rollout import rollout
    from temporeal.policies.runs import environments
    from temporeal.policies.training.acting import graph_policy

    if backend == "mujoco":
        finer = {**(settings["task"].get("settings") or {}), "substeps": 10}
        settings = {**settings, "task": {**settings["task"], "settings": finer}}
    task = environments.make_task(settings)
    seed = settings["seed"] + EVALUATION_SEED
    env = environments.make_env(settings, task=task, num_worlds=episodes, backend=backend, seed=seed)
    began = time.perf_counter()
    found = rollout(env, graph_policy(graph), progress=None if quiet else counter(f"   {backend}, step"))
    return Judged(evaluate(found, task.formula), found, time.perf_counter() - began)


def in_words(found: Judged) -> str:
    """The evaluation in one line."""
    p = found.evaluation.satisfied
    return (f"satisfied {p.successes} of {p.trials} = {p.estimate:.3f}, {p.confidence:.0%} interval "
            f"[{p.low:.3f}, {p.high:.3f}], {found.seconds:.0f} s")


def export(settings: dict[str, Any], task: Task, graph: PolicyGraph, path: Path) -> Manifest:
    """Write the artifact, verified by its own trace."""
    from temporeal.policies.export.policy import export_policy
    from temporeal.policies.runs import environments, errors

    env = environments.make_env(settings, task=environments.make_task(settings), num_worlds=1, compiled=False)
    with errors.bad_input():
        artifact = export_policy(graph, task, path, env, training=settings, seed=settings["seed"])
    artifact.self_test()
    return artifact.manifest


def fly(settings: Mapping[str, Any], options: Any, announce: Any) -> FlightReport:
    """Real-time flights of simulated robots, each drawn from the published parameters."""
    from temporeal.policies.cli.deployment.flights import flight_line
    from temporeal_bridge.launching.flights import FlightPlan
    from temporeal_bridge.launching.flights import fly as fly_robots
    from temporeal_bridge.transports.transport import TransportError

    try:
        plan = FlightPlan(settings["robot"]["name"], options.flights, options.parallel, settings["seed"])
        return fly_robots(options.out / "artifact", plan, options.out / "flights",
                          lambda row: announce(f"   {flight_line(row)}"))
    except TransportError as error:
        raise BadInput(f"the flights could not be flown: {error}") from error


def state_to_command(latency_ms: Mapping[str, float | None]) -> str:
    """The latency as text, empty if not measured."""
    shown = ", ".join(f"{key} {value:.2f} ms" for key in ("p50", "p99") if (value := latency_ms[key]) is not None)
    return f"; state to command {shown}" if shown else ""


def judge_flights(task: Task, manifest: Manifest, flown: FlightReport) -> dict[str, Judged]:
    """Judge the flights' true trajectories by the same formula; empty without flights."""
    import numpy as np

    from temporeal.policies.evaluate.evaluation import evaluate
    from temporeal.policies.evaluate.judging import Judged
    from temporeal.policies.evaluate.rollout import from_flights, resample

    episodes = []
    for row in [row for row in flown.flights if row.get("truth")]:
        with np.load(row["truth"]["file"], allow_pickle=False) as file:
            times = (file["stamp_ns"] - row["truth"]["start_ns"]) * 1e-9
            episodes.append({name: resample(times, file[name], task.control_dt, manifest.horizon_s)
                             for name in task.robot.signals})
        episodes[-1]["mission_time"] = task.control_dt * np.arange(len(episodes[-1]["height"]))
    if not episodes:
        return {}
    found = from_flights(episodes, task.control_dt)
    return {"ros2": Judged(evaluate(found, task.formula), found, 0.0)}


def summarize(
    trained: Mapping[str, Any], judged: Mapping[str, Judged], flown: FlightReport, seconds: float
) -> dict[str, Any]:
    """The figures of ``summary.json``."""
    evaluations: dict[str, Any] = {key: figures(judged[key]) for key in ("native", "mujoco")}
    share = flown.satisfied / len(flown.flights)
    good = (evaluations["native"]["p_satisfied"] >= REQUIRED["native"]
            and evaluations["mujoco"]["p_satisfied"] >= REQUIRED["mujoco"] and share >= REQUIRED["flights"])
    evaluations["ros2"] = {
        "satisfied": flown.satisfied, "flights": len(flown.flights),
        "failed": [{"flight": row["seed"], "reason": row["reason"]} for row in failures(flown)],
        "truth_satisfied": judged["ros2"].evaluation.satisfied.successes if "ros2" in judged else 0}
    return {"train": dict(trained), "eval": evaluations, "node": {"latency_ms": dict(flown.latency_ms)},
            "verdict": "satisfied" if good else "violated", "required": REQUIRED, "seconds": seconds}


def failures(flown: FlightReport) -> list[dict[str, Any]]:
    """The flights that did not complete."""
    from temporeal_bridge.launching.conductor import FAILED as NOT_FLOWN

    return [row for row in flown.flights if row["verdict"] == NOT_FLOWN]


def figures(found: Judged) -> dict[str, Any]:
    """P(satisfied) with its interval, and robustness."""
    e = found.evaluation
    return {"p_satisfied": e.satisfied.estimate, "ci95": [e.satisfied.low, e.satisfied.high],
            "episodes": e.satisfied.trials, "robustness": {f"{q:g}": v for q, v in e.robustness.quantiles.items()},
            "seconds": found.seconds}


def failures_in_words(failed: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Failed flights as text, grouped by reason."""
    seeds: dict[str, list[str]] = {}
    for row in failed:
        seeds.setdefault(row["reason"], []).append(str(row["flight"]))
    return {f"Flight {', '.join(which)} failed": reason for reason, which in seeds.items()}


def report(task: Task, judged: Mapping[str, Judged], summary: Mapping[str, Any], out: Path) -> Path:
    """Write the page."""
    from temporeal.policies.evaluate.report.learning import curves_of
    from temporeal.policies.evaluate.report.outputs import make_report
    from temporeal.policies.runs.run_folders import EVENTS

    flights = summary["eval"]["ros2"]
    latency = state_to_command(summary["node"]["latency_ms"])
    facts = {
        "Training": f"{summary['train']['env_steps'] / 1e6:.1f} M steps in {summary['train']['seconds']:.0f} s",
        "Flights": f"{flights['satisfied']} of {flights['flights']} satisfied, by the monitor{latency}",
        **failures_in_words(flights["failed"])}
    rows = [(key, TITLES[key], found.evaluation, found.rollout) for key, found in judged.items()]
    return make_report(task, rows, out, facts=facts, curves=curves_of(out / "run" / EVENTS)).html
