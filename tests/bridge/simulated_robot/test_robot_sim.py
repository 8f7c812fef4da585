"""Simulated arms and hands behind their ROS 2 topics, with fake time: what is read, what drivers do, what breaks."""

from __future__ import annotations

import json

import numpy as np
import pytest

from temporeal.robots.artifact.manifest import GOLDEN, POLICY, Manifest
from temporeal.robots.spec import load_robot
from temporeal.sim.scene import Scene
from temporeal_bridge.codecs.table import COMMAND_CODECS
from temporeal_bridge.interface.interface import Interface, InterfaceError
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.interface.state_input import StateInput
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.transport import QOS

pytest.importorskip("mujoco")

from temporeal_bridge import robot_sim
from temporeal_bridge.robot_sim import RobotSim, SimOptions

TEXT = "std_msgs/msg/String"
INTERFACES = [("franka", "franka_ros2"), ("franka", "forward_position"), ("franka", "with_fingers"),
              ("leap_hand", "leap_hand_api"), ("allegro_hand", "allegro_hand_ros2"), ("shadow_hand", "sr_trajectory")]
QUIET = {"noise": {}, "state_latency_s": 0.0, "command_latency_s": 0.0, "start": {"joint_rad": 0.0}}


class Rig:
    """A simulated robot, and a peer that reads its state as the controller does and commands it."""

    def __init__(self, lockstep, name: str, interface: str | None = None, **options) -> None:
        self.lockstep, self.robot = lockstep, load_robot(name)
        self.interface: Interface = load_interface(self.robot, interface)
        bus = MemoryTransport(lockstep.bus, "robot_sim", "/r")
        self.sim = lockstep.add(bus, RobotSim(bus, self.robot, self.interface, SimOptions(**options)))
        self.peer = MemoryTransport(lockstep.bus, "peer", "/r")
        self.stamps: list[tuple[int, int]] = []  # of the state: taken at, says
        self.state = StateInput(self.peer, self.robot, self.interface, qos="deep", listener=self._heard)
        self.topic = self.interface.command(self.sim.command)
        self.command = self.peer.advertise(self.topic.topic, self.topic.type, QOS["command"])
        self.active: list[dict] = []
        self.peer.subscribe("sim/fault_active", TEXT, QOS["latched"], lambda r: self.active.append(
            json.loads(messages.decode(TEXT, r.data).data)))
        self.wish = self.peer.advertise("sim/fault", TEXT, QOS["default"])
        self.home = np.array(self.sim.plant.setpoint)
        start = self.interface.safety["commands"][self.sim.command].get("start")
        self.measured = start["signal"] if start else "base_pos_w"  # what the command is about

    def _heard(self, number: int, stamp: int, signals: dict) -> None:
        if number == 0:
            self.stamps.append((self.peer.now(), stamp))

    def send(self, command: np.ndarray) -> None:
        message = COMMAND_CODECS[self.topic.codec].encode(command, self.topic.options)
        self.peer.publish(self.command, messages.encode(self.topic.type, message))

    def fault(self, **options) -> None:
        self.peer.publish(self.wish, messages.encode(TEXT, messages.record(TEXT)(data=json.dumps(options))))
        self.lockstep.run(0.001)
        self.peer.wait(0.0)

    def run(self, seconds: float) -> int:
        """How many states came."""
        before = len(self.stamps)
        self.lockstep.run(seconds)
        self.peer.wait(0.0)
        return len(self.stamps) - before

    @property
    def true(self) -> np.ndarray:
        return self.sim.plant.signals()[self.measured]

    @property
    def seen(self) -> np.ndarray:
        return self.state.newest()[self.measured]


