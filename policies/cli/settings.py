"""Settings: Hydra's compose API over the package ``configs``, with errors that name the legal choices."""

from __future__ import annotations

import copy
import difflib
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs.errors import BadInput
from temporeal.robots.model_files import is_file

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig

Settings = dict[str, Any]
"""The composed configuration as plain data. Every group's part has its choice under ``name``."""

AUTO, AUTOMATIC = "auto", ("robot", "backend", "randomize")
"""The option of these groups that stands for the one which the task's own file names."""

OF_TASK = ("name", "title", "robot", "backend", "randomize", "num_worlds", "settings", "explore")
"""What the file of a task may say: its module in ``temporeal.sim.tasks``; how runs are titled, where not by the file's
name; the
groups that come with it; how many worlds suit it; what its ``make`` takes; the share of starts in mid-mission."""

WORLDS = 2048
"""``num_worlds``, where neither the task's file says how many suit it, nor an experiment, nor the command line."""

OWN_ROBOT = ("a task is written for one robot, so a robot comes with its task: leave robot out. For a robot of your "
             "own write a task, docs/how-to/adding-a-robot.md has a whole one")

OPEN = ("task.settings", "randomize.parameters", "randomize.sensors", "randomize.pushes", "randomize.cameras",
        "curriculum.parameters", "cameras", "augment")
"""Where keys may be added: what reads them (a task's ``make``, the randomization) knows the legal ones."""

DISTRIBUTION = ("kind", "shared", "components", "when", "optional", "scale", "low", "high", "std", "mean", "by",
                "values", "weights", "value")
DOTTED = {"randomize.parameters": DISTRIBUTION, "randomize.cameras": DISTRIBUTION,
          "curriculum.parameters": ("of", "as", "low", "high", "log", "first", "components")}
"""Places where names have dots (``cube.mass``), and the keys that what has such a name takes: they end the name."""

FOLDERS = "TEMPOREAL_CONFIGS"
"""Environment variable: folders of the user's own configuration files, by group, such as
``<folder>/randomize/lab.yaml``; several are separated as in PATH."""

PART = r'''"[^"]*"|'[^']*'|[^.'"]+'''


def groups() -> dict[str, list[str]]:
    """Configuration groups and their options, read from the folders (no hydra: completion must be quick)."""
    found = options_in(Path(str(files("temporeal.configs"))))
    for folder in own_folders():
        for group, options in options_in(folder).items():
            if group in found:
                found[group] = sorted({*found[group], *options})
    return found


def options_in(root: Path) -> dict[str, list[str]]:
    """The groups below ``root`` and their options; those in folders of a group have the folder in their name."""
    return {
        folder.name: sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml"))
        for folder in sorted(root.iterdir() if root.is_dir() else ())
        if folder.is_dir() and not folder.name.startswith(("_", "."))
    }


def own_folders() -> list[Path]:
    """The user's folders of configuration files: see :data:`FOLDERS`."""
    return [Path(text).expanduser().absolute() for text in os.environ.get(FOLDERS, "").split(os.pathsep) if text]


def file_of(group: str, option: str) -> Path | None:
    """The file of an option, of the package or of the user's; None where there is none."""
    places = [Path(str(files("temporeal.configs"))), *own_folders()]
    return next((path for folder in places if (path := folder / group / f"{option}.yaml").is_file()), None)


def check_folders() -> None:
    """The user's folders are there and hold nothing that would silently be left out."""
    known = options_in(Path(str(files("temporeal.configs"))))
    for folder in own_folders():
        if not folder.is_dir():
            raise BadInput(f"{FOLDERS}: there is no folder {folder}")
        if loose := sorted(path.name for path in folder.glob("*.yaml")):
            raise BadInput(f"{folder / loose[0]}: a file of settings lies in the folder of its group; groups: "
                           f"{', '.join(known)}")
        for group, options in options_in(folder).items():
            if group not in known and options:
                raise BadInput(f"{folder / group}: there is no group {group!r}{hint(group, list(known))}; groups: "
                               f"{', '.join(known)}")
            if taken := [option for option in options if option in known.get(group, ())]:
                raise BadInput(f"{folder / group / taken[0]}.yaml: {group}={taken[0]} is there already; give "
                               "it another name")
            known.get(group, []).extend(options)


