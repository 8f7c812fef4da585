"""What an operator says to a robot's nodes, where no ``ros2 topic pub`` is at hand, and what comes of it.

    python -m temporeal_bridge.operator_messages start 1 --namespace /arm1
    python -m temporeal_bridge.operator_messages stop --namespace /arm1
    python -m temporeal_bridge.operator_messages reset --namespace /arm1

The exit status is 0 where it was done, 1 where it was not (guard or controller say why), 2 where nobody listens.
This is no emergency stop: it takes seconds to start and join the bus. Have the robot's own stop in your hand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from temporeal_bridge.mission import IDLE, NOT_RESET, MissionStatus, check_numbers, refused
from temporeal_bridge.process.command_line import parser
from temporeal_bridge.recording import records
from temporeal_bridge.recording.records import Event
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.selection import open_transport
from temporeal_bridge.transports.transport import QOS, Received, Transport, TransportError, require_peer

NUMBER, EMPTY, TEXT, HEADER = (f"std_msgs/msg/{name}" for name in ("UInt64", "Empty", "String", "Header"))
WORDS = {"start": NUMBER, "stop": EMPTY, "reset": EMPTY}
ANSWERS = (("mission", HEADER, "latched"), ("guard/event", TEXT, "default"), ("policy/event", TEXT, "default"))
PEER_S, AFTER_S = 5.0, 0.3  # to find who listens; for the message to leave, and for what follows an outcome at once
CONNECT_S = 1.0  # until we hear who may refuse; a stop does not wait for that
ANSWER_S = 2.5  # for the outcome: a controller waits 2 s for the first state after a start
AGAIN_S = 0.1  # a stop is said again: who heard the first one may be the recorder, and not yet the guard
AT_REST_S = 26.0  # for a stop action that is under way, and a quadrotor sinks slowly: nothing but its end says that it
# will not go on as a mission's
LOOK_S = 0.05


class Outcome(NamedTuple):
    """Whether what was asked for was done, and what to say of it."""

    done: bool
    text: str


class Answers:
    """What the guard and the controller say: the guard's mode now and when we began, and events since then."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.mode: MissionStatus | None = None
        self.before: MissionStatus | None = None
        self.events: list[tuple[str, Event]] = []  # with their topic
        self.endpoints = [
            transport.subscribe(topic, kind, QOS[qos], partial(self._take, topic)) for topic, kind, qos in ANSWERS]

    def _take(self, topic: str, received: Received) -> None:
        try:
            said = records.read(topic, received)
        except records.RecordError:  # of somebody else
            return
        if topic == "mission":
            self.mode = said
        else:
            self.events.append((topic, said))

    def connect(self) -> None:
        """Until we would hear an answer."""
        self.wait(CONNECT_S, lambda: self.mode is not None and all(map(self.transport.matched, self.endpoints)))

    def begin(self) -> None:
        """What is said from now on may be an answer."""
        self.before = self.mode
        self.events.clear()

    def wait(self, seconds: float, until: Callable[[], Any] = lambda: False) -> None:
        """Listen."""
        end = self.transport.monotonic() + seconds
        while not until() and (left := end - self.transport.monotonic()) > 0:
            self.transport.wait(min(left, LOOK_S))

    @property
    def now(self) -> str:
        """The guard's mode, in words."""
        return "the guard is silent" if self.mode is None else f"the guard is {self.mode.mode}"

    @property
    def why(self) -> str:
        """Its last words."""
        return "".join(f": {event.reason}" for topic, event in self.events[-1:] if topic == "guard/event")


def started(said: Answers, number: int) -> Outcome | None:
    """Whether a mission has begun; None: nobody has said so yet, nor why not."""
    for topic, event in said.events:
        barred = topic == "guard/event" and refused(event.reason) == number
        if barred or (topic == "policy/event" and event.flight == number):
            return Outcome(False, event.reason)
    mode = said.mode
    if mode is None or mode.number != number or (said.before and mode.start_ns == said.before.start_ns):
        return None
    if said.before is None and mode.mode not in ("arming", "active"):  # of an earlier mission, and late: it is latched
        return None
    begun = mode.mode in ("arming", "active", "finished")
    return Outcome(begun, f"mission {number}: {said.now}{'' if begun else said.why}")


def stopped(said: Answers, _: int) -> Outcome | None:
    """Whether the guard stops the robot for the operator, or has: `stopping` alone may be a mission's own end."""
    heard = any(topic == "guard/event" and event.code == "operator" for topic, event in said.events)
    rests = said.mode is not None and said.mode.mode in ("holding", "stopped")
    stops = rests or (heard and said.mode is not None and said.mode.mode == "stopping")
    return Outcome(True, f"{said.now}{said.why}") if stops else None


def reset(said: Answers, _: int) -> Outcome | None:
    """Whether no reason is latched any more."""
    for topic, event in said.events:
        if topic == "guard/event" and event.reason.startswith(NOT_RESET):
            return Outcome(False, event.reason)
    return Outcome(True, said.now) if said.mode is not None and said.mode.mode in IDLE else None


OUTCOMES = {"start": started, "stop": stopped, "reset": reset}


def tell(transport: Transport, word: str, number: int = 0) -> Outcome:
    """Publish ``mission/<word>`` as soon as somebody listens; nobody does: :class:`TransportError`. Then listen until
    guard or controller have said what came of it. A stop is said again until then, the other words once."""
    check_numbers("the number of a mission", number)
    said = Answers(transport)
    endpoint = transport.advertise(f"mission/{word}", WORDS[word], QOS["default"])
    require_peer(transport, endpoint, PEER_S)
    if word != "stop":
        said.connect()
    said.begin()
    asked = transport.monotonic()
    content: dict[str, Any] = {"data": number} if WORDS[word] == NUMBER else {}
    message = messages.encode(NUMBER, messages.record(NUMBER)(**content)) if content else messages.empty()
    transport.publish(endpoint, message)
    outcome = partial(OUTCOMES[word], said, number)
    if word == "stop":
        insist(said, outcome, partial(transport.publish, endpoint, message))
    else:
        said.wait(ANSWER_S, outcome)
    said.wait(AFTER_S)
    waited = transport.monotonic() - asked
    return outcome() or Outcome(False, f"{word}: no answer within {waited:.1f} s, {said.now}")


def insist(said: Answers, outcome: Callable[[], Outcome | None], say: Callable[[], None]) -> None:
    """Say it every 0.1 s until its outcome, as long as an answer may take."""
    began = said.transport.monotonic()
    while not outcome():
        stopping = said.mode is not None and said.mode.mode == "stopping"
        if said.transport.monotonic() - began > (AT_REST_S if stopping else ANSWER_S):
            return
        said.wait(AGAIN_S, outcome)
        if not outcome():
            say()


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = parser("tell", "Start, stop or reset the mission of one robot, and say what came of it.")
    options.add_argument("word", choices=tuple(WORDS), help="to the controller: start; to the guard: stop, reset")
    options.add_argument("number", nargs="?", type=int, default=0, help="of the mission to start (%(default)s)")
    args = options.parse_args(arguments)
    try:
        transport = open_transport(args.transport, "tell", args.namespace, domain=args.domain, loopback=args.loopback)
        try:
            found = tell(transport, args.word, args.number)
        finally:
            transport.close()
    except (TransportError, ValueError) as error:
        print(f"tell: error: {error}", file=sys.stderr)
        return 2
    print(found.text if found.done else f"tell: {found.text}", file=sys.stdout if found.done else sys.stderr)
    return 0 if found.done else 1


if __name__ == "__main__":
    sys.exit(main())
