"""`temporeal view`: files without a screen, a page on a port, and one clear line for what cannot be."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import cv2
import pytest

from temporeal.policies.cli.main import main
from temporeal.sim.rendering.video import read_video

SMALL = ["--size", "64x48", "--renderer", "gl"]


def test_a_quadrotor_as_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new" / "start.png"
    assert main(["view", "task=hover", "--png", str(path), "--at", "0.05", *SMALL]) == 0
    picture = cv2.imread(str(path))
    assert picture.shape == (48, 64, 3) and picture.std() > 5
    assert capsys.readouterr().out == f"{path}: t = 0.05 s\nhover, 1 world: 1 undecided\n"


@pytest.mark.parametrize("ending", [pytest.param("webm", marks=pytest.mark.slow), "mp4"])
def test_an_arm_as_a_video(ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"reach.{ending}"
    assert main(["view", "task=reach", "--actions", "random", "--worlds", "2", "--seconds", "0.2", "--video", str(path),
                 *SMALL, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    frames = list(read_video(path))
    assert told == {"task": "reach", "worlds": 2, "video": str(path), "frames": 6, "fps": 25.0,
                    "verdicts": ["undecided", "undecided"]}
    assert len(frames) == 6 and frames[0].shape == (48, 130, 3)
    assert abs(frames[0].astype(int) - frames[-1]).max() > 30  # it moves
    assert sorted(p.name for p in tmp_path.iterdir()) == [path.name]


@pytest.mark.slow
def test_a_run_and_its_artifact_drive_the_robot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, artifact = str(tmp_path / "run"), str(tmp_path / "artifact")
    assert main(["train", "experiment=smoke", "algo.total_steps=4096", "--out", run, "--json"]) == 0
    assert main(["export", run, "--out", artifact]) == 0
    shown = []
    for number, policy in enumerate((run, artifact)):
        path = tmp_path / f"{number}.png"
        assert main(["view", "--policy", policy, "--png", str(path), "--at", "0.2", *SMALL]) == 0
        shown.append(cv2.imread(str(path)))
    assert abs(shown[0].astype(int) - shown[1]).mean() < 1  # the same episode, flown by the same policy
    assert main(["view", "--policy", run, "--png", str(tmp_path / "a.png"), "task=track", *SMALL]) == 2
    assert "judge it on what it was trained for" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "told"), [
    (["--worlds", "0"], "--worlds is a whole number from 1 to 64, got 0"),
    (["--worlds", "65"], "--worlds is a whole number from 1 to 64, got 65"),
    (["--size", "640"], "--size is WIDTHxHEIGHT, 16 to 4096 pixels each, such as 640x480; got '640'"),
    (["--size", "8x8"], "got '8x8'"),
    (["--at", "-1"], "--at is a time in s, at least 0, got -1"),
    (["--at", "nan"], "--at is a time in s, at least 0, got nan"),
    (["--at", "99"], "--at 99: an episode of hover lasts 5 s"),
    (["--seconds", "0"], "--seconds is above 0, got 0"),
    (["--speed", "inf"], "--speed is above 0, got inf"),
    (["--port", "70000"], "--port is a whole number from 1 to 65535, got 70000"),
    (["--png", "a.jpg"], "--png is a file with the ending .png, got 'a.jpg'"),
    (["--video", "a.gif"], "--video is a file with the ending .webm or .mp4, got 'a.gif'"),
    (["--png", "/proc/none/a.png"], "cannot write to /proc/none: "),
    (["--actions", "best"], "argument --actions: invalid choice: 'best'"),
    (["--policy", "no/such/run"], "no/such/run is not a run"),
    (["--policy", "no/such/run", "--actions", "zero"], "--actions is for a view without --policy"),
    (["task=hver"], "did you mean 'hover'?"),
    (["--png", "a.png", "--camera", "nose"], "no camera 'nose'; viewpoints: frame, front, side, top, follow"),
])
def test_wrong_input_is_one_line(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["view", "task=hover", *words]) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.png").mkdir()
    assert main(["view", "task=hover", "--png", str(tmp_path / "a.png")]) == 2
    assert capsys.readouterr().err == f"temporeal: --png {tmp_path}/a.png is a folder\n"


@pytest.mark.parametrize(("package", "words"), [
    ("viser", []), ("cv2", ["--png", "a.png"]), ("av", ["--video", "a.webm"]),
    ("mujoco_warp", ["--png", "a.png", "--renderer", "warp"]),
])
def test_a_missing_package_is_named(
    package: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "temporeal.sim.rendering.warp_renderer", raising=False)
    assert main(["view", "task=hover", *words]) == 2
    error = capsys.readouterr().err
    assert f"{package} " in error and "Traceback" not in error and error.count("\n") == 1


def test_a_machine_without_opengl_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from temporeal.sim.rendering import opengl_renderer

    def missing(*_: object) -> None:
        raise opengl_renderer.MissingRenderer(f"renderer 'gl' finds no OpenGL; {opengl_renderer.INSTALL}")

    monkeypatch.setattr(opengl_renderer, "_open_context", missing)
    assert main(["view", "task=hover", "--png", str(tmp_path / "a.png"), *SMALL]) == 2
    assert "apt install libegl1" in capsys.readouterr().err


def test_a_port_in_use_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert main(["view", "task=hover", "--port", str(port)]) == 2
    error = capsys.readouterr().err
    assert f"port {port}" in error and "choose another with --port" in error and error.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status", "told"), [
    (signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "stopped by SIGTERM")])
def test_the_page_is_served_until_a_signal(number: int, status: int, told: str) -> None:
    code = ("import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
            "from temporeal.policies.cli.main import main; sys.exit(main(['view', 'task=reach', '--json']))")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], text=True, **pipes) as it:
        assert it.stdout is not None
        lines = [it.stdout.readline() for _ in range(4)]
        url = json.loads("".join(lines))["url"]
        assert url.startswith("http://127.0.0.1:80")
        with urllib.request.urlopen(url, timeout=30) as answer:
            assert answer.status == 200 and b"<html" in answer.read()
        it.send_signal(number)
        rest, errors = it.communicate(timeout=60)
    assert it.returncode == status
    assert rest == "" and errors == f"temporeal: {told}\n"
