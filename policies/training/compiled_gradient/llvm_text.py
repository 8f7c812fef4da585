"""LLVM text of functions, matrix products and activations."""

from __future__ import annotations

import math
from itertools import count
from typing import Any

from temporeal.sim.compiler.llvm import BITS, FLOATS, LANES, splat


class Code:
    """LLVM text of one function. Variables are memory, which the optimizer turns into registers."""

    def __init__(self, head: str) -> None:
        self.head, self.slots, self.lines = head, list[str](), list[str]()
        self.names = count()

    def text(self) -> str:
        return "\n".join([self.head + " {", "entry:", *self.slots, *self.lines, "  ret void", "}"])

    def do(self, text: str) -> str:
        name = f"%v{next(self.names)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def plain(self, text: str) -> None:
        self.lines.append("  " + text)

    def slot(self, kind: str) -> str:
        name = f"%s{next(self.names)}"
        self.slots.append(f"  {name} = alloca {kind}")
        return name

    def at(self, base: str, *terms: str | int | tuple[str | int, str | int]) -> str:
        """Address of ``base`` plus the sum of ``terms`` (products where a pair) in floats."""
        total = "0"
        for term in terms:
            if isinstance(term, tuple):
                term = self.do(f"mul i64 {term[0]}, {term[1]}")
            total = self.do(f"add i64 {total}, {term}")
        return self.do(f"getelementptr float, ptr {base}, i64 {total}")

    def load(self, address: str, kind: str = FLOATS) -> str:
        return self.do(f"load {kind}, ptr {address}, align 4")

    def store(self, value: str, address: str, kind: str = FLOATS) -> None:
        self.plain(f"store {kind} {value}, ptr {address}, align 4")

    def splat(self, scalar: str) -> str:
        one = self.do(f"insertelement {FLOATS} poison, float {scalar}, i32 0")
        return self.do(f"shufflevector {FLOATS} {one}, {FLOATS} poison, <{LANES} x i32> zeroinitializer")

    def fma(self, a: str, b: str, c: str) -> str:
        return self.do(f"call {FLOATS} @llvm.fmuladd.v{LANES}f32({FLOATS} {a}, {FLOATS} {b}, {FLOATS} {c})")

    def vector(self, op: str, a: str, b: str) -> str:
        return self.do(f"{op} {FLOATS} {a}, {b}")

    def scalar(self, op: str, a: str, b: str) -> str:
        return self.do(f"{op} float {a}, {b}")

    def total(self, vector: str) -> str:
        zero = "0.000000e+00"
        return self.do(f"call reassoc float @llvm.vector.reduce.fadd.v{LANES}f32(float {zero}, {FLOATS} {vector})")

    def loop(self, start: str | int, stop: str, step: int, body: Any) -> None:
        """``body(i)`` for i in range(start, stop, step) while a whole step fits; returns the first i left over."""
        self.last = self.slot("i64")
        slot, n = self.last, next(self.names)
        self.plain(f"store i64 {start}, ptr {slot}")
        self.plain(f"br label %head{n}")
        self.lines.append(f"head{n}:")
        i = self.do(f"load i64, ptr {slot}")
        end = self.do(f"add i64 {i}, {step}")
        more = self.do(f"icmp sle i64 {end}, {stop}")
        self.plain(f"br i1 {more}, label %body{n}, label %exit{n}")
        self.lines.append(f"body{n}:")
        body(i)
        self.plain(f"store i64 {end}, ptr {slot}")
        self.plain(f"br label %head{n}")
        self.lines.append(f"exit{n}:")
        self.last = slot


def product(vectors: int, tile: int) -> str:
    """``gemm<vectors>``: C[m, 16 * vectors] of the module's docstring, ``tile`` rows of it in registers at once."""
    c = Code(f"define internal void @gemm{vectors}(ptr noalias %c, i64 %ldc, ptr %a, i64 %sam, i64 %sap, ptr %b, "
             f"i64 %ldb, ptr %init, i64 %ldi, i64 %m, i64 %p)")

    def rows(height: int) -> Any:
        def body(i: str) -> None:
            sums = [[c.slot(FLOATS) for _ in range(vectors)] for _ in range(height)]
            lines = [c.do(f"add i64 {i}, {t}") for t in range(height)]
            for t, line in enumerate(lines):
                for v in range(vectors):
                    c.store(c.load(c.at("%init", (line, "%ldi"), LANES * v)), sums[t][v])
            starts = [c.at("%a", (line, "%sam")) for line in lines]

            def step(p: str) -> None:
                right = [c.load(c.at("%b", (p, "%ldb"), LANES * v)) for v in range(vectors)]
                along = c.do(f"mul i64 {p}, %sap")
                for t in range(height):
                    left = c.splat(c.load(c.at(starts[t], along), "float"))
                    for v in range(vectors):
                        c.store(c.fma(left, right[v], c.load(sums[t][v])), sums[t][v])

            c.loop(0, "%p", 1, step)
            for t, line in enumerate(lines):
                for v in range(vectors):
                    c.store(c.load(sums[t][v]), c.at("%c", (line, "%ldc"), LANES * v))

        return body

    c.loop(0, "%m", tile, rows(tile))
    c.loop(c.do(f"load i64, ptr {c.last}"), "%m", 1, rows(1))
    return c.text()


