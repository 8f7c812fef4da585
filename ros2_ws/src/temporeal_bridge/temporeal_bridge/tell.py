"""What an operator says to a robot's nodes, where no ``ros2 topic pub`` is at hand.

    python -m temporeal_bridge.tell start 1 --namespace /arm1
    python -m temporeal_bridge.tell stop --namespace /arm1
    python -m temporeal_bridge.tell reset --namespace /arm1

This is no emergency stop: it takes seconds to start and join the bus. Have the robot's own stop in your hand.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from temporeal_bridge import messages
from temporeal_bridge.mission import GREATEST
from temporeal_bridge.node import parser
from temporeal_bridge.transport import QOS, Transport, TransportError, open_transport, require_peer

NUMBER, EMPTY = "std_msgs/msg/UInt64", "std_msgs/msg/Empty"
WORDS = {"start": NUMBER, "stop": EMPTY, "reset": EMPTY}
PEER_S, AFTER_S = 5.0, 0.3  # to find who listens, and for the message to leave


def tell(transport: Transport, word: str, number: int = 0) -> None:
    """Publish ``mission/<word>`` once, as soon as somebody listens; nobody does: :class:`TransportError`."""
    if not 0 <= number <= GREATEST:
        raise ValueError(f"the number of a mission is 0 to 2^63 - 1, got {number}")
    endpoint = transport.advertise(f"mission/{word}", WORDS[word], QOS["default"])
    require_peer(transport, endpoint, PEER_S)
    content: dict[str, Any] = {"data": number} if WORDS[word] == NUMBER else {}
    message = messages.encode(NUMBER, messages.record(NUMBER)(**content)) if content else messages.empty()
    transport.publish(endpoint, message)
    transport.wait(AFTER_S)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = parser("tell", "Start, stop or reset the mission of one robot.")
    options.add_argument("word", choices=tuple(WORDS), help="to the controller: start; to the guard: stop, reset")
    options.add_argument("number", nargs="?", type=int, default=0, help="of the mission to start (%(default)s)")
    args = options.parse_args(arguments)
    try:
        transport = open_transport(args.transport, "tell", args.namespace, domain=args.domain, loopback=args.loopback)
        try:
            tell(transport, args.word, args.number)
        finally:
            transport.close()
    except (TransportError, ValueError) as error:
        print(f"tell: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
