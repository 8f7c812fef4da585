"""The contract of :class:`temporeal.sim.types.Backend`, tried on every backend in the tree with every scene it can
simulate.

A clause is left out for a backend only where it does not claim the capability; asking for that capability must then
fail (:func:`test_what_is_not_claimed_is_refused`).
"""

from __future__ import annotations

import math
import os
import threading
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contract.scenes import DT, Case, batch, cases
from tests.examples import examples

from temporeal.robots.registry import UnknownName
from temporeal.sim.capabilities import CAPABILITIES, MissingCapability
from temporeal.sim.physics.quadrotor.layout import PARAMETERS

CASES = cases()
GRAVITY = 9.81
PRIVILEGED = {"rotor_speed", "force_w", "torque_b"}  # what backends may give beyond the scene's signals
OFFSET = {"force_w": 0.02, "torque_b": 2e-5, "torque_w": 1e-3, "wind_w": 2.0, "com": 0.005, "command_delay": 2 * DT,
          "frictionloss": 0.05, "gravity_w": 1.0}  # fmt: skip
FACTOR = {"strength": 0.05, "kd": 2.0}


def over(chosen):
    """Over the cases ``chosen``. Warp's kernels take minutes to compile, and each engine of Isaac Gym's is a process of
    another Python: they are tried where proofs are."""
    return pytest.mark.parametrize("case", [
        pytest.param(case, marks=pytest.mark.slow) if str(case).startswith(("mujoco_warp", "isaacgym")) else case
        for case in chosen], ids=str)


def each(*capabilities):
    """Over all cases that claim ``capabilities``."""
    return over([case for case in CASES if case.claims.issuperset(capabilities)])


FALLING = over([case for case in CASES if case.free])
_KEPT: dict = {}


@pytest.fixture(scope="module", autouse=True)
def _close():
    yield
    for sim in _KEPT.values():
        sim.close()
    _KEPT.clear()


def simulated(case: Case, n: int):
    """A backend of ``case`` with ``n`` worlds, nominal, at home. It has been used: nothing may be left of that."""
    if (case.name, n) not in _KEPT:
        _KEPT[case.name, n] = case.make(n)
    sim = _KEPT[case.name, n]
    sim.snapshot = False
    sim.set_params(every(sim), nominal(sim, n))
    sim.reset(every(sim), {})
    return sim


def every(sim):
    return torch.arange(sim.num_worlds, device=sim.device)


def nominal(sim, n):
    """All parameters as the robot's spec or model has them, [n, count] or [n]."""
    return {name: shaped(p.nominal, n) for name, p in sim.parameters.items()}


def shaped(value, n):
    """A parameter's value for n equal worlds; [n] where the count is 1."""
    rows = torch.tensor(value, dtype=torch.float64).expand(n, -1).clone()
    return rows[:, 0] if len(value) == 1 else rows


def altered(name, p):
    """Another value of the parameter."""
    kind = name.rpartition(".")[2]
    return tuple(x * FACTOR.get(kind, 1.5) + OFFSET.get(kind, 0.0) for x in p.nominal)


def commands(case, n, seed, equal=False):
    """A command [n, U] around the one that holds; world i's does not depend on n."""
    g = torch.Generator().manual_seed(seed)
    random = torch.rand(64, len(case.hold), generator=g)[:n] * 2 - 1
    random = random[:1].expand(n, -1) if equal else random
    spec = case.scene.robot.command(case.command)
    value = torch.tensor(case.center or case.hold) + torch.tensor(case.sway) * random
    return value.clamp(torch.tensor(spec.low), torch.tensor(spec.high)).contiguous()


def hold(case, n):
    return torch.tensor(case.hold).expand(n, -1).contiguous()


def begin(case, sim, state=None):
    sim.reset(every(sim), batch(case.start if state is None else state, sim.num_worlds))


def seen(sim):
    return {name: value.clone() for name, value in sim.signals().items()}


def rows(signals, worlds):
    return {name: value[worlds] for name, value in signals.items()}


def same(a, b):
    """Equal bit for bit, names and NaN included."""
    assert set(a) == set(b)
    for name in a:
        assert torch.equal(a[name].nan_to_num(nan=7e7), b[name].nan_to_num(nan=7e7)), name


def close(case, a, b):
    """Equal, as far as the backend promises."""
    if "deterministic" in case.claims:
        return same(a, b)
    for name in a:
        assert torch.allclose(a[name], b[name], rtol=case.tolerance, atol=case.tolerance), name
    return None


