"""The learner: takes episodes that actors deliver, in place of worlds that it steps, and publishes what it learns.

What arrives is on the disk before it is acknowledged (:mod:`temporeal.policies.robot_learning.learning.journal`). A
checkpoint holds how many episodes were learned from: after a kill those behind it are read again, and nothing is lost
but updates.

O observation, A action, T steps of an episode.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.robot_learning.learning.inbox import Inbox
from temporeal.policies.robot_learning.wire.agreement import Agreement
from temporeal.policies.robot_learning.wire.episodes import Episode
from temporeal.policies.robot_learning.wire.messages import Published
from temporeal.policies.robot_learning.wire.weights import publish
from temporeal.policies.training.errors import NonFiniteError, SettingsError
from temporeal.policies.training.off_policy.drawing import batches
from temporeal.policies.training.off_policy.learner import Build, Learner, means_of, normalize, start
from temporeal.policies.training.off_policy.replay import Replay
from temporeal.sim.types import EnvCapabilities, Obs, Step

if TYPE_CHECKING:
    from temporeal.policies.data.transitions import Transitions
    from temporeal.policies.training.off_policy.settings import OffPolicyConfig

REPORT_S = 10.0  # s between reports, where something happened
WAIT_S = 0.1  # s: longest wait for an episode at a time
AT_ONCE = 8  # updates between looks for episodes and for what is due
BY_HAND = 100_000  # steps of interventions that are remembered among demonstrations; the oldest are forgotten first


class Received:
    """Where a learner expects worlds: those of actors, which it does not step.

    Attributes:
        episodes: of the journal, taken in so far. aside: identities of those of them that were set aside.
    """

    num_worlds = 1
    device = torch.device("cpu")
    capabilities = EnvCapabilities()

    def __init__(self, agreed: Agreement) -> None:
        self.obs_dim = self.critic_dim = agreed.observation
        self.action_dim, self.pictures = agreed.interface.task_action, agreed.pictures
        self.episodes, self.aside = 0, list[str]()

    def reset(self) -> Obs:
        """Nothing is seen yet."""
        nothing = torch.zeros(1, self.obs_dim)
        return Obs(nothing, nothing, {name: torch.zeros(1, *shape, dtype=torch.uint8)
                                      for name, shape in self.pictures.items()})

    def step(self, action: Tensor) -> Step:
        """Actors step their own worlds."""
        raise NotImplementedError("steps come from actors")

    def state_dict(self) -> dict[str, object]:
        """How many episodes were learned from, and which were not."""
        return {"episodes": self.episodes, "aside": list(self.aside)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore it."""
        self.episodes, self.aside = int(state["episodes"]), list(state.get("aside", ()))


@dataclass
class Counts:
    """Of episodes since the last report."""

    steps: int = 0
    by_hand: int = 0
    late: int = 0


