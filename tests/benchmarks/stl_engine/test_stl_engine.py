"""The bench of the STL engine: what is timed is checked first, and rows say what was measured."""

from __future__ import annotations

import os
from contextlib import nullcontext
from math import nan
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from temporeal.sim.stl.language.constructors import always, eventually, until
from temporeal.sim.stl.language.conventions import Semantics
from temporeal.sim.stl.language.propositional import Signal
from temporeal.sim.stl.semantics.robustness import robustness
from temporeal_benchmarks import machine
from temporeal_benchmarks.peers.install import PeerError
from temporeal_benchmarks.peers.translate import to_rtamt, to_stlcgpp
from temporeal_benchmarks.stl_engine import formulas as measured_formulas
from temporeal_benchmarks.stl_engine import gpu, online, peers, whole_traces
from temporeal_benchmarks.stl_engine.formulas import COMPARED, DT, LENGTHS, WINDOW, formulas, random_signals, walks
from temporeal_benchmarks.stl_engine.peers import NOT_INSTALLED, SIGNALS, VARIANTS

DATA = {length: random_signals(length, 64) for length in COMPARED}


class Echo:
    """A peer that answers with our values of the text it knows, ``off`` by so much at the first sample."""

    def __init__(self, off=0.0):
        self.off = off
        self.known = {to_rtamt(f): f for length in COMPARED for f in formulas(length).values()}

    def ask(self, do, text, worlds, period_ms):
        assert (do, period_ms) == ("evaluate", 1000)
        signals = {name: np.array([w[name] for w in worlds], np.float32).T for name in worlds[0]}
        values = robustness(self.known[text], signals, DT)
        values[0] += self.off
        return values.T.tolist()


def test_a_peer_that_agrees_is_timed():
    peers.check("rtamt", Echo(), DATA)


def test_a_peer_that_disagrees_is_named():
    with pytest.raises(AssertionError, match="the values differ: G at T = 100: ours against rtamt"):
        peers.check("rtamt", Echo(1e-3), DATA)


class Turned:
    """stlcg++ as our values, ``off`` by so much with the recurrent operators at the first sample."""

    def __init__(self, off):
        self.off = off
        self.known = {str(to_stlcgpp(f, DT)): f for length in COMPARED for f in formulas(length).values()}

    def ask(self, do, tree, signals, recurrent):
        data = {name: np.array(values, np.float32) for name, values in signals.items()}
        formula, closed = self.known[str(tree)], Semantics(until="closed")
        if do == "evaluate":
            values = robustness(formula, data, DT, semantics=closed)
            values[0] += self.off * recurrent
            return values.tolist()
        tensors = {name: torch.from_numpy(values).requires_grad_() for name, values in data.items()}
        robustness(formula, tensors, DT, semantics=closed)[0].sum().backward()
        return {name: (values.grad + self.off * recurrent).tolist() for name, values in tensors.items()}


@pytest.mark.slow
def test_both_kinds_of_operators_of_a_peer_are_checked():
    few = {variant: dict.fromkeys(SIGNALS[variant], 2) for variant in VARIANTS["stlcgpp"]}
    for variant, counts in few.items():
        peers.check(variant, Turned(0.0), DATA, counts)
    peers.check("stlcgpp_masks", Turned(1e-3), DATA, few["stlcgpp_masks"])
    with pytest.raises(AssertionError, match="G at T = 100: ours against stlcgpp_recurrent"):
        peers.check("stlcgpp_recurrent", Turned(1e-3), DATA, few["stlcgpp_recurrent"])
    with pytest.raises(AssertionError, match="gradient to x, backward at T = 100"):
        peers.check("stlcgpp_recurrent", Turned(1e-3), DATA, {("backward", 100): 2})


