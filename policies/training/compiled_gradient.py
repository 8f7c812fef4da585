"""The gradient of PPO's loss for feed-forward networks as one compiled pass over the rows, for CPUs.

Small networks keep a CPU's arithmetic units idle: activations of thousands of rows go out to memory between
operations, and the matrix library does not know that 64 columns fit its registers. Here a block of 48 rows goes forward
through both networks, through the loss and back, and never leaves the cache. Matrix products keep a tile of the result
in registers: every product (forward, gradient of the inputs, gradient of the weights) is one routine,

    C[m, :] = init[m, :] + sum over p of A(m, p) B[p, :]

whose A has any strides and is read number by number, and whose B is read vector by vector. Weights are copied to the
layout that this needs, widths padded to whole vectors with zeros.

Float32. The sums are those of :func:`temporeal.policies.algos.ppo.losses` in another order: equal up to rounding.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import count, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from temporeal.policies.nets.actor import HALF_LOG_2PI
from temporeal.sim.compiler import llvm
from temporeal.sim.compiler.llvm import BITS, FLOATS, LANES, constant, splat

ROWS = 48  # of a block: its activations (two networks, 64 wide) take about 130 KB, a part of a second-level cache


class Shape(NamedTuple):
    """All that the machine code depends on."""

    actor: tuple[int, ...]  # widths from observation to action
    critic: tuple[int, ...]  # widths from privileged observation to 1
    activation: str
    columns: int  # numbers in a row of the table: see temporeal.policies.training.ppo_state.columns


def padded(width: int) -> int:
    """``width`` in whole vectors."""
    return -(-width // LANES) * LANES


class Places:
    """Where everything lies in a workspace, in floats; all in whole vectors."""

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


# ---------------------------------------------------------------- code


class Code:
    """LLVM text of one function. Variables are memory that the optimizer turns into registers."""

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
        """``body(i)`` for i in range(start, stop, step) while a whole step fits; the first i left is returned."""
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


def loss(shape: Shape, lay: Layout) -> str:
    """``loss(w, rows)``: outputs of the last layers become the loss' derivatives by them; sums are added to."""
    c = Code("define internal void @loss(ptr %w, i64 %rows)")
    actions, table = shape.actor[-1], shape.actor[0] + shape.critic[0]
    mask = "<" + ", ".join(f"i1 {'true' if i < actions else 'false'}" for i in range(LANES)) + ">"
    stride = lay.width("rows")
    inverse = c.load(c.at("%w", lay.offset("inverse_std")))
    number = {n: c.load(c.at("%w", lay.offset("numbers"), i), "float") for i, n in enumerate(NUMBERS)}
    places = {n: c.at("%w", lay.offset("sums"), i) for i, n in enumerate(SUMS)}
    log_std = c.at("%w", lay.offset("log_std.grad"))
    last = len(shape.actor) - 2, len(shape.critic) - 2

    def add(value: str, name: str) -> None:
        c.store(c.scalar("fadd", c.load(places[name], "float"), value), places[name], "float")

    def masked(vector: str) -> str:
        return c.do(f"select {BITS} {mask}, {FLOATS} {vector}, {FLOATS} zeroinitializer")

    def row(i: str) -> None:
        line = (i, stride)
        mean_at = c.at("%w", lay.offset(f"actor.{last[0]}.out"), (i, lay.width(f"actor.{last[0]}.out")))
        value_at = c.at("%w", lay.offset(f"critic.{last[1]}.out"), (i, lay.width(f"critic.{last[1]}.out")))
        start = lay.offset("rows")
        action, old = (c.load(c.at("%w", start + table + k * actions, line)) for k in (0, 1))
        scalars = [c.load(c.at("%w", start + table + 2 * actions + k, line), "float") for k in range(3)]
        before, advantage, target = scalars
        mean = c.load(mean_at)
        deviation = masked(c.vector("fmul", c.vector("fsub", action, mean), inverse))
        square = c.vector("fmul", deviation, deviation)
        density = c.scalar("fsub", number["log_density"], c.scalar("fmul", constant(0.5), c.total(square)))
        ratio = c.do(f"call float @expf(float {c.scalar('fsub', density, before)})")
        low = c.do(f"call float @llvm.maxnum.f32(float {ratio}, float {number['low']})")
        clipped = c.do(f"call float @llvm.minnum.f32(float {low}, float {number['high']})")
        free, held = c.scalar("fmul", ratio, advantage), c.scalar("fmul", clipped, advantage)
        active = c.do(f"fcmp ule float {free}, {held}")  # NaN: passed on, and found
        add(c.do(f"fneg float {c.do(f'select i1 {active}, float {free}, float {held}')}"), "policy_loss")
        pull = c.scalar("fmul", c.do(f"fneg float {free}"), number["share"])
        pull = c.splat(c.do(f"select i1 {active}, float {pull}, float {constant(0.0)}"))
        c.store(c.vector("fmul", pull, c.vector("fmul", deviation, inverse)), mean_at)
        widened = masked(c.vector("fmul", pull, c.vector("fsub", square, splat(1.0))))
        c.store(c.vector("fadd", c.load(log_std), widened), log_std)
        moved = masked(c.vector("fmul", c.vector("fsub", old, mean), inverse))
        add(c.total(c.vector("fmul", moved, moved)), "kl")
        error = c.scalar("fsub", c.load(value_at, "float"), target)
        add(c.scalar("fmul", error, error), "value_loss")
        slope = c.scalar("fmul", error, number["value_slope"])
        c.store(c.do(f"insertelement {FLOATS} zeroinitializer, float {slope}, i32 0"), value_at)

    c.loop(0, "%rows", 1, row)
    return c.text()


