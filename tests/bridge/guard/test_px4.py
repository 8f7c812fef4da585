"""The way into PX4's offboard mode and out of it, against a double of its commander; and that double by itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from temporeal.robots.spec import load_robot
from temporeal_bridge.codecs.px4 import CONTROLS, MODE, RATES, TARGET
from temporeal_bridge.codecs.table import COMMAND_CODECS
from temporeal_bridge.guard.px4 import (
    ARM_DISARM,
    DO_SET_MODE,
    NAV_STATES,
    ORDER,
    STATUS,
    Offboard,
    mavros_status,
    px4_status,
)
from temporeal_bridge.interface.interface import InterfaceError
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.simulated_robot.px4_commander import AUTO_LAND, DESCEND, POSCTL, TERMINATION, Px4Commander, blank
from temporeal_bridge.transports import messages

ROBOT = load_robot("crazyflie")
PX4, MAVROS = load_interface(ROBOT, "px4"), load_interface(ROBOT, "mavros")
ASK = replace(PX4.autopilot, arm="ask")
COMMAND = PX4.command("ctbr_cmd")
HOVER = np.array([0.31, 0.0, 0.0, 0.0])
STEP = 0.02
LEVEL = {"base_quat_w": np.array([1.0, 0, 0, 0]), "height": np.array(1.0)}
GROUND = {**LEVEL, "height": np.array(0.01)}


class Bench:
    """A guard's steps against the double. ``sent``: (time, topic, type, message) of everything, as bytes have it."""

    def __init__(self, autopilot=ASK, command=COMMAND, **options) -> None:
        self.px4 = Px4Commander(autopilot, command, HOVER, **options)
        self.offboard = Offboard(autopilot, command, (4,))
        self.now, self.command, self.signals = 100.0, command, dict(GROUND)
        self.flying: np.ndarray | None = None  # what the controller proposes
        self.linked = True
        self.sent: list[tuple[float, str, object]] = []
        self.applied: list[tuple[float, np.ndarray | None]] = []

    def step(self) -> None:
        flying = self.flying is not None and not self.offboard.refusal(self.now)
        rows = self.offboard.outputs(self.now, flying)
        if flying:
            rows += [(r.topic, r.type, COMMAND_CODECS[r.codec].encode(self.flying, r.options))
                     for r in (*self.command.also, self.command)]
        for _topic, type, message in rows:
            data = messages.encode(type, message)
            self.sent.append((self.now, type, messages.decode(type, data)))
            self.px4.receive(type, self.sent[-1][2], self.now)
        self.applied.append((self.now, self.px4.output(self.now, self.signals)))
        for _topic, type, message in self.px4.status(self.now) if self.linked else []:
            self.offboard.on_status(messages.decode(type, messages.encode(type, message)), self.now)
        self.now += STEP

    def run(self, seconds: float) -> Bench:
        for _ in range(round(seconds / STEP)):
            self.step()
        return self

    def types(self, since: float = 0.0) -> set[str]:
        return {type for at, type, _ in self.sent if at >= since}

    def orders(self) -> list[int]:
        return [m.command for _, type, m in self.sent if type == ORDER]

    def fly(self) -> Bench:
        """Up into the air under command."""
        self.run(0.1)
        assert self.offboard.ask(self.now) == ""
        while self.offboard.refusal(self.now):
            assert self.now < 110.0 and not self.offboard.failed, self.offboard.failed
            self.step()
        self.flying, self.signals = HOVER, dict(LEVEL)
        return self.run(0.5)


# the way up


def test_nothing_is_sent_unless_asked():
    bench = Bench().run(3.0)
    assert bench.sent == [] and bench.px4.mode == POSCTL and not bench.px4.armed
    assert bench.offboard.refusal(bench.now) == "nobody has asked to fly"


