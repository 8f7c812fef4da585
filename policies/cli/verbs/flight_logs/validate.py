"""``temporeal validate``: how wrong a simulator is for a robot, by flights that nothing was fitted to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, add_overwrite, complain, print_json, say
from temporeal.policies.runs.errors import OK, BadInput, bad_input

if TYPE_CHECKING:
    from temporeal.policies.evaluate.flight_candidates import Sources
    from temporeal.robots.spec import RobotSpec
    from temporeal.sim.identification.record import FlightRecord

SUMMARY = "how wrong is the simulator of a robot: its flights, predicted"
HELP = """\
Predicts flights open loop, from measured states and what the motors were told: 1 to 50 steps (10 ms each, or the log's
step), two seconds, and from one hover to the next. Compares the simulator with the spec's nominal parameters, with what
temporeal identify found, and with residual dynamics on top of it; and simpler ones: going on at the measured velocity,
a linear model, an LSTM. Says how much of what was measured 90 % intervals hold. The page begins with the answer.

LOGs are flights that nothing was fitted to: a log among those of a file that is given (by its SHA-256) is named.
--train LOG... are other flights of the robot: from them the linear model and the LSTM are learned, and what no file is
given of: identified parameters, residual dynamics. Without them such are left out, and the page says so.

Example:
  temporeal validate flight3.csv.gz --train flight1.csv.gz flight2.csv.gz --out page.html
  temporeal identify flight1.csv.gz flight2.csv.gz --residual residual.yaml
  temporeal validate flight3.csv.gz --identified identified.yaml --residual residual.yaml --json