def multiplier(c: Code, lay: Layout | Layers, widest: int) -> tuple[Any, Any]:
    """``at(name)``, the address of a place in the workspace, and ``gemm``, the product written for them."""

    def at(name: str, extra: int = 0) -> str:
        return c.at("%w", lay.offset(name) + extra)

    def gemm(
        out: str, a: tuple[str, int | str, int], b: str, init: tuple[str, int], m: str | int, p: str | int
    ) -> None:
        vectors, done = lay.width(out) // LANES, 0
        while done < vectors:
            part = min(widest, vectors - done)
            shift = LANES * done
            c.plain(f"call void @gemm{part}(ptr {at(out, shift)}, i64 {lay.width(out)}, ptr {a[0]}, i64 {a[1]}, "
                    f"i64 {a[2]}, ptr {at(b, shift)}, i64 {lay.width(b)}, ptr {at(init[0], shift)}, i64 {init[1]}, "
                    f"i64 {m}, i64 {p})")
            done += part

    return at, gemm


def driver(shape: Shape, lay: Layout, widest: int) -> str:
    """``differentiate(w, table, chosen, count)``: gradients of the ``chosen`` rows of ``table`` are added up in w."""
    c = Code("define void @differentiate(ptr noalias %w, ptr noalias %table, ptr noalias %chosen, i64 %count)")
    width = lay.width("rows")
    at, gemm = multiplier(c, lay, widest)

    def block(start: str, rows: str) -> None:
        def row(i: str) -> str:
            place = c.do(f"getelementptr i64, ptr %chosen, i64 {c.do(f'add i64 {start}, {i}')}")
            return c.at("%table", (c.load(place, "i64"), shape.columns))

        def fetch(i: str) -> None:  # the rows lie anywhere in memory: have those of the next block on their way
            later = c.do(f"add i64 {i}, {ROWS}")
            end = c.do(f"add i64 {start}, {later}")
            inside = c.do(f"icmp slt i64 {end}, %count")
            source = row(c.do(f"select i1 {inside}, i64 {later}, i64 {i}"))
            for line in range(0, shape.columns, LANES):
                c.plain(f"call void @llvm.prefetch.p0(ptr {c.at(source, line)}, i32 0, i32 2, i32 1)")

        def copy(i: str) -> None:
            source = row(i)
            c.plain(f"call void @llvm.memcpy.p0.p0.i64(ptr {c.at('%w', lay.offset('rows'), (i, width))}, ptr {source}, "
                    f"i64 {4 * shape.columns}, i1 false)")

        c.loop(0, rows, 1, copy)
        c.loop(0, rows, 1, fetch)
        nets = (("actor", shape.actor, 0), ("critic", shape.critic, shape.actor[0]))
        inputs: dict[tuple[str, int], tuple[str, int]] = {}  # address and stride of what enters a layer
        for net, widths, column in nets:
            inputs[net, 0] = at("rows", column), width
            for layer, wide in enumerate(widths[:-1]):
                source, stride = inputs[net, layer]
                out = f"{net}.{layer}.out"
                gemm(out, (source, stride, 1), f"{net}.{layer}.weight_t", (f"{net}.{layer}.bias", 0), rows, wide)
                if layer < len(widths) - 2:
                    numbers = c.do(f"mul i64 {rows}, {lay.width(out)}")
                    c.plain(f"call void @activate(ptr {at(out)}, ptr {at(f'{net}.{layer}.slope')}, i64 {numbers})")
                inputs[net, layer + 1] = at(out), lay.width(out)
        c.plain(f"call void @loss(ptr %w, i64 {rows})")
        for net, widths, _ in nets:
            delta = f"{net}.{len(widths) - 2}.out"
            for layer in reversed(range(len(widths) - 1)):
                source, stride = inputs[net, layer]
                weight, bias = f"{net}.{layer}.weight_t.grad", f"{net}.{layer}.bias.grad"
                gemm(weight, (source, 1, stride), delta, (weight, lay.width(weight)), widths[layer], rows)
                gemm(bias, (at("ones"), 0, 0), delta, (bias, 0), 1, rows)
                if not layer:
                    break
                below = f"{net}.{layer - 1}.delta"
                gemm(below, (at(delta), lay.width(delta), 1), f"{net}.{layer}.weight", ("zeros", 0), rows,
                     widths[layer + 1])
                numbers = c.do(f"mul i64 {rows}, {lay.width(below)}")
                c.plain(f"call void @multiply(ptr {at(below)}, ptr {at(f'{net}.{layer - 1}.slope')}, i64 {numbers})")
                delta = below

    c.loop(0, "%count", ROWS, lambda i: block(i, str(ROWS)))
    left = c.do(f"load i64, ptr {c.last}")
    block(left, c.do(f"sub i64 %count, {left}"))
    return c.text()