def test_heartbeats_then_the_mode_then_arming_then_commands():
    bench = Bench().fly()
    first = {type: next(at for at, t, _ in bench.sent if t == type) for type in bench.types()}
    assert first[MODE] + ASK.stream_s <= first[ORDER] < first[RATES]
    assert bench.orders() == [DO_SET_MODE, ARM_DISARM] and bench.px4.denials == []
    assert bench.px4.armed and bench.px4.mode == 14 and bench.offboard.refusal(bench.now) == ""
    assert bench.applied[-1][1] == pytest.approx(HOVER)


def test_no_setpoint_before_offboard_and_zero_ones_until_commands_come():
    """PX4 cannot tell ours from its own outside of offboard; arming must not start with an old setpoint."""
    bench = Bench()
    bench.px4.setpoint = np.array([0.48, 1.0, 1.0, 1.0])  # of an earlier flight
    bench.fly()
    modes = [m for _, t, m in bench.sent if t == ORDER]
    switched = next(at for at, t, m in bench.sent if t == ORDER and m is modes[0])
    assert min(at for at, t, _ in bench.sent if t == RATES) > switched
    before = [m for at, t, m in bench.sent if t == RATES and at < bench.now - 0.5]
    assert before and all(not np.any(m.thrust_body) and m.roll == m.pitch == m.yaw == 0 for m in before)
    assert all(c is None or c[0] == pytest.approx(0) for at, c in bench.applied if at < bench.now - 0.5)


def test_every_heartbeat_has_its_setpoint_in_flight():
    bench = Bench().fly()
    start = bench.now
    bench.run(1.0)
    beats = [at for at, t, _ in bench.sent if t == MODE and at >= start]
    assert beats == [at for at, t, _ in bench.sent if t == RATES and at >= start] and len(beats) == 50
    types = [t for at, t, _ in bench.sent if at == beats[-1]]
    assert types == [MODE, RATES]  # the companion first


def test_the_orders_are_for_this_vehicle_and_never_forced():
    bench = Bench()
    status = bench.px4.status
    bench.px4.status = lambda now: [(t, n, replace(m, system_id=7, component_id=3)) for t, n, m in status(now)]
    bench.fly()
    orders = [m for _, t, m in bench.sent if t == ORDER]
    assert {(m.target_system, m.target_component, m.from_external) for m in orders} == {(7, 3, True)}
    assert (orders[0].param1, orders[0].param2) == (1, 6) and (orders[1].param1, orders[1].param2) == (1, 0)


def test_a_lost_order_is_given_again():
    bench = Bench()
    receive, lost = bench.px4.receive, []

    def lossy(type, message, now):
        if type == ORDER and len(lost) < 2:
            lost.append(message)
        else:
            receive(type, message, now)

    bench.px4.receive = lossy
    bench.fly()
    assert bench.orders() == [DO_SET_MODE] * 3 + [ARM_DISARM]


def test_never_means_that_the_pilot_arms_and_switches():
    bench = Bench(PX4.autopilot).run(0.1)
    assert bench.offboard.ask(bench.now) == ""
    bench.run(20.0)  # he may take his time
    assert bench.types() == {MODE} and bench.orders() == [] and bench.offboard.failed == ""
    assert "not in offboard" in bench.offboard.refusal(bench.now)
    bench.px4.pilot(bench.now, mode=14)
    bench.run(0.1)
    assert "not armed" in bench.offboard.refusal(bench.now)
    bench.px4.pilot(bench.now, arm=True)
    bench.run(0.1)
    assert bench.offboard.refusal(bench.now) == "" and bench.orders() == [] and bench.px4.denials == []


def test_in_the_air_there_is_no_zero_setpoint():
    """A vehicle that a pilot flies is handed over by heartbeats alone, then by the first command."""
    bench = Bench()
    bench.signals = dict(LEVEL)
    bench.px4.pilot(bench.now, arm=True)
    bench.run(0.1)
    bench.offboard.ask(bench.now)
    while bench.offboard.refusal(bench.now):
        bench.step()
    assert bench.types() == {MODE, ORDER} and bench.orders() == [DO_SET_MODE]
    bench.flying = HOVER
    assert bench.run(0.5).applied[-1][1] == pytest.approx(HOVER)


