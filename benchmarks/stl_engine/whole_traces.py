"""Whole traces: robustness and its gradient, ours and the peers', in the same rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isnan
from statistics import median
from typing import Any

from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.semantics.robustness import robustness
from temporeal_benchmarks.rounds import Program, Rates, middle, rates, ratio, repeated
from temporeal_benchmarks.rows import Row, at_least, not_measured
from temporeal_benchmarks.stl_engine.formulas import COMPARED, DT, LENGTHS, WORLDS, Signals, formulas, random_signals
from temporeal_benchmarks.stl_engine.peers import (
    NOT_INSTALLED,
    SIGNALS,
    TITLES,
    VARIANTS,
    Peers,
    check,
    programs_of,
    without_window,
)

FORWARD, BACKWARD = 100e6, 50e6  # 1/CPU-s, targets
TARGETS = {("rtamt", "windows"): 1e3, ("stlcgpp", "windows"): 500.0, ("rtamt", "until"): 1e4,
           ("stlcgpp", "until"): 1e4}  # fmt: skip
BACKWARD_RATIO = 1e3  # target
KINDS = {"windows": ("G", "FG"), "until": ("Uw", "ALL")}
PLAIN = "rtamt.G_without_window.T1000"


def offline(peers: Peers, rounds: int, quick: bool = False) -> list[Row]:
    """Forward and backward, ours and theirs; ``quick`` gives the peers one signal."""
    signals = {length: random_signals(length) for length in LENGTHS}
    programs = {**_forward(signals), **_backward(signals)}
    for library, variants in VARIANTS.items():
        peer = peers[library]
        for variant in variants if peer else ():
            counts = {case: 1 if quick else count for case, count in SIGNALS[variant].items()}
            check(variant, peer, signals, counts)
            programs |= programs_of(variant, peer, signals, counts)
    if peers["rtamt"]:
        programs[PLAIN] = without_window(peers["rtamt"], signals[1000])
    found = rates(programs, rounds, fewer_if_slow=True)
    given = {name: program.signals for name, program in programs.items()}
    return [*_forward_rows(found), *_ratio_rows(found, given), *_backward_rows(found, given)]


def _forward(signals: Mapping[int, Signals]) -> dict[str, Program]:
    programs = {}
    for length, data in signals.items():
        for key, formula in formulas(length).items():
            if key == "ALL" or length in COMPARED:
                work = scored(formula, data)
                programs[f"forward.{key}.T{length}"] = Program(repeated(work), length * WORLDS)
    return programs


def scored(formula: Formula, data: Signals) -> Callable[[], object]:
    """The robustness of every world at every sample."""
    return lambda: robustness(formula, data, DT)


def _backward(signals: Mapping[int, Signals]) -> dict[str, Program]:
    import torch

    programs = {}
    for length in COMPARED:
        formula = formulas(length)["ALL"]
        data = {name: torch.from_numpy(values).requires_grad_() for name, values in signals[length].items()}
        for loss in ("first_sample", "all_samples"):
            work = _differentiated(formula, data, loss == "first_sample")
            programs[f"backward.{loss}.T{length}"] = Program(repeated(work), length * WORLDS)
    return programs


def _differentiated(formula: Formula, data: Mapping[str, Any], first: bool) -> Callable[[], None]:
    def work() -> None:
        for values in data.values():
            values.grad = None
        values = robustness(formula, data, DT)
        (values[0] if first else values).sum().backward()

    return work


def _forward_rows(found: Rates) -> list[Row]:
    lengths = {length: median(found[f"forward.ALL.T{length}"]) for length in LENGTHS}
    rows = [Row(f"forward.{key}.T{length}", median(found[f"forward.{key}.T{length}"]), "1/CPU-s")
            for length in COMPARED for key in ("G", "FG", "Uw")]
    rows += [Row(f"forward.ALL.T{length}", rate, "1/CPU-s") for length, rate in lengths.items()]
    least = min(lengths.values())
    return [*rows, at_least("forward.ALL.least", least, "1/CPU-s", FORWARD)]


def _ratio_rows(found: Rates, given: Mapping[str, int]) -> list[Row]:
    rows, kinds = [], []
    for (library, kind), target in TARGETS.items():
        judged = []
        for length in COMPARED:
            for key in KINDS[kind]:
                ours, case = f"forward.{key}.T{length}", f"{key}.T{length}"
                judged.append(_against(found, given, ours, library, case, target))
                kinds += _against_each(found, given, ours, library, case)
        rows += [*judged, _least(f"against_{library}.{kind}.least", judged, target)]
    return [*rows, *kinds, _without_window_row(found)]


def _without_window_row(found: Rates) -> Row:
    """Our G[0,T-1] over rtamt's always without a window, which is one pass there: the same values."""
    name = "against_rtamt.G_without_window.T1000"
    if PLAIN not in found:
        return not_measured(name, "1", None, NOT_INSTALLED)
    remark = f"rtamt (pure Python), always without a window: {middle(found[PLAIN]):.3g} /CPU-s"
    return Row(name, ratio(found, "forward.G.T1000", PLAIN), "1", peer=remark)


