"""An artifact is exchanged while the robot moves: the command stays continuous, the successor knows the mission, and
whatever goes wrong with it, the old controller flies on."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.artifact.manifest import MANIFEST, encode, identity
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.frames import from_rotation_vector
from temporeal.robots.spec import load_robot
from temporeal_bridge import policy_node
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.controller.loading import load_artifact
from temporeal_bridge.controller.step_log import LoggedStep
from temporeal_bridge.controller.takeover import SUCCEED_S, TakeoverError
from temporeal_bridge.guard.artifact_swap import ArtifactSwap, smooth, steps_of
from temporeal_bridge.guard.safety.checked_values import SafetyError
from temporeal_bridge.guard_node import GuardNode, GuardOptions
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.link import artifact_offer, datagrams
from temporeal_bridge.link.datagrams import Proposal
from temporeal_bridge.link.in_process import InProcessController, linked
from temporeal_bridge.link.sockets import SocketController, SocketGuard, datagram_socket
from temporeal_bridge.mission import MISSION_TIME, CommandRecord
from temporeal_bridge.policy_node import AFTER_HORIZON_S, Options, PolicyNode
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.transport import QOS

ROBOT = load_robot("crazyflie")
TWIST, HEADER, TEXT, ARRAY = (
    "geometry_msgs/msg/Twist", "std_msgs/msg/Header", "std_msgs/msg/String", "std_msgs/msg/Float64MultiArray")
PERIOD, BLEND_S = 0.02, 0.2
STEPS = 10  # of the blend
OLD, NEW = np.array([0.30, 0.0, 0.0, 0.0]), np.array([0.34, 1.0, -0.5, 0.2])


class World:
    """A guard on the memory bus with a robot that sends states every 10 ms, and everything that is said kept."""

    def __init__(self, lockstep: Any, artifact: Path, trust: Path | None = None, **safety: Any) -> None:
        self.lockstep, self.folder, self.manifest = lockstep, artifact, load_manifest(artifact)
        found = load_interface(ROBOT, "odometry")
        self.interface = replace(found, safety={**found.safety, "swap": {"blend_s": BLEND_S}, **safety})
        self.own = MemoryTransport(lockstep.bus, "peer", "/cf1")
        self.old, self.line = linked()
        transport = MemoryTransport(lockstep.bus, "guard_node", "/cf1")
        self.guard: GuardNode = lockstep.add(transport, GuardNode(
            transport, self.manifest, ROBOT, self.interface, self.line,
            GuardOptions(artifact, trust)))
        self.sent: list[CommandRecord] = []
        self.mixed: list[np.ndarray] = []
        self.modes: list[str] = []
        self.events: list[dict[str, Any]] = []
        self.flown: list[str] = []
        self.hear("guard/command", ARRAY, lambda m: self.sent.append(CommandRecord.of(m.data)))
        self.hear("guard/swap", ARRAY, lambda m: self.mixed.append(np.array(m.data)))
        self.hear("mission", HEADER, lambda m: self.modes.append(m.frame_id.split()[0]), "latched")
        self.hear("guard/event", TEXT, lambda m: self.events.append(json.loads(m.data)))
        self.hear("guard/artifact", TEXT, lambda m: self.flown.append(json.loads(m.data)["identity"]), "latched")
        state = self.interface.states[0]
        self.states = self.own.advertise(state.topic, state.type, QOS["default"])
        self.rng = np.random.default_rng(0)

    def hear(self, topic: str, kind: str, keep: Any, qos: str = "deep") -> None:
        self.own.subscribe(topic, kind, QOS[qos], lambda r: keep(messages.decode(r.type, r.data)))

    def say(self, topic: str, kind: str, **content: Any) -> None:
        data = messages.encode(kind, messages.record(kind)(**content)) if content else messages.empty()
        self.own.publish(self.own.advertise(topic, kind, QOS["default"]), data)

    def publish(self) -> None:
        position = np.array([0.0, 0.0, 1.0]) + 0.01 * self.rng.normal(size=3)
        signals = {"base_pos_w": position, "base_quat_w": from_rotation_vector(0.02 * self.rng.normal(size=3)),
                   "base_vel_w": 0.1 * self.rng.normal(size=3), "base_ang_vel_b": 0.1 * self.rng.normal(size=3),
                   "height": position[2]}
        topic = self.interface.states[0]
        message = STATE_CODECS[topic.codec].encode(signals, self.own.now(), ("world", "cf1"), topic.options)
        self.own.publish(self.states, messages.encode(topic.type, message))

    def pause(self, seconds: float = 0.01) -> None:
        self.lockstep.run(seconds)
        self.own.wait(0.0)

    def fly(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.01)):
            self.publish()
            self.pause()

    @property
    def mode(self) -> str:
        return self.modes[-1]

    @property
    def codes(self) -> list[str]:
        return [event["code"] for event in self.events]

    @property
    def commands(self) -> np.ndarray:
        """What was sent [K, 4]."""
        return np.array([told.sent for told in self.sent])


# ---------------------------------------------------------------- the mix itself


def test_the_weight_rises_smoothly_from_0_to_1():
    """Least jerk: 0, 1/2, 1 at the ends and the middle; at rest at both ends; 15/8 is the steepest."""
    x = np.linspace(0, 1, 10_001)
    w = np.array([smooth(v) for v in x])
    rate = np.gradient(w, x)
    assert [smooth(-1), smooth(0), smooth(0.5), smooth(1), smooth(2)] == [0, 0, 0.5, 1, 1]
    assert (np.diff(w) >= 0).all() and rate.max() == pytest.approx(15 / 8, abs=1e-6)
    assert max(rate[0], rate[-1]) < 1e-6 and np.abs(np.gradient(rate, x))[[1, -2]].max() < 1e-2


def test_a_mix_by_hand():
    """Four commands: weights smooth(1/4) = 0.103515625, 1/2, 0.896484375, 1 of a successor that asks for 10 more."""
    made = ArtifactSwap(None, "", "", 4, 0.0)
    for k, weight in enumerate((0.103515625, 0.5, 0.896484375, 1.0)):
        made.newest = Proposal(datagrams.COMMAND, step=k, values=np.array([11.0]))
        out, w, other = made.mix(np.array([1.0]))
        assert (float(out[0]), w, float(other[0])) == (1.0 + 10.0 * weight, weight, 11.0)
    assert made.done


def test_what_a_successor_said_for_an_earlier_step_gets_no_more_weight():
    made = ArtifactSwap(None, "", "", 4, 0.0, newest=Proposal(datagrams.COMMAND, step=7, values=np.array([11.0])))
    assert [made.mix(np.zeros(1))[1] for _ in range(3)] == [0.103515625] * 3 and not made.done


def test_a_failed_successor_leaves_an_offset_that_fades():
    """The old controller's own word counts in full at once; what was mixed in goes as smoothly as it came."""
    made = ArtifactSwap(
        None, "", "", 4, 0.0, newest=Proposal(datagrams.COMMAND, step=0, values=np.array([9.0])), count=1)
    assert made.mix(np.array([1.0]))[0] == pytest.approx([5.0])
    made.fail()
    asked = [1.0, 2.0, 3.0, 4.0]
    sent = [float(made.mix(np.array([a]))[0][0]) for a in asked]
    offsets = [4.0 * (1 - w) for w in (0.103515625, 0.5, 0.896484375, 1.0)]
    assert sent == pytest.approx(np.add(asked, offsets)) and made.over