def run(case, sim, steps=None, seed=0, equal=False):
    for i in range(case.steps if steps is None else steps):
        sim.step(commands(case, sim.num_worlds, seed + i, equal).to(sim.device), 5)


def moved(a, b):
    """The largest difference of any signal."""
    return max(float((a[name] - b[name]).abs().max()) for name in a)


# ---------------------------------------------------------------- what it is


@each()
def test_it_has_what_the_protocol_names(case):
    sim = simulated(case, 3)
    assert sim.capabilities == case.claims <= set(CAPABILITIES)
    assert sim.scene.robot is sim.robot and sim.robot.name == case.scene.robot.name
    assert (sim.command, sim.num_worlds, sim.dt, sim.seed) == (case.command, 3, DT, 0)
    assert isinstance(sim.device, torch.device) and isinstance(sim.snapshot, bool)
    assert sim.bad.shape == (3,) and sim.bad.dtype == torch.bool and not sim.bad.any()
    for name, p in sim.parameters.items():
        assert len(p.nominal) and p.unit and p.source, name
    status = sim.status()
    assert status.bad.tolist() == status.overflow.tolist() == [False] * 3
    assert status.bad.dtype == status.overflow.dtype == torch.bool
    assert all(isinstance(k, str) and isinstance(v, int) for k, v in status.warnings.items())


@each()
def test_what_is_not_claimed_is_refused(case):
    case.make(1, needs=case.claims).close()
    for name in set(CAPABILITIES) - case.claims:
        with pytest.raises(MissingCapability, match=name):
            case.make(1, needs=[name])
    with pytest.raises(ValueError, match="no such capability: flight"):
        case.make(1, needs=["flight"])


@each()
def test_it_can_be_made_of_one_world_at_least(case):
    with pytest.raises(ValueError, match="num_worlds is 0"):
        case.make(0)
    with pytest.raises(ValueError, match="threads is -1"):
        case.make(1, threads=-1)


@each()
def test_signals_are_the_scenes(case):
    sim = simulated(case, 3)
    run(case, sim, 2)
    signals = sim.signals()
    assert set(case.scene.signals) <= set(signals) <= set(case.scene.signals) | PRIVILEGED
    for name, spec in case.scene.signals.items():
        value = signals[name]
        assert value.shape == (3, *spec.shape) and value.dtype == torch.float32 and value.device == sim.device, name
        assert torch.isfinite(value).all(), name
    same(seen(sim), seen(sim))


@each()
def test_parameters_are_nominal_at_first(case):
    sim = simulated(case, 2)
    params = sim.params()
    assert set(params) == set(sim.parameters)
    for name, p in sim.parameters.items():
        assert torch.equal(params[name].cpu(), shaped(p.nominal, 2).float()), name


# ---------------------------------------------------------------- geometry and physics


@each()
def test_quaternions_are_wxyz_and_unit(case):
    sim = simulated(case, 2)
    given, expected = case.quarter
    begin(case, sim, given)
    signals = sim.signals()
    for name, value in expected.items():
        found = signals[name][1].cpu()
        sign = torch.sign(found[0]) if name.endswith("quat_w") else 1.0
        assert torch.allclose(sign * found, torch.tensor(value), atol=1e-5), (name, found)
    run(case, sim, 3)
    for name, spec in case.scene.signals.items():
        if spec.unit == "wxyz":
            assert torch.allclose(sim.signals()[name].norm(dim=-1).cpu(), torch.ones(2), atol=1e-5), name


def product(a, b):
    """Hamilton product of quaternions wxyz."""
    w, v, q, u = a[0], a[1:], b[0], b[1:]
    return torch.cat([(w * q - v @ u)[None], w * u + q * v + torch.linalg.cross(v, u)])


