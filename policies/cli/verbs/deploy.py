"""``temporeal deploy``: run the node processes of an artifact, on a robot or with a simulated one."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, add_overrides, complain, print_json, say
from temporeal.policies.cli.deployment.bus_settings import check_bus, check_free, deploy_settings
from temporeal.policies.cli.deployment.flights import (
    flight_line,
    flight_table,
    own_flights,
    read_flights,
    shortfall,
    told,
    unjudged_flights,
)
from temporeal.policies.cli.deployment.missions import check_require, forecast_lines, texts
from temporeal.policies.cli.deployment.nodes import node_arguments, run_nodes, worker_folder
from temporeal.policies.cli.deployment.output_folder import DEFAULT, own_folder
from temporeal.policies.cli.deployment.requirements import needs_bridge, needs_training
from temporeal.policies.runs.errors import BAD_INPUT, FAILED, OK, BadInput

if TYPE_CHECKING:
    from temporeal_bridge.process.children import Process


SUMMARY = "fly an artifact through the ROS 2 nodes; --sim with a simulated robot"
HELP = """\
Starts the controller, the guard (the only process that commands the robot), the monitor and the recorder of one robot,
each in its own process, and stops them together (Ctrl-C: the guard stops the robot first). A policy with action chunks
gets an inference worker. With --sim, a further process simulates the robot in real time (MuJoCo, noise, latency) on its
own bus, with the goals and objects of the task that the artifact was trained on; every flight is judged by the monitor
and by the true trajectory.
A policy that is told what to do in words gets --instruction; with --sim several are flown in turn. The monitor watches
the sentence's own formula and says why a mission failed.
A policy that was trained for any formula (algo=generalist) gets --formula, a YAML file with the keys formula and
constants; with --sim several are flown in turn. It is planned where the robot is, P(satisfied) and the itinerary are
said before it is flown, and --require P refuses what is less likely. The monitor watches that formula, and the arena's.
It is told in words, too: --instruction, with the --places that it names.
Settings are those of the group deploy: deploy=dds (no ROS needed) or deploy=rclpy, deploy.namespace=/cf1, ...

Read "Flying a real machine" in the README before you fly one.

If the monitor or the recorder ends by itself, the robot flies on and a message says so; if another node does, the guard
stops the robot and all end.

Exit status: 0 every flight satisfied the formula, 1 one did not or failed, or was not monitored or recorded to its end,
2 the nodes could not run.

Example:
  temporeal deploy outputs/artifact --sim --flights 3
  temporeal deploy outputs/artifact deploy.namespace=/cf1 deploy.loopback=true
  temporeal deploy outputs/artifact --trust team.pem.pub deploy.namespace=/cf1
  temporeal deploy outputs/reach deploy.namespace=/arm1 deploy.signals=goal.yaml
  temporeal deploy outputs/vla --sim --instruction "push the red cube into the tray"
  temporeal deploy outputs/any --sim --formula mission.yaml --require 0.8
  temporeal deploy outputs/any --sim --places map.yaml --instruction "visit red, then blue within ten seconds"
