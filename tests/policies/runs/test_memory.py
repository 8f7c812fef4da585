"""Memory is estimated before it is taken."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("mujoco")

import temporeal as tr
from temporeal.policies.runs import environments, memory
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.settings.compose import compose
from temporeal.policies.training.off_policy.replay import COPIES, bytes_of_step


def peak() -> int:
    """Bytes that this process has held at most."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def test_more_worlds_than_memory_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """``num_worlds=100000000`` took 23 GB and was killed without a word."""
    tr.make_env("hover", num_worlds=2, threads=1, compiled=False)  # what is imported and compiled is not counted
    before, began = peak(), time.process_time()
    settings = compose(["task=hover", "num_worlds=100000000000", "threads=1"])
    with pytest.raises(BadInput, match=r"100,000,000,000 worlds need at least .* GB of memory .*: at most "):
        environments.make_env(settings, training=True, compiled=False)
    monkeypatch.setattr(memory, "bytes_of_world", lambda make: 1000)
    with pytest.raises(ValueError, match="worlds need at least"):
        tr.make_env("hover", num_worlds=10**11, threads=1, compiled=False)
    assert peak() - before < 200 << 20 and time.process_time() - began < 10


def test_what_a_world_takes_is_what_it_takes() -> None:
    """In tensors, which are at least this; worlds that fit are made."""
    task = tr.make_task("hover")
    each = memory.bytes_of_world(lambda n: tr.make_env(task, num_worlds=n, threads=1, compiled=False))
    assert 4 * task.observe.obs_dim <= each < 10_000
    memory.check_memory(lambda n: pytest.fail("not looked at"), memory.MANY - 1, "cpu")


def test_a_limit_of_the_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("400000\n")
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    assert memory.free_memory("cpu") == 600_000
    (tmp_path / "memory.max").write_text("max\n")
    assert (memory.free_memory("cpu") or 0) > 1_000_000


@pytest.mark.parametrize(("size", "total", "rows", "most"), [
    (50_000, 10**6, 4 * 49_999, 49_999),  # as many interventions as steps
    (200_000, 10**6, 3 * 199_999 + 100_000, 199_999),  # so many at most
    (50_000, 1_000, 3 * 1_000 + 49_000, 49_000)])  # more than there are steps to learn from: the budget may be raised
def test_a_learners_interventions_are_counted(
    size: int, total: int, rows: int, most: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from temporeal.policies.robot_learning.learning.learner import BY_HAND
    from temporeal.policies.robot_learning.learning.run import learn
    from temporeal.policies.robot_learning.words import learner_words

    words = learner_words(["task=joint_target", "algo=sac", "algo.hidden=[8,8]", "listen=127.0.0.1:0", "algo.warmup=10",
                           f"algo.size={size}", f"algo.total_steps={total}", f"out={tmp_path / 'run'}"])
    task, config = words.common.task, words.common.config
    free = rows * bytes_of_step(task.observe.obs_dim, task.act.action_dim)
    monkeypatch.setattr(memory, "free_memory", lambda device: free)
    with pytest.raises(BadInput, match=f"remembered steps and {min(size, BY_HAND):,} of interventions need .* GB .* "
                                       f"at most algo.size={most}$"):
        learn(words, asked=[15], tell=lambda text: None)
    memory.check_replay(replace(config, size=most), 1, task, by_hand=BY_HAND)
    with pytest.raises(BadInput):
        memory.check_replay(replace(config, size=most + 1), 1, task, by_hand=BY_HAND)
    assert COPIES == 3, "of the numbers above"