@each()
def test_velocities_are_the_derivatives_of_poses_in_their_frames(case):
    sim = simulated(case, 1)
    sim.reset(every(sim), batch({**case.start, **case.airborne}, 1))
    for _ in range(6):  # past the jolt of the command
        sim.step(commands(case, 1, 3).to(sim.device), 1)
    trace = []
    for _ in range(3):
        sim.step(commands(case, 1, 3).to(sim.device), 1)
        trace.append({k: v[0].double().cpu() for k, v in seen(sim).items()})
    past, now, after = trace
    for frame in (*case.free, *case.others):
        speed = (after[frame.pos] - past[frame.pos]) / (2 * DT)
        bend = (after[frame.pos] - 2 * now[frame.pos] + past[frame.pos]).abs().max() / DT
        size = 0.01 * float(speed.abs().max()) + 0.6 * float(bend) + 1e-3  # the step before or the step after
        assert torch.allclose(now[frame.vel], speed, atol=size), (frame.vel, now[frame.vel], speed)
        if frame.ang_vel is None:
            continue
        back = now[frame.quat] * torch.tensor([1.0, -1.0, -1.0, -1.0])
        rate = (after[frame.quat] - past[frame.quat]) / DT  # twice the derivative
        turn = (product(rate, back) if frame.turns == "w" else product(back, rate))[1:]
        size = 0.05 * float(turn.abs().max()) + 2e-3
        assert float(turn.norm()) > 0.1, "it does not turn: nothing is tested"
        assert torch.allclose(now[frame.ang_vel], turn, atol=size), (frame.ang_vel, now[frame.ang_vel], turn)


@FALLING
def test_free_fall_is_free_fall(case):
    sim = simulated(case, 2)
    sim.set_params(every(sim), {k: shaped(v, 2) for k, v in case.weightless.items()})
    begin(case, sim, case.airborne)
    start = seen(sim)
    zero = hold(case, 2) if case.others else torch.zeros(2, len(case.hold))
    sim.step(zero.to(sim.device), 100)
    t, after = 100 * DT, sim.signals()
    for frame in case.free:
        fall = torch.tensor([0.0, 0.0, -GRAVITY], device=sim.device)
        # integrators of first order in the step are off by g t dt / 2
        expected = start[frame.pos] + start[frame.vel] * t + 0.5 * fall * t * t
        assert torch.allclose(after[frame.pos], expected, atol=0.51 * GRAVITY * t * DT + 1e-5), frame.pos
        assert torch.allclose(after[frame.vel], start[frame.vel] + fall * t, atol=1e-4), frame.vel


@each("gravity")
def test_gravity_is_each_worlds_own(case):
    sim = simulated(case, 2)
    sim.set_params(torch.tensor([1]), {"gravity_w": torch.tensor([[1.0, 0.0, -3.0]])})
    begin(case, sim, case.airborne)
    start = seen(sim)
    sim.step(hold(case, 2).to(sim.device), 20)
    for frame in case.free:
        change = (sim.signals()[frame.vel] - start[frame.vel]).cpu() / (20 * DT)
        assert torch.allclose(change, torch.tensor([[0.0, 0.0, -GRAVITY], [1.0, 0.0, -3.0]]), atol=2e-3)


@each("wrench")
def test_a_force_accelerates_by_its_mass(case):
    sim = simulated(case, 2)
    prefix = "" if "force_w" in sim.parameters else case.free[0].pos.removesuffix("pos_w").removesuffix("_") + "."
    mass = sum(sim.parameters[f"{prefix}mass"].nominal)
    sim.set_params(every(sim), {k: shaped(v, 2) for k, v in case.weightless.items()})
    sim.set_params(torch.tensor([1]), {f"{prefix}force_w": torch.tensor([[0.02, -0.01, 0.03]])})
    begin(case, sim, case.airborne)
    zero = hold(case, 2) if case.others else torch.zeros(2, len(case.hold))
    sim.step(zero.to(sim.device), 5)
    out = sim.signals()[case.free[0].vel].cpu()
    expected = torch.tensor([0.02, -0.01, 0.03]) / mass * 5 * DT
    assert torch.allclose(out[1] - out[0], expected, rtol=2e-3, atol=1e-6)


@each("arms")
def test_a_servo_reaches_its_target(case):
    sim = simulated(case, 1)
    target = hold(case, 1)
    target[:, :2] += torch.tensor([0.15, -0.1])
    sim.step(target.to(sim.device), 600)
    for name in case.servos:
        found = sim.signals()[name].cpu()
        assert torch.allclose(found, target[:, : found.shape[1]], atol=0.01), (name, found, target)


@each("arms")
def test_what_slides_and_touches_is_felt(case):
    contact = [n for n, s in case.scene.sources.items() if s.what == "contact_force"]
    sim = simulated(case, 1)
    begin(case, sim)
    start = {name: sim.signals()[name].clone() for name in contact}
    for _ in range(10):
        sim.step(torch.tensor([case.center or case.hold], device=sim.device), 5)
    for name in contact:
        assert (start[name] < 0.05).all() and (sim.signals()[name] > 0.1).all(), name
    start_pos = torch.tensor(case.start["finger_pos"], device=sim.device)
    assert (sim.signals()["finger_pos"] - start_pos).abs().max() < 0.02  # the cube is between them: they cannot close


