"""Cameras as topics: what a file may say, pictures beside the state, simulated ones, and a policy that reads them."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from temporeal.policies.cli.preflight import timing
from temporeal.robots.artifact.manifest import ArtifactError, ChunkSpec
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.signals import SignalSpec
from temporeal.robots.spec import load_robot
from temporeal_bridge.codecs.codec import CodecError
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.guard.safety.profile import Ages
from temporeal_bridge.guard_node import GuardNode
from temporeal_bridge.interface.interface import InterfaceError
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.interface.state_input import StateInput
from temporeal_bridge.link.in_process import linked
from temporeal_bridge.policy_node import PolicyNode
from temporeal_bridge.process.children import end, start
from temporeal_bridge.recorder import Recorder
from temporeal_bridge.recording import bags
from temporeal_bridge.recording.bag_writer import Bag
from temporeal_bridge.recording.topics import robot_topics
from temporeal_bridge.replay.replay import needed, replay
from temporeal_bridge.simulated_robot.camera_exposures import Exposure, InProcessExposures, Shutter, cameras_of
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.transport import QOS

ROBOT = load_robot("franka")
IMAGE, JPEG = "sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"
HEIGHT, WIDTH, LATENCY_S, AGE_S = 24, 32, 0.05, 0.2
SEEN = SignalSpec("wrist_rgb", (HEIGHT, WIDTH, 3), "1", dtype="uint8")
FILE: dict[str, Any] = {
    "definitions": {}, "states": [],
    "signals": {"wrist_rgb": {"shape": [HEIGHT, WIDTH, 3], "dtype": "uint8", "unit": "1"},
                "wrist_depth": {"shape": [HEIGHT, WIDTH], "unit": "m"}},
    "pictures": [
        {"topic": "camera/color/image_raw", "type": IMAGE, "codec": "image", "rate_hz": 30, "qos": "sensor",
         "max_age_s": AGE_S, "options": {"signal": "wrist_rgb", "encoding": "rgb8"}},
        {"topic": "camera/depth/image_raw", "type": IMAGE, "codec": "image", "rate_hz": 30, "qos": "sensor",
         "max_age_s": AGE_S, "options": {"signal": "wrist_depth", "encoding": "16UC1"}}],
    "cameras": {"wrist": {"latency_s": LATENCY_S, "fovy_deg": 42.0}},
}


def changed(change: Any) -> dict[str, Any]:
    content = copy.deepcopy(FILE)
    change(content)
    return content


def interface(content: Any = FILE) -> Any:
    return load_interface(ROBOT, None, content)


# ---------------------------------------------------------------- what a file may say


def test_the_realsense_at_the_arms_hand_is_one_that_can_be_simulated():
    found = load_interface(ROBOT, None, Path(ROBOT.ros).parent / "realsense.yaml")
    (camera,) = cameras_of(found)
    assert camera.name == "wrist" and camera.size == (480, 640) and set(camera.pictures) == {"rgb", "depth"}
    assert "wrist_rgb" in found.carried and "wrist_rgb" not in found.state and len(found.states) == 1


def test_the_file_in_the_documentation_is_one_that_can_be_simulated():
    pytest.importorskip("cv2")
    text = (Path(__file__).parents[3] / "docs" / "how-to/robot-cameras.md").read_text()
    (content,) = re.findall(r"```yaml\n(.*?)```", text, re.S)
    wrist, table = cameras_of(interface(yaml.safe_load(content)))
    assert (wrist.size, table.size, table.rate_hz) == ((480, 640), (120, 160), 15)


@pytest.mark.parametrize(("change", "words"), [
    (lambda c: c["signals"]["wrist_rgb"].pop("dtype"), r"is float32 \[24, 32, 3\].*rgb8 is uint8 \[H, W, 3\]"),
    (lambda c: c["signals"]["wrist_rgb"].update(shape=[24, 32]), r"is uint8 \[24, 32\].*rgb8 is uint8 \[H, W, 3\]"),
    (lambda c: c["signals"]["wrist_rgb"].update(shape=[3, 24, 32]), "rows, columns, colours"),
    (lambda c: c["signals"]["wrist_depth"].update(unit="mm"), r"'mm'; a picture in 16UC1 is float32 \[H, W\] in 'm'"),
    (lambda c: c["pictures"][0]["options"].update(encoding="rgba8"), "option encoding is 'rgba8'; legal: rgb8, bgr8"),
    (lambda c: c["pictures"][0]["options"].pop("signal"), "option 'signal' is missing"),
    (lambda c: c["pictures"][0].update(type=JPEG), "codec 'image' is for sensor_msgs/msg/Image"),
    (lambda c: c["pictures"][0].pop("max_age_s"), "extra.pictures: keys are.*expected exactly"),
    (lambda c: c["pictures"][0].update(max_age_s=0.01), "max_age_s is 0.01, but between two pictures at 30 Hz"),
    (lambda c: c["pictures"][0].update(rate_hz=0), "rate_hz is 0; a number above 0"),
    (lambda c: c["pictures"][0].update(qos="fast"), "unknown QoS 'fast'"),
    (lambda c: c["pictures"].append(c["pictures"][0]), "another topic carries 'wrist_rgb' already"),
    (lambda c: c["states"].append({k: v for k, v in c["pictures"].pop().items() if k != "max_age_s"}),
     "codec 'image' is for pictures: .* `pictures`"),
    (lambda c: c.update(pictures=None, cameras=3), "extra.cameras: a mapping"),
], ids=range(14))
def test_a_wrong_file_is_an_error_that_says_what_a_picture_is(change, words):
    with pytest.raises((InterfaceError, CodecError), match=words):
        interface(changed(change))


@pytest.mark.parametrize(("change", "words"), [
    (lambda c: c.pop("cameras"), "does not say where the simulated camera 'wrist' is; it has: none"),
    (lambda c: c["cameras"].update(table={"latency_s": 0.0}), r"no topic carries a picture of \['table'\]"),
    (lambda c: c["cameras"]["wrist"].pop("latency_s"), "a mapping with latency_s is needed"),
    (lambda c: c["cameras"]["wrist"].update(latency_s=-1), "latency_s is -1"),
    (lambda c: c["cameras"]["wrist"].update(width=64), r"has \['width'\]: the shapes of its signals say that"),
    (lambda c: c["cameras"]["wrist"].update(augment={"colour": {}}), "a mapping from rgb and depth"),
    (lambda c: c["signals"]["wrist_depth"].update(shape=[12, 16]), r"one size, got \[\(12, 16\), \(24, 32\)\]"),
    (lambda c: c["pictures"][1].update(rate_hz=15), "one rate_hz, got"),
], ids=range(8))
def test_a_camera_that_cannot_be_simulated_is_refused(change, words):
    with pytest.raises(InterfaceError, match=words):
        cameras_of(interface(changed(change)))


# ---------------------------------------------------------------- pictures beside the state


class Driver:
    """A robot's driver and a camera's on a memory bus, and a reader of both."""

    def __init__(self, content: Any = FILE) -> None:
        self.bus, self.interface = Bus(), interface(content)
        self.own, self.peer = MemoryTransport(self.bus, "driver", "/r"), MemoryTransport(self.bus, "reader", "/r")
        self.state = StateInput(self.peer, ROBOT, self.interface, pictures=["wrist_rgb"])
        self.picture = self.own.advertise("camera/color/image_raw", self.interface.pictures[0].type, QOS["default"])

    def overdue(self) -> str:
        return self.state.overdue(self.peer.monotonic())

    def arm(self) -> None:
        row, zeros = self.interface.states[0], np.zeros(7)
        joints = {"joint_pos": np.array(ROBOT.home["joint_pos"]), "joint_vel": zeros, "joint_torque": zeros}
        out = self.own.advertise(row.topic, row.type, QOS["default"])
        message = STATE_CODECS[row.codec].encode(joints, self.own.now(), ("world", "r"), row.options)
        self.own.publish(out, messages.encode(row.type, message))
        self.peer.wait(0.0)

    def shoot(self, value: int = 0, shape: tuple[int, ...] = SEEN.shape, ago_s: float = 0.0, **options: Any) -> None:
        row = self.interface.pictures[0]
        told, stamp = {**row.options, **options}, self.own.now() - round(1e9 * ago_s)
        message = STATE_CODECS[row.codec].encode(
            {"wrist_rgb": np.full(shape, value, np.uint8)}, stamp, ("world", "cam"), told)
        self.own.publish(self.picture, messages.encode(row.type, message))
        self.peer.wait(0.0)


def test_a_picture_is_waited_for_at_the_start_only_and_has_an_age_of_its_own():
    driver = Driver()
    driver.arm()
    assert not driver.state.complete and driver.overdue() == "no picture on camera/color/image_raw"
    driver.shoot(7, ago_s=0.05)
    assert driver.state.complete and not driver.overdue()
    assert driver.state.newest()["wrist_rgb"].shape == SEEN.shape and driver.state.newest()["wrist_rgb"][0, 0, 0] == 7
    assert driver.state.marks[1] and not driver.state.marks[2]  # of the depth nobody asked for
    driver.bus.advance(0.16)
    driver.arm()
    assert driver.state.age(driver.peer.monotonic()) == pytest.approx(0.0, abs=1e-9)
    assert driver.overdue() == "the picture on camera/color/image_raw is 0.210 s old, 0.2 s is allowed"
    driver.shoot(8)
    assert driver.state.newest()["wrist_rgb"][0, 0, 0] == 8 and not driver.overdue()


def test_a_stamp_that_comes_again_makes_no_picture_fresh():
    driver = Driver()
    driver.shoot(1)
    driver.bus.advance(0.3)
    for _ in range(2):
        driver.shoot(1, ago_s=0.3)
    driver.state.read_pictures()
    assert driver.state.repeated == 2 and "0.300 s old" in driver.overdue()


@pytest.mark.parametrize(("wrong", "words"), [
    ({"shape": (48, 64, 3)}, r"shape \(48, 64, 3\), its spec says \(24, 32, 3\)"),
    ({"encoding": "bgr8"}, "Image is 'bgr8', 'rgb8' is needed")], ids=["size", "encoding"])
def test_a_picture_that_cannot_be_right_is_counted_and_the_one_before_stays(wrong, words):
    driver = Driver()
    driver.shoot(5)
    driver.state.read_pictures()
    driver.bus.advance(0.1)
    driver.shoot(6, **wrong)
    assert driver.state.newest()["wrist_rgb"][0, 0, 0] == 5 and driver.state.rejected == 1
    assert driver.state.last_rejection.startswith("camera/color/image_raw: ")
    assert re.search(words, driver.state.last_rejection)


def test_a_compressed_picture_is_read_when_it_is_looked_at():
    pytest.importorskip("cv2")
    content = changed(lambda c: c["pictures"][0].update(type=JPEG, codec="compressed_image"))
    content["pictures"][0]["options"]["format"] = "jpeg"
    driver, read = Driver(content), list[int]()
    reader, codec = driver.state.cameras[0][1], STATE_CODECS["compressed_image"]
    reader.codec = replace(codec, decode=lambda *given: read.append(1) or codec.decode(*given))
    for value in (50, 90, 130):
        driver.bus.advance(0.03)
        driver.shoot(value)
    assert not read
    assert driver.state.newest()["wrist_rgb"].mean() == pytest.approx(130, abs=2) and len(read) == 1


# ---------------------------------------------------------------- simulated cameras


class Grey:
    """A renderer whose pictures are as bright as the first number of the world, and that takes its time."""

    def __init__(self, bus: Bus, seconds: float) -> None:
        self.bus, self.seconds, self.worlds = bus, seconds, list[float]()

    def __call__(self, world: np.ndarray, frame: int) -> dict[str, np.ndarray]:
        self.bus.advance(self.seconds)
        self.worlds.append(float(world[0]))
        return {"rgb": np.full(SEEN.shape, int(world[0]) % 256, np.uint8),
                "depth": np.full(SEEN.shape[:2], 1.0, np.float32)}


class Body:
    """What a shutter looks at."""

    class data:
        qpos, mocap_pos, mocap_quat = np.zeros(1), np.zeros((0, 3)), np.zeros((0, 4))


def filmed(seconds: float, rendering_s: float) -> tuple[Any, list[tuple[float, float]]]:
    """(stamp, arrival) of the pictures of so many ``seconds``, both since the first exposure [s]."""
    from temporeal_bridge.camera_sim import CameraSim

    driver, exposures = Driver(), InProcessExposures()
    cameras = cameras_of(driver.interface)
    own = MemoryTransport(driver.bus, "camera_sim", "/r")
    node = CameraSim(own, cameras, [Grey(driver.bus, rendering_s)], exposures)
    shutter, came = Shutter(cameras, exposures, Body()), list[tuple[float, float]]()

    def take(received: Any) -> None:
        stamp = messages.nanoseconds(messages.decode(IMAGE, received.data).header.stamp)
        came.append((1e-9 * (stamp - driver.bus.epoch_ns), received.at))

    driver.peer.subscribe("camera/color/image_raw", IMAGE, QOS["deep"], take)
    for k in range(round(1000 * seconds)):
        driver.bus.seconds = max(driver.bus.seconds, 0.001 * k)
        Body.data.qpos[0] = k
        shutter.expose(0.001 * k, 0.001 * k, driver.bus.epoch_ns + k * 1_000_000)
        if driver.bus.seconds <= 0.001 * k + 1e-9:  # the renderer is not busy
            node.step()
        driver.peer.wait(0.0)
    return node, came


def test_a_picture_is_stamped_with_its_exposure_and_comes_after_the_latency():
    node, came = filmed(1.0, 0.0)
    stamps, arrivals = np.array(came).T
    assert len(came) == pytest.approx(29, abs=1) and np.diff(stamps).mean() == pytest.approx(1 / 30, rel=0.01)
    assert arrivals - stamps == pytest.approx(LATENCY_S, abs=0.0011)
    assert node.lost == node.late == 0


def test_a_renderer_that_is_late_loses_pictures_and_shows_the_newest():
    node, came = filmed(2.0, 0.11)
    stamps, arrivals = np.array(came).T
    assert 14 <= len(came) <= 19 and node.lost > 30
    assert (np.diff(stamps) > 0).all() and (arrivals - stamps).max() < 0.11 + 1 / 30 + 0.002


def test_exposures_survive_the_wire():
    again = Exposure.of(Exposure(3, 1.5, 17, np.array([0.1, -2.0])).pack())
    assert (again.camera, again.at, again.stamp, again.world.tolist()) == (3, 1.5, 17, [0.1, -2.0])


def test_the_arms_camera_sees_what_the_physics_does(lockstep):
    """The same picture as of a rig in that state; the state is published at its own rate all the time."""
    pytest.importorskip("torch")
    from temporeal.sim.rendering.opengl_renderer import MissingRenderer
    from temporeal_bridge.camera_sim import of, renderer
    from temporeal_bridge.robot_sim import RobotSim, SimOptions

    how, exposures = interface(), InProcessExposures()
    bus = MemoryTransport(lockstep.bus, "robot_sim", "/r")
    sim = lockstep.add(bus, RobotSim(
        bus, ROBOT, how, SimOptions(settings={"start": {"joint_rad": 0.0}}, eyes=lambda body, looks: Shutter(
            cameras_of(how), exposures, body, looks))))
    eye = MemoryTransport(lockstep.bus, "camera_sim", "/r")
    try:
        lockstep.add(eye, of(eye, how, sim.body.model, exposures))
    except MissingRenderer as error:
        pytest.skip(str(error))
    peer, states = MemoryTransport(lockstep.bus, "peer", "/r"), list[int]()
    state = StateInput(peer, ROBOT, how, qos="deep", pictures=["wrist_rgb", "wrist_depth"],
                       listener=lambda topic, stamp, signals: states.append(stamp))
    for _ in range(20):
        lockstep.run(0.025)
        peer.wait(0.0)
        state.read_pictures()
    assert len(states) == pytest.approx(500, abs=2)
    seen, camera = state.newest(), cameras_of(how)[0]
    mine = renderer(camera, sim.body.model)(np.array(sim.body.data.qpos), 0)
    assert np.array_equal(seen["wrist_rgb"], mine["rgb"]) and seen["wrist_rgb"].std() > 5
    assert seen["wrist_depth"] == pytest.approx(mine["depth"], abs=0.0006)  # 16UC1 counts millimetres
    assert 0.04 < state.picture_age(state.pictures[0], peer.monotonic()) < 0.1


def test_a_camera_that_is_not_there_and_a_renderer_that_is_missing_are_said(monkeypatch):
    pytest.importorskip("torch")
    from temporeal.robots.registry import UnknownName
    from temporeal.sim.physics.mujoco.single_world import World
    from temporeal.sim.rendering.opengl_renderer import MissingRenderer
    from temporeal_bridge.camera_sim import renderer

    model = World(ROBOT, "joint_pos_cmd", 0.001).model
    wrong = changed(lambda c: c["cameras"]["wrist"].update(body="elbow", pos=[0, 0, 0]))
    with pytest.raises(ValueError, match="'wrist' is the model's own: leave pos out"):
        renderer(cameras_of(interface(wrong))[0], model)
    moved = json.loads(json.dumps(FILE).replace("wrist", "table"))
    with pytest.raises(UnknownName, match="no camera 'table'; known: wrist; or place one with body, pos and quat"):
        renderer(cameras_of(interface(moved))[0], model)
    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.setitem(sys.modules, "mujoco.egl", None)
    with pytest.raises(MissingRenderer, match="libegl1.*libosmesa6"):
        renderer(cameras_of(interface())[0], model)


# ---------------------------------------------------------------- a policy that reads pictures

COMMAND, RATE_HZ, STEPS = "joint_pos_cmd", 25.0, 15


def write_seeing(path: Path, chunk: int, **changes: Any) -> Path:
    """An artifact that stays where it is, turned by up to 0.01 rad at the wrist by how bright the picture is."""
    import torch
    from torch import nn

    from temporeal.policies.export.writer import ArtifactSpec, export

    class Seeing(nn.Module):
        def initial_memory(self, n: int) -> dict[str, Any]:
            return {}

        def forward(self, signals: dict[str, Any], memory: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            bright = signals["wrist_rgb"].float().mean((1, 2, 3)) / 255.0
            turn = 0.01 * bright[:, None] * torch.tensor([0.0, 0, 0, 0, 0, 0, 1.0])
            here = signals["joint_pos"] + turn
            return {COMMAND: here[:, None].repeat(1, chunk, 1) if chunk else here}, {}

    policy, rng = Seeing(), np.random.default_rng(0)
    home = np.array(ROBOT.home["joint_pos"])
    signals = {"joint_pos": (home + 0.1 * rng.normal(size=(4, 7))).astype(np.float32),
               "wrist_rgb": rng.integers(0, 256, (4, *SEEN.shape), dtype=np.uint8)}
    rows = policy({name: torch.from_numpy(value) for name, value in signals.items()}, {})[0][COMMAND].numpy()
    arguments: dict[str, Any] = {
        "robot": ROBOT, "signals": tuple(signals), "command": COMMAND, "rate_hz": RATE_HZ,
        "formula_text": "G[0,2] (norm(joint_vel) < 10)", "constants": {}, "horizon_s": 2.0,
        "training": {"by": "hand"}, "seed": 0, "stop": "hold", "name": "seeing", "git_revision": "test",
        "task_signals": {"wrist_rgb": SEEN}, **({"chunk": ChunkSpec(chunk, 1 / RATE_HZ)} if chunk else {}),
        "golden": {**{f"signals.{name}": value for name, value in signals.items()}, f"commands.{COMMAND}": rows},
        **changes}
    golden = arguments.pop("golden")
    export(policy, path, ArtifactSpec(**arguments), golden)
    return path


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    return write_seeing(tmp_path_factory.mktemp("seeing") / "artifact", 0)


def test_an_artifact_takes_a_picture_as_it_is(seeing, tmp_path):
    artifact = Artifact.load(seeing, ROBOT, task_signals={"wrist_rgb": SEEN})
    assert artifact.schema["wrist_rgb"].dtype == "uint8" and artifact.golden["signals.wrist_rgb"].dtype == np.uint8
    here = np.array(ROBOT.home["joint_pos"], np.float32)
    dark, bright = (artifact.act({"joint_pos": here, "wrist_rgb": np.full(SEEN.shape, v, np.uint8)})[COMMAND]
                    for v in (0, 255))
    assert dark == pytest.approx(here) and (bright - dark)[6] == pytest.approx(0.01, rel=1e-3)
    golden = {"signals.joint_pos": np.zeros((2, 7)), "signals.wrist_rgb": np.zeros((2, *SEEN.shape), np.float32),
              f"commands.{COMMAND}": np.zeros((2, 7))}
    with pytest.raises(ArtifactError, match="signals.wrist_rgb is float32, the signal is uint8"):
        write_seeing(tmp_path / "other", 0, golden=golden)
    with pytest.raises(ArtifactError, match="'wrist_rgb' is int64; an artifact takes signals of float32, uint8"):
        write_seeing(tmp_path / "other", 0, task_signals={"wrist_rgb": SignalSpec("wrist_rgb", SEEN.shape,
                                                                                 dtype="int64")})


class Bench:
    """Controller and guard of a policy that reads pictures; a robot that stands still, a camera until it stops."""

    def __init__(self, lockstep: Any, artifact: Path) -> None:
        self.lockstep, how = lockstep, interface()
        self.own, ends = MemoryTransport(lockstep.bus, "peer", "/r"), linked()
        loaded = Artifact.load(artifact, ROBOT, task_signals={"wrist_rgb": SEEN})
        transport = MemoryTransport(lockstep.bus, "policy_node", "/r")
        self.node = lockstep.add(transport, PolicyNode(transport, loaded, ROBOT, how, ends[0]))
        transport = MemoryTransport(lockstep.bus, "guard_node", "/r")
        self.guard = lockstep.add(transport, GuardNode(transport, loaded.manifest, ROBOT, how, ends[1]))
        self.arm = self.own.advertise(how.states[0].topic, how.states[0].type, QOS["default"])
        self.eye = self.own.advertise("camera/color/image_raw", IMAGE, QOS["default"])
        self.begin = self.own.advertise("mission/start", "std_msgs/msg/UInt64", QOS["default"])
        self.how, self.rng, self.ticks = how, np.random.default_rng(0), 0

    def fly(self, seconds: float, films: bool = True) -> None:
        for _ in range(round(seconds / 0.004)):
            noise = 1e-5 * self.rng.normal(size=(3, 7))
            row, here = self.how.states[0], np.array(ROBOT.home["joint_pos"])
            joints = {"joint_pos": here + noise[0], "joint_vel": noise[1], "joint_torque": noise[2]}
            message = STATE_CODECS[row.codec].encode(joints, self.own.now(), ("world", "r"), row.options)
            self.own.publish(self.arm, messages.encode(row.type, message))
            if films and self.ticks % 8 == 0:
                picture = STATE_CODECS["image"].encode({"wrist_rgb": np.full(SEEN.shape, 99, np.uint8)}, self.own.now(),
                                                 ("world", "cam"), self.how.pictures[0].options)
                self.own.publish(self.eye, messages.encode(IMAGE, picture))
            self.ticks += 1
            self.lockstep.run(0.004)

    def go(self, number: int) -> None:
        kind = "std_msgs/msg/UInt64"
        self.own.publish(self.begin, messages.encode(kind, messages.record(kind)(data=number)))


def test_a_mission_ends_when_its_camera_stops_though_the_state_is_fresh(lockstep, seeing):
    bench = Bench(lockstep, seeing)
    bench.fly(0.3)
    bench.go(1)
    bench.fly(0.7)
    assert bench.guard.mode == "active" and bench.node.flight.steps >= 15
    assert len(bench.guard.state.cameras) == 0  # a picture is none of the guard's business
    bench.fly(AGE_S - 0.05, films=False)
    assert bench.guard.mode == "active"
    bench.fly(0.15, films=False)
    assert bench.guard.mode in ("stopping", "holding") and bench.guard.flight.code == "policy"
    assert "the picture on camera/color/image_raw is 0.2" in bench.guard.flight.reason


def test_that_mission_is_recorded_with_its_pictures_and_flown_again(lockstep, seeing, tmp_path):
    """The bag has each picture's bytes; the replay acts on them, and fails at the same step for the same reason."""
    bench = Bench(lockstep, seeing)
    transport, bag = MemoryTransport(lockstep.bus, "recorder", "/r"), Bag(tmp_path / "bag")
    recorder = lockstep.add(transport, Recorder(transport, bag, robot_topics(bench.how, ["/r"])))
    bench.fly(0.5)
    bench.go(3)
    bench.fly(0.7)
    bench.fly(0.8, films=False)
    recorder.close()
    recording = bags.read(tmp_path / "bag", needed(bench.how, "/r"))
    pictures = recording.of("/r/camera/color/image_raw")
    assert len(pictures) == recorder.counts["/r/camera/color/image_raw"] >= 35
    assert len(pictures[0].data) > HEIGHT * WIDTH * 3
    loaded = Artifact.load(seeing, ROBOT, task_signals={"wrist_rgb": SEEN})
    found = replay(recording, loaded, ROBOT, bench.how, "/r")
    (flight,) = found.flights
    assert found.equal and flight.events == (("policy",), ("policy",)) and flight.proposed.count >= 18


