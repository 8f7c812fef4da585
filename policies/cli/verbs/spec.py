"""``temporeal spec``: check, explain, plot and monitor a formula on a trace from a file."""

from __future__ import annotations

import itertools
import json
import math
import re
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, complain, print_json, say
from temporeal.policies.runs.errors import BAD_INPUT, FAILED, OK, BadInput

if TYPE_CHECKING:
    from temporeal.policies.cli.traces.traces import Options, Table, Trace
    from temporeal.robots.signals import SignalSpec
    from temporeal.sim.stl.analysis.explain import Explanation
    from temporeal.sim.stl.language.conventions import Semantics
    from temporeal.sim.stl.language.propositional import Formula
    from temporeal.sim.stl.monitoring.monitor import Monitor, Reading

SUMMARY = "check, explain, plot or monitor a formula on a trace from a file"
HELP = """\
What a formula of Signal Temporal Logic says of a recorded trace. Needs no robot, no simulator and no training.

  check    parse the formula; with a trace: robustness at the first sample, and verdict
  explain  which predicate decided it, when, by how much; each clause; slack to each deadline
  plot     the same as a picture (-o out.svg, .png or .pdf)
  monitor  feed the trace sample by sample, to the formula's horizon: bounds on the robustness, verdict as soon as it
           is certain; - reads stdin

FILE is a formula as text, or YAML (.yaml) or JSON (.json) with formula, and optionally constants, signals, dt,
semantics. TRACE is CSV (a header of signal names, t in seconds, components as p.0, p.1), NPZ, Parquet, or a ROS 2 bag
(.mcap or its folder; --map or --robot says what its topics are). Signals that FILE does not declare are the trace's.

A trace that ends before the formula's horizon still gets a verdict: windows are cut to it, as rtamt does (--end says
otherwise). With --partial, and in monitor, the verdict is undecided unless every continuation agrees. With --json
robustness is a number, "inf" or "-inf", or null where it is not known.

Exit status: 0 satisfied (or, without a trace, well-formed), 1 violated, 2 undecided or bad input.

Example:
  temporeal spec check mission.stl flight.csv --json
  temporeal spec explain mission.yaml flight.npz
  temporeal spec plot mission.stl flight.mcap --map height=/odom:pose.pose.position.z --dt 0.02 --resample hold -o f.svg
  tail -f live.csv | temporeal spec monitor mission.stl - --until-decided
"""
ACTIONS = ("check", "explain", "plot", "monitor")
SIZES = (2, 1, 4, 3, 5, 6, 7, 8)
"""Lengths of vectors to try where only their use tells."""
STATUS = {"satisfied": OK, "violated": FAILED, "undecided": BAD_INPUT}
KEYS = ("formula", "constants", "signals", "dt", "semantics")
MOST_STEPS = 10_000_000
"""Samples of the longest window that is watched sample by sample."""
FILE_KINDS = "text (.stl, .txt), .yaml or .json"


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("spec", HELP)
    p.add_argument("words", nargs="*", metavar="check|explain|plot|monitor FILE [TRACE]",
                   help="what to do, the file of the formula, and that of the trace (- is stdin, for monitor)")
    p.add_argument("-o", "--out", type=Path, metavar="PICTURE", help="plot: the file to write (.svg, .png, .pdf)")
    p.add_argument("--constants", metavar="JSON", default="{}", help="""constants of the formula: '{"a": [1, 0, 1]}'""")
    p.add_argument("--dt", type=float, metavar="S", help="period of the samples (default: that of the time column)")
    p.add_argument("--resample", choices=("hold", "linear"),
                   help="put the samples on the grid of --dt: the newest one not later, or a line between two")
    p.add_argument("--time", default="t", metavar="NAME", help="the time column, in seconds (%(default)s)")
    p.add_argument("--from", type=float, dest="begin", metavar="S", help="leave out what is earlier in the trace")
    p.add_argument("--to", type=float, dest="end_s", metavar="S", help="leave out what is later in the trace")
    p.add_argument("--missing", choices=("error", "unknown"), default="error",
                   help="an empty or NaN value: refuse it, or take it as unknown (%(default)s)")
    p.add_argument("--end", choices=("clip", "strong", "weak"),
                   help="what lies past the end of the trace: nothing, only false, only true (clip)")
    p.add_argument("--until", choices=("half-open", "closed"),
                   help="whether p in `p U q` must hold up to the sample before q, or at that of q too (half-open)")
    p.add_argument("--partial", action="store_true", help="the trace may go on: undecided unless all futures agree")
    p.add_argument("--until-decided", action="store_true", help="monitor: end as soon as the verdict is certain")
    p.add_argument("--series", action="store_true", help="with --json: every part's robustness at every sample")
    p.add_argument("--rename", action="append", default=[], metavar="COLUMN=SIGNAL", dest="renames",
                   help="call a column otherwise, such as X=pos_x: X is a word of the language (repeatable)")
    p.add_argument("--map", action="append", default=[], metavar="SIGNAL=/TOPIC:FIELD", dest="maps",
                   help="bag: the field of a topic that is a signal (repeatable)")
    p.add_argument("--robot", default="", help="bag: the robot whose topics to decode, such as crazyflie")
    p.add_argument("--interface", help="with --robot: which of its interfaces (its default)")
    p.add_argument("--namespace", help="with --robot: whose topics, such as /cf1 (that of the only robot)")
    add_json(p)
    return p


