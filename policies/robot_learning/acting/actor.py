"""The actor: acts on a robot at its control rate, whatever learner and network do, and keeps what it did on its disk.

A control step takes a sample, asks the policy, then the person, sends the command and waits for the next sample. All
that may wait is elsewhere: delivery and fetching are the courier's process, new weights are unpacked by a thread, and
an episode is written between episodes. O observation, A action, U command.
"""

from __future__ import annotations

import gc
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.data.recording.controls import DISCARD, END, FAILURE, QUIT, SUCCESS
from temporeal.policies.robot_learning.acting.spool import Spool, new_id
from temporeal.policies.robot_learning.sight import looked_at
from temporeal.policies.robot_learning.success import Judge
from temporeal.policies.robot_learning.wire.agreement import Agreement
from temporeal.policies.robot_learning.wire.episodes import GREATEST, Episode, require_range, to_message
from temporeal.policies.robot_learning.wire.messages import MessageError, encode
from temporeal.policies.robot_learning.wire.weights import Policy
from temporeal.policies.robot_learning.world import RobotWorld, Sample
from temporeal.policies.runs.errors import BadInput
from temporeal.sim.maps import Memory, initial_memory
from temporeal.sim.task import MISSION_TIME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from temporeal.policies.data.objective_rewards import StepRewards
    from temporeal.policies.robot_learning.acting.interventions import Heard, Intervention
    from temporeal.policies.robot_learning.acting.refresher import Refresher
    from temporeal.sim.task import Task

MIB = 1 << 20
LEAST_FREE = 64 * MIB  # bytes of the actor's disk, and of twice the longest episode: with less none begins
SAME = 1e-5  # of a command's range: less than this is no change, as in temporeal.robots.motion.shield.clamp


@dataclass
class Rows:
    """The open episode: lists that grow by a step at a time. ``late``: cycles."""

    obs: list[np.ndarray] = field(default_factory=list)
    signals: list[Mapping[str, np.ndarray]] = field(default_factory=list)
    action: list[np.ndarray] = field(default_factory=list)
    proposed: list[np.ndarray] = field(default_factory=list)
    command: list[np.ndarray] = field(default_factory=list)
    intervened: list[bool] = field(default_factory=list)
    late: int = 0
    changed: int = 0


@dataclass(frozen=True)
class Ending:
    """How an episode ended. ``kept``: it is learned from; ``quit``: no other one follows."""

    success: bool | None
    terminated: bool
    why: str
    kept: bool = True
    quit: bool = False


@dataclass
class Tally:
    """What was done so far. ``late`` of ``cycles``; ``changed``: commands that guard or limits made another."""

    episodes: int = 0
    discarded: int = 0
    successes: int = 0
    judged: int = 0
    cycles: int = 0
    late: int = 0
    changed: int = 0
    interventions: int = 0


