"""Disturbances: when they come, how strong, where to; the same whatever is asked for with them."""

import pytest
import torch

from temporeal.robots.spec import Parameter
from temporeal.sim.randomization.distributions import draw_parameters, parse_randomization
from temporeal.sim.randomization.disturbances import Disturbances, Schedule, WrenchDisturbances

DT = 0.02
ZERO = Parameter((0.0,) * 3, (0.0,) * 3, (0.0,) * 3, "N", "a disturbance")
PARAMETERS = {"force_w": ZERO, "torque_b": ZERO, "wind_w": ZERO, "cube.force_w": ZERO, "cube.torque_w": ZERO,
              "mass": Parameter((1.0,), (1.0,), (1.0,), "kg", "")}
N, T = 400, 1500
WORLDS, FIRST = torch.arange(N), torch.zeros(N, dtype=torch.int64)

parse = WrenchDisturbances.parse

def history(wrenches, name="force_w", steps=T, seed=2, worlds=WORLDS):
    """What is added at each step: [T, N, 3], by keeping the last that was given."""
    first = torch.zeros_like(worlds)
    now, out = torch.zeros(len(worlds), 3), []
    for t in range(steps):
        found = wrenches.at(seed, worlds, first, first + t)
        now = now if found is None else found[name]
        out.append(now)
    return torch.stack(out)


@pytest.mark.slow
def test_intervals_durations_and_sizes_are_as_said():
    wrenches = parse({"interval_s": [1.0, 2.0], "duration_s": 0.2, "force_n": [3, 5], "direction": "horizontal"},
                     PARAMETERS, DT)
    found = history(wrenches)
    size = found.norm(dim=-1)
    acts = size > 0
    assert torch.all(found[..., 2] == 0) and torch.all((size[acts] >= 3 - 1e-5) & (size[acts] <= 5 + 1e-5))
    begins = acts[1:] & ~acts[:-1]
    lengths, gaps = [], []
    for i in range(N):
        times = begins[:, i].nonzero()[:, 0] + 1
        gaps += times.diff().tolist()
        lengths += [int(acts[t : t + 30, i].cumprod(0).sum()) for t in times.tolist() if t < T - 30]
    gaps = torch.tensor(gaps) * DT
    assert set(lengths) == {10}
    assert gaps.min() >= 1.0 - DT and gaps.max() <= 2.0 + DT and abs(gaps.mean() - 1.5) < 0.01
    assert gaps.std() > 0.15
    assert abs(acts.float().mean() - 0.2 / 1.5) < 0.005


def test_a_push_keeps_its_direction_and_the_next_has_another():
    wrenches = parse({"interval_s": 1.0, "duration_s": 1.0, "force_n": 2}, PARAMETERS, DT)
    found = history(wrenches, steps=200)
    moved = (found[1:] != found[:-1]).any(-1)
    assert torch.all(moved.sum(0) <= 4) and torch.all(moved.sum(0) >= 3)
    last = found[-1]
    torch.testing.assert_close(last.norm(dim=-1), torch.full((N,), 2.0))
    torch.testing.assert_close(last.T @ last / N / 4, torch.eye(3) / 3, atol=0.06, rtol=0)


def test_impulses_and_torques():
    wrenches = parse({"interval_s": [2, 3], "duration_s": 0.1, "impulse_ns": 0.4, "on": "cube",
                      "torque_nm": [0.1, 0.2]}, PARAMETERS, DT)
    assert wrenches.names == ("cube.force_w", "cube.torque_w")
    force = history(wrenches, "cube.force_w", 400)
    size = force.norm(dim=-1)
    torch.testing.assert_close(size[size > 0], torch.full_like(size[size > 0], 4.0))  # 5 steps of 0.02 s
    torque = history(wrenches, "cube.torque_w", 400).norm(dim=-1)
    assert torch.equal(torque > 0, size > 0) and torque.max() <= 0.2 + 1e-6


@pytest.mark.parametrize(("duration", "dt"), [
    (0.05, 0.04), (0.1, 0.04), (0.03, 0.02), (0.2, 0.02), (0.02, 0.02), (0.06, 0.02)])
def test_each_event_gives_the_configured_impulse(duration, dt):
    wrenches = parse({"interval_s": [1, 2], "duration_s": duration, "impulse_ns": 1.0}, PARAMETERS, dt)
    acts = torch.zeros(N, dtype=torch.int64)
    given, event = [], torch.full((N,), -1)
    for t in range(round(4.0 / dt)):
        force = wrenches.wrench(2, WORLDS, FIRST, FIRST + t)["force_w"].norm(dim=-1)
        begins = (force > 0) & (acts == 0)
        event += begins
        acts = torch.where(force > 0, acts + 1, 0)
        given.append((event.clone(), force.double() * dt))
    total = torch.zeros(N, 8, dtype=torch.float64)
    for number, impulse in given:
        total[WORLDS, number.clamp(min=0)] += impulse
    whole = torch.arange(8)[None] < (event + (acts == 0))[:, None]  # the last one may still act
    assert int(whole.sum()) > N and torch.allclose(total[whole], torch.ones(int(whole.sum()), dtype=torch.float64))


