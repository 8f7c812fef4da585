"""A run of ``temporeal actor``: its world, its policy, its person, its courier."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from temporeal.policies.robot_learning.acting import courier
from temporeal.policies.robot_learning.acting.actor import Actor, Tally, wait_for_weights
from temporeal.policies.robot_learning.acting.interventions import Intervention, intervention_of
from temporeal.policies.robot_learning.acting.refresher import Refresher, real_time
from temporeal.policies.robot_learning.acting.spool import Spool
from temporeal.policies.robot_learning.resets import Begin, by_asking, second_policy
from temporeal.policies.robot_learning.success import judge_of, require_learned_there, require_signals
from temporeal.policies.robot_learning.wire.agreement import UNCORRECTED, differences
from temporeal.policies.robot_learning.wire.security import security
from temporeal.policies.robot_learning.wire.weights import Policy
from temporeal.policies.runs.errors import BadInput, bad_input

if TYPE_CHECKING:
    from temporeal.policies.robot_learning.success import Judge
    from temporeal.policies.robot_learning.words import ActorWords
    from temporeal.policies.robot_learning.world import RobotWorld

FIFO_PRIORITY = 10  # below a guard's and a controller's
SWITCH_S = 5e-4  # s: longest wait for the other thread's hold of the interpreter; python's own is ten times that


@dataclass(frozen=True)
class Acted:
    """What an actor did. ``waiting``: episodes that no learner has yet."""

    tally: Tally
    waiting: int
    refused: int

    def to_json(self) -> dict[str, Any]:
        """For --json."""
        found = asdict(self.tally)
        return {**found, "late_share": self.tally.late / max(self.tally.cycles, 1), "waiting": self.waiting,
                "refused": self.refused}


def act(
    words: ActorWords, world: RobotWorld, judge: Judge, *, asked: list[int], tell: Callable[[str], None] = print,
    intervention: Intervention | None = None,
) -> Acted:
    """Act in ``world``, which is closed at the end, until as many episodes are made, or a stop is ``asked``.

    ``intervention``: in place of the device that is asked for, as a test's double.
    """
    try:
        return acted(words, world, judge, asked, tell, intervention)
    finally:
        world.close()


def acted(
    words: ActorWords, world: RobotWorld, judge: Judge, asked: list[int], tell: Callable[[str], None],
    intervention: Intervention | None,
) -> Acted:
    """See :func:`act`."""
    import torch

    torch.set_num_threads(1)  # of networks this small more threads only wait for each other, and one may come late
    common = words.common
    spool = Spool(words.folder)
    spool.hold()
    assert common.token is not None
    security(words.connect, common.token, common.tls, common.plaintext)
    require_world(world, words)
    require_signals(judge, world.signals)
    require_learned_there(judge, world.robot.name, 1.0 / world.period_s, world.signals, "the world")
    spool.begin(common.agreed.plain(), common.agreed.digest())
    policy = Policy(common.build, sizes_of(words), common.config, common.settings["seed"], common.agreed.digest(),
                    words.explore)
    person = intervention or intervention_of(words.intervene, common.task, words.speed, words.leader, words.interface,
                                             words.domain)
    token, tls = common.token, common.tls
    refresher = Refresher(spool, policy, lambda: courier.start(words.folder, words.connect, token, tls,
                                                               words.weights_s), tell)
    try:
        if person is not None and person.words:
            tell(person.words)
        actor = Actor(world, common.task, policy, judge, spool, common.agreed, refresher, intervention=person,
                      reward=rewards(words), tell=tell)
        if wait_for_weights(refresher, policy, asked, tell):
            take_priority(words.priority, refresher)
            actor.run(beginning(words, world, person, tell), words.episodes, asked)
        tally = actor.tally
    finally:
        refresher.close(words.deliver_s)
        if person is not None:
            person.close()
    return Acted(tally, len(spool.waiting()), spool.state().refused)


def take_priority(kind: str, refresher: Refresher) -> None:
    """Give this thread, the control loop, real-time priority: it waits for nobody who computes; and the thread that it
    shares the interpreter with. The courier keeps its own."""
    sys.setswitchinterval(SWITCH_S)
    if kind == "normal":
        return
    try:
        real_time(FIFO_PRIORITY)
        refresher.ahead = FIFO_PRIORITY - 1
    except (AttributeError, OSError) as error:
        if kind == "realtime":
            raise BadInput(f"priority=realtime: {error}; allow it (rtprio in /etc/security/limits.conf), or "
                           "priority=normal") from error


def beginning(
    words: ActorWords, world: RobotWorld, person: Intervention | None, tell: Callable[[str], None]
) -> Begin:
    """How episodes begin."""
    task = words.common.task
    if words.reset == "world":
        return world.reset
    asking = by_asking(world, person, task.act.action_dim, tell)
    if words.reset == "ask":
        return asking
    from pathlib import Path

    simulated = hasattr(world, "resume")
    return second_policy(Path(words.reset), words.reset_formula, words.reset_s, world, task,
                         world.reset if simulated else asking, tell)


def require_world(world: RobotWorld, words: ActorWords) -> None:
    """Refuse a world that is not the task's, or of another correction than was agreed on, by names."""
    task, agreed = words.common.task, words.common.agreed
    interface, correction = agreed.interface, getattr(world, "correction", UNCORRECTED)
    if found := list(differences(agreed.correction, correction, "correction", ("actor and learner", "the world"))):
        raise BadInput(f"the world does not move the robot as was agreed: {'; '.join(found)}")
    for name, mine, theirs in (("robot", task.robot.name, world.robot.name), ("command", task.command, world.command)):
        if mine != theirs:
            raise BadInput(f"the task's {name} is {mine}, the world's {theirs}")
    if abs(world.period_s / task.control_dt - 1.0) > 1e-6:
        raise BadInput(f"the task's control period is {task.control_dt:g} s, the world's {world.period_s:g} s")
    if missing := [name for name in interface.signals if name not in world.signals]:
        raise BadInput(f"policy and formula read {', '.join(missing)}, which the world does not measure; it measures: "
                       f"{', '.join(world.signals)}")
    for name, spec in interface.signals.items():
        if (measured := world.signals[name]).shape != spec.shape or measured.unit != spec.unit:
            raise BadInput(f"signal {name} is {list(spec.shape)} {spec.unit} to the task, {list(measured.shape)} "
                           f"{measured.unit} of the world")


def sizes_of(words: ActorWords) -> Any:
    """Of the policy's networks."""
    from temporeal.policies.nets.seeing_policy import places
    from temporeal.policies.training.off_policy.critics import Sizes

    agreed = words.common.agreed
    seen, pictures = agreed.observation, agreed.pictures
    return Sizes(seen, seen, agreed.interface.task_action, pictures, places(pictures, words.common.config.keypoints))


def rewards(words: ActorWords) -> Any:
    """The task's own rewards, where these are asked for; else None."""
    from temporeal.policies.data.objective_rewards import by

    return by(words.common.task.objective) if words.common.reward == "task" else None


def judge_for(words: ActorWords) -> Judge:
    """Who judges success."""
    with bad_input():
        return judge_of(words.common.success, words.common.threshold, words.common.task)
