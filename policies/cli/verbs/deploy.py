"""``temporeal deploy``: run the node processes of an artifact, on a robot or with a simulated one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, add_overrides, complain, print_json, say
from temporeal.policies.cli.exclusive_folder import held
from temporeal.policies.runs.errors import BAD_INPUT, FAILED, NO_BRIDGE, OK, BadInput
from temporeal.robots.optional_packages import install

if TYPE_CHECKING:
    from temporeal_bridge.launching.flights import FlightReport
    from temporeal_bridge.process.children import Process

SUMMARY = "fly an artifact through the ROS 2 nodes; --sim with a simulated robot"
HELP = """\
Starts the controller, the guard (which alone commands the robot), the monitor and the recorder of one robot, each in
its own process, and stops them together (Ctrl-C: the guard stops the robot first). A policy that gives action chunks
gets an inference worker. With --sim the robot is a simulated one (MuJoCo, noise, latency) in a further process, in real
time, on a bus of its own, with the goals and objects of the task that the artifact was trained on; every flight is
judged by the monitor and by the true trajectory.
Settings are those of the group deploy: deploy=dds (no ROS needed) or deploy=rclpy, deploy.namespace=/cf1, ...

Read "Flying a real machine" in the README before you fly one.

When the monitor or the recorder ends by itself the robot flies on, and that is told; when another node does, the guard
stops the robot, and all end.

Exit status: 0 every flight satisfied the formula, 1 one did not or failed, or was not watched or recorded to its end,
2 the nodes could not run.

Example:
  temporeal deploy outputs/artifact --sim --flights 3
  temporeal deploy outputs/artifact deploy.namespace=/cf1 deploy.loopback=true
  temporeal deploy outputs/artifact --trust team.pem.pub deploy.namespace=/cf1
  temporeal deploy outputs/reach deploy.namespace=/arm1 deploy.signals=goal.yaml
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
    p.add_argument("--trust", type=Path, metavar="PUB.pem",
                   help="public key: refuse an artifact that its owner did not sign (temporeal export --sign)")
    p.add_argument("--out", type=Path, metavar="FOLDER", help="logs, recording, summaries (outputs/deploy/<time>)")
    add_json(p)
    return p


def run(argv: Sequence[str]) -> int:
    """Check the artifact, then fly."""
    options = parser().parse_intermixed_args(argv)
    from temporeal.policies.runs import artifacts, run_folders

    needs_bridge()
    deploy = settings(options.overrides)
    if options.sim:
        check_sim(options)
    run_folders.check_writable(options.out or DEFAULT)
    robot = artifacts.load_artifact(options.artifact, options.trust).manifest.robot
    if not options.sim:
        check_real(options, deploy, robot)
    with own_folder(options.out) as out:
        return simulate(options, deploy, robot, out) if options.sim else operate(options, deploy, robot, out)


DEFAULT = Path("outputs/deploy")  # a folder in it for each


@contextmanager
def own_folder(given: Path | None) -> Iterator[Path]:
    """The folder for what comes of this run, its own while it lasts: the one ``given``, or a new one."""
    out = new_folder(time.strftime("%Y%m%d-%H%M%S")) if given is None else given
    try:
        with held(out, "temporeal deploy"):
            yield out
    finally:
        if given is None:
            with suppress(OSError):  # nothing came of it
                out.rmdir()


def new_folder(name: str) -> Path:
    """``name``, or ``name-2``, ``name-3``, ..., made: of two that are started in one second each has its own."""
    DEFAULT.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        with suppress(FileExistsError):
            out = DEFAULT / (name if number == 1 else f"{name}-{number}")
            out.mkdir()
            return out
    raise AssertionError("numbers do not end")


WORD, NUMBER, FLAG, NULL = "a word", "a whole number", "true or false", "null"
KINDS: Mapping[str, tuple[str, ...]] = {
    "transport": (WORD,), "domain": (NUMBER, NULL), "namespace": (WORD,), "interface": (WORD, NULL),
    "signals": (WORD, NULL), "worker": (WORD, NULL), "loopback": (FLAG,), "priority": (WORD,), "core": (NUMBER, NULL),
    "awake": (FLAG,), "autostart": (FLAG,), "record": (FLAG,)}
