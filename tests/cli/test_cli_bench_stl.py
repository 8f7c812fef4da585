"""The bench of the STL engine: what is timed is checked first, and rows say what was measured."""

from __future__ import annotations

import os
from types import SimpleNamespace

import numpy as np
import pytest

from policies.cli.benches import stl
from policies.cli.peers.translate import to_rtamt, to_stlcgpp
from sim.stl.robustness import robustness
from sim.stl.syntax import Signal, always, eventually, until

DATA = {length: stl.random_signals(length, 64) for length in stl.COMPARED}


class Echo:
    """A peer that answers with our values of the text it knows, ``off`` by so much at the first sample."""

    def __init__(self, off=0.0):
        self.off = off
        self.known = {to_rtamt(f): f for length in stl.COMPARED for f in stl.formulas(length).values()}

    def ask(self, do, text, worlds, period_ms):
        assert (do, period_ms) == ("evaluate", 1000)
        signals = {name: np.array([w[name] for w in worlds], np.float32).T for name in worlds[0]}
        values = robustness(self.known[text], signals, stl.DT)
        values[0] += self.off
        return values.T.tolist()


def test_a_peer_that_agrees_is_timed():
    stl.check("rtamt", Echo(), DATA)


def test_a_peer_that_disagrees_is_named():
    with pytest.raises(AssertionError, match="the values differ: G at T = 100: ours against rtamt"):
        stl.check("rtamt", Echo(1e-3), DATA)


def measured(ours, theirs):
    """Rates as if every program of ours and of the peers ran at one speed."""
    names = [f"forward.{key}.T{length}" for length in stl.LENGTHS for key in ("G", "FG", "Uw", "ALL")]
    names += [f"backward.{loss}.T{length}" for loss in ("first_sample", "all_samples") for length in stl.COMPARED]
    peers = [f"{name}.{key}.T{length}" for name, signals in stl.SIGNALS.items() for key, length in signals]
    peers += ["rtamt.G_without_window.T1000", "stlcgpp.backward.T100"]
    return {**{name: [ours] * 3 for name in names}, **{name: [theirs] * 3 for name in peers}}


def verdicts(rows):
    return {row.name: row.ok for row in rows if row.target is not None}


@pytest.mark.parametrize(("ours", "theirs", "good"), [
    (2e8, 1e4, {"forward.ALL.least", "backward.first_sample.least", "against_stlcgpp.backward.T100",
                *(f"against_{name}.{kind}.least" for name, kind in stl.TARGETS)}),
    (2e8, 1e5, {"forward.ALL.least", "backward.first_sample.least", "against_stlcgpp.backward.T100",
                "against_rtamt.windows.least", "against_stlcgpp.windows.least"}),
    (6e7, 1e5, {"backward.first_sample.least", "against_stlcgpp.windows.least"}),
    (4e7, 1e5, set()),
])  # fmt: skip
def test_targets_are_judged_by_what_was_measured(ours, theirs, good):
    found = measured(ours, theirs)
    rows = [*stl._forward_rows(found), *stl._ratio_rows(found), *stl._backward_rows(found)]
    assert {name for name, ok in verdicts(rows).items() if ok} == good
    assert len(verdicts(rows)) == 7


def test_the_slowest_length_counts():
    found = measured(2e8, 1e4)
    found["forward.ALL.T500"] = [2e8, 9e7, 8e7]
    rows = {row.name: row for row in stl._forward_rows(found)}
    assert rows["forward.ALL.T500"].value == rows["forward.ALL.least"].value == 9e7
    assert rows["forward.ALL.least"].ok is False


def test_online_is_judged_by_whole_windows_of_worlds_and_by_the_median_of_one_robot():
    window = [4096 * 8e-9] * (2 * stl.WINDOW - 1) + [4096 * 808e-9]  # one update of 400 makes up for the others
    busy = [4096 * 50e-9] * (2 * stl.WINDOW)
    seconds = {"many": window * 2 + busy, "one": [11e-6] * 3, "rtamt": [2e-3] * 2,
               "bounds of many": [4096e-9, 3 * 4096e-9], "bounds of one": [1e-5] * 2}  # fmt: skip
    rows = {row.name: row for row in stl._online_rows(seconds)}
    assert rows["online.worlds.update"].value == pytest.approx(10.0)
    assert rows["online.worlds.p99"].value == pytest.approx(50.0)
    assert rows["online.one.update"].ok is False
    assert rows["online.bounds.worlds.update"].value == pytest.approx(2.0)
    assert rows["online.against_rtamt"].value == pytest.approx(2e-3 / 11e-6)


def test_formulas_are_those_of_the_issue():
    x, y = Signal("x") > 0.0, Signal("y") > 0.0
    parts = (always(0, 99, x), eventually(0, 50, always(0, 25, y)), until(x, 0, 50, y))
    assert stl.formulas(100)["ALL"].args == parts
    assert to_stlcgpp(parts[1], stl.DT) == ["F", 0, 50, ["G", 0, 25, [">", "y", 0.0]]]


def test_one_core_is_given_back():
    import torch

    before = os.sched_getaffinity(0), torch.get_num_threads()
    with stl.one_core():
        assert len(os.sched_getaffinity(0)) == torch.get_num_threads() == 1
    assert (os.sched_getaffinity(0), torch.get_num_threads()) == before


def test_without_a_gpu_the_rows_say_so(monkeypatch):
    import torch

    monkeypatch.setattr(torch, "cuda", SimpleNamespace(is_available=lambda: False))
    rows = stl.gpu()
    assert {(row.value, row.ok, row.peer) for row in rows} == {(None, None, stl.NO_GPU)}
    assert [row.name for row in rows] == [f"gpu.{name}.of_memory_bound" for name in stl.operators(100)]


def test_operators_are_measured_against_a_pass_over_the_same_traces():
    found = stl.shares("cpu", 60, 8)
    assert set(found) == set(stl.operators(60))
    assert all(share > 0 for share in found.values())
    assert [row.ok for row in stl._share_rows({"G": 0.5, "U": 0.4})] == [True, False]