def forward(widths: Sequence[int], lay: Layers, widest: int) -> str:
    """``forward(w, x, stride, out, count)``: outputs [count, last width] of rows of x, ``stride`` floats apart."""
    c = Code("define void @forward(ptr noalias %w, ptr noalias %x, i64 %stride, ptr noalias %out, i64 %count)")
    at, gemm = multiplier(c, lay, widest)

    def block(start: str, rows: str) -> None:
        source: tuple[str, int | str, int] = (c.at("%x", (start, "%stride")), "%stride", 1)
        for layer, wide in enumerate(widths[:-1]):
            name = f"{layer}.out"
            gemm(name, source, f"{layer}.weight_t", (f"{layer}.bias", 0), rows, wide)
            if layer < len(widths) - 2:
                numbers = c.do(f"mul i64 {rows}, {lay.width(name)}")
                c.plain(f"call void @activate(ptr {at(name)}, ptr {at(f'{layer}.slope')}, i64 {numbers})")
            source = (at(name), lay.width(name), 1)

        def leave(i: str) -> None:
            line = c.at("%out", (c.do(f"add i64 {start}, {i}"), widths[-1]))
            c.plain(f"call void @llvm.memcpy.p0.p0.i64(ptr {line}, ptr {c.at(source[0], (i, source[1]))}, "
                    f"i64 {4 * widths[-1]}, i1 false)")

        c.loop(0, rows, 1, leave)

    c.loop(0, "%count", ROWS, lambda i: block(i, str(ROWS)))
    left = c.do(f"load i64, ptr {c.last}")
    block(left, c.do(f"sub i64 %count, {left}"))
    return c.text()


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


PASSES = ("sroa", "simplify_cfg", "instruction_combine")
POINTER, NUMBER = ctypes.c_void_p, ctypes.c_int64


def products() -> tuple[int, list[str]]:
    """Most vectors in a line of a product on this processor, and the products of 1 to so many."""
    # a tile of the result, a line of B and one number of A: AVX-512 has 32 registers of 16 numbers, AVX2 16 of 8
    tiles = {1: 14, 2: 12, 3: 8, 4: 6} if "+avx512f" in llvm.features() else {1: 6}
    return len(tiles), [product(vectors, tile) for vectors, tile in tiles.items()]


