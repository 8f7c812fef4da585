"""Vectors in numba kernels: arithmetic as numpy's, the order of memory, and what the compiler is told."""

import math
import os
import platform
import subprocess
import sys

import numpy as np
import pytest
from numba import njit

from temporeal.sim.compiler import scalar_functions as compiling
from temporeal.sim.compiler import simd
from temporeal.sim.compiler import threefry as counter
from temporeal.sim.compiler.simd import BLOCK, WIDTH
from temporeal.sim.physics.quadrotor.kernels import INNER, OPTIONS

A = np.linspace(-3, 5, WIDTH, dtype=np.float32)
B = np.linspace(2.1, -1, WIDTH, dtype=np.float32)


def rows(*values):
    """``values`` as rows of a block, the rest of each row another number."""
    out = np.full((len(values), BLOCK), 7, np.float32)
    for row, value in zip(out, values):
        row[:WIDTH] = value
    return out.reshape(-1)


def computed(function, *values):
    """What the scalar function makes of vectors."""
    inner = njit(**INNER)(function)
    count = len(values)

    @njit(**OPTIONS)
    def kernel(source, target):
        x = simd.load(source, 0, count)
        simd.store(target, 0, BLOCK, (inner(x),))

    target = np.full(2 * BLOCK, 9, np.float32)
    kernel(rows(*values), target)
    assert (target[WIDTH:] == 9).all()
    return target[:WIDTH]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x[0] + x[1], A + B), (lambda x: x[0] - x[1], A - B), (lambda x: x[0] * x[1], A * B),
        (lambda x: x[0] / x[1], A / B), (lambda x: -x[0], -A), (lambda x: 2 * x[0] + np.float32(0.5), 2 * A + 0.5),
        (lambda x: math.sqrt(x[0] * x[0]), np.abs(A)),
        (lambda x: simd.larger(x[0], x[1]), np.maximum(A, B)), (lambda x: simd.smaller(x[0], 1), np.minimum(A, 1)),
        (lambda x: simd.select(x[0] < x[1], x[0], 3), np.where(A < B, A, 3)),
        (lambda x: simd.select((x[0] >= 0) & (x[1] > 0), 1, 2), np.where((A >= 0) & (B > 0), 1, 2)),
        (lambda x: simd.select((x[0] != x[0]) | (x[1] <= 0), 1, 2), np.where(B <= 0, 1, 2)),
        (lambda x: simd.select((x[0] > 0) ^ True, x[0], x[1]), np.where(A > 0, B, A)),
    ],
)  # fmt: skip
def test_arithmetic_is_that_of_numpy(function, expected):
    assert np.allclose(computed(function, A, B), expected, rtol=1e-6)


def test_what_is_not_a_number_is_kept_and_is_not_below():
    nan = np.full(WIDTH, np.nan, np.float32)
    assert np.isnan(computed(lambda x: x[0] + x[1], A, nan)).all()
    assert (computed(lambda x: simd.select(x[1] <= 1, 1, 2), A, nan) == 2).all()
    assert (computed(lambda x: simd.larger(x[1], x[0]), A, nan) == A).all()


def test_random_words_and_their_numbers_are_those_of_the_scalar_functions():
    random = compiling.instantiate(counter, njit(**INNER), np.float32, **simd.TARGET)
    threefry, unit, pair, coarse = random.threefry, random.unit, random.normal_pair, random.coarse_normal_pair

    @njit(**OPTIONS)
    def kernel(out):
        w = threefry(np.uint32(1), np.uint32(2), np.uint32(3), 0, simd.count_from(40), 5, 6, 7)
        simd.store(out, 0, BLOCK, (unit(w[0]),) + pair(w[0], w[1]) + coarse(w[2]))

    out = np.zeros(5 * BLOCK, np.float32)
    kernel(out)
    for k in range(WIDTH):
        w = counter.threefry(1, 2, 3, 0, 40 + k, 5, 6, 7)
        expected = (counter.unit(w[0]), *counter.normal_pair(w[0], w[1]), *counter.coarse_normal_pair(w[2]))
        assert np.allclose(out[k::BLOCK], expected, atol=1e-5)


def test_memory_is_read_and_written_in_the_order_it_says():
    @njit(**OPTIONS)
    def kernel(source, places, target, flags, pairs):
        turned = simd.columns(source, 0)
        simd.store(target, 0, BLOCK, turned)
        where = simd.words(places, 1)
        simd.scatter(target, where, 100, (simd.gather(source, where), simd.spread(4)))
        simd.store_flags(flags, 2, turned[0] > 8)
        pairs[0] = simd.bits(turned[0] > 8)
        pairs[1] = simd.lowest(np.int64(pairs[0]))
        return simd.scalars(source, 3)

    source = np.arange(4 * BLOCK, dtype=np.float32)
    places = 200 + np.arange(BLOCK + 1)[::-1].astype(np.int64) * 2
    source = np.concatenate([source, np.arange(1000, 1400, dtype=np.float32)])
    target, flags, pairs = np.zeros(800, np.float32), np.zeros(BLOCK + 2, np.bool_), np.zeros(2, np.int64)
    assert kernel(source, places, target, flags, pairs) == (0, 1, 2)
    matrix = source[: 4 * WIDTH].reshape(WIDTH, 4)
    for j in range(4):
        assert (target[j * BLOCK : j * BLOCK + WIDTH] == matrix[:, j]).all()
    chosen = places[1 : WIDTH + 1]
    assert (target[chosen] == source[chosen]).all() and (target[chosen + 100] == 4).all()
    assert np.count_nonzero(target[100:]) == 2 * WIDTH
    assert (flags[2 : 2 + WIDTH] == (matrix[:, 0] > 8)).all() and not flags[:2].any()
    assert pairs[0] == sum(1 << k for k in range(WIDTH) if matrix[k, 0] > 8) and pairs[1] == 3


def test_a_kernel_can_have_its_stack_on_register_boundaries():
    @njit(**OPTIONS)
    def kernel(x):
        simd.align_stack()
        return x

    kernel(1)
    text = next(iter(kernel.inspect_llvm().values()))
    assert "alignstack(64)" in text and "noinline" in text


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names features of x86")
@pytest.mark.skipif(WIDTH != BLOCK, reason="the registers of this machine are narrow ones already")
@pytest.mark.slow
@pytest.mark.parametrize(("features", "width"), [("+avx,+avx2,+fma", 8), ("", 4)])
def test_narrower_registers_give_the_same(features, width):
    program = (
        f"import sys, pytest; from temporeal.sim.compiler import simd; assert simd.WIDTH == {width}; "
        f"sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', {__file__!r}]))"
    )
    env = os.environ | {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": features}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
