"""The actor's loop on a robot that is a double: what is executed is what is learned from, and how episodes end."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from temporeal.policies.algos.sac import SAC, SACConfig
from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.recording.controls import DISCARD, LAYOUTS, QUIT, SUCCESS, Controls
from temporeal.policies.data.recording.operators import Scripted, Wish
from temporeal.policies.robot_learning import resets
from temporeal.policies.robot_learning.acting.actor import LEAST_FREE, Actor, undisturbed
from temporeal.policies.robot_learning.acting.interventions import ByHand, ByOperator, Heard, moves
from temporeal.policies.robot_learning.acting.run import require_world
from temporeal.policies.robot_learning.acting.spool import Spool
from temporeal.policies.robot_learning.success import ByFormula, ByProgress
from temporeal.policies.robot_learning.success import ByOperator as ByKeys
from temporeal.policies.robot_learning.wire.agreement import agreement
from temporeal.policies.robot_learning.wire.episodes import Episode, from_message
from temporeal.policies.robot_learning.wire.messages import MessageError, decode
from temporeal.policies.robot_learning.wire.weights import Policy, publish
from temporeal.policies.robot_learning.world import Pacer, Sample
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.training.off_policy.critics import Sizes
from temporeal.sim.maps import initial_memory
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.task import Task, load_task

CONFIG = SACConfig(hidden=(8, 8), warmup=0)
TASK = load_task("joint_target")
SETTINGS = {"task": {"name": "joint_target", "robot": "franka", "settings": {}}, "algo": {"name": "sac"}}
JOINTS, STEPS = 7, 12


def agreed(task: Task = TASK, steps: int = STEPS) -> Any:
    return agreement(task, SETTINGS, CONFIG, {"reward": "success", "success": "formula"}, steps)


@dataclass
class Arm:
    """An arm that is where it is told, at once; a guard lets its joints move by ``most`` rad a step."""

    most: float = np.inf
    fails_at: int = -1
    goal: float = 0.2
    robot: Any = TASK.robot
    command: str = TASK.command
    period_s: float = TASK.control_dt
    name: str = "double"
    sent: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.signals = {name: TASK.schema[name] for name in TASK.observe.signals}
        self.at = np.asarray(TASK.robot.home["joint_pos"], np.float32)[:JOINTS] if "joint_pos" in (
            TASK.robot.home) else np.zeros(JOINTS, np.float32)
        self.first = self.at.copy()

    def reset(self) -> Sample:
        self.at = self.first.copy()
        return Sample(self.measured())

    def measured(self) -> dict[str, np.ndarray]:
        return {"joint_pos": self.at.copy(), "joint_vel": np.zeros(JOINTS, np.float32),
                "goal_joint_pos": self.first + np.float32(self.goal)}

    def step(self, command: np.ndarray) -> Sample:
        self.sent.append(command)
        self.at = np.clip(command, self.at - self.most, self.at + self.most).astype(np.float32)
        failed = "it fell" if len(self.sent) == self.fails_at else ""
        changed = "" if np.array_equal(self.at, command) else "too fast"
        return Sample(self.measured(), self.at.copy(), changed, failed, 2)

    def hold(self) -> None:
        pass

    def close(self) -> None:
        pass


REFRESHER: Any = SimpleNamespace(put=lambda: None, check=lambda: None)


def policy(seed: int = 5, **words: Any) -> Policy:
    torch.manual_seed(seed)
    made = Policy(SAC, Sizes(TASK.observe.obs_dim, TASK.observe.obs_dim, JOINTS), CONFIG, seed, agreed().digest(),
                  **words)
    made.random = False
    return made


def acted(tmp_path: Path, world: Any, count: int = 1, *, judge: Any = None, task: Task = TASK, **parts: Any
          ) -> tuple[Actor, list[Episode]]:
    """The actor after ``count`` episodes, and these as the learner reads them."""
    spool = Spool(tmp_path)
    actor = Actor(world, task, parts.pop("policy", None) or policy(), judge or ByKeys(), spool, agreed(task), REFRESHER,
                  tell=lambda text: None, **parts)
    actor.run(world.reset, count, [])
    return actor, [from_message(decode(spool.bytes_of(one), "spool", "episode"), agreed(task), "spool")
                   for one in spool.waiting()]


def seen_again(one: Episode) -> np.ndarray:
    """What the observation map shows of an episode's signals and executed actions, [T + 1, O]."""
    memory, found = initial_memory(TASK.observe, 1), []
    for t in range(one.steps + 1):
        signals = {name: torch.from_numpy(value[t])[None] for name, value in one.signals.items()}
        obs, memory = TASK.observe(signals, memory)
        found.append(obs[0].numpy())
        if t < one.steps:
            memory = {**memory, **TASK.observe.record(memory, torch.from_numpy(one.action[t])[None])}
    return np.stack(found)


