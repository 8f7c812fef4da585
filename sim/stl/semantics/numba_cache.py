"""numba's cache on disk looks at one source file: names that change with several. Standard library only."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any


def named_by_sources(function: Callable[..., Any], *modules: ModuleType) -> None:
    """Append a digest of the sources of ``modules`` to the qualified name of ``function``, before numba compiles it.

    numba finds compiled code by the function's qualified name and the time stamp of its own file. Without this, code of
    other files that is compiled into it would stay in the cache after a change.
    """
    digest = sha256()
    for module in modules:
        digest.update(Path(str(module.__file__)).read_bytes())
    function.__qualname__ = f"{function.__name__}_{digest.hexdigest()[:12]}"
