"""Streams against the definition: every operator, restarts, missing samples, saved state, both kernels."""

import io
import subprocess
import sys
from math import inf, nan

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.sim.stl.definition import (
    DT,
    Definition,
    P,
    X,
    Y,
    formulas,
    predicates,
    samples,
    traces,
)

from temporeal.robots.signals import SignalError
from temporeal.sim.stl.language.constructors import always, eventually, historically, norm, once, since, until
from temporeal.sim.stl.language.conventions import Semantics
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import Apply, Constant, Predicate, Signal, Truth
from temporeal.sim.stl.language.queries import horizon
from temporeal.sim.stl.monitoring import kernels
from temporeal.sim.stl.monitoring.stream import Stream
from temporeal.sim.stl.semantics.robustness import robustness

SETTINGS = settings(max_examples=examples(100), deadline=None)
with_truths = st.one_of(predicates, predicates, predicates, st.booleans().map(Truth))
random_formulas = formulas(unbounded_past=True, leaf=with_truths, max_leaves=6)
lefts = st.sampled_from(["half-open", "closed"])


def at(signals, k):
    return {name: v[k] for name, v in signals.items()}


def run(stream, signals, resets=()):
    """Values [T, N] of a stream over signals [T, N, ...]; ``resets``: pairs (k, mask) before sample k."""
    out = []
    for k in range(len(signals["x"])):
        for when, mask in resets:
            if when == k:
                stream.reset(mask)
        out.append(stream.update(at(signals, k)))
    return np.array(out)


@SETTINGS
@given(random_formulas, traces(least=4, most=18), lefts, st.booleans(), st.integers(0, 12))
def test_values_are_those_of_the_definition_after_the_delay(f, signals, left, compiled, restart):
    semantics = Semantics(until=left)
    stream = Stream(f, DT, 2, np.float64, semantics, compiled)
    assert stream.delay_steps <= round(horizon(f, DT) / DT)
    found = run(stream, signals, [(restart, np.array([False, True]))])  # the second world begins twice
    length, delay = len(signals["x"]), stream.delay_steps
    for world, begin, end in ((0, 0, length), (1, 0, min(restart, length)), (1, restart, length)):
        means = Definition(samples(signals, world)[begin:end], 0, semantics)
        for k in range(begin, end):
            if k - begin < delay:
                assert np.isnan(found[k, world])
            else:
                assert found[k, world] == pytest.approx(means.at(f, k - begin - delay), abs=1e-12)


class Read(Definition):
    """Which samples a value depends on: sets, whose union is both the meet and the join of the definition."""

    def __init__(self, trace):
        super().__init__(trace, 0)
        self.top = self.bottom = frozenset()

    def _at(self, f, t, positive):
        return frozenset().union(*self.parts(f, t))

    def parts(self, f, t):
        reached = []

        class Spy(Definition):
            def at(spy, g, s, positive=True):
                reached.append((g, s))
                return 0.0

        if isinstance(f, Predicate):
            return [{t}]
        Spy(self.trace, 0)._at(f, t, True)
        return [self.at(g, s) for g, s in reached]


@settings(max_examples=examples(60), deadline=None)
@given(formulas(unbounded_past=True), st.integers(0, 8), st.integers(2, 10), st.booleans())
def test_a_missing_sample_is_missed_by_what_depends_on_it_and_by_nothing_else(f, lost, length, compiled):
    x = np.linspace(-1, 1, length)
    signals = {"x": x.copy(), "y": x[::-1].copy(), "p": np.tile(x[:, None], 3)}
    trace = [at(signals, k) for k in range(length)]
    stream, reads = Stream(f, DT, dtype=np.float64, compiled=compiled), Read(trace)
    delay = stream.delay_steps
    for k, sample in enumerate(trace):
        value = stream.update(None if k == lost else sample)
        if k >= delay:
            assert np.isnan(value) == (lost in reads.at(f, k - delay))