def run(argv: Sequence[str]) -> int:
    """One action on one formula."""
    options = parser().parse_intermixed_args(argv)
    action, *files = options.words or [""]
    if action not in ACTIONS:
        raise BadInput(f"spec {action}: what to do is one of {', '.join(ACTIONS)}; see temporeal spec --help")
    if not 1 <= len(files) <= 2 or (len(files) == 1 and action != "check"):
        wanted = "FILE [TRACE]" if action == "check" else "FILE TRACE"
        raise BadInput(f"temporeal spec {action} takes {wanted}, got {' '.join(files) or 'nothing'}")
    check_options(action, options)
    from temporeal.policies.runs import errors

    with errors.bad_input():
        spec = with_options(load(Path(files[0])), options)
        if len(files) == 1:
            return outline(spec, options)
        if action == "monitor":
            return monitor(spec, files[1], options)
        return judge(action, spec, Path(files[1]), options)


def check_options(action: str, options: Namespace) -> None:
    """Options that would be ignored are refused."""
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


# ---------------------------------------------------------------- the formula's file


@dataclass(frozen=True)
class Spec:
    """What a formula's file says.

    Args:
        source: the file, for messages.
        formula: its text, or its JSON form.
        constants: by name.
        signals: those that it declares.
        dt: the period that it declares, s.
        semantics: of ``end`` and ``until``, as far as it says.
    """

    source: str
    formula: str | Mapping[str, Any]
    constants: Mapping[str, Any] = field(default_factory=dict)
    signals: Mapping[str, SignalSpec] = field(default_factory=dict)
    dt: float | None = None
    semantics: Mapping[str, str] = field(default_factory=dict)


def load(path: Path) -> Spec:
    """The formula's file: plain text unless its suffix says YAML or JSON."""
    from temporeal.policies.cli.traces.traces import text_of

    if not path.is_file():
        raise BadInput(f"{path} is {'a folder' if path.is_dir() else 'not there'}; FILE is a formula: {FILE_KINDS}")
    text = text_of(path.read_bytes(), str(path))
    kind = path.suffix.lower()
    if kind == ".json":
        data = read_json(text, f"{path} is no JSON")
        if isinstance(data, dict) and "node" in data:
            return Spec(str(path), data)
        return from_mapping(data, str(path))
    if kind in (".yaml", ".yml"):
        return from_mapping(read_yaml(text, f"{path} is no YAML"), str(path))
    if not without_comments(text).strip():
        raise BadInput(f"{path}: the formula is empty")
    return Spec(str(path), text)