def test_a_mission_does_not_begin_without_a_fresh_picture(lockstep, seeing):
    bench = Bench(lockstep, seeing)
    bench.fly(0.3)
    bench.fly(0.5, films=False)
    bench.go(1)
    bench.fly(2.5, films=False)
    assert bench.node.mode == "ready" and bench.guard.mode in ("ready", "waiting")
    bench.fly(2.5, films=False)
    assert bench.guard.mode == "waiting"  # the controller, which sees nothing, does not greet it
    bench.fly(0.5)
    assert bench.guard.mode == "ready"
    assert "no fresh picture came within 2 s of the start: the picture on camera/color" in bench.node.flight.reason


def test_the_doctor_judges_a_camera_by_its_own_age():
    rows, ages = interface(), (Ages(0.1, 0.5), Ages(0.2, None))
    plan = SimpleNamespace(interface=rows, profile=SimpleNamespace(age=ages.__getitem__))
    (age, by_stamp, _), who = timing.oldest(rows.pictures[0], plan)
    assert (age, by_stamp, who) == (AGE_S, AGE_S, "controller")
    (age, by_stamp, _), who = timing.oldest(rows.states[0], plan)
    assert (age, by_stamp, who) == (0.1, 0.5, "guard")


# ---------------------------------------------------------------- real processes


