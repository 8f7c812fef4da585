"""Success by a classifier: trained from simulated episodes it ends and rewards those of an actor, where it fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.policies.robot_learning.test_actor import JOINTS, REFRESHER, STEPS, TASK, Arm, acted
from tests.policies.toy_demonstrations import episodes
from tests.policies.toy_progress import judged

from temporeal.policies.cli.main import main
from temporeal.policies.data.demonstrators.arms import reach
from temporeal.policies.data.episodes.interface import ActionSpec, Interface
from temporeal.policies.progress import success_classifier as classifier
from temporeal.policies.robot_learning import success
from temporeal.policies.robot_learning.acting.actor import Actor
from temporeal.policies.robot_learning.acting.interventions import Heard
from temporeal.policies.robot_learning.acting.run import judge_for, sizes_of
from temporeal.policies.robot_learning.acting.spool import Spool
from temporeal.policies.robot_learning.simulated import open_simulation
from temporeal.policies.robot_learning.success import ByProgress, require_learned_there, require_signals
from temporeal.policies.robot_learning.wire.episodes import from_message
from temporeal.policies.robot_learning.wire.messages import decode
from temporeal.policies.robot_learning.wire.weights import Policy
from temporeal.policies.robot_learning.words import actor_words, learner_words
from temporeal.policies.robot_learning.world import Pacer
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.signals import schema
from temporeal.sim.task import MISSION_TIME

FAR = 0.2  # rad, of a joint that moves 0.05 a step


class Goes:
    """A person who moves all joints to ``goal``, or holds them still."""

    words = ""

    def __init__(self, goal: np.ndarray) -> None:
        self.goal = goal

    def __call__(self, signals: Any, proposed: np.ndarray) -> Heard:
        return Heard(command=self.goal)

    def begin(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> classifier.SuccessClassifier:
    """Of an arm whose joints come to where they are done, or wander where they began."""
    rng, first = np.random.default_rng(0), Arm().first
    good = np.arange(30) % 2 == 0
    moved = np.clip(np.arange(STEPS + 1) * 0.05, 0.0, FAR)[None, :, None] * good[:, None, None]
    place = (first + moved + 0.01 * rng.normal(size=(30, STEPS + 1, JOINTS))).astype(np.float32)
    data = judged(episodes({"joint_pos": place}, np.zeros((30, STEPS, JOINTS)), TASK.schema["joint_pos"],
                           dt=TASK.control_dt), good.tolist())
    data = replace(data, interface=replace(data.interface, robot=TASK.robot.name))
    out = tmp_path_factory.mktemp("classifier")
    config = classifier.SuccessConfig(updates=80, report_updates=80, batch=32, context=32, learning_rate=3e-3,
                                      average=0.9, ends=4, in_a_row=3)
    classifier.train(data, config, out=out, seed=0)
    return classifier.load_progress(out)


def judge_by(model: classifier.SuccessClassifier) -> ByProgress:
    assert model.chosen is not None
    return ByProgress(model, model.chosen.value, model.chosen.in_a_row)


def test_a_classifier_ends_and_rewards_episodes(trained: classifier.SuccessClassifier, tmp_path: Path) -> None:
    goal = Arm().first + np.float32(FAR)
    actor, (done,) = acted(tmp_path / "done", Arm(most=0.05), judge=judge_by(trained), intervention=Goes(goal))
    assert done.success and done.terminated and done.steps < STEPS and actor.tally.successes == 1
    assert done.reward.tolist() == [0.0] * (done.steps - 1) + [1.0]
    values = trained.values({"joint_pos": torch.from_numpy(done.signals["joint_pos"])})
    assert trained.chosen is not None and bool((values[-3:] >= trained.chosen.value).all()), "three in a row"
    assert not bool((values[-4:-1] >= trained.chosen.value).all()), "and not before"
    actor, (failed,) = acted(tmp_path / "failed", Arm(most=0.05), judge=judge_by(trained),
                             intervention=Goes(Arm().first))
    assert failed.success is False and failed.steps == STEPS and not failed.reward.any()


def test_a_classifier_of_another_robot_rate_or_signal_is_refused(trained: classifier.SuccessClassifier) -> None:
    judge, there, robot = judge_by(trained), {"joint_pos": TASK.schema["joint_pos"]}, TASK.robot.name
    rate = 1.0 / TASK.control_dt
    require_learned_there(judge, robot, rate, there, "the world")
    for other, said in ((("linear", rate, there), "robot: 'franka' is needed, 'linear' is there"),
                        ((robot, 2 * rate, there), "rate_hz: "),
                        ((robot, rate, {}), "signal joint_pos is missing"),
                        ((robot, rate, {"joint_pos": replace(there["joint_pos"], shape=(6,))}),
                         r"signal joint_pos, shape: \(7,\) is needed, \(6,\) is there")):
        with pytest.raises(BadInput, match=f"the model does not fit the world: .*{said}"):
            require_learned_there(judge, *other, "the world")
    require_learned_there(ByProgress(SimpleNamespace(names=()), 0.9), robot, rate, {}, "the world")  # type: ignore


BASE = ["task=reach", "algo=rlpd", "algo.warmup=0"]


def test_both_sides_agree_on_the_threshold_of_a_model_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """As before there were classifiers: where it is told, the learner needs no model."""
    told = actor_words([*BASE, "token=t", "success=RUN", "threshold=0.9"]).common.agreed.judged
    assert told == {"reward": "success", "success": "progress", "threshold": 0.9}
    with pytest.raises(BadInput, match="success=ELSEWHERE: formula, operator, or the folder of a run"):
        learner_words([*BASE, "success=ELSEWHERE"])
    monkeypatch.setattr(success, "learned", lambda word: SimpleNamespace(names=()))
    assert learner_words([*BASE, "success=ELSEWHERE"]).common.agreed.judged == told


def test_a_classifier_that_reads_the_time_fits_a_world_that_does_not_measure_it() -> None:
    """The actor counts it."""
    there = {"joint_pos": TASK.schema["joint_pos"]}
    interface = Interface(TASK.robot.name, schema(*there.values(), MISSION_TIME), ActionSpec("torque", (-1.0,), (1.0,)),
                          1.0 / TASK.control_dt)
    judge = ByProgress(SimpleNamespace(names=tuple(interface.signals), interface=interface), 0.9)  # type: ignore
    for shown in (there, {**there, MISSION_TIME.name: MISSION_TIME}):
        require_learned_there(judge, TASK.robot.name, interface.rate_hz, shown, "the world")
    with pytest.raises(BadInput, match="signal joint_pos is missing$"):
        require_learned_there(judge, TASK.robot.name, interface.rate_hz, {}, "the world")


def test_a_classifier_of_the_time_judges_in_simulation() -> None:
    common = actor_words(["task=joint_target", "algo=sac", "token=t"]).common
    specs = (common.task.schema["joint_pos"], MISSION_TIME)
    model = classifier.SuccessClassifier(specs, classifier.SuccessConfig(context=16)).eval()
    model.interface = Interface(common.task.robot.name, schema(*specs), ActionSpec("torque", (-1.0,), (1.0,)),
                                1.0 / common.task.control_dt)
    judge, world = ByProgress(model, 0.0, 1), open_simulation(common.settings, common.task, model.names)
    require_signals(judge, world.signals)
    require_learned_there(judge, world.robot.name, 1.0 / world.period_s, world.signals, "the world")
    judge.begin()
    assert judge.update({**world.reset().signals, MISSION_TIME.name: np.asarray(0.1, np.float32)}) is True
    world.close()


class Does:
    """A person who gives the action of ``of`` signals."""

    words = ""

    def __init__(self, of: Callable[[Any], torch.Tensor]) -> None:
        self.of = of

    def __call__(self, signals: Any, proposed: np.ndarray) -> Heard:
        seen = {name: torch.from_numpy(value)[None] for name, value in signals.items()}
        return Heard(action=self.of(seen)[0].numpy())

    def begin(self) -> None:
        pass

    def close(self) -> None:
        pass


LOW = 0.4  # m


@pytest.mark.slow
def test_from_a_simulated_set_to_episodes_of_the_simulation(tmp_path: Path) -> None:
    """Commands alone make the set and the classifier. The expert by hand goes to goals at any height, and what counts
    is that the tool is low: of successes and failures alike the classifier says what the formula would."""
    words = ["task=reach", f'task.settings.formula="F[0,3] (grip_pos_w.z < {LOW})"']
    assert main(["data", "generate", *words, "quality=expert", "episodes=60", "seed=1", f"out={tmp_path / 'set'}"]) == 0
    assert main(["train", "algo=success_classifier", *words, f"dataset={tmp_path / 'set'}", f"out={tmp_path / 'run'}",
                 "algo.signals=[grip_pos_w,joint_pos]", "algo.updates=600"]) == 0
    asked = actor_words([*words, "algo=rlpd", "algo.warmup=0", "token=t", f"success={tmp_path / 'run'}"])
    common, judge = asked.common, judge_for(asked)
    world = open_simulation(common.settings, common.task, judge.names)
    world.pacer = Pacer(world.period_s, sleep=lambda seconds: None)
    require_learned_there(judge, world.robot.name, 1.0 / world.period_s, world.signals, "the world")
    policy = Policy(common.build, sizes_of(asked), common.config, 0, common.agreed.digest())
    expert, spool = reach(common.task, 1), Spool(tmp_path)
    person = Does(lambda signals: expert(signals, torch.ones(1)))
    Actor(world, common.task, policy, judge, spool, common.agreed, REFRESHER, intervention=person,
          tell=lambda text: None).run(world.reset, 16, [])
    world.close()
    made = [from_message(decode(spool.bytes_of(one), "spool", "episode"), common.agreed, "spool")
            for one in spool.waiting()]
    for one in made:
        paid = [0.0] * (one.steps - 1) + [float(bool(one.success))]
        assert one.reward.tolist() == paid and one.terminated == one.success
    right = [one.success == bool(one.signals["grip_pos_w"][:, 2].min() < LOW) for one in made]
    assert sum(right) >= 14 and len({one.success for one in made}) == 2
