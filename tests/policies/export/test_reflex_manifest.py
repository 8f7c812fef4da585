"""The manifest of a policy with a reflex: a version of its own, a second network, what it carries from step to step."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from temporeal.robots.artifact.manifest import (
    CHUNK_VERSION,
    ENGAGED,
    GOLDEN,
    HELD,
    MANIFEST_FIELDS,
    PHASE,
    POLICY,
    REFLEX,
    REFLEX_VERSION,
    RISK,
    ArtifactError,
    ChunkSpec,
    Manifest,
    MemorySpec,
    ReflexSpec,
    canonical,
    check,
    contract,
    decode,
    digest,
    encode,
)
from temporeal.robots.spec import load_robot

ROBOT = load_robot("crazyflie")
MEMORY = (MemorySpec("actions", (4,), [0.0] * 4), MemorySpec(HELD, (4,), [0.0] * 4), MemorySpec(PHASE, (), 0.0),
          MemorySpec(ENGAGED, (), 0.0), MemorySpec(RISK, (), 0.0))
GOOD = Manifest(
    name="p", robot="crazyflie", signals=(ROBOT.signals["base_pos_w"],), commands=(ROBOT.command("ctbr_cmd"),),
    rate_hz=100.0, memory=MEMORY, formula="", constants={}, horizon_s=1.0, stop="level", training={}, versions={},
    seed=0, git_revision="", created="", files={POLICY: "", REFLEX: "", GOLDEN: ""}, schema_version=REFLEX_VERSION,
    reflex=ReflexSpec(4, 0.3, 0.15))


def test_it_comes_back_as_it_was_and_is_of_the_third_version() -> None:
    content = json.loads(encode(GOOD))
    assert decode(encode(GOOD)) == GOOD and content["schema_version"] == 3
    assert set(content) == {*MANIFEST_FIELDS, "reflex", "sha256"} and GOOD.networks == (POLICY, REFLEX)
    assert content["reflex"] == {"every": 4, "threshold": 0.3, "release": 0.15}


def test_the_networks_are_told_when_the_reflex_acts() -> None:
    """It is part of the contract, which is in the ONNX files too: a manifest cannot make another reflex of theirs."""
    assert json.loads(contract(GOOD))["reflex"] == {"every": 4, "threshold": 0.3, "release": 0.15}


@pytest.mark.parametrize(("every", "threshold", "release", "told"), [
    (0, 0.3, 0.1, "every is a whole number of control steps, at least 1, got 0"),
    (2.0, 0.3, 0.1, "every is a whole number"),
    (True, 0.3, 0.1, "every is a whole number"),
    (1, 1.2, 0.1, r"threshold is a risk from 0 to 1, got 1\.2"),
    (1, float("nan"), 0.1, "threshold is a risk"),
    (1, "0.3", 0.1, "threshold is a risk"),
    (1, 0.3, -0.1, r"release is a risk from 0 to 1, got -0\.1"),
    (1, 0.3, 0.4, r"release is at most threshold, got 0\.4 above 0\.3"),
])
def test_a_reflex_that_cannot_be_is_refused(every: Any, threshold: Any, release: Any, told: str) -> None:
    with pytest.raises(ArtifactError, match=told):
        ReflexSpec(every, threshold, release)


def test_the_ends_are_legal() -> None:
    for threshold, release in ((1.0, 1.0), (0.0, 0.0), (1.0, 0.0)):
        check(replace(GOOD, reflex=ReflexSpec(1, threshold, release)))


@pytest.mark.parametrize(("change", "told"), [
    (lambda c: c.update(schema_version=1), r"unknown keys \['reflex'\]"),
    (lambda c: c.pop("reflex"), r"lacks the keys \['reflex'\]"),
    (lambda c: c.update(reflex=None), "malformed"),
    (lambda c: c["reflex"].update(every=1.5), "every is a whole number"),
    (lambda c: c["reflex"].update(threshold=2), "threshold is a risk"),
    (lambda c: c["reflex"].update(release=0.9), "release is at most threshold"),
    (lambda c: c["reflex"].update(gain=1), "malformed"),
    (lambda c: c["reflex"].pop("release"), "malformed"),
    (lambda c: c["files"].pop(REFLEX), r"files are policy.onnx, reflex.onnx, golden.npz"),
    (lambda c: c["memory"].pop(2), r"the memory lacks \['reflex.phase'\]"),
    (lambda c: c["memory"][3].update(initial=1.0), "memory 'reflex.engaged' has 0 dimensions and begins with 0"),
    (lambda c: c["memory"][1].update(shape=[2, 2]), "memory 'reflex.held' has 1 dimensions"),
])
def test_a_changed_manifest_with_a_matching_digest(change: Any, told: str) -> None:
    content = json.loads(encode(GOOD))
    change(content)
    content.pop("sha256")
    content["sha256"] = digest(canonical(content).encode())
    with pytest.raises(ArtifactError, match=told):
        decode(json.dumps(content).encode())


def test_a_policy_gives_chunks_or_has_a_reflex() -> None:
    for version in (CHUNK_VERSION, REFLEX_VERSION):
        with pytest.raises(ArtifactError, match="not both"):
            check(replace(GOOD, chunk=ChunkSpec(10, 0.02), schema_version=version))


def test_version_and_reflex_belong_together() -> None:
    with pytest.raises(ArtifactError, match="schema_version is 1; with chunk None and reflex .* it is 3"):
        check(replace(GOOD, schema_version=1))