def read_json(text: str, wrong: str) -> Any:
    """JSON; a key that stands twice is refused, as is what is nested too deeply."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, value in pairs:
            if key in out:
                raise ValueError(f"the key {key!r} is there twice")
            out[key] = value
        return out

    try:
        return json.loads(text, object_pairs_hook=once)
    except ValueError as error:
        raise BadInput(f"{wrong}: {error}") from error
    except RecursionError:
        raise BadInput(f"{wrong} that can be read: it is nested too deeply") from None


def read_yaml(text: str, wrong: str) -> Any:
    """YAML of plain data; a key that stands twice is refused, as is what is nested too deeply."""
    import yaml

    class Loader(yaml.SafeLoader):
        """Refuses a key that stands twice."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key, _ in node.value:
                if key.value in seen and isinstance(key.value, str) and key.value != "<<":
                    raise yaml.YAMLError(f"line {key.start_mark.line + 1}: the key {key.value!r} is there twice")
                seen.add(str(key.value))
            out: dict[Any, Any] = super().construct_mapping(node, deep)
            return out

    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError) as error:
        raise BadInput(f"{wrong}: {error}") from error
    except RecursionError:
        raise BadInput(f"{wrong} that can be read: it is nested too deeply") from None


def from_mapping(data: Any, source: str) -> Spec:
    """A specification from the content of a YAML or JSON file."""
    if not isinstance(data, dict) or "formula" not in data:
        raise BadInput(f"{source}: a mapping with {', '.join(KEYS)} is needed; formula must be there")
    unknown = [str(key) for key in data if key not in KEYS]
    if unknown:
        raise BadInput(f"{source}: unknown key {', '.join(unknown)}; known: {', '.join(KEYS)}")
    for key, kind in (("constants", dict), ("signals", dict), ("semantics", dict), ("formula", (str, dict))):
        if data.get(key) is not None and not isinstance(data[key], kind):
            wanted = "a text" if key == "formula" else "a mapping"
            raise BadInput(f"{source}: {key} must be {wanted}, got {data[key]!r:.60}")
    dt = data.get("dt")
    if dt is not None and (isinstance(dt, bool) or not isinstance(dt, (int, float))
                           or not 0 < dt <= sys.float_info.max):
        raise BadInput(f"{source}: dt is a number of seconds above 0, got {dt!r:.60}")
    for key in ("constants", "signals"):
        names = [name for name in data.get(key) or {} if not isinstance(name, str)]
        if names:
            raise BadInput(f"{source}: {key}: a name is a text, got {names[0]!r}")
    semantics = {str(key): str(value) for key, value in (data.get("semantics") or {}).items()}
    if set(semantics) - {"end", "until"}:
        raise BadInput(f"{source}: semantics has end and until, got {', '.join(semantics)}")
    signals = {n: declared(n, value, source) for n, value in (data.get("signals") or {}).items()}
    return Spec(source, data["formula"], data.get("constants") or {}, signals, None if dt is None else float(dt),
                semantics)


def declared(name: str, value: Any, source: str) -> SignalSpec:
    """A signal's declaration: a unit (``m``), a shape (``[3]``), both (``"[3] m"``), or a mapping of shape and unit."""
    from temporeal.robots.signals import SignalSpec

    shape: Any = ()
    unit: Any = ""
    if isinstance(value, dict):
        if set(value) - {"shape", "unit"}:
            raise BadInput(f"{source}: signals.{name} has shape and unit, got {', '.join(map(str, value))}")
        shape, unit = value.get("shape", ()), value.get("unit", "")
    elif isinstance(value, list):
        shape = value
    elif value is not None:
        found = re.fullmatch(r"\s*(?:\[\s*(\d+(?:\s*,\s*\d+)*)?\s*\])?\s*([^\[\]]*?)\s*", str(value))
        if not found or not isinstance(value, str):
            raise BadInput(f"{source}: signals.{name}: a declaration is a unit (m), a shape ([3]), or both as a text "
                           f"('[3] m'), got {value!r:.60}")
        shape = [int(n) for n in (found[1] or "").split(",") if n.strip()]
        unit = found[2]
    if type(shape) is int:
        shape = [shape]
    if not isinstance(unit, str):
        raise BadInput(f"{source}: signals.{name}: a unit is a text such as m/s, got {unit!r:.60}")
    if not isinstance(shape, (list, tuple)) or not all(type(n) is int and n > 0 for n in shape):
        raise BadInput(f"{source}: signals.{name}: a shape is a list of whole numbers such as [3], got {shape!r}")
    return SignalSpec(name, tuple(shape), str(unit), dtype="float64")


