"""LLVM text to a function of this process, for this processor."""

from __future__ import annotations

import ctypes
import ctypes.util
import hashlib
import os
import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numpy as np

LANES = 16  # numbers side by side: one AVX-512 register, two of AVX2, four of NEON
FLOATS = f"<{LANES} x float>"
BITS = f"<{LANES} x i1>"
OPTIONS: dict[str, Any] = {"opt": 2, "codemodel": "jitdefault", "jit": True}  # of the code generator
DIGEST = 32  # bytes of a file that are the digest of the others
MOST = 1000  # files of machine code: a large one has a tenth of a megabyte


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


def target_machine() -> Any:
    """This processor with all its vector extensions, for llvmlite; an engine that is given it frees it."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features(), **OPTIONS)


@cache
def _library_address(name: str) -> int:
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    return int(ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0)


def function(
    text: str, entry: str, arguments: Sequence[Any], library: Collection[str] = (), passes: Sequence[str] = ()
) -> tuple[Any, Any]:
    """The compiled ``entry``, which lets other Python threads run, and what must be kept for its code to stay.

    Machine code is kept in :func:`folder`: a kernel of a large task takes seconds to make.

    Args:
        text: an LLVM module.
        arguments: ctypes of the parameters; nothing is returned.
        library: functions of the C mathematics library that the text declares.
        passes: of llvmlite's pass manager, by name, before code is generated.
    """
    for name in library:
        llvm.add_symbol(name, _library_address(name))
    place = folder() / key(text, passes)
    code = kept(place)
    if code is None:
        code = machine_code(text, passes)
        keep(place, code)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return ctypes.CFUNCTYPE(None, *arguments)(engine.get_function_address(entry)), engine


def machine_code(text: str, passes: Sequence[str] = ()) -> bytes:
    """The object file of an LLVM module."""
    machine, module = target_machine(), llvm.parse_assembly(text)
    module.verify()
    if passes:
        manager = llvm.create_new_module_pass_manager()
        for name in passes:
            getattr(manager, f"add_{name}_pass")()
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        manager.run(module, llvm.create_pass_builder(machine, options))
    return bytes(machine.emit_object(module))


# ---------------------------------------------------------------- code that is kept between processes


def folder() -> Path:
    """Of machine code: the user's cache, ``$XDG_CACHE_HOME/temporeal/code`` (``~/.cache/...``). May be deleted."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "temporeal" / "code"


def key(text: str, passes: Sequence[str]) -> str:
    """The name of the machine code of ``text``: whatever it depends on."""
    parts = (llvmlite.__version__, llvm.llvm_version_info, llvm.get_default_triple(), llvm.get_host_cpu_name(),
             features(), sorted(OPTIONS.items()), *passes, text)
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()


def kept(place: Path) -> bytes | None:
    """The code in file ``place``; None where there is none, it is not whole, or another user can write there.

    A file begins with the digest of the rest.
    """
    with suppress(OSError):
        home = place.parent.stat()
        if home.st_uid == os.getuid() and not home.st_mode & 0o022:
            content = place.read_bytes()
            if hashlib.sha256(content[DIGEST:]).digest() == content[:DIGEST]:
                os.utime(place)
                return content[DIGEST:]
    return None


def keep(place: Path, code: bytes) -> None:
    """Write ``code`` to file ``place``, whole or not at all, and delete what was not used for longest.

    A disk that is full, or a home that cannot be written to, costs the next process the time to compile, no more.
    """
    with suppress(OSError):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = place.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
        try:
            part.write_bytes(hashlib.sha256(code).digest() + code)
            part.replace(place)
        finally:
            part.unlink(missing_ok=True)
        files = sorted(place.parent.iterdir(), key=lambda file: file.stat().st_mtime)
        for old in files[:-MOST]:
            old.unlink(missing_ok=True)