@over([c for c in CASES if "objects" in c.claims and c.slippery])
def test_an_objects_own_friction_stops_it_on_the_floor(case):
    """From 1 m/s within v^2 / (2 mu g)."""
    sim = simulated(case, 2)
    mu = torch.tensor([0.2, 0.4])
    sim.set_params(every(sim), {"cube.friction": mu})
    sim.reset(every(sim), batch({"cube_vel_w": (1.0, 0.0, 0.0)}, 2))
    before = seen(sim)["cube_pos_w"]
    sim.step(hold(case, 2), 400)
    way = seen(sim)["cube_pos_w"][:, 0] - before[:, 0]
    torch.testing.assert_close(way, 1 / (2 * mu * 9.81), rtol=0.05, atol=0)


@each("delay")
def test_a_delay_shifts_the_command_by_physics_steps(case):
    plain, delayed = simulated(case, 1), simulated(case, 2)
    steps = 3
    for value in (torch.tensor([0.0, steps * DT]).double(), torch.tensor([0.0, steps * DT]).float()):
        delayed.set_params(every(delayed), {"command_delay": value})
        plain.reset(every(plain), {})
        delayed.reset(every(delayed), {})
        new = commands(case, 2, 5, equal=True).to(plain.device)
        delayed.step(new, 10)
        undelayed = rows(seen(delayed), [0])
        plain.step(hold(case, 1).to(plain.device), steps)
        plain.step(new[:1], 10 - steps)
        expected = seen(plain)
        for name, found in rows(seen(delayed), [1]).items():
            assert torch.allclose(found, expected[name], atol=2e-4 + 1e-3 * float(expected[name].abs().max())), name
        assert moved(undelayed, expected) > 0.01


# ---------------------------------------------------------------- reset


@each()
def test_a_reset_sets_what_it_is_given_in_its_worlds_only(case):
    sim = simulated(case, 5)
    begin(case, sim)
    run(case, sim, 3)
    before, home = seen(sim), seen(simulated(case, 1))
    begin(case, sim)
    run(case, sim, 3)
    state = {k: v * torch.tensor([1.0, 0.9]).reshape(2, *[1] * (v.dim() - 1)) for k, v in batch(case.start, 2).items()}
    sim.reset(torch.tensor([3, 0]), state)  # not sorted: row 0 is world 3's
    after = seen(sim)
    same(rows(after, [1, 2, 4]), rows(before, [1, 2, 4]))
    for name, value in state.items():
        if case.scene.signals[name].unit == "wxyz":
            value = value / value.norm(dim=-1, keepdim=True)
        assert torch.allclose(after[name][[3, 0]].cpu(), value, atol=1e-6), name
    for name in set(case.scene.robot.home) - set(state) - {"height"}:
        assert torch.equal(after[name][[3]], home[name]), name


@each()
def test_a_reset_of_no_world_changes_nothing(case):
    sim = simulated(case, 2)
    run(case, sim, 2)
    before, state = seen(sim), sim.state()
    sim.reset(torch.zeros(0, dtype=torch.int64), {})
    sim.reset(torch.zeros(0, dtype=torch.int64), batch(case.start, 0))
    sim.set_params(torch.zeros(0, dtype=torch.int64), {k: v[:0] for k, v in nominal(sim, 1).items()})
    same(seen(sim), before)
    same(sim.state(), state)


@each()
def test_home_is_at_rest(case):
    sim = simulated(case, 1)
    home = seen(sim)
    sim.step(hold(case, 1).to(sim.device), 1)
    for name, value in seen(sim).items():
        unit = case.scene.signals[name].unit if name in case.scene.signals else ""
        if unit in ("m", "rad", "wxyz"):
            assert torch.allclose(value, home[name], atol=1e-4), name
        elif unit in ("m/s", "rad/s"):
            assert torch.allclose(value, home[name], atol=0.02), name