@pytest.mark.parametrize(("blend", "period", "steps"), [(0.5, 0.02, 25), (0.5, 0.04, 13), (0.01, 0.04, 2)])
def test_the_blend_takes_its_time_and_is_never_a_leap(blend, period, steps):
    assert steps_of(blend, period) == steps


def test_how_long_is_the_robots_business(lockstep, artifact):
    with pytest.raises(SafetyError, match=r"safety\.swap\.blend_s is 0; a positive number"):
        World(lockstep, artifact, swap={"blend_s": 0})
    with pytest.raises(SafetyError, match="safety.swap: there is no key 'seconds'; legal: blend_s"):
        World(lockstep, artifact, swap={"seconds": 1})


# ---------------------------------------------------------------- the guard, with controllers made by hand


class Two(World):
    """Two controllers that say what they are told to."""

    def __init__(self, lockstep: Any, artifact: Path, **options: Any) -> None:
        super().__init__(lockstep, artifact, **options)
        self.new, self.step, self.began = InProcessController(self.line), -1, 0
        self.heard: dict[str, list[datagrams.Answer]] = {"old": [], "new": []}

    def ready(self) -> None:
        self.old.send(Proposal(datagrams.HELLO, text=identity(self.manifest)))
        self.fly(0.1)
        assert self.mode == "ready"

    def begin(self) -> None:
        self.ready()
        self.began = self.own.now()
        self.old.send(Proposal(datagrams.BEGIN, 1, -1, self.began))
        self.run(10)
        assert self.mode == "active" and len(self.sent) == 10

    def ask(self, folder: Path, **changes: Any) -> None:
        asks = Proposal(datagrams.TAKEOVER, 1, self.step, self.began, text=artifact_offer.offer(folder))
        self.new.send(asks._replace(**changes))
        self.lockstep.run(0.001)
        self.own.wait(0.0)

    def command(self, values: Any, **changes: Any) -> Proposal:
        now = self.own.monotonic()
        made = Proposal(datagrams.COMMAND, 1, self.step, self.began, now, now, np.asarray(values, float))
        return made._replace(**changes)

    def run(self, steps: int, old: Any = OLD, new: Any = None, **changes: Any) -> None:
        """Control steps: states, then what both propose (None: nothing), the successor first."""
        for _ in range(steps):
            self.step += 1
            for k in range(2):
                self.publish()
                if k == 0:
                    if new is not None:
                        self.new.send(self.command(new, **changes))
                    if old is not None:
                        self.old.send(self.command(old))
                self.pause()
            for name in ("old", "new"):
                self.heard[name] += getattr(self, name).receive()

    def answers(self, name: str) -> list[str]:
        return [answer.mode for answer in self.heard[name]]


