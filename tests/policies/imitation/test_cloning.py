"""Behaviour cloning, ACT, playing chunks, and resuming: against hand computations and scipy."""

from __future__ import annotations

import warnings
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from tests.policies.toy_demonstrations import episodes, forks

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.transitions import Transitions
from temporeal.policies.imitation import act, bc, flow
from temporeal.policies.nets.encoders import random_shift
from temporeal.policies.nets.mixture import Mixture, MixtureActor
from temporeal.policies.runs.chunks import Player, ensembled
from temporeal.policies.training.checkpoint import CheckpointError
from temporeal.policies.training.chunks import learner, outliers
from temporeal.policies.training.chunks.policy import masked_mean
from temporeal.policies.training.chunks.windows import Windows, windows, without_rest
from temporeal.policies.training.errors import SettingsError

TINY: dict[str, Any] = {"horizon": 4, "execute": 2, "context": 16, "batch": 8, "updates": 6, "report_updates": 2}


# mixtures


def test_the_density_of_a_mixture_is_scipys() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, mean, log_std = (torch.randn(4, *shape, generator=generator) for shape in ((3,), (3, 2), (3, 2)))
    action = torch.randn(4, 2, generator=generator)
    weight = torch.softmax(logits, -1).numpy()
    each = norm.pdf(action[:, None].numpy(), mean.numpy(), log_std.exp().numpy()).prod(-1)
    found = Mixture(logits, mean, log_std).log_prob(action)
    assert found.numpy() == pytest.approx(np.log((weight * each).sum(-1)), rel=1e-5)


def test_the_likeliest_component_acts() -> None:
    mixture = Mixture(torch.tensor([[0.0, 2.0]]), torch.tensor([[[1.0, 1.0], [-3.0, 4.0]]]), torch.zeros(1, 2, 2))
    assert mixture.likeliest().tolist() == [[-3.0, 4.0]]
    assert MixtureActor(3, 2, (8,), "silu", 5)(torch.zeros(7, 3)).shape == (7, 2)


def two_ways(count: int = 400) -> Transitions:
    """From everywhere, half of the steps go left and half go right."""
    generator = torch.Generator().manual_seed(0)
    obs = torch.randn(count, 3, generator=generator)
    side = torch.where(torch.rand(count, 1, generator=generator) < 0.5, 0.7, -0.7)
    action = side + 0.02 * torch.randn(count, 1, generator=generator)
    zeros = torch.zeros(count)
    return Transitions(obs, action, zeros, obs, zeros + 1, zeros.long(), torch.tensor([0, count]))


@pytest.mark.parametrize(("head", "low", "high"), [("gaussian", 0.0, 0.35), ("mixture", 0.55, 0.85)])
def test_a_gaussian_averages_two_ways_and_a_mixture_takes_one(
    head: str, low: float, high: float, tmp_path: Path
) -> None:
    config = bc.BCConfig(updates=150, head=head, hidden=(32,), components=2, learning_rate=1e-2, batch=128)
    found = bc.train(two_ways(), config, out=tmp_path)
    with torch.no_grad():
        action = found.actor(found.normalizer(torch.randn(100, 3, generator=torch.Generator().manual_seed(1)))).abs()
    assert low <= float(action.median()) <= high
    actor, normalizer, was = bc.load_policy(tmp_path)
    obs = torch.randn(5, 3)
    assert was == config and torch.equal(actor(normalizer(obs)), found.actor(found.normalizer(obs)))


# ACT


def test_ensembling_weighs_the_oldest_most() -> None:
    # three chunks, inferred at steps 0, 1, 2, about step 2: rows 2, 1, 0 of them
    chunks = deque(np.full((1, 4, 1), value) + np.arange(4)[None, :, None] for value in (0.0, 10.0, 20.0))
    weights = np.exp(-0.5 * np.arange(3))
    assert ensembled(chunks, 0.5) == pytest.approx((weights * [2.0, 11.0, 20.0]).sum() / weights.sum())