@cache
def derivative_code(shape: Shape) -> tuple[Any, Any]:
    """The compiled ``differentiate``, and what keeps its code alive."""
    lay, (widest, routines) = Layout(shape), products()
    text = "\n".join([DECLARATIONS, *routines, elementwise(shape.activation), loss(shape, lay),
                      driver(shape, lay, widest)])
    return llvm.function(text, "differentiate", (POINTER, POINTER, POINTER, NUMBER), ("expf",), PASSES)


@cache
def forward_code(widths: tuple[int, ...], activation: str) -> tuple[Any, Any]:
    """The compiled ``forward``, and what keeps its code alive."""
    lay, (widest, routines) = Layers(widths), products()
    text = "\n".join([DECLARATIONS, *routines, elementwise(activation), forward(widths, lay, widest)])
    return llvm.function(text, "forward", (POINTER, POINTER, NUMBER, POINTER, NUMBER), (), PASSES)


# ---------------------------------------------------------------- use


def serves(actor: nn.Module, config: Any, device: torch.device) -> bool:
    """Whether the loss of ``config`` for ``actor`` is the one compiled here; else it is differentiated by torch."""
    return (device.type == "cpu" and not actor.hidden_dim and config.precision == "float32" and not config.compile
            and config.value_clip is None and config.activation in ACTIVATIONS and len(actor.log_std) <= LANES)


class Gradient:
    """Gradients of both networks of one replica; holds the workspace.

    Args:
        actor: feed-forward network and ``log_std``; critic: its ``net`` ends in one value.
        activation: name, one of :data:`ACTIVATIONS`.
        columns: numbers in a row of the table of :func:`temporeal.policies.training.ppo_state.columns`.
        weights: [P + 1], all parameters of the actor, then of the critic, then a zero.
        gradient: [P + ...]: where their derivatives go, in the same order.
    """

    def __init__(
        self, actor: nn.Module, critic: nn.Module, activation: str, columns: int, weights: Tensor, gradient: Tensor
    ) -> None:
        self.log_std: Tensor = actor.log_std  # type: ignore[assignment]
        layers = {"actor": _linear(actor.net), "critic": _linear(critic.net)}
        widths = {net: (found[0].in_features, *(x.out_features for x in found)) for net, found in layers.items()}
        self.layout = Layout(Shape(widths["actor"], widths["critic"], activation, columns))
        self.code, self._engine = derivative_code(self.layout.shape)
        self.work = torch.zeros(self.layout.size)
        self.weights, self.gradient = weights, gradient
        self.packing, self.unpacking, place = self._maps([actor, critic], layers)
        self.slope = gradient[place : place + len(self.log_std)]  # that of log_std
        self.part("ones").fill_(1.0)

    def _maps(self, nets: Sequence[nn.Module], layers: Mapping[str, Sequence[nn.Linear]]) -> tuple[Tensor, Tensor, int]:
        """Which weight each place of the workspace takes, where each weight's derivative is, and where log_std is."""
        numbers, first = dict[int, Tensor](), 0
        for parameter in (p for net in nets for p in net.parameters()):
            numbers[id(parameter)] = torch.arange(first, first + parameter.numel()).view_as(parameter)
            first += parameter.numel()
        packing = torch.full((self.layout.size,), first)  # the zero
        unpacking = torch.zeros(first, dtype=torch.int64)
        places = torch.arange(self.layout.size)
        for net, found in layers.items():
            for i, layer in enumerate(found):
                weight, bias = numbers[id(layer.weight)], numbers[id(layer.bias)]
                for name, value in ((f"{net}.{i}.weight_t", weight.T), (f"{net}.{i}.bias", bias[None])):
                    self.part(name, packing)[:, : value.shape[1]] = value
                    unpacking[value] = self.part(f"{name}.grad", places)[:, : value.shape[1]]
                if i:
                    self.part(f"{net}.{i}.weight", packing)[:, : weight.shape[1]] = weight
        log_std = numbers[id(self.log_std)]
        unpacking[log_std] = self.part("log_std.grad", places)[0, : len(log_std)]
        return packing[: self.layout.offset("inverse_std")].clone(), unpacking, int(log_std[0])

    def part(self, name: str, of: Tensor | None = None) -> Tensor:
        """A view [rows, columns] of the workspace, or ``of`` something as long."""
        offset, rows, columns = self.layout.places[name]
        return (self.work if of is None else of)[offset : offset + rows * columns].view(rows, columns)

    @torch.no_grad()
    def __call__(self, table: Tensor, chosen: Tensor, total: int, old_log_std: Tensor, config: Any) -> Tensor:
        """Set the gradient to that of the loss over ``chosen`` [B] rows of ``table`` [R, F], as a share of a minibatch
        of ``total`` rows; the shares of FIGURES [4] (temporeal.policies.training.ppo_state)."""
        torch.index_select(self.weights, 0, self.packing, out=self.work[: len(self.packing)])
        self.work[self.layout.gradients : self.layout.gradients_end] = 0.0
        spread = self.log_std.detach()
        self.part("inverse_std")[0, : len(spread)] = torch.exp(-spread)
        widths = float(spread.sum())
        density = -widths - HALF_LOG_2PI * len(spread)
        numbers = (density, 1.0 - config.clip, 1.0 + config.clip, 1.0 / total, 2.0 * config.value_coef / total)
        self.part("numbers")[0, : len(NUMBERS)] = torch.tensor(numbers)
        self.code(self.work.data_ptr(), table.data_ptr(), chosen.data_ptr(), len(chosen))
        torch.index_select(self.work, 0, self.unpacking, out=self.gradient[: len(self.unpacking)])
        share = len(chosen) / total
        self.slope.sub_(share * config.entropy_coef)
        return self._figures(share, total, widths - float(old_log_std.sum()), old_log_std, config)

    def _figures(self, share: float, total: int, wider: float, old_log_std: Tensor, config: Any) -> Tensor:
        policy_loss, value_loss, moved = (x / total for x in self.part("sums")[0, : len(SUMS)].tolist())
        spread = self.log_std.detach()
        entropy = float(spread.sum()) + (0.5 + HALF_LOG_2PI) * len(spread)
        ratio = float((torch.exp(2.0 * (old_log_std - spread)) - 1.0).sum())
        kl = 0.5 * moved + share * (0.5 * ratio + wider)
        loss = policy_loss + config.value_coef * value_loss - share * config.entropy_coef * entropy
        return torch.tensor([loss, kl, policy_loss, value_loss])