"""What each setting of the group may be: one that is null by default would take anything, and so would a file of the
user's own."""


def settings(overrides: Sequence[str]) -> dict[str, Any]:
    """The settings of the group deploy, each there and of its kind; their values are checked by who reads them."""
    from temporeal.policies.runs.settings.compose import section
    from temporeal.policies.runs.settings.values import kind, shown

    deploy = section("deploy", overrides)
    for name in (*KINDS, *deploy):
        if name not in deploy or name not in (*KINDS, "name"):
            told = f"has no setting {name!r}" if name in deploy else f"lacks the setting {name!r}"
            raise BadInput(f"deploy {told}; legal, and all needed: {', '.join(KINDS)}")
    for name, kinds in KINDS.items():
        got = "an empty word" if deploy[name] == "" and NULL in kinds else kind(deploy[name])
        if got not in kinds:
            raise BadInput(f"deploy.{name}={shown(deploy[name])}: expected {' or '.join(kinds)}, got {got}")
    return deploy


SIMULATED = ("deploy.interface", "deploy.signals", "deploy.transport")  # what can be set with --sim


def check_sim(options: Any) -> None:
    """A simulated flight has a bus and names of its own: what is set for a real robot would be ignored."""
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


def needs_bridge() -> None:
    """The nodes are a distribution of their own."""
    import importlib.util

    if importlib.util.find_spec("temporeal_bridge") is None:
        raise BadInput(NO_BRIDGE)


TRAINING = ("torch", "mujoco", "scipy")  # of the extra `train`, what judges and draws cannot do without


def needs_training(verb: str, instead: str = "") -> None:
    """What learns, judges and draws is an extra of its own, which a robot lacks; ``instead``: what else can be done."""
    import importlib.util

    def there(name: str) -> bool:
        try:
            return importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:
            return False

    if missing := [name for name in TRAINING if not there(name)]:
        raise BadInput(f"{verb} needs {', '.join(missing)}, not installed here: {install('train')}{instead}")


def simulate(options: Any, deploy: Mapping[str, Any], robot: str, out: Path) -> int:
    """Real-time flights of simulated robots."""
    from dataclasses import asdict

    from temporeal.policies.runs import errors
    from temporeal_bridge.launching.flights import fly
    from temporeal_bridge.transports.transport import TransportError

    try:
        with errors.bad_input():
            report = fly(options.artifact, robot, options.flights, options.parallel, options.seed, out,
                         interface=deploy["interface"], transport=deploy["transport"], spread=options.spread,
                         signals=None if deploy["signals"] is None else Path(deploy["signals"]),
                         progress=None if options.json else lambda row: say(told(row)))
    except TransportError as error:
        raise BadInput(str(error)) from error
    if options.json:
        print_json(asdict(report))
    elif report.flown:
        say(flight_table(report.flights))
        latency = ", ".join(f"{key} {value:.2f} ms" for key, value in report.latency_ms.items() if value is not None)
        say(f"satisfied {report.satisfied} of {len(report.flights)}; state to command {latency}\n"
            f"recorded: {report.bag}")
    if report.fault or not report.flown:
        complain(f"temporeal: {shortfall(report)}; logs: {out}")
    if not report.flown:
        return BAD_INPUT
    return OK if report.satisfied == len(report.flights) and not report.fault else FAILED


def shortfall(report: FlightReport) -> str:
    """How many of the flights were flown, and why not all."""
    return (f"{report.flown} of {len(report.flights)} flights were flown: "
            f"{report.fault or report.flights[0]['reason']}")


def told(row: Mapping[str, Any]) -> str:
    """A flight that has just ended."""
    reason = f", {row['reason']}" if row.get("reason") else ""
    return f"flight {row['seed']}: {row['verdict']}{reason}"


def flight_table(flights: Sequence[Mapping[str, Any]]) -> str:
    """A line per flight: what the monitor said, and what was true."""
    lines = [f"{'flight':>6}  {'monitor':10}  {'truth':10}  {'robustness':>10}  missed"]
    for row in flights:
        truth = row.get("truth") or {}
        margin = truth.get("robustness")
        shown = "" if margin is None else f"{margin:.3f}"
        missed = "" if row["missed"] is None else row["missed"]
        line = f"{row['seed']:6}  {row['verdict']:10}  {truth.get('verdict', '?'):10}  {shown:>10}  {missed:>6}"
        lines.append(f"{line}  {row['reason']}".rstrip())
    return "\n".join(lines)


