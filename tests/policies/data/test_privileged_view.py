"""What critics are shown of a dataset is what the environment would have told them, at each sample."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from temporeal.policies.data.episodes.interface import ActionSpec, DataError
from temporeal.policies.data.privileged_view import PrivilegedView, critic_view
from temporeal.policies.data.views import Padded, TaskView

ACTION = ActionSpec("force", (-1.0,), (1.0,), "N")


class Counting:
    """Tells critics how many steps there were, the sum of the actions, and a signal."""

    privileged_dim = 3
    carry = {"count": (), "sum": ()}

    def start(self, signals: Any, carry: dict[str, Tensor]) -> dict[str, Tensor]:
        return {**carry, "count": carry["count"] + 100.0}

    def step(self, signals: Any, action: Tensor, carry: dict[str, Tensor]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        return action[:, 0], action[:, 0] > 9, {"count": carry["count"] + 1.0, "sum": carry["sum"] + action[:, 0]}

    def privileged(self, signals: Any, carry: dict[str, Tensor]) -> Tensor:
        return torch.stack([carry["count"], carry["sum"], signals["speed"]], -1)


class View:
    """Shows the height."""

    task = SimpleNamespace(objective=Counting())

    def __call__(self, episodes: Padded, action: ActionSpec) -> tuple[Tensor, Tensor]:
        return episodes.signals["height"][..., None], episodes.command


def test_what_critics_are_told_comes_after_what_the_policy_sees() -> None:
    height, speed = torch.rand(3, 2), torch.rand(3, 2)
    command = torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]], [[7.0], [7.0]]])
    view: Any = PrivilegedView(View(), ("height", "speed"))  # type: ignore[arg-type]
    obs, action = view(Padded({"height": height, "speed": speed}, command, None), ACTION)
    assert obs.shape == (3, 2, 4) and torch.equal(action, command)
    assert torch.equal(obs[..., 0], height) and torch.equal(obs[..., 3], speed)
    assert obs[:, 0, 1].tolist() == [100, 101, 102]  # the first sample is that of the start
    assert obs[:, 0, 2].tolist() == [0, 1, 4] and obs[:, 1, 2].tolist() == [0, 2, 6]
    with pytest.raises(DataError, match="signal 'speed', which the dataset has not .algo.privileged=false"):
        view(Padded({"height": height}, command, None), ACTION)


def test_critics_that_are_told_nothing_see_what_the_policy_sees() -> None:
    task: Any = SimpleNamespace(objective=Counting())
    face: Any = SimpleNamespace(signals={"speed": SimpleNamespace(shape=(), dtype="float32")})
    assert isinstance(critic_view(task, face, privileged=False), TaskView)
    assert isinstance(critic_view(task, face, privileged=True), PrivilegedView)
    task.objective.privileged_dim = 0
    assert isinstance(critic_view(task, face, privileged=True), TaskView)