def commands_of(one: Episode) -> np.ndarray:
    """The commands [T, U] that an episode's actions mean."""
    memory, found = initial_memory(TASK.observe, 1), []
    for t in range(one.steps):
        signals = {name: torch.from_numpy(value[t])[None] for name, value in one.signals.items()}
        _, memory = TASK.observe(signals, memory)
        action = torch.from_numpy(one.action[t])[None]
        memory = {**memory, **TASK.observe.record(memory, action)}
        found.append(TASK.act(action, memory)[0].numpy())
    return np.stack(found)


def test_what_the_guard_executed_is_what_the_learner_sees(tmp_path: Path) -> None:
    free, (untouched,) = acted(tmp_path / "free", Arm())
    assert np.array_equal(untouched.action, untouched.proposed) and free.tally.changed == 0
    slow, (held,) = acted(tmp_path / "held", Arm(most=0.01))
    assert slow.tally.changed > 0 and np.abs(held.action - held.proposed).max() > 0.05
    for one in (untouched, held):
        assert np.allclose(seen_again(one), one.obs, atol=1e-6)
        assert np.allclose(commands_of(one), one.command, atol=1e-5), "the action means the command that was executed"
    moved = np.diff(np.concatenate([held.signals["joint_pos"][:1], held.command]), axis=0)
    assert np.abs(moved).max() <= 0.01 + 1e-6


def test_late_cycles_are_counted_and_told(tmp_path: Path) -> None:
    actor, (one,) = acted(tmp_path, Arm())
    assert actor.tally.cycles == one.steps == STEPS and actor.tally.late == one.late == 2 * STEPS


