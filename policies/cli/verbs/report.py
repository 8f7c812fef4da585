"""``temporeal report``: the evaluation page of recorded flights."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from temporeal.policies.cli.console import Parser, add_json, add_overwrite, add_trust, complain, print_json, say
from temporeal.policies.runs.errors import FAILED, OK, BadInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from temporeal.policies.cli.recordings import Recorded
    from temporeal.policies.evaluate.report.section import Context
    from temporeal.policies.evaluate.rollout import Rollout
    from temporeal.robots.artifact.manifest import Manifest
    from temporeal.robots.spec import RobotSpec
    from temporeal_bridge.interface.interface import Interface
    from temporeal_bridge.recording.bags import Recording
    from temporeal_bridge.recording.flight_analysis import Judged
    from temporeal_bridge.recording.flight_log import RecordedFlight

SUMMARY = "the evaluation page of a recorded run, real or simulated"
HELP = """\
Reads a bag that `temporeal deploy` recorded and writes report.html (opens offline) and report.json: verdict and
robustness of the formula and of each clause, which failed first and when, slack to the deadlines, the monitor's verdict
in flight beside its verdict on the recording, latencies, commands that were late, missed, limited or bridged, events
and stops of the guard, rates and gaps of the state, and the path in 3-D if the robot has a position.
The formula is that of the manifest in the bag, or of --artifact. Page and JSON say so where the robot was simulated.

Exit status: 0 every flight satisfied the formula and the monitor agrees, 1 one did not, 2 bad input.

Example:
  temporeal report outputs/deploy/20261122-101500/bag
  temporeal report bag --namespace /cf1 --out outputs/report --json
"""
AGREE = 1e-9  # of the bounds: the same samples give the same numbers


class Origin(NamedTuple):
    """What flew. ``simulated``: None where the bag does not say; ``flights``, ``run``: for titles."""

    simulated: bool | None
    flights: str
    run: str

    @classmethod
    def of(cls, simulated: bool | None) -> Origin:
        """The words for it: nothing but a bag that says so is called simulated, and nothing is called real."""
        if simulated:
            return cls(True, "Simulated flights", "Simulated run")
        return cls(simulated, "Recorded flights", "Recorded run")

    @property
    def robot(self) -> str:
        """The robot's kind, for the head of the page."""
        return {True: "a simulated robot", False: "a robot other than Temporeal's simulated one",
                None: "the bag does not say"}[self.simulated]


def parser() -> Parser:
    """Options of this verb."""
    from temporeal.policies.cli.recordings import add_choice

    p = Parser("report", HELP)
    p.add_argument("bag", type=Path, metavar="BAG", help="folder (or .mcap file) of the recording")
    add_choice(p)
    p.add_argument("--instruction", metavar="SENTENCE", help="report the missions that were told this")
    p.add_argument("--out", type=Path, metavar="FOLDER", help="folder of the report (default: BAG-report)")
    add_overwrite(p)
    add_trust(p)
    add_json(p)
    return p