def test_armed_without_commands_it_gives_up():
    bench = Bench().run(0.1)
    bench.offboard.ask(bench.now)
    bench.run(4.0)
    assert "without a command" in bench.offboard.failed
    last = max(at for at, _, _ in bench.sent)
    clear = next(at for at, c in bench.applied if c is not None)
    assert last - clear == pytest.approx(ASK.start_s, abs=2 * STEP + 1e-9)


def test_checks_that_fail_are_not_argued_with():
    bench = Bench()
    bench.px4.checks = False
    bench.run(0.1)
    bench.offboard.ask(bench.now)
    bench.run(8.0)
    assert bench.orders() == [DO_SET_MODE] and not bench.px4.armed
    assert "pre-flight checks fail" in bench.offboard.failed
    assert max(at for at, _, _ in bench.sent) < 100.1 + ASK.answer_s + 2 * STEP


def test_a_switch_that_is_refused_is_given_up():
    bench = Bench()
    bench.px4._switch = lambda mode, now: None
    bench.run(0.1)
    bench.offboard.ask(bench.now)
    bench.run(8.0)
    assert bench.offboard.failed == "the autopilot stays in POSCTL: it did not switch to offboard in 5 s"


@pytest.mark.parametrize(("change", "words"), [
    (lambda b: setattr(b, "linked", False), "no status of the autopilot has come on fmu/out/vehicle_status_v1"),
    (lambda b: setattr(b.px4, "failsafe", True), "failsafe, mode POSCTL")])
def test_asking_is_refused_where_it_cannot_end_well(change, words):
    bench = Bench()
    change(bench)
    bench.px4._update = lambda now, height: None
    bench.run(1.0)
    assert words in bench.offboard.ask(bench.now)
    bench.run(3.0)
    assert bench.sent == []


# the way out


def silent_after(bench: Bench, seconds: float = 5.0) -> bool:
    """Nothing at all is sent any more, though the controller still proposes."""
    start = bench.now + STEP
    bench.step()
    bench.run(seconds)
    return bench.types(start) == set()


def test_commands_that_end_take_the_heartbeat_along_and_px4_lands():
    bench = Bench().fly()
    bench.flying = None
    stopped = bench.now
    bench.run(3.0)
    assert bench.types(stopped) == set() and bench.px4.mode == AUTO_LAND
    landing = next(at for at, c in bench.applied if at > stopped and c[0] == pytest.approx(0.85 * HOVER[0]))
    assert landing - stopped == pytest.approx(1.0, abs=2 * STEP)  # COM_OF_LOSS_T
    bench.signals = dict(GROUND)
    bench.run(0.1)
    assert not bench.px4.armed


def test_after_a_failsafe_nothing_goes_out_and_px4_does_not_come_back():
    """The heartbeats were lost on the way. One more of them, and PX4 would be in offboard again."""
    bench = Bench().fly()
    receive = bench.px4.receive
    bench.px4.receive = lambda type, m, now: None
    bench.run(1.2)
    bench.px4.receive = receive
    assert bench.px4.failsafe and "in failsafe, mode AUTO_LAND" in bench.offboard.failed
    assert silent_after(bench) and bench.px4.mode == AUTO_LAND
    assert bench.offboard.refusal(bench.now) == bench.offboard.failed
    assert bench.offboard.ask(bench.now) == bench.offboard.failed  # latched


def test_a_reset_alone_does_not_arm_again():
    bench = Bench(action=7).fly()  # disarm on loss
    receive = bench.px4.receive
    bench.px4.receive = lambda type, m, now: None
    bench.run(1.2)
    bench.px4.receive, bench.signals = receive, dict(GROUND)
    orders = len(bench.orders())
    bench.offboard.reset()
    assert silent_after(bench) and len(bench.orders()) == orders and not bench.px4.armed
    bench.flying = None
    assert bench.offboard.ask(bench.now) == ""  # but who asks again gets it
    bench.run(2.0)
    assert bench.orders()[orders:] == [ARM_DISARM] and bench.px4.armed


