"""What the learner makes of episodes: what it remembers, how it goes on after a kill, and what it refuses."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.policies.robot_learning.deliveries import agreed, bytes_of, episode

from temporeal.policies.algos.sac import SAC, SACConfig
from temporeal.policies.cli.main import main
from temporeal.policies.data.transitions import Transitions
from temporeal.policies.robot_learning.learning.inbox import Inbox
from temporeal.policies.robot_learning.learning.journal import Journal
from temporeal.policies.robot_learning.learning.learner import Learning
from temporeal.policies.robot_learning.learning.run import set_aside
from temporeal.policies.robot_learning.simulated import SimWorld, open_simulation
from temporeal.policies.robot_learning.wire.episodes import Episode
from temporeal.policies.robot_learning.words import actor_words, learner_words
from temporeal.policies.robot_learning.world import Pacer
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.training import offline_learner
from temporeal.policies.training.checkpoint import CheckpointError
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.off_policy import checkpoints
from temporeal.policies.training.off_policy.replay import ENDED, REWARD, TERMINATED, Replay

CONFIG = SACConfig(hidden=(8, 8), warmup=6, batch=8, size=400, total_steps=1000, report_steps=4, updates_per_step=1.0)
RNG = np.random.default_rng(5)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    found = Journal(tmp_path / "received.episodes")
    yield found
    found.close()


def learning(journal: Journal, config: SACConfig = CONFIG) -> Learning:
    return Learning(agreed(), config, SAC, 3, Inbox(journal, agreed()), 0.0)


def by_hand(steps: int, acted: Sequence[int], **changes: Any) -> Episode:
    found = episode(RNG, steps)
    intervened = np.zeros(steps, np.uint8)
    intervened[list(acted)] = 1
    return replace(found, intervened=intervened, **changes)


def test_steps_are_remembered_as_they_were_executed(journal: Journal) -> None:
    made, one = learning(journal), by_hand(4, (), terminated=False)
    two = by_hand(3, (), terminated=True)
    for each in (one, two):
        made.take_in(each)
    replay = made.learner.replay
    assert replay.count == 7 and made.learner.update == 7 and made.env.episodes == 2
    assert np.array_equal(replay.pair[:4, 0], np.concatenate([one.obs[:-1], one.action], 1))
    assert np.array_equal(replay.after[4:7, 0], two.obs[1:])
    assert replay.told[:7, 0, ENDED].tolist() == [0, 0, 0, 1, 0, 0, 1]
    assert replay.told[:7, 0, TERMINATED].tolist() == [0, 0, 0, 0, 0, 0, 1], "time that cuts is bootstrapped through"
    assert np.array_equal(replay.told[:4, 0, REWARD], one.reward)
    assert made.learner.owed == 1.0, "the first six steps only warm up"


def test_interventions_go_into_replay_and_demonstrations(journal: Journal) -> None:
    made = learning(journal)
    made.take_in(by_hand(4, ()))
    assert made.learner.demonstrations is None, "nothing to draw from yet"
    one = by_hand(6, (0, 1, 3, 5), terminated=True)
    made.take_in(one)
    told = made.learner.demonstrations
    assert told is not None and told.count == 4 and made.learner.replay.count == 10
    rows = np.concatenate([one.obs[:-1], one.action], 1)[[0, 1, 3, 5]]
    assert np.array_equal(told.pair[:4, 0], rows)
    assert told.told[:4, 0, ENDED].tolist() == [0, 1, 1, 1], "n steps are summed only while the person acts"
    assert told.told[:4, 0, TERMINATED].tolist() == [0, 0, 0, 1]


def test_a_share_of_zero_draws_no_demonstrations(journal: Journal) -> None:
    made = learning(journal, replace(CONFIG, demonstrations=0.0))
    made.take_in(by_hand(4, (1, 2)))
    assert made.learner.demonstrations is None


def report(made: Learning) -> dict[str, float]:
    with offline_learner.threads(1):
        return made.iterate((), lambda learner: {})


def test_a_killed_learner_has_all_it_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two episodes were learned from, a third one came after the checkpoint: after a kill all three are there."""
    monkeypatch.setattr("temporeal.policies.robot_learning.learning.learner.REPORT_S", 0.0)
    first = Journal(tmp_path / "received.episodes")
    before, some = learning(first), [by_hand(5, (1, 2)), by_hand(6, ()), by_hand(4, (0,))]
    for one in some[:2]:
        before.inbox.keep(one, bytes_of(one))
    figures = report(before)
    assert figures["episodes"] == 2 and figures["gradient_steps"] == 5 and figures["by_hand"] == 2
    checkpoints.keep(before.learner, tmp_path)
    before.inbox.keep(some[2], bytes_of(some[2]))  # acknowledged, and then it dies
    first.close()

    again = Journal(tmp_path / "received.episodes")
    after = learning(again)
    path = checkpoints.latest(tmp_path)
    after.fast_forward(int(offline_learner.read(path, checkpoints.KIND)["env"]["episodes"]))
    checkpoints.restore(after.learner, path)
    assert after.learner.update == 11 and after.learner.algorithm.updates == 5
    after.catch_up()
    for one in before.inbox.take(0.0):
        before.take_in(one)
    for name in ("pair", "after", "told"):
        assert torch.equal(getattr(after.learner.replay, name)[:15], getattr(before.learner.replay, name)[:15])
        assert torch.equal(getattr(after.told, name), getattr(before.told, name))
    assert (after.env.episodes, after.learner.update, after.learner.owed) == (3, 15, before.learner.owed)
    assert not after.inbox.keep(some[2], bytes_of(some[2])), "delivered again, it is known"
    for made in (before, after):
        report(made)
    for name, value in before.learner.algorithm.actor.state_dict().items():
        assert torch.equal(value, after.learner.algorithm.actor.state_dict()[name]), "bit for bit"
    again.close()


