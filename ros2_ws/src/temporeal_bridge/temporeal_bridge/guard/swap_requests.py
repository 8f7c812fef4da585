"""The guard's side of an artifact swap: who may ask, what they propose, and what they are answered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from temporeal.robots.artifact.manifest import Manifest, identity
from temporeal.robots.artifact.signature import public_key
from temporeal.robots.motion import shield
from temporeal.robots.motion.rate_limiter import Array, Motion
from temporeal_bridge.guard.artifact_swap import ArtifactSwap, steps_of, unfit
from temporeal_bridge.guard.checks import admission
from temporeal_bridge.guard.config import GuardConfig
from temporeal_bridge.link import artifact_offer, datagrams
from temporeal_bridge.link.datagrams import Answer, Proposal
from temporeal_bridge.link.ends import GuardEnd
from temporeal_bridge.mission import IDLE, check_fits


class Situation(NamedTuple):
    """The guard's mode, the mission's number, time zero [ns], last step and reason for its end, and the motion of its
    last command."""

    mode: str
    flight: int
    start_ns: int
    step: int
    reason: str
    motion: Motion | None


class SwapRequests:
    """The artifact in charge, and the one that may succeed it.

    Args:
        link: the guard's end of the link.
        announce: publishes a code and a reason.
        trust: file of the public key that must have signed a successor's manifest; None: no signature is needed. It is
            read now, because in flight no file is opened.

    Attributes:
        manifest, identity: of the artifact in charge.
        swap: the one under way; None: there is none.
    """

    def __init__(
        self, config: GuardConfig, manifest: Manifest, link: GuardEnd, announce: Callable[[str, str], None],
        trust: Path | None = None,
    ) -> None:
        self.manifest, self.identity = manifest, identity(manifest)
        self.config, self.link, self.announce = config, link, announce
        self.trust, self.trusted = trust, None if trust is None else public_key(trust)
        self.swap: ArtifactSwap | None = None

    def hear(self, p: Proposal, now: float, situation: Situation) -> ArtifactSwap | None:
        """One datagram of a successor: its request, or its proposals once it may. A swap that is returned is complete
        at
        once: :meth:`succeed`."""
        if p.kind == datagrams.TAKEOVER:
            return self._request(p, now, situation)
        if self.swap is None or self.swap.back >= 0:
            self._send_away(Answer("refused", reason="the guard has not accepted this successor"))
        elif p.kind == datagrams.COMMAND:
            self._propose(self.swap, p, now, situation)
        elif p.kind in (datagrams.FAIL, datagrams.END):
            self.refuse(p.text if p.kind == datagrams.FAIL else "it ended its mission")
        return None

    def _request(self, p: Proposal, now: float, situation: Situation) -> ArtifactSwap | None:
        new, folder = self.manifest, ""
        try:
            new, folder = artifact_offer.offered(p.text, self.trusted, str(self.trust))
            check_fits(new, self.config.robot, self.config.interface)
            reason = unfit(new, self.manifest) or self._untimely(p, situation)
        except Exception as error:  # no offer may end the guard of a moving robot
            reason = f"{'' if isinstance(error, ValueError) else f'{type(error).__name__}: '}{error}"
        if reason:
            self.announce("swap_refused", f"{new.name} may not succeed {self.manifest.name}: {reason}")
            if self.swap is None or self.swap.back >= 0:
                self._send_away(Answer("refused", p.flight, p.stamp_ns, reason))
            return None
        return self._accept(new, folder, now, situation)

    def _accept(self, new: Manifest, folder: str, now: float, situation: Situation) -> ArtifactSwap | None:
        blend_s = self.config.profile.blend_s
        made = ArtifactSwap(new, identity(new), folder, steps_of(blend_s, self.config.period), now,
                            flight=situation.flight, start_ns=situation.start_ns)
        if situation.mode in IDLE:
            return made
        self.swap = made
        self.announce("swap", f"{new.name} succeeds {self.manifest.name} within {blend_s:g} s")
        self.link.answer(Answer("blending", made.flight, made.start_ns), successor=True)
        return None

    def _untimely(self, p: Proposal, situation: Situation) -> str:
        """Why no artifact, or not this one, can take over now."""
        if self.swap is not None:
            return "a swap is under way, or is being taken back"
        if situation.mode in IDLE:
            return ""
        if situation.mode != "active":
            why = f": {situation.reason}; mission/reset clears it" if situation.reason else ""
            return f"the guard is {situation.mode}{why}"
        if (p.flight, p.stamp_ns) != (situation.flight, situation.start_ns):
            return f"it is prepared for mission {p.flight}, mission {situation.flight} is flown"
        if situation.motion is None:
            return "the mission has no command yet"
        return ""

    def _propose(self, under_way: ArtifactSwap, p: Proposal, now: float, situation: Situation) -> None:
        reason = self._unusable(under_way, p, now, situation)
        if reason:
            self.refuse(reason)
        elif under_way.newest is None or p.step > under_way.newest.step:
            under_way.newest, under_way.heard = p, now

    def _unusable(self, under_way: ArtifactSwap, p: Proposal, now: float, situation: Situation) -> str:
        """What is wrong with a successor's proposal."""
        profile = self.config.profile
        _, unusable = admission.unusable(p, now, self.config.spec, profile)
        if unusable:
            return unusable
        if (p.flight, p.stamp_ns) != (situation.flight, situation.start_ns):
            return f"it proposes for mission {p.flight}, mission {situation.flight} is flown"
        if abs(p.step - situation.step) * self.config.period > profile.silent_after_s:
            return f"it is at step {p.step}, the mission at {situation.step}: they must count the same"
        rule = profile.start
        if rule is not None and situation.motion is not None and under_way.newest is None:
            count = len(rule.within)
            far = shield.behind(
                np.asarray(p.values, dtype=float)[:count], situation.motion.command[:count], rule.within)
            return far and f"its first command is too far from the one in force: {far}"
        return ""

    def check(self, under_way: ArtifactSwap, now: float) -> None:
        """Refuse a successor that fell silent."""
        quiet, most = now - under_way.heard, self.config.profile.silent_after_s
        if quiet > most:
            self.refuse(f"the successor has proposed nothing for {quiet:.3f} s, {most:g} s is allowed")

    def mix(self, under_way: ArtifactSwap, asked: Array) -> tuple[Array, float, Array]:
        """See :meth:`temporeal_bridge.guard.artifact_swap.ArtifactSwap.mix`."""
        mixed = under_way.mix(asked)
        self._forget_if_over()
        return mixed

    def refuse(self, reason: str) -> None:
        """Cancel the swap under way: the old controller goes on, and what was mixed in fades out."""
        made = self.swap
        if made is None or made.back >= 0:
            return
        self.announce("swap_refused", f"{made.manifest.name} does not succeed {self.manifest.name}: {reason}")
        self._send_away(Answer("refused", made.flight, made.start_ns, reason))
        made.fail()
        self._forget_if_over()

    def drop(self, reason: str) -> None:
        """Cancel the swap, without fading out."""
        self.refuse(reason)
        self.swap = None

    def succeed(self, new: ArtifactSwap) -> str:
        """``new`` is in charge, and the former controller may end; what to announce."""
        who = f"{new.manifest.name} ({new.identity[:12]})"
        message = f"{self.manifest.name} ({self.identity[:12]}) was relieved by {who}"
        self.link.answer(Answer("relieved", new.flight, new.start_ns, message))
        self.link.promote()
        self.manifest, self.identity, self.swap = new.manifest, new.identity, None
        return message

    def _send_away(self, answer: Answer) -> None:
        self.link.answer(answer, successor=True)
        self.link.dismiss()

    def _forget_if_over(self) -> None:
        if self.swap is not None and self.swap.over:
            self.swap = None
