"""The grammar of overrides: ``group=option``, ``key.of.group=value``, and names below open groups."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.settings.values import kind

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig

OPEN = ("task.settings", "randomize.parameters", "randomize.sensors", "randomize.disturbances", "randomize.appearance",
        "curriculum.parameters", "cameras", "augment", "algo.stages")
"""Groups below which keys may be added: their readers (a task's ``make``, the randomization, a pipeline's stages) check
them."""

DISTRIBUTION = ("kind", "shared", "components", "when", "optional", "scale", "low", "high", "std", "mean", "by",
                "values", "weights", "value")
DOTTED = {"randomize.parameters": DISTRIBUTION, "randomize.appearance": DISTRIBUTION,
          "curriculum.parameters": ("of", "as", "low", "high", "log", "first", "components")}
"""Groups whose entries have names with dots (``cube.mass``), and the keys of an entry: they end the name."""

DRAWN, POSTERIOR = ("randomize", "parameters"), "posterior"

PART = r'''"[^"]*"|'[^']*'|[^.'"]+'''


@dataclass(frozen=True)
class Opened:
    """An override that sets something below one of :data:`OPEN`: its text, the keys ``path`` from the top, and the
    value."""

    text: str
    path: tuple[str, ...]
    value: Any


def divided(words: Sequence[str]) -> tuple[list[Opened], list[str]]:
    """The overrides that set something below :data:`OPEN`, and the others, each in their order."""
    found = [(text, open_word(text)) for text in words]
    return [word for _, word in found if word is not None], [text for text, word in found if word is None]


def open_word(text: str) -> Opened | None:
    """``text``, if it sets something below one of :data:`OPEN`.

    Where names have dots (:data:`DOTTED`), the name ends before the first key that such an entry takes:
    ``randomize.parameters.cube.mass.low=0.5`` sets ``low`` of ``cube.mass``. A name in quotes is taken literally.
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
    """Set the value of ``word``; a mapping is merged, but a distribution of kind posterior has nothing in common with
    others: either replaces the other whole."""
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
    if isinstance(old, DictConfig) and isinstance(word.value, Mapping) and not (tuple(path) == DRAWN and apart(
            old.get("kind"), word.value.get("kind", old.get("kind")))):
        node[last] = OmegaConf.merge(old, word.value)
    else:
        node[last] = word.value


def apart(was: Any, now: Any) -> bool:
    """Whether a distribution of kind ``now`` takes nothing over from one of kind ``was``."""
    return was != now and POSTERIOR in (was, now)


def parse_override(line: str, text: str = "") -> Override:
    """One override in Hydra's grammar; ``text``: what the user wrote, if different."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_override(line)
    except HydraException as error:
        raise BadInput(f"{text or line!r} is not a setting: {how_to_write(text or line)}") from error


def how_to_write(text: str) -> str:
    """How to write what the user may have meant by ``text``, which is not in Hydra's grammar."""
    key, sign, value = text.partition("=")
    if not sign or not key:
        return "write key=value, as in task=hover or seed=2"
    first = value.strip()[:1]
    if first in ("[", "{"):
        return f"write a list as {key}=[1,2], a group of settings as {key}={{low: 1, high: 2}}: close the bracket"
    if first in ('"', "'"):
        return f"close the quote, {key}={first}...{first}; a quote inside is \\{first}"
    word = quoted(text)
    if not word:
        return "write key=value, as in task=hover or seed=2"
    return f"quote a text with brackets, commas or signs, and the whole word for the shell: write {word}"


def written(text: str) -> str:
    """``key=value`` as it is typed in a shell, the value quoted where the grammar requires it."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        plain = str(OverridesParser.create().parse_override(text).value()) == text.partition("=")[2]
    except HydraException:
        plain = False
    return shlex.quote(text) if plain else quoted(text)


def quoted(text: str) -> str:
    """``key=value`` for the shell, the value quoted as the grammar requires; "" if that is no override either.

    Settings that every task takes are moved below ``task.settings``.
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
    """The error for several values; a text with a comma, or one that begins like a function of Hydra's, looks like
    that."""
    word = quoted(text)
    return BadInput(f"{text!r} is a sweep: give one value; for a list write key=[1,2]"
                    + (f", for a text {word}" if word else ""))
