"""Random numbers that depend on (seed, env, episode, stream, step) and on nothing else.

World 7 of a run with 16 worlds draws what world 7 of a run with 16,384 draws, on one thread or on many. There is no
generator state to save. ``stream`` keeps draws for different purposes apart: ``stream("wind")``.

    wind = normal(seed, env, episode, stream("wind"), 3)     # [K, 3]

The words come from Threefry-4x32 (:mod:`temporeal.sim.compiler.threefry`) with key (seed low, seed high, stream, 0) and
counter (env, episode, step, block); each of them modulo 2^32.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from temporeal.sim.compiler import scalar_functions as compiling
from temporeal.sim.compiler import threefry
from temporeal.sim.compiler.devices import lacks_warp

OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True}
# no fastmath: the same bits whether a draw falls into a SIMD lane or into the loop's remainder


@njit(forceinline=True)
def _bits_of(x):
    return np.float32(x).view(np.int32)


@njit(forceinline=True)
def _float_of(i):
    return np.int32(i).view(np.float32)


def scalar_functions(**options: Any) -> SimpleNamespace:
    """:mod:`temporeal.sim.compiler.threefry` compiled for a CPU, to call from a kernel."""
    return compiling.instantiate(
        threefry,
        njit(forceinline=True, **OPTIONS, **options),
        np.float32,
        word=np.uint32,
        signed=np.int32,
        real=np.float32,
        bits_of=_bits_of,
        float_of=_float_of,
    )


_threefry = (_cpu := scalar_functions()).threefry
_unit, _normal_pair = _cpu.unit, _cpu.normal_pair


def _kernels(digest: str) -> tuple[Any, Any]:
    """The fill kernels; ``digest`` puts the source of the functions they call into the key of numba's cache."""

    @njit(cache=True, **OPTIONS)
    def fill_uniform(k0, k1, k2, env, episode, step, out):
        _ = digest
        for j in range(0, out.shape[1], 4):
            for k in range(out.shape[0]):
                w0, w1, w2, w3 = _threefry(
                    k0, k1, k2, np.uint32(0), np.uint32(env[k]), np.uint32(episode[k]), np.uint32(step[k]),
                    np.uint32(j // 4),
                )  # fmt: skip
                out[k, j] = _unit(w0)
                if j + 1 < out.shape[1]:
                    out[k, j + 1] = _unit(w1)
                if j + 2 < out.shape[1]:
                    out[k, j + 2] = _unit(w2)
                if j + 3 < out.shape[1]:
                    out[k, j + 3] = _unit(w3)

    @njit(cache=True, **OPTIONS)
    def fill_normal(k0, k1, k2, env, episode, step, out):
        _ = digest
        for j in range(0, out.shape[1], 4):
            for k in range(out.shape[0]):
                w0, w1, w2, w3 = _threefry(
                    k0, k1, k2, np.uint32(0), np.uint32(env[k]), np.uint32(episode[k]), np.uint32(step[k]),
                    np.uint32(j // 4),
                )  # fmt: skip
                a, b = _normal_pair(w0, w1)
                c, d = _normal_pair(w2, w3)
                out[k, j] = a
                if j + 1 < out.shape[1]:
                    out[k, j + 1] = b
                if j + 2 < out.shape[1]:
                    out[k, j + 2] = c
                if j + 3 < out.shape[1]:
                    out[k, j + 3] = d

    return fill_uniform, fill_normal


_fill_uniform, _fill_normal = _kernels(compiling.fingerprint(threefry))


@cache
def stream(name: str) -> int:
    """The number of the stream called ``name``: the first 32 bits of its SHA-256."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little")


def key(seed: int, stream: int) -> tuple[np.uint32, np.uint32, np.uint32]:
    """The key words of ``seed`` (64 bits of it are used) and ``stream``."""
    return np.uint32(seed & 0xFFFFFFFF), np.uint32(seed >> 32 & 0xFFFFFFFF), np.uint32(stream & 0xFFFFFFFF)


@dataclass(frozen=True)
class KeyedDraws:
    """Draws of one row per (seed, env, episode, step), apart by the names of their streams.

    Args:
        env, episode: int64 [K].
        step: one for all, or int64 [K].
    """

    seed: int
    env: Tensor
    episode: Tensor
    step: int | Tensor = 0

    def uniform(self, name: str, count: int) -> Tensor:
        """Uniform numbers in [0, 1) of the stream ``name``, float32 [K, count]."""
        return _draw("uniform", self, stream(name), count)

    def normal(self, name: str, count: int) -> Tensor:
        """Standard normal numbers of the stream ``name``, float32 [K, count]."""
        return _draw("normal", self, stream(name), count)


def uniform(
    seed: int, env: Tensor, episode: Tensor, stream: int, count: int, step: int | Tensor = 0
) -> Tensor:
    """Uniform numbers in [0, 1), float32 [K, count], where ``env`` is; arguments as of :class:`KeyedDraws`.

    ``stream``: from :func:`stream`.
    """
    return _draw("uniform", KeyedDraws(seed, env, episode, step), stream, count)


def normal(
    seed: int, env: Tensor, episode: Tensor, stream: int, count: int, step: int | Tensor = 0,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Standard normal numbers, float32 [K, count]; arguments as for :func:`uniform`. ``out``: filled and returned."""
    return _draw("normal", KeyedDraws(seed, env, episode, step), stream, count, out)


def _draw(kind: str, draws: KeyedDraws, stream: int, count: int, out: Tensor | None = None) -> Tensor:
    env, episode, step = draws.env, draws.episode, draws.step
    if env.shape != episode.shape or env.dim() != 1:
        raise ValueError(f"env {tuple(env.shape)} and episode {tuple(episode.shape)} must both have shape [K]")
    steps = step if isinstance(step, Tensor) else torch.full_like(env, step)
    if env.device.type != "cpu":
        found = _draw_on_gpu(kind, draws.seed, env, episode.to(env.device), stream, count, steps.to(env.device))
        return found if out is None else out.copy_(found)
    if out is None:
        out = torch.empty((len(env), count), dtype=torch.float32)
    fill = _fill_uniform if kind == "uniform" else _fill_normal
    fill(*key(draws.seed, stream), *(x.cpu().contiguous().numpy() for x in (env, episode, steps)), out.numpy())
    return out


def _draw_on_gpu(
    kind: str, seed: int, env: Tensor, episode: Tensor, stream: int, count: int, step: Tensor
) -> Tensor:
    """By one kernel, or where Warp is missing, of which :class:`temporeal.sim.env.Env` warns, by tensor operations."""
    if lacks_warp():
        return draw_with_torch(kind, seed, env, episode, stream, count, step)
    from temporeal.sim.compiler import keyed_random_warp

    out = torch.empty((len(env), count), dtype=torch.float32, device=env.device)
    keyed_random_warp.fill(kind, key(seed, stream), env, episode, step, out)
    return out


def draw_with_torch(
    kind: str, seed: int, env: Tensor, episode: Tensor, stream: int, count: int, step: Tensor
) -> Tensor:
    """The same draws by tensor operations on any device: equal words, normals equal up to rounding."""
    k0, k1, k2 = (int(k) for k in key(seed, stream))
    columns = []
    for block in range((count + 3) // 4):
        words = threefry.threefry(
            k0, k1, k2, 0, env & threefry.MASK, episode & threefry.MASK, step & threefry.MASK, block
        )
        columns += _units(words) if kind == "uniform" else _normals(words)
    return torch.stack(columns[:count], dim=1) if columns else env.new_empty((len(env), 0), dtype=torch.float32)


def _units(words: tuple[Tensor, ...]) -> list[Tensor]:
    return [(w >> threefry.SHIFT_24).float() * threefry.ULP_24 for w in words]


def _normals(words: tuple[Tensor, ...]) -> list[Tensor]:
    out = []
    for w0, w1 in (words[:2], words[2:]):
        radius = (-2 * ((w0 >> threefry.SHIFT_24).float() * threefry.ULP_24 + threefry.HALF_ULP_24).log()).sqrt()
        fraction = ((w1 >> 6) & 0xFFFFFF).float() * threefry.ULP_24 + threefry.HALF_ULP_24 - 0.5
        angle = (torch.pi / 2) * (fraction.double() + (w1 >> 30))
        out += [radius * angle.cos().float(), radius * angle.sin().float()]
    return out
