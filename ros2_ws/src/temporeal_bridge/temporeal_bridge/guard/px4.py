"""Offboard control of PX4: arming, switching to offboard, and when commands take effect. A pure state machine.

PX4 follows our setpoints only while it is armed and in its offboard mode. The way there (PX4-Autopilot,
docs/en/flight_modes/offboard.md): heartbeats (OffboardControlMode) for more than a second, then the mode, then arming.
Hazards and measures:

- PX4 cannot tell our setpoints from its own: they are published in offboard only; before, only heartbeats.
- It checks the heartbeat, not the setpoints, and follows the last one for ever (#20519): each heartbeat belongs to the
  step that made a setpoint (``also`` of :class:`~temporeal_bridge.interface.interface.CommandTopic`). Only on the way
  to offboard heartbeats come from :meth:`Offboard.outputs`, with a zero setpoint while the vehicle stands in offboard
  on the ground, so that arming does not spin up with the last setpoint of an earlier flight.
- When heartbeats stop, PX4 acts after COM_OF_LOSS_T as COM_OBL_RC_ACT says. It keeps offboard as the mode that its user
  wants, and returns to it when heartbeats return (failsafe.cpp ``checkModeFallback``; framework.cpp
  ``modeFromAction``): after a failsafe nothing is sent, no stop action either, until :meth:`Offboard.reset` and a new
  :meth:`Offboard.ask`.
- A pilot or failsafe that leaves offboard or disarms is not opposed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from temporeal_bridge.codecs.px4 import CONTROL_OF, microseconds
from temporeal_bridge.codecs.table import COMMAND_CODECS
from temporeal_bridge.interface.interface import Autopilot, CommandTopic, InterfaceError
from temporeal_bridge.transports import messages

STATUS, ORDER = "px4_msgs/msg/VehicleStatus", "px4_msgs/msg/VehicleCommand"
MAVROS = "mavros_msgs/msg/State"

DO_SET_MODE, ARM_DISARM = 176, 400  # VehicleCommand.msg, VEHICLE_CMD_DO_SET_MODE, VEHICLE_CMD_COMPONENT_ARM_DISARM
CUSTOM_MODE = 1.0  # Commander.cpp, VEHICLE_MODE_FLAG_CUSTOM_MODE_ENABLED
MAIN_MODE_OFFBOARD = 6.0  # px4_custom_mode.h, PX4_CUSTOM_MAIN_MODE_OFFBOARD
ARMED = 2  # VehicleStatus.msg, ARMING_STATE_ARMED
NAV_STATES = {  # VehicleStatus.msg, NAVIGATION_STATE_*
    0: "MANUAL", 1: "ALTCTL", 2: "POSCTL", 3: "AUTO_MISSION", 4: "AUTO_LOITER", 5: "AUTO_RTL", 6: "POSITION_SLOW",
    10: "ACRO", 12: "DESCEND", 13: "TERMINATION", 14: "OFFBOARD", 15: "STAB", 17: "AUTO_TAKEOFF", 18: "AUTO_LAND",
    19: "AUTO_FOLLOW_TARGET", 20: "AUTO_PRECLAND", 21: "ORBIT", 22: "AUTO_VTOL_TAKEOFF"}
OFFBOARD = 14
FAILSAFES = (5, 6, 8)  # MAV_STATE: critical (PX4 in failsafe, streams/HEARTBEAT.hpp), emergency, flight termination
RETRY_S = 0.5  # PX4 reads orders best effort: one may be lost

Output = tuple[str, str, Any]
"""Topic, message type, message."""


@dataclass(frozen=True)
class Status:
    """An autopilot's status.

    Args:
        mode: its name for its mode; offboard: whether that is the one in which it follows us.
        armed, failsafe: as it reports; ready: whether its checks would let it arm (True where it does not report them).
        connected: whether there is an autopilot (MAVROS publishes without one, too).
        system, component: its address on its network.
    """

    mode: str
    offboard: bool
    armed: bool
    failsafe: bool
    ready: bool = True
    connected: bool = True
    system: int = 1
    component: int = 1


def px4_status(message: Any) -> Status:
    """Status in a px4_msgs/VehicleStatus (of PX4 1.16 and later)."""
    state = int(message.nav_state)
    return Status(
        NAV_STATES.get(state, f"nav_state {state}"), state == OFFBOARD, message.arming_state == ARMED,
        bool(message.failsafe), ready=bool(message.pre_flight_checks_pass), system=int(message.system_id),
        component=int(message.component_id))


def mavros_status(message: Any) -> Status:
    """Status in a mavros_msgs/State. It does not say whether PX4's checks pass."""
    return Status(
        str(message.mode), message.mode == "OFFBOARD", bool(message.armed), message.system_status in FAILSAFES,
        connected=bool(message.connected))