@pytest.fixture
def two(lockstep, artifact) -> Two:
    made = Two(lockstep, artifact)
    made.begin()
    return made


@pytest.fixture
def blending(two, other_artifact) -> Two:
    """Half of the exchange is done."""
    two.ask(other_artifact)
    two.run(5, OLD, NEW)
    assert two.mixed[-1][2] == 0.5
    return two


def largest_step(world: World) -> np.ndarray:
    return np.abs(np.diff(world.commands, axis=0)).max(axis=0)


def test_the_command_goes_over_without_a_step(two, other_artifact):
    """Of constant proposals only the mix moves the command: by 15/8 dt / blend_s of their difference at most."""
    two.ask(other_artifact)
    two.run(STEPS, OLD, NEW)
    weights = np.array([smooth(k / STEPS) for k in range(1, STEPS + 1)])
    assert two.commands[-STEPS:] == pytest.approx(OLD + weights[:, None] * (NEW - OLD), abs=1e-12)
    two.run(10, None, NEW)
    assert two.commands[-10:] == pytest.approx(np.tile(NEW, (10, 1)), abs=1e-12)
    assert (largest_step(two) <= 15 / 8 * PERIOD / BLEND_S * np.abs(NEW - OLD) + 1e-12).all()
    assert two.mode == "active" and two.codes == ["swap", "swapped"]
    assert two.answers("new")[0] == "blending" and two.answers("new")[-1] == "active"
    assert two.answers("old")[-1] == "relieved"
    new = identity(load_manifest(other_artifact))
    assert two.flown[-1] == two.guard.swaps.identity == new and two.guard.flight.swapped == [[two.step - 10, new]]


def test_moving_proposals_move_the_command_no_faster_than_they_do_and_the_mix_explains(two, other_artifact):
    def old(k: int) -> np.ndarray:
        return OLD + 0.02 * np.sin(0.3 * k)

    def new(k: int) -> np.ndarray:
        return NEW + 0.03 * np.cos(0.2 * k)

    two.ask(other_artifact)
    for k in range(3 * STEPS):
        two.run(1, old(k) if k < STEPS else None, new(k))
    own = max(0.02 * 0.3, 0.03 * 0.2)
    apart = np.abs(NEW - OLD) + 0.05
    assert (largest_step(two) <= own + 15 / 8 * PERIOD / BLEND_S * apart).all()
    assert two.guard.flight.swapped and two.mode == "active"


def test_all_that_was_proposed_is_said(blending):
    """guard/swap: flight, step, weight, both commands; what is sent is their mix."""
    row, told = blending.mixed[-1], blending.sent[-1]
    assert row[:3].tolist() == [1, blending.step, 0.5]
    assert row[3:7].tolist() == OLD.tolist() and row[7:].tolist() == NEW.tolist()
    assert told.sent == pytest.approx(0.5 * (OLD + NEW)) and told.proposed == pytest.approx(OLD)


@pytest.mark.parametrize(("command", "changes", "why"), [
    (np.full(4, np.nan), {}, "is not finite"), (np.zeros(3), {}, "has shape"),
    (NEW, {"seen": -1.0}, "made of an old state"), (NEW, {"flight": 2}, "proposes for mission 2"),
    (NEW, {"stamp_ns": 5}, "proposes for mission 1"), (NEW, {"step": 90}, "must count the same"),
    (NEW, {"kind": datagrams.FAIL, "text": "the policy failed: by zero"}, "by zero"),
    (NEW, {"kind": datagrams.END, "text": "stop"}, "it ended its mission")])
def test_a_successor_that_fails_half_way_is_refused_and_the_old_one_flies_on(blending, command, changes, why):
    blending.run(1, OLD, command, **changes)
    blending.run(2 * STEPS, OLD)
    assert blending.mode == "active" and blending.codes == ["swap", "swap_refused"]
    assert why in blending.events[-1]["reason"]
    assert blending.answers("new") == ["blending", "refused"] and "relieved" not in blending.answers("old")
    assert blending.commands[-1] == pytest.approx(OLD, abs=1e-12)
    assert (largest_step(blending) <= 15 / 8 * PERIOD / BLEND_S * np.abs(NEW - OLD) + 1e-12).all()
    assert blending.guard.swaps.swap is None and blending.guard.swaps.identity == identity(blending.manifest)