def with_options(spec: Spec, options: Namespace) -> Spec:
    """What the command line says goes before what the file says."""
    constants = read_json(options.constants, "--constants is no JSON")
    if not isinstance(constants, dict):
        raise BadInput("""--constants is one JSON object, such as '{"a": [1, 0, 1]}'; got """ + options.constants[:60])
    given = {key: value for key, value in (("end", options.end), ("until", options.until)) if value is not None}
    return replace(spec, constants={**spec.constants, **constants}, semantics={**spec.semantics, **given},
                   dt=spec.dt if options.dt is None else options.dt)


def semantics_of(spec: Spec) -> Semantics:
    """The semantics, rtamt's where nothing is said."""
    from temporeal.sim.stl.language.conventions import Semantics

    try:
        return Semantics(**spec.semantics)  # type: ignore[arg-type]
    except ValueError as error:
        raise BadInput(f"{spec.source}: {error}") from error


def formula_of(spec: Spec, schema: Mapping[str, SignalSpec]) -> Formula:
    """The formula, checked against ``schema`` and what the file declares; the latter goes first."""
    from temporeal.sim.stl.language.errors import FormulaError
    from temporeal.sim.stl.language.parse import check, parse
    from temporeal.sim.stl.language.propositional import Formula
    from temporeal.sim.stl.language.serialization import from_json

    known = {**schema, **spec.signals}
    try:
        if not isinstance(spec.formula, str):
            if spec.constants:
                raise BadInput(f"{spec.source}: constants are for a formula as text: its JSON form carries its own")
            formula = from_json(spec.formula)
            if not isinstance(formula, Formula):
                raise BadInput(f"{spec.source}: formula is an expression, {type(formula).__name__.lower()}: a formula "
                               "has a comparison")
            return check(formula, known)
        assigned = {name for name in assigned_names(spec.formula) if name not in spec.signals}
        return parse(spec.formula, {n: s for n, s in known.items() if n not in assigned}, spec.constants)
    except FormulaError as error:
        raise BadInput(f"{spec.source}: {error}") from error
    except RecursionError:
        raise BadInput(f"{spec.source}: the formula is nested too deeply") from None


def formula_on(spec: Spec, schema: Mapping[str, SignalSpec], columns: Sequence[str], source: str) -> Formula:
    """The formula over the signals of a trace; what the trace has is told where the formula asks for something else."""
    from temporeal.sim.stl.language.text import WORDS

    try:
        return formula_of(spec, schema)
    except BadInput as error:
        text = str(error)
        if "unknown signal" in text and set(columns) - set(schema):
            text += f"\n{source} has the columns {', '.join(columns)}"
        words = {c.split(".")[0] for c in columns} & set(WORDS)
        word = next((w for w in sorted(words) if f"{w!r} is a keyword" in text), "")
        if word:
            text += f"\n{source} has a column {word}: --rename {word}=NAME calls it otherwise, for the formula too"
        raise BadInput(text) from error


