"""Deploy and monitor: node processes stop together, bad words are refused before anything starts."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from temporeal.policies.cli.deployment import bus_settings, output_folder
from temporeal.policies.cli.deployment import flights as deployment_flights
from temporeal.policies.cli.deployment import nodes as deployment_nodes
from temporeal.policies.cli.main import main
from temporeal.policies.cli.verbs import deploy, monitor
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.interrupts import interrupt, on_signals
from temporeal.policies.runs.settings.compose import section
from temporeal_bridge.mission import FLIGHTS
from temporeal_bridge.process import children


def test_what_is_no_artifact_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("deploy", "monitor"):
        assert main([verb, str(tmp_path)]) == 2
        assert "is not an artifact" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["deploy", "monitor", "eval"])
def test_a_damaged_artifact_is_named(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "policy.onnx").write_text("")
    assert main([verb, str(tmp_path)]) == 2
    assert f"{tmp_path} is not an artifact (it has no manifest.json)" in capsys.readouterr().err
    (tmp_path / "manifest.json").write_text("{,}")
    assert main([verb, str(tmp_path)]) == 2
    assert f"{tmp_path}: manifest.json is not JSON" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "one artifact or --formula"),
        (["here", "--formula", "G[0,1] (height > 0)"], "one artifact or --formula"),
        (["--formula", "G[0,1] (heigth > 0)"], "heigth"),
        (["--formula", "G[0,1] (height > h)"], "h"),
        (["--formula", "G[0,1] (height > 0)", "--constants", "{"], "Expecting"),
        (["--formula", "G[0,1] (height > 0)", "--robot", "falcon"], "no robot 'falcon'; known: allegro_hand"),
        (["--formula", "G[0,1] (height > 0)", "--rate", "0"], "--rate"),
        (["--formula", "G[0,1] (height > 0)", "--wait", "nan"], "--wait is a number of seconds from 0, got nan"),
        (["--formula", "G[0,1] (height > 0)", "deploy.domian=3"], "did you mean 'domain'"),
        (["--formula", "G[0,1] (height > 0)", "deploy.domain=999"], "999"),
        (["--formula", "G[0,1] (height > 0)", "seed=3"], "seed=3: of the settings only those of 'deploy' are read"),
    ],
)
def test_monitor_refuses(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["monitor", *words]) == 2
    message = capsys.readouterr().err
    assert told in message
    assert "Traceback" not in message


def test_node_options_of_a_namespace() -> None:
    settings = {"transport": "dds", "domain": 7, "namespace": "/cf1", "interface": None, "signals": None,
                "loopback": True}
    words = deployment_nodes.node_options(settings, "crazyflie")
    assert words == ["--robot", "crazyflie", "--transport", "dds", "--domain", "7", "--namespace", "/cf1", "--loopback"]


def test_the_nodes_know_these_options() -> None:
    """What deploy tells the nodes is what they understand."""
    from temporeal_bridge.process.command_line import parser

    settings = {"transport": "dds", "domain": 7, "namespace": "/cf1", "interface": "x", "signals": "goal.yaml",
                "loopback": True}
    parsed = parser("node", "").parse_args(deployment_nodes.node_options(settings, "crazyflie"))
    assert (parsed.robot, parsed.transport, parsed.namespace, parsed.loopback) == ("crazyflie", "dds", "/cf1", True)
    assert (parsed.interface, parsed.signals) == ("x", Path("goal.yaml"))


def sleeper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Stand-ins for the node modules: one sleeps, one fails."""
    package = tmp_path / "temporeal_bridge"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "sleeps.py").write_text(
        "import signal, sys, time\n"
        "def stop(*_): open(sys.argv[1], 'w').write('stopped'); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, stop); open(sys.argv[2], 'w').close(); time.sleep(60)\n")
    (package / "fails.py").write_text(
        "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)\nsys.exit(3)\n")
    monkeypatch.setattr(children, "__file__", str(package / "process" / "children.py"))  # where modules are looked for


