"""The processes of one robot for benchmarks: started nodes, and an observer.

The observer is this process, with its own node on the bus: it stamps every command as it arrives.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.robots.spec import load_robot
from temporeal_benchmarks.deployment.command_oracle import ORDER_S, Oracle
from temporeal_benchmarks.deployment.matched_commands import MatchedCommands
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
BESIDE = ("monitor_node", "recorder")  # not on the way from state to command: never real-time


class RobotProcesses:
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
        self.matched = MatchedCommands(self.oracle) if on_command is None else None
        self.proposed = (-1, -np.inf)  # mission, and s in it when the controller's last command had gone, as recorded
        self.low_at = -np.inf  # when the robot last said that it is on the ground
        self.bus.subscribe(self.topic.topic, self.topic.type, DEEP, on_command or self._on_command)
        if self.matched is not None:
            self._hear_guard(self.matched)
            self.oracle.set_mode("")  # there is no mission
        self.bus.subscribe("mission", "std_msgs/msg/Header", ALL_MODES, self._on_mode)
        self.bus.subscribe("guard/event", "std_msgs/msg/String", QOS["default"], lambda r: self.events.append((
            r.at, json.loads(messages.decode(r.type, r.data).data))))
        self.bus.subscribe("sim/episode", "std_msgs/msg/UInt64", QOS["latched"], self._on_episode)
        self.topics = {name: self.bus.advertise(name, f"std_msgs/msg/{type}", QOS["default"]) for name, type in (
            ("mission/start", "UInt64"), ("mission/stop", "Empty"), ("mission/reset", "Empty"), ("sim/reset", "UInt64"),
            ("estop", "Bool"))}

    def _on_command(self, received: Received) -> None:
        if self.matched is None:
            self.oracle.read(received.at, received.data)
        else:
            self.matched.command(received.at, received.data)

    def _hear_guard(self, matched: MatchedCommands) -> None:
        """Judge commands by the times and the state that the guard records for each: an observer may receive them
        later, and mistake a pause of its own for one of the guard's."""
        def on_record(received: Received) -> None:
            found = matched.record(received.data)
            if found.step >= 0:
                self.proposed = found.flight, found.left

        for state in self.facts.states:
            self.bus.subscribe(state.topic, state.type, DEEP, lambda r, s=state: self._on_state(s, r))
        self.bus.subscribe("guard/command", "std_msgs/msg/Float64MultiArray", DEEP, on_record)

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
        if self.matched is not None:
            self.oracle.set_mode(said.split()[0], received.at)

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

    def publish(self, name: str, value: Any = None) -> None:
        """Say something on one of :attr:`topics`."""
        endpoint = self.topics[name]
        self.bus.publish(endpoint, messages.empty() if value is None else messages.encode(
            endpoint.type, messages.record(endpoint.type)(data=value)))

    def asking(self, every_s: float, name: str, until: Callable[[], bool]) -> Callable[[], bool]:
        """``until``, which says ``name`` whenever it is asked and so much time has passed: once may be too early."""
        asked = -np.inf

        def over() -> bool:
            nonlocal asked
            done = until()
            if not done and time.monotonic() >= asked + every_s:
                asked = time.monotonic()
                self.publish(name)
            return done

        return over

    def spin(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
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

    def require(self, what: str, seconds: float, until: Callable[[], bool]) -> None:
        """Watch until, or fail with what the processes said."""
        if not self.spin(seconds, until):
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
        self.require("a guard that lets go", START_S, self.asking(0.6, "mission/reset", lambda: self.mode not in held))
        self.publish("sim/reset", self.number)
        again = time.monotonic()

        def ready() -> bool:
            nonlocal again
            begun, held = self.episode == self.number, self.mode in ("holding", "stopped")
            if time.monotonic() > again + 1.0 and (held or not begun):  # who was started a moment ago heard nothing
                again = time.monotonic()
                if not begun:
                    self.publish("sim/reset", self.number)
                self.publish("mission/reset")
            return begun and self.mode in ("ready", "finished")  # a reset that comes in flight is a jump

        self.require("a guard that is ready", START_S, ready)
        self.spin(0.3)
        asked = -1.0

        def active() -> bool:
            nonlocal asked
            if time.monotonic() > asked + 1.0:  # a controller that was started a moment ago may not have heard it
                asked = time.monotonic()
                self.publish("mission/start", self.number)
            return f"active {self.number}" in (mode for _, mode in self.modes[said:])  # it may be over again

        def refused() -> bool:
            return any(event["code"] == "start" for _, event in self.events[known:])

        known, said = len(self.events), len(self.modes)
        self.require("the mission", START_S, lambda: active() or refused())
        return not refused()

    def close(self, modules: Sequence[str] = ()) -> None:
        """End all processes, or some."""
        names = modules or list(self.processes)
        end([self.processes.pop(name) for name in names if name in self.processes])
        if not modules:
            self.bus.close()
