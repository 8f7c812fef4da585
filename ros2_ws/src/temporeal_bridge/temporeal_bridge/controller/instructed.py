"""What a controller's policy is told: typed by an operator, kept for a mission, told to everybody."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import perf_counter
from typing import Any

import numpy as np

from temporeal.robots.artifact.manifest import Manifest
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.spec import RobotSpec
from temporeal.sim.stl.instructions.vocabulary import InstructionError
from temporeal.sim.stl.language.errors import FormulaError
from temporeal_bridge.controller.formula_mission import FormulaMission, warm
from temporeal_bridge.instruction.sentences import (
    ASK,
    TEXT,
    TOLD,
    answer,
    asked_for,
    is_told,
    mission_of,
    one_form,
    text_of,
    tokens_of,
)
from temporeal_bridge.instruction.typed_formulas import typed
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.transports.transport import QOS, Received, Transport

Refuse = Callable[[str], None]
"""Says why an instruction is not taken."""
Signals = Mapping[str, np.ndarray]
FORECAST_S = 0.5  # interval between forecasts on the way


def say(text: str) -> None:
    """A line in the node's log."""
    print(f"policy_node: {text}", file=sys.stderr, flush=True)


class Instructed:
    """The words or the formula in force, as the signal that the policy reads.

    A new text comes on :data:`ASK` and is in force from the next mission on; in a mission it is refused. Every text
    that is taken is answered on :data:`TOLD`, latched: monitor and recorder follow it. Without one no mission begins,
    nor after one that was refused: whoever typed it does not mean the one before. A policy that takes no instruction,
    or was exported with one, has none of this. A formula is planned from where the robot is, when it is taken and
    again when a mission begins.

    Args:
        text: the first one; empty: none yet.
        changeable: whether a mission may be told something else now. ``refuse``: gets reasons.
        state: the newest signals; None: not all are there. ``require``: least P(satisfied) of a formula.

    Attributes:
        text: what is in force; empty: nothing. signals: what the policy reads of words. flown: of a formula.
        refused: whether another text was typed since, and not taken. first: the one of the command line.
    """

    def __init__(
        self, transport: Transport, artifact: Any, robot: RobotSpec, interface: Interface, text: str, *,
        changeable: Callable[[], str], refuse: Refuse, state: Callable[[], Signals | None] = lambda: None,
        require: float = 0.0,
    ) -> None:
        manifest: Manifest = artifact.manifest
        self.transport, self.artifact, self.manifest = transport, artifact, manifest
        self.robot, self.interface = robot, interface
        self.changeable, self.refuse, self.state, self.require = changeable, refuse, state, require
        self.spec, self.text, self.refused, self.told = asked_for(manifest), "", False, is_told(manifest)
        self.signals: Signals = {}
        self.flown: FormulaMission | None = None
        self.next_forecast = 0.0
        if not self.told:
            if text:
                mission_of(manifest, robot, interface, text)
            return
        if manifest.formulas is not None:
            with suppress(InstructionError, FormulaError):  # "here" is one of its constants, for example
                warm(artifact, robot, interface)
        self.first = one_form(manifest, text) if text else ""
        self.answers = transport.advertise(TOLD, TEXT, QOS["latched"])
        transport.subscribe(ASK, TEXT, QOS["default"], self._on_text)
        if text:
            self.take(text)

    @property
    def missing(self) -> list[str]:
        """Topics that have delivered nothing yet, without which no mission begins."""
        return [ASK] if self.told and not self.text else []

    @property
    def horizon_s(self) -> float:
        """How long a mission lasts."""
        return self.manifest.horizon_s if self.flown is None else self.flown.typed.mission.horizon_s

    def take(self, text: str) -> None:
        """Put a text in force, or raise InstructionError or FormulaError."""
        if self.manifest.formulas is not None:
            self._take_formula(text)
        elif self.spec is not None:
            mission_of(self.manifest, self.robot, self.interface, text)
            self.signals = {self.spec.signal: tokens_of(self.spec, text)}
        self.text, self.refused = one_form(self.manifest, text), False
        self._answer()

    def _take_formula(self, text: str) -> None:
        began = perf_counter()
        found = typed(self.manifest, self.robot, self.interface, text)
        assert isinstance(self.artifact, Artifact)
        flown = FormulaMission(self.artifact, found, self.require, perf_counter() - began)
        state = self.state()
        if state is not None:
            flown.plan(state)
        self.flown = flown

    def _answer(self) -> None:
        said = {} if self.flown is None else self.flown.said()
        self.transport.publish(self.answers, answer(self.text, said))
        if said:
            say(f"P(satisfied) {said['forecast']:.2f}; " + "; ".join((*said["itinerary"], *said["notes"])))

    def look(self) -> None:
        """The first state is there: plan a formula that was taken before. One that is not flown is refused as one that
        comes now is; an InstructionError where the command line has it."""
        state = self.state()
        if self.flown is None or self.flown.found is not None or state is None:
            return
        try:
            self.flown.plan(state)
        except ValueError as error:
            if self.text == self.first:
                raise
            self.text, self.flown, self.refused = "", None, True
            return self.refuse(str(error))
        self._answer()

    def begin(self) -> str:
        """A mission begins: plan its formula from here. Why it must not begin; empty: it may."""
        state = self.state()
        if self.flown is None or state is None:
            return ""
        try:
            self.flown.plan(state)
        except ValueError as error:
            return str(error)
        self._answer()
        return ""

    def advance(self, signals: Signals) -> None:
        """After a control step with ``signals``: plan a formula's rest again, if a place was hit."""
        if self.flown is not None:
            self.flown.advance(signals)

    def figures(self) -> dict[str, Any]:
        """Of the formula in force: forecast, and what reading and planning took."""
        said = {} if self.flown is None else self.flown.said()
        return {key: said[key] for key in ("forecast", "read_ms", "planned_ms") if key in said}

    def forecast(self, now: float, state: Callable[[], Signals]) -> dict[str, Any]:
        """How likely the mission is by now, of a policy that takes formulas; empty while it is not due."""
        if self.flown is None or now < self.next_forecast:
            return {}
        self.next_forecast = now + FORECAST_S
        return self.flown.update(state())

    def reads(self, signals: Signals) -> Signals:
        """What the policy reads of its instruction, besides ``signals``."""
        return self.signals if self.flown is None else self.flown.reads(signals)

    def _on_text(self, received: Received) -> None:
        before, self.refused = self.refused, True
        try:
            text = text_of(received)
            if busy := self.changeable():
                self.refused = before or one_form(self.manifest, text) != self.text
                raise InstructionError(f"{text!r} is not taken: the controller is {busy}; an instruction is for a "
                                       "whole mission")
            self.take(text)
        except ValueError as error:
            self.refuse(str(error))
