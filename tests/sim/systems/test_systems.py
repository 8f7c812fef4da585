"""Each system: what is seen and where it starts is as it says, and its model predicts what its simulator does."""

from __future__ import annotations

from math import pi

import pytest
import torch

from temporeal.robots.registry import names, resolve
from temporeal.sim.system import flat, states_after

SYSTEMS = tuple(names("temporeal.sim.systems"))
TOLERANCE = {"linear": 1e-5, "unicycle": 1e-5, "quadrotor": 1e-4, "franka": 5e-3}
"""Of the signals that formulas read, m, m/s and rad, over the steps below; Franka's model leaves friction out."""
STEPS = {"linear": 60, "unicycle": 60, "quadrotor": 50, "franka": 40, "ant": 5}


def draw(count, seed=0):
    """As an environment draws: keyed by stream."""
    def numbers(stream, size):
        generator = torch.Generator().manual_seed(seed + sum(map(ord, stream)))
        return torch.rand(count, size, generator=generator)

    return numbers


def simulated(system, count, start=None, seed=0):
    """The system's backend in ``count`` worlds at its starts."""
    sim = resolve("temporeal.sim.backends", system.backend).make(
        system.scene, count, system.command, dt=system.control_dt / system.substeps, threads=1)
    sim.reset(torch.arange(count), system.initial(draw(count, seed), start or {}))
    return sim


def controlled(system, sim, memory, action):
    """One control step in the simulator as an environment makes it; the memory after it."""
    memory = system.record(system.follow(sim.signals(), memory), action)
    sim.step(system.act(action, memory), system.substeps)
    return memory


def fresh(system, count):
    return {name: torch.zeros(count, *shape) for name, shape in system.memory.items()}


def actions(system, count, seed=0):
    """Smooth random actions [T, N, A]: what lasts moves further than what trembles."""
    steps, size = STEPS[system.name], system.act.action_dim
    generator = torch.Generator().manual_seed(seed)
    knots = 2 * torch.rand(count, size, 6, generator=generator) - 1
    smooth = torch.nn.functional.interpolate(knots, steps, mode="linear", align_corners=True)
    return 0.8 * smooth.permute(2, 0, 1)


@pytest.fixture(scope="module", params=SYSTEMS)
def system(request):
    return resolve("temporeal.sim.systems", request.param).make()


def test_the_five_systems_are_there():
    assert set(SYSTEMS) == {"linear", "unicycle", "quadrotor", "franka", "ant"}


def test_a_system_fits_its_simulator_and_its_maps(system):
    sim, seen = simulated(system, 3), system.signals
    signals = sim.signals()
    assert set(system.reads) | set(seen) <= set(system.scene.signals)
    for name, spec in seen.items():
        assert signals[name].shape == (3, *spec.shape)
    observed = system.observe({name: signals[name] for name in system.reads})
    assert observed.shape == (3, system.size) and observed.abs().max() < 3
    memory = controlled(system, sim, fresh(system, 3), torch.zeros(3, system.act.action_dim))
    assert set(memory) == set(system.memory)
    assert torch.isfinite(system.observe(sim.signals())).all()
    sim.close()


def test_actions_are_clipped_and_move_the_robot(system):
    sim, other = simulated(system, 4), simulated(system, 4)
    first = {name: value.clone() for name, value in sim.signals().items()}
    one = torch.ones(4, system.act.action_dim)
    memories = [fresh(system, 4), fresh(system, 4)]
    for _ in range(3):
        memories = [controlled(system, sim, memories[0], one), controlled(system, other, memories[1], 5 * one)]
    name = next(iter(system.signals))
    assert (sim.signals()[name] - first[name]).abs().max() > 1e-4
    assert torch.equal(sim.signals()[name], other.signals()[name])
    sim.close()
    other.close()


def test_starts_lie_in_the_box_that_is_asked_for(system):
    if system.name == "franka":
        near, far = (system.initial(draw(200), {"spread": s})["joint_pos"] for s in (0.0, 0.3))
        assert near.std(0).max() < 1e-6 and (far - near).abs().max() <= 0.3 and (far - near).abs().max() > 0.28
        return
    size = len(system.fence["low"])
    low, high = [-1.0, 0.5, 0.6][:size], [-0.4, 0.9, 0.7][:size]
    place = system.initial(draw(400), {"low": low, "high": high})["base_pos_w"][:, :size]
    for axis in range(size):
        assert low[axis] <= place[:, axis].min() and place[:, axis].max() <= high[axis]
        assert place[:, axis].max() - place[:, axis].min() > 0.9 * (high[axis] - low[axis])


def test_headings_are_as_asked_for():
    system = resolve("temporeal.sim.systems", "unicycle").make()
    for wanted in ((-pi, pi), (1.0, 1.5)):
        quat = system.initial(draw(400), {"heading": wanted})["base_quat_w"]
        yaw = 2 * torch.atan2(quat[:, 3], quat[:, 0])
        assert wanted[0] - 1e-5 <= yaw.min() and yaw.max() <= wanted[1] + 1e-5
        assert yaw.max() - yaw.min() > 0.9 * (wanted[1] - wanted[0])