@pytest.mark.parametrize(("switch", "words"), [
    ({"mode": POSCTL}, "the autopilot left offboard for POSCTL"), ({"arm": False}, "the autopilot disarmed")])
def test_the_pilot_is_not_fought(switch, words):
    bench = Bench().fly()
    bench.px4.pilot(bench.now, **switch)
    assert silent_after(bench) and bench.offboard.failed == words
    assert bench.px4.mode == switch.get("mode", 14) and bench.px4.armed == switch.get("arm", True)


def test_the_pilot_is_not_fought_on_the_way_up_either():
    bench = Bench().run(0.1)
    bench.offboard.ask(bench.now)
    while bench.px4.mode != 14:
        bench.step()
    bench.step()
    bench.px4.pilot(bench.now, mode=POSCTL)
    assert silent_after(bench) and bench.px4.mode == POSCTL and not bench.px4.armed


def test_a_silent_autopilot_gets_no_commands():
    bench = Bench().fly()
    bench.linked = False
    heard = bench.now
    bench.run(3.0)
    assert "last status on fmu/out/vehicle_status_v1 is" in bench.offboard.failed
    last = max(at for at, _, _ in bench.sent)
    assert last - heard <= PX4.autopilot.silent_after_s + STEP


def test_a_pause_of_the_commands_is_their_end():
    """Not even right after the start do heartbeats go on without the controller."""
    bench = Bench().run(0.1)
    bench.offboard.ask(bench.now)
    while bench.offboard.refusal(bench.now):
        bench.step()
    bench.flying = HOVER
    bench.run(2 * STEP)
    bench.flying = None
    assert silent_after(bench, 0.3) and bench.offboard.failed == ""


def test_asking_again_in_the_air_brings_no_zero_setpoint():
    """Between flights PX4 is still armed and in offboard for a moment."""
    bench = Bench().fly()
    bench.offboard.release()
    bench.flying, again = None, bench.now
    assert bench.offboard.ask(bench.now) == ""
    bench.run(0.3)
    assert bench.types(again) == {MODE}


def test_release_ends_it():
    bench = Bench().fly()
    bench.offboard.release()
    assert silent_after(bench) and bench.offboard.failed == ""
    assert bench.offboard.refusal(bench.now) != ""


# MAVROS


def state(**changes):
    return messages.record("mavros_msgs/msg/State")(**{
        "header": messages.header(0), "connected": True, "armed": False, "guided": False, "manual_input": False,
        "mode": "POSCTL", "system_status": 3, **changes})


def test_through_mavros_the_setpoint_is_the_heartbeat():
    """PX4 ignores it outside of offboard, so zeros are its heartbeat while it stands, disarmed."""
    offboard = Offboard(MAVROS.autopilot, MAVROS.command("ctbr_cmd"), (4,))
    offboard.on_status(state(), 0.0)
    assert offboard.ask(0.0) == ""
    ((_, type, message),) = offboard.outputs(0.1, False, 5)
    assert type == TARGET and message.thrust == 0.0 and message.header.stamp.nanosec == 5
    offboard.on_status(state(mode="OFFBOARD"), 1.0)
    assert offboard.refusal(1.0) == "the autopilot is not armed" and len(offboard.outputs(1.0, False)) == 1
    offboard.on_status(state(mode="OFFBOARD", armed=True, system_status=4), 2.0)
    assert offboard.refusal(2.0) == "" and offboard.outputs(2.0, True) == []
    offboard.on_status(state(mode="AUTO.LAND", armed=True, system_status=5), 3.0)
    assert "failsafe, mode AUTO.LAND" in offboard.failed and offboard.outputs(3.0, True) == []