def compose(overrides: Sequence[str] = ()) -> Settings:
    """The configuration with ``overrides`` such as ``task=hover`` or ``algo.learning_rate=1e-3``.

    Raises :class:`BadInput` for an unknown group, option or key, for a value of another type than the one it
    replaces, and for what is not of the form key=value.
    """
    check_folders()
    opened, others = divided(overrides)
    parsed = [parse_override(text) for text in others]
    known = groups()
    for override in parsed:
        check_form(override)
        if override.key_or_group in known:
            check_option(override.key_or_group, override.value(), known)
    automatic_worlds = [o for o in parsed if o.key_or_group == "num_worlds" and o.value() == AUTO]
    parsed = [o for o in parsed if not any(o is other for other in automatic_worlds)]
    base = _compose([str(o.input_line) for o in parsed if o.key_or_group in known])
    automatic = [group for group in AUTOMATIC if base[group]["name"] == AUTO]
    check_task(base["task"], automatic, [str(o.value()) for o in parsed if o.key_or_group == "task"],
               base.get("experiment"))
    check_own_options(base["task"], automatic, [str(o.value()) for o in parsed if o.key_or_group == "task"], known)
    lines = [f"{group}={base['task'][group]}" for group in automatic if not is_file(str(base["task"][group]))]
    worlds = own_worlds(base["task"])
    if automatic_worlds or base["num_worlds"] == AUTO:
        lines.append(f"num_worlds={worlds}")
    parsed = [o for o in parsed if o.key_or_group not in automatic]
    base = _compose([*lines, *[str(o.input_line) for o in parsed if o.key_or_group in known]])
    own_worlds(base["task"])
    for override in parsed:
        if override.key_or_group not in known:
            check_value(override.key_or_group, override.value(), base)
        lines.append(str(override.input_line))
    settings = _compose(lines, opened)
    own_worlds(settings["task"])
    return titled(checked_robot(settings), [o.value() for o in parsed if o.key_or_group == "task"])


def check_task(
    task: object, automatic: Sequence[str], chosen: Sequence[str], experiment: str | None = None
) -> None:
    """The task's file says what is taken from it, nothing else, and names a task that there is. So does what an
    ``experiment`` makes of it."""
    file = file_of("task", chosen[-1]) if chosen else None
    said = task if isinstance(task, Mapping) else {}
    missing = [group for group in automatic if group not in said]
    if missing:
        if file is not None and (found := flaw(file)):
            raise BadInput(f"{file}, {found}")
        raise BadInput(f"{file or 'task'}: the file of a task says {', '.join(f'{group}: ...' for group in missing)}; "
                       "docs/how-to/learning-formulas.md has a whole one")
    for key in said:
        if key not in OF_TASK:
            place = place_of(f"task.{key}", [f"task={option}" for option in chosen])
            if experiment is not None and ", line " not in place:  # no file that was chosen says it
                place = f"{file_of('experiment', experiment)}: "
            raise BadInput(f"{place}the file of a task has no setting {key!r}{hint(str(key), OF_TASK)}; legal: "
                           f"{', '.join(OF_TASK)}")
    if not isinstance(said.get("settings", {}), Mapping | None):
        raise BadInput(f"{file or 'task'}: settings is {said['settings']!r}; legal: a group, settings: {{system: ...}}")
    check_name(str(said.get("name")), str(file or "task"))


