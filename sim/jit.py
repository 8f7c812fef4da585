"""LLVM text to a function of this process, for this processor."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np

LANES = 16  # numbers side by side: one AVX-512 register, two of AVX2, four of NEON
FLOATS = f"<{LANES} x float>"
BITS = f"<{LANES} x i1>"


def constant(value: float) -> str:
    """A float32 in LLVM's notation, which writes it as the double of the same value."""
    return f"0x{int(np.array(np.float32(value), dtype=np.float64).view(np.uint64)):016X}"


def splat(value: float | bool) -> str:
    """A constant in all lanes."""
    return f"splat (i1 {str(value).lower()})" if isinstance(value, bool) else f"splat (float {constant(value)})"


@cache
def features() -> str:
    """The extensions of this processor, as LLVM names them."""
    found = llvm.get_host_cpu_features()
    if found.get("avx512f"):
        found["prefer-256-bit"] = False
    return str(found.flatten())


@cache
def target_machine() -> Any:
    """This processor with all its vector extensions, for llvmlite."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features(), opt=2, codemodel="jitdefault", jit=True)


@cache
def _library_address(name: str) -> int:
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    return int(ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0)


def function(
    text: str, entry: str, arguments: Sequence[Any], library: Collection[str] = (), passes: Sequence[str] = ()
) -> tuple[Any, Any]:
    """The compiled ``entry``, which lets other Python threads run, and what must be kept for its code to stay.

    Args:
        text: an LLVM module.
        arguments: ctypes of the parameters; nothing is returned.
        library: functions of the C mathematics library that the text declares.
        passes: of llvmlite's pass manager, by name, before code is generated.
    """
    machine = target_machine()
    for name in library:
        llvm.add_symbol(name, _library_address(name))
    module = llvm.parse_assembly(text)
    module.verify()
    if passes:
        manager = llvm.create_new_module_pass_manager()
        for name in passes:
            getattr(manager, f"add_{name}_pass")()
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        manager.run(module, llvm.create_pass_builder(machine, options))
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return ctypes.CFUNCTYPE(None, *arguments)(engine.get_function_address(entry)), engine
