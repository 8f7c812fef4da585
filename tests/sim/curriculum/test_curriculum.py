"""Curricula: ADR by hand, ALP-GMM on a learner that can learn in one region only, levels, resume, keys, errors."""

import numpy as np
import pytest
import torch
from tests.away import away

from temporeal.robots.spec import Parameter
from temporeal.sim.curricula.adr import Adr, Settings
from temporeal.sim.curricula.alp_gmm import AlpGmm, best_mixture, fitted
from temporeal.sim.curricula.alp_gmm import Settings as AlpSettings
from temporeal.sim.curricula.levels import Levels
from temporeal.sim.curricula.levels import Settings as LevelSettings
from temporeal.sim.curricula.uniform import Uniform
from temporeal.sim.curriculum.configuration import parse_curriculum, start_draws
from temporeal.sim.curriculum.points import Trials

PARAMETERS = {
    "friction": Parameter((1.0, 2.0), (1.0, 2.0), (1.0, 2.0), "1", ""),
    "mass": Parameter((2.0,), (2.0,), (2.0,), "kg", ""),
    "com": Parameter((0.0, 0.0, 0.0), (0.0,) * 3, (0.0,) * 3, "m", "")}
STARTS = {"initial": 3}
RAW = {"friction": {"as": "scale", "low": 0.25, "high": 4.0, "log": True, "first": 1.0},
       "goal": {"of": "start.initial", "components": [1], "low": 0.0, "high": 1.0, "first": [0.4, 0.6]}}


def ids(n, first=0):
    return torch.arange(first, first + n)


def zeros(n):
    return torch.zeros(n, dtype=torch.int64)


def told(points, tag, outcome, world=None):
    points, tag = np.asarray(points, float), np.asarray(tag)
    return Trials(points, tag, np.asarray(outcome, float), np.arange(len(tag)) if world is None else np.asarray(world))


# ---------------------------------------------------------------- automatic domain randomization


def adr(samples=4):
    return Adr(np.array([0.5, 0.2]), np.array([0.5, 0.3]), Settings(0.5, samples, 0.1, 0.75, 0.25))


