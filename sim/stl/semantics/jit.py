"""How the evaluator's kernels are compiled: options, pointers, and the cache on disk. Needs numba."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from numba import njit, types
from numba.extending import intrinsic

from temporeal.sim.stl.semantics.numba_cache import named_by_sources

OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def _as_pointer(typingctx: Any, address: Any, like: Any) -> Any:
    """The integer ``address`` as a pointer to numbers of the type of ``like``."""
    pointer: Any = types.CPointer(like)  # type: ignore[no-untyped-call]

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(pointer))

    return pointer(address, like), codegen


pointer: Any = intrinsic(_as_pointer)


def kernel(function: Callable[..., Any]) -> Any:
    """Compile what interpreters call. It is part of their compiled code, which alone is kept on disk."""
    return njit(inline="never", **OPTIONS)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile into each caller: for what is called per instruction and sample, with more arguments than registers."""
    return njit(inline="always", **OPTIONS)(function)


def interpreter(*called: ModuleType) -> Callable[[Callable[..., Any]], Any]:
    """Compile an entry point, and keep the compiled code on disk until its file or one of those ``called`` changes."""

    def compiled(function: Callable[..., Any]) -> Any:
        named_by_sources(function, *called)
        try:
            return njit(cache=True, **OPTIONS)(function)
        except RuntimeError:  # no writable folder for the cache
            return njit(**OPTIONS)(function)

    return compiled
