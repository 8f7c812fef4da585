"""Our own topics read back: what a node of ours says is read as it was said, anything else is refused and why."""

from __future__ import annotations

import pytest
from tests.bridge.foreign_messages import EVENT, FOREIGN, mode, numbers, text

from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.artifact.manifest import identity, to_json
from temporeal_bridge.recording import records
from temporeal_bridge.recording.records import RecordError


@pytest.mark.parametrize("said, why", FOREIGN)
def test_what_no_node_of_ours_can_have_said_is_refused_with_the_reason(said, why):
    with pytest.raises(RecordError, match=why):
        records.read(said.topic, said)


def test_what_our_nodes_say_is_read_as_it_was_said():
    assert records.read("policy/step", numbers("policy/step", 3, 21, 1, 0.4, 7, 9)) == (
        3, records.Row(21, 0.4, (7, 9), 1))
    assert records.read("guard/event", text("guard/event", EVENT)) == (3, 1.5, "operator", "why", "active")
    unsaid = {key: value for key, value in EVENT.items() if key != "mode"}
    assert records.read("guard/event", text("guard/event", unsaid)).mode == ""
    assert records.read("guard/event", text("guard/event", {**EVENT, "t": None})).since is None
    assert records.read("mission", mode("active 12")) == ("active", 12, 5)
    mixed = records.read("guard/swap", numbers("guard/swap", 3, 20, 0.25, 1, 2, 5, 2))
    assert mixed[:3] == (3, 20, 0.25) and mixed.command.tolist() == [2.0, 2.0]
    verdict = {"flight": 3, "verdict": "satisfied", "final": True, "lower": 0.5, "upper": None}
    assert records.read("monitor/verdict", text("monitor/verdict", verdict)) == verdict


def test_an_artifact_is_known_by_its_manifest(artifact):
    manifest = load_manifest(artifact)
    told = {"name": manifest.name, "identity": identity(manifest), "robot": "crazyflie", "command": "ctbr_cmd",
            "interface": "crazyswarm2", "rate_hz": 50.0, "folder": None, "manifest": to_json(manifest)}
    assert records.read("guard/artifact", text("guard/artifact", told)) == told
    for key in ("name", "identity", "robot", "interface", "folder", "manifest"):
        with pytest.raises(RecordError, match=f"it has no '{key}'"):
            records.read("guard/artifact", text("guard/artifact", {k: v for k, v in told.items() if k != key}))
    for change, why in (({"robot": "../../x"}, "its robot is '../../x', its manifest's 'crazyflie'"),
                        ({"interface": [1]}, r"its interface is \[1\], and not text"),
                        ({"folder": 3}, "its folder is 3, and not text"),
                        ({"manifest": {"a": 1}}, "its identity is not that of its manifest")):
        with pytest.raises(RecordError, match=why):
            records.read("guard/artifact", text("guard/artifact", {**told, **change}))