def test_when_one_node_ends_the_others_are_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper(monkeypatch, tmp_path)
    note, ready = tmp_path / "note", tmp_path / "ready"
    ended = deployment_nodes.run_nodes({"sleeps": [str(note), str(ready)], "fails": [str(ready)]}, [])
    assert ended is not None
    assert children.how_ended(ended) == "fails ended with status 3"
    assert note.read_text() == "stopped"


def test_a_controller_that_was_relieved_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends with status 0, the others go on; then one fails, and that one is told."""
    sleeper(monkeypatch, tmp_path)
    note, ready, over = tmp_path / "note", tmp_path / "ready", tmp_path / "over"
    (tmp_path / "temporeal_bridge" / "policy_node.py").write_text(
        "import sys; open(sys.argv[1], 'w').close()\n")
    ended = deployment_nodes.run_nodes(
        {"sleeps": [str(note), str(ready)], "policy_node": [str(over)], "fails": [str(over)]}, []
    )
    assert ended is not None and ended.name == "fails" and note.read_text() == "stopped"
    deployment_nodes.run_nodes({"policy_node": [str(over)], "fails": [str(over)]}, [])
    assert "another controller relieved it" in capsys.readouterr().err


def test_the_others_go_on_without_recorder_and_monitor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is told at once, and by whom; the flight's end is another process's."""
    sleeper(monkeypatch, tmp_path)
    note, ready, over = tmp_path / "note", tmp_path / "ready", tmp_path / "over"
    package = tmp_path / "temporeal_bridge"
    (package / "recorder.py").write_text("import sys; sys.exit(2)\n")
    (package / "monitor_node.py").write_text(
        "import os, sys, time\nwhile not os.path.exists(sys.argv[2]): time.sleep(0.01)\n"
        "print(os.getpid(), file=open(sys.argv[1], 'w'))\nos.kill(os.getpid(), 9)\n")
    (package / "fails.py").write_text(  # once it was seen that the monitor is gone: before, its process is there
        "import os, sys, time\n"
        "def said(): return os.path.exists(sys.argv[1]) and open(sys.argv[1]).read()\n"
        "while not said() or os.path.exists('/proc/' + said().strip()): time.sleep(0.01)\nsys.exit(3)\n")
    lost: list[children.Process] = []
    ended = deployment_nodes.run_nodes({"sleeps": [str(note), str(ready)], "recorder": [],
                              "monitor_node": [str(over), str(ready)], "fails": [str(over)]}, lost)
    assert ended is not None and ended.name == "fails" and note.read_text() == "stopped"
    assert sorted(each.name for each in lost) == ["monitor_node", "recorder"]
    told = capsys.readouterr().err
    assert "ERROR: recorder ended with status 2: the robot continues and is no longer recorded" in told
    assert "ERROR: monitor_node was killed by SIGKILL: the robot continues unmonitored" in told


