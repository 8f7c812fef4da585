"""Demonstrations of several of Meta-World's tasks are one set: the same signals, a sentence for each episode."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.runs.demonstrating.demonstrations import generate, request_of
from temporeal.policies.vla.worded import worded
from temporeal.sim.adapters.meta_world_sentences import MT10, SENTENCES, UNDRAWN, VOCABULARY

pytest.importorskip("metaworld", reason="pip install temporeal[foreign-tasks]")
pytestmark = pytest.mark.usefixtures("one_thread")


def demonstrations(folder: Path, env: str) -> Dataset:
    generate(request_of([
        "task=metaworld", f"task.settings.env={env}", "task.settings.see=hand", "task.settings.steps=110",
        "quality=noisy", "noise=0,0.3", "lasts=0.035", "tail=5", "episodes=2", f"out={folder}"]))
    return Dataset.open(folder)


def test_two_tasks_share_their_interface_and_end_soon_after_success(tmp_path: Path) -> None:
    one, other = (demonstrations(tmp_path / env, env) for env in ("drawer-close-v3", "reach-v3"))
    assert one.interface.digest() == other.interface.digest()
    assert [record.language for record in other.records] == ["bring the hand to the goal"] * 2
    data, vocabulary = worded(one)
    assert vocabulary == VOCABULARY
    assert vocabulary.decode(data.column("instruction")[0].astype(np.int32)) == "close the drawer"
    for record, start, end in zip(one.records, one.starts, one.starts[1:]):
        reached = np.flatnonzero(one.column("success")[start:end] > 0.5)
        assert record.success and end - start - 1 - reached[0] == 5
    assert not one.column("goal_pos_w").any() and other.column("goal_pos_w").any(1).all()


def test_the_ten_tasks_and_their_words() -> None:
    assert len(set(MT10)) == 10 and set(MT10) <= set(SENTENCES) and set(MT10) & UNDRAWN == {
        "reach-v3", "push-v3", "pick-place-v3"}
    assert UNDRAWN < set(SENTENCES)
    assert len({tuple(VOCABULARY.encode(SENTENCES[env])) for env in MT10}) == 10
