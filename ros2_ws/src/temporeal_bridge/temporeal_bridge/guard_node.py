"""The guard: the only process that commands the robot. It forwards what is fresh and within limits, and stops the rest.

    python -m temporeal_bridge.guard_node --artifact outputs/demo/artifact --namespace /cf1

The controller (`policy_node`) proposes over a local socket (:mod:`temporeal_bridge.link`); it may hang, crash or say
nonsense. The guard reads the artifact's manifest and the robot's ``ros.yaml``, never the network: it is small, and
nothing in it waits for anybody. What it demands, and what it does else, is :mod:`temporeal_bridge.guard.safety`. Here
is the state machine; what a proposal must be is :mod:`temporeal_bridge.guard.admission`, what stop actions send
:mod:`temporeal_bridge.guard.active_stop`, how another artifact takes over :mod:`temporeal_bridge.guard.swap_requests`.

Modes: ``waiting`` (no fresh state, or no controller) -> ``ready`` -> ``active`` -> ``stopping`` (the stop action of the
robot's profile) -> ``finished`` (the mission is over), or, after a reason: ``holding`` (the robot is kept where it came
to rest) or ``stopped`` (silence). A reason is latched: only ``mission/reset`` leads back to ``ready``. Where an
autopilot stands between the commands and the motors (:mod:`temporeal_bridge.guard.px4`), ``arming`` comes between
``ready`` and ``active``: until it is armed and obeys, the controller waits, and its mission time does not run.

Topics, in the robot's namespace:

- ``mission/stop``, ``mission/reset`` (std_msgs/Empty), ``estop`` (std_msgs/Bool), ``monitor/verdict``: in; a second
  stop, 2 s later, lets the motors of a quadrotor down that levels;
- ``mission`` (std_msgs/Header, latched: stamp = mission time zero, frame_id = "<mode> <flight>"): out;
- ``guard/command`` (std_msgs/Float64MultiArray: :class:`~temporeal_bridge.mission.CommandRecord`), after every command:
  out;
- ``guard/event`` (std_msgs/String, JSON: mode, flight, t [s] since the mission began, code, reason): out;
- ``guard/swap`` (std_msgs/Float64MultiArray: flight, step, weight w, then two commands a and b: (1 - w) a + w b was
  asked for): while an artifact is exchanged (:mod:`temporeal_bridge.guard.artifact_swap`): out;
- ``guard/artifact`` (std_msgs/String, latched, JSON: name, identity, robot, command, interface, rate_hz, manifest, the
  folder it was read from, and topics that are remapped): what a recording is of, out;
- ``/diagnostics`` (diagnostic_msgs/DiagnosticArray, 1 Hz): out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.robots.artifact.manifest import Manifest, load_manifest, mission_digest, to_json
from temporeal.robots.motion import shield
from temporeal.robots.motion.collision import Nearness
from temporeal.robots.motion.rate_limiter import Array, Motion, at_rest, resting
from temporeal.robots.motion.smooth_trajectory import course
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.codecs.table import COMMAND_CODECS
from temporeal_bridge.guard import admission, hover_thrust, safety, stop_actions
from temporeal_bridge.guard import level as levelling
from temporeal_bridge.guard.active_stop import Stopper
from temporeal_bridge.guard.announcements import Voice
from temporeal_bridge.guard.artifact_swap import ArtifactSwap
from temporeal_bridge.guard.config_checks import profile_on
from temporeal_bridge.guard.ground import Ground
from temporeal_bridge.guard.hover_thrust import Flown
from temporeal_bridge.guard.px4 import Offboard
from temporeal_bridge.guard.state_monitor import NOTHING, Reason, Watch
from temporeal_bridge.guard.stop_actions import Values
from temporeal_bridge.guard.stop_button import STOPS, StopButton
from temporeal_bridge.guard.swap_requests import Exchange, Standing
from temporeal_bridge.interface.encoding import encode_all
from temporeal_bridge.interface.interface import ARM, CommandTopic, Interface, Topic, armed_by, rows_of
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.interface.state_input import StateInput
from temporeal_bridge.link import datagrams
from temporeal_bridge.link.datagrams import Answer, Proposal
from temporeal_bridge.link.ends import GuardEnd
from temporeal_bridge.link.sockets import SocketGuard
from temporeal_bridge.mission import (
    AGES,
    END_REQUESTED,
    FLIGHTS,
    IDLE,
    MOVING,
    NOT_RESET,
    CommandRecord,
    check_fits,
    newest,
    percentiles,
    refusal,
)
from temporeal_bridge.process.command_line import add_artifact, add_awake, link_path, parser, robot_of
from temporeal_bridge.process.node import run
from temporeal_bridge.process.rehearsal import REHEARSED_S, Rehearsal
from temporeal_bridge.process.scheduling import AHEAD
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS, Received, Transport, qos_named, resolve_name

DIAGNOSTICS_S = 1.0
LOOK_S = 0.5  # so often it is looked whether somebody else commands the robot
IDLE_LOOK_S = 0.1  # ... before a mission, and once the guard was deactivated
TICK_S = 0.005  # at least so often the bus is looked at while the robot is commanded
IDLE_S = 0.02  # ... and else
HELD_UP = 2.0  # of these ticks without a turn, and it was held up. Chosen
GREETING_S = 2.0  # a controller that has said nothing for so long is gone
LATE = 1.5  # periods after the last command in which the next one is not late
ON_TIME = 0.9  # periods after the last command from which on one more has been missed with every period
EARLY = 0.5  # periods before its turn in which a command is not early
PACE = 0.95  # of a period: clocks and drivers may be so much faster than they say, not more for long
COMMANDED = ("arming", "active", "stopping", "holding")
ONCE = ("best_effort",)  # an echo of a reset could clear a reason that came since
HEARD = ("mission/start", "mission/stop", "mission/reset", "estop", "monitor/verdict")  # what others say
UNHEARD = ("silent", "stale", "stamps")  # codes that a guard finds which did not listen
LAST_WORDS = ("operator", "autopilot")  # codes that end a stop action, too
NEARER_M = 0.001  # of links: what sensors' noise is worth; chosen
RESET_AFTER_S = 0.5  # a reset that is heard sooner after a stop may be the older word. Chosen: what comes in 20 ms
# is heard together, network and busy computers add to that; who has seen the robot stop needs longer to answer
GONE_S = 1.0  # a robot that was silent for longer may have been off. Chosen: no driver starts again sooner
RESCUE_S = 26.0  # at most, for the last stop action of a guard that failed: a quadrotor sinks slowly


@dataclass
class Flight:
    """Figures of one mission."""

    number: int
    start_ns: int = 0
    began: float = 0.0
    step: int = -1  # the last one taken
    sent: int = 0
    limited: int = 0  # commands that were changed
    bridged: int = 0  # commands of the guard's own for periods in which the controller was late
    dropped: int = 0  # proposals of another mission, or older than the last
    swapped: list[Any] = field(default_factory=list)  # after which step which artifact (identity) took over in flight
    code: str = ""
    reason: str = ""
    action: str = ""  # under way, or the last one: a later stop may have changed it
    answer: str = ""  # the stop action for the reason
    # from the state's arrival at the controller to the command's departure; percentiles once the next mission began
    latency_s: deque[float] = field(default_factory=lambda: deque(maxlen=AGES))
    latency_ms: dict[str, float | None] | None = None

    def again(self) -> Flight:
        """The same mission with nothing in its book."""
        return Flight(self.number, self.start_ns, self.began)

    def close(self) -> None:
        """Keep percentiles only."""
        self.latency_ms, self.latency_s = percentiles(list(self.latency_s)), deque(maxlen=AGES)


UNKNOWN = "the controller has not said which artifact it flies"


class GuardNode:
    """One robot, guarded."""

    def __init__(
        self, transport: Transport, manifest: Manifest, robot: RobotSpec, interface: Interface, line: GuardEnd,
        folder: Path | None = None, trust: Path | None = None, awake: bool = False,
    ) -> None:
        """``awake``: see :class:`temporeal_bridge.process.rehearsal.Rehearsal`."""
        if len(manifest.commands) != 1:
            raise ValueError(f"one command is expected, the artifact gives {[c.name for c in manifest.commands]}")
        self.transport, self.robot, self.interface, self.link = transport, robot, interface, line
        self.spec = robot.command(manifest.commands[0].name)
        self.nothing = np.full(self.spec.size, np.nan)
        self.period = 1.0 / manifest.rate_hz
        self.rehearsal = Rehearsal(self.period, awake, REHEARSED_S)
        self.asked = self.nothing  # for the last time [A]
        self.profile = profile_on(robot, interface, self.spec, self.period)
        rule = self.profile.self_collision
        self.nearness = None if rule is None else Nearness(rule.capsules, rule.margin)
        self.looks = self.profile.effort is not None or bool(self.profile.joints)  # the state has a say
        self.limits, self.keeps = self.profile.limits, self.profile.action("default") in safety.KEEPS
        self.rates = self.keeps and safety.is_rate(self.spec)  # what the robot holds of them for ever is no rest
        self.exchange = Exchange(manifest, self.profile, robot, interface, line, self._tell, trust)
        self.topic = interface.command(self.spec.name)
        self.led = COMMAND_CODECS[self.topic.codec].encode_course is not None  # the robot is told the way to rest
        self.watch = Watch(self.profile, [state.rate_hz for state in interface.states])
        self.state = StateInput(
            transport, robot, interface, listener=self._on_state, wanted=self.profile.signals())
        orders = None if interface.autopilot is None else interface.autopilot.orders
        rows: list[CommandTopic | Topic] = [*rows_of(self.topic), *([] if orders is None else [orders])]
        self.endpoints = {row.topic: transport.advertise(row.topic, row.type, qos_named(row.qos)) for row in rows}
        self.command = self.endpoints[self.topic.topic]
        self.offboard: Offboard | None = None
        if interface.autopilot is not None:
            self.offboard = Offboard(interface.autopilot, self.topic, self.spec.shape)
            status = interface.autopilot.status
            transport.subscribe(status.topic, status.type, qos_named(status.qos), self._on_autopilot)
        self.voice = Voice(transport)
        self.button = StopButton(transport, self.profile.estop, self._on_estop, self._count_garbled)
        for topic, type, taker, ways in (
                ("mission/stop", "std_msgs/msg/Empty", self._on_stop, STOPS),
                ("mission/reset", "std_msgs/msg/Empty", self._on_reset, ONCE),
                ("monitor/verdict", "std_msgs/msg/String", self._on_verdict, ("default",))):
            for way in ways:
                transport.subscribe(topic, type, QOS[way], taker)
        self.mode, self.flight, self.flights = "waiting", Flight(-1), deque[Flight](maxlen=FLIGHTS)
        self.latency_s: deque[float] = deque(maxlen=AGES)
        self.garbled = 0  # messages that could not be read
        self.motion: Motion | None = None
        self.origin: Array | None = None  # where the robot was when the mission began
        self.nearest = np.inf  # m: its links may come so near to each other, if not the margin, for they began so
        self.stopper = Stopper(
            robot, self.spec, self.profile, self.watch, self.looks, autopilot=interface.autopilot is not None)
        self.left: Motion | None = None  # of an earlier mission, which the robot may hold for ever
        self.lost: Motion | None = None  # the last one of a hand that fell silent then
        self.levels, self.flown = "level" in self.profile.stop.values(), Flown()
        self.ground = Ground(hover_thrust.lifts(robot) if self.levels else 1.0)
        # m: what begins below it stands
        self.below = max((self.profile.level or {}).get("landed_m", 0.0), self.profile.unlock_below_m or 0.0)
        self.nominal = hover_thrust.nominal_thrust(robot) if self.levels else 1.0  # N, of its thrust
        self.greeted, self.heard, self.due = -np.inf, -np.inf, np.inf
        self.sent_at = self.turn = -np.inf  # of the last command; when the next one is expected
        self.stands_at = -np.inf  # the time that ``motion`` is of: ``sent_at``, or later once the guard has caught up
        self.acting = 0.0  # the time that the command being made is for
        self.stepped = transport.monotonic()
        self.stop_heard = -np.inf  # when the operator's last word to stop was
        self.word_at, self.freed = -np.inf, True  # ... in this mission; whether estop was false since it was true
        self.rests_at = -np.inf  # when the robot came to rest for a reason
        self.stranger = UNKNOWN  # why the controller on the line is not ours
        self.unlocked = self.told_to_end = False
        self.rivals = interface.rivals_of(self.spec.name)  # topics
        self.rival, self.next_look = "", transport.monotonic() + IDLE_LOOK_S
        self._look()  # the first look takes milliseconds: not in flight
        self.next_report = transport.monotonic() + DIAGNOSTICS_S
        self._introduce(folder)
        self._say("waiting")

    @property
    def manifest(self) -> Manifest:
        """Of the artifact in charge."""
        return self.exchange.manifest

    @property
    def identity(self) -> str:
        """Digest of that."""
        return self.exchange.identity

    @property
    def swap(self) -> ArtifactSwap | None:
        """The exchange of it that is under way."""
        return self.exchange.swap

    # what comes in

    def _on_state(self, topic: int, stamp: int, signals: dict[str, np.ndarray]) -> None:
        self.watch.take(topic, stamp, signals, self.transport.monotonic(), self.transport.now())

    def _on_autopilot(self, received: Received) -> None:
        message = self._read(received)
        if self.offboard is not None and message is not None:
            self.offboard.on_status(message, received.at)

    def _read(self, received: Received) -> Any:
        """The message, None if these bytes are none: counted, and as good as nothing."""
        try:
            return messages.decode(received.type, received.data)
        except messages.MessageError:
            self._count_garbled()
            return None

    def _count_garbled(self) -> None:
        self.garbled += 1

    def _on_stop(self, received: Received) -> None:
        self.stop_heard = self.transport.monotonic()
        self.stop("operator", "stopped by the operator")
        self._insist(self.stop_heard)

    def _on_estop(self) -> None:
        self.stop_heard = self.transport.monotonic()
        self.stop("operator", "the operator's stop is set")
        if self.freed:  # it is said again and again while it is set: one word
            self.freed = False
            self._insist(self.stop_heard)

    def _insist(self, now: float) -> None:
        """The operator's word. A second one lets down what levels, whatever else is known: he may see that it stands.
        What repeats a word sooner than after AGAIN_S is one word."""
        quiet, self.word_at = now - self.word_at, now
        if self.mode == "stopping" and levelling.AGAIN_S <= quiet < np.inf and self.stopper.insist():
            self._tell("operator", "stopped by the operator again: its motors are let down, whatever else is known")

    def _on_verdict(self, received: Received) -> None:
        message = self._read(received)
        try:
            said = {} if message is None else json.loads(message.data)
            began = said.get("start_ns", self.flight.start_ns)  # monitors of before did not say it
            ours = (said.get("flight"), began) == (self.flight.number, self.flight.start_ns) and self.mode == "active"
            violated, at_risk = said.get("verdict") == "violated", bool(said.get("at_risk"))
            if ours and "mission" in said:  # ... nor which formula they judge: not to be another one
                ours = said.get("artifact") == self.identity or (
                    said["mission"] == mission_digest(to_json(self.manifest)))
        except (ValueError, AttributeError, RecursionError):  # no JSON, no object, or one without end
            self._count_garbled()
            return
        if ours and at_risk:
            self._tell("at_risk", f"robustness ends at {said.get('upper')} at most")
        if not ours or not violated:
            return
        if self.profile.violated == "stop":
            self.stop("violated", f"the formula is violated: {self.manifest.formula}")
        else:
            self._tell("violated", "the formula is violated")

    def _on_reset(self, received: Received) -> None:
        """Clear a latched reason; the robot is let go of, wherever it is. What has come since the last look is heard
        topic by topic, a stop before a reset whichever was said first: a reset clears what was there before it."""
        if self.mode not in ("stopping", "holding", "stopped"):
            return
        refused = self._not_reset(self.transport.monotonic())
        if refused:
            return self._tell("operator", f"{NOT_RESET}: {refused}")
        self._release()
        self.due, self.left, self.motion = np.inf, self.motion or self.left, None
        self.flight = self.flight.again()
        if self.offboard is not None:
            self.offboard.reset()
        self._let_go()
        self._say("waiting")

    def _not_reset(self, now: float) -> str:
        """Why a reset that is heard now may not be."""
        if self.button.set:
            return "the operator's stop is still set"
        if self.mode == "stopping":
            return "the robot is still stopping: say reset when it has stopped"
        if now - self.stop_heard < RESET_AFTER_S:
            return f"a stop was heard {now - self.stop_heard:.2f} s ago: say reset again"
        # stopped since this look began, for a reason that was found before the bus was looked at
        return "the robot has just been stopped: say reset again" if self.rests_at >= self.stepped else ""

    def _let_go(self) -> None:
        """Listen to whichever controller speaks next; it must say what it flies."""
        self.exchange.swap = None
        self.link.release()
        self.greeted, self.stranger = -np.inf, UNKNOWN  # not ready before that

    def _hear(self, p: Proposal, now: float) -> None:
        """One datagram of the controller."""
        if p.successor:
            self._hear_successor(p, now)
        elif p.kind == datagrams.HELLO:
            self.greeted = now
            ours = self.identity
            self.stranger = "" if p.text == ours else (
                f"the controller flies another artifact ({p.text[:12]}...) than the guard was given ({ours[:12]}...)")
            self._answer()
        elif p.kind == datagrams.BEGIN:
            self.begin(p, now)
        elif self.mode != "active" or p.flight != self.flight.number:
            self._foreign(p)
        elif p.kind == datagrams.COMMAND and p.stamp_ns != self.flight.start_ns:
            self._foreign(p)
        elif p.kind == datagrams.COMMAND:
            self._forward(p, now)
        elif p.kind == datagrams.END:
            self.end(p.text)
        elif p.kind == datagrams.FAIL:
            self.stop("policy", p.text)

    def _foreign(self, p: Proposal) -> None:
        """What belongs to no mission of this guard: who flies on since an earlier guard's must hear that it is over."""
        self.flight.dropped += 1
        if (p.flight, p.stamp_ns) == (self.flight.number, self.flight.start_ns):
            self._answer()
        elif self.mode != "arming":
            self.link.answer(Answer("refused", p.flight, p.stamp_ns, "the guard does not fly this mission"))

    # modes

    def _say(self, mode: str) -> None:
        if mode not in COMMANDED and self.mode in COMMANDED:
            self._release()
        if mode in ("holding", "stopped"):
            self.rests_at = self.transport.monotonic()
        self.mode = mode
        if mode != "active":
            self.exchange.drop(f"the mission is over: {self.flight.reason or mode}")
        if self.offboard is not None and mode not in COMMANDED:
            self.offboard.release()
        self.voice.mode(mode, self.flight.number, self.flight.start_ns)
        self._answer()

    def _answer(self) -> None:
        self.link.answer(Answer(
            self.mode, self.flight.number, self.flight.start_ns, self.stranger or self.flight.reason))

    def _tell(self, code: str, reason: str) -> None:
        since = round(self.transport.monotonic() - self.flight.began, 6) if self.flights else None
        self.voice.event(self.mode, self.flight.number, since, code, reason)

    def _introduce(self, folder: Path | None) -> None:
        self.voice.artifact(
            self.manifest, self.identity, self.spec.name, self.interface.name, folder, self._renamed())

    def _renamed(self) -> dict[str, str]:
        """By the full names that they would have, topics that are called otherwise here: a bag knows them by these."""
        names = [*HEARD, *(row.topic for row in self.interface.topics)]
        both = {resolve_name(name, self.transport.namespace): self.transport.resolve(name) for name in names}
        return {plain: called for plain, called in both.items() if plain != called}

    def begin(self, p: Proposal, now: float) -> None:
        """A mission begins, unless something speaks against it; under an autopilot the way into the air does first."""
        code, reason = self._refusal(p, now)
        barred = self._barred(now)
        if not reason and self.offboard is not None and self.mode != "arming":
            code, reason = "autopilot", self.offboard.ask(now)
            barred = "the autopilot has just been asked"
        if reason:
            self._tell(code or "refused", f"{refusal(p.flight)}: {reason}")
            return self.link.answer(Answer("refused", p.flight, p.stamp_ns, reason))
        if self.mode == "arming":
            self.flights.pop()  # the same mission, with another time zero
        elif self.flights:
            self.flights[-1].close()
        self.flight = Flight(p.flight, p.stamp_ns, now)
        self.flights.append(self.flight)
        self.left = self.motion or self.left
        self.heard, self.origin, self.motion, self.flown = now, None, None, Flown()
        self.word_at, self.freed = -np.inf, True
        self.unlocked = True  # whether it was or not: from now on it is in the air, and a zero would cut its motors
        self.sent_at = self.turn = self.stands_at = -np.inf
        self.watch.grounded = self.levels and not self._flies(now)
        if self.levels:
            self.ground.begin(float(self.watch.values["height"]), self.below)
        self.due = now if barred else np.inf
        self._say("arming" if barred else "active")

    def _refusal(self, p: Proposal, now: float) -> Reason:
        """What speaks against a start."""
        again = self.mode == "arming" and p.flight == self.flight.number
        if self.mode not in ("ready", "finished") and not again:
            return "", (f"the guard is {self.mode}: {self.flight.reason}; mission/reset clears it"
                        if self.flight.reason else f"the guard is {self.mode}")
        return self._obstacle(now)

    def _obstacle(self, now: float) -> Reason:
        """What speaks against a mission before it has begun."""
        if not self.transport.active:
            return "inactive", "the guard is not active: ros2 lifecycle set configures and activates it"
        if self.stranger:
            return "policy", self.stranger
        self.watch.begin(now)  # that somebody moved the robot before is no reason
        stop = self.button.reason(now)
        if stop == NOTHING and self.rival:
            stop = ("publisher", self.rival)
        return stop if stop != NOTHING else self.watch.reason(now, None)

    def _barred(self, now: float) -> str:
        """Why the autopilot, if there is one, may get no command now."""
        return "" if self.offboard is None else self.offboard.refusal(now)

    def end(self, after: str) -> None:
        """The mission is over: the profile's stop action, or nothing more (``after``: stop, silence). A robot that is
        told speeds or efforts is always stopped: silence would leave the last one in force."""
        if after == "silence" and not self.rates:
            return self._say("finished")
        self.flight.action = self.profile.action("default")
        self._begin_stop(self.flight.action)

    def stop(self, code: str, reason: str) -> None:
        """End the mission for a reason, which is latched.

        A stop action that is under way goes on, but the operator can end it by the one that the profile has for him,
        and an autopilot that does not obey any more by silence. His stop is latched in every mode: a start that is on
        its way must not begin after it; and it ends the grip that a mission has left (:meth:`_grips`).
        """
        stood = self.transport.monotonic() - self.stepped
        if self.mode == "active" and code in UNHEARD and stood > self.profile.silent_after_s:  # within a step
            code, reason = "guard", f"the guard itself stood still for {stood:.3f} s"
        left = code == "operator" and self._grips()
        action = "silence" if self.mode in (*IDLE, "arming") and not left else self.profile.action(code)
        if self.mode in ("stopping", "holding"):
            if code not in LAST_WORDS or (self.flight.reason and action == self.flight.action):
                return
        elif (self.mode == "stopped" and not left) or (self.mode in IDLE and code != "operator"):
            if code == "operator" and self.lost is not None:
                self._tell("held", "the hand may still hold what it was told before it was silent: where it is is not "
                                   "known yet: say stop again")
            return
        if self.mode in IDLE:  # of the mission that was flown before it is no reason
            self.flight = self.flight.again()
        if not self.flight.reason:
            self.flight.code, self.flight.reason, self.flight.answer = code, reason, action
        if self.mode != "stopping" or action != self.flight.action:  # else it goes on, but needs a reset now
            self.flight.action = action
            self._begin_stop(action)
        self._tell(code, reason)

    def _grips(self) -> bool:
        """Whether the robot may hold for ever what a mission told it last, maybe with a grip, and a hold can end that.
        A stop that is a ramp would say the same place again, to a robot that somebody may have moved since."""
        return (self.profile.action("operator") == "hold" and self.offboard is None and self.transport.active
                and not self.rival and self._gripped() is not None)

    def _gripped(self) -> Motion | None:
        """What a hold that ends a grip goes on from: what was told last; of a hand that was silent since, and may have
        been off, rest where it is measured, once that is known again."""
        told = self.motion or self.left
        return self.stopper.found(self.transport.monotonic(), self.lost) if told is None and self.lost else told

    def _flies(self, now: float) -> bool:
        """Whether a robot whose mission begins is in the air because of this guard: it lifted it a moment ago, in an
        earlier mission, and it has not landed. That it is high, or moves, says nothing: it may stand on a table, or be
        carried. What somebody else flies goes on by his setpoints, and what an earlier guard flew by its firmware; an
        autopilot lands by itself."""
        level = self.profile.level
        return (level is not None and self.offboard is None and self.ground.flies(now)
                and float(self.watch.values["height"]) > level["landed_m"])

    def _grounded(self, now: float) -> bool:
        """Whether nothing that was sent in this mission can have lifted the robot, if anything was sent: for a mission
        may have begun in the air, and then it falls. Nor has one left the floor that was sent little, never was seen to
        rise, and of which nobody knows: a thrust that levels may carry it to the ceiling."""
        if not self.watch.grounded:
            return False
        if self.ground.lifted_at < self.flight.began:
            return self.motion is None or self.ground.stands
        return self.ground.floor and not self.flown.rose and not self.stopper.sees(now)

    def _push(self, thrust: float, now: float, periods: int = 1) -> None:
        """So much [N] is sent, or was left in force for ``periods``: it may lift the robot, sooner or later."""
        velocity = self.watch.believed.get("base_vel_w") if self.watch.seen(now) else None
        if self.ground.push(thrust, periods * self.period, now, None if velocity is None else velocity.item(2)) and (
                self.watch.grounded):
            self.watch.lift(now)

    def _begin_stop(self, action: str) -> None:
        now = self.transport.monotonic()
        self._catch_up(now)
        if not self.transport.active:  # whoever it was deactivated for may be there already, or comes now
            self._look()
            self.next_look = now + IDLE_LOOK_S
        if action == "hold" and self._grips():  # nothing was sent yet in this mission, but something before it
            self.motion = self._gripped()
        self.stopper.begin(
            action, now, self.motion, grounded=action == "level" and self._grounded(now), floor=self.ground.floor)
        # an action that goes on from the last command comes a period after it
        self.due = max(now, self.sent_at + self.period) if self.stopper.keeps else now
        self._say("stopping")
        if now >= self.due:
            self._stop_step(now)

    def _stop_step(self, now: float) -> None:
        """One command of the stop action; the mode that it leads to when it has ended. A node that was deactivated is
        silent, but not before what it flew is down, and what would go on with its last speed or effort rests."""
        self.acting = now
        if not self.transport.active and not self._goes_on(now):
            self.stopper.silence(now)
        if self.stopper.keeps:
            self._catch_up(now)
        self.freed = self.freed or not self.button.set
        step = self.stopper.next(now, self.motion, self.flown, self.transport.active)
        self.motion = step.motion or self.motion
        if step.command is not None:
            self._send(step.command)
        if held := self.stopper.held(now, step.over):
            self._tell("held", held)
        keeps = self.stopper.keeps and self.transport.active
        self.due = np.inf if step.over and not keeps else now + self.period
        if step.over and (self.mode == "stopping" or not keeps):
            self._rest("holding" if keeps else "stopped")

    def _goes_on(self, now: float) -> bool:
        """Whether a node that was deactivated may go on with its stop, for as long as nobody else commands the robot:
        level, of what it flew, for silence in the air is a fall (an autopilot lands by itself); of speeds and efforts
        of its own, while that does brake."""
        if self.rival:
            return False
        if self.stopper.under_way.action in ("level", "off"):
            return self.offboard is None
        return self.rates and self.motion is not None and self.stopper.brakes(now)

    def _rest(self, mode: str) -> None:
        """The stop action has ended: in ``mode`` until somebody resets it, if there was a reason."""
        if not self.flight.reason:
            mode, self.due = "finished", np.inf
        self._say(mode)

    def _release(self) -> None:
        """Nothing follows: the last word to a robot that is told speeds or efforts is zero, for its driver may hold it
        for ever. A node that was deactivated says it, too."""
        if self.rates and self.motion is not None and self.motion.command.any():
            self.acting, self.motion = self.transport.monotonic(), at_rest(np.zeros(self.spec.size))
            self._send(np.zeros(self.spec.shape))

    # the loop

    def wait(self, timeout_s: float) -> None:
        """Sleep until the controller speaks, for ``timeout_s`` at most."""
        self.link.wait(timeout_s)

    def deadline(self) -> float:
        """See :class:`temporeal_bridge.process.node.Node`."""
        now = self.transport.monotonic()
        tick = min(TICK_S, self.period) if self.mode in COMMANDED else IDLE_S
        return min(now + tick, self.due, self.next_report, self.next_look, self.rehearsal.at)

    def step(self) -> None:
        """See :class:`temporeal_bridge.process.node.Node`. In flight what is proposed goes before the bus is looked at,
        for it is on the way from state to command; but not where the state has a say in what may be sent, nor after
        this process did not run for a while: what it knows has grown old then, and newer states wait."""
        now = self.transport.monotonic()
        paused, self.stepped = now - self.stepped, now
        stood = self.mode == "active" and paused > self.profile.silent_after_s
        looks_first = stood or self.mode != "active" or self.looks or paused > HELD_UP * TICK_S
        if looks_first:
            self.transport.wait(0.0)
        if stood:  # a stop begins with what there is to know
            self.stop("guard", f"the guard itself stood still for {paused:.3f} s")
        for proposal in self._newest(self.link.receive()):
            self._hear(proposal, self.transport.monotonic())
        if not looks_first:
            self.transport.wait(0.0)
        now = self.transport.monotonic()
        if self.mode == "active":
            self._check(now)
        elif self.mode in IDLE:
            self._idle(now)
        elif self.mode == "arming":
            self._arming_step(now)
        if self.mode not in MOVING:
            self._forget(now)
        if self.mode in ("stopping", "holding"):
            barred = self._barred(now)
            if barred:
                self.stop("autopilot", barred)
            elif now >= self.due:
                self._stop_step(now)
        if now >= self.next_look:
            flies = self.mode in COMMANDED and self.transport.active
            self.next_look = now + (LOOK_S if flies else IDLE_LOOK_S)
            self._look()
        if now >= self.next_report:
            self.next_report = now + DIAGNOSTICS_S
            self._diagnose(now)
        now = self.transport.monotonic()
        if self.rehearsal.due(now):
            self._rehearse(now)

    def _rehearse(self, now: float) -> None:
        """What the next command will need, done for nothing with the last one: nothing is sent, no error is ours."""
        if self.mode == "active" and self.motion is not None:
            with suppress(Exception):
                if self.looks:  # at the state, before it hears what is proposed
                    self.state.rehearse()
                verdict, motion, _ = self._limited(self.asked, now)
                self._encoded(np.asarray(verdict.command), self.transport.now(), motion)

    def _newest(self, waiting: list[Proposal]) -> list[Proposal]:
        """Of commands that came while this process did not run, only the last: sent together, they would be a leap."""
        commands = [i for i, p in enumerate(waiting) if p.kind == datagrams.COMMAND and not p.successor]
        self.flight.dropped += len(commands[:-1])
        return [p for i, p in enumerate(waiting) if i not in commands[:-1]]

    def _look(self) -> None:
        """Does anybody else publish commands, on our topics or on another of the robot's, and who publishes the
        operator's stop?"""
        others = [f"{peer.node or 'a node without a name'} publishes on {self.transport.resolve(topic)}, too"
                  for topic in (*(row.topic for row in rows_of(self.topic)), *self.rivals)
                  for peer in self.transport.publishers(topic) if not peer.own]
        self.rival = ", ".join(others)
        self.button.look(self.mode in COMMANDED)

    def _idle(self, now: float) -> None:
        """Ready as long as state and controller are there."""
        greeted = now - self.greeted <= GREETING_S
        if not greeted:
            self._let_go()
        fresh = self.watch.complete and self.watch.fresh(now)
        self.unlocked = self.unlocked and fresh  # a robot that was silent may have been off: its lock is on again
        ready = greeted and fresh and self.watch.known(now)
        if self.mode != "finished" and ready != (self.mode == "ready"):
            self.unlocked = False  # nor was it seen while the mission's reason stood
            self._say("ready" if ready else "waiting")
        if self.mode == "ready" or (self.mode == "finished" and fresh):
            self._unlock(now)

    def _forget(self, now: float) -> None:
        """A robot that rests, and says nothing for so long, may have been off, or its driver, and has its last command
        no more; nor has one that somebody else commands. To go on from that command would be a leap."""
        gone, taken = self.watch.silent(now) > GONE_S, bool(self.rival) or not self.transport.active
        if taken:
            self.lost = None
        if not (gone or taken) or (self.motion or self.left) is None:
            return
        if self.mode == "holding" and gone and self.offboard is None:
            self.due = np.inf
            self._say("stopped")
            self._tell("held", f"the robot has said nothing for {GONE_S:g} s: it is told nothing more")
        if self.mode != "holding":
            if self.watch.readings is not None:
                self.lost = None if taken else self.motion or self.left
                self.watch.readings.forget(now, self.watch.now_s)
            self.left = self.motion = None

    def _unlock(self, now: float) -> None:
        """One zero setpoint on the ground: the Crazyflie keeps its thrust locked until it has seen one. In the air, or
        while somebody else commands it, that would cut its motors."""
        below = self.profile.unlock_below_m
        if self.unlocked or below is None or self.offboard is not None or float(self.watch.values["height"]) >= below:
            return
        if self.transport.active and not self.rival and self.transport.matched(self.command):
            self.unlocked, self.acting = True, now
            self._send(np.zeros(self.spec.shape))

    def _arming_step(self, now: float) -> None:
        """Heartbeats, and what is asked of the autopilot; the controller hears when it may begin."""
        code, reason = self._obstacle(now)
        if not reason and now - self.greeted > GREETING_S:
            code, reason = "silent", f"the controller has said nothing for {GREETING_S:g} s"
        assert self.offboard is not None  # or there would be nothing to arm
        if not reason and now >= self.due:
            self.due = now + self.period
            for topic, type, message in self.offboard.outputs(now, False, self.transport.now()):
                self.transport.publish(self.endpoints[topic], messages.encode(type, message))
            if not self._barred(now):  # again and again: an answer may be lost
                self.link.answer(Answer("clear", self.flight.number, self.flight.start_ns))
        if not reason:
            code, reason = "autopilot", self.offboard.failed
        if reason:
            self.stop(code, reason)

    def _check(self, now: float) -> None:
        """While a mission is flown: everything that would stop it, whether the controller speaks or not."""
        code, reason = self._unsafe(now)
        if self.exchange.swap is not None:
            self.exchange.check(self.exchange.swap, now)
        if reason:
            self.stop(code, reason)
        elif self.motion is not None and self.keeps and now - self.sent_at >= LATE * self.period:
            self._bridge(now)

    def _bridge(self, now: float) -> None:
        """The controller is late: one step towards rest, which is what the robot does by itself if it was told the way.

        Else a command after a gap, or a stop, would begin where the robot is no more.
        """
        self.acting = now
        self._catch_up(now)
        assert self.motion is not None  # there was a command
        self.motion = stop_actions.eased(self.profile, self.spec, self.motion, self.stopper.values(now))
        self.flight.bridged += 1
        self._send(self.motion.command.reshape(self.spec.shape))

    def _catch_up(self, now: float) -> None:
        """After a pause of this process: the robot is not where the last command left it."""
        missed = int((now - self.stands_at) / self.period - ON_TIME) if self.stands_at > -np.inf else 0
        if self.motion is None or missed < 1:
            return
        self.stands_at += missed * self.period
        if self.levels:
            self._push(self.motion.command.item(0), now, missed)
        self.motion = stop_actions.caught_up(self.limits, self.motion, missed, self.led)

    def _unsafe(self, now: float) -> Reason:
        if not self.transport.active:
            return "inactive", "deactivated"
        if self.rival:
            return "publisher", self.rival
        barred = self._barred(now)
        if barred:
            return "autopilot", barred
        seen = self.watch.reason(now, None if self.motion is None else self.motion.command)
        if seen != NOTHING:
            return seen
        quiet = now - self.heard
        if quiet > self.profile.silent_after_s:
            return "silent", (f"the controller has proposed nothing for {quiet:.3f} s, "
                              f"{self.profile.silent_after_s:g} s is allowed")
        return self.button.reason(now)

    def _forward(self, p: Proposal, now: float) -> None:
        """One command: checked, limited, sent."""
        flight = self.flight
        if p.step <= flight.step:
            flight.dropped += 1
            return
        flight.step, self.heard, self.acting = p.step, now, now
        if now < self.turn - EARLY * self.period:  # limits of motion are from one period to the next: a burst is faster
            flight.dropped += 1
            return
        code, reason = self._refused(p, now)
        if reason:
            return self.stop(code, reason)
        proposed, exchange = np.asarray(p.values, dtype=float), self.exchange
        asked = proposed if exchange.swap is None else self._mixed(exchange.swap, p.step, proposed)
        self._catch_up(now)
        verdict, motion, collides = self._limited(asked, now)
        if collides and exchange.swap is not None:  # the old one's alone, as near as the limits of motion let it come
            exchange.drop(f"the mix with its command collides: {collides}")
            verdict, motion, collides = self._limited(proposed, now)
        if collides:
            return self.stop("collision", collides)
        self.motion, self.asked = motion, asked
        self._send(np.asarray(verdict.command), p)
        self.rehearsal.plan(p.seen, self.sent_at - now)
        flight.sent += 1
        flight.limited += bool(verdict.reason)
        for kept in (flight.latency_s, self.latency_s):
            kept.append(self.sent_at - p.seen)
        if exchange.swap is not None and exchange.swap.done:
            self._succeed(exchange.swap)

    def _limited(self, asked: Array, now: float) -> tuple[shield.Verdict, Motion | None, str]:
        """What may be sent of ``asked`` [A], the motion that this is, and why it may not because of a collision."""
        values = self.stopper.values(now) if self.looks else None
        window = admission.window(self.profile, values)
        wanted = admission.wanted(asked, now - self.flight.began, self.origin, self.profile, window)
        verdict, motion = shield.guard(self.spec, wanted.reshape(self.spec.shape), self.limits, self.motion, window)
        if self.nearness is None or motion is None:
            return verdict, motion, ""
        return verdict, motion, self._collision(motion, values)

    def _collision(self, motion: Motion, values: Values | None) -> str:
        """Why ``motion`` leads the robot too near to itself."""
        rest = admission.rests(self.profile, self.limits, motion, values)
        if rest is None or self.nearness is None:
            return ""
        if self.profile.joints:  # measured, with noise: how near it was when the mission began is not come below
            return admission.collision(self.nearness, rest, None, self.nearest)
        last = self.motion
        return admission.collision(self.nearness, rest, None if last is None else lambda: resting(self.limits, last))

    def _refused(self, p: Proposal, now: float) -> Reason:
        """What is wrong with a proposal, or with the world that it is for."""
        unusable = admission.unusable(p, now, self.spec, self.profile)
        if unusable != NOTHING:
            return unusable
        seen = self._unsafe(now)
        return seen if seen != NOTHING or self.motion is not None else self._start(
            np.asarray(p.values, dtype=float), now)

    def _start(self, asked: Array, now: float) -> Reason:
        """Before the first command: is it near, and from where does it begin?"""
        refused = admission.refused_start(asked, now, self.profile, self.watch)
        if refused == NOTHING or self.rates:  # a stop takes over the speed that a robot has, though it was refused
            self.origin = admission.origin(asked, self.profile, self.watch)
            self.motion = None if self.origin is None else at_rest(stop_actions.inside(self.limits, self.origin))
        if self.nearness is not None and self.profile.joints:
            joints = self.watch.values[self.profile.joints].reshape(-1)
            self.nearest = self.nearness.distance(joints)[0] - NEARER_M
        return refused

    # the exchange of the artifact

    def _hear_successor(self, p: Proposal, now: float) -> None:
        flight = self.flight
        made = self.exchange.hear(p, now, Standing(
            self.mode, flight.number, flight.start_ns, flight.step, flight.reason, self.motion))
        if made is not None:
            self._succeed(made)

    def _mixed(self, under_way: ArtifactSwap, step: int, asked: Array) -> Array:
        """What is asked for while an artifact is exchanged: the mix of both."""
        out, weight, other = self.exchange.mix(under_way, asked)
        self.voice.mix(self.flight.number, step, weight, asked, other)
        return out

    def _succeed(self, new: ArtifactSwap) -> None:
        """The successor is in charge; who was may end."""
        told = self.exchange.succeed(new)
        self.stranger, self.greeted = "", self.transport.monotonic()
        if self.mode == "active":  # silent since its own last word, and its next step is after the last one of both
            self.flight.swapped.append([self.flight.step, self.identity])
            self.heard, self.flight.step = new.heard, max(self.flight.step, new.used)
        self._introduce(Path(new.folder))
        self._tell("swapped", told)
        self._answer()

    # what goes out

    def _send(self, command: np.ndarray, p: Proposal | None = None) -> None:
        """The command; where the message can say how, with the way to rest after it: then the robot stops by itself."""
        now, stamp = self.transport.monotonic(), self.transport.now()
        if self.offboard is not None:
            self.offboard.outputs(now, True, stamp)
            if self._barred(now):  # the next step stops for it
                return
        if self.levels:
            self._push(command.item(0), now)
        for topic, data in self._encoded(command, stamp, self.motion):
            self.transport.publish(self.endpoints[topic], data)
        self.sent_at = self.stands_at = self.transport.monotonic()
        if self.watch.readings is not None:
            self.watch.readings.sent(np.reshape(command, -1))
            self.left = self.lost = None
        self.turn = max(self.turn, self.acting) + PACE * self.period  # of what is told: a replay knows it to the digit
        if self.levels and self.mode == "active":
            share = float(command.item(0)) / self.nominal
            self.flown = hover_thrust.flown(
                self.flown, self.below, share, self.watch.values, self.acting, self.period)
        step, age, asked = (-1, np.nan, self.nothing) if p is None else (p.step, p.at - p.seen, p.values)
        began = self.flight.began
        self.voice.command(CommandRecord(
            self.flight.number, step, age, self.acting - began, self.sent_at - began, np.reshape(command, -1), asked,
            self.state.marks))

    def _encoded(self, command: np.ndarray, stamp: int, motion: Motion | None) -> list[tuple[str, bytes]]:
        """Topic and CDR bytes of what the command makes; ``motion``: where it leaves the robot."""
        onward = course(self.limits, motion) if self.led and motion is not None else None
        return encode_all(self.topic, command, stamp, onward)

    def _diagnose(self, now: float) -> None:
        flight = self.flight
        level = 2 if flight.reason or self.rival else 1 if self.state.rejected or flight.limited else 0
        values = {
            "mode": self.mode, "flight": flight.number, "sent": flight.sent, "limited": flight.limited,
            "bridged": flight.bridged, "dropped": flight.dropped, "code": flight.code, "action": flight.action,
            "unheld": len(self.stopper.unheld),
            "state_age_ms": f"{1e3 * self.watch.age(now):.1f}", "state_rejected": self.state.rejected,
            "state_rejection": self.state.last_rejection, "malformed": self.link.malformed,
            "garbled": self.garbled, "unsaid": self.voice.unsaid, "blind": self.stopper.blind,
            "autopilot": "" if self.mode in IDLE else self._barred(now),
            **{f"latency_{k}_ms": v for k, v in percentiles(newest(flight.latency_s)).items()},
        }
        self.voice.diagnostics(self.manifest.name, self.robot.name, level,
                               flight.reason or self.stranger or self.rival or self.mode, values)

    def may_end(self) -> bool:
        """Asked to end: first the robot is stopped."""
        if not self.told_to_end and (self.mode not in IDLE or self._grips()):
            self.told_to_end = True
            self.stop("operator", END_REQUESTED)
        if self.mode in MOVING:
            return False
        self._release()
        return True

    def rescue(self, error: Exception) -> None:
        """Something failed that must not: the stop action, with as little around it as possible, then the process may
        end. What it leaves a robot with that holds its last command for ever is rest."""
        reason = f"the guard failed: {type(error).__name__}: {error}"
        looked, left = self.transport.monotonic(), round(RESCUE_S / TICK_S)
        end = looked + RESCUE_S
        with suppress(Exception):
            self.stop("guard", reason)
        while self.mode in MOVING and (now := self.transport.monotonic()) < end and left:
            left -= now <= looked  # should the clock be what failed: messages wake it up, too, and no time is gone then
            looked = now
            with suppress(Exception):
                if self.mode == "active":
                    self._begin_stop(self.profile.action("guard"))
                self.transport.wait(max(min(self.due - self.transport.monotonic(), TICK_S), 0.0))
            with suppress(Exception):
                now = self.transport.monotonic()
                if self._barred(now):
                    self._say("stopped")
                elif now >= self.due:
                    self._stop_step(now)
        with suppress(Exception):
            self._release()

    def close(self) -> None:
        """Leave the line."""
        self.link.close()

    def summary(self) -> dict[str, Any]:
        """See :class:`temporeal_bridge.process.node.Node`."""
        return {
            "node": "guard_node", "artifact": self.manifest.name, "robot": self.robot.name, "mode": self.mode,
            "command": self.topic.topic, "state_rejected": self.state.rejected,
            "state_rejection": self.state.last_rejection, "malformed": self.link.malformed,
            "latency_ms": percentiles(list(self.latency_s)),
            "flights": [
                {"flight": f.number, "start_ns": f.start_ns, "sent": f.sent, "limited": f.limited, "bridged": f.bridged,
                 "dropped": f.dropped, "code": f.code, "reason": f.reason,
                 "action": f.answer or f.action,
                 "swapped": f.swapped, "latency_ms": f.latency_ms or percentiles(list(f.latency_s))}
                for f in self.flights],
        }


def make(args: argparse.Namespace, transport: Transport) -> GuardNode:
    """The node from its command line."""
    robot = robot_of(args)
    manifest, interface = load_manifest(args.artifact, args.trust), load_interface(
        robot, args.interface, args.signals)
    if args.arm is not None:
        interface = armed_by(interface, args.arm)
    check_fits(manifest, robot, interface)
    return GuardNode(transport, manifest, robot, interface, SocketGuard(link_path(args, transport)),
                     args.artifact, args.trust, args.awake)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = parser("guard_node", "The only process that commands the robot: fresh commands within limits, or a stop.")
    add_artifact(options)
    add_awake(options, "never let that core sleep, and rehearse each step just before its turn")
    options.add_argument("--arm", default=None, choices=ARM,
                         help="who arms the autopilot, instead of what ros.yaml says: the pilot, or we when asked")
    return run(options, arguments, make, "guard.json", ahead=AHEAD, wakes=True)


if __name__ == "__main__":
    sys.exit(main())
