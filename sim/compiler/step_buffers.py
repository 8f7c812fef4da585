"""Buffers for the results of an environment's steps, and the kernels that fill them from its table.

A learner may keep what a step returned, so each step needs buffers of its own. With few worlds, allocating them in
every step costs more than filling them: each operation on tensors, however small, takes tens of microseconds when the
physics before it has filled the caches. So compiled steps allocate buffers for many steps at a time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from temporeal.sim.compiler import arguments, llvm, vectorize
from temporeal.sim.compiler.allocator import keep_freed
from temporeal.sim.compiler.llvm import BITS, BYTES, FLOATS, LANES, splat
from temporeal.sim.types import Obs

AHEAD_BYTES = 2**19  # of memory for results that are taken at a time, at most (one step takes what it needs)
AHEAD = 32  # steps, at most
LARGE_BYTES = 2**17  # of results of a step: from here on malloc asks the kernel for memory, and gives it back
BAD = 2**40  # more worlds than can be: what `finish` adds if one is bad


def _flag(number: int) -> str:
    """Flag ``number`` of a block of worlds: from row 1 + ``number`` of the figures."""
    return f"""
  %r{number} = mul i64 %stride, {number + 1}
  %f{number} = add i64 %r{number}, %i
  %a{number} = getelementptr float, ptr %figures, i64 %f{number}
  %v{number} = load {FLOATS}, ptr %a{number}, align 4
  %s{number} = fcmp ogt {FLOATS} %v{number}, {splat(0.5)}
  %b{number} = zext {BITS} %s{number} to {BYTES}
  %n{number} = mul i64 %n, {number}
  %t{number} = add i64 %n{number}, %i
  %p{number} = getelementptr i8, ptr %flags, i64 %t{number}
  store {BYTES} %b{number}, ptr %p{number}, align 1"""


# finish(figures, stride, n, reward, flags, bad): of whole blocks of worlds. The first row of figures [6, stride] is
# copied to reward [n], the others become flags [5, n] (1 where above 0.5); the number of worlds whose first flag is
# set, plus 2^40 if any world is bad
TEXT = f"""
declare void @llvm.memcpy.p0.p0.i64(ptr noalias, ptr noalias, i64, i1)
declare i{LANES} @llvm.ctpop.i{LANES}(i{LANES})

