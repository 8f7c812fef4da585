"""A model of PX4's commander for tests and the simulated robot: it accepts, refuses and fails safe as PX4 does.

What it models (PX4-Autopilot; :mod:`temporeal_bridge.guard.px4` names what follows from it): the offboard signal is a
heartbeat younger than COM_OF_LOSS_T (offboardCheck.cpp); setpoints are not checked; a loss in flight is a failsafe with
the action COM_OBL_RC_ACT, which ends when heartbeats return (failsafe.cpp); while disarmed every mode may be chosen
(UserModeIntention.cpp), arming needs the checks and the mode's signal (Commander.cpp). It requires more than a second
of heartbeats before both, as the documentation does and the code does not.

Not modelled: PX4's controllers. Modes that need a pilot or a position controller keep hover thrust and a level
attitude; there is no estimator, no battery, no other failsafe. Times are those of arrival, not the stamps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from math import inf
from typing import Any

import numpy as np

from temporeal.robots.motion import shield
from temporeal_bridge.codecs.codec import CodecError
from temporeal_bridge.codecs.px4 import CONTROL_OF, CONTROLS, MODE, TARGET, microseconds
from temporeal_bridge.codecs.table import COMMAND_CODECS
from temporeal_bridge.guard.px4 import (
    ARM_DISARM,
    ARMED,
    DO_SET_MODE,
    MAVROS,
    NAV_STATES,
    OFFBOARD,
    ORDER,
    STATUS,
    Output,
)
from temporeal_bridge.interface.interface import Autopilot, CommandTopic, InterfaceError
from temporeal_bridge.transports import messages

DISARMED = 1
STREAM_S = 1.0  # offboard.md
STATUS_S = 0.5  # Commander.cpp publishes its status at every change, and every 500 ms
LANDED_M = 0.06
SPEAKS = {STATUS: CONTROL_OF, MAVROS: {"mavros_rates": "body_rate"}}  # setpoints, by the type of the status
LEVELS = ("px4_rates", "mavros_rates")  # setpoints that can hold an attitude level
CRITICAL, ACTIVE, STANDBY = 5, 4, 3  # MAV_STATE
COM_OBL_RC_ACT = {0: 2, 1: 1, 2: 15, 3: 5, 4: 18, 5: 4, 6: 13}  # value -> nav_state (failsafe.cpp); 7 disarms
LEVEL = {"descend": 1.0, "gain": 5.0, "limit": 3.0}  # of shield.level_and_descend: stay where you are
LAND = {**LEVEL, "descend": 0.85}
POSCTL, AUTO_LAND, DESCEND, TERMINATION = 2, 18, 12, 13


class Px4Commander:
    """The commander of one vehicle.

    Args:
        autopilot, command: its topics and its setpoint, from ``ros.yaml``; through MAVROS they are those of MAVROS.
        hover: command [4] (thrust N, rates) that balances the vehicle's weight.
        loss_s: COM_OF_LOSS_T. landed_m: height below which it has landed.
        action: COM_OBL_RC_ACT, 0 to 7 (PX4's default is 0, for which a pilot must be there; land is 4).
    """

    def __init__(
        self, autopilot: Autopilot, command: CommandTopic, hover: np.ndarray, *, loss_s: float = 1.0, action: int = 4,
        landed_m: float = LANDED_M,
    ) -> None:
        if command.codec not in SPEAKS.get(autopilot.status.type, ()):
            raise InterfaceError(f"{autopilot.status.topic}, {command.topic}: not the interface of a PX4")
        if action not in (*COM_OBL_RC_ACT, 7):
            raise ValueError(f"COM_OBL_RC_ACT is {action!r}; legal: 0 to 7")
        self.obeys = SPEAKS[autopilot.status.type][command.codec]
        self.autopilot, self.command, self.hover = autopilot, command, np.asarray(hover, dtype=float)
        self.loss_s, self.action, self.landed_m = loss_s, action, landed_m
        self.armed = self.failsafe = False
        self.checks = True  # pre_flight_checks_pass
        self.wanted = self.mode = POSCTL  # nav_state_user_intention, nav_state
        self.heartbeat = self.since = -inf
        self.control = ""
        self.setpoint: np.ndarray | None = None
        self.denials: list[str] = []
        self.said, self.next_status = (0, False, False), -inf

    # in

    def receive(self, type: str, message: Any, now: float) -> None:
        """A message on one of its topics."""
        if type == MODE:
            self._beat(next((name for name in CONTROLS if getattr(message, name)), ""), now)
        elif type == self.command.type:
            if type == TARGET:  # the MAVLink receiver makes a heartbeat of it, and drops it in other modes
                self._beat(self.obeys, now)
                if self.mode != OFFBOARD:
                    return
            decode = COMMAND_CODECS[self.command.codec].decode
            assert decode is not None  # CONTROL_OF has setpoints only
            try:
                self.setpoint = decode(message, self.command.options)
            except CodecError as error:  # PX4 would take it, and fly what a NaN leaves to it
                self.denials.append(str(error))
        elif type == ORDER:
            self._order(message, now)

    def _beat(self, control: str, now: float) -> None:
        self.since = now if now - self.heartbeat > self.loss_s else self.since
        self.heartbeat, self.control = now, control

    def pilot(self, now: float, *, mode: int | None = None, arm: bool | None = None) -> None:
        """Switch the mode, or arm, as a pilot does."""
        if mode is not None:
            self._switch(mode, now)
        if arm is not None:
            self._arm(arm, now)

    def _order(self, message: Any, now: float) -> None:
        if message.command == DO_SET_MODE and message.param1 == 1.0 and message.param2 == 6.0:
            self._switch(OFFBOARD, now)
        elif message.command == ARM_DISARM and message.param1 in (0.0, 1.0):
            self._arm(message.param1 == 1.0, now)
        else:
            self.denials.append(f"order {message.command} ({message.param1}, {message.param2}) is not known")

    def _signal(self, now: float) -> bool:
        return bool(self.control) and now - self.heartbeat < self.loss_s

    def streamed(self, now: float) -> bool:
        """Whether heartbeats have come long enough for offboard to be chosen."""
        return self._signal(now) and now - self.since > STREAM_S

    def _switch(self, mode: int, now: float) -> None:
        if mode == OFFBOARD and not self.streamed(now):
            self.denials.append("no offboard: heartbeats for more than 1 s are needed first")
        elif self.mode != TERMINATION:
            self.wanted = mode

    def _arm(self, arm: bool, now: float) -> None:
        if arm and not self.checks:
            self.denials.append("no arming: pre-flight checks fail")
        elif arm and self.wanted == OFFBOARD and not self.streamed(now):
            self.denials.append("no arming in offboard: heartbeats for more than 1 s are needed first")
        else:
            self.armed = arm

    # out

    def output(self, now: float, signals: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """The command [4] in force for a vehicle with the true ``signals``; None: motors off."""
        self._update(now, float(signals["height"]))
        if not self.armed or self.mode == TERMINATION:
            return None
        if self.mode == OFFBOARD and self.control == self.obeys:
            return self.setpoint
        if self.command.codec not in LEVELS:
            return None  # of motors there is no level attitude
        config = LAND if self.mode in (AUTO_LAND, DESCEND) else LEVEL
        return shield.level_and_descend(signals["base_quat_w"], float(self.hover[0]), config)

    def _update(self, now: float, height: float) -> None:
        """Update mode and arming."""
        lost = self.wanted == OFFBOARD and not self._signal(now)
        self.failsafe = self.armed and lost
        if self.failsafe and self.action == 7:
            self.armed = False
        self.mode = COM_OBL_RC_ACT[self.action] if self.failsafe and self.action != 7 else self.wanted
        if self.armed and self.mode in (AUTO_LAND, DESCEND) and height < self.landed_m:
            self.armed = False

    def status(self, now: float, stamp_ns: int = 0) -> list[Output]:
        """The messages to publish now: its status, at every change and at 2 Hz."""
        state = (self.mode, self.armed, self.failsafe)
        if state == self.said and now < self.next_status:
            return []
        self.said, self.next_status = state, now + STATUS_S
        if self.autopilot.status.type == MAVROS:
            return [(self.autopilot.status.topic, MAVROS, messages.record(MAVROS)(
                header=messages.header(stamp_ns), connected=True, armed=self.armed, guided=self.mode == OFFBOARD,
                manual_input=False, mode=NAV_STATES[self.mode].replace("AUTO_", "AUTO."),
                system_status=CRITICAL if self.failsafe else ACTIVE if self.armed else STANDBY))]
        message = blank(
            STATUS, timestamp=microseconds(stamp_ns), arming_state=ARMED if self.armed else DISARMED,
            nav_state=self.mode, nav_state_user_intention=self.wanted, failsafe=self.failsafe, system_id=1,
            component_id=1, pre_flight_checks_pass=self.checks)
        return [(self.autopilot.status.topic, STATUS, message)]


def blank(name: str, **content: Any) -> Any:
    """A message of numbers with ``content``; all other fields of this version of it are zero."""
    kind = messages.record(name)
    needed = [field.name for field in fields(kind) if field.default is MISSING]  # the others are constants
    return kind(**{name: content.get(name, 0) for name in needed})