def test_a_player_executes_as_many_rows_as_it_is_told() -> None:
    asked: list[int] = []

    def infer(signals: Any) -> np.ndarray:
        asked.append(signals["k"])
        return signals["k"] + 0.1 * np.arange(4)[None, :, None]

    player = Player(infer, execute=3, ensemble=None)
    found = [float(player.command(lambda k=k: {"k": k})[0, 0]) for k in range(7)]
    assert asked == [0, 3, 6] and found == pytest.approx([0.0, 0.1, 0.2, 3.0, 3.1, 3.2, 6.0])
    averaged = Player(infer, execute=3, ensemble=0.0)
    # chunks say k + .1 (now - k): of the last four, the plain mean
    found = [float(averaged.command(lambda k=k: {"k": k})[0, 0]) for k in range(6)]
    assert found[5] == pytest.approx(np.mean([2.3, 3.2, 4.1, 5.0])) and found[0] == 0.0


def test_divergence_from_the_standard_normal() -> None:
    mean, log_var = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, np.log(4.0)]])
    assert float(act.divergence(mean, log_var)) == pytest.approx(0.5 + 0.5 * (4 - 1 - np.log(4)))


def test_padded_steps_do_not_count() -> None:
    value = torch.tensor([[[1.0], [9.0]], [[2.0], [3.0]]])
    assert float(masked_mean(value, torch.tensor([[True, False], [True, True]]))) == 2.0


# windows


def test_a_window_ends_with_its_episode_and_repeats_its_last_command() -> None:
    action = np.arange(6, dtype=np.float32).reshape(2, 3, 1) / 10
    data = episodes({"place_w": np.zeros((2, 4, 2), np.float32)}, action, forks().interface.signals["place_w"])
    found = windows(data, (), 4)
    assert found.at.tolist() == [0, 1, 2, 4, 5, 6]  # samples 3 and 7 are final states
    batch = found.batch(torch.tensor([1, 3]))
    assert batch.command[..., 0].numpy() == pytest.approx(np.array([[0.1, 0.2, 0.2, 0.2], [0.3, 0.4, 0.5, 0.5]]))
    assert batch.given.tolist() == [[True, True, False, False], [True, True, True, False]]


def test_of_a_rest_at_an_episodes_end_only_the_beginning_is_learned() -> None:
    action = np.array([[0, 5, 10, 10, 9.5, 10], [0, 2, 4, 4, 4, 10]], np.float32)[..., None] / 10
    data = episodes({"place_w": np.zeros((2, 7, 2), np.float32)}, action, forks().interface.signals["place_w"])
    found = windows(data, (), 3)
    assert without_rest(found, 0).at.tolist() == [0, 1, 7, 8, 9, 10, 11]  # a pause before the last move is no rest
    kept = without_rest(found, 2)
    assert kept.at.tolist() == [0, 1, 2, 3, 7, 8, 9, 10, 11, 12] and kept.last.tolist() == 4 * [5] + 6 * [12]
    assert kept.batch(torch.tensor([3])).command[0, :, 0].tolist() == pytest.approx([1.0, 0.95, 1.0])
    still = episodes({"place_w": np.zeros((2, 7, 2), np.float32)}, 0 * action, forks().interface.signals["place_w"])
    with pytest.raises(SettingsError, match="algo.rest=0.*nothing is left"):
        without_rest(windows(still, (), 3), 0)


def shaken(far: tuple[int, ...]) -> Windows:
    """40 episodes of small commands about a place, of which those with the numbers ``far`` end far beyond."""
    rng = np.random.default_rng(0)
    place = rng.uniform(-1.0, 1.0, (40, 21, 2)).astype(np.float32)
    action = place[:, :-1] + 0.02 * rng.normal(size=(40, 20, 2)).astype(np.float32)
    action[list(far), -5:, 1] += 0.9
    return windows(episodes({"place_w": place}, action, forks().interface.signals["place_w"]), (), 4)


