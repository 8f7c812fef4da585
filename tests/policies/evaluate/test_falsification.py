"""Falsifying a policy: each name sets what it says, a flight depends on its parameters and seed alone, and it is judged
as in an evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor

from temporeal.policies.evaluate.evaluation import evaluate
from temporeal.policies.evaluate.falsification import (
    ALIVE,
    PolicyRollout,
    check_space,
    default_space,
    falsify_policy,
    make_draws,
    policy_judge,
)
from temporeal.policies.evaluate.rollout import Rollout, rollout
from temporeal.sim.compiler.keyed_random import stream, uniform
from temporeal.sim.env import Env, make_env
from temporeal.sim.randomization.distributions import draw_parameters
from temporeal.sim.stl.analysis.counterexample import load_counterexample, replay, save_counterexample
from temporeal.sim.stl.analysis.falsify import falsify
from temporeal.sim.stl.analysis.parameter_space import (
    Choice,
    Integer,
    ParameterSpace,
    Real,
    SpaceError,
    space_from_json,
)
from temporeal.sim.stl.analysis.rollouts import conjuncts
from temporeal.sim.stl.analysis.search_options import SearchOptions
from temporeal.sim.task import load_task

WORLDS, SEED = 6, 11
RANDOM = {"mass": {"kind": "sources"}, "motor_gain": {"kind": "sources", "shared": True, "scale": 0.5},
          "command_delay": {"kind": "uniform", "low": 0.0, "high": 0.02}, "force_w": {"kind": "normal", "std": 0.01},
          "inertia": {"kind": "sources", "shared": True}}
SENSORS = {"noise": {"base_pos_w": 0.01}, "bias": {"base_quat_w": 0.02}, "delay_steps": 2}
# the draw that starts a hover level and at rest, at home
STILL = Real("start.initial.guided", (0.0,), (0.05,))


def world(formula: str = "G[0,0.4] (height > 0.9)", *, worlds: int = WORLDS, backend: str = "quadrotor",
          seconds: float = 0.4, randomize: Any = None, sensors: Any = None) -> Env:
    task = replace(load_task("hover", formula=formula), episode_s=seconds)
    return make_env(task, num_worlds=worlds, seed=SEED, threads=1, randomize=randomize, sensors=sensors,
                    backend=backend)


def still(env: Env) -> Callable[[Tensor], Tensor]:
    """The command that hovers, whatever happens."""
    return lambda obs: torch.zeros(len(obs), env.action_dim)


def steering(env: Env) -> Callable[[Tensor], Tensor]:
    """A fixed random network: it sees noise, delay and bias, and tells on them."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(env.obs_dim, 32), torch.nn.Tanh(), torch.nn.Linear(32, env.action_dim))
    return lambda obs: 0.3 * torch.tanh(net(obs))


