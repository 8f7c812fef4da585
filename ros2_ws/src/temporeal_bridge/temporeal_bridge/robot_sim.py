"""A simulated robot in its own process: MuJoCo physics behind exactly the topics of the real one, in real time.

    python -m temporeal_bridge.robot_sim --robot crazyflie --namespace /cf1 --seed 3

True state -> noise and latency -> the interface's state topics; command topics -> latency -> firmware (what it does
when setpoints stop) -> rotors with lag -> MuJoCo. At the start and after a reset the robot is held in its start state
until the first command comes.

Topics of the simulation itself, in the robot's namespace: ``sim/reset`` (std_msgs/UInt64: seed of the next flight) in,
``sim/episode`` (std_msgs/UInt64, latched: that seed, once the robot is there) out.
"""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robots import shield
from robots.frames import from_rotation_vector, multiply
from robots.spec import RobotSpec, load_robot
from temporeal_bridge import codecs, messages
from temporeal_bridge.interface import CommandTopic, Interface, InterfaceError, load_interface
from temporeal_bridge.node import parser, run, whole
from temporeal_bridge.transport import QOS, Received, Transport, qos_named

if TYPE_CHECKING:
    from sim.backends.mujoco_model import Robot

DT = 0.002  # physics step, s
GRAVITY = 9.81  # m/s^2
MAX_CATCH_UP_S = 0.5  # a longer stall of this machine stops the simulated clock instead


class Firmware:
    """What the robot itself does with setpoints, and without them."""

    def __init__(self, command: str, watchdog: Mapping[str, float]) -> None:
        self.command, self.watchdog = command, watchdog
        self.last, self.at = np.zeros(4), -np.inf
        self.locked = False

    def receive(self, command: np.ndarray, at: float) -> None:
        """A setpoint that arrived at ``at`` [s]."""
        self.last, self.at = command, at

    def output(self, now: float, quat_wxyz: np.ndarray) -> np.ndarray:
        """The setpoint in force: the last one; after a silence the level attitude with its thrust; then nothing."""
        age = now - self.at
        self.locked = self.locked or age > self.watchdog["off_after_s"]
        if self.locked:
            return np.zeros(4)
        if age <= self.watchdog["level_after_s"]:
            return self.last
        if self.command != "ctbr_cmd":
            return np.zeros(4)  # motor setpoints are for the simulator only: there is no firmware to level it
        rates = shield.level_rates(quat_wxyz, self.watchdog["gain"], self.watchdog["limit"])
        return np.concatenate([self.last[:1], rates])