"""
LEAST_SECONDS, MOST_SECONDS = 1.0, 3600.0


def parser() -> Parser:
    """The options."""
    from temporeal.policies.cli.verbs.flight_logs import reading

    p = Parser("validate", HELP)
    p.add_argument("logs", type=Path, nargs="+", metavar="LOG", help="files, bags or datasets' folders, of one robot")
    p.add_argument("--identified", type=Path, metavar="FILE", help="of temporeal identify")
    p.add_argument("--residual", type=Path, metavar="FILE", help="of temporeal identify --residual; needs --identified")
    p.add_argument("--train", type=Path, nargs="+", default=[], metavar="LOG", help="flights to learn from what is "
                   "learned")
    p.add_argument("--seconds", type=float, default=600.0, metavar="S", help="of processor time, after which the LSTM, "
                   "or residual dynamics, are stopped before their 600 updates, of about a minute (600)")
    p.add_argument("--no-lstm", action="store_true", help="leave the LSTM out")
    p.add_argument("--out", type=Path, metavar="PAGE.html", help="the page (default: none)")
    p.add_argument("--voltage", type=float, default=3.8, metavar="V", help="at which full thrust is given, where no "
                   "--identified says it (3.8 V)")
    p.add_argument("--seed", type=int, default=0, metavar="N", help="of draws and learning (0)")
    p.add_argument("--episode", type=int, default=0, metavar="N", help="of a dataset or a bag: this one (0)")
    p.add_argument("--anyway", action="store_true", help="use logs in which something is wrong")
    reading.add(p)
    add_overwrite(p)
    add_json(p)
    return p


def completions() -> list[str]:
    """None."""
    return []


def run(argv: Sequence[str]) -> int:
    """Predict, write the page, say how wrong it is."""
    options = parser().parse_intermixed_args(argv)
    with bad_input():
        return validated(options)


def validated(options: Any) -> int:
    """The work."""
    from temporeal.policies.evaluate import flight_candidates, flight_prediction
    from temporeal.policies.evaluate.report import validation_page

    legal(options)
    records, robot, slow = flights(options, options.logs)
    records = apart(records, options.logs)
    given = sources(options, records, robot, slow)
    fitted = flight_candidates.fitted_logs(given, records)
    remark(records, fitted)
    candidates, left_out = flight_candidates.candidates(given, options.seed)
    result = {
        "robot": robot.name, "logs": [
            {"name": each.name, "sha256": each.digest, "seconds": round(each.seconds, 3), "pose": each.has_pose,
             "fitted": fitted.get(each.digest, [])} for each in records],
        "predictors": [{"name": each.name, "words": each.words} for each in candidates], "left_out": left_out,
        **flight_prediction.compared(records, candidates)}
    result = {"said": validation_page.said(result), **result}
    if options.out is not None:
        validation_page.write_validation_page(options.out, result)
    if options.json:
        print_json({"out": options.out, **result})
        return OK
    for line in lines(result):
        say(line)
    if options.out is not None:
        say(f"\n{options.out}")
    return OK


def remark(records: Sequence[FlightRecord], fitted: Mapping[str, Sequence[str]]) -> None:
    """Say of which flights less is judged, or nothing is told of others. ``fitted``: by digest, to what."""
    for each in records:
        if not each.has_pose:
            complain(f"temporeal: {each.name}: no motion capture: it counts in what its sensors measure alone")
        if each.digest in fitted:
            complain(f"temporeal: {each.name} was used for fitting ({', '.join(fitted[each.digest])}): what is "
                     "predicted of it says nothing of other flights")


def legal(options: Any) -> None:
    """Refuse options that contradict each other, before anything is read."""
    from temporeal.policies.cli.verbs.flight_logs.identify import writable
    from temporeal.sim.identification.settings import Settings

    Settings(reference_v=options.voltage, seed=options.seed)
    if options.out is not None:
        writable(options.out, options.overwrite)
    if options.residual is not None and options.identified is None:
        raise BadInput(f"--residual {options.residual} is on top of an identification: --identified FILE is needed, "
                       "which was written with it")
    if not LEAST_SECONDS <= options.seconds <= MOST_SECONDS:
        raise BadInput(f"--seconds {options.seconds:g}: {LEAST_SECONDS:g} to {MOST_SECONDS:g} s are legal")
    for option, named in (("LOG", options.logs), ("--train", options.train)):
        if len({path.resolve() for path in named}) < len(named):
            raise BadInput(f"{option}: a log is named twice: {', '.join(map(str, named))}")
    both = {path.resolve() for path in options.logs} & {path.resolve() for path in options.train}
    if both:
        raise BadInput(f"--train and LOG both name {', '.join(map(str, sorted(both)))}: a flight that is learned from "
                       "judges nothing")


def flights(options: Any, logs: Sequence[Path]) -> tuple[list[FlightRecord], RobotSpec, bool]:
    """Logs as records, their robot, and whether commands were logged slowly."""
    from temporeal.policies.cli.verbs.flight_logs import identify

    asked = copy(options)
    asked.logs = list(logs)
    return identify.flights(asked)


def apart(records: list[FlightRecord], paths: Sequence[Path]) -> list[FlightRecord]:
    """Records that each have a name of their own: with as many parts of their paths as that needs."""
    digests = [each.digest for each in records]
    if (twice := [str(path) for path, digest in zip(paths, digests) if digests.count(digest) > 1]):
        raise BadInput(f"{', '.join(twice)} hold the same flight: it would count more than once")
    out, names = [], [each.name for each in records]
    for record, path in zip(records, paths):
        others = [other.resolve().parts for other, name in zip(paths, names) if name == record.name and other != path]
        own = path.resolve().parts
        count = next((k for k in range(1, len(own)) if all(own[-k:] != other[-k:] for other in others)), len(own))
        out.append(replace(record, name="/".join(own[-count:])) if others else record)
    return out


def sources(options: Any, records: Sequence[FlightRecord], robot: RobotSpec, slow: bool) -> Sources:
    """What there is to predict with: of files, and learned of the flights ``--train``."""
    from temporeal.policies.evaluate import flight_candidates
    from temporeal.policies.training.flight_models import learned, lstm, rollout
    from temporeal.policies.training.flight_models.descent import Descent
    from temporeal.sim.identification import identified_file
    from temporeal.sim.identification.identify import identify
    from temporeal.sim.identification.record import one_step
    from temporeal.sim.identification.settings import Settings
    from temporeal.sim.identification.validation.model import model_of
    from temporeal.sim.identification.validation.stretches import told_by
    from temporeal.sim.physics.quadrotor.residual import residual_file

    train, descent = list["FlightRecord"](), Descent(seconds=options.seconds, seed=options.seed)
    if options.train:
        train, other, slow_train = flights(options, options.train)
        train, slow = apart(train, options.train), slow | slow_train
        if other.name != robot.name:
            raise BadInput(f"--train is of robot {other.name}, the logs are of {robot.name}: one robot is judged")
    one_step([*records, *train], "validate those of one step by themselves, with --train of that step")
    content, where = None, f"--identified {options.identified}"
    if options.identified is not None:
        content = identified_file.read(options.identified)
    elif train:
        found = identify(train, robot, Settings(steps=0, reference_v=options.voltage, seed=options.seed),
                         slow_commands=slow)
        content, where = identified_file.content(found, ""), "the identification of --train"
    model = None if content is None else model_of(content, robot, where)
    blind = rollout.needs_pose(train)
    posed = bool(train) and blind is None
    if blind is not None:
        complain(f"temporeal: --train: {blind}: neither residual dynamics nor an LSTM is learned")
    residual = None
    if options.residual is not None and model is not None:
        residual = residual_file.read(options.residual)
        residual.of_spec(robot, f"--residual {options.residual}")
        flight_candidates.of_same_physics(model, residual, f"--residual {options.residual}")
    elif posed and model is not None:
        residual = learned.learned(model, train, slow, descent)
    told = told_by([*records, *train])
    network = lstm.trained(train, descent, told) if posed and not options.no_lstm else None
    return flight_candidates.Sources(robot, options.voltage if model is None else model.reference_v, model, residual,
                                     tuple(train), network, told)


def lines(result: dict[str, Any]) -> list[str]:
    """The answer, and the table of what it rests on, for people."""
    steps, out = result["steps"], [*result["said"], ""]
    for channel, unit in result["units"].items():
        rows = {name: found[channel] for name, found in result["errors"].items() if channel in found}
        if rows:
            out.append(f"{channel + ' [' + unit + ']':24}" + "".join(f"{k:>9}" for k in steps) + "  steps of "
                       f"{1000 * result['step_s']:.3g} ms")
            out += [f"  {name:22}" + "".join(f"{'-' if x is None else format(x, '.3g'):>9}" for x in
                                            (values[k - 1] for k in steps)) for name, values in rows.items()]
    out += [f"left out: {name}: {why}" for name, why in result["left_out"].items()]
    return out
