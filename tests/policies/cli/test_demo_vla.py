"""`temporeal demo vla`: each stage is done once, goes on where it was, and what follows a change is done anew."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from temporeal.policies.cli.verbs import demo
from temporeal.policies.cli.vla_demo import stages
from temporeal.policies.cli.vla_demo.page import write_page
from temporeal.policies.cli.vla_demo.stages import Stage, clear, perform, stages_of
from temporeal.policies.cli.vla_demo.verb import MORE, SENTENCES, parser
from temporeal.policies.runs.errors import BadInput
from temporeal.sim.stl.instructions.grammar import held_out, parse


def silent(text: str) -> None:
    pass


@pytest.fixture
def verb(monkeypatch):
    """A verb that makes its folder, counts its calls and prints its words; status 0."""
    calls: list[list[str]] = []

    def run(words):
        calls.append(list(words))
        print(json.dumps({"words": list(words), "p_satisfied": 0.5}))
        return made.status

    made = SimpleNamespace(run=run, calls=calls, status=0)
    monkeypatch.setattr(stages, "import_module", lambda name: made)
    return made


def stage(name: str, folder: str, *words: str, **more: bool) -> Stage:
    return Stage(name, name, "train", words, folder, **more)


def test_a_stage_is_done_once_and_anew_after_a_change_before_it(tmp_path, verb):
    chain = [stage("a", "a", "x=1"), stage("b", "b", "y=1")]
    for _ in range(2):
        for each in chain:
            perform(each, tmp_path, silent)
            (tmp_path / each.folder).mkdir(exist_ok=True)
    assert verb.calls == [["x=1"], ["y=1"]]
    for each in (stage("a", "a", "x=2"), chain[1]):
        found = perform(each, tmp_path, silent)
        (tmp_path / each.folder).mkdir(exist_ok=True)
    assert verb.calls[2:] == [["x=2"], ["y=1"]] and found["p_satisfied"] == 0.5


def test_an_interrupted_training_goes_on(tmp_path, verb):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("")
    perform(stage("t", "run", "algo=vla", resumes=True), tmp_path, silent)
    assert verb.calls == [["algo=vla", "resume=true"]]


def test_a_failed_stage_ends_the_demo_and_is_not_recorded(tmp_path, verb):
    verb.status = 1
    with pytest.raises(BadInput, match="exit status 1: temporeal train x=1"):
        perform(stage("a", "a", "x=1"), tmp_path, silent)
    assert stages.read_record(tmp_path) == {}
    assert perform(stage("a", "a", "x=1", gate=True), tmp_path, silent)["p_satisfied"] == 0.5


@pytest.mark.parametrize("record", ["", "[1]", '{"a": 3}', '{"a": {"command": 1, "seconds": 2, "figures": {}}}'])
def test_a_record_of_something_else_is_none(tmp_path, record):
    (tmp_path / stages.RECORD).write_text(record)
    assert stages.read_record(tmp_path) == {}


def test_nothing_else_in_the_folder_is_removed(tmp_path):
    (tmp_path / "thesis.tex").write_text("years")
    (tmp_path / "tuned").mkdir()
    with pytest.raises(BadInput, match="thesis.tex"):
        clear(tmp_path)
    (tmp_path / "thesis.tex").unlink()
    clear(tmp_path)
    assert not list(tmp_path.iterdir())


def test_its_commands_are_those_that_a_user_would_type(tmp_path):
    options = parser().parse_args(["--out", str(tmp_path), "--instruction", "reach the red cube", "--missions", "2"])
    commands = {each.name: each.command for each in stages_of(options)}
    assert list(commands) == ["eye", "demonstrations", "tuned", "judged-tuned", "improved", "judged-improved",
                              "artifact", "missions"]
    assert f"algo=vla_few_shot algo.policy={tmp_path}/eye" in commands["tuned"]
    assert f"algo=residual algo.policy={tmp_path}/tuned" in commands["improved"]
    assert "--flights 2" in commands["missions"] and "--instruction 'reach the red cube'" in commands["missions"]


def test_its_own_sentences_are_of_training():
    assert not [sentence for sentence in (*SENTENCES, *MORE) if held_out(parse(sentence))]


@pytest.mark.parametrize(("words", "why"), [
    (["--instruction", "sing a song"], "unknown words"), (["--instruction", "press the button"], "does not learn"),
    (["--instruction", ""], "empty"), (["--missions", "0"], "at least 1"),
    (["--frames", "0"], "at least 1"), (["--kinds", "press"], "--instruction")])
def test_what_it_cannot_do_is_refused_before_anything_slow(tmp_path, words, why):
    with pytest.raises(BadInput, match=why):
        demo.run(["vla", "--out", str(tmp_path / "out"), *words])
    assert not (tmp_path / "out" / "demonstrations").exists()


def test_the_page_shows_verdicts_and_escapes_what_was_typed(tmp_path):
    flights = [{"seed": 1, "robot": "/arm1", "verdict": "violated", "instruction": "<b>reach</b>",
                "why": "the tool never stayed", "robustness_lower": -0.1, "truth": None}]
    path = write_page(tmp_path, {"satisfied": 0, "missions": 1, "stages": {
        "missions": {"flights": flights}, "judged-tuned": {"native": {"p_satisfied": 0.5, "ci95": [0.4, 0.6]}}}})
    text = path.read_text()
    assert "the tool never stayed" in text and "<b>reach" not in text and "0.500 satisfied [0.400, 0.600]" in text


def test_chunks_are_drawn_from_their_observation_on():
    from temporeal.policies.cli.vla_demo.page import plot

    chunks = [SimpleNamespace(observed=0.5 * k, rows=np.ones((4, 2))) for k in range(3)]
    text = plot(chunks)
    assert text.count("<polyline") == 6 and 'points="0.0,' in text and "3 chunks" in text and plot([]) == ""