def check_own_options(
    task: Mapping[str, Any], automatic: Sequence[str], chosen: Sequence[str], known: Mapping[str, list[str]]
) -> None:
    """What the task's file says of the groups that are ``automatic`` are options that there are."""
    for group in automatic:
        option = str(task[group])
        if option not in known[group] and not is_file(option):
            place = place_of(f"task.{group}", [f"task={name}" for name in chosen])
            raise BadInput(f"{place}{group}: {option}: {one_of(group, option, known)}")


def check_name(name: str, file: str) -> None:
    """The task's ``name`` is a module of ``temporeal.sim.tasks``; a file that says none has its own for it."""
    from temporeal.robots.registry import names

    known = names("temporeal.sim.tasks")
    if name in known:
        return
    if (unnamed := file_of("task", name)) is not None:
        raise BadInput(f"{unnamed}: the file of a task says name: ..., which task of temporeal.sim.tasks it is: name: stl for "
                       f"one that is a formula; known: {', '.join(known)}")
    raise BadInput(f"{file}: there is no task {name!r}{hint(name, known)}; known: {', '.join(known)}")


def own_worlds(task: Settings) -> int:
    """How many worlds suit ``task``, as its file says it; taken out: how many there are is the settings' to say."""
    worlds = task.pop("num_worlds", WORLDS)
    if isinstance(worlds, bool) or not isinstance(worlds, int) or worlds < 1:
        raise BadInput(f"the file of task {task['name']!r} says num_worlds: {worlds!r}; a whole number from 1")
    return worlds


def titled(settings: Settings, chosen: Sequence[Any]) -> Settings:
    """``settings`` whose task has a title, where its file lies in a folder: many such files have one task's name."""
    if chosen and "/" in str(chosen[-1]):
        settings["task"].setdefault("title", str(chosen[-1]).replace("/", "-"))
    return settings


def checked_robot(settings: Settings) -> Settings:
    """``settings``, if the robot is the one that the task is for; a task may be for a user's file."""
    robot, task = settings["robot"]["name"], settings["task"]
    if robot == AUTO and is_file(str(task["robot"])):
        return {**settings, "robot": {"name": task["robot"]}}
    if robot != task.get("robot", robot):
        raise BadInput(f"robot={robot}: task {task['name']} is for robot {task['robot']}; leave robot out")
    return settings