def run(argv: Sequence[str]) -> int:
    """Judge the recording and write the page."""
    options = parser().parse_args(argv)
    from temporeal.policies.cli.deployment.requirements import needs_bridge, needs_training
    from temporeal.policies.cli.recordings import bridge_input, chosen
    from temporeal.policies.runs import run_folders
    from temporeal.policies.runs.replacing import REPORT, refuse_to_replace

    refuse_to_replace(options.out, options.overwrite, files=REPORT)
    needs_bridge()
    needs_training("report", "; or make it on another machine, of a copy of the bag; `temporeal replay` runs without")
    from temporeal_bridge.monitor.formula import formula_of
    from temporeal_bridge.recording import bags, flight_log, records
    from temporeal_bridge.recording.topics import SIMULATED
    from temporeal_bridge.replay.replay import needed

    out = options.out or options.bag.with_name(f"{options.bag.stem}-report")
    with bridge_input():
        recorded = chosen(options)
        namespace, mission, robot, interface = recorded
        manifest = manifest_of(options, mission)
        run_folders.check_writable(out)
        wanted = needed(interface, namespace)
        more = {bags.full_name(topic, namespace) for topic in (SIMULATED, "monitor/drift")}
        recording = bags.read(options.bag, lambda topic: topic in more or wanted(topic), mission.get("renamed"))
        flights, partial, unread = flight_log.flights(recording, namespace)
        asked, manifest = told_alike(flights, manifest, robot, interface, options.instruction)
        formula = formula_of(manifest, robot, interface)
        found = flown(recording, [f for f in flights if not f.refusal], manifest, robot, interface, namespace, asked)
        refused = [flight.refusal for flight in flights if flight.refusal]
    if not found:
        raise BadInput("; ".join([
            f"{options.bag} has no flight of {namespace} that the guard let begin",
            *([f"{partial} began before the recording"] if partial else []), *refused, *records.remarks(unread)]))
    notes = [*remarks(recording, partial, len(asked) - len(found)),
             *(f"{remark}." for remark in (*refused, *records.remarks(unread)))]
    rows = [row for row, _, _ in found]
    judged = [samples_of(judged) for _, judged, _ in found]
    commands = [commands for _, _, commands in found]
    origin = Origin.of(bags.simulated(recording, namespace))
    page, figures = write(out, formula, judged, commands, rows, notes, manifest, recorded, origin)
    good = all(row["verdict"] == "satisfied" and row["agrees"] is not False for row in rows)
    if options.json:
        print_json({"passed": good, "report": page, "simulated": origin.simulated, "notes": notes,
                    "evaluation": figures, "flights": clean(rows)})
    else:
        for note in notes:
            complain(f"temporeal: {note}")
        say("\n".join([*(line(row) for row in rows), str(page)]))
    return OK if good else FAILED


def manifest_of(options: Any, mission: Mapping[str, Any]) -> Manifest:
    """The manifest of the artifact asked for, else the one in the bag."""
    from temporeal.policies.runs import artifacts
    from temporeal.robots.artifact.manifest import build

    if options.artifact is not None:
        return artifacts.load_artifact(options.artifact, options.trust).manifest
    try:
        return build(dict(mission["manifest"]))
    except (TypeError, LookupError, ValueError, AttributeError, ArithmeticError) as error:  # another version's fields
        raise BadInput(f"the manifest in {options.bag} is none that this version reads ({type(error).__name__}: "
                       f"{error}): say which artifact with --artifact") from error


def told_alike(
    flights: list[RecordedFlight], manifest: Manifest, robot: RobotSpec, interface: Interface, wanted: str | None
) -> tuple[list[RecordedFlight], Manifest]:
    """The flights that were told ``wanted``, or all if they were told the same, and the manifest with the formula of
    those words. A page is of one formula."""
    from temporeal_bridge.instruction.sentences import mission_of, one_form, told

    if manifest.instruction is None and manifest.formulas is None:
        if wanted is not None:
            raise BadInput(f"--instruction {wanted!r}: the policy {manifest.name!r} takes no instruction")
        return flights, manifest
    said = {flight.number: str(flight.verdict.get("instruction", "")) for flight in flights}
    found = sorted({*said.values()} - {""})
    text = one_form(manifest, wanted) if wanted is not None else found[0] if found else ""
    if text not in found or (wanted is None and len(found) > 1):
        raise BadInput(f"a report is of missions that were told the same; here they were told: {'; '.join(found)}. Say "
                       "which with --instruction SENTENCE, or TEXT of a formula")
    asked = [flight for flight in flights if said[flight.number] == text]
    return asked, told(manifest, robot, text) if manifest.formulas is None else mission_of(
        manifest, robot, interface, text)


def flown(
    recording: Recording, flights: Sequence[RecordedFlight], manifest: Manifest, robot: RobotSpec, interface: Interface,
    namespace: str, asked: Sequence[RecordedFlight],
) -> list[tuple[dict[str, Any], Judged, np.ndarray | None]]:
    """Each flight of ``asked`` that was begun: its row for the page, its judgement by the monitor, and its commands.
    ``flights``: all, for each ends where the next one begins."""
    from temporeal_bridge.recording.flight_analysis import figures, judge, parts, rates

    out = []
    for flight, messages in zip(flights, parts(recording, flights, interface, namespace)):
        judged = judge(messages, flight, manifest, robot, interface, namespace) if flight in asked else None
        if judged is None or not any(sample is not None for sample in judged.samples):
            continue
        result, in_flight = judged.result, flight.verdict
        row = {
            "flight": flight.number, "start_ns": flight.start_ns,
            "began": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(flight.start_ns / 1e9)),
            "verdict": result["verdict"], "lower": result.get("lower"), "upper": result.get("upper"),
            "lost": result.get("lost", 0), "clauses": result.get("clauses", []),
            "recorded": in_flight or None, "agrees": agrees(result, in_flight), "end": ending(flight),
            "stop": flight.stop,
            "figures": figures(flight, manifest),
            "topics": rates(messages, flight, interface, namespace), "modes": flight.modes, "events": flight.events,
            "drift": flight.drift}
        out.append((row, judged, sent(flight, manifest, len(judged.samples))))
    return out