def operate(options: Any, deploy: Mapping[str, Any], robot: str, out: Path) -> int:
    """The nodes for a robot that is there, until they are told to stop."""
    from temporeal_bridge.process.children import how_ended
    from temporeal_bridge.process.files import fresh
    from temporeal_bridge.recording.recovery import rescue

    bag = fresh(out / "bag")
    folder = worker_folder(options.artifact, deploy["worker"])
    nodes = node_words(deploy, robot, options.artifact, out, bag, folder, options.trust)
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
    flown = summary(out / "guard.json")
    flights = own(summary(out / "monitor.json"), flown if (out / "guard.json").is_file() else None, ended)
    if options.json:
        print_json({"flights": flights, "out": out})
    for row in () if options.json else flights:
        say(f"flight {row['flight']}: {row['verdict']}")
    unseen = unjudged(flown, flights)
    for lone in unseen:
        complain(f"temporeal: flight {lone['flight']} was flown ({lone['sent']} commands) and judged by nobody: "
                 f"{out / 'monitor.json'} has nothing of it")
    if ended and ended.returncode:
        return BAD_INPUT
    return OK if not unseen and not lost and all(row["verdict"] == "satisfied" for row in flights) else FAILED


def check_real(options: Any, deploy: Mapping[str, Any], robot: str) -> None:
    """What a flight of a robot that is there refuses, before anything is made or started."""
    for name in ("flights", "parallel", "seed", "spread"):
        if getattr(options, name) != parser().get_default(name):
            raise BadInput(f"--{name} needs --sim: a real robot flies one mission at a time")
    check_bus(deploy, robot, options.artifact)
    check_free(deploy)


def check_free(deploy: Mapping[str, Any]) -> None:
    """No guard has this robot already: what is started here would be in the way of who flies it."""
    from temporeal_bridge.link.datagrams import LinkError
    from temporeal_bridge.link.sockets import default_path, lock_guard

    try:
        os.close(lock_guard(default_path(deploy["domain"], deploy["namespace"])))
    except (LinkError, OSError) as error:
        raise BadInput(str(error)) from error


def node_words(
    deploy: Mapping[str, Any], robot: str, artifact: Path, out: Path, bag: Path, folder: Path | None,
    trust: Path | None = None,
) -> dict[str, list[str]]:
    """What each node process is told, the guard first: who asks them to end asks in this order."""
    from temporeal_bridge.launching.flights import worker_options

    shared = [*node_options(deploy, robot), "--out", str(out)]
    trusted = ["--trust", str(trust)] if trust else []
    flown = [*shared, "--artifact", str(artifact), *trusted]
    core = [] if deploy["core"] is None else ["--core", str(deploy["core"])]
    first, awake = [*flown, "--priority", deploy["priority"], *core], ["--awake"] if deploy["awake"] else []
    start = ["--start"] if deploy["autostart"] else []
    nodes = {"guard_node": [*first, *awake],
             "policy_node": [*first, *start, *(["--worker", str(folder)] if folder else awake)]}
    if folder is not None and deploy["worker"] is None:
        nodes["worker_node"] = [*worker_options(artifact, folder, out), *trusted]
    nodes["monitor_node"] = flown
    if deploy["record"]:
        nodes["recorder"] = [*shared, "--bag", str(bag)]
    return nodes


def worker_folder(artifact: Path, given: str | None) -> Path | None:
    """Where controller and inference worker meet: as given, else a new folder; None for a policy without chunks."""
    from temporeal.robots.artifact.loading import load_manifest
    from temporeal_bridge.controller.mailbox import new_folder

    if load_manifest(artifact).chunk is None:
        return None
    return new_folder() if given is None else Path(given)


