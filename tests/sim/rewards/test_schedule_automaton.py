"""Missions that follow schedules: what they call done satisfies the formula; hits, holds, windows, what is broken."""

import numpy as np
import pytest
import torch

from temporeal.robots.signals import SignalSpec, schema
from temporeal.sim.compiler import vectorize
from temporeal.sim.rewards.schedule_automaton import NEVER, ScheduleAutomaton
from temporeal.sim.rewards.schedules import draw_schedules
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.planning.decompose import decompose
from temporeal.sim.stl.semantics.robustness import robustness

PLACE = schema(SignalSpec("p", (2,), "m"))
DT = 0.2
FORMULAS = {
    "both": "F[0,4] (p.x > 1) & F[0,4] (p.y > 1) & G[0,4] !(p.x < -2)",
    "hold": "F[0,4] G[0,1] (p.x > 0.5)",
    "chain": "F[0,2] (p.x > 1 & F[0,2] (p.y > 1 & G[0,0.4] p.x > 0))",
    "door": "!(p.x > 2) U[0,3] (p.y > 1) & F[0,4] p.x > 2",
    "either": "(F[0,2] p.x > 1) | (F[0,3] (p.y > 1 & F[0,1] p.y < 0))",
    "again": "G[0,4] F[0,2] p.x > 1",
    "until": "F[0,3] (p.x > 1 & (p.y > -1 U[0,1] p.y > 1))",
    "late": "F[2,3] p.x > 1 & G[1,2] p.y > -2",
    "kept": "F[0,2] p.x > 0.5 & G[3,3.6] p.y > -1",
    "until_hold": "(p.x > -1) U[0,3] G[0,0.4] (p.y > 0.5)",
    "response": "G[0,2] (p.x > 1 -> F[0,1] p.y > 0.5)",
    "maybe": "F[0,3] (p.x > 0.5 & (p.y < 0 U[0,1] p.y > 0.5))",
    "holds": "G[0,2] F[0,1] G[0,0.4] p.x > 0.3",
    "offset": "F[0,4] (p.x > 0.5 & G[0.4,0.8] p.y > 0.3)",
}


def mission(text, **kw):
    formula = parse(text, PLACE)
    return formula, ScheduleAutomaton(decompose(formula, DT), **kw)


def follow(m, places, schedules):
    """Each sample's :class:`temporeal.sim.rewards.schedule_automaton.ScheduleProgress` of the traces [T, N, 2]."""
    memory = {name: torch.zeros(len(schedules), *shape) for name, shape in m.memory.items()}
    out = []
    for place in places:
        timed, memory = m({"p": place}, schedules, memory)
        out.append(timed)
    return out


def outcome(steps):
    """Done [N] before anything was broken or missed."""
    failed = torch.zeros_like(steps[0].done)
    done = torch.zeros_like(steps[0].done)
    for timed in steps:
        failed = failed | (~done & (timed.violated | timed.late) & ~timed.done)
        done = done | (timed.done & ~failed)
    return done


def walks(samples, n, seed):
    generator = torch.Generator().manual_seed(seed)
    return (0.5 * torch.randn(samples, n, 2, generator=generator)).cumsum(0) + 0.7 * torch.randn(
        n, 2, generator=generator)


@pytest.mark.parametrize("name", FORMULAS)
def test_what_is_done_satisfies_the_formula(name):
    formula, m = mission(FORMULAS[name])
    places = walks(m.samples, 1500, 1)
    schedules = draw_schedules(m.alternatives, 1500, np.random.default_rng(2))
    done = outcome(follow(m, places, schedules))
    satisfied = torch.as_tensor(robustness(formula, {"p": places}, DT))[0] > 0
    assert not (done & ~satisfied).any()
    assert done.float().mean() > 0.03 and done.sum() > 0.3 * satisfied.sum()