def measured(ours, theirs):
    """Rates as if every program of ours and of the peers ran at one speed."""
    names = [f"forward.{key}.T{length}" for length in LENGTHS for key in ("G", "FG", "Uw", "ALL")]
    names += [f"backward.{loss}.T{length}" for loss in ("first_sample", "all_samples") for length in COMPARED]
    others = [f"{name}.{key}.T{length}" for name, signals in SIGNALS.items() for key, length in signals]
    others += [whole_traces.PLAIN]
    return {**{name: [ours] * 3 for name in names}, **{name: [theirs] * 3 for name in others}}


GIVEN = {f"{variant}.{key}.T{length}": count
         for variant, signals in SIGNALS.items() for (key, length), count in signals.items()}  # fmt: skip


def verdicts(rows):
    return {row.name: row.ok for row in rows if row.target is not None}


def all_rows(found):
    return [*whole_traces._forward_rows(found), *whole_traces._ratio_rows(found, GIVEN),
            *whole_traces._backward_rows(found, GIVEN)]


def cases(library, kind):
    names = {f"{key}.T{length}" for key in whole_traces.KINDS[kind] for length in COMPARED} | {f"{kind}.least"}
    return {f"against_{library}.{name}" for name in names}


OURS = {"forward.ALL.least", "backward.first_sample.least"}
BACKWARD = {f"against_stlcgpp.backward.T{length}" for length in COMPARED}


@pytest.mark.parametrize(("ours", "theirs", "good"), [
    (2e8, 1e4, OURS | BACKWARD | {name for case in whole_traces.TARGETS for name in cases(*case)}),
    (2e8, 1e5, OURS | BACKWARD | cases("rtamt", "windows") | cases("stlcgpp", "windows")),
    (6e7, 1e5, {"backward.first_sample.least"} | cases("stlcgpp", "windows")),
    (4e7, 1e5, set()),
])  # fmt: skip
def test_targets_are_judged_by_what_was_measured(ours, theirs, good):
    rows = all_rows(measured(ours, theirs))
    assert {name for name, ok in verdicts(rows).items() if ok} == good
    assert len(verdicts(rows)) == 24


def test_the_faster_kind_of_operators_judges():
    found = measured(2e8, 1e4)
    found["stlcgpp_recurrent.FG.T100"] = [1e6, nan, nan]
    rows = {row.name: row for row in all_rows(found)}
    assert rows["against_stlcgpp.FG.T100"].value == rows["against_stlcgpp_recurrent.FG.T100"].value == 200
    assert rows["against_stlcgpp.FG.T100"].ok is rows["against_stlcgpp.windows.least"].ok is False
    assert rows["against_stlcgpp.FG.T100"].peer == "stlcg++ recurrent: 1e+06 /CPU-s on 512 signals, 1 round"
    assert (rows["against_stlcgpp_masks.FG.T100"].value, rows["against_stlcgpp_masks.FG.T100"].ok) == (2e4, None)
    assert rows["against_stlcgpp.G.T100"].ok is True


def test_without_peers_their_rows_say_so_and_ours_are_judged():
    found = {name: rates for name, rates in measured(2e8, 1e4).items() if name.startswith(("forward", "backward"))}
    rows = all_rows(found)
    assert {name for name, ok in verdicts(rows).items() if ok} == OURS
    theirs = [row for row in rows if row.name.startswith("against")]
    assert {(row.value, row.ok, row.peer) for row in theirs} == {
        (None, None if row.target is None else False, f"not measured: {NOT_INSTALLED}") for row in theirs}
    assert {row.name for row in theirs} == {row.name for row in all_rows(measured(2e8, 1e4)) if "against" in row.name}


def test_a_peer_that_cannot_be_had_is_left_out(monkeypatch, capsys):
    def peer(name):
        if name == "rtamt":
            raise PeerError("rtamt is not installed")
        return nullcontext(name)

    monkeypatch.setattr(peers, "Peer", peer)
    with peers.peers_at_hand() as found:
        assert found == {"rtamt": None, "stlcgpp": "stlcgpp"}
    assert "left out: rtamt is not installed" in capsys.readouterr().err