@settings(max_examples=examples(40), deadline=None)
@given(random_formulas, traces(least=2, most=16), st.integers(0, 15), st.booleans())
def test_a_saved_stream_goes_on(f, signals, cut, compiled):
    first, second = (Stream(f, DT, 2, compiled=compiled) for _ in range(2))
    for k in range(len(signals["x"])):
        if k == cut:
            file = io.BytesIO()
            np.savez(file, **first.state())
            file.seek(0)
            with np.load(file, allow_pickle=False) as state:
                second.set_state(state)
        value = first.update(at(signals, k))
        if k >= cut:
            np.testing.assert_array_equal(second.update(at(signals, k)), value)


@SETTINGS
@given(random_formulas, st.integers(0, 2**32 - 1), st.sampled_from([np.float32, np.float64]))
def test_numba_and_numpy_give_the_same_bits(f, seed, dtype):
    rng = np.random.default_rng(seed)
    signals = {"x": rng.normal(size=(20, 7)), "y": rng.normal(size=(20, 7)), "p": rng.normal(size=(20, 7, 3))}
    signals["x"][rng.random((20, 7)) < 0.05] = nan
    resets = [(k, rng.random(7) < 0.3) for k in range(0, 20, 6)]
    streams = [Stream(f, DT, 7, dtype, compiled=c) for c in (True, False)]
    assert [s.compiled for s in streams] == [True, False]
    a, b = (run(s, signals, resets) for s in streams)
    assert a.dtype == dtype
    np.testing.assert_array_equal(a, b)