@pytest.mark.parametrize(("name", "interface"), INTERFACES)
def test_the_controllers_commands_move_the_robot_that_it_reads(lockstep, name, interface):
    """A smooth way from the start to home at 25 Hz: the joints go there, and the state that is read says so."""
    rig = Rig(lockstep, name, interface, seed=1)
    goal = rig.home.copy()
    joints = len(rig.robot.home[rig.measured])
    goal[:joints] = rig.robot.home[rig.measured]
    least = 0.04 if name == "shadow_hand" else 0.05  # of up to `start.joint_rad`, as this seed draws it
    assert least < np.abs(rig.home - goal).max() <= 0.1 + 1e-6
    rate = rig.interface.states[0].rate_hz
    assert rig.run(0.1) == pytest.approx(0.1 * rate, abs=1) and rig.sim.held
    assert np.abs(rig.seen - rig.home[:joints]).max() < 0.02
    for k in range(16):
        rig.send(rig.home + (goal - rig.home) * min(k / 8, 1.0))
        rig.run(0.04)
    assert rig.sim.rejected == 0 and rig.state.rejected == 0 and not rig.sim.crashed
    assert rig.true == pytest.approx(goal[:joints], abs=0.06)  # a hand's servos give way to gravity and friction
    assert rig.seen == pytest.approx(rig.true, abs=0.01)
    rig.run(0.3)  # no driver of these has a time-out: they hold
    assert rig.sim.plant.setpoint == pytest.approx(goal) and rig.true == pytest.approx(goal[:joints], abs=0.06)


def test_topics_come_at_their_own_rates(lockstep):
    rig = Rig(lockstep, "franka", "with_fingers")
    counts = {s.topic: 0 for s in rig.interface.states}
    for s in rig.interface.states:
        rig.peer.subscribe(s.topic, s.type, QOS["deep"], lambda r: counts.__setitem__(
            r.topic.removeprefix("/r/"), counts[r.topic.removeprefix("/r/")] + 1))
    rig.run(0.5)
    assert counts["joint_states"] == pytest.approx(500, abs=1) and counts["finger_states"] == pytest.approx(15, abs=1)
    assert rig.state.newest()["finger_pos"] == pytest.approx([0.04, 0.04], abs=0.002)


def test_noise_latency_and_lag(lockstep):
    """What is read is as old as the latency says, and off by the stated noise; commands take theirs."""
    settings = {**QUIET, "noise": {"joint_pos": 0.01}, "state_latency_s": 0.02, "command_latency_s": 0.03}
    rig = Rig(lockstep, "franka", "forward_position", settings=settings)
    goal = rig.home + 0.05
    rig.run(0.05)
    rig.send(goal)
    true, seen = [], []
    for _ in range(300):
        rig.run(0.001)
        true.append(rig.true)
        seen.append(rig.seen)
    moved = next(i for i, position in enumerate(true) if np.abs(position - rig.home).max() > 1e-4)
    assert 30 <= moved < 36  # ms
    assert np.abs(true[moved + 3] - goal).min() > 0.03  # servos and inertia: no step
    errors = np.array(seen[20:]) - true[:-20]
    assert np.std(errors) == pytest.approx(0.01, rel=0.1) and np.abs(np.mean(errors)) < 0.001


def test_starts_are_those_of_the_seed_and_within_range(lockstep):
    rig = Rig(lockstep, "leap_hand", settings={"start": {"joint_rad": 5.0}, "spread": 1.0})
    low, high = (np.array(getattr(rig.robot.commands["joint_pos_cmd"], end)) for end in ("low", "high"))
    starts = {}
    for seed in (1, 2, 1):
        rig.sim.reset(seed)
        starts.setdefault(seed, []).append((rig.true, rig.sim.body.params()["kp"]))
        assert (rig.true >= low - 1e-6).all() and (rig.true <= high + 1e-6).all()
    for part in (0, 1):
        assert np.array_equal(starts[1][0][part], starts[1][1][part])
        assert not np.array_equal(starts[1][0][part], starts[2][0][part])


def test_the_true_trajectory_is_kept(lockstep, tmp_path):
    rig = Rig(lockstep, "allegro_hand", out=tmp_path, seed=4)
    rig.run(0.1)
    rig.send(rig.home)
    rig.run(0.5)
    rig.sim.close()
    with np.load(tmp_path / "truth_4.npz") as file:
        assert len(file["stamp_ns"]) == pytest.approx(50, abs=1)
        assert file["command"].shape == file["joint_pos"].shape == (len(file["stamp_ns"]), 16)
        assert file["command"][-1] == pytest.approx(rig.home) and set(rig.robot.signals) < set(file.files)


