"""The instruction that a controller's policy is given: typed by an operator, kept for a mission, told to everybody."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from temporeal.robots.artifact.manifest import Manifest
from temporeal.robots.spec import RobotSpec
from temporeal.sim.stl.instructions.vocabulary import InstructionError
from temporeal_bridge.instruction.sentences import (
    ASK,
    TEXT,
    TOLD,
    answer,
    asked_for,
    mission_of,
    plain_words,
    text_of,
    tokens_of,
)
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.transports.transport import QOS, Received, Transport

Refuse = Callable[[str], None]
"""Says why an instruction is not taken."""


class Instructed:
    """The words in force, as the signal that the policy reads.

    A new sentence comes on :data:`ASK` and is in force from the next mission on; in a mission it is refused. Every
    sentence that is taken is answered on :data:`TOLD`, latched: monitor and recorder follow it. Without one no mission
    begins, nor after one that was refused: whoever typed it does not mean the sentence before. A policy that takes no
    instruction, or was exported with one, has none of this.

    Args:
        text: the first sentence; empty: none yet.
        changeable: whether a mission may be told something else now. ``refuse``: gets reasons.

    Attributes:
        text: the sentence in force; empty: none. signals: what the policy reads of it.
        refused: whether another sentence was typed since, and not taken.
    """

    def __init__(
        self, transport: Transport, manifest: Manifest, robot: RobotSpec, interface: Interface, text: str, *,
        changeable: Callable[[], str], refuse: Refuse,
    ) -> None:
        self.transport, self.manifest, self.robot, self.interface = transport, manifest, robot, interface
        self.changeable, self.refuse = changeable, refuse
        self.spec, self.text, self.refused = asked_for(manifest), "", False
        self.signals: Mapping[str, np.ndarray] = {}
        if self.spec is None:
            if text:
                mission_of(manifest, robot, interface, text)
            return
        self.told = transport.advertise(TOLD, TEXT, QOS["latched"])
        transport.subscribe(ASK, TEXT, QOS["default"], self._on_text)
        if text:
            self.take(text)

    @property
    def missing(self) -> list[str]:
        """Topics that have delivered nothing yet, without which no mission begins."""
        return [ASK] if self.spec is not None and not self.text else []

    def take(self, text: str) -> None:
        """Put a sentence in force, or raise InstructionError."""
        assert self.spec is not None
        mission_of(self.manifest, self.robot, self.interface, text)
        self.signals = {self.spec.signal: tokens_of(self.spec, text)}
        self.text, self.refused = plain_words(text), False
        self.transport.publish(self.told, answer(self.text))

    def _on_text(self, received: Received) -> None:
        before, self.refused = self.refused, True
        try:
            text = text_of(received)
            if busy := self.changeable():
                self.refused = before or plain_words(text) != self.text
                raise InstructionError(f"{text!r} is not taken: the controller is {busy}; an instruction is for a "
                                       "whole mission")
            self.take(text)
        except ValueError as error:
            self.refuse(str(error))