class RobotSim:
    """One simulated robot on a transport."""

    def __init__(
        self, transport: Transport, robot: RobotSpec, interface: Interface, *, command: str = "ctbr_cmd", seed: int = 0,
        out: Path | None = None, settings: Mapping[str, Any] | None = None,
    ) -> None:
        from sim.backends.mujoco_model import Robot

        self.transport, self.robot, self.interface, self.command, self.out = transport, robot, interface, command, out
        self.settings = {**interface.simulation, **dict(settings or {})}
        self.body: Robot = Robot(robot, command, DT, seed)
        self.outputs = [(s, transport.advertise(s.topic, s.type, QOS["default"])) for s in interface.states]
        self.publish_every = round(1.0 / (max(s.rate_hz for s in interface.states) * DT))
        topic = interface.command(command)
        transport.subscribe(topic.topic, topic.type, qos_named(topic.qos), self._taker(topic))
        self.episode = transport.advertise("sim/episode", "std_msgs/msg/UInt64", QOS["latched"])
        transport.subscribe("sim/reset", "std_msgs/msg/UInt64", QOS["default"], self._on_reset)
        self.worst_lag = 0.0
        self.stalls = self.resets = self.rejected = 0
        self.reset(seed)

    def _taker(self, topic: CommandTopic) -> Any:
        codec = codecs.COMMANDS[topic.codec]

        def take(received: Received) -> None:
            command = codec.decode(messages.decode(received.type, received.data), topic.options)
            if command.shape != (4,) or not np.isfinite(command).all():
                self.rejected += 1
                return
            if self.held:
                self._release(received.at)
            self.inbox.append((received.at - self.origin + self.settings["command_latency_s"], command))

        return take

    def _on_reset(self, received: Received) -> None:
        self.reset(int(messages.decode(received.type, received.data).data))

    def reset(self, seed: int) -> None:
        """Put the robot into the start state of flight ``seed`` and hold it there."""
        self.save()
        self.seed, self.rng = seed, np.random.default_rng(seed)
        self.body.set_params(draw_parameters(self.robot, self.rng, float(self.settings["spread"])))
        self.body.reset(draw_start(self.robot, self.rng, self.settings["start"]))
        self.firmware = Firmware(self.command, self.settings["watchdog"])
        self.held, self.crashed = True, ""
        self.origin, self.count = self.transport.monotonic(), 0
        self.inbox: deque[tuple[float, np.ndarray]] = deque()
        self.delay: deque[tuple[float, dict[str, np.ndarray]]] = deque()
        self.truth: list[tuple[int, dict[str, np.ndarray], np.ndarray]] = []
        self.resets += 1
        message = messages.record("std_msgs/msg/UInt64")(data=seed)
        self.transport.publish(self.episode, messages.encode("std_msgs/msg/UInt64", message))

    def _release(self, now: float) -> None:
        """Let go: the flight's time begins now, and the past is the held state."""
        self.held, self.origin, self.count = False, now, 0
        self.delay = deque([(-self.settings["state_latency_s"], self.body.signals())])

    def deadline(self) -> float:
        """See :class:`temporeal_bridge.node.Node`: the next time at which a state is published."""
        return self.origin + (self.count + self.publish_every) * DT

    def step(self) -> None:
        """Bring the simulation to the present, publishing on the way."""
        now = self.transport.monotonic()
        lag = now - self.deadline()
        self.worst_lag = max(self.worst_lag, lag)
        if lag > MAX_CATCH_UP_S:
            self.stalls += 1
            self.origin += lag
        while self.transport.monotonic() >= self.deadline():
            self._advance()

    def _advance(self) -> None:
        """One publishing period: physics (unless held), then the state that is as old as the latency says."""
        for _ in range(self.publish_every):
            time = self.count * DT
            while self.inbox and self.inbox[0][0] <= time:
                at, command = self.inbox.popleft()
                self.firmware.receive(command, at)
            if not self.held and not self.crashed:
                self._physics(time)
            self.count += 1
        time, true = self.count * DT, self.body.signals()
        self.delay.append((time, true))
        while len(self.delay) > 1 and self.delay[1][0] <= time - self.settings["state_latency_s"] + 1e-9:
            self.delay.popleft()
        stamp = self.transport.now()
        if not self.held:
            self.truth.append((stamp, true, self.firmware.last))
        self._publish(self.measure(self.delay[0][1]), stamp)

    def _physics(self, time: float) -> None:
        if self.firmware.at == -np.inf:  # the first command is still on its way: keep what holds the robot
            self.firmware.receive(self.neutral(), time)
        try:
            self.body.step(self.firmware.output(time, self.body.signals()["base_quat_w"]), 1)
        except FloatingPointError as error:
            self.crashed = str(error)

    def neutral(self) -> np.ndarray:
        """The command that keeps a level robot where it is."""
        if self.command == "ctbr_cmd":
            return np.array([self.body.params()["mass"] * GRAVITY, 0.0, 0.0, 0.0])
        return np.asarray(self.body.signals()["rotor_speed"], dtype=float)

    def measure(self, true: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The true signals with the noise of the sensors and the estimator."""
        noise = self.settings["noise"]
        out = {}
        for name in self.robot.signals:
            value, std = np.asarray(true[name], dtype=float), float(noise.get(name, 0.0))
            if name == "base_quat_w":
                out[name] = multiply(value, from_rotation_vector(std * self.rng.standard_normal(3)))
            else:
                out[name] = value + std * self.rng.standard_normal(value.shape)
        out["height"] = out["base_pos_w"][2]
        return out

    def _publish(self, signals: Mapping[str, np.ndarray], stamp: int) -> None:
        """All state topics; the one that paces the controller last, so that the others are there when it comes."""
        frames = ("world", self.transport.namespace.strip("/") or self.robot.name)
        for topic, endpoint in reversed(self.outputs):
            message = codecs.STATES[topic.codec].encode(signals, stamp, frames, topic.options)
            self.transport.publish(endpoint, messages.encode(topic.type, message))

    def save(self) -> None:
        """Write the true trajectory of the flight that ends: stamps [T] ns, signals [T, ...], setpoints [T, 4]."""
        truth = getattr(self, "truth", [])
        if self.out is None or not truth:
            return
        arrays: dict[str, Any] = {name: np.stack([row[1][name] for row in truth]) for name in truth[0][1]}
        arrays["stamp_ns"] = np.array([row[0] for row in truth])
        arrays["command"] = np.stack([row[2] for row in truth])
        with whole(self.out / f"truth_{self.seed}.npz") as part:
            np.savez(part, **arrays)

    def close(self) -> None:
        """Keep the trajectory of the last flight."""
        self.save()

    def summary(self) -> dict[str, Any]:
        """See :class:`temporeal_bridge.node.Node`."""
        return {"node": "robot_sim", "robot": self.robot.name, "interface": self.interface.name,
                "command": self.command, "resets": self.resets, "rejected": self.rejected, "crashed": self.crashed,
                "stalls": self.stalls, "worst_lag_ms": 1e3 * self.worst_lag}


def draw_start(robot: RobotSpec, rng: np.random.Generator, start: Mapping[str, float]) -> dict[str, np.ndarray]:
    """A start state near home: uniform in position, velocity and rates, tilted about a random axis."""
    axis = rng.standard_normal(3)
    turn = rng.uniform(0.0, start["tilt_rad"]) * axis / np.linalg.norm(axis)
    home = np.array(robot.home["base_pos_w"])
    return {
        "base_pos_w": home + start["position_m"] * rng.uniform(-1, 1, 3),
        "base_quat_w": from_rotation_vector(turn),
        "base_vel_w": start["speed_m_s"] * rng.uniform(-1, 1, 3),
        "base_ang_vel_b": start["rate_rad_s"] * rng.uniform(-1, 1, 3),
    }


def draw_parameters(robot: RobotSpec, rng: np.random.Generator, spread: float) -> dict[str, np.ndarray]:
    """Physical parameters, uniform in ``spread`` (0 to 1) of each range around its nominal value."""
    if not 0.0 <= spread <= 1.0:
        raise InterfaceError(f"spread is a share from 0 to 1, got {spread}")
    out = {}
    for name, p in robot.parameters.items():
        nominal, low, high = (np.array(v) for v in (p.nominal, p.low, p.high))
        drawn = rng.uniform(nominal + spread * (low - nominal), nominal + spread * (high - nominal))
        out[name] = drawn[0] if len(drawn) == 1 else drawn
    return out


def make(args: argparse.Namespace, transport: Transport) -> RobotSim:
    """The node from its command line."""
    robot = load_robot(args.robot)
    settings = {} if args.spread is None else {"spread": args.spread}
    return RobotSim(transport, robot, load_interface(robot, args.interface), command=args.command, seed=args.seed,
                    out=args.out, settings=settings)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = parser("robot_sim", "A simulated robot with the real one's topics, in real time.")
    options.add_argument("--command", default="ctbr_cmd", help="command that it listens to (default: %(default)s)")
    options.add_argument("--seed", type=int, default=0, help="seed of the first flight (default: %(default)s)")
    options.add_argument("--spread", type=float, default=None,
                         help="share 0..1 of the parameters' published ranges to draw from (default: ros.yaml)")
    return run(options, arguments, make, "robot_sim.json")


if __name__ == "__main__":
    sys.exit(main())