def at_end(teacher, end, outcomes):
    """Episodes at the end ``end``."""
    point = (teacher.ends[0] + teacher.ends[1]) / 2
    point[end // 2] = teacher.ends[end % 2, end // 2]
    return told([point] * len(outcomes), [end] * len(outcomes), outcomes)


def test_a_range_grows_on_success_shrinks_on_failure_and_stays_between():
    t = adr()
    t.observe(at_end(t, 1, [1, 1, 1]))
    assert t.ends.tolist() == [[0.5, 0.2], [0.5, 0.3]]  # three of four
    t.observe(at_end(t, 1, [0]))  # mean 0.75 is enough
    np.testing.assert_allclose(t.ends, [[0.5, 0.2], [0.6, 0.3]])
    t.observe(at_end(t, 1, [1, 1, 1, 1]))
    np.testing.assert_allclose(t.ends[1], [0.7, 0.3])
    t.observe(at_end(t, 1, [1, 1, 0, 0]))  # between the thresholds: stays, and starts to count anew
    np.testing.assert_allclose(t.ends[1], [0.7, 0.3])
    t.observe(at_end(t, 1, [0, 0, 0, 1]))
    np.testing.assert_allclose(t.ends[1], [0.6, 0.3])
    t.observe(at_end(t, 2, [1, 1, 1, 1]))  # the low end of the second dimension goes down
    np.testing.assert_allclose(t.ends[0], [0.5, 0.1])
    for _ in range(5):
        t.observe(at_end(t, 1, [0, 0, 0, 0]))
        t.observe(at_end(t, 2, [1, 1, 1, 1]))
    np.testing.assert_allclose(t.ends, [[0.5, 0.0], [0.5, 0.3]])  # no narrower than at first, no wider than all


def test_only_episodes_at_the_present_end_count():
    t = adr()
    old = at_end(t, 1, [1, 1, 1])
    t.observe(at_end(t, 1, [1, 1, 1, 1]))  # the end moves: what is on its way from the old one says nothing of the new
    t.observe(old)
    t.observe(told([[0.55, 0.25]] * 9, [-1] * 9, [1] * 9))  # inside
    t.observe(at_end(t, 1, [1, 1, 1]))
    np.testing.assert_allclose(t.ends[1], [0.6, 0.3])
    t.observe(at_end(t, 1, [1]))
    np.testing.assert_allclose(t.ends[1], [0.7, 0.3])


def test_proposals_lie_in_the_ranges_and_a_share_of_them_at_each_end():
    t = Adr(np.array([0.4, 0.2]), np.array([0.6, 0.3]), Settings(boundary=0.4))
    points, tag = t.propose(3, ids(8000), zeros(8000))
    low, high = torch.from_numpy(t.ends)
    assert torch.all(points >= low) and torch.all(points <= high)
    for end in range(4):
        mine = tag == end
        assert abs(mine.float().mean() - 0.1) < 0.015
        assert torch.all(points[mine, end // 2] == t.ends[end % 2, end // 2])
        assert len(points[mine, 1 - end // 2].unique()) > 100
    assert len(points[tag < 0].unique(dim=0)) > 4000
    width = np.log([0.2, 0.1])
    assert abs(t.figures()["entropy"] - width.mean()) < 1e-9 and abs(t.figures()["volume"] - np.sqrt(0.02)) < 1e-9


def test_ranges_find_where_a_learner_stops():
    """A learner that succeeds up to 0.73 of the range: the range ends within a step of there."""
    t = Adr(np.array([0.0]), np.array([0.1]), Settings(0.5, 20, 0.05, 0.8, 0.5))
    for episode in range(60):
        points, tag = t.propose(1, ids(200), zeros(200) + episode)
        t.observe(told(points, tag, points[:, 0] < 0.73))
    assert 0.7 <= t.ends[1, 0] <= 0.751


# ---------------------------------------------------------------- learning progress


def region(points):
    """Where there is something to learn: a tenth of the square."""
    return (points[:, 0] > 0.6) & (points[:, 0] < 0.85) & (points[:, 1] > 0.3) & (points[:, 1] < 0.7)


def taught(make, seed, batches=40, size=100):
    """Share of the late proposals in the region of a learner whose skill there grows with what it does there."""
    teacher, skill, share = make(), 0.0, []
    for episode in range(batches):
        points, tag = teacher.propose(seed, ids(size), zeros(size) + episode)
        points = points.numpy()
        inside = region(points)
        teacher.observe(told(points, tag, np.where(inside, skill, 0.0)))
        skill = min(skill + 0.001 * inside.sum(), 1.0)
        share.append(inside.mean())
    return float(np.mean(share[10:20]))


@pytest.mark.slow
def test_learning_progress_is_found_where_it_is():
    low, high = np.zeros(2), np.ones(2)
    settings = AlpSettings(every=200, window=600, components=(2, 6))
    clever = [taught(lambda: AlpGmm(low, high, settings), seed) for seed in range(6)]
    blind = [taught(lambda: Uniform(low, high), seed) for seed in range(6)]
    assert abs(np.mean(blind) - 0.1) < 0.02
    difference = np.array(clever) - np.array(blind)
    assert difference.mean() > 3 * difference.std(ddof=1) / np.sqrt(6) and np.mean(clever) > 3 * np.mean(blind)


def test_a_share_of_the_points_is_always_uniform_and_all_lie_in_the_cube():
    t = AlpGmm(np.zeros(2), np.ones(2), AlpSettings(every=50, components=(1, 3), random=0.3))
    points, tag = t.propose(0, ids(200), zeros(200))
    assert torch.all(tag == -1)
    for k in range(3):
        t.observe(told(points, tag, (points[:, 0] > 0.9) * float(k)))
    points, tag = t.propose(0, ids(5000), zeros(5000))
    assert abs((tag < 0).float().mean() - 0.3) < 0.02
    assert points.min() >= 0 and points.max() <= 1 and t.figures()["fits"] >= 1
    anywhere = points[tag < 0]
    assert abs(anywhere.mean() - 0.5) < 0.02 and abs(anywhere.std() - 12**-0.5) < 0.01
    assert points[tag >= 0][:, 0].mean() > 0.7  # the rest is where outcomes changed


def test_progress_is_the_change_at_the_nearest_point():
    t = AlpGmm(np.zeros(1), np.ones(1), AlpSettings(every=100))
    t.observe(told([[0.1], [0.9]], [-1, -1], [0.2, 0.6]))
    t.observe(told([[0.15], [0.8], [0.4]], [-1] * 3, [0.5, 0.5, 0.2]))
    np.testing.assert_allclose(t.window[:, 1], [0.3, 0.1, 0.0])


def test_mixtures_are_recovered():
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal([0.2, 0.2], 0.03, (300, 2)), rng.normal([0.8, 0.5], [0.02, 0.08], (600, 2))])
    mixture, likelihood = fitted(rows, 2, np.random.default_rng(1))
    order = mixture.means[:, 0].argsort()
    np.testing.assert_allclose(mixture.weights[order], [1 / 3, 2 / 3], atol=0.01)
    np.testing.assert_allclose(mixture.means[order], [[0.2, 0.2], [0.8, 0.5]], atol=0.01)
    np.testing.assert_allclose(np.sqrt([np.diag(c) for c in mixture.covariances[order]]), [[0.03, 0.03], [0.02, 0.08]],
                               atol=0.005)
    assert len(best_mixture(rows, 1, 5, 0).weights) >= 2
    # the density of one component is a normal density
    one, likelihood = fitted(rows, 1, np.random.default_rng(1))
    cov = np.cov(rows.T, bias=True) + 1e-6 * np.eye(2)
    assert abs(likelihood - (-0.5 * 2 - np.log(2 * np.pi) - 0.5 * np.log(np.linalg.det(cov)))) < 1e-3


# ---------------------------------------------------------------- levels, schedules


def test_each_world_climbs_by_itself():
    t = Levels(np.array([0.0]), np.array([0.1]), 4, LevelSettings(levels=3, up=0.8, down=0.2))
    points, tag = t.propose(0, ids(4), zeros(4))
    assert torch.all(points <= 0.1) and torch.all(tag == 0)
    t.observe(told(points, tag, [1, 1, 0.5, 0]))
    assert t.level.tolist() == [1, 1, 0, 0]
    points, tag = t.propose(0, ids(4), zeros(4) + 1)
    t.observe(told(points, tag, [1, 0, 1, 1]))
    assert t.level.tolist() == [2, 0, 1, 1]
    t.observe(told([[1.0]], [2], [1.0], [0]))
    assert t.level[0] == 3 and t.figures()["solved"] == 0.25
    levels = [int(t.propose(0, ids(1), zeros(1) + e).tag) for e in range(300)]  # goes on at a random level
    assert sorted(set(levels)) == [0, 1, 2] and 70 < levels.count(0) < 130


def test_a_schedule_widens_to_the_whole():
    c = parse_curriculum({"kind": "linear", "episodes": 10, "parameters": RAW}, PARAMETERS, STARTS, 500, 1)
    first, half, last = (c.teacher.propose(1, ids(500), zeros(500) + e).points[:, 1] for e in (0, 5, 99))
    assert 0.4 <= first.min() and first.max() <= 0.6
    assert 0.2 <= half.min() < 0.22 and 0.78 < half.max() <= 0.8
    assert last.min() < 0.02 and last.max() > 0.98


# ---------------------------------------------------------------- what an environment uses


def adr_curriculum(n=30, seed=1, **kw):
    raw = {"kind": "adr", "samples": 3, "step": 0.1, "parameters": RAW, **kw}
    return parse_curriculum(raw, PARAMETERS, STARTS, n, seed)


def test_values_act_on_parameters_and_on_the_draws_of_the_reset():
    c = parse_curriculum({"kind": "uniform", "parameters": {
        **RAW, "heavy": {"of": "mass", "low": 1, "high": 3},
        "com": {"as": "add", "low": -1, "high": 1, "components": 2}}},
        PARAMETERS, STARTS, 6, 1)
    values = torch.tensor([[2.0, 0.25, 1.5, 0.5], [0.5, 1.0, 3.0, -0.5]])
    drawn = {"friction": torch.tensor([[1.5, 3.0], [1.0, 2.0]]), "other": torch.tensor([7.0, 7.0])}
    out = c.apply(values, drawn, PARAMETERS)
    assert out["friction"].tolist() == [[3.0, 6.0], [0.5, 1.0]] and out["mass"].tolist() == [1.5, 3.0]
    assert out["com"].tolist() == [[0.0, 0.0, 0.5], [0.0, 0.0, -0.5]] and out["other"].tolist() == [7.0, 7.0]
    assert drawn["friction"].tolist() == [[1.5, 3.0], [1.0, 2.0]]
    draw = c.steer(lambda name, count: torch.full((2, count), 0.5), values)
    assert draw("initial", 3).tolist() == [[0.5, 0.25, 0.5], [0.5, 1.0 - 2.0**-24, 0.5]]
    assert draw("goal", 2).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert start_draws(lambda draw: (draw("a", 2), draw("b", 3), draw("a", 1))) == {"a": 2, "b": 3}


def test_values_are_decided_once_and_do_not_depend_on_the_other_worlds():
    c, big = adr_curriculum(30), adr_curriculum(3000)
    values = c.draw(ids(30), zeros(30))
    assert torch.equal(big.draw(ids(3000), zeros(3000))[:30], values)
    order = torch.tensor([17, 2, 29])
    assert torch.equal(c.draw(order, zeros(3)), values[order])
    ahead = c.draw(ids(30), zeros(30) + 1)
    c.teacher.ends[1] = 1.0  # the teacher goes on; what was drawn stays
    assert torch.equal(c.draw(ids(30), zeros(30) + 1), ahead) and torch.equal(c.draw(ids(30), zeros(30)), values)
    assert not torch.equal(c.draw(ids(30), zeros(30) + 2), adr_curriculum(30).draw(ids(30), zeros(30) + 2))
    assert not torch.equal(adr_curriculum(30, seed=2).draw(ids(30), zeros(30)), values)


def play(c, episodes, first=0):
    """Episodes of a learner that succeeds where friction is below 2; the values played."""
    out = []
    for e in range(first, first + episodes):
        n = c.points.shape[1]
        values = c.draw(ids(n), zeros(n) + e)
        c.draw(ids(n), zeros(n) + e + 1)
        c.finish(ids(n), zeros(n) + e, values[:, 0] < 2, values[:, 0])
        if e % 3 == 2:
            c.update()
        out.append(values)
    return torch.stack(out)


@pytest.mark.parametrize("raw", [
    {"kind": "adr", "samples": 5, "step": 0.1}, {"kind": "levels", "levels": 4},
    {"kind": "alp_gmm", "every": 40, "components": [1, 3]},
    {"kind": "linear", "episodes": 8}, {"kind": "adr", "samples": 5, "outcome": "return", "return_range": [0.25, 4]}])
def test_a_resumed_curriculum_goes_on_bit_for_bit(raw):
    make = lambda: parse_curriculum({**raw, "parameters": RAW}, PARAMETERS, STARTS, 30, 1)  # noqa: E731
    straight, before, after = make(), make(), make()
    whole = play(straight, 16)
    part = play(before, 7)
    after.load_state_dict(before.state_dict())
    assert torch.equal(torch.cat([part, play(after, 9, 7)]), whole)
    assert straight.metrics() == after.metrics() and len(whole.unique(dim=0)) == 16


@pytest.mark.parametrize("raw", [
    {"kind": "adr", "samples": 5, "step": 0.1}, {"kind": "levels", "levels": 4},
    {"kind": "alp_gmm", "every": 40, "components": [1, 3]}, {"kind": "linear", "episodes": 8}])
def test_a_state_that_a_learner_brought_to_a_gpu_is_taken(raw):
    make = lambda: parse_curriculum({**raw, "parameters": RAW}, PARAMETERS, STARTS, 30, 1)  # noqa: E731
    played, after = make(), make()
    play(played, 7)
    with pytest.raises(RuntimeError, match="same device"):
        away(torch.zeros(2)) + 1.0
    after.load_state_dict(away(played.state_dict()))
    assert torch.equal(play(after, 3, 7), play(played, 3, 7)) and after.metrics() == played.metrics()


def test_ranges_grow_in_their_own_units():
    c = adr_curriculum(300)
    play(c, 30)
    figures = c.metrics()
    assert figures["curriculum/low.friction"] == pytest.approx(0.25)
    assert 1.5 < figures["curriculum/high.friction"] < 2.7 and figures["curriculum/episodes"] == 900


def test_processes_share_a_teacher_by_gathering_and_levels_are_each_ones_own():
    a, b = adr_curriculum(40, seed=1), adr_curriculum(40, seed=1_000_004)
    for e in range(9):
        for c in (a, b):
            c.finish(ids(40), zeros(40) + e, c.draw(ids(40), zeros(40) + e)[:, 0] < 2, torch.zeros(40))
        rows = [torch.cat(c.finished) for c in (a, b)]
        for c in (a, b):
            c.update(lambda mine: torch.cat(rows))  # noqa: B023
    assert np.array_equal(a.teacher.ends, b.teacher.ends) and not np.array_equal(a.teacher.ends, a.teacher.first)
    assert not torch.equal(a.points, b.points)
    alone = parse_curriculum({"kind": "levels", "parameters": RAW}, PARAMETERS, STARTS, 4, 1)
    alone.finish(ids(4), zeros(4), alone.draw(ids(4), zeros(4))[:, 0] > -1, torch.zeros(4))
    alone.update(lambda rows: pytest.fail("levels are not shared"))
    assert alone.teacher.level.tolist() == [1, 1, 1, 1]


def test_returns_count_between_their_ends():
    c = adr_curriculum(3, outcome="return", return_range=[-10, 10])
    c.draw(ids(3), zeros(3))
    c.finish(ids(3), zeros(3), torch.zeros(3), torch.tensor([-20.0, 5.0, 40.0]))
    assert c.finished[0][:, -2].tolist() == [0.0, 0.75, 1.0]


def test_no_curriculum():
    assert parse_curriculum(None, PARAMETERS, STARTS, 3, 1) is None
    assert parse_curriculum({"kind": "none", "parameters": {}}, PARAMETERS, STARTS, 3, 1) is None


@pytest.mark.parametrize("change, told", [
    ({"kind": "adrr"}, "'adrr'; legal: adr, alp_gmm, fixed, levels, linear, none, uniform"),
    ({"samplez": 3}, "unknown keys .*legal with kind adr: kind, parameters"),
    ({"parameters": {}}, "kind adr needs parameters"), ({"samples": 0}, "samples >= 1"),
    ({"grow": 0.4}, "shrink < grow"),
    ({"boundary": 2}, "boundary is a share"), ({"step": "a"}, "step is a finite number"),
    ({"outcome": "reward"}, "legal: success, return"), ({"outcome": "return"}, "needs return_range"),
    ({"outcome": "return", "return_range": [3, 1]}, r"\[least, greatest\]"),
    ({"kind": "linear", "samples": None}, "unknown keys"),
    ({"kind": "none"}, r"curriculum.parameters \(friction, goal\) need a teacher: name one with curriculum=<kind>"),
    ({"parameters": [1]}, "parameters is a mapping"), ({"parameters": "friction"}, "parameters is a mapping"),
    ({"samples": [2]}, "samples is a finite number"), ({"samples": 2.5}, "samples is a whole number"),
    ({"samples": True}, "samples is a finite number"), ({"grow": 1.5}, "grow is a share"),
    ({"shrink": -1}, "shrink is a share"), ({"kind": "alp_gmm", "every": 1.5}, "every is a whole number"),
    ({"kind": "alp_gmm", "components": 3}, r"components is \[least, greatest\]"),
    ({"kind": "alp_gmm", "components": [2, 3, 4]}, r"components is \[least, greatest\]"),
    ({"kind": "alp_gmm", "components": [2.5, 3]}, "components is a whole number each"),
    ({"kind": "alp_gmm", "window": "all"}, "window is a finite number"),
    ({"kind": "linear", "episodes": 2.5}, "episodes is a whole number"),
    ({"kind": "levels", "levels": 2.5}, "levels is a whole number"), ({"kind": "levels", "up": 7}, "up is a share"),
    ({"parameters": {"start.initial": {"low": 0, "high": 1}}}, "start.initial needs first"),
    ({"parameters": {"start.initial": {"low": 0, "high": 1, "components": [0]}}}, "start.initial needs first"),
    ({"parameters": {"mass": {"low": 3, "high": 4}}}, "mass needs first, where the range begins"),
    ({"parameters": {"friction": {"low": 0.5, "high": 4}}}, "friction needs first"),
    ({"parameters": {"mass": {"as": "scale", "low": 2, "high": 4}}}, "within 2 to 4; what is nominal"),
    ({"parameters": {"frictoin": {"low": 1, "high": 2}}}, "no 'frictoin'; legal: friction, mass, com, start.initial"),
    ({"parameters": {"friction": {"low": 1}}}, "with low and high"),
    ({"parameters": {"friction": {"low": 2, "high": 1}}}, "low < high"),
    ({"parameters": {"friction": {"low": 0, "high": 1, "log": True}}}, "needs low > 0"),
    ({"parameters": {"friction": {"low": -1, "high": 1}}}, "at least 0"),
    ({"parameters": {"mass": {"as": "scale", "low": 0, "high": 1}}}, "greater than 0"),
    ({"parameters": {"mass": {"as": "times", "low": 1, "high": 2}}}, "'times'; legal: value, scale, add"),
    ({"parameters": {"mass": {"low": 1, "high": 2, "first": 3}}}, "first lies from low to high"),
    ({"parameters": {"start.initial": {"low": 0, "high": 2}}}, r"lies in \[0, 1\]"),
    ({"parameters": {"start.initial": {"as": "add", "low": 0, "high": 1}}}, "a draw of the reset is set"),
    ({"parameters": {"com": {"low": 0, "high": 1, "components": [3]}}}, "places from 0 to 2"),
])
def test_wrong_settings_are_told(change, told):
    with pytest.raises(ValueError, match=told):
        parse_curriculum({"kind": "adr", "parameters": RAW, **change}, PARAMETERS, STARTS, 4, 1)


@pytest.mark.parametrize("kind", ["adr", "levels", "linear", "fixed"])
def test_ranges_begin_at_what_is_nominal(kind):
    given = {"heavy": {"of": "mass", "low": 1, "high": 3}, "mass": {"as": "scale", "low": 0.25, "high": 4, "log": True},
             "com": {"as": "add", "low": -0.3, "high": 0.1},
             "friction": {"low": 1, "high": 3, "components": [1], "first": None}}
    more = {"episodes": 9} if kind == "linear" else {}
    c = parse_curriculum({"kind": kind, "parameters": given, **more}, PARAMETERS, STARTS, 8, 1)
    torch.testing.assert_close(c.draw(ids(8), zeros(8)), torch.tensor([2.0, 1.0, 0.0, 2.0]).expand(8, 4))


def test_adr_without_first_moves():
    c = parse_curriculum({"kind": "adr", "samples": 3, "step": 0.1, "parameters": {
        "friction": {"as": "scale", "low": 0.25, "high": 4.0, "log": True}}}, PARAMETERS, STARTS, 100, 1)
    play(c, 3)
    assert c.metrics()["curriculum/high.friction"] > 1.2 and c.metrics()["curriculum/volume"] < 0.9


def test_uniform_and_learning_progress_begin_everywhere():
    for kind in ("uniform", "alp_gmm"):
        c = parse_curriculum({"kind": kind, "parameters": {"mass": {"low": 3, "high": 4}}}, PARAMETERS, STARTS, 900, 1)
        found = c.draw(ids(900), zeros(900))
        assert found.min() < 3.01 and found.max() > 3.99


@pytest.mark.parametrize("change, told", [
    ({"kind": "alp_gmm"}, "a state of teacher Adr, expected AlpGmm"),
    ({"kind": "uniform"}, "a state of teacher Adr, expected Uniform"),
    ({"parameters": {**RAW, "friction": {**RAW["friction"], "high": 8.0}}}, "friction.high 4.0, expected 8.0"),
    ({"parameters": {**RAW, "friction": {**RAW["friction"], "first": [1, 2]}}}, "friction.first"),
    ({"parameters": {**RAW, "friction": {**RAW["friction"], "as": "value"}}}, "friction.action scale, expected value"),
    ({"parameters": {**RAW, "goal": {**RAW["goal"], "components": [2]}}}, r"goal.components \[1\], expected \[2\]"),
    ({"samples": 7}, "samples 3, expected 7"),
    ({"outcome": "return", "return_range": [0, 1]}, r"return_range None, expected \[0.0, 1.0\]")])
def test_a_state_of_another_curriculum_is_refused_and_changes_nothing(change, told):
    other = parse_curriculum({"kind": "adr", "step": 0.1, "samples": 3, "parameters": RAW} | change
                             if change.get("kind", "adr") == "adr" else {"parameters": RAW, **change},
                             PARAMETERS, STARTS, 30, 1)
    before = other.state_dict()
    played = adr_curriculum(30)
    play(played, 6)
    with pytest.raises(ValueError, match=told):
        other.load_state_dict(played.state_dict())
    assert torch.equal(other.episodes, before["episodes"])


def test_a_state_of_something_else_is_refused():
    with pytest.raises(ValueError, match="expected .5, 2. and friction, goal"):
        adr_curriculum(5).load_state_dict(adr_curriculum(4).state_dict())
    with pytest.raises(ValueError, match="not drawn here"):
        adr_curriculum(5).finish(ids(2), zeros(2), zeros(2), zeros(2))


@pytest.mark.parametrize(("action", "high", "gives"), [
    ("value", 0.5, "0.5"), ("add", 0.4, "0.5"), ("scale", 3.0, "0.3")])
def test_what_a_simulator_cannot_take_is_refused_with_the_settings(action, high, gives):
    """As by a randomization: a curriculum that widens gets there late, in mid-training."""
    delay = {"command_delay": Parameter((0.1,), (0.1,), (0.1,), "s", "", most=0.2)}
    drawn = {"as": action, "low": 0.0, "high": high, "first": 0.1}

    def parse(**more):
        raw = {"kind": "uniform", "parameters": {"command_delay": {**drawn, **more}}}
        return parse_curriculum(raw, delay, {}, 4, 1)

    with pytest.raises(ValueError, match=rf"command_delay is at most 0.2 s in this simulator, .* gives {gives}$"):
        parse()
    parse(high=0.1)
