"""Joint states that come in several messages of one topic: an arm's driver and its gripper's often share
``joint_states``.

The joints are put together by name. A state is complete once each of them has a new value; it carries the oldest of
their stamps. So no joint's value is older than the state says, and a driver that falls silent ends the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np

from temporeal_bridge.codecs.codec import CodecError, Options, header_stamp
from temporeal_bridge.codecs.joint_state import FIELDS, joint_state_options
from temporeal_bridge.transports import messages

KEPT = 2.0  # periods of the topic for which a joint's value waits for the others. Chosen
SEEN = 10  # messages without a complete state after which a joint that was in none of them is an error; twice as many
# as ever came between two, if that is more. Chosen


class Reading(NamedTuple):
    """A joint's values of the fields that are read, its message's stamp [ns], and when that arrived [s]."""

    values: tuple[float, ...]
    stamp: int
    at: float


class JointParts:
    """Puts the messages of one topic together.

    Args:
        options: of the codec ``joint_state``.
        rate_hz: of the topic; 0: values wait for ever.
    """

    def __init__(self, options: Options, rate_hz: float) -> None:
        known = joint_state_options(options)
        self.joints, self.fields = known.told, tuple(known.fields)
        self.wanted = frozenset(self.joints)
        self.wait_s = KEPT / rate_hz if rate_hz > 0 else inf
        self.new: dict[str, Reading] = {}
        self.stamps: dict[str, int] = {}  # of each joint's last value
        self.seen, self.heard, self.most = set[str](), 0, 0  # since the last complete state; the most between two
        self.names: list[str] | None = None  # of the last message that has all joints

    def take(self, message: Any, at: float) -> Any | None:
        """The message itself if it has all joints, or the state that it completes; None: others are still needed.
        ``at`` [s]: when it arrived.

        Raises:
            CodecError: a joint is in none of many messages, or a field lacks values.
        """
        if message.name is self.names or self.wanted <= set(message.name):
            self.names = message.name
            self._restart()
            return message
        mine = [(i, name) for i, name in enumerate(message.name) if name in self.wanted]
        self._count(message.name)
        if not mine:  # a gripper's, say, which may lack fields that are read of the arm alone
            return None
        if len({name for _, name in mine}) < len(mine):
            raise CodecError(f"JointState has a joint more than once: {', '.join(message.name)}")
        rows, stamp = self._rows(message), header_stamp(message)
        for i, name in mine:
            if not stamp or stamp != self.stamps.get(name):
                self.new[name] = Reading(tuple(float(row[i]) for row in rows), stamp, at)
                self.stamps[name] = stamp
        self.new = {name: reading for name, reading in self.new.items() if at - reading.at <= self.wait_s}
        return self._put_together() if len(self.new) == len(self.joints) else None

    def _restart(self) -> None:
        """A state is complete."""
        self.most, self.heard = max(self.most, self.heard), 0
        self.seen.clear()

    def _count(self, names: Sequence[str]) -> None:
        """Note the joints that were seen."""
        self.seen.update(names)
        self.heard += 1
        missing = [name for name in self.joints if name not in self.seen]
        if missing and self.heard > max(SEEN, 2 * self.most):
            raise CodecError(f"JointState has no joint {missing[0]!r}; it has: {', '.join(names) or 'none'}; seen on "
                             f"this topic: {', '.join(sorted(self.seen))}")

    def _rows(self, message: Any) -> list[Any]:
        """The fields that are read."""
        rows = [getattr(message, field) for field in self.fields]
        for field, row in zip(self.fields, rows):
            if len(row) != len(message.name):
                raise CodecError(f"JointState has {len(message.name)} names and {len(row)} values of {field}")
        return rows

    def _put_together(self) -> Any:
        readings = [self.new[name] for name in self.joints]
        self.new = {}
        self._restart()
        columns = dict(zip(self.fields, np.array([reading.values for reading in readings]).T.reshape(
            len(self.fields), len(readings))))
        return messages.record("sensor_msgs/msg/JointState")(
            header=messages.header(min(reading.stamp for reading in readings)), name=list(self.joints),
            **{field: columns.get(field, np.zeros(0)) for field in FIELDS})