@pytest.mark.parametrize(("name", "start", "told"), [
    ("linear", {"lo": [0, 0]}, "unknown settings .*'lo'.*; legal: low, high"),
    ("linear", {"low": [0, 0, 0]}, "low is 2 finite numbers"),
    ("unicycle", {"low": [0, float("nan")]}, "low is 2 finite numbers"),
    ("linear", {"low": [1, 0], "high": [0, 1]}, "of low and high the first must not be above"),
    ("unicycle", {"heading": [1.0, -1.0]}, r"of heading\[0\] and heading\[1\]"),
    ("linear", {"low": [-6, 0]}, "must lie within the arena"),
    ("quadrotor", {"high": [0, 0, 3]}, "must lie within the arena"),
    ("franka", {"spread": 2.0}, "spread is 0 to 0.5 rad"),
    ("ant", {"low": "here"}, "low is 2 finite numbers"),
])  # fmt: skip
def test_starts_that_make_no_sense_are_refused(name, start, told):
    with pytest.raises(ValueError, match=told):
        resolve("temporeal.sim.systems", name).make().initial(draw(2), start)


# ---------------------------------------------------------------- models


def between_values(name, a, b):
    """The largest difference; q and -q are one attitude."""
    gap = (a - b).abs().amax(-1)
    return torch.minimum(gap, (a + b).abs().amax(-1)).max() if "quat" in name else gap.max()


@pytest.fixture(scope="module", params=TOLERANCE)
def modelled(request):
    return resolve("temporeal.sim.systems", request.param).make()


@pytest.mark.slow
def test_a_model_predicts_what_the_simulator_does(modelled):
    """Not step by step: from the start to the end of a plan, as a planner uses it."""
    system, count = modelled, 5
    sim = simulated(system, count)
    memory, tolerance = fresh(system, count), TOLERANCE[system.name]
    state, first = system.model.state({k: v.clone() for k, v in sim.signals().items()}), None
    for action in actions(system, count):
        memory = controlled(system, sim, memory, action)
        state = system.model.step(state, action)
        found, true = system.model.signals(state), sim.signals()
        first = first or {name: true[name].clone() for name in system.signals if name in found}
        for name in first:
            gap = between_values(name, found[name], true[name])
            assert gap < tolerance * (10 if name == "base_ang_vel_b" else 1), (name, float(gap))
    name = next(iter(system.signals))
    assert (sim.signals()[name] - first[name]).norm(dim=-1).min() > 0.03  # it went somewhere
    sim.close()


@pytest.mark.slow
def test_a_model_starts_from_what_is_measured(modelled):
    """In mid-flight: the state of the signals predicts on."""
    system, count = modelled, 3
    sim, memory = simulated(system, count), fresh(system, count)
    plan = actions(system, count)
    half = len(plan) // 2
    for action in plan[:half]:
        memory = controlled(system, sim, memory, action)
    state = system.model.state({k: v.clone() for k, v in sim.signals().items()})
    for action in plan[half : half + 10]:
        memory = controlled(system, sim, memory, action)
        state = system.model.step(state, action)
    name = next(iter(system.signals))
    assert (system.model.signals(state)[name] - sim.signals()[name]).abs().max() < 2 * TOLERANCE[system.name]
    sim.close()


@pytest.mark.slow
def test_a_model_has_gradients_that_are_those_of_differences(modelled):
    """The end's place by a constant action."""
    system = modelled
    name = next(iter(system.signals))
    start = system.initial(draw(2), {})
    signals = {k: v.clone() for k, v in simulated(system, 2).signals().items()} | start
    first = system.model.state(signals)

    def end(action):
        state = first.to(action.dtype)
        for _ in range(8):
            state = system.model.step(state, action)
        return system.model.signals(state)[name].sum()

    action = torch.full((2, system.act.action_dim), 0.1, requires_grad=True)
    end(action).backward()
    size = 0.02
    for axis in range(system.act.action_dim):
        way = torch.zeros(2, system.act.action_dim)
        way[:, axis] = size
        with torch.no_grad():
            slope = (end(action + way) - end(action - way)) / (2 * size)
        assert float(action.grad[:, axis].sum()) == pytest.approx(float(slope), abs=2e-3 + 0.02 * abs(float(slope)))
    assert action.grad.abs().max() > 1e-3


@pytest.mark.slow
def test_a_model_that_goes_many_steps_at_once_goes_as_by_one():
    """With the gradient of all of them."""
    system = resolve("temporeal.sim.systems", "quadrotor").make()
    plan = actions(system, 3).permute(1, 0, 2)
    first = system.model.state({k: v.clone() for k, v in simulated(system, 3).signals().items()})
    found = {}
    for name, model in (("at once", system.model), ("one by one", StepByStep(system.model))):
        start, moves = first.clone().requires_grad_(), plan.clone().requires_grad_()
        states = states_after(model, start, moves)
        states.square().mean().backward()
        found[name] = states.detach(), start.grad, moves.grad
    assert found["at once"][0].shape == (STEPS[system.name], 3, first.shape[1])
    for a, b in zip(*found.values()):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


class StepByStep:
    """A model that says of itself only how one step goes."""

    def __init__(self, model):
        self.step, self.rollout = model.step, None


def test_a_model_keeps_the_batch_and_the_type():
    for name in ("linear", "unicycle"):
        model = resolve("temporeal.sim.systems", name).make().model
        signals = {"base_pos_w": flat(torch.rand(7, 2, dtype=torch.float64)),
                   "base_quat_w": torch.tensor([1.0, 0, 0, 0], dtype=torch.float64).expand(7, 4)}
        state = model.step(model.state(signals), torch.zeros(7, 2, dtype=torch.float64))
        assert state.dtype == torch.float64 and len(state) == 7
        assert all(value.dtype == torch.float64 for value in model.signals(state).values())
