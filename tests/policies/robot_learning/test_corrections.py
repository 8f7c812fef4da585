"""What is learned as a correction of a base is one of that base and scale, on both sides."""

from __future__ import annotations

import pytest

from temporeal.policies.robot_learning.words import actor_words, learner_words
from temporeal.policies.runs.errors import BadInput

BASE = ["task=joint_target", "algo=sac", "algo.hidden=[8,8]"]


@pytest.mark.parametrize("word", ["base.policy=outputs/run", "base.expert=scripted", "base.scale=0.1"])
@pytest.mark.parametrize("side", [lambda words: actor_words([*words, "token=t"]), learner_words])
def test_the_base_of_a_training_is_refused_where_it_would_be_ignored(side: object, word: str) -> None:
    with pytest.raises(BadInput, match=rf"{word} is of `temporeal train`.*--correct SCALE"):
        side([*BASE, word])  # type: ignore[operator]