# ---------------------------------------------------------------- wrong commands


def raw(rig: Rig, data: list[float]) -> None:
    """A message of numbers (or positions) as no codec of ours would send it."""
    kind = messages.record(rig.topic.type)
    values = np.array(data, dtype=np.float64)
    if rig.topic.type == "sensor_msgs/msg/JointState":
        message = kind(header=messages.header(0), name=[], position=values, velocity=np.zeros(0), effort=np.zeros(0))
    else:
        message = kind(layout=messages.record("std_msgs/msg/MultiArrayLayout")(dim=[], data_offset=0), data=values)
    rig.peer.publish(rig.command, messages.encode(rig.topic.type, message))


def test_forward_controller_holds_after_a_command_of_the_wrong_length(lockstep):
    rig = Rig(lockstep, "allegro_hand", settings=QUIET)
    rig.send(rig.home + 0.1)
    rig.run(0.5)
    there = rig.true
    raw(rig, [0.0] * 15)
    rig.run(0.1)
    rig.send(rig.home - 0.3)
    assert rig.run(0.5) > 40
    assert rig.sim.rejected == 2 and "deactivated: command size (15)" in rig.sim.summary()["last_rejection"]
    assert rig.true == pytest.approx(there, abs=5e-3)
    rig.sim.reset(1)  # a new flight: somebody has activated it again
    rig.send(rig.home + 0.1)
    rig.run(0.1)
    assert rig.sim.rejected == 2


def test_leap_goes_limp_and_silent_after_a_wrong_command(lockstep):
    rig = Rig(lockstep, "leap_hand", settings=QUIET)
    rig.send(rig.home)
    rig.run(0.5)
    held = rig.true
    raw(rig, [np.nan] * 16)
    rig.run(0.1)
    assert rig.run(1.0) == 0 and np.abs(rig.true - held).max() > 0.1  # its own weight opens or closes it
    rig.sim.reset(0)
    rig.send(rig.home)
    assert rig.run(0.5) > 25 and rig.true == pytest.approx(held, abs=0.02)


def test_a_setpoint_that_is_not_finite_ends_the_flight(lockstep):
    """The trajectory controller passes it on; no servo takes it."""
    rig = Rig(lockstep, "franka", settings=QUIET)
    rig.send(rig.home)
    rig.run(0.1)
    message = COMMAND_CODECS[rig.topic.codec].encode(rig.home, rig.topic.options)
    message.points[0].positions[0] = np.nan
    rig.peer.publish(rig.command, messages.encode(rig.topic.type, message))
    rig.run(0.1)
    assert "not finite" in rig.sim.crashed and np.isfinite(rig.true).all()


def test_garbage_is_counted_and_nothing_else(lockstep):
    rig = Rig(lockstep, "franka")
    rig.peer.publish(rig.command, b"\x00\x01\x00\x00\xff")
    rig.run(0.05)
    assert rig.sim.rejected == 1 and rig.sim.held


# ---------------------------------------------------------------- faults


def test_a_fault_is_switched_on_and_off_by_a_topic(lockstep):
    rig = Rig(lockstep, "leap_hand")
    rig.run(0.2)
    rig.fault(name="stopped")
    on = rig.peer.now()
    assert rig.active[-1]["name"] == "stopped" and rig.active[-1]["stamp_ns"] == pytest.approx(on, abs=2e6)
    assert rig.run(0.5) <= 1
    rig.fault()
    assert rig.active[-1]["name"] == "" and rig.run(0.5) >= 29
    rig.fault(name="frozen", for_s=0.2)
    rig.run(0.1)
    first = rig.seen
    rig.run(0.05)
    assert np.array_equal(rig.seen, first) and rig.stamps[-1][0] - rig.stamps[-1][1] < 2e7
    rig.run(0.1)
    assert not np.array_equal(rig.seen, first) and rig.active[-1]["name"] == "" and rig.sim.summary()["faults"] == 2