def test_no_event_from_before_the_episode_acts_in_it():
    wrenches = parse({"interval_s": [0.3, 3.0], "duration_s": 0.2, "force_n": 1.0}, PARAMETERS, DT)
    lengths = (history(wrenches, steps=60).norm(dim=-1) > 0)
    early = lengths[0]
    assert torch.all(lengths[:10, early])  # who is pushed from the start is so for all of the ten steps
    assert not early.all() and wrenches.changed(2, WORLDS[early], FIRST[early], FIRST[early]).all()
    schedule = wrenches.kinds[0].schedule
    assert (schedule.beginning(2, WORLDS, FIRST, FIRST) < 0).any()  # there are such, and they are left out


def test_nothing_depends_on_the_other_worlds_or_on_what_was_asked_before():
    wrenches = parse({"a": {"interval_s": [0.1, 0.3], "duration_s": 0.1, "force_n": 1},
                      "b": {"interval_s": 0.5, "duration_s": 0.2, "force_n": [1, 2]}}, PARAMETERS, DT)
    whole = history(wrenches, steps=60)
    some = torch.tensor([7, 399, 0])
    assert torch.equal(history(wrenches, steps=60, worlds=some), whole[:, some])
    at = wrenches.wrench(2, some, torch.zeros_like(some), torch.tensor([50, 20, 59]))["force_w"]
    assert torch.equal(at, torch.stack([whole[50, 7], whole[20, 399], whole[59, 0]]))
    assert not torch.equal(history(wrenches, steps=60, seed=3), whole)
    # two kinds at once add up
    assert whole.norm(dim=-1).max() > 2.0


def test_none_says_that_nothing_changed():
    wrenches = parse({"interval_s": [4, 5], "duration_s": 0.5, "force_n": 1}, PARAMETERS, DT)
    one = torch.tensor([3])
    given = [wrenches.at(2, one, one * 0, one * 0 + t) for t in range(500)]
    changes = sum(g is not None for g in given)
    assert 2 <= changes <= 6  # each push begins and ends
    assert parse(None, PARAMETERS, DT).at(2, one, one * 0, one * 0) is None


def test_the_present_event_is_found_without_its_past():
    schedule = Schedule("x", 0.3, 1.1)
    times = torch.arange(0, 40, 0.01, dtype=torch.float64)
    event, since = schedule.present(5, torch.zeros_like(times).long(), torch.zeros_like(times).long(), times)
    begins = (times - since)[event >= 0]
    number = event[event >= 0]
    assert torch.all(event[1:] - event[:-1] >= 0) and torch.all(event[1:] - event[:-1] <= 1)
    starts = torch.stack([begins[number == k][0] for k in range(int(number.max()) + 1)])
    assert torch.all((starts.diff() >= 0.3 - 1e-9) & (starts.diff() <= 1.1 + 1e-9))
    assert torch.all(since[event >= 0] >= -1e-5) and since[event >= 0].max() <= 1.1 + 1e-9


def test_redrawn_values_replace_the_drawn_ones_and_wrenches_are_added():
    distributions = parse_randomization({
        "force_w": {"kind": "normal", "std": 0.5}, "mass": {"kind": "constant", "value": 2},
        "wind_w": {"kind": "uniform", "low": 1, "high": 2, "when": {"every_s": [0.4, 0.8]}}}, PARAMETERS)
    d = Disturbances.parse({"interval_s": 1.0, "duration_s": 0.1, "force_n": 9.0}, distributions, PARAMETERS, DT)
    assert set(d.names) == {"force_w", "wind_w"}
    base = draw_parameters(PARAMETERS, distributions, 2, WORLDS, FIRST)
    now = {name: torch.full_like(base[name], float("nan")) for name in d.names}
    wind, force, given = [], [], 0
    for t in range(100):
        found = d.at(2, WORLDS, FIRST, FIRST + t, base)
        if found is not None:
            ids, values = found
            given += len(ids)
            for name, value in values.items():
                now[name][ids] = value
        wind.append(now["wind_w"].clone())
        force.append(now["force_w"].clone())
    wind, force = torch.stack(wind), torch.stack(force)
    added = (force - base["force_w"]).norm(dim=-1)
    assert torch.all((added < 1e-5) | ((added - 9).abs() < 1e-4)) and abs((added > 1).float().mean() - 0.1) < 0.01
    assert wind.min() >= 1 and wind.max() < 2
    changes = (wind[1:] != wind[:-1]).any(-1).sum(0)
    assert changes.min() >= 2 and changes.max() <= 5
    assert (wind[0] == base["wind_w"]).all(-1).float().mean() > 0.8  # as drawn, until the first change
    assert given < 100 * N / 5  # only worlds in which something changes


