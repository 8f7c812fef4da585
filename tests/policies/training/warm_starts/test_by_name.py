"""What a policy read is found in what another task shows, by what its numbers are made of."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.warm_starts.by_name import correspondence, vector_of, widened
from temporeal.robots.signals import SignalSpec, schema
from temporeal.sim.task import load_task

POS, VEL, WIND = SignalSpec("pos", (2,), "m"), SignalSpec("vel", (2,), "m/s"), SignalSpec("wind", (1,), "m/s")


class Shown:
    """Signals beside each other, each times a factor, and the last action."""

    def __init__(self, *signals: str, scale: float = 1.0, actions: int = 1) -> None:
        self.signals, self.scale, self.memory = signals, scale, {"last": (actions,)} if actions else {}
        self.obs_dim = 0

    def __call__(self, signals: Mapping[str, Tensor], memory: dict[str, Tensor]) -> tuple[Tensor, dict]:
        return torch.cat([*(self.scale * signals[name] for name in self.signals), *memory.values()], 1), memory

    def record(self, memory: dict, action: Tensor) -> dict:
        return memory


OLD, NEW = schema(POS, VEL), schema(WIND, VEL, POS)


def test_signals_are_found_where_they_moved_and_new_ones_are_new() -> None:
    found = correspondence(Shown("pos", "vel"), Shown("wind", "vel", "pos"), (OLD, NEW), "RUN")
    assert found.tolist() == [-1, 2, 3, 0, 1, 4]  # wind is new; the last action is found, too
    weight = torch.arange(10.0).reshape(2, 5)
    assert widened(weight, found).tolist() == [[0, 2, 3, 0, 1, 4], [0, 7, 8, 5, 6, 9]]
    assert vector_of(torch.arange(5.0), found, torch.full((6,), 9.0)).tolist() == [9, 2, 3, 0, 1, 4]


def test_what_is_missing_or_otherwise_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match="algo.adapt=RUN: its policy reads vel, which this task does not have.*pos"):
        correspondence(Shown("pos", "vel"), Shown("pos"), (OLD, schema(POS)), "RUN")
    with pytest.raises(SettingsError, match="number 2 of what its policy reads, made of vel, is not shown"):
        correspondence(Shown("pos", "vel"), Shown("pos"), (OLD, OLD), "RUN")
    with pytest.raises(SettingsError, match="number 0 .*, made of pos, is not shown by this task, or otherwise"):
        correspondence(Shown("pos"), Shown("pos", scale=0.5), (OLD, OLD), "RUN")
    with pytest.raises(SettingsError, match=r"signals of other shapes: pos \[2\], here \[3\]"):
        correspondence(Shown("pos"), Shown("pos"), (OLD, schema(SignalSpec("pos", (3,), "m"))), "RUN")
    with pytest.raises(SettingsError, match="number 2 .*, made of its memory, is not shown"):
        correspondence(Shown("pos"), Shown("pos", actions=0), (OLD, OLD), "RUN")


@pytest.mark.parametrize("name", ["joint_target", "reach", "hover", "waypoints"])
def test_a_task_shows_what_it_shows(name: str) -> None:
    task = load_task(name)
    found = correspondence(task.observe, task.observe, (task.schema, task.schema), "RUN").tolist()
    assert found == list(range(len(found)))