def test_garbage_is_collected_before_the_first_sample_and_never_in_a_cycle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection takes as long as many cycles: after the first sample all of them would be late."""
    done, world = list[str](), Arm()
    monkeypatch.setattr("gc.collect", lambda: done.append("collect"))

    def noted(name: str, of: Callable[..., Sample]) -> Callable[..., Sample]:
        def call(*words: Any) -> Sample:
            done.append(name if not gc.isenabled() else f"{name}, and garbage may be collected")
            return of(*words)

        return call

    for name in ("reset", "step"):
        monkeypatch.setattr(world, name, noted(name, getattr(world, name)))
    acted(tmp_path, world)
    assert done == ["collect", "reset", *["step"] * STEPS] and gc.isenabled()


class Person:
    """Acts at the steps ``at``; says ``events`` by step."""

    words = ""

    def __init__(self, at: Sequence[int], heard: Heard, events: dict[int, str] | None = None) -> None:
        self.at, self.heard, self.events, self.step = at, heard, events or {}, -1

    def __call__(self, signals: Any, proposed: np.ndarray) -> Heard:
        self.step += 1
        said = (self.events[self.step],) if self.step in self.events else ()
        return Heard(self.heard.action, self.heard.command, said) if self.step in self.at else Heard(events=said)

    def begin(self) -> None:
        self.step = -1

    def close(self) -> None:
        pass


def test_a_persons_action_is_executed_marked_and_learned_from(tmp_path: Path) -> None:
    wish = np.linspace(-0.5, 0.5, JOINTS).astype(np.float32)
    actor, (one,) = acted(tmp_path, Arm(), intervention=Person((2, 3, 7), Heard(action=wish)))
    assert one.intervened.nonzero()[0].tolist() == [2, 3, 7] and actor.tally.interventions == 3
    assert all(np.array_equal(one.action[t], wish) for t in (2, 3, 7))
    assert not any(np.array_equal(one.action[t], wish) for t in (0, 1, 4, 5, 6))
    assert np.allclose(commands_of(one), one.command, atol=1e-5)


def test_a_leaders_command_becomes_the_action_that_means_it(tmp_path: Path) -> None:
    world = Arm()
    command = (world.first + 0.02).astype(np.float32)
    _, (one,) = acted(tmp_path, world, intervention=Person(range(STEPS), Heard(command=command)))
    assert np.allclose(commands_of(one), one.command, atol=1e-5) and one.intervened.all()
    assert np.abs(one.command[0] - command).max() < 0.02 and np.abs(one.command[-1] - command).max() < 2e-3


@pytest.mark.parametrize(("event", "kept", "success"), [(SUCCESS, 1, True), ("failure", 1, False), (DISCARD, 0, None)])
def test_the_operator_ends_episodes(tmp_path: Path, event: str, kept: int, success: bool | None) -> None:
    person = Person((), Heard(), {4: event})
    spool, world = Spool(tmp_path), Arm()
    actor = Actor(world, TASK, policy(), ByKeys(), spool, agreed(), REFRESHER, intervention=person,
                  tell=lambda text: None)
    with undisturbed():
        rows, ending = actor.episode(world.reset(), [])
    actor.finish(rows, ending)
    assert len(rows.action) == 4 and len(spool.waiting()) == kept and actor.tally.discarded == 1 - kept
    if kept:
        (one,) = (from_message(decode(spool.bytes_of(name), "it", "episode"), agreed(), "it")
                  for name in spool.waiting())
        assert (one.success, one.terminated) == (success, True)
        assert one.reward.tolist() == [0.0, 0.0, 0.0, float(bool(success))]


def test_quitting_drops_the_open_episode_alone(tmp_path: Path) -> None:
    actor, episodes = acted(tmp_path, Arm(), 5, intervention=Person((), Heard(), {3: QUIT}))
    assert episodes == [] and actor.tally.episodes == 0 and actor.tally.discarded == 1


@pytest.mark.parametrize(("formula", "goal", "steps", "success", "terminated"), [
    ("F[0,0.2] (norm(joint_pos - goal_joint_pos) < 100)", 0.0, 1, True, True),  # at once: a step is made all the same
    ("F[0,0.4] (norm(joint_pos - goal_joint_pos) > 100)", 0.0, 10, False, True),  # time for it is over before the end
    ("F[0,3] (norm(joint_pos - goal_joint_pos) > 100)", 0.0, STEPS, False, False),  # time cuts the episode
    ("G[0,0.4] (norm(joint_pos - goal_joint_pos) < 100)", 0.0, 10, True, True),
    ("G[0,3] (norm(joint_pos - goal_joint_pos) < 100)", 0.0, STEPS, True, True)])
def test_the_formula_ends_an_episode_and_pays_once(
    tmp_path: Path, formula: str, goal: float, steps: int, success: bool, terminated: bool
) -> None:
    judge = ByFormula(parse(formula, TASK.schema, dict(TASK.constants)), TASK.control_dt)
    _, (one,) = acted(tmp_path, Arm(goal=goal), judge=judge)
    assert (one.steps, one.success, one.terminated) == (steps, success, terminated)
    assert one.reward.sum() == float(success) and one.reward[-1] == float(success)


def test_a_robot_that_cannot_go_on_terminates_the_episode(tmp_path: Path) -> None:
    _, (one,) = acted(tmp_path, Arm(fails_at=3), judge=ByFormula(TASK.formula, TASK.control_dt))
    assert (one.steps, one.success, one.terminated) == (3, False, True)


def test_what_is_not_finite_moves_nothing_and_is_not_learned_from(tmp_path: Path) -> None:
    world, measured = Arm(), Arm.measured
    world.measured = lambda: {**measured(world), "joint_vel": np.full(  # type: ignore[method-assign]
        JOINTS, np.nan if len(world.sent) == 2 else 0.0, np.float32)}
    spool = Spool(tmp_path)
    actor = Actor(world, TASK, policy(), ByKeys(), spool, agreed(), REFRESHER, tell=lambda text: None)
    actor.run(lambda: world.reset() if not world.sent else None, None, [])
    assert len(world.sent) == 2 and spool.waiting() == [] and actor.tally.discarded == 1


@pytest.mark.parametrize("value", [1e20, -2e8])  # observed in tens
def test_what_nobody_measures_moves_nothing_and_is_not_learned_from(tmp_path: Path, value: float) -> None:
    world, measured, said = Arm(), Arm.measured, list[str]()
    world.measured = lambda: {**measured(world), "joint_vel": np.full(  # type: ignore[method-assign]
        JOINTS, value if len(world.sent) == 2 else 0.0, np.float32)}
    actor = Actor(world, TASK, policy(), ByKeys(), Spool(tmp_path), agreed(), REFRESHER, tell=said.append)
    actor.run(lambda: world.reset() if not world.sent else None, None, [])
    assert len(world.sent) == 2 and actor.spool.waiting() == [] and actor.tally.discarded == 1
    assert "beyond 1e+06" in said[0]


def test_an_episode_that_the_learner_would_refuse_is_dropped_and_said(tmp_path: Path) -> None:
    """A robot that says that it executed what is beyond its command's limits."""
    world, said = Arm(), list[str]()
    step = world.step
    world.step = lambda command: replace(step(command), command=np.full(  # type: ignore[method-assign]
        JOINTS, 1e30, np.float32))
    actor = Actor(world, TASK, policy(), ByKeys(), Spool(tmp_path), agreed(), REFRESHER, tell=said.append)
    actor.run(lambda: world.reset() if not world.sent else None, None, [])
    assert (actor.spool.waiting(), actor.tally.episodes, actor.tally.discarded) == ([], 0, 1)
    assert "DROPPED" in said[-1] and "command joint_pos_cmd lies in its limits" in said[-1]


