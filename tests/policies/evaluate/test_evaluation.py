"""Judging: verdicts, margins, who failed first and when, slack and effort, by hand on small traces."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from temporeal.policies.cli.verbs.eval import describe
from temporeal.policies.evaluate.evaluation import BELOW_ZERO, bounds_over_time, evaluate, gate, to_json
from temporeal.policies.evaluate.rollout import Rollout
from temporeal.robots.signals import SignalSpec, schema
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.monitoring.monitor import Monitor

SCHEMA = schema(SignalSpec("base_pos_w", (3,), "m"), SignalSpec("height", (), "m"))
TEXT = "F[0,2] (base_pos_w.x > 1 & F[0,2] (base_pos_w.x < 0)) & G[0,4] (height > 0.5)"


def rolled(x: list[list[float]], height: list[list[float]], ends: list[int] | None = None) -> Rollout:
    """Episodes given as rows; ``ends``: samples that each really has, the shorter ones terminated."""
    xs, hs = np.array(x, np.float32).T, np.array(height, np.float32).T
    samples, episodes = xs.shape
    lengths = np.array(ends or [samples] * episodes)
    for e, n in enumerate(lengths):
        xs[n:, e], hs[n:, e] = xs[n - 1, e], hs[n - 1, e]
    position = np.stack([xs, 0 * xs, hs], -1)
    return Rollout({"base_pos_w": position, "height": hs}, np.zeros((samples - 1, episodes, 2), np.float32), lengths,
                   lengths < samples, np.ones(episodes, bool), 1.0)


def judge(x: list[list[float]], height: list[list[float]], ends: list[int] | None = None):
    return evaluate(rolled(x, height, ends), parse(TEXT, SCHEMA))


HIGH = [1.0] * 5


def test_satisfied_episode_with_its_margin_slack_and_time() -> None:
    e = judge([[0, 1.5, 0.5, -0.25, 0]], [HIGH])
    assert e.satisfied.successes == 1 and e.robustness.median == pytest.approx(0.25)
    assert e.episodes.first_clause.tolist() == [-1] and np.isnan(e.episodes.failed_at_s[0])
    assert e.episodes.decided_at_s.tolist() == [4.0]  # the floor must be kept to the end
    # above 1 at 1 s, due by 2 s: slack 1; below 0 at 3 s, due by 1 + 2 s: slack 0
    assert e.episodes.slack_s[0].tolist() == [1.0, 0.0]
    assert [g.label for g in e.subgoals] == ["base_pos_w.x > 1", "base_pos_w.x < 0"]


def test_a_subgoal_that_was_never_reached_is_told_with_the_others() -> None:
    text = describe("here", judge([[0, 1.5, 0.5, 0.5, 0.5], [0, 0, 0, 0, 0]], [HIGH, HIGH]), 1.0)
    told = [line.split("  ") for line in text.splitlines() if "in time" in line]
    assert [line[-3:] for line in told] == [["50.0%", "in time, with 1 s left (median)", "base_pos_w.x > 1"],
                                            [" 0.0%", "in time, never", "base_pos_w.x < 0"]]


def test_the_clause_whose_violation_was_known_first_is_named() -> None:
    # floor broken at 1 s; the other clause is only known to fail when its window closes
    e = judge([[0, 0, 0, 0, 0], [0, 0, 0, 0, 0]], [[1, 0.2, 1, 1, 1], HIGH])
    assert e.episodes.first_clause.tolist() == [1, 0]
    assert e.episodes.failed_at_s.tolist() == [1.0, 2.0]
    assert [c.first_to_fail for c in e.clauses] == [1, 1]
    assert [c.satisfied.successes for c in e.clauses] == [0, 1]
    assert e.episodes.robustness.tolist() == pytest.approx([-1.0, -1.0])  # of both, x stays 1 below what it must reach


def test_episode_that_ended_while_the_formula_was_open_counts_as_violated() -> None:
    # everything that was seen is fine: both goals reached by 2 s, then it ended at 3 s (the floor is due until 4 s)
    e = judge([[0, 1.5, -0.5, 0, 0]], [HIGH], ends=[4])
    assert e.satisfied.successes == 0 and e.terminated == 1
    assert e.episodes.robustness.tolist() == [BELOW_ZERO]
    assert e.episodes.first_clause.tolist() == [1] and e.episodes.failed_at_s.tolist() == [3.0]
    assert e.clauses[0].satisfied.successes == 1  # what was decided stays decided


def test_episode_that_ended_early_has_the_margin_of_its_last_place_held() -> None:
    e = judge([[0, 0.25, 0, 0, 0]], [HIGH], ends=[2])
    assert e.episodes.robustness.tolist() == [-0.75]  # 0.25 held is 0.75 short of 1


def test_formula_decided_before_the_end_is_satisfied_even_if_the_episode_ended() -> None:
    found = evaluate(rolled([[0, 1.5, 0, 0, 0]], [HIGH], ends=[3]), parse("F[0,3] (base_pos_w.x > 1)", SCHEMA))
    assert found.satisfied.successes == 1 and found.episodes.decided_at_s.tolist() == [1.0]


def test_sample_that_is_not_a_number_is_no_sample() -> None:
    trace = rolled([[0, 1.5, -0.5, 0, 0]], [HIGH])
    broken = replace(trace, finite=np.array([False]))  # the environment zeroes such a sample and ends the episode
    found = evaluate(broken, parse("F[0,2] (base_pos_w.x > 1) & G[0,4] (height > 0.5)", SCHEMA))
    assert found.non_finite == 1 and found.satisfied.successes == 0


def test_subgoal_with_a_hold_counts_from_the_start_of_the_stretch() -> None:
    trace = rolled([[0, 2, 0, 2, 2, 2, 0]], [[1.0] * 7])
    found = evaluate(trace, parse("F[0,4] G[0,2] (base_pos_w.x > 1)", SCHEMA))
    assert found.episodes.slack_s.tolist() == [[1.0]]  # from 3 s on it holds for 2 s; the stretch at 1 s was too short


def test_formula_that_has_no_subgoals_has_no_slack() -> None:
    found = evaluate(rolled([[0] * 5], [HIGH]), parse("F[0,2] (height > 1) | G[0,2] (height > 0)", SCHEMA))
    assert found.subgoals == () and found.episodes.slack_s.shape == (1, 0)


def test_effort_counts_the_steps_of_the_episode_only() -> None:
    trace = rolled([[0] * 5] * 2, [HIGH] * 2, ends=[5, 3])
    actions = np.zeros((4, 2, 2), np.float32)
    actions[:, 0] = [[1, 0], [0, 0], [1, 0], [0, 0]]
    actions[:2, 1] = [[1, 1], [1, 1]]
    found = evaluate(replace(trace, actions=actions), parse("G[0,4] (height > 0.5)", SCHEMA))
    assert found.episodes.effort.tolist() == [0.5, 2.0]
    assert found.episodes.change.tolist() == [1.0, 0.0]
    assert found.episodes.length_s.tolist() == [4.0, 2.0]


def test_tracking_error_is_the_rms_distance_from_the_reference() -> None:
    trace = rolled([[0, 1, 2, 3, 4]], [[0.0] * 5])
    found = evaluate(trace, parse("G[0,4] (height > -1)", SCHEMA),
                     reference=lambda t: np.stack([t, 0 * t + 3, 0 * t], -1))
    assert found.episodes.tracking_m.tolist() == [3.0]


def test_bounds_over_time_are_those_of_the_streaming_monitor() -> None:
    formula = parse(TEXT, SCHEMA)
    trace = rolled([[0, 1.5, 0.5, -0.25, 0]], [[1.0, 0.8, 0.9, 0.7, 0.95]])
    low, high = bounds_over_time(formula, trace, 0, np.arange(5))
    monitor = Monitor(formula, 1.0)
    readings = [monitor.update({k: v[t, 0] for k, v in trace.signals.items()}) for t in range(5)]
    np.testing.assert_allclose(low, [r.lower for r in readings], rtol=1e-6)
    np.testing.assert_allclose(high, [r.upper for r in readings], rtol=1e-6)


def test_gate_compares_the_estimate_or_the_lower_bound() -> None:
    e = judge([[0, 1.5, 0.5, -0.25, 0]] * 9 + [[0] * 5], [HIGH] * 10)
    assert e.satisfied.estimate == 0.9 and e.satisfied.low == pytest.approx(0.555, abs=1e-3)
    assert gate(e, require=0.9) and not gate(e, require=0.91)
    assert gate(e, require_lower=0.55) and not gate(e, require=0.9, require_lower=0.6)
    assert gate(e)
    with pytest.raises(ValueError, match="between 0 and 1, got 95"):
        gate(e, require=95)


def test_slack_of_a_mission_is_the_delay_it_bears_whatever_the_formula() -> None:
    def slack(text: str, *x: list[float]) -> list[float | str]:
        found = evaluate(rolled(list(x), [[1.0] * 7] * len(x)), parse(text, SCHEMA)).episodes.delay_s
        return ["fails" if np.isnan(s) else s for s in found.tolist()]

    late, early = [0, 0, 0, 0, 2, 2, 2], [0, 2, 2, 2, 2, 2, 2]
    assert slack("F[0,5] (base_pos_w.x > 1)", late, early, [0] * 7) == [1.0, 4.0, "fails"]
    either = "F[0,2] (base_pos_w.x > 1) | F[0,5] (base_pos_w.x > 1 & height > 0.5)"
    assert slack(either, late, early) == [1.0, 4.0]
    assert slack("G[0,3] F[0,3] (base_pos_w.x > 1)", early, [0, 0, 2, 0, 0, 2, 0]) == [2.0, 1.0]
    # away at 3 s: not with a delay of 1 s, again with one of 2 s
    assert slack("F[0,6] (base_pos_w.x > 1) & G[3,3] (base_pos_w.x < 1)", [0, 0, 2, 0, 2, 2, 2]) == [0.0]
    trace = rolled([late], [[1.0] * 7])
    timed = replace(trace, signals={**trace.signals, "mission_time": np.arange(7.0)[:, None]})
    clock = schema(*SCHEMA.values(), SignalSpec("mission_time", (), "s"))
    found = evaluate(timed, parse("F[0,6] (mission_time > 4 & mission_time < 6 & base_pos_w.x > 1)", clock))
    assert found.episodes.delay_s.tolist() == [1.0]  # the time goes on as it does


def test_json_has_the_promised_keys_and_no_infinity() -> None:
    content = to_json(judge([[0] * 5], [HIGH]))
    assert content["p_satisfied"] == 0.0 and content["episodes"] == 1
    assert content["ci95"] == [0.0, pytest.approx(0.975)]
    assert content["robustness"]["quantiles"]["0.5"] == -1.0
    assert content["subgoals"][0]["slack_s"]["mean"] is None  # never reached