class Actor:
    """Acts in ``world`` on ``task``, whose observation and action maps it runs itself.

    Args:
        reward: of an episode's signals and actions by the task's objective; None: 1 at success, else 0.
        intervention: the person beside the robot; None: nobody is there.
        refresher: brings new weights. tell: says what happened.
    """

    def __init__(
        self, world: RobotWorld, task: Task, policy: Policy, judge: Judge, spool: Spool, agreed: Agreement,
        refresher: Refresher, *, intervention: Intervention | None = None, reward: StepRewards | None = None,
        tell: Callable[[str], None] = print,
    ) -> None:
        self.world, self.task, self.policy, self.judge, self.spool = world, task, policy, judge, spool
        self.agreed, self.digest, self.refresher = agreed, agreed.digest(), refresher
        self.intervention, self.reward, self.tell, self.tally = intervention, reward, tell, Tally()
        self.observe: Any = task.observe
        spec = task.robot.command(task.command)
        self.low, self.high = np.asarray(spec.low, np.float32), np.asarray(spec.high, np.float32)

    def run(self, begin: Callable[[], Sample | None], episodes: int | None, asked: list[int]) -> Tally:
        """Episodes until there are as many, the operator quits, or a stop is ``asked``.

        ``begin``: makes the robot ready, and gives the first sample; None: the operator quits.
        """
        self.warm()
        while not asked and (episodes is None or self.tally.episodes < episodes):
            self.refresher.check()
            self.require_room()
            with undisturbed():  # from before the first sample: cycles begin with it
                first = begin()
                if first is None:
                    break
                rows, ending = self.episode(first, asked)
            self.world.hold()
            self.finish(rows, ending)
            if ending.quit:
                break
        return self.tally

    def require_room(self) -> None:
        """Refuse to begin an episode that the disk may not take."""
        free, least = shutil.disk_usage(self.spool.folder).free, max(LEAST_FREE, 2 * self.agreed.largest)
        if free < least:
            raise BadInput(f"{self.spool.folder} has {free / MIB:,.0f} MiB free, and no episode begins with less than "
                           f"{least / MIB:,.0f}; {len(self.spool.waiting())} episodes wait there for the learner: make "
                           "room, and begin again with the same words")

    @torch.no_grad()
    def warm(self) -> None:
        """Go through observation, policy, action and verdict once: what is compiled then is not compiled in a cycle."""
        nothing = {name: np.zeros(spec.shape, spec.dtype) for name, spec in self.world.signals.items()}
        rows, sample = Rows(), Sample(nothing)
        memory = self.see(sample, rows, initial_memory(self.observe, 1))
        action = self.proposed(rows)
        self.task.act(action, {**memory, **self.observe.record(memory, action)})
        self.judge.begin()
        if self.judge.names:
            self.judge.update(self.timed(sample, 0))

    @torch.no_grad()
    def episode(self, first: Sample, asked: list[int]) -> tuple[Rows, Ending]:
        """Act until the episode ends."""
        rows = Rows()
        memory = self.start(first, rows)
        self.judge.update(self.timed(first, 0))  # of a start at which it is done already: a step is taken
        while True:
            if not (np.abs(rows.obs[-1]) <= GREATEST).all():
                return rows, Ending(None, False, f"what is measured is not finite, or beyond {GREATEST:g}", kept=False)
            self.refresher.put()
            proposed = self.proposed(rows)
            heard = self.hear(rows, proposed)
            if heard is not None and (ending := told(heard, self.judge)) is not None:
                return rows, ending
            memory, sample = self.act(rows, memory, proposed, heard)
            verdict = self.judge.update(self.timed(sample, len(rows.action)))
            if (end := self.ended(rows, sample, verdict)) is not None:
                return rows, end
            if asked:
                return rows, Ending(None, False, "stopped", kept=False, quit=True)

    def start(self, first: Sample, rows: Rows) -> Memory:
        """The first sample: nothing is remembered of what was before."""
        self.judge.begin()
        if self.intervention is not None:
            self.intervention.begin()
        memory = initial_memory(self.observe, 1)
        return self.see(first, rows, memory)

    def see(self, sample: Sample, rows: Rows, memory: Memory) -> Memory:
        """Enter a sample, and what the policy is shown of it."""
        timed = self.timed(sample, len(rows.action))
        obs, memory = self.observe({name: torch.from_numpy(np.asarray(timed[name]))[None]
                                    for name in self.observe.signals}, memory)
        rows.obs.append(obs[0].numpy().astype(np.float32))
        rows.signals.append(sample.signals)
        return memory

    def timed(self, sample: Sample, step: int) -> dict[str, np.ndarray]:
        """The sample with the mission's time, which the actor counts."""
        return {**sample.signals, MISSION_TIME.name: np.asarray(step * self.task.control_dt, np.float32)}

    def proposed(self, rows: Rows) -> Tensor:
        """The policy's action [1, A] at the newest sample."""
        return self.policy(torch.from_numpy(rows.obs[-1])[None], looked_at(rows.signals[-1], self.agreed.pictures))

    def hear(self, rows: Rows, proposed: Tensor) -> Heard | None:
        """What the person does."""
        if self.intervention is None:
            return None
        return self.intervention(rows.signals[-1], proposed[0].numpy())

    def act(self, rows: Rows, memory: Memory, proposed: Tensor, heard: Heard | None) -> tuple[Memory, Sample]:
        """Send the command of the policy or of the person; enter what was executed."""
        intervenes = heard is not None and heard.intervenes
        if heard is not None and heard.action is not None:
            proposed = torch.from_numpy(np.asarray(heard.action, np.float32))[None]
        if heard is not None and heard.command is not None:  # approached as fast as actions can, which are learned
            proposed = self.inverse(np.clip(np.asarray(heard.command, np.float32), self.low, self.high), memory)
        command = self.task.act(proposed, {**memory, **self.observe.record(memory, proposed)})[0].numpy()
        sample = self.world.step(command)
        executed = command if sample.command is None else np.asarray(sample.command, np.float32).reshape(-1)
        action, changed = proposed, bool((np.abs(executed - command) > SAME * (self.high - self.low)).any())
        if changed:
            action = self.inverse(executed, memory)
        memory = {**memory, **self.observe.record(memory, action)}
        rows.action.append(action[0].numpy().copy())
        rows.proposed.append(proposed[0].numpy().copy())
        rows.command.append(executed)
        rows.intervened.append(intervenes)
        rows.late += sample.late
        rows.changed += changed
        return self.see(sample, rows, memory), sample

    def inverse(self, command: np.ndarray, memory: Memory) -> Tensor:
        """The action [1, A] whose command is ``command`` [U], as near as actions come to it."""
        found = self.task.act.inverse(torch.from_numpy(command)[None], memory)
        return found.clamp(-1.0, 1.0).float()

    def ended(self, rows: Rows, sample: Sample, verdict: bool | None) -> Ending | None:
        """Whether the episode ends at this sample."""
        if sample.failed:
            return Ending(False if verdict is None else verdict, True, sample.failed)
        if verdict is not None:
            over = verdict or self.task.finite or len(rows.action) < self.agreed.steps
            return Ending(verdict, over, "success" if verdict else "it can no longer succeed")
        if len(rows.action) >= self.agreed.steps:
            success = self.judge.finish()
            return Ending(success, bool(success) or self.task.finite, "time is over")
        return None

    def finish(self, rows: Rows, ending: Ending) -> None:
        """Keep the episode on the disk, and count it."""
        tally, steps = self.tally, len(rows.action)
        tally.cycles, tally.late, tally.changed = tally.cycles + steps, tally.late + rows.late, (
            tally.changed + rows.changed)
        if not ending.kept or not steps:
            tally.discarded += 1
            self.tell(f"an episode of {steps} steps is dropped: {ending.why if not ending.kept else 'no step'}")
            return
        episode = self.made(rows, ending)
        try:
            require_range(episode, self.agreed, "the actor")
            self.spool.keep(episode.id, encode(to_message(episode)))
        except (MessageError, OSError) as error:
            tally.discarded += 1
            self.tell(f"DROPPED: a finished episode of {steps} steps ({ending.why}) is not kept and not learned from: "
                      f"{error}")
            return
        tally.episodes += 1
        tally.interventions += int(sum(rows.intervened))
        tally.judged += ending.success is not None
        tally.successes += bool(ending.success)
        self.tell(f"episode {tally.episodes}, {episode.id}: {episode.steps} steps, {ending.why}; late cycles "
                  f"{rows.late}; by hand {int(sum(rows.intervened))}; weights of {episode.updates} updates")

    def made(self, rows: Rows, ending: Ending) -> Episode:
        """The episode as it is delivered."""
        signals = {name: np.stack([np.asarray(sample[name], spec.dtype).reshape(spec.shape) for sample in rows.signals])
                   for name, spec in self.agreed.interface.signals.items()}
        action, steps, terminated = np.stack(rows.action), len(rows.action), ending.terminated
        reward = np.zeros(steps, np.float32)
        if self.reward is not None:
            reward, steps, terminated = self.earned(signals, action, ending)
        elif ending.success:
            reward[-1] = 1.0
        return Episode(
            new_id(), self.digest, np.stack(rows.obs[: steps + 1]), action[:steps], np.stack(rows.proposed[:steps]),
            np.stack(rows.command[:steps]).astype(np.float32), reward[:steps],
            np.array(rows.intervened[:steps], np.uint8), {k: v[: steps + 1] for k, v in signals.items()}, terminated,
            ending.success, self.policy.updates, rows.late)

    def earned(self, signals: Mapping[str, np.ndarray], action: np.ndarray, ending: Ending
               ) -> tuple[np.ndarray, int, bool]:
        """The task's rewards [T], the steps until it says that the episode is over, and whether it does."""
        assert self.reward is not None
        time_s = np.arange(len(action) + 1, dtype=np.float32) * np.float32(self.task.control_dt)
        padded = torch.from_numpy(np.concatenate([action, action[-1:]]))[:, None]
        found, over = self.reward({**{name: torch.from_numpy(value)[:, None] for name, value in signals.items()},
                                   MISSION_TIME.name: torch.from_numpy(time_s)[:, None]}, padded)
        first = over[:-1, 0].nonzero()
        steps = int(first[0]) + 1 if len(first) else len(action)
        return found[:-1, 0].numpy().astype(np.float32), steps, bool(len(first)) or ending.terminated


def told(heard: Heard, judge: Judge) -> Ending | None:
    """What the operator says of the episode."""
    for event in heard.events:
        if event in (SUCCESS, FAILURE):
            return Ending(event == SUCCESS, True, f"{event}, says the operator")
        if event == END:
            success = judge.finish()
            return Ending(success, bool(success), "ended by the operator")
        if event in (DISCARD, QUIT):
            return Ending(None, False, "as the operator asked", kept=False, quit=event == QUIT)
    return None


@contextmanager
def undisturbed() -> Iterator[None]:
    """Inside, no garbage is collected: a collection takes as long as a control step."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def wait_for_weights(refresher: Refresher, policy: Policy, asked: list[int], tell: Callable[[str], None]) -> bool:
    """Wait for the first weights; whether they came."""
    since, told_at = time.monotonic(), 0.0
    while not policy.ready and not asked:
        refresher.check()
        refresher.put()
        if time.monotonic() - since > told_at + 5.0 and not policy.ready:
            told_at = time.monotonic() - since
            tell(f"waiting for the learner's first weights: {refresher.trouble() or 'asking'}")
        time.sleep(0.05)
    return policy.ready