def test_a_successor_that_falls_silent_half_way_is_refused_in_the_time_of_any_controller(blending):
    blending.run(STEPS + 10, OLD)
    event = blending.events[-1]
    assert event["code"] == "swap_refused" and "proposed nothing for" in event["reason"]
    assert blending.mode == "active" and blending.commands[-1] == pytest.approx(OLD, abs=1e-12)
    silent = 14 * PERIOD + blending.interface.safety["silent_after_s"]
    assert silent <= event["t"] <= silent + PERIOD
    assert (largest_step(blending) <= 15 / 8 * PERIOD / BLEND_S * np.abs(NEW - OLD) + 1e-12).all()


def test_while_the_successor_says_nothing_its_weight_stays(blending):
    blending.run(2, OLD)
    assert [row[2] for row in blending.mixed[-3:]] == [0.5, 0.5, 0.5]


@pytest.mark.parametrize("how", ["silent", "fails", "nan"])
def test_an_old_controller_that_fails_half_way_stops_the_robot(blending, how):
    """What is half of two controllers is nobody's: the reaction is that to any controller that fails."""
    if how == "silent":
        blending.run(8, None, NEW)
    elif how == "fails":
        blending.old.send(Proposal(datagrams.FAIL, 1, blending.step, blending.began, text="the policy failed"))
        blending.run(1, None, NEW)
    else:
        blending.run(1, np.full(4, np.nan), NEW)
    assert blending.mode == "stopping" and blending.guard.flight.code == ("silent" if how == "silent" else "policy")
    assert blending.codes[:2] == ["swap", "swap_refused"] and blending.answers("new")[-1] == "refused"
    assert np.isfinite(blending.commands).all()


def test_an_operator_stops_the_robot_in_the_exchange_as_ever(blending):
    blending.say("mission/stop", "std_msgs/msg/Empty")
    blending.run(2, OLD, NEW)
    assert blending.mode == "stopping" and blending.guard.flight.code == "operator"
    assert blending.guard.swaps.swap is None
    assert "refused" in blending.answers("new")


def test_the_end_of_the_mission_ends_the_exchange(blending):
    blending.old.send(Proposal(datagrams.END, 1, blending.step, blending.began, text="silence"))
    blending.run(1, None, NEW)
    assert blending.mode == "finished" and blending.codes == ["swap", "swap_refused"]
    assert blending.guard.swaps.identity == identity(blending.manifest)


def test_twice(two, artifact, other_artifact):
    two.ask(other_artifact)
    two.run(STEPS, OLD, NEW)
    two.old, two.new = two.new, InProcessController(two.line)
    two.run(5, NEW)
    two.ask(artifact)
    two.run(STEPS, NEW, OLD)
    two.run(5, None, OLD)
    assert two.codes == ["swap", "swapped"] * 2 and two.commands[-1] == pytest.approx(OLD)
    assert two.guard.swaps.identity == identity(two.manifest) and len(two.guard.flight.swapped) == 2


def test_a_second_successor_is_refused_while_one_is_there(blending, artifact):
    third = InProcessController(blending.line)
    third.send(Proposal(datagrams.TAKEOVER, 1, blending.step, blending.began, text=artifact_offer.offer(artifact)))
    blending.run(1, OLD, NEW)
    assert [(a.mode, a.reason) for a in third.receive()] == [("refused", "another takeover is under way")]
    blending.run(STEPS, OLD, NEW)
    assert "swapped" in blending.codes


def test_while_one_is_being_taken_back_the_next_must_wait(blending, other_artifact):
    blending.run(1, OLD, np.full(4, np.nan))
    blending.new = InProcessController(blending.line)
    blending.ask(other_artifact)
    assert "being taken back" in blending.events[-1]["reason"]
    blending.run(STEPS, OLD)
    blending.ask(other_artifact)
    blending.run(STEPS, OLD, NEW)
    assert blending.codes[-1] == "swapped"


def test_a_controller_that_was_relieved_has_no_say_any_more(two, other_artifact):
    two.ask(other_artifact)
    two.run(STEPS, OLD, NEW)
    two.run(3, np.array([0.1, 3.0, 3.0, 3.0]), NEW)
    assert two.commands[-1] == pytest.approx(NEW) and two.mode == "active"
    two.old.send(Proposal(datagrams.END, 1, two.step, two.began, text="silence"))
    two.run(1, None, NEW)
    assert two.mode == "active"


