"""``temporeal log``: a verdict, a page, a dataset; what is wrong is not imported; bags as the drivers write them."""

from __future__ import annotations

import gzip
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from temporeal.policies.cli.main import main
from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.evaluate.report.flight_log_page import is_log_page
from temporeal.robots.spec import load_robot
from temporeal_benchmarks.reality.excerpts import NANOBENCH, USDLOG, clean

pytest.importorskip("pyarrow")


def swapped(path: Path) -> Path:
    """The excerpt with gyro x and y in each other's column."""
    lines = gzip.decompress(NANOBENCH.read_bytes()).decode().splitlines()
    head = lines[0].replace("gyro_x", "gyro_?").replace("gyro_y", "gyro_x").replace("gyro_?", "gyro_y")
    path.write_text("\n".join([head, *lines[1:]]) + "\n")
    return path


def test_inspect_says_good_and_writes_a_page(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["log", "inspect", str(NANOBENCH), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["verdict"], told["kind"], told["robot"]) == ("good", "nanobench", "crazyflie")
    page = (tmp_path / told["page"]).read_text()
    assert is_log_page(tmp_path / told["page"])
    assert page.count("<svg") == page.count("</svg>") >= 15
    assert "http" not in re.sub(r"https?://www\.w3\.org", "", page)
    lines = re.findall(r'points="([^"]*)"', page)
    assert len(lines) > 30 and not any("nan" in line for line in lines)


def test_a_page_replaces_nothing_but_a_page(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    log, notes, inside = (tmp_path / name for name in ("log.csv.gz", "notes.txt", "folder/data.bin"))
    inside.parent.mkdir()
    for path in (log, notes, inside):
        path.write_bytes(b"t,")
    for name, out, told in ((log, log, "is the log"), (inside.parent, inside, "lies in it"),
                            (log, notes, "not replaced"), (log, tmp_path, "is no file"),
                            (inside.parent, inside.parent / "new.html", "lies in it")):
        assert main(["log", "plot", str(name), "-o", str(out)]) == 2
        assert told in capsys.readouterr().err
    assert {path.read_bytes() for path in (log, notes, inside)} == {b"t,"}


def test_what_is_wrong_is_named_and_not_imported(tmp_path, capsys) -> None:
    file = swapped(tmp_path / "flight.csv")
    assert main(["log", "inspect", str(file), "-o", str(tmp_path / "a.html")]) == 1
    assert re.search(r"wrong +orientation +base_ang_vel_b: .*x is y, y is x", capsys.readouterr().out)
    assert main(["log", "import", str(file), "--out", str(tmp_path / "set")]) == 2
    assert "x is y, y is x (--anyway imports it as it is)" in capsys.readouterr().err
    assert not (tmp_path / "set").exists()
    assert main(["log", "import", str(NANOBENCH), str(file), "--out", str(tmp_path / "set"), "--anyway"]) == 0
    good, bad = (record.info for record in Dataset.open(tmp_path / "set").records)
    assert (good["verdict"], good["wrong"], bad["verdict"]) == ("good", [], "wrong")
    assert "x is y" in bad["wrong"][0] and "mocap, imu" in good["clocks"]


def test_logs_become_one_set_and_the_bad_one_is_left_out(tmp_path, capsys) -> None:
    odd = tmp_path / os.fsdecode(b"odd\xff.csv.gz")
    odd.write_bytes(NANOBENCH.read_bytes())
    files = [str(odd), str(swapped(tmp_path / "bad.csv"))]
    assert main(["log", "import", *files, "--out", str(tmp_path / "set"), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["episodes"] == 1 and "bad.csv" in told["rejected"][0]["where"]
    assert told["logs"][files[1]]["verdict"] == "wrong"
    assert Dataset.open(tmp_path / "set").records[0].info["source"] == "odd?.csv.gz"
    assert main(["log", "plot", str(tmp_path / "set"), "-o", str(tmp_path / "set.html")]) == 0
    assert (tmp_path / "set.html").stat().st_size < 2_000_000
    capsys.readouterr()
    assert main(["log", "import", str(tmp_path / "set"), "--out", str(tmp_path / "again")]) == 2
    assert "a dataset already" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "told"), [
    (["log", "inspct", "x"], "did you mean 'inspect'"), (["log", "inspect", "nowhere"], "nowhere is not there"),
    (["log", "inspect", str(USDLOG), "--kind", "csv"], "legal are nanobench"),
    (["log", "inspect", str(USDLOG), "--robot", "crazyfly"], "crazyflie"),
    (["log", "import", str(USDLOG), "--out", "x", "--rate", "-1"], "--rate -1"),
    (["log", "import", str(USDLOG), "--out", "x", "--rate", "nan"], "--rate nan"),
    (["log", "import", str(USDLOG), "--out", "x", "--rate", "1e9"], "below 1e6"),
    (["log", "import", str(USDLOG), "--out", "x", "--shortest", "nan"], "--shortest"),
    (["log", "import", str(USDLOG), "--out", "x", "--shortest", "-1"], "--shortest"),
    (["log", "import", str(USDLOG), f"{USDLOG.parent}/../usdlog/log15_excerpt", "--out", "x"], "named twice"),
    (["log", "import", str(USDLOG), "--out", str(NANOBENCH)], "is a file"),
    (["log", "inspect", str(USDLOG), "--out", f"{USDLOG}/a.html"], "--out"),
])
def test_careless_words_are_one_line(words, told, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert told in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def crazyswarm_bag(path: Path, *per_rad: float) -> Path:
    """Three seconds of the excerpt as crazyswarm2 publishes them: odometry, gyro as logged, motor commands; three more
    after a gap of half a second for each further unit of the gyro."""
    from temporeal_bridge.codecs.table import COMMAND_CODECS, STATE_CODECS
    from temporeal_bridge.interface.loading import load_interface
    from temporeal_bridge.recording.bag_writer import Bag
    from temporeal_bridge.transports import messages

    topics, log = load_interface(load_robot("crazyflie"), "crazyswarm2"), clean(NANOBENCH)
    start, rows, bag = 1_700_000_000_000_000_000, [], Bag(path)
    chosen = [*topics.states, topics.commands["motor_cmd"].parts[0]]
    for row in chosen:
        bag.add(f"/{row.topic}", row.type)
    mocap, imu, motors = (log.streams[name].values for name in ("mocap", "imu", "motors"))
    for k, unit in ((400 + 350 * part + row, unit) for part, unit in enumerate(per_rad) for row in range(300)):
        at = start + round(1e7 * (k - 400))
        signals = {"base_pos_w": mocap["base_pos_w"][k], "base_quat_w": mocap["base_quat_w"][k],
                   "base_vel_w": mocap["base_vel_w"][k], "base_ang_vel_b": imu["base_ang_vel_b"][k] * unit,
                   "height": mocap["base_pos_w"][k, 2]}
        made = [STATE_CODECS[row.codec].encode(signals, at, ("w", "b"), row.options) for row in topics.states]
        made.append(COMMAND_CODECS[chosen[-1].codec].encode(motors["command"][k], chosen[-1].options))
        rows += [(at, row, messages.encode(row.type, message)) for row, message in zip(chosen, made)]
    for at, row, data in rows:
        bag.write(f"/{row.topic}", row.type, at, data)
    bag.close()
    return path


WORDS = ["--robot", "crazyflie", "--interface", "crazyswarm2", "--rate", "100", "--json"]


def test_each_episode_of_a_bag_is_judged_by_itself(tmp_path, capsys) -> None:
    """After its gap, the gyro is in another unit than its topic says."""
    pytest.importorskip("rosbags")
    words = [str(crazyswarm_bag(tmp_path / "bag", 1.0, np.pi / 180)), *WORDS]
    assert main(["log", "inspect", *words, "--episode", "1", "-o", str(tmp_path / "a.html")]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["kind"], told["verdict"]) == ("rosbag2", "wrong")
    assert "unit" in {each["defect"] for each in told["findings"]}
    assert main(["log", "import", *words, "--out", str(tmp_path / "set")]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [each["verdict"] for each in told["logs"].values()] == ["good", "wrong"]
    assert (told["episodes"], len(told["rejected"])) == (1, 1) and "episode 1" in told["rejected"][0]["where"]
    assert [record.info["verdict"] for record in Dataset.open(tmp_path / "set").records] == ["good"]
    assert main(["log", "import", *words, "--align", "--out", str(tmp_path / "moved")]) == 2
    assert "--align cannot import a bag" in capsys.readouterr().err


def test_a_bag_without_its_end_is_said_to_be_cut(tmp_path, capsys) -> None:
    pytest.importorskip("rosbags")
    bag = crazyswarm_bag(tmp_path / "bag", 1.0)
    file = next(bag.glob("*.mcap"))
    file.write_bytes(file.read_bytes()[:-40])
    words = [str(file), *WORDS]
    assert main(["log", "inspect", *words, "-o", str(tmp_path / "a.html")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["verdict"], {each["defect"] for each in told["findings"]} - {""}) == ("marked", {"truncated"})