def without_comments(text: str) -> str:
    """The text with blanks for its comments."""
    return re.sub(r"#[^\n]*|//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)


def assigned_names(text: str) -> set[str]:
    """Names that a specification gives to its own formulas: ``out = ...``. A column called so is not meant."""
    return set(re.findall(r"(?<![\w.])([A-Za-z_]\w*)\s*=(?!=)", without_comments(text)))


def assumed(spec: Spec) -> dict[str, SignalSpec]:
    """Signals guessed from the formula alone: scalars, and vectors where a component or a length is taken of them."""
    from temporeal.robots.signals import SignalSpec
    from temporeal.sim.stl.language.operations import FUNCTIONS
    from temporeal.sim.stl.language.propositional import Signal
    from temporeal.sim.stl.language.queries import leaves_in
    from temporeal.sim.stl.language.serialization import from_json
    from temporeal.sim.stl.language.text import WORDS

    if not isinstance(spec.formula, str):
        read = [leaf for leaf in leaves_in(from_json(spec.formula)) if isinstance(leaf, Signal)]
        return {s.name: SignalSpec(s.name, s.shape, s.unit, dtype="float64") for s in read}
    text = without_comments(spec.formula)
    reserved = {*WORDS, *FUNCTIONS, *spec.constants, *spec.signals, *assigned_names(text), "inf", "rise", "fall"}
    shapes: dict[str, tuple[int, ...]] = {}
    for found in re.finditer(r"""(?<![\w."])(?:"([^"\n]+)"|([^\W\d]\w*))((?:\.\w+|\[\d+\])*)""", text):
        name = found[1] or found[2]
        if name in (reserved - set(WORDS) if found[1] else reserved):
            continue
        entries = re.findall(r"\w+", found[3])
        least = [int(e) + 1 if e.isdigit() else {"x": 3, "y": 3, "z": 3, "w": 4}.get(e, 1) for e in entries]
        sizes = itertools.zip_longest(least, shapes.get(name, ()), fillvalue=1)
        shapes[name] = tuple(max(pair) for pair in sizes)
    for call in re.finditer(r"\b(?:norm|dist|angle|rotation_angle)\s*\(([^()]*)\)", text):
        of = 4 if call[0].startswith("rotation") else 3
        for name in re.findall(r"(?<![\w.\[])([^\W\d]\w*)(?![\w.\[(])", call[1]):
            if shapes.get(name) == ():
                shapes[name] = (of,)
    return {n: SignalSpec(n, s, "wxyz" if s == (4,) else "", dtype="float64") for n, s in shapes.items()}


def guessed_formula(spec: Spec) -> Formula:
    """The formula over signals whose shapes are guessed: the first guess with which it is well-formed."""
    first = assumed(spec)
    if not isinstance(spec.formula, str):
        return formula_of(spec, first)
    free = [name for name, s in first.items() if s.shape in ((3,), (4,))
            and not re.search(rf"(?<![\w.]){name}\s*[.\[]", without_comments(spec.formula))]
    groups = [*([name] for name in free), free]
    guesses = [first, *({**first, **{n: replace(first[n], shape=(size,), unit="") for n in group}}
                        for group in groups for size in SIZES)]
    errors = []
    for guess in guesses:
        try:
            return formula_of(spec, guess)
        except BadInput as error:
            errors.append(error)
    wrong = errors[0]
    shapes = ", ".join(f"{n}{list(s.shape)}" for n, s in first.items() if s.shape and n not in spec.signals)
    if not shapes or len({str(error) for error in errors}) == 1 < len(errors):  # whatever the shapes
        raise wrong
    raise BadInput(f"{wrong}\nthe shapes were guessed: {shapes}; a trace or signals in YAML say them") from wrong


# ---------------------------------------------------------------- check without a trace


def outline(spec: Spec, options: Namespace) -> int:
    """The formula as it was understood: text, horizon, history, signals."""
    from temporeal.sim.stl.language.errors import FormulaError
    from temporeal.sim.stl.language.propositional import to_text
    from temporeal.sim.stl.language.queries import history, horizon, signals_in

    semantics_of(spec)
    formula = guessed_formula(spec)
    try:
        ahead, back = horizon(formula, spec.dt), history(formula, spec.dt)
    except FormulaError as error:
        if spec.dt is not None:
            raise BadInput(f"{spec.source}: {error}") from error
        ahead = back = math.nan  # in samples: X and Y are as long as the period
    signals = signals_in(formula)
    guessed = [name for name in signals if name not in spec.signals and isinstance(spec.formula, str)]
    if options.json:
        rows = {n: {"shape": list(s.shape), "unit": s.unit, "assumed": n in guessed} for n, s in signals.items()}
        print_json({"formula": to_text(formula), "horizon_s": finite(ahead), "history_s": finite(back), "dt": spec.dt,
                    "signals": rows, "robustness": None, "verdict": None, "decided_by": None, "at_s": None})
        return OK
    say(to_text(formula))
    say(f"  looks ahead  {span(ahead)}\n  looks back   {span(back)}")
    for name, signal in signals.items():
        shape = f"[{', '.join(map(str, signal.shape))}]" if signal.shape else ""
        told = " (shape assumed: no trace, not declared)" if name in guessed else ""
        say(f"  signal       {name}{shape} {signal.unit}{told}")
    return OK


def finite(x: float) -> float | str | None:
    """A number as JSON can hold it."""
    return x if math.isfinite(x) else None if x != x else "inf" if x > 0 else "-inf"


def span(x: float) -> str:
    """A length of time in words."""
    if x != x:
        return "it depends on the period, which --dt S says"
    return f"{x:g} s" if math.isfinite(x) else "to the end of the trace"


# ---------------------------------------------------------------- a whole trace


def trace_options(options: Namespace, dt: float | None) -> Options:
    """How the trace's file is to be read."""
    from temporeal.policies.cli.traces.traces import Options

    return Options(options.time, dt, options.resample or "", options.missing, options.begin, options.end_s,
                   tuple(options.maps), options.robot, options.interface, options.namespace,
                   renames(options.renames))


def renames(texts: Sequence[str]) -> dict[str, str]:
    """Column -> signal of the ``--rename`` options."""
    out: dict[str, str] = {}
    for text in texts:
        old, equals, new = text.rpartition("=")
        if not equals or not old or not new.isidentifier():
            raise BadInput(f"--rename {text}: write COLUMN=SIGNAL, such as X=pos_x")
        if old in out:
            raise BadInput(f"--rename: column {old!r} is renamed twice")
        out[old] = new
    return out


def judge(action: str, spec: Spec, path: Path, options: Namespace) -> int:
    """Check, explain or plot: the verdict at the first sample of the trace."""
    formula, trace = both(spec, path, options)
    explanation = explained(formula, trace, spec, options.partial)
    if action == "plot":
        from temporeal.policies.runs import run_folders
        from temporeal.sim.stl.analysis.picture import draw

        run_folders.check_writable(options.out.parent, "-o")
        try:
            draw(explanation, options.out)
        except OSError as error:
            raise BadInput(f"cannot write {options.out}: {error.strerror}") from error
    if options.json:
        found = explanation.to_json(options.series)
        at = explanation.at_s
        found["at_t"] = None if at is None else trace.start_s + at
        print_json(found if action != "check" or options.series else short(found))
    elif action == "explain":
        say(explanation.text())
    else:
        say("\n".join(in_short(explanation)))
        if action == "plot":
            say(str(options.out))
    return STATUS[explanation.verdict]


def both(spec: Spec, path: Path, options: Namespace) -> tuple[Formula, Trace]:
    """The formula over the signals of the trace, and the trace."""
    from temporeal.policies.cli.traces.traces import open_tables, read_trace, schema_of
    from temporeal.sim.stl.language.queries import signals_in

    if str(path) == "-":
        raise BadInput("- (stdin) is for monitor; check, explain and plot read a file")
    how = trace_options(options, spec.dt)
    tables: Sequence[Table] = open_tables(path, how)
    formula = formula_on(spec, schema_of(tables), [c for table in tables for c in table.columns], str(path))
    trace = read_trace(tables, {name: signal.shape for name, signal in signals_in(formula).items()}, how)
    return formula, trace


def explained(formula: Formula, trace: Trace, spec: Spec, partial: bool) -> Explanation:
    """The explanation; a window that is no whole number of samples is bad input that says what to do."""
    import numpy as np

    from temporeal.sim.stl.analysis.explain import explain
    from temporeal.sim.stl.language.errors import FormulaError

    # a formula without signals is as long as its trace
    signals = trace.signals or {"": np.zeros(trace.count)}
    try:
        return explain(formula, signals, trace.dt, semantics_of(spec), partial)
    except FormulaError as error:
        hint = "; --dt S --resample hold puts the trace on a grid that fits" if "multiple" in str(error) else ""
        raise BadInput(f"{spec.source}: {error}{hint}") from error


def short(found: dict[str, Any]) -> dict[str, Any]:
    """What `check` tells of an explanation."""
    kept = ("formula", "robustness", "lower", "upper", "verdict", "decided_by", "at_s", "at_t", "dt", "samples",
            "horizon_s", "semantics", "note")
    return {key: found[key] for key in kept}


def in_short(e: Explanation) -> list[str]:
    """The verdict in a line or two."""
    from temporeal.sim.stl.analysis.wording import describe, note, number

    unit = e.decider.unit
    known = e.robustness == e.robustness
    size = number(e.robustness, unit) if known else f"between {number(e.lower, unit)} and {number(e.upper, unit)}"
    verb = "waits for" if e.verdict == "undecided" else "decided by"
    told = note(e)
    return [f"{e.verdict}: robustness {size}, {verb} {describe(e.decider)[0]}", *([f"note: {told}"] if told else [])]


# ---------------------------------------------------------------- sample by sample


def monitor(spec: Spec, source: str, options: Namespace) -> int:
    """Feed the samples one by one and tell what is known after each."""
    if semantics_of(spec).end != "clip":
        raise BadInput(f"{spec.source}: semantics end={spec.semantics['end']}: while a trace goes on, what lies past "
                       "its end is unknown; check and explain take it")
    watch = Watch(spec, options)
    if source == "-":
        samples = from_stdin(watch, spec, options)
    else:
        formula, trace = both(spec, Path(source), options)
        watch.begin(formula, trace.dt, trace.start_s)
        samples = ((k, {name: values[k] for name, values in trace.signals.items()}) for k in range(trace.count))
    try:
        for at, sample in samples:
            if watch.feed(at, sample):
                break
    except BadInput as error:
        if watch.decided_at_s is None:
            raise
        complain(f"temporeal: {error}\ntemporeal: the verdict was certain before that")
    return watch.end()


class Watch:
    """A monitor and what it has told."""

    def __init__(self, spec: Spec, options: Namespace) -> None:
        self.spec, self.options = spec, options
        self.samples: list[Mapping[str, Any]] = []
        self.lost = 0
        self.formula: Formula | None = None
        self.decided_at_s: float | None = None

    def begin(self, formula: Formula, dt: float, start_s: float) -> None:
        """The formula and the period are known."""
        from temporeal.sim.stl.language.errors import FormulaError
        from temporeal.sim.stl.language.queries import history, horizon
        from temporeal.sim.stl.monitoring.monitor import Monitor

        self.formula, self.dt, self.start_s = formula, dt, start_s
        self.bounded = math.isfinite(horizon(formula, dt))
        self.monitor: Monitor | None = None
        self.decimals = max(3, min(12, 3 - math.floor(math.log10(dt))))
        self.width = max(10, len(self.clock(start_s + dt)))
        try:
            longest = max([0.0, *(s for s in (horizon(formula, dt), history(formula, dt)) if math.isfinite(s))])
            if longest / dt > MOST_STEPS:
                complain(f"temporeal: a window of {longest:.6g} s is {longest / dt:.6g} samples, too many to be "
                         "watched one by one: it is judged when the trace ends")
                self.head()
                return
            # compiling would take longer than most traces last
            self.monitor = Monitor(formula, dt, semantics_of(self.spec), compiled=False)
        except FormulaError:
            if self.bounded:
                raise
            complain("temporeal: a window without an end inside the formula: it is judged when the trace ends")
        self.head()

    def head(self) -> None:
        """The head of the table."""
        if not self.options.json:
            say(f"{'t [s]':>{self.width}} {'lower':>12} {'upper':>12}  verdict")

    def clock(self, t: float) -> str:
        """A time of the trace's clock with the digits that tell samples apart."""
        return f"{t:.{self.decimals}f}".rstrip("0").rstrip(".")

    def feed(self, at: int, values: Mapping[str, Any]) -> bool:
        """Take sample ``at``, those before it that did not come being lost; whether that is enough: nothing can change,
        or the verdict, all that was asked for.
        """
        gap = at - len(self.samples)
        if gap:
            from temporeal.policies.cli.traces.traces import MAX_ROWS

            if at > MAX_ROWS:
                raise BadInput(f"{gap} samples were lost one after the other: a trace has at most {MAX_ROWS}")
            import numpy as np

            self.lost += gap
            self.samples += [{name: np.full_like(v, np.nan) for name, v in values.items()}] * gap
        self.samples.append(values)
        if self.monitor is None:
            return False
        reading: Reading = self.monitor.update(values, at=at * self.dt)
        if not self.options.json:
            time_s = self.clock(self.start_s + at * self.dt)
            say(f"{time_s:>{self.width}} {shown(reading.lower):>12} {shown(reading.upper):>12}  {reading.verdict}")
        if reading.verdict != "undecided" and self.decided_at_s is None:
            self.decided_at_s = at * self.dt
        return reading.final or (reading.verdict != "undecided" and bool(self.options.until_decided))

    def end(self) -> int:
        """The trace has ended, or is decided: what is known, and what decided it."""
        from temporeal.policies.cli.traces.traces import Trace

        if self.formula is None or not self.samples:
            raise BadInput("the trace is empty: no sample came")
        import numpy as np

        signals = {name: np.stack([s[name] for s in self.samples]) for name in self.samples[0]}
        trace = Trace(signals, self.dt, self.start_s, len(self.samples))
        # a formula without an end is judged by the whole trace, any other by what every continuation agrees on
        found = explained(self.formula, trace, self.spec, partial=self.bounded)
        if self.options.json:
            at = found.at_s
            print_json({**short({**found.to_json(), "at_t": None if at is None else self.start_s + at}),
                        "decided_at_s": self.decided_at_s, "lost": self.lost})
        else:
            lost = [f"note: {self.lost} sample{'s were' if self.lost > 1 else ' was'} lost"] if self.lost else []
            say("\n".join([*in_short(found), *lost]))
        return STATUS[found.verdict]


def shown(x: float) -> str:
    """A bound in a table."""
    return f"{x:.6g}"


def from_stdin(watch: Watch, spec: Spec, options: Namespace) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Samples of a CSV on stdin as they come, numbered from 0; the first two rows tell the period unless it is given.
    With ``--missing unknown`` numbers are left out where rows are.
    """
    from temporeal.policies.cli.traces.traces import TOLERANCE, clock, live, simplest_period
    from temporeal.sim.stl.language.queries import signals_in

    if options.resample or options.begin is not None or options.end_s is not None or options.maps or options.robot:
        raise BadInput("stdin is read as it comes: --resample, --from, --to, --map and --robot are for files")
    how = trace_options(options, spec.dt)
    stream = live(sys.stdin, how)
    formula = formula_on(spec, stream.schema, stream.columns, "stdin")
    names = signals_in(formula)
    for name, signal in names.items():
        if name not in stream.schema or stream.schema[name].shape != signal.shape:
            raise BadInput(f"stdin: no column for signal {name!r} of shape {list(signal.shape)}; "
                           f"columns: {', '.join(stream.columns)}")
    held: list[tuple[int, float | None, Mapping[str, Any]]] = []
    count, dt, first = 0, spec.dt, 0.0
    for row in stream.rows(list(names)):
        number, time, _ = row
        held.append(row)
        if dt is None:  # then there is a time column, or live() had refused
            if len(held) < 2:
                continue
            dt = period_of(held, simplest_period)
        if watch.formula is None:
            first = held[0][1] or 0.0
            watch.begin(formula, dt, first)
        for number, time, sample in held:
            if time is not None and math.isfinite(time) and options.missing == "unknown":
                count = max(count, math.floor((time - first) / dt + 0.5))
            if time is not None and not abs(time - first - count * dt) <= TOLERANCE * dt:
                says = "" if spec.dt else " by the first two rows: --dt S says another"
                raise BadInput(f"stdin: row {number}: t = {clock(time)}; {clock(first + count * dt)} is expected (the "
                               f"period is {dt:.6g} s{says}, tolerance {TOLERANCE:.0%} of it); time must increase "
                               "uniformly, but for rows that are lost with --missing unknown")
            yield count, sample
            count += 1
        held.clear()
    if held:
        raise BadInput("stdin: one sample has no period; --dt S says it")


def period_of(held: Sequence[tuple[int, float | None, Any]], simplest: Any) -> float:
    """The period of the first two rows."""
    import numpy as np

    (_, a, _), (number, b, _) = held[:2]
    if a is None or b is None or not b > a:
        raise BadInput(f"stdin: row {number}: t = {b} after {a}; time must increase")
    return float(simplest(np.array([a, b])))