def test_a_second_controller_that_does_not_ask_is_no_successor(two):
    """As ever: only the one that spoke first is heard."""
    two.new.send(Proposal(datagrams.HELLO, text=identity(two.manifest)))
    two.run(5, OLD, NEW)
    assert two.commands[-1] == pytest.approx(OLD) and two.line.strangers == 6 and two.answers("new") == []


# rules


def changed(folder: Path, to: Path, **changes: Any) -> Path:
    """Another manifest, well-formed and with its digest."""
    to.mkdir()
    (to / MANIFEST).write_bytes(encode(replace(load_manifest(folder), **changes)))
    return to


def narrower(folder: Path) -> dict[str, Any]:
    (command,) = load_manifest(folder).commands
    return {"commands": (replace(command, high=tuple(0.9 * x for x in command.high)),)}


@pytest.mark.parametrize(("changes", "why"), [
    ({"robot": "franka"}, "the artifact is for robot 'franka', this robot is 'crazyflie'"),
    (narrower, "command 'ctbr_cmd': high is"), ({"rate_hz": 100.0}, "its rate_hz is 100.0"),
    ({"formula": "G[0,6] (height > 0.2)"}, "its formula is G[0,6] (height > 0.2)"),
    ({"constants": {"a": [0.5, 0.3, 1.2], "b": [-0.3, 0.4, 0.8], "reach": 0.5, "floor": 0.2}}, "its constants is"),
    ({"horizon_s": 7.0}, "its horizon_s is 7.0")])
@pytest.mark.parametrize("flying", [True, False])
def test_what_is_exchanged_is_the_policy_not_the_mission(lockstep, artifact, tmp_path, changes, why, flying):
    two = Two(lockstep, artifact)
    (two.begin if flying else two.ready)()
    made = changes(artifact) if callable(changes) else changes
    two.ask(changed(artifact, tmp_path / "changed", **made))
    two.run(2, OLD if flying else None, NEW)
    assert two.codes == ["swap_refused"] and why in two.events[-1]["reason"]
    assert two.answers("new") == ["refused"] and two.mixed == []
    assert two.mode == ("active" if flying else "ready")


def test_a_policy_that_gives_chunks_is_refused(two, artifact, tmp_path):
    from temporeal.robots.artifact.manifest import ChunkSpec

    two.ask(changed(artifact, tmp_path / "changed", chunk=ChunkSpec(10, 0.02), schema_version=2, memory=()))
    assert "it gives chunks" in two.events[-1]["reason"]


@pytest.mark.parametrize("text", ["", "nonsense", "{}"])
def test_one_that_shows_nothing_is_refused(two, text, other_artifact):
    two.ask(other_artifact, text=text)
    two.run(1)
    assert "shows no manifest" in two.events[-1]["reason"] and two.answers("new") == ["refused"]
    two.new = InProcessController(two.line)
    two.ask(other_artifact)  # the line is free again
    two.run(STEPS, OLD, NEW)
    assert two.codes[-1] == "swapped"


def test_one_prepared_for_another_mission_is_refused(two, other_artifact):
    two.ask(other_artifact, stamp_ns=7)
    assert "is prepared for mission 1, mission 1 is flown" in two.events[-1]["reason"]


def test_who_trusts_somebody_takes_only_what_they_signed(lockstep, artifact, other_artifact, tmp_path):
    pytest.importorskip("cryptography", reason="signatures need the extra `sign`")
    import shutil

    from temporeal.robots.artifact.signature import make_key, sign

    ours, theirs = make_key(tmp_path / "ours.pem"), make_key(tmp_path / "theirs.pem")
    new = Path(shutil.copytree(other_artifact, tmp_path / "new"))
    two = Two(lockstep, artifact, trust=ours)
    two.begin()
    two.ask(new)
    assert "has 0 bytes; an Ed25519 signature has 64" in two.events[-1]["reason"]
    sign(new, tmp_path / "theirs.pem")
    two.ask(new)
    assert "is not a signature of manifest.json by the key" in two.events[-1]["reason"] and theirs.exists()
    sign(new, tmp_path / "ours.pem")
    two.ask(new)
    two.run(STEPS, OLD, NEW)
    assert two.codes == ["swap_refused", "swap_refused", "swap", "swapped"]


@pytest.mark.parametrize("mode", ["waiting", "ready", "finished"])
def test_where_nothing_is_flown_it_takes_over_at_once(lockstep, artifact, other_artifact, mode):
    two = Two(lockstep, artifact)
    if mode == "ready":
        two.ready()
    elif mode == "finished":
        two.begin()
        two.old.send(Proposal(datagrams.END, 1, two.step, two.began, text="silence"))
        two.run(1, None)
    two.pause()
    assert two.mode == mode
    two.ask(other_artifact)
    assert two.codes == ["swapped"] and two.guard.swaps.identity == identity(load_manifest(other_artifact))
    two.run(1, None)
    assert two.answers("new")[0] == mode and (mode == "waiting" or two.answers("old")[-1] == "relieved")
    two.new.send(Proposal(datagrams.HELLO, text=two.guard.swaps.identity))
    two.fly(0.1)
    two.new.send(Proposal(datagrams.BEGIN, 1, -1, two.began))
    two.old, two.step = two.new, -1
    sent = len(two.sent)
    two.run(3, NEW)
    assert two.mode == "active" and len(two.sent) == sent + 3


