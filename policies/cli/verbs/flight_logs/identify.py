"""``temporeal identify``: what a robot's parameters are, by logs of its flights, and what these logs cannot tell."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, add_overwrite, complain, print_json, say
from temporeal.policies.runs.errors import OK, BadInput, bad_input

if TYPE_CHECKING:
    from temporeal.robots.spec import RobotSpec
    from temporeal.sim.identification.record import FlightRecord
    from temporeal.sim.identification.settings import Settings

SUMMARY = "a robot's parameters from logs of flights or joints, and what they cannot tell"
HELP = """\
Flies the simulator along each log from measured states, in stretches of a quarter of a second, and finds the parameters
under which it does what the robot did: thrust per mass and its curve, by the battery's voltage where it is logged;
time constants of motors that speed up and slow down; torque per inertia; drag; centre of mass; delay; biases. Each with
a 90 % interval that allows for correlated residuals. What a log cannot tell is called "not identifiable", with the
reason: its interval is mostly its prior's (of the robot's spec). What it tells otherwise "contradicts its prior".

Of an arm or a hand, by a bag or a dataset with joint_pos_cmd and joint_pos (joint_vel and joint_torque tell more), the
joints are simulated along the log: armature, friction (Coulomb, viscous, Stribeck), gains of the servos, their limit,
backlash, delay of commands, and what the tool weighs.

A quadrotor's log is what temporeal log inspect takes, with what each motor was told (PWM or thrust), gyro and
accelerometer; motion capture adds drag and biases. A log in which something is wrong is refused, unless --anyway.

Example:
  temporeal identify flight.csv.gz
  temporeal identify flight1.csv flight2.csv --known mass=0.0332,0.0003 --out mine.yaml
  temporeal identify log15 --json
  temporeal identify outputs/deploy/LAST/bag
  temporeal identify flight1.csv flight2.csv --residual residual.yaml
  temporeal identify flight.csv.gz --randomization mine.yaml && temporeal train task=waypoints randomize=mine.yaml
"""
MOST_HZ = 10_000.0


def parser() -> Parser:
    """The options."""
    from temporeal.policies.cli.verbs.flight_logs import reading
    from temporeal.sim.identification.settings import Settings

    usual = Settings()
    p = Parser("identify", HELP)
    p.add_argument("logs", type=Path, nargs="+", metavar="LOG", help="files, bags or datasets' folders, of one robot")
    p.add_argument("--out", type=Path, default=Path("identified.yaml"), metavar="FILE", help="(identified.yaml, here)")
    p.add_argument("--randomization", type=Path, metavar="FILE.yaml", help="write besides what the logs left open as a "
                   "randomization, for temporeal train randomize=FILE.yaml")
    p.add_argument("--residual", type=Path, metavar="FILE", help="train residual dynamics on these flights, too (a "
                   "minute; motion capture is needed), for backend.residual_dynamics=FILE and temporeal validate")
    p.add_argument("--known", action="append", default=[], metavar="NAME=VALUE,SD", help="a parameter that was "
                   "measured otherwise, and its standard deviation: mass=0.0332,0.0003")
    p.add_argument("--stretch", type=float, default=usual.stretch_s, metavar="S", help="length of a stretch "
                   f"({usual.stretch_s:g} s)")
    p.add_argument("--voltage", type=float, default=usual.reference_v, metavar="V", help="at which full thrust is "
                   f"given ({usual.reference_v:g} V)")
    p.add_argument("--steps", type=int, metavar="N", help="of the sampler that checks intervals "
                   f"({usual.steps}, of joints 0; 0: none)")
    p.add_argument("--threads", type=int, default=2, metavar="N", help="(2)")
    p.add_argument("--seed", type=int, default=usual.seed, metavar="N", help=f"of the sampler ({usual.seed})")
    p.add_argument("--episode", type=int, metavar="N", help="of datasets and bags: this one (0; of a bag of joints "
                   "all its parts)")
    p.add_argument("--reach", type=float, metavar="S", help="of joints: in which their controller goes to each "
                   "setpoint (default: as the robot's ros.yaml says; of datasets 0, at once)")
    p.add_argument("--anyway", action="store_true", help="use logs in which something is wrong")
    reading.add(p)
    add_overwrite(p)
    add_json(p)
    return p


def completions() -> list[str]:
    """None."""
    return []


def run(argv: Sequence[str]) -> int:
    """Identify, write the file, say what was found."""
    options = parser().parse_intermixed_args(argv)
    with bad_input():
        return identified(options)


def identified(options: Any) -> int:
    """The work."""
    from temporeal.policies.cli.verbs.flight_logs import joint_logs

    check_apart(options)
    writable(options.out, options.overwrite)
    check_randomization(options.randomization, options)
    if options.residual is not None:
        writable(options.residual, options.overwrite, "--residual")
    if len({path.resolve() for path in options.logs}) < len(options.logs):
        raise BadInput(f"a log is named twice: {', '.join(map(str, options.logs))}")
    if options.episode is not None and options.episode < 0:
        raise BadInput(f"--episode {options.episode}: numbers from 0 on")
    jointed = joint_logs.robot_of(options)
    joint_logs.check_reach(options, jointed)
    if jointed is not None and options.residual is not None:
        raise BadInput(f"--residual {options.residual}: of flights alone; these are logs of joints")
    content = of_flights(options) if jointed is None else of_joints(options, jointed)
    if not content["fit"]["converged"]:
        complain(f"temporeal: not converged after {content['fit']['rounds']} rounds: values may lie off by more than "
                 "their intervals say (a longer flight, --known or another --stretch may help)")
    if options.json:
        print_json({"out": options.out, "randomization": options.randomization, "residual": options.residual,
                    **content})
        return OK
    for line in lines(content) + (joint_logs.remarks(content) if jointed is not None else []):
        say(line)
    say(f"\n{options.out}")
    if options.randomization is not None:
        say(f"{options.randomization}: temporeal train task=waypoints randomize={options.randomization}")
    return OK


def settings_of(options: Any, steps: int) -> Settings:
    """What the options say; ``steps`` of the sampler where they say none."""
    from temporeal.sim.identification.settings import Settings

    return Settings(options.stretch, reference_v=options.voltage, seed=options.seed, threads=options.threads,
                    steps=steps if options.steps is None else options.steps,
                    known=tuple(known(each) for each in options.known))


def of_flights(options: Any) -> dict[str, Any]:
    """What a quadrotor's logs say, written with all that is asked for beside it."""
    from temporeal.policies.export.provenance import revision
    from temporeal.sim.identification import identified_file, randomization
    from temporeal.sim.identification.identify import USUAL, identify
    from temporeal.sim.randomization.posterior import check_voltage

    settings = settings_of(options, USUAL.steps)
    records, robot, slow = flights(options)
    if options.randomization is not None:
        check_voltage(randomization.voltage_of(records), settings.reference_v, str(options.randomization))
    if options.residual is not None:
        from temporeal.policies.training.flight_models.residual import enough

        enough(records)  # before anything is fitted
    content = identified_file.content(identify(records, robot, settings, slow_commands=slow), revision())
    identified_file.write(options.out, content)
    if options.randomization is not None:
        write_randomization(options.randomization, content, randomization.voltage_of(records), robot)
    if options.residual is not None:
        write_residual(options, content, records, robot, slow)
    return content


