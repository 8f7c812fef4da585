"""Every reader of traces has one rule for times and one for missing values: a table of readers and defects."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.examples import thinned

from temporeal.policies.cli.main import main

NAN = float("nan")
START = 1_700_000_000 * 10**9
Write = Callable[[Path, list[float], list[float], list[float]], tuple[str, list[str]]]


def csv_text(t: list[float], x: list[float], y: list[float]) -> str:
    rows = [",".join("" if v != v else repr(v) for v in row) for row in zip(t, x, y)]
    return "\n".join(["t,x,y", *rows]) + "\n"


def as_csv(path: Path, t: list[float], x: list[float], y: list[float]) -> tuple[str, list[str]]:
    (path / "f.csv").write_text(csv_text(t, x, y))
    return str(path / "f.csv"), []


def as_npz(path: Path, t: list[float], x: list[float], y: list[float]) -> tuple[str, list[str]]:
    np.savez(path / "f.npz", t=t, x=x, y=y)
    return str(path / "f.npz"), []


def as_parquet(path: Path, t: list[float], x: list[float], y: list[float]) -> tuple[str, list[str]]:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({name: pyarrow.array([None if v != v else v for v in column])
                                       for name, column in (("t", t), ("x", x), ("y", y))}), path / "f.parquet")
    return str(path / "f.parquet"), []


def bag(path: Path, kind: str, t: list[float], x: list[float], y: list[float], stamped: bool = True) -> str:
    """A bag of joint states, received 5 ms after their stamps, or of numbers without stamps."""
    pytest.importorskip("rosbags")
    from rosbags.rosbag2 import StoragePlugin, Writer
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_HUMBLE)
    make, topic = store.types, "sensor_msgs/msg/JointState" if stamped else "std_msgs/msg/Float64MultiArray"
    with Writer(path / "bag", version=9, storage_plugin=StoragePlugin[kind]) as writer:
        to = writer.add_connection("/joints", topic, typestore=store)
        for k, one in enumerate(zip(t, x, y)):
            stamp = START + round(one[0] * 1e9)
            message = make["std_msgs/msg/Float64MultiArray"](
                layout=make["std_msgs/msg/MultiArrayLayout"](dim=[], data_offset=0), data=np.array(one[1:]))
            if stamped:
                at = make["builtin_interfaces/msg/Time"](sec=stamp // 10**9, nanosec=stamp % 10**9)
                message = make[topic](header=make["std_msgs/msg/Header"](stamp=at, frame_id=""), name=["b", "a"],
                                      position=np.array([9.0, one[1]]), velocity=np.array([one[2]] * 2),
                                      effort=np.zeros(0))
            received = START + 100_000_000 * k + 5_000_000 if stamped else stamp
            writer.write(to, received, store.serialize_cdr(message, topic))
    return str(path / "bag")


def as_mcap(path: Path, t: list[float], x: list[float], y: list[float]) -> tuple[str, list[str]]:
    return bag(path, "MCAP", t, x, y), ["--map", "x=/joints:position[a]", "--map", "y=/joints:velocity[a]"]


def as_sqlite(path: Path, t: list[float], x: list[float], y: list[float]) -> tuple[str, list[str]]:
    return bag(path, "SQLITE3", t, x, y), ["--map", "x=/joints:position[a]", "--map", "y=/joints:velocity[0]"]


def as_unstamped(path: Path, t: list[float], x: list[float], y: list[float]) -> tuple[str, list[str]]:
    return bag(path, "MCAP", t, x, y, stamped=False), ["--map", "x=/joints:data[0]", "--map", "y=/joints:data[1]"]


READERS: dict[str, Write] = {"csv": as_csv, "npz": as_npz, "parquet": as_parquet, "mcap": as_mcap, "sqlite3": as_sqlite,
                             "receipt": as_unstamped, "live": as_csv}
T, X, Y = [0.0, 0.1, 0.2, 0.3, 0.4], [1.0, 2.0, 3.0, 2.0, 1.0], [5.0] * 5
"""G (x > 0.5) holds of these; the defects put x = -1 where it must not be overlooked."""
TWICE, BACK, SET = [0.0, 0.1, 0.1, 0.2, 0.3], [0.0, 0.2, 0.1, 0.3, 0.4], [0.0, 2.0, 2.1, 0.3, 0.4]
HIDDEN = [1.0, 2.0, -1.0, 2.0, 1.0]
MANY = [*(0.1 * k for k in range(5)), *(0.1 * k for k in range(25, 30))]
DEFECTS: dict[str, tuple[list[float], list[float], list[float], list[str], str, str]] = {
    # times, x, y, options, verdict or "refused", and what is said
    "none": (T, X, Y, [], "satisfied", ""),
    "twice": (TWICE, HIDDEN, Y, [], "refused", "that of the sample before; time must increase"),
    "twice, dropped": (TWICE, HIDDEN, Y, ["--repeated", "drop"], "satisfied", "dropped: their time repeats or goes"),
    "back": (BACK, HIDDEN, Y, [], "refused", "time must increase"),
    "back, dropped": (BACK, HIDDEN, Y, ["--repeated", "drop", "--missing", "unknown"], "undecided", "dropped"),
    "clock set": (SET, [1.0, 2.0, 1.0, -1.0, 1.0], Y, ["--repeated", "drop", "--missing", "unknown"], "refused",
                  "a clock was set back"),
    "NaN": (T, [1.0, NAN, 3.0, 2.0, 1.0], Y, [], "refused", "is empty or NaN, and the formula reads it"),
    "NaN, unknown": (T, [1.0, NAN, 3.0, 2.0, 1.0], Y, ["--missing", "unknown"], "undecided", ""),
    "NaN, decided": (T, [1.0, NAN, -3.0, 2.0, 1.0], Y, ["--missing", "unknown"], "violated", ""),
    "NaN, unread": (T, X, [NAN] * 5, [], "satisfied", ""),
    "gap": ([0.0, 0.1, 0.2, 0.5, 0.6], X, Y, [], "refused", "2 samples are missing between"),
    "gap, unknown": ([0.0, 0.1, 0.2, 0.5, 0.6], X, Y, ["--missing", "unknown"], "undecided", ""),
    "silence": (MANY, [1.0] * 10, [5.0] * 10, ["--resample", "hold"], "refused", "it holds 0.3 s"),
    "silence, unknown": (MANY, [1.0] * 10, [5.0] * 10, ["--resample", "hold", "--missing", "unknown"], "undecided", ""),
    "silence, held": (MANY, [1.0] * 10, [5.0] * 10, ["--resample", "hold", "--stale-after", "5"], "satisfied", ""),
}
ELSEWISE = {  # a receipt that goes back is the recorder's clock; stdin is read as it comes, by rows that are expected
    ("live", "gap"): ("refused", "t = 0.5; 0.3 is expected"),
    ("receipt", "back"): ("refused", "the recorder's clock was set back"),
    ("receipt", "back, dropped"): ("refused", "the recorder's clock was set back"),
    ("receipt", "clock set"): ("refused", "the recorder's clock was set back"),
}


def said(words: list[Any], capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    status = main(["spec", *map(str, words), "--json"])
    told = capsys.readouterr()
    if status == 2 and not told.out:
        return "refused", told.err
    return json.loads(told.out)["verdict"], told.out


def represents(case: tuple[str, str]) -> bool:
    """Whether `make test` has this cell of the table: all of a file and of a bag, of the others one of each kind."""
    kinds = ("twice", "back, dropped", "clock set", "NaN", "NaN, unread", "silence")
    return case[0] in ("csv", "mcap") or case[1] in kinds


@pytest.mark.parametrize(("reader", "defect"), thinned(
    [(reader, defect) for reader in READERS for defect in DEFECTS], represents))
def test_one_rule(
    reader: str, defect: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    t, x, y, words, verdict, told = DEFECTS[defect]
    verdict, told = ELSEWISE.get((reader, defect), (verdict, told))
    file, maps = READERS[reader](tmp_path, t, x, y)
    if reader == "live":
        if "--resample" in words:
            pytest.skip("stdin is read as it comes")
        monkeypatch.setattr(sys, "stdin", io.StringIO(csv_text(t, x, y)))
        file = "-"
    action = "monitor" if reader == "live" else "check"
    found, text = said([action, "G (x > 0.5)", file, *maps, "--dt", 0.1, *words], capsys)
    assert (found, told in text) == (verdict, True), text


# ---------------------------------------------------------------- what only bags have


@pytest.mark.parametrize("first", [0, 3])
def test_a_stamp_of_zero_is_a_time_where_others_are_set(
    first: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stamps 0, 0.1, ...: 49 of 50 messages were gone once, and the verdict was satisfied."""
    monkeypatch.setattr(sys.modules[__name__], "START", 0)
    file, maps = as_mcap(tmp_path, [0.1 * k for k in range(50)], [1.0] * first + [-1.0] * 50, [0.0] * 50)
    assert said(["check", "G[0,4] (x > 0)", file, *maps], capsys)[0] == "violated"
    assert json.loads(capsys.readouterr().out or "{}") == {}


