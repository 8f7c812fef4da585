"""Which verdicts are about the guard's mission."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from temporeal_bridge.guard import monitor_verdict as module
from temporeal_bridge.guard.flight import Flight
from temporeal_bridge.guard.monitor_verdict import Verdict, monitor_verdict

MANIFEST: Any = SimpleNamespace(name="mine")


@pytest.fixture(autouse=True)
def digests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "to_json", lambda manifest: manifest.name)
    monkeypatch.setattr(module, "mission_digest", lambda content: f"digest of {content}")


def verdict(**said: Any) -> Verdict | None:
    return monitor_verdict(json.dumps(said), Flight(3, 500), MANIFEST, "identity")


def test_a_verdict_on_this_mission_counts():
    said = {"flight": 3, "start_ns": 500, "upper": -0.1}
    assert verdict(**said, verdict="violated") == Verdict(True, False, -0.1)
    assert verdict(**said, verdict="unknown", at_risk=True) == Verdict(False, True, -0.1)
    assert verdict(flight=3, verdict="violated") == Verdict(True, False, None)  # of an older monitor


def test_a_mission_in_words_is_stopped_in_words():
    said = {"flight": 3, "start_ns": 500, "verdict": "violated", "instruction": "reach the red cube",
            "why": "it never " * 99}
    found = verdict(**said)
    assert found.told.startswith("reach the red cube: it never it never") and len(found.told) < 450


def test_a_verdict_on_another_mission_or_formula_does_not():
    assert verdict(flight=4, start_ns=500, verdict="violated") is None
    assert verdict(flight=3, start_ns=501, verdict="violated") is None
    assert verdict(verdict="violated") is None
    said = {"flight": 3, "start_ns": 500, "verdict": "violated"}
    assert verdict(**said, mission="another", artifact="another") is None
    assert verdict(**said, mission="digest of mine", artifact="another") == Verdict(True, False, None)
    assert verdict(**said, mission="another", artifact="identity") == Verdict(True, False, None)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "[" * 100_000])
def test_what_is_no_object_is_an_error(text):
    with pytest.raises((ValueError, AttributeError, RecursionError)):
        monitor_verdict(text, Flight(3), MANIFEST, "identity")