def check_bus(deploy: Mapping[str, Any], robot: str, artifact: Path | None = None) -> None:
    """What every node would refuse is refused once, before any is started; with an ``artifact`` also what it needs."""
    from temporeal.policies.runs import errors
    from temporeal.robots.artifact.loading import load_manifest
    from temporeal.robots.spec import load_robot
    from temporeal_bridge.interface.loading import load_interface
    from temporeal_bridge.launching.preflight import check_mission, check_processes, check_worker
    from temporeal_bridge.transports.transport import TransportError, domain_id

    try:
        with errors.bad_input():
            spec = load_robot(robot)
            interface = load_interface(spec, deploy["interface"], deploy["signals"])
            if artifact is not None:
                manifest = load_manifest(artifact)
                check_mission(manifest, spec, interface)
                check_worker(deploy["worker"], manifest)
            check_processes(*(deploy[key] for key in ("transport", "namespace", "priority", "core", "awake")))
        domain_id(deploy["domain"])
    except TransportError as error:
        raise BadInput(str(error)) from error


def node_options(deploy: Mapping[str, Any], robot: str) -> list[str]:
    """What every node is told."""
    out = ["--robot", robot, "--transport", deploy["transport"]]
    out += [] if deploy["domain"] is None else ["--domain", str(deploy["domain"])]
    out += ["--namespace", deploy["namespace"]]
    out += ["--interface", deploy["interface"]] if deploy["interface"] else []
    out += ["--signals", str(deploy["signals"])] if deploy["signals"] else []
    return out + (["--loopback"] if deploy["loopback"] else [])


def run_nodes(nodes: Mapping[str, Sequence[str]], lost: list[Process]) -> Process | None:
    """Run all until interrupted (None) or until one ends by itself: that one. Then stop the others: the first, which is
    the guard, stops the robot, and only when it has ended the rest, so that the stop is watched and recorded.

    A controller that ends well has been relieved by one with another artifact (``policy_node --takeover``), which is
    not ours: the guard and the others go on. So they do without what no flight needs, which is told at once and added
    to ``lost``. The recorder is told whose end to wait for.
    """
    from temporeal_bridge.process.children import WITHOUT, end, how_ended, start

    running: list[Process] = []
    try:
        for name, words in nodes.items():
            guard = ["--guard", str(running[0].pid)] if name == "recorder" else []
            running.append(start(name, [*words, *guard]))
        while True:
            for process in [each for each in running if each.poll() is not None]:
                if process.returncode == 0 and process.name == "policy_node":
                    complain("temporeal: policy_node has ended in order: another controller relieved it, or somebody "
                             "asked it to; the guard and the others go on")
                elif process.name in WITHOUT:
                    complain(f"temporeal: ERROR: {how_ended(process)}: {WITHOUT[process.name]}")
                    lost.append(process)
                else:
                    return process
                running.remove(process)
            time.sleep(0.05)
    except KeyboardInterrupt:
        return None
    finally:
        end(running[:1])
        end(running[1:])
        # as they ended; who was still loading had no handler for the word that we said
        lost += [each for each in running if each.name in WITHOUT and each.returncode not in (0, -signal.SIGTERM)]


def own(
    judged: Sequence[Mapping[str, Any]], flown: Sequence[Mapping[str, Any]] | None, ended: Process | None
) -> list[Mapping[str, Any]]:
    """Those of the monitor's flights that our guard has flown: it judges what any guard in its namespace says.

    ``flown``: None where the guard left no word. One that ended first, by itself, has flown none; of one that was
    killed all are taken for its own.
    """
    from temporeal_bridge.mission import FLIGHTS

    if flown is None:
        return [] if ended is not None and ended.name == "guard_node" and ended.returncode > 0 else list(judged)
    ours = {(row["flight"], row["start_ns"]) for row in flown}
    oldest = flown[0]["start_ns"] if len(flown) == FLIGHTS else 0  # those before it the guard has forgotten
    return [row for row in judged if row["start_ns"] < oldest or (row["flight"], row["start_ns"]) in ours]


def unjudged(flown: Sequence[Mapping[str, Any]], judged: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The guard's flights that the monitor says nothing of. A number may come again, a time zero does not."""
    seen = {(row["flight"], row["start_ns"]) for row in judged}
    return [row for row in flown if row["sent"] and (row["flight"], row["start_ns"]) not in seen]


def summary(path: Path) -> list[dict[str, Any]]:
    """The flights that a node has seen; none where it left no summary."""
    if not path.is_file():
        return []
    flights: list[dict[str, Any]] = json.loads(path.read_text())["flights"]
    return flights
