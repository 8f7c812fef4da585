"""``temporeal spec``: check, explain, plot and monitor a formula on a trace from a file; draw formulas."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from temporeal.policies.cli.console import Parser, add_json, add_overwrite
from temporeal.policies.cli.specs import formula_sets, missions
from temporeal.policies.cli.specs.judging import judge
from temporeal.policies.cli.specs.monitoring import monitor
from temporeal.policies.cli.specs.outline import outline
from temporeal.policies.cli.specs.spec_file import given, with_options
from temporeal.policies.runs import errors
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.registry import guess

SUMMARY = "check, explain, plot or monitor a formula on a trace or on a dataset"
HELP = """\
Evaluates a Signal Temporal Logic formula on a recorded trace. Needs no robot, no simulator and no training.

  check    parse the formula; with a trace: robustness at the first sample, and verdict
  explain  which predicate decided the verdict, when, and by how much; each clause; slack to each deadline
  plot     the same as a picture (-o out.svg, .png or .pdf)
  monitor  feed the trace sample by sample, up to the formula's horizon: bounds on the robustness, and the verdict as
           soon as it is certain; - reads stdin
  say      a mission in words over named places as a formula (temporeal spec say --help); tell: the formula in words
  draw     draw formulas that can be satisfied, each with a witness, to a file (temporeal spec draw --help); check of
           that file, a .jsonl, does the proofs again

FORMULA is a formula, or the file of one: text (.stl, .txt), or YAML (.yaml) or JSON (.json) with formula, and
optionally constants, signals, dt, semantics. TRACE is CSV (a header of signal names, t in seconds, components as p.0,
p.1), NPZ, Parquet, or a ROS 2 bag (.mcap, .db3 or its folder, with --map or --robot). Signals that FORMULA does not
declare are taken from the trace. TRACE may be the folder of a dataset: then check says which episodes satisfy which
clause and how often (with a 95 % interval), monitor also from when each verdict is certain; --episode N takes one.

Every reader has the same rules. Times must increase: one that repeats or goes back is an error (--repeated drop leaves
such samples out, and says how many). A missing value is an error where the formula reads it (--missing unknown: lost).

A trace that ends before the formula's horizon still gets a verdict: windows are clipped to it, as in rtamt (--end
changes that). With --partial, and in monitor, the verdict is undecided unless every continuation agrees. With --json,
robustness is a number, "inf" or "-inf", or null if unknown.

Exit status: 0 satisfied (or, without a trace, well-formed; of a dataset: by all episodes), 1 violated, 2 undecided or
bad input.

Example:
  temporeal spec check 'G[0,2] (height > 0.3)' flight.csv
  temporeal spec check mission.stl flight.csv --json
  temporeal spec explain mission.yaml flight.npz
  temporeal spec plot mission.stl flight.mcap --map height=/odom:pose.pose.position.z --dt 0.02 --resample hold -o f.svg
  temporeal spec monitor mission.stl demonstrations/ --json
  tail -f live.csv | temporeal spec monitor mission.stl - --until-decided
  temporeal spec draw --robot linear --family train --count 100 --out formulas.jsonl
