"""From a controller's proposal to a command: checked, mixed with a successor's, limited, sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from temporeal.robots.motion.rate_limiter import Array
from temporeal_bridge.guard.artifact_swap import ArtifactSwap
from temporeal_bridge.guard.checks import admission
from temporeal_bridge.guard.checks.safety_checks import SafetyChecks
from temporeal_bridge.guard.command_output import CommandOutput
from temporeal_bridge.guard.command_stream import Limited
from temporeal_bridge.guard.flight import Flight
from temporeal_bridge.guard.safety.reasons import NOTHING, Reason
from temporeal_bridge.guard.stop_actions.active_stop import ActiveStop
from temporeal_bridge.guard.swap_requests import SwapRequests
from temporeal_bridge.link import datagrams
from temporeal_bridge.link.datagrams import Proposal
from temporeal_bridge.mission import AGES


def newest(waiting: Sequence[Proposal]) -> tuple[list[Proposal], int]:
    """``waiting`` without all commands but the last, and the number of those: commands that came while the guard did
    not run would be a leap if they were sent together."""
    commands = [i for i, p in enumerate(waiting) if p.kind == datagrams.COMMAND and not p.successor]
    return [p for i, p in enumerate(waiting) if i not in commands[:-1]], len(commands[:-1])


class CommandForwarder:
    """For the whole life of a guard.

    Attributes:
        asked: the last command [A] that was asked for.
        latency_s: from the state's arrival at the controller to the command's departure, of all missions.
    """

    def __init__(
        self, checks: SafetyChecks, output: CommandOutput, swaps: SwapRequests, active_stop: ActiveStop
    ) -> None:
        self.checks, self.output, self.swaps, self.active_stop = checks, output, swaps, active_stop
        self.stream, self.config = output.stream, output.config
        self.asked: Array = output.nothing
        self.latency_s: deque[float] = deque(maxlen=AGES)

    def forward(self, p: Proposal, flight: Flight, now: float) -> Reason:
        """Send the proposal of an active mission. The reason to stop instead, if there is one."""
        if p.step <= flight.step:
            flight.dropped += 1
            return NOTHING
        flight.step, self.checks.controller.heard = p.step, now
        if self.stream.early(now):
            flight.dropped += 1
            return NOTHING
        reason = self._refused(p, now)
        if reason != NOTHING:
            return reason
        proposed, swap = np.asarray(p.values, dtype=float), self.swaps.swap
        asked = proposed if swap is None else self._mixed(swap, flight, p.step, proposed)
        self.stream.catch_up(now)
        limited = self.limited(asked, flight, now)
        if limited.collides and self.swaps.swap is not None:  # the old command alone, as far as limits of motion allow
            self.swaps.drop(f"the mix with its command collides: {limited.collides}")
            limited = self.limited(proposed, flight, now)
        if limited.collides:
            return "collision", limited.collides
        self._send(p, asked, limited, flight, now)
        return NOTHING

    def _refused(self, p: Proposal, now: float) -> Reason:
        """What is wrong with the proposal, or with the robot that it is for."""
        unusable = admission.unusable(p, now, self.config.spec, self.config.profile)
        if unusable != NOTHING:
            return unusable
        motion = self.stream.motion
        unsafe = self.checks.in_flight(now, None if motion is None else motion.command)
        if unsafe != NOTHING or motion is not None:
            return unsafe
        return self.stream.start(np.asarray(p.values, dtype=float), now)

    def _mixed(self, swap: ArtifactSwap, flight: Flight, step: int, asked: Array) -> Array:
        """The mix of both artifacts' commands."""
        out, weight, other = self.swaps.mix(swap, asked)
        self.output.announcements.mix(flight.number, step, weight, asked, other)
        return out

    def _send(self, p: Proposal, asked: Array, limited: Limited, flight: Flight, now: float) -> None:
        self.stream.motion, self.asked = limited.motion, asked
        self.output.send(np.asarray(limited.verdict.command), now, flight, True, p)
        flight.sent += 1
        flight.limited += bool(limited.verdict.reason)
        latency = self.stream.sent_at - p.seen
        flight.latency_s.append(latency)
        self.latency_s.append(latency)

    def limited(self, asked: Array, flight: Flight, now: float) -> Limited:
        """What may be sent of ``asked`` [A]."""
        values = self.active_stop.values(now) if self.config.needs_state else None
        return self.stream.limited(asked, now - flight.began, values)

    def check(self, flight: Flight, now: float) -> Reason:
        """The reason to stop an active mission, whether the controller speaks or not. Without one, a command of the
        guard's own replaces one that is late."""
        motion = self.stream.motion
        reason = self.checks.in_flight(now, None if motion is None else motion.command)
        if self.swaps.swap is not None:
            self.swaps.check(self.swaps.swap, now)
        if reason == NOTHING and self.stream.late(now):
            self._bridge(flight, now)
        return reason

    def _bridge(self, flight: Flight, now: float) -> None:
        """The controller is late: one step towards rest."""
        self.stream.catch_up(now)
        command = self.stream.ease(self.active_stop.values(now))
        flight.bridged += 1
        self.output.send(command.reshape(self.config.spec.shape), now, flight, True)

    def rehearse(self, flight: Flight, now: float, stamp: int) -> None:
        """Compute the next command from the last one, and do not send it."""
        limited = self.limited(self.asked, flight, now)
        self.output.encoded(np.asarray(limited.verdict.command), stamp, limited.motion)