@each()
def test_a_reset_forgets_everything(case):
    """Warm starts, delayed commands, rotor lag: a world that was used equals a new one."""
    used, new = simulated(case, 2), case.make(2)
    if "deterministic" not in case.claims:  # elsewhere nominal parameters, written again, are those it was made with
        new.set_params(every(new), nominal(new, 2))
    for sim in (used, new):
        sim.set_params(every(sim), {"command_delay": torch.full((2,), 2 * DT)} if "delay" in case.claims else {})
    begin(case, used)
    run(case, used, 5)
    for sim in (used, new):
        begin(case, sim)
        run(case, sim, 4, seed=40)
    close(case, seen(used), seen(new))
    new.close()


# ---------------------------------------------------------------- wrong input


def refused(case, sim):
    """(what is refused, the error), with something good before what is bad."""
    frame, n = (*case.free, *case.others)[0], sim.num_worlds
    one, two = torch.tensor([1]), torch.tensor([0, 1])
    good = batch({frame.pos: case.start.get(frame.pos, (0.1, 0.2, 1.5))}, 1)
    p = {case.positive: shaped(altered(case.positive, sim.parameters[case.positive]), 1)}
    bad_turn = {} if frame.quat is None else {**good, frame.quat: torch.zeros(1, 4)}
    state = sim.state()
    first = next(iter(state))
    nan = float("nan")
    return [
        *((lambda ids=ids: sim.reset(ids, {}), (ValueError, IndexError)) for ids in (
            torch.tensor([n]), torch.tensor([-1]), torch.tensor([[0]]), torch.tensor([True, False]),
            torch.tensor([0.0]), torch.tensor([1, 1]))),
        (lambda: sim.reset(torch.tensor([1, 1]), batch(case.start, 2)), ValueError),
        (lambda: sim.reset(one, {**good, "nonsense": torch.zeros(1)}), UnknownName),
        (lambda: sim.reset(one, {**good, frame.vel: torch.zeros(1, 2)}), ValueError),
        (lambda: sim.reset(two, {frame.pos: good[frame.pos]}), ValueError),
        (lambda: sim.reset(one, {**good, frame.vel: torch.tensor([[0.0, nan, 0.0]])}), ValueError),
        *([(lambda: sim.reset(one, bad_turn), ValueError)] if bad_turn else []),
        (lambda: sim.set_params(torch.tensor([n]), p), IndexError),
        (lambda: sim.set_params(torch.tensor([1, 1]), {k: torch.cat([v, v]) for k, v in p.items()}), ValueError),
        (lambda: sim.set_params(one, {**p, "nonsense": torch.ones(1)}), UnknownName),
        (lambda: sim.set_params(two, p), ValueError),
        *((lambda x=x: sim.set_params(one, {**p, "command_delay": torch.tensor([x])}),
           ValueError if "delay" in case.claims else UnknownName) for x in (nan, -DT)),
        (lambda: sim.set_params(one, {case.positive: nan * p[case.positive]}), ValueError),
        (lambda: sim.set_params(one, {**({"command_delay": torch.tensor([DT])} if "delay" in case.claims else {}),
                                      case.positive: -p[case.positive]}), ValueError),
        (lambda: sim.step(torch.zeros(n, len(case.hold) + 1), 1), ValueError),
        (lambda: sim.step(torch.zeros(n + 1, len(case.hold)), 1), ValueError),
        (lambda: sim.step(hold(case, n), 0), ValueError),
        (lambda: sim.set_state({k: v for k, v in state.items() if k != first}), ValueError),
        (lambda: sim.set_state({**state, "nonsense": torch.zeros(n)}), ValueError),
        *((lambda k=k: sim.set_state({**state, k: torch.cat([state[k], state[k]])}), ValueError) for k in state),
        (lambda: sim.extract(n), IndexError),
        (lambda: sim.extract(-1), IndexError)]


@each()
def test_wrong_input_is_refused_and_changes_nothing(case):
    sim = simulated(case, 3)
    begin(case, sim)
    run(case, sim, 2)
    before, state = seen(sim), sim.state()
    for i, (call, error) in enumerate(refused(case, sim)):
        with pytest.raises(error) as caught:
            call()
        assert len(str(caught.value)) > 20, i
        same(sim.state(), state)
        same(seen(sim), before)


@each()
def test_the_state_before_a_step_needs_a_step_and_a_snapshot(case):
    sim = case.make(1)
    with pytest.raises(ValueError, match="extract"):
        sim.extract(0, before=True)
    sim.close()


# ---------------------------------------------------------------- determinism and state