@pytest.mark.parametrize("name", ["both", "door"])
def test_where_nothing_depends_on_the_times_every_satisfied_trace_is_done(name):
    formula, m = mission(FORMULAS[name])
    places = walks(m.samples, 1500, 3)
    done = outcome(follow(m, places, draw_schedules(m.alternatives, 1500, np.random.default_rng(4))))
    satisfied = torch.as_tensor(robustness(formula, {"p": places}, DT))[0] > 0
    assert torch.equal(done, satisfied) and satisfied.any()


@pytest.mark.parametrize("name", FORMULAS)
def test_nearly_every_satisfied_trace_is_done_under_some_schedule(name):
    formula, m = mission(FORMULAS[name])
    places, tries = walks(m.samples, 100, 11), 60
    satisfied = torch.as_tensor(robustness(formula, {"p": places}, DT))[0] > 0
    schedules = draw_schedules(m.alternatives, 100 * tries, np.random.default_rng(1))
    done = outcome(follow(m, places.repeat_interleave(tries, 1), schedules)).reshape(100, tries)
    assert satisfied.sum() > 10 and not done[~satisfied].any()
    assert done[satisfied].any(1).float().mean() > 0.95


@pytest.mark.parametrize("name", FORMULAS)
def test_slack_is_a_bound_of_the_robustness(name):
    formula, m = mission(FORMULAS[name], slack=0.2, margin=0.1)
    places = walks(m.samples, 1500, 5)
    done = outcome(follow(m, places, draw_schedules(m.alternatives, 1500, np.random.default_rng(6))))
    assert done.any()
    assert torch.as_tensor(robustness(formula, {"p": places}, DT))[0][done].min() >= 0.1


@pytest.mark.parametrize("name", FORMULAS)
def test_compiled_it_is_the_same(name):
    _, m = mission(FORMULAS[name])
    n = 40
    columns = m.memory
    given = {"p": (2,), "schedule": (m.schedule_size,), "togo": (m.variables,), "left": (m.variables,),
             "spare": (m.variables,), "stage": (m.variables,), "asked": (len(m.predicates),),
             "kept": (len(m.predicates),), "distance": (), "done": (), "violated": (), "late": ()}

    def function(x):
        timed, memory = m({"p": x["p"]}, x["schedule"], {k: x[k] for k in columns})
        return {**memory, **{k: getattr(timed, k).float() for k in given if k not in ("p", "schedule")}}

    kernels = [
        make(function, columns, given, (*columns, "p", "schedule")) for make in (vectorize.Kernel, vectorize.Plain)
    ]
    tables = [vectorize.table(columns, n, torch.device("cpu")) for _ in kernels]
    schedules = draw_schedules(m.alternatives, n, np.random.default_rng(8))
    for place in walks(m.samples, n, 7):
        made = []
        for kernel, table in zip(kernels, tables):
            found = {k: torch.zeros(n, *shape) for k, shape in given.items()} | {"p": place, "schedule": schedules}
            kernel(table, found)
            made.append(found)
        for name_ in given:
            assert torch.equal(made[0][name_], made[1][name_]), name_


def line(*places):
    """One trace [T, 1, 2]."""
    return torch.tensor(places)[:, None]


def test_a_hit_waits_for_its_time_only_where_something_depends_on_it():
    there = line(*[[2.0, 2.0]] * 11)
    _, free = mission("F[0,2] p.x > 1")
    assert follow(free, there, torch.tensor([[0.0, 8.0]]))[0].hit.all()
    _, held = mission("F[0,2] G[0,0.4] p.x > 1")
    hits = [bool(t.hit) for t in follow(held, there, torch.tensor([[0.0, 3.0]]))]
    assert hits == [False] * 3 + [True] * 8
    _, tied = mission("F[0,2] (p.x > 1 & F[0,1] p.y > 1)")
    hits = torch.stack([t.hit[0] for t in follow(tied, there, torch.tensor([[0.0, 4.0, 8.0]]))])
    # the first may be hit where the second's time stays possible, at most 5 samples later; the second, free, at once
    assert hits.int().tolist()[:4] == [[0, 0], [0, 0], [0, 0], [1, 1]]