def test_a_topic_whose_stamps_are_never_set_has_the_times_of_its_receipt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from temporeal.policies.cli.traces import bags

    monkeypatch.setattr(bags, "header_stamp", lambda message: 0)
    file, maps = as_mcap(tmp_path, T, X, Y)
    found, told = said(["check", "G (x > 0.5)", file, *maps], capsys)
    assert (found, json.loads(told)["notes"]) == (
        "satisfied", ["/joints: no stamp is set: times are those of the receipt"])


def test_two_publishers_with_one_stamp_are_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    t = [0.1 * (k // 2) for k in range(10)]
    file, maps = as_sqlite(tmp_path, t, [1.0, -1.0] * 5, [0.0] * 10)
    assert said(["check", "G (x > 0)", file, *maps, "--dt", 0.1], capsys)[0] == "refused"
    found, told = said(["check", "G (x > 0)", file, *maps, "--dt", 0.1, "--repeated", "drop"], capsys)
    assert (found, "5 of 10 samples were dropped" in told) == ("satisfied", True)


@pytest.mark.parametrize(("field", "told"), [
    ("effort[a]", "2 joints and 0 values of 'effort[a]'"), ("position[c]", "no joint 'c'; joints: b, a"),
    ("effort[0]", "no '[0]' in 'effort[0]'; it has 0 entries"), ("effort", "'effort' is empty"),
    ("header[a]", "joints are selected from a sequence"), ("position[a", "write signal=/topic:field.path")])
def test_a_field_that_is_not_there_matters_to_who_reads_it(
    field: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, maps = as_mcap(tmp_path, T, X, Y)
    found, text = said(["check", "G (x > 0.5)", file, *maps, "--map", f"e=/joints:{field}"], capsys)
    assert found == ("satisfied" if "write" not in told else "refused"), text
    found, text = said(["check", "G (e > 0.5)", file, *maps, "--map", f"e=/joints:{field}"], capsys)
    assert (found, told in text) == ("refused", True), text


def test_joints_by_name_are_a_vector_in_the_order_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, _ = as_mcap(tmp_path, T, X, Y)
    words = ["--map", "q=/joints:position[a, b]"]
    assert said(["check", "G (q.0 < 4 & q.1 > 8)", file, *words], capsys)[0] == "satisfied"


@pytest.mark.parametrize("reader", ["npz", "parquet", "mcap", "sqlite3"])
@pytest.mark.parametrize("share", [0.3, 0.97])
def test_a_truncated_file_is_called_truncated(
    reader: str, share: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, maps = READERS[reader](tmp_path, T, X, Y)
    path = next(p for p in (*Path(file).glob("*.mcap"), *Path(file).glob("*.db3"), Path(file)) if p.is_file())
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    for given in {file, str(path)}:
        found, told = said(["check", "G (x > 0.5)", given, *maps], capsys)
        assert (found, "is truncated: it has" in told) == ("refused", True), told


@pytest.mark.parametrize("latched", [True, False])
def test_a_goal_that_is_published_once_holds_if_it_is_latched(
    latched: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("temporeal_bridge")
    from temporeal_bridge.recording.bag_writer import Bag
    from temporeal_bridge.transports import messages

    kind = "std_msgs/msg/Float64MultiArray"
    out = Bag(tmp_path / "bag")
    out.add("/goal", kind, latched)
    out.add("/place", kind)
    out.write("/goal", kind, START - 10**9, messages.encode(kind, messages.array64(np.array([3.0]))))
    for k in range(20):
        out.write("/place", kind, START + k * 10**8, messages.encode(kind, messages.array64(np.array([0.2 * k]))))
    out.flush()
    out.close()
    words = ["check", "F[0,1.9] (abs(x - goal) < 0.1)", tmp_path / "bag", "--map", "x=/place:data[0]", "--map",
             "goal=/goal:data[0]", "--dt", 0.1, "--resample", "hold"]
    found, told = said(words, capsys)
    assert found == ("satisfied" if latched else "refused")
    assert latched or "/goal has ended when another one begins" in told
    assert said([*words, "--stale-after", "/goal=inf"], capsys)[0] == "satisfied"


# ---------------------------------------------------------------- the formula on the command line


def test_a_formula_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, _ = as_csv(tmp_path, T, X, Y)
    assert said(["check", "G[0,0.2] (x > 0.5)", file], capsys)[0] == "satisfied"
    assert said(["check", "low > 1", file, "--constants", '{"low": 2}'], capsys)[0] == "satisfied"
    for text, told in (("mission.stl", "mission.stl is not there; FORMULA is a file"), ("x = 1", "write == to compare"),
                       ("G (z > 0)", "unknown signal 'z'")):
        found, text = said(["check", text, file], capsys)
        assert (found, told in text) == ("refused", True), text


def test_the_readmes_files_are_there_and_say_what_it_shows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import re
    import shlex

    root = Path(__file__).parents[4]
    block = re.search(r"```console\n\$ cd (examples/spec)\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
    assert block is not None
    monkeypatch.chdir(root / block[1])
    for command, shown in re.findall(r"\$ temporeal (.*)\n((?:[^$].*\n)*)", block[2]):
        main(shlex.split(command))
        out = capsys.readouterr().out
        assert shown
        assert set(shown.splitlines()) <= set(out.splitlines()), out
    page = (root / "docs/how-to/stl-explain.md").read_text()
    assert (root / "examples/spec/flight.csv").read_text() in page
    assert "".join((root / "examples/spec/mission.yaml").read_text().splitlines(True)[1:]) in page
