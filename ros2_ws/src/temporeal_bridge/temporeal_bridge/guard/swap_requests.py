"""The guard's side of an exchange of artifacts (:mod:`temporeal_bridge.guard.artifact_swap`): who asks, and what
they are told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from temporeal.robots.artifact.manifest import Manifest, identity
from temporeal.robots.artifact.signature import public_key
from temporeal.robots.motion import shield
from temporeal.robots.motion.rate_limiter import Array, Motion
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.guard import admission, artifact_swap
from temporeal_bridge.guard.artifact_swap import ArtifactSwap
from temporeal_bridge.guard.safety import Profile
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.link import artifact_offer, datagrams
from temporeal_bridge.link.datagrams import Answer, Proposal
from temporeal_bridge.link.ends import GuardEnd
from temporeal_bridge.mission import IDLE, check_fits


class Standing(NamedTuple):
    """How things stand: the guard's mode, the mission's number, time zero [ns], last step and reason for its end, and
    the motion of its last command."""

    mode: str
    flight: int
    start_ns: int
    step: int
    reason: str
    motion: Motion | None


class Exchange:
    """The artifact in charge, and the one that may succeed it.

    Args:
        profile, robot, interface, line: the guard's.
        tell: says a code and a reason on ``guard/event``.
        trust: file of the key that must have signed a successor's manifest; None: nobody need. It is read at once: in
            flight no file is opened.

    Attributes:
        manifest, identity: of the artifact in charge.
        swap: what is under way; None: nothing is.
    """

    def __init__(
        self, manifest: Manifest, profile: Profile, robot: RobotSpec, interface: Interface, line: GuardEnd,
        tell: Callable[[str, str], None], trust: Path | None = None,
    ) -> None:
        self.manifest, self.identity = manifest, identity(manifest)
        self.profile, self.robot, self.interface, self.link, self.tell = profile, robot, interface, line, tell
        self.spec, self.period = robot.command(manifest.commands[0].name), profile.limits.dt
        self.trust, self.trusted = trust, None if trust is None else public_key(trust)
        self.swap: ArtifactSwap | None = None

    def hear(self, p: Proposal, now: float, standing: Standing) -> ArtifactSwap | None:
        """One datagram of a successor: that it asks, or what it proposes once it may. The one returned is in charge at
        once: :meth:`succeed`."""
        if p.kind == datagrams.TAKEOVER:
            return self._asks(p, now, standing)
        if self.swap is None or self.swap.back >= 0:
            self._send_away(Answer("refused", reason="the guard has not accepted this successor"))
        elif p.kind == datagrams.COMMAND:
            self._proposes(self.swap, p, now, standing)
        elif p.kind in (datagrams.FAIL, datagrams.END):
            self.refuse(p.text if p.kind == datagrams.FAIL else "it ended its mission")
        return None

    def _asks(self, p: Proposal, now: float, standing: Standing) -> ArtifactSwap | None:
        new, folder = self.manifest, ""
        try:
            new, folder = artifact_offer.offered(p.text, self.trusted, str(self.trust))
            check_fits(new, self.robot, self.interface)
            reason = artifact_swap.unfit(new, self.manifest) or self._untimely(p, standing)
        except Exception as error:  # whatever is shown must not end the guard of a robot in motion
            reason = f"{'' if isinstance(error, ValueError) else f'{type(error).__name__}: '}{error}"
        if reason:
            self.tell("swap_refused", f"{new.name} may not succeed {self.manifest.name}: {reason}")
            if self.swap is None or self.swap.back >= 0:
                self._send_away(Answer("refused", p.flight, p.stamp_ns, reason))
            return None
        made = ArtifactSwap(new, identity(new), folder, artifact_swap.steps_of(self.profile.blend_s, self.period), now,
                    flight=standing.flight, start_ns=standing.start_ns)
        if standing.mode in IDLE:
            return made
        self.swap = made
        self.tell("swap", f"{new.name} succeeds {self.manifest.name} within {self.profile.blend_s:g} s")
        self.link.answer(Answer("blending", made.flight, made.start_ns), successor=True)
        return None

    def _untimely(self, p: Proposal, standing: Standing) -> str:
        """Why nobody can take over now, or not this one."""
        if self.swap is not None:
            return "an exchange is under way, or is being taken back"
        if standing.mode in IDLE:
            return ""
        if standing.mode != "active":
            why = f": {standing.reason}; mission/reset clears it" if standing.reason else ""
            return f"the guard is {standing.mode}{why}"
        if (p.flight, p.stamp_ns) != (standing.flight, standing.start_ns):
            return f"it is prepared for mission {p.flight}, mission {standing.flight} is flown"
        if standing.motion is None:
            return "the mission has no command yet"
        return ""

    def _proposes(self, under_way: ArtifactSwap, p: Proposal, now: float, standing: Standing) -> None:
        reason = self._unwanted(under_way, p, now, standing)
        if reason:
            self.refuse(reason)
        elif under_way.newest is None or p.step > under_way.newest.step:
            under_way.newest, under_way.heard = p, now

    def _unwanted(self, under_way: ArtifactSwap, p: Proposal, now: float, standing: Standing) -> str:
        """What is wrong with a successor's proposal."""
        _, unusable = admission.unusable(p, now, self.spec, self.profile)
        if unusable:
            return unusable
        if (p.flight, p.stamp_ns) != (standing.flight, standing.start_ns):
            return f"it proposes for mission {p.flight}, mission {standing.flight} is flown"
        if abs(p.step - standing.step) * self.period > self.profile.silent_after_s:
            return f"it is at step {p.step}, the mission at {standing.step}: they must count the same"
        rule = self.profile.start
        if rule is not None and standing.motion is not None and under_way.newest is None:
            count = len(rule.within)
            far = shield.behind(np.asarray(p.values, dtype=float)[:count], standing.motion.command[:count], rule.within)
            return far and f"its first command is too far from the one in force: {far}"
        return ""

    def check(self, under_way: ArtifactSwap, now: float) -> None:
        """While nobody speaks: is the successor still there?"""
        quiet = now - under_way.heard
        if quiet > self.profile.silent_after_s:
            self.refuse(f"the successor has proposed nothing for {quiet:.3f} s, {self.profile.silent_after_s:g} s is "
                        "allowed")

    def mix(self, under_way: ArtifactSwap, asked: Array) -> tuple[Array, float, Array]:
        """See :meth:`temporeal_bridge.guard.artifact_swap.ArtifactSwap.mix`."""
        mixed = under_way.mix(asked)
        self._forget_if_over()
        return mixed

    def refuse(self, reason: str) -> None:
        """The exchange, if one is under way, is called off; the old controller goes on, what was mixed in fades out."""
        made = self.swap
        if made is None or made.back >= 0:
            return
        self.tell("swap_refused", f"{made.manifest.name} does not succeed {self.manifest.name}: {reason}")
        self._send_away(Answer("refused", made.flight, made.start_ns, reason))
        made.fail()
        self._forget_if_over()

    def drop(self, reason: str) -> None:
        """Nothing is mixed any more."""
        self.refuse(reason)
        self.swap = None

    def succeed(self, new: ArtifactSwap) -> str:
        """``new`` is in charge; who was may end. What is to be told of it."""
        who = f"{new.manifest.name} ({new.identity[:12]})"
        told = f"{self.manifest.name} ({self.identity[:12]}) was relieved by {who}"
        self.link.answer(Answer("relieved", new.flight, new.start_ns, told))
        self.link.promote()
        self.manifest, self.identity, self.swap = new.manifest, new.identity, None
        return told

    def _send_away(self, answer: Answer) -> None:
        self.link.answer(answer, successor=True)
        self.link.dismiss()

    def _forget_if_over(self) -> None:
        if self.swap is not None and self.swap.over:
            self.swap = None