def test_a_wrong_fault_is_refused_and_changes_nothing(lockstep):
    rig = Rig(lockstep, "leap_hand")
    rig.fault(name="repeated")
    for wrong, told in (({"name": "explode"}, "no fault 'explode'; known: stopped"),
                        ({"name": "blocked", "joints": ["elbow"]}, "no joints ['elbow']; it has: index_mcp")):
        rig.fault(**wrong)
        assert rig.active[-1]["name"] == "repeated" and told in rig.active[-1]["error"]
    rig.run(0.1)
    assert len({stamp for _, stamp in rig.stamps[-3:]}) == 1
    rig.sim.reset(1)
    rig.peer.wait(0.0)
    assert rig.active[-1] == {"name": "", "stamp_ns": rig.active[-1]["stamp_ns"]}


@pytest.mark.parametrize("name", ["franka", "leap_hand", "allegro_hand", "shadow_hand"])
def test_permuted_and_extra_joints_are_read_the_same(lockstep, name):
    rig = Rig(lockstep, name, settings=QUIET)
    rig.run(0.1)
    plain = rig.seen
    for fault in ("permuted", "extra"):
        rig.fault(name=fault)
        assert rig.run(0.1) >= 5 and rig.state.rejected == 0 and np.array_equal(rig.seen, plain)


@pytest.mark.parametrize(
    "fault", [{"name": "missing"}, {"name": "wrong_length"}, {"name": "nan", "signal": "joint_pos"}])
def test_what_cannot_be_a_state_is_rejected_by_the_reader(lockstep, fault):
    rig = Rig(lockstep, "allegro_hand")
    rig.run(0.1)
    rig.fault(**fault)
    assert rig.run(0.2) <= 1 and rig.state.rejected >= 9
    if fault["name"] == "missing":  # at first it may come in another message
        assert "has no joint" in rig.state.last_rejection


def test_a_blocked_joint_stays_where_it_is_while_the_others_follow(lockstep):
    rig = Rig(lockstep, "franka", "forward_position", settings=QUIET)
    rig.send(rig.home)
    rig.run(0.1)
    rig.fault(name="blocked", joints=["fr3_joint4"])
    goal = rig.home + 0.1
    rig.send(goal)
    rig.run(0.4)
    assert abs(rig.true[3] - rig.home[3]) < 1e-3
    assert np.delete(rig.true, 3) == pytest.approx(np.delete(goal, 3), abs=5e-3)
    rig.fault()
    rig.run(0.4)
    assert rig.true == pytest.approx(goal, abs=5e-3)


def test_a_quadrotor_has_faults_too_but_no_joints(lockstep):
    rig = Rig(lockstep, "crazyflie", "odometry")
    rig.fault(name="jump", signal="base_pos_w", index=2, by=1.0)
    rig.run(0.1)
    assert rig.state.newest()["base_pos_w"][2] == pytest.approx(2.0, abs=0.25)
    rig.fault(name="blocked", joints=["elbow"])
    assert "no joints to block" in rig.active[-1]["error"]
    rig.fault(name="permuted")
    assert "fits no message on odom" in rig.active[-1]["error"]


# ---------------------------------------------------------------- scenes, and what cannot be simulated


def test_the_objects_of_a_task_stand_around_the_robot(lockstep):
    """The cube of `lift` falls 5 cm onto the table; its pose is published."""
    from temporeal.sim.scene import Scene, box

    scene = Scene(load_robot("franka"), (box("cube", (0.02,) * 3, mass=0.05, pos=(0.5, 0.0, 0.07)),))
    rig = Rig(lockstep, "franka", scene=scene, start=lambda rng: {"cube_pos_w": (0.5, rng.uniform(0.1, 0.2), 0.07)})
    poses = []
    kind = "geometry_msgs/msg/PoseStamped"
    rig.peer.subscribe("sim/cube", kind, QOS["deep"], lambda r: poses.append(messages.decode(kind, r.data).pose))
    rig.send(rig.home)
    rig.run(0.5)
    assert len(poses) == pytest.approx(50, abs=1)
    assert [poses[i].position.z for i in (0, -1)] == pytest.approx([0.07, 0.02], abs=1e-3)
    assert 0.1 < poses[-1].position.y < 0.2 and abs(poses[-1].orientation.w) == pytest.approx(1.0, abs=1e-3)