def story(case, n, threads):
    """Steps, resets and changed parameters of n worlds, the first three of which are reset and changed."""
    sim, trace = case.make(n, threads=threads), []
    begin(case, sim)
    changed = torch.tensor([2, 0])
    for i in range(6):
        run(case, sim, 1, seed=i)
        if i == 2:
            sim.set_params(changed, {k: shaped(altered(k, p), 2) for k, p in sim.parameters.items()
                                     if k.endswith(("mass", "command_delay", "friction", "drag", "gain"))})
        if i == 3:
            sim.reset(torch.tensor([1, 2]), batch(case.start, 2))
        trace.append(rows(seen(sim), [0, 1, 2]))
    sim.close()
    return trace


@each("deterministic")
def test_results_do_not_depend_on_the_number_of_worlds_or_threads(case):
    first = story(case, 3, 1)
    for n, threads in ((8, 1), (8, 2), (40, 2)):
        for a, b in zip(first, story(case, n, threads)):
            same(a, b)


@each("full_state")
def test_a_state_continues_bit_exactly(case):
    sim, fresh = simulated(case, 4), case.make(4)
    sim.set_params(torch.tensor([1, 2]), {k: shaped(altered(k, p), 2) for k, p in sim.parameters.items()})
    begin(case, sim)
    run(case, sim, 6)

    def rest(sim):
        trace = [seen(sim)]
        for i in range(4):
            run(case, sim, 1, seed=20 + i)
            if i == 1:
                sim.reset(torch.tensor([3, 1]), batch(case.start, 2))
            trace.append(seen(sim))
        return trace

    saved, copy = sim.state(), None
    copy = {k: v.clone() for k, v in saved.items()}
    expected = rest(sim)
    same(saved, copy)  # a copy, not a view
    for target in (sim, fresh):
        target.set_state(saved)
        same(target.state(), saved)
        assert all(torch.equal(a, b) for a, b in zip(target.params().values(), sim.params().values()))
        for a, b in zip(rest(target), expected):
            same(a, b)
    fresh.close()


@each("full_state")
def test_one_world_continues_alone(case):
    sim, alone = simulated(case, 4), simulated(case, 1)
    sim.snapshot = True
    sim.set_params(torch.tensor([2]), {k: shaped(altered(k, p), 1) for k, p in sim.parameters.items()})
    begin(case, sim)
    run(case, sim, 4)
    before = rows(seen(sim), [2])
    command = commands(case, 4, 30).to(sim.device)
    sim.step(command, 5)
    after = rows(seen(sim), [2])
    alone.set_state(sim.extract(2))
    same(seen(alone), after)
    alone.set_state(sim.extract(2, before=True))
    same(seen(alone), before)
    alone.step(command[2:3], 5)
    same(seen(alone), after)
    command = commands(case, 4, 31).to(sim.device)
    sim.step(command, 5)
    alone.step(command[2:3], 5)
    same(seen(alone), rows(seen(sim), [2]))


OPS = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(0, 5), st.integers(1, 3)),
        st.tuples(st.just("reset"), st.sets(st.integers(0, 7), min_size=1), st.booleans()),
        st.tuples(st.just("params"), st.sets(st.integers(0, 7), min_size=1), st.integers(0, 99)),
        st.tuples(st.just("nominal"), st.sets(st.integers(0, 7), min_size=1), st.integers(0, 99)),
        st.tuples(st.just("save"), st.just(0), st.just(0)),
        st.tuples(st.just("restore"), st.just(0), st.just(0))),
    min_size=3, max_size=8)


def apply(case, sim, worlds, op, saved):
    """Do ``op`` in a backend that holds the worlds numbered ``worlds``."""
    what, x, y = op
    if what == "step":
        sim.step(commands(case, 8, x)[worlds].to(sim.device), y)
    elif what == "save":
        saved[:] = [sim.state()]
    elif what == "restore":
        sim.set_state(saved[0])
    else:
        ids = torch.tensor([i for i, w in enumerate(worlds) if w in x], dtype=torch.int64)
        if what == "reset":
            sim.reset(ids, batch(case.start, len(ids)) if y else {})
        else:
            name = sorted(sim.parameters)[y % len(sim.parameters)]
            p = sim.parameters[name]
            sim.set_params(ids, {name: shaped(p.nominal if what == "nominal" else altered(name, p), len(ids))})


