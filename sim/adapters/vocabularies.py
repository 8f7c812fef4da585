"""The words of the signal ``instruction``, by task. Word numbers mean something with their vocabulary only."""

from __future__ import annotations

from collections.abc import Mapping

from temporeal.sim.adapters.meta_world_sentences import VOCABULARY
from temporeal.sim.stl.instructions.grammar import SUITE
from temporeal.sim.stl.instructions.vocabulary import Vocabulary

OWN: Mapping[str, Vocabulary] = {"metaworld": VOCABULARY}


def vocabulary_of(task: str) -> Vocabulary:
    """The words of the instructions of task ``task``: the tabletop suite's where it has none of its own."""
    return OWN.get(task, SUITE)