class Learning:
    """A learner fed by actors.

    Args:
        publish_s: s between publications of new weights.
        demonstrations: of ``dataset=``, whose rewards are of the same kind as the actors'.
    """

    def __init__(
        self, agreed: Agreement, config: OffPolicyConfig, build: Build, seed: int, inbox: Inbox, publish_s: float,
        demonstrations: Transitions | None = None,
    ) -> None:
        self.agreed, self.digest, self.inbox, self.publish_s = agreed, agreed.digest(), inbox, publish_s
        env = Received(agreed)
        # interventions are demonstrations that come later: a share of them may be asked for with none there yet
        first = config if demonstrations is not None else replace(config, demonstrations=None)
        self.learner = start(env, first, build, seed, demonstrations)
        self.learner.config = config
        self.env, self.told, self.counts = env, _with_room(self.learner), Counts()
        self._show_demonstrations()
        self.published = self._weights()
        self.published_at, self.changed = time.monotonic(), False

    def fast_forward(self, episodes: int, aside: Sequence[str] = ()) -> None:
        """Show interventions of the first ``episodes`` of the journal, before a checkpoint is restored that was made
        after them; without those that it had set ``aside``."""
        if episodes > len(self.inbox.before):
            raise SettingsError(f"{self.inbox.journal.path} holds {len(self.inbox.before)} episodes, the "
                                f"checkpoint learned from {episodes}: the file does not belong to it")
        for episode in (one for one in self.inbox.before[:episodes] if one.id not in aside):
            self._remember_by_hand(episode)

    def catch_up(self) -> None:
        """Take in the episodes of the journal that the checkpoint did not know."""
        for episode in self.inbox.before[self.env.episodes :]:
            if episode.id in self.inbox.aside:
                self.env.episodes += 1
                self.env.aside.append(episode.id)
            else:
                self.take_in(episode)
        self.inbox.before = []
        self.published = self._weights()

    @torch.no_grad()
    def take_in(self, episode: Episode) -> None:
        """Remember an episode, and owe the updates that it pays for."""
        learner = self.learner
        normalize(learner, torch.from_numpy(episode.obs[:-1]))
        for t, ended in enumerate(_ends(episode.steps)):
            _remember(learner.replay, episode, t, ended)
        self._remember_by_hand(episode)
        before, warmup = learner.update, learner.config.warmup
        learner.update += episode.steps
        learner.owed += learner.config.updates_per_step * max(0, learner.update - max(before, warmup))
        self.env.episodes += 1
        self._count(episode)

    def _remember_by_hand(self, episode: Episode) -> None:
        """Steps at which a person acted, as demonstrations. A row of them ends where the person let go."""
        last = episode.steps - 1
        for t in map(int, episode.intervened.nonzero()[0]):
            ended = t == last or not episode.intervened[t + 1]
            _remember(self.told, episode, t, ended)
        self._show_demonstrations()

    def _show_demonstrations(self) -> None:
        """Batches are drawn from demonstrations as soon as there are some, where a share of them is."""
        if self.told.count and self.learner.config.demonstrated:
            self.learner.demonstrations = self.told

    def _count(self, episode: Episode) -> None:
        sums = {"count": 1.0, "length": float(episode.steps), "return": float(episode.reward.sum()),
                "success": float(bool(episode.success))}
        for name, value in sums.items():
            self.learner.episodes[name] = self.learner.episodes.get(name, torch.zeros(())) + value
        self.counts.steps += episode.steps
        self.counts.by_hand += int(episode.intervened.sum())
        self.counts.late += episode.late

    def iterate(self, asked: Sequence[int], evaluate: Callable[[Learner], dict[str, float]]) -> dict[str, float]:
        """Learn until the next report: some seconds in which something happened, or a stop was asked. Its figures."""
        learner, began = self.learner, time.monotonic()
        learner.episodes, self.counts = {}, Counts()
        total, count = torch.zeros(len(learner.algorithm.figures)), 0
        while not asked:
            for episode in self.inbox.take(0.0 if learner.owed >= 1.0 else WAIT_S):
                self.take_in(episode)
            for figures in self._updates():
                total += figures
                count += 1
            self._publish(bool(count))
            due = time.monotonic() - began > REPORT_S or self.counts.steps >= learner.config.report_steps
            spent = learner.update >= learner.config.total_steps
            if learner.owed < 1.0 and spent or (due and (count or self.counts.steps) and not spent):
                break
        found = {**means_of(learner.episodes), "by_hand": float(self.counts.by_hand), "late": float(self.counts.late)}
        if count:
            found |= dict(zip(learner.algorithm.figures, (total / count).tolist()))
        if bad := [name for name, value in found.items() if not math.isfinite(value)]:
            raise NonFiniteError(f"after {learner.update} steps not finite: {', '.join(bad)}")
        return {**found, "gradient_steps": float(learner.algorithm.updates), **evaluate(learner)}

    @torch.no_grad()
    def _updates(self) -> list[Tensor]:
        """Some of the updates that are owed. Their figures."""
        learner = self.learner
        rest = max(0.0, learner.owed - AT_ONCE)
        learner.owed -= rest
        found = [learner.algorithm.update(batch) for batch in batches(learner)]
        learner.owed += rest
        self.changed = self.changed or bool(found)
        return found

    def _publish(self, moved: bool) -> None:
        if time.monotonic() - self.published_at >= self.publish_s and (moved or self.changed):
            self.published, self.published_at, self.changed = self._weights(), time.monotonic(), False

    def _weights(self) -> Published:
        learner = self.learner
        random = learner.update < learner.config.warmup
        return publish(learner.algorithm.actor, learner.normalizers["actor"], learner.algorithm.updates, random,
                       self.digest)


def _remember(replay: Replay, episode: Episode, t: int, ended: bool) -> None:
    """Add step ``t`` of an episode. ``ended``: none that follows it is added after it."""
    terminated = t == episode.steps - 1 and episode.terminated

    def row(values: np.ndarray, k: int) -> Tensor:
        return torch.from_numpy(values[k : k + 1])

    def seen(k: int, names: Iterable[str]) -> Obs:
        nothing = torch.zeros(1, 0)
        return Obs(nothing, nothing, {name: row(episode.signals[name], k) for name in names})

    if (kept := replay.pictures) is not None:
        kept.add(seen(t, kept.table), seen(t + 1, kept.table), torch.tensor([ended and not terminated]))
    replay.add(row(episode.obs, t), row(episode.action, t), row(episode.reward, t), row(episode.obs, t + 1),
               torch.tensor([float(terminated)]), torch.tensor([float(ended)]))


def _ends(steps: int) -> list[bool]:
    return [False] * (steps - 1) + [True]


def _with_room(learner: Learner) -> Replay:
    """The demonstrations of a dataset, with room for interventions: as much whatever the budget is, which may be
    raised; zeros where nothing is, as older checkpoints say."""
    given, replay = learner.demonstrations, learner.replay
    times = (given.times if given is not None else 0) + min(BY_HAND, learner.config.size)
    state = replay.pair.shape[2] - learner.sizes.action_dim
    found = Replay(times, 1, state, learner.sizes.action_dim, learner.sizes.pictures)
    for table in (found.pair, found.after, found.told, found.error):
        table.zero_()
    found.bonus = learner.config.demonstration_bonus or 0.0
    if given is not None:
        found.load_state_dict(given.state_dict())
    return found
