"""The artifact is exchanged in mid-flight between real processes over DDS, and the mission goes on to its end."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.artifact.manifest import identity
from temporeal.robots.spec import load_robot
from temporeal_bridge.mission import CommandRecord
from temporeal_bridge.process.children import Process, end, last_words, start
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS

NUMBER, TEXT, ARRAY = "std_msgs/msg/UInt64", "std_msgs/msg/String", "std_msgs/msg/Float64MultiArray"


@pytest.mark.slow
def test_the_artifact_is_exchanged_in_flight(long_artifacts: tuple[Path, Path], tmp_path: Path) -> None:
    """A second controller with another artifact relieves the first one half way; that one ends with status 0, nothing
    is stopped, the command makes no leap, and the monitor is satisfied."""
    pytest.importorskip("mujoco")
    artifact, other_artifact = long_artifacts
    from temporeal_bridge.transports.dds import DdsTransport, free_domain

    domain = free_domain()
    shared = ["--transport", "dds", "--domain", str(domain), "--loopback", "--namespace", "/cf1", "--interface",
              "odometry", "--link", str(tmp_path / "own" / "cf1.sock")]
    bus = DdsTransport("watcher", "/cf1", domain=domain, loopback=True)
    modes: list[str] = []
    events: list[dict[str, Any]] = []
    verdicts: list[dict[str, Any]] = []
    sent: list[CommandRecord] = []
    mixed: list[np.ndarray] = []

    def hear(topic: str, kind: str, keep: Any, qos: str = "deep") -> None:
        bus.subscribe(topic, kind, QOS[qos], lambda r: keep(messages.decode(r.type, r.data)))

    hear("mission", "std_msgs/msg/Header", lambda m: modes.append(m.frame_id), "latched")
    hear("guard/event", TEXT, lambda m: events.append(json.loads(m.data)))
    hear("monitor/verdict", TEXT, lambda m: verdicts.append(json.loads(m.data)), "latched")
    hear("guard/command", ARRAY, lambda m: sent.append(CommandRecord.of(m.data)))
    hear("guard/swap", ARRAY, lambda m: mixed.append(np.array(m.data)))
    go = bus.advertise("mission/start", NUMBER, QOS["default"])

    def node(name: str, folder: Path, *words: str) -> Process:
        log = tmp_path / f"{name}-{folder.name}.log"
        first = [] if name == "monitor_node" else ["--priority", "auto"]  # as on a robot, where that is permitted
        options = [*shared, *first, "--artifact", str(folder), *words, "--out", str(tmp_path / folder.name)]
        return start(name, options, log)

    def until(seen: Any, seconds: float, running: list[Process]) -> None:
        limit = time.monotonic() + seconds
        while not seen():
            assert time.monotonic() < limit, (modes, events, [last_words(p) for p in running])
            assert all(p.poll() is None for p in running), [last_words(p) for p in running]
            bus.wait(0.02)

    old = node("policy_node", artifact, "--after", "silence")
    others = [node("robot_sim", artifact), node("guard_node", artifact), node("monitor_node", artifact)]
    started = [old, *others]
    try:
        until(lambda: modes and modes[-1].startswith("ready") and verdicts and bus.matched(go), 60, started)
        bus.publish(go, messages.encode(NUMBER, messages.record(NUMBER)(data=7)))
        until(lambda: modes[-1] == "active 7" and len(sent) > 20, 30, started)
        new = node("policy_node", other_artifact, "--takeover", "--after", "silence")
        started.append(new)
        until(lambda: any(event["code"] == "swapped" for event in events), 30, [new, *others])
        until(lambda: old.poll() is not None, 10, [new, *others])
        assert old.returncode == 0
        until(lambda: verdicts[-1].get("flight") == 7 and verdicts[-1]["final"], 30, [new, *others])
        until(lambda: modes[-1] == "finished 7", 10, [new, *others])
    finally:
        end(started)
        bus.close()
    assert [event["code"] for event in events] == ["swap", "swapped"] and verdicts[-1]["verdict"] == "satisfied"
    assert modes[-2:] == ["active 7", "finished 7"]
    weights = [row[2] for row in mixed]
    assert weights == sorted(weights) and weights[-1] == 1.0 and len(weights) >= 20
    guard, relieved, last = (json.loads((tmp_path / folder / name).read_text()) for folder, name in (
        (artifact.name, "guard.json"), (artifact.name, "policy.json"), (other_artifact.name, "policy.json")))
    (flight,) = guard["flights"]
    (step, who), = flight["swapped"]
    assert who == identity(load_manifest(other_artifact)) and flight["reason"] == "" and flight["bridged"] == 0
    assert "was relieved by cascade" in relieved["flights"][0]["reason"] and relieved["mode"] == "relieved"
    (flown,) = last["flights"]
    assert flown["steps"] > step and flown["reason"] == "" and last["mode"] == "ready"
    # no leap but the policies' own: what was sent is the mix, and its weight rises by 15/8 of an even share at most
    limits, by_step = load_robot("crazyflie").command("ctbr_cmd"), {told.step: told.sent for told in sent}
    assert max(np.diff([0.0, *weights])) <= 15 / 8 / 25 + 1e-9
    for row in mixed:
        both = row[3:7] + row[2] * (row[7:] - row[3:7])
        if int(row[1]) in by_step:
            assert by_step[int(row[1])] == pytest.approx(np.clip(both, limits.low, limits.high), abs=1e-9)
    after = [told for told in sent if told.step > step]
    assert len(after) > 100 and all(np.array_equal(told.sent, np.clip(told.proposed, limits.low, limits.high))
                                    for told in after)