@pytest.mark.parametrize("lost, status", [([], 0), (["recorder"], 1), (["monitor_node"], 1)])
def test_who_was_lost_is_in_the_exit_status(
    lost: list[str], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = [SimpleNamespace(name=name, returncode=2, log=None) for name in lost]
    monkeypatch.setattr(deploy, "run_nodes", lambda nodes, told: told.extend(gone))
    monkeypatch.setattr(deploy, "node_arguments", lambda *_: {})
    monkeypatch.setattr(deploy, "worker_folder", lambda *_: None)
    options = deploy.parser().parse_args([str(tmp_path)])
    assert deploy.operate(options, {"worker": None}, "crazyflie", tmp_path) == status
    assert all(f"{name} ended with status 2, before the end" in capsys.readouterr().err for name in lost)


def test_the_recorder_is_told_which_guard_it_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper(monkeypatch, tmp_path)
    note, heard = tmp_path / "note", tmp_path / "heard"
    (tmp_path / "temporeal_bridge" / "sleeps.py").write_text(
        "import os, sys, time\nopen(sys.argv[1], 'w').write(str(os.getpid()))\ntime.sleep(60)\n")
    (tmp_path / "temporeal_bridge" / "recorder.py").write_text(
        "import sys, time\nopen(sys.argv[1], 'w').write(sys.argv[3])\ntime.sleep(60)\n")
    (tmp_path / "temporeal_bridge" / "fails.py").write_text(
        "import os, sys, time\nwhile not all(os.path.exists(x) and os.path.getsize(x) for x in sys.argv[1:]): "
        "time.sleep(0.01)\n")
    deployment_nodes.run_nodes({"sleeps": [str(note)], "recorder": [str(heard)], "fails": [str(note), str(heard)]}, [])
    assert heard.read_text() == note.read_text()


def test_two_that_are_started_at_once_have_a_folder_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda _: "20260101-000000")
    with output_folder.own_folder(None) as one, output_folder.own_folder(None) as two:
        assert (one.name, two.name) == ("20260101-000000", "20260101-000000-2")
        (one / "guard.json").touch()
        with pytest.raises(BadInput, match=f"{one}: another temporeal deploy writes there now: .* with --out"):
            output_folder.own_folder(one).__enter__()
    with output_folder.own_folder(one):  # the first has ended
        assert not two.exists()  # nothing came of it


def test_interrupt_stops_all_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper(monkeypatch, tmp_path)
    note, ready = tmp_path / "note", tmp_path / "ready"

    def terminate() -> None:
        while not ready.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=terminate, daemon=True).start()
    with on_signals([signal.SIGTERM], interrupt):
        assert deployment_nodes.run_nodes({"sleeps": [str(note), str(ready)]}, []) is None
    assert note.read_text() == "stopped"


def test_summary_of_flights(tmp_path: Path) -> None:
    assert deployment_flights.read_flights(tmp_path / "monitor.json") == []
    (tmp_path / "monitor.json").write_text(json.dumps({"flights": [{"flight": 0, "verdict": "satisfied"}]}))
    assert deployment_flights.read_flights(tmp_path / "monitor.json")[0]["verdict"] == "satisfied"


def test_flights_of_another_guard_are_not_told_as_our_own() -> None:
    judged = [{"flight": 0, "start_ns": 5}, {"flight": 0, "start_ns": 9}]
    guard = SimpleNamespace(name="guard_node", returncode=2)
    assert deployment_flights.own_flights(judged, None, guard) == []  # type: ignore[arg-type]  # it was refused
    assert deployment_flights.own_flights(judged, [{"flight": 0, "start_ns": 9}], None) == judged[1:]
    guard.returncode = -signal.SIGKILL
    assert (
        deployment_flights.own_flights(judged, None, guard)
        == deployment_flights.own_flights(judged, None, None)
        == judged
    )  # type: ignore[arg-type]
    many = [{"flight": i, "start_ns": 6 + i} for i in range(FLIGHTS)]
    assert deployment_flights.own_flights(judged, many, None) == judged[:1]  # it keeps the last ones only


def test_a_flight_that_nobody_judged_is_told() -> None:
    flown = [{"flight": 1, "start_ns": 5, "sent": 306}, {"flight": 1, "start_ns": 9, "sent": 306},
             {"flight": 2, "start_ns": 12, "sent": 0}]
    assert deployment_flights.unjudged_flights(flown, [{"flight": 1, "start_ns": 5}]) == [flown[1]]
    assert (
        deployment_flights.unjudged_flights(flown, [{"flight": 1, "start_ns": 5}, {"flight": 1, "start_ns": 9}]) == []
    )


def test_what_a_simulated_flight_needs_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *a: None if name == "mujoco" else find(name, *a))
    assert main(["deploy", str(tmp_path), "--sim"]) == 2
    told = capsys.readouterr().err
    assert "deploy --sim needs mujoco, not installed here: pip install -c constraints.txt '.[train]'" in told


