"""Formula files: text, YAML or JSON, with constants, signals, period and semantics."""

from __future__ import annotations

import json
import re
import sys
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs.errors import BadInput
from temporeal.robots.handed_over.files import MIB, Refused, read
from temporeal.robots.handed_over.texts import Loader, from_yaml
from temporeal.robots.registry import guess_file

if TYPE_CHECKING:
    from temporeal.robots.signals import SignalSpec
    from temporeal.sim.stl.language.conventions import Semantics


KEYS = ("formula", "constants", "signals", "dt", "semantics")
SUFFIXES = (".stl", ".txt", ".yaml", ".yml", ".json")
LARGEST = 8 * MIB
FILE_KINDS = "text (.stl, .txt), .yaml or .json"


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


INLINE = "the formula"
"""The source of a formula that is on the command line."""


def given(text: str) -> Spec:
    """The formula of the file ``text``; where that is no file and looks like none, ``text`` is the formula."""
    if not text.strip():
        raise BadInput("FORMULA is empty; it is a formula, such as 'G[0,2] (height > 0.3)', or the file of one")
    path = Path(text)
    if path.suffix.lower() in SUFFIXES or is_there(path):
        return load(path)
    return Spec(INLINE, text)


def is_there(path: Path) -> bool:
    """Whether there is a file or a folder of this name; a formula may be too long for one."""
    try:
        return path.exists()
    except OSError:
        return False


def load(path: Path) -> Spec:
    """Read a formula file: plain text unless its suffix says YAML or JSON."""
    from temporeal.policies.cli.traces.csv_files import text_of

    if not path.is_file():
        what = "a folder" if path.is_dir() else "not there"
        raise BadInput(f"{path} is {what}; {guess_file(path)}FORMULA is a file, {FILE_KINDS}, or the formula itself: "
                       "'G[0,2] (height > 0.3)'")
    try:
        text = text_of(read(path, LARGEST), str(path))
    except (OSError, Refused) as error:
        raise BadInput(str(error)) from error
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


def without_comments(text: str) -> str:
    """The text with its comments blanked."""
    return re.sub(r"#[^\n]*|//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)


def assigned_names(text: str) -> set[str]:
    """Names that a specification assigns to its own formulas: ``out = ...``. They are no columns."""
    return set(re.findall(r"(?<![\w.])([A-Za-z_]\w*)\s*=(?!=)", without_comments(text)))


def read_json(text: str, wrong: str) -> Any:
    """JSON; duplicate keys and deep nesting are refused."""

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
    """YAML of plain data; duplicate keys and deep nesting are refused."""
    import yaml

    class Once(Loader):
        """Refuses a key that stands twice."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise yaml.YAMLError(f"line {key.start_mark.line + 1}: a key is a word")
                if key.value in seen and key.value != "<<":
                    raise yaml.YAMLError(f"line {key.start_mark.line + 1}: the key {key.value!r} is there twice")
                seen.add(str(key.value))
            out: dict[Any, Any] = super().construct_mapping(node, deep)
            return out

    try:
        return from_yaml(text, "it", Once)
    except Refused as error:
        raise BadInput(f"{wrong} that can be read: {error}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise BadInput(f"{wrong}: {error}") from error


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
    """The command line takes precedence over the file."""
    constants = read_json(options.constants, "--constants is no JSON")
    if not isinstance(constants, dict):
        raise BadInput("""--constants is one JSON object, such as '{"a": [1, 0, 1]}'; got """ + options.constants[:60])
    given = {key: value for key, value in (("end", options.end), ("until", options.until)) if value is not None}
    return replace(spec, constants={**spec.constants, **constants}, semantics={**spec.semantics, **given},
                   dt=spec.dt if options.dt is None else options.dt)


def semantics_of(spec: Spec) -> Semantics:
    """The semantics; rtamt's by default."""
    from temporeal.sim.stl.language.conventions import Semantics

    try:
        return Semantics(**spec.semantics)  # type: ignore[arg-type]
    except ValueError as error:
        raise BadInput(f"{spec.source}: {error}") from error