@each("deterministic", "full_state")
def test_many_worlds_are_as_many_backends_of_one(case):
    together, apart = simulated(case, 8), [case.make(1) for _ in range(8)]
    starts = together.state(), [sim.state() for sim in apart]

    @settings(max_examples=examples(8), deadline=None, derandomize=True, database=None)
    @given(OPS)
    def agree(ops):
        together.set_state(starts[0])
        kept = [[starts[0]], *([s] for s in starts[1])]
        for sim, start in zip(apart, starts[1]):
            sim.set_state(start)
        for op in ops:
            apply(case, together, list(range(8)), op, kept[0])
            for world, sim in enumerate(apart):
                apply(case, sim, [world], op, kept[1 + world])
            every_one = [seen(sim) for sim in apart]
            same(seen(together), {k: torch.cat([s[k] for s in every_one]) for k in every_one[0]})

    agree()
    for sim in apart:
        sim.close()


# ---------------------------------------------------------------- parameters


@each()
def test_every_parameter_acts_in_its_world_only_and_nominal_undoes_it(case):
    names = list(simulated(case, 1).parameters)
    n = len(names) + 1  # the last stays nominal
    sim, alone = simulated(case, n), simulated(case, 1)
    for i, name in enumerate(names):
        value = shaped(altered(name, sim.parameters[name]), 1)
        sim.set_params(torch.tensor([i]), {name: value})
        assert torch.allclose(sim.params()[name][i : i + 1].cpu().double(), value, rtol=1e-6), name
    begin(case, sim)
    begin(case, alone)
    largest = torch.zeros(n)
    for i in range(case.steps):
        for target in (sim, alone):
            run(case, target, 1, seed=i, equal=True)
        out = seen(sim)
        for name in case.scene.signals:
            gap = (out[name] - out[name][-1:]).abs().reshape(n, -1).amax(1).cpu()
            largest = torch.maximum(largest, gap)
        close(case, rows(out, [n - 1]), seen(alone))
    assert [name for name, gap in zip(names, largest.tolist()) if not gap > case.visible] == list(case.idle)
    sim.set_params(every(sim), nominal(sim, n))
    begin(case, sim)
    run(case, sim, equal=True)
    for world in range(n):
        close(case, rows(seen(sim), [world]), seen(alone))


@each()
def test_parameters_given_back_change_nothing(case):
    sim, alike = simulated(case, 2), simulated(case, 1)
    sim.set_params(every(sim), {k: v.clone() for k, v in sim.params().items()})
    begin(case, sim)
    begin(case, alike)
    run(case, sim, 3, equal=True)
    run(case, alike, 3, equal=True)
    close(case, rows(seen(sim), [1]), seen(alike))


def test_a_quadrotor_without_drag_does_not_notice_that_another_changes():
    case = CASES[0]
    bare = {"drag": (0.0, 0.0, 0.0)}
    together, alone = simulated(case, 4), simulated(case, 1)
    for sim in (together, alone):
        sim.set_params(every(sim), {k: shaped(v, sim.num_worlds) for k, v in bare.items()})
    together.set_params(torch.tensor([3]), {"mass": torch.tensor([0.03])})
    for sim in (together, alone):
        begin(case, sim)
        run(case, sim, equal=True)
    same(rows(seen(together), [0]), seen(alone))


# ---------------------------------------------------------------- worlds that go wrong


def spoilt(case, how):
    """A backend of five worlds of which 3 goes bad in the step just made, and what the others should be."""
    sim, clean = simulated(case, 5), _twin(case)
    for target in (sim, clean):
        begin(case, target)
        run(case, target, 2)
    command = commands(case, 5, 9)
    poisoned = command.clone()
    if how == "huge":
        state = batch({**case.start, **case.blow_up}, 1)
        sim.reset(torch.tensor([3]), state)
    else:
        poisoned[3, 1] = float(how)
    sim.step(poisoned.to(sim.device), 5)
    clean.step(command.to(clean.device), 5)
    return sim, clean


def _twin(case):
    """A second backend of five worlds, nominal, at home."""
    if (case.name, "twin") not in _KEPT:
        _KEPT[case.name, "twin"] = case.make(5)
    sim = _KEPT[case.name, "twin"]
    sim.set_params(every(sim), nominal(sim, 5))
    sim.reset(every(sim), {})
    return sim


