"""Parts that a manifest has where its policy needs them: an instruction in words, a network in 8-bit numbers, and the
dynamics that a flight is compared with.

A manifest with one of these has ``schema_version`` 4. numpy-free: plain data, checked where it is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from temporeal.robots.signals import SignalSpec, is_number

TOKEN, TOKEN_TYPE = "token", "int32"  # unit and dtype of a signal of word numbers; 0: no word
MOST_WORDS, MOST_LENGTH = 65_536, 512  # of a vocabulary; of a sentence
TABLETOP = "tabletop"
GRAMMARS = ("", TABLETOP)
SHA256 = re.compile("[0-9a-f]{64}")
QUANTIZED = "MatMulInteger"  # the node of a product of 8-bit numbers
ROOM = 1.5  # of the measured difference that the self-test allows: products of 8 bits saturate where a processor has no
# VNNI, and roundings at the edge of a step fall on either side
LEAST = 1e-4  # of a command's range: what the self-test allows where nothing was measured
MOST = 0.25  # of a command's range: a network that differs more is another one, and refused


@dataclass(frozen=True)
class InstructionSpec:
    """What a policy can be told, in words.

    Args:
        signal: name of the signal that carries the sentence as word numbers: int32 [length], unit ``token``.
        words: the vocabulary; word k has the number k + 1, 0 is no word.
        length: words of a sentence at most.
        digest: SHA-256 of words and length (:meth:`temporeal.sim.stl.instructions.vocabulary.Vocabulary.digest`).
        grammar: what makes a formula of a sentence: ``tabletop`` (:mod:`temporeal.sim.stl.instructions`), or empty: the
            artifact's formula is for every sentence.
        fixed: the one sentence that the network was exported with; empty: it reads ``signal``.
    """

    signal: str
    words: tuple[str, ...]
    length: int
    digest: str
    grammar: str = ""
    fixed: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.signal, str) or not self.signal.isidentifier():
            raise ValueError(f"instruction: signal is {self.signal!r}; a signal's name is needed")
        if not isinstance(self.words, tuple) or not 0 < len(self.words) <= MOST_WORDS:
            raise ValueError(f"instruction: words are a list of 1 to {MOST_WORDS} words")
        for word in self.words:
            if not isinstance(word, str) or not word or word != "".join(word.split()):
                raise ValueError(f"instruction: words has {word!r}; a word is text without spaces")
        if len(set(self.words)) < len(self.words):
            raise ValueError("instruction: words names a word twice")
        if type(self.length) is not int or not 1 <= self.length <= MOST_LENGTH:
            raise ValueError(f"instruction: length is a whole number from 1 to {MOST_LENGTH}, got {self.length!r}")
        if not isinstance(self.digest, str) or not SHA256.fullmatch(self.digest):
            raise ValueError(f"instruction: digest is {self.digest!r}; a SHA-256 in hexadecimal is needed")
        if self.grammar not in GRAMMARS:
            raise ValueError(f"instruction: grammar is one of {', '.join(map(repr, GRAMMARS))}, got {self.grammar!r}")
        if not isinstance(self.fixed, str):
            raise ValueError(f"instruction: fixed is a sentence, or empty; got {self.fixed!r}")

    @property
    def spec(self) -> SignalSpec:
        """The signal's declaration."""
        return SignalSpec(self.signal, (self.length,), TOKEN, "", TOKEN_TYPE)


