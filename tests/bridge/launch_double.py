"""A double of the parts of ROS 2's `launch` and `launch_ros` that our launch files use: strict about names and types.

Not ROS: what it cannot tell is told by test_ros2_flights.py, where a ROS 2 is sourced.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any


@dataclass
class DeclareLaunchArgument:
    name: str
    default_value: str | None = None
    description: str = ""


@dataclass
class OpaqueFunction:
    function: Any


@dataclass
class Shutdown:
    reason: str


@dataclass
class LaunchConfiguration:
    name: str

    def perform(self, context: Mapping[str, str]) -> str:
        return context[self.name]


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
    on_exit: Shutdown | Callable[[Any, Any], Shutdown | None] | None


MODULES = {
    "launch": {"LaunchDescription": LaunchDescription},
    "launch.actions": {"DeclareLaunchArgument": DeclareLaunchArgument, "OpaqueFunction": OpaqueFunction,
                       "Shutdown": Shutdown},
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
    """The nodes that `ros2 launch path name:=value ...` starts. Unknown or missing arguments are errors, as there."""
    spec = importlib.util.spec_from_file_location(path.name.partition(".")[0] + "_launch", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with in_place():
        spec.loader.exec_module(module)
        description = module.generate_launch_description()
        declared = [entity for entity in description.entities if isinstance(entity, DeclareLaunchArgument)]
        values = {argument.name: argument.default_value for argument in declared}
        values |= {name: str(value) for name, value in given.items()}
        assert set(values) == {argument.name for argument in declared}, "an argument that is not declared"
        assert None not in values.values(), "an argument that must be given"
        return [node for entity in description.entities if isinstance(entity, OpaqueFunction)
                for node in entity.function(values)]