@each()
@pytest.mark.parametrize("how", ["nan", "inf", "-inf", "huge"])
def test_a_bad_world_is_flagged_until_reset_and_touches_no_other(case, how, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sim, clean = spoilt(case, how)
    others = [0, 1, 2, 4]
    for i in range(3):
        assert sim.status().bad.tolist() == [False, False, False, True, False]
        finite = all(bool(torch.isfinite(v[3]).all()) for v in sim.signals().values())
        assert bool(sim.bad[3]) or not finite  # a guard over flags and signals sees it
        close(case, rows(seen(sim), others), rows(seen(clean), others))
        run(case, sim, 1, seed=50 + i)
        run(case, clean, 1, seed=50 + i)
    for target in (sim, clean):  # another world's reset heals only that
        target.reset(torch.tensor([1]), {})
    assert sim.status().bad.tolist() == [False, False, False, True, False]
    for target in (sim, clean):
        target.reset(torch.tensor([3]), {})
        run(case, target, 2, seed=60)
    assert not sim.status().bad.any() and not sim.bad.any()
    close(case, seen(sim), seen(clean))
    captured = capfd.readouterr()
    assert (captured.out, captured.err, list(tmp_path.iterdir())) == ("", "", [])


@each("full_state")
def test_a_bad_world_stays_bad_through_its_state(case):
    sim, _ = spoilt(case, "nan")
    fresh = case.make(5)
    fresh.set_state(sim.state())
    assert fresh.status().bad.tolist() == sim.status().bad.tolist()
    fresh.close()


@each("full_state")
def test_what_made_a_world_bad_can_be_replayed(case):
    sim = simulated(case, 5)
    sim.snapshot = True
    begin(case, sim)
    run(case, sim, 2)
    before = rows(seen(sim), [3])
    command = commands(case, 5, 9)
    command[3, 1] = float("nan")
    sim.step(command.to(sim.device), 5)
    alone = simulated(case, 1)
    alone.set_state(sim.extract(3, before=True))
    assert not alone.status().bad.any()
    same(seen(alone), before)
    alone.step(command[3:4].to(sim.device), 5)
    assert alone.status().bad.all()


@over([c for c in CASES if c.cramped is not None])
def test_contacts_without_room_are_told(case, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sim = case.cramped(tmp_path, 3)
    assert not sim.status().overflow.any()
    heaped = {f"cube{i}_pos_w": torch.tensor([[0.9 + 0.01 * i, 0.01 * i, 0.02]]) for i in range(9)}
    sim.reset(torch.tensor([1]), heaped)
    sim.step(hold(case, 3).to(sim.device), 2)
    assert sim.status().overflow.tolist() == [False, True, False]
    assert sum(sim.status().warnings.values()) > 0
    told = dict(sim.status().warnings)
    fresh = case.cramped(tmp_path, 3)
    fresh.set_state(sim.state())
    assert fresh.status().overflow.tolist() == [False, True, False]
    sim.reset(torch.tensor([1]), {})
    assert not sim.status().overflow.any()
    assert sim.status().warnings == told  # counted since construction
    sim.close()
    fresh.close()
    assert capfd.readouterr().err == "" and not list(tmp_path.glob("*LOG*"))


# ---------------------------------------------------------------- resources


def threads_now():
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else threading.active_count()


@each()
def test_close_ends_its_threads_and_may_be_repeated(case):
    case.make(1).close()  # whatever a library starts once and for all has started
    before = threads_now()
    for _ in range(2):
        sim = case.make(600, threads=3) if case.many_steps >= 10_000 else case.make(4, threads=3)
        sim.step(hold(case, sim.num_worlds).to(sim.device), 1)
        sim.signals()
        sim.close()
        sim.close()
    limit = time.monotonic() + 5.0
    while threads_now() > before and time.monotonic() < limit:
        time.sleep(0.01)
    assert threads_now() <= before


def resident():
    """Memory of this process in bytes."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@each()
def test_memory_does_not_grow_with_steps(case):
    sim = simulated(case, 2)
    command = hold(case, 2).to(sim.device)

    def live(count):
        for i in range(count):
            sim.step(command, 1)
            sim.signals()
            if i % 50 == 0:
                begin(case, sim)
                sim.set_params(every(sim), {case.positive: nominal(sim, 2)[case.positive]})
                sim.status()
                sim.state()

    live(case.many_steps // 5)
    before = resident()
    live(case.many_steps)
    assert resident() - before < 3e6 + 100 * case.many_steps  # a few pages are noise; 100 bytes a step are a leak


def test_the_tests_know_all_parameters_of_the_quadrotor():
    assert set(PARAMETERS) == set(simulated(CASES[0], 1).parameters)
    assert math.isclose(CASES[0].hold[0], float(simulated(CASES[0], 1).signals()["rotor_speed"][0, 0]), abs_tol=1e-4)
