"""One source, several targets: bind plain scalar functions to a compiler and a float type.

Physics and random numbers are written once, as Python functions of scalars whose constants are module-level names.
:func:`instantiate` copies such a module's functions into a fresh namespace, where every constant has the
wanted float type (a bare ``0.5`` would promote float32 arithmetic to float64) and every function is compiled, so that
functions that call each other find the compiled ones. The module itself stays plain Python in float64.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any


def instantiate(
    module: ModuleType, jit: Callable[..., Any], real: Callable[[float], Any], /, **replaced: Any
) -> SimpleNamespace:
    """The functions of ``module`` named in its ``SCALAR_FUNCTIONS`` (callees first), compiled with ``jit``.

    Args:
        module: its float constants are converted by ``real``; everything else is taken as it is.
        jit: decorator, for example ``numba.njit(...)`` or ``numba.cuda.jit(device=True)``.
        real: float type of the constants, for example ``numpy.float32``.
        replaced: other globals, or functions, by name that this target needs in another form.
    """
    space: dict[str, Any] = {
        name: real(value) if type(value) is float else value for name, value in vars(module).items()
    }
    space.update(replaced)
    compiled = {}
    for name in module.SCALAR_FUNCTIONS:
        if name in replaced:
            compiled[name] = replaced[name]
            continue
        plain = getattr(module, name)
        bound = FunctionType(plain.__code__, space, name, plain.__defaults__)
        bound.__module__ = module.__name__
        bound.__doc__ = plain.__doc__
        bound.__qualname__ = plain.__qualname__
        compiled[name] = space[name] = jit(bound)
    return SimpleNamespace(**compiled)


def fingerprint(*modules: ModuleType) -> str:
    """A digest of the source of ``modules``.

    numba's cache on disk notices a change of the file that holds a kernel, not of the files it calls into. A kernel
    that closes over this digest is recompiled when one of them changes.
    """
    digest = hashlib.sha256()
    for module in modules:
        digest.update(Path(str(module.__file__)).read_bytes())
    return digest.hexdigest()