"""


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("deploy", HELP)
    p.add_argument("artifact", type=Path, metavar="ARTIFACT", help="folder that `temporeal export` wrote")
    add_overrides(p)
    p.add_argument("--sim", action="store_true", help="fly a simulated robot")
    p.add_argument("--flights", type=int, default=1, help="with --sim: number of flights (%(default)s)")
    p.add_argument("--parallel", type=int, default=1, help="with --sim: robots at a time (%(default)s)")
    p.add_argument("--seed", type=int, default=0, help="with --sim: of the first flight (%(default)s)")
    p.add_argument("--spread", type=float, default=0.0,
                   help="with --sim: share 0..1 of the parameters' published ranges to draw robots from (%(default)s)")
    p.add_argument("--hidden", type=Path, metavar="YAML",
                   help="with --sim: how the robot differs from its spec (docs/how-to/crossing-the-gap.md)")
    p.add_argument("--instruction", action="append", default=[], metavar="SENTENCE",
                   help="what the policy is told; with --sim repeatable, for the flights in turn")
    p.add_argument("--formula", action="append", default=[], type=Path, metavar="MISSION.yaml",
                   help="what a policy that flies any formula flies; with --sim repeatable, for the flights in turn")
    p.add_argument("--places", type=Path, metavar="MAP.yaml",
                   help="the places that --instruction names, for a policy that flies any formula (spec say --help)")
    p.add_argument("--require", type=float, default=0.0, metavar="P",
                   help="refuse formulas whose forecast of P(satisfied) is lower (%(default)s)")
    p.add_argument("--trust", type=Path, metavar="PUB.pem",
                   help="public key: refuse an artifact that its owner did not sign (temporeal export --sign)")
    p.add_argument("--out", type=Path, metavar="FOLDER", help="logs, recording, summaries (outputs/deploy/<time>)")
    add_json(p)
    return p


def run(argv: Sequence[str]) -> int:
    """Check the artifact, then fly."""
    options = parser().parse_intermixed_args(argv)
    from temporeal.policies.cli.specs.missions import places_of
    from temporeal.policies.runs import artifacts, run_folders

    needs_bridge()
    deploy = deploy_settings(options.overrides)
    if options.sim:
        check_sim(options)
    run_folders.check_writable(options.out or DEFAULT)
    check_require(options.require)
    manifest = artifacts.load_artifact(options.artifact, options.trust).manifest
    places = None if options.places is None else places_of(options.places)
    options.instruction, robot = texts(options, manifest, places), manifest.robot
    if not options.sim:
        check_real(options, deploy, robot)
    with own_folder(options.out) as out:
        return simulate(options, deploy, robot, out) if options.sim else operate(options, deploy, robot, out)


SIMULATED = ("deploy.interface", "deploy.signals", "deploy.transport")  # what can be set with --sim


def check_sim(options: Any) -> None:
    """A simulated flight has a bus and names of its own: settings of a real robot are refused."""
    for word in options.overrides:
        key = word.partition("=")[0]
        if key.startswith("deploy.") and key not in SIMULATED:
            raise BadInput(f"{word}: with --sim the nodes run on a bus of their own; only {', '.join(SIMULATED)} can "
                           "be set")
    needs_training("deploy --sim", "; without --sim a robot that is there needs none of it")
    from temporeal.policies.runs import errors
    from temporeal_bridge.mission import check_numbers

    for name in ("flights", "parallel"):
        if getattr(options, name) < 1:
            raise BadInput(f"--{name} is at least 1, got {getattr(options, name)}")
    with errors.bad_input():
        check_numbers("--seed", options.seed, options.flights)
    if not 0 <= options.spread <= 1:
        raise BadInput(f"--spread is a share from 0 to 1, got {options.spread}")


def simulate(options: Any, deploy: Mapping[str, Any], robot: str, out: Path) -> int:
    """Real-time flights of simulated robots."""
    from dataclasses import asdict

    from temporeal.policies.runs import errors
    from temporeal_bridge.launching.flights import FlightPlan, fly
    from temporeal_bridge.transports.transport import TransportError

    try:
        with errors.bad_input():
            plan = FlightPlan(
                robot, options.flights, options.parallel, options.seed, interface=deploy["interface"],
                spread=options.spread, transport=deploy["transport"],
                signals=None if deploy["signals"] is None else Path(deploy["signals"]),
                instructions=tuple(options.instruction), hidden=options.hidden, require=options.require)
            report = fly(options.artifact, plan, out, None if options.json else lambda row: say(flight_line(row)),
                         None if options.json else lambda seed, told: say("\n".join(forecast_lines(seed, told))))
    except TransportError as error:
        raise BadInput(str(error)) from error
    if options.json:
        print_json({**asdict(report), "simulated": True})
    elif report.flown:
        say(flight_table(report.flights))
        latency = ", ".join(f"{key} {value:.2f} ms" for key, value in report.latency_ms.items() if value is not None)
        took = [row["formula_to_command_ms"] for row in report.flights if "formula_to_command_ms" in row]
        first = f"; formula to first command {max(took):.0f} ms at most" if took else ""
        say(f"satisfied {report.satisfied} of {len(report.flights)}; state to command {latency}{first}\n"
            f"recorded: {report.bag}")
    if report.fault or not report.flown:
        complain(f"temporeal: {shortfall(report)}; logs: {out}")
    if not report.flown:
        return BAD_INPUT
    return OK if report.satisfied == len(report.flights) and not report.fault else FAILED


def operate(options: Any, deploy: Mapping[str, Any], robot: str, out: Path) -> int:
    """The nodes for a real robot, until they are stopped."""
    from temporeal_bridge.process.children import how_ended
    from temporeal_bridge.process.files import fresh
    from temporeal_bridge.recording.recovery import rescue

    bag = fresh(out / "bag")
    folder = worker_folder(options.artifact, deploy["worker"])
    nodes = node_arguments(deploy, robot, options.artifact, out, bag, folder, options.trust)
    for sentence in options.instruction:
        nodes["policy_node"] += ["--instruction", sentence]
    if options.require:
        nodes["policy_node"] += ["--require", str(options.require)]
    if not options.json:
        say(f"nodes: {', '.join(nodes)}; results: {out}; Ctrl-C stops them all")
    for name in ("monitor.json", "guard.json"):  # of an earlier flight into this folder
        (out / name).unlink(missing_ok=True)
    lost: list[Process] = []
    try:
        ended = run_nodes(nodes, lost)
    finally:
        if folder is not None and deploy["worker"] is None:
            shutil.rmtree(folder, ignore_errors=True)
    if ended:
        complain(f"temporeal: {how_ended(ended)}; the other nodes were stopped")
    for each in lost:
        complain(f"temporeal: {how_ended(each)}, before the end{rescue(bag) if each.name == 'recorder' else ''}")
    flown = read_flights(out / "guard.json")
    flights = own_flights(read_flights(out / "monitor.json"), flown if (out / "guard.json").is_file() else None, ended)
    if options.json:
        print_json({"flights": flights, "out": out})
    for row in () if options.json else flights:
        say(f"flight {row['flight']}: {row['verdict']}{told(row)}")
    unseen = unjudged_flights(flown, flights)
    for lone in unseen:
        complain(f"temporeal: flight {lone['flight']} was flown ({lone['sent']} commands) and judged by nobody: "
                 f"{out / 'monitor.json'} has nothing of it")
    if ended and ended.returncode:
        return BAD_INPUT
    return OK if not unseen and not lost and all(row["verdict"] == "satisfied" for row in flights) else FAILED


def check_real(options: Any, deploy: Mapping[str, Any], robot: str) -> None:
    """Checks of a flight with a real robot, before anything is made or started."""
    for name in ("flights", "parallel", "seed", "spread", "hidden"):
        if getattr(options, name) != parser().get_default(name):
            raise BadInput(f"--{name} needs --sim: a real robot flies one mission at a time")
    if len(options.instruction) > 1:
        raise BadInput(f"{len(options.instruction)} instructions need --sim: a real robot is told the first one here, "
                       "the next ones by operator_messages instruct")
    check_bus(deploy, robot, options.artifact, options.instruction)
    check_free(deploy)
