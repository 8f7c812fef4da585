"""Files of drawn formulas: JSON lines, the first of which says what they were drawn from.

    {"format": "temporeal.formulas", "version": 1, "world": {...}, "family": {...}, "seed": 1, "counts": {...}}
    {"index": 0, "kind": "reach", "formula": "...", "constants": {...}, "place": [x, y, z], "heading": 0.5,
     "horizon": 50, "robustness": 0.25, "witness": "<base64 of zlib of float32 [horizon, A], little endian>"}

A file is data and runs nothing. Everything is checked as it is read; :mod:`checking` does the proofs again.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from temporeal.robots.atomic_files import write_whole
from temporeal.robots.handed_over.files import Refused, opened
from temporeal.robots.handed_over.texts import from_json
from temporeal.robots.signals import is_number
from temporeal.robots.spec import robot_names
from temporeal.sim.stl.distribution.drawing import SEEDS, Drawn, check_shares
from temporeal.sim.stl.distribution.motions import Floats, limits, loaded
from temporeal.sim.stl.distribution.settings import Family, World, family_of, world_of, worlds

FORMAT, VERSION = "temporeal.formulas", 1
LARGEST = 8 << 30  # bytes
LINE = 1 << 20  # bytes; a line has about 2,000
LONGEST = 20_000  # characters of a formula; one has about 1,000
HEADER = ("format", "version", "world", "family", "seed", "counts")
ENTRY = ("index", "kind", "formula", "constants", "place", "heading", "horizon", "robustness", "witness")


@dataclass(frozen=True)
class Header:
    """What a file's formulas were drawn from; ``counts``: tries by kind and outcome."""

    world: World
    family: Family
    seed: int
    counts: Mapping[str, Mapping[str, int]]


