"""What `temporeal robot new` must know, from flags, a file of answers, the model, or the person at the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from temporeal.policies.cli.console import say
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.handed_over.files import read_text
from temporeal.robots.handed_over.texts import from_yaml
from temporeal.robots.registry import guess

LEGAL = ("kind", "tool", "driven", "gripper", "home", "limits", "control_hz", "rate_hz", "exclude", "interface",
         "packages", "quadrotor", "mobile_base", "license")
TRIES = 3  # of an answer
LISTS = ("driven", "exclude")
MAPPINGS = ("limits", "packages", "quadrotor", "mobile_base")


@dataclass
class Answers:
    """What was said, and what was assumed because nobody said it.

    Args:
        given: by name, out of :data:`LEGAL`: flags over the file of answers.
        ask: a question and its proposal to an answer, on a terminal; None: nobody can be asked.
        assumed: lines for the person: what was assumed, and the flag that says otherwise.
    """

    given: dict[str, Any]
    ask: Callable[[str, str], str] | None = None
    assumed: list[str] = field(default_factory=list)

    def get(self, name: str, question: str, proposal: Any, legal: list[str] | None = None) -> Any:
        """The answer called ``name``: said, asked, or the ``proposal``; a text or a list of texts.

        A proposal of None means that there is none, and that somebody must say it.
        """
        if name in self.given:
            return self.checked(name, self.given[name], legal)
        shown = " ".join(proposal) if isinstance(proposal, list) else str(proposal or "")
        if self.ask is not None:
            return self._asked(name, question, proposal, shown, legal)
        if proposal is None:
            raise BadInput(f"{question}? Say it with --{name} or in a file of answers ({name}: ...)"
                           + (f"; legal: {', '.join(legal)}" if legal else ""))
        self.assumed.append(f"{name}: {shown or 'none'} (else --{name})")
        return proposal

    def _asked(self, name: str, question: str, proposal: Any, shown: str, legal: list[str] | None) -> Any:
        """The answer of whoever sits there, asked again if it is none of the legal ones."""
        assert self.ask is not None
        for tries in range(1, TRIES + 1):
            said = self.ask(question + (f" ({', '.join(legal)})" if legal else ""), shown) or shown
            try:
                return self.checked(name, said.split() if isinstance(proposal, list) else said, legal)
            except BadInput as error:
                if tries == TRIES:
                    raise
                say(f"  {error}")
        raise AssertionError("the loop returns or raises")

    def checked(self, name: str, value: Any, legal: list[str] | None) -> Any:
        """``value``, if all of it is ``legal``."""
        for word in value if isinstance(value, list) else [value]:
            if legal is not None and word not in legal and word != "":
                raise BadInput(f"{name}: {guess(word, legal)}{word!r} is not one of {', '.join(legal)}")
        return value


def read_answers(path: Path | None, flags: Mapping[str, Any]) -> dict[str, Any]:
    """The file of answers, flags over it; flags that are None were not given."""
    given: dict[str, Any] = {}
    if path is not None:
        try:
            given = from_yaml(read_text(path), str(path)) or {}
        except yaml.YAMLError as error:
            raise BadInput(f"{path}: not YAML: {error}") from error
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror}") from error
    if not isinstance(given, Mapping):
        raise BadInput(f"{path}: a mapping with {', '.join(LEGAL)} is needed")
    answers = {**given, **{name: value for name, value in flags.items() if value is not None}}
    for name, value in answers.items():
        if name not in LEGAL:
            raise BadInput(f"{path}: no answer {name!r}; {guess(name, LEGAL)}legal: {', '.join(LEGAL)}")
        kind = list if name in LISTS else Mapping if name in MAPPINGS else None
        if kind is not None and not isinstance(value, kind):
            raise BadInput(f"{name}: a {'list' if kind is list else 'mapping'} is needed, got {value!r}")
    return answers


def asked_on_terminal(question: str, proposal: str) -> str:
    """The answer of whoever sits there; an empty one takes the proposal."""
    say(f"{question}?")
    try:
        return input(f"  [{proposal}] " if proposal else "  ").strip()
    except EOFError:
        return ""