@pytest.mark.parametrize("mode", ["stopping", "stopped"])
def test_a_robot_that_is_stopped_is_not_taken_over(two, other_artifact, mode):
    two.say("mission/stop", "std_msgs/msg/Empty")
    two.run(5 if mode == "stopping" else 1500, None)
    assert two.mode == mode
    two.ask(other_artifact)
    assert f"the guard is {mode}: stopped by the operator; mission/reset clears it" in two.events[-1]["reason"]
    two.run(1, None)
    assert two.answers("new") == ["refused"]


def test_over_sockets_the_guard_hears_both_and_knows_who_is_who(tmp_path, artifact):
    path = tmp_path / "own" / "cf1.sock"
    guard, old = SocketGuard(path), SocketController(path)
    new = SocketController.__new__(SocketController)
    new.path, new.own = path, path.with_name("new")
    new.socket = datagram_socket(new.own)
    old.send(Proposal(datagrams.HELLO))
    assert new.send(Proposal(datagrams.TAKEOVER, text=artifact_offer.offer(artifact)))
    new.send(Proposal(datagrams.COMMAND, values=[2.0]))
    old.send(Proposal(datagrams.COMMAND, values=[1.0]))
    assert [(p.kind, p.successor) for p in guard.receive()] == [
        (datagrams.HELLO, False), (datagrams.TAKEOVER, True), (datagrams.COMMAND, True), (datagrams.COMMAND, False)]
    guard.answer(datagrams.Answer("blending"), successor=True)
    guard.answer(datagrams.Answer("relieved"))
    assert [a.mode for a in new.receive()] == ["blending"] and [a.mode for a in old.receive()] == ["relieved"]
    guard.promote()
    new.send(Proposal(datagrams.COMMAND, values=[2.0]))
    old.send(Proposal(datagrams.COMMAND, values=[1.0]))
    assert [(p.values.tolist(), p.successor) for p in guard.receive()] == [([2.0], False)] and guard.strangers == 1
    for end in (guard, old, new):
        end.close()


# ---------------------------------------------------------------- real controllers


class Chain(World):
    """The guard with real controllers, which are given states only: the old one flies from the start."""

    def __init__(self, lockstep: Any, artifact: Path, log: Path, **options: Any) -> None:
        super().__init__(lockstep, artifact, **options)
        self.log = log
        self.policy = self.controller(artifact, self.old, "policy_node")

    def controller(self, folder: Path, end: Any, name: str, offer: str = "") -> PolicyNode:
        transport = MemoryTransport(self.lockstep.bus, name, "/cf1")
        node = PolicyNode(transport, load_artifact(folder, ROBOT, self.interface), ROBOT, self.interface, end,
                          Options(after="silence", step_log=self.log, offer=offer))
        return self.lockstep.add(transport, node)

    def successor(self, folder: Path) -> PolicyNode:
        return self.controller(folder, InProcessController(self.line), "successor", artifact_offer.offer(folder))

    def leave(self, node: PolicyNode) -> None:
        """As a process that has ended."""
        self.lockstep.pairs = [(transport, each) for transport, each in self.lockstep.pairs if each is not node]
        node.close()

    def start(self, number: int = 1) -> None:
        self.fly(0.5)
        assert self.mode == "ready"
        self.say("mission/start", "std_msgs/msg/UInt64", data=number)


@pytest.fixture
def chain(lockstep, artifact, tmp_path) -> Iterator[Chain]:
    (tmp_path / "log").mkdir(mode=0o700)
    made = Chain(lockstep, artifact, tmp_path / "log" / "cf1.steps")
    yield made
    made.leave(made.policy)


def watched(node: PolicyNode) -> list[tuple[int, dict[str, np.ndarray], np.ndarray]]:
    """Step, signals and command of every call of its artifact from now on."""
    calls: list[tuple[int, dict[str, np.ndarray], np.ndarray]] = []
    act = node.policy.artifact.act

    def acting(signals: Any) -> Any:
        out = act(signals)
        calls.append((node.flight.steps, {k: np.array(v) for k, v in signals.items()}, np.array(out["ctbr_cmd"])))
        return out

    node.policy.artifact.act = acting
    return calls


