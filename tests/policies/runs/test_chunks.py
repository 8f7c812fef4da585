"""Chunk policies in simulation: what does not fit the task is refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.policies.toy_demonstrations import forks

from temporeal.policies.imitation import consistency, diffusion, flow
from temporeal.policies.runs import chunks
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.tuning_runs import bases
from temporeal.policies.training import checkpoint
from temporeal.policies.training.chunks import learner
from temporeal.sim.stl.instructions.grammar import SUITE
from temporeal.sim.stl.instructions.vocabulary import INSTRUCTION, Vocabulary

SMALL: dict[str, Any] = {"horizon": 4, "execute": 2, "context": 16, "updates": 2, "batch": 4}
CONFIG = flow.FlowConfig(hidden=(16,), **SMALL)


def policy(**changes: Any) -> Any:
    return learner.make_policy(replace(forks(2).interface, **changes), CONFIG, flow.Flow)


@pytest.mark.parametrize(("changes", "told"), [
    ({"robot": "arm"}, "its policy is for robot arm, task 'line' as set has point"),
    ({"rate_hz": 20.0}, "the policy runs at 20 Hz, task 'line' as set at 10 Hz")])
def test_another_robot_or_rate_is_refused(changes: dict[str, Any], told: str) -> None:
    task = SimpleNamespace(name="line", robot=SimpleNamespace(name="point"), command="velocity", control_dt=0.1)
    chunks.check_task(policy(), task, Path("run"))  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=told):
        chunks.check_task(policy(**changes), task, Path("run"))  # type: ignore[arg-type]


@pytest.mark.parametrize(("algo", "told"), [
    ({"execute": 0}, "algo.execute is a whole number of control steps from 1"), ({"execute": 2.5}, "algo.execute is"),
    ({"ensemble": -1.0}, "algo.ensemble is a finite number from 0"), ({"ensemble": float("nan")}, "algo.ensemble is")])
def test_how_chunks_are_played_is_checked(algo: dict[str, Any], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        chunks.playing(algo)
    player = chunks.Player(lambda signals: np.zeros((1, 4, 2), np.float32), 9, None)
    with pytest.raises(BadInput, match="algo.execute is at most 4"):
        player.command(dict)


def test_other_words_and_other_pictures_are_refused() -> None:
    words = Vocabulary(("go", "left"))
    known: Any = SimpleNamespace(vocabulary=words, interface=forks(2).interface, signals=("place_w",))
    task: Any = SimpleNamespace(name="tabletop", robot=SimpleNamespace(name="point"), command="velocity",
                                control_dt=0.1, schema={"instruction": INSTRUCTION})
    with pytest.raises(BadInput, match="knows other words than those in which task 'tabletop' writes"):
        chunks.check_task(known, task, Path("run"))
    known.vocabulary = SUITE
    chunks.check_task(known, task, Path("run"))
    task.name = "line"
    with pytest.raises(BadInput, match="task 'line' does not say which words"):
        chunks.check_task(known, task, Path("run"))
    chunks.check_shapes(known, {"place_w": np.zeros((5, 2))})
    with pytest.raises(BadInput, match=r"signal place_w is \[3\], the policy reads \[2\]"):
        chunks.check_shapes(known, {"place_w": np.zeros((5, 3))})


def test_which_algorithms_give_chunks() -> None:
    given = {name: chunks.gives_chunks({"algo": {"name": name}}) for name in ("flow", "act", "bc", "ppo", "dagger")}
    assert given == {"flow": True, "act": True, "bc": False, "ppo": False, "dagger": False}


def test_a_checkpoint_of_another_algorithm_is_refused(tmp_path: Path) -> None:
    flow.train(forks(4), CONFIG, out=tmp_path)
    settings = {"algo": {"name": "act"}}
    with pytest.raises(BadInput, match="was written by another version: settings"):
        chunks.load_chunks(settings, tmp_path, SimpleNamespace())  # type: ignore[arg-type]


@pytest.mark.parametrize(("part", "key", "value"), [
    ("config", "horizon", 1 << 40), ("config", "context", 1 << 40), ("config", "hidden", [1 << 20, 1 << 20])])
def test_sizes_that_a_checkpoint_cannot_hold_take_no_memory(part: str, key: str, value: Any, tmp_path: Path) -> None:
    flow.train(forks(4), CONFIG, out=tmp_path)
    file = checkpoint.latest(tmp_path / "checkpoints", 0, 1)
    state = checkpoint.load(file)
    state[part][key] = value
    checkpoint.save(file, state)
    with pytest.raises(checkpoint.CheckpointError, match="are not theirs"):
        flow.load_chunks(tmp_path)


def test_what_is_not_shown_is_named() -> None:
    env = SimpleNamespace(task=SimpleNamespace(name="line", observe=SimpleNamespace(signals=("place_w",))), images={},
                          rendering=True,
                          column={"memory.measured.place_w": np.zeros(1)})
    env.column = {name: SimpleNamespace(cpu=lambda: SimpleNamespace(numpy=lambda: np.zeros(1))) for name in env.column}
    with pytest.raises(BadInput, match="reads front_rgb, which task 'line' as set does not show; it shows: place_w"):
        chunks.measured(env, ("place_w", "front_rgb"))  # type: ignore[arg-type]


def test_a_student_knows_its_teacher_without_the_teachers_folder(tmp_path: Path) -> None:
    teacher, student = tmp_path / "teacher", tmp_path / "student"
    diffusion.train(forks(4), diffusion.DiffusionConfig(hidden=(16,), denoise_steps=4, **SMALL), out=teacher)
    (teacher / "config.yaml").write_text("algo: {name: diffusion}\n")
    config = consistency.ConsistencyConfig(policy=str(teacher), updates=2, batch=4, execute=2)
    found = consistency.train(forks(4), config, out=student)
    for file in sorted(teacher.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    assert consistency.load_chunks(student).state_dict().keys() == found.policy.state_dict().keys()


def test_the_run_that_is_tuned_is_named_in_the_grammar_of_settings() -> None:
    with pytest.raises(BadInput, match="^sp ace/run"):
        bases.settings_of(["algo=flow_sde", 'algo.policy="sp ace/run"'])
