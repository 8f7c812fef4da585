"""The formula inside the reward: hits, what must be kept, success."""

import pytest
import torch
from tests.sim.task_parts.arms.samples import generator

from temporeal.robots.signals import SignalSpec, schema
from temporeal.sim.rewards.formula_tracker import FormulaTracker
from temporeal.sim.rewards.subgoal_automaton import NEVER
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.semantics.robustness import satisfied

SCHEMA = schema(SignalSpec("x", (), "m"), SignalSpec("y", (), "m"))


FORMULA = "F[0,3] G[0,1] (x > 0) & G[0,4] (y > 0)"


def verdicts(x, y, slack=0.0, formula=FORMULA):
    tracker = FormulaTracker(parse(formula, SCHEMA, {}), 0.5, slack)
    memory = {name: torch.zeros(1, *shape) for name, shape in tracker.carry.items()}
    out = []
    for a, b in zip(x, y):
        verdict = tracker({"x": torch.tensor([a]), "y": torch.tensor([b])}, memory)
        memory = verdict.carry
        out.append(verdict)
    return tracker, out


def test_a_subgoal_is_hit_once_after_it_was_held():
    tracker, out = verdicts([-1.0, 1, -1, 1, 1, 1, 1, -1, -1], [1.0] * 9)
    assert [float(v.hits) for v in out] == [0, 0, 0, 0, 0, 1, 0, 0, 0]
    assert [bool(v.done) for v in out] == [False] * 5 + [True] * 4
    assert bool(tracker.success(out[-1].carry)) and all(float(v.safe) == 1.0 for v in out)


def test_what_is_broken_stays_broken():
    tracker, out = verdicts([1.0] * 9, [1.0, 1, -0.5, 1, 1, 1, 1, 1, 1])
    assert float(out[2].safe) == -0.5 and float(out[3].safe) == 1.0
    assert bool(out[-1].done) and not bool(tracker.success(out[-1].carry))


def test_slack_asks_for_more_than_the_formula():
    x = [0.1] * 9
    assert bool(verdicts(x, [1.0] * 9)[1][-1].done) and not bool(verdicts(x, [1.0] * 9, slack=0.2)[1][-1].done)


def test_nothing_to_keep_is_safe_and_nothing_to_reach_is_done():
    _, out = verdicts([1.0] * 9, [1.0] * 9, formula="F[0,3] (x > 0)")
    assert float(out[0].safe) == pytest.approx(NEVER)
    tracker, out = verdicts([1.0] * 9, [1.0] * 9, formula="G[0,4] (y > 0)")
    assert bool(out[0].done) and bool(tracker.success(out[-1].carry))


def test_success_implies_that_the_formula_is_satisfied():
    n, formula = 300, parse(FORMULA, SCHEMA, {})
    tracker = FormulaTracker(formula, 0.5)
    traces = {name: torch.randn(9, n, generator=generator(i)) + shift
              for i, (name, shift) in enumerate((("x", 0.5), ("y", 1.8)))}
    memory = {name: torch.zeros(n, *shape) for name, shape in tracker.carry.items()}
    for t in range(9):
        memory = tracker({k: v[t] for k, v in traces.items()}, memory).carry
    found, true = tracker.success(memory), satisfied(formula, traces, 0.5)[0]
    assert 0.1 < found.float().mean() < 0.9 and not (found & ~true).any()
    assert (found == true).float().mean() > 0.99  # for this formula the earliest hit is the right one
