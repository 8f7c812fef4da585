"""Decomposition: the rows of its table by hand, and what has none."""

import pytest

from sim.stl.decompose import Invariant, NotDecomposable, Subgoal, decompose
from sim.stl.syntax import And, FormulaError, Signal, always, eventually, until

P, Q, R = (Signal(n) > 0 for n in "xyz")


def parts(formula, dt=0.1):
    found = decompose(formula, dt)
    return list(found.subgoals), list(found.invariants)


@pytest.mark.parametrize("formula, subgoals, invariants", [
    (eventually(1, 2, P), [Subgoal(0, P, (1, 2))], []),
    (eventually(0, 3, P & eventually(0, 2, Q & eventually(1, 2, R))),
     [Subgoal(0, P, (0, 3)), Subgoal(1, Q, (0, 2), after=0), Subgoal(2, R, (1, 2), after=1)], []),
    (eventually(1, 2, always(0.5, 2, P)), [Subgoal(0, P, (1.5, 2.5), hold=1.5)], []),
    (eventually(1, 2, P & always(0.5, 2, Q)), [Subgoal(0, P, (1, 2))], [Invariant(Q, 0.5, 2, after=0)]),
    (eventually(1, 2, always(0, 2, P) & eventually(0, 1, Q)),
     [Subgoal(0, P, (1, 2), hold=2), Subgoal(1, Q, (0, 1), after=0)], []),
    (always(7, 9, P | Q), [], [Invariant(P | Q, 7, 9)]),
    (always(0, 1, P & always(0, 2, Q)), [], [Invariant(P, 0, 1), Invariant(Q, 0, 3)]),
    (until(P, 1, 2, Q), [Subgoal(0, Q, (1, 2))], [Invariant(P, 0, 1.9, until=0)]),
    (until(P, 0, 2, Q & eventually(0, 1, R)),
     [Subgoal(0, Q, (0, 2)), Subgoal(1, R, (0, 1), after=0)], [Invariant(P, 0, 1.9, until=0)]),
    (eventually(0.1, 0.2, eventually(0.2, 0.3, P)), [Subgoal(0, P, (0.3, 0.5))], []),
    (~eventually(0, 1, ~P) & P, [], [Invariant(P, 0, 0), Invariant(~~P, 0, 1)]),
    (~(always(0, 1, ~P) | eventually(0, 2, Q)), [Subgoal(0, ~~P, (0, 1))], [Invariant(~Q, 0, 2)]),
])
def test_by_hand(formula, subgoals, invariants):
    assert parts(formula) == (subgoals, invariants)


@pytest.mark.parametrize("formula, named", [
    (always(0, 1, eventually(0, 2, P)), "F[0,2] (x > 0)"),
    (And((P, always(0, 1, P & until(P, 0, 1, Q)))), "(x > 0) U[0,1] (y > 0)"),
    (eventually(0, 1, P) | always(0, 1, Q), "F[0,1] (x > 0) | G[0,1] (y > 0)"),
    (P >> eventually(0, 1, Q), "!(x > 0) | F[0,1] (y > 0)"),
    (~until(P, 0, 1, Q), "!((x > 0) U[0,1] (y > 0))"),
    (until(always(0, 1, P), 0, 1, Q), "G[0,1] (x > 0) U[0,1] (y > 0)"),
    (eventually(0, 1, eventually(0, 1, P) & eventually(0, 1, Q)), "F[0,1] (F[0,1] (x > 0) & F[0,1] (y > 0))"),
    (always(0, float("inf"), P), "G (x > 0)"),
])
def test_what_has_none_is_named(formula, named):
    with pytest.raises(NotDecomposable) as caught:
        decompose(formula, 0.1)
    assert str(caught.value).startswith(f"not decomposable: {named}: ")


def test_windows_must_be_whole_samples():
    with pytest.raises(FormulaError, match="0.25 s is no multiple of the sample period dt = 0.1 s"):
        decompose(always(0, 0.25, P), 0.1)
