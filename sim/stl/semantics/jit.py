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


def inlined(function: Callable[..., Any]) -> Any:
    """Compile into each caller: for what is called per instruction and sample, with more arguments than registers."""
    return njit(inline="always", **OPTIONS)(function)


def compiled(*called: ModuleType) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function, and keep its code on disk until its file or one of those that it has ``called`` changes.

    This is for every function, not only for entry points: numba then optimizes each on its own before it becomes part
    of its caller, and the loops of the kernels are faster for it.
    """

    def decorated(function: Callable[..., Any]) -> Any:
        named_by_sources(function, *called)
        try:
            return njit(cache=True, inline="never", **OPTIONS)(function)
        except RuntimeError:  # no writable folder for the cache
            return njit(inline="never", **OPTIONS)(function)

    return decorated
