"""Checks of the artifact's start: its first command for this state, and whether the state is familiar."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from temporeal.policies.cli.preflight.findings import Check
from temporeal.policies.cli.preflight.listening import Heard
from temporeal.policies.cli.preflight.plan import Plan
from temporeal.policies.cli.preflight.values import SLACK
from temporeal.policies.cli.preflight.wording import values_of
from temporeal_bridge.guard.safety.checked_values import is_rate
from temporeal_bridge.mission import MISSION_TIME

LARGEST = 64  # components of a signal that is compared one by one; larger ones are pictures


def start(heard: Heard, plan: Plan) -> Iterator[Check]:
    """The artifact's first command for this state: inside the limits, and near the measured pose where it is one."""
    newest = heard.newest()
    if plan.propose is None or set(plan.golden) - {MISSION_TIME.name} - set(newest):
        return
    spec, command = plan.command, np.ravel(plan.propose(newest))
    low, high = np.array(spec.low), np.array(spec.high)
    beyond = np.flatnonzero((command < low - SLACK * (high - low)) | (command > high + SLACK * (high - low))).tolist()
    name, rule = "first command", plan.profile.start
    if not np.isfinite(command).all():
        yield Check(name, "fail", f"{spec.name} is not finite: {values_of(command)}", "do not run this artifact here")
        return
    if rule and rule.signal:
        pose = np.ravel(newest[rule.signal])
        share = np.abs(command[:len(pose)] - pose) / np.array(rule.within)
        worst = int(share.argmax())
        if share[worst] > 1.0:
            yield Check(name, "fail", f"{spec.name} is {share[worst] * rule.within[worst]:.3g} from {rule.signal}, "
                        f"component {worst}; {rule.within[worst]:g} is allowed",
                        "missions begin at rest: does this one?" if is_rate(spec) else
                        f"move the robot nearer to {values_of(command[:len(pose)])} before the start")
            return
    if beyond:
        yield Check(name, "warn", f"{spec.name} {values_of(command)} is beyond its limits, components {beyond}",
                    "the guard would clamp it: is this a state that the policy knows?")
    else:
        yield Check(name, "ok", f"{spec.name} {values_of(command)}")


def familiar(heard: Heard, plan: Plan) -> Iterator[Check]:
    """The state is like those of the artifact's recorded trace: inside its range, widened by that range."""
    newest, strange = heard.newest(), []
    known = [name for name in plan.golden if name in newest and newest[name].size <= LARGEST]
    for name in known:
        trace, at = plan.golden[name], newest[name]
        low, high = trace.min(axis=0), trace.max(axis=0)
        outside = np.atleast_1d(np.maximum(low - at, at - high) > np.maximum(high - low, SLACK))
        if outside.any():
            strange.append(f"{name} {values_of(at)}, recorded {values_of(trace[0])} at its start (components "
                           f"{np.flatnonzero(outside).tolist()})")
    if strange:
        yield Check("start state", "warn", f"unlike the artifact's recorded trace: {'; '.join(strange)}",
                    "is the robot where missions begin? units, signs and origins as in training?")
    elif known:
        yield Check("start state", "ok", "like the artifact's recorded trace")
