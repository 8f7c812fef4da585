"""The table of an environment: what each of N worlds keeps between steps, and the compiled functions over it.

A row of the table is one number of all worlds; a named column is one row or several
(:mod:`temporeal.sim.compiler.vectorize`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from temporeal.sim.compiler import vectorize
from temporeal.sim.compiler.devices import lacks_warp
from temporeal.sim.compiler.expressions import CannotCompile
from temporeal.sim.compiler.step_buffers import Compiled, General, seen_by
from temporeal.sim.compiler.tracing import alike
from temporeal.sim.step_functions import OUTCOMES, Shapes, StepFunctions
from temporeal.sim.task import Task
from temporeal.sim.types import Obs


def is_compiled(task: Task, device: torch.device, wanted: bool | None) -> bool:
    """Whether the functions of ``task`` are compiled; ``wanted`` None: where that is possible."""
    if wanted is not None:
        return wanted
    if not getattr(task.observe, "compiles", True):
        return False
    if device.type != "cpu" and (why := lacks_warp()):
        warnings.warn(f"on {device} the steps of the environment run as several hundred operations, which "
                      f"takes many times longer: {why}", stacklevel=3)
        return False
    return True


class StepTable:
    """Columns of ``num_worlds`` worlds, compiled functions, buffers of results.

    Attributes:
        rows: [F, stride] of all columns; ``column``: each of them by name, [N, ...].
        before: the rows before what followed from the last step; None: they are not kept (:meth:`keep_previous`).

    Args:
        signals: shapes (without N) of the simulator's signals, in its order.
        command_dim: size of the command.
    """

    def __init__(
        self, functions: StepFunctions, signals: Shapes, num_worlds: int, device: torch.device, command_dim: int,
        compiled: bool,
    ) -> None:
        self.functions, self.num_worlds, self.device = functions, num_worlds, device
        self.sizes = (command_dim, *functions.observed.values())
        self.columns: Shapes = {**functions.columns, **dict.fromkeys(OUTCOMES, ())}
        if not compiled:
            functions.check(signals)
        try:
            self.command, self.after, self.first = self._kernels(signals, compiled)
        except CannotCompile as error:
            functions.check(signals)
            raise CannotCompile(f"task {functions.task.name!r} cannot be compiled: {error}. Slower, but as it is: "
                                f"compiled=false") from error
        self.rows = vectorize.table(self.columns, num_worlds, device)
        self.column = vectorize.views(self.rows, self.columns, num_worlds)
        self.work = self._buffers(list(signals))
        self.before: Tensor | None = None

    def _kernels(self, signals: Shapes, compiled: bool) -> tuple[Any, Any, Any]:
        """The functions of a command, of a step and of a start over all worlds."""
        functions, kept = self.functions, self.functions.columns
        truth = {f"truth.{name}": shape for name, shape in signals.items()}
        found = {name: (size,) for name, size in functions.observed.items()}
        action = {"action": (functions.act.action_dim,)}
        pairs = {place: f"progress.{name}" for name in functions.observe.memory
                 if kept[place := f"memory.{name}"] == kept.get(f"progress.{name}")}
        functions.twins, known = alike(
            {functions.after: {**kept, **truth, **action}, functions.first: {**kept, **truth}},
            pairs if compiled else {})
        after, first = ((x,) for x in known) if known else ((), ())
        make = vectorize.kernels_of(self.device) if compiled else vectorize.Plain
        memory = tuple(k for k in kept if k.startswith("memory."))
        return (make(functions.command, self.columns, {**action, "command": self.sizes[:1]}, (*memory, *action)),
                make(functions.after, self.columns, {**truth, **action, **found}, (*kept, *truth, *action), *after),
                make(functions.first, self.columns, {**truth, **found}, (*kept, *truth), *first))

    def _buffers(self, signals: list[str]) -> General | Compiled:
        """What runs the kernels of a step: with as few operations as can be where worlds fill whole vectors."""
        outcomes = self.rows[-len(OUTCOMES) :, : self.num_worlds]
        if isinstance(self.after, vectorize.Kernel) and self.num_worlds % vectorize.LANES == 0:
            return Compiled(self.command, self.after, self.rows, outcomes, self.sizes, signals)
        return General(self.command, self.after, self.rows, outcomes, self.sizes)

    def begin(self, ids: Tensor, start: Tensor, truth: Mapping[str, Tensor]) -> Obs:
        """Put the rows ``start`` [K, F] in the place of the worlds ``ids`` [K]: first observations [K, ...] of the
        signals ``truth`` [N, ...] of all worlds."""
        count = len(ids)
        rows = vectorize.table(self.columns, count, self.device)
        rows[:, :count] = start.T
        found = {name: torch.empty(count, size, device=self.device) for name, size in self.functions.observed.items()}
        self.first(rows, {**{f"truth.{k}": v.index_select(0, ids) for k, v in truth.items()}, **found})
        self.rows[:, : self.num_worlds].index_copy_(1, ids, rows[:, :count])
        return seen_by(*found.values())

    def keep_previous(self) -> None:
        """From now on each step first copies the rows to ``before``."""
        self.before = torch.empty_like(self.rows)

    def previous(self) -> dict[str, Tensor]:
        """Columns [N, ...] as they were before what followed from the last step."""
        if self.before is None:
            raise ValueError("what worlds remembered before a step is kept after keep_previous()")
        return vectorize.views(self.before, self.functions.columns, self.num_worlds)

    def give_up(self, bad: Tensor) -> None:
        """End the worlds [N] bool that the simulator could not step: what the step paid is taken back."""
        column = self.column
        for name, value in (("finite", 0.0), ("ended", 1.0), ("terminated", 1.0), ("truncated", 0.0), ("success", 0.0)):
            column[name][bad] = value
        column["return"][bad] -= column["reward"][bad]
        column["reward"][bad] = 0.0

    def require_twins(self, columns: Mapping[str, Tensor]) -> None:
        """A ValueError where ``columns`` differ that are always equal here: they are of another task."""
        for own, other in self.functions.twins.items():
            if not torch.equal(columns[own], columns[other]):
                raise ValueError(f"{own} and {other} differ, which are always equal in this environment: what it was "
                                 "to be set to is of another task, or of other settings of it")