class Forward:
    """A feed-forward network on the rows of a tensor. :meth:`take` its weights whenever they have changed."""

    def __init__(self, net: nn.Module, activation: str) -> None:
        self.layers = _linear(net)
        self.widths = (self.layers[0].in_features, *(x.out_features for x in self.layers))
        self.layout = Layers(self.widths)
        self.code, self._engine = forward_code(self.widths, activation)
        self.work = torch.zeros(self.layout.size)
        self.take()

    def take(self) -> None:
        """Copy the network's weights."""
        for i, layer in enumerate(self.layers):
            for name, value in (("weight_t", layer.weight.detach().T), ("bias", layer.bias.detach()[None])):
                offset, rows, columns = self.layout.places[f"{i}.{name}"]
                place = self.work[offset : offset + rows * columns].view(rows, columns)
                place[:, : layer.out_features] = value

    def __call__(self, x: Tensor) -> Tensor:
        """Outputs [N, last width] of ``x`` float32 [N, first width]; rows that are not contiguous are copied."""
        if x.dtype != torch.float32 or x.ndim != 2 or x.shape[1] != self.widths[0]:
            raise ValueError(f"x must be float32 [N, {self.widths[0]}], got {x.dtype} {tuple(x.shape)}")
        x = x if x.stride(1) == 1 else x.contiguous()
        out = torch.empty(len(x), self.widths[-1])
        self.code(self.work.data_ptr(), x.data_ptr(), x.stride(0), out.data_ptr(), len(x))
        return out


def _linear(net: nn.Module) -> Sequence[nn.Linear]:
    return [m for m in net.modules() if isinstance(m, nn.Linear)]
