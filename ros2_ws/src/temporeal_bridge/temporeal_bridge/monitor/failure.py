"""Why a mission in words was not done: one sentence, from the samples that the monitor judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from temporeal.sim.stl.instructions.failure import why_failed
from temporeal.sim.stl.instructions.formulas import formula
from temporeal.sim.stl.instructions.grammar import Instruction
from temporeal.sim.stl.language.queries import signals_in


class Trace:
    """The samples of the running mission that its formula reads, one every ``dt`` seconds. A lost one is NaN.

    ``lengths``: the formula's named numbers, m.
    """

    def __init__(self, instruction: Instruction, tool: str, dt: float, lengths: Mapping[str, float]) -> None:
        self.instruction, self.tool, self.dt, self.lengths = instruction, tool, dt, lengths
        self.reads = tuple(signals_in(formula(instruction, tool)))
        self.samples: list[Mapping[str, Any] | None] = []

    def restart(self) -> None:
        """A new mission."""
        self.samples.clear()

    def take(self, sample: Mapping[str, Any] | None) -> None:
        """The next sample; None: lost."""
        self.samples.append(None if sample is None else {name: sample[name] for name in self.reads})

    def why(self) -> str:
        """The sentence; empty where nothing was seen."""
        seen = next((sample for sample in self.samples if sample is not None), None)
        if seen is None:
            return ""
        lost = {name: np.full(np.shape(value), np.nan) for name, value in seen.items()}
        rows = [sample or lost for sample in self.samples]
        signals = {name: np.stack([np.asarray(row[name], dtype=float) for row in rows]) for name in self.reads}
        return why_failed(self.instruction, signals, self.dt, self.tool, self.lengths)
