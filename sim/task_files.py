"""The modules that make tasks: those of ``sim/tasks``, and files that the user names."""

from __future__ import annotations

import importlib
import importlib.util
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from temporeal.robots.registry import resolve
from temporeal.robots.search_path import own_modules

FOREIGN = {"metaworld": "temporeal.sim.adapters.meta_world", "ogbench": "temporeal.sim.adapters.ogbench"}
"""Tasks of other libraries, by name, and the modules that make them: their environments are the simulator."""
_FILES: dict[str, ModuleType] = {}
"""Modules of users' task files, by file name: those that somebody named in this process, and no others."""


def read_task_file(file: Path) -> str:
    """Run a user's Python file with ``make() -> Task``; the name by which :func:`load_task` knows it from now on.

    Only whoever starts the process may name a file: what is read from a run folder or an artifact never does.
    """
    spec = importlib.util.spec_from_file_location(f"temporeal_task_{file.stem}", file)
    if file.suffix != ".py" or not file.is_file() or spec is None or spec.loader is None:
        raise ValueError(f"task={file}: there is no such Python file")
    module = importlib.util.module_from_spec(spec)
    with blamed_on(file.name):
        spec.loader.exec_module(module)
    if not callable(getattr(module, "make", None)):
        raise ValueError(f"task={file}: the file of a task has a function make() that returns a Task")
    _FILES[file.name] = module
    return file.name


@contextmanager
def blamed_on(name: str) -> Iterator[None]:
    """Inside, an error that code of the user's file ``name`` raises names the file and the line; no error of ours."""
    try:
        yield
    except Exception as error:
        if (told := in_task_file(error, [name])) is None:
            raise
        raise ValueError(told) from error


def in_task_file(error: Exception, names: Iterable[str] = _FILES.keys()) -> str | None:
    """``error`` with the line of the user's file in which it was raised; None: it is in none of ``names``."""
    files = [name for name in names if name.endswith(".py")]
    if isinstance(error, SyntaxError) and Path(error.filename or "").name in files:
        return f"{Path(error.filename or '').name}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).name in files]
    last = frames[-1] if frames else None
    return last and f"{Path(last.filename).name}, line {last.lineno}: {type(error).__name__}: {error}"


def settings_of(name: str) -> tuple[str, ...]:
    """What ``make`` of task ``name`` takes."""
    return tuple(task_module(name).make.__kwdefaults__ or ())


def for_robot(name: str, robot: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """``settings`` of task ``name``, with the ``robot`` where the task takes one and they name none."""
    return {"robot": robot, **settings} if "robot" in settings_of(name) else dict(settings)


def task_module(name: str) -> ModuleType:
    """The module that makes task ``name``: of ``sim/tasks``, of another library's adapter, or a file of the user's that
    was named in this process."""
    if name in FOREIGN:
        return importlib.import_module(FOREIGN[name])
    if not name.endswith(".py"):
        return resolve("temporeal.sim.tasks", name)
    if name not in _FILES and (own := own_modules("temporeal.sim.tasks").get(Path(name).stem)) is not None:
        read_task_file(own)  # the user's search path names it
    if name not in _FILES:
        raise ValueError(f"the task is a file of its user, {name}, and code of files runs only where you name it: if "
                         f"it is yours, or you have read it, add task=FOLDER/{Path(name).name}")
    return _FILES[name]