@pytest.mark.parametrize("name", ["obs", "reward", "command"])
def test_an_episode_of_the_journal_that_is_out_of_range_is_set_aside(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was acknowledged before ranges were checked: the learner goes on without it, also from a checkpoint."""
    monkeypatch.setattr("temporeal.policies.robot_learning.learning.learner.REPORT_S", 0.0)
    journal, bad = Journal(tmp_path / "received.episodes"), by_hand(5, (0, 2))
    getattr(bad, name)[3] = 1e20
    good = [by_hand(4, (1,)), by_hand(6, (2, 3))]
    for one in (good[0], bad, good[1]):
        journal.append(bytes_of(one))
    journal.close()
    journal, told = Journal(tmp_path / "received.episodes"), list[str]()
    made = learning(journal)
    set_aside(made.inbox, told.append)
    made.catch_up()
    assert (made.learner.update, made.env.episodes, made.told.count) == (10, 3, 3)
    assert len(told) == 1 and bad.id in told[0] and f"{name} " in told[0]
    assert f"{name} " in (tmp_path / "set-aside" / f"{bad.id}.txt").read_text()
    assert not made.inbox.keep(good[0], bytes_of(good[0]))
    report(made)
    checkpoints.keep(made.learner, tmp_path)
    journal.close()
    journal = Journal(tmp_path / "received.episodes")
    again, path = learning(journal), checkpoints.latest(tmp_path)
    known = offline_learner.read(path, checkpoints.KIND)["env"]
    again.fast_forward(known["episodes"], known["aside"])
    checkpoints.restore(again.learner, path)
    again.catch_up()
    assert (again.env.episodes, again.env.aside, again.learner.update) == (3, [bad.id], 10)
    journal.close()


def stopped(folder: Path, config: SACConfig, shown: Transitions | None, some: Sequence[Episode]) -> Learning:
    """A learner that took ``some`` in, learned, and kept a checkpoint."""
    journal = Journal(folder / "received.episodes")
    made = Learning(agreed(), config, SAC, 3, Inbox(journal, agreed()), 0.0, shown)
    for one in some:
        made.inbox.keep(one, bytes_of(one))
    report(made)
    checkpoints.keep(made.learner, folder)
    journal.close()
    return made


def resumed(folder: Path, config: SACConfig, shown: Transitions | None) -> Learning:
    journal = Journal(folder / "received.episodes")
    made, path = Learning(agreed(), config, SAC, 3, Inbox(journal, agreed()), 0.0, shown), checkpoints.latest(folder)
    made.fast_forward(made.inbox.journal.count)
    checkpoints.restore(made.learner, path)
    journal.close()
    return made


def demonstrated(steps: int) -> Transitions:
    def draw(*shape: int) -> torch.Tensor:
        return torch.from_numpy(RNG.uniform(-1, 1, shape).astype(np.float32))

    pictures = RNG.integers(0, 256, (steps + 1, 4, 4, 3)).astype(np.uint8)
    return Transitions(draw(steps, 3), draw(steps, 1), draw(steps), draw(steps, 3), torch.ones(steps),
                       torch.zeros(steps, dtype=torch.int64), torch.tensor([0, steps]), sample=torch.arange(steps),
                       pictures={"eye_rgb": pictures})


BUDGET = replace(CONFIG, total_steps=40, priority=0.6)


@pytest.mark.parametrize("dataset", [False, True])
@pytest.mark.parametrize("lengths", [(5, 6, 5), (6,) * 7], ids=["within", "beyond"])
def test_a_budget_is_raised_after_interventions(tmp_path: Path, dataset: bool, lengths: tuple[int, ...]) -> None:
    """Also where the last episodes went beyond the budget, all of them by hand."""
    shown = demonstrated(9) if dataset else None
    before = stopped(tmp_path, BUDGET, shown, [by_hand(steps, range(steps)) for steps in lengths])
    after = resumed(tmp_path, replace(BUDGET, total_steps=90), shown)
    assert after.told.count == before.told.count == sum(lengths) + 9 * dataset
    for name in ("pair", "after", "told", "error"):
        assert torch.equal(getattr(after.told, name), getattr(before.told, name)), name
    assert len(after.told.error[: after.told.count].unique()) > 5, "last errors are remembered"
    with pytest.raises(CheckpointError, match="data"):
        resumed(tmp_path, replace(BUDGET, total_steps=90), demonstrated(8))


@pytest.mark.parametrize("total_steps", [40, 90])
def test_checkpoints_with_the_digest_of_whole_tables_resume(
    tmp_path: Path, total_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def whole(told: Replay | None) -> str:
        tables = () if told is None else (told.pair, told.after, told.told)
        return hashlib.sha256(b"".join(table.numpy().tobytes() for table in tables)).hexdigest()

    with monkeypatch.context() as patch:
        patch.setattr("temporeal.policies.robot_learning.learning.learner.BY_HAND", 40)  # the budget's, then
        patch.setattr(checkpoints, "digest", whole)
        patch.setattr(checkpoints, "errors", lambda told: {"error": told.error, "greatest": told.greatest})
        before = stopped(tmp_path, BUDGET, None, [by_hand(5, (0, 1, 3)), by_hand(6, (2,))])
    after = resumed(tmp_path, replace(BUDGET, total_steps=total_steps), None)
    assert torch.equal(after.told.error[:4], before.told.error[:4]) and after.told.count == 4


def test_another_runs_journal_is_refused(journal: Journal) -> None:
    with pytest.raises(SettingsError, match="holds 0 episodes, the checkpoint learned from 4"):
        learning(journal).fast_forward(4)


def test_new_weights_are_published_when_something_was_learned(journal: Journal) -> None:
    made = learning(journal)
    first = made.published
    for one in (by_hand(6, ()), by_hand(4, ())):
        made.inbox.keep(one, bytes_of(one))
    report(made)
    assert made.published.digest != first.digest


def test_a_stop_that_is_asked_for_ends_the_wait(journal: Journal) -> None:
    made, asked = learning(journal), list[int]()
    threading.Timer(0.2, lambda: asked.append(15)).start()
    made.iterate(asked, lambda learner: {})
    assert asked == [15]


def test_demonstrations_are_paid_once_where_they_succeed() -> None:
    """Two episodes, side by side: the first is above 0.5 from its third sample on, the second never."""
    from temporeal.policies.robot_learning.learning.demonstrations import at_success
    from temporeal.policies.robot_learning.success import ByFormula
    from temporeal.robots.signals import SignalSpec
    from temporeal.sim.stl.language.parse import parse

    rewards = at_success(ByFormula(parse("F[0,1] (x > 0.5)", {"x": SignalSpec("x")}), 0.1))
    x = torch.tensor([[0.0, 0.0], [0.4, 0.4], [0.6, 0.4], [0.9, 0.4]])
    reward, over = rewards({"x": x}, torch.zeros(4, 2, 1))
    assert reward.T.tolist() == [[0.0, 1.0, 0.0, 0.0], [0.0] * 4]
    assert over.T.tolist() == [[False, True, False, False], [False] * 4]


def test_the_same_command_goes_on(tmp_path: Path) -> None:
    """Stopped, started again: the journal is known, others' settings are refused, the token stays."""
    from temporeal.policies.robot_learning.learning.run import learn

    words = learner_words([*BASE, f"out={tmp_path / 'run'}", "listen=127.0.0.1:0"])
    assert learn(words, asked=[15], tell=lambda text: None).env.episodes == 0
    token, shapes = (tmp_path / "run" / "token").read_text(), words.common.agreed
    journal = Journal(tmp_path / "run" / "received.episodes")
    list(journal.records())
    steps, size, limits = 3, shapes.interface.task_action, shapes.interface.action
    signals = {name: np.zeros((steps + 1, *spec.shape), spec.dtype) for name, spec in shapes.interface.signals.items()}
    one = replace(episode(RNG, steps), agreement=shapes.digest(), obs=np.ones((steps + 1, shapes.observation), "f4"),
                  action=np.zeros((steps, size), "f4"), proposed=np.zeros((steps, size), "f4"),
                  command=np.tile(np.mean([limits.low, limits.high], 0), (steps, 1)).astype("f4"), signals=signals)
    journal.append(bytes_of(one))
    journal.close()
    again = learn(words, asked=[15], tell=lambda text: None)
    assert again.env.episodes == 1 and again.learner.update == steps
    assert (tmp_path / "run" / "token").read_text() == token
    other = learner_words([*BASE, f"out={tmp_path / 'run'}", "listen=127.0.0.1:0", "seed=2"])
    with pytest.raises(BadInput, match="seed of the run is 1, now 2"):
        learn(other, asked=[15], tell=lambda text: None)


def test_an_episode_that_cannot_be_delivered_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("temporeal.policies.robot_learning.words.LARGEST", 1000)
    with pytest.raises(BadInput, match="at most 1,000 are delivered"):
        learner_words(BASE)


BASE = ["task=joint_target", "algo=sac", "algo.hidden=[8,8]"]


@pytest.mark.parametrize(("words", "named"), [
    (["algo=ppo", "task=hover"], "algo=ppo does not learn from what an actor delivers"),
    ([*BASE, "reward=dense"], "reward=dense: legal are success, task"),
    ([*BASE, "token=t", "connect=robot"], "connect=robot: a host and a port"),
    ([*BASE], "token=FILE is needed"),
    ([*BASE, "threshold=2"], "threshold=2: a number from 0 to 1"),
    ([*BASE, "token=t", "reset=RUN"], "reset_formula"),
    ([*BASE, "token=t", "episodes=0"], "episodes=0: a whole number from 1")])
def test_words_that_make_no_sense_are_refused(words: list[str], named: str) -> None:
    with pytest.raises(BadInput, match=named):
        actor_words(words)


def test_both_sides_agree_where_their_words_do() -> None:
    theirs = actor_words([*BASE, "token=t"]).common.agreed
    assert learner_words([*BASE, "publish=1"]).common.agreed.digest() == theirs.digest()
    for other in ("task.settings.share=0.3", "algo.hidden=[9,9]", "algo.normalize_observations=false", "reward=task"):
        assert learner_words([*BASE, other]).common.agreed.digest() != theirs.digest(), other


def test_an_actor_asks_which_robot(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["actor", *BASE]) == 2
    assert "--sim" in capfd.readouterr().err


def test_a_simulation_is_a_world_whose_commands_are_limited(tmp_path: Path) -> None:
    from temporeal.robots.motion.rate_limiter import Bounds

    words = actor_words([*BASE, "token=t"])
    made = open_simulation(words.common.settings, words.common.task)
    spec = made.spec
    world = SimWorld(made.env, Bounds(spec.low, spec.high, made.period_s, speed=0.5),
                     Pacer(made.period_s, sleep=lambda seconds: None))
    first = world.reset()
    assert set(first.signals) == set(words.common.agreed.interface.signals) and first.command is None
    asked = first.signals["joint_pos"].copy()
    world.step(asked)
    sample = world.step(asked + np.float32(0.5))
    assert sample.command is not None and sample.changed
    assert np.abs(sample.command - asked).max() <= 0.5 * made.period_s + 1e-6
    for _ in range(25):
        sample = world.step(sample.command)
    assert np.abs(sample.signals["joint_pos"] - sample.command).max() < 0.05, "it goes where what was executed says"
    resumed = world.resume()
    assert not resumed.failed and np.array_equal(resumed.signals["joint_pos"], sample.signals["joint_pos"])
    world.close()