def exponential(c: Code, x: str) -> str:
    """e^x in all lanes: S. Moshier, Cephes, expf (relative error 2e-7); x is limited to +-87."""
    for op, bound in (("olt", 87.0), ("ogt", -87.0)):
        inside = c.do(f"fcmp {op} {FLOATS} {x}, {splat(bound)}")
        x = c.do(f"select {BITS} {inside}, {FLOATS} {x}, {FLOATS} {splat(bound)}")
    n = c.do(f"call {FLOATS} @llvm.roundeven.v{LANES}f32({FLOATS} {c.vector('fmul', x, splat(math.log2(math.e)))})")
    r = c.fma(n, splat(-0.693359375), x)
    r = c.fma(n, splat(2.12194440e-4), r)
    p = splat(1.9875691500e-4)
    for term in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = c.fma(p, r, splat(term))
    p = c.fma(c.vector("fmul", p, r), r, c.vector("fadd", r, splat(1.0)))
    whole = c.do(f"fptosi {FLOATS} {n} to <{LANES} x i32>")
    bits = c.do(f"shl <{LANES} x i32> {c.do(f'add <{LANES} x i32> {whole}, splat (i32 127)')}, splat (i32 23)")
    return c.vector("fmul", p, c.do(f"bitcast <{LANES} x i32> {bits} to {FLOATS}"))


def silu(c: Code, z: str) -> tuple[str, str]:
    s = c.vector("fdiv", splat(1.0), c.vector("fadd", exponential(c, c.do(f"fneg {FLOATS} {z}")), splat(1.0)))
    h = c.vector("fmul", z, s)
    return h, c.fma(h, c.vector("fsub", splat(1.0), s), s)


def relu(c: Code, z: str) -> tuple[str, str]:
    up = c.do(f"fcmp ogt {FLOATS} {z}, zeroinitializer")
    return tuple(c.do(f"select {BITS} {up}, {FLOATS} {x}, {FLOATS} zeroinitializer")  # type: ignore[return-value]
                 for x in (z, splat(1.0)))


def elu(c: Code, z: str) -> tuple[str, str]:
    up, e = c.do(f"fcmp ogt {FLOATS} {z}, zeroinitializer"), exponential(c, z)
    less = c.vector("fsub", e, splat(1.0))
    return tuple(c.do(f"select {BITS} {up}, {FLOATS} {a}, {FLOATS} {b}")  # type: ignore[return-value]
                 for a, b in ((z, less), (splat(1.0), e)))


def tanh(c: Code, z: str) -> tuple[str, str]:
    e = exponential(c, c.vector("fadd", z, z))
    t = c.vector("fsub", splat(1.0), c.vector("fdiv", splat(2.0), c.vector("fadd", e, splat(1.0))))
    return t, c.vector("fsub", splat(1.0), c.vector("fmul", t, t))


ACTIVATIONS = {"silu": silu, "relu": relu, "elu": elu, "tanh": tanh}


def elementwise(name: str) -> str:
    """``activate``: z becomes the activation, ``slope`` its derivative. ``multiply``: a becomes a * b."""
    a = Code("define internal void @activate(ptr noalias %z, ptr noalias %slope, i64 %n)")

    def one(i: str) -> None:
        place = a.at("%z", i)
        value, slope = ACTIVATIONS[name](a, a.load(place))
        a.store(value, place)
        a.store(slope, a.at("%slope", i))

    a.loop(0, "%n", LANES, one)
    m = Code("define internal void @multiply(ptr noalias %a, ptr noalias %b, i64 %n)")
    m.loop(0, "%n", LANES, lambda i: m.store(m.vector("fmul", m.load(m.at("%a", i)), m.load(m.at("%b", i))),
                                             m.at("%a", i)))
    return a.text() + "\n" + m.text()


DECLARATIONS = f"""
declare {FLOATS} @llvm.fmuladd.v{LANES}f32({FLOATS}, {FLOATS}, {FLOATS})
declare {FLOATS} @llvm.roundeven.v{LANES}f32({FLOATS})
declare float @llvm.vector.reduce.fadd.v{LANES}f32(float, {FLOATS})
declare float @llvm.maxnum.f32(float, float)
declare float @llvm.minnum.f32(float, float)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare float @expf(float)
"""
