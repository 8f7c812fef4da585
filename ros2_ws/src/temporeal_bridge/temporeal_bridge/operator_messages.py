"""Sends an operator's request to a robot's nodes, where no ``ros2 topic pub`` is available, and reports the outcome.

    python -m temporeal_bridge.operator_messages start 1 --namespace /arm1
    python -m temporeal_bridge.operator_messages stop --namespace /arm1
    python -m temporeal_bridge.operator_messages reset --namespace /arm1
    python -m temporeal_bridge.operator_messages instruct "push the red cube into the tray" --namespace /arm1

The exit status is 0 where the request was carried out, 1 where it was not (guard or controller say why), 2 where nobody
listens. This is no emergency stop: it takes seconds to start and join the bus. Have the robot's own stop in your hand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from temporeal_bridge.instruction.sentences import ASK, TOLD
from temporeal_bridge.mission import IDLE, NOT_RESET, MissionStatus, check_numbers, refused
from temporeal_bridge.process.command_line import parser
from temporeal_bridge.recording import records
from temporeal_bridge.recording.records import Event
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.selection import open_transport
from temporeal_bridge.transports.transport import QOS, Received, Transport, TransportError, require_peer

NAME = "operator_messages"
NUMBER, EMPTY, TEXT, HEADER = (f"std_msgs/msg/{name}" for name in ("UInt64", "Empty", "String", "Header"))
REQUESTS = {"start": NUMBER, "stop": EMPTY, "reset": EMPTY, "instruct": TEXT}
TOPICS = {"instruct": ASK}  # of a request; else mission/<word>
ANSWERS = (("mission", HEADER, "latched"), ("guard/event", TEXT, "default"), ("policy/event", TEXT, "default"))
PEER_S, AFTER_S = 5.0, 0.3  # to find a subscriber; for the message to leave, and for what follows an outcome at once
CONNECT_S = 1.0  # until possible refusals can be received; a stop does not wait for that
ANSWER_S = 2.5  # for the outcome: a controller waits 2 s for the first state after a start
AGAIN_S = 0.1  # between repetitions of a stop: the first one may have reached the recorder, and not yet the guard
AT_REST_S = 26.0  # for a stop action that is under way, and a quadrotor sinks slowly: only its end shows that it was
# not a mission's own
LOOK_S = 0.05


class Outcome(NamedTuple):
    """Whether the request was carried out, and a line about it."""

    done: bool
    text: str


class Answers:
    """Messages of guard and controller: the guard's status now and at the time of the request, events and answers to
    instructions since."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.status: MissionStatus | None = None
        self.before: MissionStatus | None = None
        self.events: list[tuple[str, Event]] = []  # with their topic
        self.told: list[str] = []
        self.endpoints = [
            transport.subscribe(topic, kind, QOS[qos], partial(self._take, topic)) for topic, kind, qos in ANSWERS]
        transport.subscribe(TOLD, TEXT, QOS["latched"], partial(self._take, TOLD))  # of few controllers: not waited for

    def _take(self, topic: str, received: Received) -> None:
        try:
            content = records.read(topic, received)
        except records.RecordError:  # of somebody else
            return
        if topic == "mission":
            self.status = content
        elif topic == TOLD:
            self.told.append(content)
        else:
            self.events.append((topic, content))

    def connect(self) -> None:
        """Wait until answers would be received."""
        self.wait(CONNECT_S, lambda: self.status is not None and all(map(self.transport.matched, self.endpoints)))

    def begin(self) -> None:
        """Messages from now on may be answers."""
        self.before = self.status
        self.events.clear()
        self.told.clear()

    def wait(self, seconds: float, until: Callable[[], Any] = lambda: False) -> None:
        """Receive."""
        end = self.transport.monotonic() + seconds
        while not until() and (left := end - self.transport.monotonic()) > 0:
            self.transport.wait(min(left, LOOK_S))

    @property
    def now(self) -> str:
        """The guard's mode, in words."""
        return "the guard is silent" if self.status is None else f"the guard is {self.status.mode}"

    @property
    def why(self) -> str:
        """The reason in its last event."""
        return "".join(f": {event.reason}" for topic, event in self.events[-1:] if topic == "guard/event")


def started(answers: Answers, number: int) -> Outcome | None:
    """Whether a mission has begun; None: not known yet."""
    for topic, event in answers.events:
        barred = topic == "guard/event" and refused(event.reason) == number
        if barred or (topic == "policy/event" and event.flight == number):
            return Outcome(False, event.reason)
    status = answers.status
    if status is None or status.number != number or (
            answers.before and status.start_ns == answers.before.start_ns):
        return None
    if answers.before is None and status.mode not in ("arming", "active"):  # late and latched: of an earlier mission
        return None
    begun = status.mode in ("arming", "active", "finished")
    return Outcome(begun, f"mission {number}: {answers.now}{'' if begun else answers.why}")