def of_joints(options: Any, robot: RobotSpec) -> dict[str, Any]:
    """What logs of an arm's or a hand's joints say, written."""
    from temporeal.policies.cli.verbs.flight_logs import joint_logs
    from temporeal.policies.export.provenance import revision
    from temporeal.sim.identification import identified_file

    content = identified_file.content(joint_logs.found_in(options, robot, settings_of(options, 0)), revision())
    identified_file.write(options.out, content)
    return content


def write_residual(options: Any, content: dict[str, Any], records: list[FlightRecord], robot: RobotSpec, slow: bool
                   ) -> None:
    """Train residual dynamics on top of what was identified, write them, and say what they explain."""
    from temporeal.policies.export.provenance import revision
    from temporeal.policies.training.flight_models.descent import Descent
    from temporeal.policies.training.flight_models.learned import learned
    from temporeal.sim.identification.validation.model import model_of
    from temporeal.sim.physics.quadrotor.residual import residual_file

    found = learned(model_of(content, robot, str(options.out)), records, slow, Descent(seed=options.seed))
    residual_file.write(options.residual, found, revision())
    before, after = found.training["held_out_before"], found.training["held_out_after"]
    complain(f"temporeal: {options.residual}: residual dynamics after {found.training['rounds']:.0f} updates; loss of "
             f"predictions over {found.training['horizon_s']:g} s on held-out blocks {after:.3g}, without {before:.3g}")


def write_randomization(out: Path, content: dict[str, Any], voltage: list[float] | None, robot: RobotSpec) -> None:
    """Write what the flights left open as a randomization, and say what is odd about it."""
    from temporeal.sim.identification import randomization
    from temporeal.sim.randomization.statuses import CONTRADICTS

    what = randomization.content(content, voltage)
    randomization.write(out, what)
    odd = [name for name, status in what["status"].items() if status == CONTRADICTS]
    for said in (
            "" if what["converged"] else "its fit did not converge: randomize= refuses it",
            f"contrary to its prior: {', '.join(odd)}" if odd else "",
            *(f"{each}: randomize= refuses it" for each in randomization.strange(what, robot)),
            "" if "inertia" in randomization.drawn_together(what) else "the log does not tell torque to inertia: the "
            "inertia is drawn from the range of the robot's spec instead",
            f"drawn more widely than the robot's spec has it: {', '.join(wide)}"
            if (wide := randomization.wider(content, what, robot)) else ""):
        if said:
            complain(f"temporeal: {out}: {said}")


def check_randomization(out: Path | None, options: Any) -> None:
    """Refuse a file that could not be named by ``randomize=`` afterwards, or cannot be written."""
    if out is None:
        return
    if out.suffix not in (".yaml", ".yml"):
        raise BadInput(f"--randomization {out}: a name that ends in .yaml is needed, by which randomize= knows it")
    writable(out, options.overwrite, "--randomization")


