"""Files of formulas: read back as written, and refused or found out where they were changed."""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from temporeal.robots.handed_over.files import Refused
from temporeal.sim.stl.distribution.checking import fault, not_whole, own_settings, unlike_its_seed
from temporeal.sim.stl.distribution.drawing import Drawn, draw
from temporeal.sim.stl.distribution.formula_sets import Header, by_kind, read, write
from temporeal.sim.stl.distribution.settings import family, world

OF, FAMILY = world("unicycle"), family("train")


@pytest.fixture(scope="module")
def drawn() -> tuple[list[Drawn], Header]:
    counts: Counter[tuple[str, str]] = Counter()
    found = [draw(OF, FAMILY, 4, k, counts) for k in range(3)]
    return found, Header(OF, FAMILY, 4, by_kind(counts))


@pytest.fixture
def file(tmp_path: Path, drawn: tuple[list[Drawn], Header]) -> Path:
    write(tmp_path / "set.jsonl", lambda: drawn[1], drawn[0])
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
    assert faults(file) == [None] * 3
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("change, message", [
    (lambda d: d.update(robustness=d["robustness"] + 0.01), "is said"),
    (lambda d: d.update(place=[x + 0.6 for x in d["place"]]), "satisfies the formula by|outside the arena"),
    (lambda d: d.update(place=[9.0, 0.0, 0.0]), "outside the arena"),
    (lambda d: d.update(formula=d["formula"].replace("fence", "moat")), "the formula is refused"),
    (lambda d: d.update(formula=d["formula"] + " & G[0,99] at_a"), "samples ahead"),
    (lambda d: d.update(formula="true", horizon=0, witness=packed(commands(d)[:0])), "reads no signal"),
    (lambda d: d.update(formula="base_vel_w.x < 9", constants={}, horizon=0, witness=packed(commands(d)[:0])),
     "not judged on the witness"),
    (lambda d: d.update(witness=packed(2 * commands(d))), "moves as the robot cannot"),
    (lambda d: d.update(witness=packed(0 * commands(d))), "satisfies the formula by"),
])
def test_a_proof_that_does_not_hold_is_found(file: Path, change: Callable[[dict[str, Any]], Any], message: str) -> None:
    found = faults(changed(file, 1, change))
    assert found[1:] == [None] * 2
    with pytest.raises(ValueError, match=message):
        raise ValueError(found[0])


def test_a_formula_that_its_seed_does_not_draw_is_found(drawn: tuple[list[Drawn], Header]) -> None:
    (first, *_), counts = drawn[0], Counter[tuple[str, str]]()
    assert unlike_its_seed(first, OF, FAMILY, counts) is None
    moved = [x + 1e-9 for x in first.place]
    assert replace(first, place=tuple(moved)).identity() == first.identity()
    for change, name in (({"formula": "base_pos_w.x < 9"}, "formula"), ({"index": 1}, "constants"),
                         ({"place": (0.0, 0.0, 0.0)}, "place"), ({"horizon": 1}, "horizon"), ({"kind": "?"}, "kind")):
        told = str(unlike_its_seed(replace(first, **change), OF, FAMILY, counts))
        assert name in told.split("draw another ")[1].split(", ")
    assert "family unseen" in str(unlike_its_seed(first, OF, family("unseen"), counts))
    assert "it is not drawn" in str(unlike_its_seed(first, OF, replace(FAMILY, shares={"none": 1}), counts))


def test_a_set_is_as_its_header_counts(drawn: tuple[list[Drawn], Header]) -> None:
    found, header = drawn
    counts = Counter({(kind, out): n for kind, tries in header.counts.items() for out, n in tries.items()})
    assert not_whole(header, range(3), counts) == []
    assert not_whole(header, range(2), counts) == ["the header counts 3 formulas, and 2 are there"]
    assert not_whole(header, [0, 2, 1], counts) == ["the indices are not one after the other"]
    assert "drawing again gives" in not_whole(header, range(3), counts + Counter({("reach", "no room"): 1}))[0]


def test_settings_of_ones_own_are_told(drawn: tuple[list[Drawn], Header]) -> None:
    header = drawn[1]
    assert own_settings(header) == []
    assert own_settings(replace(header, world=replace(OF, gap=1.2))) == ["world"]
    assert own_settings(replace(header, family=replace(FAMILY, name="unseen"))) == ["family"]


def test_nothing_is_drawn_for_a_place_that_cannot_be_written(tmp_path: Path, drawn: tuple[list[Drawn], Header]) -> None:
    (tmp_path / "file").write_text("")
    taken = iter(drawn[0])
    with pytest.raises(OSError):
        write(tmp_path / "file/set.jsonl", lambda: drawn[1], taken)
    assert len(list(taken)) == 3


def test_a_draw_that_fails_leaves_what_is_there(file: Path, drawn: tuple[list[Drawn], Header]) -> None:
    before, other = file.read_text(), file.with_name("set.jsonl.part")
    other.write_text("a user's own")

    def failing() -> Iterator[Drawn]:
        yield drawn[0][0]
        raise ValueError("none of 200 tries")

    with pytest.raises(ValueError, match="none of 200"):
        write(file, lambda: drawn[1], failing())
    assert file.read_text() == before and other.read_text() == "a user's own"
    assert sorted(file.parent.iterdir()) == [file, other]


def packed(numbers: np.ndarray) -> str:
    return base64.b64encode(zlib.compress(numbers.astype("<f4").tobytes())).decode()


def commands(data: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(zlib.decompress(base64.b64decode(data["witness"])), "<f4")


@pytest.mark.parametrize("line, change, message", [
    (0, lambda d: d.update(format="other"), "begins with a header"), (0, lambda d: d.update(version=2), "version 2"),
    (0, lambda d: d.update(more=1), "more missing or unknown"), (0, lambda d: d.update(seed=-1), "seed is -1"),
    (0, lambda d: d["world"].update(robot="/tmp/robot"), "no robot '/tmp/robot'"),
    (0, lambda d: d["world"].update(model="glider", speed=1, acceleration=1, system="/tmp/s"), "no system '/tmp/s'"),
    (0, lambda d: d["world"].update(signal="joint_pos"), "no signal 'joint_pos'"),
    (0, lambda d: d["world"].update(exact=True), "unknown settings exact"),
    (0, lambda d: d["family"].update(shares={"reech": 1}), "did you mean 'reach'"),
    (0, lambda d: d["world"].update(dt=0), "dt is 0"), (0, lambda d: d.update(world=[]), "a mapping of settings"),
    (0, lambda d: d["family"].update(stay="x"), "stay is 'x'"), (0, lambda d: d.update(counts=[]), "counts are"),
    (1, lambda d: d.pop("kind"), "kind missing"), (1, lambda d: d.update(kind="unless"), "kind is 'unless'"),
    (2, lambda d: d.update(index=0), "index 0 is there twice"), (1, lambda d: d.update(horizon=10**9), "horizon is"),
    (1, lambda d: d.update(witness="no"), "no compressed float32"), (1, lambda d: d.update(witness=7), "witness is no"),
    (1, lambda d: d.update(witness=packed(np.zeros(10**5))), "has more than"),
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