def seeds(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.slow
def test_flights_are_those_of_an_evaluation() -> None:
    """World w of an evaluation, given its own mass as a parameter and w as its seed: the same, bit for bit."""
    env = world(randomize=RANDOM, sensors=SENSORS)
    ids, first = torch.arange(WORLDS), torch.zeros(WORLDS, dtype=torch.int64)
    mass = draw_parameters(env.backend.parameters, env.distribution.randomization, SEED, ids, first)["mass"].numpy()
    flown = PolicyRollout(env, steering, ParameterSpace((Real("physics.mass", 0.02, 0.04),)))
    mine = flown({"physics.mass": mass}, np.arange(WORLDS))
    other = world(randomize=RANDOM, sensors=SENSORS)
    theirs = rollout(other, steering(other))
    for name, value in theirs.signals.items():
        assert np.array_equal(mine[name], value), name
    assert (mine[ALIVE].sum(0) == theirs.lengths).all()


@pytest.mark.slow
def test_a_flight_depends_on_its_parameters_and_seed_alone() -> None:
    """Not on its world, on the others, on how many there are in the batch, or on what flew before, and ended when."""
    env = world(randomize=RANDOM, sensors=SENSORS, seconds=1.0)
    space = default_space(env)
    flown = PolicyRollout(env, steering, space)
    values = space.sample(np.random.default_rng(0), WORLDS)
    together = flown(values, seeds(4, 4, 4, 9, 9, 9))
    assert len(set(together[ALIVE].sum(0))) > 1, "flights must end at different times for this to say something"
    order = np.array([5, 3, 1, 0, 2, 4])
    turned = flown({k: v[order] for k, v in values.items()}, seeds(4, 4, 4, 9, 9, 9)[order])
    for i in (0, 4):
        alone = flown({k: v[i : i + 1] for k, v in values.items()}, seeds(4, 4, 4, 9, 9, 9)[i : i + 1])
        for name in together:
            length = len(alone[name])  # the others may have flown longer
            assert np.array_equal(alone[name][:, 0], together[name][:length, i])
            assert np.array_equal(turned[name][:, int(np.flatnonzero(order == i)[0])], together[name][:, i])
    other_noise = flown(values, seeds(5, 5, 5, 9, 9, 9))
    assert not np.array_equal(other_noise["base_pos_w"][:, 0], together["base_pos_w"][:, 0])
    assert np.array_equal(other_noise["base_pos_w"][:, 3], together["base_pos_w"][:, 3])


@pytest.mark.parametrize("backend", ["quadrotor", pytest.param("mujoco", marks=pytest.mark.slow)])
def test_start_is_what_the_space_says(backend: str) -> None:
    env = world(backend=backend)
    space = ParameterSpace((STILL, Real("state.base_pos_w", (-0.1, -0.1, 0.9), (0.1, 0.1, 1.1)),
                   Real("state.base_vel_w", (-1.0, -1.0, -1.0), (1.0, 1.0, 1.0))))
    values = space.sample(np.random.default_rng(1), WORLDS)
    found = PolicyRollout(env, still, space)(values, np.zeros(WORLDS, np.int64))
    for name in ("base_pos_w", "base_vel_w"):
        np.testing.assert_allclose(found[name][0], values[f"state.{name}"], atol=1e-6)
    np.testing.assert_allclose(found["base_quat_w"][0], np.tile([1.0, 0, 0, 0], (WORLDS, 1)), atol=1e-6)


@pytest.mark.parametrize(("task", "name"), [("reach", "goal_pos_w"), ("stl", "schedule")])
def test_what_the_task_adds_begins_as_the_space_says(task: str, name: str) -> None:
    """Goals and schedules are part of the start: made of its draws, or given; the same in whatever world."""
    env = make_env(load_task(task), num_worlds=4, seed=SEED, threads=1)
    flown = PolicyRollout(env, still, default_space(env))
    values = flown.space.sample(np.random.default_rng(0), 3)
    found = flown(values, seeds(1, 2, 3))[name]
    drawn = {k.removeprefix("start."): torch.tensor(v, dtype=torch.float32) for k, v in values.items()}
    expected = env.task.initial(lambda stream, count: drawn[stream])[name]
    np.testing.assert_array_equal(found[0], expected)
    assert len({tuple(row.tolist()) for row in found[0]}) == 3
    turned = flown({k: v[::-1].copy() for k, v in values.items()}, seeds(3, 2, 1))[name]
    np.testing.assert_array_equal(turned[:, ::-1], found)
    chosen = Real(f"state.{name}", *np.stack([found[0].min(0), found[0].max(0)]).tolist())
    np.testing.assert_allclose(
        PolicyRollout(env, still, ParameterSpace((chosen,)))({chosen.name: found[0][::-1]}, seeds(1, 2, 3))[name][0],
        found[0][::-1], atol=1e-6)


def test_reset_draws_span_the_tasks_own_starts() -> None:
    """Corners of the default space are extreme starts of the task: 0.2 m from home, tilted by 90 degrees."""
    env = world()
    space = default_space(env)
    assert space.names == ("start.initial", "start.initial.guided")
    values = space.from_unit(np.ones((1, space.dim)))
    found = PolicyRollout(env, still, space)(values, seeds(0))
    np.testing.assert_allclose(found["base_pos_w"][0, 0], [0.2, 0.2, 1.2], atol=1e-5)
    np.testing.assert_allclose(found["base_vel_w"][0, 0], [1, 1, 1], atol=1e-5)


@pytest.mark.parametrize("backend", ["quadrotor", pytest.param("mujoco", marks=pytest.mark.slow)])
def test_push_gives_its_impulse_in_its_time(backend: str) -> None:
    """0.02 N for 0.1 s on 0.0319 kg: 0.063 m/s, from 0.1 s on; and never again in the next batch."""
    env = world(backend=backend)
    space = ParameterSpace((STILL, Real("push.at_s", 0.0, 0.3), Real("push.for_s", 0.0, 0.3),
                   Real("push.force_w", (-0.1,) * 3, (0.1,) * 3)))
    flown = PolicyRollout(env, still, space)
    values = {"start.initial.guided": np.zeros((2, 1)), "push.at_s": np.array([0.1, 0.1]),
              "push.for_s": np.array([0.1, 0.1]), "push.force_w": np.array([[0.02, 0, 0], [0, 0, 0]])}
    speed = flown(values, seeds(0, 0))["base_vel_w"][:, :, 0]
    mass = env.task.robot.parameters["mass"].nominal[0]
    np.testing.assert_allclose(speed[:11], 0, atol=1e-5)
    assert speed[20, 0] == pytest.approx(0.02 * 0.1 / mass, rel=0.05)
    assert speed[15, 0] == pytest.approx(0.5 * speed[20, 0], rel=0.05)
    assert abs(speed[40, 0] - speed[20, 0]) < 0.1 * speed[20, 0], "only drag acts afterwards"
    np.testing.assert_allclose(speed[:, 1], 0, atol=1e-5)
    assert flown({**values, "push.at_s": np.array([0.3, 0.3])}, seeds(0, 0))["base_vel_w"][20, 0, 0] == 0
    values["push.force_w"][:] = 0
    np.testing.assert_allclose(flown(values, seeds(0, 0))["base_vel_w"][:, :, 0], 0, atol=1e-5)


def test_push_adds_to_a_constant_force() -> None:
    """It ends, and the constant force goes on: 0.01 N all the time, 0.02 N more for 0.1 s, less the drag."""
    env = world()
    space = ParameterSpace((STILL, Real("push.at_s", 0.0, 0.3), Real("push.for_s", 0.0, 0.3),
                   Real("push.force_w", (-0.1,) * 3, (0.1,) * 3), Real("physics.force_w", (-0.1,) * 3, (0.1,) * 3)))
    values = {"start.initial.guided": np.zeros((1, 1)), "push.at_s": np.array([0.1]), "push.for_s": np.array([0.1]),
              "push.force_w": np.array([[0.02, 0, 0]]), "physics.force_w": np.array([[0.01, 0, 0]])}
    found = PolicyRollout(env, still, space)(values, seeds(0))
    mass, drag = (env.task.robot.parameters[name].nominal[0] for name in ("mass", "drag"))
    momentum = (mass * found["base_vel_w"] + drag * found["base_pos_w"])[:, 0, 0]
    np.testing.assert_allclose(np.diff(momentum[[0, 10, 20, 40]]), [0.001, 0.003, 0.002], rtol=0.02)


def test_physics_take_effect_and_a_scalar_is_all_components() -> None:
    env = world()
    one = ParameterSpace((STILL, Real("physics.motor_gain", 0.8, 1.2)))
    four = ParameterSpace((STILL, Real("physics.motor_gain", (0.8,) * 4, (1.2,) * 4)))
    start = {"start.initial.guided": np.zeros((3, 1))}
    gains = np.array([0.9, 1.0, 1.1])
    a = PolicyRollout(env, still, one)({**start, "physics.motor_gain": gains}, seeds(0, 0, 0))
    end = a["base_vel_w"][-1, :, 2]
    assert end[0] < -0.2 < abs(end[1]) < 0.2 < end[2]
    b = PolicyRollout(world(), still, four)({**start, "physics.motor_gain": np.repeat(gains[:, None], 4, 1)},
                                            seeds(0, 0, 0))
    assert np.array_equal(a["base_pos_w"], b["base_pos_w"])


@pytest.mark.slow
def test_default_space_spans_the_randomization() -> None:
    env = world(randomize=RANDOM, sensors=SENSORS)
    by_name = {p.name: p for p in default_space(env).parameters}
    p = env.task.robot.parameters
    assert by_name["physics.mass"] == Real("physics.mass", p["mass"].low[0], p["mass"].high[0])
    assert by_name["physics.motor_gain"] == Real("physics.motor_gain", 0.925, 1.075)
    assert by_name["physics.force_w"] == Real("physics.force_w", (-0.03,) * 3, (0.03,) * 3, "normal")
    assert by_name["sensor.delay_steps"] == Integer("sensor.delay_steps", 0, 2)
    assert by_name["sensor.bias.base_quat_w"] == Real("sensor.bias.base_quat_w", (-0.06,) * 3, (0.06,) * 3,
                                                          "normal")
    assert by_name["share.inertia"] == Real("share.inertia", 0.0, 1.0), "its components share a draw, not a value"


@pytest.mark.slow
def test_samples_of_the_default_space_are_an_evaluations_draws() -> None:
    """Mean, deviation and extremes of every physical parameter, and of the starts, in 20,000 draws of each."""
    env = world(randomize=RANDOM, sensors=SENSORS)
    count = 20000
    ids, first = torch.arange(count), torch.zeros(count, dtype=torch.int64)
    params = draw_parameters(env.backend.parameters, env.distribution.randomization, 5, ids, first)
    start = env.task.initial(lambda name, size: uniform(5, ids, first, stream(name), size))
    sampled = default_space(env).sample(np.random.default_rng(0), count)
    drawn, _ = make_draws(env, sampled, np.arange(count))
    for name, theirs in {**params, **start}.items():
        mine = {**drawn.parameters, **drawn.state}[name]
        spread = float(theirs.std())
        np.testing.assert_allclose(mine.mean(0), theirs.mean(0), atol=0.04 * spread, err_msg=name)
        np.testing.assert_allclose(mine.std(0), theirs.std(0), rtol=0.04, err_msg=name)
        assert float(mine.max()) <= float(theirs.max()) + 0.01 * spread
        assert float(mine.min()) >= float(theirs.min()) - 0.01 * spread


@pytest.mark.slow
def test_everything_that_an_evaluation_draws_of_its_sensors_is_searched() -> None:
    """Errors by component, delays and phases of groups, errors that wander: drawn alike, and within their ranges."""
    sensors = {"bias": {"base_pos_w": {"std": [0.01, 0.0, 0.03]}}, "scale": {"base_vel_w": 0.05},
               "drift": {"base_vel_w": {"std": 0.1, "time_s": 2.0}},
               "groups": {"camera": {"signals": ["base_pos_w"], "delay_steps": [1, 3], "rate_hz": 25.0}}}
    env = world(sensors=sensors)
    space = default_space(env)
    drawn = env.distribution.sensors.drawn
    assert {n for n in space.names if n.startswith("sensor.")} == {f"sensor.{n}" for n in drawn}
    by_name = {p.name: p for p in space.parameters}
    assert by_name["sensor.delay.camera"] == Integer("sensor.delay.camera", 1, 3)
    assert by_name["sensor.bias.base_pos_w"].high == pytest.approx((0.03, 0.0, 0.09))  # type: ignore[union-attr]
    flown = PolicyRollout(env, still, space)
    flown(space.sample(np.random.default_rng(0), 2), seeds(0, 1))
    for wrong, told in ((Integer("sensor.delay.camera", 0, 3), "from 1 to 3"),
                        (Real("sensor.phase.camera", 0.0, 2.0), "a share of the period")):
        with pytest.raises(SpaceError, match=told):
            check_space(ParameterSpace((wrong,)), env)


def test_pushes_are_for_what_can_be_pushed() -> None:
    env = make_env(load_task("stl"), num_worlds=1, seed=1, threads=1)
    with pytest.raises(SpaceError, match="unknown parameter 'push.force_w'"):
        check_space(ParameterSpace((Real("push.force_w", (0.0,) * 3, (1.0,) * 3),)), env)


def test_share_moves_all_components_together() -> None:
    env = world(randomize=RANDOM)
    space = ParameterSpace((STILL, Real("share.inertia", 0.0, 1.0), Real("start.initial", (0.0,) * 12, (0.9,) * 12)))
    check_space(space, env)
    drawn, _ = make_draws(env, {"start.initial.guided": np.zeros((3, 1)), "start.initial": np.zeros((3, 12)),
                                "share.inertia": np.array([0.0, 0.5, 1.0])}, seeds(0, 0, 0))
    p = env.task.robot.parameters["inertia"]
    found = drawn.parameters["inertia"]
    np.testing.assert_allclose(found, [p.low, 0.5 * (np.array(p.low) + p.high), p.high], rtol=1e-6)


@pytest.mark.parametrize(("parameter", "told"), [
    (Real("physics.weight", 0.0, 1.0), "unknown parameter 'physics.weight'; legal: start.initial"),
    (Real("physics.mass", (0.02, 0.02), (0.03, 0.03)), "is a scalar"),
    (Real("start.initial", 0.0, 1.0), "is 12 components"),
    (Real("push.force_w", (0.0,) * 3, (0.1,) * 3), "needs push.at_s and push.for_s"),
    (Integer("sensor.delay_steps", 0, 3), "from 0 to 2"), (Real("sensor.delay_steps", 0.0, 1.5), "whole number"),
    (Real("sensor.delay_steps", 0.0, 1.0), "integer: true"), (Choice("sensor.delay_steps", (0, 5)), "from 0 to 2"),
    (Real("physics.command_delay", 0.0, 0.03), "runs from 0 to 0.03; legal: from 0 to 0.02 .*one control step, 0.01 s"),
    (Real("push.at_s", 0.0, 0.1), "needs|without push.force_w"),
    (Real("start.initial", (0.0,) * 12, (1.0,) * 12), "runs from 0 to 1; legal: from 0 to 0.99999994"),
    (Real("start.initial", (-0.1,) * 12, (0.5,) * 12), "legal: from 0"), (Real("share.inertia", 0.0, 1.1), "to 1 "),
    (Choice("physics.mass", ("heavy", "light")), "its choices are numbers"),
    (Choice("physics.mass", ("3e-2", "0.031")), "YAML reads 3e-2 as a text: write 3.0e-2"),
    (Choice("start.initial", (0.1, 0.2)), "12 components, got choices"),
    (Real("sensor.bias.height", 0.0, 1.0), "unknown parameter"),
])  # fmt: skip
def test_bad_spaces_name_the_legal(parameter: Any, told: str) -> None:
    env = world(randomize=RANDOM, sensors=SENSORS)
    with pytest.raises(SpaceError, match=told):
        check_space(ParameterSpace((parameter,)), env)


@pytest.mark.parametrize(("at", "lasts", "told"), [
    ((-1.0, 0.1), (0.0, 0.1), "push.at_s' runs from -1 to 0.1; legal: from 0 to 0.4"),
    ((0.0, 0.5), (0.0, 0.1), "push.at_s"), ((0.0, 0.1), (-0.1, 0.1), "push.for_s' runs from -0.1"),
])  # fmt: skip
def test_push_outside_of_the_flight_is_refused(at: Any, lasts: Any, told: str) -> None:
    push = (Real("push.at_s", *at), Real("push.for_s", *lasts), Real("push.force_w", (0.0,) * 3, (0.1,) * 3))
    with pytest.raises(SpaceError, match=told):
        check_space(ParameterSpace(push), world())


def test_command_delay_beyond_a_control_step_is_refused() -> None:
    with pytest.raises(SpaceError, match=r"legal: from 0 to 0.01 \("):
        check_space(ParameterSpace((Real("physics.command_delay", 0.0, 0.02),)), world())
    check_space(ParameterSpace((Real("physics.command_delay", 0.0, 0.01),)), world())


def test_bound_that_the_simulator_refuses_is_refused_before_the_search() -> None:
    with pytest.raises(ValueError, match="mass must be > 0"):
        PolicyRollout(world(), still, ParameterSpace((Real("physics.mass", -0.01, 0.03),)))


def test_judgement_is_that_of_an_evaluation() -> None:
    """The verdict also of flights that leave the fence and end early, the robustness of the others."""
    formula = "G[0,0.4] (height > 0.8 & height < 1.5) & F[0,0.4] (base_vel_w.z > 0.5)"
    env = world(formula, worlds=64)
    space = ParameterSpace((Real("state.base_vel_w", (-3.0,) * 3, (3.0,) * 3),))
    values = space.sample(np.random.default_rng(0), 64)
    signals = PolicyRollout(env, still, space)(values, np.zeros(64, np.int64))
    lengths = signals[ALIVE].sum(0).astype(int)
    assert (lengths < 41).any()
    traces = {k: v for k, v in signals.items() if k != ALIVE}
    nothing = np.zeros(64, bool)
    theirs = evaluate(Rollout(traces, np.zeros((len(traces["height"]) - 1, 64, 4)), lengths, nothing, ~nothing, 0.01),
                      env.task.formula).episodes
    judge = policy_judge(0.01)
    whole = judge(env.task.formula, signals)
    assert whole.undecided is not None
    full = lengths == lengths.max()
    assert 0 < full.sum() < 64
    assert np.array_equal(whole.robustness[full], theirs.robustness[full])
    assert np.array_equal(~(whole.violated | whole.undecided), theirs.satisfied)
    assert not whole.undecided[full].any()
    assert 0 < whole.violated.sum() < 64
    parts = [judge(part, signals) for part in conjuncts(env.task.formula)]
    assert np.array_equal(np.min([p.robustness for p in parts], axis=0), whole.robustness)


def ended(height: list[float], pad: float) -> dict[str, np.ndarray]:
    """One flight that ended after these samples, beside others that flew for 40: what follows is not the flight's."""
    trace = np.array(height + [pad] * (41 - len(height)), np.float32)[:, None]
    return {"height": trace, ALIVE: (np.arange(41) < len(height)).astype(np.float32)[:, None]}


def test_nothing_is_made_up_after_the_end_of_a_flight() -> None:
    """The floor was left at 0.02 s by 0.05 m, and so it stays, whatever stands in the samples that nobody flew."""
    judge = policy_judge(0.01)
    floor, climb = (parse(text) for text in ("G[0,0.4] (height > 0.5)", "F[0,0.4] (height > 2)"))
    for pad in (-7.0, 9.0):
        signals = ended([0.9, 0.7, 0.45], pad)
        failed, left = judge(floor, signals), judge(climb, signals)
        assert (failed.violated[0], failed.undecided[0]) == (True, False)
        assert failed.robustness[0] == pytest.approx(-0.05)
        assert failed.decided_at_s[0] == pytest.approx(0.02)
        assert (left.violated[0], left.undecided[0], left.robustness[0]) == (False, True, np.inf)
        assert judge(floor & climb, signals).robustness[0] == failed.robustness[0]


def parse(text: str) -> Any:
    return load_task("hover", formula=text).formula


def ending_early(parameters: dict[str, np.ndarray], seeds: np.ndarray) -> dict[str, np.ndarray]:
    """Falls through the floor at 0.02 s where p > 0, and is cut off above it otherwise."""
    flights = [ended([0.9, 0.7, 0.45 if p > 0 else 0.6], 0.0) for p in parameters["p"]]
    return {name: np.concatenate([f[name] for f in flights], 1) for name in flights[0]}


@pytest.mark.parametrize("attack", ["formula", "clauses"])
def test_the_clause_that_failed_is_named_and_open_ones_are_undecided(attack: str) -> None:
    formula = parse("F[0,0.4] (height > 2) & G[0,0.4] (height > 0.5) & F[0,0.3] (height > 3)")
    found = falsify(ending_early, formula, ParameterSpace((Real("p", -1.0, 1.0),)), 0.01,
                    SearchOptions(budget=40, seed=0, attack=attack, stop_at_violation=False), judge=policy_judge(0.01))
    assert (found.verdict, found.clause) == ("violated", "G[0,0.4] (height > 0.5)")
    assert found.robustness == found.margin == pytest.approx(-0.05)
    assert found.at_s == pytest.approx(0.02)
    assert "first at 0.02 s, by G[0,0.4]" in found.statement()
    assert [(c.violated, c.undecided) for c in found.clauses] == [(False, True), (True, False), (False, True)]
    assert found.evaluations == 40, "an open clause is no hit: the searches for it go on"


def test_the_clause_that_failed_first_is_named_not_the_one_that_failed_by_more() -> None:
    formula = parse("G[0,0.4] (height > 0.85) & G[0,0.4] (height > 0.89)")
    late = parse("G[0,0.01] (height < 0.95) & F[0.02,0.02] (height > 2)")
    judge = policy_judge(0.01)
    space = ParameterSpace((Real("p", 0.5, 1.0),))
    found = falsify(ending_early, formula, space, 0.01, SearchOptions(budget=4, method="random"), judge=judge)
    assert (found.clause, found.at_s) == ("G[0,0.4] (height > 0.89)", 0.01), "at one time: the one that fails by more"
    early = falsify(ending_early, parse("F[0.02,0.02] (height > 2) & G[0,0.01] (height < 0.89)"), space, 0.01,
                    SearchOptions(budget=4, method="random"), judge=judge)
    assert (early.clause, early.at_s) == ("G[0,0.01] (height < 0.89)", 0.0)
    assert early.robustness == pytest.approx(-1.55)
    assert early.margin == pytest.approx(-0.01)
    assert f"by {early.clause}, whose margin is -0.00999" in early.statement()
    alone = falsify(ending_early, late, space, 0.01, SearchOptions(budget=4, method="random"), judge=judge)
    assert alone.clause == "F[0.02,0.02] (height > 2)"


def test_flight_that_ended_undecided_is_told_and_is_no_violation() -> None:
    found = falsify(ending_early, parse("G[0,0.4] (height > 0.5)"), ParameterSpace((Real("p", -1.0, -0.5),)), 0.01,
                    SearchOptions(budget=10, method="random"), judge=policy_judge(0.01))
    assert (found.verdict, found.evaluations) == ("undecided", 10)
    assert not found.counterexample().violated
    assert found.sampled is not None
    assert found.sampled.findings == 10
    again = replay(found.counterexample(), ending_early, policy_judge(0.01))
    assert (again.undecided, again.violated, again.identical) == (True, False, True)


def test_choices_are_searched() -> None:
    env = world()
    space = space_from_json({"start.initial.guided": {"low": [0], "high": [0.05]},
                             "physics.mass": {"choices": [0.03, 0.031]}})
    PolicyRollout(env, still, space)
    masses = make_draws(env, space.sample(np.random.default_rng(0), 16), np.zeros(16, np.int64))[0].parameters["mass"]
    assert set(masses.ravel().tolist()) == {float(np.float32(0.03)), float(np.float32(0.031))}
    with pytest.raises(ValueError, match="mass must be > 0"):
        PolicyRollout(world(), still, ParameterSpace((Choice("physics.mass", (0.03, -1.0, 0.031)),)))


def test_search_finds_the_force_that_sinks_it_and_replays(tmp_path: Any) -> None:
    """Hovering blindly under a constant force: after 0.4 s it has fallen by 0.5 F/m t^2, 0.1 m at F = 0.04 N."""
    env = world(worlds=16)
    space = ParameterSpace((STILL, Real("physics.force_w", (-0.05,) * 3, (0.05,) * 3)))
    flown = PolicyRollout(env, still, space)
    found = falsify_policy(flown, SearchOptions(budget=160, seed=1, stop_at_violation=False))
    assert found.verdict == "violated"
    assert found.parameters["physics.force_w"][2] < -0.045
    mass = env.task.robot.parameters["mass"].nominal[0]
    assert found.robustness == pytest.approx(0.1 - 0.5 * 0.05 / mass * 0.4**2, abs=0.01)
    assert found.robustness == found.searched
    back = load_counterexample(save_counterexample(tmp_path / "found.npz", found.counterexample()))
    again = replay(back, PolicyRollout(world(worlds=16), still, space), policy_judge(0.01))
    assert again.identical
    assert (again.robustness, again.tolerance, again.violated) == (found.robustness, 0.0, True)


def test_too_many_candidates_are_refused() -> None:
    flown = PolicyRollout(world(worlds=2), still, ParameterSpace((STILL,)))
    with pytest.raises(ValueError, match="3 candidates at once, the environment has 2"):
        flown({"start.initial.guided": np.zeros((3, 1))}, seeds(0, 0, 0))


@pytest.mark.slow
def test_space_of_the_documentation_is_legal() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to/stl-falsification.md").read_text()
    space = space_from_json(yaml.safe_load(page.split("```yaml\n")[1].split("```")[0]))
    assert len(space.parameters) == 8
    flown = PolicyRollout(world(randomize=RANDOM, sensors=SENSORS, seconds=8.0), still, space)
    assert flown(space.sample(np.random.default_rng(0), 2), seeds(0, 1))["height"].shape[1] == 2
