"""The mission automaton against the formula itself, on traces that nobody designed."""

import pytest
import torch

from temporeal.robots.signals import SignalSpec, schema
from temporeal.sim.rewards.subgoal_automaton import SubgoalAutomaton
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.planning.decompose import decompose
from temporeal.sim.stl.planning.plan import plan
from temporeal.sim.stl.semantics.robustness import satisfied

DT = 0.5
SCHEMA = schema(SignalSpec("x", (), "m"), SignalSpec("y", (), "m"))
FORMULAS = [
    "F[0,3] (x > 0.5) & G[0,6] (y < 1.5)",
    "F[0,2] (x > 0.2 & F[0,3] (y > 0.2)) & G[4,6] (x < 1.5)",
    "F[1,4] G[0,1] (x > -0.3) & G[0,6] (y > -2)",
    "(y < 1.2) U[0,4] (x > 0.6) & G[5,6] (y > -1.5)",
]


def trace(seed, steps=13, n=400):
    return {k: torch.randn(steps, n, generator=torch.Generator().manual_seed(seed + i)) for i, k in enumerate("xy")}


def run(formula, signals, slack=0.0):
    automaton = SubgoalAutomaton(plan(decompose(formula, DT)), DT, slack)
    n = signals["x"].shape[1]
    memory = {k: torch.zeros(n, *s) for k, s in automaton.memory.items()}
    kept, out = torch.ones(n, dtype=torch.bool), []
    for t in range(len(signals["x"])):
        progress, memory = automaton({k: v[t] for k, v in signals.items()}, memory)
        kept &= (progress.keep > 0).all(-1)
        out.append(progress)
    return out, (memory["hit"] > 0).all(-1) & kept


@pytest.mark.parametrize("text", FORMULAS)
def test_done_implies_satisfied(text):
    formula, signals = parse(text, SCHEMA), trace(3)
    _, done = run(formula, signals)
    verdict = satisfied(formula, signals, DT)[0]
    assert not (done & ~verdict).any()
    assert done.any() and (~done).any()  # the sample is not trivial
    if "F[0,3] (y" not in text and "G[0,1]" not in text:
        assert torch.equal(done, verdict)  # with a single hit time there is nothing to choose: equal


def test_stages_follow_each_other_and_know_their_time():
    formula = parse("F[0,2] (x > 0 & F[0,1] (y > 0)) & G[4,6] (x < 5)", SCHEMA)
    x = torch.tensor([-1, -1, 1, 1, 1, -1, 1, 1, 1, 1, 1, 1, 1.0])[:, None]
    y = torch.tensor([-1, 1, -1, 1, 1, -1, 1, 1, 1, 1, 1, 1, 1.0])[:, None]
    progress, _ = run(formula, {"x": x, "y": y})
    assert [int(p.stage[0].argmax()) for p in progress[:5]] == [0, 0, 1, 2, 2]
    assert [float(p.left[0]) for p in progress[:4]] == pytest.approx([2.0, 1.5, 1.0, 4 - 1.5])
    assert [bool(p.hold[0]) for p in progress] == [t * DT >= 4 for t in range(13)]


def test_a_hit_outside_its_window_does_not_count():
    formula = parse("F[1,2] (x > 0) & G[0,6] (y < 5)", SCHEMA)
    x = -torch.ones(13, 2)
    x[1, 0], x[3, 1] = 1.0, 1.0  # at 0.5 s: too early; at 1.5 s: in time
    _, done = run(formula, {"x": x, "y": torch.zeros(13, 2)})
    assert done.tolist() == [False, True]


def test_slack_asks_for_more():
    formula = parse("F[0,6] (x > 0) & G[0,6] (y < 5)", SCHEMA)
    x = torch.full((13, 1), 0.05)
    assert run(formula, {"x": x, "y": x}, slack=0.0)[1].item()
    assert not run(formula, {"x": x, "y": x}, slack=0.1)[1].item()
