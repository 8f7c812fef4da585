"""The instruction in an artifact, the sentence that is baked in, and products in 8-bit numbers."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.bridge.instruction.instructed import HOME, WORDS, write

from temporeal.policies.cli.verbs import export
from temporeal.policies.export.instructed import instruction_spec
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.artifact.additions import InstructionSpec, Int8Spec
from temporeal.robots.artifact.manifest import ADDED_VERSION, ArtifactError, decode, encode
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.signals import SignalSpec
from temporeal.sim.stl.instructions.vocabulary import InstructionError, Vocabulary


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    return Artifact.load(write(tmp_path_factory.mktemp("told") / "artifact"))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return Artifact.load(write(tmp_path_factory.mktemp("small") / "artifact", int8=True))


def test_the_vocabulary_is_data_of_the_artifact(told):
    manifest = decode((told.path / "manifest.json").read_bytes())
    spec = manifest.instruction
    assert manifest.schema_version == ADDED_VERSION == 4 and manifest.chunk is not None
    assert (spec.words, spec.length, spec.digest) == (WORDS.words, WORDS.length, WORDS.digest())
    assert spec.spec in manifest.signals and spec.fixed == "" == spec.grammar


def test_what_it_is_told_decides_what_it_does(told):
    rows = {text: told.act({"joint_pos": HOME, "instruction": WORDS.encode(text)})["joint_pos_cmd"]
            for text in ("go left", "go right", "go")}
    ends = [float(rows[text][-1, 0] - HOME[0]) for text in rows]
    assert ends == pytest.approx([0.125, -0.125, 0.0], abs=1e-6)


def test_a_sentence_that_is_baked_in_is_not_asked_for(told, tmp_path):
    fixed = Artifact.load(write(tmp_path / "fixed", fixed="go right"))
    assert list(fixed.schema) == ["joint_pos"] and fixed.manifest.instruction.fixed == "go right"
    assert np.array_equal(
        fixed.act({"joint_pos": HOME})["joint_pos_cmd"],
        told.act({"joint_pos": HOME, "instruction": WORDS.encode("go right")})["joint_pos_cmd"])


@pytest.mark.parametrize(("changes", "why"), [
    ({"words": ("go", "go")}, "twice"), ({"words": ("go left",)}, "without spaces"), ({"words": ()}, "1 to"),
    ({"length": 0}, "length"), ({"digest": "abc"}, "SHA-256"), ({"grammar": "os.system"}, "grammar is one of"),
    ({"signal": "a b"}, "signal"), ({"fixed": 3}, "fixed")])
def test_a_wrong_instruction_block_is_refused_with_the_rule(told, changes, why):
    with pytest.raises(ValueError, match=why):
        replace(told.manifest.instruction, **changes)
    content = json.loads(encode(told.manifest))
    content["instruction"] |= changes
    with pytest.raises(ArtifactError):
        decode(json.dumps(content).encode())


def test_words_that_no_block_explains_are_refused(told):
    without = encode(replace(told.manifest, instruction=None, schema_version=2))
    with pytest.raises(ArtifactError, match="words that the manifest's instruction does not explain"):
        decode(without)
    longer = replace(told.manifest.instruction, length=5)
    with pytest.raises(ArtifactError, match="does not explain"):
        decode(encode(replace(told.manifest, instruction=longer)))


def test_only_a_policy_that_reads_words_can_be_told():
    joints, words = SignalSpec("joint_pos", (7,), "rad"), SignalSpec("say", (4,), "token", "", "int32")
    assert instruction_spec([joints], WORDS) is None
    with pytest.raises(ArtifactError, match="it does one thing"):
        instruction_spec([joints], WORDS, fixed="go left")
    with pytest.raises(InstructionError, match="unknown word: 'up'"):
        instruction_spec([joints, words], WORDS, fixed="go up")
    with pytest.raises(ArtifactError, match="4 words"):
        instruction_spec([replace(words, shape=(3,))], WORDS)
    found = instruction_spec([joints, words], WORDS, "tabletop", "go left")
    assert isinstance(found, InstructionSpec) and (found.signal, found.fixed) == ("say", "go left")


def test_8_bit_products_say_what_they_cost_and_the_self_test_allows_that_much(small, told):
    spec = small.manifest.int8
    assert spec.tensors == 1 and 0 < spec.rms_difference <= spec.max_difference <= spec.tolerance < 0.01
    assert small.self_test().max_error == pytest.approx(spec.max_difference, rel=1e-3)
    assert small.manifest.tolerance == spec.tolerance > told.manifest.tolerance == 1e-5
    assert np.array_equal(small.golden["commands.joint_pos_cmd"], told.golden["commands.joint_pos_cmd"])
    with pytest.raises(ArtifactError, match="differs from the recorded one"):
        small.self_test(1e-5)


def test_a_loss_above_the_tolerance_is_no_loss_that_was_measured():
    with pytest.raises(ValueError, match="below the difference"):
        Int8Spec("static", 3, 0.2, 0.1, 0.1)
    with pytest.raises(ValueError, match="from 0 to 1"):
        Int8Spec("static", 3, 0.2, 0.1, float("nan"))
    with pytest.raises(ValueError, match="1.5 times the difference"):
        Int8Spec("static", 3, 0.1, 0.05, 0.16)
    with pytest.raises(ValueError, match="another one"):
        Int8Spec("static", 3, 0.3, 0.1, 0.4)


def test_a_float32_network_is_allowed_no_more_because_its_manifest_says_int8(told, small, tmp_path):
    files = {name: (told.path / name).read_bytes() for name in told.manifest.files}
    manifest = replace(told.manifest, int8=small.manifest.int8, schema_version=4)
    for name, data in {**files, "manifest.json": encode(manifest)}.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(ArtifactError, match="has 0 products in 8-bit numbers, the manifest says 1"):
        Artifact.load(tmp_path)


def test_another_vocabulary_has_another_digest():
    assert Vocabulary(("go", "right", "left"), 4).digest() != WORDS.digest() != Vocabulary(WORDS.words, 5).digest()


def options(*words):
    return export.parser().parse_intermixed_args(["outputs/run", *words])


def test_the_sentence_is_a_setting_of_the_artifact_and_not_of_the_run():
    said = options("instruction=push the red cube into the tray", "--int8")
    export.take_instruction(said, is_model=False)
    assert (said.instruction, said.overrides, said.int8) == ("push the red cube into the tray", [], True)


@pytest.mark.parametrize(("words", "is_model"), [
    (["instruction="], False), (["instruction=a", "instruction=b"], False), (["instruction=a"], True),
    (["--int8"], True)])
def test_a_sentence_or_8_bits_that_make_no_sense_are_refused(words, is_model):
    with pytest.raises(BadInput, match="one sentence for a run|--int8 is for runs"):
        export.take_instruction(options(*words), is_model)


def test_the_next_step_says_that_words_are_needed(told, tmp_path):
    assert export.next_step(tmp_path, told.manifest).endswith('--sim --instruction "..."')
    fixed = replace(told.manifest, instruction=replace(told.manifest.instruction, fixed="go left"))
    assert export.next_step(tmp_path, fixed).endswith("--sim")


def test_word_numbers_of_unknown_words_are_no_instruction():
    words = SignalSpec("say", (4,), "token", "", "int32")
    with pytest.raises(ArtifactError, match="does not say which words"):
        instruction_spec([words], None)
