"""TGPO: the bank of schedules follows the critic, the deployed map chooses, returns are tied to robustness."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.examples import thinned

from temporeal.policies.algos import ppo, tgpo
from temporeal.policies.algos.tgpo import TGPOConfig, load_graph, metropolis, train
from temporeal.policies.evaluate.rollout import rollout
from temporeal.policies.training import schedule_choice
from temporeal.policies.training.acting import graph_policy
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.ppo_checkpoint import read_last
from temporeal.policies.training.ppo_state import Learner, PPOConfig
from temporeal.policies.training.schedule_choice import Choosing
from temporeal.robots.signals import SignalSpec, schema
from temporeal.sim.compiler import vectorize as rows
from temporeal.sim.env import Env, make_env
from temporeal.sim.rewards.scheduled import SCHEDULE, Reward, guards, return_bound
from temporeal.sim.rewards.schedules import draw_schedules
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.planning.decompose import decompose
from temporeal.sim.stl.semantics.robustness import robustness
from temporeal.sim.task import Task, load_task

pytestmark = pytest.mark.usefixtures("one_thread")

CONFIGS = Path(__file__).parents[3] / "configs" / "algo"
SEQUENCE = {"formula": "F[0,6] (norm(base_pos_w - a) < 1) & F[0,12] (norm(base_pos_w - b) < 1) & "
                       "G[0,12] (norm(base_pos_w) > 0.5)",
            "constants": {"a": [2, 2, 0], "b": [-2, 2, 0]}, "start": {"low": [1, 0.5], "high": [2, 1]}}
SMALL = {
    "total_steps": 10**9,
    "actor_hidden": (32, 32),
    "critic_hidden": (32, 32),
    "threads": 1,
    "schedule_buffer": 128,
    "candidates": 8,
    "starts": 4,
    "rollout_steps": 16,
    "learning_rate": 1e-3,
    "checkpoint_seconds": 1e9,
}


def task_of(**settings: Any) -> Task:
    return load_task("stl", **{**SEQUENCE, **settings})


def env_of(task: Task, n: int, **kw: Any) -> Env:
    return make_env(task, backend="planar", num_worlds=n, seed=1, threads=1, **kw)


def test_metropolis_samples_the_distribution_of_the_values() -> None:
    formula = parse("F[0,1] (p.x > 1 & F[0,0.6] p.y > 1)", schema(SignalSpec("p", (2,), "m")))
    alternatives, rng = decompose(formula, 0.2).alternatives, np.random.default_rng(3)
    schedules = draw_schedules(alternatives, 20_000, rng)

    def value(rows: torch.Tensor) -> torch.Tensor:
        return -0.5 * rows[:, 1] + 0.3 * (rows[:, 2] - rows[:, 1])

    unit = float(value(schedules).std())
    found = metropolis(schedules, alternatives, value, 1.0 / unit, 60, rng)  # a temperature of 1, about
    kinds, counts = np.unique(found[:, 1:].numpy(), axis=0, return_counts=True)
    density = np.exp(value(torch.cat([torch.zeros(len(kinds), 1), torch.from_numpy(kinds)], 1)).numpy())
    np.testing.assert_allclose(counts / counts.sum(), density / density.sum(), atol=0.01)


def test_returns_above_the_bound_are_of_episodes_that_satisfy_the_formula() -> None:
    reward = {"distance": 0.0, "near": 0.0, "behind": 0.0, "effort": 0.0}
    task = task_of(slack=0.05, margin=0.02, reward=reward)
    env = env_of(task, 256)
    obs, generator = env.reset(), torch.Generator().manual_seed(0)
    targets = torch.tensor([[2.0, 2.0], [-2.0, 2.0]])
    wild = (torch.rand(256, generator=generator) < 0.5)[:, None]
    traces, returns, over = [env.true_signals()["base_pos_w"].clone()], torch.zeros(256), torch.zeros(256, dtype=bool)
    for t in range(env.task.steps):
        way = targets[int(t > 20)] - env.true_signals()["base_pos_w"][:, :2]
        action = torch.where(wild, torch.randn(256, 2, generator=generator), way.clamp(-1, 1))
        step = env.step(action)
        returns += torch.where(over, 0.0, step.reward)
        traces.append(torch.where(over[:, None], traces[-1], step.info["signals"]["base_pos_w"]))
        over = over | step.terminated | step.truncated
    found = torch.as_tensor(robustness(task.formula, {"base_pos_w": torch.stack(traces)}, task.control_dt))[0]
    above = returns > return_bound(Reward(**reward), 2) + 1e-4
    assert above.any() and not above.all()
    assert found[above].min() >= 0.02 - 1e-6
    assert obs.actor.shape[1] == task.observe.obs_dim


def test_returns_above_the_bound_hold_by_the_slack_that_the_task_says() -> None:
    """Of speeds below 0.05 m/s a slack of 0.04 m/s is no other: not half of what there is."""
    reward = {"distance": 0.0, "near": 0.0, "behind": 0.0, "effort": 0.0}
    task = load_task("stl", formula="F[0.2,1] (norm(base_vel_w) < 0.05)", slack=0.04, margin=0.04, reward=reward)
    env = env_of(task, 8)
    env.reset()
    action, returns, over = torch.linspace(0.0, 0.04, 8)[:, None].repeat(1, 2), torch.zeros(8), torch.zeros(8).bool()
    speeds = [env.true_signals()["base_vel_w"].clone()]
    for _ in range(task.steps):
        step = env.step(action)
        returns += torch.where(over, 0.0, step.reward)
        speeds.append(torch.where(over[:, None], speeds[-1], step.info["signals"]["base_vel_w"]))
        over = over | step.terminated | step.truncated
    found = torch.as_tensor(robustness(task.formula, {"base_vel_w": torch.stack(speeds)}, task.control_dt))[0]
    above = returns > return_bound(Reward(**reward), 1)
    assert above.any() and found[above].min() >= 0.04
    assert (found[~above] > 0.02).any()  # who holds by half of 0.05 and not by 0.04


HOLD = "F[0,10] G[0,60] (norm(base_pos_w - a) < r)"
LANE = "G[0,60] (abs(base_pos_w.y) < 0.1) & F[0,60] (norm(base_pos_w - a) < r)"
SLOW = "G[1,60] (norm(base_vel_w) < 0.05) & F[0,60] (norm(base_pos_w - a) < r)"


@pytest.mark.parametrize(("formula", "r", "good", "bad"), thinned([
    (HOLD, 0.15, [(3.0, 0.0), (0.0, 0.0)], [(3.0, 0.0), (0.2, 0.0)]),
    (HOLD, 0.15, [(3.0, 0.0), (0.05, 0.0)], [(3.0, 0.0), (0.2, 0.0)]),
    (LANE, 0.5, [(3.0, 0.0), (0.0, 0.0)], [(3.0, 0.0), (3.0, 0.2)]),
    (SLOW, 0.5, [(0.4, 0.0), (0.4, 0.0)], [(3.0, 0.0), (0.0, 0.0)]),
], keep=lambda case: case[2][1] != (0.0, 0.0)))
def test_what_must_be_kept_for_long_in_little_room_is_paid_more_than_to_break_it(formula, r, good, bad) -> None:
    """A guard of 0.2 m around a place of 0.15 m costs wherever one stands: to fail at once was the better return."""
    task = task_of(formula=formula, constants={"a": [0, 0, 0], "r": r})
    objective, dt = task.objective, task.control_dt
    schedule = task.schedules.buffer[:1].clone()  # type: ignore[attr-defined]
    schedule[0, 1:] = task.schedules.buffer[:, 1:].min(0).values  # type: ignore[attr-defined]

    def flown(start: tuple[float, float], end: tuple[float, float]) -> tuple[float, bool]:
        """The return of going from one place to another at 1 m/s, and staying; and whether all is done."""
        way = np.subtract(end, start)
        length = max(float(np.linalg.norm(way)), 1e-9)
        places = [(*(np.array(start) + way * min(k * dt / length, 1.0)), 0.0) for k in range(task.steps + 1)]

        def signals(k: int) -> dict[str, torch.Tensor]:
            speed = np.subtract(places[k], places[max(k - 1, 0)]) / dt
            return {"base_pos_w": torch.tensor([places[k]], dtype=torch.float32),
                    "base_vel_w": torch.tensor([[*speed]], dtype=torch.float32), SCHEDULE: schedule}

        memory = {name: torch.zeros(1, *shape) for name, shape in objective.carry.items()}
        memory, total = objective.start(signals(0), memory), 0.0
        for k in range(1, task.steps + 1):
            paid, over, memory = objective.step(signals(k), torch.zeros(1, 2), memory)
            total += float(paid)
            if bool(over):
                break
        return total, bool(objective.success(signals(k), memory))

    (kept, done), (broken, also) = flown(*good), flown(*bad)
    assert done and not also and kept > 5.0 > 0.0 > broken


def test_guards_are_as_said_where_there_is_room() -> None:
    automaton = task_of().objective.automaton  # type: ignore[attr-defined]
    assert {guard for _, guard in guards(automaton, 0.2)} == {0.2}
    narrow = task_of(formula=LANE, constants={"a": [0, 0, 0], "r": 0.5}).objective.automaton  # type: ignore[attr-defined]
    assert [(str(narrow.predicates[place]), guard) for place, guard in guards(narrow, 0.2)] == [
        ("abs(base_pos_w.y) < 0.1", 0.05)]
    wider = task_of(formula=LANE, constants={"a": [0, 0, 0], "r": 0.5}, margin=0.06).objective  # type: ignore[attr-defined]
    assert [guard for _, guard in wider.guards] == [pytest.approx(0.08)]  # between where it breaks and the middle


def test_being_done_is_worth_the_same_by_each_alternative() -> None:
    """Of one subgoal or of two: by the hits alone the critic prefers that of two, however seldom it is kept."""
    formula = "F[0,4] base_pos_w.x > 1 | (F[0,4] base_pos_w.y > 1 & F[0,4] (norm(base_pos_w - a) < 1))"
    reward = {"distance": 0.0, "near": 0.0, "behind": 0.0, "effort": 0.0, "progress": 0.0}
    task = task_of(formula=formula, constants={"a": [2, 2, 0]}, reward=reward)
    automaton, objective = task.objective.automaton, task.objective  # type: ignore[attr-defined]
    assert sorted(a.variables for a in automaton.alternatives) == [1, 2]
    schedule = torch.tensor([[float(number), 3.0, 3.0] for number in range(2)])

    def signals(place: list[float]) -> dict[str, torch.Tensor]:
        return {"base_pos_w": torch.tensor([place] * 2), SCHEDULE: schedule}

    memory = {name: torch.zeros(2, *shape) for name, shape in objective.carry.items()}
    memory, returns, action = objective.start(signals([-2.0, -2.0, 0.0]), memory), torch.zeros(2), torch.zeros(2, 2)
    for _ in range(6):
        paid, _, memory = objective.step(signals([2.0, 2.0, 0.0]), action, memory)
        returns += paid
    assert objective.success(signals([2.0, 2.0, 0.0]), memory).all()
    assert returns.tolist() == [10.0 + 2 * 10.0] * 2  # done, and two hits, had or lacking
    assert returns.min() > return_bound(Reward(**reward), 2)
    assert task_of().objective.worth(schedule) == 10.0  # type: ignore[attr-defined] # bit for bit as without


def test_hits_of_responses_are_paid_when_all_is_done() -> None:
    """Where q holds from the start they come by waiting: who was paid for them never went to p."""
    reward = {"distance": 0.0, "near": 0.0, "behind": 0.0, "effort": 0.0, "progress": 0.0}
    task = task_of(formula="G[0,2] (base_pos_w.x > 1 -> F[0,1] base_pos_w.y > 0.5) & F[0,3] base_pos_w.x > 2",
                   constants={}, reward=reward)
    objective = task.objective
    number = next(k for k, found in enumerate(objective.responses) if found)  # type: ignore[attr-defined]
    schedule = draw_schedules(objective.automaton.alternatives, 500, np.random.default_rng(0))  # type: ignore
    schedule = schedule[schedule[:, 0] == number][:20]
    memory = {name: torch.zeros(20, *shape) for name, shape in objective.carry.items()}

    def signals(x: float) -> dict[str, torch.Tensor]:
        return {"base_pos_w": torch.tensor([[x, 1.0, 0.0]] * 20), SCHEDULE: schedule}

    memory, paid = objective.start(signals(0.0), memory), []
    for sample in range(1, 16):
        reward_now, _, memory = objective.step(signals(0.0 if sample < 5 else 2.5), torch.zeros(20, 2), memory)
        paid.append(reward_now)
    assert torch.stack(paid[:4]).abs().max() == 0 and (memory["hit"] > 0).any()
    assert objective.success(signals(2.5), memory).any()
    most = max(route.count for route in objective.automaton.routes)  # type: ignore[attr-defined]
    assert (torch.stack(paid).sum(0)[memory["done"] > 0.5] == 10.0 + 10.0 * most).all()


@pytest.mark.slow
def test_a_policy_is_learned_judged_and_chooses_its_schedule(tmp_path: Path) -> None:
    task = task_of()
    env = env_of(task, 256)
    train(env, TGPOConfig(**{**SMALL, "total_steps": 240 * 16 * 256}), out=tmp_path, seed=1, progress=None)
    assert len(env.task.schedules.buffer) == 128
    graph = load_graph(tmp_path, task)
    assert isinstance(graph.observe, Choosing) and SCHEDULE not in graph.signals
    judged = env_of(Task(**{**task.__dict__, "observe": graph.observe}), 64)
    found = rollout(judged, graph_policy(graph))
    share = float((robustness(task.formula, found.signals, task.control_dt)[0] > 0).mean())
    assert share > 0.9
    offered = {tuple(row) for row in graph.observe.schedules.tolist()}
    assert {tuple(row) for row in judged.column[f"memory.{SCHEDULE}"].tolist()} <= offered and len(offered) == 8


def behind(*times: float) -> Any:
    """Behind are those that follow a schedule of these times."""
    return lambda signals, memory: torch.isin(signals[SCHEDULE][:, 1], torch.tensor(times))


class Early(torch.nn.Module):
    """Values the schedule with the earliest time most."""

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return -obs[:, 0]


class Plain(torch.nn.Module):
    """Sees the first time of its schedule."""

    signals = ("base_pos_w", SCHEDULE)
    memory: dict[str, tuple[int, ...]] = {"tick": ()}
    obs_dim = 1

    def forward(self, signals: Any, memory: Any) -> Any:
        return signals[SCHEDULE][:, 1:2], {"tick": memory["tick"] + 1}


def test_another_schedule_is_taken_by_a_robot_that_is_behind_when_it_is_better_by_the_patience() -> None:
    schedules = torch.tensor([[0.0, 9.0], [0.0, 4.0], [0.0, 6.0]])
    for patience, late, expected in ((1.0, (6.0,), 4.0), (3.0, (6.0,), 6.0), (1.0, (), 6.0), (1.0, (4.0, 6.0), 6.0)):
        choosing = Choosing(Plain(), Early(), torch.nn.Identity(), schedules, patience, behind(*late))
        signals = {"base_pos_w": torch.zeros(1, 3)}
        start = choosing.choose(signals, {"tick": torch.zeros(1)}, torch.zeros(1, 2))
        assert start.tolist() == [[0.0, 4.0]]
        later = choosing.choose(signals, {"tick": torch.ones(1)}, torch.tensor([[0.0, 6.0]]))
        assert later.tolist() == [[0.0, expected]]
    other = Choosing(Plain(), Early(), torch.nn.Identity(), torch.tensor([[1.0, 0.0], [0.0, 6.0]]), 1.0,
                     behind(9.0))
    assert other.choose(signals, {"tick": torch.zeros(1)}, torch.zeros(1, 2)).tolist() == [[1.0, 0.0]]
    # what was hit for one alternative says nothing of another
    assert other.choose(signals, {"tick": torch.ones(1)}, torch.tensor([[0.0, 9.0]])).tolist() == [[0.0, 6.0]]


def test_robots_that_stay_with_their_schedule_are_not_scored() -> None:
    """And what is chosen is the same as where all are: so it is in an exported graph."""
    seen = []

    class Counting(Early):
        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            seen.append(len(obs))
            return super().forward(obs)

    generator = torch.Generator().manual_seed(0)
    schedules = torch.randint(0, 20, (7, 2), generator=generator).float()
    signals, tick = {"base_pos_w": torch.zeros(50, 3)}, torch.randint(0, 3, (50,), generator=generator).float()
    now = torch.randint(0, 20, (50, 2), generator=generator).float()
    choosing = Choosing(Plain(), Counting(), torch.nn.Identity(), schedules, 2.0, behind(*range(13, 20)))
    late = now[:, 1] >= 13
    chosen = choosing.choose(signals, {"tick": tick}, now)
    assert seen == [int((late | (tick == 0)).sum()) * 8]
    assert torch.equal(chosen, choosing.best(signals, {"tick": tick}, now, late))
    assert not torch.equal(chosen, now)
    choosing.behind = behind()
    assert torch.equal(choosing.choose(signals, {"tick": tick + 1}, now), now) and len(seen) == 2


def test_what_is_hit_for_the_reward_is_hit_for_the_policy() -> None:
    """Between the two a policy would stand still that does not explore."""
    view = task_of(slack=0.07, margin=0.03).observe.view
    assert view.automaton is view.objective.automaton
    assert (view.automaton.slack, view.automaton.margin) == (0.07, 0.03)


def test_behind_is_who_has_not_hit_what_was_due() -> None:
    view = task_of().observe.view  # type: ignore[union-attr]
    far, near = [0.0, 0.0, 0.0], [2.0, 2.0, 0.0]
    signals = {"base_pos_w": torch.tensor([far, far, near, far]), SCHEDULE: torch.tensor([[0.0, 5.0, 20.0]] * 4)}
    memory = {"tick": torch.tensor([5.0, 6.0, 6.0, 6.0]),
              "hit": torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [4.0, 0.0]])}
    assert view.behind(signals, memory).tolist() == [False, True, False, False]


def test_candidates_are_different_good_and_spread() -> None:
    class Late(torch.nn.Module):
        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            return obs[:, 0]

    class Plain(torch.nn.Module):
        memory: dict[str, tuple[int, ...]] = {}

        def forward(self, signals: Any, memory: Any) -> Any:
            return signals[SCHEDULE][:, 1:], memory

    bank = torch.tensor([[0.0, t] for t in (5.0, 5.0, 90.0, 90.0, 91.0, 92.0, 40.0)])
    kept = {"buffer": bank, "flown": None, "signals": {"p": torch.zeros(2, 3)}}
    chosen, spread = schedule_choice.spread_out(kept, Late(), torch.nn.Identity(), Plain(), 4)  # type: ignore[arg-type]
    assert chosen[:, 1].tolist() == [92.0, 91.0, 5.0, 40.0] and spread > 0
    few = schedule_choice.spread_out({**kept, "buffer": bank[:2]}, Late(), torch.nn.Identity(), Plain(), 4)  # type: ignore
    assert few[0].tolist() == [[0.0, 5.0]] and few[1] == 0.0
    proved = schedule_choice.spread_out({**kept, "flown": bank[[6, 3]]}, Late(), torch.nn.Identity(), Plain(), 4)  # type: ignore
    assert proved[0][:, 1].tolist() == [90.0, 40.0] and proved[1] == spread


def test_schedules_that_were_kept_less_often_are_not_offered() -> None:
    schedules = torch.tensor([[0.0, t] for t in (1.0, 2.0, 3.0, 4.0)])
    followed = schedules[[0] * 10 + [1] * 10 + [2] * 10 + [3]]
    kept = torch.tensor([True] * 9 + [False] + [True] * 8 + [False] * 2 + [True] * 10 + [True])
    # expected shares: 10/12, 9/12, 11/12 and 2/3
    one = torch.zeros(31)
    assert tgpo.proved(schedules, followed, kept, one).tolist() == schedules[[0, 2]].tolist()
    # what was never kept, or never flown, is not offered; where nothing was kept, nothing is known
    rare = torch.tensor([True] + [False] * 30)
    assert tgpo.proved(schedules, followed, rare, one).tolist() == schedules[:1].tolist()
    assert tgpo.proved(schedules[[3, 0]], followed[:10], rare[:10], one[:10]).tolist() == schedules[:1].tolist()
    assert tgpo.proved(schedules, followed, torch.zeros(31) > 0, one).tolist() == schedules.tolist()


def test_an_alternative_is_judged_where_it_would_be_taken() -> None:
    """From 20 starts alternative 1 is right, from 80 alternative 0: each is kept there and nowhere else."""
    schedules = torch.tensor([[0.0, 5.0], [1.0, 5.0]])
    followed, right = schedules[[0, 1] * 50], torch.tensor([1.0] * 20 + [0.0] * 80)
    kept = followed[:, 0] == right
    assert tgpo.proved(schedules, followed, kept, right).tolist() == schedules.tolist()
    # where one would be taken from everywhere, and is not kept from most, it is the other that stays
    assert tgpo.proved(schedules, followed, kept, torch.ones(100)).tolist() == schedules[:1].tolist()
    # each taken where the other is right: what is right more often
    assert tgpo.proved(schedules, followed, kept, 1.0 - right).tolist() == schedules[:1].tolist()


def test_the_alternative_that_a_start_prefers_is_that_of_its_best_schedule() -> None:
    class Near(torch.nn.Module):
        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            return -(obs[:, 0] - obs[:, 2]).abs()[:, None]

    class Plain(torch.nn.Module):
        signals, memory = ("p", SCHEDULE), dict[str, tuple[int, ...]]()

        def forward(self, signals: Any, memory: Any) -> Any:
            return torch.cat([signals["p"][:, :1], signals[SCHEDULE]], 1), memory

    prefer = partial(tgpo.preferred, Near(), torch.nn.Identity(), Plain())  # type: ignore[arg-type]
    bank = torch.tensor([[0.0, 1.0], [0.0, 9.0], [2.0, 5.0]])
    places = {"p": torch.tensor([[0.0], [4.0], [8.0]])}
    assert prefer(bank, places).tolist() == [0.0, 2.0, 0.0]
    assert prefer(bank[:2], places).tolist() == [0.0] * 3


@pytest.mark.parametrize(("worlds", "flights"), [(256, 1), (32, 2)])
def test_the_policy_follows_what_it_has_been_seen_to_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worlds: int, flights: int
) -> None:
    """Late schedules are not kept here, whatever the critic says; a training could go on as if none had been flown."""
    fly, rounds = tgpo.flown, []

    def early(env: Env, act: Any, wanted: Any) -> tuple[torch.Tensor, ...]:
        schedules, _, choice = fly(env, act, wanted)
        rounds.append(len(env.task.schedules.buffer))
        return schedules, schedules[:, 2] < 30, choice

    def same(learner: Learner) -> bool:
        before, bank = env.state_dict(), env.task.schedules.buffer
        rounds.clear()
        obs = learner.obs.actor.clone()
        learner.companion.finish(learner)
        after = env.state_dict()
        assert all(torch.equal(value, after["columns"][name]) for name, value in before["columns"].items())
        assert all(torch.equal(before[name], after[name]) for name in ("episode", "ready", "mid_episode", "keys"))
        assert rounds[:flights] == [4 * 8] * flights  # then at most as many as are offered, so the oftener
        assert len(rounds) == 2 * flights and len(set(rounds[flights:])) == 1 and 1 <= rounds[-1] <= 8
        assert (
            torch.equal(learner.obs.actor, obs)
            and env.task.schedules.buffer is bank
            and env.distribution.mid_episode_starts == 0.5
        )
        return learner.iteration >= 2

    monkeypatch.setattr(tgpo, "flown", early)
    env = env_of(task_of(), worlds)
    train(env, TGPOConfig(**SMALL), out=tmp_path, on_iteration=same)
    offered, kept = load_graph(tmp_path, env.task).observe.schedules, read_last(tmp_path)["companion"]
    assert len(offered) == rounds[-1] and (offered[:, 2] < 30).all() and (kept["buffer"][:, 2] >= 30).any()


@pytest.mark.parametrize(("seconds", "flown"), [
    (16.0, (2, 2)), (15.9, (2, 1)), (8.0, (2, 1)), (7.9, (1, 1)), (4.0, (1, 1)), (3.9, (0, 0))])
def test_flights_at_the_end_take_a_quarter_of_the_budget_at_most(
    monkeypatch: pytest.MonkeyPatch, seconds: float, flown: tuple[int, int]
) -> None:
    monkeypatch.setattr(tgpo.Allocator, "mission_seconds", lambda *_: 1.0)
    allocator = tgpo.Allocator(env_of(task_of(), 32), TGPOConfig(**SMALL, max_seconds=seconds), 1)
    assert allocator.affordable(None) == flown  # type: ignore[arg-type]
    assert allocator.needs(None) == flown[0] * flown[1]  # type: ignore[arg-type]


@pytest.mark.parametrize(("missions", "flown"), [(4, (2, 2)), (3, (2, 1)), (1, (1, 1)), (0, (0, 0))])
def test_without_a_budget_of_seconds_they_take_a_quarter_of_the_steps(missions: int, flown: tuple[int, int]) -> None:
    env = env_of(task_of(), 32)
    steps = 3 * (missions + 0.9) * 2 * 32 * env.task.steps  # of two processes
    allocator = tgpo.Allocator(env, TGPOConfig(**{**SMALL, "total_steps": int(steps)}), 1)
    assert allocator.affordable(SimpleNamespace(ranks=SimpleNamespace(size=2))) == flown  # type: ignore[arg-type]


def test_flights_that_are_cut_are_told(tmp_path: Path) -> None:
    env = env_of(task_of(), 32)
    with pytest.warns(UserWarning, match=r"flies 0 of 4 missions.*all steps with algo.total_steps=1; .* in \d+ steps"):
        train(env, TGPOConfig(**{**SMALL, "total_steps": 1}), out=tmp_path / "steps")
    assert read_last(tmp_path / "steps")["companion"]["flown"] is None
    with pytest.warns(UserWarning, match=r"flies 0 of 4 missions.*algo.max_seconds=1e-09; all have room in \d+ s"):
        train(env, TGPOConfig(**SMALL, max_seconds=1e-9), out=tmp_path)
    assert read_last(tmp_path)["companion"]["flown"] is None and len(load_graph(tmp_path, env.task).observe.schedules)


@pytest.mark.slow
def test_a_resumed_run_has_its_bank(tmp_path: Path) -> None:
    config = TGPOConfig(**{**SMALL, "checkpoint_seconds": 0.0})
    train(env_of(task_of(), 32), config, out=tmp_path, seed=2, on_iteration=lambda learner: learner.iteration >= 11)
    env = env_of(task_of(), 32)
    train(env, config, out=tmp_path, seed=2, resume=True, on_iteration=lambda learner: learner.iteration >= 23)
    other = env_of(task_of(), 32)
    train(other, config, out=tmp_path / "b", seed=2, on_iteration=lambda learner: learner.iteration >= 23)
    assert torch.equal(env.task.schedules.buffer, other.task.schedules.buffer)
    for part, same in zip(env.task.schedules.frontier, other.task.schedules.frontier):
        assert set(part) == set(same) and all(torch.equal(part[name], same[name]) for name in part)
    ours, theirs = (tgpo.load_policy(folder)[0].state_dict() for folder in (tmp_path, tmp_path / "b"))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_starts_are_starts() -> None:
    env = env_of(task_of(), 32)
    allocator = tgpo.Allocator(env, TGPOConfig(**SMALL), 1)
    place = allocator.signals["base_pos_w"]
    assert len(place) == 4 and ((place[:, 0] >= 1) & (place[:, 0] <= 2) & (place[:, 1] >= 0.5)).all()


def test_the_frontier_is_halfway_between_bad_and_good_places() -> None:
    value = torch.stack([torch.linspace(0.0, 10.0, 101), torch.full((101,), 3.0), torch.linspace(5.0, 6.0, 101)])
    legal = torch.ones(3, 101, dtype=torch.bool)
    legal[0, 45:56] = False
    value, legal = value.repeat(500, 1), legal.repeat(500, 1)
    found = tgpo.frontier(value, legal, torch.Generator().manual_seed(1))
    kinds, places = found // 101 % 3, found % 101
    assert set(places[kinds == 0].tolist()) <= {44, 56} and set(places[kinds == 2].tolist()) == {50}
    assert not (kinds == 1).any() and 0.85 < float((kinds == 0).float().mean()) < 0.96  # their ranges are as 10 to 1
    for nothing in (tgpo.frontier(torch.ones(4, 5), torch.ones(4, 5) > 0, torch.Generator()),
                    tgpo.frontier(torch.rand(4, 5), torch.zeros(4, 5) > 0, torch.Generator())):
        assert len(nothing) == 0


def test_starts_in_the_middle_are_chosen_by_the_critic() -> None:
    class Learner:
        critic_normalizer = torch.nn.Identity()
        iteration = 4

        @staticmethod
        def critic(obs: torch.Tensor) -> torch.Tensor:  # good to the right of a wall, bad to its left
            return torch.tanh(20.0 * obs[:, 0])

    env = env_of(task_of(), 512)
    allocator = tgpo.Allocator(env, TGPOConfig(**{**SMALL, "frontier": 1.0, "guided": False}), 1)
    before = env.task.schedules.buffer  # type: ignore[attr-defined]
    allocator(Learner(), None)  # type: ignore[arg-type]
    assert not torch.equal(env.task.schedules.buffer, before)  # type: ignore[attr-defined] # unguided, it is drawn anew
    assert env.task.schedules.frontier is not None
    place, memory = env.task.schedules.frontier[0]["base_pos_w"], env.task.schedules.frontier[1]
    assert float((place[:, 0].abs() < 1.0).float().mean()) > 0.8  # of 10 m
    env.set_mid_episode_starts(1.0)
    env.reset()
    known = {tuple(row) for row in place.tolist()}
    assert all(tuple(row) in known for row in env.true_signals()["base_pos_w"].tolist())
    assert (memory["tick"] > 0).any() and not (memory["hit"] - 1 > memory["tick"][:, None]).any()
    none = env_of(task_of(), 4)
    tgpo.Allocator(none, TGPOConfig(**{**SMALL, "frontier": 0.0}), 1)(Learner(), None)  # type: ignore[arg-type]
    assert none.task.schedules.frontier is None


def test_a_mission_is_tried_at_many_places_at_the_same_time() -> None:
    starts = task_of().schedules
    generator = torch.Generator().manual_seed(2)
    state, memory, legal = starts.places(lambda _, count: torch.rand(60 * 5, count, generator=generator), 60)
    schedules, ticks = state[SCHEDULE].reshape(60, 5, -1), memory["tick"].reshape(60, 5)
    assert (schedules == schedules[:, :1]).all() and (ticks == ticks[:, :1]).all() and ticks[:, 0].unique().numel() > 20
    assert state["base_pos_w"].unique(dim=0).shape[0] == 300 and legal.any() and not legal.all()
    # up to the last step of the mission (61 samples): what is to be kept for long is learned backwards from there
    _, memory, _ = starts.places(lambda _, count: torch.rand(2000, count, generator=generator), 2000)
    assert memory["tick"].max() == 59 and float((memory["tick"] > 54).float().mean()) > 0.06


@pytest.mark.slow
def test_worlds_that_explore_do_nothing_else_and_their_episodes_are_cut_off() -> None:
    env = env_of(task_of(), 256)
    tgpo.Allocator(env, TGPOConfig(**{**SMALL, "truncate_after": 7, "mid_episode_starts": 0.25}), 1)
    env.reset()
    cut, whole = torch.zeros(256), torch.zeros(256)
    begun, mid_episode, lengths = env.column["count"].clone(), env.mid_episode.clone(), []
    assert 0.15 < float(mid_episode.float().mean()) < 0.35
    for _ in range(10 * env.task.steps):
        step = env.step(torch.zeros(256, 2))
        assert torch.equal(step.info["mid_episode"], mid_episode) and not (step.truncated & ~mid_episode).any()
        lengths += (step.info["length"] - begun)[step.truncated].tolist()
        ended = step.truncated | step.terminated
        assert not (step.truncated & step.terminated).any()
        begun = torch.where(ended, env.column["count"], begun)
        cut += step.truncated
        whole += ended & ~mid_episode
    assert cut[mid_episode].max() >= 5 and cut[~mid_episode].sum() == 0 and whole[~mid_episode].min() >= 1
    # cut with the same probability at each step: what a policy comes to later is seen, too, and less often
    share = np.bincount(np.array(lengths, dtype=int), minlength=30)[1:] / len(lengths)
    assert len(lengths) > 1000 and share[0] == pytest.approx(1 / 7, abs=0.03) and 0.01 < share[14:].sum() < 0.2


def test_an_episode_that_begins_where_it_must_not_be_is_not_done() -> None:
    task = task_of(start={"low": [0, 0.1], "high": [0.1, 0.2]})
    env = env_of(task, 16)
    env.reset()
    step = env.step(torch.ones(16, 2))
    assert step.terminated.all() and not step.info["success"].any() and (step.reward < -5).all()


def test_tasks_without_schedules_and_wrong_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="tasks that are formulas .* task 'hover' has none: choose one"):
        train(make_env(load_task("hover"), num_worlds=2, seed=1), TGPOConfig(**SMALL), out=tmp_path)
    with pytest.raises(SettingsError, match="task 'stl' has none: .* say task.settings.view=scheduled"):
        train(
            make_env(load_task("stl", **SEQUENCE, view="terminal_robustness"), num_worlds=2, seed=1),
            TGPOConfig(**SMALL),
            out=tmp_path,
        )
    for wrong, told in (
        ({"uniform": 2.0}, "a share"),
        ({"candidates": 999}, "at most schedule_buffer"),
        ({"schedule_buffer": 1}, "least 2"),
        ({"patience": -1.0}, "negative"),
        ({"frontier": 1.5}, "a share"),
        ({"places": 0}, "positive"),
    ):
        with pytest.raises(ValueError, match=told):
            TGPOConfig(**{**SMALL, **wrong})


def test_a_policy_that_follows_schedules_is_not_trained_without_who_chooses_them(tmp_path: Path) -> None:
    env = env_of(task_of(), 4)
    with pytest.raises(SettingsError, match="say algo=tgpo, or for ppo task.settings.view=terminal_robustness"):
        ppo.train(env, PPOConfig(), out=tmp_path)


@pytest.mark.parametrize(("said", "kind"), [(None, rows.Kernel), (False, rows.Plain)])
def test_what_tgpo_asks_of_starts_and_schedules_is_compiled_as_the_environment_is(said, kind, monkeypatch):
    functions = []
    monkeypatch.setattr(schedule_choice, "VectorizedFunction",
                        lambda *given: functions.append(rows.VectorizedFunction(*given)) or functions[-1])
    env = make_env(
        load_task("stl", **SEQUENCE), num_worlds=16, seed=1, threads=1, mid_episode_starts=1.0, compiled=said
    )
    env.reset()
    see = schedule_choice.seeing(env.task.observe, env.compiled)
    truth = env.true_signals()
    memory = {name: torch.zeros(16, *shape) for name, shape in env.task.observe.memory.items()}
    obs = see(truth, memory)
    torch.testing.assert_close(
        obs, env.task.observe({name: truth[name] for name in env.task.observe.signals}, memory)[0]
    )
    for function in (env.task.schedules.feasible, *functions):
        assert [type(made) for made in function._made.values()] == [kind]
    assert len(functions) == 1