def sent(flight: RecordedFlight, manifest: Manifest, samples: int) -> np.ndarray | None:
    """The commands [samples, A] in force at the monitor's samples, as the guard sent them; NaN before the first. None
    without any, or with two kinds of them."""
    import numpy as np

    if not flight.sent or len({len(command) for _, command in flight.sent}) > 1:
        return None
    commands = np.array([command for _, command in flight.sent], np.float32)
    times = np.array([row.at for row in flight.basis])[: len(commands)]
    newest = np.searchsorted(times, np.arange(samples) / manifest.rate_hz + 0.5 / manifest.rate_hz) - 1
    return np.where(newest[:, None] < 0, np.nan, commands[np.clip(newest, 0, len(times) - 1)])


def agrees(now: Mapping[str, Any], then: Mapping[str, Any]) -> bool | None:
    """Whether the monitor's final verdict in flight was the same; None if it had none."""
    from math import isclose, isfinite

    if not then or not then.get("final"):
        return None

    def same(key: str) -> bool:
        a, b = now.get(key), then.get(key)
        if a is None or b is None or not isfinite(a):  # JSON has no infinity
            return b is None and (a is None or not isfinite(a))
        return isclose(a, b, rel_tol=0.0, abs_tol=AGREE)

    return now["verdict"] == then["verdict"] and same("lower") and same("upper")


def ending(flight: RecordedFlight) -> str:
    """How the flight ended."""
    if flight.stop is not None:
        at, code, reason = flight.stop
        return f"stopped at {at:.2f} s, {code}: {reason}"
    if flight.over == float("inf"):
        return "not in the recording"
    return f"{flight.rest or 'stopping'} at {flight.over:.2f} s"


def remarks(recording: Recording, partial: int, refused: int) -> list[str]:
    """What the page does not show, and why."""
    out = []
    if recording.set_back_s:
        out.append(f"The recorder's clock was set back by {recording.set_back_s:.3g} s: messages of before and after "
                   "are mixed, and what was then is not known.")
    if recording.cut:
        out.append(f"The bag is not whole ({recording.cut}); what is there was judged.")
    if partial:
        out.append(f"{partial} flights began before the recording and were left out.")
    if refused:
        out.append(f"{refused} flight{'s were' if refused > 1 else ' was'} left out: not let begin by the guard, or no "
                   "state was recorded.")
    return out


def samples_of(judged: Judged) -> dict[str, np.ndarray]:
    """The monitor's samples by signal [T, ...]; a lost sample holds the values before it (the first: after it)."""
    import numpy as np

    known = [sample for sample in judged.samples if sample is not None]
    last, held = known[0], []
    for sample in judged.samples:
        last = sample if sample is not None else last
        held.append(last)
    named = [name for name in known[0] if all(name in sample for sample in known)]  # not of messages that were wrong
    return {name: np.stack([np.asarray(sample[name], dtype=float) for sample in held]) for name in named}


