"""Whose words the numbers of an instruction are."""

from __future__ import annotations

import pytest

from temporeal.sim.adapters.vocabularies import vocabulary_of
from temporeal.sim.stl.instructions.grammar import SUITE
from temporeal.sim.stl.instructions.vocabulary import InstructionError


def test_a_task_that_nobody_named_says_how_to_name_it() -> None:
    assert vocabulary_of("tabletop") is SUITE
    with pytest.raises(InstructionError, match="'sorting.py' does not say which words: .* add task=FOLDER/sorting.py"):
        vocabulary_of("sorting.py")
    with pytest.raises(InstructionError, match="'sorting' does not say which words: .*sorting.* tabletop"):
        vocabulary_of("sorting")
