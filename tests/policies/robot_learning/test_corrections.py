"""What is learned as a correction of a base is one of that base and scale, on both sides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.bridge.conftest import write_artifact
from tests.policies.robot_learning.deliveries import agreed, episode

from temporeal.policies.cli.main import main
from temporeal.policies.robot_learning.acting.run import require_world
from temporeal.policies.robot_learning.corrections import asked, correction
from temporeal.policies.robot_learning.wire.agreement import differences
from temporeal.policies.robot_learning.wire.episodes import OutOfRange, require_range
from temporeal.policies.robot_learning.wire.messages import MessageError, Published
from temporeal.policies.robot_learning.wire.service import Service, agreement_hello
from temporeal.policies.robot_learning.words import actor_words, learner_words
from temporeal.policies.runs.errors import BAD_INPUT, BadInput
from temporeal.robots.artifact.loading import load_manifest

BASE = ["task=joint_target", "algo=sac", "algo.hidden=[8,8]"]


@pytest.mark.parametrize("word", ["base.policy=outputs/run", "base.expert=scripted", "base.scale=0.1"])
@pytest.mark.parametrize("side", [lambda words: actor_words([*words, "token=t"]), learner_words])
def test_the_base_of_a_training_is_refused_where_it_would_be_ignored(side: object, word: str) -> None:
    with pytest.raises(BadInput, match=rf"{word} is of `temporeal train`.*--correct SCALE"):
        side([*BASE, word])  # type: ignore[operator]


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two artifacts of the same name, robot and mission whose networks differ."""
    folder = tmp_path_factory.mktemp("bases")
    return write_artifact(folder / "one"), write_artifact(folder / "other", gain=4.0)


@pytest.mark.parametrize(("scale", "which", "named"), [
    (0.9, 0, ["correction.scale is 0.2 at the learner and 0.9 at the actor"]),
    (0.2, 1, ["correction.sha256 is "]),
    (None, 0, ["correction.scale is 0.2 at the learner and none at the actor",
               "correction.base is cascade at the learner and none at the actor", "correction.sha256 is "])])
def test_an_actor_of_another_correction_is_refused_by_name(
    bases: tuple[Path, Path], scale: float | None, which: int, named: list[str]
) -> None:
    learner = learner_words(BASE, asked(0.2, bases[0], "--base")).common.agreed
    same = actor_words([*BASE, "token=t"], asked(0.2, bases[0], "--ros")).common.agreed
    assert same.digest() == learner.digest() and not list(differences(learner.plain(), same.plain()))
    other = actor_words([*BASE, "token=t"], asked(scale, bases[which], "--ros")).common.agreed
    found = list(differences(learner.plain(), other.plain()))
    assert other.digest() != learner.digest() and len(found) == len(named)
    assert all(sentence.startswith(start) for sentence, start in zip(found, named))


def test_a_learner_without_a_base_refuses_actors_that_correct_one(bases: tuple[Path, Path]) -> None:
    learner, actor = learner_words(BASE), actor_words([*BASE, "token=t"], asked(0.2, bases[0], "--ros"))
    service = Service(learner.common.agreed, lambda *_: True, lambda: Published("", b""))
    with pytest.raises(MessageError, match="correction.scale is none at the learner and 0.2 at the actor"):
        service.hello(agreement_hello(actor.common.agreed.plain()))


def test_the_world_that_is_flown_is_of_the_correction_that_was_agreed_on(bases: tuple[Path, Path]) -> None:
    """Also where the world comes from Python: the correction is asked of the world itself."""
    task, interface = SimpleNamespace(), SimpleNamespace()
    common = SimpleNamespace(task=task, agreed=SimpleNamespace(
        interface=interface, correction=correction(load_manifest(bases[0]), 0.2)))
    world = SimpleNamespace(correction=correction(load_manifest(bases[0]), 0.9))
    for flown, found in ((world, "0.9"), (SimpleNamespace(), "none")):
        with pytest.raises(BadInput, match=f"scale is 0.2 at actor and learner and {found} at the world"):
            require_world(flown, SimpleNamespace(common=common))  # type: ignore[arg-type]


@pytest.mark.parametrize(("words", "told"), [
    (["--base", "{base}"], "by what scale is it corrected"), (["--correct", "0.2"], "--base ARTIFACT names the base"),
    (["--base", "{base}", "--correct", "nan"], "from 0 to 1, got nan"),
    (["--base", "{base}", "--correct", "0.2", "dataset=demos"], "whole commands"),
    (["--base", "nowhere", "--correct", "0.2"], "nowhere")])
def test_a_learner_names_base_and_scale_or_neither(
    bases: tuple[Path, Path], words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["learner", *BASE, *(word.format(base=bases[0]) for word in words)]) == BAD_INPUT
    assert told in capsys.readouterr().err


def test_an_actor_declares_what_its_options_say(
    bases: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from temporeal.policies.cli.verbs.robot_learning import actor

    def opened(options: object, words: object) -> None:
        raise BadInput(f"agreed: {words.common.agreed.correction}")  # type: ignore[attr-defined]

    monkeypatch.setattr(actor, "open_robot", opened)
    assert main(["actor", "--ros", str(bases[0]), "--correct", "0.2", *BASE, "token=t"]) == BAD_INPUT
    assert f"agreed: {correction(load_manifest(bases[0]), 0.2)}" in " ".join(capsys.readouterr().err.split())


def test_a_correction_that_the_guard_cut_may_be_beyond_the_commands_limits() -> None:
    """Limits of the toy are 2 m/s: what a guard took away, divided by a scale of 0.2, is more."""
    one = replace(episode(np.random.default_rng(3)), command=np.full((4, 1), -9.0, np.float32))
    require_range(one, agreed(correction={"scale": 0.2, "base": "cascade", "sha256": "0"}), "it")
    with pytest.raises(OutOfRange, match="command .* lies in its limits"):
        require_range(one, agreed(), "it")