def stopped(answers: Answers, _: int) -> Outcome | None:
    """Whether the guard stops the robot for the operator, or has: `stopping` alone may be a mission's own end."""
    noticed = any(topic == "guard/event" and event.code == "operator" for topic, event in answers.events)
    status = answers.status
    rests = status is not None and status.mode in ("holding", "stopped")
    stops = rests or (noticed and status is not None and status.mode == "stopping")
    return Outcome(True, f"{answers.now}{answers.why}") if stops else None


def reset(answers: Answers, _: int) -> Outcome | None:
    """Whether no reason is latched any more."""
    for topic, event in answers.events:
        if topic == "guard/event" and event.reason.startswith(NOT_RESET):
            return Outcome(False, event.reason)
    return Outcome(True, answers.now) if answers.status is not None and answers.status.mode in IDLE else None


def instructed(answers: Answers, _: int) -> Outcome | None:
    """Whether the controller's policy was told the sentence."""
    for topic, event in answers.events:
        if topic == "policy/event" and event.code == "instruction":
            return Outcome(False, event.reason)
    return Outcome(True, f"told: {answers.told[-1]}") if answers.told else None


OUTCOMES = {"start": started, "stop": stopped, "reset": reset, "instruct": instructed}


def request(transport: Transport, word: str, number: int = 0, sentence: str = "") -> Outcome:
    """Publish the request once there is a subscriber (none: :class:`TransportError`), and wait for the outcome. A stop
    is repeated until then, other requests are sent once. ``number``: of a mission to start; ``sentence``: to instruct.
    """
    check_numbers("the number of a mission", number)
    answers = Answers(transport)
    endpoint = transport.advertise(TOPICS.get(word, f"mission/{word}"), REQUESTS[word], QOS["default"])
    require_peer(transport, endpoint, PEER_S)
    if word != "stop":
        answers.connect()
    answers.begin()
    asked = transport.monotonic()
    content = {NUMBER: number, TEXT: sentence}.get(REQUESTS[word])
    message = messages.empty() if content is None else messages.encode(
        REQUESTS[word], messages.record(REQUESTS[word])(data=content))
    transport.publish(endpoint, message)
    outcome = partial(OUTCOMES[word], answers, number)
    if word == "stop":
        repeat(answers, outcome, partial(transport.publish, endpoint, message))
    else:
        answers.wait(ANSWER_S, outcome)
    answers.wait(AFTER_S)
    waited = transport.monotonic() - asked
    return outcome() or Outcome(False, f"{word}: no answer within {waited:.1f} s, {answers.now}")


def repeat(answers: Answers, outcome: Callable[[], Outcome | None], publish: Callable[[], None]) -> None:
    """Publish every 0.1 s until the outcome, for as long as an answer may take."""
    began = answers.transport.monotonic()
    while not outcome():
        stopping = answers.status is not None and answers.status.mode == "stopping"
        if answers.transport.monotonic() - began > (AT_REST_S if stopping else ANSWER_S):
            return
        answers.wait(AGAIN_S, outcome)
        if not outcome():
            publish()


def meant(word: str, what: str | None) -> tuple[int, str]:
    """The mission's number and the sentence that belong to a request; ValueError where it takes another kind."""
    if word == "instruct":
        if not (what or "").strip():
            raise ValueError("the instruction is empty: a sentence, or a formula, of a policy that takes one")
        return 0, what or ""
    if what is not None and not what.isdecimal():
        raise ValueError(f"{word} takes the number of a mission, got {what!r}")
    return int(what or 0), ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = parser(NAME, "Start, stop or reset the mission of one robot, or say what it is; report the outcome.")
    options.add_argument("word", choices=tuple(REQUESTS),
                         help="to the controller: start, instruct; to the guard: stop, reset")
    options.add_argument("what", nargs="?", default=None, metavar="NUMBER|SENTENCE",
                         help="start: number of the mission (0); instruct: what the next missions are to do")
    args = options.parse_args(arguments)
    try:
        transport = open_transport(args.transport, NAME, args.namespace, domain=args.domain, loopback=args.loopback)
        try:
            found = request(transport, args.word, *meant(args.word, args.what))
        finally:
            transport.close()
    except (TransportError, ValueError) as error:
        print(f"{NAME}: error: {error}", file=sys.stderr)
        return 2
    print(found.text if found.done else f"{NAME}: {found.text}", file=sys.stdout if found.done else sys.stderr)
    return 0 if found.done else 1


if __name__ == "__main__":
    sys.exit(main())