define i64 @finish(ptr %figures, i64 %stride, i64 %n, ptr %reward, ptr %flags, ptr %bad) {{
entry:
  %bytes = shl i64 %n, 2
  call void @llvm.memcpy.p0.p0.i64(ptr %reward, ptr %figures, i64 %bytes, i1 false)
  br label %block
block:
  %i = phi i64 [ 0, %entry ], [ %next, %block ]
  %ended = phi i64 [ 0, %entry ], [ %ended1, %block ]
  %worst = phi {BYTES} [ zeroinitializer, %entry ], [ %worst1, %block ]{"".join(map(_flag, range(5)))}
  %mask = bitcast {BITS} %s0 to i{LANES}
  %few = call i{LANES} @llvm.ctpop.i{LANES}(i{LANES} %mask)
  %more = zext i{LANES} %few to i64
  %ended1 = add i64 %ended, %more
  %place = getelementptr i8, ptr %bad, i64 %i
  %given_up = load {BYTES}, ptr %place, align 1
  %worst1 = or {BYTES} %worst, %given_up
  %next = add i64 %i, {LANES}
  %again = icmp slt i64 %next, %n
  br i1 %again, label %block, label %exit
exit:
  %some = icmp ne {BYTES} %worst1, zeroinitializer
  %which = bitcast {BITS} %some to i{LANES}
  %any = icmp ne i{LANES} %which, 0
  %mark = select i1 %any, i64 {BAD}, i64 0
  %total = or i64 %ended1, %mark
  ret i64 %total
}}
"""


class Results(NamedTuple):
    """What a step of N worlds fills."""

    command: Tensor  # [N, U]
    obs: Obs
    reward: Tensor  # [N]
    ended: Tensor  # [N] bool, as those below
    terminated: Tensor
    truncated: Tensor
    finite: Tensor
    success: Tensor
    addresses: tuple[int, ...] = ()  # of command, what is seen (one or two tensors), reward, flags
    flags: Tensor | None = None  # [5, N], of which those above are the rows


def seen_by(actor: Tensor, critic: Tensor | None = None) -> Obs:
    """What both see: the same tensor where nothing is privileged."""
    return Obs(actor, actor if critic is None else critic)


def distinct(obs: Obs) -> tuple[Tensor, ...]:
    """The tensors of :func:`seen_by`."""
    return (obs.actor,) if obs.critic is obs.actor else (obs.actor, obs.critic)


class General:
    """Steps by any kernels (:class:`temporeal.sim.compiler.vectorize.Kernel`, its like on a GPU,
    :class:`temporeal.sim.compiler.vectorize.Plain`), any number of worlds, any device.

    ``sizes``: of a command, of what the actor sees and, where that is more, of what the critic sees.
    """

    def __init__(self, command: Any, after: Any, table: Tensor, figures: Tensor, sizes: Sequence[int]) -> None:
        self.kernels, self.table, self.figures, self.sizes = (command, after), table, figures, sizes

    def take(self) -> Results:
        """Memory for one step."""
        n, device = self.figures.shape[1], self.table.device
        command, *seen = (torch.empty(n, size, device=device) for size in self.sizes)
        flags = torch.empty(len(self.figures) - 1, n, dtype=torch.bool, device=device)
        return Results(command, seen_by(*seen), torch.empty(n, device=device), *flags.unbind(0), flags=flags)

    @torch.no_grad()
    def command(self, action: Tensor, to: Results) -> None:
        """The commands of the actions."""
        self.kernels[0](self.table, {"action": action, "command": to.command})

    @torch.no_grad()
    def after(self, truth: Mapping[str, Tensor], action: Tensor, to: Results) -> None:
        """What follows from the signals ``truth`` after the physics."""
        self.kernels[1](self.table, {**{f"truth.{k}": v for k, v in truth.items()}, "action": action,
                                     **dict(zip(("obs", "critic"), distinct(to.obs)))})

    def finish(self, bad: Tensor, to: Results) -> tuple[bool, bool]:
        """Fill reward and flags: whether an episode ended, whether a world is bad."""
        to.reward.copy_(self.figures[0])
        torch.gt(self.figures[1:], 0.5, out=to.flags)
        ended, worst = torch.stack([to.ended, bad]).any(1).tolist()  # one wait for a GPU
        return ended, worst


@cache
def _finish() -> tuple[Any, Any]:
    address, number = ctypes.c_void_p, ctypes.c_int64
    code, engine = llvm.function(TEXT, "finish", (address, number, number, address, address, address))
    code.restype = ctypes.c_int64
    return code, engine


class Compiled:
    """The same for compiled kernels and whole blocks of worlds, as few operations as can be.

    Args:
        signals: names of the simulator's signals in the order of the rows of ``after``.
    """

    def __init__(
        self, command: vectorize.Kernel, after: vectorize.Kernel, table: Tensor, figures: Tensor, sizes: Sequence[int],
        signals: Sequence[str],
    ) -> None:
        self.kernel, self.table, self.sizes, self.signals = after, table, sizes, tuple(signals)
        self.n, self.stride = figures.shape[1], table.shape[1]
        self.figures = figures.data_ptr()
        self.run_command, self.run_after = Bound(command, table), Bound(after, table)
        self._code, self._engine = _finish()
        if 4 * self.n * sum(sizes) > LARGE_BYTES:
            keep_freed()
        self._ahead: list[Results] = []
        self._known: dict[tuple[int, ...], tuple[list[Tensor], list[int]]] = {}
        self._bad: Tensor | None = None
        self._bad_address = 0

    def take(self) -> Results:
        """Memory for one step."""
        if not self._ahead:
            self._ahead = self._more()
        return self._ahead.pop()

    def _more(self) -> list[Results]:
        n, count = self.n, max(1, min(AHEAD, AHEAD_BYTES // (4 * self.n * (sum(self.sizes) + 3))))
        floats = [torch.empty(count, n, size) for size in self.sizes]
        reward, flags = torch.empty(count, n), torch.empty(count, 5, n, dtype=torch.bool)
        each = [(x.data_ptr(), x[0].nbytes) for x in (*floats, reward, flags)]
        command, *seen = (x.unbind(0) for x in floats)
        rewards, marks = reward.unbind(0), flags.flatten(0, 1).unbind(0)
        return [Results(command[i], seen_by(*(x[i] for x in seen)), rewards[i], *marks[5 * i : 5 * i + 5],
                        tuple(first + i * size for first, size in each)) for i in range(count)]

    def command(self, action: Tensor, to: Results) -> None:
        """The commands of the actions."""
        self.run_command(self.n, action.data_ptr(), to.addresses[0])

    def after(self, truth: Mapping[str, Tensor], action: Tensor, to: Results) -> None:
        """What follows from the signals ``truth`` after the physics."""
        key = tuple(map(id, truth.values()))
        known = self._known.get(key) or self._learn(key, truth)
        self.run_after(self.n, *known[1], action.data_ptr(), *to.addresses[1:-2])

    def _learn(self, key: tuple[int, ...], truth: Mapping[str, Tensor]) -> tuple[list[Tensor], list[int]]:
        """Addresses of these tensors. They are kept, so that no others get their identities; few, because some backends
        make new ones in each step.
        """
        shapes = self.kernel.rows
        checked = [arguments.checked(f"truth.{k}", truth[k], self.n, shapes[f"truth.{k}"]) for k in self.signals]
        while len(self._known) >= 4:
            self._known.pop(next(iter(self._known)))
        self._known[key] = [*truth.values()], [t.data_ptr() for t in checked]
        return self._known[key]

    def finish(self, bad: Tensor, to: Results) -> tuple[bool, bool]:
        """Fill reward and flags: whether an episode ended, whether a world is bad."""
        if bad is not self._bad:
            self._bad, self._bad_address = bad, bad.data_ptr()
        found = self._code(self.figures, self.stride, self.n, *to.addresses[-2:], self._bad_address)
        return found % BAD > 0, found >= BAD


class Bound:
    """A kernel and its table: only where the rows are changes from call to call."""

    def __init__(self, kernel: vectorize.Kernel, table: Tensor) -> None:
        columns, self._kernel, self._table = len(kernel.columns), kernel, table
        self._pointers = (ctypes.c_int64 * (columns + len(kernel.rows)))(
            *(table.data_ptr() + table.shape[1] * int(offset) for offset in kernel.offsets))
        self._rows = slice(columns, columns + len(kernel.rows))
        self._code, self._address, self._stride = kernel.code, ctypes.addressof(self._pointers), table.shape[1]

    def __call__(self, n: int, *addresses: int) -> None:
        """Compute ``n`` rows, whole blocks, of the tensors at ``addresses`` in the order of the kernel's rows."""
        self._pointers[self._rows] = addresses
        self._code(self._address, self._stride, 0, n)