def override(settings: Settings, overrides: Sequence[str]) -> Settings:
    """Saved ``settings`` with ``overrides``: a group's word replaces the group, a dotted key one value in it."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    check_folders()
    opened, others = divided(overrides)
    known, out = groups(), copy.deepcopy(settings)
    for word in [parse_override(text) for text in others]:
        check_form(word)
        key, value = word.key_or_group, word.value()
        if key == "experiment":
            raise BadInput(f"{key}={value}: an experiment is what a run starts with; change single settings here")
        if key in known:
            check_option(key, value, known)
            out[key] = _compose([str(word.input_line)])[key]
            if key == "task":
                check_task(out[key], (), [str(value)])
                own_worlds(out[key])
            continue
        check_value(key, value, out)
        node = out
        *path, last = key.split(".")
        for part in path:
            node = node[part]
        node[last] = value
    config = OmegaConf.create(out)
    for added in opened:
        put(config, added)
    try:
        return _plain(config)
    except OmegaConfBaseException as error:
        raise refused(error, overrides) from error


@dataclass(frozen=True)
class Opened:
    """A word ``text`` that sets what is below one of :data:`OPEN`: the keys ``path`` from the top, and the value."""

    text: str
    path: tuple[str, ...]
    value: Any


def divided(words: Sequence[str]) -> tuple[list[Opened], list[str]]:
    """The words that set what is below :data:`OPEN`, and the others, each in their order."""
    found = [(text, open_word(text)) for text in words]
    return [word for _, word in found if word is not None], [text for text, word in found if word is None]


def open_word(text: str) -> Opened | None:
    """``text``, if it sets what is below one of :data:`OPEN`.

    Where names have dots (:data:`DOTTED`), all is the name up to a key of what has the name:
    ``randomize.parameters.cube.mass.low=0.5`` sets ``low`` of ``cube.mass``. A name in quotes is as it stands.
    """
    key, sign, value = text.partition("=")
    place = next((place for place in OPEN if key.startswith(f"{place}.")), None)
    if place is None or not sign:
        return None
    rest = key.removeprefix(f"{place}.").strip()
    if not re.fullmatch(rf"(?:{PART})(?:\.(?:{PART}))*", rest):
        raise BadInput(f"{text!r}: {rest} is not a name; write {place}.<name>=<value>, a name with a special character "
                       f"in quotes")
    parts = [part.strip() for part in re.findall(PART, rest)]
    if place in DOTTED and parts[0][0] not in "\"'":
        end = next((i for i, part in enumerate(parts) if i and part in DOTTED[place]), len(parts))
        parts = [".".join(parts[:end]), *parts[end:]]
    parsed = parse_override(f"value={value}", text)
    if parsed.is_sweep_override():
        raise sweep(text)
    return Opened(text, (*place.split("."), *(part.strip("\"'") for part in parts)), parsed.value())


def put(config: DictConfig, word: Opened) -> None:
    """Set what ``word`` says; of a mapping, the keys that it has."""
    from omegaconf import DictConfig, OmegaConf

    node = config
    *path, last = word.path
    for part in path:
        if part not in node or node[part] is None:
            node[part] = {}
        node = node[part]
        if not isinstance(node, DictConfig):
            raise BadInput(f"{word.text!r}: {part} is {kind(node)}, not a group of settings")
    old = node[last] if last in node else None
    both = isinstance(old, DictConfig) and isinstance(word.value, Mapping)
    node[last] = OmegaConf.merge(old, word.value) if both else word.value


def section(name: str, overrides: Sequence[str]) -> Settings:
    """The part ``name`` of the configuration, for a command that reads nothing else of it.

    Raises :class:`BadInput` as :func:`compose` does, and for an override of another part: it would be ignored.
    """
    found: Settings = compose(overrides)[name]
    for text in overrides:
        key = text.partition("=")[0]
        if key.partition(".")[0] not in (name, "experiment"):
            raise BadInput(f"{text}: of the settings only those of {name!r} are read here, such as "
                           f"{name}.{next(iter(found))}=...; an option of the command would be written --{key}")
    return found


def parse_override(line: str, text: str = "") -> Override:
    """One override in Hydra's grammar; ``text``: what the user wrote, if not that."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_override(line)
    except HydraException as error:
        raise BadInput(f"{text or line!r} is not a setting: {how_to_write(text or line)}") from error


def how_to_write(text: str) -> str:
    """What the user may have meant by ``text``, which is not in Hydra's grammar."""
    key, sign, value = text.partition("=")
    if not sign or not key:
        return "write key=value, as in task=hover or seed=2"
    first = value.strip()[:1]
    if first in ("[", "{"):
        return f"a list is written {key}=[1,2], a group of settings {key}={{low: 1, high: 2}}: close its bracket"
    if first in ('"', "'"):
        return f"what begins with a quote ends with it, {key}={first}...{first}, and a quote in between is \\{first}"
    word = quoted(text)
    if not word:
        return "write key=value, as in task=hover or seed=2"
    return f"a text with brackets, commas or signs stands in quotes, and the word in others for the shell: write {word}"