READERS: dict[str, Callable[[Any], Status]] = {STATUS: px4_status, MAVROS: mavros_status}


class Offboard:
    """The way into the air and the permission to stay there.

    The guard passes every message on ``autopilot.status`` to :meth:`on_status`. When a mission is started it calls
    :meth:`ask`, waits until :meth:`refusal` is empty, and only then lets the controller begin. Each of its steps
    publishes :meth:`outputs`, and commands only while :meth:`refusal` is empty. A refusal in flight is a reason to stop
    whose only action is silence.

    Times are seconds of one monotonic clock.

    Args:
        autopilot: its topics and times, from ``ros.yaml``.
        command: the topic of the command, with its companions.
        shape: of that command; a vehicle on the ground gets zeros.
    """

    def __init__(self, autopilot: Autopilot, command: CommandTopic, shape: tuple[int, ...]) -> None:
        check_companions(command)
        if autopilot.status.type not in READERS:
            raise InterfaceError(f"autopilot.status is a {autopilot.status.type}; known: {', '.join(READERS)}")
        if autopilot.orders is not None and autopilot.orders.type != ORDER:
            raise InterfaceError(f"autopilot.orders is a {autopilot.orders.type}, not a {ORDER}")
        self.autopilot, self.command, self.idle = autopilot, command, np.zeros(shape)
        self.status: Status | None = None
        self.heard = -inf
        self.failed = ""  # latched: why this autopilot gets nothing before a reset
        self._forget()

    def _forget(self) -> None:
        self.asked: float | None = None
        self.clear: float | None = None  # since when it is armed and in offboard
        self.due = 0.0  # when the next order may go
        self.grounded = self.was_offboard = self.was_armed = self.flown = False

    # ---- what the guard calls

    def on_status(self, message: Any, now: float) -> None:
        """A status arrived."""
        self.status, self.heard = READERS[self.autopilot.status.type](message), now
        if self.asked is None:
            return
        status = self.status
        if status.failsafe:
            return self._fail(f"the autopilot is in failsafe, mode {status.mode}")
        if self.was_offboard and not status.offboard:
            return self._fail(f"the autopilot left offboard for {status.mode}")
        if self.was_armed and not status.armed:
            return self._fail("the autopilot disarmed")
        self.was_offboard, self.was_armed = status.offboard, status.armed
        if status.armed and not status.offboard:
            self.grounded = False  # somebody flies it: a zero setpoint would drop it
        if status.armed and status.offboard and self.clear is None:
            self.clear = now

    def ask(self, now: float) -> str:
        """The operator wants to fly. Why not, or ""; from now on until :meth:`release` there are outputs."""
        reason = self.failed or self._obstacle(now)
        if reason or self.status is None:
            return reason
        if self.status.armed and not self.command.also:
            # no heartbeat without a setpoint: until the controller knows that it may begin, that would be zero thrust
            return f"on {self.command.topic} setpoints are the heartbeat: the flight must start on the ground, disarmed"
        self._forget()
        self.asked, self.grounded, self.was_armed = now, not self.status.armed, self.status.armed
        return ""

    def release(self) -> None:
        """The flight is over; nothing more is sent."""
        self._forget()

    def reset(self) -> None:
        """The operator has seen the failure. The next flight needs a new :meth:`ask`."""
        self._forget()
        self.failed = ""

    # ---- what the guard reads

    def refusal(self, now: float) -> str:
        """Why no command may be sent now; "": commands count, and nothing forbids them."""
        reason = self.failed or self._obstacle(now)
        if reason or self.status is None:
            return reason
        if self.asked is None:
            return "nobody has asked to fly"
        if not self.status.offboard:
            return f"the autopilot is in {self.status.mode}, not in offboard"
        return "" if self.status.armed else "the autopilot is not armed"

    def outputs(self, now: float, flying: bool, stamp_ns: int = 0) -> list[Output]:
        """What this step publishes besides commands, in order. ``flying``: the guard sends a command in this step."""
        if self.asked is None:
            return []
        reason = self._obstacle(now) or self._late(now, flying)
        if reason:
            self._fail(reason)
            return []
        if flying or self.flown:
            if not flying:
                self.release()  # commands have ended: PX4 hears nothing more and does what its parameters say
            self.flown = flying
            return []
        rows = [*self.command.also, self.command] if self._standing() else [*self.command.also]
        encode = {row.codec: COMMAND_CODECS[row.codec].encode for row in rows}
        out = [(row.topic, row.type, encode[row.codec](self.idle, row.options, stamp_ns)) for row in rows]
        return [*out, *self._orders(now, stamp_ns)]

    # ---- rules

    def _fail(self, reason: str) -> None:
        self._forget()
        self.failed = reason

    def _obstacle(self, now: float) -> str:
        """Why nobody may fly."""
        where, limit = self.autopilot.status.topic, self.autopilot.silent_after_s
        if self.status is None:
            return f"no status of the autopilot has come on {where}"
        if not now - self.heard <= limit:
            return f"the autopilot's last status on {where} is {now - self.heard:.2f} s old, {limit:.2f} s is allowed"
        if not self.status.connected:
            return f"{where} says that no autopilot is connected"
        return f"the autopilot is in failsafe, mode {self.status.mode}" if self.status.failsafe else ""

    def _late(self, now: float, flying: bool) -> str:
        """Why the way into the air takes too long. There is no limit for a pilot who arms and switches himself."""
        status, limits = self.status, self.autopilot
        assert self.asked is not None and status is not None
        if self.clear is not None:
            late = not flying and not self.flown and now - self.clear > limits.start_s
            return f"armed and in offboard for {limits.start_s:g} s without a command" if late else ""
        if limits.arm == "never" or now - self.asked <= limits.answer_s:
            return ""
        if not status.offboard:
            return f"the autopilot stays in {status.mode}: it did not switch to offboard in {limits.answer_s:g} s"
        why = "it denies" if status.ready else "its pre-flight checks fail"
        return f"the autopilot did not arm in {limits.answer_s:g} s: {why} (see its ground station)"

    def _standing(self) -> bool:
        """On the ground since the ask, and in offboard: zero thrust is safe, and nobody else flies it.

        Through MAVLink the setpoint is the heartbeat, and PX4 itself drops it in other modes (mavlink_receiver.cpp).
        """
        return self.grounded and self.status is not None and (self.status.offboard or not self.command.also)

    def _orders(self, now: float, stamp_ns: int) -> list[Output]:
        """Orders to switch to offboard, then to arm, each repeated after ``RETRY_S``; only where we were asked to."""
        status, orders = self.status, self.autopilot.orders
        assert self.asked is not None and status is not None
        ours = self.autopilot.arm == "ask" and orders is not None
        if not ours or orders is None or now < self.due or now - self.asked < self.autopilot.stream_s:
            return []
        if not status.offboard:
            message = order(status, DO_SET_MODE, CUSTOM_MODE, MAIN_MODE_OFFBOARD, stamp_ns)
        elif not status.armed and status.ready:
            message = order(status, ARM_DISARM, 1.0, 0.0, stamp_ns)
        else:
            return []
        self.due = now + RETRY_S
        return [(orders.topic, orders.type, message)]


def check_companions(command: CommandTopic) -> None:
    """Check that a PX4 setpoint has exactly one heartbeat, which names this kind of setpoint."""
    needed = CONTROL_OF.get(command.codec)
    given = [row.options.get("control") for row in command.also if row.codec == "px4_mode"]
    if given != ([] if needed is None else [needed]):
        raise InterfaceError(
            f"{command.topic}: codec {command.codec!r} needs {'no' if needed is None else 'one'} heartbeat under `also`"
            + (f" (codec px4_mode) with control: {needed}" if needed else "") + f"; there are: {given}")


def order(status: Status, command: int, param1: float, param2: float, stamp_ns: int) -> Any:
    """A VehicleCommand to the autopilot of this ``status``. Arming is never forced (param2 21196 would)."""
    return messages.record(ORDER)(
        timestamp=microseconds(stamp_ns), param1=param1, param2=param2, param3=0.0, param4=0.0, param5=0.0, param6=0.0,
        param7=0.0, command=command, target_system=status.system, target_component=status.component,
        source_system=status.system, source_component=1, confirmation=0, from_external=True)