def small(tmp_path: Path, change: Any = lambda content: None) -> Path:
    path = tmp_path / "cameras.yaml"
    path.write_text(yaml.safe_dump(changed(change)))
    return path


@pytest.mark.slow
def test_a_simulated_camera_over_dds(tmp_path):
    """robot_sim and its renderer as processes: pictures and states come in, and both end together."""
    pytest.importorskip("cyclonedds")
    pytest.importorskip("torch")
    from temporeal_bridge.transports.dds import DdsTransport, free_domain

    path, domain = small(tmp_path), free_domain()
    bus = DdsTransport("peer", "/arm1", domain=domain, loopback=True)
    state = StateInput(bus, ROBOT, load_interface(ROBOT, None, path), pictures=["wrist_rgb", "wrist_depth"])
    sim = start("robot_sim", ["--robot", "franka", "--namespace", "/arm1", "--signals", str(path), "--transport", "dds",
                              "--domain", str(domain), "--loopback", "--out", str(tmp_path)], tmp_path / "log")
    stamps, until = list[int](), bus.monotonic() + 60.0
    try:
        while len(set(stamps)) < 10 and bus.monotonic() < until and sim.poll() is None:
            bus.wait(0.01)
            state.read_pictures()
            stamps.append(state.pictures[0].stamp)
        if sim.poll() is not None and "finds no OpenGL" in (tmp_path / "log").read_text():
            pytest.skip((tmp_path / "log").read_text())
        assert state.complete and state.rejected == 0
        assert state.newest()["wrist_rgb"].std() > 5 and 0.05 < np.median(state.newest()["wrist_depth"]) < 2.0
    finally:
        end([sim])
        bus.close()
    assert sim.returncode == 0, (tmp_path / "log").read_text()
    told = json.loads((tmp_path / "camera_sim.json").read_text())
    assert told["pictures"]["wrist"] >= 9