def quoted(text: str) -> str:
    """``key=value`` for the shell, its value in the quotes that the grammar wants; "" if that is no setting either.

    What every task takes is put below ``task.settings``, where it is set.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    key, _, value = text.partition("=")
    key = re.sub(r"^task\.(?=(formula|constants|reward)\b)", "task.settings.", key)
    escaped = re.sub(r'(\\*)("|$)', lambda m: 2 * m[1] + (r'\"' if m[2] else ""), value)
    # names below OPEN are not of the grammar: `open_word` has checked them
    plain = "key" if key.startswith(tuple(f"{place}." for place in OPEN)) else key
    try:
        same = OverridesParser.create().parse_override(f'{plain}="{escaped}"').value() == value
    except HydraException:
        return ""
    return shlex.quote(f'{key}="{escaped}"') if same else ""


def check_form(override: Override) -> None:
    """One value for one existing key: nothing added, deleted or swept."""
    text = override.input_line
    if override.is_add() or override.is_force_add() or override.is_delete():
        raise BadInput(f"{text!r}: settings are changed, not added or deleted; write key=value")
    if override.key_or_group in OPEN:
        raise BadInput(f"{text!r}: set what is below {override.key_or_group}, one word each: "
                       f"{override.key_or_group}.<name>=<value>")
    if override.is_sweep_override():
        raise sweep(str(text))


def sweep(text: str) -> BadInput:
    """What to say of several values, be it that a text has a comma in it or begins like a function of Hydra's."""
    word = quoted(text)
    return BadInput(f"{text!r} is a sweep: give one value; for a list write key=[1,2]"
                    + (f", for a text {word}" if word else ""))


def check_option(group: str, option: object, known: Mapping[str, list[str]]) -> None:
    """``option`` is a file of ``group``; the experiment may be none."""
    if group == "experiment" and option is None:
        return
    if str(option) not in known[group]:
        own = f"; {OWN_ROBOT}" if group == "robot" else ""
        raise BadInput(f"{group}={option}: {one_of(group, str(option), known)}{own}")


def one_of(group: str, option: str, known: Mapping[str, list[str]]) -> str:
    """The options of ``group``, and what ``option`` may have been meant to be."""
    return f"{group} is one of {', '.join(known[group]) or 'none yet'}{hint(option, known[group])}"


def check_value(key: str, value: object, base: Mapping[str, Any]) -> None:
    """``key`` (dotted) exists in ``base`` and holds the same kind of value."""
    group, _, rest = key.partition(".")
    if (group, rest) == ("robot", "name"):
        raise BadInput(f"{key}={value}: {OWN_ROBOT}")
    if rest == "name" and isinstance(base.get(group), Mapping):
        raise BadInput(f"{key}={value}: choose with {group}={value}, so that its settings come along")
    node: Any = base
    path: list[str] = []
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            place = f"{'.'.join(path)} has" if path else "there is"
            legal = list(node) if isinstance(node, Mapping) else []
            told = f"legal: {', '.join(map(str, legal))}{hint(part, legal)}" if legal else "it is a single value"
            if path == ["task"]:
                told += f"; what the task itself takes is set below task.settings: task.settings.{rest}=<value>"
            raise BadInput(f"{key}={value}: {place} no setting {part!r}; {told}")
        node = node[part]
        path.append(part)
    # null is for what is null by default; the learner's own settings are checked against its configuration class
    if not same_kind(node, value) or (value is None and node is not None and group != "algo"):
        raise BadInput(f"{key}={value}: expected {kind(node)} as in {key}={shown(node)}, got {kind(value)}")


def same_kind(old: object, new: object) -> bool:
    """Whether ``new`` may replace ``old``: null takes and is taken by all, an int passes for a float."""
    if old is None or new is None:
        return True
    if isinstance(old, bool) or isinstance(new, bool):
        return isinstance(old, bool) and isinstance(new, bool)
    if isinstance(old, (int, float)) and isinstance(new, (int, float)):
        return isinstance(old, float) or isinstance(new, int)
    return kind(old) == kind(new)


def kind(value: object) -> str:
    """A value's kind in the user's words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int):
        return "a whole number"
    if isinstance(value, float):
        return "a number"
    if isinstance(value, (list, tuple)):
        return "a list"
    return "a group of settings" if isinstance(value, Mapping) else "a word"


def shown(value: object) -> str:
    """A value as one would write it on the command line."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{k}:{shown(v)}" for k, v in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value).replace(" ", "")