def test_sim_options_need_sim(tmp_path: Path) -> None:
    options = deploy.parser().parse_args([str(tmp_path), "--flights", "3"])
    with pytest.raises(BadInput, match="--flights needs --sim"):
        deploy.check_real(options, {}, "crazyflie")


@pytest.mark.parametrize(("seed", "flights", "told"), [
    ("-1", "1", "--seed is a whole number from 0 to 2^53; got -1"), (str(10**20), "1", "--seed is a whole number"),
    (str(2**53 - 1), "3", "--seed is a whole number from 0 to 2^53 - 2, for 3 count up from it; got 90071")])
def test_flights_have_numbers_that_records_can_say(
    seed: str, flights: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deploy", str(tmp_path), "--sim", "--seed", seed, "--flights", flights]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(("words", "told"), [
    (["deploy.priority=high"], "priority high; legal: normal, realtime, auto"),
    (["deploy.namespace=/1x"], "'/1x/mission' is not a topic name"),
    (["deploy.core=4096"], "core 4096: this machine has cores 0 to")])
def test_what_every_node_refuses_is_refused_before_any_is_started(words: list[str], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        bus_settings.check_bus(section("deploy", ["deploy=dds", *words]), "crazyflie")


@pytest.mark.parametrize(("word", "told"), [
    ("interface=[a]", "interface=['a']: expected a word or null, got a list"),
    ("interface=true", "interface=true: expected a word or null, got true or false"),
    ("worker=5", "worker=5: expected a word or null, got a whole number"),
    ("worker=[x]", "worker=['x']: expected a word or null, got a list"),
    ("worker=''", "worker=: expected a word or null, got an empty word"),
    ("signals={definitions:{},signals:{},states:[]}", "expected a word or null, got a group of settings"),
    ("domain=1.5", "domain=1.5: expected a whole number or null, got a number"),
    ("domain=true", "domain=true: expected a whole number or null, got true or false"),
    ("core='1'", "core=1: expected a whole number or null, got a word"),
    ("awake=1", "deploy.awake=1: expected true or false"),
    ("namespace=null", "deploy.namespace=None: expected a word")])
@pytest.mark.parametrize("verb", ["deploy", "monitor", "doctor"])
def test_a_setting_of_another_kind_is_refused(
    verb: str, word: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that is null by default took anything: the nodes got a dictionary's text as their path."""
    words = ["--artifact", str(tmp_path)] if verb == "doctor" else [str(tmp_path)]
    assert main([verb, *words, f"deploy.{word}"]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(("content", "told"), [
    ("transport: dds\n", "deploy lacks the setting 'domain'; legal, and all needed: transport, domain"),
    ("defaults: [dds]\nrecrod: false\n", "deploy has no setting 'recrod'; legal"),
    ("defaults: [dds]\nrecord: 'no'\n", "deploy.record=no: expected true or false, got a word")])
def test_a_file_of_the_users_own_has_what_deploy_reads(
    content: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "mine.yaml").write_text(content)
    monkeypatch.setenv("TEMPOREAL_CONFIGS", str(tmp_path))
    with pytest.raises(BadInput, match=re.escape(told)):
        bus_settings.deploy_settings(["deploy=mine"])


def test_each_setting_has_its_kind() -> None:
    for choice in ("dds", "rclpy"):
        assert bus_settings.deploy_settings([f"deploy={choice}"]).keys() == {"name", *bus_settings.KINDS}
    assert bus_settings.deploy_settings(["deploy.worker=./5", "deploy.core=1"])["worker"] == "./5"


def test_flight_table_shows_monitor_and_truth() -> None:
    rows = [
        {"seed": 0, "verdict": "satisfied", "missed": 1, "reason": "",
         "truth": {"verdict": "satisfied", "robustness": 0.1}},
        {"seed": 1, "verdict": "violated", "missed": 0, "reason": "left the geofence"},
        {"seed": 2, "verdict": "failed", "missed": None, "reason": "policy_node was killed by SIGKILL"},
    ]
    lines = deployment_flights.flight_table(rows).splitlines()
    assert lines[1].split() == ["0", "satisfied", "satisfied", "0.100", "1"]
    assert "left the geofence" in lines[2]
    assert lines[3].split(maxsplit=3) == ["2", "failed", "?", "policy_node was killed by SIGKILL"]


def test_monitor_tells_what_is_violated() -> None:
    clause = SimpleNamespace(text="G[0,9] (height > floor)", verdict="violated")
    reading = SimpleNamespace(time_s=3.4, verdict="violated", final=True, lower=-0.2, upper=-0.2, clauses=[clause])
    node = SimpleNamespace(flight=2, formula=SimpleNamespace(reading=reading), complete=True)
    assert monitor.describe(node) == [
        "flight 2,   3 s: violated, robustness -0.200..-0.200", "  violated: G[0,9] (height > floor)"]
    waiting = SimpleNamespace(flight=-1, complete=False)
    assert monitor.describe(waiting) == ["waiting for the robot's state"]


def test_a_robot_that_is_not_there_is_not_awaited_for_ever(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a bus with a fake clock; of the two topics one is there."""
    from temporeal_bridge.codecs.odometry import encode_odometry
    from temporeal_bridge.transports import messages
    from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
    from temporeal_bridge.transports.transport import QOS

    bus = Bus()
    talker = MemoryTransport(bus, "robot", "/cf1")
    state = talker.advertise("odom", "nav_msgs/msg/Odometry", QOS["default"])
    signals = {"base_pos_w": [0, 0, 1], "base_quat_w": [1, 0, 0, 0], "base_vel_w": [0, 0, 0]}
    message = encode_odometry(signals, 0, ("world", "cf1"), {"linear": "world", "angular": "absent"})

    advertised = []

    class Own(MemoryTransport):
        def advertise(self, topic: str, *rest: Any) -> Any:
            advertised.append(topic)
            return super().advertise(topic, *rest)

        def wait(self, timeout_s: float) -> int:
            if self.bus.seconds == 0:
                talker.publish(state, messages.encode(state.type, message))
            self.bus.advance(timeout_s)
            return super().wait(0.0)

    monkeypatch.setattr(
        "temporeal_bridge.transports.selection.open_transport", lambda *_, **__: Own(bus, "monitor", "/cf1"))
    assert main(["monitor", "--formula", "G[0,1] (height > 0)", "--wait", "20"]) == 2
    told = capsys.readouterr().err
    assert "no message on /cf1/gyro" in told
    assert "/cf1/odom" not in told
    assert "within 20 s" in told and "--wait 0 waits" in told
    assert 20 < bus.seconds < 21
    assert advertised == ["monitor/own/robustness", "monitor/own/verdict"]  # the guard reads monitor/verdict
    assert monitor.parser().get_default("wait") == monitor.WAIT_S > 0


@pytest.mark.slow  # in real time: a busy machine loses samples
def test_own_formula_is_watched_over_real_middleware(capsys: pytest.CaptureFixture[str]) -> None:
    """A simulated robot in a process of its own, resting in its start state, and a formula of the user's."""
    import subprocess

    from temporeal_bridge.transports.dds import free_domain

    domain = str(free_domain())
    bus = ["--transport", "dds", "--domain", domain, "--loopback", "--namespace", "/watched"]
    robot = subprocess.Popen([sys.executable, "-m", "temporeal_bridge.robot_sim", "--robot", "crazyflie", *bus])
    words = [f"deploy.domain={domain}", "deploy.loopback=true", "deploy.namespace=/watched", "--json"]
    try:
        above = main(["monitor", "--formula", "G[0,0.5] (height > 0.3)", *words])
        said = json.loads(capsys.readouterr().out)["verdicts"]
        below = main(["monitor", "--formula", "F[0,0.5] (height > h)", "--constants", '{"h": 9}', *words])
    finally:
        robot.terminate()
        robot.wait(timeout=20)
    assert (above, below) == (0, 1)
    assert [(row["verdict"], row["lost"]) for row in said] == [("satisfied", 0)]
