"""Settings files: reading and writing them, and file and line of what is wrong with one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.settings.folders import file_of, groups, own_folders
from temporeal.policies.runs.settings.handed_over import checked
from temporeal.policies.runs.settings.renamed import with_current_names
from temporeal.robots.handed_over.files import Refused, read_text
from temporeal.robots.handed_over.texts import Dumper, from_yaml

Settings = dict[str, Any]
"""The composed configuration as plain data. Every group's part has its choice under ``name``."""


def refused(error: Exception, overrides: Sequence[str]) -> BadInput:
    """The error for an ``error`` while files were read or composed, with file and line where known."""
    import yaml

    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return BadInput(f"{error.problem_mark.name}, {not_yaml(error)}")
    asked = [file_of(*text.partition("=")[::2]) for text in overrides if text.partition("=")[0] in groups()]
    others = [path for folder in own_folders() for path in sorted(folder.rglob("*.yaml"))]
    for path in [path for path in asked if path is not None] + others:
        if found := flaw(path):
            return BadInput(f"{path}, {found}")
    key = getattr(error, "full_key", None)
    if not key:
        return BadInput(f"configuration: {error}")
    return BadInput(f"{place_of(key, overrides)}{str(error).partition(chr(10))[0]} (in {key})")


def not_yaml(error: Any) -> str:
    """Line and cause of a YAML error."""
    detail = ", ".join(part for part in (error.context, error.problem) if part)
    return f"line {error.problem_mark.line + 1}: this is not YAML: {detail}"


def flaw(path: Path) -> str:
    """Line and cause of the first fault in a file of settings; empty if there is none."""
    import yaml
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        return not_yaml(error) if error.problem_mark is not None else f"this is not YAML: {error}"
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        return f"this cannot be read: {error}"
    if node is not None and not isinstance(node, yaml.MappingNode):
        return f"line {node.start_mark.line + 1}: settings are lines `key: value`"
    for scalar in scalars(node):
        try:
            OmegaConf.create({"value": scalar.value})
        except OmegaConfBaseException as error:
            return f"line {scalar.start_mark.line + 1}: {str(error).partition(chr(10))[0]}"
    return ""


def scalars(node: Any) -> Iterator[Any]:
    """All single values of a YAML node."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        for _, value in node.value:
            yield from scalars(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from scalars(value)
    elif node is not None:
        yield node


def place_of(key: str, overrides: Sequence[str]) -> str:
    """``FILE, line N: `` of a dotted ``key`` in the file of the option that ``overrides`` choose for its group; the
    file without a line where it stands elsewhere, and nothing where none is chosen."""
    import yaml

    group, *path = key.split(".")
    chosen = [text.partition("=")[2] for text in overrides if text.startswith(f"{group}=")]
    file = file_of(group, chosen[-1]) if chosen else None
    if file is None:
        return "configuration: "
    node: Any = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    for part in path:
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        node = next((value for name, value in pairs if name.value == part), None)
    return f"{file}: " if node is None else f"{file}, line {node.start_mark.line + 1}: "


def write(settings: Mapping[str, Any], path: Path) -> None:
    """Save the full configuration as YAML."""
    from temporeal.robots.atomic_files import write_whole

    write_whole(path, as_yaml(settings).encode())


def read(path: Path) -> Settings:
    """A configuration that :func:`write` saved, as one that was handed over
    (:mod:`temporeal.policies.runs.settings.handed_over`)."""
    import yaml

    try:
        loaded = from_yaml(read_text(path, within=path.parent), str(path))
    except (OSError, yaml.YAMLError) as error:
        raise BadInput(f"cannot read the settings in {path}: {error}") from error
    except Refused as error:
        raise BadInput(str(error)) from error
    if not isinstance(loaded, dict):
        raise BadInput(f"{path} holds no settings")
    return checked(with_current_names(loaded), str(path))


def as_yaml(settings: Mapping[str, Any]) -> str:
    """The configuration as YAML text."""
    import yaml

    text: str = yaml.dump(dict(settings), Dumper=Dumper, sort_keys=False)
    return text
