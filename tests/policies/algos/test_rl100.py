"""RL-100's pipeline: the order of its stages, what each is given, and which of them gives the policy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from temporeal.policies.algos import rl100
from temporeal.policies.algos.rl100 import RL100Config
from temporeal.policies.training.checkpoint import CheckpointError
from temporeal.policies.training.errors import SettingsError


class Noted:
    """Stages that only note what they were asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    def learned(self, name: str, algo: str, *, data: Path | None = None, policy: Path | None = None) -> Path:
        self.asked.append((name, algo, str(data or ""), str(policy or "")))
        return Path(name)

    def recorded(self, name: str, policy: Path, data: Path) -> Path:
        self.asked.append((name, "", str(data), str(policy)))
        return Path(name)


def asked(**settings: object) -> list[tuple[str, ...]]:
    stages = Noted()
    rl100.train(Path("set"), RL100Config(**settings), stages=stages)
    return stages.asked


def test_each_stage_has_the_policy_of_the_one_before_and_all_data_so_far() -> None:
    assert asked(iterations=3) == [
        ("imitation", "flow", "set", ""),
        ("offline-1", "rl100_offline", "set", "imitation"), ("collect-1", "", "set", "offline-1"),
        ("offline-2", "rl100_offline", "collect-1", "offline-1"), ("collect-2", "", "collect-1", "offline-2"),
        ("offline-3", "rl100_offline", "collect-2", "offline-2"),
        ("online", "dppo", "", "offline-3"), ("one_step", "consistency", "collect-2", "online")]


def test_stages_can_be_left_out() -> None:
    assert asked(base="diffusion", iterations=1, tuner="none", one_step=False) == [
        ("imitation", "diffusion", "set", ""), ("offline-1", "rl100_offline", "set", "imitation")]
    assert [name for name, *_ in asked(record=0)] == ["imitation", "offline-1", "offline-2", "online", "one_step"]


def test_settings_of_no_stage_are_refused() -> None:
    with pytest.raises(SettingsError, match="algo.stages.onlin=.*: settings below one of imitation, offline, online"):
        RL100Config(stages={"onlin": {"total_steps": 1}})
    with pytest.raises(SettingsError, match="algo.tuner=flow_sde tunes flows, algo.base=diffusion is none"):
        RL100Config(base="diffusion", tuner="flow_sde")


def test_the_policy_is_that_of_the_last_stage_that_gave_one(tmp_path: Path) -> None:
    done = [{"name": "imitation", "kind": "policy"}, {"name": "offline-1", "kind": "policy"},
            {"name": "collect-1", "kind": "data"}]
    (tmp_path / rl100.STATE).write_text(json.dumps({"done": done}))
    assert rl100.last_stage(tmp_path) == tmp_path / "offline-1"


@pytest.mark.parametrize("text", ["", "[]", '{"done": [{"name": "../../else", "kind": "policy"}]}', '{"done": []}'])
def test_a_folder_without_stages_or_with_others_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / rl100.STATE).write_text(text)
    with pytest.raises(CheckpointError, match="holds no (stage|policy)"):
        rl100.last_stage(tmp_path)
