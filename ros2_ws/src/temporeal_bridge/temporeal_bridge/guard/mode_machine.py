"""The guard's modes: which one it is in, what leads to another, and the stop action under way.

Modes: ``waiting`` (no fresh state, or no controller) -> ``ready`` -> ``active`` -> ``stopping`` (the stop action of the
robot's profile) -> ``finished`` (the mission is over), or, for a reason: ``holding`` (the robot is kept where it came
to rest) or ``stopped`` (nothing is sent). A reason is latched: only ``mission/reset`` leads back to ``ready``. With an
autopilot between the commands and the motors (:mod:`temporeal_bridge.guard.px4`), ``arming`` comes between ``ready``
and ``active``: until it is armed and obeys, the controller waits, and its mission time does not run.

What a reason leads to is decided by :mod:`temporeal_bridge.guard.decisions`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from pathlib import Path

import numpy as np

from temporeal.robots.motion.rate_limiter import Motion
from temporeal_bridge.guard import decisions
from temporeal_bridge.guard.artifact_swap import ArtifactSwap
from temporeal_bridge.guard.checks.safety_checks import SafetyChecks
from temporeal_bridge.guard.command_output import CommandOutput
from temporeal_bridge.guard.decisions import COMMANDED
from temporeal_bridge.guard.flight import Flight
from temporeal_bridge.guard.operator_orders import OperatorOrders
from temporeal_bridge.guard.safety.reasons import Reason
from temporeal_bridge.guard.stop_actions.active_stop import ActiveStop
from temporeal_bridge.guard.swap_requests import Situation, SwapRequests
from temporeal_bridge.link.datagrams import Answer, Proposal
from temporeal_bridge.link.ends import GuardEnd
from temporeal_bridge.mission import FLIGHTS, IDLE, NOT_RESET, refusal

GONE_S = 1.0  # a robot that was silent for longer may have been off. Chosen: no driver restarts sooner


class ModeMachine:
    """Times are in s, monotonic.

    Args:
        link: the guard's end of the link to the controller.
        clock: gives the time.

    Attributes:
        mode: see the module. flight: the mission, or the last one; flights: all, oldest first.
        due: when the next step of the stop action, or of arming, is.
        stepped: when the current turn of the guard's loop began.
        rests_at: when the robot came to rest for a reason.
        unlocked: whether the quadrotor on the ground had its zero setpoint.
    """

    def __init__(
        self, checks: SafetyChecks, output: CommandOutput, swaps: SwapRequests, active_stop: ActiveStop, link: GuardEnd,
        clock: Callable[[], float],
    ) -> None:
        self.checks, self.output, self.swaps, self.active_stop = checks, output, swaps, active_stop
        self.link, self.clock = link, clock
        self.config, self.stream, self.orders = output.config, output.stream, OperatorOrders()
        self.profile, self.offboard = self.config.profile, output.offboard
        self.mode, self.flight, self.flights = "waiting", Flight(-1), deque[Flight](maxlen=FLIGHTS)
        self.due, self.rests_at, self.stepped, self.unlocked = inf, -inf, clock(), False

    # ---- what others hear

    def set_mode(self, mode: str) -> None:
        """Enter a mode, and say so."""
        if mode not in COMMANDED and self.mode in COMMANDED:
            self.release()
        if mode in ("holding", "stopped"):
            self.rests_at = self.clock()
        self.mode = mode
        if mode != "active":
            self.swaps.drop(f"the mission is over: {self.flight.reason or mode}")
        if self.offboard is not None and mode not in COMMANDED:
            self.offboard.release()
        self.output.announcements.mode(mode, self.flight.number, self.flight.start_ns)
        self.answer()

    def answer(self) -> None:
        """Tell the controller the mode."""
        self.link.answer(Answer(self.mode, self.flight.number, self.flight.start_ns,
                                self.checks.controller.stranger or self.flight.reason))

    def announce(self, code: str, reason: str) -> None:
        """Publish an event."""
        since = round(self.clock() - self.flight.began, 6) if self.flights else None
        self.output.announcements.event(self.mode, self.flight.number, since, code, reason)

    def introduce(self, folder: Path | None) -> None:
        """Publish which artifact is in charge, read from ``folder``."""
        self.output.announcements.artifact(self.swaps.manifest, self.swaps.identity, self.config, folder)

    # ---- a mission

    def begin(self, p: Proposal, now: float) -> None:
        """The controller begins a mission, unless something forbids it; with an autopilot, it arms first."""
        code, reason = self._refusal(p, now)
        barred = self.checks.autopilot(now)
        if not reason and self.offboard is not None and self.mode != "arming":
            code, reason = "autopilot", self.offboard.ask(now)
            barred = "the autopilot has just been asked"
        if reason:
            self.announce(code or "refused", f"{refusal(p.flight)}: {reason}")
            return self.link.answer(Answer("refused", p.flight, p.stamp_ns, reason))
        if self.mode == "arming":
            self.flights.pop()  # the same mission, with another time zero
        elif self.flights:
            self.flights[-1].close()
        self.flight = Flight(p.flight, p.stamp_ns, now)
        self.flights.append(self.flight)
        self.checks.controller.heard = now
        self.stream.begin()
        self.stream.airborne.begin(now)
        self.orders.begin()
        self.unlocked = True  # from now on the robot is in the air, and a zero would cut its motors
        self.due = now if barred else inf
        self.set_mode("arming" if barred else "active")

    def _refusal(self, p: Proposal, now: float) -> Reason:
        """Why the mission may not begin."""
        reason = decisions.start_refusal(self.mode, self.flight, p.flight)
        return ("", reason) if reason else self.checks.before_start(now)

    def arm(self, now: float) -> None:
        """One step of arming: heartbeats and requests to the autopilot; the controller hears when it may begin."""
        code, reason = self.checks.before_start(now)
        if not reason:
            code, reason = self.checks.controller.absent(now)
        assert self.offboard is not None  # or there would be nothing to arm
        if not reason and now >= self.due:
            self.due = now + self.config.period
            self.output.publish(self.offboard.outputs(now, False, self.output.transport.now()))
            if not self.checks.autopilot(now):  # repeated, because an answer may be lost
                self.link.answer(Answer("clear", self.flight.number, self.flight.start_ns))
        if not reason:
            code, reason = "autopilot", self.offboard.failed
        if reason:
            self.stop(code, reason)

    def end(self, after: str) -> None:
        """The mission is over: the profile's stop action, or nothing more (``after``: stop, silence). A robot that is
        sent speeds or efforts is always stopped: silence would leave the last one in force."""
        if after == "silence" and not self.config.rates:
            return self.set_mode("finished")
        self.flight.action = self.profile.action("default")
        self.begin_stop(self.flight.action)

    def take_over(self, new: ArtifactSwap) -> None:
        """The successor is in charge; the former controller may end."""
        message = self.swaps.succeed(new)
        self.checks.controller.accept(self.clock())
        if self.mode == "active":  # silent since its own last proposal, and its next step is after the last one of both
            self.flight.swapped.append([self.flight.step, self.swaps.identity])
            self.checks.controller.heard, self.flight.step = new.heard, max(self.flight.step, new.used)
        self.introduce(Path(new.folder))
        self.announce("swapped", message)
        self.answer()

    def disown(self, p: Proposal) -> None:
        """A proposal belongs to no mission of this guard: a controller that flies on since an earlier guard's must hear
        that it is over."""
        flight = self.flight
        flight.dropped += 1
        if (p.flight, p.stamp_ns) == (flight.number, flight.start_ns):
            self.answer()
        elif self.mode != "arming":
            self.link.answer(Answer("refused", p.flight, p.stamp_ns, "the guard does not fly this mission"))

    def situation(self) -> Situation:
        """For who asks to take over."""
        flight = self.flight
        return Situation(
            self.mode, flight.number, flight.start_ns, flight.step, flight.reason, self.stream.motion)

    # ---- stopping

    def stop(self, code: str, reason: str) -> None:
        """End the mission for a reason, which is latched (:func:`temporeal_bridge.guard.decisions.answer_to_stop`)."""
        paused = self.clock() - self.stepped
        code, reason = decisions.true_reason(self.mode, (code, reason), paused, self.profile.silent_after_s)
        grips = code == "operator" and self.grip() is not None
        action = decisions.stop_action(self.mode, code, self.profile, grips)
        answer = decisions.answer_to_stop(self.mode, code, action, self.flight, grips)
        if answer == "ignore":
            if code == "operator" and self.stream.lost is not None and self.mode not in ("stopping", "holding"):
                self.announce("held", "the hand may still hold what it was sent before it fell silent: its place is "
                                      "not known yet: say stop again")
            return
        if self.mode in IDLE:  # the mission before it did not end for this reason
            self.flight = self.flight.cleared()
        if not self.flight.reason:
            self.flight.code, self.flight.reason, self.flight.answer = code, reason, action
        if answer == "stop":
            self.flight.action = action
            self.begin_stop(action)
        self.announce(code, reason)

    def order_down(self, repeated: bool) -> None:
        """The operator ordered a stop. A ``repeated`` order lets down a robot that levels, whatever else is known: the
        operator may see that it stands."""
        if repeated and self.mode == "stopping" and self.active_stop.order_down():
            self.announce("operator", "stopped by the operator again: its motors are let down, whatever else is known")

    def begin_stop(self, action: str) -> None:
        """Begin the stop action."""
        now = self.clock()
        self.stream.catch_up(now)
        if not self.checks.active():  # whoever the node was deactivated for may be there already, or come now
            self.checks.publishers.look(now, self.mode in COMMANDED, active=False)
        if action == "hold" and (grip := self.grip()) is not None:
            self.stream.motion = grip
        motion, airborne = self.stream.motion, self.stream.airborne
        grounded = action == "level" and airborne.grounded(
            self.flight.began, motion is not None, lambda: self.active_stop.sees(now))
        self.active_stop.begin(action, now, motion, grounded, floor=airborne.ground.floor)
        # an action that continues the last command comes a period after it
        self.due = max(now, self.stream.sent_at + self.config.period) if self.active_stop.keeps else now
        self.set_mode("stopping")
        if now >= self.due:
            self.stop_step(now)

    def continue_stop(self, now: float) -> None:
        """What is due of the stop action."""
        barred = self.checks.autopilot(now)
        if barred:
            self.stop("autopilot", barred)
        elif now >= self.due:
            self.stop_step(now)

    def stop_step(self, now: float) -> None:
        """One command of the stop action, and the mode after it. A node that was deactivated is silent, but not before
        what it flew is down, and a robot that would go on with its last speed or effort rests."""
        active, action = self.checks.active(), self.active_stop
        if not active and not self._goes_on(now):
            action.silence(now)
        if action.keeps:
            self.stream.catch_up(now)
        self.orders.release(self.checks.button.set)
        step = action.next(now, self.stream.motion, self.stream.airborne.estimate, active)
        self.stream.motion = step.motion or self.stream.motion
        if step.command is not None:
            self.output.send(step.command, now, self.flight, False)
        if message := action.message(now, step.over):
            self.announce("held", message)
        keeps = action.keeps and active
        self.due = inf if step.over and not keeps else now + self.config.period
        if step.over and (self.mode == "stopping" or not keeps):
            mode = decisions.mode_after_stop(self.flight.reason, keeps)
            self.due = inf if mode == "finished" else self.due
            self.set_mode(mode)

    def _goes_on(self, now: float) -> bool:
        """Whether a deactivated node may continue its stop action, while nobody else commands the robot: level, of what
        it flew, because silence in the air is a fall (an autopilot lands by itself); speeds and efforts of its own,
        while they brake."""
        if self.checks.publishers.competing:
            return False
        if self.active_stop.under_way.action in ("level", "off"):
            return self.offboard is None
        return self.config.rates and self.stream.motion is not None and self.active_stop.brakes(now)

    def release(self) -> None:
        """Nothing follows. A robot that is sent speeds or efforts gets a last zero, even from a deactivated node,
        because its driver may hold the last one for ever."""
        motion = self.stream.motion
        if self.config.rates and motion is not None and motion.command.any():
            self.stream.rest()
            self.output.send(np.zeros(self.config.spec.shape), self.clock(), self.flight, self.mode == "active")

    def grip(self) -> Motion | None:
        """What a hold that ends a grip continues: the last motion of any mission; of a hand that was silent since, and
        may have been off, rest where it is measured, once that is known again. None: the robot holds nothing, or a hold
        cannot end it.

        A robot may hold for ever what a mission sent it last, maybe with a grip. A ramp would send the same place
        again, to a robot that somebody may have moved since."""
        if self.profile.action("operator") != "hold" or self.offboard is not None or not self.checks.alone():
            return None
        held, lost = self.stream.held, self.stream.lost
        return self.active_stop.recovered(self.clock(), lost) if held is None and lost else held

    # ---- between missions

    def reset(self) -> None:
        """Clear a latched reason; the robot is released, wherever it is."""
        if self.mode not in ("stopping", "holding", "stopped"):
            return
        refused = decisions.reset_refusal(
            self.mode, self.checks.button.set, self.orders.reset_refusal(self.clock()), self.rests_at >= self.stepped)
        if refused:
            return self.announce("operator", f"{NOT_RESET}: {refused}")
        self.release()
        self.due = inf
        self.stream.retain()
        self.flight = self.flight.cleared()
        if self.offboard is not None:
            self.offboard.reset()
        self._let_go()
        self.set_mode("waiting")

    def _let_go(self) -> None:
        """Listen to whichever controller speaks next; it must say what it flies."""
        self.swaps.swap = None
        self.link.release()
        self.checks.controller.forget()

    def idle(self, now: float) -> None:
        """Ready as long as state and controller are there."""
        freshness, greeted = self.checks.monitor.freshness, self.checks.controller.present(now)
        if not greeted:
            self._let_go()
        fresh = freshness.complete and freshness.fresh(now)
        self.unlocked = self.unlocked and fresh  # a robot that was silent may have been off: its lock is on again
        mode = decisions.idle_mode(self.mode, greeted and fresh and self.checks.monitor.rest.known(now))
        if mode != self.mode:
            self.unlocked = False  # nor was it watched while the mission's reason stood
            self.set_mode(mode)
        if self.mode == "ready" or (self.mode == "finished" and fresh):
            self._unlock(now)

    def _unlock(self, now: float) -> None:
        """One zero setpoint on the ground: a Crazyflie keeps its thrust locked until it has seen one. In the air, or
        while somebody else commands it, that would cut its motors."""
        below = self.profile.unlock_below_m
        if self.unlocked or below is None or self.offboard is not None or (
                float(self.checks.monitor.values["height"]) >= below):
            return
        if self.checks.alone() and self.output.heard():
            self.unlocked = True
            self.output.send(np.zeros(self.config.spec.shape), now, self.flight, False)

    def forget(self, now: float) -> None:
        """A robot at rest that was silent for long may have been off, or its driver, and may no longer have its last
        command; nor has one that somebody else commands. To continue that command would be a leap."""
        gone = self.checks.monitor.freshness.silence(now) > GONE_S
        taken = not self.checks.alone()
        if taken:
            self.stream.lost = None
        if not (gone or taken) or self.stream.held is None:
            return
        if self.mode == "holding" and gone and self.offboard is None:
            self.due = inf
            self.set_mode("stopped")
            self.announce("held", f"the robot has said nothing for {GONE_S:g} s: nothing more is sent to it")
        if self.mode != "holding":
            self.stream.forget(now, taken)
