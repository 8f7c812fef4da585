"""The manifest of a policy that gives chunks: a version of its own, and what its chunk may be."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from temporeal.robots.artifact.manifest import (
    CHUNK_VERSION,
    GOLDEN,
    MANIFEST_FIELDS,
    POLICY,
    SCHEMA_VERSION,
    ArtifactError,
    ChunkSpec,
    Manifest,
    MemorySpec,
    canonical,
    check,
    contract,
    decode,
    digest,
    encode,
)
from temporeal.robots.signals import CommandSpec
from temporeal.robots.spec import load_robot

ROBOT = load_robot("franka")
PLAIN = Manifest(
    name="p", robot="franka", signals=(ROBOT.signals["joint_pos"],), commands=(ROBOT.command("arm_cmd"),),
    rate_hz=100.0, memory=(), formula="", constants={}, horizon_s=1.0, stop="hold", training={}, versions={}, seed=0,
    git_revision="", created="", files={POLICY: "", GOLDEN: ""})


def chunked(chunk: Any, **changes: Any) -> Manifest:
    return replace(PLAIN, chunk=chunk, schema_version=CHUNK_VERSION, **changes)


GOOD = chunked(ChunkSpec(50, 0.02, hold=(7,)))


def test_it_comes_back_as_it_was_and_is_of_the_second_version() -> None:
    assert decode(encode(GOOD)) == GOOD and json.loads(encode(GOOD))["schema_version"] == 2
    assert GOOD.given(GOOD.commands[0]) == (50, 8) and PLAIN.given(PLAIN.commands[0]) == (8,)


def test_without_a_chunk_the_file_is_what_it_always_was() -> None:
    content = json.loads(encode(PLAIN))
    assert content["schema_version"] == SCHEMA_VERSION == 1 and set(content) == {*MANIFEST_FIELDS, "sha256"}
    assert "chunk" not in content and "chunk" not in json.loads(contract(PLAIN))
    assert json.loads(contract(GOOD))["chunk"] == {"steps": 50, "dt_s": 0.02, "hold": [7]}


@pytest.mark.parametrize(("chunk", "told"), [
    (ChunkSpec(1, 0.02), "steps is a whole number of at least 2, got 1"),
    (ChunkSpec(2.0, 0.02), "steps"),  # type: ignore[arg-type]
    (ChunkSpec(True, 0.02), "steps"),
    (ChunkSpec(50, 0.0), "dt_s is a positive time in s, got 0.0"),
    (ChunkSpec(50, float("nan")), "dt_s"),
    (ChunkSpec(50, 0.02, hold=(8,)), "components from 0 to 7"),
    (ChunkSpec(50, 0.02, hold=(-1,)), "components from 0 to 7"),
    (ChunkSpec(50, 0.02, hold=(3, 3)), "in rising order"),
])
def test_a_chunk_that_cannot_be_is_refused(chunk: ChunkSpec, told: str) -> None:
    with pytest.raises(ArtifactError, match=told):
        check(chunked(chunk))


@pytest.mark.parametrize("changes", [
    {"memory": (MemorySpec("clock", (), 0.0),)},
    {"commands": (ROBOT.command("arm_cmd"), ROBOT.command("joint_pos_cmd"))}])
def test_one_command_and_no_memory(changes: dict[str, Any]) -> None:
    with pytest.raises(ArtifactError, match="one command and no memory"):
        check(chunked(ChunkSpec(50, 0.02), **changes))


def test_a_quaternion_is_never_interpolated_by_component() -> None:
    turn = CommandSpec("turn", (4,), "wxyz", low=(-1.0,) * 4, high=(1.0,) * 4)
    with pytest.raises(ArtifactError, match="hold all of"):
        check(chunked(ChunkSpec(50, 0.02, hold=(0,)), commands=(turn,)))
    check(chunked(ChunkSpec(50, 0.02, hold=(0, 1, 2, 3)), commands=(turn,)))


@pytest.mark.parametrize(("change", "told"), [
    (lambda c: c.update(schema_version=1), r"unknown keys \['chunk'\]"),
    (lambda c: c.pop("chunk"), r"lacks the keys \['chunk'\]"),
    (lambda c: c.update(chunk=None), "malformed"),
    (lambda c: c["chunk"].update(overlap=3), "malformed"),
    (lambda c: c.update(schema_version=5), "schema_version 5; this program reads version 1, 2 of policies that give"),
])
def test_a_changed_manifest_with_a_matching_digest(change: Any, told: str) -> None:
    content = json.loads(encode(GOOD))
    change(content)
    content.pop("sha256")
    content["sha256"] = digest(canonical(content).encode())
    with pytest.raises(ArtifactError, match=told):
        decode(json.dumps(content).encode())


def test_version_and_chunk_belong_together() -> None:
    with pytest.raises(ArtifactError, match="schema_version is 1; with chunk"):
        check(replace(GOOD, schema_version=1))
    with pytest.raises(ArtifactError, match="schema_version is 2; with chunk None"):
        check(replace(PLAIN, schema_version=2))
