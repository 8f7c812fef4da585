"""Sentences, instructions and formulas say the same, in every direction; what is no instruction is named."""

import subprocess
import sys

import numpy as np
import pytest

from temporeal.sim.stl.instructions.failure import why_failed
from temporeal.sim.stl.instructions.formulas import formula_text, instruction_of, schema, suite_text
from temporeal.sim.stl.instructions.grammar import (
    HELD_OUT_WORDS,
    KINDS,
    SPLITS,
    SUITE,
    TEMPLATES,
    Instruction,
    held_out,
    instructions,
    meanings,
    parse,
    require_present,
    sentences,
)
from temporeal.sim.stl.instructions.vocabulary import InstructionError, Vocabulary


def test_each_sentence_means_one_instruction_and_survives_its_numbers():
    said = [(s, i) for i in instructions() for split in SPLITS for s in sentences(i, split)]
    assert len(said) == len(meanings()) > 1000  # no sentence is listed twice
    for sentence, instruction in said:
        tokens = SUITE.encode(sentence)
        assert tokens.shape == (16,) and tokens.dtype == np.int32
        assert parse(SUITE.decode(tokens)) == instruction


def test_each_instruction_is_a_formula_and_back():
    for instruction in instructions():
        assert instruction_of(formula_text(instruction)) == instruction
    push = Instruction("push", "red_ball", "left_zone")
    for text in (" ".join(formula_text(push, "tcp").split()), "".join(formula_text(push, "tcp").split())):
        assert instruction_of(text) == push


def test_training_has_twenty_wordings_and_held_out_ones_differ():
    train, other = ([t for both in TEMPLATES.values() for t in both[i]] for i in (0, 1))
    assert len(train) >= 20 and len(other) >= 14 and not set(train) & set(other)
    seen = {word for i in instructions() for s in sentences(i) for word in s.split()}
    assert tuple(sorted(set(SUITE.words) - seen)) == HELD_OUT_WORDS


def test_held_out_combinations_leave_every_colour_shape_and_place_in_training():
    for kind in KINDS:
        train = [i for i in instructions([kind]) if not held_out(i)]
        words = {w for i in instructions([kind]) for w in sentences(i)[0].split()}
        assert {w for i in train for w in sentences(i)[0].split()} == words
    assert sum(map(held_out, instructions())) > 50


@pytest.mark.parametrize(("text", "message"), [
    ("  ", "empty"),
    ("pick up the rde cube", r"unknown word: 'rde' \(did you mean red"),
    ("pick up the cube", "ambiguous: it may mean .* pick up the red cube"),
    ("pick up the red cube " * 4, "20 words; at most 16"),
    ("open the tray", "no sentence of the suite; the nearest are: open the drawer"),
])
def test_what_is_no_instruction_says_why(text, message):
    with pytest.raises(InstructionError, match=message):
        parse(text)


def test_a_scene_says_what_it_has():
    require_present(parse("push the red cube into the tray"), ["red_cube", "tray"])
    with pytest.raises(InstructionError, match="has no red cube; it has: blue ball, tray"):
        require_present(parse("push the red cube into the tray"), ["blue_ball", "tray"])


def test_instructions_are_checked_where_they_are_made():
    with pytest.raises(InstructionError, match="place of 'push' is one of tray"):
        Instruction("push", "red_cube", "drawer")
    with pytest.raises(InstructionError, match="target of 'stack'"):
        Instruction("stack", "red_ball", "red_cube")


def test_vocabularies_refuse_gaps_and_foreign_numbers():
    small = Vocabulary(("go", "up"), length=3)
    assert small.encode("Go up!").tolist() == [1, 2, 0] and small.decode([1, 2, 0]) == "go up"
    for tokens in ([1, 0, 2], [3, 0, 0], [1.0], [1, 1, 1, 1]):
        with pytest.raises(InstructionError):
            small.decode(tokens)
    assert small.digest() != Vocabulary(("up", "go"), length=3).digest()
    with pytest.raises(InstructionError, match="single"):
        Vocabulary(("go", "Go"))


def test_a_failure_is_explained():
    signals = {name: np.zeros((161, *spec.shape)) + 0.1 for name, spec in schema().items()}
    push = parse("push the red cube into the tray")
    signals["red_cube_pos_w"] = np.linspace([0.5, 0.1, 0.025], [0.3, 0.1, 0.025], 161)
    why = why_failed(push, signals, 0.05)
    assert why.startswith("the red cube never stayed within 4 cm of the tray for 0.5 s: 17.2 cm short, at 7.5 s")
    signals["tray_pos_w"] = signals["red_cube_pos_w"]
    assert why_failed(push, signals, 0.05) == ""


def test_only_what_is_not_a_formula_of_the_suite_is_refused():
    with pytest.raises(InstructionError, match="keeps the tool over the table"):
        instruction_of("F[0,4] (drawer_pos > opening)")
    with pytest.raises(InstructionError, match="no instruction has this formula"):
        instruction_of("F[0,4] (drawer_pos > opening) & G[0,4] (grip_pos_w.z > floor)")
    assert suite_text(["open"]).startswith("(1000 * abs(kind - 5) < 500 -> (F[0,7.5]")


def test_the_robot_needs_no_torch_for_it():
    code = "import sys; from temporeal.sim.stl.instructions import failure; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