def test_what_is_kept_later_is_a_subgoal_of_its_own():
    _, m = mission("F[0,0.4] p.x > 1 & G[1,1.4] p.y > 1")
    schedule = torch.tensor([[0.0, 1.0, 5.0]])
    assert m.schedule_size == 3
    there = follow(m, line(*[[2.0, 0.0]] * 4, *[[0.0, 2.0]] * 4), schedule)
    assert [t.stage[0].tolist() for t in there[:2]] == [[0.0, 1.0]] * 2  # hit at once: on to what begins at sample 5
    assert [float(t.togo[0, 1]) for t in there[:3]] == [5.0, 4.0, 3.0]
    assert float(there[0].distance) == pytest.approx(1.0)
    assert [bool(t.done) for t in there] == [False] * 7 + [True]
    away = follow(m, line(*[[2.0, 0.0]] * 8), schedule)
    assert [bool(t.late) for t in away] == [False] * 5 + [True] * 3


def test_a_hold_that_breaks_is_taken_back_while_it_may_come_again():
    _, m = mission("F[0,2] G[0,0.4] p.x > 1")
    x = [2.0, 2.0, 0.0, 2.0, 2.0, 2.0, 2.0]
    steps = follow(m, line(*[[v, 0.0] for v in x]), torch.tensor([[0.0, 0.0]]))
    assert [bool(t.hit) for t in steps] == [True, True, False, True, True, True, True]
    assert not any(t.violated for t in steps) and [bool(t.done) for t in steps] == [False] * 5 + [True] * 2
    assert [float(t.left) for t in steps[:4]] == [2.0, 1.0, 0.0, 2.0]
    x = [0.0] * 9 + [2.0, 2.0, 0.0, 2.0]  # the last sample at which it may begin is 10
    steps = follow(m, line(*[[v, 0.0] for v in x]), torch.tensor([[0.0, 0.0]]))
    assert bool(steps[11].violated) and not any(t.done for t in steps[:12])  # who follows remembers what was broken


def test_a_hit_moves_on_with_the_clock_while_it_lasts():
    """What must follow a visit counts from its end."""
    _, m = mission("F[0,4] (p.x > 1 & F[0,1] p.y > 1)")
    x = [2.0] * 6 + [0.0] * 8
    steps = follow(m, line(*[[v, 0.0] for v in x]), torch.tensor([[0.0, 2.0, 7.0]]))
    assert [bool(t.hit[0, 0]) for t in steps[:4]] == [False, False, True, True]
    assert [float(t.spare[0, 1]) for t in steps[2:8]] == [5.0, 5.0, 5.0, 5.0, 4.0, 3.0]
    assert bool(steps[9].hit[0, 0]) and not bool(steps[10].hit[0, 0])  # too late: the first may come again
    assert not any(t.late for t in steps)


def test_one_visit_is_one_hit_of_a_chain_and_the_last_visit_is_all_that_is_left():
    """Always eventually: what comes next has all of its time from the end of the visit on."""
    _, m = mission("G[0,4] F[0,2] p.x > 1")
    assert m.variables == 4
    x = [2.0] * 4 + [0.0] * 6 + [2.0] * 2 + [0.0] * 6 + [2.0] * 13
    steps = follow(m, line(*[[v, 0.0] for v in x]), torch.tensor([[0.0, 2.0, 8.0, 12.0, 22.0]]))
    assert [int(t.hit.sum()) for t in steps][:20] == [1] * 11 + [2] * 9  # the first may be until sample 10
    assert [float(steps[k].spare[0, 1]) for k in (3, 9, 10)] == [11.0, 5.0, 11.0]
    assert float(steps[17].spare[0, 2]) == 5.0  # 11 samples, counted from sample 11
    assert int(steps[20].hit.sum()) == 4 and bool(steps[20].done) and not any(t.late for t in steps)