def test_starts_of_a_task():
    pytest.importorskip("torch")
    from temporeal.sim.task_parts.numpy_world import of_task

    robot = load_robot("franka")
    world = of_task("lift", robot)
    first, again, other = (world.start(np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert world.command == "arm_cmd" and {o.name for o in world.scene.objects} == {"cube"}
    assert set(first) <= set(world.scene.signals)
    assert all(np.array_equal(first[k], again[k]) for k in first)
    assert not np.array_equal(first["cube_pos_w"], other["cube_pos_w"]) and 0.38 <= first["cube_pos_w"][0] <= 0.62
    with pytest.raises(ValueError, match="is for arms, and robot 'leap_hand' is of kind 'hand'"):
        of_task("lift", load_robot("leap_hand"))
    with pytest.raises(ValueError, match="give 'arm_cmd', not 'joint_pos_cmd'"):
        of_task("lift", robot, "joint_pos_cmd")


def test_what_cannot_be_simulated_is_refused(lockstep):
    from temporeal_bridge.simulated_robot.plants import plant_of

    crazyflie = load_robot("crazyflie")
    with pytest.raises(InterfaceError, match="simulated alone"):
        plant_of(crazyflie, load_interface(crazyflie), "ctbr_cmd", {}, period=0.01, scene=Scene(crazyflie))
    with pytest.raises(InterfaceError, match="'linear' of kind 'planar' cannot be simulated behind topics"):
        plant_of(load_robot("linear"), load_interface(crazyflie), "velocity_cmd", {}, period=0.01)


def test_a_quadrotor_starts_where_the_formula_s_task_says(lockstep):
    """From elsewhere the formula may be violated before the flight has begun."""
    pytest.importorskip("torch")
    from temporeal_bridge.simulated_robot.task_topics import own_start

    robot, interface = load_robot("crazyflie"), load_interface(load_robot("crazyflie"))
    task = {"name": "stl", "settings": {
        "system": "quadrotor", "formula": "G[0,5] (height > 0.2)", "start": {"low": [-1.6, -1.5, 0.8],
                                                                            "high": [-0.8, -0.7, 1.2]}}}
    manifest = manifest_of(robot, task)
    start = own_start(manifest, robot)
    transport = MemoryTransport(lockstep.bus, "robot_sim", "/cf1")
    simulated = RobotSim(transport, robot, interface, SimOptions(command="ctbr_cmd", start=start, seed=3))
    places = []
    for seed in (3, 4, 3):
        simulated.reset(seed)
        places.append(simulated.true()["base_pos_w"].copy())
        assert (places[-1] >= [-1.6, -1.5, 0.8]).all() and (places[-1] <= [-0.8, -0.7, 1.2]).all()
    assert np.array_equal(places[0], places[2]) and not np.array_equal(places[0], places[1])
    without = {"name": "stl", "settings": {key: task["settings"][key] for key in ("system", "formula")}}
    assert own_start(manifest_of(robot, without), robot) is None
    assert own_start(manifest_of(robot, None), robot) is None


def manifest_of(robot, task):
    """Of an artifact that was trained on ``task``."""
    return Manifest(
        name="x", robot=robot.name, signals=(robot.signals["base_pos_w"],), commands=(robot.command("ctbr_cmd"),),
        rate_hz=50.0, memory=(), formula="G[0,5] (height > 0.2)", constants={}, horizon_s=5.0, stop="level",
        training={} if task is None else {"task": task}, versions={}, seed=0, git_revision="", created="",
        files={POLICY: "", GOLDEN: ""})


@pytest.mark.parametrize("seed", ["-1", str(2**53 + 1)])
def test_a_flight_has_a_number_that_records_can_say(seed, monkeypatch):
    monkeypatch.setattr(robot_sim, "run", lambda parsed, arguments, make, _: make(
        parsed.parse_args(arguments), MemoryTransport(Bus(), "robot")))
    with pytest.raises(ValueError, match=f"--seed is a whole number from 0 to 2.53; got {seed}"):
        robot_sim.main(["--robot", "crazyflie", "--seed", seed])
