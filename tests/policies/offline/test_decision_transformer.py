"""Sequence models: what was shown once must be remembered, and the episodes that earned something must be copied.

A cue, one of four corners, is shown in the first step. Eight steps later the action decides: the corner that was shown
earns 1. The data choose a corner at random.
"""

import importlib
from pathlib import Path

import pytest
import torch
from torch import Tensor

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.sequence import SelectiveScan, WindowAttention
from temporeal.policies.offline import decision_transformer
from temporeal.policies.training.errors import SettingsError

LENGTH = 8
CORNERS = torch.tensor([[0.6, 0.6], [0.6, -0.6], [-0.6, 0.6], [-0.6, -0.6]])


def observed(cue: Tensor) -> Tensor:
    """Observations [E, T, 3]: the cue in the first step, and whether the action counts."""
    obs = torch.zeros(len(cue), LENGTH, 3)
    obs[:, 0, :2], obs[:, -1, 2] = cue, 1.0
    return obs


def data(episodes: int = 400) -> Transitions:
    generator = torch.Generator().manual_seed(0)
    cue, chosen = torch.randint(4, (2, episodes), generator=generator)
    obs = observed(CORNERS[cue])
    action = 0.3 * torch.randn(episodes, LENGTH, 2, generator=generator).clamp(-2.0, 2.0)
    action[:, -1] = CORNERS[chosen]
    reward = torch.zeros(episodes, LENGTH)
    reward[:, -1] = (cue == chosen).float()
    mask = torch.ones(episodes, LENGTH)
    mask[:, -1] = 0.0
    return Transitions(obs.flatten(0, 1), action.flatten(0, 1), reward.flatten(), obs.roll(-1, 1).flatten(0, 1),
                       mask.flatten(), torch.arange(episodes).repeat_interleave(LENGTH),
                       torch.arange(episodes + 1) * LENGTH)


def right(last: Tensor) -> float:
    """How many of four ``last`` actions [4, 2] chose the corner that was shown."""
    return float((torch.cdist(last, CORNERS).argmin(1) == torch.arange(4)).logical_and(
        (last - CORNERS).norm(dim=1) < 0.4).float().mean())


def remembered(out: Path, block: str, window: int) -> float:
    config = decision_transformer.DecisionTransformerConfig(
        block=block, window=window, features=32, layers=2, batch=128, updates=400, learning_rate=3e-3)
    decision_transformer.train(data(), config, out=out)
    actor, normalizer, read = decision_transformer.load_sequence(out)
    assert read == config
    hidden = torch.zeros(4, actor.hidden_dim)
    with torch.no_grad():
        for obs in observed(CORNERS).unbind(1):
            action, hidden = actor(normalizer(obs), hidden)
    return right(action)


@pytest.mark.slow
@pytest.mark.parametrize(("block", "window"), [("attention", LENGTH), ("state_space", LENGTH)])
def test_what_was_shown_once_is_remembered(block: str, window: int, tmp_path: Path) -> None:
    assert remembered(tmp_path, block, window) >= 0.9


@pytest.mark.slow
def test_neither_cloning_nor_a_window_that_is_too_short_can_know(tmp_path: Path) -> None:
    assert remembered(tmp_path / "short", "attention", 3) <= 0.4
    iql = importlib.import_module("temporeal.policies.offline.iql")
    config = iql.IQLConfig(hidden=(32, 32), updates=300, temperature=0.0, learning_rate=3e-3)
    result = iql.train(data(), config, out=tmp_path / "clone")
    with torch.no_grad():
        assert right(result.actor(result.normalizer(observed(CORNERS)[:, -1]))) <= 0.4


@pytest.mark.parametrize("block", [SelectiveScan(6, 4), WindowAttention(6, 4)])
def test_steps_give_what_the_sequence_gave(block: torch.nn.Module) -> None:
    torch.manual_seed(0)
    x, hidden = torch.randn(3, 9, 6), torch.zeros(3, block.hidden_dim)
    with torch.no_grad():
        whole = block(x)
        for t in range(9):
            step, hidden = block.step(x[:, t], hidden)
            assert torch.allclose(step, whole[:, t], atol=1e-5), t


@pytest.mark.parametrize("block", decision_transformer.BLOCKS)
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_a_traced_actor_takes_any_number_of_rows(block: str) -> None:
    config = decision_transformer.DecisionTransformerConfig(block=block, features=8, window=4)
    actor = decision_transformer.make_actor({"obs_dim": 3, "action_dim": 2}, config).eval()
    rows, hidden = torch.randn(5, 3), torch.randn(5, actor.hidden_dim)
    traced = torch.jit.trace(actor, (rows[:2], hidden[:2]), check_trace=False)
    with torch.no_grad():
        for found, wanted in zip(traced(rows, hidden), actor(rows, hidden)):
            assert torch.allclose(found, wanted, atol=1e-6)


def test_a_state_space_is_the_recurrence_of_the_paper() -> None:
    """By hand, for one feature and one state: h = exp(dt A) h + dt B x, y = C h + D x."""
    block = SelectiveScan(1, 1)
    scanned, gate, keep, add, read = block._parts(torch.tensor([[0.7], [0.7]]))
    dt = torch.nn.functional.softplus(block.rate(scanned))
    b, c = block.select(scanned).chunk(2, -1)
    assert torch.allclose(keep[..., 0], torch.exp(-dt * 1.0))
    assert torch.allclose(add[..., 0], dt * b * scanned)
    assert torch.allclose(read[..., 0], c)


def test_resumed_sequences_are_the_same(tmp_path: Path) -> None:
    config = decision_transformer.DecisionTransformerConfig(features=8, layers=1, window=4, batch=8, updates=4,
                                                            report_updates=2)
    whole = decision_transformer.train(data(20), config, out=tmp_path / "whole")
    decision_transformer.train(data(20), config, out=tmp_path / "parts", on_iteration=lambda loop: True)
    decision_transformer.train(data(20), config, out=tmp_path / "parts", resume=True)
    actor, _, _ = decision_transformer.load_sequence(tmp_path / "parts")
    for key, value in whole.actor.state_dict().items():
        assert torch.equal(value, actor.state_dict()[key]), key


@pytest.mark.parametrize(("settings", "message"), [
    ({"block": "lstm"}, "one of attention, state_space"), ({"window": 1}, "is at least 2"),
    ({"block": "state_space", "window": 5}, "the longest has 8 steps"),
])
def test_wrong_settings_are_refused(settings: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=message):
        decision_transformer.train(data(10), decision_transformer.DecisionTransformerConfig(**settings), out=tmp_path)