def test_the_successor_knows_the_mission_as_if_it_had_flown_it(chain, other_artifact):
    """Its clock is memory (a goal changes after 3 s), its signals those of the one in charge: each command is, bit for
    bit, that of the same artifact flown from the first step on."""
    flown = watched(chain.policy)
    chain.start()
    chain.fly(2.5)
    new = chain.successor(other_artifact)
    lived = watched(new)
    chain.fly(2.0)
    assert new.in_charge and chain.policy.done and chain.mode == "active"
    assert [step for step, _, _ in lived] == list(range(len(lived)))
    direct = Artifact.load(other_artifact, ROBOT, task_signals={MISSION_TIME.name: MISSION_TIME})
    for (step, signals, command), (_, seen, _) in zip(lived, flown):
        assert all(np.array_equal(signals[name], seen[name]) for name in seen), step
        assert np.array_equal(direct.act(seen)["ctbr_cmd"], command), step
    for _, signals, command in lived[len(flown) :]:
        assert np.array_equal(direct.act(signals)["ctbr_cmd"], command)
    assert float(new.policy.artifact.memory["tick"][0]) == new.flight.steps == len(lived)
    assert lived[-1][1]["mission_time"] == pytest.approx((len(lived) - 1) * PERIOD)
    assert new.flight.steps * PERIOD == pytest.approx(4.5, abs=0.1)


def test_the_mission_is_flown_to_its_end_by_the_successor(chain, other_artifact):
    chain.start()
    chain.fly(2.0)
    new = chain.successor(other_artifact)
    chain.fly(1.0)
    chain.leave(chain.policy)
    chain.fly(4.0)
    assert chain.modes[-2:] == ["active", "finished"] and chain.codes == ["swap", "swapped"]
    whole = round((new.told.horizon_s + AFTER_HORIZON_S) / new.period) + 1
    assert chain.guard.flight.sent == new.flight.steps == whole and new.flight.reason == ""
    rows = [told.step for told in chain.sent]
    assert rows == sorted(set(rows))  # each step once
    times = np.diff(rows)
    assert times.max() == 1  # and none left out
    chain.say("mission/start", "std_msgs/msg/UInt64", data=2)
    chain.fly(0.5)
    assert chain.mode == "active" and chain.guard.flight.number == 2
    chain.leave(new)


def test_between_missions_the_old_one_is_relieved_at_once_and_ends_well(chain, other_artifact):
    chain.fly(0.5)
    new = chain.successor(other_artifact)
    chain.fly(0.3)
    assert chain.policy.done and new.in_charge and not new.done and chain.mode == "ready"
    chain.say("mission/start", "std_msgs/msg/UInt64", data=1)
    chain.fly(0.5)
    assert chain.mode == "active" and new.mode == "active" and chain.policy.mode == "relieved"
    chain.leave(new)


def test_twice_in_a_flight(chain, artifact, other_artifact):
    """The second one reads what two controllers have written."""
    chain.start()
    chain.fly(1.0)
    first = chain.successor(other_artifact)
    chain.fly(1.0)
    chain.leave(chain.policy)
    second = chain.successor(artifact)
    lived = watched(second)
    chain.fly(1.0)
    assert chain.codes == ["swap", "swapped"] * 2 and second.in_charge and first.done and not second.done
    assert [step for step, _, _ in lived] == list(range(len(lived))) and len(lived) == pytest.approx(150, abs=3)
    for node in (first, second):
        chain.leave(node)


def test_a_process_that_was_relieved_ends_by_itself(chain, other_artifact):
    from temporeal_bridge.process.node import spin

    chain.fly(0.5)
    chain.successor(other_artifact)
    chain.fly(0.3)
    spin(chain.policy, chain.policy.transport, lambda: False)  # returns


def test_a_successor_whose_policy_fails_says_so_and_ends(chain, other_artifact):
    """A hang is silence (above); an exception is told, and both controllers' fates are right."""
    chain.start()
    chain.fly(1.0)
    new = chain.successor(other_artifact)
    chain.fly(0.1)
    assert new.mode == "active" and not new.in_charge

    def fails(signals: Any) -> Any:
        raise ZeroDivisionError("by zero")

    new.policy.artifact.act = fails
    with pytest.raises(TakeoverError, match="the policy failed: ZeroDivisionError: by zero"):
        chain.fly(0.1)
    chain.leave(new)
    chain.fly(1.0)
    assert chain.mode == "active" and chain.codes == ["swap", "swap_refused"] and not chain.policy.done