def test_an_episode_that_the_disk_does_not_take_is_said_to_be_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, spool, keep = list[str](), Spool(tmp_path), Spool.keep

    def full(identity: str, data: bytes) -> None:
        if not said:
            raise OSError(28, "No space left on device")
        keep(spool, identity, data)

    monkeypatch.setattr(spool, "keep", full)
    actor = Actor(Arm(), TASK, policy(), ByKeys(), spool, agreed(), REFRESHER, tell=said.append)
    actor.run(actor.world.reset, 1, [])
    assert f"DROPPED: a finished episode of {STEPS} steps" in said[0] and "No space left" in said[0]
    assert (actor.tally.episodes, actor.tally.discarded, len(spool.waiting())) == (1, 1, 1), "it goes on"


def test_no_episode_begins_where_the_disk_may_not_take_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, spool = Arm(), Spool(tmp_path)
    actor = Actor(world, TASK, policy(), ByKeys(), spool, agreed(), REFRESHER, tell=lambda text: None)
    for free, begins in ((LEAST_FREE, True), (LEAST_FREE - 1, False)):
        monkeypatch.setattr("shutil.disk_usage", lambda folder, free=free: SimpleNamespace(free=free))
        world.sent.clear()
        if begins:
            actor.run(world.reset, 1, [])
        else:
            with pytest.raises(BadInput, match="64 MiB free, and no episode begins with less than 64; 1 episodes wait"):
                actor.run(world.reset, 2, [])
        assert bool(world.sent) is begins


def test_a_stop_that_is_asked_for_drops_the_open_episode(tmp_path: Path) -> None:
    spool, world, asked = Spool(tmp_path), Arm(), list[int]()
    actor = Actor(world, TASK, policy(), ByKeys(), spool, agreed(), REFRESHER, tell=lambda text: asked.append(2))
    actor.run(world.reset, None, asked)
    assert len(spool.waiting()) == 1 and actor.tally.discarded == 0, "asked for between episodes"
    actor.run(world.reset, None, asked := [])  # none was asked for yet ...
    assert actor.tally.episodes == 2


def test_the_tasks_own_reward_is_that_of_its_objective(tmp_path: Path) -> None:
    from temporeal.policies.data.objective_rewards import by

    _, (one,) = acted(tmp_path, Arm(), reward=by(TASK.objective))
    carry = {name: torch.zeros(1, *shape) for name, shape in TASK.objective.carry.items()}

    def at(t: int) -> dict[str, torch.Tensor]:
        found = {name: torch.from_numpy(value[t])[None] for name, value in one.signals.items()}
        return {**found, "mission_time": torch.tensor([t * TASK.control_dt])}

    carry = {**carry, **TASK.objective.start(at(0), carry)}
    for t in range(one.steps):
        reward, _, after = TASK.objective.step(at(t + 1), torch.from_numpy(one.action[t])[None], carry)
        carry = {**carry, **after}
        assert float(reward) == pytest.approx(float(one.reward[t]), abs=1e-6)
    lacking = by(load_task("hover").objective)
    with pytest.raises(DataError, match="reads the signal"):
        acted(tmp_path / "other", Arm(), reward=lacking)