@pytest.mark.slow
def test_a_camera_that_cannot_be_rendered_ends_the_simulated_robot_with_the_reason(tmp_path):
    pytest.importorskip("cyclonedds")
    pytest.importorskip("torch")
    from temporeal_bridge.transports.dds import free_domain

    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(json.dumps(FILE).replace("wrist", "table"))
    sim = start("robot_sim", ["--robot", "franka", "--signals", str(wrong), "--transport", "dds", "--domain",
                              str(free_domain()), "--loopback"], tmp_path / "log")
    try:
        assert sim.wait(timeout=60) == 2
    except subprocess.TimeoutExpired:
        end([sim])
        raise
    said = (tmp_path / "log").read_text()
    assert "camera_sim: error: the model has no camera 'table'; known: wrist" in said
    assert "robot_sim: error: no more pictures: camera_sim ended with status 2" in said


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [0, STEPS], ids=["commands", "chunks"])
def test_a_policy_that_reads_pictures_flies_and_is_replayed(chunk, tmp_path):
    """All nodes as processes, over DDS: robot, camera, guard, controller, worker, monitor, recorder."""
    pytest.importorskip("cyclonedds")
    pytest.importorskip("torch")
    from temporeal_bridge.launching.flights import FlightPlan, fly

    artifact, path = write_seeing(tmp_path / "artifact", chunk), small(tmp_path)
    report = fly(artifact, FlightPlan("franka", 2, signals=path), tmp_path / "flights")
    assert report.satisfied == 2 and not report.fault
    how = load_interface(ROBOT, None, path)
    loaded = Artifact.load(artifact, ROBOT, task_signals={"wrist_rgb": SEEN})
    found = replay(bags.read(report.bag, needed(how, "/arm1")), loaded, ROBOT, how, "/arm1")
    assert found.equal and len(found.flights) == 2