def write(path: Path, header: Callable[[], Header], formulas: Iterable[Drawn]) -> None:
    """Write a file; it is there whole or not at all.

    ``formulas`` are taken one by one, once it is known that the folder can be written; ``header`` is called after the
    last one, since it has their counts.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=path.parent) as rows:  # without a name: a kill leaves nothing
        for found in formulas:
            rows.write(json.dumps(_row(found)).encode() + b"\n")
        rows.flush()
        if not rows.tell():
            raise ValueError(f"{path}: a file of formulas has at least one")
        with mmap(rows.fileno(), 0, access=ACCESS_READ) as body, memoryview(body) as lines:
            write_whole(path, _first(header()), lines)


def _first(header: Header) -> bytes:
    """The first line."""
    data = {"format": FORMAT, "version": VERSION, "world": asdict(header.world), "family": asdict(header.family),
            "seed": header.seed, "counts": header.counts}
    return json.dumps(data).encode() + b"\n"


def by_kind(counts: Counter[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """Tries by kind, then by outcome."""
    out: dict[str, dict[str, int]] = {}
    for (kind, outcome), count in sorted(counts.items()):
        out.setdefault(kind, {})[outcome] = count
    return out


def read(path: Path) -> tuple[Header, Iterator[Drawn]]:
    """The header of a file, and its formulas as they are read one by one; :class:`Refused` names the line."""
    lines = _lines(path)
    where, text = next(lines, (f"{path}, line 1", ""))
    header = _header(where, from_json(text, where) if text else None)
    return header, _formulas(lines, header)


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    with opened(path, LARGEST) as file:
        number = 0
        while line := file.readline(LINE + 1):
            number += 1
            where = f"{path}, line {number}"
            if len(line) > LINE:
                raise Refused(f"{where} has more than {LINE:,} bytes")
            try:
                yield where, line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise Refused(f"{where} is not UTF-8") from error


def _header(where: str, data: Any) -> Header:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise Refused(f"{where}: a file of formulas begins with a header whose format is {FORMAT!r}; `temporeal spec "
                      "draw` writes one")
    if data.get("version") != VERSION:
        raise Refused(f"{where}: version {data.get('version')!r:.40} of {FORMAT}; this release reads {VERSION}")
    _keys(where, data, HEADER)
    if not isinstance(data["counts"], dict) or not all(isinstance(v, dict) for v in data["counts"].values()):
        raise Refused(f"{where}: counts are numbers by kind and outcome")
    try:
        made = world_of(data["world"], f"{where}, world"), family_of(data["family"], f"{where}, family")
    except ValueError as error:
        raise Refused(str(error)) from error
    try:
        check_shares(made[1])
    except ValueError as error:
        raise Refused(f"{where}: {error}") from error
    of, robots = made[0], robot_names()
    if of.robot not in robots:  # never a path: a file does not say what is loaded
        raise Refused(f"{where}: no robot {of.robot!r:.60}; known: {', '.join(robots)}")
    if of.system not in (systems := sorted({*worlds(), *robots})):
        raise Refused(f"{where}: no system {of.system!r:.60}; known: {', '.join(systems)}")
    if of.signal not in (legal := loaded(of.robot).signals):
        raise Refused(f"{where}: robot {of.robot} has no signal {of.signal!r:.60}; it has {', '.join(legal)}")
    return Header(*made, _whole(where, "seed", data["seed"], SEEDS), data["counts"])


def _formulas(lines: Iterator[tuple[str, str]], header: Header) -> Iterator[Drawn]:
    seen: set[int] = set()
    for where, text in lines:
        found = _drawn(where, from_json(text, where), header)
        if found.index in seen:
            raise Refused(f"{where}: index {found.index} is there twice")
        seen.add(found.index)
        yield found


def _drawn(where: str, data: Any, header: Header) -> Drawn:
    if not isinstance(data, dict):
        raise Refused(f"{where}: a formula is a mapping of {', '.join(ENTRY)}")
    _keys(where, data, ENTRY)
    kind, text = data["kind"], data["formula"]
    if not isinstance(kind, str) or kind not in header.family.shares:
        raise Refused(f"{where}: kind is {kind!r:.60}; this file's family has {', '.join(header.family.shares)}")
    if not isinstance(text, str) or not 0 < len(text) <= LONGEST:
        raise Refused(f"{where}: formula is a text of at most {LONGEST:,} characters")
    if not isinstance(data["constants"], dict) or not all(
            is_number(v) or _is_numbers(v) for v in data["constants"].values()):
        raise Refused(f"{where}: constants are numbers and lists of numbers by name")
    place = data["place"]
    if not _is_numbers(place) or len(place) != 3:
        raise Refused(f"{where}: place is three numbers, got {place!r:.60}")
    for name in ("heading", "robustness"):
        if not is_number(data[name]):
            raise Refused(f"{where}: {name} is a number, got {data[name]!r:.60}")
    most = int(header.world.horizon_s / header.world.dt + 1e-9)
    horizon = _whole(where, "horizon", data["horizon"], most + 1)
    commands = _unpacked(where, data["witness"], horizon, len(limits(header.world)[0]))
    return Drawn(header.family.name, kind, header.seed, _whole(where, "index", data["index"], SEEDS), text,
                 data["constants"], tuple(place), data["heading"], horizon, commands, data["robustness"])


def _row(f: Drawn) -> dict[str, Any]:
    return {"index": f.index, "kind": f.kind, "formula": f.formula, "constants": dict(f.constants),
            "place": list(f.place), "heading": f.heading, "horizon": f.horizon, "robustness": f.robustness,
            "witness": _packed(f.commands)}


def _packed(commands: Floats) -> str:
    return base64.b64encode(zlib.compress(commands.astype("<f4").tobytes(), 9)).decode()


def _unpacked(where: str, text: Any, horizon: int, size: int) -> Floats:
    """Commands float32 [horizon, size]; never more than so many bytes are unpacked."""
    wanted = horizon * size * 4
    try:
        unpack = zlib.decompressobj()
        raw = unpack.decompress(base64.b64decode(text, validate=True), wanted + 1)
    except (TypeError, ValueError, binascii.Error, zlib.error) as error:
        raise Refused(f"{where}: witness is no compressed float32 numbers: {error}") from error
    if len(raw) != wanted or not unpack.eof:
        raise Refused(f"{where}: witness has {'more' if len(raw) > wanted else 'other'} than the {horizon} x {size} "
                      "float32 numbers of its horizon")
    commands = np.frombuffer(raw, "<f4").reshape(horizon, size)
    if not np.isfinite(commands).all():
        raise Refused(f"{where}: witness has numbers that are not finite")
    return commands


def _keys(where: str, data: Mapping[str, Any], legal: tuple[str, ...]) -> None:
    if wrong := sorted(set(map(str, data)) ^ set(legal)):
        raise Refused(f"{where}: {', '.join(wrong)} missing or unknown; there are {', '.join(legal)}")


def _whole(where: str, name: str, value: Any, end: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < end:
        raise Refused(f"{where}: {name} is {value!r:.60}; a whole number of 0 to {end - 1} is legal")
    return value


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_number, value))
