"""The draws of :mod:`temporeal.sim.compiler.keyed_random` on an NVIDIA GPU, one kernel each: the same bits as on a CPU.

The functions of :mod:`temporeal.sim.compiler.threefry` are called once, with variables that record what is done to them
as C++, which Warp compiles (as in :mod:`temporeal.sim.compiler.vectorize_warp`, for tests on a CPU too).
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from temporeal.sim.compiler import scalar_functions as compiling
from temporeal.sim.compiler import threefry
from temporeal.sim.compiler.vectorize_warp import Native, literal

WORD, INT, FLOAT, BOOL = "unsigned int", "int", "float", "bool"


class Number:
    """A C++ variable; an operation on it is one more statement of the text that it belongs to."""

    def __init__(self, text: list[str], kind: str, value: str) -> None:
        self.text, self.kind, self.name = text, kind, f"s{len(text)}"
        text.append(f"const {kind} {self.name} = {value};")

    def _new(self, kind: str, value: str) -> Number:
        return Number(self.text, kind, value)

    def _with(self, sign: str, other: Any, kind: str = "") -> Number:
        if isinstance(other, Number):
            b = other.name
        else:
            b = literal(float(other)) if self.kind == FLOAT else f"{other}{'u' if self.kind == WORD else ''}"
        return self._new(kind or self.kind, f"{self.name} {sign} {b}")

    def __add__(self, other: Any) -> Number:
        return self._with("+", other)

    def __sub__(self, other: Any) -> Number:
        return self._with("-", other)

    def __mul__(self, other: Any) -> Number:
        return self._with("*", other)

    def __xor__(self, other: Any) -> Number:
        return self._with("^", other)

    def __or__(self, other: Any) -> Number:
        return self._with("|", other)

    def __and__(self, other: Any) -> Number:
        return self._with("&", other)

    def __lshift__(self, other: int) -> Number:
        return self._new(self.kind, f"{self.name} << {other}")

    def __rshift__(self, other: int) -> Number:
        return self._new(self.kind, f"{self.name} >> {other}")

    def __neg__(self) -> Number:
        return self._new(self.kind, f"-{self.name}")

    def __ne__(self, other: Any) -> Number:  # type: ignore[override]
        return self._with("!=", other, BOOL)

    __rmul__, __rxor__ = __mul__, __xor__


def _cast(kind: str) -> Any:
    return lambda x: x._new(kind, f"({kind}){x.name}")


def _same_bits(kind: str, was: str) -> Any:
    def of(x: Number) -> Number:
        x.text.append(f"union {{ {was} was; {kind} is; }} u{len(x.text)}; u{len(x.text)}.was = {x.name};")
        return x._new(kind, f"u{len(x.text) - 1}.is")

    return of


_SCALAR = compiling.instantiate(
    threefry, lambda function: function, float, word=_cast(WORD), signed=_cast(INT), real=_cast(FLOAT),
    bits_of=_same_bits(INT, FLOAT), float_of=_same_bits(FLOAT, INT),
    select=lambda condition, a, b: a._new(a.kind, f"{condition.name} ? {a.name} : {b.name}"),
    math=SimpleNamespace(sqrt=lambda x: x._new(FLOAT, f"sqrtf({x.name})")))


@cache
def _kernel(kind: str) -> Native:
    """Four numbers of one row in each thread. Arguments: addresses of world, episode and step (int64 [K]) and of what
    is drawn; three words of the key, blocks of four in a row, numbers in a row, its strides."""
    text: list[str] = []
    words = [Number(text, WORD, f"(unsigned int){of}") for of in (
        "a[4]", "a[5]", "a[6]", "0u", "((long long*)a[0])[row]", "((long long*)a[1])[row]", "((long long*)a[2])[row]",
        "block")]
    drawn = _SCALAR.threefry(*words)
    found = [_SCALAR.unit(w) for w in drawn] if kind == "uniform" else [
        *_SCALAR.normal_pair(*drawn[:2]), *_SCALAR.normal_pair(*drawn[2:])]
    return Native("\n".join([
        "const long long row = i / (long long)a[7], block = i % (long long)a[7];",
        "float* out = (float*)a[3] + row * (long long)a[9];", *text,
        *(f"if (4 * block + {j} < (long long)a[8]) out[(4 * block + {j}) * (long long)a[10]] = {x.name};"
          for j, x in enumerate(found))]), 11)


def fill(kind: str, key: tuple[int, ...], world: Tensor, episode: Tensor, step: Tensor, out: Tensor) -> None:
    """Fill ``out`` float32 [K, count] (any strides) with the draws of :mod:`temporeal.sim.compiler.keyed_random`:
    ``uniform`` or ``normal``."""
    places = {str(x.device) for x in (world, episode, step, out)}
    if out.dtype != torch.float32 or len(out) != len(world) or len(places) > 1:
        raise ValueError(f"draws of {len(world)} worlds go to float32 [{len(world)}, count] on the same device, got "
                         f"{out.dtype} {tuple(out.shape)} and devices {', '.join(sorted(places))}")
    rows = [x.expand_as(world).to(torch.int64).contiguous() for x in (world, episode, step)]
    blocks = -(-out.shape[1] // 4)
    _kernel(kind)(len(out) * blocks, out.device, *(x.data_ptr() for x in rows), out.data_ptr(), *map(int, key), blocks,
                  out.shape[1], *out.stride())
