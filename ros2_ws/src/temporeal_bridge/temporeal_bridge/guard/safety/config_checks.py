"""A robot's safety profile on one of its interfaces: every signal that it reads is carried, and often enough.

:mod:`temporeal_bridge.guard.safety.section` checks the section alone. Here it is checked against the topics, including
those of a user's file: for the guard, and for checks before the start (:mod:`temporeal_bridge.launching.preflight`,
``temporeal doctor``).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import inf

import numpy as np

from temporeal.robots.signals import CommandSpec
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.codecs.joint_state import joint_state_options
from temporeal_bridge.codecs.table import COMMAND_CODECS, STATE_CODECS
from temporeal_bridge.guard.safety.checked_values import SafetyError
from temporeal_bridge.guard.safety.profile import GAP_S, Ages, Fingers, Frozen, Profile
from temporeal_bridge.guard.safety.section import profile
from temporeal_bridge.interface.interface import Interface, StateTopic


def profile_on(robot: RobotSpec, interface: Interface, spec: CommandSpec, period: float) -> Profile:
    """The profile of ``robot`` for its command ``spec``, sent every ``period`` [s] on ``interface``.

    Ages of the command's own section apply to topics that carry a signal which the profile reads. A task's other
    signals, for example the pose of a cube seen by a camera, need not be as fresh as the velocity that damps.
    """
    topic = interface.command(spec.name)
    found = profile(robot, interface.safety, spec, period)
    check_carried(found, interface.carried)
    check_setpoint(found, COMMAND_CODECS[topic.codec].encode_smooth_trajectory is not None)
    ages = [age_of(row, found, interface, spec.name) for row in interface.states]
    if found.frozen is not None:
        check_frozen(found.frozen, interface)
    check_agree(found, interface)
    return replace(found, ages=ages, fingers=fingers_on(found, interface))


def check_carried(found: Profile, carried: Collection[str]) -> None:
    """Refuse a profile that reads a signal which no topic brings: the rule would never be checked."""
    for where, names in found.reads().items():
        for name in names:
            if name not in carried:
                raise SafetyError(f"safety: {where} needs {name!r}, which no topic of the interface carries; carried: "
                                  f"{', '.join(carried)}")


def check_setpoint(found: Profile, led: bool) -> None:
    """Refuse the servo law for a command that is not the servos' setpoint, but a trajectory (``led``)."""
    if found.effort is not None and led:
        raise SafetyError("safety: effort needs an interface whose command is the servos' setpoint. The points of a "
                          "trajectory lie ahead of it, and what they will ask for is not known yet. Use an interface "
                          "with single positions, or leave effort out and limit it in the robot's own controller")


def fingers_on(found: Profile, interface: Interface) -> Fingers | None:
    """The signals that say where a hand is: where motors drive several joints each (option ``driven``), these
    joints."""
    for row in interface.states if found.fingers is not None else ():
        if row.options.get("driven", {}).get("signal") == found.place:
            driven = joint_state_options(row.options).driven
            assert driven is not None and found.fingers is not None  # the interface has checked its options
            motors, joints = driven
            parts = np.split(np.array(joints), np.cumsum(motors.count)[:-1])
            return found.fingers._replace(
                signals=frozenset({row.options["position"]}), parts=tuple(tuple(part.tolist()) for part in parts))
    return found.fingers


def age_of(row: StateTopic, found: Profile, interface: Interface, command: str) -> Ages:
    """The largest ages of the topic's messages."""
    content = interface.safety
    names = carried_by(row) & found.signals()
    own = bool(names)
    if not row.rate_hz:
        check_rules(names, found, row)
        return Ages(inf, None, read=False)
    age = Ages(found.stale_after_s, found.stamps_within_s, read=bool(names - found.witnesses)) if own else Ages(
        content["stale_after_s"], content.get("stamps_within_s"), read=False)
    place = f".commands.{command}" if own and content["commands"][command].get("stale_after_s") is not None else ""
    check_period(f"safety{place}.stale_after_s", age.stale_s, row, "the state would be stale")
    return age


def check_rules(names: Collection[str], found: Profile, row: StateTopic) -> None:
    """Refuse a rule about signals of a topic that is sent on change: the death of its source would not be noticed."""
    for rule, read in found.reads().items():
        if judged := sorted(set(names) & set(read)):
            raise SafetyError(f"the safety profile's {rule} reads {judged[0]}, but topic {row.topic!r} is sent only "
                              "when it changes (rate_hz 0), so that nobody would notice that its source died. Needed "
                              "is a topic with a rate_hz above 0")


def check_frozen(rule: Frozen, interface: Interface) -> None:
    """Refuse a rule about signals that come less often than they must change."""
    for row in interface.states:
        if names := sorted(carried_by(row) & {*rule.signals, *rule.each}):
            check_period("safety.frozen.after_s", rule.after_s, row, f"{names[0]} would count as frozen")


def check_agree(found: Profile, interface: Interface) -> None:
    """Refuse a rule about signals that come so seldom that they are never compared."""
    for row in interface.states:
        for rule in found.agree:
            if (names := sorted(carried_by(row) & {rule.place, rule.rate})) and row.rate_hz * GAP_S <= 1:
                raise SafetyError(f"safety.agree.{rule.place} needs {names[0]} more often than every {GAP_S:g} s, but "
                                  f"topic {row.topic!r} comes every {1 / row.rate_hz:.4g} s (rate_hz {row.rate_hz:g}): "
                                  "the two would never be compared. Needed is a topic that is sent more often, or no "
                                  "such rule")


def check_period(where: str, seconds: float, row: StateTopic, otherwise: str) -> None:
    """Refuse a time that may pass without a message of the topic."""
    period = 1.0 / row.rate_hz
    if seconds <= period:
        raise SafetyError(f"{where} is {seconds:g} s, but topic {row.topic!r} comes every {period:.4g} s (rate_hz "
                          f"{row.rate_hz:g}): {otherwise} between two messages. Needed is a longer time than from one "
                          "message to the next, or a topic that is sent more often")


def carried_by(row: StateTopic) -> set[str]:
    """Names of the signals on a topic."""
    return set(STATE_CODECS[row.codec].signals(row.options))