def test_through_mavros_a_flight_starts_on_the_ground():
    offboard = Offboard(MAVROS.autopilot, MAVROS.command("ctbr_cmd"), (4,))
    offboard.on_status(state(armed=True, system_status=4), 0.0)
    assert "must start on the ground" in offboard.ask(0.0)
    offboard.on_status(state(), 1.0)
    assert offboard.ask(1.0) == ""
    offboard.on_status(state(armed=True, system_status=4), 2.0)  # the pilot takes off by hand
    assert offboard.outputs(2.0, False) == []


def test_mavros_without_an_autopilot():
    offboard = Offboard(MAVROS.autopilot, MAVROS.command("ctbr_cmd"), (4,))
    offboard.on_status(state(connected=False), 0.0)
    assert offboard.ask(0.0) == "mavros/state says that no autopilot is connected"


def test_statuses():
    said = px4_status(blank(STATUS, arming_state=2, nav_state=14, pre_flight_checks_pass=True, system_id=4))
    assert (said.mode, said.offboard, said.armed, said.failsafe, said.ready, said.system) == (
        "OFFBOARD", True, True, False, True, 4)
    assert px4_status(blank(STATUS, nav_state=23)).mode == "nav_state 23"
    assert [mavros_status(state(system_status=i)).failsafe for i in range(9)] == [i in (5, 6, 8) for i in range(9)]
    assert NAV_STATES[18] == "AUTO_LAND"


# wrong interfaces


def heartbeat(**options):
    return replace(COMMAND, also=(replace(COMMAND.also[0], options=options),))


@pytest.mark.parametrize(("command", "words"), [
    (replace(COMMAND, also=()), "needs one heartbeat under `also` .* with control: body_rate; there are: "),
    (heartbeat(control="attitude"), r"there are: \['attitude'\]"),
    (replace(COMMAND, also=COMMAND.also * 2), "there are"),
    (replace(MAVROS.command("ctbr_cmd"), also=COMMAND.also), "needs no heartbeat")])
def test_a_setpoint_without_its_own_heartbeat_is_refused(command, words):
    """With another control in the heartbeat PX4's own controllers would write over our setpoint."""
    with pytest.raises(InterfaceError, match=words):
        Offboard(PX4.autopilot, command, (4,))


def test_topics_that_are_none_of_an_autopilot():
    with pytest.raises(InterfaceError, match="known: px4_msgs/msg/VehicleStatus, mavros_msgs/msg/State"):
        Offboard(replace(ASK, status=replace(ASK.status, type="std_msgs/msg/String")), COMMAND, (4,))
    with pytest.raises(InterfaceError, match="orders is a std_msgs/msg/String"):
        Offboard(replace(ASK, orders=replace(ASK.orders, type="std_msgs/msg/String")), COMMAND, (4,))
    with pytest.raises(InterfaceError, match="not the interface of a PX4"):
        Px4Commander(PX4.autopilot, MAVROS.command("ctbr_cmd"), HOVER)
    with pytest.raises(ValueError, match="COM_OBL_RC_ACT is 9"):
        Px4Commander(ASK, COMMAND, HOVER, action=9)


# the double by itself


def beat(control: str = "body_rate"):
    return messages.record(MODE)(timestamp=0, **{name: name == control for name in CONTROLS})


def ready(**options) -> tuple[Px4Commander, float]:
    """Armed and in offboard at 2 s, with a setpoint."""
    px4, now = Px4Commander(ASK, COMMAND, HOVER, **options), 0.0
    px4.receive(RATES, COMMAND_CODECS["px4_rates"].encode(HOVER, COMMAND.options), 0.0)
    while now < 2.0:
        px4.receive(MODE, beat(), now := now + 0.1)
    px4.pilot(now, mode=14)
    px4.pilot(now, arm=True)
    assert px4.output(now, LEVEL) == pytest.approx(HOVER)
    return px4, now


