"""Checks of rates, gaps, stamps and clocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from temporeal.policies.cli.preflight.findings import Check
from temporeal.policies.cli.preflight.listening import Heard, StateHeard
from temporeal.policies.cli.preflight.plan import Plan
from temporeal.policies.cli.preflight.values import ENOUGH
from temporeal_bridge.codecs.codec import unstamped
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.guard.safety.profile import Ages
from temporeal_bridge.interface.interface import PictureTopic, StateTopic

FUTURE_S = 0.001  # clocks kept by NTP in one network agree to a millisecond; no message comes before it was sent
STEP_S = 0.02  # a clock that is steered moves by 0.5 ms a second at most (adjtime), so this is a step
SLOW, MISSING = 0.5, 0.9  # shares of the stated rate
FAST = 1.5
GAP_PERIODS = 3  # a single lost sample is what the controller is made for
REPEATED = 0.1  # share of messages whose stamp is the one before


def rates(heard: Heard, plan: Plan) -> Iterator[Check]:
    """Every state topic has the rate of ros.yaml, without gaps at which the guard would stop."""
    for state in heard.states:
        times, row = state.arrivals, state.topic
        if not len(times) or not row.rate_hz:
            continue
        rate, gap, missing = rhythm(times, heard.end, state.stamps)
        name = f"{row.topic} rate"
        found = (f"{rate:.1f} Hz of {row.rate_hz:g}, {missing} of {len(times) + missing} missing, "
                 f"gaps up to {1e3 * gap:.0f} ms")
        (stale, _, _), who = oldest(row, plan)
        if gap >= stale:
            yield Check(name, "fail", found, f"the {who} stops after {1e3 * stale:.0f} ms without one: is the driver's "
                                             "machine busy, the radio or the network weak?")
        elif rate < SLOW * row.rate_hz:
            yield Check(name, "fail", found, "set the driver to the rate that ros.yaml states")
        elif rate < MISSING * row.rate_hz or gap > GAP_PERIODS / row.rate_hz:
            yield Check(name, "warn", found, "the policy acts on older states than it was trained with")
        elif rate > FAST * row.rate_hz:
            yield Check(name, "warn", found, "faster than ros.yaml states: is that the right topic? correct rate_hz")
        else:
            yield Check(name, "ok", found)


def oldest(row: StateTopic, plan: Plan) -> tuple[Ages, str]:
    """The allowed age of a topic, and the node that stops the robot beyond it."""
    if isinstance(row, PictureTopic):
        return Ages(row.max_age_s, row.max_age_s), "controller"
    return plan.profile.age([state.topic for state in plan.interface.states].index(row.topic)), "guard"


def rhythm(arrivals: np.ndarray, end: float, stamps: np.ndarray) -> tuple[float, float, int]:
    """Rate [Hz], longest time without a message [s], until ``end``, and number of missing messages.

    Missing messages are counted where two stamps (arrivals, if there are none) lie several median periods apart.
    """
    steps = np.diff(arrivals)
    span = float(arrivals[-1] - arrivals[0])
    rate = len(steps) / span if span > 0 else 0.0
    gap = float(max(steps.max(initial=0.0), end - arrivals[-1]))
    between = np.diff(stamps) / 1e9 if len(stamps) == len(arrivals) and stamps.all() else steps
    between = between[between > 0]
    period = float(np.median(between)) if len(between) else 0.0
    missing = int(np.maximum(np.rint(between / period) - 1, 0).sum()) if period > 0 else 0
    return rate, gap, missing


def clocks(heard: Heard, plan: Plan) -> Iterator[Check]:
    """The robot's clock and this machine's agree, and neither was set meanwhile."""
    if abs(heard.clock_step_s) > STEP_S:
        yield Check("clock here", "fail", f"set by {1e3 * heard.clock_step_s:+.0f} ms while listening",
                    "wait until NTP or chrony has settled (`timedatectl`, `chronyc tracking`)")
    else:
        yield Check("clock here", "ok", f"steady within {1e3 * abs(heard.clock_step_s):.1f} ms")
    for state in heard.states:
        if len(state.stamps) and state.topic.rate_hz:
            yield stamped(state, plan)


def stamped(state: StateHeard, plan: Plan) -> Check:
    """A topic's stamps against this machine's clock."""
    name, stamps = f"{state.topic.topic} clock", state.stamps
    if STATE_CODECS[state.topic.codec].stamp is unstamped:
        return Check(name, "warn", f"{state.topic.type} has no stamp: only when it came is known, not of when it is",
                     "its publisher must run beside what it measures, and send at once")
    if not stamps.any():
        return Check(name, "fail", "messages have no stamp (0)", "the driver must stamp what it measures")
    delay = (state.walls - stamps) / 1e9
    middle, late, least = (float(v) for v in (np.median(delay), np.percentile(delay, 99), delay.min()))
    (stale, allowed, _), who = oldest(state.topic, plan)
    within = np.inf if allowed is None else allowed
    half = len(delay) // 2
    step = float(np.median(delay[half:]) - np.median(delay[:half])) if half >= ENOUGH // 2 else 0.0
    found = f"{1e3 * middle:.1f} ms old on arrival (median), {1e3 * late:.1f} (p99), {1e3 * least:.1f} (least)"
    same_time = "let both machines take the time from one server (chrony); the age is that of path and clocks together"
    if (np.diff(stamps) < 0).any():
        return Check(name, "fail", f"stamps go back, {int((np.diff(stamps) < 0).sum())} times; {found}",
                     "two sources on one topic, or a clock that was set")
    if abs(step) > STEP_S:
        return Check(name, "fail", f"the robot's clock moved by {-1e3 * step:+.0f} ms; {found}",
                     "wait until its NTP or chrony has settled")
    if max(-least, late) > within:
        return Check(name, "fail", f"farther from our clock than the {who} allows ({within:g} s): {found}", same_time)
    if least < -FUTURE_S:
        return Check(name, "warn", f"stamps from the future; {found}", same_time)
    if (np.diff(stamps) == 0).mean() > REPEATED if len(stamps) > 1 else False:
        return Check(name, "warn", f"the same stamp on messages that follow each other; {found}",
                     "a driver that sends its last reading again: its rate is not what it measures")
    if late - middle > 1.0 / state.topic.rate_hz or middle > 0.5 * stale:
        return Check(name, "warn", found, "older or more uneven than a period: see the driver's machine, or its radio")
    return Check(name, "ok", found)
