"""A double of the parts of ROS 2's `launch` and `launch_ros` that our launch files use: strict about names and types.

Not ROS: what it cannot tell is told by test_ros2_flights.py, where a ROS 2 is sourced.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any


class Context:
    """What is given on the command line and declared; others' names may be among them. ``failed``: what made launch's
    exit status 1 (its loop has a handler of exceptions that does)."""

    def __init__(self, values: Mapping[str, str], is_shutdown: bool = False) -> None:
        self.launch_configurations, self.is_shutdown = dict(values), is_shutdown
        self.failed: list[str] = []
        self.asyncio_loop = SimpleNamespace(
            call_exception_handler=lambda context: self.failed.append(context["message"]))


@dataclass
class DeclareLaunchArgument:
    name: str
    default_value: str | None = None
    description: str = ""

    def __post_init__(self) -> None:
        texts(self.name, self.description, *[self.default_value] * (self.default_value is not None))


@dataclass
class OpaqueFunction:
    function: Any


@dataclass
class Shutdown:
    reason: str


@dataclass
class LaunchConfiguration:
    name: str

    def perform(self, context: Context) -> str:
        return context.launch_configurations[self.name]


@dataclass
class LaunchDescription:
    entities: Sequence[Any]


@dataclass(kw_only=True)
class Node:
    package: str
    executable: str
    name: str
    namespace: str
    output: str
    arguments: Sequence[str]
    parameters: Sequence[str | Mapping[str, Any]]
    remappings: Sequence[tuple[str, str]]
    sigterm_timeout: str
    on_exit: Callable[[Any, Context], Shutdown | None] | None

    def __post_init__(self) -> None:
        """What `launch_ros` refuses: a path, a number, None where text or a parameter's value is meant."""
        texts(self.package, self.executable, self.name, self.namespace, self.sigterm_timeout, *self.arguments)
        for old, new in self.remappings:
            texts(old, new)
        for given in self.parameters:
            texts(*(given if isinstance(given, Mapping) else [given]))
            assert not isinstance(given, Mapping) or all(
                isinstance(value, (bool, int, float, str)) for value in given.values()), given
        assert self.output in ("screen", "log", "both", "own_log", "full") and float(self.sigterm_timeout) > 0


def texts(*values: object) -> None:
    """`launch` takes text, and raises a TypeError for what else a program might hold."""
    wrong = [value for value in values if type(value) is not str]
    if wrong:
        raise TypeError(f"text is expected: {wrong}")


MODULES = {
    "launch": {"LaunchDescription": LaunchDescription},
    "launch.actions": {"DeclareLaunchArgument": DeclareLaunchArgument, "OpaqueFunction": OpaqueFunction,
                       "Shutdown": Shutdown},
    "launch.logging": {"get_logger": logging.getLogger},
    "launch.substitutions": {"LaunchConfiguration": LaunchConfiguration},
    "launch_ros": {}, "launch_ros.actions": {"Node": Node}}


@contextmanager
def in_place() -> Iterator[None]:
    """The double is what `import launch` finds."""
    before = {name: sys.modules.get(name) for name in MODULES}
    for name, content in MODULES.items():
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(content)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def launched(path: Path, **given: Any) -> list[Node]:
    """The nodes that `ros2 launch path name:=value ...` starts. As there, a missing argument is an error,
    an unknown one is none."""
    spec = importlib.util.spec_from_file_location(path.name.partition(".")[0] + "_launch", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with in_place():
        spec.loader.exec_module(module)
        description = module.generate_launch_description()
        context, nodes = Context({name: str(value) for name, value in given.items()}), []
        for entity in description.entities:
            if isinstance(entity, DeclareLaunchArgument):
                context.launch_configurations.setdefault(entity.name, entity.default_value)
                assert context.launch_configurations[entity.name] is not None, "an argument that must be given"
            else:
                nodes += entity.function(context) or []
        return nodes
