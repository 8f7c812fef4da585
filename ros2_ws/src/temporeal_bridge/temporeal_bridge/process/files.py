"""Files that nodes leave: JSON summaries, written whole or not at all, under names that overwrite nothing."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def plain(value: Any) -> Any:
    """``value`` as JSON has it: numpy numbers as numbers, infinities and NaN as null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file whole or not at all."""
    text = json.dumps(plain(content), indent=2, allow_nan=False) + "\n"
    with whole(path) as part:
        part.write_text(text)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary file beside ``path`` that is renamed to ``path`` on success and removed otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield part
        part.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        part.unlink(missing_ok=True)


def fresh(path: Path) -> Path:
    """``path``, or the first of ``path-2``, ``path-3``, ... that does not exist: earlier flights are kept."""
    number, out = 1, path
    while out.exists():
        number += 1
        out = path.with_name(f"{path.name}-{number}")
    return out