def write(
    out: Path, formula: Any, flights: Sequence[dict[str, np.ndarray]], commands: Sequence[np.ndarray | None],
    rows: Sequence[dict[str, Any]], notes: Sequence[str], manifest: Manifest, recorded: Recorded, origin: Origin,
) -> tuple[Path, dict[str, Any]]:
    """The page and the figures."""
    from temporeal.policies.evaluate.evaluation import evaluate, to_json
    from temporeal.policies.evaluate.report.page import write_json, write_page
    from temporeal.policies.evaluate.report.recorded_flights import markup
    from temporeal.policies.evaluate.report.section import Section
    from temporeal.policies.evaluate.rollout import from_flights

    namespace, mission, robot, _ = recorded
    rollout = stopped(from_flights(flights, 1.0 / manifest.rate_hz, commands), rows, manifest.horizon_s)
    evaluation = evaluate(rollout, formula)
    lost = sum(row["lost"] for row in rows)
    notes = [*notes, *([f"{lost} samples were lost: in figures and drawing they have the values before them; the "
                        "verdict of the monitor leaves them open."] if lost else [])]
    section = Section("evaluation", f"{origin.flights} of {namespace}", evaluation, rollout)
    context = context_of(manifest, recorded, rollout.signals, origin)
    out.mkdir(parents=True, exist_ok=True)
    page = write_page(out / "report.html", [section], context, markup(rows, notes))
    extra = {"artifact": mission["name"], "identity": mission["identity"], "robot": robot.name,
             "simulated": origin.simulated, "notes": list(notes), "flights": clean(rows)}
    write_json(out / "report.json", [section], extra)
    return page, to_json(evaluation)


def stopped(rollout: Rollout, rows: Sequence[Mapping[str, Any]], horizon_s: float) -> Rollout:
    """``rollout`` with the flights that the guard stopped before their mission was over, and when. A stopped robot is
    observed further."""
    from dataclasses import replace

    import numpy as np

    at = np.array([np.inf if row["stop"] is None else row["stop"][0] for row in rows])
    return replace(rollout, terminated=at < horizon_s, ended_s=at)


def context_of(manifest: Manifest, recorded: Recorded, signals: Mapping[str, Any], origin: Origin) -> Context:
    """The page's context; scene and figure are the task's if the manifest names it."""
    from temporeal.policies.evaluate.report.section import Context

    namespace, mission, robot, _ = recorded
    facts = {"artifact": f"{mission['name']} ({mission['identity'][:12]})", "interface": str(mission["interface"]),
             "namespace": namespace, "rate": f"{manifest.rate_hz:g} Hz", "flown by": origin.robot}
    shapes, stage = drawing(manifest, robot, signals)
    arm = robot.parameters["arm"].nominal[0] if "arm" in robot.parameters else 0.1
    return Context(f"{origin.run} of {manifest.name}", robot.name, manifest.formula, manifest.constants, shapes, stage,
                   arm, settings=dict(manifest.training), facts=facts,
                   command=manifest.commands[0], schema={s.name: s for s in manifest.signals} | dict(robot.signals))


def drawing(manifest: Manifest, robot: RobotSpec, signals: Mapping[str, Any]) -> tuple[Sequence[Any], Any]:
    """Shapes and stage of the task; without a task, or without the signals that its figure needs, only a quadrotor is
    drawn."""
    from temporeal.policies.runs import environments
    from temporeal.policies.runs.settings.renamed import with_current_names

    task = manifest.training.get("task")
    if not isinstance(task, dict) or "name" not in task:
        return (), None
    made = environments.make_task(with_current_names(manifest.training))
    if robot.kind == "quadrotor":
        return made.shapes, None
    from temporeal.policies.evaluate.report.outputs import CORNERS, MOST
    from temporeal.policies.evaluate.report.replay import motion
    from temporeal.policies.evaluate.scene_figure import stage_of

    stage = stage_of(made, corners=CORNERS, most=MOST)
    try:
        motion({name: values[:1, 0] for name, values in signals.items()}, stage)
    except KeyError:  # an object's pose, say, that no topic carries
        return made.shapes, None
    return made.shapes, stage


def clean(value: Any) -> Any:
    """Plain JSON values."""
    from temporeal.policies.evaluate import evaluation
    from temporeal_bridge.process.files import plain

    return evaluation.clean(plain(value))


def line(row: Mapping[str, Any]) -> str:
    """A flight in a line."""
    agreed = {True: "the monitor agrees", False: "the monitor in flight said otherwise", None: "no last word in flight"}
    latency = row["figures"]["latency_ms"]["controller"]
    shown = "" if latency["p50"] is None else "; controller " + ", ".join(
        f"{key} {value:.2f} ms" for key, value in latency.items())
    lower = "" if row["lower"] is None else f", robustness {row['lower']:.3f}"
    return f"flight {row['flight']}: {row['verdict']}{lower} ({agreed[row['agrees']]}), {row['end']}{shown}"
