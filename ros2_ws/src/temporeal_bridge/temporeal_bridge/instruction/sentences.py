"""What an operator types, checked: words of the artifact's vocabulary, a formula for the monitor, objects that exist.
Of policies that take formulas: :mod:`temporeal_bridge.instruction.typed_formulas`.

A sentence is checked where it enters (``temporeal deploy``, the operator's message) and again by the controller, which
answers for the policy, and the monitor, which answers for the formula.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import isfinite
from typing import Any

import numpy as np

from temporeal.robots.artifact.additions import TABLETOP, InstructionSpec
from temporeal.robots.artifact.manifest import ArtifactError, Manifest
from temporeal.robots.spec import RobotSpec
from temporeal.sim.stl.instructions import formulas, grammar
from temporeal.sim.stl.instructions.grammar import Instruction
from temporeal.sim.stl.instructions.vocabulary import InstructionError, Vocabulary, words_of
from temporeal.sim.stl.language.queries import horizon
from temporeal_bridge.instruction.typed_formulas import canonical, typed
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import Received

TEXT = "std_msgs/msg/String"
ASK, TOLD = "mission/instruction", "policy/instruction"  # what an operator publishes; what the controller answers
LONGEST = 1000  # characters of a sentence that are looked at


def asked_for(manifest: Manifest) -> InstructionSpec | None:
    """The instruction that the policy must be given; None: it takes none, or was exported with one."""
    spec = manifest.instruction
    return None if spec is None or spec.fixed else spec


def is_told(manifest: Manifest) -> bool:
    """Whether somebody must say what a mission is: in words, or by a formula."""
    return asked_for(manifest) is not None or manifest.formulas is not None


@cache
def vocabulary_of(spec: InstructionSpec) -> Vocabulary:
    """The words of a policy; ArtifactError where they are not those it was trained on."""
    found = Vocabulary(spec.words, spec.length)
    if found.digest() != spec.digest:
        raise ArtifactError(f"instruction: the SHA-256 of its words is {found.digest()}, the manifest says "
                            f"{spec.digest}: word numbers would mean other words than in training")
    return found


def tokens_of(spec: InstructionSpec, text: str) -> np.ndarray:
    """Word numbers int32 [length]; InstructionError: empty, over-long, or unknown words with the nearest known ones."""
    if len(text) > LONGEST:
        raise InstructionError(f"the instruction has {len(text)} characters, at most {spec.length} words fit")
    return vocabulary_of(spec).encode(text)


def plain_words(text: str) -> str:
    """The sentence in lower case, without punctuation: how it is published and compared."""
    return " ".join(words_of(text[:LONGEST]))


def one_form(manifest: Manifest, text: str) -> str:
    """What was typed, as it is published and compared."""
    return plain_words(text) if manifest.formulas is None else canonical(text)


def formula_is_of_words(manifest: Manifest) -> bool:
    """Whether the mission's formula follows from the sentence; else the artifact's formula is for all sentences."""
    return manifest.instruction is not None and manifest.instruction.grammar == TABLETOP


def needs_words(manifest: Manifest) -> bool:
    """Whether there is no formula before somebody has given an instruction."""
    return manifest.formulas is not None or (formula_is_of_words(manifest) and asked_for(manifest) is not None)


def meaning(manifest: Manifest, text: str) -> Instruction | None:
    """What the sentence asks for; None where the artifact's formula does not follow from it."""
    return grammar.parse(text) if formula_is_of_words(manifest) else None


