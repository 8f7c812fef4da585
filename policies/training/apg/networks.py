"""Multi-layer perceptrons in numpy with their backward pass, and Adam."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from temporeal.policies.training.apg.flight import Array


@dataclass(frozen=True)
class Mlp:
    """A multi-layer perceptron: tanh between the layers; ``weights`` [in, out] and ``biases`` are views of ``flat``."""

    flat: Array
    weights: tuple[Array, ...]
    biases: tuple[Array, ...]

    @staticmethod
    def of(sizes: Sequence[int], flat: Array | None = None) -> Mlp:
        """Layers of these sizes over ``flat``, or over zeros."""
        shapes = list(zip(sizes[:-1], sizes[1:]))
        count = sum((i + 1) * o for i, o in shapes)
        flat = np.zeros(count, np.float32) if flat is None else flat
        if flat.shape != (count,):
            raise ValueError(f"layers {tuple(sizes)} have {count} parameters, got an array of shape {flat.shape}")
        weights, biases, at = [], [], 0
        for i, o in shapes:
            weights.append(flat[at : at + i * o].reshape(i, o))
            biases.append(flat[at + i * o : at + (i + 1) * o])
            at += (i + 1) * o
        return Mlp(flat, tuple(weights), tuple(biases))

    @staticmethod
    def drawn(sizes: Sequence[int], rng: np.random.Generator) -> Mlp:
        """Uniform within +-1/sqrt(inputs), weights and biases."""
        net = Mlp.of(sizes)
        for w, b in zip(net.weights, net.biases):
            bound = 1 / np.sqrt(len(w))
            w[:], b[:] = rng.uniform(-bound, bound, w.shape), rng.uniform(-bound, bound, b.shape)
        return net

    @property
    def sizes(self) -> tuple[int, ...]:
        """Inputs, hidden units, outputs."""
        return (*(len(w) for w in self.weights), self.weights[-1].shape[1])

    def like(self, flat: Array) -> Mlp:
        """The same layers over other numbers."""
        return Mlp.of(self.sizes, flat)


def forward(net: Mlp, x: Array, hidden: Sequence[Array], out: Array) -> None:
    """Outputs of ``net`` for the rows ``x`` [N, in] into ``out`` [N, out], no final tanh; ``hidden``: the layers."""
    for w, b, h in zip(net.weights, net.biases, (*hidden, out)):
        np.matmul(x, w, out=h)
        h += b
        if h is not out:
            np.tanh(h, out=h)
        x = h


def backward(net: Mlp, slopes: Sequence[Array], deltas: Sequence[Array], columns: int, d_x: Array | None) -> None:
    """From ``deltas[-1]`` (the cotangent of the outputs) those before each hidden tanh, and of the first inputs.

    ``slopes`` are the derivatives 1 - h^2 of the hidden layers; ``d_x`` [N, in] receives its first ``columns``.
    """
    for layer in range(len(slopes), 0, -1):
        np.matmul(deltas[layer], net.weights[layer].T, out=deltas[layer - 1])
        deltas[layer - 1] *= slopes[layer - 1]
    if d_x is not None:
        if columns == d_x.shape[1]:
            np.matmul(deltas[0], net.weights[0].T, out=d_x)
        else:
            d_x[:, :columns] = deltas[0] @ net.weights[0][:columns].T


def weight_gradient(net: Mlp, inputs: Sequence[Array], deltas: Sequence[Array]) -> Array:
    """Gradient of all parameters from the layers' ``inputs`` and ``deltas`` over any leading dimensions."""
    grad = net.like(np.empty_like(net.flat))
    for w, b, x, d in zip(grad.weights, grad.biases, inputs, deltas):
        d = d.reshape(-1, d.shape[-1])
        np.matmul(x.reshape(-1, x.shape[-1]).T, d, out=w)
        np.sum(d, axis=0, out=b)
    return grad.flat


class Adam:
    """Adam (Kingma, Ba 2015) on one flat array, in place."""

    def __init__(self, size: int) -> None:
        self.mean, self.square, self.steps = np.zeros(size, np.float32), np.zeros(size, np.float32), 0

    def step(self, value: Array, grad: Array, rate: float) -> None:
        """Move ``value`` against ``grad``."""
        self.steps += 1
        self.mean += np.float32(0.1) * (grad - self.mean)
        self.square += np.float32(0.001) * (grad * grad - self.square)
        scale = np.float32(rate / (1 - 0.9**self.steps))
        value -= scale * self.mean / (np.sqrt(self.square / np.float32(1 - 0.999**self.steps)) + np.float32(1e-8))
