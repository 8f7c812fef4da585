"""An operator's words reach the topics that controller and guard listen to; where nobody listens, that is said."""

from __future__ import annotations

import pytest

from temporeal_bridge import messages
from temporeal_bridge.memory import Bus, MemoryTransport
from temporeal_bridge.tell import WORDS, tell
from temporeal_bridge.transport import QOS, TransportError


@pytest.mark.parametrize("word", WORDS)
def test_a_word_is_said_once(word):
    bus, got = Bus(), []
    node, operator = MemoryTransport(bus, "guard_node", "/arm1"), MemoryTransport(bus, "tell", "/arm1")
    node.subscribe(f"mission/{word}", WORDS[word], QOS["default"], got.append)
    tell(operator, word, 7)
    node.wait(0.0)
    assert len(got) == 1
    if word == "start":
        assert messages.decode(got[0].type, got[0].data).data == 7


def test_nobody_listens():
    class Clock(MemoryTransport):
        def wait(self, timeout_s: float) -> int:
            self.bus.advance(timeout_s)
            return super().wait(0.0)

    with pytest.raises(TransportError, match="mission/stop"):
        tell(Clock(Bus(), "tell", "/arm1"), "stop")


@pytest.mark.parametrize("number", [-1, 2**63])
def test_a_number_that_no_mission_has_is_refused(number):
    bus = Bus()
    with pytest.raises(ValueError, match=r"number of a mission is 0 to 2\^63 - 1, got"):
        tell(MemoryTransport(bus, "tell", "/arm1"), "start", number)
