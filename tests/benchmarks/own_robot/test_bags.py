"""Random bags with injected defects: no wrong verdict, and a proof that the comparison finds one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rosbags")

from temporeal.policies.cli.traces import grid
from temporeal.policies.cli.traces import messages as read
from temporeal.policies.cli.traces.ordering import without
from temporeal.policies.cli.traces.table import Options
from temporeal.sim.stl.samples.times import late
from temporeal_benchmarks.own_robot import bags
from temporeal_benchmarks.own_robot.bag_cases import DEFECTS, case, write
from temporeal_benchmarks.own_robot.bag_reader import REFUSED, SATISFIED, VIOLATED, messages, truth

BLOCKS = [range(first, first + 12) for first in range(0, 200, 12)]


@pytest.mark.parametrize("block", [BLOCKS[0], *(pytest.param(b, marks=pytest.mark.slow) for b in BLOCKS[1:])], ids=str)
def test_no_wrong_verdict(block: range) -> None:
    for one in bags.all_of(block):
        told = f"bag {one.case.number} ({', '.join(one.case.defects)}): {one.expected} {one.why}, not {one.told}"
        assert not (one.wrong or one.other or one.misnamed), told


def test_every_defect_is_among_them_and_most_verdicts_are_certain() -> None:
    assert {name for k in range(200) for name in case(k).defects} == {d.__name__ for d in DEFECTS} | {"truncated"}
    assert {case(k).storage for k in range(12)} == {"mcap", "mcap-zstd", "sqlite3", "humble"}


@pytest.mark.slow
def test_all_kinds_of_verdict_occur() -> None:
    found = [one.expected for one in bags.all_of(range(200))]
    assert min(found.count(kind) for kind in (REFUSED, SATISFIED, VIOLATED)) >= 30


def test_the_comparison_finds_that_late_messages_are_silently_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "in_order", lambda table, _: (
        without(table, late(table.times), Options()) if late(table.times).any() else table))
    assert bags.all_of(range(1, 2))[0].wrong


def test_the_comparison_finds_that_a_stamp_of_zero_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "in_order", lambda table, _: (
        without(table, late(table.times), Options()) if late(table.times).any() else table))
    assert not bags.all_of(range(1))[0].wrong
    monkeypatch.setattr(read, "clock_of", lambda stamps, received, _: read.Clock(
        np.where(stamps == 0, received, stamps), 0, False))
    assert bags.all_of(range(1))[0].wrong


def test_the_independent_reader_reads_what_was_sent(tmp_path: Path) -> None:
    for number in range(4):
        made = case(number)
        made.cut = 1.0
        assert [row[:2] for row in messages(write(made, tmp_path))] == [(one.topic, one.at) for one in made.sent]


@pytest.mark.parametrize(("formula", "expected"), [
    (("G", 0, 3, ("pred", "x", ">", 0.0)), False), (("G", 0, 1, ("pred", "x", ">", 0.0)), True),
    (("F", 1, 2, ("pred", "x", ">", 2.5)), None), (("G", 9, 9, ("pred", "x", ">", 0.0)), True),
    (("F", 9, 9, ("pred", "x", ">", 0.0)), False), (("not", ("pred", "x", "<", 1.0)), True),
    (("U", 0, 3, ("pred", "x", ">", 0.0), ("pred", "x", "<", 0.0)), None),
    (("U", 0, 3, ("pred", "x", ">", 0.0), ("pred", "x", ">", 1.5)), True)])
def test_the_independent_semantics(formula: tuple, expected: bool | None) -> None:
    assert truth(formula, {"x": [1.0, 2.0, None, -1.0]}, 0, 4) is expected