@dataclass(frozen=True)
class Int8Spec:
    """A network whose large products are of 8-bit whole numbers, and what that costs against float32.

    Differences are of commands on the golden trace, whose commands are float32's, in shares of the command's range.

    Args:
        scheme: how numbers were quantized.
        tensors: number of products that are.
        max_difference, rms_difference: measured when it was exported.
        tolerance: largest difference that the self-test allows: processors round 8-bit products differently. At most
            :data:`ROOM` times the one measured.
    """

    scheme: str
    tensors: int
    max_difference: float
    rms_difference: float
    tolerance: float

    def __post_init__(self) -> None:
        if not isinstance(self.scheme, str) or type(self.tensors) is not int or self.tensors < 1:
            raise ValueError(f"int8: scheme is text and tensors a whole number from 1, got {self.scheme!r} and "
                             f"{self.tensors!r}")
        for name in ("max_difference", "rms_difference", "tolerance"):
            value = getattr(self, name)
            if not is_number(value) or not 0 <= value <= 1:
                raise ValueError(f"int8: {name} is a share of a command's range from 0 to 1, got {value!r}")
        if self.max_difference > self.tolerance:
            raise ValueError(f"int8: tolerance {self.tolerance:g} is below the difference that was measured, "
                             f"{self.max_difference:g}")
        if self.max_difference > MOST:
            raise ValueError(f"int8: max_difference is at most {MOST:g}, got {self.max_difference:g}: the network "
                             "would be another one")
        if self.tolerance > self.most_tolerance(self.max_difference):
            raise ValueError(f"int8: tolerance {self.tolerance:g} is more than {ROOM:g} times the difference that was "
                             f"measured, {self.max_difference:g}, and more than {LEAST:g}")

    @staticmethod
    def most_tolerance(difference: float) -> float:
        """The largest tolerance where so large a ``difference`` was measured."""
        return max(ROOM * difference, LEAST)


@dataclass(frozen=True)
class DriftSpec:
    """The quadrotor that the policy was trained for, as its thrust tells it: what a monitor compares a flight with.

    Each triple is (least, value, greatest): of the ratio what the training had, of the others what may be. Thrust is
    that of one rotor, c0 + c1 n + c2 n^2 over its normalized speed n in [0, 1].

    Args:
        source: where the numbers are from, for people.
        mass: kg.
        thrust_curve: N, of the rotors as they are, gain included.
        believed_curve: N, by which the firmware turns a commanded thrust into a rotor speed.
        tau_up, tau_down: s, of a rotor that speeds up, and slows down.
        delay: s, from a command's departure to the rotors.
        drag: N s/m, along the body's z axis.
        ratio: thrust per weight over the nominal one, by everything that the training varied, its disturbing force
            included; the value is 1.
        noise: m/s, standard deviation of a measured velocity.
    """

    source: str
    mass: float
    thrust_curve: tuple[float, ...]
    believed_curve: tuple[float, ...]
    tau_up: tuple[float, ...]
    tau_down: tuple[float, ...]
    delay: tuple[float, ...]
    drag: tuple[float, ...]
    ratio: tuple[float, ...]
    noise: float

    def __post_init__(self) -> None:
        if not isinstance(self.source, str):
            raise ValueError(f"drift: source is text, got {self.source!r}")
        for name, least in (("mass", 0.0), ("noise", 0.0)):
            if not is_number(getattr(self, name)) or not getattr(self, name) > least:
                raise ValueError(f"drift: {name} is a number above {least:g}, got {getattr(self, name)!r}")
        for name in ("thrust_curve", "believed_curve"):
            curve = _triple(name, getattr(self, name))
            if not sum(curve) > 0 or not (curve[2] > 0 or name == "thrust_curve"):
                raise ValueError(f"drift: {name} is c0, c1, c2 with thrust at full speed, believed_curve c2 > 0; "
                                 f"got {curve}")
        for name, least in (("tau_up", 1e-6), ("tau_down", 1e-6), ("delay", 0.0), ("drag", 0.0), ("ratio", 1e-6)):
            low, value, high = _triple(name, getattr(self, name))
            if not least <= low <= value <= high:
                raise ValueError(f"drift: {name} is least, value and greatest, from {least:g} up, got "
                                 f"{getattr(self, name)}")
        if self.ratio[1] != 1.0:
            raise ValueError(f"drift: the value of ratio is 1, got {self.ratio[1]}")


def _triple(name: str, value: object) -> tuple[float, float, float]:
    """``value`` as three finite numbers."""
    if not isinstance(value, tuple) or len(value) != 3 or not all(map(is_number, value)):
        raise ValueError(f"drift: {name} is three numbers, got {value!r}")
    return value
