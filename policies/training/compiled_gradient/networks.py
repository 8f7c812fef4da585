"""The gradient of PPO's loss for feed-forward networks as one compiled pass over the rows, for CPUs.

Small networks leave a CPU's arithmetic units idle: activations of thousands of rows go out to memory between
operations, and the matrix library does not know that 64 columns fit its registers. Here a block of 48 rows goes forward
through both networks, through the loss and back without leaving the cache. Every product (forward, gradient of the
inputs, gradient of the weights) is one routine that keeps a tile of the result in registers,

    C[m, :] = init[m, :] + sum over p of A(m, p) B[p, :]

A has any strides and is read number by number, B is read vector by vector. Weights are copied to the layout that this
needs, with widths padded to whole vectors by zeros.

Float32. The sums are those of :func:`temporeal.policies.algos.ppo.losses` in another order: equal up to rounding.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.policies.nets.actor import HALF_LOG_2PI
from temporeal.policies.training.compiled_gradient.layout import NUMBERS, SUMS, Layers, Layout, Shape
from temporeal.policies.training.compiled_gradient.llvm_text import ACTIVATIONS, DECLARATIONS, elementwise, product
from temporeal.policies.training.compiled_gradient.passes import driver, forward, loss
from temporeal.sim.compiler import llvm
from temporeal.sim.compiler.llvm import LANES

PASSES = ("sroa", "simplify_cfg", "instruction_combine")
POINTER, NUMBER = ctypes.c_void_p, ctypes.c_int64


def products() -> tuple[int, list[str]]:
    """The most vectors in a line of a product on this processor, and the products of 1 to that many."""
    # a tile of the result, a line of B and one number of A: AVX-512 has 32 registers of 16 numbers, AVX2 16 of 8
    tiles = {1: 14, 2: 12, 3: 8, 4: 6} if "+avx512f" in llvm.features() else {1: 6}
    return len(tiles), [product(vectors, tile) for vectors, tile in tiles.items()]


@cache
def derivative_code(shape: Shape) -> tuple[Any, Any]:
    """The compiled ``differentiate``, and the object that keeps its code alive."""
    lay, (widest, routines) = Layout(shape), products()
    text = "\n".join([DECLARATIONS, *routines, elementwise(shape.activation), loss(shape, lay),
                      driver(shape, lay, widest)])
    return llvm.function(text, "differentiate", (POINTER, POINTER, POINTER, NUMBER), ("expf",), PASSES)


@cache
def forward_code(widths: tuple[int, ...], activation: str) -> tuple[Any, Any]:
    """The compiled ``forward``, and the object that keeps its code alive."""
    lay, (widest, routines) = Layers(widths), products()
    text = "\n".join([DECLARATIONS, *routines, elementwise(activation), forward(widths, lay, widest)])
    return llvm.function(text, "forward", (POINTER, POINTER, NUMBER, POINTER, NUMBER), (), PASSES)


def serves(actor: nn.Module, config: Any, device: torch.device) -> bool:
    """Whether the loss of ``config`` for ``actor`` can be compiled here; torch differentiates others."""
    return (device.type == "cpu" and not actor.hidden_dim and config.precision == "float32" and not config.compile
            and config.value_clip is None and config.activation in ACTIVATIONS and len(actor.log_std) <= LANES)


class Gradient:
    """Gradients of both networks of one replica, with their workspace.

    Args:
        actor: feed-forward network and ``log_std``; critic: its ``net`` ends in one value.
        activation: name, one of :data:`ACTIVATIONS`.
        columns: numbers in a row of the table of :func:`temporeal.policies.training.ppo_state.columns`.
        weights: [P + 1], all parameters of the actor, then of the critic, then a zero.
        gradient: [P + ...]: their derivatives, in the same order.
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
        """The weight of each place of the workspace, the place of each weight's derivative, and that of log_std."""
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
        """A view [rows, columns] of the workspace, or of an array ``of`` the same length."""
        offset, rows, columns = self.layout.places[name]
        return (self.work if of is None else of)[offset : offset + rows * columns].view(rows, columns)

    @torch.no_grad()
    def __call__(self, table: Tensor, chosen: Tensor, total: int, old_log_std: Tensor, config: Any) -> Tensor:
        """Set the gradient of the loss over ``chosen`` [B] rows of ``table`` [R, F], as a share of a minibatch of
        ``total`` rows; returns their share of FIGURES [4] (temporeal.policies.training.ppo_state)."""
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
    """A feed-forward network on the rows of a tensor. Call :meth:`take` whenever its weights have changed."""

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
