"""The learner's side of the wire, over gRPC: it greets, takes episodes, and hands weights out. Bytes in, bytes out."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from temporeal.policies.robot_learning.wire import security
from temporeal.policies.robot_learning.wire.agreement import Agreement, differences
from temporeal.policies.robot_learning.wire.episodes import Episode, from_message
from temporeal.policies.robot_learning.wire.messages import (
    LARGEST,
    ROOM,
    Message,
    MessageError,
    Published,
    decode,
    encode,
    text_of,
)
from temporeal.policies.robot_learning.wire.security import Security
from temporeal.policies.runs.errors import BadInput

SERVICE = "temporeal.RobotLearning"
THREADS = 4
OPTIONS = (("grpc.max_receive_message_length", LARGEST + ROOM), ("grpc.max_send_message_length", LARGEST + ROOM),
           ("grpc.so_reuseport", 0))
ACTOR = "the actor"


class Service:
    """Answers actors.

    Args:
        agreed: what an actor must be of.
        keep: stores an episode for good before it returns, given its bytes; False: it was there already.
        published: the newest weights.
    """

    def __init__(
        self, agreed: Agreement, keep: Callable[[Episode, bytes], bool], published: Callable[[], Published],
        largest: int = LARGEST,
    ) -> None:
        self.agreed, self.keep, self.published, self.largest = agreed, keep, published, largest
        self.digest = agreed.digest()

    def hello(self, data: bytes) -> bytes:
        """Compare what is agreed on."""
        theirs = decode(data, ACTOR, "hello", self.largest).fields.get("agreement")
        if found := list(differences(self.agreed.plain(), theirs)):
            raise Different("actor and learner differ: " + "; ".join(found))
        return encode(Message("welcome", {"agreement": self.digest}))

    def episode(self, data: bytes) -> bytes:
        """Keep an episode."""
        episode = from_message(decode(data, ACTOR, "episode", self.largest), self.agreed, ACTOR)
        return encode(Message("kept", {"id": episode.id, "new": self.keep(episode, data)}))

    def weights(self, data: bytes) -> bytes:
        """The newest weights, unless the actor has them."""
        have = text_of(decode(data, ACTOR, "have", self.largest).fields, "digest", ACTOR)
        newest = self.published()
        return encode(Message("same")) if have == newest.digest else newest.data


class Different(MessageError):
    """The two sides are not of one agreement."""


METHODS = ("hello", "episode", "weights")


def handlers(service: Service) -> grpc.GenericRpcHandler:
    """What gRPC calls: bytes to bytes, so that no code is generated and nothing is parsed before our own checks."""

    def guarded(work: Callable[[bytes], bytes]) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        def handle(data: bytes, context: grpc.ServicerContext) -> bytes:
            try:
                return work(data)
            except Different as error:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error)[:4000])
            except MessageError as error:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error)[:4000])
            except OSError as error:  # a full disk: not kept, so not acknowledged; the actor keeps it and asks again
                context.abort(grpc.StatusCode.UNAVAILABLE, f"the learner cannot keep it: {error}")
            raise AssertionError("abort raises")

        return handle

    return grpc.method_handlers_generic_handler(SERVICE, {
        name: grpc.unary_unary_rpc_method_handler(guarded(getattr(service, name))) for name in METHODS})


class Doorkeeper(grpc.ServerInterceptor):  # type: ignore[misc]
    """Lets nobody through who has not the token."""

    def __init__(self, token: str) -> None:
        self.token = token

        def refuse(unread: Any, context: grpc.ServicerContext) -> bytes:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is not the learner's: token=FILE")
            raise AssertionError("abort raises")

        self.refusal = grpc.stream_unary_rpc_method_handler(refuse)  # a stream is not read before it is asked for

    def intercept_service(self, continuation: Any, details: grpc.HandlerCallDetails) -> Any:
        """The handler of a call."""
        known = security.same_token(security.token_in(details.invocation_metadata), self.token)
        return continuation(details) if known else self.refusal


def serve(address: str, secured: Security, service: Service) -> tuple[grpc.Server, int]:
    """A server that has begun, and its port."""
    server = grpc.server(ThreadPoolExecutor(THREADS, "actors"), handlers=[handlers(service)],
                         interceptors=[Doorkeeper(secured.token)], options=OPTIONS)
    try:
        if secured.tls is not None:
            port = server.add_secure_port(address, security.server_credentials(secured.tls))
        else:
            port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise BadInput(f"listen={address}: {error}") from error
    if not port:
        raise BadInput(f"listen={address} cannot be listened at: in use, or not an address of this machine")
    server.start()
    return server, int(port)


def agreement_hello(agreed: dict[str, Any]) -> bytes:
    """The first message of an actor."""
    json.dumps(agreed, allow_nan=False)
    return encode(Message("hello", {"agreement": agreed}))