def test_weights_act_alike_on_both_sides_and_foreign_ones_are_refused() -> None:
    torch.manual_seed(1)
    trained = SAC(Sizes(TASK.observe.obs_dim, TASK.observe.obs_dim, JOINTS), CONFIG, torch.Generator())
    for value in trained.actor.parameters():
        torch.nn.init.normal_(value)
    mine = policy(explore=False)
    mine.normalizer.shift.fill_(0.0)
    normalizer = type(mine.normalizer)(TASK.observe.obs_dim)
    normalizer.shift.normal_()
    normalizer.scale.uniform_(0.5, 2.0)
    made = publish(trained.actor, normalizer, 42, False, agreed().digest())
    mine.put(mine.read(made.data))
    obs = torch.randn(1, TASK.observe.obs_dim)
    with torch.no_grad():
        assert torch.equal(mine(obs), trained.actor(normalizer(obs)).clamp(-1, 1)) and mine.updates == 42
    wide = SAC(Sizes(TASK.observe.obs_dim, TASK.observe.obs_dim, JOINTS), SACConfig(hidden=(9, 9)), torch.Generator())
    for data, named in (
            (publish(wide.actor, normalizer, 1, False, agreed().digest()).data, "'actor.net"),
            (publish(trained.actor, normalizer, 1, False, "0" * 64).data, "another agreement"),
            (made.data.replace(b'"updates": 42', b'"updates": 43'), "digest")):
        with pytest.raises(MessageError, match=named):
            mine.read(data)


def test_before_the_first_updates_actions_are_drawn_at_random() -> None:
    mine = policy()
    mine.random = True
    drawn = torch.cat([mine(torch.zeros(1, TASK.observe.obs_dim)) for _ in range(64)])
    assert drawn.abs().max() <= 1.0 and drawn.std(0).min() > 0.3


@dataclass
class Keys:
    """A device that is in a given state."""

    name: str = "keyboard"
    now: Controls = Controls()

    def read(self) -> Controls:
        return self.now

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("device", "held", "axes", "acts"), [
    ("keyboard", {"w", "space"}, {}, True), ("keyboard", {"y", "space"}, {}, False), ("keyboard", set(), {}, False),
    ("keyboard", {"space"}, {}, True), ("gamepad", {"right_shoulder"}, {}, True), ("gamepad", {"a"}, {}, False),
    ("gamepad", set(), {"left_x": 0.5}, True), ("spacemouse", set(), {"z": -0.2}, True),
    ("spacemouse", set(), {}, False)])
def test_a_hand_intervenes_while_it_moves_something(
    device: str, held: set[str], axes: dict[str, float], acts: bool
) -> None:
    assert moves(LAYOUTS[device]["arm"], Controls(axes, frozenset(held))) is acts
    hand = ByHand(Keys(device, Controls(axes, frozenset(held))), "arm", 7)
    assert hand({}, np.full(7, -0.3, np.float32)).intervenes is acts


def test_a_gripper_stays_as_it_is_when_a_hand_takes_over() -> None:
    hand = ByHand(Keys("spacemouse", Controls({"x": 1.0})), "arm", 7)
    heard = hand({}, np.array([0, 0, 0, 0, 0, 0, -0.4], np.float32))
    assert heard.action is not None and heard.action[6] == -1.0


def test_a_leader_acts_between_two_presses_and_only_from_nearby() -> None:
    class Leader(Scripted):
        close_by = False

        def near(self, signals: Any) -> bool:
            return self.close_by

    leader = Leader([Wish(np.zeros(1, np.float32), np.ones(1, np.float32))] * 9)
    keys, person = Keys(), None
    person = ByOperator(leader, keys)

    def pressed(*which: str) -> bool:
        keys.now = Controls(pressed=which)
        return person({}, np.zeros(1, np.float32)).intervenes

    assert [pressed(), pressed("space")] == [False, False], "it is far away"
    leader.close_by = True
    assert [pressed("space"), pressed(), pressed("space"), pressed()] == [True, True, False, False]


