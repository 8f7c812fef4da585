"""LLVM text of the passes: forward through networks, the loss and its derivative, and backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from temporeal.policies.training.compiled_gradient.layout import NUMBERS, ROWS, SUMS, Layers, Layout, Shape
from temporeal.policies.training.compiled_gradient.llvm_text import Code
from temporeal.sim.compiler.llvm import BITS, FLOATS, LANES, constant, splat


def loss(shape: Shape, lay: Layout) -> str:
    """``loss(w, rows)``: replaces the last layers' outputs by the loss' derivatives with respect to them; adds to the
    sums."""
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
    """``differentiate(w, table, chosen, count)``: adds the gradients of the ``chosen`` rows of ``table`` up in w."""
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
