"""Settings from command-line overrides: Hydra's compose API over the package ``temporeal.configs``."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.settings import own_randomization, own_tasks
from temporeal.policies.runs.settings.files import Settings, refused
from temporeal.policies.runs.settings.folders import check_folders, groups, own_folders
from temporeal.policies.runs.settings.overrides import Opened, check_form, divided, parse_override, put
from temporeal.policies.runs.settings.renamed import refuse_old_names
from temporeal.policies.runs.settings.robots import named_robot, with_robot
from temporeal.policies.runs.settings.tasks import (
    AUTO,
    AUTOMATIC,
    check_own_options,
    check_task,
    own_worlds,
    titled,
)
from temporeal.policies.runs.settings.values import check_device_name, check_option, check_value

if TYPE_CHECKING:
    from omegaconf import DictConfig


def compose(overrides: Sequence[str] = ()) -> Settings:
    """The configuration with ``overrides`` such as ``task=hover`` or ``algo.learning_rate=1e-3``.

    ``task=my_task.py`` and ``randomize=mine.yaml`` name files of the user's. Raises :class:`BadInput` for an unknown
    group, option or key, for a value of another type than the one it replaces, and for what is not of the form
    key=value.
    """
    overrides = [own_tasks.located(word) for word in overrides]
    if any(map(own_tasks.is_task_file, overrides)):
        name = own_tasks.read(overrides)
        return own_tasks.put(name, compose(own_tasks.words_for(name, overrides)))
    check_folders()
    overrides, posterior = own_randomization.divided(overrides)
    opened, others = divided(overrides)
    opened = [*posterior, *opened]
    parsed = [parse_override(text) for text in others]
    known = groups()
    for override in parsed:
        check_form(override)
    robot, parsed = named_robot(parsed)
    for override in parsed:
        if override.key_or_group in known:
            check_option(override.key_or_group, override.value(), known)
    automatic_worlds = [o for o in parsed if o.key_or_group == "num_worlds" and o.value() == AUTO]
    parsed = [o for o in parsed if not any(o is other for other in automatic_worlds)]
    base = _compose([str(o.input_line) for o in parsed if o.key_or_group in known])
    automatic = [group for group in AUTOMATIC if base[group]["name"] == AUTO]
    check_task(base["task"], automatic, [str(o.value()) for o in parsed if o.key_or_group == "task"],
               base.get("experiment"))
    check_own_options(base["task"], automatic, [str(o.value()) for o in parsed if o.key_or_group == "task"], known)
    lines = [f"{group}={base['task'][group]}" for group in automatic if str(base["task"][group]) in known[group]]
    worlds = own_worlds(base)
    if automatic_worlds or base["num_worlds"] == AUTO:
        lines.append(f"num_worlds={worlds}")
    parsed = [o for o in parsed if o.key_or_group not in automatic]
    base = _compose([*lines, *[str(o.input_line) for o in parsed if o.key_or_group in known]])
    own_worlds(base)
    for override in parsed:
        if override.key_or_group not in known:
            check_value(override.key_or_group, override.value(), base)
        lines.append(str(override.input_line))
    settings = _compose(lines, opened)
    refuse_old_names(settings)
    own_worlds(settings)
    check_device_name(settings["device"])  # before the task's module is imported, and torch with it
    return titled(with_robot(settings, robot), [o.value() for o in parsed if o.key_or_group == "task"])


def override(settings: Settings, overrides: Sequence[str]) -> Settings:
    """Saved ``settings`` with ``overrides``: a group's option replaces the group, a dotted key one value in it."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    check_folders()
    out = copy.deepcopy(settings)
    if any(map(own_tasks.is_task_file, overrides)):
        out["task"] = own_tasks.renamed(own_tasks.read(overrides), out["task"])
    overrides, posterior = own_randomization.divided(overrides)
    opened, others = divided([word for word in overrides if not own_tasks.is_task_file(word)])
    opened = [*posterior, *opened]
    known = groups()
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
                titled(out, [value])
            own_worlds({key: out[key]})
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


def check_parts(settings: Settings, overrides: Sequence[str]) -> None:
    """Refuse ``overrides`` of parts that saved ``settings`` do not have, before anything slow: see :func:`override`."""
    known, overrides = groups(), own_randomization.divided(overrides)[0]
    for word in divided([word for word in overrides if not own_tasks.is_task_file(word)])[1]:
        parsed = parse_override(word)
        check_form(parsed)
        part = parsed.key_or_group.partition(".")[0]
        if part not in settings and part not in known:
            check_value(parsed.key_or_group, parsed.value(), settings)


def section(name: str, overrides: Sequence[str]) -> Settings:
    """The part ``name`` of the configuration, for a command that reads nothing else of it.

    Raises :class:`BadInput` as :func:`compose` does, and for an override of another part, which would be ignored.
    """
    found: Settings = compose(overrides)[name]
    for text in overrides:
        key = text.partition("=")[0]
        if key.partition(".")[0] not in (name, "experiment"):
            raise BadInput(f"{text}: of the settings only those of {name!r} are read here, such as "
                           f"{name}.{next(iter(found))}=...; an option of the command would be written --{key}")
    return found


def _compose(overrides: Sequence[str], opened: Sequence[Opened] = ()) -> Settings:
    """The composition of ``overrides``, then of ``opened``."""
    if opened or own_folders():
        return _composed(overrides, opened)
    return copy.deepcopy(_of_package(tuple(overrides)))


@lru_cache(maxsize=512)
def _of_package(overrides: tuple[str, ...]) -> Settings:
    """The composition from the package's files alone, cached: they do not change, and Hydra takes a sixth of a second.
    """
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


def _plain(config: DictConfig) -> Settings:
    from omegaconf import OmegaConf

    settings = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(settings, dict)
    return {str(key): value for key, value in settings.items()}


def with_names(settings: Settings, choices: Mapping[str, str]) -> Settings:
    """``settings`` with each group's option under ``<group>.name``."""
    named = {
        key: {"name": choices[key], **value} if key in choices and isinstance(value, dict) else value
        for key, value in settings.items()
    }
    if choices.get("experiment") is not None:
        named["experiment"] = choices["experiment"]
    if named["algo"]["name"] != choices["algo"]:
        named["algo"][PRESET] = choices["algo"]
    return named


PRESET = "preset"
"""Of ``algo``: the file of settings that was chosen, where that is not the learner's own: resip, of ppo."""


def of_group(settings: Mapping[str, Any], group: str) -> Settings:
    """A group's own settings, without its name and that of its file: keywords of its module."""
    hidden = ("name", PRESET) if group == "algo" else ("name",)
    return {key: value for key, value in (settings.get(group) or {}).items() if key not in hidden}
