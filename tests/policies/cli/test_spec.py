"""`temporeal spec`: a formula's file and a trace's file in, verdict, explanation, picture and exit status out."""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from tests.examples import examples, thinned
from tests.sim.stl.definition import DT, formulas
from tests.sim.stl.definition import traces as drawn

from temporeal.policies.cli.main import main
from temporeal.policies.cli.specs.formulas import assumed
from temporeal.policies.cli.specs.spec_file import Spec, from_mapping
from temporeal.policies.cli.traces import grid, reader
from temporeal.policies.cli.traces import table as trace_table
from temporeal.policies.runs.errors import BadInput
from temporeal.sim.stl.language.propositional import to_text
from temporeal.sim.stl.language.serialization import to_json
from temporeal.sim.stl.semantics.robustness import robustness

MISSION = "G[0,1] (height > 0.3) & F[0,2] (norm(p - [1, 0, 1]) < 0.25)"


def rows(low_at: int = -1, samples: int = 31) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Times and signals of a flight: it comes within 0.25 of (1, 0, 1) at 1.6 s; ``low_at``: the sample that is low."""
    t = np.round(np.arange(samples) * 0.1, 1)
    height = np.where(np.arange(samples) == low_at, 0.2, 1.0)
    return t, {"height": height, "p": np.stack([np.minimum(1, t / 2), 0 * t, np.ones_like(t)], -1)}


def write_csv(path: Path, low_at: int = -1, samples: int = 31, separator: str = ",", end: str = "\n") -> Path:
    t, signals = rows(low_at, samples)
    table = np.column_stack([t, signals["height"], signals["p"]])
    lines = [["t", "height", "p.0", "p.1", "p.2", "note"], *[[*map(repr, map(float, row)), "words"] for row in table]]
    path.write_text("".join(separator.join(line) + end for line in lines), newline="")
    return path


@pytest.fixture
def flight(tmp_path: Path) -> Path:
    (tmp_path / "mission.stl").write_text(f"# come near, stay high\n{MISSION}\n")
    write_csv(tmp_path / "good.csv")
    write_csv(tmp_path / "low.csv", low_at=7)
    return tmp_path


def spec(*words: Any, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = main(["spec", *map(str, words)])
    told = capsys.readouterr()
    return status, told.out, told.err


def as_json(*words: Any, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    status, out, err = spec(*words, "--json", capsys=capsys)
    assert out, err
    return status, json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


# ---------------------------------------------------------------- verdicts


@pytest.mark.parametrize("action", ["check", "explain", "monitor"])
def test_json_names_what_decided_and_the_status_tells_the_verdict(
    action: str, flight: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, found = as_json(action, flight / "mission.stl", flight / "low.csv", capsys=capsys)
    assert (status, found["verdict"], found["decided_by"], found["at_s"]) == (1, "violated", "height > 0.3", 0.7)
    assert found["robustness"] == pytest.approx(-0.1)
    status, found = as_json(action, flight / "mission.stl", flight / "good.csv", capsys=capsys)
    assert (status, found["verdict"], found["at_s"]) == (0, "satisfied", 2.0)
    assert found["robustness"] == pytest.approx(0.25)


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(formulas(unbounded=True), drawn(least=2, batch=1))
def test_what_is_printed_is_the_robustness_of_the_engine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], formula: Any, signals: dict[str, np.ndarray]
) -> None:
    (tmp_path / "f.json").write_text(json.dumps(to_json(formula)))
    signals = {name: values[:, 0] for name, values in signals.items()}
    t = np.arange(len(signals["x"])) * DT
    header = "t,x,y,p.0,p.1,p.2"
    table = np.column_stack([t, signals["x"], signals["y"], signals["p"]])
    (tmp_path / "f.csv").write_text(header + "\n" + "\n".join(",".join(map(repr, map(float, r))) for r in table))
    status, found = as_json("check", tmp_path / "f.json", tmp_path / "f.csv", capsys=capsys)
    assert float(found["robustness"]) == robustness(formula, signals, DT)[0]
    assert status == (0 if found["verdict"] == "satisfied" else 1)


def test_a_short_trace_is_cut_or_undecided(flight: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_csv(flight / "short.csv", samples=6)
    words = (flight / "mission.stl", flight / "short.csv")
    status, out, _ = spec("check", *words, capsys=capsys)
    assert status == 1
    assert "note: the trace ends at 0.5 s, the formula looks 2 s ahead: windows are cut to the trace" in out
    for extra in (["check", *words, "--partial"], ["monitor", *words]):
        status, found = as_json(*extra, capsys=capsys)
        assert (status, found["verdict"], found["robustness"], found["decided_by"], found["at_s"]) == (
            2, "undecided", None, None, None)
        assert found["lower"] == "-inf"
    assert as_json("check", *words, "--end", "weak", capsys=capsys)[0] == 0


def test_the_verdict_at_zero_is_that_of_the_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.csv").write_text("t,x\n0,1\n1,1\n")
    for text, status in (("x <= 1", 0), ("x < 1", 1), ("G (x >= 1)", 0)):
        (tmp_path / "f.stl").write_text(text)
        got, found = as_json("check", tmp_path / "f.stl", tmp_path / "x.csv", capsys=capsys)
        assert (got, found["robustness"]) == (status, 0.0)


def test_infinite_robustness_is_valid_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.csv").write_text("t,x\n0,1\n1,1\n")
    (tmp_path / "f.stl").write_text("F[5,6] (x > 0)")
    status, found = as_json("check", tmp_path / "f.stl", tmp_path / "x.csv", capsys=capsys)
    assert (status, found["robustness"], found["decided_by"]) == (1, "-inf", "F[5,6] (x > 0)")


def test_explain_in_words(flight: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = spec("explain", flight / "mission.stl", flight / "low.csv", capsys=capsys)
    assert status == 1
    assert out.startswith("violated: robustness -0.1\n")
    assert "decided by  height > 0.3 at 0.7 s (sample 7)" in out
    assert "met at 1.6 s, 0.4 s before the deadline" in out


def test_series_has_every_sample(flight: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, found = as_json("explain", flight / "mission.stl", flight / "low.csv", "--series", capsys=capsys)
    height = next(part for part in found["parts"] if part["text"] == "height > 0.3")
    assert np.array(height["robustness"]) == pytest.approx(rows(7)[1]["height"] - 0.3)
    _, found = as_json("explain", flight / "mission.stl", flight / "low.csv", capsys=capsys)
    assert "robustness" not in found["parts"][0]


def test_time_that_starts_elsewhere(flight: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (flight / "low.csv").read_text().splitlines()
    later = [lines[0], *(f"{float(c) + 1000:.1f},{rest}" for c, _, rest in (li.partition(",") for li in lines[1:]))]
    (flight / "later.csv").write_text("\n".join(later))
    _, found = as_json("check", flight / "mission.stl", flight / "later.csv", capsys=capsys)
    assert (found["at_s"], found["at_t"], found["dt"]) == (0.7, 1000.7, 0.1)


def test_a_part_of_the_trace(flight: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("check", flight / "mission.stl", flight / "low.csv", "--from", 0.8)
    status, found = as_json(*words, capsys=capsys)
    assert (status, found["samples"], found["at_t"]) == (0, 23, 2.0)
    assert as_json(*words, "--to", 0.9, capsys=capsys)[1]["samples"] == 2
    late = spec("check", flight / "mission.stl", flight / "low.csv", "--from", 9, capsys=capsys)
    assert "no sample from 9" in late[2]


# ---------------------------------------------------------------- formula files


def test_a_formula_without_a_trace_is_outlined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f.stl").write_text("always[0:3] (dist(p, a) > 1 & q.w > 0) and once[0,2] (x > 0)  # words")
    status, found = as_json("check", tmp_path / "f.stl", "--constants", '{"a": [0, 0, 1]}', capsys=capsys)
    assert (status, found["horizon_s"], found["history_s"], found["robustness"]) == (0, 3.0, 2.0, None)
    assert {name: row["shape"] for name, row in found["signals"].items()} == {"p": [3], "q": [4], "x": []}
    assert all(row["assumed"] for row in found["signals"].values())
    status, out, _ = spec("check", tmp_path / "f.stl", "--constants", '{"a": [0, 0, 1]}', capsys=capsys)
    assert out.startswith("G[0,3] (dist(p, a) > 1 & q.w > 0) & O[0,2] (x > 0)\n")
    assert "looks ahead  3 s\n  looks back   2 s" in out


def test_yaml_declares_constants_signals_period_and_semantics(
    flight: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (flight / "m.yaml").write_text("""
