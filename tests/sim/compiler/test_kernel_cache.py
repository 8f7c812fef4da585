"""Kernels that are kept on disk are found there by the next process."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numba.core.dispatcher
import pytest

import temporeal.sim

ROOT = Path(temporeal.sim.__file__).parent
CLOSURES = sorted(
    ".".join(file.relative_to(ROOT).with_suffix("").parts) for file in ROOT.rglob("*.py")
    if re.search(r"^    @njit\(cache=True", file.read_text(), re.M))


def kernels(module: ModuleType) -> list[numba.core.dispatcher.Dispatcher]:
    """Those that the module has made when it was imported."""
    found = [x for value in vars(module).values() for x in (value if isinstance(value, tuple) else (value,))]
    return [x for x in found if isinstance(x, numba.core.dispatcher.Dispatcher) and x.py_func.__closure__]


@pytest.mark.parametrize("name", CLOSURES)
def test_a_kernel_closes_over_names_and_numbers_only(name: str) -> None:
    """numba looks for the code by what a function closes over: a compiled function is another one in each process."""
    for kernel in kernels(import_module(f"temporeal.sim.{name}")):
        inside = [cell.cell_contents for cell in kernel.py_func.__closure__]
        assert all(isinstance(x, (str, int, float)) for x in inside), (kernel.py_func.__qualname__, inside)


def test_kernels_are_found() -> None:
    adjoint = import_module("temporeal.sim.physics.quadrotor.adjoint")
    assert {kernel.py_func.__name__ for kernel in kernels(adjoint)} == {"roll", "roll_vjp"} and len(CLOSURES) >= 6