def check_apart(options: Any) -> None:
    """Refuse two files of one place: the later would replace the earlier."""
    named = [("--out", options.out), ("--randomization", options.randomization), ("--residual", options.residual),
             *(("LOG", path) for path in options.logs)]
    seen = dict[Path, str]()
    for option, path in named:
        if path is None:
            continue
        if seen.get(path.resolve(), option) != option:
            raise BadInput(f"{option} {path}: the file of {seen[path.resolve()]}, too; each needs one of its own")
        seen[path.resolve()] = option


def writable(out: Path, overwrite: bool, option: str = "--out") -> None:
    """Refuse, before anything is computed, a file that cannot be written afterwards."""
    if out.is_dir():
        raise BadInput(f"{option} {out} is a folder; a file is needed")
    if out.exists() and not overwrite:
        raise BadInput(f"{option} {out} is there already; --overwrite replaces it")
    if not out.parent.is_dir():
        raise BadInput(f"{option} {out}: there is no folder {out.parent}")
    if not os.access(out.parent, os.W_OK):
        raise BadInput(f"{option} {out}: you may not write in {out.parent}")


def legal(path: Path, options: Any) -> None:
    """Refuse options that say nothing of the log at ``path``."""
    from temporeal.policies.cli.verbs.flight_logs import reading
    from temporeal.policies.data.flight_logs import recorded
    from temporeal.policies.data.formats.kinds import ROSBAG

    kind = reading.kind_of(path, options)
    if options.rate is not None and kind != ROSBAG:
        raise BadInput(f"--rate {options.rate:g}: of bags alone; {path} is of kind {kind}, whose own times are used")
    if options.rate is not None and not 0 < options.rate <= MOST_HZ:
        raise BadInput(f"--rate {options.rate:g}: more than 0 and at most {MOST_HZ:g} Hz are legal")
    if options.episode and kind not in (ROSBAG, recorded.KIND):
        raise BadInput(f"--episode {options.episode}: of datasets and bags alone; {path} is of kind {kind}, one flight")


def known(text: str) -> tuple[str, float, float]:
    """``mass=0.0332,0.0003`` as its name, value and standard deviation."""
    name, _, rest = text.partition("=")
    try:
        value, sd = map(float, rest.split(","))
    except ValueError as error:
        raise BadInput(f"--known {text}: NAME=VALUE,SD is needed, such as mass=0.0332,0.0003") from error
    return name, value, sd


def flights(options: Any) -> tuple[list[FlightRecord], RobotSpec, bool]:
    """The logs as records, their robot, and whether commands were logged slowly."""
    from temporeal.policies.cli.verbs.flight_logs import reading
    from temporeal.policies.data.flight_logs.records import record_of

    options.episode = options.episode or 0  # of a bag of flights this one; of a bag of joints None is all of it
    records, robots, slow = [], set(), False
    for path in options.logs:
        legal(path, options)
        found = reading.inspected(path, options)
        if (wrong := found.of("wrong")) and not options.anyway:
            raise BadInput(f"{path}: " + "; ".join(f"{each.subject}: {each.said}" for each in wrong)
                           + " (temporeal log inspect shows it; --anyway uses the log as it is)")
        for each in found.of("marked"):
            complain(f"temporeal: {path}: {each.subject}: {each.said}")
        record, is_slow = record_of(found)
        records.append(record)
        robots.add(found.log.robot)
        slow |= is_slow
    if len(robots) > 1:
        raise BadInput(f"the logs are of several robots: {', '.join(sorted(robots))}; identify each by itself")
    robot = reading.robot_of(robots.pop())
    if robot is None:
        raise BadInput("nobody says whose logs these are: --robot NAME is needed, for the priors of its spec")
    return records, robot, slow


def of_draws(fit: dict[str, Any]) -> list[str]:
    """What the sampler says of the intervals."""
    if not fit["sampled_widths"]:
        return []
    low, high = fit["sampled_widths"]
    worth = fit["independent_draws"]
    return [f"{fit['draws']} draws, worth {worth:.0f}: their intervals are {low:.2f} to {high:.2f} times as wide as "
            "those below"]


def lines(content: dict[str, Any]) -> list[str]:
    """The table for people."""
    fit = content["fit"]
    out = [f"{each['name']}: {each['seconds']:.1f} s" for each in content["logs"]]
    out += [f"{content['robot']}: {fit['stretches']} stretches of {fit['stretch_s']:.2g} s, {fit['rounds']} rounds"
            + ("" if fit["converged"] else ", NOT CONVERGED"), *of_draws(fit), ""]
    out.append(f"{'parameter':22} {'value':>10} {'90 % interval':>22}  {'unit':8} prior's 90 %")
    for name, each in content["parameters"].items():
        interval = f"{each['low']:.4g} to {each['high']:.4g}"
        prior = f"{each['prior_low']:.3g} to {each['prior_high']:.3g}"
        out.append(f"{name:22} {each['value']:>10.4g} {interval:>22}  {each['unit']:8} {prior}"
                   + ("" if each["status"] == "identified" else f"  {each['status'].upper()}"))
        if each["why"]:
            out.append(f"{'':22} {each['why']}")
    return out