def test_times_are_drawn_into_what_the_hits_leave():
    _, m = mission("F[0,4] (p.x > 1 & F[0,1] p.y > 1)")
    steps = follow(m, line(*[[2.0 * (t == 6), 0.0] for t in range(8)]), torch.tensor([[0.0, 6.0, 25.0]]))
    # the second was to come 19 samples behind the first: from its hit on, as late as it may
    assert [float(t.togo[0, 1]) for t in steps[5:8]] == [20.0, 5.0, 4.0]
    assert [float(t.spare[0, 1]) for t in steps[5:8]] == [20.0, 5.0, 4.0]


def test_a_request_says_by_when_the_answer_must_come():
    _, m = mission("G[0,2] (p.x > 1 -> F[0,1] p.y > 1)")
    asked = [[2.0 * (t == 3), 2.0 * (t == 6)] for t in range(m.samples)]
    rows_ = draw_schedules(m.alternatives, 200, np.random.default_rng(0))
    steps = follow(m, line(*asked).expand(-1, 200, -1), rows_)
    assert outcome(steps).any()
    late = [[2.0 * (t == 3), 2.0 * (t == 9)] for t in range(m.samples)]
    assert not outcome(follow(m, line(*late).expand(-1, 200, -1), rows_)).any()


def test_windows_that_pass_are_late_and_what_is_kept_is_watched():
    _, m = mission("F[0.4,0.8] p.x > 1 & G[0,1] p.y > -1")
    steps = follow(m, line(*[[0.0, 0.5 - 0.4 * t] for t in range(6)]), torch.tensor([[0.0, 3.0]]))
    assert [bool(t.late) for t in steps] == [False] * 4 + [True] * 2
    assert [bool(t.violated) for t in steps] == [False] * 4 + [True, True]
    assert [float(t.kept.amin()) for t in steps] == pytest.approx([1.5 - 0.4 * t for t in range(6)], abs=1e-5)
    assert [float(t.togo) for t in steps] == [3.0, 2.0, 1.0, 0.0, -1.0, -2.0]
    _, m = mission("F[0.4,0.8] p.x > 1 & G[0,0.2] p.y > -1")
    steps = follow(m, line(*[[2.0, 0.0]] * 4), torch.tensor([[0.0, 3.0]]))
    assert [bool(t.hit) for t in steps] == [False, False, True, True]  # not before its window
    assert [float(t.kept.amin()) < NEVER for t in steps] == [True, True, False, False]


def test_the_stage_is_the_first_allocated_of_those_that_may_come_next():
    _, m = mission("F[0,4] p.x > 1 & F[0,4] p.y > 1")
    nowhere = line([0.0, -1.0])
    for times, stage in (([5.0, 9.0], [1.0, 0.0]), ([9.0, 5.0], [0.0, 1.0]), ([5.0, 5.0], [1.0, 0.0])):
        timed = follow(m, nowhere, torch.tensor([[0.0, *times]]))[0]
        assert timed.stage[0].tolist() == stage
        assert float(timed.distance) == pytest.approx(1.0 if stage[0] else 2.0, abs=1e-6)
    _, m = mission("F[0,2] (p.x > 1 & F[0,2] p.y > 1)")
    assert follow(m, nowhere, torch.tensor([[0.0, 5.0, 5.0]]))[0].stage[0].tolist() == [1.0, 0.0]


def test_a_schedule_says_which_alternative():
    _, m = mission("(F[0,2] p.x > 1) | (F[0,2] p.y > 1)")
    steps = [follow(m, line([0.0, 2.0], [0.0, 2.0]), torch.tensor([[float(a), 3.0]]))[0] for a in (0, 1)]
    assert sorted(bool(t.done) for t in steps) == [False, True]
