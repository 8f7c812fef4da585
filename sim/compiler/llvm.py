"""LLVM text compiled to a function for this processor; its machine code is kept between processes."""

from __future__ import annotations

import ctypes
import ctypes.util
import hashlib
import os
import re
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numpy as np

LANES = 16  # numbers side by side: one AVX-512 register, two of AVX2, four of NEON
FLOATS = f"<{LANES} x float>"
INTEGERS = f"<{LANES} x i32>"
BITS, BYTES = f"<{LANES} x i1>", f"<{LANES} x i8>"
OPTIONS: dict[str, Any] = {"opt": 2, "codemodel": "jitdefault", "jit": True}  # of the code generator
SPEED = 2  # of the optimizer, where passes are asked for
NAME = re.compile("[0-9a-f]{64}")  # of a file of machine code
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
    """The compiled ``entry``, which releases Python's lock, and the engine that keeps its code alive.

    Machine code is kept in :func:`folder`: a kernel of a large task takes seconds to make.

    Args:
        text: an LLVM module.
        arguments: ctypes of the parameters; nothing is returned.
        library: functions of the C mathematics library that the text declares.
        passes: of llvmlite's pass manager, by name, before code is generated.
    """
    for name in library:
        llvm.add_symbol(name, _library_address(name))
    place, name = folder(), key(text, passes)
    code = None if place is None else kept(place, name)
    if code is None:
        code = machine_code(text, passes)
        if place is not None:
            keep(place, name, code)
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
        options = llvm.create_pipeline_tuning_options(speed_level=SPEED)
        manager.run(module, llvm.create_pass_builder(machine, options))
    return bytes(machine.emit_object(module))


# ---------------------------------------------------------------- code that is kept between processes


def folder() -> Path | None:
    """Folder of machine code: ``$XDG_CACHE_HOME/temporeal/code`` (``~/.cache/...``). May be deleted.

    None for a user without a home.
    """
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        cache = given if given.is_absolute() else Path.home() / ".cache"  # an absolute path, by its specification
    except RuntimeError:
        return None
    return cache / "temporeal" / "code" if cache.is_absolute() else None


def key(text: str, passes: Sequence[str]) -> str:
    """The name of the machine code of ``text``: a digest of all it depends on."""
    parts = (llvmlite.__version__, llvm.llvm_version_info, llvm.get_default_triple(), llvm.get_host_cpu_name(),
             features(), sorted(OPTIONS.items()), SPEED, *passes, text)
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()


@contextmanager
def own(place: Path) -> Iterator[int]:
    """A descriptor of folder ``place``, which belongs to this user and which no other user can write to.

    Files are opened relative to it, because the path may come to name another folder meanwhile.

    Raises:
        OSError: it is not there, or another user could put something there.
    """
    opened = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(opened)
        if found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise PermissionError(f"{place} is not this user's alone")
        yield opened
    finally:
        os.close(opened)


def kept(place: Path, name: str) -> bytes | None:
    """The code called ``name`` in folder ``place``; None where it is missing, damaged or another user's (:func:`own`).

    A file begins with the digest of the rest.
    """
    with suppress(OSError), own(place) as home:
        with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=home), "rb") as file:
            content = file.read()
        if hashlib.sha256(content[DIGEST:]).digest() == content[:DIGEST]:
            with suppress(OSError):  # a read-only medium can still be read
                os.utime(name, dir_fd=home)
            return content[DIGEST:]
    return None


def keep(place: Path, name: str, code: bytes) -> None:
    """Write ``code`` to file ``name`` of folder ``place``, whole or not at all; delete what was not used for longest.

    Where the disk is full or read-only, the next process compiles again.
    """
    part = f"{name}.{os.getpid()}.{threading.get_ident()}"
    with suppress(OSError):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        with own(place) as home:
            try:
                with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=home), "wb") as file:
                    file.write(hashlib.sha256(code).digest() + code)
                os.rename(part, name, src_dir_fd=home, dst_dir_fd=home)
            except BaseException:
                with suppress(OSError):
                    os.unlink(part, dir_fd=home)
                raise
            names = [other for other in os.listdir(home) if NAME.fullmatch(other)]
            if len(names) > MOST:
                names.sort(key=lambda other: os.stat(other, dir_fd=home, follow_symlinks=False).st_mtime)
                for old in names[:-MOST]:
                    os.unlink(old, dir_fd=home)