def test_an_episode_may_begin_within_a_disturbance():
    d = Disturbances.parse({"interval_s": 0.5, "duration_s": 0.3, "force_n": 9.0}, {}, PARAMETERS, DT)
    kept = torch.zeros(N, 3)
    for t in range(41):
        if (found := d.at(2, WORLDS, FIRST, FIRST + t, {})) is not None:
            kept[found[0]] = found[1]["force_w"]
    assert torch.equal(d.values(2, WORLDS, FIRST, FIRST + 40, {})["force_w"], kept)
    assert abs((kept.norm(dim=-1) > 1).float().mean() - 0.6) < 0.1


def test_what_is_known_of_the_next_change_decides_nothing():
    distributions = parse_randomization({
        "wind_w": {"kind": "uniform", "low": 1, "high": 2, "when": {"every_s": [0.1, 0.4]}}}, PARAMETERS)
    raw = {"a": {"interval_s": [0.2, 0.5], "duration_s": 0.1, "force_n": 9.0},
           "b": {"interval_s": 0.3, "duration_s": 0.3, "force_n": 1.0}}
    make = lambda: Disturbances.parse(raw, distributions, PARAMETERS, DT)  # noqa: E731
    kept = make()
    generator = torch.Generator().manual_seed(0)
    episode, step = FIRST.clone(), FIRST.clone()
    for t in range(120):
        found, fresh = (d.at(2, WORLDS, episode, step, {}) for d in (kept, make()))
        assert (found is None) == (fresh is None)
        if found is not None:
            assert torch.equal(found[0], fresh[0]) and all(torch.equal(found[1][k], v) for k, v in fresh[1].items())
        ends = torch.rand(N, generator=generator) < 0.02
        episode, step = episode + ends, torch.where(ends, 0, step + 1)
        if t == 60:  # a state of before is loaded
            episode, step = episode * 0, step * 0 + 7


def test_step_zero_sets_what_the_episode_began_with():
    d = Disturbances.parse({"interval_s": 50.0, "duration_s": 0.1, "force_n": 9.0}, {}, PARAMETERS, DT)
    ids, values = d.at(2, WORLDS[:4], FIRST[:4], torch.tensor([0, 3, 0, 9]), {})
    assert ids.tolist() == [0, 2] and torch.all(values["force_w"] == 0)


@pytest.mark.parametrize("raw, told", [
    ({"interval_s": 1}, "needs duration_s"), ({"interval": 1}, "some of interval_s"),
    ({"interval_s": 1, "duration_s": 0.1}, "needs force_n, impulse_ns or torque_nm"),
    ({"interval_s": [2, 1], "duration_s": 0.1, "force_n": 1}, r"interval_s is a number greater than 0"),
    ({"interval_s": 1, "duration_s": 2, "force_n": 1}, "disturbances of 2 s cannot be 1 s apart"),
    ({"interval_s": 0.05, "duration_s": 0.05, "impulse_ns": 1}, "in whole control steps, 0.06 s"),
    ({"interval_s": 1, "duration_s": 0.001, "force_n": 1}, "at least a control step of 0.02 s"),
    ({"interval_s": 1, "duration_s": 0.1, "force_n": -1}, "greater than 0"),
    ({"interval_s": 1, "duration_s": 0.1, "force_n": 1, "impulse_ns": 1}, "give one"),
    ({"interval_s": 1, "duration_s": 0.1, "force_n": 1, "direction": "up"}, "'up'; legal: any, horizontal"),
    ({"interval_s": 1, "duration_s": 0.1, "force_n": 1, "on": "drawer"}, "what takes a force here: base, cube"),
    ({"a": {"interval_s": 1, "duration_s": 0.1, "force": 1}}, "disturbances.a is a mapping with some of"),
])
def test_wrong_settings_are_told(raw, told):
    with pytest.raises(ValueError, match=told):
        parse(raw, PARAMETERS, DT)


def test_an_arm_takes_no_force():
    with pytest.raises(ValueError, match="nothing in this scene moves freely"):
        parse({"interval_s": 1, "duration_s": 0.1, "force_n": 1}, {"mass": PARAMETERS["mass"]}, DT)
