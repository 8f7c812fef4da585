"""The processes of one robot for benchmarks: artifacts that are made on the spot, started nodes, and an observer.

The observer is this process, with its own node on the bus: it stamps every command as it arrives.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.robots.artifact.manifest import ChunkSpec
from temporeal.robots.signals import SignalSpec
from temporeal.robots.spec import load_robot
from temporeal_benchmarks.deployment.command_oracle import ORDER_S, Joined, Oracle
from temporeal_benchmarks.priority import ordinary
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.interface.interface import StateTopic
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.process.children import Process, end, how_ended, start
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.dds import DdsTransport, free_domain
from temporeal_bridge.transports.transport import QOS, Callback, QoS, Received

DEEP = QoS(reliable=False, depth=1000)
ALL_MODES = QoS(depth=1000, latched=True)  # a depth of 1 would keep the last one only
START_S = 60.0  # for processes to start on a machine that is busy
STARTS = 10  # in a row that the guard may refuse
BESIDE = ("monitor_node", "recorder")  # the robot's way from state to command: never real-time


def hover(path: Path, rate_hz: float = 50.0, horizon_s: float = 100_000.0) -> Path:
    """A Crazyflie that keeps its place at (0, 0, 1): linear feedback, as an artifact in folder ``path``."""
    import torch

    class Hover(torch.nn.Module):
        def initial_memory(self, n: int) -> dict[str, Any]:
            return {}

        def forward(self, signals: dict[str, Any], memory: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            off = signals["base_pos_w"] - torch.tensor([0.0, 0.0, 1.0])
            wanted = -0.25 * off.clamp(-0.5, 0.5) - 0.2 * signals["base_vel_w"]  # lean towards the place, rad
            tilt = 2.0 * signals["base_quat_w"]
            thrust = 0.313 + 0.0319 * (-4.0 * off[:, 2] - 3.0 * signals["base_vel_w"][:, 2])
            rates = [-6.0 * (tilt[:, 1] + wanted[:, 1]), 6.0 * (wanted[:, 0] - tilt[:, 2]), -2.0 * tilt[:, 3]]
            return {"ctbr_cmd": torch.stack([thrust, *rates], -1)}, {}

    rng = np.random.default_rng(0)
    quat = rng.normal(size=(10, 4))
    signals = {"base_pos_w": rng.normal(size=(10, 3)), "base_vel_w": rng.normal(size=(10, 3)),
               "base_quat_w": quat / np.linalg.norm(quat, axis=1, keepdims=True)}
    return write(path, "crazyflie", "ctbr_cmd", Hover(), signals, rate_hz, horizon_s, "G[0,1] (base_pos_w[2] > -100)")


def echo(path: Path, rate_hz: float = 500.0, horizon_s: float = 100_000.0) -> Path:
    """An arm's policy that names the state it acted on: the last joint is to be where it is measured; the others come
    out of a network of two layers of 256."""
    import torch

    home = torch.tensor(load_robot("franka").home["joint_pos"], dtype=torch.float32)
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(14, 256), torch.nn.Tanh(), torch.nn.Linear(256, 256), torch.nn.Tanh(), torch.nn.Linear(256, 6))

    class Echo(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def initial_memory(self, n: int) -> dict[str, Any]:
            return {}

        def forward(self, signals: dict[str, Any], memory: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            seen = torch.cat([signals["joint_pos"], signals["joint_vel"]], -1)
            first = home[:6] + 1e-9 * torch.tanh(self.net(seen))
            return {"joint_pos_cmd": torch.cat([first, signals["joint_pos"][:, 6:]], -1)}, {}

    rng = np.random.default_rng(0)
    signals = {"joint_pos": home.numpy() + 0.01 * rng.normal(size=(10, 7)), "joint_vel": rng.normal(size=(10, 7))}
    return write(path, "franka", "joint_pos_cmd", Echo(), signals, rate_hz, horizon_s, "G[0,1] (joint_pos[0] < 100)")


def rest(path: Path, chunk: ChunkSpec, rate_hz: float = 50.0, horizon_s: float = 100_000.0) -> Path:
    """An arm that stays in its home pose, said in chunks."""
    import torch

    home = torch.tensor(load_robot("franka").home["joint_pos"], dtype=torch.float32)

    class Rest(torch.nn.Module):
        def initial_memory(self, n: int) -> dict[str, Any]:
            return {}

        def forward(self, signals: dict[str, Any], memory: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            rows = 0.0 * signals["joint_pos"][:, None] + home.expand(1, chunk.steps, 7)
            return {"joint_pos_cmd": rows}, {}

    signals = {"joint_pos": home.numpy() + 0.01 * np.random.default_rng(0).normal(size=(10, 7))}
    return write(path, "franka", "joint_pos_cmd", Rest(), signals, rate_hz, horizon_s, "G[0,1] (joint_pos[0] < 100)",
                 chunk)


def see(path: Path, picture: SignalSpec, rate_hz: float = 50.0, horizon_s: float = 100_000.0) -> Path:
    """An arm that stays in its home pose, but for 0.01 rad at the wrist by how bright its camera's ``picture`` is."""
    import torch

    home = torch.tensor(load_robot("franka").home["joint_pos"], dtype=torch.float32)

    class See(torch.nn.Module):
        def initial_memory(self, n: int) -> dict[str, Any]:
            return {}

        def forward(self, signals: dict[str, Any], memory: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            bright = signals[picture.name].float().mean((1, 2, 3)) / 255.0
            turn = 0.01 * bright[:, None] * torch.eye(7)[6]
            return {"joint_pos_cmd": 0.0 * signals["joint_pos"] + home + turn}, {}

    rng = np.random.default_rng(0)
    signals = {"joint_pos": (home.numpy() + 0.01 * rng.normal(size=(10, 7))).astype(np.float32),
               picture.name: rng.integers(0, 256, (10, *picture.shape), dtype=np.uint8)}
    return write(path, "franka", "joint_pos_cmd", See(), signals, rate_hz, horizon_s, "G[0,1] (joint_pos[0] < 100)",
                 task_signals={picture.name: picture})


def reach(path: Path, rate_hz: float = 20.0, horizon_s: float = 100_000.0) -> Path:
    """A hand that closes by 0.4 rad in each joint, as hard as its servos may."""
    import torch

    robot = load_robot("allegro_hand")
    home = torch.tensor(robot.home["joint_pos"], dtype=torch.float32)

    class Reach(torch.nn.Module):
        def initial_memory(self, n: int) -> dict[str, Any]:
            return {}

        def forward(self, signals: dict[str, Any], memory: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            return {"joint_pos_cmd": 0.0 * signals["joint_pos"] + home + 0.4}, {}

    signals = {"joint_pos": home.numpy() + 0.01 * np.random.default_rng(0).normal(size=(10, home.numel()))}
    return write(path, robot.name, "joint_pos_cmd", Reach(), signals, rate_hz, horizon_s, "G[0,1] (joint_pos[0] < 100)")


def write(
    path: Path, robot: str, command: str, policy: Any, signals: dict[str, np.ndarray], rate_hz: float, horizon_s: float,
    formula: str, chunk: ChunkSpec | None = None, task_signals: Mapping[str, SignalSpec] | None = None,
) -> Path:
    """A policy without memory as an artifact, with its commands for ``signals`` [T, ...] as the golden trace."""
    import torch

    from temporeal.policies.export.writer import export

    seen = {name: value if value.dtype == np.uint8 else value.astype(np.float32) for name, value in signals.items()}
    with torch.no_grad():
        given = policy({name: torch.from_numpy(value) for name, value in seen.items()}, {})[0][command].numpy()
    golden = {**{f"signals.{name}": value for name, value in seen.items()}, f"commands.{command}": given}
    export(policy, path, robot=load_robot(robot), signals=tuple(seen), command=command, rate_hz=rate_hz,
           formula_text=formula, constants={}, horizon_s=horizon_s, training={}, seed=0, golden=golden,
           stop=next(iter(load_interface(load_robot(robot)).safety["commands"][command]["stop"].values())),
           name="bench", git_revision="bench", chunk=chunk, task_signals=task_signals)
    return path


class Crew:
    """Nodes of one robot in namespace /r on a DDS domain of their own, and the observer.

    ``on_command`` takes the commands instead of the oracle, for benchmarks with no time for it.

    Attributes:
        oracle: reads every command. modes: (s, mode). events: (s, event of the guard).
    """

    def __init__(
        self, artifact: Path, robot: str, interface: str, command: str, rate_hz: float, out: Path,
        on_command: Callback | None = None,
    ) -> None:
        self.artifact, self.robot, self.interface, self.out = artifact, robot, interface, out
        out.mkdir(parents=True, exist_ok=True)
        self.domain = free_domain()
        self.bus = DdsTransport("observer", "/r", domain=self.domain, loopback=True)
        spec = load_robot(robot)
        self.facts = load_interface(spec, interface)
        self.topic = self.facts.command(command)
        self.oracle = Oracle(spec, self.facts, command, 1 / rate_hz, timed=False)  # this process may be late itself
        self.modes: list[tuple[float, str]] = []
        self.events: list[tuple[float, dict[str, Any]]] = []
        self.episode = 0  # of the simulated robot, as it says
        self.processes: dict[str, Process] = {}
        self.number = 0
        self.joined = Joined(self.oracle) if on_command is None else None
        self.proposed = (-1, -np.inf)  # mission, and s in it when the controller's last command had gone, as told
        self.low_at = -np.inf  # when the robot last said that it is on the ground
        self.bus.subscribe(self.topic.topic, self.topic.type, DEEP, on_command or self._on_command)
        if self.joined is not None:
            self._hear_guard(self.joined)
            self.oracle.says("")  # there is no mission
        self.bus.subscribe("mission", "std_msgs/msg/Header", ALL_MODES, self._on_mode)
        self.bus.subscribe("guard/event", "std_msgs/msg/String", QOS["default"], lambda r: self.events.append((
            r.at, json.loads(messages.decode(r.type, r.data).data))))
        self.bus.subscribe("sim/episode", "std_msgs/msg/UInt64", QOS["latched"], self._on_episode)
        self.topics = {name: self.bus.advertise(name, f"std_msgs/msg/{type}", QOS["default"]) for name, type in (
            ("mission/start", "UInt64"), ("mission/stop", "Empty"), ("mission/reset", "Empty"), ("sim/reset", "UInt64"),
            ("estop", "Bool"))}

    def _on_command(self, received: Received) -> None:
        if self.joined is None:
            self.oracle.read(received.at, received.data)
        else:
            self.joined.command(received.at, received.data)

    def _hear_guard(self, joined: Joined) -> None:
        """By the times, and the state, that the guard says each command was made with: who listens beside it may hear
        later, and take a pause of its own for one of the guard's."""
        def told(received: Received) -> None:
            found = joined.told(received.data)
            if found.step >= 0:
                self.proposed = found.flight, found.left

        for state in self.facts.states:
            self.bus.subscribe(state.topic, state.type, DEEP, lambda r, s=state: self._on_state(s, r))
        self.bus.subscribe("guard/command", "std_msgs/msg/Float64MultiArray", DEEP, told)

    def _on_state(self, state: StateTopic, received: Received) -> None:
        """What commands are judged by: what servos may give, and whether a quadrotor stands on the ground, or did until
        a moment ago."""
        oracle, below = self.oracle, self.facts.safety.get("unlock_below_m")
        if oracle.servos is not None:
            oracle.servos.read(state, received.at, received.data)
        if below is not None:
            signals = STATE_CODECS[state.codec].decode(messages.decode(state.type, received.data), state.options)
            if "height" in signals and float(signals["height"]) < below:
                self.low_at = received.at
            oracle.grounded = received.at - self.low_at <= ORDER_S

    def _on_mode(self, received: Received) -> None:
        said = messages.decode(received.type, received.data).frame_id
        self.modes.append((received.at, said))
        if self.joined is not None:
            self.oracle.says(said.split()[0], received.at)

    def _on_episode(self, received: Received) -> None:
        self.episode = int(messages.decode(received.type, received.data).data)

    def shared(self) -> list[str]:
        """Options of all nodes."""
        return ["--robot", self.robot, "--interface", self.interface, "--namespace", "/r", "--transport", "dds",
                "--domain", str(self.domain), "--loopback", "--link", str(self.out / "line.sock")]

    def start(self, module: str, *options: str) -> Process:
        """A node process."""
        real = os.sched_getscheduler(0) == os.SCHED_FIFO
        first = real and module not in BESIDE
        made = start(module, [*self.shared(), *(["--priority", "realtime"] if first else []), *options],
                     self.out / "logs" / f"{module}.log")
        if real:  # it inherits that, and takes it once it has loaded
            ordinary(made.pid)
        self.processes[module] = made
        return made

    def start_guarded(self, own: Sequence[str] = (), thinks: Sequence[str] = ()) -> None:
        """Guard and controller, with options of their ``own`` and of the controller (``thinks``); ahead of others
        where this process is."""
        for module in ("guard_node", "policy_node"):
            self.start(module, "--artifact", str(self.artifact), *own, *(
                ["--peer-timeout", "60", *thinks] if module == "policy_node" else []))

    def tell(self, name: str, value: Any = None) -> None:
        """Say something on one of :attr:`topics`."""
        endpoint = self.topics[name]
        self.bus.publish(endpoint, messages.empty() if value is None else messages.encode(
            endpoint.type, messages.record(endpoint.type)(data=value)))

    def again(self, every_s: float, name: str, until: Callable[[], bool]) -> Callable[[], bool]:
        """``until``, which says ``name`` whenever it is asked and so much time has passed: once may be too early."""
        asked = -np.inf

        def over() -> bool:
            nonlocal asked
            done = until()
            if not done and time.monotonic() >= asked + every_s:
                asked = time.monotonic()
                self.tell(name)
            return done

        return over

    def watch(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Take in what comes for ``seconds`` at most; whether ``until`` came."""
        end_at = time.monotonic() + seconds
        while not until():
            left = end_at - time.monotonic()
            if left <= 0:
                return False
            self.bus.wait(min(left, 0.02))
        return True

    @property
    def mode(self) -> str:
        """The guard's."""
        return self.modes[-1][1].split()[0] if self.modes else ""

    def need(self, what: str, seconds: float, until: Callable[[], bool]) -> None:
        """Watch until, or fail with what the processes said."""
        if not self.watch(seconds, until):
            ended = [how_ended(p) for p in self.processes.values() if p.poll() is not None]
            raise RuntimeError(f"{what} did not come in {seconds:g} s (guard: {self.mode or 'silent'}, last event: "
                               f"{self.events[-1:]}); {'; '.join(ended)}")

    def fly(self) -> None:
        """Begin a mission. A start that was drawn outside of where the guard begins is drawn anew."""
        for _ in range(STARTS):
            if self._begin():
                return
        raise RuntimeError(f"{STARTS} starts in a row were refused: {self.events[-1][1]['reason']}")

    def _begin(self) -> bool:
        """Reset, wait until all is there, start; False: the guard refuses where the robot is."""
        self.number += 1
        held = ("stopping", "holding", "stopped")  # while the guard holds the robot a reset of that is a leap
        self.need("a guard that lets go", START_S, self.again(0.6, "mission/reset", lambda: self.mode not in held))
        self.tell("sim/reset", self.number)
        again = time.monotonic()

        def ready() -> bool:
            nonlocal again
            begun, held = self.episode == self.number, self.mode in ("holding", "stopped")
            if time.monotonic() > again + 1.0 and (held or not begun):  # who was started a moment ago heard nothing
                again = time.monotonic()
                if not begun:
                    self.tell("sim/reset", self.number)
                self.tell("mission/reset")
            return begun and self.mode in ("ready", "finished")  # a reset that comes in flight is a jump

        self.need("a guard that is ready", START_S, ready)
        self.watch(0.3)
        asked = -1.0

        def active() -> bool:
            nonlocal asked
            if time.monotonic() > asked + 1.0:  # a controller that was started a moment ago may not have heard it
                asked = time.monotonic()
                self.tell("mission/start", self.number)
            return f"active {self.number}" in (mode for _, mode in self.modes[said:])  # it may be over again

        def refused() -> bool:
            return any(event["code"] == "start" for _, event in self.events[known:])

        known, said = len(self.events), len(self.modes)
        self.need("the mission", START_S, lambda: active() or refused())
        return not refused()

    def close(self, modules: Sequence[str] = ()) -> None:
        """End all processes, or some."""
        names = modules or list(self.processes)
        end([self.processes.pop(name) for name in names if name in self.processes])
        if not modules:
            self.bus.close()