"""

ACTIONS = ("check", "explain", "plot", "monitor")
DRAW, SAY, TELL = "draw", missions.SAY, missions.TELL
"""Actions with options of their own."""


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("spec", HELP)
    p.add_argument("words", nargs="*", metavar="check|explain|plot|monitor FORMULA [TRACE]",
                   help="what to do, the formula or its file, and the file of the trace (- is stdin, for monitor)")
    p.add_argument("-o", "--out", type=Path, metavar="PICTURE", help="plot: the file to write (.svg, .png, .pdf)")
    p.add_argument("--constants", metavar="JSON", default="{}", help="""constants of the formula: '{"a": [1, 0, 1]}'""")
    p.add_argument("--dt", type=float, metavar="S", help="period of the samples (default: that of the time column)")
    p.add_argument("--resample", choices=("hold", "linear"),
                   help="resample to the grid of --dt: hold the last sample, or interpolate linearly")
    p.add_argument("--time", default="t", metavar="NAME", help="the time column, in seconds (%(default)s)")
    p.add_argument("--from", type=float, dest="begin", metavar="S", help="use only the trace from this time on")
    p.add_argument("--to", type=float, dest="end_s", metavar="S", help="use only the trace up to this time")
    p.add_argument("--missing", choices=("error", "unknown"), default="error",
                   help="an empty or NaN value is refused, or unknown (%(default)s)")
    p.add_argument("--repeated", choices=("error", "drop"), default="error",
                   help="a time that repeats or goes back is refused, or left out and counted (%(default)s)")
    p.add_argument("--stale-after", action="append", default=[], metavar="[/TOPIC=]S", dest="stale",
                   help="how long a sample holds when resampled (three of its periods; latched: until the next one)")
    p.add_argument("--end", choices=("clip", "strong", "weak"),
                   help="past the end of the trace windows are clipped, predicates false, or predicates true (clip)")
    p.add_argument("--until", choices=("half-open", "closed"),
                   help="whether p in `p U q` must hold up to the sample before q, or at that of q too (half-open)")
    p.add_argument("--episode", type=int, metavar="N", help="dataset: this episode alone, as a trace")
    p.add_argument("--truth", action="store_true", help="dataset: by true_NAME, where sensors changed NAME")
    p.add_argument("--partial", action="store_true", help="undecided unless all continuations of the trace agree")
    p.add_argument("--until-decided", action="store_true", help="monitor: end as soon as the verdict is certain")
    p.add_argument("--series", action="store_true", help="with --json: every part's robustness at every sample")
    p.add_argument("--rename", action="append", default=[], metavar="COLUMN=SIGNAL", dest="renames",
                   help="rename a column, such as X=pos_x: X is a keyword of the language (repeatable)")
    p.add_argument("--map", action="append", default=[], metavar="SIGNAL=/TOPIC:FIELD", dest="maps",
                   help="bag: the field of a topic that is a signal, joints by name: q=/joint_states:position[elbow]")
    p.add_argument("--robot", default="", help="bag: the robot whose topics to decode, such as crazyflie")
    p.add_argument("--interface", help="with --robot: which of its interfaces (its default)")
    p.add_argument("--namespace", help="with --robot: whose topics, such as /cf1 (that of the only robot)")
    add_overwrite(p)
    add_json(p)
    return p


def part_helps() -> dict[str, str]:
    """What ``--help`` of the actions with options of their own prints."""
    parsers = {DRAW: formula_sets.parser, SAY: missions.say_parser, TELL: missions.tell_parser}
    return {action: make().format_help().strip() for action, make in parsers.items()}


def completions() -> list[str]:
    """Actions."""
    return [*ACTIONS, DRAW, SAY, TELL]


def run(argv: Sequence[str]) -> int:
    """One action on one formula, or a set of formulas."""
    own = {DRAW: formula_sets.draw, SAY: missions.say_mission, TELL: missions.tell_mission}
    if argv and argv[0] in own:
        return own[argv[0]](argv[1:])
    options = parser().parse_intermixed_args(argv)
    action, *files = options.words or [""]
    if action not in ACTIONS:
        legal = completions()
        raise BadInput(f"spec {action}: {guess(action, legal)}what to do is one of {', '.join(legal)}; see "
                       "temporeal spec --help")
    if files and all(Path(file).suffix == formula_sets.SUFFIX for file in files):
        return check_sets(action, files, options)
    if not 1 <= len(files) <= 2 or (len(files) == 1 and action != "check"):
        wanted = "FORMULA [TRACE]" if action == "check" else "FORMULA TRACE"
        raise BadInput(f"temporeal spec {action} takes {wanted}, got {' '.join(files) or 'nothing'}")
    check_options(action, options)
    from temporeal.policies.cli.specs.datasets import is_dataset, on_dataset

    whole = len(files) > 1 and options.episode is None and is_dataset(Path(files[1]))
    if options.episode is not None and (len(files) < 2 or not is_dataset(Path(files[1]))):
        raise BadInput("--episode is for a dataset")
    if options.truth and not whole:
        raise BadInput("--truth is for a dataset, all of it")
    from temporeal.policies.runs.replacing import refuse_to_replace

    refuse_to_replace(options.out, options.overwrite, "-o")
    with errors.bad_input():
        spec = with_options(given(files[0]), options)
        if len(files) == 1:
            return outline(spec, options)
        if whole:
            return on_dataset(action, spec, Path(files[1]), options)
        if action == "monitor":
            return monitor(spec, files[1], options)
        return judge(action, spec, Path(files[1]), options)


def check_sets(action: str, files: Sequence[str], options: Namespace) -> int:
    """Sets of drawn formulas, each with a witness of its own."""
    plain = parser().parse_args([])
    given = [name for name, value in vars(options).items() if value != getattr(plain, name)]
    if action != "check" or set(given) - {"words", "json"}:
        raise BadInput(f"{files[0]} is a set of formulas, each with a witness of its own: temporeal spec check "
                       f"{' '.join(files)}, with --json and no other option")
    with errors.bad_input():
        return formula_sets.check([Path(file) for file in files], options)


def check_options(action: str, options: Namespace) -> None:
    """Refuse options that would be ignored."""
    if options.stale and not options.resample:
        raise BadInput("--stale-after is for --resample: without it no sample holds beyond its own time")
    if (options.out is not None) != (action == "plot"):
        raise BadInput(f"-o is the picture of plot{'' if options.out is None else f', spec {action} writes none'}"
                       f"{': say where it goes, such as -o out.svg' if action == 'plot' else ''}")
    if options.until_decided and action != "monitor":
        raise BadInput(f"--until-decided is for monitor, not for {action}")
    if options.partial and (action == "monitor" or options.end):
        raise BadInput("--partial: monitor always takes the trace so" if action == "monitor" else
                       "--partial and --end are two answers to one question: give one")
    if action == "monitor" and options.end:
        raise BadInput("--end: while a trace goes on, what lies past its end is unknown; check and explain take --end")
    if options.series and (not options.json or action == "monitor"):
        raise BadInput("--series is for the --json of check, explain and plot")
    if (options.interface or options.namespace) and not options.robot:
        raise BadInput("--interface and --namespace are those of --robot")
    if options.dt is not None and not (options.dt > 0 and math.isfinite(options.dt)):
        raise BadInput(f"--dt is a number of seconds above 0, got {options.dt}")
    if action == "plot" and options.out.suffix.lower() not in (".svg", ".png", ".pdf"):
        raise BadInput(f"-o {options.out}: a picture is .svg, .png or .pdf")