def test_the_slowest_length_counts():
    found = measured(2e8, 1e4)
    found["forward.ALL.T500"] = [2e8, 9e7, 8e7]
    rows = {row.name: row for row in whole_traces._forward_rows(found)}
    assert rows["forward.ALL.T500"].value == rows["forward.ALL.least"].value == 9e7
    assert rows["forward.ALL.least"].ok is False


def test_online_is_judged_by_whole_windows_of_worlds_and_by_the_median_of_one_robot():
    window = [4096 * 8e-9] * (2 * WINDOW - 1) + [4096 * 808e-9]  # one update of 400 makes up for the others
    busy = [4096 * 50e-9] * (2 * WINDOW)
    passes = {"worlds": [window, window, busy], "one": [[11e-6] * 300, [2e-6] * 299 + [900e-6]], "rtamt": [[2e-3] * 2],
              "bounds.worlds": [[4096e-9, 3 * 4096e-9]]}  # fmt: skip
    rows = {row.name: row for row in online._online_rows(passes)}
    assert rows["online.worlds.mean"].value == pytest.approx(10.0)
    assert rows["online.worlds.p99"].value == pytest.approx(50.0)
    assert rows["online.worlds.worst"].value == pytest.approx(808.0)
    one = {key: rows[f"online.one.{key}"].value for key in ("median", "mean", "p99", "worst")}
    assert one == pytest.approx({"median": 11.0, "mean": 7.9967, "p99": 11.0, "worst": 900.0}, abs=1e-3)
    assert rows["online.one.median"].ok is False
    assert rows["online.bounds.worlds.mean"].value == pytest.approx(2.0)
    assert rows["online.against_rtamt"].value == pytest.approx(2e-3 / 11e-6)
    assert {name for name, row in rows.items() if row.target} == {"online.worlds.mean", "online.one.median"}


def test_online_without_rtamt_says_so():
    rows = online._online_rows({"one": [[1e-6] * 3]})
    assert (rows[-1].value, rows[-1].ok, rows[-1].peer) == (None, None, f"not measured: {NOT_INSTALLED}")


def test_every_part_decides_somewhere_on_the_walks():
    """Else a comparison of values would not see a wrong part."""
    few = walks(4 * WINDOW)
    whole = robustness(measured_formulas.monitored(), few, DT)[:-WINDOW]
    parts = [robustness(part, few, DT)[:-WINDOW] for part in measured_formulas.monitored().args]
    assert min((part == whole).sum() for part in parts) >= 20


def test_formulas_are_those_of_the_issue():
    x, y = Signal("x") > 0.0, Signal("y") > 0.0
    parts = (always(0, 99, x), eventually(0, 50, always(0, 25, y)), until(x, 0, 50, y))
    assert formulas(100)["ALL"].args == parts
    assert to_stlcgpp(parts[1], DT) == ["F", 0, 50, ["G", 0, 25, [">", "y", 0.0]]]


def test_one_core_is_given_back():
    before = os.sched_getaffinity(0), torch.get_num_threads()
    with machine.one_core():
        assert len(os.sched_getaffinity(0)) == torch.get_num_threads() == 1
    assert (os.sched_getaffinity(0), torch.get_num_threads()) == before


def test_without_a_gpu_the_rows_say_so(monkeypatch):
    monkeypatch.setattr(torch, "cuda", SimpleNamespace(is_available=lambda: False))
    rows = gpu.gpu()
    assert {(row.value, row.ok, row.peer) for row in rows} == {(None, False, f"not measured: {machine.NO_GPU}")}
    assert [row.name for row in rows] == [f"gpu.{name}.of_memory_bound" for name in gpu.operators(100)]


def test_operators_are_measured_against_a_pass_over_the_same_traces():
    found = gpu.shares("cpu", 60, 8)
    assert set(found) == set(gpu.operators(60))
    assert all(share > 0 for share in found.values())
    assert [row.ok for row in gpu.share_rows({"G": 0.5, "U": 0.4})] == [True, False]