def test_a_successor_that_the_guard_refuses_says_why(chain, artifact, tmp_path):
    import shutil

    chain.start()
    chain.fly(1.0)
    other = Path(shutil.copytree(artifact, tmp_path / "other"))
    manifest = load_manifest(other)
    new = chain.successor(other)
    new.successor.offer = artifact_offer.offer(changed(other, tmp_path / "changed", horizon_s=manifest.horizon_s + 1))
    with pytest.raises(TakeoverError, match=r"refuses the takeover: its horizon_s is 7\.0, .* in charge has 6\.0"):
        chain.fly(1.0)
    assert chain.mode == "active"
    chain.leave(new)


def test_a_target_that_actions_move_does_not_run_away_in_the_shadow(lockstep, artifact, arm_artifact, tmp_path):
    """An arm's policy moves a target, which is its memory and its command, by 0.01 rad a step. Beside another one that
    holds the arm it would push its own target on and on: it takes the command that is in force instead."""
    robot, transport = load_robot("franka"), MemoryTransport(lockstep.bus, "successor", "/arm1")
    interface, home = load_interface(robot), np.array(robot.home["joint_pos"], dtype=np.float32)
    loaded = load_artifact(arm_artifact, robot, interface)
    (tmp_path / "log").mkdir(mode=0o700)
    node = PolicyNode(transport, loaded, robot, interface, linked()[0], Options(
        step_log=tmp_path / "log" / "steps", offer=artifact_offer.offer(arm_artifact)))
    assert loaded.echoes == {"target": "joint_pos_cmd"}
    assert Artifact.load(artifact).echoes == {}  # thrust and rates: memory of nothing that was sent
    signals = {"joint_pos": home, "grip_pos_w": np.zeros(3, np.float32)}
    for k in range(10):
        node.successor._live(LoggedStep(k, 0, 0.0, home, signals))
    first = loaded.act(signals)["joint_pos_cmd"]
    assert first == pytest.approx(home + 0.01, abs=1e-6) and float(loaded.memory["tick"][0]) == 11
    loaded.reset()
    alone = [loaded.act(signals)["joint_pos_cmd"] for _ in range(11)][-1]
    assert np.abs(alone - home).min() > 0.1  # what it would begin with else
    node.close()


def test_a_successor_that_reads_what_nobody_kept_is_refused(chain, other_artifact):
    chain.start()
    chain.fly(0.5)
    new = chain.successor(other_artifact)
    reader = new.policy.artifact.schema
    new.policy.artifact.schema = {**reader, "goal_pos_w": replace(reader["base_pos_w"], name="goal_pos_w")}
    with pytest.raises(TakeoverError, match=r"mission 1: at step 0 missing signals \['goal_pos_w'\]"):
        chain.fly(0.5)
    chain.leave(new)


def test_without_a_step_log_nobody_takes_over(chain, other_artifact):
    """The disk was full: the mission went on; a successor waits, and gives up."""
    chain.start()
    chain.fly(0.5)
    chain.policy.step_log._fail(OSError(28, "No space left on device"))
    chain.fly(0.5)
    assert chain.mode == "active" and "No space left" in chain.policy.step_log.fault
    new = chain.successor(other_artifact)
    new.successor.until = new.transport.monotonic() + 1.0
    with pytest.raises(TakeoverError, match=r"no artifact swap within .* prepared: 0 steps of mission 1"):
        chain.fly(2.0)
    assert chain.mode == "active"
    chain.leave(new)


def test_who_flies_without_a_state_topic_of_the_guard_waits(lockstep, other_artifact, tmp_path):
    """No guard, no controller: nothing is taken over, and it is said after a time."""
    transport = MemoryTransport(lockstep.bus, "successor", "/cf1")
    interface = load_interface(ROBOT, "odometry")
    (tmp_path / "log").mkdir(mode=0o700)
    node = lockstep.add(transport, PolicyNode(
        transport, load_artifact(other_artifact, ROBOT, interface), ROBOT, interface, linked()[0],
        Options(step_log=tmp_path / "log" / "steps", offer=artifact_offer.offer(other_artifact))))
    with pytest.raises(TakeoverError, match=r"guard: silent, state: missing"):
        lockstep.run(SUCCEED_S + 1.0)
    node.close()


def test_chunks_are_refused_on_the_command_line(capsys, other_artifact, tmp_path):
    status = policy_node.main(["--artifact", str(other_artifact), "--takeover", "--worker", str(tmp_path),
                               "--transport", "dds", "--loopback", "--domain", "77"])
    assert status == 2 and "a policy that gives chunks cannot take over" in capsys.readouterr().err


def test_a_controller_with_a_worker_has_nothing_to_rehearse(other_artifact, tmp_path):
    args = argparse.Namespace(robot="crazyflie", interface=None, signals=None, artifact=other_artifact, awake=True,
                              worker=tmp_path, takeover=False)
    with pytest.raises(ValueError, match="there is nothing to rehearse"):
        policy_node.make(args, MemoryTransport(Bus(), "policy_node", "/cf1"))
