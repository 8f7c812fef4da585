"""rtamt and stlcg++ on the measured formulas: how many signals each is given, and that its values agree with ours.

stlcg++ has two kinds of temporal operators, with masks (its default) and recurrent. Which is faster depends on the
size: both are measured, and the faster one is the peer that ours is judged against. rtamt is its pure Python package.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from temporeal.sim.stl.language.conventions import Semantics
from temporeal.sim.stl.language.queries import horizon
from temporeal.sim.stl.semantics.robustness import robustness
from temporeal_benchmarks.peers.install import PINS, PeerError
from temporeal_benchmarks.peers.process import Peer
from temporeal_benchmarks.peers.translate import to_rtamt, to_stlcgpp
from temporeal_benchmarks.rounds import Program
from temporeal_benchmarks.rows import Row
from temporeal_benchmarks.stl_engine.formulas import DT, Signals, as_lists, equal, formulas, of_worlds

# signals that a peer is given: as many as it is fastest with, fewer where that would take many seconds or gigabytes
RTAMT_SIGNALS = {("G", 100): 8, ("FG", 100): 8, ("Uw", 100): 4, ("ALL", 100): 4,
                 ("G", 1000): 2, ("FG", 1000): 2, ("Uw", 1000): 1, ("ALL", 1000): 1}  # fmt: skip
MASKS_SIGNALS = {("G", 100): 32, ("FG", 100): 32, ("Uw", 100): 8, ("ALL", 100): 8, ("backward", 100): 8,
                 ("G", 1000): 2, ("FG", 1000): 4, ("Uw", 1000): 1, ("ALL", 1000): 1, ("backward", 1000): 1}  # fmt: skip
RECURRENT_SIGNALS = {
    ("G", 100): 256, ("FG", 100): 512, ("Uw", 100): 512, ("ALL", 100): 512, ("backward", 100): 512,
    ("G", 1000): 64, ("FG", 1000): 64, ("Uw", 1000): 512, ("ALL", 1000): 256, ("backward", 1000): 64}  # fmt: skip
SIGNALS: Mapping[str, Mapping[tuple[str, int], int]] = {
    "rtamt": RTAMT_SIGNALS, "stlcgpp_masks": MASKS_SIGNALS, "stlcgpp_recurrent": RECURRENT_SIGNALS}  # fmt: skip
VARIANTS = {"rtamt": ("rtamt",), "stlcgpp": ("stlcgpp_masks", "stlcgpp_recurrent")}  # ways to ask a peer
TITLES = {"rtamt": "rtamt (pure Python)", "stlcgpp_masks": "stlcg++ with masks",
          "stlcgpp_recurrent": "stlcg++ recurrent"}
NOT_INSTALLED = "the peer is not installed: make peers"

Peers = Mapping[str, Peer | None]
"""The running peers; None where one is not installed and cannot be."""


@contextmanager
def peers_at_hand() -> Iterator[Peers]:
    """The peers, each in its process; one that is not installed and cannot be is announced once and left out."""
    with ExitStack() as stack:
        peers: dict[str, Peer | None] = {}
        for name in PINS:
            try:
                peers[name] = stack.enter_context(Peer(name))
            except PeerError as error:
                print(f"left out: {error}", file=sys.stderr)
                peers[name] = None
        yield peers


def peer_row(name: str, peer: Peer | None) -> Row:
    """Which version of a peer was measured."""
    version = " ".join(PINS[name]) + ("; pure Python: its C++ backend comes as source only" if name == "rtamt" else "")
    return Row(f"settings.{name}", None, peer=NOT_INSTALLED if peer is None else version)


def programs_of(
    variant: str, peer: Peer, signals: Mapping[int, Signals], counts: Mapping[tuple[str, int], int]
) -> dict[str, Program]:
    """Programs of a peer on the first of our signals."""
    programs = {}
    for (key, length), count in counts.items():
        program = f"{variant}.{key}.T{length}"
        if variant == "rtamt":
            peer.ask("prepare", key=program, text=to_rtamt(formulas(length)[key]),
                     worlds=of_worlds(signals[length], count), period_ms=1000)  # fmt: skip
        else:
            peer.ask("prepare", key=program, backward=key == "backward",
                     **_posed(variant, key, length, signals[length], count))  # fmt: skip
        programs[program] = Program(_asked(peer, program), length * count, count)
    return programs


def _posed(variant: str, key: str, length: int, data: Signals, count: int) -> dict[str, Any]:
    """What stlcg++ is given for one case."""
    formula = formulas(length)["ALL" if key == "backward" else key]
    return {"tree": to_stlcgpp(formula, DT), "signals": as_lists(data, count),
            "recurrent": variant == "stlcgpp_recurrent"}


def without_window(peer: Peer, data: Signals) -> Program:
    """rtamt's operator without a window, which is one pass: the same values as G[0,T-1]."""
    peer.ask("prepare", key="G", text="always (x > 0)", worlds=of_worlds(data, 2), period_ms=1000)
    return Program(_asked(peer, "G"), 2 * len(data["x"]), 2)


def _asked(peer: Peer, key: str) -> Callable[[], float]:
    return lambda: float(peer.ask("run", key=key))


def check(
    variant: str, peer: Peer, signals: Mapping[int, Signals], counts: Mapping[tuple[str, int], int] | None = None
) -> None:
    """What is timed gives the same values, where the conventions agree; an ``AssertionError`` otherwise."""
    for (key, length), count in (counts or SIGNALS[variant]).items():
        data, what = signals[length], f"{key} at T = {length}: ours against {variant}"
        if key == "backward":
            _check_gradient(peer, _posed(variant, key, length, data, count), data, what)
            continue
        formula = formulas(length)[key]
        few = {name: values[:, :count] for name, values in data.items()}
        if variant == "rtamt":
            ours = robustness(formula, few, DT)
            theirs = np.array(peer.ask("evaluate", text=to_rtamt(formula), worlds=of_worlds(data, count),
                                       period_ms=1000)).T  # fmt: skip
        else:  # until is closed on its left side there, and values are right where every window ends in the trace
            ours = robustness(formula, few, DT, semantics=Semantics(until="closed"))
            ours = ours[: length - round(horizon(formula) / DT)]
            theirs = np.array(peer.ask("evaluate", **_posed(variant, key, length, data, count)))
        equal(ours, theirs[: len(ours)], what)


def _check_gradient(peer: Peer, posed: Mapping[str, Any], data: Signals, what: str) -> None:
    import torch

    theirs = {name: np.array(values) for name, values in peer.ask("gradient", **posed).items()}
    length, count = theirs["x"].shape
    ours = {name: torch.from_numpy(values[:, :count].copy()).requires_grad_() for name, values in data.items()}
    robustness(formulas(length)["ALL"], ours, DT, semantics=Semantics(until="closed"))[0].sum().backward()
    for name, values in ours.items():
        assert values.grad is not None
        equal(values.grad.numpy(), theirs[name], f"gradient to {name}, {what}")
