"""What is done to real processes, and what must follow."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf

from temporeal.robots.artifact.manifest import ChunkSpec
from temporeal.robots.signals import SignalSpec
from temporeal_benchmarks.deployment.robot_processes import RobotProcesses
from temporeal_benchmarks.priority import ordinary
from temporeal_bridge.controller.mailbox import LOOK_S
from temporeal_bridge.guard.checks.competing_publishers import CHECK_S as GUARD_LOOK_S
from temporeal_bridge.guard_node import TICK_S
from temporeal_bridge.process.children import Process, start
from temporeal_bridge.transports.dds import DdsTransport
from temporeal_bridge.transports.transport import QOS

RATE_HZ, HAND_HZ = 50.0, 20.0
PAUSE_S = 0.5  # of a guard that is stopped and goes on
LEVELS = "Crazyflie levels after 500 ms"  # its firmware without setpoints (supervisor.c)
FOUND_S = 0.05  # until DDS discovery reports a publisher; chosen: some 10 ms were measured (faults-processes.json)
STATE_S = 0.01  # the simulated robot says its state at 100 Hz
SUBSCRIBER = """
import sys
from temporeal_bridge.transports.dds import DdsTransport
from temporeal_bridge.transports.transport import QOS
bus = DdsTransport("slow", "/r", domain=sys.argv[1], loopback=True)
bus.subscribe(sys.argv[2], sys.argv[3], QOS["default"], lambda received: None)
print("up", flush=True)
while True:
    bus.wait(0.1)