def _against(
    found: Rates, given: Mapping[str, int], ours: str, library: str, case: str, target: float
) -> Row:
    """Our rate over that of the library, of its fastest variant, judged."""
    name = f"against_{library}.{case}"
    theirs = [f"{variant}.{case}" for variant in VARIANTS[library] if f"{variant}.{case}" in found]
    if not theirs:
        return not_measured(name, "1", target, NOT_INSTALLED)
    fastest = max(theirs, key=lambda program: middle(found[program]))
    return at_least(name, ratio(found, ours, fastest), "1", target, _described(found, given, fastest))


def _against_each(
    found: Rates, given: Mapping[str, int], ours: str, library: str, case: str
) -> list[Row]:
    """The ratio to each variant of a library that has several."""
    variants = VARIANTS[library] if len(VARIANTS[library]) > 1 else ()
    return [
        Row(f"against_{variant}.{case}", ratio(found, ours, program), "1", peer=_described(found, given, program))
        if program in found else not_measured(f"against_{variant}.{case}", "1", None, NOT_INSTALLED)
        for variant in variants for program in [f"{variant}.{case}"]
    ]


def _described(found: Rates, given: Mapping[str, int], program: str) -> str:
    count, rounds = given[program], sum(not isnan(rate) for rate in found[program])
    signals, times = f"{count} signal{'s' * (count > 1)}", f"{rounds} round{'s' * (rounds > 1)}"
    return f"{TITLES[program.split('.')[0]]}: {middle(found[program]):.3g} /CPU-s on {signals}, {times}"


def _least(name: str, rows: Sequence[Row], target: float) -> Row:
    values = [row.value for row in rows if row.value is not None]
    if not values:
        return not_measured(name, "1", target, NOT_INSTALLED)
    return at_least(name, min(values), "1", target, "the worst of the cases above")


def _backward_rows(found: Rates, given: Mapping[str, int]) -> list[Row]:
    rows = []
    for loss in ("first_sample", "all_samples"):
        rows += [Row(f"backward.{loss}.T{length}", median(found[f"backward.{loss}.T{length}"]), "1/CPU-s")
                 for length in COMPARED]
    least = min(row.value or 0.0 for row in rows if "first_sample" in row.name)
    rows.append(at_least("backward.first_sample.least", least, "1/CPU-s", BACKWARD))
    kinds = []
    for length in COMPARED:
        ours, case = f"backward.first_sample.T{length}", f"backward.T{length}"
        rows.append(_against(found, given, ours, "stlcgpp", case, BACKWARD_RATIO))
        kinds += _against_each(found, given, ours, "stlcgpp", case)
    return rows + kinds
