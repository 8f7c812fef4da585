"""What the guard does about a reason, by its mode: pure functions, which :mod:`temporeal_bridge.guard.mode_machine`
carries out."""

from __future__ import annotations

from typing import Literal

from temporeal_bridge.guard.flight import Flight
from temporeal_bridge.guard.safety.profile import Profile
from temporeal_bridge.guard.safety.reasons import Reason
from temporeal_bridge.mission import IDLE

COMMANDED = ("arming", "active", "stopping", "holding")  # modes in which the robot gets commands, or soon
LAST_WORDS = ("operator", "autopilot")  # codes that also end a stop action
UNHEARD = ("silent", "stale", "stamps")  # codes that a guard finds which did not listen itself

Answer = Literal["ignore", "latch", "stop"]
"""What to do about a reason: nothing; latch it, while the stop action goes on; begin the stop action."""


def pause_reason(paused: float, silent_after_s: float) -> Reason:
    """The guard itself did not run for so long [s]; ("", ""): not for too long."""
    return ("guard", f"the guard itself stood still for {paused:.3f} s") if paused > silent_after_s else ("", "")


def true_reason(mode: str, reason: Reason, paused: float, silent_after_s: float) -> Reason:
    """``reason``, or that the guard itself stood still (``paused`` [s]) where it found so because it did not listen."""
    if mode == "active" and reason[0] in UNHEARD and paused > silent_after_s:
        return pause_reason(paused, silent_after_s)
    return reason


def stop_action(mode: str, code: str, profile: Profile, grips: bool) -> str:
    """The stop action for a reason. Outside a mission there is none, but the operator ends a grip that it left."""
    if mode in (*IDLE, "arming") and not (code == "operator" and grips):
        return "silence"
    return profile.action(code)


def answer_to_stop(mode: str, code: str, action: str, flight: Flight, grips: bool) -> Answer:
    """What to do about a reason of this ``code`` whose stop action is ``action``.

    A stop action under way goes on, unless the operator, or an autopilot that no longer obeys, demands another one. The
    operator's stop is latched in every mode, because a start that is on its way must not begin after it, and it ends
    the grip that a mission has left (``grips``)."""
    ends_grip = code == "operator" and grips
    if mode in ("stopping", "holding"):
        if code not in LAST_WORDS or (flight.reason and action == flight.action):
            return "ignore"
        return "latch" if mode == "stopping" and action == flight.action else "stop"
    if (mode == "stopped" and not ends_grip) or (mode in IDLE and code != "operator"):
        return "ignore"
    return "stop"


def start_refusal(mode: str, flight: Flight, number: int) -> str:
    """Why mission ``number`` may not begin in this mode; "": it may."""
    if mode in ("ready", "finished") or (mode == "arming" and number == flight.number):
        return ""
    return f"the guard is {mode}: {flight.reason}; mission/reset clears it" if flight.reason else f"the guard is {mode}"


def reset_refusal(mode: str, pressed: bool, after_stop: str, just_stopped: bool) -> str:
    """Why a reset that arrives now is refused; "": it is not.

    Topics are read one by one, so that a stop is heard before a reset whichever was published first: a reset clears
    only what was there before. ``pressed``: the stop button is; ``after_stop``: why it comes too soon after an order to
    stop; ``just_stopped``: the robot came to rest in this turn of the loop, for a reason found before the topics were
    read."""
    if pressed:
        return "the operator's stop is still set"
    if mode == "stopping":
        return "the robot is still stopping: say reset when it has stopped"
    if after_stop:
        return after_stop
    return "the robot has just been stopped: say reset again" if just_stopped else ""


def idle_mode(mode: str, ready: bool) -> str:
    """The mode while no mission is flown, if state and controller are ``ready`` or not."""
    return mode if mode == "finished" else "ready" if ready else "waiting"


def mode_after_stop(reason: str, keeps: bool) -> str:
    """The mode once a stop action has ended; ``keeps``: it goes on keeping the robot where it is."""
    return "finished" if not reason else "holding" if keeps else "stopped"