"""
OTHERWISE = """
import importlib, sys
from temporeal_bridge.transports.transport import QOS
module, profile, other = sys.argv[1:4]
QOS[profile] = QOS[other]
sys.exit(importlib.import_module("temporeal_bridge." + module).main(sys.argv[4:]))
"""
CAMERA = """
import signal, sys, time
import numpy as np
from temporeal_bridge.transports import messages
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.transports.dds import DdsTransport
from temporeal_bridge.transports.transport import QOS
domain, topic, name, rate, rows, columns = sys.argv[1:]
wrong, size = set(), (int(rows), int(columns), 3)
signal.signal(signal.SIGUSR1, lambda *_: wrong.add("late"))
signal.signal(signal.SIGUSR2, lambda *_: wrong.add("size"))
bus = DdsTransport("camera", "/r", domain=domain, loopback=True)
eye, rng = bus.advertise(topic, "sensor_msgs/msg/Image", QOS["default"]), np.random.default_rng(0)
while True:
    shape = (size[0] // 2, *size[1:]) if "size" in wrong else size
    stamp = bus.now() - (1_000_000_000 if "late" in wrong else 0)
    pixels = {name: rng.integers(0, 256, shape, dtype=np.uint8)}
    picture = STATE_CODECS["image"].encode(pixels, stamp, ("world", "camera"), {"signal": name, "encoding": "rgb8"})
    bus.publish(eye, messages.encode(eye.type, picture))
    time.sleep(1 / float(rate))
"""
EYE = SignalSpec("wrist_rgb", (48, 64, 3), "1", dtype="uint8")
EYE_HZ, EYE_S, EYE_TOPIC = 30.0, 0.2, "camera/color/image_raw"
SIGNALS = f"""
definitions: {{}}
signals:
  {EYE.name}: {{shape: {list(EYE.shape)}, dtype: uint8, unit: "1"}}
states: []
pictures:
  - {{topic: {EYE_TOPIC}, type: sensor_msgs/msg/Image, codec: image, rate_hz: {EYE_HZ:g}, qos: sensor,
     max_age_s: {EYE_S:g}, options: {{signal: {EYE.name}, encoding: rgb8}}}}
"""
CHUNK = ChunkSpec(15, 0.02)
CHUNK_S = CHUNK.steps * CHUNK.dt_s


@dataclass(frozen=True)
class Fault:
    """What is done to real processes.

    Args:
        strike: does it. mend: undoes it, before the next mission.
        code: of the stop that must follow; "": the mission goes on, and the largest gap between commands is measured.
        stated_s: from the fault to the stop, as docs/reference/faults.md says.
        promise: what others promise.
        may: stops that may come where the mission should go on: code, and s at most since the controller's last
            command, by the guard's clock.
    """

    strike: Callable[[RobotProcesses], None]
    mend: Callable[[RobotProcesses], None]
    code: str
    stated_s: float = 0.0
    promise: str = LEVELS
    may: Mapping[str, float] = field(default_factory=dict)


def kill(module: str, number: int) -> Callable[[RobotProcesses], None]:
    """A signal to a node."""
    return lambda nodes: nodes.processes[module].send_signal(number)


def anew(module: str, *options: str) -> Callable[[RobotProcesses], None]:
    """The node is ended for good and started again."""
    def mend(nodes: RobotProcesses) -> None:
        nodes.processes[module].send_signal(signal.SIGCONT)
        nodes.close([module])
        artifact = ["--artifact", str(nodes.artifact)] if module != "robot_sim" else []
        nodes.start(module, *artifact, *options)

    return mend


def record(nodes: RobotProcesses) -> None:
    """A recorder, in a folder of its own; the bag of one that was killed, which has been read, is not wanted."""
    nodes.close(["recorder"])
    shutil.rmtree(nodes.out / "bag", ignore_errors=True)
    nodes.start("recorder", "--bag", str(nodes.out / "bag"))


def goes_on(module: str) -> Callable[[RobotProcesses], None]:
    """A node that was stopped."""
    return kill(module, signal.SIGCONT)


def nothing(nodes: RobotProcesses) -> None:
    """Nothing to mend."""


RIVALS: list[DdsTransport] = []
HELPERS: list[subprocess.Popen[str]] = []


def rival(nodes: RobotProcesses) -> None:
    """Another publisher of commands."""
    RIVALS.append(DdsTransport("rival", "/r", domain=nodes.domain, loopback=True))
    RIVALS[-1].advertise(nodes.topic.topic, nodes.topic.type, QOS["command"])


def no_rival(nodes: RobotProcesses) -> None:
    """The other publisher leaves; the guard checks twice a second."""
    RIVALS.pop().close()
    nodes.spin(1.0)


def hog(nodes: RobotProcesses) -> None:
    """A busy process for each core."""
    for _ in range(os.cpu_count() or 1):
        HELPERS.append(subprocess.Popen([sys.executable, "-c", "while True: pass"], text=True))
        ordinary(HELPERS[-1].pid)


def slow_subscriber(nodes: RobotProcesses) -> None:
    """A reliable subscriber to the commands that is stopped."""
    words = [str(nodes.domain), nodes.topic.topic, nodes.topic.type]
    helper = subprocess.Popen([sys.executable, "-c", SUBSCRIBER, *words], stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    HELPERS.append(helper)
    assert helper.stdout is not None
    helper.stdout.readline()
    nodes.spin(0.3)
    helper.send_signal(signal.SIGSTOP)


def no_helpers(nodes: RobotProcesses) -> None:
    """They end."""
    while HELPERS:
        helper = HELPERS.pop()
        helper.kill()
        helper.wait()


def pause_guard(nodes: RobotProcesses) -> None:
    """It is stopped and goes on."""
    kill("guard_node", signal.SIGSTOP)(nodes)
    nodes.spin(PAUSE_S)
    kill("guard_node", signal.SIGCONT)(nodes)


def start_worker(nodes: RobotProcesses) -> None:
    """The process of a policy that gives chunks; it is on no bus."""
    nodes.close(["worker_node"])
    words = ["--artifact", str(nodes.artifact), "--folder", str(nodes.out / "worker")]
    nodes.processes["worker_node"] = start("worker_node", words, nodes.out / "logs" / "worker_node.log")
    ordinary(nodes.processes["worker_node"].pid)


def start_camera(nodes: RobotProcesses) -> None:
    """A camera's driver whose pictures are noise: after SIGUSR1 a second late, after SIGUSR2 of another size."""
    nodes.close(["camera"])
    start_script(nodes, "camera", CAMERA, str(nodes.domain), EYE_TOPIC, EYE.name, str(EYE_HZ), *map(str, EYE.shape[:2]))


def start_script(nodes: RobotProcesses, name: str, script: str, *words: str) -> None:
    """A process of the nodes that is no node of ours, or not as it is."""
    command = [sys.executable, "-c", script, *words]
    process = Process(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, start_new_session=True)
    process.name, nodes.processes[name] = name, process


def start_otherwise(nodes: RobotProcesses, module: str, profile: str, other: str, *options: str) -> None:
    """A node that takes one QoS ``profile`` for an ``other``."""
    nodes.close([module])
    start_script(nodes, module, OTHERWISE, module, profile, other, *nodes.shared(), *options)


SILENT_S, STALE_S = 0.1 + 1 / RATE_HZ + TICK_S, 0.1 + STATE_S + TICK_S
SERVO = "MoveIt Servo halts after 100 ms, Crazyflie levels after 500 ms"
CONTROLLER = anew("policy_node", "--peer-timeout", "60")
FAULTS: dict[str, Fault] = {
    "controller SIGKILL": Fault(kill("policy_node", signal.SIGKILL), CONTROLLER, "silent", SILENT_S, SERVO),
    "controller SIGTERM": Fault(kill("policy_node", signal.SIGTERM), CONTROLLER, "silent", SILENT_S, SERVO),
    "controller SIGSTOP": Fault(
        kill("policy_node", signal.SIGSTOP), goes_on("policy_node"), "silent", SILENT_S, SERVO),
    "driver SIGKILL": Fault(kill("robot_sim", signal.SIGKILL), anew("robot_sim"), "stale", STALE_S, SERVO),
    "driver SIGTERM": Fault(kill("robot_sim", signal.SIGTERM), anew("robot_sim"), "stale", STALE_S, SERVO),
    "driver SIGSTOP": Fault(kill("robot_sim", signal.SIGSTOP), goes_on("robot_sim"), "stale", STALE_S, SERVO),
    "second publisher": Fault(
        rival, no_rival, "publisher", GUARD_LOOK_S + FOUND_S, "unitree_rl_lab looks once, at the start"),
    "operator: stop": Fault(lambda nodes: nodes.publish("mission/stop"), nothing, "operator", TICK_S),
    "monitor SIGSTOP": Fault(kill("monitor_node", signal.SIGSTOP), goes_on("monitor_node"), ""),
    "subscriber of commands SIGSTOP": Fault(slow_subscriber, no_helpers, ""),
    # a process that gets no turn is missed like one that is gone: within the time of a silent controller since its last
    # command, whatever is found first. A guard that stood still itself could not check: it says so when it can
    "CPU hog": Fault(hog, no_helpers, "", may={
        "silent": SILENT_S, "stale": SILENT_S, "stamps": SILENT_S, "guard": inf}),
}
WORKER_S = CHUNK_S + 0.12 + 1 / RATE_HZ + TICK_S  # until the chunk in force ends, and then the Franka's silent_after_s
NOBODY = "nobody promises this"
CHUNKED: dict[str, Fault] = {  # of a policy that gives chunks, and of an arm
    "worker SIGKILL": Fault(kill("worker_node", signal.SIGKILL), start_worker, "silent", WORKER_S, NOBODY),
    "worker SIGTERM": Fault(  # it may answer once more: it checks for a signal every LOOK_S
        kill("worker_node", signal.SIGTERM), start_worker, "silent", WORKER_S + LOOK_S, NOBODY),
    "worker SIGSTOP": Fault(kill("worker_node", signal.SIGSTOP), goes_on("worker_node"), "silent", WORKER_S, NOBODY),
}
HANDLED_S = 0.15 + 1 / HAND_HZ + TICK_S  # the Allegro hand's silent_after_s
HANDS: dict[str, Fault] = {  # of a hand, whose commands are judged by the efforts that they ask for, too
    "controller of a hand SIGKILL": Fault(
        kill("policy_node", signal.SIGKILL), CONTROLLER, "silent", HANDLED_S, NOBODY),
    "guard of a hand SIGSTOP": Fault(pause_guard, nothing, "guard", PAUSE_S + TICK_S, NOBODY),
}
SEEN_S = EYE_S + 1 / RATE_HZ + TICK_S  # a picture's own age; it was fresh when it struck
SEEING: dict[str, Fault] = {  # of an arm whose policy reads a picture
    name: Fault(strike, mend, "policy", SEEN_S, NOBODY) for name, strike, mend in (
        ("camera SIGKILL", kill("camera", signal.SIGKILL), start_camera),
        ("camera SIGSTOP", kill("camera", signal.SIGSTOP), goes_on("camera")),
        ("pictures a second late", kill("camera", signal.SIGUSR1), start_camera),
        ("pictures of another size", kill("camera", signal.SIGUSR2), start_camera))
}