formula: G[0,1] (height > low) & F[0,2] (norm(p - goal) < 0.25)
constants: {low: 0.3, goal: [1, 0, 1]}
signals: {height: m, p: "[3] m"}
dt: 0.1
semantics: {end: strong, until: closed}
""")
    status, found = as_json("check", flight / "m.yaml", flight / "low.csv", capsys=capsys)
    assert (status, found["decided_by"]) == (1, "height > low")
    assert found["semantics"] == {"end": "strong", "until": "closed"}
    assert "robustness -0.1 m" in spec("check", flight / "m.yaml", flight / "low.csv", capsys=capsys)[1]
    status, found = as_json("check", flight / "m.yaml", capsys=capsys)
    assert found["signals"] == {"height": {"shape": [], "unit": "m", "assumed": False},
                                "p": {"shape": [3], "unit": "m", "assumed": False}}


def test_a_specification_of_rtamt(flight: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (flight / "low.csv").write_text((flight / "low.csv").read_text().replace("note", "out"))
    for declared in ("", "float height\n", "input float height\n"):
        (flight / "r.stl").write_text(f"{declared}out = always[0:1](height >= 0.3);\n")
        assert as_json("check", flight / "r.stl", flight / "low.csv", capsys=capsys)[1]["at_s"] == 0.7
        assert as_json("check", flight / "r.stl", capsys=capsys)[0] == 0


@pytest.mark.parametrize(("name", "content", "told"), [
    ("a.yaml", "formula: x > 0\nrate: 50\n", "unknown key rate; known: formula, constants"),
    ("a.yaml", "- x > 0\n", "formula must be there"),
    ("a.yaml", "formula: [1\n", "no YAML"),
    ("a.yaml", "formula: x > 0\ndt: fast\n", "dt is a number of seconds above 0, got 'fast'"),
    ("a.yaml", "formula: height > 0\nsignals: {height: {shape: [-1]}}\n", "whole numbers"),
    ("a.yaml", "formula: height > 0\nsemantics: {end: maybe}\n", "legal: clip, strong, weak"),
    ("a.yaml", "formula: height > 0\nsemantics: {start: weak}\n", "semantics has end and until"),
    ("a.yaml", "formula: height > 0\nsignals: {height: '[3] m'}\n", "compares scalars"),
    ("a.json", "{", "no JSON"),
    ("a.json", '{"node": "whenever"}', "unknown node"),
    ("a.stl", "G[0,1] (heigth > 0)", "did you mean 'height'?"),
    ("a.stl", "G[0,0.25] (height > 0)", "no multiple of the sample period"),
    ("a.stl", "G[0,1 (height > 0)", "1:"),
    ("a.stl", "# nothing\n", "empty"),
])
def test_a_wrong_formula_file(
    name: str, content: str, told: str, flight: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (flight / name).write_text(content)
    status, out, err = spec("check", flight / name, flight / "good.csv", capsys=capsys)
    assert (status, out) == (2, "")
    assert told in err
    assert "Traceback" not in err


def test_shapes_of_declarations() -> None:
    signals = from_mapping({"formula": "x > 0", "signals": {
        "a": "m/s", "b": [3], "c": "[2] m", "d": {"shape": [4], "unit": "wxyz"}, "e": None, "f": {"unit": "rad"}}}, "f")
    assert {name: (s.shape, s.unit) for name, s in signals.signals.items()} == {
        "a": ((), "m/s"), "b": ((3,), ""), "c": ((2,), "m"), "d": ((4,), "wxyz"), "e": ((), ""), "f": ((), "rad")}


def test_assumed_shapes() -> None:
    text = "out = G (v[4] > 0 & norm(p - [1,0,0]) < min(x, y.z)) // norm(n)"
    assert {n: s.shape for n, s in assumed(Spec("f", text)).items()} == {
        "v": (5,), "p": (3,), "x": (), "y": (3,)}


# ---------------------------------------------------------------- traces of every kind


def test_every_kind_of_file_says_the_same(flight: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    t, signals = rows(7)
    np.savez(flight / "a.npz", t=t, label=np.array(["words"] * len(t)), **signals)
    np.savez(flight / "b.npz", t=t, height=signals["height"], **{f"p.{k}": signals["p"][:, k] for k in range(3)})
    table = {"t": t, "height": signals["height"], "p": list(signals["p"]), "words": ["a"] * len(t)}
    parquet.write_table(pyarrow.table(table), flight / "a.parquet")
    stamped = {**table, "t": pyarrow.array((t * 1e9).round().astype("int64"), pyarrow.timestamp("ns"))}
    parquet.write_table(pyarrow.table(stamped), flight / "b.parquet")
    (flight / "bom.csv").write_bytes(b"\xef\xbb\xbf" + (flight / "low.csv").read_bytes())
    write_csv(flight / "crlf.csv", 7, end="\r\n")
    write_csv(flight / "semicolon.csv", 7, separator=";")
    write_csv(flight / "tab.tsv", 7, separator="\t")
    lettered = (flight / "low.csv").read_text().replace("p.0,p.1,p.2", "p.x,p.y,p.z")
    (flight / "letters.csv").write_text(lettered + "\n\n")
    _, expected = as_json("explain", flight / "mission.stl", flight / "low.csv", capsys=capsys)
    for name in ("a.npz", "b.npz", "a.parquet", "b.parquet", "bom.csv", "crlf.csv", "semicolon.csv", "tab.tsv",
                 "letters.csv"):
        assert as_json("explain", flight / "mission.stl", flight / name, capsys=capsys)[1] == expected, name


def test_a_quaternion_in_letters_is_stored_scalar_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "q.csv").write_text("t,q.x,q.y,q.z,q.w\n0,0.1,0.2,0.3,0.9\n1,0.1,0.2,0.3,0.9\n")
    (tmp_path / "f.stl").write_text("q.w > 0 & q[3] > 0")
    _, found = as_json("check", tmp_path / "f.stl", tmp_path / "q.csv", capsys=capsys)
    assert found["robustness"] == pytest.approx(0.3)


@pytest.mark.parametrize(("content", "told"), [
    ("", "the file is empty"),
    ("t,x\n", "the trace is empty: there is no row below the header"),
    ("t,x\n0,1\n0.1,abc\n", "row 3, column 'x': 'abc' is no number"),
    ("t;x\n0;1\n0.1;0,5\n", "'0,5' is no number; the decimal separator is a point"),
    ("t,x\n0,1\n0.1,\n", "row 3, column 'x' is empty or NaN, and the formula reads it; --missing unknown"),
    ("t,x\n0,1\n0.1,nan\n", "row 3, column 'x' is empty or NaN"),
    ("t,x\n0,1\n,1\n", "row 3, column 't' is nan: every sample needs its time"),
    ("t,x\n0,1\n0.1,1\n0.1,1\n", "row 4, column 't': t = 0.1 is that of the sample before; time must increase"),
    ("t,x\n0,1\n0.2,1\n0.1,1\n", "row 4, column 't': t = 0.1 is before 0.2; time must increase"),
    ("t,x\n0,1\n0.1,1\n0.2,1\n0.35,1\n0.4,1\n", "row 5, column 't': t = 0.35 is off the uniform grid; 0.3 is expected"),
    ("t,x\n0,1\n0.1,1,5\n", "row 3 has 3 cells, the header 2"),
    ("t,y\n0,1\n0.1,1\n", "unknown signal 'x'"),
    ("s,x\n0,1\n0.1,1\n", "no time column 't'; columns: s, x. --time NAME names another"),
    ("t,x,x\n0,1,2\n1,1,2\n", "row 1: two columns are called 'x'"),
    ("t,x,x.0\n0,1,2\n1,1,2\n", "a signal is a scalar or a vector"),
    ("t,x,v.0,v.2\n0,1,2,3\n1,1,2,3\n", "numbered from v.0 without a gap"),
    ("0,1\n0.1,2\n", "row 1 has numbers; the first row names the columns"),
    ("t,x;y\n0,1\n0.1,2\n", "one of them separates columns"),
    ("t,x\n0,1\n", "one sample has no period"),
    (b"t,x\n0,1\n1,\xff\n", "it is not UTF-8 text"),
    ('t,x\n0,"1\n', "row"),
])
def test_a_wrong_csv_names_the_row_the_column_and_the_rule(
    content: str | bytes, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "f.stl").write_text("G (x > 0)")
    (tmp_path / "f.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    status, out, err = spec("check", tmp_path / "f.stl", tmp_path / "f.csv", capsys=capsys)
    assert (status, out) == (2, "")
    assert told in err
    assert "Traceback" not in err


def test_missing_values_may_be_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f.csv").write_text("t,x\n0,1\n1,\n2,-3\n")
    for text, status, verdict, upper in (("G[0,1] (x > 0)", 2, "undecided", 1.0), ("G (x > 0)", 1, "violated", -3.0),
                                         ("F (x > 0)", 0, "satisfied", "inf"), ("x > 0", 0, "satisfied", 1.0)):
        (tmp_path / "f.stl").write_text(text)
        words = ("check", tmp_path / "f.stl", tmp_path / "f.csv", "--missing", "unknown")
        got, found = as_json(*words, capsys=capsys)
        assert (got, found["verdict"], found["upper"]) == (status, verdict, upper)
        assert (found["robustness"] is None) == (text != "x > 0")


def test_what_the_formula_does_not_read_does_not_matter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f.csv").write_text("t,x,Motor (left),y\n0,1,a,nan\n1,1,b,\n")
    (tmp_path / "f.stl").write_text("G (x > 0)")
    assert spec("check", tmp_path / "f.stl", tmp_path / "f.csv", capsys=capsys)[0] == 0


def test_resampling_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f.csv").write_text("clock,x\n5,0\n5.3,3\n6.1,11\n7,20\n")
    (tmp_path / "f.stl").write_text("F[0,1.5] (x > 100)")
    words = ("check", tmp_path / "f.stl", tmp_path / "f.csv", "--time", "clock")
    assert "off the uniform grid" in spec(*words, "--dt", 0.5, capsys=capsys)[2]
    assert "needs the period" in spec(*words, "--resample", "hold", capsys=capsys)[2]
    held = as_json(*words, "--dt", 0.5, "--resample", "hold", capsys=capsys)[1]
    line = as_json(*words, "--dt", 0.5, "--resample", "linear", capsys=capsys)[1]
    assert (held["robustness"], held["at_s"], held["at_t"], held["samples"]) == (11 - 100, 1.5, 6.5, 5)
    assert line["robustness"] == pytest.approx(11 + 9 * 0.4 / 0.9 - 100)


@pytest.mark.parametrize(("times", "dt"), [
    (np.arange(500) * 0.01, 0.01), (np.arange(300) / 30, 1 / 30), (np.round(np.arange(300) / 30, 3), 1 / 30),
    (1.7e9 + np.arange(1000) * 0.02, 0.02), (np.arange(3) * 0.0123, 0.0123), (np.arange(40) * 2.5, 2.5),
    (np.arange(2) * 1e-4, 1e-4)])
def test_the_period_is_the_simplest_that_fits(times: np.ndarray, dt: float) -> None:
    assert grid.simplest_period(times) == dt
    assert grid.period(times, None, str, "f") == dt


@pytest.mark.parametrize(("arrays", "told"), [
    ({"x": np.ones(3)}, "no time column 't'"),
    ({"t": np.arange(3.0), "x": np.ones(2)}, "'x' has 2 samples, others 3"),
    ({"t": np.arange(3.0), "x": np.array(["a", "b", "c"])}, "numbers are needed"),
    ({"t": np.zeros(0), "x": np.zeros(0)}, "the trace is empty"),
    ({"t": np.arange(3.0), "x": np.ones((3, 2))}, "compares scalars"),
    ({"t": np.arange(3.0), "x": np.array([1, np.nan, 1])}, "sample 1 of 'x' is empty or NaN"),
    ({"t": np.arange(3.0), "x": np.array([None, 1, 2], dtype=object)}, "NPZ"),
])
def test_a_wrong_npz(arrays: dict[str, Any], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "f.npz", **arrays)
    (tmp_path / "f.stl").write_text("G (x > 0)")
    status, _, err = spec("check", tmp_path / "f.stl", tmp_path / "f.npz", capsys=capsys)
    assert status == 2
    assert told in err


@pytest.mark.parametrize("name", ["f.npz", "f.parquet", "f.mcap"])
def test_a_file_that_is_not_what_its_suffix_says(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip({"f.parquet": "pyarrow", "f.mcap": "rosbags"}.get(name, "numpy"))
    (tmp_path / name).write_text("no such thing")
    (tmp_path / "f.stl").write_text("x > 0")
    status, _, err = spec("check", tmp_path / "f.stl", tmp_path / name, capsys=capsys)
    assert status == 2
    assert name in err
    assert "Traceback" not in err


# ---------------------------------------------------------------- bags


@pytest.fixture
def bag(tmp_path: Path) -> Path:
    """Two seconds of a Crazyflie that climbs at 0.5 m/s from 0.2 m: odometry at 100 Hz, gyroscope at 50 Hz."""
    pytest.importorskip("rosbags")
    pytest.importorskip("temporeal_bridge")
    from temporeal.robots.spec import load_robot
    from temporeal_bridge.codecs.table import STATE_CODECS
    from temporeal_bridge.interface.loading import load_interface
    from temporeal_bridge.recording.bag_writer import Bag
    from temporeal_bridge.transports import messages

    interface = load_interface(load_robot("crazyflie"))
    out = Bag(tmp_path / "bag")
    for state in interface.states:
        out.add(f"/cf1/{state.topic}", state.type)
    start = 1_700_000_000_000_000_000
    for k in range(201):
        for state in interface.states[: 1 if k % 2 else 2]:
            signals = {"base_pos_w": np.array([0, 0, 0.2 + 0.005 * k]), "base_quat_w": np.array([1.0, 0, 0, 0]),
                       "base_vel_w": np.array([0, 0, 0.5]), "base_ang_vel_b": np.array([0, 0, 0.1])}
            stamp = start + k * 10_000_000
            message = STATE_CODECS[state.codec].encode(signals, stamp, ("world", "cf1"), state.options)
            out.write(f"/cf1/{state.topic}", state.type, stamp + 3_000_000, messages.encode(state.type, message))
    out.flush()
    out.close()
    return tmp_path / "bag"


def test_a_bag_by_its_fields(bag: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bag.parent / "f.stl").write_text("F[0,1] (height > 0.6) & G[0,1] (q.w > 0.9 & abs(v.z - 0.5) < 0.1)")
    maps = ["--map", "height=/cf1/odom:pose.pose.position.z", "--map", "q=/cf1/odom:pose.pose.orientation",
            "--map", "v=/cf1/odom:twist.twist.linear"]
    for path in (bag, bag / "bag.mcap"):
        status, found = as_json("explain", bag.parent / "f.stl", path, *maps, capsys=capsys)
        assert (status, found["dt"], found["samples"]) == (0, 0.01, 201)
        assert found["clauses"][0]["robustness"] == pytest.approx(0.1)
    gyro = [*maps, "--map", "w=/cf1/gyro:values[2]"]
    (bag.parent / "f.stl").write_text("F[0,1] (height > 0.6) & G (w < 100)")
    status, _, err = spec("check", bag.parent / "f.stl", bag, *gyro, capsys=capsys)
    assert (status, "come from 2 topics" in err) == (2, True)
    status, found = as_json("check", bag.parent / "f.stl", bag, *gyro, "--dt", 0.1, "--resample", "hold", capsys=capsys)
    assert (status, found["samples"], found["robustness"]) == (0, 21, pytest.approx(0.1))


def test_a_bag_of_a_robot(bag: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bag.parent / "f.stl").write_text("F[0,1] (height > 0.6) & G[0,1] (base_ang_vel_b.z < 0.2)")
    words = ("explain", bag.parent / "f.stl", bag, "--robot", "crazyflie", "--dt", 0.02, "--resample", "hold")
    for extra in ([], ["--namespace", "/cf1"]):
        status, found = as_json(*words, *extra, capsys=capsys)
        assert status == 0
        assert [c["robustness"] for c in found["clauses"]] == [pytest.approx(0.1), pytest.approx(0.1)]
        assert found["decider"]["unit"] in ("m", "rad/s")
    assert "needs the topic /cf2/odom" in spec(*words, "--namespace", "cf2", capsys=capsys)[2]


@pytest.mark.parametrize(("words", "told"), [
    ([], "say what the signals are"), (["--map", "x=odom:pose"], "write signal=/topic:field.path"),
    (["--map", "x=/odom:pose"], "topics: /cf1/gyro"),
    (["--map", "x=/cf1/odom:pose.pose.height"], "no 'height' in 'pose.pose.height'; fields: position, orientation"),
    (["--map", "x=/cf1/odom:pose.pose"], "is no number and no vector; fields: position, orientation"),
    (["--map", "x=/cf1/gyro:values[7]"], "no '[7]'"),
    (["--robot", "crasyflie"], "crazyflie"),
])
def test_a_wrong_mapping(words: list[str], told: str, bag: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bag.parent / "f.stl").write_text("x > 0")
    status, _, err = spec("check", bag.parent / "f.stl", bag, *words, capsys=capsys)
    assert status == 2
    assert told in err


# ---------------------------------------------------------------- monitor


def test_the_monitor_tells_each_sample_and_may_end_early(flight: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = spec("monitor", flight / "mission.stl", flight / "low.csv", "--until-decided", capsys=capsys)
    lines = out.splitlines()
    assert status == 1
    assert lines[0].split() == ["t", "[s]", "lower", "upper", "verdict"]
    assert [line.split()[-1] for line in lines[1:9]] == ["undecided"] * 7 + ["violated"]
    assert lines[9].startswith("violated: robustness between -inf and -0.1")
    whole = spec("monitor", flight / "mission.stl", flight / "low.csv", capsys=capsys)[1]
    assert len(whole.splitlines()) == 21 + 2, "after the horizon, 2 s, nothing can change"


def test_a_window_without_an_end_is_judged_when_the_trace_ends(
    flight: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text, expected in (("G (height > 0.1) & F (p.x > 0.9)", 0), ("G (height > 0.3) | F (p.x > 2)", 1),
                           ("G (height > 0.1 -> F (p.x > 0.9))", 0)):
        (flight / "f.stl").write_text(text)
        status, found = as_json("monitor", flight / "f.stl", flight / "low.csv", capsys=capsys)
        assert (status, found["samples"]) == (expected, 31)
        checked = as_json("check", flight / "f.stl", flight / "low.csv", capsys=capsys)[1]
        assert found["robustness"] == checked["robustness"]


def test_the_monitor_reads_stdin_as_it_comes(flight: Path) -> None:
    """The verdict is there while the writer still holds the pipe open."""
    command = [sys.executable, "-m", "temporeal.policies.cli.main", "spec", "monitor", str(flight / "mission.stl"), "-",
               "--until-decided"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdin and process.stdout
        lines = (flight / "low.csv").read_text().splitlines()
        process.stdin.write("\n".join(lines[:3]) + "\n")
        process.stdin.flush()
        assert [process.stdout.readline().split()[-1] for _ in range(3)] == ["verdict", "undecided", "undecided"]
        process.stdin.write("\n".join(lines[3:9]) + "\n")
        process.stdin.flush()
        assert process.wait(timeout=60) == 1
        assert "violated" in process.stdout.read()


@pytest.mark.parametrize(("content", "words", "told"), [
    ("", [], "nothing came"), ("t,x\n", [], "no sample came"), ("t,x\n0,1\n", [], "one sample has no period"),
    ("t,x\n0,1\n0.1,1\n0.3,1\n", [], "row 4: t = 0.3; 0.2 is expected"),
    ("t,x\n0,1\n0.1,1\n0.1,1\n", [], "row 4: t = 0.1 is that of the sample before; time must increase"),
    ("t,x\n1,1\n0,1\n", [], "time must increase"), ("t,x\n0,1\n0.1,oops\n", [], "row 3, column 'x': 'oops'"),
    ("t,x\n0,1\n0.1,\n", [], "row 3, column 'x' is empty or NaN"), ("t,y\n0,1\n", [], "unknown signal 'x'"),
    ("x\n1\n", [], "no time column"), ("x,y\n1\n", ["--dt", "0.1"], "row 2 has 1 cells, the header 2"),
    ("t,x\n0,1\n", ["--resample", "hold", "--dt", "0.1"], "stdin is read as it comes"),
])
def test_a_wrong_stdin(
    content: str, words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "f.stl").write_text("G[0,5] (x > 0)")
    monkeypatch.setattr(sys, "stdin", io.StringIO(content))
    status, _, err = spec("monitor", tmp_path / "f.stl", "-", *words, capsys=capsys)
    assert status == 2
    assert told in err


def test_stdin_without_time_and_with_lost_samples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f.stl").write_text("G[0,0.2] (x > 0)")
    words = ("monitor", tmp_path / "f.stl", "-", "--dt", "0.1", "--missing", "unknown")
    for content, status in (("x\n1\n2\n3\n", 0), ("x\n1\n,\n", 2), ("x,y\n1,1\n,2\n3,3\n", 2), ("x\n1\n-2\n", 1)):
        monkeypatch.setattr(sys, "stdin", io.StringIO(content))
        assert spec(*words, capsys=capsys)[0] == status, content


# ---------------------------------------------------------------- pictures and the command itself


def test_a_picture_has_the_tree_and_is_the_same_each_time(flight: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    made = []
    for name in ("a.svg", "b.svg"):
        words = ("plot", flight / "mission.stl", flight / "low.csv", "-o", flight / name)
        status, out, _ = spec(*words, capsys=capsys)
        assert status == 1
        assert name in out
        made.append((flight / name).read_bytes())
    assert made[0] == made[1]
    words = [node.text or "" for node in ET.fromstring(made[0]).iter("{http://www.w3.org/2000/svg}text")]
    assert {MISSION, "violated, robustness -0.1", "and", "G[0,1]", "F[0,2]", "height > 0.3",
            "due at 2 s: met at 1.6 s, slack 0.4 s", "violated -0.1 at 0.7 s"} <= set(words)


@settings(max_examples=examples(4), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(formulas(unbounded=True), drawn(batch=1))
def test_any_explanation_can_be_drawn(tmp_path: Path, formula: Any, signals: dict[str, np.ndarray]) -> None:
    pytest.importorskip("matplotlib")
    from temporeal.sim.stl.analysis.explain import explain
    from temporeal.sim.stl.analysis.plot import plot

    for partial in (False, True):
        e = explain(formula, {name: values[:, 0] for name, values in signals.items()}, DT, partial=partial)
        plot(e, tmp_path / "any.svg")
        drawn_words = "".join(ET.parse(tmp_path / "any.svg").getroot().itertext())
        assert drawn_words.count(" at ") >= sum(part.sample is not None for part in e.parts)


@pytest.mark.parametrize(("words", "told"), [
    (["paint", "f.stl"], "check, explain, plot, monitor, draw"), (["check"], "takes FORMULA [TRACE], got nothing"),
    (["explain", "f.stl"], "takes FORMULA TRACE, got f.stl"), (["check", "a", "b", "c"], "got a b c"),
    (["plot", "f.stl", "g.csv"], "-o out.svg"), (["check", "f.stl", "-o", "x.svg"], "spec check writes none"),
    (["plot", "f.stl", "g.csv", "-o", "x.gif"], "a picture is .svg, .png or .pdf"),
    (["check", "f.stl", "--dt", "0"], "above 0"), (["check", "f.stl", "--dt", "nan"], "above 0"),
    (["check", "f.stl", "--constants", "[1]"], "one JSON object"), (["check", "nowhere.stl"], "not there"),
    (["check", "f.stl", "nowhere.csv"], "nowhere.csv is not there"), (["check", "f.stl", "f.stl"], "a trace is .csv"),
    (["check", "f.stl", "-"], "is for monitor"), (["check", "f.stl", "--until-decided"], "for monitor"),
    (["check", "f.stl", "--partial", "--end", "weak"], "give one"),
    (["monitor", "f.stl", "g.csv", "--partial"], "always"), (["check", "f.stl", "--resample", "cubic"], "hold"),
    (["check", "f.stl", "f.csv", "--map", "x=/a:b"], "are for bags"), (["check", "f.stl", "--series"], "--json"),
    (["check", "f.stl", "f.csv", "--namespace", "a"], "those of --robot"),
])
def test_a_wrong_command_is_one_line(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.stl").write_text("x > 0")
    (tmp_path / "f.csv").write_text("t,x\n0,1\n1,1\n")
    before = sorted(tmp_path.iterdir())
    status, out, err = spec(*words, capsys=capsys)
    assert (status, out) == (2, "")
    assert told in err
    assert "Traceback" not in err
    assert sorted(tmp_path.iterdir()) == before


def test_it_starts_without_what_is_slow(flight: Path) -> None:
    slow = ("torch", "numba", "matplotlib", "hydra", "rosbags", "pyarrow", "mujoco", "scipy")
    code = (f"import sys; from temporeal.policies.cli.main import main\n"
            f"status = main(['spec', 'explain', {str(flight / 'mission.stl')!r}, {str(flight / 'low.csv')!r}])\n"
            f"print(status, [m for m in {slow!r} if m in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "1 []", done.stderr


def test_a_table_without_the_column_says_what_it_has(flight: Path) -> None:
    tables = reader.open_tables(flight / "low.csv", trace_table.Options())
    with pytest.raises(BadInput, match=r"no column for signal 'q'; columns: t, height, p.0"):
        reader.read_trace(tables, {"q": ()}, trace_table.Options())
    with pytest.raises(BadInput, match=r"'p' has shape \[3\], its declaration says \[\]"):
        reader.read_trace(tables, {"p": ()}, trace_table.Options())


def test_text_of_the_json_form_is_the_formula(flight: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from temporeal.sim.stl.language.parse import parse

    tables = reader.open_tables(flight / "low.csv", trace_table.Options())
    formula = parse(MISSION, trace_table.schema_of(tables))
    (flight / "m.json").write_text(json.dumps({"formula": to_json(formula), "dt": 0.1}))
    assert spec("check", flight / "m.json", capsys=capsys)[1].startswith(to_text(formula))
    assert as_json("check", flight / "m.json", flight / "low.csv", capsys=capsys)[0] == 1


def test_the_documentation_shows_what_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to/stl-explain.md").read_text()
    monkeypatch.chdir(tmp_path)
    for name, content in re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)```$", page, re.DOTALL | re.MULTILINE):
        (tmp_path / name).write_text(content)
    commands = re.findall(r"^```console\n\$ temporeal (.*?)\n(.*?)```$", page, re.DOTALL | re.MULTILINE)
    assert len(commands) == 4
    for command, shown in commands:
        main(shlex.split(command))
        assert capsys.readouterr().out == shown, command


# ---------------------------------------------------------------- output that nobody reads


ACTIONS = ("check", "explain", "monitor")
UNREAD = ("{} | true; exit ${{PIPESTATUS[0]}}", "{} 2>&1 | true; exit ${{PIPESTATUS[0]}}", "{} >&-", "{} >&- 2>&-")


@pytest.mark.parametrize(("action", "how"), thinned(
    [(action, how) for action in ACTIONS for how in UNREAD],
    keep=[(ACTIONS[k % len(ACTIONS)], how) for k, how in enumerate(UNREAD)]))
def test_the_verdict_is_the_status_though_nobody_reads(action: str, how: str, flight: Path) -> None:
    command = shlex.join(
        [
            sys.executable,
            "-m",
            "temporeal.policies.cli.main",
            "spec",
            action,
            str(flight / "mission.stl"),
            str(flight / "low.csv"),
        ]
    )
    done = subprocess.run(["bash", "-c", how.format(command)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "")


# ---------------------------------------------------------------- what a review found


def said(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str | bytes, *words: Any,
         formula: str = "G (x > 0)", action: str = "check") -> tuple[int, str]:
    """Status and what was told of a formula on a trace with this content."""
    (tmp_path / "f.stl").write_text(formula)
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    status, out, err = spec(action, tmp_path / "f.stl", tmp_path / name, *words, capsys=capsys)
    assert "Traceback" not in err
    return status, out + err


@pytest.mark.parametrize(("name", "content", "told"), [
    ("f.yaml", "formula: " + "[" * 3000, "nested too deeply"), ("f.json", "[" * 100_000, "nested too deeply"),
    ("f.json", '{"formula": ' + '{"node": "not", "arg": ' * 500 + "1" + "}" * 501, "nested too deeply"),
    ("f.yaml", "formula: x > 0\nconstants: {1: 3}\n", "constants: a name is a text, got 1"),
    ("f.yaml", "formula: x > 0\nsignals: {1: m}\n", "signals: a name is a text, got 1"),
    ("f.yaml", "formula: {node: signal, name: x, dims: [], unit: m}\n", "is an expression, signal"),
    ("f.json", '{"formula": "x > 0", "dt": 1' + "0" * 400 + "}", "dt is a number of seconds above 0"),
    ("f.yaml", "formula: x > 0\nsignals: {x: '[2'}\n", "a declaration is a unit (m), a shape ([3])"),
    ("f.yaml", "formula: x > 0\nsignals: {x: '[-1]'}\n", "a declaration is"),
    ("f.yaml", "formula: x > 0\nsignals: {x: 3}\n", "a declaration is"),
    ("f.yaml", "formula: x > 0\nsignals: {x: true}\n", "a declaration is"),
    ("f.yaml", "formula: x > 0\nsignals: {x: {unit: 3}}\n", "a unit is a text"),
    ("f.yaml", "formula: x > 0\nformula: x < 0\n", "line 2: the key 'formula' is there twice"),
    ("f.json", '{"formula": "x > 0", "formula": "x < 0"}', "the key 'formula' is there twice"),
    ("f.yaml", "formula: x > 0\nconstants: {x: 3}\n", "a constant and a signal have the same name"),
    ("f.yaml", "formula: x > 0\nsemantics: {end: maybe}\n", "f.yaml: "),
])
def test_an_odd_formula_file_is_bad_input(
    name: str, content: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(content)
    (tmp_path / "f.csv").write_text("t,x\n0,1\n1,1\n")
    status, out, err = spec("check", tmp_path / name, tmp_path / "f.csv", capsys=capsys)
    assert (status, out) == (2, "")
    assert told in err
    assert name in err


def test_a_constant_does_not_take_the_place_of_a_signal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = said(tmp_path, capsys, "f.csv", "t,x\n0,-1\n1,-1\n", "--constants", '{"x": 100}')
    assert found[0] == 2
    assert "x: a constant and a signal have the same name" in found[1]
    found = said(tmp_path, capsys, "f.csv", "t,x\n0,-1\n1,-1\n", "--constants", '{"a": 1, "a": 2}')
    assert "the key 'a' is there twice" in found[1]


def npy(header: str) -> bytes:
    text = header.encode().ljust(118, b" ") + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def hostile_archive(member: bytes, change: Any = None) -> bytes:
    import zipfile

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, array in (("t", np.arange(3.0)), ("y", np.ones(3))):
            one = io.BytesIO()
            np.save(one, array)
            archive.writestr(f"{name}.npy", one.getvalue())
        archive.writestr("x.npy", member)
    content = bytearray(out.getvalue())
    for start, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        at = content.rindex(start)
        if change == "encrypted":
            content[at + offset] |= 1
        elif change == "packed":
            content[at + offset + 2] = 77
    return bytes(content)


HUGE = npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }")


@pytest.mark.parametrize("content", [
    hostile_archive(HUGE), hostile_archive(npy("(" * 2000)), hostile_archive(HUGE, "encrypted"),
    hostile_archive(HUGE, "packed"), hostile_archive(b"PK")])
def test_a_hostile_npz_is_bad_input_where_it_is_read(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, told = said(tmp_path, capsys, "f.npz", content)
    assert status == 2
    assert "f.npz: 'x': no plain array of NPZ" in told
    assert said(tmp_path, capsys, "f.npz", content, formula="y > 0")[0] == 0


def test_one_array_is_no_npz(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = io.BytesIO()
    np.save(out, np.ones(3))
    status, told = said(tmp_path, capsys, "f.npz", out.getvalue())
    assert status == 2
    assert "f.npz is no NPZ file" in told


def test_a_damaged_bag_is_bad_input(bag: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file,) = bag.glob("*.mcap") if list(bag.glob("*.mcap")) else bag.rglob("*.mcap")
    content = file.read_bytes()
    order = np.random.default_rng(0)
    (bag.parent / "f.stl").write_text("z > 0")
    for _ in range(40):
        damaged = bytearray(content)
        for at in order.integers(0, len(content), 30):
            damaged[at] = order.integers(0, 256)
        (bag.parent / "damaged.mcap").write_bytes(damaged)
        topic = "/cf1/odom:pose.pose.position.z"
        status, _, err = spec("check", bag.parent / "f.stl", bag.parent / "damaged.mcap", "--map", f"z={topic}",
                              "--missing", "unknown", capsys=capsys)
        assert status in (0, 1, 2), err
        assert "Traceback" not in err


def test_samples_on_a_grid_are_bounded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows_ = "t,x\n0,1\n1,1\n"
    assert "at most 20000000 are taken" in said(tmp_path, capsys, "f.csv", rows_, "--resample", "hold", "--dt", 1e-9)[1]
    assert "at most 20000000" in said(tmp_path, capsys, "f.csv", rows_ + "2,1\n3,1\n1e9,1\n", "--missing", "unknown")[1]


def test_columns_that_are_not_read_may_be_anything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(tmp_path, capsys, "f.csv", b"t,x,H\xf6he\n0,1,\xff\n1,1,2\n")[0] == 0
    out = io.BytesIO()
    np.savez(out, t=np.arange(2.0), x=np.ones(2), o=np.array([None, 1], dtype=object))
    assert said(tmp_path, capsys, "f.npz", out.getvalue())[0] == 0
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    out = io.BytesIO()
    from decimal import Decimal

    parquet.write_table(pyarrow.table({
        "t": [0.0, 1.0], "x": pyarrow.array([Decimal("1.5"), Decimal("2.5")]), "v": [[1.0], [1.0, 2.0]],
        "day": pyarrow.array([1, 2], pyarrow.date32())}), out)
    assert said(tmp_path, capsys, "f.parquet", out.getvalue())[0] == 0
    for formula, told in (("v > 0", "lists of 1 to 2 entries"), ("day > 0", "date32")):
        status, found = said(tmp_path, capsys, "f.parquet", out.getvalue(), formula=formula)
        assert status == 2
        assert told in found


@pytest.mark.parametrize(("formula", "shapes"), [
    ("dist(p, [1, 2]) < 1", {"p": [2]}), ("m[1][2] > 0", {"m": [2, 3]}), ("norm(p + [1, 2, 3, 4]) < 1", {"p": [4]}),
    ("norm(p) < 1", {"p": [3]}), ('"X" > 0 & "S".y > 0', {"X": [], "S": [3]}),
    ("dist(p, [1, 2]) < 1 & norm(q) < 1", {"p": [2], "q": [3]})])
def test_shapes_are_guessed_from_use(
    formula: str, shapes: dict[str, list[int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "f.stl").write_text(formula)
    status, found = as_json("check", tmp_path / "f.stl", capsys=capsys)
    assert status == 0
    assert {name: row["shape"] for name, row in found["signals"].items()} == shapes


def test_what_depends_on_the_period_is_unknown_without_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f.stl").write_text("X x > 0")
    status, found = as_json("check", tmp_path / "f.stl", capsys=capsys)
    assert (status, found["horizon_s"]) == (0, None)
    assert as_json("check", tmp_path / "f.stl", "--dt", 0.5, capsys=capsys)[1]["horizon_s"] == 0.5
    assert "--dt S says" in spec("check", tmp_path / "f.stl", capsys=capsys)[1]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("dt", [0.02, 0.1, 1 / 30, 0.004])
def test_jitter_does_not_hide_the_period(seed: int, dt: float) -> None:
    order = np.random.default_rng(seed)
    times = np.arange(500) * dt + 0.01 * dt * order.standard_normal(500)
    assert grid.simplest_period(times) == dt
    assert grid.period(times, None, str, "f") == dt


def test_a_gap_is_named_or_taken_as_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content, told in (("t,x\n0,1\n.1,1\n.2,1\n.5,1\n.6,1\n", "row 5, column 't': t = 0.5"),
                          ("t,x\n0,1\n.1,1\n.4,1\n.5,1\n.6,1\n", "row 4, column 't': t = 0.4")):
        status, found = said(tmp_path, capsys, "f.csv", content)
        assert status == 2
        assert told in found
        assert "2 samples are missing between 0." in found
        words = ("check", tmp_path / "f.stl", tmp_path / "f.csv", "--missing", "unknown")
        status, read = as_json(*words, capsys=capsys)
        assert (status, read["verdict"], read["samples"], read["dt"]) == (2, "undecided", 7, 0.1)


def test_times_since_1970_keep_their_digits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = "t,x\n" + "".join(f"{1.7e9 + 0.02 * k:.2f},1\n" for k in range(4))
    told = said(tmp_path, capsys, "f.csv", content, action="monitor")[1]
    assert [line.split()[0] for line in told.splitlines()[1:4]] == ["1700000000", "1700000000.02", "1700000000.04"]
    gap = said(tmp_path, capsys, "f.csv", content + "1700000000.12,1\n")[1]
    assert "t = 1700000000.12 is off the uniform grid; 1700000000.08 is expected" in gap


def test_time_stamps_keep_their_clock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    ticks = np.array([0, 1000, 2000]) + 1_700_000_000_000_000_000  # 1 MHz: too fast for a float of these seconds
    table = {"t": pyarrow.array(ticks, pyarrow.timestamp("ns")), "x": [1.0, -1.0, 1.0]}
    parquet.write_table(pyarrow.table(table), tmp_path / "f.parquet")
    (tmp_path / "f.stl").write_text("G (x > 0)")
    _, found = as_json("check", tmp_path / "f.stl", tmp_path / "f.parquet", capsys=capsys)
    assert (found["dt"], found["at_s"], found["at_t"]) == (1e-6, 1e-6, pytest.approx(1.7e9))


@pytest.mark.parametrize(("content", "status", "lost"), [
    ("t,x\n0,1\n.5,1\n1.5,-1\n", 1, 1), ("t,x\n0,1\n.5,1\n1.5,1\n2,1\n", 2, 1), ("t,x\n0,1\n.5,1\n1,1\n1.5,1\n", 0, 0)])
def test_a_live_monitor_goes_on_after_a_lost_row(
    content: str, status: int, lost: int, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "f.stl").write_text("G[0,1.5] (x > 0)")
    monkeypatch.setattr(sys, "stdin", io.StringIO(content))
    got, found = as_json("monitor", tmp_path / "f.stl", "-", "--missing", "unknown", capsys=capsys)
    assert (got, found["lost"], found["samples"]) == (status, lost, 4)


def test_bad_input_after_the_verdict_does_not_undo_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f.stl").write_text("G[0,9] (x > 0)")
    monkeypatch.setattr(sys, "stdin", io.StringIO("t,x\n0,1\n1,-1\n2,oops\n"))
    status, out, err = spec("monitor", tmp_path / "f.stl", "-", capsys=capsys)
    assert status == 1
    assert "'oops' is no number" in err
    assert "the verdict was certain before that" in err
    assert "violated" in out.splitlines()[-2]


def test_windows_far_longer_than_the_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for formula, status in (("F[0,2000000000] x > 2", 2), ("F[0,2000000000] x > 0", 0), ("G[0,2000000000] x > 1", 1)):
        for words in (["check", "--partial"], ["monitor"]):
            found = said(tmp_path, capsys, "f.csv", "t,x\n0,1\n1,1\n", *words[1:], formula=formula, action=words[0])
            assert found[0] == status, found
    assert said(tmp_path, capsys, "f.csv", "t,x\n0,1\n1,1\n", "--end", "strong",
                formula="G[0,2000000000] x > 0")[0] == 1
    assert said(tmp_path, capsys, "f.csv", "t,x\n0,1\n1,1\n", "--end", "weak",
                formula="G[0,2000000000] x > 0")[0] == 0
    refused = said(tmp_path, capsys, "f.csv", "t,x\n0,1\n1,1\n", "--partial", formula="F[1e9,2e9] x > 0")
    assert refused[0] == 2
    assert "past the end" in refused[1]


@pytest.mark.parametrize(("content", "formula", "told"), [
    ("t,x\n0,1_000\n1,1\n", "x > 0", "'1_000' is no number"),
    ("t,Höhe\n0,1\n1,1\n", "Hohe > 0", "Höhe"),
    ("t,Motor (left)\n0,1\n1,1\n", "x > 0", "has the columns t, Motor (left)"),
    ("t,X\n0,1\n1,1\n", "X > 0", "--rename X=NAME"),
])
def test_a_column_that_is_not_what_it_seems(
    content: str, formula: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, found = said(tmp_path, capsys, "f.csv", content, formula=formula)
    assert status == 2
    assert told in found


def test_columns_are_renamed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = "t,X,F.0,F.1\n0,1,3,4\n1,1,3,4\n"
    words = ("--rename", "X=pos_x", "--rename", "F=force")
    assert said(tmp_path, capsys, "f.csv", content, *words, formula="pos_x > 0 & norm(force) == 5")[0] == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO(content))
    assert spec("monitor", tmp_path / "f.stl", "-", *words, capsys=capsys)[0] == 0
    out = io.BytesIO()
    np.savez(out, t=np.arange(2.0), X=np.ones(2))
    assert said(tmp_path, capsys, "f.npz", out.getvalue(), "--rename", "X=pos_x", formula="pos_x > 0")[0] == 0
    for rename, told in (("Z=z", "there is no column 'Z'; columns: t, X"), ("X", "write COLUMN=SIGNAL"),
                         ("X=t", "two columns are called 't'")):
        assert told in said(tmp_path, capsys, "f.npz", out.getvalue(), "--rename", rename)[1]


def test_a_letter_of_any_script_begins_a_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(tmp_path, capsys, "f.csv", "t,Δx\n0,1\n1,1\n", formula="Δx > 0")[0] == 0


@pytest.mark.parametrize("values", [["inf", "-inf", "1e308"], ["1e308", "-1e308", "1"], ["inf", "inf", "inf"]])
def test_pictures_of_values_beyond_all_bounds(
    values: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    content = "t,x\n" + "".join(f"{k},{value}\n" for k, value in enumerate(values))
    expected = int("-" in "".join(values))
    for kind in ("svg", "png"):
        out = tmp_path / f"f.{kind}"
        assert said(tmp_path, capsys, "f.csv", content, "-o", out, action="plot")[0] == expected
        assert out.stat().st_size > 0


@pytest.mark.slow
def test_pictures_of_deep_and_of_large_formulas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    words = ("-o", tmp_path / "f.svg")
    rows_ = "t,x\n0,1\n1,1\n"
    assert said(tmp_path, capsys, "f.csv", rows_, *words, formula="G F " * 15 + "x > 0", action="plot")[0] == 0
    page = "".join(ET.parse(tmp_path / "f.svg").getroot().itertext())
    assert "more than 14 levels deep" in page
    assert "not asked for" in page
    large = " & ".join(["x > 0"] + [f"x > -{k}" for k in range(1, 201)])
    status, told = said(tmp_path, capsys, "f.csv", rows_, *words, "--overwrite", formula=large, action="plot")
    assert status == 2
    assert "at most 200" in told


def test_a_path_as_text_will_do(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from temporeal.sim.stl.analysis.explain import explain
    from temporeal.sim.stl.analysis.plot import plot
    from temporeal.sim.stl.language.propositional import Signal

    plot(explain(Signal("x") > 0, {"x": np.ones(2)}, 1.0), str(tmp_path / "f.svg"))
    assert (tmp_path / "f.svg").exists()


def test_a_guess_is_told_only_where_it_may_be_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for formula, guess in (("norm(p) < 1 &", False), ("norm(p) < p", True)):
        (tmp_path / "f.stl").write_text(formula)
        status, _, err = spec("check", tmp_path / "f.stl", capsys=capsys)
        assert status == 2
        assert ("the shapes were guessed" in err) == guess
