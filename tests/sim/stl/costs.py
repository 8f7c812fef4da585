"""What an evaluation in torch costs: elements that its operations write, bytes that its backward pass keeps."""

from math import inf

import numpy as np
import torch
from tests.sim.stl.definition import X, Y, split
from torch.utils._python_dispatch import TorchDispatchMode

from temporeal.sim.stl.language.constructors import always, eventually, once, since, until


def tensors(signals, dtype=torch.float64, **more):
    return {k: torch.tensor(v, dtype=dtype, **more) for k, v in signals.items()}


def normal(*shape, seed=0):
    return tensors(split(np.random.default_rng(seed).normal(size=(*shape, 5))))


class Work(TorchDispatchMode):
    """Elements that all operations together have written, views not counted."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else (out,):
            self.count += x.numel() if isinstance(x, torch.Tensor) and not x._is_view() else 0
        return out


def cost(evaluate_, length):
    """Per sample: elements written forward and backward, bytes kept for the backward pass."""
    signals = {k: v.requires_grad_() for k, v in normal(length, 1).items()}
    kept = 0

    def keep(x):
        nonlocal kept
        kept += x.numel() * x.element_size()
        return x

    with Work() as work, torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        evaluate_(signals).sum().backward()
    return work.count / length, kept / length


def assert_linear(evaluate_, formula):
    """Work and memory per sample of ``formula(window)`` grow neither with the trace nor with the window.

    ``evaluate_(formula, signals)`` has samples each second. A cost of log w per sample would be half as much more at
    1000 samples as at 100.
    """
    def most(length, windows):
        return np.max([cost(lambda s, w=w: evaluate_(formula(w), s), length) for w in windows], axis=0)

    assert (most(1000, (5, 500, 999)) < 1.2 * most(100, (5, 50, 99))).all()


FAMILIES = {
    "G": lambda w: always(0, w, X > 0), "O": lambda w: once(1, w, X > 0), "F-all": lambda w: eventually(w, inf, X > 0),
    "FG": lambda w: eventually(0, w, always(0, w // 2, Y > 0)), "U": lambda w: until(X > 0, w // 2, w, Y > 0),
    "S": lambda w: since(X > 0, 0, w, Y > 0)}
