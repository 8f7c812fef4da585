"""Files of formulas: read back as written, and refused or found out where they were changed."""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from temporeal.robots.handed_over.files import Refused
from temporeal.sim.stl.distribution.checking import fault
from temporeal.sim.stl.distribution.drawing import Drawn, draw
from temporeal.sim.stl.distribution.formula_sets import Header, by_kind, read, write
from temporeal.sim.stl.distribution.settings import family, world

OF, FAMILY = world("unicycle"), family("train")


@pytest.fixture(scope="module")
def drawn() -> tuple[list[Drawn], Header]:
    counts: Counter[tuple[str, str]] = Counter()
    found = [draw(OF, FAMILY, 4, k, counts) for k in range(4)]
    return found, Header(OF, FAMILY, 4, by_kind(counts))


@pytest.fixture
def file(tmp_path: Path, drawn: tuple[list[Drawn], Header]) -> Path:
    write(tmp_path / "set.jsonl", drawn[1], drawn[0])
    return tmp_path / "set.jsonl"


def changed(file: Path, line: int, change: Callable[[dict[str, Any]], Any]) -> Path:
    lines = file.read_text().splitlines()
    data = json.loads(lines[line])
    change(data)
    lines[line] = json.dumps(data)
    file.write_text("\n".join(lines) + "\n")
    return file


def faults(file: Path) -> list[str | None]:
    header, formulas = read(file)
    return [fault(found, header.world, header.family.alternatives) for found in formulas]


def test_a_file_is_read_back_as_written(file: Path, drawn: tuple[list[Drawn], Header]) -> None:
    header, formulas = read(file)
    assert header == drawn[1]
    for ours, there in zip(drawn[0], formulas, strict=True):
        assert np.array_equal(ours.commands, there.commands)
        assert vars(ours) | {"commands": 0} == vars(there) | {"commands": 0}
    assert faults(file) == [None] * 4
    assert not file.with_name("set.jsonl.part").exists()


@pytest.mark.parametrize("change, message", [
    (lambda d: d.update(robustness=d["robustness"] + 0.01), "is said"),
    (lambda d: d.update(place=[x + 0.6 for x in d["place"]]), "satisfies the formula by|outside the arena"),
    (lambda d: d.update(place=[9.0, 0.0, 0.0]), "outside the arena"),
    (lambda d: d.update(formula=d["formula"].replace("fence", "moat")), "the formula is refused"),
    (lambda d: d.update(formula=d["formula"] + " & G[0,99] at_a"), "samples ahead"),
    (lambda d: d.update(witness=packed(2 * commands(d))), "moves as the robot cannot"),
    (lambda d: d.update(witness=packed(0 * commands(d))), "satisfies the formula by"),
])
def test_a_proof_that_does_not_hold_is_found(file: Path, change: Callable[[dict[str, Any]], Any], message: str) -> None:
    found = faults(changed(file, 1, change))
    assert found[1:] == [None] * 3
    with pytest.raises(ValueError, match=message):
        raise ValueError(found[0])


def packed(numbers: np.ndarray) -> str:
    return base64.b64encode(zlib.compress(numbers.astype("<f4").tobytes())).decode()


def commands(data: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(zlib.decompress(base64.b64decode(data["witness"])), "<f4")


@pytest.mark.parametrize("line, change, message", [
    (0, lambda d: d.update(format="other"), "begins with a header"), (0, lambda d: d.update(version=2), "version 2"),
    (0, lambda d: d.update(more=1), "more missing or unknown"), (0, lambda d: d.update(seed=-1), "seed is -1"),
    (0, lambda d: d["world"].update(robot="/tmp/robot"), "no robot '/tmp/robot'"),
    (0, lambda d: d["world"].update(dt=0), "dt is 0"), (0, lambda d: d.update(world=[]), "a mapping of settings"),
    (0, lambda d: d["family"].update(stay="x"), "stay is 'x'"), (0, lambda d: d.update(counts=[]), "counts are"),
    (1, lambda d: d.pop("kind"), "kind missing"), (1, lambda d: d.update(kind="unless"), "kind is 'unless'"),
    (2, lambda d: d.update(index=0), "index 0 is there twice"), (1, lambda d: d.update(horizon=10**9), "horizon is"),
    (1, lambda d: d.update(witness="no"), "no compressed float32"), (1, lambda d: d.update(witness=7), "witness is no"),
    (1, lambda d: d.update(witness=packed(np.zeros(10**7))), "has more than"),
    (1, lambda d: d.update(witness=packed(np.zeros(3))), "has other than"),
    (1, lambda d: d.update(witness=packed(np.nan * commands(d))), "not finite"),
    (1, lambda d: d.update(constants={"a": "x"}), "constants are"), (1, lambda d: d.update(place=[1]), "three numbers"),
    (1, lambda d: d.update(formula=" " * 30000), "at most 20,000"), (1, lambda d: d.update(heading=None), "heading is"),
])
def test_a_file_that_breaks_a_rule_is_refused(
    file: Path, line: int, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    with pytest.raises(Refused, match=message) as error:
        faults(changed(file, line, change))
    assert f"line {line + 1}" in str(error.value)


@pytest.mark.parametrize("text, message", [
    ("", "begins with a header"), ("[1]\n", "begins with a header"), ("{", "is not JSON"), ("\xff", "header|JSON"),
    ("[" * 3000, "nested too deeply|not JSON"), ("1" * (2 << 20), "bytes")])
def test_what_is_no_file_of_formulas_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "other.jsonl"
    file.write_text(text)
    with pytest.raises(Refused, match=message):
        read(file)
