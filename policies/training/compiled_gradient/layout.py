"""Sizes of a network pair, and the places of weights, activations and gradients in a workspace, in whole vectors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from temporeal.sim.compiler.llvm import LANES

ROWS = 48  # of a block: its activations (two networks, 64 wide) take about 130 KB, a part of a second-level cache


class Shape(NamedTuple):
    """All sizes that the machine code depends on."""

    actor: tuple[int, ...]  # widths from observation to action
    critic: tuple[int, ...]  # widths from privileged observation to 1
    activation: str
    columns: int  # numbers in a row of the table: see temporeal.policies.training.ppo_state.columns


def padded(width: int) -> int:
    """``width`` rounded up to whole vectors."""
    return -(-width // LANES) * LANES


class Places:
    """Offsets in a workspace, in floats; all in whole vectors."""

    def __init__(self) -> None:
        self.places: dict[str, tuple[int, int, int]] = {}  # name -> offset, rows, columns
        self.size = 0

    def add(self, name: str, rows: int, columns: int) -> None:
        self.places[name] = (self.size, rows, columns)
        self.size += rows * columns

    def offset(self, name: str) -> int:
        return self.places[name][0]

    def width(self, name: str) -> int:
        return self.places[name][2]


class Layers(Places):
    """The workspace of :class:`Forward` for a network of these widths."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        for layer, (inputs, outputs) in enumerate(pairwise(widths)):
            self.add(f"{layer}.weight_t", inputs, padded(outputs))
            self.add(f"{layer}.bias", 1, padded(outputs))
        for layer, outputs in enumerate(widths[1:]):
            for kind in ("out", "slope"):
                self.add(f"{layer}.{kind}", ROWS, padded(outputs))


class Layout(Places):
    """The workspace of :class:`Gradient`."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        for net, widths in (("actor", shape.actor), ("critic", shape.critic)):
            for layer, (inputs, outputs) in enumerate(pairwise(widths)):
                self.add(f"{net}.{layer}.weight_t", inputs, padded(outputs))
                self.add(f"{net}.{layer}.bias", 1, padded(outputs))
                if layer:
                    self.add(f"{net}.{layer}.weight", outputs, padded(inputs))
        for name in ("inverse_std", "ones", "zeros"):
            self.add(name, 1, max(padded(max(*shape.actor[1:], *shape.critic[1:])), LANES))
        self.add("numbers", 1, LANES)
        self.gradients = self.size
        for net, widths in (("actor", shape.actor), ("critic", shape.critic)):
            for layer, (inputs, outputs) in enumerate(pairwise(widths)):
                self.add(f"{net}.{layer}.weight_t.grad", inputs, padded(outputs))
                self.add(f"{net}.{layer}.bias.grad", 1, padded(outputs))
        self.add("log_std.grad", 1, LANES)
        self.add("sums", 1, LANES)
        self.gradients_end = self.size
        self.add("rows", ROWS, padded(shape.columns) + LANES)
        for net, widths in (("actor", shape.actor), ("critic", shape.critic)):
            for layer, outputs in enumerate(widths[1:]):
                for kind in ("out", "slope", "delta"):
                    self.add(f"{net}.{layer}.{kind}", ROWS, padded(outputs))


NUMBERS = ("log_density", "low", "high", "share", "value_slope")  # in ``numbers``: scalars of one minibatch
SUMS = ("policy_loss", "value_loss", "kl")  # in ``sums``
