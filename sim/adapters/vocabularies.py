"""The words of the signal ``instruction``, by task. Word numbers mean something with their vocabulary only."""

from __future__ import annotations

from collections.abc import Mapping

from temporeal.sim.adapters.meta_world_sentences import VOCABULARY
from temporeal.sim.stl.instructions.grammar import SUITE
from temporeal.sim.stl.instructions.vocabulary import InstructionError, Vocabulary
from temporeal.sim.task_files import task_module

OWN: Mapping[str, Vocabulary] = {"metaworld": VOCABULARY, "tabletop": SUITE, "": SUITE}
"""Of "", too: what names no task was written by hand, in the suite's words; their numbers are checked."""


def vocabulary_of(task: str) -> Vocabulary:
    """The words of the instructions of task ``task``: of a user's own, ``VOCABULARY`` in its file. InstructionError
    where nobody says which they are: another task's words would be another sentence."""
    if task in OWN:
        return OWN[task]
    try:
        found = getattr(task_module(task), "VOCABULARY", None)
    except (ImportError, LookupError, ValueError) as error:
        raise InstructionError(f"the signal instruction holds numbers of words, and task {task!r} does not say which "
                               f"words: {error}") from error
    if not isinstance(found, Vocabulary):
        raise InstructionError(f"the signal instruction holds numbers of words, and task {task!r} does not say which "
                               f"words: a task of your own has VOCABULARY = Vocabulary((...)) in its file; tasks that "
                               f"say it: {', '.join(filter(None, sorted(OWN)))}")
    return found