def test_the_double_holds_the_last_setpoint_while_heartbeats_come():
    """PX4 #20519: a dead controller behind a timer's heartbeats flies on."""
    px4, now = ready()
    for _ in range(100):
        px4.receive(MODE, beat(), now := now + 0.1)
        assert px4.output(now, LEVEL) == pytest.approx(HOVER)
    assert px4.output(now + 0.99, LEVEL) == pytest.approx(HOVER) and not px4.failsafe
    assert px4.output(now + 1.0, LEVEL)[0] == pytest.approx(0.85 * HOVER[0]) and px4.failsafe


def test_the_double_comes_back_to_offboard_when_heartbeats_do():
    px4, now = ready()
    px4.output(now + 2.0, LEVEL)
    assert px4.mode == AUTO_LAND and px4.wanted == 14
    px4.receive(MODE, beat(), now + 2.1)
    assert px4.output(now + 2.1, LEVEL) == pytest.approx(HOVER) and not px4.failsafe


@pytest.mark.parametrize(("action", "mode", "moves"), [
    (0, 2, True), (1, 1, True), (2, 15, True), (3, 5, True), (4, AUTO_LAND, True), (5, 4, True),
    (6, TERMINATION, False)])
def test_the_double_acts_as_its_parameter_says(action, mode, moves):
    px4, now = ready(action=action)
    assert (px4.output(now + 1.5, LEVEL) is not None) == moves and px4.mode == mode


def test_the_double_disarms_where_the_parameter_says_so():
    px4, now = ready(action=7)
    assert px4.output(now + 1.5, LEVEL) is None and not px4.armed


def test_the_double_does_not_obey_setpoints_that_the_heartbeat_does_not_name():
    px4, now = ready()
    px4.receive(RATES, COMMAND_CODECS["px4_rates"].encode(np.array([0.1, 1, 1, 1]), COMMAND.options), now)
    px4.receive(MODE, beat("attitude"), now)
    assert px4.output(now, LEVEL) == pytest.approx(HOVER)  # its own controllers: level
    px4.pilot(now, mode=DESCEND)
    assert px4.output(now, LEVEL) == pytest.approx(HOVER * 0.85)


def test_the_double_refuses_what_px4_refuses():
    px4 = Px4Commander(ASK, COMMAND, HOVER)
    px4.pilot(0.0, mode=14)
    for now in (0.0, 0.5, 0.9):
        px4.receive(MODE, beat(), now)
    px4.pilot(1.0, mode=14)  # streamed for 1 s, not for more
    assert px4.mode == px4.wanted == POSCTL and len(px4.denials) == 2
    px4.receive(MODE, beat(), 1.1)
    px4.pilot(1.1, mode=14)
    assert px4.wanted == 14
    px4.checks = False
    px4.pilot(1.2, arm=True)
    assert not px4.armed and "checks" in px4.denials[-1]
    px4.checks = True
    px4.pilot(2.5, arm=True)  # the heartbeats have ended
    assert not px4.armed and "heartbeats" in px4.denials[-1]
    px4.receive(ORDER, replace(blank(ORDER), command=21), 2.5)
    assert "order 21" in px4.denials[-1]
    good = COMMAND_CODECS["px4_rates"].encode(HOVER, COMMAND.options)
    px4.receive(RATES, replace(good, yaw=float("nan")), 2.5)
    assert px4.setpoint is None and "VehicleRatesSetpoint" in px4.denials[-1]


def test_the_double_says_its_status_at_every_change_and_twice_a_second():
    px4 = Px4Commander(ASK, COMMAND, HOVER)
    said = [len(px4.status(0.1 * i)) for i in range(11)]
    assert said == [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
    px4.pilot(1.05, arm=True)
    ((topic, type, message),) = px4.status(1.05, 7_000)
    assert (topic, type, message.arming_state, message.timestamp) == ("fmu/out/vehicle_status_v1", STATUS, 2, 7)
