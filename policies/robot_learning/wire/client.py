"""The actor's side of the wire: calls of the learner, each with a deadline, its errors told apart by what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from temporeal.policies.robot_learning.wire import security
from temporeal.policies.robot_learning.wire.messages import LARGEST, Message, MessageError, decode, encode, text_of
from temporeal.policies.robot_learning.wire.security import Security
from temporeal.policies.robot_learning.wire.service import METHODS, OPTIONS, SERVICE, agreement_hello

LEARNER = "the learner"
SECONDS = 30.0  # for an answer
AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED,
         grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.ABORTED)
"""Statuses after which the same call may succeed later."""


class Unreachable(RuntimeError):
    """The learner does not answer now: ask again later."""


class Refused(RuntimeError):
    """The learner does not speak with this actor: another token, another agreement. A person must mend it."""


class BadEpisode(RuntimeError):
    """The learner refuses this one message, and asking again is of no use."""


class Client:
    """Calls of the learner at ``address``."""

    def __init__(self, address: str, secured: Security, seconds: float = SECONDS) -> None:
        self.address, self.seconds = address, seconds
        self.metadata = security.metadata(secured.token)
        options = (*OPTIONS, ("grpc.max_reconnect_backoff_ms", 2000), ("grpc.initial_reconnect_backoff_ms", 100))
        self.channel = (grpc.insecure_channel(address, options) if secured.tls is None else
                        grpc.secure_channel(address, security.channel_credentials(secured.tls), options))
        self.calls: dict[str, Callable[..., Any]] = {
            name: self.channel.unary_unary(f"/{SERVICE}/{name}") for name in METHODS}

    def hello(self, agreed: dict[str, Any]) -> str:
        """Greet the learner. Returns the digest of what is agreed."""
        welcome = decode(self.call("hello", agreement_hello(agreed)), LEARNER, "welcome")
        return text_of(welcome.fields, "agreement", LEARNER)

    def deliver(self, identity: str, data: bytes) -> bool:
        """Hand an episode over; on return the learner has it on its disk. Whether it was new there."""
        if len(data) > LARGEST:
            raise BadEpisode(f"an episode of {len(data):,} bytes; at most {LARGEST:,} are taken")
        kept = decode(self.call("episode", data), LEARNER, "kept").fields
        if kept.get("id") != identity:
            raise Unreachable(f"{LEARNER} acknowledged {str(kept.get('id'))[:40]} for {identity}")
        return bool(kept.get("new"))

    def weights(self, have: str) -> bytes | None:
        """The bytes of newer weights than those with the digest ``have``; None: there are none."""
        answer = self.call("weights", encode(Message("have", {"digest": have})))
        try:
            decode(answer, LEARNER, "same")
            return None
        except MessageError:
            decode(answer, LEARNER, "weights")
            return answer

    def call(self, name: str, data: bytes) -> bytes:
        """The answer's bytes."""
        try:
            return bytes(self.calls[name](data, timeout=self.seconds, metadata=self.metadata))
        except grpc.RpcError as error:
            text = f"{LEARNER} at {self.address}: {error.details()}"
            if error.code() in AGAIN:
                raise Unreachable(text) from error
            if error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED):
                raise BadEpisode(text) from error
            raise Refused(text) from error

    def close(self) -> None:
        """Close the connection."""
        self.channel.close()