def test_few_episodes_that_stretch_the_scale_of_all_are_named() -> None:
    with pytest.warns(UserWarning, match=r"velocity are scaled.*\(1: 98% within 0.0\d+ .* episodes 7, 9, at 0.\d+\)"):
        outliers.warn(shaken((7, 9)), "place_w")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outliers.warn(shaken(()), "place_w")
        outliers.warn(shaken((7,)), "")  # beside commands that reach everywhere it is nothing
        outliers.warn(shaken(tuple(range(0, 40, 4))), "place_w")  # a quarter of all: it is how this is done


def test_bad_commands_are_told_with_their_episode() -> None:
    data = forks(5)
    data.columns["action"][data.starts[3] + 2] = np.nan
    with pytest.raises(DataError, match="episode 3: command velocity is not finite at 1 samples"):
        windows(data, (), 4)
    with pytest.raises(DataError, match="signals nowhere are not in the dataset; it has: place_w"):
        windows(forks(5), ("nowhere",), 4)


def test_rows_relative_to_a_signal_move_with_it(tmp_path: Path) -> None:
    data = forks(20)
    relative = replace(flow.FlowConfig(hidden=(16,), **TINY), relative="place_w")
    with pytest.raises(SettingsError, match="algo.relative=place_w: a signal that the policy reads, of at most 1"):
        flow.train(data, relative, out=tmp_path)
    chunk = torch.rand(3, 4, 2) - 0.5
    policy = learner.make_policy(replace(data.interface, action=replace(
        data.interface.action, low=(-9.0, -9.0), high=(9.0, 9.0))), relative, flow.Flow)
    seen = {"place_w": torch.tensor([[1.0, 2.0]]).repeat(3, 1)}
    assert torch.allclose(policy.chunk(chunk + seen["place_w"][:, None], seen), chunk, atol=1e-6)


def test_pictures_are_moved_as_a_whole() -> None:
    picture = torch.arange(25, dtype=torch.uint8).reshape(1, 5, 5, 1).repeat(99, 1, 1, 3)
    moved = random_shift(picture, 1, torch.Generator().manual_seed(0))
    middles = {int(value) for value in moved[:, 2, 2, 0]}
    assert middles == {6, 7, 8, 11, 12, 13, 16, 17, 18} and bool((moved[..., 0] == moved[..., 2]).all())


# resuming


@pytest.mark.parametrize(("module", "config"), [
    (flow, flow.FlowConfig(hidden=(16,), **TINY)), (act, act.ActConfig(width=16, **{**TINY, "ensemble": None}))])
@pytest.mark.slow
def test_a_resumed_run_is_the_uninterrupted_one_bit_by_bit(module: Any, config: Any, tmp_path: Path) -> None:
    data, whole, parts = forks(20), tmp_path / "whole", tmp_path / "parts"
    module.train(data, config, out=whole)
    module.train(data, config, out=parts, on_iteration=lambda loop: loop.updates >= 4)
    module.train(data, config, out=parts, resume=True)
    for name, value in module.load_chunks(whole).state_dict().items():
        assert torch.equal(value, module.load_chunks(parts).state_dict()[name]), name
    with pytest.raises(CheckpointError, match="the data differs"):
        module.train(forks(20, seed=1), config, out=parts, resume=True)


@pytest.mark.parametrize(("changes", "told"), [
    ({"execute": 17}, "algo.execute is at most 16"), ({"horizon": 1}, "at least 2"), ({"average": 1.0}, "algo.average"),
    ({"ensemble": -1.0}, "algo.ensemble"), ({"denoise_steps": 0}, "algo.denoise_steps"),
    ({"learning_rate": 0.0}, "algo.learning_rate"), ({"noise": -1.0}, "algo.noise")])
def test_settings_that_cannot_be(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        flow.FlowConfig(**changes)