def test_a_model_of_progress_judges_by_a_threshold() -> None:
    values = iter([0.1, 0.95, 0.2, 0.91, 0.92, 0.99])
    model: Any = SimpleNamespace(names=("place",), start=lambda n: None,
                                 update=lambda signals: torch.tensor([next(values)]))
    judge = ByProgress(model, 0.9)
    judge.begin()
    sample = {"place": np.zeros(2, np.float32)}
    assert [judge.update(sample) for _ in range(5)] == [None, None, None, None, True], "twice in a row"
    assert judge.finish() is False


def back_home(world: Arm, seconds: float, otherwise: Callable[[], Sample | None]) -> resets.SecondPolicy:
    """A second policy that moves all joints by 0.05 a step towards where they were first."""
    class Graph:
        signals = ("joint_pos",)

        def initial_memory(self, n: int) -> dict[str, torch.Tensor]:
            return {}

        def __call__(self, signals: Any, memory: Any) -> Any:
            goal, at = torch.from_numpy(world.first), signals["joint_pos"]
            return {TASK.command: at + (goal - at).clamp(-0.05, 0.05)}, memory

    formula = parse(f"F[0,{seconds}] (norm(joint_pos - home) < 0.01)", TASK.schema, {"home": world.first.tolist()})
    return resets.SecondPolicy(world, Graph(), ByFormula(formula, TASK.control_dt), seconds,  # type: ignore[arg-type]
                               otherwise, lambda text: None)


def test_a_second_policy_resets_until_its_formula_is_satisfied() -> None:
    world = Arm()
    world.resume = lambda: Sample(world.measured())  # type: ignore[attr-defined]
    world.at = world.first + np.float32(0.2)
    first = back_home(world, 2.0, lambda: None)()
    assert first is not None and np.abs(first.signals["joint_pos"] - world.first).max() < 0.01
    assert len(world.sent) == 4, "as many steps as it takes, and no more"
    world.at = world.first + np.float32(3.0)
    asked = list[int]()
    assert back_home(world, 0.2, lambda: asked.append(1))() is None and asked == [1], "it asks when tries are over"


def test_an_artifact_may_be_the_second_policy() -> None:
    def act_batch(signals: Any, memory: Any) -> Any:
        return {TASK.command: signals["joint_pos"] + 0.1}, {"steps": memory["steps"] + 1}

    artifact: Any = SimpleNamespace(schema={"joint_pos": None}, act_batch=act_batch,
                                    initial_memory=lambda n: {"steps": np.zeros(n)})
    graph = resets.OfArtifact(artifact)
    commands, memory = graph({"joint_pos": torch.ones(1, JOINTS)}, graph.initial_memory(1))
    assert torch.allclose(commands[TASK.command], torch.full((1, JOINTS), 1.1)) and memory["steps"] == 1


def test_a_world_that_is_not_the_tasks_is_refused_by_name() -> None:
    words: Any = SimpleNamespace(common=SimpleNamespace(task=TASK, agreed=agreed()))
    require_world(Arm(), words)
    slow, blind = Arm(period_s=0.1), Arm()
    del blind.signals["joint_vel"]
    for world, named in ((slow, "control period is 0.04 s, the world's 0.1 s"), (blind, "read joint_vel"),
                         (Arm(command="other"), "command is joint_pos_cmd, the world's other")):
        with pytest.raises(BadInput, match=named):
            require_world(world, words)


def test_the_clock_counts_late_and_left_out_cycles() -> None:
    clock = SimpleNamespace(now=0.0)

    def sleep(seconds: float) -> None:
        clock.now += seconds

    pacer = Pacer(0.1, lambda: clock.now, sleep)
    found = []
    for takes in (0.0, 0.04, 0.06, 0.0, 0.24, 0.0):
        clock.now += takes
        found.append((pacer.sent(), pacer.wait()))
    # within half a period: in time; 0.06: late; 0.24: late, the cycle at 0.1 has no command, that at 0.2 has one soon
    assert found == [(0, 0), (0, 0), (1, 0), (0, 0), (1, 1), (0, 0)]
    assert clock.now == pytest.approx(0.1 * 7), "the schedule is kept"