def hint(word: str, legal: Sequence[Any]) -> str:
    """``; did you mean ...?`` where something is close."""
    close = difflib.get_close_matches(word, [str(x) for x in legal], 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _compose(overrides: Sequence[str], opened: Sequence[Opened] = ()) -> Settings:
    """What Hydra makes of ``overrides``, then of ``opened``."""
    if opened or own_folders():
        return _composed(overrides, opened)
    return copy.deepcopy(_of_package(tuple(overrides)))


@lru_cache(maxsize=64)
def _of_package(overrides: tuple[str, ...]) -> Settings:
    """Of the package's files alone, which stay as they are while a process lasts: Hydra takes a sixth of a second."""
    return _composed(overrides)


def _composed(overrides: Sequence[str], opened: Sequence[Opened] = ()) -> Settings:
    import yaml
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    places = ",".join("'file://" + str(folder).replace("'", r"\'") + "'" for folder in own_folders())
    theirs = GlobalHydra.instance().hydra  # an application that uses us may hold its own
    GlobalHydra.instance().clear()
    try:
        with initialize_config_module("temporeal.configs", version_base="1.3"):
            config = hydra_compose("config", [*overrides, f"hydra.searchpath=[{places}]"], return_hydra_config=True)
            choices = dict(config.hydra.runtime.choices)
            OmegaConf.set_struct(config, False)
            del config["hydra"]
            for word in opened:
                put(config, word)
            settings = _plain(config)
    except (HydraException, OmegaConfBaseException, yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise refused(error, overrides) from error
    finally:
        GlobalHydra.instance().hydra = theirs
    return with_names(settings, choices)


def refused(error: Exception, overrides: Sequence[str]) -> BadInput:
    """What to say of an ``error`` while files were read or put together: file and line, where they can be told."""
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
    """Line and cause of an error that YAML found."""
    told = ", ".join(part for part in (error.context, error.problem) if part)
    return f"line {error.problem_mark.line + 1}: this is not YAML: {told}"


def flaw(path: Path) -> str:
    """Line and cause of what is wrong with a file of settings, whatever the others are; empty where nothing is."""
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


def _plain(config: DictConfig) -> Settings:
    from omegaconf import OmegaConf

    settings = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(settings, dict)
    return {str(key): value for key, value in settings.items()}


def with_names(settings: Settings, choices: Mapping[str, str]) -> Settings:
    """``settings`` with each group's choice under ``<group>.name``."""
    named = {
        key: {"name": choices[key], **value} if key in choices and isinstance(value, dict) else value
        for key, value in settings.items()
    }
    if choices.get("experiment") is not None:
        named["experiment"] = choices["experiment"]
    return named


def of_group(settings: Mapping[str, Any], group: str) -> Settings:
    """A group's own settings, without its name: what its module takes as keywords."""
    return {key: value for key, value in (settings.get(group) or {}).items() if key != "name"}


def write(settings: Mapping[str, Any], path: Path) -> None:
    """Save the full configuration as YAML."""
    from temporeal.robots.atomic_files import write_whole

    write_whole(path, as_yaml(settings).encode())


def read(path: Path) -> Settings:
    """A configuration that :func:`write` saved."""
    import yaml

    try:
        loaded = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise BadInput(f"cannot read the settings in {path}: {error}") from error
    if not isinstance(loaded, dict):
        raise BadInput(f"{path} holds no settings")
    return loaded


def as_yaml(settings: Mapping[str, Any]) -> str:
    """The configuration as YAML text."""
    import yaml

    text: str = yaml.safe_dump(dict(settings), sort_keys=False)
    return text


if __name__ == "__main__":
    print(as_yaml(compose(sys.argv[1:])))