WINDOWED = [
    lambda w: always(0, w, X > 0), lambda w: eventually(0, w // 2, always(0, w // 2, Y > 0)),
    lambda w: until(X > 0, 0, w, Y > 0), lambda w: until(X > 0, w // 3, w, Y > 0), lambda w: ~until(X > 0, 2, w, Y > 0),
    lambda w: since(X > 0, 1, w, Y > 0), lambda w: historically(w // 2, w, X > 0) | once(0, w, Y > 1),
    lambda w: always(0, w, (X > 0) >> eventually(0, w, once(0, w // 3, Y > 0)))]


@pytest.mark.parametrize("width", [3, 9, 40])
@pytest.mark.parametrize("make", WINDOWED)
def test_wide_windows_over_many_worlds_in_several_tiles(make, width):
    f, worlds, length = make(width), 2 * 1024 + 3, 4 * width + 10
    rng = np.random.default_rng(width)
    signals = {name: rng.normal(size=(length, worlds)).astype(np.float32) for name in "xy"}
    stream = Stream(f, 1.0, worlds)
    found, delay = run(stream, signals), stream.delay_steps
    np.testing.assert_array_equal(found[delay:], robustness(f, signals, 1.0)[: length - delay])


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("hi", [1, 2, 5, inf])
def test_what_since_asks_for_is_not_read_at_the_first_sample(hi, compiled):
    """``p S q`` reads p at samples after one of q: never at the first of a world, also after it began anew."""
    stream = Stream(since(X > 0, 0, hi, Y > 0), 1.0, 2, np.float64, compiled=compiled)
    for _ in range(2):
        found = [stream.update({"x": [nan if k == 0 else 3.0, nan if k == 1 else 3.0], "y": [1.0 + k] * 2})
                 for k in range(8)]
        assert [v[0] for v in found] == [min(1.0 + k, 3.0) if k == 0 else 1.0 + k for k in range(8)]
        read = [bool(np.isnan(v[1])) for v in found]
        assert read == [1 <= k <= hi for k in range(8)]
        stream.reset()
    closed = Stream(since(X > 0, 0, hi, Y > 0), 1.0, None, np.float64, Semantics(until="closed"), compiled)
    assert np.isnan(closed.update({"x": nan, "y": 1.0}))  # there p is asked for at the sample of q too


def test_delays_are_the_least_possible():
    w = always(0, 10, X > 0)
    cases = {w & (X > 0): 10, once(0, 5, w): 10, once(4, 5, w): 6, once(20, 25, w): 0, eventually(1, 2, w): 12}
    assert {f: Stream(f, 1.0).delay_steps for f in cases} == cases


def test_arithmetic_in_the_kernel_and_in_front_of_it():
    rng = np.random.default_rng(1)
    signals = {"x": rng.normal(size=(9, 5)), "y": rng.normal(size=(9, 5)), "p": rng.normal(size=(9, 5, 3))}
    q = Apply("*", (P, X))
    for e in (X / Y - 2, abs(-X) * 3, Apply("sqrt", (X * X,)), norm(P - (1.0, 0.0, 2.0)), Apply("dist", (P, q)),
              Apply("min", (X, Y, P[1])), Apply("max", (X, 0.5 * Y)), Apply("sin", (X + Y,)), q[2] + Apply("exp", (Y,)),
              Apply("hypot", (X, Y)), Apply("angle", (P, q)), Apply("+", (P, Apply("cos", (P,))))[1]):
        f = Predicate(">", e, Constant(0.25))
        for compiled in (True, False):
            found = run(Stream(f, 1.0, 5, np.float64, compiled=compiled), signals)
            np.testing.assert_allclose(found, robustness(f, signals, 1.0), rtol=1e-13, atol=1e-13)


def test_a_long_stream_needs_no_more_memory():
    f = always(0, 20, X > 0) & eventually(0, 5, once(0, inf, Y > 1)) & until(X > 0, 0, 9, Y > 0)
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(2, 100_000))
    stream = Stream(f, 1.0, dtype=np.float64)
    size = sum(a.nbytes for a in stream.state().values())
    found = np.array([stream.update({"x": a, "y": b}) for a, b in zip(x.tolist(), y.tolist())])
    assert sum(a.nbytes for a in stream.state().values()) == size < 20_000
    exact = robustness(f, {"x": x, "y": y}, 1.0)
    np.testing.assert_array_equal(found[20:], exact[:-20])


def test_tensors_and_other_numbers_are_taken():
    f = (X > 0) & (norm(P) < 3)
    x, p = torch.tensor([1.0, 2.0], requires_grad=True), torch.ones(2, 3)
    values = Stream(f, 1.0, 2).update({"x": x, "p": p, "other": "ignored"})
    np.testing.assert_allclose(values, [1.0, 3 - 3**0.5], rtol=1e-6)
    assert Stream(X > 0, 1.0, 2).update({"x": [1, 2]}).tolist() == [1.0, 2.0]
    one = Stream(f, 1.0)
    for value in (1, 1.0, np.float32(1), np.array(1.0), torch.tensor(1.0)):
        assert one.update({"x": value, "p": (0, 0, 0)}) == 1.0
    assert np.isnan(one.update({"x": None, "p": (0, 0, 0)}))


def test_errors():
    with pytest.raises(FormulaError, match=r"no end: F \(y > 0\)"):
        Stream(always(0, 1, (X > 0) & eventually(0, inf, Y > 0)), 1.0)
    with pytest.raises(FormulaError, match="no multiple"):
        Stream(always(0, 0.1, X > 0), 0.03)
    with pytest.raises(FormulaError, match="float32, float64"):
        Stream(X > 0, 1.0, 2, np.int32)
    with pytest.raises(SignalError, match="worlds = 0"):
        Stream(X > 0, 1.0, 0)
    for worlds in (2.5, True, "2", nan):
        with pytest.raises(SignalError, match="a whole number of them; got worlds = "):
            Stream(X > 0, 1.0, worlds)
    with pytest.raises(FormulaError, match="got dt = -1"):
        Stream(X > 0, -1)
    with pytest.raises(FormulaError, match="not a formula: 1.0"):
        Stream(1.0, 1.0)
    stream = Stream((X > 0) & (norm(P) > 0), 1.0, 2)
    with pytest.raises(SignalError, match="a sample is a mapping from signal names to values, got float"):
        stream.update(1.0)
    with pytest.raises(SignalError, match=r"'x' is a masked array; .* NaN: x.filled\(nan\)"):
        stream.update({"x": np.ma.masked_array([1.0, 2.0], [True, False]), "p": np.zeros((2, 3))})
    with pytest.raises(SignalError, match="'x' has a value beyond the range of floats"):
        Stream(X > 0, 1.0).update({"x": 10**400})
    with pytest.raises(SignalError, match=r"\['p'\], which are missing; signals given: \['x'\]"):
        stream.update({"x": [1.0, 2.0]})
    with pytest.raises(SignalError, match=r"'p' has shape \(3,\), the formula needs \(2, 3\)"):
        stream.update({"x": [1.0, 2.0], "p": [1.0, 2.0, 3.0]})
    with pytest.raises(SignalError, match="'x' has elements of type <U4"):
        stream.update({"x": ["high", "low"], "p": np.zeros((2, 3))})
    with pytest.raises(SignalError, match=r"a mask is bool \[2\], got int64 \[1\]"):
        stream.reset([1])
    with pytest.raises(FormulaError, match="another formula, period or options: dtype is float64"):
        stream.set_state(Stream(stream.formula, 1.0, 2, np.float64).state())


def test_a_refused_sample_leaves_the_stream_as_it_was():
    signal = Signal("v", (2,))
    stream = Stream(always(0, 1, signal[0] > 0), 1.0, dtype=np.float64)
    stream.update({"v": (1.0, 0.0)})
    with pytest.raises(SignalError):
        stream.update({"v": 1.0})
    assert stream.update({"v": (3.0, 0.0)}) == 1.0 and stream.ages.tolist() == [2]


def test_compiled_kernels_are_refused_where_numba_is_missing(monkeypatch):
    monkeypatch.setattr(kernels, "compiled_kernels", lambda: None)
    assert not Stream(X > 0, 1.0).compiled
    with pytest.raises(ImportError, match="numba, which is not installed"):
        Stream(X > 0, 1.0, compiled=True)


def test_a_broken_numba_is_named_or_done_without():
    code = (
        "import sys, builtins; original = builtins.__import__\n"
        "def broken(name, *rest):\n"
        "    if name == 'numba': raise SystemError('initialization failed')\n"
        "    return original(name, *rest)\n"
        "builtins.__import__ = broken\n"
        "from temporeal.sim.stl.monitoring.stream import Stream\n"
        "from temporeal.sim.stl.language.propositional import Signal\n"
        "print(Stream(Signal('x') > 0, 1.0).compiled)\n"
        "try: Stream(Signal('x') > 0, 1.0, compiled=True)\n"
        "except ImportError as error: print(error)")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines() == ["False", "compiled kernels need numba, which cannot be imported: SystemError: "
                                "initialization failed; compiled=None takes what is at hand"]


def test_where_nothing_can_be_cached_it_is_compiled_without():
    asked = []

    def njit(*, cache, **options):
        asked.append(cache)
        if cache:
            raise RuntimeError("cannot cache function 'least': no locator available for file 'numba_rows.py'")
        return lambda function: function

    kernels.compiled_kernels.cache_clear()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernels, "numba", lambda: (njit, ""))
            found = kernels.compiled_kernels()
            assert found.compiled and asked[:2] == [True, False] and True not in asked[1:]
    finally:
        kernels.compiled_kernels.cache_clear()


def test_without_numba_and_torch_it_works_the_same():
    code = (
        "import sys; sys.modules['numba'] = sys.modules['torch'] = None\n"
        "from temporeal.sim.stl.monitoring.stream import Stream\n"
        "from temporeal.sim.stl.monitoring.monitor import Monitor\n"
        "from temporeal.sim.stl.language.constructors import always, eventually\n"
        "from temporeal.sim.stl.language.propositional import Signal\n"
        "f = always(0, 2, eventually(0, 1, Signal('x') > 0)); s, m = Stream(f, 1.0), Monitor(f, 1.0)\n"
        "print(s.compiled, m.compiled, [s.update({'x': v}) for v in (3, 1, 2, -5)],"
        " [m.update({'x': v}).lower for v in (3, 1, 2, -5)])")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "False False [nan, nan, nan, 2.0] [-inf, -inf, 2.0, 2.0]"