def told(manifest: Manifest, robot: RobotSpec, text: str) -> Manifest:
    """``manifest`` with the formula that a monitor watches when the policy was told ``text`` (or was exported with it).

    InstructionError where the policy cannot be told that: another sentence than the one it was exported with, unknown
    words, no sentence of the grammar, more time than the artifact's missions have.
    """
    spec = manifest.instruction
    if spec is None:
        raise InstructionError(f"the policy {manifest.name!r} takes no instruction, got {text!r}: it does one thing")
    if spec.fixed and text and plain_words(text) != plain_words(spec.fixed):
        raise InstructionError(f"the policy {manifest.name!r} was exported with the instruction {spec.fixed!r} and "
                               f"takes no other, got {text!r}")
    text = spec.fixed or text
    tokens_of(spec, text)
    asked = meaning(manifest, text)
    if asked is None:
        return manifest
    reach = horizon(formulas.formula(asked, robot.tool))
    if isfinite(reach) and reach > manifest.horizon_s + 1e-9:
        raise InstructionError(f"{text!r} is judged after {reach:g} s; missions of the policy {manifest.name!r}, which "
                               f"was trained on other tasks, last {manifest.horizon_s:g} s")
    return replace(manifest, formula=formulas.formula_text(asked, robot.tool), constants=lengths(manifest))


def lengths(manifest: Manifest) -> dict[str, float]:
    """The named numbers of the formulas of sentences, m: before a small arm those that the policy was trained with."""
    return {name: float(manifest.constants.get(name, value)) for name, value in formulas.constants().items()}


def objects_of(carried: Collection[str]) -> list[str]:
    """Objects and places whose positions, fixtures whose ways are among the ``carried`` signals."""
    names = (*grammar.OBJECTS, *grammar.PLACES)
    return [*(name for name in names if f"{name}_pos_w" in carried),
            *(name for name in grammar.FIXTURES.values() if f"{name}_pos" in carried)]


def check_present(manifest: Manifest, text: str, carried: Collection[str]) -> None:
    """InstructionError where the sentence names an object of which no topic brings the position."""
    asked = meaning(manifest, text)
    if asked is not None:
        grammar.require_present(asked, objects_of(carried))


def mission_of(manifest: Manifest, robot: RobotSpec, interface: Interface, text: str) -> Manifest:
    """:func:`told`, and what it names is there: the mission of a monitor and of a controller on ``interface``."""
    if manifest.formulas is not None:
        return typed(manifest, robot, interface, text).mission
    found = told(manifest, robot, text)
    check_present(manifest, text or fixed_text(manifest), interface.state)
    return found


def fixed_text(manifest: Manifest) -> str:
    """The sentence that the policy was exported with; empty: none."""
    return "" if manifest.instruction is None else manifest.instruction.fixed


def missions_of(manifest: Manifest, robot: RobotSpec, interface: Interface, texts: Sequence[str]) -> list[Manifest]:
    """The mission of each of ``texts``, checked; without one of what the policy was exported with, or of all sentences.
    None where the formula follows from words that nobody has said yet."""
    given = [*texts] or ([fixed_text(manifest)] if fixed_text(manifest) else [])
    found = [mission_of(manifest, robot, interface, text) for text in given]
    return found if given or needs_words(manifest) else [manifest]


def require_words(manifest: Manifest, texts: Sequence[str]) -> Sequence[str]:
    """``texts``; InstructionError where the policy must be told something and they are none."""
    if manifest.formulas is not None and not texts:
        raise InstructionError(f"the policy {manifest.name!r} flies the formula that it is given: --formula "
                               "mission.yaml, with the keys formula and constants")
    if asked_for(manifest) is not None and not texts:
        raise InstructionError(f"the policy {manifest.name!r} must be told what to do: --instruction "
                               "\"push the red cube into the tray\", for example")
    return texts


def watched(tool: str, known: Collection[str]) -> set[str]:
    """Signals among ``known`` that formulas of instructions may read."""
    return {name for name in formulas.schema(tool) if name in known}


def message(text: str) -> bytes:
    """A sentence for :data:`ASK`."""
    return messages.encode(TEXT, messages.record(TEXT)(data=text))


def answer(text: str, about: Mapping[str, Any] | None = None) -> bytes:
    """The controller's answer on :data:`TOLD`: JSON with what is in force, and what it says ``about`` it."""
    return message(json.dumps({"instruction": text, **(about or {})}))


def text_of(received: Received) -> str:
    """The sentence of a message on :data:`ASK`; InstructionError where there is none."""
    try:
        return str(messages.decode(received.type, received.data).data)
    except messages.MessageError as error:
        raise InstructionError(f"the message on {ASK} is no text: {error}") from error
